/* Events. An event is a handle for its last record; a wait takes the record that was last at the call, and an event
 * that was never recorded holds nobody up, as on a device. */
#include "capture.h"
#include "plant.h"
#include "runtime.h"
#include "stream.h"

#include <sched.h>
#include <stdlib.h>

struct CUevent_st {
	uint32_t references; /* the handle's, and those of graphs */
	int device;
	unsigned int flags;
	struct pp_fake_record *last;
};

static cudaError_t make_event(struct pp_fake_host *host, cudaEvent_t *made, unsigned int flags)
{
	pp_fake_frozen("an event was made");
	struct CUevent_st *event = pp_fake_new(sizeof *event);
	event->references = 1;
	event->device = host->device;
	event->flags = flags;
	*made = event;
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *made)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventCreate");
	return pp_fake_leave(host, make_event(host, made, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned int flags)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventCreateWithFlags");
	return pp_fake_leave(host, make_event(host, made, flags));
}

static void drop_event(struct CUevent_st *event)
{
	if (--event->references > 0)
		return;
	pp_fake_record_drop(event->last);
	free(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventDestroy");
	if (!event)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	drop_event(event);
	return pp_fake_leave(host, cudaSuccess);
}

struct pp_fake_record *pp_fake_stream_record(struct pp_fake_host *host, struct CUstream_st *stream)
{
	struct pp_fake_record *made = pp_fake_record_make();
	cudaError_t error;
	if (stream->capture) {
		error = pp_fake_capture_record(stream, made);
	} else {
		struct pp_fake_operation *operation =
		    pp_fake_operation_make(&pp_fake_nothing, sizeof *operation, "cudaEventRecord");
		operation->records = pp_fake_record_keep(made);
		error = pp_fake_submit(host, stream, operation);
	}
	if (error == cudaSuccess)
		return made;
	pp_fake_record_drop(made);
	return NULL;
}

cudaError_t pp_fake_stream_wait(struct pp_fake_host *host, struct CUstream_st *stream, struct pp_fake_record *record)
{
	if (record->capture || stream->capture)
		return pp_fake_capture_wait(stream, record);
	struct pp_fake_operation *operation =
	    pp_fake_operation_make(&pp_fake_nothing, sizeof *operation, "cudaStreamWaitEvent");
	operation->awaits = pp_fake_record_keep(record);
	return pp_fake_submit(host, stream, operation);
}

static cudaError_t record(struct pp_fake_host *host, struct CUevent_st *event, struct CUstream_st *stream)
{
	if (event->device != stream->device) {
		pp_fake_fault("cudaEventRecord: the event is of device %d, %s of device %d", event->device, stream->where,
		              stream->device);
		return cudaErrorInvalidResourceHandle;
	}
	struct pp_fake_record *made = pp_fake_stream_record(host, stream);
	if (!made)
		return cudaErrorStreamCaptureInvalidated;
	pp_fake_record_drop(event->last);
	event->last = made;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventRecord");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaEventRecord");
	if (!stream || !event)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	if (pp_fake_planted(PP_FAKE_LOST_RECORD, &stream->event_records, 0))
		return pp_fake_leave(host, cudaSuccess);
	return pp_fake_leave(host, record(host, event, stream));
}

/* A node of a graph that records an event for whoever asks from outside, in each launch. */
struct external_operation {
	struct pp_fake_operation base;
	struct CUevent_st *event;
};

/* What it tells is the time alone: nobody is ordered by it. */
static enum pp_fake_outcome step_external(struct pp_fake_operation *operation)
{
	struct CUevent_st *event = ((struct external_operation *)operation)->event;
	pp_fake_lock();
	struct pp_fake_record *record = pp_fake_record_make();
	record->done = true;
	record->time = pp_fake_now();
	record->where = "a graph";
	pp_fake_record_drop(event->last);
	event->last = record;
	pp_fake_unlock();
	return PP_FAKE_FINISHED;
}

static void release_external(struct pp_fake_operation *operation)
{
	drop_event(((struct external_operation *)operation)->event);
	free(operation);
}

static const struct pp_fake_operation_kind external_kind = {.step = step_external, .release = release_external};

static cudaError_t record_external(struct pp_fake_host *host, struct CUevent_st *event, struct CUstream_st *stream)
{
	if (!stream->capture) {
		pp_fake_fault("cudaEventRecordExternal on %s, which is not being captured", stream->where);
		return cudaErrorInvalidValue;
	}
	struct external_operation *operation =
	    pp_fake_operation_make(&external_kind, sizeof *operation, "cudaEventRecordExternal");
	operation->event = event;
	event->references++;
	return pp_fake_submit(host, stream, &operation->base);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned int flags)
{
	if (flags != cudaEventRecordExternal)
		return cudaEventRecord(event, handle);
	struct pp_fake_host *host = pp_fake_enter("cudaEventRecordWithFlags");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaEventRecordWithFlags");
	bool good = stream && event;
	return pp_fake_leave(host, good ? record_external(host, event, stream) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags)
{
	(void)flags;
	struct pp_fake_host *host = pp_fake_enter("cudaStreamWaitEvent");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamWaitEvent");
	if (!stream || !event)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	if (pp_fake_planted(PP_FAKE_LOST_WAIT, &stream->waits, 0) || !event->last)
		return pp_fake_leave(host, cudaSuccess);
	return pp_fake_leave(host, pp_fake_stream_wait(host, stream, event->last));
}

/* Errors of asking about an event while captures go on. */
static cudaError_t may_ask(struct pp_fake_host *host, struct CUevent_st *event, const char *call)
{
	if (!event)
		return cudaErrorInvalidResourceHandle;
	if (event->last && event->last->capture && pp_fake_capture_valid(event->last->capture)) {
		pp_fake_fault("%s of an event that was recorded in a capture", call);
		return cudaErrorCapturedEvent;
	}
	return pp_fake_capture_forbids(host, call);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventQuery");
	cudaError_t error = may_ask(host, event, "cudaEventQuery");
	if (error != cudaSuccess || !event->last)
		return pp_fake_leave(host, error);
	if (pp_fake_planted(PP_FAKE_HASTY_QUERY, &host->queries, 0))
		return pp_fake_leave(host, cudaSuccess);
	if (!event->last->done) {
		pp_fake_host_polled(host, "cudaEventQuery, for %s", event->last->where);
		pp_fake_leave(host, cudaErrorNotReady);
		sched_yield();
		return cudaErrorNotReady;
	}
	pp_fake_clock_join(&host->clock, &event->last->clock);
	pp_fake_tsan_acquire(&event->last->token);
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventSynchronize");
	cudaError_t error = may_ask(host, event, "cudaEventSynchronize");
	if (error != cudaSuccess || !event->last)
		return pp_fake_leave(host, error);
	struct pp_fake_record *record = pp_fake_record_keep(event->last);
	pp_fake_host_blocked(host, "cudaEventSynchronize, for %s", record->where);
	while (!record->done)
		pp_fake_wait(0);
	pp_fake_host_freed(host);
	pp_fake_clock_join(&host->clock, &record->clock);
	pp_fake_tsan_acquire(&record->token);
	pp_fake_record_drop(record);
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
	struct pp_fake_host *host = pp_fake_enter("cudaEventElapsedTime");
	if (!from || !to || !from->last || !to->last || ((from->flags | to->flags) & cudaEventDisableTiming))
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	if (!from->last->done || !to->last->done)
		return pp_fake_leave(host, cudaErrorNotReady);
	*milliseconds = (float)(((double)to->last->time - (double)from->last->time) * 1e-6);
	return pp_fake_leave(host, cudaSuccess);
}
