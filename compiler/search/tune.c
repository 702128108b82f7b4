/* Hill climbing over rules: a few good ones, from all combinations of priorities with some usual limits, are changed at
 * random, and what is no worse stays. A rule says little and reaches far, so that a small change moves a whole
 * schedule, which swaps of single actions hardly do. */
#include "tune.h"

#include "random.h"

#include <string.h>

static struct pp_tuned make_rule(struct pp_arena *arena, const struct pp_packed *packed)
{
	struct pp_tuned to = {.value = UINT64_MAX, .total = UINT64_MAX};
	to.rule.most = to.most = PP_NEW_ARRAY(arena, uint32_t, packed->stages);
	to.rule.target = to.target = PP_NEW_ARRAY(arena, uint32_t, packed->ranks);
	to.rule.lag = to.lag = PP_NEW_ARRAY(arena, uint32_t, packed->ranks);
	return to;
}

static void copy_rule(const struct pp_packed *packed, struct pp_tuned *to, const struct pp_tuned *from)
{
	struct pp_tuned own = *to;
	*to = *from;
	to->rule.most = to->most = own.most;
	to->rule.target = to->target = own.target;
	to->rule.lag = to->lag = own.lag;
	memcpy(to->most, from->most, packed->stages * sizeof *to->most);
	memcpy(to->target, from->target, packed->ranks * sizeof *to->target);
	memcpy(to->lag, from->lag, packed->ranks * sizeof *to->lag);
}

static bool precedes(const struct pp_tuned *a, const struct pp_tuned *b)
{
	return a->value < b->value || (a->value == b->value && a->total < b->total);
}

bool pp_tune_apply(struct pp_contest *contest, const struct pp_greedy_rule *rule)
{
	struct pp_arena *scratch = pp_arena_scratch(contest->arena);
	bool ok = pp_greedy(scratch, contest->packed, rule, contest->order) && pp_contest_enter(contest, "list scheduler");
	pp_arena_destroy(scratch);
	return ok;
}

static void judge(struct pp_contest *contest, struct pp_tuned *trial)
{
	bool ok = pp_tune_apply(contest, &trial->rule);
	trial->value = ok ? contest->times->value : UINT64_MAX;
	trial->total = ok ? contest->times->total : UINT64_MAX;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Limits that fall along the ranks: first, first - half_steps / 2, ... but at least 1. */
static uint32_t falling(uint32_t first, uint32_t half_steps, uint32_t rank)
{
	uint64_t less = (uint64_t)rank * half_steps / 2;
	return first > less + 1 ? (uint32_t)(first - less) : 1;
}

static void limit_chunk(const struct pp_packed *packed, uint32_t chunk, uint32_t first, uint32_t half_steps,
                        uint32_t *most)
{
	for (uint32_t s = 0; s < packed->stages; s++)
		if (packed->stage[s].chunk == chunk)
			most[s] = falling(first, half_steps, packed->stage[s].rank);
}

static uint32_t stepped(const struct pp_packed *packed, uint32_t value, bool up)
{
	if (up)
		return value < packed->microbatches ? value + 1 : packed->microbatches;
	return value > 1 ? value - 1 : 1;
}

static uint32_t chunks_of(const struct pp_packed *packed)
{
	uint32_t most = 1;
	for (uint32_t s = 0; s < packed->stages; s++)
		if (packed->stage[s].chunk + 1 > most)
			most = packed->stage[s].chunk + 1;
	return most;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void change_limits(const struct pp_packed *packed, uint32_t chunks, struct pp_tuned *t, uint64_t *random)
{
	uint32_t chunk = pp_random_below(random, chunks), stage = pp_random_below(random, packed->stages);
	bool up = pp_random_below(random, 2);
	switch (pp_random_below(random, 4)) {
	case 0:
	case 1: {
		uint32_t first = 1 + pp_random_below(random, 3 * packed->ranks);
		limit_chunk(packed, chunk, first, pp_random_below(random, 5), t->most);
		return;
	}
	case 2:
		for (uint32_t s = 0; s < packed->stages; s++)
			if (packed->stage[s].chunk == chunk)
				t->most[s] = stepped(packed, t->most[s], up);
		return;
	default:
		t->most[stage] = stepped(packed, t->most[stage], up);
	}
}

static void change_ranks(const struct pp_packed *packed, uint32_t *values, uint32_t first, uint64_t *random)
{
	uint32_t start = pp_random_below(random, first), steps = pp_random_below(random, 9);
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t more = r * (steps > 4 ? 0 : steps) / 2; /* rising, or falling */
		values[r] = steps > 4 ? falling(start, steps - 4, r) : start + more;
	}
}

static void change_priorities(const struct pp_packed *packed, struct pp_greedy_rule *rule, uint64_t *random)
{
	static const uint8_t kinds[] = {PP_F, PP_I, PP_W};
	switch (pp_random_below(random, 4)) {
	case 0:
		rule->prefer = (uint8_t)pp_random_below(random, PP_PREFER_COUNT);
		return;
	case 1:
		rule->prefer_late = (uint8_t)pp_random_below(random, PP_PREFER_COUNT);
		return;
	case 2:
		rule->split = pp_random_below(random, packed->ranks + 1);
		return;
	default:
		rule->chunk[kinds[pp_random_below(random, 3)]] = (uint8_t)pp_random_below(random, PP_CHUNK_COUNT);
	}
}

static void change(const struct pp_packed *packed, uint32_t chunks, struct pp_tuned *t, uint64_t *random)
{
	struct pp_greedy_rule *rule = &t->rule;
	switch (pp_random_below(random, 14)) {
	case 0:
		rule->chunk_wait = (uint8_t)pp_random_below(random, 9);
		return;
	case 1:
		rule->drain_gap = (uint8_t)pp_random_below(random, 5);
		return;
	case 2:
		rule->weight_gap = (uint8_t)pp_random_below(random, 5);
		return;
	case 3:
		change_ranks(packed, t->lag, 2 * packed->ranks, random);
		return;
	case 4:
		change_ranks(packed, t->target, 3 * packed->ranks, random);
		return;
	case 5:
		rule->wait = (uint8_t)pp_random_below(random, 9);
		return;
	case 6:
		rule->bold = !rule->bold;
		return;
	case 7:
		rule->make_room = (uint8_t)pp_random_below(random, 3);
		return;
	case 8:
	case 9:
	case 10:
		change_priorities(packed, rule, random);
		return;
	default:
		change_limits(packed, chunks, t, random);
	}
}

/* ---- the first pool -------------------------------------------------------------------------- */

static void add_to_pool(const struct pp_packed *packed, struct pp_tuned *pool, uint32_t *count,
                        const struct pp_tuned *trial)
{
	uint32_t at = *count;
	if (trial->value == UINT64_MAX)
		return;
	while (at > 0 && precedes(trial, &pool[at - 1]))
		at--;
	if (at == PP_TUNE_POOL || (at > 0 && pool[at - 1].value == trial->value && pool[at - 1].total == trial->total))
		return;
	*count += *count < PP_TUNE_POOL;
	struct pp_tuned last = pool[*count - 1];
	memmove(&pool[at + 1], &pool[at], (*count - 1 - at) * sizeof *pool);
	pool[at] = last;
	copy_rule(packed, &pool[at], trial);
}

/* All combinations of flags, under no limit, that of 1F1B and that of twice its warm-up. */
static uint32_t usual_rules(struct pp_contest *contest, uint32_t chunks, struct pp_tuned *trial, struct pp_tuned *pool)
{
	const struct pp_packed *packed = contest->packed;
	static const uint32_t slopes[] = {0, 2, 4};
	uint32_t p = packed->ranks, firsts[] = {UINT32_MAX, p, 2 * p - 1}, count = 0;
	for (unsigned i = 0; i < PP_PREFER_COUNT * 4 * 3 * 3 && !pp_contest_over(contest); i++) {
		unsigned flags = i / PP_PREFER_COUNT % 4, gap = i / PP_PREFER_COUNT / 4 % 3, limit = i / PP_PREFER_COUNT / 12;
		if ((chunks == 1 && flags) || (packed->fused && gap))
			continue;
		trial->rule.prefer = trial->rule.prefer_late = (uint8_t)(i % PP_PREFER_COUNT);
		trial->rule.chunk[PP_F] = flags & 1 ? PP_CHUNK_LAST : PP_CHUNK_FIRST;
		trial->rule.chunk[PP_I] = trial->rule.chunk[PP_W] = flags >> 1 ? PP_CHUNK_LAST : PP_CHUNK_FIRST;
		trial->rule.weight_gap = trial->rule.drain_gap = (uint8_t)(2 * gap);
		for (uint32_t chunk = 0; chunk < chunks; chunk++)
			limit_chunk(packed, chunk, firsts[limit], slopes[limit], trial->most);
		for (uint32_t r = 0; r < p; r++) {
			trial->target[r] = (p - r) * chunks;
			trial->lag[r] = UINT32_MAX;
		}
		trial->rule.cutoff = count == PP_TUNE_POOL ? pool[count - 1].value : 0;
		judge(contest, trial);
		add_to_pool(packed, pool, &count, trial);
	}
	return count;
}

/* Rules from elsewhere, judged here. */
static uint32_t given_rules(struct pp_contest *contest, struct pp_tuned *pool, uint32_t count)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < count && !pp_contest_over(contest); i++) {
		judge(contest, &pool[i]);
		if (pool[i].value == UINT64_MAX)
			continue;
		struct pp_tuned good = pool[i];
		pool[i] = pool[kept];
		pool[kept++] = good;
	}
	return kept;
}

uint32_t pp_tune(struct pp_contest *contest, uint64_t effort, struct pp_tuned *pool, uint32_t count)
{
	const struct pp_packed *packed = contest->packed;
	uint64_t random = pp_random_seed(contest->seed), begun = *packed->effort;
	uint32_t chunks = chunks_of(packed);
	struct pp_tuned trial = make_rule(contest->arena, packed);
	count = given_rules(contest, pool, count);
	for (uint32_t i = count; i < PP_TUNE_POOL; i++)
		pool[i] = make_rule(contest->arena, packed);
	if (count == 0)
		count = usual_rules(contest, chunks, &trial, pool);
	while (count && *packed->effort - begun < effort && !pp_contest_over(contest)) {
		struct pp_tuned *from = &pool[pp_random_below(&random, count)];
		copy_rule(packed, &trial, from);
		do
			change(packed, chunks, &trial, &random);
		while (pp_random_below(&random, 2));
		*packed->effort += 100; /* also where it gets stuck at once */
		trial.rule.cutoff = from->value;
		judge(contest, &trial);
		if (!precedes(from, &trial))
			copy_rule(packed, from, &trial);
	}
	for (uint32_t i = 0; i < count; i++)
		pool[i].rule.cutoff = 0; /* they will be used for other numbers of microbatches */
	return count;
}
