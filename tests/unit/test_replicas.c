/* What data parallelism costs: times of the step tail by the ring formula (cost model 1.5), one collective of a group
 * after the other, and volumes per step (1.6): 2P elements for each replica's P, whether gradients are summed whole or
 * scattered and weights gathered. */
#include "compiler/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const char text[] =
    "model m { hidden = 32  heads = 2  layers = 3  vocab = 96  seq = 8  tie_embeddings = (tied) }\n"
    "param tied : bool = false\n"
    "param pp : int = 1\n"
    "param dp : int = 4\n"
    "cluster c {\n"
    "  gpus = pp * dp\n"
    "  gpu { memory = 4GiB  bandwidth = inf  flops { fp32 = 1TFLOPS } }\n"
    "  link intra { bandwidth = 1GB/s  latency = 2us }\n"
    "}\n"
    "parallel { pp = pp  dp = dp }\n"
    "schedule 1f1b\n"
    "train { microbatch = 1  microbatches = 4 }\n";

/* Links and no memory, or memory and no links. */
static struct pp_unit compiled(struct pp_arena *arena, const char *const *defines, size_t count, bool zero,
                               bool memory_only)
{
	static const char *const sets[] = {"parallel.zero=1", "cluster.gpu.bandwidth=1GB/s", "cluster.intra.bandwidth=inf",
	                                   "cluster.intra.latency=0us"};
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.defines = defines;
	unit.options.define_count = count;
	unit.options.sets = zero ? sets : sets + 1;
	unit.options.set_count = (zero ? 1u : 0u) + (memory_only ? 3u : 0u);
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	if (!pp_compile(&unit, PP_PASS_simulate, NULL, NULL)) {
		pp_diag_print(unit.diag, stderr, PP_DIAG_HUMAN, false);
		fail();
	}
	return unit;
}

enum { LATENCY = 2000 };

/* `steps` steps of a ring that move so many bytes each at 1 byte a ns. */
static uint64_t ring(uint64_t steps, uint64_t bytes)
{
	return steps * (LATENCY + bytes);
}

static void tail_takes_what_rings_take(void **state)
{
	(void)state;
	for (uint32_t dp = 1; dp <= 5; dp++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const char *defines[] = {pp_arena_printf(arena, "dp=%u", dp)};
		const struct pp_unit whole = compiled(arena, defines, 1, false, false),
		                     shards = compiled(arena, defines, 1, true, false);
		const uint64_t losses = 2 * 4 * sizeof(double), norms = whole.program->tensor_count * sizeof(double);
		uint64_t sums = ring(2 * (dp - 1), (losses + dp - 1) / dp), parts = sums;
		for (uint32_t t = 0; t < whole.program->tensor_count; t++) {
			const struct pp_tensor *tensor = &whole.program->tensors[t];
			uint64_t elements = (uint64_t)tensor->rows * tensor->columns;
			sums += ring(2 * (dp - 1), (4 * elements + dp - 1) / dp);
			parts += 2 * ring(dp - 1, 4 * ((elements + dp - 1) / dp));
		}
		parts += ring(2 * (dp - 1), (norms + dp - 1) / dp);
		assert_int_equal(whole.sim.tail, dp == 1 ? 0 : sums);
		assert_int_equal(shards.sim.tail, dp == 1 ? 0 : parts);
		pp_arena_destroy(arena);
	}
}

/* Memory traffic of norms (1 pass over the gradient) and updates (weight 2, gradient 1, each moment 2) is that of the
 * own shard only. */
static void tail_reads_own_shards(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *const defines[] = {"dp=3"};
	const struct pp_unit whole = compiled(arena, defines, 1, false, true),
	                     shards = compiled(arena, defines, 1, true, true);
	uint64_t clip = 2 * 4 * sizeof(double) + whole.program->tensor_count * sizeof(double) + 32, all = clip, own = clip;
	for (uint32_t t = 0; t < whole.program->tensor_count; t++) {
		uint64_t elements = (uint64_t)whole.program->tensors[t].rows * whole.program->tensors[t].columns;
		all += 4 * (1 + 2 + 1 + 4) * elements;
		own += 4 * (1 + 2 + 1 + 4) * ((elements + 2) / 3);
	}
	assert_int_equal(whole.sim.tail, all);
	assert_int_equal(shards.sim.tail, own);
	pp_arena_destroy(arena);
}

/* Elements of gradients and weights that a rank sends over dp in a step. */
static uint64_t sent_over_dp(const struct pp_program *program, uint32_t rank)
{
	const struct pp_stream *stream = &pp_program_find(program, "train")->streams[rank];
	uint64_t sent = 0, dp = program->dp;
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op != PP_OP_COLL || instr->dtype != PP_F32 || program->groups[instr->a[1]].axis != PP_AXIS_DP)
			continue;
		sent += instr->sub == PP_ALLREDUCE ? 2 * (dp - 1) * instr->count / dp : (dp - 1) * (uint64_t)instr->count;
	}
	return sent;
}

/* All sizes here are multiples of 4. A tied table is held, and summed, by both its owners. */
static void volumes_are_twice_the_parameters(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		bool tied = i & 1, zero = i & 2, two = i & 4;
		const char *defines[] = {tied ? "tied=true" : "tied=false", two ? "pp=2" : "pp=1"};
		const struct pp_program *program = compiled(arena, defines, 2, zero, false).program;
		for (uint32_t r = 0; r < program->ranks; r++) {
			uint64_t held = 0;
			for (uint32_t s = 0; s < program->rank[r].slot_count; s++)
				held += program->rank[r].slots[s].class == PP_SLOT_WEIGHT ? program->rank[r].slots[s].bytes / 4 : 0;
			assert_int_equal(sent_over_dp(program, r) * 4, 2 * held * 3);
		}
		pp_arena_destroy(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tail_takes_what_rings_take),
	    cmocka_unit_test(tail_reads_own_shards),
	    cmocka_unit_test(volumes_are_twice_the_parameters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
