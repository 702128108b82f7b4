/* The simulator: closed forms of known schedules, idle causes that add up, a bound that is never above the makespan. */
#include "support/verify_fixture.h"

#include "ir/simulate.h"
#include "support/random.h"

static struct pp_sim simulate(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout)
{
	struct pp_sim sim;
	assert_true(pp_simulate(arena, program, &program->programs[0], layout, false, &sim));
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t total = sim.rank[r].busy;
		for (int cause = 0; cause < PP_IDLE_COUNT; cause++)
			total += sim.rank[r].idle[cause];
		assert_int_equal(total, sim.makespan);
		assert_true(sim.rank[r].idle[PP_IDLE_WARMUP] >= sim.rank[r].first);
		assert_true(sim.rank[r].idle[PP_IDLE_COOLDOWN] >= sim.makespan - sim.rank[r].last);
	}
	assert_true(sim.bound.makespan <= sim.makespan);
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
			struct pp_sim one =
			    simulate(arena, build_program(arena, build_1f1b(arena, p, m), &options), PP_LAYOUT_CHANNEL);
			struct pp_sim gpipe =
			    simulate(arena, build_program(arena, build_gpipe(arena, p, m), &options), PP_LAYOUT_CHANNEL);
			assert_int_equal(one.makespan, 300 * (m + p - 1));
			assert_int_equal(one.bound.makespan, one.makespan);
			assert_int_equal(gpipe.makespan, 300 * (m + p - 1));
			assert_int_equal(gpipe.bound.makespan, gpipe.makespan);
			for (uint32_t r = 0; r < p; r++) {
				assert_int_equal(one.rank[r].peak_stashes, m < p - r ? m : p - r);
				assert_int_equal(gpipe.rank[r].peak_stashes, m);
				assert_int_equal(one.rank[r].sent + one.rank[r].received,
				                 (r > 0 ? 2 * m : 0) + (r + 1 < p ? 2 * m : 0));
			}
			pp_arena_destroy(arena);
		}
}

/* Interleaved with v chunks per rank: the bubble shrinks by v, (p - 1) / (v m) of the work (Narayanan et al. 2021).
 * With split backwards of equal halves ZB-H1 idles (p - 1)(F + I - W) (Qi et al. 2023), a third of 1F1B. */
static void closed_forms_of_others(void **state)
{
	(void)state;
	for (uint32_t p = 2; p <= 6; p++)
		for (uint32_t rounds = 1; rounds <= 3; rounds++) {
			struct pp_arena *arena = pp_arena_create(NULL);
			struct build_options options = {.depth = 8};
			uint32_t m = rounds * p;
			for (uint32_t v = 2; v <= 3; v++) {
				struct pp_sim sim = simulate(arena, build_program(arena, build_interleaved(arena, p, v, m), &options),
				                             PP_LAYOUT_CHANNEL);
				assert_int_equal(sim.makespan, 300 * (v * m + p - 1));
				assert_int_equal((uint64_t)(sim.overhead * v * m + 0.5), p - 1);
			}
			if (rounds > 1) { /* fewer microbatches never reach the steady state */
				struct pp_sim sim =
				    simulate(arena, build_program(arena, build_zb_h1(arena, p, m), &options), PP_LAYOUT_CHANNEL);
				assert_int_equal(sim.makespan, 300 * m + 100 * (p - 1));
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
		struct build_options options = {
		    .trains = seed % 2, .depth = 1 + (uint32_t)(seed % 3), .latency = random_below(&random, 3) * 40};
		for (int phase = 0; phase < PP_PHASE_COUNT; phase++)
			options.ticks[phase] = 1 + random_below(&random, 300);
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

/* Times beyond what 64 bits count stop there: a program text may say anything. */
static void times_stop_at_the_most(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct build_options options = {.depth = 2};
	for (int phase = 0; phase < PP_PHASE_COUNT; phase++)
		options.ticks[phase] = UINT64_MAX / 3;
	const struct pp_program *program = build_program(arena, build_1f1b(arena, 1, 4), &options);
	struct pp_sim sim;
	assert_true(pp_simulate(arena, program, &program->programs[0], PP_LAYOUT_CHANNEL, false, &sim));
	assert_true(sim.makespan == UINT64_MAX);
	assert_true(sim.rank[0].busy == UINT64_MAX);
	pp_arena_destroy(arena);
}

static struct pp_program *two_ranks(struct pp_arena *arena, bool trains)
{
	struct build_options options = {.latency = 50, .trains = trains};
	return build_program(arena, build_1f1b(arena, 2, 2), &options);
}

static void assert_idle(const struct pp_sim_rank *rank, const uint64_t *expected)
{
	for (int cause = 0; cause < PP_IDLE_COUNT; cause++)
		if (rank->idle[cause] != expected[cause])
			fail_msg("%s: %llu, expected %llu", pp_idle_name[cause], (unsigned long long)rank->idle[cause],
			         (unsigned long long)expected[cause]);
}

/* Rank 0: F0 0-100, waits for its send 150, F1 -250, B0 of rank 1 ends at 450, arrives at 500, and so on. */
static void idle_by_cause(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sim sim = simulate(arena, two_ranks(arena, false), PP_LAYOUT_CHANNEL);
	assert_int_equal(sim.makespan, 1000);
	assert_idle(&sim.rank[0], (uint64_t[]){200, 50, 0, 150, 0, 0});
	assert_idle(&sim.rank[1], (uint64_t[]){150, 250, 0, 0, 0, 0});
	assert_int_equal(sim.rank[0].longest_idle, 250);
	assert_int_equal(sim.rank[0].longest_idle_at, 250);
	assert_int_equal(sim.rank[1].longest_idle_at, 750);
	assert_true(sim.work == 600 && sim.bubble == 1 - 600.0 / 1000 && sim.overhead == 1000.0 / 600 - 1 &&
	            sim.imbalance == 0);
	assert_int_equal(sim.longest_span, 1000);
	assert_int_equal(sim.tail, 0);
	sim = simulate(arena, two_ranks(arena, false),
	               PP_LAYOUT_BLOCKING); /* rank 1 also stands at its receive and its send */
	assert_int_equal(sim.makespan, 1100);
	assert_idle(&sim.rank[0], (uint64_t[]){200, 100, 0, 200, 0, 0});
	assert_idle(&sim.rank[1], (uint64_t[]){150, 250, 0, 100, 0, 0});
	pp_arena_destroy(arena);
}

/* The instruction at `from` comes to stand at `to`. */
static void move(struct pp_program *program, uint32_t rank, uint32_t from, uint32_t to)
{
	struct pp_instr *items = program->programs[0].streams[rank].items, kept = items[from];
	if (from < to)
		memmove(&items[from], &items[from + 1], (to - from) * sizeof *items);
	else
		memmove(&items[to + 1], &items[to], (from - to) * sizeof *items);
	items[to] = kept;
}

/* With one queue per rank: rank 0 posts the receive of a gradient ahead of its second activation, which is ready at 250
 * but may leave only when that gradient has come (500). */
static void head_of_line(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = two_ranks(arena, false);
	move(program, 0, 7, 6);
	move(program, 1, 4, 6);
	assert_int_equal(program->programs[0].streams[0].items[6].op, PP_OP_RECV);
	assert_int_equal(program->programs[0].streams[1].items[6].op, PP_OP_RECV);
	struct pp_sim sim = simulate(arena, program, PP_LAYOUT_RANK);
	assert_int_equal(sim.makespan, 1100);
	assert_idle(&sim.rank[0], (uint64_t[]){200, 150, 0, 150, 0, 0});
	assert_idle(&sim.rank[1], (uint64_t[]){150, 250, 0, 50, 50, 0});
	assert_int_equal(simulate(arena, program, PP_LAYOUT_CHANNEL).makespan, 1050);
	pp_arena_destroy(arena);
}

/* Three sums over two ranks after the last compute, each 2 ring steps of 50 ns; memory traffic at 1 byte per ns. */
static void step_tail(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = two_ranks(arena, true);
	struct pp_sim sim = simulate(arena, program, PP_LAYOUT_CHANNEL);
	assert_int_equal(sim.makespan, 1000);
	assert_int_equal(sim.tail, 300);
	program->cost.memory_bandwidth = 1000000000;
	sim = simulate(arena, program, PP_LAYOUT_CHANNEL);
	uint64_t clear = 32 + 24, norms = 2 * 64, clip = 32 + 24 + 32, update = 2 * (2 + 1 + 2 + 2) * 64;
	assert_int_equal(sim.rank[0].first, clear);
	assert_int_equal(sim.makespan, 1000 + clear);
	assert_int_equal(sim.tail, 300 + norms + clip + update);
	pp_arena_destroy(arena);
}

static void intervals(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = two_ranks(arena, false);
	struct pp_sim sim;
	assert_true(pp_simulate(arena, program, &program->programs[0], PP_LAYOUT_CHANNEL, true, &sim));
	static const struct pp_interval expected[] = {{0, 0},     {0, 100},   {100, 150}, {100, 150}, {150, 150},
	                                              {150, 250}, {250, 300}, {450, 500}, {250, 500}, {500, 700},
	                                              {750, 800}, {700, 800}, {800, 1000}};
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		assert_int_equal(sim.instr[0][i].start, expected[i].start);
		assert_int_equal(sim.instr[0][i].end, expected[i].end);
	}
	pp_arena_destroy(arena);
}

static void a_deadlock_does_not_finish(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *program = build_naive(arena, build_1f1b(arena, 4, 8));
	struct pp_sim sim;
	for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++)
		assert_false(pp_simulate(arena, program, &program->programs[0], (enum pp_layout)layout, true, &sim));
	pp_arena_destroy(arena);
}

/* ---- progress models ------------------------------------------------------------------------- */

static struct pp_sim simulate_on(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout,
                                 const struct pp_progress_model *progress)
{
	struct pp_sim sim;
	struct pp_sim_options options = {.layout = layout, .progress = progress};
	assert_true(pp_simulate_with(arena, program, &program->programs[0], &options, &sim));
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t total = sim.rank[r].busy;
		for (int cause = 0; cause < PP_IDLE_COUNT; cause++)
			total += sim.rank[r].idle[cause];
		assert_int_equal(total, sim.makespan);
	}
	return sim;
}

/* Taken in the order of time, with transfers that move on their own and take too little of a rank to count, a run is
 * what it is in any other order; with any other model nothing comes earlier. */
static void order_of_time(void **state)
{
	(void)state;
	const struct pp_progress_model alone = {.moves = PP_MOVES_ALONE, .permille = {1, 1}};
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		uint64_t random = seed;
		const struct pp_schedule *schedule = build_random(arena, &random);
		struct build_options options = {
		    .trains = seed % 2, .depth = 1 + (uint32_t)(seed % 3), .latency = random_below(&random, 3) * 40};
		for (int phase = 0; phase < PP_PHASE_COUNT; phase++)
			options.ticks[phase] = 1 + random_below(&random, 300);
		const struct pp_program *program = build_program(arena, schedule, &options);
		for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			struct pp_sim any = simulate(arena, program, (enum pp_layout)layout);
			struct pp_sim timed = simulate_on(arena, program, (enum pp_layout)layout, &alone);
			assert_int_equal(any.makespan, timed.makespan);
			assert_int_equal(any.tail, timed.tail);
			assert_memory_equal(any.rank, timed.rank, program->ranks * sizeof *any.rank);
			for (int model = 0; model < PP_PROGRESS_MODELS; model++)
				assert_true(simulate_on(arena, program, (enum pp_layout)layout, &pp_progress_models[model]).makespan >=
				            any.makespan);
		}
		pp_arena_destroy(arena);
	}
}

/* Rank 0: F0 0-130, sent until 180, F1 180-310, sent when rank 1 polls. Rank 1: F0 180-280, then B0 280-480. The value
 * of F1 moves at 310 on its own, or when its sender does it; at 480 when rank 1 must be asked too and B0 never polls;
 * at 330 when it polls four times. Rank 1 goes on with F1 at 480 or 530, ends B1 300 later; then 50 + 200 to the end.
 */
static void moves_only_while_polled(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = two_ranks(arena, false);
	program->stages[0].ticks[PP_PHASE_F] = 130;
	assert_int_equal(simulate_on(arena, program, PP_LAYOUT_CHANNEL, pp_progress_find("none")).makespan, 1030);
	assert_int_equal(simulate_on(arena, program, PP_LAYOUT_CHANNEL, pp_progress_find("loop")).makespan, 1030);
	struct pp_sim mpi = simulate_on(arena, program, PP_LAYOUT_CHANNEL, pp_progress_find("mpi"));
	assert_int_equal(mpi.makespan, 1080);
	assert_idle(&mpi.rank[1], (uint64_t[]){180, 250, 0, 50, 0, 0});
	struct pp_body_instr items[4] = {
	    {.op = PP_BODY_COPY}, {.op = PP_BODY_COPY}, {.op = PP_BODY_COPY}, {.op = PP_BODY_COPY}};
	program->bodies = PP_NEW_ARRAY(arena, struct pp_body, 1);
	program->bodies[0] = (struct pp_body){.stage = 1, .phase = PP_PHASE_B, .items = items, .count = 4};
	program->body_count = 1;
	program->stages[1].body[PP_PHASE_B] = 0;
	assert_int_equal(simulate_on(arena, program, PP_LAYOUT_CHANNEL, pp_progress_find("mpi")).makespan, 1030);
	assert_null(pp_progress_find("pigeon"));
	pp_arena_destroy(arena);
}

/* A transfer of 50 takes 7 (0.15, rounded down) from the next compute of an end that does not wait for it: that of F1
 * from B0 of rank 0 and F1 of rank 1, that of B0's gradient from B1 of rank 1. */
static void takes_a_share(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = two_ranks(arena, false);
	program->stages[0].ticks[PP_PHASE_F] = 130;
	struct pp_sim nccl = simulate_on(arena, program, PP_LAYOUT_CHANNEL, pp_progress_find("nccl"));
	assert_int_equal(nccl.makespan, 1044);
	assert_int_equal(nccl.rank[0].busy, 2 * 130 + 2 * 200 + 7);
	assert_int_equal(nccl.rank[1].busy, 2 * 100 + 2 * 200 + 7 + 7);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(closed_forms),
	    cmocka_unit_test(order_of_time),
	    cmocka_unit_test(closed_forms_of_others),
	    cmocka_unit_test(moves_only_while_polled),
	    cmocka_unit_test(takes_a_share),
	    cmocka_unit_test(times_stop_at_the_most),
	    cmocka_unit_test(random_programs),
	    cmocka_unit_test(idle_by_cause),
	    cmocka_unit_test(head_of_line),
	    cmocka_unit_test(step_tail),
	    cmocka_unit_test(intervals),
	    cmocka_unit_test(a_deadlock_does_not_finish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
