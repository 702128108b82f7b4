/* Copies and fills. Host memory of an asynchronous copy must be pinned: a real runtime would stage pageable memory, and
 * block for it. To show a host that doesn't wait: what a copy will overwrite is all ones from the call on, and a source
 * that has changed between the call and the copy is reported. */
#include "capture.h"
#include "memory.h"
#include "runtime.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xff };

struct copy_operation {
	struct pp_fake_operation base;
	void *to;
	const void *from; /* NULL: fill */
	uint64_t bytes;
	int value;
	bool summed;
	uint64_t sum; /* of the source at the call */
	const char *where;
};

/* FNV-1a over 64-bit words: Fowler, Noll, Vo. */
static uint64_t sum_of(const void *start, uint64_t bytes)
{
	const unsigned char *at = start;
	uint64_t sum = 0xcbf29ce484222325;
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = 0;
		memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
		sum = (sum ^ word) * 0x100000001b3;
	}
	return sum;
}

static enum pp_fake_outcome step_copy(struct pp_fake_operation *operation)
{
	struct copy_operation *copy = (struct copy_operation *)operation;
	if (!copy->from) {
		memset(copy->to, copy->value, copy->bytes);
		return PP_FAKE_FINISHED;
	}
	if (copy->summed && sum_of(copy->from, copy->bytes) != copy->sum) {
		pp_fake_lock();
		pp_fake_race(
		    "race: the host wrote the %llu bytes at %p between the cudaMemcpyAsync that reads them and the copy, "
		    "on %s",
		    (unsigned long long)copy->bytes, copy->from, copy->where);
		pp_fake_unlock();
	}
	memmove(copy->to, copy->from, copy->bytes);
	return PP_FAKE_FINISHED;
}

static void release_copy(struct pp_fake_operation *operation)
{
	free(operation);
}

static const struct pp_fake_operation_kind copy_kind = {.step = step_copy, .release = release_copy};

static const char *const kind_names[] = {"host to host", "host to device", "device to host", "device to device"};

/* The kind of copy that the addresses make, as cudaMemcpyDefault would find it. */
static enum cudaMemcpyKind kind_of(const void *to, const void *from)
{
	bool to_device = pp_fake_memory_kind(to) == PP_FAKE_DEVICE,
	     from_device = pp_fake_memory_kind(from) == PP_FAKE_DEVICE;
	if (from_device)
		return to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
	return to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
}

static bool kind_fits(const void *to, const void *from, enum cudaMemcpyKind kind, const char *call)
{
	enum cudaMemcpyKind found = kind_of(to, from);
	if (kind == cudaMemcpyDefault || kind == found)
		return true;
	pp_fake_fault("%s from %p to %p says %s and is %s", call, from, to, kind_names[kind], kind_names[found]);
	return false;
}

static bool all_pinned(const void *to, const void *from, const char *call)
{
	const void *sides[] = {to, from};
	for (int i = 0; i < 2; i++)
		if (pp_fake_memory_kind(sides[i]) == PP_FAKE_PAGEABLE) {
			pp_fake_fault("%s %s pageable memory %p (or freed device memory): pin it", call, i == 0 ? "to" : "from",
			              sides[i]);
			return false;
		}
	return true;
}

static void watch_host_side(const struct pp_fake_host *host, struct copy_operation *copy)
{
	uint64_t bytes = copy->bytes;
	if (pp_fake_memory_kind(copy->from) == PP_FAKE_PINNED) {
		copy->summed = pp_fake_races_settled(&host->clock, copy->from, bytes, true);
		copy->sum = copy->summed ? sum_of(copy->from, bytes) : 0;
	}
	if (pp_fake_memory_kind(copy->to) == PP_FAKE_PINNED && pp_fake_races_settled(&host->clock, copy->to, bytes, false))
		memset(copy->to, POISON, bytes);
}

static cudaError_t copy_on(struct pp_fake_host *host, struct CUstream_st *stream, void *to, const void *from,
                           uint64_t bytes, const char *call)
{
	struct copy_operation *copy = pp_fake_operation_make(&copy_kind, sizeof *copy, call);
	copy->to = to;
	copy->from = from;
	copy->bytes = bytes;
	copy->where = stream->where;
	int device = stream->device; /* copies may go between devices without peer access: by way of the host */
	bool good = true;
	const void *sides[] = {from, to};
	for (int i = 0; i < 2; i++) {
		const struct pp_fake_allocation *allocation = pp_fake_allocation_at(sides[i]);
		good &= pp_fake_memory_check(allocation ? allocation->device : device, sides[i], bytes, i == 1, call);
	}
	if (!good) {
		pp_fake_operation_free(&copy->base);
		return cudaErrorInvalidValue;
	}
	if (!stream->capture)
		watch_host_side(host, copy);
	pp_fake_operation_touches(&copy->base, from, bytes, false);
	pp_fake_operation_touches(&copy->base, to, bytes, true);
	return pp_fake_submit(host, stream, &copy->base);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMemcpyAsync");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaMemcpyAsync");
	if (!stream)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	if (bytes == 0)
		return pp_fake_leave(host, cudaSuccess);
	if (!all_pinned(to, from, "cudaMemcpyAsync") || !kind_fits(to, from, kind, "cudaMemcpyAsync"))
		return pp_fake_leave(host, cudaErrorInvalidValue);
	return pp_fake_leave(host, copy_on(host, stream, to, from, bytes, "cudaMemcpyAsync"));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMemcpyPeerAsync");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaMemcpyPeerAsync");
	const struct pp_fake_allocation *target = pp_fake_allocation_at(to), *source = pp_fake_allocation_at(from);
	if (!stream || !target || !source || target->device != to_device || source->device != from_device) {
		pp_fake_fault("cudaMemcpyPeerAsync: the memory isn't that of devices %d and %d", from_device, to_device);
		return pp_fake_leave(host, cudaErrorInvalidValue);
	}
	return pp_fake_leave(host, copy_on(host, stream, to, from, bytes, "cudaMemcpyPeerAsync"));
}

static cudaError_t fill_on(struct pp_fake_host *host, struct CUstream_st *stream, void *to, int value, uint64_t bytes)
{
	struct copy_operation *fill = pp_fake_operation_make(&copy_kind, sizeof *fill, "cudaMemsetAsync");
	fill->to = to;
	fill->value = value;
	fill->bytes = bytes;
	pp_fake_operation_touches(&fill->base, to, bytes, true);
	return pp_fake_submit(host, stream, &fill->base);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMemsetAsync");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaMemsetAsync");
	if (!stream)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	return pp_fake_leave(host, bytes ? fill_on(host, stream, to, value, bytes) : cudaSuccess);
}

/* The calls without a stream run at once, by the host thread: non-blocking streams don't wait for them, nor they for
 * those. */
static bool touch_now(struct pp_fake_host *host, const void *start, uint64_t bytes, bool writes, const char *call)
{
	struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	if (!allocation)
		return true;
	if (!pp_fake_memory_check(allocation->device, start, bytes, writes, call))
		return false;
	pp_fake_clock_tick(&host->clock, host->agent);
	struct pp_fake_toucher by = {
	    .agent = host->agent, .clock = &host->clock, .name = call, .where = pp_fake_text("host %u", host->number)};
	pp_fake_races_touch(&by, &(struct pp_fake_touch){.start = (uintptr_t)start, .bytes = bytes, .writes = writes});
	return true;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMemcpy");
	cudaError_t error = pp_fake_capture_forbids(host, "cudaMemcpy");
	if (error != cudaSuccess || bytes == 0)
		return pp_fake_leave(host, error);
	pp_fake_frozen("a blocking copy was made");
	if (!kind_fits(to, from, kind, "cudaMemcpy") || !touch_now(host, from, bytes, false, "cudaMemcpy") ||
	    !touch_now(host, to, bytes, true, "cudaMemcpy"))
		return pp_fake_leave(host, cudaErrorInvalidValue);
	memmove(to, from, bytes);
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
	struct pp_fake_host *host = pp_fake_enter("cudaMemset");
	cudaError_t error = pp_fake_capture_forbids(host, "cudaMemset");
	if (error != cudaSuccess || bytes == 0)
		return pp_fake_leave(host, error);
	pp_fake_frozen("a blocking fill was made");
	if (!touch_now(host, to, bytes, true, "cudaMemset"))
		return pp_fake_leave(host, cudaErrorInvalidValue);
	memset(to, value, bytes);
	return pp_fake_leave(host, cudaSuccess);
}
