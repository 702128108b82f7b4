/* Joint balance: critical paths as long as the makespan, and splits that are never slower than the even one or that
 * with the fastest slowest rank, seldom slower than the best of all.
 *
 * `test_joint N` draws N times as many chains as the test does (4: minutes under AddressSanitizer). */
#include "compiler/joint/joint.h"
#include "compiler/library.h"
#include "compiler/order_problem.h"
#include "compiler/partition.h"
#include "compiler/pass.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A chain of custom layers with times of its own. */
struct chain {
	uint32_t layers, ranks, vpp, microbatches;
	uint32_t time[64][3];
	uint32_t activation; /* KiB */
	uint64_t memory;     /* KiB, 0: plenty */
	bool links;          /* that take time */
	const char *schedule;
};

static const char *text_of(struct pp_arena *arena, const struct chain *chain)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	fputs("model chain {\n", out);
	for (uint32_t i = 0; i < chain->layers; i++)
		fprintf(out,
		        " layer x%u : custom { time_f = %uns time_i = %uns time_w = %uns activation = %uKiB output = 1KiB }\n",
		        i, chain->time[i][0], chain->time[i][1], chain->time[i][2], chain->activation);
	fprintf(out, "}\ncluster { gpus = %u gpu { memory = %lluKiB } link intra { bandwidth = %s latency = %s } }\n",
	        chain->ranks, chain->memory ? (unsigned long long)chain->memory : 1ull << 30,
	        chain->links ? "100GB/s" : "inf", chain->links ? "8ns" : "0ns");
	fprintf(
	    out,
	    "parallel { pp = %u vpp = %u }\nstages { balance = time }\ntrain { microbatches = %u }\nrun { steps = 1 }\n",
	    chain->ranks, chain->vpp, chain->microbatches);
	fclose(out);
	const char *copy = pp_arena_copy(arena, text, length);
	free(text);
	return copy;
}

static bool compile(struct pp_arena *arena, const struct chain *chain, enum pp_pass last, struct pp_unit *unit)
{
	const char *text = text_of(arena, chain);
	*unit = (struct pp_unit){
	    .arena = arena,
	    .strings = pp_strtab_create(arena),
	    .sources = pp_sources_create(arena),
	    .tool_version = "test",
	    .options = {.schedule = chain->schedule, .shipped = pp_library, .shipped_count = pp_library_count}};
	unit->diag = pp_diag_create(arena, unit->sources);
	unit->source = pp_sources_add(unit->sources, "test.pipe", text, strlen(text));
	return pp_compile(unit, last, NULL, NULL);
}

static struct pp_joint_problem problem_of(struct pp_arena *arena, const struct pp_unit *unit)
{
	return (struct pp_joint_problem){
	    .spec = &unit->resolved.spec,
	    .stages = &unit->stages,
	    .schedule = &unit->schedule,
	    .headroom = unit->order_headroom,
	    .caps = pp_partition_problem(arena, &unit->resolved.spec, &unit->draft, unit->headroom, &unit->stages),
	};
}

static const struct {
	const char *name;
	uint32_t vpp;
} policies[] = {
    {"1f1b", 1},        {"gpipe", 1}, {"eager_1f1b", 1}, {"zb_h1", 1}, {"zb_h2", 1},
    {"interleaved", 2}, {"gis", 2},   {"zb_v", 2},       {"gpipe", 2},
};
enum { POLICIES = sizeof policies / sizeof *policies };

static struct chain random_chain(uint64_t *random, uint32_t most_layers)
{
	struct chain chain = {.schedule = "1f1b", .vpp = 1};
	chain.ranks = 2 + random_below(random, 4);
	chain.microbatches = 1 + random_below(random, 4 * chain.ranks);
	chain.layers = 2 * chain.ranks + random_below(random, most_layers - 2 * chain.ranks + 1);
	chain.links = random_below(random, 2);
	chain.activation = 1 + random_below(random, 4);
	bool equal = random_below(random, 3) == 0;
	for (uint32_t i = 0; i < chain.layers; i++)
		for (unsigned k = 0; k < 3; k++)
			chain.time[i][k] = equal ? 100 : 20 + random_below(random, 180);
	if (random_below(random, 2)) /* a head worth several layers */
		for (unsigned k = 0; k < 3; k++)
			chain.time[chain.layers - 1][k] *= 3;
	return chain;
}

/* ---- critical paths -------------------------------------------------------------------------- */

static void a_critical_path_is_as_long_as_the_makespan(void **state)
{
	const unsigned rounds = 27 * *(const unsigned *)*state;
	uint64_t random = 1;
	for (unsigned round = 0; round < rounds; round++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct chain chain = random_chain(&random, 24);
		struct pp_unit unit;
		chain.schedule = policies[round % POLICIES].name;
		chain.vpp = policies[round % POLICIES].vpp;
		if (!compile(arena, &chain, PP_PASS_schedule, &unit)) {
			pp_diag_print(unit.diag, stderr, PP_DIAG_HUMAN, false);
			fail_msg("round %u, %s", round, chain.schedule);
		}
		const struct pp_order_problem *order =
		    pp_order_of_stages(arena, &unit.resolved.spec, unit.schedule.stage_rank, &unit.stages, NULL, 0);
		struct pp_order_times times;
		assert_true(pp_order_run(arena, order, unit.schedule.rows, true, &times));
		struct pp_path path = pp_path_of(arena, order, unit.schedule.rows, &times);
		uint64_t length = path.hops * 1000;
		for (uint32_t s = 0; s < order->stages; s++)
			for (unsigned kind = 0; kind < PP_ACTION_KINDS; kind++)
				length += path.count[s][kind] * order->stage[s].ticks[kind];
		assert_int_equal(length, times.makespan * 1000);
		pp_arena_destroy(arena);
	}
}

/* ---- never worse ----------------------------------------------------------------------------- */

static void never_slower_than_even_or_balanced(void **state)
{
	const unsigned rounds = 104 * *(const unsigned *)*state;
	uint64_t random = 2;
	unsigned faster = 0, runs = 0;
	for (unsigned round = 0; round < rounds; round++) {
		struct chain chain = random_chain(&random, 40);
		for (unsigned k = 0; k < 1 + (round % 4 == 0); k++) {
			struct pp_arena *arena = pp_arena_create(NULL);
			struct pp_unit unit;
			chain.schedule = policies[(round + 4 * k) % POLICIES].name;
			chain.vpp = policies[(round + 4 * k) % POLICIES].vpp;
			bool whole = round % 13 == 0;
			assert_true(compile(arena, &chain, whole ? PP_PASS_simulate : PP_PASS_partition, &unit));
			const struct pp_joint_report *joint = unit.stages.joint;
			assert_non_null(joint);
			assert_true(joint->chosen <= joint->balanced && joint->chosen <= joint->even);
			assert_true(joint->moved || joint->chosen == joint->balanced);
			faster += joint->chosen < joint->balanced && joint->chosen < joint->even;
			runs++;
			if (whole) /* the program takes what was promised, but for what rank 0 does before its first forward */
				assert_int_equal(unit.sim.makespan - unit.sim.rank[0].first, joint->chosen);
			pp_arena_destroy(arena);
		}
	}
	assert_true(runs >= rounds * 5 / 4);
	assert_true(faster > runs / 4);
}

/* Under caps that rule out what the balance would like: whatever is chosen fits. */
static void what_is_chosen_fits(void **state)
{
	const unsigned rounds = 27 * *(const unsigned *)*state;
	uint64_t random = 3;
	unsigned kept = 0, refused = 0, moved = 0;
	for (unsigned round = 0; round < rounds; round++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct chain chain = random_chain(&random, 24);
		struct pp_unit unit;
		chain.schedule = policies[round % POLICIES].name;
		chain.vpp = policies[round % POLICIES].vpp;
		uint32_t in_flight = chain.ranks < chain.microbatches ? chain.ranks : chain.microbatches;
		chain.memory = (uint64_t)chain.activation * (chain.layers / chain.ranks + 1) * in_flight + 24;
		if (compile(arena, &chain, PP_PASS_verify, &unit)) {
			kept++;
			moved += unit.stages.joint && unit.stages.joint->moved;
			for (uint32_t r = 0; r < unit.program->ranks; r++)
				assert_true(unit.program->rank[r].arena_bytes <= chain.memory << 10);
		} else
			refused++;
		pp_arena_destroy(arena);
	}
	assert_true(kept >= rounds / 5 && refused >= rounds / 10 && moved >= rounds / 16);
}

/* ---- the best of all ------------------------------------------------------------------------- */

/* The least makespan of all splits from a stage on. */
static uint64_t best_of_all(struct pp_arena *arena, const struct pp_joint_problem *problem, uint32_t stage,
                            uint32_t *first)
{
	uint32_t stages = problem->schedule->stages, layers = problem->spec->model.layer_count;
	if (stage == stages) {
		struct pp_arena *scratch = pp_arena_scratch(arena);
		struct pp_joint_value value = pp_joint_run(scratch, problem, first, NULL);
		pp_arena_destroy(scratch);
		return value.makespan;
	}
	uint64_t best = UINT64_MAX;
	for (uint32_t at = first[stage - 1] + 1; at + (stages - stage) <= layers; at++) {
		first[stage] = at;
		uint64_t value = best_of_all(arena, problem, stage + 1, first);
		best = value < best ? value : best;
	}
	return best;
}

static void close_to_the_best_of_all_splits(void **state)
{
	const unsigned rounds = 18 * *(const unsigned *)*state;
	uint64_t random = 4;
	unsigned equal = 0;
	double worst = 0, sum = 0;
	for (unsigned round = 0; round < rounds; round++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct chain chain = random_chain(&random, 12);
		struct pp_unit unit;
		chain.schedule = policies[round % POLICIES].name;
		chain.vpp = policies[round % POLICIES].vpp;
		assert_true(compile(arena, &chain, PP_PASS_schedule, &unit));
		struct pp_joint_problem problem = problem_of(arena, &unit);
		uint32_t *first = PP_NEW_ARRAY(arena, uint32_t, unit.schedule.stages + 1);
		first[unit.schedule.stages] = chain.layers;
		uint64_t best = best_of_all(arena, &problem, 1, first), chosen = unit.stages.joint->chosen;
		assert_true(best <= chosen);
		double above = (double)chosen / (double)best - 1;
		equal += chosen == best;
		worst = above > worst ? above : worst;
		sum += above;
		pp_arena_destroy(arena);
	}
	print_message("equal to the best of all: %u of %u, mean %.3f %% above, at most %.2f %%\n", equal, rounds,
	              100 * sum / rounds, 100 * worst);
	assert_true(equal * 100 >= rounds * 95);
	assert_true(worst <= 0.02);
}

/* ---- cases of their own ---------------------------------------------------------------------- */

static struct chain even_chain(uint32_t layers, uint32_t ranks, uint32_t microbatches)
{
	struct chain chain = {.layers = layers, .ranks = ranks, .vpp = 1, .microbatches = microbatches, .schedule = "1f1b"};
	for (uint32_t i = 0; i < layers; i++)
		chain.time[i][0] = chain.time[i][1] = chain.time[i][2] = 100;
	return chain;
}

/* With as few microbatches as ranks the first stage should be larger than the others, though it is the slowest then. */
static void a_slow_stage_costs_less_the_earlier_it_stands(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct chain chain = even_chain(36, 4, 4);
	struct pp_unit unit;
	assert_true(compile(arena, &chain, PP_PASS_simulate, &unit));
	const uint32_t wanted[] = {12, 8, 8, 8};
	for (uint32_t s = 0; s < 4; s++)
		assert_int_equal(unit.stages.items[s].layer_count, wanted[s]);
	assert_int_equal(unit.stages.joint->balanced, 3 * 9 * 100 * 7); /* (m + p - 1) (F + B) */
	assert_int_equal(unit.stages.joint->chosen, unit.sim.makespan);
	assert_true(unit.sim.makespan == 18000);
	pp_arena_destroy(arena);
}

/* Many microbatches of equal layers: nothing beats equal stages, and nothing is moved. */
static void equal_stages_stay(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct chain chain = even_chain(16, 4, 64);
	struct pp_unit unit;
	assert_true(compile(arena, &chain, PP_PASS_partition, &unit));
	assert_false(unit.stages.joint->moved);
	for (uint32_t s = 0; s < 4; s++)
		assert_int_equal(unit.stages.items[s].layer_count, 4);
	assert_int_equal(unit.stages.joint->chosen, unit.stages.joint->even);
	pp_arena_destroy(arena);
}

/* Windows of the first microbatches: rows of 1f1b cut down are rows of 1f1b. */
static void a_window_of_1f1b_is_1f1b(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct chain many = even_chain(8, 4, 40), few = even_chain(8, 4, 9);
	struct pp_unit a, b;
	assert_true(compile(arena, &many, PP_PASS_schedule, &a) && compile(arena, &few, PP_PASS_schedule, &b));
	const struct pp_row *window = pp_joint_window(arena, &a.schedule, 9);
	for (uint32_t r = 0; r < 4; r++) {
		assert_int_equal(window[r].count, b.schedule.rows[r].count);
		for (uint32_t i = 0; i < window[r].count; i++) {
			assert_int_equal(window[r].actions[i].kind, b.schedule.rows[r].actions[i].kind);
			assert_int_equal(window[r].actions[i].mb, b.schedule.rows[r].actions[i].mb);
		}
	}
	pp_arena_destroy(arena);
}

/* Splits of the user's and other balances are not touched. */
static void only_balance_time_is_judged_by_the_makespan(void **state)
{
	(void)state;
	static const char *const sets[] = {"stages.balance=layers"};
	struct pp_arena *arena = pp_arena_create(NULL);
	struct chain chain = even_chain(36, 4, 4);
	const char *text = text_of(arena, &chain);
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .options = {.schedule = "1f1b",
	                                   .sets = sets,
	                                   .set_count = 1,
	                                   .shipped = pp_library,
	                                   .shipped_count = pp_library_count}};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.source = pp_sources_add(unit.sources, "test.pipe", text, strlen(text));
	assert_true(pp_compile(&unit, PP_PASS_partition, NULL, NULL));
	assert_null(unit.stages.joint);
	assert_int_equal(unit.stages.items[0].layer_count, 9);
	pp_arena_destroy(arena);
}

int main(int argc, char **argv)
{
	unsigned times = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_prestate(a_critical_path_is_as_long_as_the_makespan, &times),
	    cmocka_unit_test_prestate(never_slower_than_even_or_balanced, &times),
	    cmocka_unit_test_prestate(what_is_chosen_fits, &times),
	    cmocka_unit_test_prestate(close_to_the_best_of_all_splits, &times),
	    cmocka_unit_test(a_slow_stage_costs_less_the_earlier_it_stands),
	    cmocka_unit_test(equal_stages_stay),
	    cmocka_unit_test(a_window_of_1f1b_is_1f1b),
	    cmocka_unit_test(only_balance_time_is_judged_by_the_makespan),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
