/* The check of schedules: whole messages for every way to be wrong, the shortest cycle and moves that break it. */
#include "lowering_fixture.h"

static void assert_rejected(struct world *w, const char *expected)
{
	assert_false(pp_schedule_check(w->arena, &w->schedule, w->diag));
	assert_string_equal(diagnostics(w), expected);
	end_world(w);
}

static void valid_schedules_pass(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		assert_true(pp_schedule_check(w.arena, &w.schedule, w.diag));
		assert_true(pp_diag_ok(w.diag));
		end_world(&w);
	}
}

static void count_is_short(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, NULL, 3, "F0 F1 B0 B1\nF0 B0 F1 B1 F2 B2\n");
	assert_rejected(&w, "error[E0603]: rank 0: `F` count is 2, wanted m = 3\n"
	                    "  --> rows.pipe:1:4\n"
	                    " 1 | F0 F1 B0 B1\n"
	                    "   |    ^^\n");
}

static void count_of_chunks(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, (const uint32_t[]){0, 0}, 2, "0F0 1F0 1B0 0B0 0F1 1F1 1B1\n");
	assert_rejected(&w, "error[E0603]: rank 0: `B` count is 3, wanted 2 chunks x m = 4\n"
	                    "  --> rows.pipe:1:25\n"
	                    " 1 | 0F0 1F0 1B0 0B0 0F1 1F1 1B1\n"
	                    "   |                         ^^^\n");
}

static void weights_are_missing(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 1, NULL, 2, "F0 I0 F1 I1 W0\n");
	assert_rejected(&w, "error[E0603]: rank 0: `W` count is 1, wanted 2, one for each `I`\n"
	                    "  --> rows.pipe:1:13\n"
	                    " 1 | F0 I0 F1 I1 W0\n"
	                    "   |             ^^\n"
	                    "   = help: `B` is the whole backward; `I` leaves the weight gradient to a later `W`\n");
}

static void empty_row(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, NULL, 1000000000, "F0\n\n");
	assert_rejected(&w, "error[E0603]: rank 0: `F` count is 1, wanted m = 1000000000\n"
	                    "  --> rows.pipe:1:1\n"
	                    " 1 | F0\n"
	                    "   | ^^\n"
	                    "error[E0603]: rank 1: `F` count is 0, wanted m = 1000000000\n");
}

static void listed_twice(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 1, NULL, 3, "F0 F1 F1 B0 B1 B2\n");
	assert_rejected(&w, "error[E0603]: rank 0: `F1` is listed twice\n"
	                    "  --> rows.pipe:1:7\n"
	                    " 1 | F0 F1 F1 B0 B1 B2\n"
	                    "   |    -- first listed here\n"
	                    "   |       ^^\n"
	                    "   = note: `F2` is not listed\n");
}

static void two_backwards(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, (const uint32_t[]){0, 0}, 1, "0F0 1F0 1B0 1I0 1W0\n");
	assert_rejected(&w, "error[E0603]: rank 0: `I0.1` repeats the input gradient of `B0.1`\n"
	                    "  --> rows.pipe:1:13\n"
	                    " 1 | 0F0 1F0 1B0 1I0 1W0\n"
	                    "   |         --- first listed here\n"
	                    "   |             ^^^\n"
	                    "   = note: `B0.0` is not listed\n");
}

static void weight_before_input_gradient(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 1, NULL, 2, "F0 F1 I0 W1 I1 W0\n");
	assert_rejected(&w, "error[E0606]: rank 0: `W1` comes before `I1`\n"
	                    "  --> rows.pipe:1:10\n"
	                    " 1 | F0 F1 I0 W1 I1 W0\n"
	                    "   |          ^^\n"
	                    "   |             -- `I1` is listed here\n"
	                    "   = help: move `W1` behind `I1`\n");
}

static void weight_without_input_gradient(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 1, NULL, 2, "F0 F1 I0 B1 W1\n");
	assert_rejected(&w, "error[E0603]: rank 0: `W1` has no `I1`\n"
	                    "  --> rows.pipe:1:13\n"
	                    " 1 | F0 F1 I0 B1 W1\n"
	                    "   |             ^^\n");
}

static void wrong_rank_and_range(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 3, NULL, 2, "F0 1B0\n1F2\n7F0\n");
	assert_rejected(&w, "error[E0609]: rank 0: action `1B0`: stage 1 is on rank 1\n"
	                    "  --> rows.pipe:1:4\n"
	                    " 1 | F0 1B0\n"
	                    "   |    ^^^\n"
	                    "   = help: move the action to the row of rank 1, or place stage 1 on rank 0\n"
	                    "error[E0603]: rank 1: `F2`: there is no microbatch 2\n"
	                    "  --> rows.pipe:2:1\n"
	                    " 2 | 1F2\n"
	                    "   | ^^^\n"
	                    "   = help: microbatches are 0..1 (m = 2)\n"
	                    "error[E0609]: rank 2: action `7F0`: there is no stage 7\n"
	                    "  --> rows.pipe:3:1\n"
	                    " 3 | 7F0\n"
	                    "   | ^^^\n"
	                    "   = help: stages are 0..2\n");
}

static void cycle_of_four(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 3, NULL, 4, "F0 F1 F2 B0 F3 B1 B2 B3\nF0 F1 B0 F2 B1 F3 B2 B3\nF0 F1 F2 B0 F3 B1 B2 B3\n");
	assert_rejected(&w, "error[E0605]: this order can never finish: 4 actions wait for each other\n"
	                    "  --> rows.pipe:3:7\n"
	                    " 2 | F0 F1 B0 F2 B1 F3 B2 B3\n"
	                    "   |       --\n"
	                    "   |          -- (1) F2 is listed after B0\n"
	                    " 3 | F0 F1 F2 B0 F3 B1 B2 B3\n"
	                    "   |       ^^\n"
	                    "   |          -- (2) B0 is listed after F2\n"
	                    "   = waits for: rank2.F2 -> rank1.F2 (activation) -> rank1.B0 (row order) -> rank2.B0 "
	                    "(gradient) -> rank2.F2 (row order)\n"
	                    "   = help: on rank 2 move `B0` before `F2`, or on rank 1 move `F2` before `B0`; another cycle "
	                    "follows this one\n");
}

static void moves_that_mend_everything(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, NULL, 2, "F0 B0 F1 B1\nF0 F1 B0 B1\n");
	assert_rejected(&w, "error[E0605]: this order can never finish: 4 actions wait for each other\n"
	                    "  --> rows.pipe:2:4\n"
	                    " 1 | F0 B0 F1 B1\n"
	                    "   |    --\n"
	                    "   |       -- (1) F1 is listed after B0\n"
	                    " 2 | F0 F1 B0 B1\n"
	                    "   |    ^^\n"
	                    "   |       -- (2) B0 is listed after F1\n"
	                    "   = waits for: rank1.F1 -> rank0.F1 (activation) -> rank0.B0 (row order) -> rank1.B0 "
	                    "(gradient) -> rank1.F1 (row order)\n"
	                    "   = help: on rank 1 move `B0` before `F1`, or on rank 0 move `F1` before `B0`\n");
}

static void cycle_on_one_rank(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, (const uint32_t[]){0, 0}, 1, "1F0 0F0 1B0 0B0\n");
	assert_rejected(&w, "error[E0605]: this order can never finish: 2 actions wait for each other\n"
	                    "  --> rows.pipe:1:1\n"
	                    " 1 | 1F0 0F0 1B0 0B0\n"
	                    "   | ^^^\n"
	                    "   |     --- (1) F0.0 is listed after F0.1\n"
	                    "   = waits for: rank0.F0.1 -> rank0.F0.0 (activation) -> rank0.F0.1 (row order)\n"
	                    "   = help: on rank 0 move `F0.0` before `F0.1`\n");
}

/* The heads of the rows are in a cycle of four; far behind them on rank 1 stands one of two. */
static void shortest_cycle_is_behind_the_heads(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 3, (const uint32_t[]){0, 1, 1}, 3,
	               "F0 B0 F1 B1 F2 B2\n1F0 1F1 2F0 2B0 1B0 2F1 2B1 1B1 2F2 1F2 2B2 1B2\n");
	assert_false(pp_schedule_check(w.arena, &w.schedule, w.diag));
	assert_non_null(
	    strstr(diagnostics(&w), "waits for: rank1.F2.1 -> rank1.F2.0 (activation) -> rank1.F2.1 (row order)\n"));
	end_world(&w);
}

/* Random swaps in valid schedules: verdict against a naive run. */
static bool naive_finishes(const struct pp_schedule *schedule)
{
	uint32_t position[16] = {0};
	static bool made[2][64][16];
	memset(made, 0, sizeof made);
	bool moved = true;
	while (moved) {
		moved = false;
		for (uint32_t rank = 0; rank < schedule->ranks; rank++)
			while (position[rank] < schedule->rows[rank].count) {
				const struct pp_action *action = &schedule->rows[rank].actions[position[rank]];
				bool forward = action->kind == PP_F;
				if (forward && action->stage > 0 && !made[1][action->stage - 1][action->mb])
					break;
				if ((action->kind == PP_B || action->kind == PP_I) && action->stage + 1 < schedule->stages &&
				    !made[0][action->stage + 1][action->mb])
					break;
				if (action->kind != PP_W)
					made[forward][action->stage][action->mb] = true;
				position[rank]++;
				moved = true;
			}
	}
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		if (position[rank] < schedule->rows[rank].count)
			return false;
	return true;
}

static void verdicts_agree_with_a_naive_run(void **state)
{
	(void)state;
	uint32_t rejected = 0;
	for (uint64_t seed = 0; seed < 1500; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 4, 6, 3);
		struct pp_row *row = &w.schedule.rows[draw(&w, w.schedule.ranks)];
		for (uint32_t swaps = draw(&w, 4); swaps > 0 && row->count; swaps--) {
			uint32_t a = draw(&w, row->count), b = draw(&w, row->count);
			struct pp_action kept = row->actions[a];
			row->actions[a] = row->actions[b];
			row->actions[b] = kept;
		}
		bool accepted = pp_schedule_check(w.arena, &w.schedule, w.diag);
		const char *text = diagnostics(&w);
		if (!strstr(text, "E0606")) {
			assert_int_equal(accepted, naive_finishes(&w.schedule));
			assert_int_equal(accepted, strstr(text, "E0605") == NULL);
			rejected += !accepted;
		}
		end_world(&w);
	}
	assert_true(rejected > 100);
}

static void pairs_that_can_never_begin(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, NULL, 2, "F0 F1 B0 B1\nF0 B0 F1 B1\n");
	w.schedule.rows[0].actions[1].paired = true; /* B0 needs nothing that F1 leads to */
	assert_true(pp_schedule_check(w.arena, &w.schedule, w.diag));
	w.schedule.rows[1].actions[1].paired = true; /* but F1 is not made before B0 of rank 1 has ended */
	assert_rejected(&w,
	                "error[E0624]: rank 0: `F1&B0` can never begin\n"
	                "  --> rows.pipe:1:4\n"
	                " 1 | F0 F1 B0 B1\n"
	                "   |    ^^\n"
	                "   = note: actions that overlap begin when the inputs of both are there, and one of them waits "
	                "for the other\n"
	                "   = help: write one after the other, without `&`\n");
}

static void pairs_that_are_none(void **state)
{
	(void)state;
	static const struct {
		uint32_t first, second;
		const char *message;
	} cases[] = {
	    {3, 3, "error[E0624]: rank 0: `0B1` can't overlap with the next action: there is no action after it\n"},
	    {1, 2, "error[E0624]: rank 0: `0F1` can't overlap with the next action: only two actions can overlap\n"},
	    {0, 0,
	     "error[E0624]: rank 0: `0F0` can't overlap with the next action: both are of one microbatch in one stage\n"},
	    {2, 2,
	     "error[E0624]: rank 0: `0B0` can't overlap with the next action: both work on the gradients of one stage\n"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct world w = make_world(0);
		write_schedule(&w, 1, NULL, 2, i == 2 ? "F0 B0 F1 B1\n" : "F0 F1 B0 B1\n");
		w.schedule.rows[0].actions[cases[i].first].paired = true;
		w.schedule.rows[0].actions[cases[i].second].paired = true;
		assert_false(pp_schedule_check(w.arena, &w.schedule, w.diag));
		assert_memory_equal(diagnostics(&w), cases[i].message, strlen(cases[i].message));
		end_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(valid_schedules_pass),
	    cmocka_unit_test(count_is_short),
	    cmocka_unit_test(count_of_chunks),
	    cmocka_unit_test(weights_are_missing),
	    cmocka_unit_test(empty_row),
	    cmocka_unit_test(listed_twice),
	    cmocka_unit_test(two_backwards),
	    cmocka_unit_test(weight_before_input_gradient),
	    cmocka_unit_test(weight_without_input_gradient),
	    cmocka_unit_test(wrong_rank_and_range),
	    cmocka_unit_test(cycle_of_four),
	    cmocka_unit_test(moves_that_mend_everything),
	    cmocka_unit_test(cycle_on_one_rank),
	    cmocka_unit_test(shortest_cycle_is_behind_the_heads),
	    cmocka_unit_test(verdicts_agree_with_a_naive_run),
	    cmocka_unit_test(pairs_that_can_never_begin),
	    cmocka_unit_test(pairs_that_are_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
