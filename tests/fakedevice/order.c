/* Order of NCCL operations on a device (order.h). Source: NCCL 2.28, enqueue.cc, "implicit launch order", and its user
 * guide, "Thread safety". */
#include "order.h"
#include "capture.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICES_MOST = 64, LAUNCH_COMPLETION_DRIVER = 12030 };

static struct {
	struct pp_fake_record *last; /* started, or ended, by the driver */
	uint32_t host;               /* number of the thread that posts, plus 1 */
	uint32_t resident;           /* operations that have started and not ended */
} devices[DEVICES_MOST];

static bool ordered(void)
{
	const char *given = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
	return pp_fake_settings()->ordered || (given && strcmp(given, "0") != 0);
}

cudaError_t pp_fake_order_wait(struct pp_fake_host *host, struct CUstream_st *stream)
{
	if (!ordered() || stream->capture || !devices[stream->device].last)
		return cudaSuccess;
	struct pp_fake_operation *wait = pp_fake_operation_make(&pp_fake_nothing, sizeof *wait, "order of launches");
	wait->awaits = pp_fake_record_keep(devices[stream->device].last);
	return pp_fake_submit(host, stream, wait);
}

void pp_fake_order_mark(struct CUstream_st *stream, struct pp_fake_operation *operation)
{
	if (!ordered())
		return;
	if (stream->capture) {
		pp_fake_capture_order(stream);
		return;
	}
	struct pp_fake_record *record = pp_fake_record_make();
	if (pp_fake_settings()->driver >= LAUNCH_COMPLETION_DRIVER)
		operation->starts = record;
	else
		operation->records = record;
	pp_fake_record_drop(devices[stream->device].last);
	devices[stream->device].last = pp_fake_record_keep(record);
}

void pp_fake_order_thread(const struct pp_fake_host *host, int device)
{
	uint32_t mark = host->number + 1;
	if (devices[device].host != 0 && devices[device].host != mark)
		pp_fake_fault("hosts %u and %u both post NCCL operations on device %d: one thread at a time may",
		              devices[device].host - 1, host->number, device);
	devices[device].host = mark;
}

bool pp_fake_order_enter(int device)
{
	uint32_t room = pp_fake_settings()->resident;
	if (room == 0)
		return true;
	pp_fake_lock();
	bool fits = devices[device].resident < room;
	devices[device].resident += fits;
	pp_fake_unlock();
	return fits;
}

void pp_fake_order_leave(int device)
{
	if (pp_fake_settings()->resident == 0)
		return;
	pp_fake_lock();
	devices[device].resident--;
	pp_fake_unlock();
}
