/* Random collectives and what must come out. Values are a function of (world rank, collective, element), so every
 * member knows what the others give. */
#include "collectives.h"

#include "random.h"

#include "executor/bf16.h"
#include "ir/arena.h"

#include <assert.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS = 4, AT_ONCE = 12, ROUNDS = 2, MESSAGE = 3000 };

/* ---- programs -------------------------------------------------------------------------------- */

static void make_groups(struct pp_arena *arena, struct pp_program *program)
{
	program->group_count = GROUPS;
	program->groups = PP_NEW_ARRAY(arena, struct pp_group, GROUPS);
	program->groups[2].axis = PP_AXIS_TP;
	program->groups[3].axis = PP_AXIS_DP;
	for (uint32_t g = 0; g < 2; g++) {
		struct pp_group *group = &program->groups[g];
		group->members = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
		for (uint32_t rank = 0; rank < program->ranks; rank += g + 1)
			group->members[group->member_count++] = rank;
	}
}

static void make_channels(struct pp_arena *arena, struct pp_program *program)
{
	program->channels = PP_NEW_ARRAY(arena, struct pp_channel, 2 * program->ranks);
	for (uint32_t rank = 0; rank + 1 < program->ranks; rank++) {
		program->channels[program->channel_count++] =
		    (struct pp_channel){.source = rank, .destination = rank + 1, .kind = PP_ACT, .depth = 1};
		program->channels[program->channel_count++] =
		    (struct pp_channel){.source = rank + 1, .destination = rank, .kind = PP_GRAD, .depth = 1};
	}
}

/* A short or a long one; long ones take several rounds in the mpi transport. */
static uint32_t random_count(uint64_t *seed)
{
	static const uint32_t below[] = {3, 20, 1000, 12000};
	return random_below(seed, below[random_below(seed, 4)]);
}

static void make_body(struct pp_arena *arena, struct pp_program *program, uint32_t rank, uint64_t seed, uint32_t count)
{
	static const uint8_t ops[] = {PP_BODY_ALLREDUCE, PP_BODY_ALLGATHER, PP_BODY_REDUCESCATTER};
	struct pp_body *body = &program->bodies[rank];
	body->stage = rank;
	body->regs = PP_NEW_ARRAY(arena, struct pp_reg, 2 * count);
	body->items = PP_NEW_ARRAY(arena, struct pp_body_instr, count);
	body->reg_count = 2 * count;
	body->count = count;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t kind = random_below(&seed, PP_COLLECTIVE_COUNT), elements = random_count(&seed);
		struct pp_reg *x = &body->regs[2 * i], *y = x + 1;
		x->columns = y->columns = 1;
		x->rows = kind == PP_REDUCESCATTER ? elements * program->tp : elements;
		y->rows = kind == PP_ALLGATHER ? elements * program->tp : elements;
		x->dtype = y->dtype = (uint8_t)random_below(&seed, PP_I32);
		body->items[i] = (struct pp_body_instr){.op = ops[kind], .operand = {2 * i, 2 * i + 1}};
	}
}

static void make_stream(struct pp_arena *arena, struct pp_program *program, uint32_t rank, uint64_t seed,
                        uint32_t count)
{
	struct pp_stream *stream = &program->programs[0].streams[rank];
	stream->items = PP_NEW_ARRAY(arena, struct pp_instr, count + program->channel_count);
	for (uint32_t i = 0; i < count; i++) {
		struct pp_instr coll = {.op = PP_OP_COLL, .a = {i, random_below(&seed, GROUPS), 0, 0}};
		coll.sub = (uint8_t)random_below(&seed, PP_COLLECTIVE_COUNT);
		coll.dtype = (uint8_t)random_below(&seed, PP_I32); /* f32, bf16, f64 */
		coll.count = random_count(&seed);
		coll.a[3] = random_below(&seed, 2); /* slots: equal in place */
		if (pp_grid_position(&program->groups[coll.a[1]], (struct pp_coord){.pp = rank}) != PP_NULL)
			stream->items[stream->count++] = coll;
	}
	for (uint32_t i = 0; i < program->channel_count; i++) {
		const struct pp_channel *channel = &program->channels[i];
		if (channel->source == rank || channel->destination == rank)
			stream->items[stream->count++] =
			    (struct pp_instr){.op = (uint8_t)(channel->source == rank ? PP_OP_SEND : PP_OP_RECV),
			                      .dtype = PP_F32,
			                      .a = {i, 0, 0, PP_NULL},
			                      .count = MESSAGE};
	}
}

struct pp_program *pp_collective_program(struct pp_arena *arena, const struct pp_collective_grid *grid, uint64_t seed,
                                         uint32_t count)
{
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	*program = (struct pp_program){.arena = arena,
	                               .ranks = grid->pp,
	                               .tp = grid->tp,
	                               .dp = grid->dp,
	                               .rank_order = grid->order,
	                               .stage_count = grid->pp,
	                               .body_count = grid->pp,
	                               .program_count = 1,
	                               .stages = PP_NEW_ARRAY(arena, struct pp_stage, grid->pp),
	                               .bodies = PP_NEW_ARRAY(arena, struct pp_body, grid->pp),
	                               .programs = PP_NEW(arena, struct pp_named_program)};
	program->programs[0].streams = PP_NEW_ARRAY(arena, struct pp_stream, grid->pp);
	make_groups(arena, program);
	make_channels(arena, program);
	for (uint32_t rank = 0; rank < grid->pp; rank++) {
		program->stages[rank].rank = rank;
		make_stream(arena, program, rank, seed, count);
		make_body(arena, program, rank, seed + 1, AT_ONCE);
	}
	return program;
}

/* ---- one collective -------------------------------------------------------------------------- */

enum { ANY_ORDER = 1 << 30 }; /* in the number of a collective */

/* Sums of these depend on their order: large ones of either sign, and small ones. Or not at all: of integers that bf16
 * holds, as their sums. */
static double value_of(uint32_t world, uint32_t number, uint64_t element)
{
	uint64_t seed = ((uint64_t)world << 48) + ((uint64_t)number << 32) + element, draw = random_next(&seed);
	if (number & ANY_ORDER)
		return (double)(draw % 16);
	double small = (double)(draw % 1000);
	return draw >> 60 < 4 ? 1e10 + small : draw >> 60 < 8 ? -1e10 - small : small;
}

struct member {
	const struct pp_program *program;
	const struct pp_group *group;
	struct pp_coord coord;
	uint32_t members, position;
};

/* What this rank posts; bodies' ones are known by a ticket. */
struct posted {
	struct member member;
	bool of_body;
	uint8_t kind, dtype;
	uint32_t number, ticket;
	uint64_t count;              /* of a share */
	void *from, *to;             /* as the host sees them */
	void *from_there, *to_there; /* as the transport does */
	bool in_place;
	struct pp_instr instr;
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Where transports want it, with what the host has. */
static void *put_there(const struct pp_test_memory *memory, void *here, size_t bytes)
{
	if (!memory)
		return here;
	void *there = memory->take(memory->context, bytes);
	memory->put(memory->context, there, here, bytes);
	return there;
}

static void get_back(const struct pp_test_memory *memory, void *here, const void *there, size_t bytes)
{
	if (memory)
		memory->get(memory->context, here, there, bytes);
}

static void put(uint8_t dtype, void *to, uint64_t at, double value)
{
	if (dtype == PP_F64)
		((double *)to)[at] = value;
	else if (dtype == PP_BF16)
		((pp_bf16 *)to)[at] = pp_bf16_from_f32((float)value);
	else
		((float *)to)[at] = (float)value;
}

static double get(uint8_t dtype, const void *from, uint64_t at)
{
	if (dtype == PP_F64)
		return ((const double *)from)[at];
	return (double)(dtype == PP_BF16 ? pp_bf16_to_f32(((const pp_bf16 *)from)[at]) : ((const float *)from)[at]);
}

/* What is left of a value in this format. */
static double kept(uint8_t dtype, double value)
{
	double storage;
	put(dtype, &storage, 0, value);
	return get(dtype, &storage, 0);
}

static double sum_of(const struct posted *posted, uint64_t element)
{
	const struct member *m = &posted->member;
	double sum = 0;
	for (uint32_t i = 0; i < m->members; i++) {
		double value = value_of(pp_grid_member(m->program, m->group, m->coord, i), posted->number, element);
		value = kept(posted->dtype, value);
		if (posted->dtype == PP_F64)
			sum = i ? sum + value : value;
		else
			sum = i ? (double)((float)sum + (float)value) : value;
	}
	return kept(posted->dtype, sum);
}

static double expected(const struct posted *posted, uint64_t element)
{
	const struct member *m = &posted->member;
	if (posted->kind == PP_ALLREDUCE)
		return sum_of(posted, element);
	if (posted->kind == PP_REDUCESCATTER)
		return sum_of(posted, m->position * posted->count + element);
	uint32_t giver = (uint32_t)(element / posted->count);
	double value =
	    value_of(pp_grid_member(m->program, m->group, m->coord, giver), posted->number, element % posted->count);
	return kept(posted->dtype, value);
}

static uint64_t bytes_from(const struct posted *posted)
{
	uint64_t each = posted->count * pp_dtype_size[posted->dtype];
	return posted->kind == PP_REDUCESCATTER ? each * posted->member.members : each;
}

static uint64_t bytes_to(const struct posted *posted)
{
	return posted->count * posted->member.members * pp_dtype_size[posted->dtype];
}

/* Memory and values of what is to be posted. */
static void prepare(const struct pp_test_memory *memory, struct posted *posted, uint32_t world)
{
	const struct member *m = &posted->member;
	uint64_t all = posted->count * m->members, size = pp_dtype_size[posted->dtype];
	uint64_t given = posted->kind == PP_REDUCESCATTER ? all : posted->count;
	posted->to = calloc(all + 1, size);
	posted->from = posted->in_place ? posted->to : calloc(given + 1, size);
	assert(posted->to && posted->from);
	uint64_t at = posted->in_place && posted->kind == PP_ALLGATHER ? m->position * posted->count : 0;
	for (uint64_t i = 0; i < given; i++)
		put(posted->dtype, posted->from, at + i, value_of(world, posted->number, i));
	posted->to_there = put_there(memory, posted->to, bytes_to(posted));
	posted->from_there = posted->in_place ? posted->to_there : put_there(memory, posted->from, bytes_from(posted));
}

static bool check(const struct posted *posted, char why[256])
{
	const struct member *m = &posted->member;
	uint64_t taken = posted->kind == PP_ALLGATHER ? posted->count * m->members : posted->count;
	uint64_t at = posted->in_place && posted->kind == PP_REDUCESCATTER ? m->position * posted->count : 0;
	for (uint64_t i = 0; i < taken; i++) {
		double wanted = expected(posted, i);
		double got = get(posted->dtype, posted->to, at + i);
		if (memcmp(&wanted, &got, sizeof got) == 0)
			continue;
		snprintf(why, 256,
		         "%s %" PRIu32 " of %" PRIu64 " %s at member %" PRIu32 " of %" PRIu32 ": [%" PRIu64
		         "] is %.17g, not %.17g",
		         pp_collective_name[posted->kind], posted->number, posted->count, pp_dtype_name[posted->dtype],
		         m->position, m->members, i, got, wanted);
		return false;
	}
	return true;
}

static void discard(const struct pp_test_memory *memory, struct posted *posted)
{
	if (memory && !posted->in_place)
		memory->give(memory->context, posted->from_there);
	if (memory)
		memory->give(memory->context, posted->to_there);
	if (!posted->in_place)
		free(posted->from);
	free(posted->to);
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct runner {
	const struct pp_program *program;
	const struct pp_transport_ops *ops;
	struct pp_endpoint *endpoint;
	const struct pp_test_memory *memory;
	uint32_t world;
	struct pp_coord coord;
	uint32_t flags; /* of numbers */
};

static struct member membership(const struct runner *runner, const struct pp_group *group)
{
	return (struct member){.program = runner->program,
	                       .group = group,
	                       .coord = runner->coord,
	                       .members = pp_grid_members(runner->program, group),
	                       .position = pp_grid_position(group, runner->coord)};
}

static void post(const struct runner *runner, const struct pp_instr *coll, uint32_t round, struct posted *posted)
{
	*posted = (struct posted){.member = membership(runner, &runner->program->groups[coll->a[1]]),
	                          .kind = coll->sub,
	                          .dtype = coll->dtype,
	                          .number = (coll->a[0] + 1000 * round) | runner->flags,
	                          .count = coll->count,
	                          .in_place = coll->a[2] == coll->a[3],
	                          .instr = *coll};
	prepare(runner->memory, posted, runner->world);
	runner->ops->post_coll(runner->endpoint, &posted->instr, posted->from_there, posted->to_there);
}

static void post_of_body(const struct runner *runner, uint32_t index, uint32_t round, struct posted *posted)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	const struct pp_body *body = &runner->program->bodies[runner->coord.pp];
	const struct pp_body_instr *instr = &body->items[index];
	uint8_t kind = instr->op == PP_BODY_ALLREDUCE   ? PP_ALLREDUCE
	               : instr->op == PP_BODY_ALLGATHER ? PP_ALLGATHER
	                                                : PP_REDUCESCATTER;
	*posted = (struct posted){.member = membership(runner, &of_bodies),
	                          .of_body = true,
	                          .kind = kind,
	                          .dtype = body->regs[instr->operand[0]].dtype,
	                          .number = (500 + index + 1000 * round) | runner->flags,
	                          .count = body->regs[instr->operand[kind == PP_REDUCESCATTER]].rows};
	prepare(runner->memory, posted, runner->world);
	posted->ticket = runner->ops->post_body(runner->endpoint, (enum pp_collective)kind, (enum pp_dtype)posted->dtype,
	                                        posted->from_there, posted->to_there, posted->count);
}

/* Ends after two minutes, so that a transport that hangs fails. */
static bool await(const struct runner *runner, enum pp_progress (*test)(const struct runner *, const void *),
                  const void *what, char why[256])
{
	time_t start = time(NULL);
	for (unsigned polls = 0;; polls++) {
		enum pp_progress progress = test(runner, what);
		if (progress == PP_DONE)
			return true;
		if (progress == PP_FAILED || time(NULL) - start > 120) {
			snprintf(why, 256, "%.250s", progress == PP_FAILED ? runner->ops->failure(runner->endpoint) : "no end");
			return false;
		}
		if (polls > 100)
			sched_yield();
	}
}

static enum pp_progress test_posted(const struct runner *runner, const void *what)
{
	const struct posted *posted = what;
	return posted->of_body ? runner->ops->test_body(runner->endpoint, posted->ticket)
	                       : runner->ops->test_coll(runner->endpoint, posted->instr.a[0]);
}

static enum pp_progress test_message(const struct runner *runner, const void *what)
{
	const struct pp_instr *instr = what;
	return runner->ops->test(runner->endpoint, instr->a[0], instr->a[1]);
}

/* Wait for all, the last one first. */
static bool finish(const struct runner *runner, struct posted *posted, uint32_t count, char why[256])
{
	bool fine = true;
	for (uint32_t i = count; fine && i-- > 0;) {
		fine = await(runner, test_posted, &posted[i], why);
		if (fine)
			get_back(runner->memory, posted[i].to, posted[i].to_there, bytes_to(&posted[i]));
		fine = fine && check(&posted[i], why);
	}
	for (uint32_t i = 0; fine && i < count; i++)
		discard(runner->memory, &posted[i]);
	return fine;
}

/* Messages hold the value of (source, channel). */
static bool exchange_messages(const struct runner *runner, const struct pp_stream *stream, uint32_t first,
                              float (*messages)[MESSAGE], void **there, bool begin, char why[256])
{
	for (uint32_t i = first; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		const struct pp_channel *channel = &runner->program->channels[instr->a[0]];
		struct pp_coord from = runner->coord;
		from.pp = channel->source;
		uint32_t source = pp_grid_rank(runner->program, from);
		float *message = messages[i - first];
		if (begin && instr->op == PP_OP_SEND) {
			for (uint32_t k = 0; k < MESSAGE; k++)
				message[k] = (float)value_of(source, instr->a[0], k);
			there[i - first] = put_there(runner->memory, message, sizeof *messages);
			runner->ops->post_send(runner->endpoint, instr, there[i - first]);
		} else if (begin) {
			there[i - first] = put_there(runner->memory, message, sizeof *messages);
			runner->ops->post_recv(runner->endpoint, instr, there[i - first]);
		} else if (!await(runner, test_message, instr, why)) {
			return false;
		} else {
			get_back(runner->memory, message, there[i - first], sizeof *messages);
		}
		for (uint32_t k = 0; !begin && k < MESSAGE; k++)
			if (message[k] != (float)value_of(source, instr->a[0], k)) {
				snprintf(why, 256, "c%" PRIu32 " brought another message", instr->a[0]);
				return false;
			}
		if (!begin && runner->memory)
			runner->memory->give(runner->memory->context, there[i - first]);
	}
	return true;
}

static bool run_round(const struct runner *runner, uint32_t round, float (*messages)[MESSAGE], void **there,
                      char why[256])
{
	const struct pp_stream *stream = &runner->program->programs[0].streams[runner->coord.pp];
	struct posted posted[2 * AT_ONCE];
	uint32_t colls = 0, body = 0;
	while (colls < stream->count && stream->items[colls].op == PP_OP_COLL)
		colls++;
	if (!exchange_messages(runner, stream, colls, messages, there, true, why))
		return false;
	for (uint32_t i = 0; i < colls || body < AT_ONCE;) {
		uint32_t count = 0;
		/* All members of a tp group have the same stream, so the order of these is the same too. */
		for (; i < colls && count < AT_ONCE; i++)
			post(runner, &stream->items[i], round, &posted[count++]);
		for (uint32_t k = 0; body < AT_ONCE && k < 5; k++, body++)
			post_of_body(runner, body, round, &posted[count++]);
		if (!finish(runner, posted, count, why))
			return false;
	}
	return exchange_messages(runner, stream, colls, messages, there, false, why);
}

bool pp_collectives_run(const struct pp_program *program, const struct pp_test_seat *seat, char why[256])
{
	struct runner runner = {.program = program,
	                        .ops = seat->ops,
	                        .endpoint = seat->endpoint,
	                        .memory = seat->memory,
	                        .world = seat->rank,
	                        .coord = pp_grid_coord(program, seat->rank),
	                        .flags = seat->any_order ? ANY_ORDER : 0};
	float(*messages)[MESSAGE] = calloc((size_t)program->channel_count + 1, sizeof *messages);
	void **there = calloc((size_t)program->channel_count + 1, sizeof *there);
	assert(messages && there);
	bool fine = true;
	for (uint32_t round = 0; fine && round < ROUNDS; round++)
		fine = run_round(&runner, round, messages, there, why);
	if (fine) { /* else another may still be copying */
		free(messages);
		free(there);
	} else {
		seat->ops->give_up(seat->endpoint, why);
	}
	return fine;
}

struct job {
	const struct pp_program *program;
	char (*whys)[256]; /* of each rank */
};

static bool run_job(void *context, const struct pp_test_seat *seat)
{
	const struct job *job = context;
	return pp_collectives_run(job->program, seat, job->whys[seat->rank]);
}

static bool run_here(const struct pp_test_world *world, const struct pp_program *program,
                     const struct pp_transport_options *options, char why[256])
{
	uint32_t ranks = (uint32_t)pp_grid_world(program), rank = 0;
	struct job job = {program, calloc(ranks, sizeof *job.whys)};
	assert(job.whys);
	bool fine = pp_test_threads(world, program, options, run_job, &job);
	while (!fine && rank + 1 < ranks && !job.whys[rank][0])
		rank++;
	snprintf(why, 256, "%s", job.whys[rank]);
	free(job.whys);
	return fine;
}

bool pp_collectives_run_threads(const struct pp_test_world *world, const struct pp_program *program,
                                const struct pp_transport_options *options, char why[256])
{
	if (!world->apart)
		return run_here(world, program, options, why);
	fflush(NULL);
	pid_t child = fork();
	assert(child >= 0);
	if (child == 0) {
		bool fine = run_here(world, program, options, why);
		if (!fine)
			fprintf(stderr, "%s\n", why);
		exit(!fine);
	}
	int status = 0;
	waitpid(child, &status, 0);
	snprintf(why, 256, "see above");
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
