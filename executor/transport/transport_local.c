/* The local transport: life, failures, polling.
 *
 * Requires: a verified program, one thread per endpoint. Ensures: rendezvous, FIFO, member order sums; no call waits
 * for another rank. */
#include "transport_local.h"

#include "channel_local.h"

#include "executor/pending_colls.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_PATIENCE = 100000 };

struct pp_endpoint {
	struct pp_local *local;
	uint32_t world;
	struct pp_local_end *ends;   /* [channel_count] */
	struct pp_local_line *lines; /* [group_count], then that of bodies */
	struct pp_local_line everyone;
	struct pp_part exchange;       /* room for the one at a time */
	struct pp_pending_colls colls; /* line: the group */
	uint64_t exchanges;
};

/* ---- failure --------------------------------------------------------------------------------- */

/* `rank`: which gives up, or PP_NULL. */
static void set_failure(struct pp_endpoint *endpoint, uint32_t rank, const char *text)
{
	struct pp_local_board *board = endpoint->local->board;
	int expected = 0;
	if (!atomic_compare_exchange_strong(&board->failed, &expected, 1))
		return;
	char name[PP_GRID_NAME];
	snprintf(board->failure, sizeof board->failure, "%s", text);
	snprintf(board->told, sizeof board->told, "%s gave up", pp_grid_name(endpoint->local->program, rank, name));
	board->gave_up = rank;
	atomic_store(&board->failed, 2);
}

static void give_up(struct pp_endpoint *endpoint, const char *why)
{
	set_failure(endpoint, endpoint->world, why);
}

static const char *failure(const struct pp_endpoint *endpoint)
{
	const struct pp_local_board *board = endpoint->local->board;
	for (int i = 0; i < TEXT_PATIENCE && atomic_load(&board->failed) == 1; i++) /* its text is being written */
		sched_yield();
	if (atomic_load(&board->failed) != 2)
		return "another rank failed";
	return board->gave_up == PP_NULL || board->gave_up == endpoint->world ? board->failure : board->told;
}

static bool broken(struct pp_endpoint *endpoint)
{
	return atomic_load(&endpoint->local->board->failed) != 0;
}

static enum pp_progress pending(const struct pp_endpoint *endpoint)
{
	return atomic_load(&endpoint->local->board->failed) ? PP_FAILED : PP_PENDING;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void move_end(struct pp_endpoint *endpoint, struct pp_local_end *end)
{
	char why[PP_LOCAL_FAILURE_TEXT];
	if (!pp_local_end_move(endpoint->local, end, why, sizeof why))
		set_failure(endpoint, PP_NULL, why);
}

/* `group`: group_count for that of bodies. */
static void move_line(struct pp_endpoint *endpoint, uint32_t group)
{
	char why[PP_LOCAL_FAILURE_TEXT / 2], text[PP_LOCAL_FAILURE_TEXT];
	if (pp_local_line_move(&endpoint->lines[group], why, sizeof why))
		return;
	if (group < endpoint->local->program->group_count)
		snprintf(text, sizeof text, "members of group g%" PRIu32 " %s", group, why);
	else
		snprintf(text, sizeof text, "members of a tensor-parallel group %s", why);
	set_failure(endpoint, PP_NULL, text);
}

static void poll(void *context)
{
	struct pp_endpoint *endpoint = context;
	const struct pp_program *program = endpoint->local->program;
	if (atomic_load(&endpoint->local->board->failed))
		return;
	for (uint32_t i = 0; i < program->channel_count; i++)
		if (endpoint->ends[i].ring)
			move_end(endpoint, &endpoint->ends[i]);
	for (uint32_t i = 0; i < endpoint->colls.count; i++)
		move_line(endpoint, endpoint->colls.items[i].line);
	move_line(endpoint, program->group_count);
}

/* ---- posts and tests ------------------------------------------------------------------------- */

static void post_send(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from)
{
	pp_local_end_post(&endpoint->ends[instr->a[0]], instr, from, NULL);
	move_end(endpoint, &endpoint->ends[instr->a[0]]);
}

static void post_recv(struct pp_endpoint *endpoint, const struct pp_instr *instr, void *to)
{
	pp_local_end_post(&endpoint->ends[instr->a[0]], instr, NULL, to);
	move_end(endpoint, &endpoint->ends[instr->a[0]]);
}

static void post_coll(struct pp_endpoint *endpoint, const struct pp_instr *instr, const void *from, void *to)
{
	uint32_t group = instr->a[1];
	struct pp_part part = pp_part_of(instr, from, to, endpoint->lines[group].position);
	pp_pending_colls_add(&endpoint->colls,
	                     (struct pp_pending_coll){.id = instr->a[0],
	                                              .line = group,
	                                              .number = pp_local_line_post(&endpoint->lines[group], &part)});
	move_line(endpoint, group);
}

static uint32_t post_body(struct pp_endpoint *endpoint, enum pp_collective kind, enum pp_dtype dtype, const void *from,
                          void *to, uint64_t count)
{
	uint32_t bodies = endpoint->local->program->group_count;
	struct pp_part part = {
	    .from = from, .to = to, .count = count, .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .id = PP_NULL};
	uint64_t number = pp_local_line_post(&endpoint->lines[bodies], &part);
	move_line(endpoint, bodies);
	return (uint32_t)number;
}

static enum pp_progress test(struct pp_endpoint *endpoint, uint32_t channel, uint32_t seq)
{
	const struct pp_local_end *end = &endpoint->ends[channel];
	uint64_t number = end->base + seq;
	if (end->done <= number)
		poll(endpoint);
	return end->done > number ? PP_DONE : pending(endpoint);
}

static enum pp_progress test_coll(struct pp_endpoint *endpoint, uint32_t id)
{
	const struct pp_pending_coll *coll = pp_pending_colls_find(&endpoint->colls, id);
	if (!coll)
		return PP_DONE;
	const struct pp_local_line *line = &endpoint->lines[coll->line];
	if (line->done <= coll->number)
		poll(endpoint);
	if (line->done <= coll->number)
		return pending(endpoint);
	pp_pending_colls_take(&endpoint->colls, coll);
	return PP_DONE;
}

static enum pp_progress test_body(struct pp_endpoint *endpoint, uint32_t ticket)
{
	const struct pp_local_line *line = &endpoint->lines[endpoint->local->program->group_count];
	if ((int32_t)((uint32_t)line->done - ticket) <= 0) /* far fewer than 2^31 are outstanding */
		poll(endpoint);
	return (int32_t)((uint32_t)line->done - ticket) > 0 ? PP_DONE : pending(endpoint);
}

/* ---- exchange -------------------------------------------------------------------------------- */

static void exchange(struct pp_endpoint *endpoint, const void *mine, void *all, size_t bytes)
{
	struct pp_part part = {.from = mine,
	                       .to = all,
	                       .count = bytes,
	                       .kind = PP_ALLGATHER,
	                       .dtype = PP_DTYPE_COUNT, /* bytes */
	                       .id = PP_NULL};
	endpoint->exchanges = pp_local_line_post(&endpoint->everyone, &part) + 1;
}

static enum pp_progress test_exchange(struct pp_endpoint *endpoint)
{
	char why[PP_LOCAL_FAILURE_TEXT / 2], text[PP_LOCAL_FAILURE_TEXT];
	if (atomic_load(&endpoint->local->board->failed))
		return PP_FAILED;
	poll(endpoint);
	if (!pp_local_line_move(&endpoint->everyone, why, sizeof why)) {
		snprintf(text, sizeof text, "ranks exchange different things: they %s", why);
		set_failure(endpoint, PP_NULL, text);
	}
	return endpoint->everyone.done >= endpoint->exchanges ? PP_DONE : pending(endpoint);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct pp_local *pp_local_create(const struct pp_program *program, const struct pp_transport_options *options,
                                 struct pp_status *status)
{
	struct pp_local *local = calloc(1, sizeof *local);
	if (local) {
		local->program = program;
		local->options = *options;
		local->world = (uint32_t)pp_grid_world(program);
		if (pp_local_place(local))
			return local;
		pp_fail(status, PP_EXIT_ENVIRONMENT,
		        "cannot share %.1f MiB of memory between %" PRIu32 " processes: out of memory",
		        (double)local->bytes / 1048576, local->world);
		pp_local_destroy(local);
		return NULL;
	}
	pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	return NULL;
}

void pp_local_destroy(struct pp_local *local)
{
	pp_local_free(local);
	free(local);
}

static bool open_ends(struct pp_endpoint *endpoint, struct pp_coord coord, const struct pp_post_counts *counts)
{
	const struct pp_program *program = endpoint->local->program;
	size_t slice = (size_t)coord.dp * pp_grid_extent(program, PP_AXIS_TP) + coord.tp;
	for (uint32_t i = 0; i < program->channel_count; i++) {
		const struct pp_channel *channel = &program->channels[i];
		struct pp_local_end *end = &endpoint->ends[i];
		if (channel->source != coord.pp && channel->destination != coord.pp)
			continue;
		end->ring = &endpoint->local->rings[slice * program->channel_count + i];
		end->sends = channel->source == coord.pp;
		end->capacity = counts->channel[i].posts ? counts->channel[i].posts : 1;
		end->posts = calloc(end->capacity, sizeof *end->posts);
		if (!end->posts)
			return false;
	}
	return true;
}

static bool open_lines(struct pp_endpoint *endpoint, struct pp_coord coord, const struct pp_post_counts *counts)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	const struct pp_program *program = endpoint->local->program;
	for (uint32_t i = 0; i <= program->group_count; i++) {
		bool of_body = i == program->group_count;
		const struct pp_post_count *count = of_body ? &counts->body : &counts->group[i];
		struct pp_local_line *line = &endpoint->lines[i];
		line->team = endpoint->local->teams[(size_t)endpoint->world * (program->group_count + 1) + i];
		line->position = pp_grid_position(of_body ? &of_bodies : &program->groups[i], coord);
		line->capacity = count->posts ? count->posts : 1;
		line->posts = calloc(line->capacity, sizeof *line->posts);
		if (!line->posts)
			return false;
	}
	endpoint->everyone = (struct pp_local_line){
	    .team = &endpoint->local->everyone, .position = endpoint->world, .posts = &endpoint->exchange, .capacity = 1};
	return true;
}

struct pp_endpoint *pp_local_open(struct pp_local *local, uint32_t world, struct pp_status *status)
{
	const struct pp_program *program = local->program;
	struct pp_coord coord = pp_grid_coord(program, world);
	struct pp_endpoint *endpoint = calloc(1, sizeof *endpoint);
	struct pp_post_counts counts = {0};
	if (endpoint) {
		endpoint->local = local;
		endpoint->world = world;
		bool ok = pp_post_counts_make(program, coord.pp, &counts);
		endpoint->ends = calloc((size_t)program->channel_count + 1, sizeof *endpoint->ends);
		endpoint->lines = calloc((size_t)program->group_count + 1, sizeof *endpoint->lines);
		ok = ok && endpoint->ends && endpoint->lines && pp_pending_colls_make(&endpoint->colls, counts.colls) &&
		     open_ends(endpoint, coord, &counts) && open_lines(endpoint, coord, &counts);
		pp_post_counts_free(&counts);
		if (ok)
			return endpoint;
		pp_local_close(endpoint);
	}
	pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the channels of rank %" PRIu32, world);
	return NULL;
}

void pp_local_close(struct pp_endpoint *endpoint)
{
	const struct pp_program *program = endpoint->local->program;
	for (uint32_t i = 0; endpoint->ends && i < program->channel_count; i++)
		free(endpoint->ends[i].posts);
	for (uint32_t i = 0; endpoint->lines && i <= program->group_count; i++)
		free(endpoint->lines[i].posts);
	free(endpoint->ends);
	free(endpoint->lines);
	pp_pending_colls_free(&endpoint->colls);
	free(endpoint);
}

const struct pp_transport_ops pp_transport_local = {
    .name = "local",
    .broken = broken,
    .post_send = post_send,
    .post_recv = post_recv,
    .post_coll = post_coll,
    .post_body = post_body,
    .test = test,
    .test_coll = test_coll,
    .test_body = test_body,
    .poll = poll,
    .exchange = exchange,
    .test_exchange = test_exchange,
    .give_up = give_up,
    .failure = failure,
};
