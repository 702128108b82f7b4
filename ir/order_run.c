/* The run of an order: order.h.
 * requires: stages of the problem on ranks below its `ranks`, early <= held; every action within its bounds, on the
 *           rank of its stage, at most once.
 * ensures:  times, spans and peaks of every rank; false where some action waits for one that never ends.
 *
 * Actions joined by `paired` are one step of a rank: it starts when the inputs of all of them are there and takes
 * pair_permille of their sum; what they make is there, and what they give back is free, at its end. Recomputes come
 * ahead of the step, outside of the overlap. Times do not depend on the order in which ranks are advanced, so a rank
 * runs until it waits, and is taken up again when what it waited for has ended. O(actions). */
#include "order.h"

#include "capped.h"

#include <assert.h>

/* In place of a time: not ended. Times stop below. */
#define NOT_YET UINT64_MAX

struct run {
	const struct pp_order_problem *problem;
	const struct pp_row *rows;
	struct pp_order_times *times;
	uint64_t *forward;  /* [stages * microbatches]: end of F */
	uint64_t *backward; /* the same: end of B or I */
	uint32_t *channel;  /* pp_order_channels */
	uint64_t *busy;     /* [stages * 2]: until when the hops of a channel take */
	uint64_t *clock;    /* [ranks] */
	uint64_t *bytes;    /* [ranks]: held now */
	uint32_t *stashes;  /* [ranks] */
	uint32_t *position; /* [ranks]: actions done */
	uint32_t *ready;    /* stack of ranks to look at */
	uint32_t ready_count;
	bool *queued; /* [ranks]: on it */
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t add_time(uint64_t a, uint64_t b)
{
	uint64_t sum = pp_plus(a, b);
	return sum < NOT_YET ? sum : NOT_YET - 1;
}

static uint64_t *end_of(const struct run *run, bool forward, uint32_t stage, uint32_t mb)
{
	return &(forward ? run->forward : run->backward)[(uint64_t)stage * run->problem->microbatches + mb];
}

static void wake(struct run *run, uint32_t rank)
{
	if (run->queued[rank])
		return;
	run->queued[rank] = true;
	run->ready[run->ready_count++] = rank;
}

/* When all that an action takes in has ended, or NOT_YET. */
static uint64_t input_end(const struct run *run, const struct pp_action *action)
{
	uint32_t stage = action->stage, mb = action->mb;
	uint64_t own;
	switch ((enum pp_action_kind)action->kind) {
	case PP_F:
		return stage == 0 ? 0 : *end_of(run, true, stage - 1, mb);
	case PP_B:
	case PP_I:
		own = *end_of(run, true, stage, mb);
		if (own == NOT_YET || stage + 1 == run->problem->stages)
			return own;
		return *end_of(run, false, stage + 1, mb);
	case PP_W:
		return *end_of(run, false, stage, mb);
	case PP_ACTION_KINDS:
		break;
	}
	assert(action->kind < PP_ACTION_KINDS);
	return NOT_YET;
}

/* When that has hopped over, behind what its channel brought before. */
static uint64_t hop_over(struct run *run, const struct pp_action *action)
{
	const struct pp_order_problem *problem = run->problem;
	bool backward = action->kind != PP_F, first = backward ? action->stage + 1 == problem->stages : action->stage == 0;
	uint64_t end = input_end(run, action);
	if (first || action->kind == PP_W)
		return end;
	uint32_t from = backward ? action->stage + 1 : action->stage - 1;
	const struct pp_order_stage *stage = &problem->stage[from];
	uint64_t hop = backward ? stage->backward_hop : stage->forward_hop;
	uint32_t channel = run->channel ? run->channel[2 * (uint64_t)from + backward] : PP_NO_CHANNEL;
	if (channel == PP_NO_CHANNEL)
		return add_time(end, hop);
	return run->busy[channel] = add_time(later(run->busy[channel], end), hop);
}

static void take_memory(struct run *run, uint32_t rank, const struct pp_action *action)
{
	const struct pp_order_stage *stage = &run->problem->stage[action->stage];
	struct pp_order_rank *result = &run->times->rank[rank];
	uint64_t taken = action->kind == PP_F ? stage->held : action->kind == PP_B ? stage->more_fused : 0;
	run->bytes[rank] = pp_plus(run->bytes[rank], action->kind == PP_I ? stage->more_split : taken);
	run->stashes[rank] += action->kind == PP_F;
	result->peak = later(result->peak, run->bytes[rank]);
	if (run->stashes[rank] > result->peak_stashes)
		result->peak_stashes = run->stashes[rank];
}

static void give_memory(struct run *run, uint32_t rank, const struct pp_action *action)
{
	const struct pp_order_stage *stage = &run->problem->stage[action->stage];
	uint64_t given = 0, *bytes = &run->bytes[rank];
	if (action->kind == PP_B)
		given = pp_plus(stage->held, stage->more_fused);
	else if (action->kind == PP_I)
		given = stage->early;
	else if (action->kind == PP_W)
		given = pp_plus(stage->held - stage->early, stage->more_split);
	*bytes = *bytes > given ? *bytes - given : 0; /* only saturated sums would go below 0 */
	run->stashes[rank] -= action->kind == PP_B || action->kind == PP_W;
}

/* Make known that it has ended. */
static void finish(struct run *run, const struct pp_action *action, uint64_t end)
{
	const struct pp_order_problem *problem = run->problem;
	if (action->kind == PP_W)
		return;
	bool forward = action->kind == PP_F;
	*end_of(run, forward, action->stage, action->mb) = end;
	if (forward && action->stage + 1 < problem->stages)
		wake(run, problem->stage[action->stage + 1].rank);
	if (!forward && action->stage > 0)
		wake(run, problem->stage[action->stage - 1].rank);
}

/* The actions that begin together at the rank's position. */
struct step {
	const struct pp_action *actions;
	uint32_t count;
	uint64_t recompute, ticks;
};

static bool next_step(const struct run *run, uint32_t rank, struct step *step)
{
	const struct pp_row *row = &run->rows[rank];
	uint32_t at = run->position[rank];
	*step = (struct step){.actions = &row->actions[at]};
	for (bool more = true; more && at < row->count; at++, step->count++) {
		const struct pp_action *action = &row->actions[at];
		assert(action->stage < run->problem->stages && action->mb < run->problem->microbatches);
		const struct pp_order_stage *stage = &run->problem->stage[action->stage];
		assert(stage->rank == rank);
		if (input_end(run, action) == NOT_YET)
			return false;
		step->ticks = pp_plus(step->ticks, stage->ticks[action->kind]);
		if (action->kind == PP_B || action->kind == PP_I)
			step->recompute = pp_plus(step->recompute, stage->recompute);
		more = action->paired;
	}
	if (step->count > 1)
		step->ticks = pp_thousandths(step->ticks, run->problem->pair_permille);
	return step->count > 0;
}

static void run_step(struct run *run, uint32_t rank, const struct step *step)
{
	struct pp_order_rank *result = &run->times->rank[rank];
	uint64_t arrival = 0;
	for (uint32_t i = 0; i < step->count; i++)
		arrival = later(arrival, hop_over(run, &step->actions[i]));
	uint64_t begin = step->recompute ? run->clock[rank] : later(run->clock[rank], arrival);
	uint64_t start = later(add_time(begin, step->recompute), arrival), end = add_time(start, step->ticks);
	if (run->position[rank] == 0)
		result->first = begin;
	result->busy = pp_plus(result->busy, pp_plus(step->recompute, step->ticks));
	result->last = run->clock[rank] = end;
	for (uint32_t i = 0; i < step->count; i++)
		take_memory(run, rank, &step->actions[i]);
	for (uint32_t i = 0; i < step->count; i++) {
		give_memory(run, rank, &step->actions[i]);
		finish(run, &step->actions[i], end);
		if (run->times->start)
			run->times->start[rank][run->position[rank] + i] = start;
	}
	run->position[rank] += step->count;
}

static struct run begin(struct pp_arena *scratch, const struct pp_order_problem *problem, const struct pp_row *rows,
                        struct pp_order_times *times)
{
	uint64_t values = pp_times(problem->stages, problem->microbatches);
	struct run run = {
	    .problem = problem,
	    .rows = rows,
	    .times = times,
	    .forward = PP_NEW_ARRAY(scratch, uint64_t, values),
	    .backward = PP_NEW_ARRAY(scratch, uint64_t, values),
	    .clock = PP_NEW_ARRAY(scratch, uint64_t, problem->ranks),
	    .bytes = PP_NEW_ARRAY(scratch, uint64_t, problem->ranks),
	    .stashes = PP_NEW_ARRAY(scratch, uint32_t, problem->ranks),
	    .position = PP_NEW_ARRAY(scratch, uint32_t, problem->ranks),
	    .ready = PP_NEW_ARRAY(scratch, uint32_t, problem->ranks),
	    .queued = PP_NEW_ARRAY(scratch, bool, problem->ranks),
	};
	for (uint64_t i = 0; i < values; i++)
		run.forward[i] = run.backward[i] = NOT_YET;
	run.channel = pp_order_channels(scratch, problem);
	if (run.channel)
		run.busy = PP_NEW_ARRAY(scratch, uint64_t, pp_times(problem->stages, 2));
	for (uint32_t rank = problem->ranks; rank-- > 0;)
		wake(&run, rank);
	return run;
}

static bool advance_all(struct run *run)
{
	struct step step;
	while (run->ready_count) {
		uint32_t rank = run->ready[--run->ready_count];
		run->queued[rank] = false;
		while (run->position[rank] < run->rows[rank].count && next_step(run, rank, &step))
			run_step(run, rank, &step);
	}
	for (uint32_t rank = 0; rank < run->problem->ranks; rank++)
		if (run->position[rank] < run->rows[rank].count)
			return false;
	return true;
}

bool pp_order_run(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_row *rows,
                  bool starts, struct pp_order_times *times)
{
	*times = (struct pp_order_times){.fits = true, .rank = PP_NEW_ARRAY(arena, struct pp_order_rank, problem->ranks)};
	if (starts) {
		times->start = PP_NEW_ARRAY(arena, uint64_t *, problem->ranks);
		for (uint32_t rank = 0; rank < problem->ranks; rank++)
			times->start[rank] = PP_NEW_ARRAY(arena, uint64_t, rows[rank].count);
	}
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct run run = begin(scratch, problem, rows, times);
	bool finished = advance_all(&run);
	pp_arena_destroy(scratch);
	for (uint32_t rank = 0; rank < problem->ranks; rank++) {
		const struct pp_order_rank *result = &times->rank[rank];
		times->makespan = later(times->makespan, result->last);
		times->longest_span = later(times->longest_span, result->last - result->first);
		times->fits &= result->peak <= problem->room[rank]; /* PP_ROOM_UNLIMITED is above all */
	}
	return finished;
}
