/* Lower bounds held to the best orders of thousands of tiny problems, to the published optima of small ones, and to
 * closed forms. */
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
	hold(1, 4500, 6, false, 985);
	hold(2, 4500, 6, true, 985);
	hold(3, 300, 10, false, 960);
	hold(4, 300, 10, true, 960);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(no_order_beats_the_bound)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
