/* Edge colouring, first fit: what has no pipeline rank in common with anything of a round can join it. Coordinates of
 * the other axes have the same channels on other ranks, so the colours of one serve all.
 *
 * Requires: a verified program. */
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pp_group *pp_nccl_plan_group(const struct pp_program *program, uint32_t index)
{
	static const struct pp_group of_bodies = {.axis = PP_AXIS_TP};
	uint32_t group = index - program->channel_count;
	return group < program->group_count ? &program->groups[group] : &of_bodies;
}

static bool is_channel(const struct pp_program *program, uint32_t index)
{
	return index < program->channel_count;
}

static bool has_collectives(const struct pp_body *body)
{
	for (uint32_t i = 0; i < body->count; i++)
		if (body->items[i].op == PP_BODY_ALLREDUCE || body->items[i].op == PP_BODY_ALLGATHER ||
		    body->items[i].op == PP_BODY_REDUCESCATTER)
			return true;
	return false;
}

static void mark_used(const struct pp_program *program, bool *used)
{
	const uint32_t channels = program->channel_count;
	for (uint32_t p = 0; p < program->program_count; p++)
		for (uint32_t r = 0; r < program->ranks; r++) {
			const struct pp_stream *stream = &program->programs[p].streams[r];
			for (uint32_t i = 0; i < stream->count; i++) {
				const struct pp_instr *instr = &stream->items[i];
				if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV)
					used[instr->a[0]] = true;
				else if (instr->op == PP_OP_COLL)
					used[channels + instr->a[1]] = true;
			}
		}
	for (uint32_t i = 0; i < program->body_count; i++)
		used[channels + program->group_count] =
		    used[channels + program->group_count] || has_collectives(&program->bodies[i]);
}

/* Does the pipeline rank take part, at some coordinate? */
static bool takes_part(const struct pp_program *program, uint32_t index, uint32_t rank)
{
	if (is_channel(program, index))
		return program->channels[index].source == rank || program->channels[index].destination == rank;
	return pp_grid_position(pp_nccl_plan_group(program, index), (struct pp_coord){.pp = rank}) != PP_NULL;
}

/* busy[round * ranks + rank] */
static bool fits(const struct pp_program *program, uint32_t index, const bool *busy)
{
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		if (busy[rank] && takes_part(program, index, rank))
			return false;
	return true;
}

static bool colour(struct pp_nccl_plan *plan, const bool *used)
{
	const struct pp_program *program = plan->program;
	bool *busy = NULL;
	for (uint32_t i = 0; i < plan->count; i++) {
		plan->round[i] = PP_NULL;
		bool alone = !is_channel(program, i) && pp_grid_members(program, pp_nccl_plan_group(program, i)) == 1;
		if (!used[i] || alone)
			continue;
		uint32_t round = 0;
		while (round < plan->rounds && !fits(program, i, busy + (size_t)round * program->ranks))
			round++;
		if (round == plan->rounds) {
			bool *more = realloc(busy, (size_t)(round + 1) * program->ranks * sizeof *busy);
			if (!more) {
				free(busy);
				return false;
			}
			busy = more;
			memset(busy + (size_t)round * program->ranks, 0, program->ranks * sizeof *busy);
			plan->rounds++;
		}
		plan->round[i] = round;
		for (uint32_t rank = 0; rank < program->ranks; rank++)
			if (takes_part(program, i, rank))
				busy[(size_t)round * program->ranks + rank] = true;
	}
	free(busy);
	return true;
}

bool pp_nccl_plan_make(struct pp_nccl_plan *plan, const struct pp_program *program)
{
	*plan = (struct pp_nccl_plan){.program = program, .count = program->channel_count + program->group_count + 1};
	bool *used = calloc(plan->count, sizeof *used);
	plan->round = calloc(plan->count, sizeof *plan->round);
	if (used)
		mark_used(program, used);
	bool ok = used && plan->round && colour(plan, used);
	free(used);
	return ok;
}

void pp_nccl_plan_free(struct pp_nccl_plan *plan)
{
	free(plan->round);
	*plan = (struct pp_nccl_plan){0};
}

struct pp_nccl_seat pp_nccl_plan_seat(const struct pp_program *program, uint32_t index, struct pp_coord coord)
{
	if (is_channel(program, index)) {
		const struct pp_channel *channel = &program->channels[index];
		struct pp_coord source = {channel->source, coord.tp, coord.dp};
		if (channel->source != coord.pp && channel->destination != coord.pp)
			return (struct pp_nccl_seat){0};
		return (struct pp_nccl_seat){2, channel->destination == coord.pp, pp_grid_rank(program, source)};
	}
	const struct pp_group *group = pp_nccl_plan_group(program, index);
	uint32_t position = pp_grid_position(group, coord);
	if (position == PP_NULL)
		return (struct pp_nccl_seat){0};
	return (struct pp_nccl_seat){pp_grid_members(program, group), position, pp_grid_member(program, group, coord, 0)};
}

uint32_t pp_nccl_plan_at(const struct pp_nccl_plan *plan, uint32_t round, struct pp_coord coord)
{
	for (uint32_t i = 0; i < plan->count; i++)
		if (plan->round[i] == round && takes_part(plan->program, i, coord.pp))
			return i;
	return PP_NULL;
}

uint32_t pp_nccl_plan_ctas(const struct pp_program *program, uint32_t index)
{
	if (is_channel(program, index))
		return program->channels[index].ctas;
	uint32_t group = index - program->channel_count;
	if (group == program->group_count)
		group = pp_grid_of_bodies(program);
	return group == PP_NULL ? 0 : program->groups[group].ctas;
}

const char *pp_nccl_plan_name(const struct pp_program *program, uint32_t index, char name[PP_NCCL_NAME])
{
	if (is_channel(program, index))
		snprintf(name, PP_NCCL_NAME, "c%" PRIu32 " (rank %" PRIu32 " to rank %" PRIu32 ")", index,
		         program->channels[index].source, program->channels[index].destination);
	else if (index < program->channel_count + program->group_count)
		snprintf(name, PP_NCCL_NAME, "g%" PRIu32, index - program->channel_count);
	else
		snprintf(name, PP_NCCL_NAME, "the tensor-parallel group of bodies");
	return name;
}
