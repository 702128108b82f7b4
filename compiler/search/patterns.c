/* Periods and what comes of them. */
#include "patterns.h"

#include "greedy.h"

#include <stdlib.h>
#include <string.h>

enum { BEAM_WIDTH = 24, PER_PERIOD = 4, MOST_FITTING = 4, MOST_PERIODS = 32 };

struct keyed {
	uint64_t key;
	uint32_t id;
};

static int by_key(const void *left, const void *right)
{
	const struct keyed *a = left, *b = right;
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

/* Every row in the order of keys. */
static void sort_rows(struct pp_arena *scratch, const struct pp_packed *packed, const uint64_t *key, uint32_t *order)
{
	struct keyed *list = PP_NEW_ARRAY(scratch, struct keyed, packed->actions);
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t count = 0, begin = packed->first_stage[r], limit = packed->first_stage[r + 1];
		for (uint32_t i = begin; i < limit; i++)
			for (uint32_t mb = 0; mb < packed->microbatches; mb++)
				for (uint32_t kind = 0; kind < PP_ACTION_KINDS; kind++) {
					if (packed->fused ? kind > PP_B : kind == PP_B)
						continue;
					uint32_t id = pp_action_id(packed, packed->stages_of[i], mb, kind);
					list[count++] = (struct keyed){key[id], id};
				}
		qsort(list, count, sizeof *list, by_key);
		for (uint32_t i = 0; i < count; i++)
			order[packed->first[r] + i] = list[i].id;
	}
}

static uint64_t mean_forward(const struct pp_packed *packed)
{
	uint64_t sum = 0;
	for (uint32_t s = 0; s < packed->stages; s++)
		sum += packed->stage[s].ticks[PP_F];
	return sum / packed->stages;
}

bool pp_pattern_enter(struct pp_contest *contest, const struct pp_pattern *pattern)
{
	const struct pp_packed *packed = contest->packed;
	struct pp_arena *scratch = pp_arena_scratch(contest->arena);
	uint64_t *key = PP_NEW_ARRAY(scratch, uint64_t, packed->ids);
	pp_pattern_keys(packed, pattern, key);
	sort_rows(scratch, packed, key, contest->order);
	bool fits = pp_contest_enter(contest, "pattern");
	for (unsigned i = 0; i < 4 && !pp_contest_over(contest); i++) {
		struct pp_greedy_rule rule = {.key = key, .patience = i / 2 * mean_forward(packed) / 2, .bold = i % 2};
		if (pp_greedy(scratch, packed, &rule, contest->order))
			pp_contest_enter(contest, "pattern, list scheduler");
	}
	pp_arena_destroy(scratch);
	return fits;
}

static void keep_pattern(struct pp_arena *arena, const struct pp_packed *packed, const struct pp_pattern *from,
                         struct pp_pattern *to)
{
	size_t count = (size_t)packed->stages * from->group * PP_ACTION_KINDS;
	*to = *from;
	to->at = PP_NEW_ARRAY(arena, int64_t, count);
	memcpy(to->at, from->at, count * sizeof *to->at);
	to->peak = NULL;
}

void pp_try_patterns(struct pp_contest *contest, uint32_t group, struct pp_pattern *best, uint64_t *value)
{
	const struct pp_packed *packed = contest->packed;
	uint64_t least = group * pp_period_least(packed);
	uint32_t fitting = 0;
	for (uint64_t step = 0; step < MOST_PERIODS && fitting < MOST_FITTING && !pp_contest_over(contest); step++) {
		uint64_t period = least + least / 1200 * step * (step + 12);
		struct pp_arena *scratch = pp_arena_scratch(contest->arena);
		struct pp_pattern patterns[PER_PERIOD];
		uint32_t count = pp_patterns(scratch, packed, period, group, BEAM_WIDTH, patterns, PER_PERIOD);
		bool fits = false;
		for (uint32_t i = 0; i < count && !pp_contest_over(contest); i++) {
			fits |= pp_pattern_enter(contest, &patterns[i]);
			if (contest->count && contest->best[0].value < *value) {
				*value = contest->best[0].value;
				keep_pattern(contest->arena, packed, &patterns[i], best);
			}
		}
		fitting += fits;
		pp_arena_destroy(scratch);
	}
}
