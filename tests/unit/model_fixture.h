/* A spec made in C, for the tests of counts, bodies and their verification. */
#ifndef MODEL_FIXTURE_H
#define MODEL_FIXTURE_H

#include "ir/arena.h"
#include "ir/spec.h"
#include "ir/stages.h"

#include <string.h>

struct model_size {
	uint32_t hidden, heads, kv_heads, blocks, ffn, vocab, seq, microbatch;
	bool tied;
};

static inline struct pp_layer fixture_layer(const struct model_size *size, enum pp_layer_kind kind, const char *name)
{
	return (struct pp_layer){
	    .name = name,
	    .kind = (uint8_t)kind,
	    .hidden = size->hidden,
	    .heads = size->heads,
	    .kv_heads = size->kv_heads,
	    .head_dim = size->hidden / size->heads,
	    .ffn = size->ffn,
	    .vocab = size->vocab,
	    .padded_vocab = size->vocab,
	    .seq = size->seq,
	    .act = PP_ACT_GELU_TANH,
	    .bias = true,
	    .tie = PP_NULL,
	};
}

static inline struct pp_layer fixture_custom(const struct model_size *size, const char *name, struct pp_custom custom)
{
	struct pp_layer layer = fixture_layer(size, PP_LAYER_CUSTOM, name);
	layer.custom = custom;
	return layer;
}

/* emb, block*blocks, norm, head; 100 GFLOP/s at efficiency 0.5, 10 GB/s, AdamW. */
static inline struct pp_spec *fixture_spec(struct pp_arena *arena, const struct model_size *size)
{
	struct pp_spec *spec = PP_NEW(arena, struct pp_spec);
	spec->model = (struct pp_model){.name = "m",
	                                .layer_count = size->blocks + 3,
	                                .hidden = size->hidden,
	                                .vocab = size->vocab,
	                                .padded_vocab = size->vocab,
	                                .seq = size->seq,
	                                .trains = true,
	                                .init_std = 0.02};
	spec->model.layers = PP_NEW_ARRAY(arena, struct pp_layer, spec->model.layer_count);
	struct pp_layer *layer = spec->model.layers;
	*layer++ = fixture_layer(size, PP_LAYER_EMBEDDING, "emb");
	for (uint32_t i = 0; i < size->blocks; i++, layer++) {
		*layer = fixture_layer(size, PP_LAYER_BLOCK, "block");
		layer->index = i;
		layer->indexed = true;
		layer->block_ordinal = i;
		layer->block_total = size->blocks;
	}
	*layer++ = fixture_layer(size, PP_LAYER_NORM, "norm");
	*layer = fixture_layer(size, PP_LAYER_HEAD, "head");
	layer->tie = size->tied ? 0 : PP_NULL;
	spec->cluster.gpu =
	    (struct pp_gpu){.name = "cpu_core", .memory = 4ull << 30, .bandwidth = 10000000000ull, .efficiency = 0.5};
	spec->cluster.gpu.flops[PP_F32] = spec->cluster.gpu.flops[PP_BF16] = 100000000000ull;
	spec->parallel.tp = spec->parallel.pp = spec->parallel.vpp = spec->parallel.dp = 1;
	spec->microbatches = 4;
	spec->dtype = PP_F32;
	spec->train = (struct pp_train){.microbatch = size->microbatch, .seq = size->seq, .vocab = size->vocab, .steps = 1};
	return spec;
}

/* `count` stages that begin at the given layers; stage s on rank s mod ranks. */
static inline void fixture_stages(struct pp_arena *arena, const struct pp_spec *spec, const uint32_t *first,
                                  uint32_t count, uint32_t ranks, struct pp_stages *stages)
{
	stages->count = count;
	stages->items = PP_NEW_ARRAY(arena, struct pp_stage_plan, count);
	for (uint32_t s = 0; s < count; s++) {
		uint32_t end = s + 1 < count ? first[s + 1] : spec->model.layer_count;
		stages->items[s].first_layer = first[s];
		stages->items[s].layer_count = end - first[s];
		stages->items[s].rank = s % ranks;
	}
}

static const struct model_size gpt2_small = {768, 12, 12, 12, 3072, 50257, 1024, 1, true};
static const struct model_size demo_model = {64, 4, 4, 4, 256, 256, 64, 2, false};
static const struct model_size field_b13 = {64, 4, 4, 4, 256, 1000, 32, 1, true};

#endif
