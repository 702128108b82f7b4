/* The simulator: closed forms of known schedules, idle causes that add up, a bound that is never above the makespan. */
#include "support/verify_fixture.h"

#include "ir/simulate.h"

static struct pp_sim simulate(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout)
{
	struct pp_sim sim;
	assert_true(pp_simulate(arena, program, &program->programs[0], layout, false, &sim));
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t total = sim.rank[r].busy;
		for (int cause = 0; cause < PP_IDLE_COUNT; cause++)
			total += sim.rank[r].idle[cause];
		assert_int_equal(total, sim.makespan);
		assert_int_equal(sim.rank[r].idle[PP_IDLE_WARMUP], sim.rank[r].first);
		assert_int_equal(sim.rank[r].idle[PP_IDLE_COOLDOWN], sim.makespan - sim.rank[r].last);
	}
	assert_true(sim.bound <= sim.makespan);
	return sim;
}

/* F = 100, B = 200, free transfers: field case B01 among them. */
static void closed_forms(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 8; p++)
		for (uint32_t m = 1; m <= 9; m++) {
			struct pp_arena *arena = pp_arena_create(NULL);
			struct build_options options = {.depth = 2};
			struct pp_sim one = simulate(arena, build_program(arena, build_1f1b(arena, p, m), &options), PP_LAYOUT_CHANNEL);
			struct pp_sim gpipe = simulate(arena, build_program(arena, build_gpipe(arena, p, m), &options), PP_LAYOUT_CHANNEL);
			assert_int_equal(one.makespan, 300 * (m + p - 1));
			assert_int_equal(one.bound, one.makespan);
			assert_int_equal(gpipe.makespan, 300 * (m + p - 1));
			assert_int_equal(gpipe.bound, gpipe.makespan);
			for (uint32_t r = 0; r < p; r++) {
				assert_int_equal(one.rank[r].peak_stashes, m < p - r ? m : p - r);
				assert_int_equal(gpipe.rank[r].peak_stashes, m);
				assert_int_equal(one.rank[r].sent + one.rank[r].received, (r > 0 ? 2 * m : 0) + (r + 1 < p ? 2 * m : 0));
			}
			pp_arena_destroy(arena);
		}
}

static void random_programs(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 600; seed++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		uint64_t random = seed;
		const struct pp_schedule *schedule = build_random(arena, &random);
		struct build_options options = {.trains = seed % 2, .depth = 1 + (uint32_t)(seed % 3), .latency = build_below(&random, 3) * 40};
		for (int phase = 0; phase < PP_PHASE_COUNT; phase++)
			options.ticks[phase] = 1 + build_below(&random, 300);
		const struct pp_program *program = build_program(arena, schedule, &options);
		uint64_t before = 0;
		for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			struct pp_sim sim = simulate(arena, program, (enum pp_layout)layout);
			if (layout == PP_LAYOUT_CHANNEL)
				before = sim.makespan;
			assert_true(sim.makespan >= before); /* sharing queues never helps */
		}
		pp_arena_destroy(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(closed_forms),
	    cmocka_unit_test(random_programs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
