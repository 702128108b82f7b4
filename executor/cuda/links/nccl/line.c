/* Posts on a communicator: wait for the compute stream, run, mark the end.
 *
 * Requires: every rank makes its posts on a communicator in one order (V7). Ensures: the host never waits; nothing is
 * allocated after the line is open. */
#include "line.h"

#include <stdio.h>

enum { POSTED, ENDED, EVENTS };

bool pp_nccl_ok(ncclResult_t result, ncclComm_t comm, const char *what, struct pp_status *status)
{
	if (result == ncclSuccess)
		return true;
	const char *detail = ncclGetLastError(comm);
	bool has = detail && detail[0];
	return pp_fail(status, PP_EXIT_RUN, "NCCL: %s failed: %s (error %d)%s%.300s", what, ncclGetErrorString(result),
	               (int)result, has ? ": " : "", has ? detail : "");
}

static cudaEvent_t event_of(const struct pp_nccl_line *line, uint64_t number, int event)
{
	return line->events.items[number % line->capacity * EVENTS + (uint64_t)event];
}

bool pp_nccl_line_open(struct pp_nccl_line *line, uint32_t posts, struct pp_status *status)
{
	line->capacity = posts ? posts : 1;
	return pp_cuda_events_make(&line->events, (size_t)line->capacity * EVENTS, false, status);
}

void pp_nccl_line_close(struct pp_nccl_line *line)
{
	pp_cuda_events_free(&line->events);
}

static ncclDataType_t type_of(const struct pp_part *part)
{
	static const ncclDataType_t types[PP_DTYPE_COUNT] = {
	    [PP_F32] = ncclFloat32, [PP_BF16] = ncclBfloat16, [PP_F64] = ncclFloat64, [PP_I32] = ncclInt32};
	return types[part->dtype];
}

static ncclResult_t call(const struct pp_nccl_line *line, const struct pp_part *part)
{
	ncclDataType_t type = type_of(part);
	if (line->index < line->program->channel_count)
		return line->seat.position == 0 ? ncclSend(part->from, part->count, type, 1, line->comm, line->stream)
		                                : ncclRecv(part->to, part->count, type, 0, line->comm, line->stream);
	switch ((enum pp_collective)part->kind) {
	case PP_ALLREDUCE:
		return ncclAllReduce(part->from, part->to, part->count, type, ncclSum, line->comm, line->stream);
	case PP_ALLGATHER:
		return ncclAllGather(part->from, part->to, part->count, type, line->comm, line->stream);
	case PP_REDUCESCATTER:
		return ncclReduceScatter(part->from, part->to, part->count, type, ncclSum, line->comm, line->stream);
	case PP_COLLECTIVE_COUNT:
		break;
	}
	return ncclInvalidArgument;
}

bool pp_nccl_line_start(const struct pp_nccl_line *line, const struct pp_part *part, struct pp_status *status)
{
	char name[PP_NCCL_NAME], what[PP_NCCL_NAME + 16];
	if (part->count == 0)
		return true;
	if (!line->comm) /* the sum over one is what it gives */
		return part->from == part->to ||
		       pp_cuda_ok(cudaMemcpyAsync(part->to, part->from, part->count * pp_dtype_size[part->dtype],
		                                  cudaMemcpyDeviceToDevice, line->stream),
		                  "copying", status);
	ncclResult_t result = call(line, part);
	if (result == ncclSuccess)
		return true;
	snprintf(what, sizeof what, "a post on %s", pp_nccl_plan_name(line->program, line->index, name));
	return pp_nccl_ok(result, line->comm, what, status);
}

bool pp_nccl_line_post(struct pp_nccl_line *line, const struct pp_cuda *cuda, const struct pp_part *part,
                       uint64_t *number, struct pp_status *status)
{
	*number = line->posted++;
	cudaEvent_t posted = event_of(line, *number, POSTED), ended = event_of(line, *number, ENDED);
	return pp_cuda_ok(cudaEventRecord(posted, cuda->compute), "marking a post", status) &&
	       pp_cuda_ok(cudaStreamWaitEvent(line->stream, posted, 0), "waiting for a post", status) &&
	       pp_nccl_line_start(line, part, status) &&
	       pp_cuda_ok(cudaEventRecord(ended, line->stream), "marking the end of a post", status);
}

bool pp_nccl_line_follow(const struct pp_nccl_line *line, const struct pp_cuda *cuda, uint64_t number,
                         struct pp_status *status)
{
	return pp_cuda_ok(cudaStreamWaitEvent(cuda->compute, event_of(line, number, ENDED), 0),
	                  "waiting for the end of a post", status);
}

bool pp_nccl_line_sound(const struct pp_nccl_line *line, struct pp_status *status)
{
	ncclResult_t error = ncclSuccess;
	if (!line->comm ||
	    (ncclCommGetAsyncError(line->comm, &error) == ncclSuccess && (error == ncclSuccess || error == ncclInProgress)))
		return true;
	char name[PP_NCCL_NAME], what[PP_NCCL_NAME + 32];
	snprintf(what, sizeof what, "what was posted on %s", pp_nccl_plan_name(line->program, line->index, name));
	return pp_nccl_ok(error == ncclSuccess ? ncclInternalError : error, line->comm, what, status);
}
