/* Stream capture (capture.h), with the errors of illegal calls. Rules: CUDA C++ Programming Guide, "Creating a graph
 * using stream capture", and the reference of cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode. */
#include "capture.h"
#include "graph.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/* The last node of a chain in a capture. */
struct link {
	struct pp_fake_record **chain;
	uint32_t node;
};

struct pp_fake_capture {
	struct pp_fake_capture *next;
	struct CUgraph_st *graph;
	struct CUstream_st *origin;
	const struct pp_fake_host *host;
	enum cudaStreamCaptureMode mode;
	bool going, valid;
	struct link *links;
	uint32_t link_count;
	bool ordered; /* there is an operation in the order of launches, the last one at: */
	uint32_t in_turn;
	bool overlaps; /* the next operation comes after the start of node `behind` */
	uint32_t behind;
};

static struct pp_fake_capture *captures; /* all that there ever were: records point at them */

bool pp_fake_capture_valid(const struct pp_fake_capture *capture)
{
	return capture->going && capture->valid;
}

/* Which capture, if any, makes potentially unsafe calls of this thread illegal. */
static struct pp_fake_capture *forbidding(const struct pp_fake_host *host)
{
	if (host->capture_mode == cudaStreamCaptureModeRelaxed)
		return NULL;
	for (struct pp_fake_capture *capture = captures; capture; capture = capture->next) {
		if (!capture->going || capture->mode == cudaStreamCaptureModeRelaxed)
			continue;
		bool all_threads =
		    capture->mode == cudaStreamCaptureModeGlobal && host->capture_mode == cudaStreamCaptureModeGlobal;
		if (capture->host == host || all_threads)
			return capture;
	}
	return NULL;
}

cudaError_t pp_fake_capture_forbids(struct pp_fake_host *host, const char *what)
{
	struct pp_fake_capture *capture = forbidding(host);
	if (!capture)
		return cudaSuccess;
	pp_fake_fault("%s while %s is being captured%s", what, capture->origin->where,
	              capture->host == host ? "" : " by another thread, in global mode");
	capture->valid = false;
	return cudaErrorStreamCaptureUnsupported;
}

cudaError_t pp_fake_capture_forbids_stream(struct CUstream_st *stream, const char *what)
{
	if (!stream->capture)
		return cudaSuccess;
	pp_fake_fault("%s on %s, which is being captured", what, stream->where);
	stream->capture->valid = false;
	return cudaErrorStreamCaptureUnsupported;
}

static void set_after(struct CUstream_st *stream, uint32_t node)
{
	stream->capture_after = pp_fake_grow(stream->capture_after, sizeof *stream->capture_after);
	stream->capture_after[0] = node;
	stream->capture_after_count = 1;
}

static void add_after(struct CUstream_st *stream, uint32_t node)
{
	size_t count = stream->capture_after_count;
	for (size_t i = 0; i < count; i++)
		if (stream->capture_after[i] == node)
			return;
	stream->capture_after = pp_fake_grow(stream->capture_after, (count + 1) * sizeof *stream->capture_after);
	stream->capture_after[stream->capture_after_count++] = node;
}

static struct link *link_of(struct pp_fake_capture *capture, struct pp_fake_record **chain)
{
	for (uint32_t i = 0; i < capture->link_count; i++)
		if (capture->links[i].chain == chain)
			return &capture->links[i];
	return NULL;
}

/* The node that the operation will be is the last of its chain. */
static void chain_node(struct CUstream_st *stream, struct pp_fake_record **chain)
{
	struct pp_fake_capture *capture = stream->capture;
	struct link *link = link_of(capture, chain);
	if (link) {
		add_after(stream, link->node);
	} else {
		capture->links = pp_fake_grow(capture->links, (capture->link_count + 1) * sizeof *capture->links);
		link = &capture->links[capture->link_count++];
		link->chain = chain;
	}
	link->node = capture->graph->count;
}

cudaError_t pp_fake_capture_add(struct CUstream_st *stream, struct pp_fake_operation *operation)
{
	struct pp_fake_capture *capture = stream->capture;
	if (!capture->valid) {
		pp_fake_operation_free(operation);
		return cudaErrorStreamCaptureInvalidated;
	}
	if (operation->chain)
		chain_node(stream, operation->chain);
	uint32_t node = pp_fake_graph_add(capture->graph, operation, stream->capture_after, stream->capture_after_count);
	capture->graph->nodes[node].overlaps = capture->overlaps;
	capture->graph->nodes[node].behind = capture->behind;
	capture->overlaps = false;
	set_after(stream, node);
	return cudaSuccess;
}

void pp_fake_capture_order(struct CUstream_st *stream)
{
	enum { STARTS_ARE_TOLD = 12090 }; /* NCCL 2.28, enqueue.cc, getImplicitOrder */
	struct pp_fake_capture *capture = stream->capture;
	bool overlaps = pp_fake_settings()->driver >= STARTS_ARE_TOLD;
	if (!capture->valid)
		return;
	if (capture->ordered && !overlaps)
		add_after(stream, capture->in_turn);
	capture->overlaps = capture->ordered && overlaps;
	capture->behind = capture->in_turn;
	capture->ordered = true;
	capture->in_turn = capture->graph->count;
}

cudaError_t pp_fake_capture_record(struct CUstream_st *stream, struct pp_fake_record *record)
{
	record->capture = stream->capture;
	record->node = stream->capture->graph->count;
	record->where = stream->where;
	return pp_fake_capture_add(
	    stream, pp_fake_operation_make(&pp_fake_nothing, sizeof(struct pp_fake_operation), "cudaEventRecord"));
}

cudaError_t pp_fake_capture_wait(struct CUstream_st *stream, struct pp_fake_record *record)
{
	if (!record->capture) {
		pp_fake_fault("%s is being captured and waits for an event of %s that wasn't recorded in the capture",
		              stream->where, record->where);
		stream->capture->valid = false;
		return cudaErrorStreamCaptureIsolation;
	}
	if (!pp_fake_capture_valid(record->capture)) {
		pp_fake_fault("%s waits for an event that was recorded in a capture that has ended", stream->where);
		return cudaErrorCapturedEvent;
	}
	if (stream->capture && stream->capture != record->capture) {
		pp_fake_fault("%s waits for an event of another capture: two captures can't merge", stream->where);
		stream->capture->valid = record->capture->valid = false;
		return cudaErrorStreamCaptureMerge;
	}
	if (!stream->capture) {
		stream->capture = record->capture;
		stream->capture_after_count = 0;
	}
	add_after(stream, record->node);
	return cudaSuccess;
}

static cudaError_t begin(struct pp_fake_host *host, struct CUstream_st *stream, enum cudaStreamCaptureMode mode)
{
	if (stream->capture)
		return cudaErrorIllegalState;
	struct pp_fake_capture *capture = pp_fake_new(sizeof *capture);
	*capture = (struct pp_fake_capture){.next = captures,
	                                    .graph = pp_fake_graph_make(),
	                                    .origin = stream,
	                                    .host = host,
	                                    .mode = mode,
	                                    .going = true,
	                                    .valid = true};
	captures = capture;
	stream->capture = capture;
	stream->capture_after_count = 0;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamBeginCapture");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamBeginCapture");
	return pp_fake_leave(host, stream ? begin(host, stream, mode) : cudaErrorInvalidResourceHandle);
}

/* Has all that other streams were given in the capture been waited for by the stream that ends it? */
static bool all_joined(const struct pp_fake_capture *capture)
{
	const struct CUgraph_st *graph = capture->graph;
	bool *reached = pp_fake_new(graph->count * sizeof *reached);
	pp_fake_graph_reach(graph, capture->origin->capture_after, capture->origin->capture_after_count, reached);
	bool joined = true;
	for (uint32_t i = 0; i < graph->count; i++)
		joined &= reached[i];
	free(reached);
	return joined;
}

static cudaError_t judge_end(const struct pp_fake_host *host, const struct CUstream_st *stream,
                             const struct pp_fake_capture *capture)
{
	if (capture->origin != stream)
		return cudaErrorStreamCaptureUnmatched;
	if (capture->host != host && capture->mode != cudaStreamCaptureModeRelaxed)
		return cudaErrorStreamCaptureWrongThread;
	if (!capture->valid)
		return cudaErrorStreamCaptureInvalidated;
	return all_joined(capture) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

static cudaError_t end(struct pp_fake_host *host, struct CUstream_st *stream, cudaGraph_t *made)
{
	struct pp_fake_capture *capture = stream->capture;
	*made = NULL;
	if (!capture)
		return cudaErrorIllegalState;
	cudaError_t error = judge_end(host, stream, capture);
	if (error == cudaErrorStreamCaptureUnmatched || error == cudaErrorStreamCaptureWrongThread)
		return error;
	for (struct CUstream_st *joined = pp_fake_streams(); joined; joined = joined->next)
		if (joined->capture == capture)
			joined->capture = NULL;
	capture->going = false;
	free(capture->links);
	capture->links = NULL;
	if (error == cudaSuccess)
		*made = capture->graph;
	else
		pp_fake_graph_drop(capture->graph);
	capture->graph = NULL;
	return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *made)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamEndCapture");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamEndCapture");
	return pp_fake_leave(host, stream ? end(host, stream, made) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
	struct pp_fake_host *host = pp_fake_enter("cudaStreamIsCapturing");
	const struct CUstream_st *stream = pp_fake_stream(handle, "cudaStreamIsCapturing");
	if (!stream)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	*status = cudaStreamCaptureStatusNone;
	if (stream->capture)
		*status = stream->capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	struct pp_fake_host *host = pp_fake_enter("cudaThreadExchangeStreamCaptureMode");
	enum cudaStreamCaptureMode before = host->capture_mode;
	host->capture_mode = *mode;
	*mode = before;
	return pp_fake_leave(host, cudaSuccess);
}
