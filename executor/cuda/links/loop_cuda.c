/* Lanes of a GPU: a stream, an event per end and entry, an event per entry that is over.
 *
 * Requires: every thread has made its device, all on one GPU; marks of an entry come before it is moved, and are seen
 * by the thread that moves it. Ensures: nothing is allocated after the lane is open; entries of a lane run in order. */
#include "loop_cuda.h"

#include "executor/cuda/cuda.h"
#include "executor/cuda/kernels/members_cuda.h"

#include <inttypes.h>
#include <stdlib.h>

struct pp_lane {
	int ordinal;
	uint32_t ends, capacity;
	cudaStream_t stream;
	struct pp_cuda_events
	    events; /* [capacity][ends + 1]: where each end was when it posted, then the end of the entry */
};

static cudaEvent_t *events_of(const struct pp_lane *lane, uint64_t entry)
{
	return &lane->events.items[entry % lane->capacity * (lane->ends + 1)];
}

/* By any thread: without its GPU chosen, CUDA would start the first one for it. */
static void close_lane(struct pp_lane *lane)
{
	struct pp_status status;
	pp_cuda_enter(lane->ordinal, &status);
	pp_cuda_events_free(&lane->events);
	if (lane->stream)
		cudaStreamDestroy(lane->stream);
	free(lane);
}

/* Kernels are loaded when they first run, which must not happen while others are in flight: each sums one zero. */
static bool try_sums(const struct pp_lane *lane, struct pp_status *status)
{
	static const enum pp_cuda_summand types[] = {PP_CUDA_SUM_F32, PP_CUDA_SUM_F64, PP_CUDA_SUM_BF16};
	void *zero = NULL;
	if (!pp_cuda_ok(cudaMalloc(&zero, sizeof(double)), "allocating memory of the GPU", status))
		return false;
	const struct pp_cuda_members one = {.from = {zero}, .to = {zero}, .count = 1};
	cudaError_t cleared = cudaMemsetAsync(zero, 0, sizeof(double), lane->stream);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		pp_cuda_sum_whole(lane->stream, types[i], &one, 1);
		pp_cuda_sum_shares(lane->stream, types[i], &one, 1);
	}
	bool ok = pp_cuda_ok(cleared, "clearing memory", status) &&
	          pp_cuda_ok(cudaGetLastError(), "trying the sums", status) &&
	          pp_cuda_wait(lane->stream, "trying the sums", status);
	cudaFree(zero);
	return ok;
}

static bool fill_lane(struct pp_lane *lane, struct pp_status *status)
{
	return pp_cuda_ok(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking), "making a stream", status) &&
	       try_sums(lane, status) &&
	       pp_cuda_events_make(&lane->events, (size_t)lane->capacity * (lane->ends + 1), false, status);
}

static struct pp_lane *open_lane(struct pp_device *device, uint32_t ends, uint32_t capacity, struct pp_status *status)
{
	if (ends > PP_CUDA_MEMBERS) {
		pp_fail(status, PP_EXIT_ENVIRONMENT,
		        "a group of %" PRIu32 " ranks is too large for one GPU: at most %d ranks can be threads on it", ends,
		        PP_CUDA_MEMBERS);
		return NULL;
	}
	struct pp_lane *lane = calloc(1, sizeof *lane);
	if (!lane) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
		return NULL;
	}
	*lane = (struct pp_lane){.ordinal = pp_cuda_of(device)->ordinal, .ends = ends, .capacity = capacity};
	if (fill_lane(lane, status))
		return lane;
	close_lane(lane);
	return NULL;
}

static bool mark(struct pp_lane *lane, struct pp_device *device, uint32_t end, uint64_t entry, struct pp_status *status)
{
	const struct pp_cuda *cuda = pp_cuda_of(device);
	if (cuda->ordinal != lane->ordinal)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "ranks that are threads of one process share one GPU, these are on GPU %d and GPU %d: use "
		               "--gpus=%d, or one process per GPU",
		               lane->ordinal, cuda->ordinal, lane->ordinal);
	return pp_cuda_ok(cudaEventRecord(events_of(lane, entry)[end], cuda->compute), "marking a post", status);
}

/* The lane goes on once all ends have got to their posts. */
static bool begin(const struct pp_lane *lane, uint64_t entry, struct pp_status *status)
{
	for (uint32_t i = 0; i < lane->ends; i++)
		if (!pp_cuda_ok(cudaStreamWaitEvent(lane->stream, events_of(lane, entry)[i], 0), "waiting for a post", status))
			return false;
	return true;
}

static bool end(const struct pp_lane *lane, uint64_t entry, struct pp_status *status)
{
	return pp_cuda_ok(cudaEventRecord(events_of(lane, entry)[lane->ends], lane->stream), "marking a transfer", status);
}

static bool copy_bytes(const struct pp_lane *lane, void *to, const void *from, uint64_t bytes, struct pp_status *status)
{
	return to == from || bytes == 0 ||
	       pp_cuda_ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, lane->stream),
	                  "copying between two ranks", status);
}

static bool copy(struct pp_lane *lane, uint64_t entry, void *to, const void *from, uint64_t bytes,
                 struct pp_status *status)
{
	return begin(lane, entry, status) && copy_bytes(lane, to, from, bytes, status) && end(lane, entry, status);
}

static bool gather(const struct pp_lane *lane, const struct pp_part *const *parts, uint32_t members,
                   struct pp_status *status)
{
	uint64_t bytes = parts[0]->count * pp_dtype_size[parts[0]->dtype];
	for (uint32_t i = 0; i < members; i++)
		for (uint32_t k = 0; k < members; k++)
			if (!copy_bytes(lane, parts[i]->to + k * bytes, parts[k]->from, bytes, status))
				return false;
	return true;
}

static bool sum(const struct pp_lane *lane, const struct pp_part *const *parts, uint32_t members,
                struct pp_status *status)
{
	struct pp_cuda_members all = {.count = members};
	for (uint32_t i = 0; i < members; i++) {
		all.from[i] = parts[i]->from;
		all.to[i] = parts[i]->to;
	}
	enum pp_cuda_summand type = parts[0]->dtype == PP_F64    ? PP_CUDA_SUM_F64
	                            : parts[0]->dtype == PP_BF16 ? PP_CUDA_SUM_BF16
	                                                         : PP_CUDA_SUM_F32;
	if (parts[0]->kind == PP_ALLREDUCE)
		pp_cuda_sum_whole(lane->stream, type, &all, parts[0]->count);
	else
		pp_cuda_sum_shares(lane->stream, type, &all, parts[0]->count);
	return pp_cuda_ok(cudaPeekAtLastError(), "summing over ranks", status);
}

static bool collect(struct pp_lane *lane, uint64_t entry, const struct pp_part *const *parts, uint32_t members,
                    struct pp_status *status)
{
	return begin(lane, entry, status) &&
	       (parts[0]->kind == PP_ALLGATHER ? gather : sum)(lane, parts, members, status) && end(lane, entry, status);
}

static bool follow(struct pp_lane *lane, struct pp_device *device, uint64_t entry, struct pp_status *status)
{
	return pp_cuda_ok(cudaStreamWaitEvent(pp_cuda_of(device)->compute, events_of(lane, entry)[lane->ends], 0),
	                  "waiting for a transfer", status);
}

const struct pp_loop_mover pp_loop_mover_cuda = {
    .open = open_lane,
    .close = close_lane,
    .mark = mark,
    .copy = copy,
    .collect = collect,
    .follow = follow,
};
