/* The spec of a small model with known gradients: what its sizes and the names of its tensors say. */
#ifndef PP_TEST_REFERENCE_SPEC_H
#define PP_TEST_REFERENCE_SPEC_H

#include "reference.h"

#include "../unit/model_fixture.h"

static inline struct pp_spec *reference_spec(struct pp_arena *arena, const struct reference *model)
{
	const struct reference_shape *shape = &model->shape;
	struct model_size size = {shape->hidden, shape->heads, shape->kv_heads,   shape->layers, shape->ffn,
	                          shape->vocab,  shape->seq,   shape->microbatch, shape->tied};
	struct pp_spec *spec = fixture_spec(arena, &size);
	spec->microbatches = shape->microbatches;
	for (uint32_t i = 0; i < spec->model.layer_count; i++) {
		struct pp_layer *layer = &spec->model.layers[i];
		layer->window = shape->window;
		layer->head_dim = shape->head_dim;
		layer->act = shape->theta ? PP_ACT_SWIGLU : shape->tanh ? PP_ACT_GELU_TANH : PP_ACT_GELU;
		layer->rms = shape->theta != 0;
		layer->rope_theta = shape->theta;
		layer->qk_norm = shape->qk_norm;
		layer->qkv_bias = reference_tensor_named(model, "block.0.attn.q.bias") != NULL;
		layer->bias = reference_tensor_named(model, "block.0.attn.o.bias") != NULL;
	}
	return spec;
}

#endif
