/* The verifier on built programs: accepts every valid one, names what is wrong with the others. */
#include "ir/simulate.h"
#include "support/sample_program.h"
#include "support/verify_fixture.h"

enum { ALL_LAYOUTS = (1 << PP_LAYOUT_COUNT) - 1 };

static void accepts_families(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 6; p++)
		for (uint32_t m = 1; m <= 9; m++)
			for (int trains = 0; trains < 2; trains++) {
				struct bench b = bench_begin();
				struct build_options options = {.trains = trains, .placed = m % 2, .depth = 1 + m % 3};
				struct pp_schedule *schedules[] = {build_gpipe(b.arena, p, m), build_1f1b(b.arena, p, m),
				                                   build_zb_h1(b.arena, p, m),
				                                   build_interleaved(b.arena, p, 2, p * (1 + m / 3))};
				for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
					assert_accepted(&b, build_program(b.arena, schedules[i], &options));
					assert_true(b.stamp.proven);
					assert_true(b.stamp.bits_fixed);
					assert_int_equal(b.stamp.layouts, ALL_LAYOUTS);
				}
				bench_end(&b);
			}
}

static void accepts_random_schedules(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct bench b = bench_begin();
		uint64_t random = seed;
		const struct pp_schedule *schedule = build_random(b.arena, &random);
		struct build_options options = {.trains = seed % 2, .placed = seed % 3 == 0, .depth = 1 + (uint32_t)(seed % 4)};
		assert_accepted(&b, build_program(b.arena, schedule, &options));
		assert_int_equal(b.stamp.layouts, ALL_LAYOUTS);
		bench_end(&b);
	}
}

/* Field case B02 (b): "receive, compute, send" with each post followed by its wait. */
static void naive_streams_are_stuck(void **state)
{
	(void)state;
	struct bench b = bench_begin();
	assert_rejected(&b, build_naive(b.arena, build_1f1b(b.arena, 4, 8)),
	                "error[V4]: rank 2, instruction 9 `wait send act s2 m1` never ends: 4 ranks wait for ever (one "
	                "queue per channel)\n"
	                "   = note: rank 3, instruction 5 `wait send grad s3 m0`: waits here\n"
	                "   = note: rank 2 waits send act s2 m1 <- rank 3 waits send grad s3 m0 <- rank 2\n"
	                "   = note: stuck: rank 0 send act s0 m3, rank 1 send act s1 m2, rank 2 send act s2 m1, rank 3 "
	                "send grad s3 m0\n"
	                "   = help: post the receive before the wait that its sender's progress depends on\n");
	bench_end(&b);
}

static void naive_with_one_microbatch_passes(void **state)
{
	(void)state;
	struct bench b = bench_begin();
	assert_accepted(&b, build_naive(b.arena, build_1f1b(b.arena, 2, 1)));
	assert_int_equal(b.stamp.layouts, ALL_LAYOUTS);
	bench_end(&b);
}

static void naive_with_two_fails(void **state)
{
	(void)state;
	struct bench b = bench_begin();
	assert_rejected(&b, build_naive(b.arena, build_1f1b(b.arena, 2, 2)),
	                "error[V4]: rank 0, instruction 5 `wait send act s0 m1` never ends: 2 ranks wait for ever (one "
	                "queue per channel)\n"
	                "   = note: rank 1, instruction 5 `wait send grad s1 m0`: waits here\n"
	                "   = note: rank 0 waits send act s0 m1 <- rank 1 waits send grad s1 m0 <- rank 0\n"
	                "   = note: stuck: rank 0 send act s0 m1, rank 1 send grad s1 m0\n"
	                "   = help: post the receive before the wait that its sender's progress depends on\n");
	bench_end(&b);
}

static bool finishes(struct bench *b, uint32_t ranks, enum build_exchange how, enum pp_layout layout)
{
	const struct pp_program *program = build_exchange(b->arena, ranks, how);
	return pp_verify_layout(program, &program->programs[0], layout, b->diag);
}

/* Field case B02 (c): the fixed exchange of a shape with both neighbours. */
static void exchange_with_neighbours(void **state)
{
	(void)state;
	struct bench b = bench_begin();
	for (uint32_t p = 2; p <= 4; p++)
		for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			assert_false(finishes(&b, p, BUILD_FIXED, (enum pp_layout)layout));
			assert_int_equal(finishes(&b, p, BUILD_GROUPED, (enum pp_layout)layout), layout < PP_LAYOUT_PAIR);
			assert_true(finishes(&b, p, BUILD_PARITY, (enum pp_layout)layout));
		}
	bench_end(&b);
}

/* Weight gradients in descending order give other bits than one rank does. */
static void bits_depend_on_the_order(void **state)
{
	(void)state;
	struct bench b = bench_begin();
	struct pp_schedule *schedule = build_gpipe(b.arena, 2, 3);
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t i = 0; i < 3; i++)
			schedule->rows[r].actions[3 + i].mb = 2 - i;
	struct build_options options = {.trains = true};
	assert_accepted(&b, build_program(b.arena, schedule, &options));
	assert_false(b.stamp.bits_fixed);
	assert_string_equal(b.stamp.bits_reason, "weight gradients of stage 0 are not added in ascending microbatch order");
	bench_end(&b);
}

/* All receives first, sends waited for at the end: fine with a queue per channel, not with everything in one. */
static void some_layouts_only(void **state)
{
	(void)state;
	struct bench b = bench_begin();
	struct pp_sample sample = {.ranks = 3, .chunks = 2, .microbatches = 3, .out_count = 8};
	const struct pp_program *program = pp_sample_program(b.arena, &sample);
	assert_accepted(&b, program);
	assert_int_equal(b.stamp.layouts, 1 << PP_LAYOUT_CHANNEL | 1 << PP_LAYOUT_EDGE);
	for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
		struct pp_sim sim;
		bool finishes = pp_simulate(b.arena, program, &program->programs[0], (enum pp_layout)layout, false, &sim);
		assert_int_equal(finishes, b.stamp.layouts >> layout & 1);
	}
	bench_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(accepts_families),         cmocka_unit_test(accepts_random_schedules),
	    cmocka_unit_test(naive_streams_are_stuck),  cmocka_unit_test(naive_with_one_microbatch_passes),
	    cmocka_unit_test(naive_with_two_fails),     cmocka_unit_test(exchange_with_neighbours),
	    cmocka_unit_test(bits_depend_on_the_order), cmocka_unit_test(some_layouts_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
