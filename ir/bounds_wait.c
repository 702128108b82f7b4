/* The first wait of a rank: until its first I begins it can only do F, and of these no more than its room holds, since
 * nothing is given back before. All its other work comes after that. The V-placed form of appendix B of Zero Bubble
 * Pipeline Parallelism: with k stashes in the room, m F + max(0, time to the first I - k F) over both stages of a rank.
 *
 * requires: heads, and tails to the end of the order or of the rank. ensures: a lower bound on that end. */
#include "bounds_state.h"

#include <stdlib.h>

struct kind_of_forward {
	int64_t length;
	uint64_t held;
};

static int by_worth(const void *left, const void *right)
{
	const struct kind_of_forward *a = left, *b = right;
	double one = (double)a->length * (double)b->held, other = (double)b->length * (double)a->held;
	if (one != other)
		return one > other ? -1 : 1;
	return (a->held > b->held) - (a->held < b->held);
}

/* length times part / whole, rounded up */
static int64_t share(int64_t length, uint64_t part, uint64_t whole)
{
	uint64_t times = part / whole, rest = part % whole;
	return length * (int64_t)times + (int64_t)((double)length * (double)rest / (double)whole) +
	       (rest ? 1 + length / ((int64_t)1 << 50) : 0);
}

/* No more ticks of F than these fit into the room together: those of the most ticks per byte, the last of them in part,
 * and no more of them than of those with the fewest bytes. */
static int64_t forwards_that_fit(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t r)
{
	const struct pp_bound_rank *rank = &state->rank[r];
	struct kind_of_forward *kinds = PP_NEW_ARRAY(arena, struct kind_of_forward, rank->count);
	uint64_t fewest = UINT64_MAX, room = rank->room;
	int64_t longest = 0, fit = 0;
	for (uint32_t i = 0; i < rank->count; i++) {
		const struct pp_bound_stage *stage = &state->stage[rank->stages[i]];
		kinds[i] = (struct kind_of_forward){pp_bound_length(stage, PP_BOUND_F), stage->held};
		fewest = stage->held < fewest ? stage->held : fewest;
		longest = kinds[i].length > longest ? kinds[i].length : longest;
	}
	qsort(kinds, rank->count, sizeof *kinds, by_worth);
	for (uint32_t i = 0; i < rank->count; i++) {
		const struct kind_of_forward *kind = &kinds[i];
		if (kind->held && room / kind->held < state->microbatches) {
			fit += share(kind->length, room, kind->held);
			break;
		}
		fit += kind->length * state->microbatches;
		room -= kind->held * state->microbatches;
	}
	uint64_t all = (uint64_t)rank->count * state->microbatches, count = fewest ? rank->room / fewest : all;
	int64_t counted = longest * (int64_t)(count < all ? count : all);
	return fit < counted ? fit : counted;
}

int64_t pp_bound_wait(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t r,
                      const struct pp_bound_times *heads, const struct pp_bound_times *tails)
{
	const struct pp_bound_rank *rank = &state->rank[r];
	int64_t first = heads->begin[pp_bound_at(state, rank->stages[0], PP_BOUND_F, 0)], wait = INT64_MAX,
	        last = INT64_MAX, work = 0;
	for (uint32_t i = 0; i < rank->count; i++) {
		uint32_t s = rank->stages[i];
		const struct pp_bound_stage *stage = &state->stage[s];
		bool split = pp_bound_length(stage, PP_BOUND_W) > 0;
		int64_t begin = heads->begin[pp_bound_at(state, s, PP_BOUND_I, 0)];
		int64_t tail = tails->begin[pp_bound_at(state, s, split ? PP_BOUND_W : PP_BOUND_I, 0)];
		wait = begin < wait ? begin : wait;
		last = tail < last ? tail : last;
		for (unsigned kind = 0; kind < PP_BOUND_KINDS; kind++)
			work += pp_bound_length(stage, kind) * state->microbatches;
	}
	if (!pp_bound_known(first) || !pp_bound_known(wait) || !pp_bound_known(last))
		return 0;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	int64_t fit = forwards_that_fit(state, scratch, r);
	pp_arena_destroy(scratch);
	int64_t before = fit < wait - first ? fit : wait - first;
	return wait + work - before + last;
}
