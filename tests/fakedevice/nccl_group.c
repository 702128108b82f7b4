/* Posting: calls between ncclGroupStart and ncclGroupEnd, or a single one, become one operation per communicator.
 * Operations of a communicator follow each other in the order of the calls, whatever their streams, and a group over
 * several streams joins them (NCCL user guide, "Group calls", "CUDA stream semantics"). */
#include "capture.h"
#include "nccl_communicator.h"
#include "order.h"
#include "plant.h"
#include "runtime.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { STREAMS_MOST = 8, GROUPS_MOST = 64 };

/* What a group holds for one communicator. */
struct part {
	struct ncclComm *communicator;
	struct pp_fake_task *tasks;
	uint32_t count;
	cudaStream_t streams[STREAMS_MOST];
	uint32_t stream_count;
};

static _Thread_local struct {
	uint32_t depth, count;
	struct part parts[GROUPS_MOST];
	struct ncclComm *aborted[GROUPS_MOST];
	uint32_t aborted_count;
	ncclResult_t error;
} group;

const char *const pp_fake_task_names[] = {"send", "receive", "all-reduce", "reduce-scatter", "all-gather", "broadcast"};

static enum pp_fake_outcome leave(struct pp_fake_nccl_operation *operation)
{
	if (operation->resident)
		pp_fake_order_leave(operation->communicator->device);
	operation->resident = false;
	return PP_FAKE_FINISHED;
}

static enum pp_fake_outcome step_operation(struct pp_fake_operation *base)
{
	struct pp_fake_nccl_operation *operation = (struct pp_fake_nccl_operation *)base;
	struct ncclComm *communicator = operation->communicator;
	if (atomic_load(&communicator->aborted))
		return leave(operation);
	if (!operation->resident && !pp_fake_order_enter(communicator->device))
		return PP_FAKE_REFUSED;
	operation->resident = true;
	if (operation->breaks)
		atomic_store(&communicator->state, ncclRemoteError);
	if (atomic_load(&communicator->state) == ncclRemoteError)
		return PP_FAKE_BLOCKED; /* until it is aborted, as a kernel that waits for a peer does */
	bool moved = false, finished = true;
	bool sent[PP_FAKE_RANKS_MOST] = {false}, received[PP_FAKE_RANKS_MOST] = {false};
	for (uint32_t i = 0; i < operation->task_count; i++) {
		struct pp_fake_task *task = &operation->tasks[i];
		if (task->done)
			continue;
		if (task->kind > PP_FAKE_RECEIVE) {
			moved |= pp_fake_collective_step(communicator, task);
			finished &= task->done;
			if (!task->done)
				break; /* collectives of a group go one after another */
			continue;
		}
		bool *busy = task->kind == PP_FAKE_SEND ? &sent[task->peer] : &received[task->peer];
		if (!*busy) /* of one peer and direction in order */
			moved |= pp_fake_transfer_step(communicator, task);
		*busy |= !task->done;
		finished &= task->done;
	}
	if (finished)
		return leave(operation);
	return moved ? PP_FAKE_MOVED : PP_FAKE_BLOCKED;
}

static void restart_operation(struct pp_fake_operation *base)
{
	struct pp_fake_nccl_operation *operation = (struct pp_fake_nccl_operation *)base;
	for (uint32_t i = 0; i < operation->task_count; i++) {
		struct pp_fake_task *task = &operation->tasks[i];
		task->begun = task->met = task->done = task->published = false;
		task->bytes_done = 0;
	}
}

static void describe_operation(const struct pp_fake_operation *base, char *text, size_t size)
{
	const struct pp_fake_nccl_operation *operation = (const struct pp_fake_nccl_operation *)base;
	const struct ncclComm *communicator = operation->communicator;
	size_t length =
	    (size_t)snprintf(text, size, "rank %u of communicator %s:", communicator->rank, communicator->label);
	for (uint32_t i = 0; i < operation->task_count && length < size; i++) {
		const struct pp_fake_task *task = &operation->tasks[i];
		if (task->done)
			continue;
		const char *name = pp_fake_task_names[task->kind];
		if (task->kind > PP_FAKE_RECEIVE)
			length += (size_t)snprintf(text + length, size - length, " %s #%llu (%llu %s),", name,
			                           (unsigned long long)task->sequence, (unsigned long long)task->count,
			                           pp_fake_nccl_type((int32_t)task->type));
		else
			length +=
			    (size_t)snprintf(text + length, size - length, " %s #%llu %s rank %u (%llu %s),", name,
			                     (unsigned long long)task->sequence, task->kind == PP_FAKE_SEND ? "to" : "from",
			                     task->peer, (unsigned long long)task->count, pp_fake_nccl_type((int32_t)task->type));
	}
	if (length > 0 && length < size)
		text[length - 1] = '\0';
}

static void release_operation(struct pp_fake_operation *base)
{
	struct pp_fake_nccl_operation *operation = (struct pp_fake_nccl_operation *)base;
	if (operation->captured && --operation->communicator->in_graphs == 0)
		pp_fake_progressed();
	free(operation->tasks);
	free(operation);
}

const struct pp_fake_operation_kind pp_fake_nccl_kind = {.step = step_operation,
                                                         .restart = restart_operation,
                                                         .describe = describe_operation,
                                                         .release = release_operation,
                                                         .talks = true};

static void add_touches(struct pp_fake_nccl_operation *operation)
{
	struct ncclComm *communicator = operation->communicator;
	for (uint32_t i = 0; i < operation->task_count; i++) {
		const struct pp_fake_task *task = &operation->tasks[i];
		communicator->moved = task->kind == PP_FAKE_RECEIVE ? task->to : task->from;
		uint64_t bytes = task->count * pp_fake_nccl_bytes(task->type), ranks = communicator->ranks;
		uint64_t read = task->kind == PP_FAKE_REDUCE_SCATTER ? bytes * ranks : bytes;
		uint64_t written = task->kind == PP_FAKE_ALL_GATHER ? bytes * ranks : bytes;
		bool reads =
		    task->kind != PP_FAKE_RECEIVE && (task->kind != PP_FAKE_BROADCAST || task->peer == communicator->rank);
		if (reads)
			pp_fake_operation_touches(&operation->base, task->from, read, false);
		if (task->kind != PP_FAKE_SEND)
			pp_fake_operation_touches(&operation->base, task->to, written, true);
	}
}

static const char *name_of(const struct part *part)
{
	static const char *const calls[] = {"ncclSend",          "ncclRecv",      "ncclAllReduce",
	                                    "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};
	return part->count == 1 ? calls[part->tasks[0].kind] : "an NCCL group";
}

/* All streams of the part come before its operation. */
static cudaError_t join_streams(struct pp_fake_host *host, struct CUstream_st *first, const struct part *part)
{
	for (uint32_t i = 1; i < part->stream_count; i++) {
		struct CUstream_st *other = pp_fake_stream(part->streams[i], "NCCL");
		struct pp_fake_record *record = other ? pp_fake_stream_record(host, other) : NULL;
		cudaError_t error = record ? pp_fake_stream_wait(host, first, record) : cudaErrorInvalidResourceHandle;
		pp_fake_record_drop(record);
		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

static cudaError_t leave_streams(struct pp_fake_host *host, struct CUstream_st *first, const struct part *part)
{
	if (part->stream_count < 2)
		return cudaSuccess;
	struct pp_fake_record *record = pp_fake_stream_record(host, first);
	cudaError_t error = record ? cudaSuccess : cudaErrorInvalidResourceHandle;
	for (uint32_t i = 1; i < part->stream_count && error == cudaSuccess; i++)
		error = pp_fake_stream_wait(host, pp_fake_stream(part->streams[i], "NCCL"), record);
	pp_fake_record_drop(record);
	return error;
}

/* Was it made by this split: "ROUND.COLOUR", as labels end? "": whatever made it. */
static bool made_by(const struct ncclComm *communicator, const char *split)
{
	const char *last = strrchr(communicator->label, '/');
	return !*split || (last && strcmp(last + 1, split) == 0);
}

/* PP_FAKE_ASYNC_ERROR: the communicators of that rank break after that many operations. */
static bool breaks(struct ncclComm *communicator)
{
	unsigned rank, after;
	char split[32] = "";
	const char *plan = pp_fake_settings()->async_error;
	return plan && sscanf(plan, "%u:%u:%31s", &rank, &after, split) >= 2 && rank == communicator->rank &&
	       made_by(communicator, split) && ++communicator->operations > after;
}

/* The n-th of its kind and peer that is captured must be so at all its ends: "whether an operation launch is
 * graph-captured is considered a collective property" (NCCL user guide, "Using NCCL with CUDA graphs"). */
static void note_capture(struct pp_fake_nccl_operation *operation)
{
	struct ncclComm *communicator = operation->communicator;
	const char *registers = getenv("NCCL_GRAPH_REGISTER");
	if (!registers || strcmp(registers, "0") != 0)
		pp_fake_frozen("memory of a captured post was registered (NCCL_GRAPH_REGISTER)");
	operation->captured = true;
	communicator->in_graphs++;
	for (uint32_t i = 0; i < operation->task_count; i++) {
		struct pp_fake_task *task = &operation->tasks[i];
		uint32_t *count = task->kind == PP_FAKE_SEND      ? &communicator->captured_sends[task->peer]
		                  : task->kind == PP_FAKE_RECEIVE ? &communicator->captured_receives[task->peer]
		                                                  : &communicator->captured_collectives;
		task->captured = ++*count;
	}
}

static ncclResult_t submit(struct pp_fake_host *host, struct part *part)
{
	struct CUstream_st *stream = pp_fake_stream(part->streams[0], name_of(part));
	if (!stream)
		return ncclInvalidArgument;
	struct ncclComm *communicator = part->communicator;
	if (stream->device != communicator->device) {
		pp_fake_fault("%s: %s is of device %d, communicator %s of device %d", name_of(part), stream->where,
		              stream->device, communicator->label, communicator->device);
		return ncclInvalidArgument;
	}
	struct pp_fake_nccl_operation *operation =
	    pp_fake_operation_make(&pp_fake_nccl_kind, sizeof *operation, name_of(part));
	operation->communicator = communicator;
	operation->tasks = part->tasks;
	operation->task_count = part->count;
	operation->breaks = breaks(communicator);
	operation->base.chain = &communicator->last;
	part->tasks = NULL;
	add_touches(operation);
	cudaError_t error = join_streams(host, stream, part);
	if (error == cudaSuccess)
		error = pp_fake_order_wait(host, stream);
	if (error == cudaSuccess) {
		if (stream->capture)
			note_capture(operation);
		pp_fake_order_mark(stream, &operation->base);
		error = pp_fake_submit(host, stream, &operation->base);
	} else {
		pp_fake_operation_free(&operation->base);
	}
	if (error == cudaSuccess)
		error = leave_streams(host, stream, part);
	return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static bool capturing(const struct part *part)
{
	for (const struct CUstream_st *stream = pp_fake_streams(); stream; stream = stream->next)
		for (uint32_t i = 0; i < part->stream_count; i++)
			if (stream == part->streams[i] && stream->capture)
				return true;
	return false;
}

static bool is_connected(const struct ncclComm *communicator, const struct pp_fake_task *task)
{
	if (task->kind > PP_FAKE_RECEIVE)
		return communicator->ranks == 1 || pp_fake_nccl_is_known(communicator, task);
	const bool *connected = task->kind == PP_FAKE_SEND ? communicator->connected_to : communicator->connected_from;
	return task->peer == communicator->rank || connected[task->peer];
}

/* Peers can't be connected while a capture goes on: the first use is outside. */
static bool all_connected(const struct part *part)
{
	const struct ncclComm *communicator = part->communicator;
	for (uint32_t i = 0; i < part->count; i++) {
		const struct pp_fake_task *task = &part->tasks[i];
		if (is_connected(communicator, task))
			continue;
		if (task->kind > PP_FAKE_RECEIVE)
			pp_fake_fault("the first %s of %llu %s on communicator %s is in a capture: use it once before",
			              pp_fake_task_names[task->kind], (unsigned long long)task->count,
			              pp_fake_nccl_type((int32_t)task->type), communicator->label);
		else
			pp_fake_fault("the first use of rank %u on communicator %s is in a capture: connect before", task->peer,
			              communicator->label);
		return false;
	}
	return true;
}

/* Blocks of a kernel start in the order of launches within a priority: a post that others wait for would come behind
 * all blocks of the compute kernels before it. Of steps only. */
static void check_priorities(const struct part *part)
{
	for (uint32_t i = 0; i < part->stream_count && pp_fake_is_frozen(); i++) {
		const struct CUstream_st *stream = pp_fake_stream(part->streams[i], "NCCL");
		if (stream && stream->priority == 0)
			pp_fake_fault("NCCL posts on %s, which has no priority over compute: others wait for it meanwhile",
			              stream->where);
	}
}

static ncclResult_t post_part(struct pp_fake_host *host, struct part *part)
{
	struct ncclComm *communicator = part->communicator;
	pp_fake_order_thread(host, communicator->device);
	check_priorities(part);
	if (capturing(part) && !all_connected(part))
		return ncclInvalidUsage;
	if (!pp_fake_nccl_connect(host, communicator, part->tasks, part->count))
		return ncclInternalError;
	return submit(host, part);
}

bool pp_fake_nccl_abort_later(struct ncclComm *communicator)
{
	if (group.depth == 0)
		return false;
	if (group.aborted_count == GROUPS_MOST)
		pp_fake_die("a group that aborts more than %d communicators", GROUPS_MOST);
	group.aborted[group.aborted_count++] = communicator;
	return true;
}

static void reclaim_aborted(struct pp_fake_host *host)
{
	for (uint32_t i = 0; i < group.aborted_count; i++)
		pp_fake_nccl_reclaim(host, group.aborted[i]);
	group.aborted_count = 0;
}

static void clear_group(void)
{
	for (uint32_t i = 0; i < group.count; i++)
		free(group.parts[i].tasks);
	group.count = 0;
	group.error = ncclSuccess;
}

static ncclResult_t end_group(struct pp_fake_host *host)
{
	ncclResult_t result = group.error;
	for (uint32_t i = 0; i < group.count && result == ncclSuccess; i++)
		result = post_part(host, &group.parts[i]);
	clear_group();
	reclaim_aborted(host);
	return result;
}

static struct part *part_of(struct ncclComm *communicator)
{
	for (uint32_t i = 0; i < group.count; i++)
		if (group.parts[i].communicator == communicator)
			return &group.parts[i];
	if (group.count == GROUPS_MOST)
		pp_fake_die("a group over more than %d communicators", GROUPS_MOST);
	struct part *part = &group.parts[group.count++];
	*part = (struct part){.communicator = communicator};
	return part;
}

static void add_stream(struct part *part, cudaStream_t stream)
{
	for (uint32_t i = 0; i < part->stream_count; i++)
		if (part->streams[i] == stream)
			return;
	if (part->stream_count == STREAMS_MOST)
		pp_fake_die("a group over more than %d streams", STREAMS_MOST);
	part->streams[part->stream_count++] = stream;
}

static ncclResult_t judge(const struct ncclComm *communicator, const struct pp_fake_task *task)
{
	if (!communicator || atomic_load(&communicator->aborted))
		return ncclInvalidArgument;
	if (atomic_load(&communicator->state) != ncclSuccess)
		return atomic_load(&communicator->state) == ncclInProgress ? ncclInvalidUsage : ncclRemoteError;
	bool reduces = task->kind == PP_FAKE_ALL_REDUCE || task->kind == PP_FAKE_REDUCE_SCATTER;
	bool summable =
	    task->type == ncclFloat32 || task->type == ncclFloat64 || task->type == ncclBfloat16 || task->type == ncclInt32;
	if (task->peer >= communicator->ranks || pp_fake_nccl_bytes(task->type) == 0 ||
	    (reduces && (!summable || (task->reduction != ncclSum && task->reduction != ncclMax)))) {
		pp_fake_lock();
		pp_fake_fault("NCCL %s on communicator %s with rank %u of %u, type %s: there is no such thing here",
		              pp_fake_task_names[task->kind], communicator->label, task->peer, communicator->ranks,
		              pp_fake_nccl_type((int32_t)task->type));
		pp_fake_unlock();
		return ncclInvalidArgument;
	}
	return ncclSuccess;
}

/* Planted faults: true if the call is lost. */
static bool goes_wrong(uint32_t rank, struct pp_fake_task *task)
{
	if (!pp_fake_settings()->plant || task->kind == PP_FAKE_RECEIVE)
		return false;
	struct pp_fake_host *host = pp_fake_enter("NCCL");
	bool lost;
	if (task->kind == PP_FAKE_SEND) {
		lost = pp_fake_planted(PP_FAKE_LOST_SEND, &host->sends, rank);
		task->count -= pp_fake_planted(PP_FAKE_SHORT_SEND, &host->sends, rank);
	} else {
		lost = pp_fake_planted(PP_FAKE_LOST_COLLECTIVE, &host->collectives, rank);
	}
	pp_fake_unlock();
	return lost;
}

static ncclResult_t post(struct ncclComm *communicator, cudaStream_t stream, struct pp_fake_task task)
{
	ncclResult_t result = judge(communicator, &task);
	if (result != ncclSuccess) {
		group.error = group.depth > 0 ? result : ncclSuccess;
		return result;
	}
	if (goes_wrong(communicator->rank, &task))
		return ncclSuccess;
	struct part *part = part_of(communicator);
	part->tasks = pp_fake_grow(part->tasks, (part->count + 1) * sizeof task);
	part->tasks[part->count++] = task;
	add_stream(part, stream);
	if (group.depth > 0)
		return ncclSuccess;
	struct pp_fake_host *host = pp_fake_enter("NCCL");
	result = end_group(host);
	pp_fake_unlock();
	return result;
}

/* nccl.h declares these two without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	if (group.depth == 0)
		return ncclInvalidUsage;
	if (--group.depth > 0)
		return ncclSuccess;
	struct pp_fake_host *host = pp_fake_enter("ncclGroupEnd");
	ncclResult_t result = end_group(host);
	pp_fake_unlock();
	return result;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream)
{
	return post(communicator, stream,
	            (struct pp_fake_task){
	                .kind = PP_FAKE_SEND, .peer = (uint32_t)peer, .count = count, .type = type, .from = from});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream)
{
	return post(
	    communicator, stream,
	    (struct pp_fake_task){.kind = PP_FAKE_RECEIVE, .peer = (uint32_t)peer, .count = count, .type = type, .to = to});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t communicator, cudaStream_t stream)
{
	return post(
	    communicator, stream,
	    (struct pp_fake_task){
	        .kind = PP_FAKE_ALL_REDUCE, .count = count, .type = type, .reduction = reduction, .from = from, .to = to});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t communicator, cudaStream_t stream)
{
	return post(communicator, stream,
	            (struct pp_fake_task){.kind = PP_FAKE_REDUCE_SCATTER,
	                                  .count = count,
	                                  .type = type,
	                                  .reduction = reduction,
	                                  .from = from,
	                                  .to = to});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream)
{
	return post(
	    communicator, stream,
	    (struct pp_fake_task){.kind = PP_FAKE_ALL_GATHER, .count = count, .type = type, .from = from, .to = to});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream)
{
	return post(
	    communicator, stream,
	    (struct pp_fake_task){
	        .kind = PP_FAKE_BROADCAST, .peer = (uint32_t)root, .count = count, .type = type, .from = from, .to = to});
}
