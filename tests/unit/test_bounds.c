/* Lower bounds held to the best orders of thousands of tiny problems, to the published optima of small ones, and to
 * closed forms. */
#include "compiler/search/search.h"
#include "support/exact.h"
#include "support/order_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

struct score {
	unsigned problems, equal, none, given_up;
	double gap, worst;
};

static void hold_problem(const struct order_random *random, bool fused, struct score score[2])
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_order_bound bound = pp_order_bound(arena, &random->problem, fused);
	for (unsigned span = 0; span < 2; span++) {
		struct exact exact = {.fused = fused, .span = span, .states = 300000, .start = UINT64_MAX};
		enum exact_result result = exact_order(&random->problem, &exact);
		uint64_t value = span ? bound.span : bound.makespan;
		if (result == EXACT_LIMIT) {
			score[span].given_up++;
			continue;
		}
		score[span].problems++;
		score[span].none += result == EXACT_NONE;
		score[span].equal += value == exact.value;
		double gap = value == exact.value ? 0 : value ? (double)exact.value / (double)value - 1 : 1;
		score[span].gap += gap;
		score[span].worst = gap > score[span].worst ? gap : score[span].worst;
		if (value > exact.value) {
			print_error("bound %llu (%s) > best %llu, span %u, fused %d\n", (unsigned long long)value,
			            span ? bound.span_term : bound.makespan_term, (unsigned long long)exact.value, span, fused);
			fail();
		}
	}
	pp_arena_destroy(arena);
}

/* Problems from `seed` on; at least `equal` permille of the bounds are the best value itself. */
static void hold(uint64_t seed, unsigned rounds, uint32_t actions, bool alike, unsigned equal)
{
	struct score score[2][2] = {{{0}}};
	for (unsigned i = 0; i < rounds; i++) {
		struct order_random random;
		order_random(&seed, actions, alike, &random);
		hold_problem(&random, i % 3 == 0, score[i % 3 == 0]);
	}
	for (unsigned fused = 0; fused < 2; fused++)
		for (unsigned span = 0; span < 2; span++) {
			const struct score *s = &score[fused][span];
			print_message(
			    "%s, %s, %s: %u problems (%u without an order, %u given up), bound equal %u, mean gap %.3f %%, "
			    "largest %.1f %%\n",
			    alike ? "stages alike" : "stages differ", fused ? "fused" : "split", span ? "span" : "makespan",
			    s->problems, s->none, s->given_up, s->equal, 100 * s->gap / s->problems, 100 * s->worst);
			assert_int_equal(s->given_up, 0);
			assert_true(1000u * s->equal >= equal * s->problems);
		}
}

static void no_order_beats_the_bound(void **state)
{
	(void)state;
	hold(1, 1500, 6, false, 970);
	hold(2, 1500, 6, true, 970);
	hold(3, 150, 10, false, 940);
	hold(4, 150, 10, true, 940);
}

/* ---- larger problems, held to what the search finds ------------------------------------------ */

static void no_search_beats_the_bound(void **state)
{
	(void)state;
	uint64_t seed = 5;
	unsigned found = 0, at_bound = 0;
	for (unsigned i = 0; i < 200; i++) {
		struct order_random random;
		uint32_t ranks = 2 + i % 5, stages = ranks * (1 + i / 5 % 2);
		order_random_of(&seed, ranks, stages, 1 + i % 23, i / 10 % 2, &random);
		struct pp_arena *arena = pp_arena_create(NULL);
		struct pp_search_options options = {
		    .objective = i % 2 ? PP_SEEK_SPAN : PP_SEEK_TIME, .effort = 20000, .fused = i % 7 == 0};
		struct pp_order_bound bound = pp_order_bound(arena, &random.problem, options.fused);
		struct pp_search_report report;
		struct pp_row *rows = PP_NEW_ARRAY(arena, struct pp_row, ranks);
		if (pp_search(arena, &random.problem, &options, rows, &report)) {
			struct pp_order_times times;
			assert_true(pp_order_run(arena, &random.problem, rows, false, &times));
			assert_true(times.fits);
			assert_true(bound.makespan <= times.makespan);
			assert_true(bound.span <= times.longest_span);
			assert_int_equal(report.value, options.objective == PP_SEEK_SPAN ? times.longest_span : times.makespan);
			found++;
			at_bound +=
			    options.objective == PP_SEEK_SPAN ? bound.span == times.longest_span : bound.makespan == times.makespan;
		}
		pp_arena_destroy(arena);
	}
	print_message("%u orders found, %u of them proven optimal by the bound\n", found, at_bound);
	assert_true(found >= 150 && at_bound >= 75);
}

/* ---- closed forms ---------------------------------------------------------------------------- */

enum { MOST_STAGES = 8 };

struct even {
	struct pp_order_stage stage[MOST_STAGES];
	uint64_t room[MOST_STAGES];
	struct pp_order_problem problem;
};

/* p ranks on a line (v = 1) or in a V; times of one stage, a stash of 1. */
static struct pp_order_bound bound_even(uint32_t p, uint32_t v, uint32_t m, const uint64_t times[3], uint64_t hop,
                                        uint64_t room, bool fused, struct pp_arena *arena)
{
	struct even even = {.problem = {.ranks = p, .stages = p * v, .microbatches = m, .pair_permille = 1000}};
	for (uint32_t s = 0; s < p * v; s++)
		even.stage[s] = (struct pp_order_stage){
		    .rank = s < p ? s : 2 * p - 1 - s,
		    .ticks = {[PP_F] = times[0], [PP_I] = times[1], [PP_W] = times[2], [PP_B] = times[1] + times[2]},
		    .held = 1};
	for (uint32_t s = 0; s + 1 < p * v; s++)
		if (even.stage[s].rank != even.stage[s + 1].rank)
			even.stage[s].forward_hop = even.stage[s + 1].backward_hop = hop;
	for (uint32_t r = 0; r < p; r++)
		even.room[r] = room;
	even.problem.stage = even.stage;
	even.problem.room = even.room;
	return pp_order_bound(arena, &even.problem, fused);
}

static void equal_stages_give_the_closed_forms(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const uint64_t uneven[] = {10, 11, 7}, one[] = {10, 10, 10};
	struct pp_order_bound bound;
	/* m (F + I + W) + (p - 1) (F + c); far more microbatches than the bound looks at. */
	bound = bound_even(4, 1, 50000, uneven, 1, PP_ROOM_UNLIMITED, false, arena);
	assert_int_equal(bound.makespan, 50000 * 28 + 3 * 11);
	assert_int_equal(bound.span, 50000 * 28);
	/* (m + p - 1) (F + I) + W + 2 (p - 1) c: few microbatches */
	bound = bound_even(4, 1, 2, uneven, 1, PP_ROOM_UNLIMITED, false, arena);
	assert_int_equal(bound.makespan, 5 * 21 + 7 + 6);
	assert_int_equal(bound.span, 5 * 21 + 7 + 6);
	/* (m + p - 1) (F + B) + 2 (p - 1) c */
	bound = bound_even(4, 1, 50000, uneven, 1, PP_ROOM_UNLIMITED, true, arena);
	assert_int_equal(bound.makespan, 50003 * 28 + 6);
	/* m (F + I + W) + (p - 1) (I + 2 c) + (p - k) F: the warm-up that memory cuts short */
	bound = bound_even(4, 1, 8, uneven, 1, 6, false, arena);
	assert_int_equal(bound.span, 258);
	bound = bound_even(4, 1, 8, one, 0, 6, false, arena);
	assert_int_equal(bound.span, 8 * 30 + 3 * 10 - 2 * 10);
	/* m (p (F + I) + 2 (p - 1) c + W): one stash, one microbatch after another */
	bound = bound_even(4, 1, 50000, uneven, 1, 1, false, arena);
	assert_int_equal(bound.span, 50000 * (uint64_t)(4 * 21 + 6 + 7));
	/* in a V of chunks, 2 p F + 2 (p - 1) c - K F before the first I */
	bound = bound_even(4, 2, 16, one, 2, 8, false, arena);
	assert_int_equal(bound.span, 16 * 60 + 12);
	pp_arena_destroy(arena);
}

static void hostile_sizes_are_survived(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const uint64_t huge[] = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, none[] = {0, 0, 0};
	for (unsigned fused = 0; fused < 2; fused++) {
		struct pp_order_bound bound = bound_even(4, 2, 1u << 24, huge, UINT64_MAX, 3, fused, arena);
		assert_true(bound.makespan > 0 && bound.makespan < UINT64_MAX);
		assert_int_equal(bound_even(4, 1, 1u << 24, none, 0, 3, fused, arena).makespan, 0);
		bound = bound_even(4, 2, 8, huge, 0, 1, fused, arena);
		assert_int_equal(bound.makespan, UINT64_MAX);
		assert_int_equal(bound.span, UINT64_MAX);
		assert_string_equal(bound.makespan_term, "no order fits: rank 0 needs 2 bytes for one microbatch");
	}
	pp_arena_destroy(arena);
}

/* F0 (F1 and B0 together) B1 on one rank: 10 + 0.6 (10 + 28) + 28; no pairing of all could take less than 0.6 of it. */
static void pairs_shorten_the_bound(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_order_stage stage = {.ticks = {[PP_F] = 10, [PP_I] = 20, [PP_W] = 8, [PP_B] = 28}, .held = 1};
	uint64_t room = PP_ROOM_UNLIMITED;
	struct pp_order_problem problem = {
	    .ranks = 1, .stages = 1, .microbatches = 2, .stage = &stage, .room = &room, .pair_permille = 600};
	struct pp_action actions[] = {{.mb = 0, .kind = PP_F},
	                              {.mb = 1, .kind = PP_F, .paired = true},
	                              {.mb = 0, .kind = PP_B},
	                              {.mb = 1, .kind = PP_B}};
	struct pp_row row = {.actions = actions, .count = 4};
	struct pp_order_times times;
	assert_true(pp_order_run(arena, &problem, &row, false, &times));
	struct pp_order_bound bound = pp_order_bound(arena, &problem, true);
	assert_int_equal(bound.makespan, 2 * (6 + 16));
	assert_true(bound.makespan <= times.makespan);
	problem.pair_permille = 1000;
	assert_int_equal(pp_order_bound(arena, &problem, true).makespan, 2 * 38);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_order_beats_the_bound),
	    cmocka_unit_test(no_search_beats_the_bound),
	    cmocka_unit_test(equal_stages_give_the_closed_forms),
	    cmocka_unit_test(hostile_sizes_are_survived),
	    cmocka_unit_test(pairs_shorten_the_bound),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
