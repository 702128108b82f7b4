/* Evaluation of packed orders: every operation as soon as its rank is free and its input is there.
 *
 * requires: an order in which W stands behind its I and every operation occurs once. ensures: start and end times, or
 * false where rows and data flow are cyclic, or the value reaches the limit: no rank can be done before what it has
 * left, one after another, behind what it has done. O(n). */
#include "wave.h"

#include <string.h>

struct pp_wave_clock *pp_wave_clock_new(struct pp_arena *arena, const struct pp_wave *wave, bool span)
{
	size_t count = (size_t)wave->stages * PP_WAVE_KINDS * wave->microbatches;
	struct pp_wave_clock *clock = PP_NEW(arena, struct pp_wave_clock);
	clock->wave = wave;
	clock->span = span;
	clock->start = PP_NEW_ARRAY(arena, uint64_t, count);
	clock->end = PP_NEW_ARRAY(arena, uint64_t, count);
	clock->busy = PP_NEW_ARRAY(arena, uint64_t, 2 * (size_t)wave->stages);
	clock->head = PP_NEW_ARRAY(arena, uint32_t, wave->ranks);
	clock->awaits = PP_NEW_ARRAY(arena, uint32_t, wave->ranks);
	clock->stack = PP_NEW_ARRAY(arena, uint32_t, wave->ranks);
	clock->first = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	clock->free = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	clock->left = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	clock->work = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	for (uint32_t s = 0; s < wave->stages; s++)
		for (uint32_t kind = 0; kind < PP_WAVE_KINDS; kind++)
			clock->work[wave->stage[s].rank] += wave->microbatches * wave->stage[s].ticks[kind];
	return clock;
}

uint32_t pp_wave_input(const struct pp_wave *wave, uint32_t operation, uint64_t *hop)
{
	uint32_t m = wave->microbatches, of_kind = wave->stages * m, stage = pp_wave_stage_of(wave, operation);
	*hop = 0;
	if (operation < of_kind) {
		if (stage == 0)
			return PP_WAVE_NONE;
		*hop = wave->stage[stage].hop[PP_WAVE_F];
		return operation - m;
	}
	if (operation >= 2 * of_kind || stage + 1 == wave->stages)
		return operation - of_kind;
	*hop = wave->stage[stage].hop[PP_WAVE_I];
	return operation + m;
}

uint32_t pp_wave_output(const struct pp_wave *wave, uint32_t operation)
{
	uint32_t m = wave->microbatches, of_kind = wave->stages * m;
	if (operation < of_kind)
		return operation + m < of_kind ? operation + m : operation + of_kind;
	if (operation >= 2 * of_kind || operation - of_kind < m)
		return PP_WAVE_NONE;
	return operation - m;
}

void pp_wave_clock_begin(struct pp_wave_clock *clock, uint64_t limit)
{
	const struct pp_wave *wave = clock->wave;
	size_t count = (size_t)wave->stages * PP_WAVE_KINDS * wave->microbatches;
	clock->limit = limit;
	memset(clock->end, 0xff, count * sizeof *clock->end);
	memset(clock->busy, 0, 2 * (size_t)wave->stages * sizeof *clock->busy);
	memset(clock->head, 0, wave->ranks * sizeof *clock->head);
	memset(clock->free, 0, wave->ranks * sizeof *clock->free);
	memcpy(clock->left, clock->work, wave->ranks * sizeof *clock->left);
}

/* `input` has run, or there is none. */
static inline bool add(struct pp_wave_clock *clock, uint32_t operation, uint32_t input, uint64_t hop)
{
	const struct pp_wave *wave = clock->wave;
	uint32_t number = pp_wave_stage_of(wave, operation), kind = pp_wave_kind_of(wave, operation);
	const struct pp_wave_stage *stage = &wave->stage[number];
	uint32_t rank = stage->rank;
	uint64_t ahead = kind == PP_WAVE_I ? stage->recompute : 0, there = 0, start = clock->free[rank];
	if (input != PP_WAVE_NONE) {
		there = pp_wave_behind(wave, clock->busy, kind, number, clock->end[input] + hop);
		pp_wave_use(wave, clock->busy, kind, number, there);
	}
	if (there > start + ahead)
		start = there - ahead;
	if (clock->head[rank]++ == 0)
		clock->first[rank] = start;
	clock->start[operation] = start;
	clock->free[rank] = clock->end[operation] = start + stage->ticks[kind];
	clock->left[rank] -= stage->ticks[kind];
	return clock->free[rank] + clock->left[rank] - (clock->span ? clock->first[rank] : 0) < clock->limit;
}

bool pp_wave_clock_add(struct pp_wave_clock *clock, uint32_t operation)
{
	uint64_t hop;
	uint32_t input = pp_wave_input(clock->wave, operation, &hop);
	return add(clock, operation, input, hop);
}

/* Run a rank as far as it comes. False: beyond the limit. */
static bool run_rank(struct pp_wave_clock *clock, const struct pp_wave_order *order, uint32_t rank, uint32_t *waiting)
{
	const struct pp_wave *wave = clock->wave;
	uint32_t m = wave->microbatches;
	const uint32_t *operations = order->operations + (size_t)wave->rank_first[rank] * PP_WAVE_KINDS * m;
	uint32_t count = (wave->rank_first[rank + 1] - wave->rank_first[rank]) * PP_WAVE_KINDS * m;
	clock->awaits[rank] = PP_WAVE_NONE;
	while (clock->head[rank] < count) {
		uint32_t operation = operations[clock->head[rank]];
		uint64_t hop;
		uint32_t input = pp_wave_input(wave, operation, &hop);
		if (input != PP_WAVE_NONE && clock->end[input] == UINT64_MAX) {
			clock->awaits[rank] = input;
			return true;
		}
		if (!add(clock, operation, input, hop))
			return false;
		uint32_t output = pp_wave_output(wave, operation);
		if (output == PP_WAVE_NONE)
			continue;
		uint32_t other = wave->stage[pp_wave_stage_of(wave, output)].rank;
		if (other != rank && clock->awaits[other] == operation) {
			clock->awaits[other] = PP_WAVE_NONE;
			clock->stack[(*waiting)++] = other;
		}
	}
	return true;
}

void pp_wave_clock_sum(const struct pp_wave_clock *clock, struct pp_wave_order *order)
{
	order->makespan = order->span = 0;
	for (uint32_t r = 0; r < clock->wave->ranks; r++) {
		uint64_t span = clock->free[r] - clock->first[r];
		order->span = span > order->span && clock->head[r] ? span : order->span;
		order->makespan = clock->free[r] > order->makespan ? clock->free[r] : order->makespan;
	}
}

bool pp_wave_clock_run(struct pp_wave_clock *clock, uint64_t limit, struct pp_wave_order *order)
{
	const struct pp_wave *wave = clock->wave;
	pp_wave_clock_begin(clock, limit);
	uint32_t waiting = 0;
	for (uint32_t r = wave->ranks; r-- > 0;) {
		clock->awaits[r] = PP_WAVE_NONE;
		clock->stack[waiting++] = r;
	}
	while (waiting)
		if (!run_rank(clock, order, clock->stack[--waiting], &waiting))
			return false;
	for (uint32_t r = 0; r < wave->ranks; r++)
		if (clock->head[r] < (wave->rank_first[r + 1] - wave->rank_first[r]) * PP_WAVE_KINDS * wave->microbatches)
			return false;
	pp_wave_clock_sum(clock, order);
	return true;
}
