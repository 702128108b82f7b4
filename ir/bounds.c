/* Lower bounds: what no order of the actions on their ranks can beat (order.h).
 * requires: stages on ranks below `ranks`.
 * ensures:  makespan and span at most those of any order that fits the rooms; UINT64_MAX where none fits.
 *
 * Makespan, for a rank: the best that its actions reach one after another, with interruptions allowed, if each starts
 * no earlier than its head and everything after it takes its tail (bounds_machine.c); heads and tails from the chains
 * of microbatches through the stages, the work of other ranks and the memory of all (bounds_pass.c, bounds_before.c).
 *   For equal stages on a line this gives m (F + I + W) + (p - 1) (F + c) (the last rank's work behind the first
 *   arrival), and (m + p - 1) (F + I) + W + 2 (p - 1) c (the last rank's F and I between arrival and departure); fused
 *   backwards (m + p - 1) (F + B) + 2 (p - 1) c.
 * Span, for a rank R: the same for every rank, from the first F on R to the last end on R: an action counts if it must
 *   come after that F and before some end on R. For equal stages on a line and R = 0, with k = min(m, floor(room)):
 *   m (F + I + W) + max(0, (p - 1) (I + 2 c) + (p - k) F), the warm-up that memory cuts short (Qi et al., Zero Bubble
 *   Pipeline Parallelism, appendix B), and ceil(m / k) (p (F + I) + 2 (p - 1) c + W) where memory serialises.
 * Where hops wait for each other (order.h), a channel is taken like a rank: its hops one after another, each between
 * the head of what it comes from and the tail of what it leads to. Both: the room of a rank over time (pp_bound_area),
 * behind its first arrival for the makespan; what a rank may do of all its stages before its first I (bounds_wait.c).
 *
 * O(n log n) in the actions for the makespan; spans of as many ranks as fit into a fixed number of actions, the rank of
 * stage 0 and those with most work first. */
#include "bounds_state.h"

#include "capped.h"

#include <stdlib.h>

/* Actions looked at for spans of more ranks than the first one, about. */
enum { SPAN_ACTIONS = 1 << 14 };

/* A bound and where it comes from. */
struct found {
	int64_t value;
	uint32_t rank;            /* whose actions */
	uint32_t target;          /* of a span: whose */
	bool area, wait, channel; /* channel: whose hops, `rank` its source */
};

static void improve(struct found *best, struct found other)
{
	if (other.value > best->value)
		*best = other;
}

static int64_t work_of(const struct pp_bound_state *state, uint32_t r)
{
	int64_t work = 0;
	for (uint32_t i = 0; i < state->rank[r].count; i++)
		for (unsigned kind = 0; kind < PP_BOUND_KINDS; kind++)
			work += pp_bound_length(&state->stage[state->rank[r].stages[i]], kind);
	return work * state->microbatches;
}

/* The busiest channel. */
static void bound_channels(const struct pp_bound_state *state, uint32_t target, const struct pp_bound_times *heads,
                           const struct pp_bound_times *tails, struct found *best)
{
	for (uint32_t i = 0; state->channel && i < 2 * state->stages; i++)
		if (state->channel[i] == i)
			improve(best, (struct found){.value = pp_bound_channel(state, state->arena, i, heads, tails),
			                             .rank = state->stage[i / 2].rank,
			                             .target = target,
			                             .channel = true});
}

static struct found bound_makespan(const struct pp_bound_state *state)
{
	struct found best = {0};
	struct pp_arena *scratch = pp_arena_scratch(state->arena);
	struct pp_bound_times heads = pp_bound_heads(state, scratch, 0), tails = pp_bound_tails(state, scratch, UINT32_MAX);
	for (uint32_t r = 0; r < state->ranks; r++) {
		if (state->rank[r].count == 0)
			continue;
		improve(&best, (struct found){.value = pp_bound_machine(state, scratch, r, &heads, &tails), .rank = r});
		improve(&best,
		        (struct found){.value = pp_bound_wait(state, scratch, r, &heads, &tails), .rank = r, .wait = true});
		int64_t first = heads.begin[pp_bound_at(state, state->rank[r].stages[0], PP_BOUND_F, 0)];
		improve(&best, (struct found){.value = first + pp_bound_area(state, r), .rank = r, .area = true});
	}
	bound_channels(state, 0, &heads, &tails, &best);
	pp_arena_destroy(scratch);
	return best;
}

static void bound_span(const struct pp_bound_state *state, uint32_t target, struct found *best)
{
	struct pp_arena *scratch = pp_arena_scratch(state->arena);
	struct pp_bound_times heads = pp_bound_heads(state, scratch, state->rank[target].stages[0]);
	struct pp_bound_times tails = pp_bound_tails(state, scratch, target);
	for (uint32_t r = 0; r < state->ranks; r++)
		improve(best, (struct found){
		                  .value = pp_bound_machine(state, scratch, r, &heads, &tails), .rank = r, .target = target});
	improve(best, (struct found){.value = pp_bound_wait(state, scratch, target, &heads, &tails),
	                             .rank = target,
	                             .target = target,
	                             .wait = true});
	bound_channels(state, target, &heads, &tails, best);
	pp_arena_destroy(scratch);
}

struct candidate {
	uint32_t rank;
	bool first;
	int64_t work;
};

static int by_promise(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	if (a->first != b->first)
		return a->first ? -1 : 1;
	if (a->work != b->work)
		return a->work > b->work ? -1 : 1;
	return a->rank < b->rank ? -1 : 1;
}

static struct found bound_spans(const struct pp_bound_state *state)
{
	struct found best = {0};
	struct candidate *candidates = PP_NEW_ARRAY(state->arena, struct candidate, state->ranks);
	uint32_t count = 0;
	for (uint32_t r = 0; r < state->ranks; r++) {
		if (state->rank[r].count == 0)
			continue;
		candidates[count] = (struct candidate){r, state->stage[0].rank == r, work_of(state, r)};
		improve(&best, (struct found){.value = candidates[count].work, .rank = r, .target = r});
		improve(&best, (struct found){.value = pp_bound_area(state, r), .rank = r, .target = r, .area = true});
		count++;
	}
	qsort(candidates, count, sizeof *candidates, by_promise);
	uint64_t actions = (uint64_t)state->stages * state->window * PP_BOUND_KINDS, left = SPAN_ACTIONS;
	for (uint32_t i = 0; i < count && (i == 0 || left >= actions); i++) {
		bound_span(state, candidates[i].rank, &best);
		left = left > actions ? left - actions : 0;
	}
	return best;
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *name_term(struct pp_arena *arena, struct found found, bool span, bool memory)
{
	if (found.area)
		return pp_arena_printf(arena, "rank %u's memory over time", found.rank);
	const char *held = memory ? ", held up by memory" : "";
	if (found.channel)
		return pp_arena_printf(arena, "messages of rank %u, one after another%s", found.rank, held);
	if (found.wait)
		return pp_arena_printf(arena, "rank %u's work and its first wait%s", found.rank, held);
	if (!span)
		return pp_arena_printf(arena, "rank %u's work between arrival and departure%s", found.rank, held);
	if (found.rank == found.target)
		return pp_arena_printf(arena, "rank %u's work and its first wait%s", found.rank, held);
	return pp_arena_printf(arena, "rank %u's work, from rank %u and back%s", found.rank, found.target, held);
}

static struct pp_order_bound without_room(struct pp_arena *arena, uint32_t rank, uint64_t needed)
{
	const char *term = pp_arena_printf(arena, "no order fits: rank %u needs %llu bytes for one microbatch", rank,
	                                   (unsigned long long)needed);
	return (struct pp_order_bound){UINT64_MAX, UINT64_MAX, term, term};
}

struct pp_order_bound pp_order_bound_of(struct pp_arena *arena, const struct pp_order_problem *given,
                                        enum pp_bound_mode mode)
{
	struct pp_order_problem certain = *given;
	const struct pp_order_problem *problem = &certain;
	certain.room = given->most_room ? given->most_room : given->room;
	if (problem->stages == 0 || problem->microbatches == 0)
		return (struct pp_order_bound){.makespan_term = "nothing to do", .span_term = "nothing to do"};
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_bound_state state = pp_bound_begin(scratch, problem, mode, false);
	struct pp_order_bound bound;
	uint32_t narrow;
	uint64_t needed;
	if (pp_bound_before(&state, problem, &narrow, &needed)) {
		struct found makespan = bound_makespan(&state), span = bound_spans(&state), free_makespan = {.value = 0},
		             free_span = {.value = 0};
		if (state.cramped) {
			struct pp_bound_state roomy = pp_bound_begin(scratch, problem, mode, true);
			pp_bound_before(&roomy, problem, &narrow, &needed);
			free_makespan = bound_makespan(&roomy);
			free_span = bound_spans(&roomy);
		}
		bool memory[2] = {state.cramped && makespan.value > free_makespan.value,
		                  state.cramped && span.value > free_span.value};
		bound = (struct pp_order_bound){.makespan = (uint64_t)makespan.value,
		                                .span = (uint64_t)span.value,
		                                .makespan_term = name_term(arena, makespan, false, memory[0]),
		                                .span_term = name_term(arena, span, true, memory[1])};
	} else {
		bound = without_room(arena, narrow, needed);
	}
	pp_arena_destroy(scratch);
	return bound;
}

struct pp_order_bound pp_order_bound(struct pp_arena *arena, const struct pp_order_problem *problem, bool fused)
{
	return pp_order_bound_of(arena, problem, fused ? PP_BOUND_FUSED : PP_BOUND_MIXED);
}

uint64_t pp_order_bound_value(struct pp_arena *arena, const struct pp_order_problem *given, bool fused, bool span)
{
	struct pp_order_problem problem = *given;
	problem.room = given->most_room ? given->most_room : given->room;
	if (problem.stages == 0 || problem.microbatches == 0)
		return 0;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_bound_state state = pp_bound_begin(scratch, &problem, fused ? PP_BOUND_FUSED : PP_BOUND_MIXED, false);
	uint32_t narrow;
	uint64_t needed, value = UINT64_MAX;
	if (pp_bound_before(&state, &problem, &narrow, &needed)) {
		struct found found = span ? bound_spans(&state) : bound_makespan(&state);
		value = (uint64_t)found.value;
	}
	pp_arena_destroy(scratch);
	return value;
}
