/* Critical paths: joint.h. From the action that ends last back through whatever each one waited for: the action before
 * it on its rank, or the value that came in last; that one perhaps behind others through a channel that was busy. */
#include "joint.h"

#include "ir/capped.h"

#include <assert.h>

struct trace {
	const struct pp_order_problem *problem;
	const struct pp_row *rows;
	const struct pp_order_times *times;
	uint32_t *position[2]; /* [stages * microbatches]: in the row of F, of B or I */
	uint32_t *channel;     /* pp_order_channels */
	uint64_t *there[2];    /* [stages * microbatches], with channels: when what F, or B or I, makes has hopped over */
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

/* What F (way 0), or B or I (1), makes of a microbatch. */
struct made {
	uint32_t stage, mb;
	unsigned way;
};

static uint64_t value_of(const struct trace *trace, const struct made *made)
{
	return (uint64_t)made->stage * trace->problem->microbatches + made->mb;
}

static uint32_t channel_of(const struct trace *trace, uint32_t stage, unsigned way)
{
	return trace->channel ? trace->channel[2 * (uint64_t)stage + way] : PP_NO_CHANNEL;
}

static uint64_t hop_of(const struct trace *trace, const struct made *made)
{
	const struct pp_order_stage *stage = &trace->problem->stage[made->stage];
	return made->way ? stage->backward_hop : stage->forward_hop;
}

static struct step maker_of(const struct trace *trace, const struct made *made)
{
	return step_of(trace, trace->problem->stage[made->stage].rank, trace->position[made->way][value_of(trace, made)]);
}

/* What an action waits for that may have been made elsewhere. */
static bool input_of(const struct trace *trace, const struct pp_action *action, struct made *made)
{
	*made = (struct made){action->stage, action->mb, 0};
	if (action->kind == PP_F)
		return made->stage-- > 0;
	made->way = action->stage + 1 < trace->problem->stages;
	made->stage += made->way;
	return action->kind != PP_W;
}

/* What the channel brought ahead of this. False: nothing. */
static bool made_before(const struct trace *trace, struct made *made)
{
	uint32_t channel = channel_of(trace, made->stage, made->way);
	struct made user = *made;
	user.stage = made->way ? made->stage - 1 : made->stage + 1;
	uint32_t rank = trace->problem->stage[user.stage].rank;
	for (uint32_t at = trace->position[made->way][value_of(trace, &user)]; at-- > 0;)
		if (input_of(trace, &trace->rows[rank].actions[at], made) &&
		    channel_of(trace, made->stage, made->way) == channel)
			return true;
	return false;
}

/* Where a value was made that is there at `there`, or the first of those that it travelled behind without a break; and
 * how long they travelled. */
static struct step origin_of(const struct trace *trace, struct made made, uint64_t *there, uint64_t *hops)
{
	struct step from = maker_of(trace, &made);
	*hops = hop_of(trace, &made);
	*there = pp_plus(end_of(&from), *hops);
	if (channel_of(trace, made.stage, made.way) == PP_NO_CHANNEL)
		return from;
	*there = trace->there[made.way][value_of(trace, &made)];
	while (pp_plus(end_of(&from), *hops) < *there && made_before(trace, &made)) {
		from = maker_of(trace, &made);
		*hops = pp_plus(*hops, hop_of(trace, &made));
	}
	return from;
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
		struct made made;
		if (!input_of(trace, &trace->rows[step->rank].actions[step->begin + i], &made))
			continue;
		uint64_t there, hops;
		struct step from = origin_of(trace, made, &there, &hops);
		if (there != step->start || (from.rank == step->rank && from.begin == step->begin))
			continue;
		count_step(trace, step, false);
		trace->path.hops = pp_plus(trace->path.hops, hops);
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
	for (uint32_t rank = 0; rank < trace->problem->ranks; rank++)
		for (uint32_t i = 0; i < trace->rows[rank].count; i++) {
			const struct pp_action *action = &trace->rows[rank].actions[i];
			struct made made = {action->stage, action->mb, action->kind != PP_F};
			if (action->kind != PP_W)
				trace->position[made.way][value_of(trace, &made)] = i;
		}
}

static void find_arrivals(struct pp_arena *scratch, struct trace *trace)
{
	const struct pp_order_problem *problem = trace->problem;
	uint64_t *busy = PP_NEW_ARRAY(scratch, uint64_t, pp_times(problem->stages, 2));
	for (uint32_t rank = 0; rank < problem->ranks; rank++)
		for (uint32_t i = 0; i < trace->rows[rank].count; i++) {
			struct made made;
			if (!input_of(trace, &trace->rows[rank].actions[i], &made))
				continue;
			uint32_t channel = channel_of(trace, made.stage, made.way);
			if (channel == PP_NO_CHANNEL)
				continue;
			struct step step = maker_of(trace, &made);
			uint64_t end = end_of(&step);
			busy[channel] = pp_plus(busy[channel] > end ? busy[channel] : end, hop_of(trace, &made));
			trace->there[made.way][value_of(trace, &made)] = busy[channel];
		}
}

struct pp_path pp_path_of(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_row *rows,
                          const struct pp_order_times *times)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint64_t values = pp_times(problem->stages, problem->microbatches);
	struct trace trace = {
	    .problem = problem, .rows = rows, .times = times, .channel = pp_order_channels(scratch, problem)};
	for (unsigned way = 0; way < 2; way++) {
		trace.position[way] = PP_NEW_ARRAY(scratch, uint32_t, values);
		trace.there[way] = trace.channel ? PP_NEW_ARRAY(scratch, uint64_t, values) : NULL;
	}
	trace.path.count = pp_arena_alloc(arena, problem->stages, sizeof *trace.path.count);
	find_positions(&trace);
	if (trace.channel)
		find_arrivals(scratch, &trace);
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
