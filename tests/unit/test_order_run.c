/* The run of an order: cases worked out by hand, and the same times and counts as the simulator has for programs. */
#include "lowering_fixture.h"

#include "codegen/plan_memory.h"
#include "ir/order_program.h"
#include "ir/simulate.h"
#include "support/build_program.h"

/* ---- by hand --------------------------------------------------------------------------------- */

struct hand {
	struct world w;
	struct pp_order_stage stage[4];
	uint64_t room[4];
	struct pp_order_problem problem;
	struct pp_order_times times;
};

/* F 10, I 20, W 30, B 50 of every stage, a stash of 100 bytes; hops of 3 forward and 5 backward between ranks. */
static struct hand *make_hand(uint32_t stages, const uint32_t *place, uint32_t microbatches, const char *rows)
{
	struct hand *hand = calloc(1, sizeof *hand);
	assert_non_null(hand);
	hand->w = make_world(0);
	write_schedule(&hand->w, stages, place, microbatches, rows);
	for (uint32_t s = 0; s < stages; s++)
		hand->stage[s] = (struct pp_order_stage){.rank = hand->w.schedule.stage_rank[s],
		                                         .ticks = {[PP_F] = 10, [PP_B] = 50, [PP_I] = 20, [PP_W] = 30},
		                                         .held = 100};
	for (uint32_t s = 0; s + 1 < stages; s++)
		if (hand->stage[s].rank != hand->stage[s + 1].rank) {
			hand->stage[s].forward_hop = 3;
			hand->stage[s + 1].backward_hop = 5;
		}
	for (uint32_t r = 0; r < 4; r++)
		hand->room[r] = PP_ROOM_UNLIMITED;
	hand->problem = (struct pp_order_problem){.ranks = hand->w.schedule.ranks,
	                                          .stages = stages,
	                                          .microbatches = microbatches,
	                                          .stage = hand->stage,
	                                          .room = hand->room,
	                                          .pair_permille = 1000};
	return hand;
}

static void run_hand(struct hand *hand)
{
	assert_true(pp_order_run(hand->w.arena, &hand->problem, hand->w.schedule.rows, true, &hand->times));
}

static void free_hand(struct hand *hand)
{
	end_world(&hand->w);
	free(hand);
}

static void assert_starts(const struct hand *hand, uint32_t rank, const uint64_t *expected)
{
	for (uint32_t i = 0; i < hand->w.schedule.rows[rank].count; i++)
		if (hand->times.start[rank][i] != expected[i])
			fail_msg("rank %u, action %u starts at %llu instead of %llu", rank, i,
			         (unsigned long long)hand->times.start[rank][i], (unsigned long long)expected[i]);
}

static void assert_rank(const struct hand *hand, uint32_t rank, struct pp_order_rank expected)
{
	const struct pp_order_rank *got = &hand->times.rank[rank];
	assert_int_equal(got->busy, expected.busy);
	assert_int_equal(got->first, expected.first);
	assert_int_equal(got->last, expected.last);
	assert_int_equal(got->peak, expected.peak);
	assert_int_equal(got->peak_stashes, expected.peak_stashes);
}

static void one_in_turn(void **state)
{
	(void)state;
	struct hand *hand = make_hand(2, NULL, 2, "F0 F1 B0 B1\nF0 B0 F1 B1\n");
	run_hand(hand);
	assert_starts(hand, 1, (const uint64_t[]){13, 23, 73, 83});
	assert_starts(hand, 0, (const uint64_t[]){0, 10, 78, 138});
	assert_int_equal(hand->times.makespan, 188);
	assert_int_equal(hand->times.longest_span, 188);
	assert_rank(hand, 0, (struct pp_order_rank){.busy = 120, .last = 188, .peak = 200, .peak_stashes = 2});
	assert_rank(hand, 1, (struct pp_order_rank){.busy = 120, .first = 13, .last = 133, .peak = 100, .peak_stashes = 1});
	free_hand(hand);
}

/* The last input gradient of rank 1 ends at 93; rank 0 has nothing left but its own W. */
static void split_backwards(void **state)
{
	(void)state;
	struct hand *hand = make_hand(2, NULL, 2, "F0 F1 I0 I1 W0 W1\nF0 I0 F1 I1 W0 W1\n");
	hand->stage[0].early = 60;
	hand->stage[1].more_split = 7;
	run_hand(hand);
	assert_starts(hand, 1, (const uint64_t[]){13, 23, 43, 53, 73, 103});
	assert_starts(hand, 0, (const uint64_t[]){0, 10, 48, 78, 98, 128});
	assert_int_equal(hand->times.makespan, 158);
	assert_rank(hand, 0, (struct pp_order_rank){.busy = 120, .last = 158, .peak = 200, .peak_stashes = 2});
	assert_rank(hand, 1, (struct pp_order_rank){.busy = 120, .first = 13, .last = 133, .peak = 214, .peak_stashes = 2});
	free_hand(hand);
}

/* Stage 1 hands over to stage 2 on its own rank: no hop. The stash that stays after I is what W needs. */
static void turn_of_a_v(void **state)
{
	(void)state;
	struct hand *hand = make_hand(4, (const uint32_t[]){0, 1, 1, 0}, 2,
	                              "0F0 0F1 3F0 3I0 3F1 3I1 3W0 3W1 0B0 0B1\n1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n");
	hand->stage[3].early = 40;
	hand->stage[3].more_split = 1;
	run_hand(hand);
	assert_starts(hand, 1, (const uint64_t[]){13, 23, 33, 43, 71, 121, 171, 221});
	assert_starts(hand, 0, (const uint64_t[]){0, 10, 36, 46, 66, 76, 96, 126, 176, 276});
	assert_int_equal(hand->times.makespan, 326);
	assert_int_equal(hand->times.rank[0].peak, 200 + 61 + 101); /* at I1: stashes of stage 0, W0's rest, I1's own */
	assert_int_equal(hand->times.rank[0].peak_stashes, 4);
	free_hand(hand);
}

static void set_pairs(struct hand *hand, uint32_t rank, uint32_t first)
{
	hand->w.schedule.rows[rank].actions[first].paired = true;
}

/* B0 and F2 of rank 0 begin when the gradient is there and end together, after 900 thousandths of 50 + 10. */
static void pairs_are_one_step(void **state)
{
	(void)state;
	struct hand *hand = make_hand(2, NULL, 3, "F0 F1 F2 B0 B1 B2\nF0 B0 F1 B1 F2 B2\n");
	hand->problem.pair_permille = 900;
	set_pairs(hand, 0, 2);
	run_hand(hand);
	assert_starts(hand, 0, (const uint64_t[]){0, 10, 78, 78, 138, 200});
	/* F2 leaves at 132, so it comes after F1 and B1 (83 .. 133 .. 135) on rank 1 */
	assert_starts(hand, 1, (const uint64_t[]){13, 23, 73, 83, 135, 145});
	assert_int_equal(hand->times.rank[0].busy, 10 + 10 + 54 + 50 + 50);
	assert_int_equal(hand->times.rank[0].peak, 300);
	assert_int_equal(hand->times.makespan, 250);
	hand->problem.pair_permille = 0; /* not given: no gain, but still one step */
	run_hand(hand);
	assert_starts(hand, 0, (const uint64_t[]){0, 10, 78, 78, 138, 206});
	free_hand(hand);
}

/* What both need is held at once, and a pair that needs its own output never starts. */
static void pairs_hold_both(void **state)
{
	(void)state;
	struct hand *hand = make_hand(1, NULL, 2, "F0 B0 F1 B1\n");
	hand->stage[0].more_fused = 9;
	set_pairs(hand, 0, 1);
	run_hand(hand);
	assert_rank(hand, 0, (struct pp_order_rank){.busy = 120, .last = 120, .peak = 209, .peak_stashes = 2});
	free_hand(hand);
	hand = make_hand(2, NULL, 2, "F0 F1 B0 B1\nF0 B0 F1 B1\n");
	set_pairs(hand, 0, 1); /* F1 & B0 are fine */
	run_hand(hand);
	set_pairs(hand, 1, 0);
	assert_false(pp_order_run(hand->w.arena, &hand->problem, hand->w.schedule.rows, false, &hand->times));
	free_hand(hand);
}

/* Recompute runs while the gradient is on its way: 37 .. 44, then until 73 + 5. Of a pair it comes before both. */
static void recompute_hides(void **state)
{
	(void)state;
	struct hand *hand = make_hand(2, NULL, 2, "F0 F1 B0 B1\nF0 B0 F1 B1\n");
	hand->stage[0].recompute = 40;
	hand->stage[1].recompute = 4;
	run_hand(hand);
	assert_starts(hand, 1, (const uint64_t[]){13, 27, 77, 91});
	assert_starts(hand, 0, (const uint64_t[]){0, 10, 82, 172});
	assert_int_equal(hand->times.rank[0].busy, 200);
	assert_int_equal(hand->times.rank[1].busy, 128);
	set_pairs(hand, 1, 1);
	run_hand(hand);
	assert_starts(hand, 1, (const uint64_t[]){13, 27, 27, 91});
	free_hand(hand);
}

static void room_and_cycles(void **state)
{
	(void)state;
	struct hand *hand = make_hand(2, NULL, 2, "F0 F1 B0 B1\nF0 B0 F1 B1\n");
	hand->room[0] = 200;
	hand->room[1] = 100;
	run_hand(hand);
	assert_true(hand->times.fits);
	hand->room[0] = 199;
	run_hand(hand);
	assert_false(hand->times.fits);
	hand->w.schedule.rows[0].actions[1].kind = PP_B; /* before its gradient can be there */
	hand->w.schedule.rows[0].actions[1].mb = 1;
	assert_false(pp_order_run(hand->w.arena, &hand->problem, hand->w.schedule.rows, false, &hand->times));
	free_hand(hand);
}

/* Times and bytes beyond 64 bits stop there. */
static void saturated(void **state)
{
	(void)state;
	struct hand *hand = make_hand(2, NULL, 2, "F0 F1 B0 B1\nF0 B0 F1 B1\n");
	hand->stage[0].ticks[PP_F] = UINT64_MAX;
	hand->stage[0].held = UINT64_MAX - 1;
	run_hand(hand);
	assert_true(hand->times.makespan == UINT64_MAX - 1);
	assert_true(hand->times.rank[0].peak == UINT64_MAX);
	assert_true(hand->times.fits);
	free_hand(hand);
}

/* ---- against the simulator ------------------------------------------------------------------- */

/* Does every message start on its way when its value is made and the one before it is there? Else its channel was full.
 */
static bool flows(struct pp_arena *arena, const struct pp_program *program, const struct pp_sim *sim)
{
	uint64_t *busy = PP_NEW_ARRAY(arena, uint64_t, program->channel_count);
	size_t values = (size_t)program->stage_count * program->microbatches;
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_stream *stream = &program->programs[0].streams[r];
		uint64_t *made[PP_VALUE_COUNT] = {PP_NEW_ARRAY(arena, uint64_t, values), PP_NEW_ARRAY(arena, uint64_t, values)};
		uint64_t *half = NULL; /* what the first of a pair makes is there when the second ends */
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			size_t value = (size_t)instr->stage * program->microbatches + instr->mb;
			bool makes = instr->op == PP_OP_FWD || instr->op == PP_OP_BWD || instr->op == PP_OP_BWDI;
			uint64_t *at = makes ? &made[instr->op == PP_OP_FWD ? PP_ACT : PP_GRAD][value] : NULL;
			if (at)
				*at = sim->instr[r][i].end;
			if (makes && half)
				*half = *at;
			if (makes)
				half = instr->flags & PP_PAIR ? at : NULL;
			if (instr->op != PP_OP_SEND)
				continue;
			uint64_t there = made[program->channels[instr->a[0]].kind][value], *free = &busy[instr->a[0]];
			if (sim->instr[r][i].start != (there > *free ? there : *free))
				return false;
			*free = sim->instr[r][i].end;
		}
	}
	return true;
}

static void assert_as_simulated(struct pp_arena *arena, const struct pp_program *program, const char *what,
                                uint64_t seed, uint32_t *equal)
{
	struct pp_sim sim;
	struct pp_order_times times;
	const struct pp_order_problem *problem = pp_order_of_program(arena, program);
	const struct pp_row *rows = pp_order_rows_of(arena, program, &program->programs[0]);
	assert_true(pp_simulate(arena, program, &program->programs[0], PP_LAYOUT_CHANNEL, true, &sim));
	assert_true(pp_order_run(arena, problem, rows, false, &times));
	if (times.makespan > sim.makespan)
		fail_msg("%s %llu: the order takes longer than the program", what, (unsigned long long)seed);
	bool same = times.makespan == sim.makespan && times.longest_span == sim.longest_span;
	for (uint32_t r = 0; r < program->ranks; r++) {
		assert_int_equal(times.rank[r].busy, sim.rank[r].busy);
		assert_int_equal(times.rank[r].peak_stashes, sim.rank[r].peak_stashes);
		same &= times.rank[r].first == sim.rank[r].first && times.rank[r].last == sim.rank[r].last;
	}
	if (flows(arena, program, &sim) && !same)
		fail_msg("%s %llu: times differ", what, (unsigned long long)seed);
	*equal += same;
}

/* Random orders, costs, links and recomputes, lowered: every tick is equal, as channels are as deep as it takes. */
static void lowered_programs(void **state)
{
	(void)state;
	static const enum pp_lowered orders[] = {PP_LOWERED_END, PP_LOWERED_FREE};
	uint32_t equal = 0;
	for (uint64_t seed = 0; seed < 800; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		if (seed % 4 > 1)
			pair_some(&w);
		draw_program(&w);
		w.program.cost.pair_permille = 500 + 100 * draw(&w, 6);
		w.program.lowering = (uint8_t)orders[seed % 2];
		lower(&w);
		assert_true(pp_plan_memory(&w.program, w.diag));
		assert_as_simulated(w.arena, &w.program, "random", seed, &equal);
		end_world(&w);
	}
	assert_int_equal(equal, 800);
}

/* Fast links, every stage the same: every tick is equal. */
static void families(void **state)
{
	(void)state;
	uint32_t equal = 0, all = 0;
	for (uint32_t p = 1; p <= 6; p++)
		for (uint32_t m = 1; m <= 2 * p; m++)
			for (unsigned family = 0; family < 4; family++) {
				struct pp_arena *arena = pp_arena_create(NULL);
				struct pp_schedule *schedule = family == 0   ? build_gpipe(arena, p, m)
				                               : family == 1 ? build_1f1b(arena, p, m)
				                               : family == 2 ? build_zb_h1(arena, p, m)
				                                             : build_interleaved(arena, p, 3, (m + p - 1) / p * p);
				struct world w = make_world(m);
				w.schedule = *schedule;
				make_program(&w, 90, 110, 70, m % 3 * 20);
				lower(&w);
				assert_true(pp_plan_memory(&w.program, w.diag));
				assert_as_simulated(w.arena, &w.program, "family", family, &equal);
				all++;
				end_world(&w);
				pp_arena_destroy(arena);
			}
	assert_int_equal(equal, all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_in_turn),        cmocka_unit_test(split_backwards), cmocka_unit_test(turn_of_a_v),
	    cmocka_unit_test(pairs_are_one_step), cmocka_unit_test(pairs_hold_both), cmocka_unit_test(recompute_hides),
	    cmocka_unit_test(room_and_cycles),    cmocka_unit_test(saturated),       cmocka_unit_test(lowered_programs),
	    cmocka_unit_test(families),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
