/* Recompute: what blocks keep and make again to the byte, where it stands in the streams, and that waits hide it. */
#include "lowering_fixture.h"
#include "support/build_program.h"

#include "codegen/plan_memory.h"
#include "compiler/library.h"
#include "compiler/pass.h"
#include "ir/simulate.h"
#include "ir/verify.h"

/* ---- bytes of a compiled program (cost model 1.3) -------------------------------------------- */

enum { S = 32, B = 2, H = 64, A = 4, F = 4 * H, V = 256, LAYERS = 8, T = S * B };

static const char model[] = "model m { hidden = 64  heads = 4  layers = 8  vocab = 256  seq = 32 }\n"
                            "cluster c { nodes = 1  gpus = 4 }\n"
                            "parallel { pp = 4 }\n"
                            "stages { split { emb block[0..1] | block[2..3] | block[4..5] | block[6..7] norm head } }\n"
                            "schedule h1 { order for r { F*(p-r-1) (F I)*r (F I W)*(m-p+1) (I W)*(p-r-1) W*r } }\n"
                            "schedule 1f1b\n"
                            "train { microbatch = 2  microbatches = 8  dtype = bf16  recompute = %s }\n"
                            "run { schedule = %s }\n";

static const struct pp_program *compiled(struct pp_arena *arena, const char *schedule, const char *recompute)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	const char *text = pp_arena_printf(arena, model, recompute, schedule);
	unit.source = pp_sources_add(unit.sources, "m.pipe", text, strlen(text));
	if (!pp_compile(&unit, PP_PASS_verify, NULL, NULL)) {
		pp_diag_print(unit.diag, stderr, PP_DIAG_HUMAN, false);
		fail();
	}
	return unit.program;
}

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Of a block, bf16, without dropout: 32 Th and 4 Ta of log-sum-exp are the 34 sbh of K22 Table 2 less the masks; the
 * statistics of two norms are 16 T more. */
static const uint64_t all_of_a_block = 32 * T * H + 4 * T * A + 16 * T;

static void assert_block_bytes(const struct pp_program *program, uint64_t kept)
{
	for (uint32_t s = 1; s <= 2; s++) { /* blocks only */
		assert_int_equal(program->stages[s].stash_bytes, 2 * kept);
		assert_int_equal(program->stages[s].extra_bytes, 2 * (all_of_a_block - kept));
	}
}

static uint32_t slots_of(const struct pp_rank *rank, enum pp_slot_class class, uint64_t bytes)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < rank->slot_count; i++)
		count += rank->slots[i].class == class && rank->slots[i].bytes == bytes;
	return count;
}

/* Kept per microbatch, and made again once per rank: full 2sbh, norms and activation all that they make. */
static void kept_and_made_again(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	assert_int_equal(padded(4 * T), 4 * T); /* nothing is lost to alignment here */
	assert_block_bytes(compiled(arena, "1f1b", "none"), all_of_a_block);
	assert_block_bytes(compiled(arena, "1f1b", "full"), 2 * T * H);
	assert_block_bytes(compiled(arena, "1f1b", "selective"), all_of_a_block - 2 * T * H - 4 * T * A);
	assert_block_bytes(compiled(arena, "1f1b", "[norm, act]"),
	                   all_of_a_block - 2 * 2 * T * H - 16 * T - 2 * T * F); /* n1, n2, statistics; g */
	pp_arena_destroy(arena);
}

/* 1F1B: min(p - r, m) microbatches keep their part (Megatron's count), one extra serves them all. */
static void in_flight(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *program = compiled(arena, "1f1b", "full");
	for (uint32_t r = 1; r <= 2; r++) {
		assert_int_equal(slots_of(&program->rank[r], PP_SLOT_STASH, 2 * 2 * T * H), 4 - r);
		assert_int_equal(slots_of(&program->rank[r], PP_SLOT_EXTRA, 2 * (all_of_a_block - 2 * T * H)), 1);
	}
	program = compiled(arena, "1f1b", "full(layers = 2..3)"); /* stage 1 alone */
	assert_int_equal(slots_of(&program->rank[1], PP_SLOT_STASH, 2 * 2 * T * H), 3);
	assert_int_equal(slots_of(&program->rank[2], PP_SLOT_STASH, 2 * all_of_a_block), 2);
	assert_int_equal(program->stages[2].extra_bytes, 0);
	pp_arena_destroy(arena);
}

/* Largest sum of stashes and extras of a rank. */
static uint64_t most_held(const struct pp_program *program, uint32_t r)
{
	uint64_t held = 0, most = 0;
	for (uint32_t i = 0; i < program->programs[0].streams[r].count; i++) {
		const struct pp_instr *instr = &program->programs[0].streams[r].items[i];
		const struct pp_stage *stage = &program->stages[instr->stage];
		bool ends = instr->op == PP_OP_BWD || instr->op == PP_OP_BWDW;
		held += instr->op == PP_OP_FWD ? stage->stash_bytes : 0;
		held += instr->op == (stage->recomputes ? PP_OP_REMAT : PP_OP_BWDI) ? stage->extra_bytes : 0;
		most = held > most ? held : most;
		held -= ends ? stage->stash_bytes + stage->extra_bytes : 0;
	}
	return most;
}

/* Zero-bubble keeps the output gradients of 4 Th from I to W (dy, dn2, dx2, dn1; df, dq, dk, dv take over bytes), in an
 * extra of its own; a stash is no longer than that of a fused backward. */
static void weight_passes(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *plain = compiled(arena, "h1", "none"), *again = compiled(arena, "h1", "full");
	for (uint32_t s = 1; s <= 2; s++) {
		assert_int_equal(plain->stages[s].stash_bytes, 2 * all_of_a_block);
		assert_int_equal(plain->stages[s].extra_bytes, 2 * 4 * 2 * T * H);
		assert_int_equal(again->stages[s].extra_bytes, 2 * (all_of_a_block - 2 * T * H + 4 * 2 * T * H));
		/* rank r postpones r weight gradients: so many extras, and one for the input gradient at hand; p stashes */
		assert_int_equal(most_held(plain, s),
		                 4 * plain->stages[s].stash_bytes + (s + 1) * plain->stages[s].extra_bytes);
		assert_int_equal(most_held(again, s),
		                 4 * again->stages[s].stash_bytes + (s + 1) * again->stages[s].extra_bytes);
	}
	pp_arena_destroy(arena);
}

/* G + C less the last linear layer, 2 T h f; attention C = 4 T s h. None of it is the model's. */
static void work(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const uint64_t G = 2 * T * (4 * H * H + 2 * H * F), C = 4 * T * S * H;
	assert_int_equal(compiled(arena, "1f1b", "full")->stages[1].flops[PP_PHASE_R], 2 * (G + C - 2 * T * H * F));
	assert_int_equal(compiled(arena, "1f1b", "selective")->stages[1].flops[PP_PHASE_R], 2 * C);
	assert_int_equal(compiled(arena, "1f1b", "[norm, act]")->stages[1].flops[PP_PHASE_R], 0);
	assert_int_equal(compiled(arena, "1f1b", "none")->stages[1].flops[PP_PHASE_R], 0);
	pp_arena_destroy(arena);
}

/* ---- streams and time ------------------------------------------------------------------------ */

/* Stages of F 100, B 200, R 100 that all recompute. */
static struct world world_of(struct pp_schedule *schedule, bool recomputes)
{
	struct world w = make_world(1);
	w.schedule = *schedule;
	make_program(&w, 100, 100, 100, 0);
	for (uint32_t s = 0; s < w.program.stage_count; s++) {
		w.program.stages[s].recomputes = recomputes;
		w.program.stages[s].extra_bytes = recomputes ? 512 : 0;
		w.program.stages[s].ticks[PP_PHASE_R] = recomputes ? 100 : 0;
	}
	lower(&w);
	assert_true(pp_plan_memory(&w.program, w.diag));
	struct pp_stamp stamp;
	assert_true(pp_verify(&w.program, &stamp, w.diag));
	return w;
}

static uint32_t find(const struct pp_stream *stream, enum pp_op op, uint32_t mb)
{
	uint32_t at = 0;
	while (stream->items[at].op != op || stream->items[at].mb != mb)
		at++;
	return at;
}

/* The first gradient comes back over p - 1 stages. Each rank recomputes while it waits for it, so that the way back
 * takes no longer than without; only the last rank, which waits for nothing, is late by its own recompute. From then on
 * all are busy: (p-1) F + m (F + R + B) + (p-1) B, which no order of these computes can beat. */
static void waits_hide_recompute(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct world w = world_of(build_1f1b(arena, 4, 8), true), without = world_of(build_1f1b(arena, 4, 8), false);
	struct pp_sim sim, before;
	assert_true(pp_simulate(arena, &w.program, &w.program.programs[0], PP_LAYOUT_CHANNEL, true, &sim));
	assert_true(pp_simulate(arena, &without.program, &without.program.programs[0], PP_LAYOUT_CHANNEL, true, &before));
	assert_int_equal(before.makespan, 3 * 100 + 8 * 300 + 3 * 200);
	assert_int_equal(sim.makespan, 3 * 100 + 8 * 400 + 3 * 200);
	assert_int_equal(sim.bound.makespan, sim.makespan);
	for (uint32_t r = 0; r < 4; r++) {
		const struct pp_stream *stream = &w.program.programs[0].streams[r],
		                       *old = &without.program.programs[0].streams[r];
		struct pp_interval remat = sim.instr[r][find(stream, PP_OP_REMAT, 0)];
		struct pp_interval backward = sim.instr[r][find(stream, PP_OP_BWD, 0)];
		struct pp_interval unhurried = before.instr[r][find(old, PP_OP_BWD, 0)];
		assert_int_equal(remat.start, 400); /* right after the last forward of the warm-up */
		assert_int_equal(backward.start, unhurried.start + 100);
		assert_int_equal(sim.rank[r].busy, before.rank[r].busy + 8 * 100);
		assert_int_equal(sim.makespan - sim.rank[r].busy, 3 * 300); /* 900 ns idle, as without */
		assert_true(remat.end <= backward.start);
	}
	end_world(&w);
	end_world(&without);
	pp_arena_destroy(arena);
}

/* remat stands right before its backward, before the wait for the gradient; where two computes may overlap, before both
 * of them, so that they stay neighbours. */
static void recompute_stands_before_the_wait(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_schedule *schedule = build_1f1b(arena, 2, 4);
	struct pp_row *row = &schedule->rows[0]; /* F0 F1 B0 F2 B1 F3 B2 B3 */
	for (uint32_t i = 1; i + 1 < row->count; i++)
		row->actions[i].paired = row->actions[i].kind == PP_B && row->actions[i + 1].kind == PP_F;
	struct world w = world_of(schedule, true);
	const struct pp_stream *stream = &w.program.programs[0].streams[0];
	char text[64] = "";
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		bool receives = instr->op == PP_OP_WAIT && w.program.channels[instr->a[0]].destination == 0;
		const char *word = instr->op == PP_OP_FWD     ? "F"
		                   : instr->op == PP_OP_BWD   ? "B"
		                   : instr->op == PP_OP_REMAT ? "R"
		                   : receives                 ? "w"
		                                              : "";
		strcat(text, word);
		strcat(text, instr->flags & PP_PAIR ? "+" : "");
	}
	assert_string_equal(text, "FFRwB+FRwB+FRwBRwB");
	end_world(&w);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(kept_and_made_again),  cmocka_unit_test(in_flight),
	    cmocka_unit_test(weight_passes),        cmocka_unit_test(work),
	    cmocka_unit_test(waits_hide_recompute), cmocka_unit_test(recompute_stands_before_the_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
