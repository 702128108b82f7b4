/* Layer kind `norm`: one normalisation of the hidden state, before the head. */
#include "body_builder.h"
#include "layer_traffic.h"

enum { WEIGHT, BIAS };
enum { X, MEAN, RSTD, DY };

/* LN 2h, RMS h (cost model 1.1). */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	(void)shape;
	list[WEIGHT] =
	    (struct pp_param){.suffix = "weight", .rows = layer->hidden, .init = PP_INIT_ONE, .shard = PP_NOT_SHARDED};
	if (pp_norm_has_beta(layer))
		list[BIAS] =
		    (struct pp_param){.suffix = "bias", .rows = layer->hidden, .init = PP_INIT_ZERO, .shard = PP_NOT_SHARDED};
}

static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	uint8_t dtype = (uint8_t)shape->dtype;
	list[X] = (struct pp_part){
	    .name = "x", .rows = shape->tokens, .columns = layer->hidden, .dtype = dtype, .over = PP_NO_PART};
	if (!layer->rms)
		list[MEAN] =
		    (struct pp_part){.name = "mean", .rows = shape->tokens, .columns = 1, .dtype = PP_F32, .over = PP_NO_PART};
	list[RSTD] =
	    (struct pp_part){.name = "rstd", .rows = shape->tokens, .columns = 1, .dtype = PP_F32, .over = PP_NO_PART};
	list[DY] = (struct pp_part){.name = "dy",
	                            .rows = shape->tokens,
	                            .columns = layer->hidden,
	                            .dtype = dtype,
	                            .weight_pass = true,
	                            .over = PP_NO_PART};
}

/* Bound by memory in all phases (cost model 1.7). */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	counts->memory_bytes[PP_PHASE_F] = pp_traffic_norm(layer, shape);
	counts->memory_bytes[PP_PHASE_I] = pp_traffic_norm_dx(layer, shape);
	counts->memory_bytes[PP_PHASE_W] = pp_traffic_norm_dw(layer, shape);
	counts->output_bytes = pp_traffic_rows(shape, 1, layer->hidden);
}

static void forward(struct pp_layer_build *build)
{
	pp_norm(build, WEIGHT, MEAN, build->input, build->output);
}

static void backward(struct pp_layer_build *build)
{
	if (build->dx != PP_NULL)
		pp_norm_dx(build, WEIGHT, MEAN, build->dy, pp_part(build, X), build->dx);
	pp_norm_dw(build, WEIGHT, MEAN, build->dy, pp_part(build, X));
}

const struct pp_kind pp_kind_norm = {
    .name = "norm",
    .wants_input = true,
    .makes_hidden = true,
    .gradient_part = DY,
    .params = params,
    .parts = parts,
    .count = count,
    .forward = forward,
    .backward = backward,
};
