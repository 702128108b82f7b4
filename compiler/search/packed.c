/* Packed problems and orders: making, running, reading and writing. */
#include "packed.h"

#include "ir/capped.h"

#include <assert.h>
#include <string.h>

static int64_t bytes_of(uint64_t bytes)
{
	const uint64_t most = UINT64_C(1) << 50; /* sums over all stashes of a rank stay far below 2^63 */
	return (int64_t)(bytes < most ? bytes : most);
}

static struct pp_packed_stage pack_stage(const struct pp_order_problem *problem, uint32_t s)
{
	const struct pp_order_stage *from = &problem->stage[s];
	struct pp_packed_stage to = {.rank = from->rank, .recompute = from->recompute};
	memcpy(to.ticks, from->ticks, sizeof to.ticks);
	to.forward_hop = s ? problem->stage[s - 1].forward_hop : 0;
	to.backward_hop = s + 1 < problem->stages ? problem->stage[s + 1].backward_hop : 0;
	int64_t held = bytes_of(from->held), early = bytes_of(from->early < from->held ? from->early : from->held);
	to.take[PP_F] = held;
	to.take[PP_B] = to.give[PP_B] = bytes_of(from->more_fused);
	to.give[PP_B] += held;
	to.take[PP_I] = bytes_of(from->more_split);
	to.give[PP_I] = early;
	to.give[PP_W] = held - early + to.take[PP_I];
	return to;
}

static void find_channels(struct pp_arena *arena, const struct pp_order_problem *problem, struct pp_packed *packed,
                          struct pp_packed_stage *stage)
{
	const uint32_t *channel = pp_order_queues(arena, problem);
	packed->queued = channel != NULL;
	for (uint32_t s = 0; s < packed->stages; s++) {
		stage[s].forward_channel = channel && s ? channel[2 * (size_t)(s - 1)] : PP_NO_CHANNEL;
		stage[s].backward_channel =
		    channel && s + 1 < packed->stages ? channel[2 * (size_t)(s + 1) + 1] : PP_NO_CHANNEL;
	}
}

static struct pp_packed_step step_of(const struct pp_packed *packed, uint32_t s, uint32_t kind)
{
	const struct pp_packed_stage *stage = &packed->stage[s];
	uint32_t stride = packed->microbatches * PP_ACTION_KINDS;
	struct pp_packed_step step = {.channel = pp_packed_channel(stage, kind), .ticks = stage->ticks[kind]};
	if (kind == PP_F) {
		step.at_once = s == 0;
		step.input = step.own = s ? 0 - stride : 0;
		step.hop = stage->forward_hop;
	} else if (kind == PP_W) {
		step.input = step.own = (uint32_t)PP_I - (uint32_t)PP_W;
	} else {
		step.own = PP_F - kind;
		step.input = s + 1 < packed->stages ? stride : step.own;
		step.hop = stage->backward_hop;
		step.ahead = stage->recompute;
	}
	return step;
}

static void find_steps(struct pp_arena *arena, struct pp_packed *packed)
{
	struct pp_packed_step *step = PP_NEW_ARRAY(arena, struct pp_packed_step, packed->stages * PP_ACTION_KINDS);
	for (uint32_t s = 0; s < packed->stages; s++)
		for (uint32_t kind = 0; kind < PP_ACTION_KINDS; kind++)
			step[s * PP_ACTION_KINDS + kind] = step_of(packed, s, kind);
	packed->step = step;
}

static void list_stages(struct pp_arena *arena, struct pp_packed *packed, struct pp_packed_stage *stage)
{
	uint32_t *first = PP_NEW_ARRAY(arena, uint32_t, packed->ranks + 1),
	         *list = PP_NEW_ARRAY(arena, uint32_t, packed->stages),
	         *rows = PP_NEW_ARRAY(arena, uint32_t, packed->ranks + 1);
	for (uint32_t s = 0; s < packed->stages; s++)
		first[stage[s].rank + 1]++;
	for (uint32_t r = 0; r < packed->ranks; r++)
		first[r + 1] += first[r];
	for (uint32_t s = 0; s < packed->stages; s++) {
		uint32_t r = stage[s].rank;
		stage[s].chunk = rows[r];
		list[first[r] + rows[r]++] = s;
	}
	for (uint32_t r = 0; r <= packed->ranks; r++)
		rows[r] = first[r] * packed->microbatches * (packed->fused ? 2 : 3);
	packed->stages_of = list;
	packed->first_stage = first;
	packed->first = rows;
}

/* No end of any order comes near the largest number. */
static bool countable(const struct pp_order_problem *problem)
{
	uint64_t sum = 0;
	for (uint32_t s = 0; s < problem->stages; s++) {
		const struct pp_order_stage *stage = &problem->stage[s];
		for (unsigned kind = 0; kind < PP_ACTION_KINDS; kind++)
			sum = pp_plus(sum, stage->ticks[kind]);
		sum = pp_plus(sum, pp_plus(stage->recompute, pp_plus(stage->forward_hop, stage->backward_hop)));
	}
	return pp_times(sum, problem->microbatches) < UINT64_C(1) << 52;
}

struct pp_packed *pp_pack(struct pp_arena *arena, const struct pp_order_problem *problem, bool fused, bool span)
{
	uint64_t ids = (uint64_t)problem->stages * problem->microbatches;
	if (ids >= UINT32_MAX / PP_ACTION_KINDS || !countable(problem))
		return NULL;
	ids *= PP_ACTION_KINDS;
	struct pp_packed *packed = PP_NEW(arena, struct pp_packed);
	*packed = (struct pp_packed){
	    .ranks = problem->ranks,
	    .stages = problem->stages,
	    .microbatches = problem->microbatches,
	    .ids = (uint32_t)ids,
	    .fused = fused,
	    .span = span,
	};
	struct pp_packed_stage *stage = PP_NEW_ARRAY(arena, struct pp_packed_stage, problem->stages);
	for (uint32_t s = 0; s < problem->stages; s++)
		stage[s] = pack_stage(problem, s);
	find_channels(arena, problem, packed, stage);
	packed->stage = stage;
	uint32_t *stage_of = PP_NEW_ARRAY(arena, uint32_t, packed->ids / PP_ACTION_KINDS);
	for (uint32_t i = 0; i < packed->ids / PP_ACTION_KINDS; i++)
		stage_of[i] = i / packed->microbatches;
	packed->stage_of = stage_of;
	list_stages(arena, packed, stage);
	find_steps(arena, packed);
	packed->actions = packed->first[packed->ranks];
	int64_t *room = PP_NEW_ARRAY(arena, int64_t, problem->ranks);
	for (uint32_t r = 0; r < problem->ranks; r++)
		room[r] = problem->room[r] < INT64_MAX ? (int64_t)problem->room[r] : INT64_MAX;
	packed->room = room;
	packed->effort = PP_NEW(arena, uint64_t);
	return packed;
}

struct pp_packed_times *pp_packed_times_make(struct pp_arena *arena, const struct pp_packed *packed)
{
	struct pp_packed_times *times = PP_NEW(arena, struct pp_packed_times);
	times->end = PP_NEW_ARRAY(arena, uint64_t, packed->ids);
	if (packed->queued) {
		times->there = PP_NEW_ARRAY(arena, uint64_t, packed->ids);
		times->busy = PP_NEW_ARRAY(arena, uint64_t, 2 * (size_t)packed->stages);
	}
	times->rank_end = PP_NEW_ARRAY(arena, uint64_t, packed->ranks);
	times->rank_start = PP_NEW_ARRAY(arena, uint64_t, packed->ranks);
	times->position = PP_NEW_ARRAY(arena, uint32_t, packed->ranks);
	times->wait = PP_NEW_ARRAY(arena, uint32_t, packed->ranks);
	return times;
}

static void sum_up(const struct pp_packed *packed, struct pp_packed_times *times)
{
	times->makespan = times->span = times->total = 0;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint64_t end = times->rank_end[r], span = end - times->rank_start[r];
		times->makespan = end > times->makespan ? end : times->makespan;
		times->span = span > times->span ? span : times->span;
		times->total += packed->span ? span : end;
	}
	times->value = packed->span ? times->span : times->makespan;
}

/* Whether the value is sure to be too large: what rank r has left comes behind what it has done by position `at`. */
static inline bool too_late(const struct pp_packed *packed, const struct pp_packed_change *change,
                            const struct pp_packed_times *times, uint32_t r, uint32_t at)
{
	if (!change || (at > change->low && at <= change->high))
		return false; /* `work` is of the order before the change */
	uint64_t left = change->work[packed->first[r + 1]] - change->work[at];
	return times->rank_end[r] + left - (packed->span ? times->rank_start[r] : 0) > change->limit;
}

/* When the input of an action that began to travel at `produced` is there. `queued`: behind what its channel brought
 * before. */
static inline uint64_t arrival(const struct pp_packed_times *times, const struct pp_packed_step *step, bool queued,
                               uint64_t produced)
{
	if (!queued || step->channel == PP_NO_CHANNEL)
		return produced + step->hop;
	uint64_t *busy = &times->busy[step->channel];
	return *busy = (*busy > produced ? *busy : produced) + step->hop;
}

/* Run what is left behind times->position. `queued`, and whether there is a change, is known where this is used: of
 * what is not there nothing is left. */
__attribute__((always_inline)) static inline bool run(const struct pp_packed *packed, const uint32_t *order,
                                                      const struct pp_packed_change *change, bool queued, uint32_t left,
                                                      struct pp_packed_times *times)
{
	uint64_t *end = times->end;
	uint32_t idle = 0, r = 0;
	while (left) {
		uint32_t at = times->position[r], limit = packed->first[r + 1];
		uint64_t free = times->rank_end[r];
		if (at == limit || (times->wait[r] != UINT32_MAX && end[times->wait[r]] == PP_UNSET))
			goto next;
		uint32_t begin = at;
		for (; at < limit; at++) {
			uint32_t id = order[at];
			const struct pp_packed_step *step =
			    &packed->step[pp_id_stage(packed, id) * PP_ACTION_KINDS + pp_id_kind(id)];
			uint64_t produced = step->at_once ? 0 : end[id + step->input], there = 0;
			if (produced == PP_UNSET || (!step->at_once && end[id + step->own] == PP_UNSET)) {
				times->wait[r] = id + (produced == PP_UNSET ? step->input : step->own);
				break;
			}
			if (!step->at_once)
				there = arrival(times, step, queued, produced);
			if (at == packed->first[r])
				times->rank_start[r] = there;
			free += step->ahead;
			free = (free > there ? free : there) + step->ticks;
			end[id] = free;
			if (queued)
				times->there[id] = there;
		}
		times->rank_end[r] = free;
		times->position[r] = at;
		if (at > begin) {
			*packed->effort += at - begin;
			left -= at - begin;
			idle = 0;
			if (too_late(packed, change, times, r, at))
				return false;
		}
	next:
		if (++idle > packed->ranks)
			return false;
		r = r + 1 == packed->ranks ? 0 : r + 1;
	}
	sum_up(packed, times);
	return true;
}

static void begin(const struct pp_packed *packed, struct pp_packed_times *times)
{
	memset(times->end, 0xff, packed->ids * sizeof *times->end);
	if (packed->queued)
		memset(times->busy, 0, 2 * (size_t)packed->stages * sizeof *times->busy);
	for (uint32_t r = 0; r < packed->ranks; r++) {
		times->position[r] = packed->first[r];
		times->rank_end[r] = times->rank_start[r] = 0;
		times->wait[r] = UINT32_MAX;
	}
}

bool pp_packed_run(const struct pp_packed *packed, const uint32_t *order, struct pp_packed_times *times)
{
	begin(packed, times);
	return packed->queued ? run(packed, order, NULL, true, packed->actions, times)
	                      : run(packed, order, NULL, false, packed->actions, times);
}

/* The first position of rank r whose action ends at `time` or later: ends ascend. */
static uint32_t first_after(const struct pp_packed *packed, const uint32_t *order, const uint64_t *end, uint32_t r,
                            uint64_t time)
{
	uint32_t low = packed->first[r], high = packed->first[r + 1];
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (end[order[middle]] < time)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* What ends before the change begins does not depend on it. How many actions are left. */
static uint32_t begin_at(const struct pp_packed *packed, const uint32_t *order, const struct pp_packed_change *change,
                         struct pp_packed_times *times)
{
	const struct pp_packed_times *before = change->before;
	uint32_t changed = packed->stage[pp_id_stage(packed, order[change->low])].rank, left = 0;
	uint64_t time = change->low > packed->first[changed] ? before->end[order[change->low - 1]] : 0;
	memcpy(times->end, before->end, packed->ids * sizeof *times->end);
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t first = packed->first[r], limit = packed->first[r + 1];
		uint32_t at = r == changed ? change->low : first_after(packed, order, before->end, r, time);
		times->position[r] = at;
		times->wait[r] = UINT32_MAX;
		times->rank_start[r] = at > first ? before->rank_start[r] : 0;
		times->rank_end[r] = at > first ? before->end[order[at - 1]] : 0;
		left += limit - at;
		for (; at < limit; at++)
			times->end[order[at]] = PP_UNSET;
	}
	return left;
}

bool pp_packed_rerun(const struct pp_packed *packed, const uint32_t *order, const struct pp_packed_change *change,
                     struct pp_packed_times *times)
{
	*packed->effort += packed->actions / 8;
	if (!packed->queued)
		return run(packed, order, change, false, begin_at(packed, order, change, times), times);
	begin(packed, times); /* channels have a state of their own */
	return run(packed, order, change, true, packed->actions, times);
}

bool pp_packed_fits(const struct pp_packed *packed, const uint32_t *order)
{
	for (uint32_t r = 0; r < packed->ranks; r++) {
		int64_t held = 0;
		for (uint32_t at = packed->first[r]; at < packed->first[r + 1]; at++) {
			const struct pp_packed_stage *stage = &packed->stage[pp_id_stage(packed, order[at])];
			held += stage->take[pp_id_kind(order[at])];
			if (held > packed->room[r])
				return false;
			held -= stage->give[pp_id_kind(order[at])];
		}
	}
	return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool pp_packed_read(const struct pp_packed *packed, const struct pp_row *rows, uint32_t *order)
{
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t at = packed->first[r], limit = packed->first[r + 1];
		for (uint32_t i = 0; i < rows[r].count; i++) {
			const struct pp_action *action = &rows[r].actions[i];
			uint32_t kind = action->kind;
			if (packed->fused && kind == PP_W)
				continue;
			bool both = !packed->fused && kind == PP_B;
			if (at + both >= limit)
				return false;
			if (packed->fused && kind == PP_I)
				kind = PP_B;
			order[at++] = pp_action_id(packed, action->stage, action->mb, both ? PP_I : kind);
			if (both)
				order[at++] = pp_action_id(packed, action->stage, action->mb, PP_W);
		}
		if (at != limit)
			return false;
	}
	return true;
}

void pp_packed_write(struct pp_arena *arena, const struct pp_packed *packed, const uint32_t *order, struct pp_row *rows)
{
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t count = packed->first[r + 1] - packed->first[r];
		rows[r] = (struct pp_row){.actions = PP_NEW_ARRAY(arena, struct pp_action, count), .count = count};
		for (uint32_t i = 0; i < count; i++) {
			uint32_t id = order[packed->first[r] + i];
			rows[r].actions[i] = (struct pp_action){.stage = pp_id_stage(packed, id),
			                                        .mb = pp_id_mb(packed, id),
			                                        .kind = (uint8_t)pp_id_kind(id),
			                                        .span = PP_NO_SPAN};
		}
	}
}
