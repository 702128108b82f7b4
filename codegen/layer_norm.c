/* Layer kind `norm`: one normalisation of the hidden state, before the head. */
#include "layer_kind.h"
#include "layer_traffic.h"

enum { WEIGHT, BIAS };
enum { X, MEAN, RSTD, DY };

/* LN 2h, RMS h (cost model 1.1). */
static void params(const struct pp_layer *layer, struct pp_param *list)
{
	list[WEIGHT] = (struct pp_param){.suffix = "weight", .rows = layer->hidden, .init = PP_INIT_ONE, .shard = PP_NOT_SHARDED};
	if (pp_norm_has_beta(layer))
		list[BIAS] = (struct pp_param){.suffix = "bias", .rows = layer->hidden, .init = PP_INIT_ZERO, .shard = PP_NOT_SHARDED};
}

static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	uint8_t dtype = (uint8_t)shape->dtype;
	list[X] = (struct pp_part){.name = "x", .rows = shape->tokens, .columns = layer->hidden, .dtype = dtype, .over = PP_NOT_OVER};
	if (!layer->rms)
		list[MEAN] = (struct pp_part){.name = "mean", .rows = shape->tokens, .columns = 1, .dtype = PP_F32, .over = PP_NOT_OVER};
	list[RSTD] = (struct pp_part){.name = "rstd", .rows = shape->tokens, .columns = 1, .dtype = PP_F32, .over = PP_NOT_OVER};
	list[DY] = (struct pp_part){.name = "dy", .rows = shape->tokens, .columns = layer->hidden, .dtype = dtype,
	                            .weight_pass = true, .over = PP_NOT_OVER};
}

/* Bound by memory in all phases (cost model 1.7). */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	counts->memory_bytes[PP_PHASE_F] = pp_traffic_norm(layer, shape);
	counts->memory_bytes[PP_PHASE_I] = pp_traffic_norm_dx(layer, shape);
	counts->memory_bytes[PP_PHASE_W] = pp_traffic_norm_dw(layer, shape);
	counts->output_bytes = pp_traffic_rows(shape, 1, layer->hidden);
}

const struct pp_kind pp_kind_norm = {
    .name = "norm", .wants_input = true, .makes_hidden = true, .params = params, .parts = parts, .count = count,
};
