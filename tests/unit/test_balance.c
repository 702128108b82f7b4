/* Balancing: equal to brute force on all small cases, known optima of the field cases, limits kept. */
#include "compiler/balance.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 16 };

struct brute {
	const struct pp_balance_problem *p;
	uint32_t first[MOST + 1];
	uint64_t best, stage, squares;
};

static void judge(struct brute *b)
{
	const struct pp_balance_problem *p = b->p;
	uint64_t loads[MOST] = {0}, bytes[MOST] = {0}, most = 0, stage = 0, squares = 0;
	for (uint32_t s = 0; s < p->stages; s++) {
		uint64_t load = 0;
		for (uint32_t i = b->first[s]; i < b->first[s + 1]; i++) {
			load += p->load[i];
			if (p->cap)
				bytes[p->stage_rank[s]] +=
				    p->static_bytes[i] + p->in_flight[s] * p->stash_bytes[i] + p->extras[s] * p->extra_bytes[i];
		}
		loads[p->stage_rank[s]] += load;
		stage = load > stage ? load : stage;
		squares += load * load;
	}
	for (uint32_t r = 0; r < p->ranks; r++) {
		if (p->cap && bytes[r] > p->cap[r])
			return;
		most = loads[r] > most ? loads[r] : most;
	}
	if (most < b->best || (most == b->best && (stage < b->stage || (stage == b->stage && squares < b->squares)))) {
		b->best = most;
		b->stage = stage;
		b->squares = squares;
	}
}

static void enumerate(struct brute *b, uint32_t stage, uint32_t from)
{
	const struct pp_balance_problem *p = b->p;
	b->first[stage] = from;
	if (stage == p->stages) {
		if (from == p->layers)
			judge(b);
		return;
	}
	uint32_t most = p->max_layers ? p->max_layers : p->layers;
	for (uint32_t to = from + p->min_layers; to <= p->layers && to - from <= most; to++)
		enumerate(b, stage + 1, to);
}

static void equal_to_brute_force(void **state)
{
	(void)state;
	uint64_t random = 88172645463325252u;
	uint32_t limited = 0, infeasible = 0;
	for (int round = 0; round < 4000; round++) {
		uint32_t ranks = 1 + random_below(&random, 4), chunks = 1 + random_below(&random, 3);
		uint32_t stages = ranks * chunks, layers = 1 + random_below(&random, 10);
		uint64_t load[MOST], fixed[MOST], stash[MOST], extra[MOST], cap[MOST];
		uint32_t rank[MOST], in_flight[MOST], extras[MOST];
		uint64_t largest = 1 + random_below(&random, 12);
		for (uint32_t i = 0; i < layers; i++) {
			load[i] = random_next(&random) % (largest + 1);
			fixed[i] = random_below(&random, 10);
			stash[i] = random_below(&random, 4);
			extra[i] = random_below(&random, 3);
		}
		bool v = random_below(&random, 2);
		for (uint32_t s = 0; s < stages; s++) {
			rank[s] = v && s / ranks % 2 ? ranks - 1 - s % ranks : s % ranks;
			in_flight[s] = 1 + random_below(&random, 4);
			extras[s] = random_below(&random, 3);
		}
		for (uint32_t r = 0; r < ranks; r++)
			cap[r] = 10 + random_below(&random, 60);
		bool with_memory = random_below(&random, 2);
		struct pp_balance_problem p = {.layers = layers,
		                               .stages = stages,
		                               .ranks = ranks,
		                               .load = load,
		                               .static_bytes = fixed,
		                               .stash_bytes = stash,
		                               .extra_bytes = extra,
		                               .stage_rank = rank,
		                               .in_flight = in_flight,
		                               .extras = extras,
		                               .cap = with_memory ? cap : NULL,
		                               .min_layers = random_below(&random, 2),
		                               .max_layers = random_below(&random, 3) ? 0 : 1 + random_below(&random, 5)};
		struct brute b = {.p = &p, .best = UINT64_MAX};
		enumerate(&b, 0, 0);
		struct pp_arena *arena = pp_arena_create(NULL);
		struct pp_split result = {0};
		bool found = pp_balance_solve(arena, &p, &result);
		if (b.best == UINT64_MAX) { /* no split at all, or none under the caps */
			assert_true(!found || result.over > 0);
			infeasible++;
		} else {
			assert_true(found);
			assert_true(result.over == 0);
			assert_true(result.exact);
			memcpy(b.first, result.first, (stages + 1) * sizeof *b.first);
			uint64_t best = b.best, stage = b.stage, squares = b.squares;
			b.best = UINT64_MAX;
			judge(&b);
			assert_int_equal(b.best, best);
			assert_int_equal(b.stage, stage);
			assert_int_equal(b.squares, squares);
			assert_int_equal(result.bottleneck, best);
			limited += with_memory;
		}
		for (uint32_t s = 0; found && s < stages; s++)
			assert_true(result.first[s + 1] - result.first[s] >= p.min_layers);
		pp_arena_destroy(arena);
	}
	assert_true(limited > 100 && infeasible > 100); /* the draw covers both */
}

static void solve_plain(const uint64_t *load, uint32_t layers, uint32_t ranks, uint32_t chunks, struct pp_arena *arena,
                        struct pp_split *result)
{
	uint32_t *rank = PP_NEW_ARRAY(arena, uint32_t, ranks * chunks);
	for (uint32_t s = 0; s < ranks * chunks; s++)
		rank[s] = s % ranks;
	struct pp_balance_problem p = {
	    .layers = layers, .stages = ranks * chunks, .ranks = ranks, .load = load, .stage_rank = rank, .min_layers = 1};
	assert_true(pp_balance_solve(arena, &p, result));
	assert_true(result->exact);
}

static uint32_t stages_of_length(const struct pp_split *result, uint32_t stages, uint32_t length)
{
	uint32_t count = 0;
	for (uint32_t s = 0; s < stages; s++)
		count += result->first[s + 1] - result->first[s] == length;
	return count;
}

/* `layers` unit layers over ranks x chunks stages: `many` stages hold `length` layers, the others one less. */
static void units(uint32_t layers, uint32_t ranks, uint32_t chunks, uint32_t length, uint32_t many)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	uint64_t *load = PP_NEW_ARRAY(arena, uint64_t, layers);
	for (uint32_t i = 0; i < layers; i++)
		load[i] = 1;
	struct pp_split result;
	solve_plain(load, layers, ranks, chunks, arena, &result);
	uint32_t stages = ranks * chunks;
	assert_int_equal(result.first[stages], layers);
	assert_int_equal(stages_of_length(&result, stages, length), many);
	assert_int_equal(stages_of_length(&result, stages, length - 1), stages - many);
	assert_int_equal(result.bound, result.bottleneck);
	pp_arena_destroy(arena);
}

/* Field case B22: layers that silently vanish. */
static void no_layer_is_lost(void **state)
{
	(void)state;
	units(30, 4, 1, 8, 2);
	units(80, 16, 2, 3, 16);
	units(40, 8, 1, 5, 8);
	units(61, 8, 1, 8, 5);
	units(70, 12, 1, 6, 10);
}

/* Field case B23: empty stages, dumped remainders, heavy ends. */
static void no_stage_is_empty(void **state)
{
	(void)state;
	units(5, 4, 1, 2, 1);
	units(42, 16, 1, 3, 10);
	units(38, 8, 1, 5, 6);
	const uint64_t heavy_ends[] = {2, 1, 1, 1, 1, 2};
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_split result;
	solve_plain(heavy_ends, 6, 4, 1, arena, &result);
	const uint32_t expected[] = {0, 1, 3, 5, 6};
	assert_memory_equal(result.first, expected, sizeof expected);
	assert_int_equal(result.bottleneck, 2);
	pp_arena_destroy(arena);
}

static void too_few_layers(void **state)
{
	(void)state;
	const uint64_t load[] = {1, 1};
	const uint32_t rank[] = {0, 1, 2};
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_split result;
	struct pp_balance_problem p = {
	    .layers = 2, .stages = 3, .ranks = 3, .load = load, .stage_rank = rank, .min_layers = 1};
	assert_false(pp_balance_solve(arena, &p, &result));
	p.min_layers = 0;
	assert_true(pp_balance_solve(arena, &p, &result));
	assert_int_equal(result.bottleneck, 1);
	pp_arena_destroy(arena);
}

/* Beyond the table limit the split is by share, still complete and without empty stages. */
static void very_many_layers(void **state)
{
	(void)state;
	enum { LAYERS = 40000, RANKS = 1000 };
	struct pp_arena *arena = pp_arena_create(NULL);
	uint64_t *load = PP_NEW_ARRAY(arena, uint64_t, LAYERS);
	uint32_t *rank = PP_NEW_ARRAY(arena, uint32_t, RANKS);
	for (uint32_t i = 0; i < LAYERS; i++)
		load[i] = 1 + i % 3;
	for (uint32_t s = 0; s < RANKS; s++)
		rank[s] = s;
	struct pp_split result;
	struct pp_balance_problem p = {
	    .layers = LAYERS, .stages = RANKS, .ranks = RANKS, .load = load, .stage_rank = rank, .min_layers = 1};
	assert_true(pp_balance_solve(arena, &p, &result));
	assert_int_equal(result.first[RANKS], LAYERS);
	for (uint32_t s = 0; s < RANKS; s++)
		assert_true(result.first[s] < result.first[s + 1]);
	assert_in_range(result.bottleneck, 80, 84);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(equal_to_brute_force), cmocka_unit_test(no_layer_is_lost), cmocka_unit_test(no_stage_is_empty),
	    cmocka_unit_test(too_few_layers),       cmocka_unit_test(very_many_layers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
