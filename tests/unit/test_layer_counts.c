/* Counts and prices of layers and stages against closed forms and published totals. */
#include "model_fixture.h"

#include "codegen/layer.h"
#include "compiler/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

struct fixture {
	struct pp_arena *arena;
	struct pp_spec *spec;
	struct pp_stages stages;
};

static struct fixture priced(const struct model_size *size)
{
	struct fixture f = {.arena = pp_arena_create(NULL)};
	f.spec = fixture_spec(f.arena, size);
	pp_cost_layers(f.arena, f.spec, &f.stages);
	return f;
}

static void staged(struct fixture *f, const uint32_t *first, uint32_t count, uint32_t ranks)
{
	fixture_stages(f->arena, f->spec, first, count, ranks, &f->stages);
	pp_cost_stages(f->spec, &f->stages);
}

static uint64_t rank_params(const struct fixture *f, uint32_t rank)
{
	uint64_t total = 0;
	for (uint32_t s = 0; s < f->stages.count; s++)
		total += f->stages.items[s].rank == rank ? f->stages.items[s].params : 0;
	return total;
}

static void gpt2_small_has_its_published_size(void **state)
{
	(void)state;
	struct fixture f = priced(&gpt2_small);
	const uint32_t whole[] = {0};
	staged(&f, whole, 1, 1);
	assert_int_equal(f.stages.items[0].params, 124439808);
	/* one block: 12 h^2 + 13 h */
	assert_int_equal(f.stages.layers[1].params, 12 * 768 * 768 + 13 * 768);
	assert_int_equal(f.stages.layers[0].params, 50257 * 768 + 1024 * 768);
	assert_int_equal(f.stages.layers[13].params, 2 * 768);
	assert_int_equal(f.stages.layers[14].params, 50257 * 768);
	/* weight and moments once, a gradient for each use of the tied table */
	assert_int_equal(f.stages.items[0].static_bytes, 124439808ull * 16 + 50257ull * 768 * 4);
	pp_arena_destroy(f.arena);
}

static void demo_model_size(void **state)
{
	(void)state;
	struct fixture f = priced(&demo_model);
	const uint32_t whole[] = {0};
	staged(&f, whole, 1, 1);
	/* 256 h + 64 h, 4 (12 h^2 + 13 h), 2 h, 256 h with h = 64 */
	assert_int_equal(f.stages.items[0].params, 64 * (256 + 64) + 4 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + 256 * 64);
	assert_int_equal(f.stages.items[0].params, 236928);
	assert_int_equal(f.stages.items[0].static_bytes, 236928 * 16);
	f.spec->train.optimizer = PP_SGD;
	pp_cost_stages(f.spec, &f.stages);
	assert_int_equal(f.stages.items[0].static_bytes, 236928 * 8);
	pp_arena_destroy(f.arena);
}

/* 72 B s L h^2 (1 + s/(6h) + V/(12 L h)) for forward and backward of a GPT with f = 4h, attention in full. */
static void flops_of_a_step(void **state)
{
	(void)state;
	struct fixture f = priced(&gpt2_small);
	const uint32_t whole[] = {0};
	staged(&f, whole, 1, 1);
	const struct pp_stage_plan *item = &f.stages.items[0];
	uint64_t s = 1024, L = 12, h = 768, V = 50257;
	assert_int_equal(item->flops[PP_PHASE_F] + item->flops[PP_PHASE_B],
	                 72 * s * L * h * h + 12 * s * s * L * h + 6 * s * h * V);
	assert_int_equal(item->flops[PP_PHASE_B], item->flops[PP_PHASE_I] + item->flops[PP_PHASE_W]);
	pp_arena_destroy(f.arena);
}

static void flops_of_a_block(void **state)
{
	(void)state;
	const struct model_size grouped = {512, 8, 2, 1, 1000, 100, 96, 3, false};
	struct fixture f = priced(&grouped);
	const struct pp_layer_counts *block = &f.stages.layers[1], *head = &f.stages.layers[3];
	uint64_t T = 96 * 3, h = 512, q = 512, w = 128;
	uint64_t G = 2 * T * (h * (q + 2 * w) + q * h + 2 * h * 1000), C = 4 * T * 96 * q;
	const uint64_t matmul[PP_PHASE_COUNT] = {
	    [PP_PHASE_F] = G, [PP_PHASE_B] = 2 * G, [PP_PHASE_I] = G, [PP_PHASE_W] = G};
	const uint64_t core[PP_PHASE_COUNT] = {
	    [PP_PHASE_F] = C, [PP_PHASE_B] = 2 * C, [PP_PHASE_I] = 2 * C, [PP_PHASE_W] = 0};
	for (unsigned phase = 0; phase < PP_PHASE_R; phase++) {
		assert_int_equal(block->matmul_flops[phase], matmul[phase]);
		assert_int_equal(block->attention_flops[phase], core[phase]);
		assert_int_equal(head->matmul_flops[phase], 2 * T * 100 * h * (phase == PP_PHASE_B ? 2 : 1));
		assert_int_equal(f.stages.layers[0].matmul_flops[phase], 0);
	}
	assert_int_equal(block->params, 512 * 768 + 512 * 512 + 2 * 512 * 1000 + 768 + 512 + 1000 + 512 + 4 * 512);
	pp_arena_destroy(f.arena);
}

/* Llama's kind: no biases, rmsnorm, swiglu, rope. */
static void make_llama(struct pp_spec *spec, uint32_t head_dim, bool qk_norm)
{
	for (uint32_t l = 0; l < spec->model.layer_count; l++) {
		struct pp_layer *layer = &spec->model.layers[l];
		layer->head_dim = head_dim ? head_dim : layer->head_dim;
		layer->bias = false;
		layer->rms = true;
		layer->act = PP_ACT_SWIGLU;
		layer->rope_theta = 10000;
		layer->qk_norm = qk_norm;
	}
}

static void llama_models_have_their_published_sizes(void **state)
{
	(void)state;
	static const struct {
		struct model_size size;
		uint32_t head_dim;
		bool qk_norm, qkv_bias;
		uint64_t params, block;
	} models[] = {
	    {{4096, 32, 32, 32, 11008, 32000, 4096, 1, false}, 0, false, false, 6738415616, 202383360},  /* Llama-2-7B */
	    {{8192, 64, 8, 80, 28672, 32000, 4096, 1, false}, 0, false, false, 68976648192, 855654400},  /* Llama-2-70B */
	    {{4096, 32, 8, 32, 14336, 128256, 8192, 1, false}, 0, false, false, 8030261248, 218112000},  /* Llama-3-8B */
	    {{2048, 32, 8, 16, 8192, 128256, 8192, 1, true}, 0, false, false, 1235814400, 60821504},     /* Llama-3.2-1B */
	    {{2560, 32, 8, 36, 9728, 151936, 4096, 1, true}, 128, true, false, 4022468096, 100930816},   /* Qwen3-4B */
	    {{4096, 32, 8, 32, 14336, 32000, 4096, 1, false}, 128, false, false, 7241732096, 218112000}, /* Mistral-7B */
	    {{4096, 32, 8, 36, 12288, 151936, 4096, 1, false}, 128, true, false, 8190735360, 192946432}, /* Qwen3-8B */
	    {{3584, 28, 4, 28, 18944, 152064, 4096, 1, false}, 0, false, true, 7615616512, 233057792},   /* Qwen2-7B */
	    {{896, 14, 2, 24, 4864, 151936, 4096, 1, true}, 0, false, true, 494032768, 14912384},        /* Qwen2.5-0.5B */
	    {{1536, 12, 2, 28, 8960, 151936, 4096, 1, true}, 0, false, true, 1543714304, 46797824},      /* Qwen2.5-1.5B */
	    {{8192, 64, 8, 80, 29568, 152064, 4096, 1, false}, 0, false, true, 72706203648, 877684736},  /* Qwen2.5-72B */
	};
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct fixture f = {.arena = pp_arena_create(NULL)};
		const uint32_t whole[] = {0};
		f.spec = fixture_spec(f.arena, &models[i].size);
		make_llama(f.spec, models[i].head_dim, models[i].qk_norm);
		for (uint32_t l = 0; l < f.spec->model.layer_count; l++)
			f.spec->model.layers[l].qkv_bias = models[i].qkv_bias;
		pp_cost_layers(f.arena, f.spec, &f.stages);
		staged(&f, whole, 1, 1);
		assert_int_equal(f.stages.items[0].params, models[i].params);
		assert_int_equal(f.stages.layers[1].params, models[i].block);
		pp_arena_destroy(f.arena);
	}
}

/* Three matrices in the MLP; three of its arrays are kept; qk-norm keeps q and k as they were and a statistic a head.
 */
static void counts_of_a_llama_block(void **state)
{
	(void)state;
	static const struct model_size size = {48, 4, 2, 1, 80, 32, 16, 2, false};
	uint64_t T = 32, h = 48, q = 4 * 10, w = 2 * 10, f = 80, G = 2 * T * (h * (q + 2 * w) + q * h + 3 * h * f);
	for (unsigned qk_norm = 0; qk_norm < 2; qk_norm++) {
		struct fixture fixture = {.arena = pp_arena_create(NULL)};
		fixture.spec = fixture_spec(fixture.arena, &size);
		make_llama(fixture.spec, 10, qk_norm);
		pp_cost_layers(fixture.arena, fixture.spec, &fixture.stages);
		const struct pp_layer_counts *block = &fixture.stages.layers[1];
		assert_int_equal(block->matmul_flops[PP_PHASE_F], G);
		assert_int_equal(block->matmul_flops[PP_PHASE_B], 2 * G);
		assert_int_equal(block->attention_flops[PP_PHASE_F], 4 * T * 16 * q);
		assert_int_equal(block->params, h * (q + 2 * w) + q * h + 3 * h * f + 2 * h + (qk_norm ? 2 * 10 : 0));
		uint64_t kept = 4 * h + (q + 2 * w) + q + 4 + 2 + 3 * f + (qk_norm ? q + w + 4 + 2 : 0);
		assert_int_equal(block->stash_bytes, 4 * T * kept);
		assert_int_equal(block->split_bytes, 4 * T * (4 * h + (qk_norm ? q + w : 0)));
		assert_int_equal(fixture.stages.layers[0].params, 32 * h); /* no positions */
		pp_arena_destroy(fixture.arena);
	}
}

/* Per token 4h + (q + 2w) + q + a + 4 statistics + 2f values are kept by F; the split form adds dy, dn2, dx2, dn1. */
static void stash_of_a_block(void **state)
{
	(void)state;
	struct fixture f = priced(&demo_model);
	uint64_t T = 128, h = 64;
	assert_int_equal(f.stages.layers[1].stash_bytes, 4 * T * (4 * h + 4 * h + 2 * 256 + 4 + 4));
	assert_int_equal(f.stages.layers[1].split_bytes, 4 * T * 4 * h);
	assert_int_equal(f.stages.layers[0].stash_bytes, 0);
	assert_int_equal(f.stages.layers[0].split_bytes, 4 * T * h);
	assert_int_equal(f.stages.layers[5].stash_bytes, 4 * T * (h + 2));
	assert_int_equal(f.stages.layers[6].stash_bytes, 4 * T * (h + 256));
	assert_int_equal(f.stages.layers[6].split_bytes, 0);
	assert_int_equal(f.stages.layers[1].output_bytes, 4 * T * h);
	assert_int_equal(f.stages.layers[6].output_bytes, 0);
	f.spec->dtype = PP_BF16;
	pp_cost_layers(f.arena, f.spec, &f.stages);
	assert_int_equal(f.stages.layers[1].stash_bytes, 2 * T * (4 * h + 4 * h + 2 * 256) + 4 * T * (4 + 4));
	assert_int_equal(f.stages.layers[1].output_bytes, 2 * T * h);
	pp_arena_destroy(f.arena);
}

static void traffic_of_memory_bound_layers(void **state)
{
	(void)state;
	struct fixture f = priced(&demo_model);
	uint64_t T = 128, h = 64, ffn = 256, V = 256, norm = 8 * T * h + 8 * h + 8 * T;
	const struct pp_layer_counts *block = &f.stages.layers[1];
	assert_int_equal(f.stages.layers[5].memory_bytes[PP_PHASE_F], norm);
	assert_int_equal(f.stages.layers[5].memory_bytes[PP_PHASE_I], 12 * T * h + 4 * h + 8 * T);
	assert_int_equal(f.stages.layers[5].memory_bytes[PP_PHASE_W], 8 * T * h + 8 * h + 8 * T);
	assert_int_equal(block->memory_bytes[PP_PHASE_F], 2 * norm + 2 * 12 * T * h + 8 * T * ffn);
	assert_int_equal(block->memory_bytes[PP_PHASE_I], 2 * (12 * T * h + 4 * h + 8 * T) + 4 * 12 * T * h + 12 * T * ffn);
	assert_int_equal(f.stages.layers[6].memory_bytes[PP_PHASE_F], 8 * T * V + 4 * T + 16);
	assert_int_equal(f.stages.layers[0].memory_bytes[PP_PHASE_F], 12 * T * h + 4 * T);
	pp_arena_destroy(f.arena);
}

static void ticks_round_to_nanoseconds(void **state)
{
	(void)state;
	struct fixture f = priced(&demo_model);
	/* head: 2 T V h FLOPs at 50 GFLOP/s = 83,886.08 ns; loss traffic 262,672 bytes at 8.5 GB/s = 30,902.6 ns */
	assert_int_equal(f.stages.layer_ticks[6][PP_PHASE_F], 114789);
	assert_int_equal(f.stages.layer_ticks[6][PP_PHASE_I], 83886);
	assert_int_equal(f.stages.layer_ticks[6][PP_PHASE_B], 2 * 83886);
	assert_int_equal(f.stages.layer_ticks[0][PP_PHASE_I], 0);
	f.spec->cluster.gpu.flops[PP_F32] = 4000000000000000000ull;
	f.spec->cluster.gpu.bandwidth = 0;
	pp_cost_layers(f.arena, f.spec, &f.stages);
	assert_int_equal(f.stages.layer_ticks[6][PP_PHASE_I], 1); /* some work is at least 1 ns */
	assert_int_equal(f.stages.layer_ticks[0][PP_PHASE_F], 1);
	assert_int_equal(f.stages.layer_ticks[0][PP_PHASE_I], 0);
	pp_arena_destroy(f.arena);
}

static void custom_times_and_flops(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_spec *spec = fixture_spec(arena, &demo_model);
	struct pp_layer layers[2] = {
	    fixture_custom(&demo_model, "a",
	                   (struct pp_custom){.time_f = 1000, .time_i = 700, .time_w = 0, .activation = 65, .output = 10}),
	    fixture_custom(&demo_model, "b",
	                   (struct pp_custom){.params = 7,
	                                      .flops = 50000,
	                                      .time_f = PP_TIME_UNSET,
	                                      .time_i = PP_TIME_UNSET,
	                                      .time_w = PP_TIME_UNSET}),
	};
	spec->model.layers = layers;
	spec->model.layer_count = 2;
	spec->model.trains = false;
	struct pp_stages stages = {0};
	pp_cost_layers(arena, spec, &stages);
	assert_int_equal(stages.layer_ticks[0][PP_PHASE_F], 1000);
	assert_int_equal(stages.layer_ticks[0][PP_PHASE_B], 700);
	assert_int_equal(stages.layer_ticks[0][PP_PHASE_W], 0);
	assert_int_equal(stages.layers[0].stash_bytes, 128);
	assert_int_equal(stages.layers[0].output_bytes, 12);
	assert_int_equal(stages.layer_ticks[1][PP_PHASE_F], 1000);
	assert_int_equal(stages.layer_ticks[1][PP_PHASE_B], 2000);
	assert_int_equal(stages.layers[1].output_bytes, 0);
	const uint32_t both[] = {0};
	fixture_stages(arena, spec, both, 1, 1, &stages);
	pp_cost_stages(spec, &stages);
	assert_int_equal(stages.items[0].params, 7);
	assert_int_equal(stages.items[0].ticks[PP_PHASE_B], 2700);
	assert_int_equal(stages.items[0].flops[PP_PHASE_F], 50000);
	pp_arena_destroy(arena);
}

/* Who stores the tied table: one extra copy of 64,000 as soon as embedding and head part; none on one rank. */
static void tied_copies_by_rank(void **state)
{
	(void)state;
	const uint32_t one[] = {0}, two[] = {0, 3}, four[] = {0, 2, 3, 4}, vee[] = {0, 2, 4};
	uint64_t block = 12 * 64 * 64 + 13 * 64, unique = 64000 + 32 * 64 + 4 * block + 128;
	struct fixture f = priced(&field_b13);
	staged(&f, one, 1, 1);
	assert_int_equal(rank_params(&f, 0), unique);
	staged(&f, two, 2, 2);
	assert_int_equal(rank_params(&f, 0), 64000 + 32 * 64 + 2 * block);
	assert_int_equal(rank_params(&f, 1), 2 * block + 128 + 64000);
	staged(&f, four, 4, 4);
	assert_int_equal(rank_params(&f, 0) + rank_params(&f, 1) + rank_params(&f, 2) + rank_params(&f, 3), unique + 64000);
	assert_int_equal(rank_params(&f, 3), block + 128 + 64000);
	staged(&f, vee, 3, 2); /* stages 0 and 2 on rank 0: one copy, two gradients */
	assert_int_equal(rank_params(&f, 0) + rank_params(&f, 1), unique);
	assert_int_equal(f.stages.items[2].static_bytes, 16 * (block + 128) + 4 * 64000);
	f.spec->model.layers[6].tie = PP_NULL;
	staged(&f, one, 1, 1);
	assert_int_equal(rank_params(&f, 0), unique + 64000);
	staged(&f, four, 4, 4);
	assert_int_equal(rank_params(&f, 3), block + 128 + 64000);
	pp_arena_destroy(f.arena);
}

static void sizes_saturate(void **state)
{
	(void)state;
	struct pp_layer layer = fixture_layer(&demo_model, PP_LAYER_BLOCK, "block");
	layer.hidden = layer.ffn = layer.heads = layer.head_dim = layer.seq = UINT32_MAX;
	struct pp_spec spec = {.dtype = PP_F32, .parallel = {.tp = 1}, .train = {.microbatch = UINT32_MAX}};
	struct pp_layer_counts counts;
	pp_layer_count(&layer, &spec, &counts);
	assert_true(counts.matmul_flops[PP_PHASE_B] == UINT64_MAX);
	assert_true(counts.stash_bytes == UINT64_MAX);
	assert_true(counts.split_bytes == UINT64_MAX);
	assert_int_equal(counts.extra_bytes, 0);
}

/* The check that goes before everything that plans arrays. */
static void sizes_that_cannot_be_planned(void **state)
{
	(void)state;
	static const char *const expected[] = {
	    "",
	    "error: an array of layer `block[1]` has more than 2^32 - 1 rows, columns or elements [E0312]\n",
	    "error: with layer `block[0]` a microbatch keeps more than 2^50 bytes of activations [E0312]\n",
	    "error: with layer `head` the parameters take more than 2^50 bytes [E0312]\n",
	    "error: an array of layer `head` has more than 2^32 - 1 rows, columns or elements [E0312]\n",
	};
	for (unsigned i = 0; i < 5; i++) {
		struct fixture f = priced(&demo_model);
		struct pp_layer *layers = f.spec->model.layers;
		if (i == 1)
			layers[2].heads = layers[2].head_dim = 1u << 16;
		else if (i == 2)
			layers[1].ffn = layers[1].seq = 1u << 30;
		else if (i == 3)
			layers[6].padded_vocab = layers[6].hidden = 1u << 24;
		else if (i == 4)
			layers[6] = fixture_custom(&demo_model, "head", (struct pp_custom){.output = 1ull << 36});
		struct pp_diag *diag = pp_diag_create(f.arena, pp_sources_create(f.arena));
		assert_int_equal(pp_layers_check(f.arena, f.spec, diag), i == 0);
		char *text = NULL;
		size_t length = 0;
		FILE *out = open_memstream(&text, &length);
		pp_diag_print(diag, out, PP_DIAG_SHORT, false);
		fclose(out);
		assert_string_equal(text, expected[i]);
		free(text);
		pp_arena_destroy(f.arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gpt2_small_has_its_published_size),
	    cmocka_unit_test(demo_model_size),
	    cmocka_unit_test(flops_of_a_step),
	    cmocka_unit_test(flops_of_a_block),
	    cmocka_unit_test(llama_models_have_their_published_sizes),
	    cmocka_unit_test(counts_of_a_llama_block),
	    cmocka_unit_test(stash_of_a_block),
	    cmocka_unit_test(traffic_of_memory_bound_layers),
	    cmocka_unit_test(ticks_round_to_nanoseconds),
	    cmocka_unit_test(custom_times_and_flops),
	    cmocka_unit_test(tied_copies_by_rank),
	    cmocka_unit_test(sizes_saturate),
	    cmocka_unit_test(sizes_that_cannot_be_planned),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
