/* The orders of the lowering: end and lazy take the time that was foreseen, start is the better one where a rank does
 * one thing at a time, free is ideal whatever the costs turn out to be. The stamp says which queue layouts hold. */
#include "stream_judge.h"

#include "codegen/plan_memory.h"
#include "ir/simulate.h"
#include "ir/verify.h"

enum { ALL_LAYOUTS = PP_ALL_LAYOUTS };

static const enum pp_lowered orders[] = {PP_LOWERED_END, PP_LOWERED_LAZY, PP_LOWERED_START, PP_LOWERED_FREE};
enum { ORDERS = sizeof orders / sizeof *orders };

/* Lowered, planned and proven; returns the proven layouts. */
static uint32_t make(struct world *w, enum pp_lowered order)
{
	struct pp_stamp stamp;
	w->program.lowering = (uint8_t)order;
	lower(w);
	assert_int_equal(w->program.lowering, order);
	assert_true(pp_plan_memory(&w->program, w->diag));
	if (!pp_verify(&w->program, &stamp, w->diag))
		fail_msg("rejected:\n%s", diagnostics(w));
	/* Starts in order are one more reason to wait, and the finest layout has the fewest. */
	assert_int_equal(stamp.in_order & ~stamp.layouts, 0);
	assert_true(stamp.in_order == 0 || stamp.in_order >> PP_LAYOUT_CHANNEL & 1);
	assert_true(stamp.layouts != ALL_LAYOUTS || stamp.in_order == ALL_LAYOUTS);
	return stamp.layouts;
}

static uint64_t time_of(struct world *w, enum pp_layout layout)
{
	struct pp_sim sim;
	return pp_simulate(w->arena, &w->program, &w->program.programs[0], layout, false, &sim) ? sim.makespan : 0;
}

static void family_world(struct world *w, unsigned family, uint64_t latency)
{
	*w = make_world(family);
	write_family(w, family, 4, 12);
	make_program(w, 100, 100, 100, latency);
}

/* ---- times ----------------------------------------------------------------------------------- */

static void end_and_lazy_take_the_ideal_time(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned family = 0; family < FAMILIES; family++)
			for (uint64_t latency = 0; latency <= 60; latency += 20) {
				struct world w;
				family_world(&w, family, latency);
				assert_int_equal(make(&w, orders[i]), ALL_LAYOUTS);
				assert_int_equal(time_of(&w, PP_LAYOUT_CHANNEL), ideal_time(&w));
				assert_int_equal(run_time(&w), ideal_time(&w));
				end_world(&w);
			}
		for (uint64_t seed = 0; seed < 500; seed++) {
			struct world w = make_world(seed);
			draw_schedule(&w, 6, 9, 4);
			draw_program(&w);
			assert_int_equal(make(&w, orders[i]), ALL_LAYOUTS);
			if (time_of(&w, PP_LAYOUT_CHANNEL) != ideal_time(&w))
				fail_msg("seed %u: not the ideal time", (unsigned)seed);
			end_world(&w);
		}
	}
}

/* The queues have the same order in both, but in the streams of lazy no post stands later. */
static void lazy_posts_earlier(void **state)
{
	(void)state;
	uint64_t before = 0, after = 0;
	for (unsigned family = 0; family < FAMILIES; family++) {
		struct world w[2];
		for (unsigned i = 0; i < 2; i++) {
			family_world(&w[i], family, 20);
			make(&w[i], orders[i]);
		}
		for (uint32_t r = 0; r < 4; r++) {
			const struct pp_stream *x = &w[0].program.programs[0].streams[r], *y = &w[1].program.programs[0].streams[r];
			uint32_t i = 0, j = 0, computes[2] = {0, 0};
			for (;; i++, j++) {
				for (; i < x->count && x->items[i].op != PP_OP_SEND && x->items[i].op != PP_OP_RECV; i++)
					computes[0] += x->items[i].op <= PP_OP_BWDW && x->items[i].op != PP_OP_LOAD;
				for (; j < y->count && y->items[j].op != PP_OP_SEND && y->items[j].op != PP_OP_RECV; j++)
					computes[1] += y->items[j].op <= PP_OP_BWDW && y->items[j].op != PP_OP_LOAD;
				if (i == x->count || j == y->count)
					break;
				assert_int_equal(x->items[i].op, y->items[j].op);
				assert_int_equal(x->items[i].a[0], y->items[j].a[0]);
				assert_int_equal(x->items[i].a[1], y->items[j].a[1]);
				assert_true(computes[1] <= computes[0]);
				before += computes[0];
				after += computes[1];
			}
			assert_true(i == x->count && j == y->count);
		}
		end_world(&w[0]);
		end_world(&w[1]);
	}
	assert_true(after < before);
}

/* Mean time over the ideal one, of the families, where posts block. */
static double blocking_ratio(enum pp_lowered order, uint64_t latency)
{
	double sum = 0;
	for (unsigned family = 0; family < FAMILIES; family++) {
		struct world w;
		family_world(&w, family, latency);
		assert_int_equal(make(&w, order), ALL_LAYOUTS);
		sum += (double)time_of(&w, PP_LAYOUT_BLOCKING) / (double)ideal_time(&w);
		end_world(&w);
	}
	return sum / FAMILIES;
}

static void start_is_the_order_for_transports_that_block(void **state)
{
	(void)state;
	for (uint64_t latency = 0; latency <= 10; latency += 5) {
		double end = blocking_ratio(PP_LOWERED_END, latency), lazy = blocking_ratio(PP_LOWERED_LAZY, latency),
		       start = blocking_ratio(PP_LOWERED_START, latency);
		printf("  latency %2u: end %.3f, lazy %.3f, start %.3f times the ideal time\n", (unsigned)latency, end, lazy,
		       start);
		assert_true(start <= 1.22 && start < end - 0.15 && start < lazy - 0.15);
	}
	static const unsigned exact[] = {0, 1, 3};
	for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) { /* no latency: nothing is lost at all */
		struct world w;
		family_world(&w, exact[i], 0);
		make(&w, PP_LOWERED_START);
		assert_int_equal(time_of(&w, PP_LAYOUT_BLOCKING), ideal_time(&w));
		end_world(&w);
	}
	for (uint64_t seed = 0; seed < 500; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		draw_program(&w);
		assert_int_equal(make(&w, PP_LOWERED_START), ALL_LAYOUTS);
		assert_true(time_of(&w, PP_LAYOUT_CHANNEL) >= ideal_time(&w));
		end_world(&w);
	}
}

/* Every compute half as long to half as long again as was said: free still loses nothing, as long as a transfer takes
 * no longer than the shortest of them; the others, whose order was chosen for other costs, do. */
static void free_is_ideal_whatever_the_costs(void **state)
{
	(void)state;
	double lost = 0;
	for (uint64_t seed = 0; seed < 600; seed++) {
		struct world w[2];
		for (unsigned i = 0; i < 2; i++) {
			w[i] = make_world(seed);
			if (seed < 100)
				write_family(&w[i], (unsigned)seed % FAMILIES, 2 + (uint32_t)seed % 4,
				             (2 + (uint32_t)seed % 4) * (1 + (uint32_t)seed % 3));
			else
				draw_schedule(&w[i], 6, 9, 4);
			make_program(&w[i], 100, 100, 100, 10 * (seed % 6));
			make(&w[i], i ? PP_LOWERED_END : PP_LOWERED_FREE);
			uint64_t random = seed;
			for (uint32_t s = 0; s < w[i].program.stage_count; s++)
				for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
					w[i].program.stages[s].ticks[phase] = 50 + random_below(&random, 101);
		}
		uint64_t ideal = ideal_time(&w[0]), other = time_of(&w[1], PP_LAYOUT_CHANNEL);
		if (time_of(&w[0], PP_LAYOUT_CHANNEL) != ideal)
			fail_msg("seed %u: %u, ideal %u", (unsigned)seed, (unsigned)time_of(&w[0], PP_LAYOUT_CHANNEL),
			         (unsigned)ideal);
		assert_true(other >= ideal);
		lost += (double)other / (double)ideal - 1;
		end_world(&w[0]);
		end_world(&w[1]);
	}
	printf("  order end loses %.2f %% on average where free loses nothing\n", lost / 6);
	assert_true(lost > 0);
}

/* ---- proofs and memory ----------------------------------------------------------------------- */

/* A layout is in the stamp exactly if a run in it finishes. `channel` always is; with free some others are not. */
static void stamps_name_the_layouts_that_hold(void **state)
{
	(void)state;
	uint32_t held[PP_LAYOUT_COUNT] = {0};
	enum { SEEDS = 300 };
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct world w = make_world(seed);
		if (seed < 2 * FAMILIES)
			write_family(&w, (unsigned)seed % FAMILIES, 4, 4 + 4 * (uint32_t)(seed / FAMILIES));
		else
			draw_schedule(&w, 6, 9, 4);
		make_program(&w, 100, 100, 100, 10);
		uint32_t layouts = make(&w, PP_LOWERED_FREE);
		for (unsigned layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			assert_int_equal(layouts >> layout & 1, time_of(&w, (enum pp_layout)layout) != 0);
			held[layout] += layouts >> layout & 1;
		}
		if (seed == FAMILIES + 1) /* 1f1b: two channels between neighbours, but one a direction */
			assert_int_equal(layouts, 1 << PP_LAYOUT_CHANNEL | 1 << PP_LAYOUT_EDGE);
		end_world(&w);
	}
	assert_int_equal(held[PP_LAYOUT_CHANNEL], SEEDS);
	for (unsigned layout = PP_LAYOUT_EDGE; layout < PP_LAYOUT_COUNT; layout++)
		assert_true(held[layout] < SEEDS);
}

/* Sends are confirmed by messages that come back, so free keeps about as many values as the others. */
static void free_does_not_hoard_outputs(void **state)
{
	(void)state;
	uint64_t most[ORDERS];
	for (unsigned i = 0; i < ORDERS; i++) {
		struct world w = make_world(1);
		write_interleaved(&w, 4, 1, 64);
		make_program(&w, 100, 100, 100, 10);
		make(&w, orders[i]);
		most[i] = 0;
		for (uint32_t r = 0; r < 4; r++)
			most[i] = w.program.rank[r].arena_bytes > most[i] ? w.program.rank[r].arena_bytes : most[i];
		end_world(&w);
	}
	assert_true(most[3] <= most[0] + 6 * 256); /* six outputs more, of 64 microbatches */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(end_and_lazy_take_the_ideal_time),
	    cmocka_unit_test(lazy_posts_earlier),
	    cmocka_unit_test(start_is_the_order_for_transports_that_block),
	    cmocka_unit_test(free_is_ideal_whatever_the_costs),
	    cmocka_unit_test(stamps_name_the_layouts_that_hold),
	    cmocka_unit_test(free_does_not_hoard_outputs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
