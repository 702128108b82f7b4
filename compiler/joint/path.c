/* Critical paths: joint.h. From the action that ends last back through whatever each one waited for: the action before
 * it on its rank, or the value that came in last. */
#include "joint.h"

#include "ir/capped.h"

#include <assert.h>

struct trace {
	const struct pp_order_problem *problem;
	const struct pp_row *rows;
	const struct pp_order_times *times;
	uint32_t *forward, *backward; /* [stages * microbatches]: position in the row of F, of B or I */
	struct pp_path path;
};

/* Actions of a row that begin together: one, or those joined by `paired`. */
struct step {
	uint32_t rank, begin, count;
	uint64_t start, ticks, recompute;
};

static uint64_t permille(const struct trace *trace)
{
	return trace->problem->pair_permille ? trace->problem->pair_permille : 1000;
}

/* The step that an action belongs to. */
static struct step step_of(const struct trace *trace, uint32_t rank, uint32_t at)
{
	const struct pp_action *actions = trace->rows[rank].actions;
	while (at > 0 && actions[at - 1].paired)
		at--;
	struct step step = {.rank = rank, .begin = at, .start = trace->times->start[rank][at]};
	for (bool more = true; more && at < trace->rows[rank].count; at++, step.count++) {
		const struct pp_order_stage *stage = &trace->problem->stage[actions[at].stage];
		step.ticks = pp_plus(step.ticks, stage->ticks[actions[at].kind]);
		if (actions[at].kind == PP_B || actions[at].kind == PP_I)
			step.recompute = pp_plus(step.recompute, stage->recompute);
		more = actions[at].paired;
	}
	if (step.count > 1)
		step.ticks = pp_plus(pp_times(step.ticks / 1000, permille(trace)), step.ticks % 1000 * permille(trace) / 1000);
	return step;
}

static uint64_t end_of(const struct step *step)
{
	return pp_plus(step->start, step->ticks);
}

/* What an action takes in, if anything: where it was made and how long it travelled. */
static bool source_of(const struct trace *trace, const struct pp_action *action, struct step *from, uint64_t *hop)
{
	const struct pp_order_problem *problem = trace->problem;
	uint32_t stage = action->stage;
	const uint32_t *position = trace->backward;
	*hop = 0;
	switch ((enum pp_action_kind)action->kind) {
	case PP_F:
		if (stage-- == 0)
			return false;
		position = trace->forward;
		*hop = problem->stage[stage].forward_hop;
		break;
	case PP_B:
	case PP_I:
		if (++stage < problem->stages) {
			*hop = problem->stage[stage].backward_hop;
			break;
		}
		stage--;
		position = trace->forward;
		break;
	case PP_W:
		break;
	case PP_ACTION_KINDS:
		return false;
	}
	uint64_t value = (uint64_t)stage * problem->microbatches + action->mb;
	*from = step_of(trace, problem->stage[stage].rank, position[value]);
	return true;
}

static void count_step(struct trace *trace, const struct step *step, bool again)
{
	uint64_t each = step->count > 1 ? permille(trace) : 1000;
	for (uint32_t i = 0; i < step->count; i++) {
		const struct pp_action *action = &trace->rows[step->rank].actions[step->begin + i];
		uint64_t *count = trace->path.count[action->stage];
		count[action->kind] += each;
		if (again && (action->kind == PP_B || action->kind == PP_I) && trace->problem->stage[action->stage].recompute)
			count[PP_ACTION_KINDS] += 1000;
	}
}

/* The step before this one on the path. False: it began at 0. */
static bool step_back(struct trace *trace, struct step *step)
{
	for (uint32_t i = 0; i < step->count; i++) {
		struct step from;
		uint64_t hop;
		if (!source_of(trace, &trace->rows[step->rank].actions[step->begin + i], &from, &hop) ||
		    pp_plus(end_of(&from), hop) != step->start || (from.rank == step->rank && from.begin == step->begin))
			continue;
		count_step(trace, step, false);
		trace->path.hops = pp_plus(trace->path.hops, hop);
		*step = from;
		return true;
	}
	count_step(trace, step, true);
	if (step->begin == 0)
		return false;
	*step = step_of(trace, step->rank, step->begin - 1);
	return true;
}

static void find_positions(struct trace *trace)
{
	const struct pp_order_problem *problem = trace->problem;
	for (uint32_t rank = 0; rank < problem->ranks; rank++)
		for (uint32_t i = 0; i < trace->rows[rank].count; i++) {
			const struct pp_action *action = &trace->rows[rank].actions[i];
			uint64_t value = (uint64_t)action->stage * problem->microbatches + action->mb;
			if (action->kind == PP_F)
				trace->forward[value] = i;
			else if (action->kind != PP_W)
				trace->backward[value] = i;
		}
}

struct pp_path pp_path_of(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_row *rows,
                          const struct pp_order_times *times)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint64_t values = pp_times(problem->stages, problem->microbatches);
	struct trace trace = {.problem = problem,
	                      .rows = rows,
	                      .times = times,
	                      .forward = PP_NEW_ARRAY(scratch, uint32_t, values),
	                      .backward = PP_NEW_ARRAY(scratch, uint32_t, values)};
	trace.path.count = pp_arena_alloc(arena, problem->stages, sizeof *trace.path.count);
	find_positions(&trace);
	uint32_t last = 0;
	for (uint32_t rank = 1; rank < problem->ranks; rank++)
		if (times->rank[rank].last > times->rank[last].last)
			last = rank;
	if (rows[last].count) {
		struct step step = step_of(&trace, last, rows[last].count - 1);
		while (step_back(&trace, &step))
			;
	}
	pp_arena_destroy(scratch);
	return trace.path;
}
