/* First uses. NCCL connects to a peer, chooses an algorithm and allocates when something is used for the first time,
 * and holds the host up while it does; a step has no time for that, and ranks could hold each other up in a circle. So
 * all is used once, in the rounds in which communicators were made, one thing after the other.
 *
 * Requires: ranks on a line find the same operations in the same order (V3, V7). */
#include "comms.h"

#include <inttypes.h>
#include <stdlib.h>

/* The different operations of a line. */
struct uses {
	struct pp_part *items;
	uint32_t count, capacity;
};

static bool add_use(struct uses *uses, uint8_t kind, uint8_t dtype, uint64_t count)
{
	for (uint32_t i = 0; i < uses->count; i++)
		if (uses->items[i].kind == kind && uses->items[i].dtype == dtype && uses->items[i].count == count)
			return true;
	if (uses->count == uses->capacity) {
		uint32_t capacity = uses->capacity ? 2 * uses->capacity : 16;
		struct pp_part *more = realloc(uses->items, capacity * sizeof *more);
		if (!more)
			return false;
		uses->items = more;
		uses->capacity = capacity;
	}
	uses->items[uses->count++] = (struct pp_part){.kind = kind, .dtype = dtype, .count = count, .id = PP_NULL};
	return true;
}

static bool uses_of_stream(struct uses *uses, const struct pp_program *program, uint32_t index,
                           const struct pp_stream *stream)
{
	bool ok = true;
	for (uint32_t i = 0; ok && i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		bool message = instr->op == PP_OP_SEND || instr->op == PP_OP_RECV;
		if (message && instr->a[0] == index)
			ok = add_use(uses, 0, instr->dtype, instr->count);
		else if (instr->op == PP_OP_COLL && program->channel_count + instr->a[1] == index)
			ok = add_use(uses, instr->sub, instr->dtype, instr->count);
	}
	return ok;
}

static bool uses_of_body(struct uses *uses, const struct pp_body *body)
{
	enum { X, Y };
	bool ok = true;
	for (uint32_t i = 0; ok && i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		bool scatters = instr->op == PP_BODY_REDUCESCATTER;
		if (instr->op != PP_BODY_ALLREDUCE && instr->op != PP_BODY_ALLGATHER && !scatters)
			continue;
		const struct pp_reg *share = &body->regs[instr->operand[scatters ? Y : X]];
		uint8_t kind = scatters ? PP_REDUCESCATTER : instr->op == PP_BODY_ALLREDUCE ? PP_ALLREDUCE : PP_ALLGATHER;
		ok = add_use(uses, kind, share->dtype, (uint64_t)share->rows * share->columns);
	}
	return ok;
}

static bool uses_of(struct uses *uses, const struct pp_program *program, uint32_t index, uint32_t rank)
{
	bool ok = true;
	for (uint32_t i = 0; ok && i < program->program_count; i++)
		ok = uses_of_stream(uses, program, index, &program->programs[i].streams[rank]);
	bool of_bodies = index == program->channel_count + program->group_count;
	for (uint32_t i = 0; ok && of_bodies && i < program->body_count; i++)
		if (program->stages[program->bodies[i].stage].rank == rank)
			ok = uses_of_body(uses, &program->bodies[i]);
	return ok;
}

static uint64_t bytes_of(const struct pp_part *part, uint32_t members)
{
	uint64_t share = part->count * pp_dtype_size[part->dtype];
	return part->kind == PP_ALLREDUCE ? share : share * members;
}

/* Where NCCL wants the shares of an operation in place. */
static struct pp_part within(const struct pp_part *use, const struct pp_nccl_seat *seat, bool message, void *room)
{
	struct pp_part part = *use;
	uint64_t own = message ? 0 : seat->position * part.count * pp_dtype_size[part.dtype];
	part.from = room;
	part.to = room;
	if (part.kind == PP_ALLGATHER)
		part.from += own;
	if (part.kind == PP_REDUCESCATTER)
		part.to += own;
	return part;
}

static bool warm_line(const struct pp_nccl_line *line, const struct uses *uses, void *room, struct pp_status *status)
{
	bool message = line->index < line->program->channel_count;
	for (uint32_t i = 0; i < uses->count; i++) {
		struct pp_part part = within(&uses->items[i], &line->seat, message, room);
		if (!pp_nccl_line_start(line, &part, status) ||
		    !pp_cuda_wait(line->stream, "the first use of a communicator", status))
			return false;
	}
	return true;
}

/* Round by round, so that nobody waits for a rank that waits for him. */
static bool warm_all(const struct pp_nccl_world *world, const struct pp_nccl_plan *plan, struct pp_nccl_line *lines,
                     const struct uses *uses, void *room, struct pp_status *status)
{
	struct pp_coord coord = pp_grid_coord(world->program, world->rank);
	for (uint32_t round = 0; round < plan->rounds; round++) {
		uint32_t index = pp_nccl_plan_at(plan, round, coord);
		if (index != PP_NULL && !warm_line(&lines[index], &uses[index], room, status))
			return false;
	}
	return true;
}

static bool measure_left(uint64_t *left, struct pp_status *status)
{
	size_t free_bytes = 0, total = 0;
	bool ok = pp_cuda_ok(cudaMemGetInfo(&free_bytes, &total), "asking for free memory", status);
	*left = free_bytes;
	return ok;
}

/* Twice: what the second turn allocates, a step would too. */
static bool warm_twice(struct pp_nccl_world *world, const struct pp_nccl_plan *plan, struct pp_nccl_line *lines,
                       const struct uses *uses, void *room, struct pp_status *status)
{
	uint64_t before = 0, after = 0;
	bool ok = warm_all(world, plan, lines, uses, room, status) && measure_left(&before, status) &&
	          warm_all(world, plan, lines, uses, room, status) && measure_left(&after, status);
	world->grown = before > after ? before - after : 0;
	return ok;
}

bool pp_nccl_world_warm(struct pp_nccl_world *world, const struct pp_nccl_plan *plan, struct pp_nccl_line *lines,
                        void *room, uint64_t bytes, struct pp_status *status)
{
	struct uses *uses = calloc(plan->count, sizeof *uses);
	struct pp_coord coord = pp_grid_coord(world->program, world->rank);
	uint64_t most = 1;
	cudaStream_t stream = NULL; /* any of the lines' */
	bool ok = uses != NULL;
	for (uint32_t i = 0; ok && i < plan->count; i++) {
		if (!lines[i].comm)
			continue;
		stream = lines[i].stream;
		ok = uses_of(&uses[i], world->program, i, coord.pp);
		for (uint32_t k = 0; ok && k < uses[i].count; k++) {
			bool message = i < world->program->channel_count;
			uint64_t wanted = bytes_of(&uses[i].items[k], message ? 1 : lines[i].seat.members);
			most = wanted > most ? wanted : most;
		}
	}
	void *own = NULL;
	if (!ok)
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the operations of rank %" PRIu32, world->rank);
	if (ok && stream && (!room || bytes < most)) {
		ok = pp_cuda_ok(cudaMalloc(&own, most), "allocating memory for NCCL's first operations", status) &&
		     pp_cuda_ok(cudaMemsetAsync(own, 0, most, stream), "clearing memory", status) &&
		     pp_cuda_wait(stream, "clearing memory", status);
		room = own;
	}
	ok = ok && warm_twice(world, plan, lines, uses, room, status);
	if (own)
		cudaFree(own);
	for (uint32_t i = 0; uses && i < plan->count; i++)
		free(uses[i].items);
	free(uses);
	return ok;
}
