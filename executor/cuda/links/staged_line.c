/* One line: start (copy out), issue (hand below), finish (copy in), each in the order of posts.
 *
 * Requires: used by one thread. Ensures: a buffer is given to the transport below, or written anew, only when nothing
 * else uses it; nothing is allocated after the line is open. */
#include "staged_line.h"

#include <stdlib.h>

enum pp_staged_event { POSTED, COPIED_OUT, COPIED_IN, EVENTS };

static cudaEvent_t event_of(const struct pp_staged_line *line, uint64_t number, enum pp_staged_event event)
{
	return line->events.items[number % line->capacity * EVENTS + event];
}

static bool gives(const struct pp_staged_line *line)
{
	return line->kind != PP_STAGED_RECV;
}

static bool takes(const struct pp_staged_line *line)
{
	return line->kind != PP_STAGED_SEND;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool pin(unsigned char *buffers[PP_STAGED_BUFFERS], uint64_t bytes, struct pp_status *status)
{
	for (int i = 0; bytes && i < PP_STAGED_BUFFERS; i++) {
		void *memory = NULL;
		if (!pp_cuda_ok(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "pinning memory of the host", status))
			return false;
		buffers[i] = memory;
	}
	return true;
}

bool pp_staged_line_open(struct pp_staged_line *line, uint32_t posts, uint64_t in_bytes, uint64_t out_bytes,
                         struct pp_status *status)
{
	line->capacity = posts ? posts : 1;
	line->posts = calloc(line->capacity, sizeof *line->posts);
	if (!line->posts)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for posts");
	return pp_cuda_ok(cudaStreamCreateWithFlags(&line->stream, cudaStreamNonBlocking), "making a stream", status) &&
	       pp_cuda_events_make(&line->events, (size_t)line->capacity * EVENTS, false, status) &&
	       (line->direct || (pin(line->in, in_bytes, status) && pin(line->out, out_bytes, status)));
}

void pp_staged_line_close(struct pp_staged_line *line)
{
	for (int i = 0; i < PP_STAGED_BUFFERS; i++) {
		if (line->in[i])
			cudaFreeHost(line->in[i]);
		if (line->out[i])
			cudaFreeHost(line->out[i]);
	}
	pp_cuda_events_free(&line->events);
	if (line->stream)
		cudaStreamDestroy(line->stream);
	free(line->posts);
	*line = (struct pp_staged_line){.kind = PP_STAGED_NONE};
}

/* ---- posts ----------------------------------------------------------------------------------- */

static uint64_t given_bytes(const struct pp_staged_line *line, const struct pp_part *part)
{
	uint64_t bytes = part->count * pp_dtype_size[part->dtype];
	bool of_all = line->kind >= PP_STAGED_COLL && part->kind == PP_REDUCESCATTER;
	return of_all ? bytes * line->members : bytes;
}

static uint64_t taken_bytes(const struct pp_staged_line *line, const struct pp_part *part)
{
	uint64_t bytes = part->count * pp_dtype_size[part->dtype];
	bool of_all = line->kind >= PP_STAGED_COLL && part->kind == PP_ALLGATHER;
	return of_all ? bytes * line->members : bytes;
}

bool pp_staged_line_mark(struct pp_staged_line *line, const struct pp_cuda *cuda, struct pp_status *status)
{
	return pp_cuda_ok(cudaEventRecord(event_of(line, line->marked++, POSTED), cuda->compute), "marking a post", status);
}

bool pp_staged_line_post(struct pp_staged_line *line, const struct pp_cuda *cuda, const struct pp_staged_post *post,
                         uint64_t *number, struct pp_status *status)
{
	*number = line->posted++;
	line->posts[*number % line->capacity] = *post;
	return line->marked > *number || pp_staged_line_mark(line, cuda, status);
}

static bool copy(const struct pp_staged_line *line, void *to, const void *from, uint64_t bytes,
                 enum cudaMemcpyKind kind, struct pp_status *status)
{
	return bytes == 0 ||
	       pp_cuda_ok(cudaMemcpyAsync(to, from, bytes, kind, line->stream), "copying through the host", status);
}

/* The rank's device gets to the post, then what it gives is copied out. */
static bool start(struct pp_staged_line *line, struct pp_status *status)
{
	for (; line->started < line->posted && line->started - line->done < PP_STAGED_BUFFERS; line->started++) {
		uint64_t number = line->started;
		const struct pp_part *part = &line->posts[number % line->capacity].part;
		if (line->direct)
			continue;
		if (!pp_cuda_ok(cudaStreamWaitEvent(line->stream, event_of(line, number, POSTED), 0), "waiting for a post",
		                status))
			return false;
		if (gives(line) &&
		    (!copy(line, line->in[number % PP_STAGED_BUFFERS], part->from, given_bytes(line, part),
		           cudaMemcpyDeviceToHost, status) ||
		     !pp_cuda_ok(cudaEventRecord(event_of(line, number, COPIED_OUT), line->stream), "marking a copy", status)))
			return false;
	}
	return true;
}

/* ---- the transport below --------------------------------------------------------------------- */

enum look { YET, PASSED, BROKEN };

static enum look look_at(cudaEvent_t event, struct pp_status *status)
{
	cudaError_t error = cudaEventQuery(event);
	if (error == cudaErrorNotReady)
		return YET;
	return pp_cuda_ok(error, "running what the device was given", status) ? PASSED : BROKEN;
}

/* May this post go below: is what it gives in the buffer, and the buffer that it fills free? */
static enum look may_issue(const struct pp_staged_line *line, uint64_t number, struct pp_status *status)
{
	if (line->direct)
		return look_at(event_of(line, number, POSTED), status);
	enum look out = gives(line) ? look_at(event_of(line, number, COPIED_OUT), status) : PASSED;
	if (out != PASSED || !takes(line) || number < PP_STAGED_BUFFERS)
		return out;
	return look_at(event_of(line, number - PP_STAGED_BUFFERS, COPIED_IN), status);
}

static void hand_below(const struct pp_staged_line *line, struct pp_staged_post *post, uint64_t number,
                       const struct pp_staged_below *below)
{
	const void *from = line->direct ? post->part.from : line->in[number % PP_STAGED_BUFFERS];
	void *to = line->direct ? post->part.to : line->out[number % PP_STAGED_BUFFERS];
	switch (line->kind) {
	case PP_STAGED_NONE:
		return;
	case PP_STAGED_SEND:
		below->ops->post_send(below->endpoint, post->instr, from);
		return;
	case PP_STAGED_RECV:
		below->ops->post_recv(below->endpoint, post->instr, to);
		return;
	case PP_STAGED_COLL:
		below->ops->post_coll(below->endpoint, post->instr, from, to);
		return;
	case PP_STAGED_BODY:
		post->ticket = below->ops->post_body(below->endpoint, (enum pp_collective)post->part.kind,
		                                     (enum pp_dtype)post->part.dtype, from, to, post->part.count);
		return;
	}
}

static bool issue(struct pp_staged_line *line, const struct pp_staged_below *below, struct pp_status *status)
{
	while (line->issued < line->started) {
		enum look may = may_issue(line, line->issued, status);
		if (may != PASSED)
			return may == YET;
		hand_below(line, &line->posts[line->issued % line->capacity], line->issued, below);
		line->issued++;
	}
	return true;
}

static enum pp_progress test_below(const struct pp_staged_line *line, const struct pp_staged_post *post,
                                   const struct pp_staged_below *below)
{
	switch (line->kind) {
	case PP_STAGED_NONE:
		break;
	case PP_STAGED_SEND:
	case PP_STAGED_RECV:
		return below->ops->test(below->endpoint, post->instr->a[0], post->instr->a[1]);
	case PP_STAGED_COLL:
		return below->ops->test_coll(below->endpoint, post->instr->a[0]);
	case PP_STAGED_BODY:
		return below->ops->test_body(below->endpoint, post->ticket);
	}
	return PP_DONE;
}

/* What has come is copied in. */
static bool finish(struct pp_staged_line *line, const struct pp_staged_below *below, struct pp_status *status)
{
	for (; line->done < line->issued; line->done++) {
		const struct pp_staged_post *post = &line->posts[line->done % line->capacity];
		enum pp_progress progress = test_below(line, post, below);
		if (progress == PP_FAILED)
			status->text[0] = '\0';
		if (progress != PP_DONE)
			return progress == PP_PENDING;
		if (takes(line) && !line->direct &&
		    (!copy(line, post->part.to, line->out[line->done % PP_STAGED_BUFFERS], taken_bytes(line, &post->part),
		           cudaMemcpyHostToDevice, status) ||
		     !pp_cuda_ok(cudaEventRecord(event_of(line, line->done, COPIED_IN), line->stream), "marking a copy",
		                 status)))
			return false;
	}
	return true;
}

bool pp_staged_line_move(struct pp_staged_line *line, const struct pp_staged_below *below, struct pp_status *status)
{
	return line->done == line->posted ||
	       (start(line, status) && issue(line, below, status) && finish(line, below, status));
}

bool pp_staged_line_follow(const struct pp_staged_line *line, const struct pp_cuda *cuda, uint64_t number,
                           struct pp_status *status)
{
	return !takes(line) || line->direct ||
	       pp_cuda_ok(cudaStreamWaitEvent(cuda->compute, event_of(line, number, COPIED_IN), 0), "waiting for a copy",
	                  status);
}
