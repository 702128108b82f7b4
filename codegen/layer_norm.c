/* Layer kind `norm`: one normalisation of the hidden state, before the head. */
#include "body_builder.h"
#include "layer_traffic.h"

enum { WEIGHT, BIAS };
enum { X, MEAN, RSTD, DY };

/* LN 2h, RMS h (cost model 1.1). */
static void params(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_param *list)
{
	struct pp_param vector = {.rows = layer->hidden, .shard = PP_NOT_SHARDED, .partial = shape->sp};
	list[WEIGHT] = vector;
	list[WEIGHT].suffix = "weight";
	list[WEIGHT].init = PP_INIT_ONE;
	if (!pp_norm_has_beta(layer))
		return;
	list[BIAS] = vector;
	list[BIAS].suffix = "bias";
	list[BIAS].init = PP_INIT_ZERO;
}

static void parts(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_part *list)
{
	struct pp_part state = {.rows = shape->rows,
	                        .columns = layer->hidden,
	                        .dtype = (uint8_t)shape->dtype,
	                        .spread = (uint8_t)pp_hidden_spread(shape),
	                        .over = PP_NO_PART};
	list[X] = list[MEAN] = list[RSTD] = list[DY] = state;
	list[X].name = "x";
	list[MEAN].name = "mean";
	list[RSTD].name = "rstd";
	list[DY].name = "dy";
	list[DY].weight_pass = true;
	list[MEAN].columns = list[RSTD].columns = 1;
	list[MEAN].dtype = list[RSTD].dtype = PP_F32;
	if (layer->rms)
		list[MEAN].rows = 0;
}

/* Bound by memory in all phases (cost model 1.7). */
static void count(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_layer_counts *counts)
{
	counts->memory_bytes[PP_PHASE_F] = pp_traffic_norm(layer, shape);
	counts->memory_bytes[PP_PHASE_I] = pp_traffic_norm_dx(layer, shape);
	counts->memory_bytes[PP_PHASE_W] = pp_traffic_norm_dw(layer, shape);
	counts->output_bytes = pp_traffic_hidden(shape, 1, layer->hidden);
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
