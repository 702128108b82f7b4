/* One split under given rows: joint.h. */
#include "joint.h"

#include "compiler/cost.h"
#include "compiler/measured.h"
#include "compiler/order_problem.h"

#include "ir/capped.h"

#include <string.h>

struct pp_row *pp_joint_window(struct pp_arena *arena, const struct pp_schedule *schedule, uint32_t most)
{
	struct pp_row *rows = PP_NEW_ARRAY(arena, struct pp_row, schedule->ranks);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		const struct pp_row *row = &schedule->rows[rank];
		uint32_t count = 0;
		for (uint32_t i = 0; i < row->count; i++)
			count += row->actions[i].mb < most;
		rows[rank].actions = PP_NEW_ARRAY(arena, struct pp_action, count);
		for (uint32_t i = 0; i < row->count; i++) {
			if (row->actions[i].mb >= most)
				continue;
			struct pp_action *action = &rows[rank].actions[rows[rank].count++];
			*action = row->actions[i];
			action->paired &= row->actions[i + 1].mb < most; /* a paired action has a next one */
		}
	}
	return rows;
}

/* Which forms of the backward the rows use for a stage. */
static void count_steady(const struct pp_schedule *schedule, uint32_t rank, uint64_t weight, struct pp_path *path)
{
	for (uint32_t i = 0; i < schedule->rows[rank].count; i++) {
		const struct pp_action *action = &schedule->rows[rank].actions[i];
		if (action->mb != 0)
			continue;
		path->count[action->stage][action->kind] += weight;
		if (action->kind == PP_B || action->kind == PP_I)
			path->count[action->stage][PP_ACTION_KINDS] += weight;
	}
}

static uint64_t load_of(const struct pp_order_problem *order, uint32_t rank)
{
	uint64_t load = 0;
	for (uint32_t s = 0; s < order->stages; s++) {
		const struct pp_order_stage *stage = &order->stage[s];
		if (stage->rank == rank)
			load = pp_plus(load, pp_plus(pp_plus(stage->ticks[PP_F], stage->ticks[PP_B]), stage->recompute));
	}
	return load;
}

static uint32_t slowest_rank(const struct pp_order_problem *order, uint64_t *load)
{
	uint32_t slowest = 0;
	*load = load_of(order, 0);
	for (uint32_t rank = 1; rank < order->ranks; rank++) {
		uint64_t other = load_of(order, rank);
		if (other <= *load)
			continue;
		slowest = rank;
		*load = other;
	}
	return slowest;
}

static struct pp_order_problem *order_of(struct pp_arena *scratch, const struct pp_joint_problem *problem,
                                         const uint32_t *first)
{
	const struct pp_spec *spec = problem->spec;
	const struct pp_schedule *schedule = problem->schedule;
	struct pp_stages stages = *problem->stages;
	stages.count = schedule->stages;
	stages.items = PP_NEW_ARRAY(scratch, struct pp_stage_plan, schedule->stages);
	for (uint32_t s = 0; s < schedule->stages; s++) {
		stages.items[s].first_layer = first[s];
		stages.items[s].layer_count = first[s + 1] - first[s];
		stages.items[s].rank = schedule->stage_rank[s];
	}
	pp_cost_stages(spec, &stages);
	if (spec->profile)
		pp_measured_stages(spec, &stages);
	struct pp_order_problem *order =
	    pp_order_of_stages(scratch, spec, schedule->stage_rank, &stages, problem->headroom, spec->schedule_memory);
	order->microbatches = schedule->microbatches;
	order->pair_permille = spec->pair_permille;
	return order;
}

/* Bytes over the caps as the balance counts them, and over the room of the run. */
static uint64_t bytes_over(struct pp_arena *scratch, const struct pp_joint_problem *problem, const uint32_t *first,
                           const struct pp_order_problem *order, const struct pp_order_times *times)
{
	struct pp_split split = {.first = PP_NEW_ARRAY(scratch, uint32_t, (size_t)order->stages + 1)};
	memcpy(split.first, first, ((size_t)order->stages + 1) * sizeof *first);
	pp_balance_rate(scratch, problem->caps, &split);
	for (uint32_t rank = 0; rank < order->ranks; rank++)
		if (times->rank[rank].peak > order->room[rank])
			split.over = pp_plus(split.over, times->rank[rank].peak - order->room[rank]);
	return split.over;
}

struct pp_joint_value pp_joint_run(struct pp_arena *arena, const struct pp_joint_problem *problem,
                                   const uint32_t *first, struct pp_path *path)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	const struct pp_order_problem *order = order_of(scratch, problem, first);
	const struct pp_schedule *schedule = problem->schedule;
	struct pp_order_times times;
	struct pp_joint_value value = {.makespan = UINT64_MAX, .over = UINT64_MAX};
	if (pp_order_run(scratch, order, schedule->rows, path != NULL, &times)) {
		/* Microbatches beyond the window pass at the pace of the slowest rank. */
		uint64_t load, rest = problem->spec->microbatches - schedule->microbatches;
		uint32_t slowest = slowest_rank(order, &load);
		value.makespan = pp_plus(times.makespan, pp_times(rest, load));
		value.over = bytes_over(scratch, problem, first, order, &times);
		if (path) {
			*path = pp_path_of(arena, order, schedule->rows, &times);
			count_steady(schedule, slowest, pp_times(1000, rest), path);
		}
	}
	pp_arena_destroy(scratch);
	return value;
}
