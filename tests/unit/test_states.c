/* Weights, gradients, moments and master copies of a rank under data parallelism: bytes per parameter as counted for
 * the split, and as slots, with and without shards of the optimizer (cost model 1.4: fp32 Adam 16 or 8 + 8/d; bf16
 * weights with fp32 gradients 18 or 6 + 12/d, where 12 = fp32 master 4 + m 4 + v 4; SGD has no moments, fp32 nothing to
 * shard). */
#include "program_fixture.h"

#include "ir/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static uint64_t slot_bytes(const struct pp_program *program, uint32_t rank, enum pp_slot_class class)
{
	uint64_t total = 0;
	for (uint32_t i = 0; i < program->rank[rank].slot_count; i++)
		total += program->rank[rank].slots[i].class == class ? program->rank[rank].slots[i].bytes : 0;
	return total;
}

/* Every tensor of GPT-2 small has a multiple of 768 elements: no padding. The tied head keeps a gradient of its own. */
static void bytes_per_parameter(void **state)
{
	(void)state;
	static const struct {
		uint8_t dtype, optimizer;
		uint32_t dp, zero;
		uint64_t each; /* bytes of a parameter, times 8 */
	} cases[] = {
	    {PP_F32, PP_ADAMW, 1, 0, 128},   {PP_F32, PP_ADAMW, 8, 0, 128},  {PP_F32, PP_ADAMW, 8, 1, 64 + 8},
	    {PP_F32, PP_ADAMW, 2, 1, 96},    {PP_BF16, PP_ADAMW, 8, 0, 144}, {PP_BF16, PP_ADAMW, 8, 1, 48 + 12},
	    {PP_F32, PP_SGD, 8, 0, 64},      {PP_F32, PP_SGD, 8, 1, 64},     {PP_BF16, PP_SGD, 8, 0, 80},
	    {PP_BF16, PP_SGD, 8, 1, 48 + 4},
	};
	const uint64_t params = 124439808, head = 50257 * 768;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct built built = built_of(&gpt2_small);
		built.spec->dtype = cases[i].dtype;
		built.spec->train.optimizer = cases[i].optimizer;
		built.spec->parallel.dp = cases[i].dp;
		built.spec->parallel.zero = cases[i].zero;
		const uint32_t whole[] = {0};
		build_bodies(&built, whole, 1, 1, FUSED);
		assert_int_equal(built.stages.items[0].params, params);
		assert_int_equal(built.stages.items[0].static_bytes, params * cases[i].each / 8 + head * 4);
		pp_arena_destroy(built.arena);
	}
}

/* Shards of unequal length: slots are padded tensor by tensor, and the split counts the same bytes. */
static void slots_are_what_was_counted(void **state)
{
	(void)state;
	const uint32_t two[] = {0, 3};
	for (uint32_t k = 0; k < 14; k++) {
		uint32_t dp = k % 7 + 1, half = k / 7;
		struct built built = built_of(&field_b13);
		built.spec->dtype = half ? PP_BF16 : PP_F32;
		built.spec->parallel.dp = dp;
		built.spec->parallel.zero = 1;
		build_bodies(&built, two, 2, 2, FUSED);
		const struct pp_program *program = built.program;
		uint64_t shards[2] = {0}; /* elements, by rank */
		for (uint32_t u = 0; u < program->use_count; u++) {
			const struct pp_tensor *tensor = &program->tensors[program->uses[u].tensor];
			shards[program->stages[program->uses[u].stage].rank] +=
			    ((uint64_t)tensor->rows * tensor->columns + dp - 1) / dp;
		}
		for (uint32_t r = 0; r < 2; r++) {
			assert_int_equal(slot_bytes(program, r, PP_SLOT_WEIGHT), (half ? 2 : 4) * dp * shards[r]);
			assert_int_equal(slot_bytes(program, r, PP_SLOT_GRAD), 4 * dp * shards[r]);
			assert_int_equal(slot_bytes(program, r, PP_SLOT_MOMENT), 8 * shards[r]);
			assert_int_equal(slot_bytes(program, r, PP_SLOT_MASTER), half ? 4 * shards[r] : 0);
			assert_int_equal(built.stages.items[r].static_bytes, (half ? 6 * dp + 12 : 8 * dp + 8) * shards[r]);
		}
		pp_arena_destroy(built.arena);
	}
}

/* Parameters of custom layers take up the same room. */
static void custom_layers_too(void **state)
{
	(void)state;
	struct built built = built_of(&field_b13);
	struct pp_layer layer = fixture_custom(&field_b13, "x", (struct pp_custom){.params = 1001});
	built.spec->model.layers = &layer;
	built.spec->model.layer_count = 1;
	built.spec->model.trains = false;
	built.spec->parallel.dp = 4;
	built.spec->parallel.zero = 1;
	built.spec->dtype = PP_BF16;
	const uint32_t whole[] = {0};
	build_bodies(&built, whole, 1, 1, FUSED);
	assert_int_equal(slot_bytes(built.program, 0, PP_SLOT_WEIGHT), 2 * 1004);
	assert_int_equal(slot_bytes(built.program, 0, PP_SLOT_GRAD), 4 * 1004);
	assert_int_equal(slot_bytes(built.program, 0, PP_SLOT_MOMENT), 2 * 4 * 251);
	assert_int_equal(slot_bytes(built.program, 0, PP_SLOT_MASTER), 4 * 251);
	assert_int_equal(built.stages.items[0].static_bytes, 6 * 1004 + 12 * 251);
	pp_arena_destroy(built.arena);
}

/* Devices that are GPUs have scratch, as long as its formula says; others have none. */
static void scratch_on_gpus(void **state)
{
	(void)state;
	const uint32_t two[] = {0, 3};
	for (uint32_t sms = 0; sms < 200; sms += 132) {
		struct built built = built_of(&field_b13);
		built.spec->cluster.gpu.sms = sms;
		build_bodies(&built, two, 2, 2, FUSED);
		uint64_t wanted = pp_scratch_rank_bytes(built.program, 1);
		assert_true(wanted > 0);
		assert_int_equal(slot_bytes(built.program, 1, PP_SLOT_SCRATCH), sms ? wanted : 0);
		assert_true(slot_bytes(built.program, 1, PP_SLOT_WORK) > 0);
		pp_arena_destroy(built.arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bytes_per_parameter),
	    cmocka_unit_test(slots_are_what_was_counted),
	    cmocka_unit_test(custom_layers_too),
	    cmocka_unit_test(scratch_on_gpus),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
