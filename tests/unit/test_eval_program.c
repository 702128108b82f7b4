/* The program `eval` of lowered schedules: proven and simulated like `train`, with which it shares the arena without
 * changing anything about it; outputs do not pile up in it. */
#include "lowering_fixture.h"

#include "codegen/plan_memory.h"
#include "ir/simulate.h"
#include "ir/verify.h"

enum { ALL_LAYOUTS = (1 << PP_LAYOUT_COUNT) - 1 };

static void plan(struct world *w, bool evaluates)
{
	struct pp_stamp stamp;
	w->spec.train.eval_steps = evaluates;
	lower(w);
	assert_int_equal(w->program.program_count, evaluates ? 2 : 1);
	if (!pp_verify(&w->program, &stamp, w->diag))
		fail_msg("rejected:\n%s", diagnostics(w));
	assert_true(pp_plan_memory(&w->program, w->diag));
	if (!pp_verify(&w->program, &stamp, w->diag))
		fail_msg("rejected:\n%s", diagnostics(w));
	assert_int_equal(stamp.layouts, ALL_LAYOUTS);
}

/* The forwards of the rows, in their order, and nothing else is computed. */
static void assert_forwards(const struct world *w)
{
	const struct pp_named_program *eval = pp_program_find(&w->program, "eval");
	for (uint32_t r = 0; r < w->program.ranks; r++) {
		const struct pp_row *row = &w->schedule.rows[r];
		uint32_t at = 0;
		for (uint32_t i = 0; i < eval->streams[r].count; i++) {
			const struct pp_instr *instr = &eval->streams[r].items[i];
			assert_true(instr->op <= PP_OP_FWD || instr->op >= PP_OP_SEND);
			if (instr->op != PP_OP_FWD)
				continue;
			while (row->actions[at].kind != PP_F)
				at++;
			assert_int_equal(instr->stage, row->actions[at].stage);
			assert_int_equal(instr->mb, row->actions[at++].mb);
		}
		for (; at < row->count; at++)
			assert_int_not_equal(row->actions[at].kind, PP_F);
	}
}

static void random_programs(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		draw_program(&w);
		plan(&w, true);
		assert_forwards(&w);
		for (int layout = 0; layout < PP_LAYOUT_COUNT; layout++) {
			struct pp_sim sim;
			assert_true(pp_simulate(w.arena, &w.program, &w.program.programs[1], (enum pp_layout)layout, false, &sim));
			assert_true(sim.bound.makespan <= sim.makespan);
			for (uint32_t r = 0; r < w.program.ranks; r++) {
				assert_true(sim.rank[r].peak_bytes <= w.program.rank[r].arena_bytes);
				assert_true(sim.rank[r].peak_stashes <= 1);
			}
		}
		end_world(&w);
	}
}

static const struct pp_slot *operand_slot(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr,
                                          unsigned i)
{
	const char digit[] = {(char)('1' + i), 0};
	return strpbrk(pp_op_table[instr->op].signature, digit) && instr->a[i] != PP_NULL
	           ? &program->rank[rank].slots[instr->a[i]]
	           : NULL;
}

/* `train` has the same instructions on the same bytes whether there is an `eval` beside it or not. */
static void train_lies_as_if_alone(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct world alone = make_world(seed), beside = make_world(seed);
		struct world *worlds[] = {&alone, &beside};
		for (int i = 0; i < 2; i++) {
			draw_schedule(worlds[i], 6, 9, 4);
			draw_program(worlds[i]);
			plan(worlds[i], i);
		}
		for (uint32_t r = 0; r < alone.program.ranks; r++) {
			const struct pp_stream *x = &alone.program.programs[0].streams[r],
			                       *y = &beside.program.programs[0].streams[r];
			assert_int_equal(x->count, y->count);
			assert_true(beside.program.rank[r].arena_bytes >= alone.program.rank[r].arena_bytes);
			assert_int_equal(beside.program.rank[r].static_bytes, alone.program.rank[r].static_bytes);
			for (uint32_t i = 0; i < x->count; i++) {
				assert_int_equal(x->items[i].op, y->items[i].op);
				assert_int_equal(x->items[i].stage, y->items[i].stage);
				assert_int_equal(x->items[i].mb, y->items[i].mb);
				for (unsigned k = 0; k < 4; k++) {
					const struct pp_slot *a = operand_slot(&alone.program, r, &x->items[i], k),
					                     *b = operand_slot(&beside.program, r, &y->items[i], k);
					assert_true(!a == !b);
					assert_true(!a || (a->offset == b->offset && a->bytes == b->bytes && a->class == b->class));
				}
			}
		}
		end_world(&alone);
		end_world(&beside);
	}
}

/* A last stage three times as slow as the others sets the pace; the first rank waits instead of keeping its outputs, so
 * evaluation takes no more memory than training. */
static void outputs_do_not_pile_up(void **state)
{
	(void)state;
	enum { RANKS = 4, MICROBATCHES = 64 };
	uint64_t arena[2][RANKS];
	for (int evaluates = 0; evaluates < 2; evaluates++) {
		struct world w = make_world(1);
		write_interleaved(&w, RANKS, 1, MICROBATCHES);
		make_program(&w, 100, 100, 100, 10);
		w.program.stages[RANKS - 1].ticks[PP_PHASE_F] = 300;
		plan(&w, evaluates);
		for (uint32_t r = 0; r < RANKS; r++)
			arena[evaluates][r] = w.program.rank[r].arena_bytes;
		struct pp_sim sim;
		assert_true(!evaluates ||
		            pp_simulate(w.arena, &w.program, &w.program.programs[1], PP_LAYOUT_CHANNEL, false, &sim));
		if (evaluates)
			assert_int_equal(sim.makespan, 3 * 110 + 300 * MICROBATCHES);
		end_world(&w);
	}
	for (uint32_t r = 0; r < RANKS; r++)
		assert_int_equal(arena[0][r], arena[1][r]);
}

/* All forwards of one chunk before those of the next: the ring of ranks keeps as many outputs as in training. */
static void rings_keep_the_outputs_that_they_must(void **state)
{
	(void)state;
	enum { RANKS = 4, MICROBATCHES = 16 };
	struct world w = make_world(1);
	char text[RANKS * 2 * MICROBATCHES * 2 * 8] = "", *at = text;
	for (unsigned r = 0; r < RANKS; r++) {
		for (unsigned s = r; s < 2 * RANKS; s += RANKS)
			for (unsigned m = 0; m < MICROBATCHES; m++)
				at += sprintf(at, "%uF%u ", s, m);
		for (unsigned s = r + RANKS; s <= r + RANKS; s -= RANKS)
			for (unsigned m = 0; m < MICROBATCHES; m++)
				at += sprintf(at, "%uB%u ", s, m);
		*at++ = '\n';
	}
	*at = '\0';
	static const uint32_t place[] = {0, 1, 2, 3, 0, 1, 2, 3};
	write_schedule(&w, 2 * RANKS, place, MICROBATCHES, text);
	make_program(&w, 100, 100, 100, 10);
	plan(&w, true);
	struct pp_sim sim;
	assert_true(pp_simulate(w.arena, &w.program, &w.program.programs[1], PP_LAYOUT_CHANNEL, false, &sim));
	assert_int_equal(sim.makespan, 3 * 110 + 100 * 2 * MICROBATCHES);
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_programs),
	    cmocka_unit_test(train_lies_as_if_alone),
	    cmocka_unit_test(outputs_do_not_pile_up),
	    cmocka_unit_test(rings_keep_the_outputs_that_they_must),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
