/* Memory and time of tensor- and sequence-parallel layers against the closed forms of the cost model. */
#include "model_fixture.h"

#include "codegen/layer.h"
#include "compiler/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* h, a, kv heads, blocks, f, V, s, b */
static const struct model_size gpt3 = {12288, 96, 96, 1, 49152, 51200, 2048, 1, false},
                               llama3_8b = {4096, 32, 8, 1, 14336, 128256, 8192, 1, false};

static struct pp_spec *spec_of(struct pp_arena *arena, const struct model_size *size, bool llama, uint32_t tp, bool sp)
{
	struct pp_spec *spec = fixture_spec(arena, size);
	spec->dtype = PP_BF16;
	spec->parallel.tp = tp;
	spec->parallel.sp = sp;
	for (uint32_t l = 0; l < spec->model.layer_count && llama; l++) {
		struct pp_layer *layer = &spec->model.layers[l];
		layer->bias = false;
		layer->rms = true;
		layer->act = PP_ACT_SWIGLU;
		layer->rope_theta = 500000;
	}
	return spec;
}

static struct pp_layer_counts counts_of(const struct model_size *size, bool llama, uint32_t tp, bool sp, unsigned layer)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_spec *spec = spec_of(arena, size, llama, tp, sp);
	struct pp_layer_counts counts;
	pp_layer_count(&spec->model.layers[layer], spec, &counts);
	pp_arena_destroy(arena);
	return counts;
}

enum { EMBEDDING, BLOCK, NORM, HEAD };

/* S/(t if SP) + X/t with S = 8Th, X = 2T(q+2w) + 2Tq + 4Ta + 4Tf or gated 6Tf (cost model 1.3), and what that leaves
 * out: mean and rstd of both norms, or rstd alone, 4 bytes each. */
static uint64_t kept(const struct model_size *size, bool llama, uint64_t tp, bool sp)
{
	uint64_t T = (uint64_t)size->seq * size->microbatch, h = size->hidden, a = size->heads, f = size->ffn;
	uint64_t q = h, w = h / a * size->kv_heads, shards = sp ? tp : 1;
	uint64_t state = 8 * T * h, inner = 2 * T * (q + 2 * w) + 2 * T * q + 4 * T * a + (llama ? 6 : 4) * T * f;
	return state / shards + inner / tp + (llama ? 8 : 16) * T / shards;
}

static void activations(void **state)
{
	(void)state;
	for (uint32_t tp = 1; tp <= 8; tp *= 2)
		for (int sp = 0; sp < 2; sp++) {
			assert_int_equal(counts_of(&gpt3, false, tp, sp, BLOCK).stash_bytes, kept(&gpt3, false, tp, sp && tp > 1));
			assert_int_equal(counts_of(&llama3_8b, true, tp, sp, BLOCK).stash_bytes,
			                 kept(&llama3_8b, true, tp, sp && tp > 1));
		}
	/* 1089 MiB = 17 copies of the hidden state, and 64 KiB of statistics */
	assert_int_equal(counts_of(&llama3_8b, true, 1, false, BLOCK).stash_bytes, (1089 << 20) + (64 << 10));
	assert_int_equal(counts_of(&llama3_8b, true, 8, true, BLOCK).stash_bytes, ((1089 << 20) + (64 << 10)) / 8);
}

/* The logits of a microbatch: whole, and an eighth. */
static void logits(void **state)
{
	(void)state;
	static const struct model_size size = {16, 8, 8, 1, 32, 128256, 4096, 1, false};
	for (int parts = 0; parts < 2; parts++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct pp_spec *spec = spec_of(arena, &size, true, parts ? 8 : 1, false);
		spec->dtype = PP_F32;
		struct pp_layer_counts counts;
		pp_layer_count(&spec->model.layers[HEAD], spec, &counts);
		assert_int_equal(counts.stash_bytes, 4 * 4096 * 16 + (parts ? 262668288 : 2101346304));
		pp_arena_destroy(arena);
	}
}

/* Work of matrices and attention is divided by t; norms and the residual stream only with sequence parallelism. */
static void work(void **state)
{
	(void)state;
	struct pp_layer_counts whole = counts_of(&llama3_8b, true, 1, false, BLOCK),
	                       split = counts_of(&llama3_8b, true, 4, false, BLOCK),
	                       sequence = counts_of(&llama3_8b, true, 4, true, BLOCK);
	for (unsigned phase = 0; phase < PP_PHASE_R; phase++) {
		assert_int_equal(split.matmul_flops[phase] * 4, whole.matmul_flops[phase]);
		assert_int_equal(split.attention_flops[phase] * 4, whole.attention_flops[phase]);
		assert_int_equal(sequence.matmul_flops[phase], split.matmul_flops[phase]);
	}
	/* 16 ranks project onto all 8 key/value heads, and own 2 query heads each: the model's work is the same */
	struct pp_layer_counts shared = counts_of(&llama3_8b, true, 16, false, BLOCK);
	for (unsigned phase = 0; phase < PP_PHASE_R; phase++) {
		uint64_t keys = 2ull * 8192 * 4096 * 2 * 1024 * (phase == PP_PHASE_B ? 2 : 1);
		assert_int_equal(split.repeated_flops[phase], 0);
		assert_int_equal(shared.repeated_flops[phase], keys - keys / 16);
		assert_int_equal(pp_layer_flops(&shared, phase) * 16, pp_layer_flops(&whole, phase));
	}
	uint64_t norm = counts_of(&llama3_8b, true, 1, false, NORM).memory_bytes[PP_PHASE_F];
	uint64_t gamma = 2 * 4096; /* read by every rank */
	assert_int_equal(counts_of(&llama3_8b, true, 4, false, NORM).memory_bytes[PP_PHASE_F], norm);
	assert_int_equal((counts_of(&llama3_8b, true, 4, true, NORM).memory_bytes[PP_PHASE_F] - gamma) * 4, norm - gamma);
	assert_true(sequence.memory_bytes[PP_PHASE_F] < split.memory_bytes[PP_PHASE_F]);
	/* the message between stages: M, or M / t */
	assert_int_equal(split.output_bytes, 2ull * 8192 * 4096);
	assert_int_equal(sequence.output_bytes * 4, split.output_bytes);
}

/* What one rank keeps of the parameters: matrices and tables by t, norms and row-parallel biases whole; all key and
 * value heads where ranks share them. The parameters of the model are counted once. */
static void parameters(void **state)
{
	(void)state;
	uint64_t h = 4096, q = 4096, w = 1024, f = 14336;
	for (uint32_t tp = 1; tp <= 16; tp *= 2) {
		struct pp_layer_counts block = counts_of(&llama3_8b, true, tp, true, BLOCK);
		uint64_t keys = tp > 8 ? 2 * w * h : 2 * w * h / tp;
		assert_int_equal(block.params, h * (q + 2 * w) + q * h + 3 * h * f + 2 * h);
		assert_int_equal(block.shard_params, (2 * q * h + 3 * h * f) / tp + keys + 2 * h);
		assert_int_equal(counts_of(&llama3_8b, true, tp, true, HEAD).shard_params, 128256 * h / tp);
	}
	struct pp_layer_counts biased = counts_of(&gpt3, false, 8, false, BLOCK);
	h = 12288;
	assert_int_equal(biased.shard_params, 12 * h * h / 8 + (3 * h + 4 * h) / 8 + 2 * h + 4 * h);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Ticks of a layer with and without collectives: by links of no and of some time. */
static void layer_ticks(const struct model_size *size, bool sp, struct pp_link link, unsigned layer,
                        uint64_t ticks[PP_PHASE_COUNT])
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_spec *spec = spec_of(arena, size, true, 4, sp);
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 4;
	spec->cluster.gpu.flops[PP_BF16] = 1000000000000;
	spec->cluster.intra = link;
	struct pp_stages stages = {0};
	pp_cost_layers(arena, spec, &stages);
	memcpy(ticks, stages.layer_ticks[layer], sizeof stages.layer_ticks[layer]);
	pp_arena_destroy(arena);
}

static uint64_t added(const struct model_size *size, bool sp, struct pp_link link, unsigned layer, enum pp_phase phase)
{
	uint64_t with[PP_PHASE_COUNT], without[PP_PHASE_COUNT];
	layer_ticks(size, sp, link, layer, with);
	layer_ticks(size, sp, (struct pp_link){0}, layer, without);
	return with[phase] - without[phase];
}

/* Rings of 4: an allreduce is 6 steps, the others 3, each latency and a quarter of M over the bandwidth. In F all of it
 * shows; in B only what the weight gradients between post and await do not hide. */
static void exposed_time(void **state)
{
	(void)state;
	static const struct model_size size = {64, 8, 8, 1, 256, 256, 128, 1, false};
	const uint64_t M = 2 * 128 * 64, step = 1000 + M / 4; /* 1 GB/s: a byte each ns */
	const struct pp_link link = {.bandwidth = 1000000000, .latency = 1000};
	assert_int_equal(added(&size, false, link, BLOCK, PP_PHASE_F), 2 * 6 * step);
	assert_int_equal(added(&size, true, link, BLOCK, PP_PHASE_F), 4 * 3 * step);
	assert_int_equal(added(&size, false, link, BLOCK, PP_PHASE_I), 2 * 6 * step);
	assert_int_equal(added(&size, false, link, BLOCK, PP_PHASE_W), 0);
	assert_int_equal(added(&size, false, link, EMBEDDING, PP_PHASE_F), 6 * step);
	assert_int_equal(added(&size, false, link, NORM, PP_PHASE_B), 0);
	/* gate and up: 2 * T * h * 2f/4 flops, q, k, v: 2 * T * h * 3h/4, at 0.5 flop/ps */
	uint64_t up = (2ull * 128 * 64 * 2 * 64 + 250) / 500, heads = (2ull * 128 * 64 * 3 * 16 + 250) / 500;
	assert_int_equal(added(&size, false, link, BLOCK, PP_PHASE_B), 2 * 6 * step - up - heads);
	/* statistics of the logits, 12 bytes a token and rank */
	assert_int_equal(added(&size, false, link, HEAD, PP_PHASE_F), 3 * (1000 + 12 * 128));
	const struct pp_link fast = {.bandwidth = 0, .latency = 100};
	assert_int_equal(added(&size, false, fast, BLOCK, PP_PHASE_B), 0); /* hidden */
	assert_int_equal(added(&size, false, fast, BLOCK, PP_PHASE_F), 2 * 6 * 100);
}

/* A group across nodes goes at the speed of the link between them. */
static void slow_groups(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_spec *spec = spec_of(arena, &llama3_8b, true, 4, false);
	spec->parallel.pp = 2;
	spec->cluster.nodes = 2;
	uint64_t first, stride;
	static const uint8_t tensor_first[] = {PP_AXIS_TP, PP_AXIS_DP, PP_AXIS_PP},
	                     pipeline_first[] = {PP_AXIS_PP, PP_AXIS_TP, PP_AXIS_DP};
	const struct {
		const uint8_t *order;
		uint32_t gpus;
		bool crosses;
		uint64_t first, stride;
	} cases[] = {{tensor_first, 4, false, 0, 1}, {tensor_first, 8, false, 0, 1},  {tensor_first, 6, true, 4, 1},
	             {tensor_first, 3, true, 0, 1},  {pipeline_first, 4, true, 0, 2}, {pipeline_first, 8, false, 0, 2},
	             {pipeline_first, 7, true, 1, 2}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memcpy(spec->parallel.rank_order, cases[i].order, sizeof spec->parallel.rank_order);
		spec->cluster.gpus = cases[i].gpus;
		assert_int_equal(pp_tp_crosses_nodes(spec, &first, &stride), cases[i].crosses);
		assert_true(!cases[i].crosses || (first == cases[i].first && stride == cases[i].stride));
	}
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(activations), cmocka_unit_test(logits),       cmocka_unit_test(work),
	    cmocka_unit_test(parameters),  cmocka_unit_test(exposed_time), cmocka_unit_test(slow_groups),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
