/* The search: constructions compete, the best are improved. */
#include "search.h"

#include "anneal.h"
#include "greedy.h"
#include "ir/capped.h"
#include "packed.h"

#include <string.h>

enum { MOST_STARTS = 6 };

struct entry {
	uint32_t *order;
	uint64_t value, total;
	const char *name;
};

struct search {
	struct pp_arena *arena; /* scratch */
	const struct pp_packed *packed;
	const struct pp_search_options *options;
	struct entry best[MOST_STARTS]; /* ascending */
	uint32_t count;
	uint32_t *order; /* the candidate at hand */
	struct pp_packed_times *times;
	uint64_t bound;
};

/* Keep the candidate at hand if it is among the best. */
static bool consider(struct search *s, const char *name)
{
	const struct pp_packed *packed = s->packed;
	if (!pp_packed_fits(packed, s->order) || !pp_packed_run(packed, s->order, s->times))
		return false;
	uint64_t value = s->times->value, total = s->times->total;
	uint32_t at = s->count;
	while (at > 0 &&
	       (value < s->best[at - 1].value || (value == s->best[at - 1].value && total < s->best[at - 1].total)))
		at--;
	if (at > 0 && s->best[at - 1].value == value && s->best[at - 1].total == total)
		return true; /* most likely the same again */
	if (at == MOST_STARTS)
		return true;
	uint32_t *order =
	    s->count < MOST_STARTS ? PP_NEW_ARRAY(s->arena, uint32_t, packed->actions) : s->best[MOST_STARTS - 1].order;
	s->count += s->count < MOST_STARTS;
	memmove(&s->best[at + 1], &s->best[at], (s->count - 1 - at) * sizeof *s->best);
	memcpy(order, s->order, packed->actions * sizeof *order);
	s->best[at] = (struct entry){order, value, total, name};
	return true;
}

static bool done(const struct search *s)
{
	return s->count && s->best[0].value <= s->bound;
}

/* ---- constructions --------------------------------------------------------------------------- */

static void try_rule(struct search *s, const struct pp_greedy_rule *rule)
{
	struct pp_arena *scratch = pp_arena_scratch(s->arena);
	if (pp_greedy(scratch, s->packed, rule, s->order))
		consider(s, "greedy");
	pp_arena_destroy(scratch);
}

/* Limits of forwards in flight: falling along the ranks from `first` by `step` halves per rank, times the chunks. */
static const uint32_t *falling(struct search *s, uint32_t first, uint32_t step)
{
	const struct pp_packed *packed = s->packed;
	uint32_t *most = PP_NEW_ARRAY(s->arena, uint32_t, packed->ranks);
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t less = r * step / 2;
		most[r] = first > less ? first - less : 1;
	}
	return most;
}

static void try_greedy(struct search *s)
{
	const struct pp_packed *packed = s->packed;
	uint32_t p = packed->ranks, chunks = (packed->stages + p - 1) / p;
	const uint32_t *limits[] = {NULL,
	                            falling(s, p * chunks, 2),
	                            falling(s, p * chunks + 1, 2),
	                            falling(s, (2 * p - 1) * chunks, 4),
	                            falling(s, (2 * p - 1) * chunks, 2),
	                            falling(s, (3 * p / 2) * chunks, 3)};
	uint32_t *lag_rank = PP_NEW_ARRAY(s->arena, uint32_t, p), *lag_none = PP_NEW_ARRAY(s->arena, uint32_t, p);
	for (uint32_t r = 0; r < p; r++)
		lag_rank[r] = r * chunks;
	const uint32_t *lags[] = {NULL, lag_rank, lag_none};
	for (unsigned limit = 0; limit < sizeof limits / sizeof *limits; limit++)
		for (unsigned lag = 0; lag < (packed->fused ? 1 : 3); lag++)
			for (unsigned i = 0; i < PP_PREFER_COUNT * 4 * 5 && !done(s); i++) {
				struct pp_greedy_rule rule = {.prefer = (uint8_t)(i % PP_PREFER_COUNT),
				                              .late_chunks = i / PP_PREFER_COUNT & 1,
				                              .late_backward = i / PP_PREFER_COUNT >> 1 & 1,
				                              .weight_gap = (uint8_t)(i / PP_PREFER_COUNT / 4),
				                              .most = limits[limit],
				                              .target = limits[1],
				                              .lag = lags[lag]};
				if (chunks == 1 && (rule.late_chunks || rule.late_backward))
					continue;
				if (packed->fused && rule.weight_gap)
					continue;
				try_rule(s, &rule);
			}
}

/* ---- improvement ----------------------------------------------------------------------------- */

static uint64_t mean_ticks(const struct pp_packed *packed)
{
	uint64_t sum = 0;
	for (uint32_t s = 0; s < packed->stages; s++)
		sum += packed->stage[s].ticks[PP_F];
	return sum / packed->stages + 1;
}

static void improve(struct search *s, uint64_t effort)
{
	uint32_t count = s->count;
	uint64_t begun = *s->packed->effort, rounds = 8;
	for (uint64_t round = 0; round < rounds && !done(s); round++) {
		const struct entry *from = &s->best[round % (count < 4 ? count : 4)];
		struct pp_arena *scratch = pp_arena_scratch(s->arena);
		memcpy(s->order, from->order, s->packed->actions * sizeof *s->order);
		struct pp_anneal options = {
		    .seed = s->options->seed + round,
		    .until = begun + effort / rounds * (round + 1),
		    .target = s->bound,
		    .hot = 0.3 * (double)mean_ticks(s->packed),
		    .cold = 0.01 * (double)mean_ticks(s->packed),
		};
		pp_anneal(scratch, s->packed, &options, s->order);
		pp_arena_destroy(scratch);
		consider(s, from->name);
	}
}

bool pp_search(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_search_options *options,
               struct pp_row *rows, struct pp_search_report *report)
{
	struct search s = {.arena = pp_arena_scratch(arena), .options = options};
	*report = (struct pp_search_report){.stopped = "effort"};
	s.packed = pp_pack(s.arena, problem, options->fused, options->objective == PP_SEEK_SPAN);
	if (!s.packed) {
		pp_arena_destroy(s.arena);
		return false;
	}
	s.order = PP_NEW_ARRAY(s.arena, uint32_t, s.packed->actions);
	s.times = pp_packed_times_make(s.arena, s.packed);
	report->bound = pp_order_bound(arena, problem, options->fused);
	s.bound = options->objective == PP_SEEK_SPAN ? report->bound.span : report->bound.makespan;
	if (options->start && pp_packed_read(s.packed, options->start, s.order))
		consider(&s, options->start_name);
	try_greedy(&s);
	uint64_t effort = options->effort ? options->effort : 30000000;
	if (s.count)
		improve(&s, effort);
	bool found = s.count > 0;
	if (found) {
		pp_packed_write(arena, s.packed, s.best[0].order, rows);
		report->value = s.best[0].value;
		report->start = s.best[0].name;
		if (done(&s))
			report->stopped = "optimal";
	}
	report->effort = *s.packed->effort;
	pp_arena_destroy(s.arena);
	return found;
}
