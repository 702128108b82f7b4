/* Everything that the lowering and the memory plan make is proven, in every queue layout, before and after planning;
 * the simulated run is the one the lowering foresaw, so its bound holds too. */
#include "lowering_fixture.h"

#include "codegen/plan_memory.h"
#include "ir/simulate.h"
#include "ir/verify.h"

enum { ALL_LAYOUTS = (1 << PP_LAYOUT_COUNT) - 1 };

static void assert_proven(struct world *w)
{
	struct pp_stamp stamp;
	if (!pp_verify(&w->program, &stamp, w->diag))
		fail_msg("rejected:\n%s", diagnostics(w));
	assert_int_equal(stamp.layouts, ALL_LAYOUTS);
}

static void random_programs(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		draw_program(&w);
		lower(&w);
		assert_proven(&w);
		assert_true(pp_plan_memory(&w.program, w.diag));
		assert_proven(&w);
		for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			struct pp_sim sim;
			assert_true(pp_simulate(w.arena, &w.program, &w.program.programs[0], (enum pp_layout)layout, false, &sim));
			assert_true(sim.bound.makespan <= sim.makespan);
			for (uint32_t r = 0; r < w.program.ranks; r++)
				assert_true(sim.rank[r].peak_bytes <= w.program.rank[r].arena_bytes);
		}
		end_world(&w);
	}
}

/* Field case B01: 1F1B and interleaved with few microbatches. */
static uint64_t makespan_of(struct world *w, struct pp_sim *sim)
{
	make_program(w, 100, 100, 100, 0);
	lower(w);
	assert_true(pp_plan_memory(&w->program, w->diag));
	assert_proven(w);
	assert_true(pp_simulate(w->arena, &w->program, &w->program.programs[0], PP_LAYOUT_CHANNEL, false, sim));
	return sim->makespan;
}

static void interleaved_unclamped_warmup(void **state)
{
	(void)state;
	struct world w = make_world(1);
	struct pp_sim sim;
	write_interleaved(&w, 4, 4, 4);
	assert_int_equal(makespan_of(&w, &sim), 5700); /* 14.25 in units of a rank's forward of 4 chunks */
	static const uint32_t stashes[] = {16, 16, 15, 13};
	uint64_t messages = 0;
	for (uint32_t r = 0; r < 4; r++) {
		assert_int_equal(sim.rank[r].peak_stashes, stashes[r]);
		messages += sim.rank[r].sent;
	}
	assert_int_equal(messages, 120);
	end_world(&w);
}

static void interleaved_stashes(void **state)
{
	(void)state;
	static const struct {
		uint32_t chunks, stashes[4];
	} rows[] = {{1, {4, 3, 2, 1}}, {2, {11, 9, 7, 5}}}; /* field case B28 */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct world w = make_world(1);
		struct pp_sim sim;
		write_interleaved(&w, 4, rows[i].chunks, 8);
		makespan_of(&w, &sim);
		for (uint32_t r = 0; r < 4; r++)
			assert_int_equal(sim.rank[r].peak_stashes, rows[i].stashes[r]);
		end_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_programs),
	    cmocka_unit_test(interleaved_unclamped_warmup),
	    cmocka_unit_test(interleaved_stashes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
