/* Staging: lines of a rank and the transport below them.
 *
 * Requires: a bound endpoint below, whose posts and tests nobody else uses; posts of the stream are waited for by the
 * end of a step. Ensures: rendezvous, FIFO and sums are those of the transport below; nothing is allocated after
 * `bind`. */
#include "staged.h"

#include "staged_line.h"

#include "executor/pending_colls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pp_endpoint {
	const struct pp_program *program;
	struct pp_coord coord;
	struct pp_staged_below below;
	bool direct; /* messages */
	struct pp_cuda *cuda;
	struct pp_staged_line *lines; /* [channel_count], [group_count], then that of bodies */
	uint32_t line_count;
	struct pp_pending_colls colls; /* line: the group */
	bool failed;
	struct pp_status failure; /* without text: what the transport below says */
};

static struct pp_staged_line *group_line(const struct pp_endpoint *endpoint, uint32_t group)
{
	return &endpoint->lines[endpoint->program->channel_count + group];
}

static struct pp_staged_line *body_line(const struct pp_endpoint *endpoint)
{
	return group_line(endpoint, endpoint->program->group_count);
}

static bool note(struct pp_endpoint *endpoint, bool fine, const struct pp_status *status)
{
	if (!fine && !endpoint->failed) {
		endpoint->failed = true;
		endpoint->failure = *status;
	}
	return fine;
}

/* ---- posts and tests ------------------------------------------------------------------------- */

static void move(struct pp_endpoint *endpoint, struct pp_staged_line *line)
{
	struct pp_status status;
	if (!endpoint->failed && line->kind != PP_STAGED_NONE)
		note(endpoint, pp_staged_line_move(line, &endpoint->below, &status), &status);
}

static uint64_t post(struct pp_endpoint *endpoint, struct pp_staged_line *line, const struct pp_staged_post *post)
{
	struct pp_status status;
	uint64_t number = 0;
	note(endpoint, pp_staged_line_post(line, endpoint->cuda, post, &number, &status), &status);
	move(endpoint, line);
	return number;
}

static void post_message(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	struct pp_staged_line *line = &endpoint->lines[instr->a[0]];
	if (instr->a[1] == 0)
		line->base = line->posted;
	const struct pp_staged_post one = {.instr = instr,
	                                   .part = {.from = from, .to = to, .count = instr->count, .dtype = instr->dtype}};
	post(endpoint, line, &one);
}

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	post_message(endpoint, instr, from, NULL);
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	post_message(endpoint, instr, NULL, to);
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	struct pp_staged_line *line = group_line(endpoint, instr->a[1]);
	const struct pp_staged_post one = {.instr = instr, .part = pp_part_of(instr, from, to, line->position)};
	pp_pending_colls_add(
	    &endpoint->colls,
	    (struct pp_pending_coll){.id = instr->a[0], .line = instr->a[1], .number = post(endpoint, line, &one)});
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	const struct pp_staged_post one = {
	    .part = {
	        .from = from, .to = to, .count = count, .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .id = PP_NULL}};
	return (uint32_t)post(endpoint, body_line(endpoint), &one);
}

static void poll(void *context)
{
	struct pp_endpoint *endpoint = context;
	const struct pp_program *program = endpoint->program;
	for (uint32_t i = 0; i < program->channel_count; i++)
		move(endpoint, &endpoint->lines[i]);
	for (uint32_t i = 0; i < endpoint->colls.count; i++)
		move(endpoint, group_line(endpoint, endpoint->colls.items[i].line));
	move(endpoint, body_line(endpoint));
	endpoint->below.ops->poll(endpoint->below.endpoint);
}

/* Is post `number` over? */
static enum pp_progress look(struct pp_endpoint *endpoint, const struct pp_staged_line *line, uint64_t number)
{
	if (line->done <= number)
		poll(endpoint);
	if (endpoint->failed)
		return PP_FAILED;
	return line->done <= number ? PP_PENDING : PP_DONE;
}

/* The same, and then the device is told so. */
static enum pp_progress test_line(struct pp_endpoint *endpoint, const struct pp_staged_line *line, uint64_t number)
{
	struct pp_status status;
	enum pp_progress progress = look(endpoint, line, number);
	if (progress != PP_DONE)
		return progress;
	return note(endpoint, pp_staged_line_follow(line, endpoint->cuda, number, &status), &status) ? PP_DONE : PP_FAILED;
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t channel, uint32_t seq)
{
	const struct pp_staged_line *line = &endpoint->lines[channel];
	return test_line(endpoint, line, line->base + seq);
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, id);
	if (!coll)
		return PP_DONE;
	enum pp_progress progress = test_line(endpoint, group_line(endpoint, coll->line), coll->number);
	if (progress == PP_DONE)
		pp_pending_colls_take(&endpoint->colls, coll);
	return progress;
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t ticket)
{
	const struct pp_staged_line *line = body_line(endpoint);
	uint32_t behind = (uint32_t)line->posted - ticket; /* far fewer than 2^31 are outstanding */
	return test_line(endpoint, line, line->posted - behind);
}

static enum pp_progress probe(struct pp_endpoint *endpoint, const struct pp_instr *instr)
{
	const struct pp_staged_line *line = &endpoint->lines[instr->a[0]];
	if (instr->op != PP_OP_COLL)
		return look(endpoint, line, line->base + instr->a[1]);
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, instr->a[0]);
	return coll ? look(endpoint, group_line(endpoint, coll->line), coll->number) : PP_DONE;
}

static void mark(struct pp_endpoint *endpoint, const struct pp_instr *instr)
{
	struct pp_status status;
	struct pp_staged_line *line =
	    instr->op == PP_OP_COLL ? group_line(endpoint, instr->a[1]) : &endpoint->lines[instr->a[0]];
	note(endpoint, pp_staged_line_mark(line, endpoint->cuda, &status), &status);
}

static bool broken(struct pp_endpoint *endpoint)
{
	const struct pp_staged_below *below = &endpoint->below;
	return endpoint->failed || (below->ops->broken && below->ops->broken(below->endpoint));
}

/* ---- control data ---------------------------------------------------------------------------- */

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	endpoint->below.ops->exchange(endpoint->below.endpoint, mine, all, bytes);
}

static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	return endpoint->below.ops->test_exchange(endpoint->below.endpoint);
}

static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	endpoint->below.ops->give_up(endpoint->below.endpoint, why);
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	if (endpoint->failed && endpoint->failure.text[0])
		return endpoint->failure.text;
	return endpoint->below.ops->failure(endpoint->below.endpoint);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The most that a rank gives and takes in one collective of a group. */
static void measure_group(const struct pp_program *program, uint32_t rank, uint32_t group, uint64_t members,
                          uint64_t *in, uint64_t *out)
{
	for (uint32_t p = 0; p < program->program_count; p++) {
		const struct pp_stream *stream = &program->programs[p].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (instr->op != PP_OP_COLL || instr->a[1] != group)
				continue;
			uint64_t share = pp_payload_bytes(instr), all = share * members;
			uint64_t given = instr->sub == PP_REDUCESCATTER ? all : share;
			uint64_t taken = instr->sub == PP_ALLGATHER ? all : share;
			*in = given > *in ? given : *in;
			*out = taken > *out ? taken : *out;
		}
	}
}

static bool open_messages(struct pp_endpoint *endpoint, const struct pp_post_counts *counts, struct pp_status *status)
{
	const struct pp_program *program = endpoint->program;
	for (uint32_t i = 0; i < program->channel_count; i++) {
		const struct pp_channel *channel = &program->channels[i];
		struct pp_staged_line *line = &endpoint->lines[i];
		bool sends = channel->source == endpoint->coord.pp;
		if (!sends && channel->destination != endpoint->coord.pp)
			continue;
		*line = (struct pp_staged_line){.kind = sends ? PP_STAGED_SEND : PP_STAGED_RECV, .direct = endpoint->direct};
		uint64_t bytes = counts->channel[i].bytes;
		if (!pp_staged_line_open(line, counts->channel[i].posts, sends ? bytes : 0, sends ? 0 : bytes, status))
			return false;
	}
	return true;
}

static bool open_groups(struct pp_endpoint *endpoint, const struct pp_post_counts *counts, struct pp_status *status)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	const struct pp_program *program = endpoint->program;
	for (uint32_t i = 0; i <= program->group_count; i++) {
		bool of_body = i == program->group_count;
		const struct pp_group *group = of_body ? &of_bodies : &program->groups[i];
		const struct pp_post_count *count = of_body ? &counts->body : &counts->group[i];
		uint32_t position = pp_grid_position(group, endpoint->coord), members = pp_grid_members(program, group);
		uint64_t in = of_body ? count->bytes * members : 0, out = in;
		if (position == PP_NULL || count->posts == 0)
			continue;
		if (!of_body)
			measure_group(program, endpoint->coord.pp, i, members, &in, &out);
		struct pp_staged_line *line = group_line(endpoint, i);
		*line = (struct pp_staged_line){
		    .kind = of_body ? PP_STAGED_BODY : PP_STAGED_COLL, .position = position, .members = members};
		if (!pp_staged_line_open(line, count->posts, in, out, status))
			return false;
	}
	return true;
}

static bool bind(struct pp_endpoint *endpoint, struct pp_device *device, struct pp_status *status)
{
	const struct pp_program *program = endpoint->program;
	struct pp_post_counts counts;
	endpoint->cuda = pp_cuda_of(device);
	endpoint->line_count = program->channel_count + program->group_count + 1;
	bool counted = pp_post_counts_make(program, endpoint->coord.pp, &counts);
	endpoint->lines = calloc(endpoint->line_count, sizeof *endpoint->lines);
	bool ok = counted && endpoint->lines && pp_pending_colls_make(&endpoint->colls, counts.colls);
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the posts of a rank");
	ok = ok && open_messages(endpoint, &counts, status) && open_groups(endpoint, &counts, status);
	pp_post_counts_free(&counts);
	return ok;
}

static struct pp_endpoint *open_link(const struct pp_link_start *start, struct pp_status *status)
{
	struct pp_endpoint *endpoint = calloc(1, sizeof *endpoint);
	if (!endpoint) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
		return NULL;
	}
	*endpoint = (struct pp_endpoint){.program = start->program,
	                                 .coord = pp_grid_coord(start->program, start->world),
	                                 .below = {start->below, start->endpoint}};
	endpoint->direct =
	    !start->through_host && start->below->takes_devices && start->below->takes_devices(start->endpoint);
	return endpoint;
}

static void close_link(struct pp_endpoint *endpoint)
{
	for (uint32_t i = 0; endpoint->lines && i < endpoint->line_count; i++)
		pp_staged_line_close(&endpoint->lines[i]);
	free(endpoint->lines);
	pp_pending_colls_free(&endpoint->colls);
	free(endpoint);
}

static const struct pp_transport_ops staged_ops = {
    .name = "staged",
    .stream_ordered = true,
    .captures_not = "the host carries them",
    .bind = bind,
    .broken = broken,
    .post_send = post_send,
    .post_recv = post_recv,
    .post_coll = post_coll,
    .post_body = post_body,
    .test = test,
    .test_coll = test_coll,
    .test_body = test_body,
    .mark = mark,
    .probe = probe,
    .poll = poll,
    .exchange = exchange,
    .test_exchange = test_exchange,
    .give_up = give_up,
    .failure = failure,
};

const struct pp_link pp_link_staged = {.name = "staged", .ops = &staged_ops, .open = open_link, .close = close_link};
