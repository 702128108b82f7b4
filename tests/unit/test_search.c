/* The search for orders: its inner evaluation against pp_order_run, its results against brute force, memory, bounds and
 * itself. */
#include "compiler/search/packed.h"
#include "compiler/search/search.h"
#include "ir/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 8, MOST_STAGES = 24 };

struct fixture {
	struct pp_arena *arena;
	struct pp_order_stage stage[MOST_STAGES];
	uint64_t room[MOST_RANKS];
	struct pp_order_problem problem;
	uint64_t random;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	f->arena = pp_arena_create(NULL);
	f->random = 88172645463325252u;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	pp_arena_destroy(f->arena);
	free(f);
	return 0;
}

static uint32_t below(struct fixture *f, uint32_t bound)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return (uint32_t)(f->random >> 20) % bound;
}

/* ---- problems -------------------------------------------------------------------------------- */

static void begin(struct fixture *f, uint32_t ranks, uint32_t chunks, uint32_t microbatches, bool v)
{
	f->problem = (struct pp_order_problem){
	    .ranks = ranks,
	    .stages = ranks * chunks,
	    .microbatches = microbatches,
	    .stage = f->stage,
	    .room = f->room,
	    .pair_permille = 1000,
	};
	for (uint32_t s = 0; s < f->problem.stages; s++) {
		uint32_t r = s % ranks;
		f->stage[s] = (struct pp_order_stage){.rank = v && s / ranks % 2 ? ranks - 1 - r : r};
	}
	for (uint32_t r = 0; r < ranks; r++)
		f->room[r] = PP_ROOM_UNLIMITED;
}

static void cost(struct pp_order_stage *stage, uint64_t forward, uint64_t input, uint64_t weight)
{
	stage->ticks[PP_F] = forward;
	stage->ticks[PP_I] = input;
	stage->ticks[PP_W] = weight;
	stage->ticks[PP_B] = input + weight;
}

/* Equal stages of one unit each way, with `limit` activations of room on every rank. */
static void even_problem(struct fixture *f, uint32_t ranks, uint32_t chunks, uint32_t microbatches, bool v,
                         uint64_t hop, uint64_t limit)
{
	begin(f, ranks, chunks, microbatches, v);
	for (uint32_t s = 0; s < f->problem.stages; s++) {
		cost(&f->stage[s], 1000, 1100, 700);
		f->stage[s].held = 100;
		f->stage[s].forward_hop = f->stage[s].backward_hop = hop;
	}
	for (uint32_t r = 0; limit && r < ranks; r++)
		f->room[r] = 100 * limit;
}

static void random_problem(struct fixture *f)
{
	uint32_t ranks = 1 + below(f, 4), chunks = 1 + below(f, 3);
	begin(f, ranks, chunks, 1 + below(f, 6), below(f, 2));
	for (uint32_t s = 0; s < f->problem.stages; s++) {
		struct pp_order_stage *stage = &f->stage[s];
		cost(stage, 1 + below(f, 50), 1 + below(f, 50), below(f, 50));
		stage->recompute = below(f, 3) ? 0 : below(f, 20);
		stage->forward_hop = below(f, 2) * below(f, 15);
		stage->backward_hop = below(f, 2) * below(f, 15);
		stage->held = 10 + below(f, 100);
		stage->early = below(f, 2) * below(f, (uint32_t)stage->held);
		stage->more_fused = below(f, 10);
		stage->more_split = below(f, 10);
	}
}

/* Enough for one microbatch at a time, and a little more. */
static uint64_t least_room(const struct fixture *f, uint32_t rank, bool fused)
{
	uint64_t held = 0, most = 0;
	for (uint32_t s = 0; s < f->problem.stages; s++) {
		const struct pp_order_stage *stage = &f->stage[s];
		if (stage->rank != rank)
			continue;
		held += stage->held;
		uint64_t here = held + (fused ? stage->more_fused : stage->more_split);
		most = here > most ? here : most;
	}
	return most;
}

/* Ranks take any action that is ready, at random: an order that finishes. */
static void random_order(struct fixture *f, bool fused, struct pp_row *rows)
{
	const struct pp_order_problem *problem = &f->problem;
	uint32_t m = problem->microbatches, next[MOST_STAGES][PP_ACTION_KINDS] = {0};
	uint32_t left = problem->stages * m * (fused ? 2 : 3);
	uint8_t backward = fused ? PP_B : PP_I;
	for (uint32_t r = 0; r < problem->ranks; r++)
		rows[r] = (struct pp_row){.actions = PP_NEW_ARRAY(f->arena, struct pp_action, left)};
	while (left) {
		uint32_t s = below(f, problem->stages), kind = below(f, 3);
		kind = kind == 0 ? PP_F : kind == 1 ? backward : PP_W;
		uint32_t mb = next[s][kind];
		bool ready = mb < m && !(fused && kind == PP_W);
		if (kind == PP_F)
			ready &= s == 0 || next[s - 1][PP_F] > mb;
		else if (kind == backward)
			ready &= next[s][PP_F] > mb && (s + 1 == problem->stages || next[s + 1][backward] > mb);
		else
			ready &= next[s][PP_I] > mb;
		if (!ready)
			continue;
		struct pp_row *row = &rows[f->stage[s].rank];
		row->actions[row->count++] =
		    (struct pp_action){.stage = s, .mb = mb, .kind = (uint8_t)kind, .span = PP_NO_SPAN};
		next[s][kind]++;
		left--;
	}
}

static struct pp_order_times run(struct fixture *f, const struct pp_row *rows)
{
	struct pp_order_times times;
	assert_true(pp_order_run(f->arena, &f->problem, rows, false, &times));
	return times;
}

/* ---- the inner evaluation -------------------------------------------------------------------- */

static void agrees_with_order_run(void **state)
{
	struct fixture *f = *state;
	for (unsigned i = 0; i < 2000; i++) {
		struct pp_row rows[MOST_RANKS];
		bool fused = below(f, 2), span = below(f, 2);
		random_problem(f);
		for (uint32_t r = 0; r < f->problem.ranks; r++)
			f->room[r] = least_room(f, r, fused) + below(f, 300);
		random_order(f, fused, rows);
		struct pp_order_times times = run(f, rows);
		struct pp_packed *packed = pp_pack(f->arena, &f->problem, fused, span);
		uint32_t *order = PP_NEW_ARRAY(f->arena, uint32_t, packed->actions);
		struct pp_packed_times *fast = pp_packed_times_make(f->arena, packed);
		assert_true(pp_packed_read(packed, rows, order));
		assert_true(pp_packed_run(packed, order, fast));
		assert_int_equal(fast->makespan, times.makespan);
		assert_int_equal(fast->span, times.longest_span);
		assert_int_equal(fast->value, span ? times.longest_span : times.makespan);
		assert_int_equal(pp_packed_fits(packed, order), times.fits);
		struct pp_row again[MOST_RANKS];
		pp_packed_write(f->arena, packed, order, again);
		for (uint32_t r = 0; r < f->problem.ranks; r++) {
			assert_int_equal(again[r].count, rows[r].count);
			for (uint32_t k = 0; k < rows[r].count; k++) {
				assert_int_equal(again[r].actions[k].stage, rows[r].actions[k].stage);
				assert_int_equal(again[r].actions[k].mb, rows[r].actions[k].mb);
				assert_int_equal(again[r].actions[k].kind, rows[r].actions[k].kind);
			}
		}
	}
}

static void sees_a_cycle(void **state)
{
	struct fixture *f = *state;
	even_problem(f, 2, 1, 1, false, 0, 0);
	struct pp_packed *packed = pp_pack(f->arena, &f->problem, true, false);
	uint32_t order[] = {pp_action_id(packed, 0, 0, PP_B), pp_action_id(packed, 0, 0, PP_F),
	                    pp_action_id(packed, 1, 0, PP_F), pp_action_id(packed, 1, 0, PP_B)};
	assert_false(pp_packed_run(packed, order, pp_packed_times_make(f->arena, packed)));
}

/* ---- the search ------------------------------------------------------------------------------ */

static struct pp_search_report seek(struct fixture *f, struct pp_search_options options, struct pp_row *rows)
{
	struct pp_search_report report;
	if (options.effort == 0)
		options.effort = 200000;
	assert_true(pp_search(f->arena, &f->problem, &options, rows, &report));
	return report;
}

static void keeps_memory_and_bound(void **state)
{
	struct fixture *f = *state;
	for (unsigned i = 0; i < 100; i++) {
		struct pp_row rows[MOST_RANKS];
		struct pp_search_options options = {.seed = i, .fused = below(f, 2)};
		options.objective = below(f, 2) ? PP_SEEK_SPAN : PP_SEEK_TIME;
		random_problem(f);
		for (uint32_t r = 0; r < f->problem.ranks; r++)
			f->room[r] = least_room(f, r, options.fused) + below(f, 300);
		struct pp_search_report report = seek(f, options, rows);
		struct pp_order_times times = run(f, rows);
		uint64_t value = options.objective == PP_SEEK_SPAN ? times.longest_span : times.makespan;
		assert_true(times.fits);
		assert_int_equal(report.value, value);
		assert_true(value >= (options.objective == PP_SEEK_SPAN ? report.bound.span : report.bound.makespan));
		struct pp_schedule schedule = {.ranks = f->problem.ranks,
		                               .stages = f->problem.stages,
		                               .microbatches = f->problem.microbatches,
		                               .rows = rows,
		                               .stage_rank = PP_NEW_ARRAY(f->arena, uint32_t, f->problem.stages)};
		for (uint32_t s = 0; s < schedule.stages; s++)
			schedule.stage_rank[s] = f->stage[s].rank;
		struct pp_diag *diag = pp_diag_create(f->arena, pp_sources_create(f->arena));
		assert_true(pp_schedule_check(f->arena, &schedule, diag));
	}
}

static void same_again(void **state)
{
	struct fixture *f = *state;
	even_problem(f, 4, 2, 8, true, 100, 5);
	struct pp_row one[MOST_RANKS], two[MOST_RANKS];
	struct pp_search_options options = {.seed = 5};
	struct pp_search_report a = seek(f, options, one), b = seek(f, options, two);
	assert_int_equal(a.value, b.value);
	assert_int_equal(a.effort, b.effort);
	assert_string_equal(a.start, b.start);
	for (uint32_t r = 0; r < f->problem.ranks; r++) {
		assert_int_equal(one[r].count, two[r].count);
		for (uint32_t i = 0; i < one[r].count; i++) {
			assert_int_equal(one[r].actions[i].stage, two[r].actions[i].stage);
			assert_int_equal(one[r].actions[i].mb, two[r].actions[i].mb);
			assert_int_equal(one[r].actions[i].kind, two[r].actions[i].kind);
		}
	}
}

/* All orders of one rank with one stage, microbatches ascending. */
struct all_rows {
	struct pp_row rows[64];
	uint32_t count;
};

static void grow(struct fixture *f, struct all_rows *all, uint32_t stage, uint32_t counts[3],
                 const struct pp_action *actions, uint32_t count)
{
	uint32_t m = f->problem.microbatches;
	static const uint8_t kinds[] = {PP_F, PP_I, PP_W};
	if (count == 3 * m) {
		struct pp_row *row = &all->rows[all->count++];
		row->actions = PP_NEW_ARRAY(f->arena, struct pp_action, count);
		row->count = count;
		memcpy(row->actions, actions, count * sizeof *actions);
		return;
	}
	for (unsigned k = 0; k < 3; k++) {
		if (counts[k] == m || (k > 0 && counts[k] >= counts[k - 1]))
			continue;
		struct pp_action longer[16];
		memcpy(longer, actions, count * sizeof *actions);
		longer[count] = (struct pp_action){.stage = stage, .mb = counts[k], .kind = kinds[k], .span = PP_NO_SPAN};
		counts[k]++;
		grow(f, all, stage, counts, longer, count + 1);
		counts[k]--;
	}
}

static uint64_t best_of_all(struct fixture *f, bool span)
{
	struct all_rows *all = PP_NEW_ARRAY(f->arena, struct all_rows, f->problem.ranks);
	uint64_t best = UINT64_MAX;
	for (uint32_t r = 0; r < f->problem.ranks; r++) {
		struct pp_action none[1] = {{0}};
		grow(f, &all[r], r, (uint32_t[3]){0}, none, 0);
	}
	for (uint32_t i = 0; i < all[0].count; i++)
		for (uint32_t k = 0; k < all[1].count; k++) {
			struct pp_row rows[] = {all[0].rows[i], all[1].rows[k]};
			struct pp_order_times times;
			struct pp_arena *scratch = pp_arena_scratch(f->arena);
			if (pp_order_run(scratch, &f->problem, rows, false, &times) && times.fits) {
				uint64_t value = span ? times.longest_span : times.makespan;
				best = value < best ? value : best;
			}
			pp_arena_destroy(scratch);
		}
	return best;
}

static void finds_the_optimum(void **state)
{
	struct fixture *f = *state;
	for (unsigned i = 0; i < 24; i++) {
		begin(f, 2, 1, 2 + i % 2, false);
		for (uint32_t s = 0; s < 2; s++) {
			cost(&f->stage[s], 1 + below(f, 30), 1 + below(f, 30), 1 + below(f, 30));
			f->stage[s].held = 100;
			f->stage[s].early = below(f, 2) * 50;
			f->stage[s].more_split = below(f, 40);
			f->stage[s].forward_hop = f->stage[s].backward_hop = below(f, 10);
			f->room[s] = 140 + below(f, 200);
		}
		struct pp_row rows[MOST_RANKS];
		bool span = i & 2;
		struct pp_search_options options = {.objective = span ? PP_SEEK_SPAN : PP_SEEK_TIME, .effort = 700000};
		f->stage[0].more_fused = f->stage[1].more_fused = 1000; /* so that no fused backward competes */
		struct pp_search_report report = seek(f, options, rows);
		assert_int_equal(report.value, best_of_all(f, span));
	}
}

/* ---- ends of the range ----------------------------------------------------------------------- */

static void says_what_is_missing(void **state)
{
	struct fixture *f = *state;
	struct pp_row rows[MOST_RANKS];
	struct pp_search_report report;
	even_problem(f, 3, 2, 4, true, 0, 2);
	f->stage[4].held = 130; /* on rank 1, with stage 1 */
	f->stage[4].more_split = 25;
	f->stage[4].more_fused = 60;
	f->room[1] = 254;
	struct pp_search_options options = {.effort = 100000};
	assert_false(pp_search(f->arena, &f->problem, &options, rows, &report));
	assert_int_equal(report.tight_rank, 1);
	assert_int_equal(report.least_room, 255);
	f->room[1] = 255;
	report = seek(f, options, rows);
	assert_true(run(f, rows).fits);
}

static void never_worse_than_its_start(void **state)
{
	struct fixture *f = *state;
	for (unsigned i = 0; i < 50; i++) {
		struct pp_row start[MOST_RANKS], rows[MOST_RANKS];
		random_problem(f);
		random_order(f, false, start);
		struct pp_order_times times = run(f, start);
		struct pp_search_options options = {.start = start, .start_name = "mine", .effort = 20000};
		assert_true(seek(f, options, rows).value <= times.makespan);
	}
}

/* A window is solved, then rolled out: every microbatch beyond costs little more than the work of the slowest rank. */
static void repeats_for_many_microbatches(void **state)
{
	struct fixture *f = *state;
	struct pp_row rows[MOST_RANKS];
	even_problem(f, 8, 1, 2000, false, 100, 8);
	struct pp_search_report report = seek(f, (struct pp_search_options){.effort = 3000000}, rows);
	assert_true(run(f, rows).fits);
	assert_true(report.value - report.bound.makespan <= report.bound.makespan / 100);
}

static void spares_memory(void **state)
{
	struct fixture *f = *state;
	struct pp_row fast[MOST_RANKS], lean[MOST_RANKS];
	even_problem(f, 4, 2, 12, true, 0, 0);
	struct pp_search_report a = seek(f, (struct pp_search_options){.objective = PP_SEEK_TIME}, fast);
	struct pp_search_report b = seek(f, (struct pp_search_options){.objective = PP_SEEK_MEMORY}, lean);
	uint64_t most_fast = 0, most_lean = 0;
	struct pp_order_times times_fast = run(f, fast), times_lean = run(f, lean);
	for (uint32_t r = 0; r < 4; r++) {
		most_fast = times_fast.rank[r].peak > most_fast ? times_fast.rank[r].peak : most_fast;
		most_lean = times_lean.rank[r].peak > most_lean ? times_lean.rank[r].peak : most_lean;
	}
	assert_true(most_lean < most_fast);
	assert_int_equal(b.held, most_lean);
	assert_int_equal(b.held_fastest, most_fast);
	assert_true(b.value <= a.value + a.value / 20);
}

static void one_rank_one_microbatch(void **state)
{
	struct fixture *f = *state;
	struct pp_row rows[MOST_RANKS];
	even_problem(f, 1, 1, 1, false, 0, 1);
	assert_int_equal(seek(f, (struct pp_search_options){0}, rows).value, 2800);
	even_problem(f, 1, 3, 2, false, 0, 3);
	assert_int_equal(seek(f, (struct pp_search_options){0}, rows).value, 16800);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(agrees_with_order_run, setup, teardown),
	    cmocka_unit_test_setup_teardown(sees_a_cycle, setup, teardown),
	    cmocka_unit_test_setup_teardown(keeps_memory_and_bound, setup, teardown),
	    cmocka_unit_test_setup_teardown(same_again, setup, teardown),
	    cmocka_unit_test_setup_teardown(finds_the_optimum, setup, teardown),
	    cmocka_unit_test_setup_teardown(says_what_is_missing, setup, teardown),
	    cmocka_unit_test_setup_teardown(never_worse_than_its_start, setup, teardown),
	    cmocka_unit_test_setup_teardown(repeats_for_many_microbatches, setup, teardown),
	    cmocka_unit_test_setup_teardown(spares_memory, setup, teardown),
	    cmocka_unit_test_setup_teardown(one_rank_one_microbatch, setup, teardown),
	};
	return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
