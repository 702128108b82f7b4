/* What a layer counts: parameters, kept bytes, operations; and whether its arrays can be planned at all.
 *
 * requires: layers as the resolver leaves them.
 * ensures:  layer.h; sizes that do not fit stop at UINT64_MAX; nothing wraps. */
#include "layer_kind.h"

#include <string.h>

static uint64_t layout_bytes(const struct pp_part_layout *layout)
{
	return pp_plus(layout->bytes[PP_AREA_STASH], layout->bytes[PP_AREA_EXTRA]);
}

/* Whether all shapes of the layer fit the registers of a body, and its shares of stash and extra their 64 bits. */
static bool layer_fits(const struct pp_layer *layer, const struct pp_shape *shape)
{
	struct pp_part_layout layout;
	struct pp_param params[PP_PARAMS_MAX] = {0};
	pp_part_layout_make(layer, shape, true, &layout);
	pp_kinds[layer->kind]->params(layer, shape, params);
	/* The head gathers a row of statistics for each token and rank. */
	uint64_t widest = layer->kind == PP_LAYER_HEAD ? pp_times(shape->tokens, shape->tp) : shape->tokens;
	for (unsigned i = 0; i < PP_PARTS_MAX; i++)
		if (layer->kind != PP_LAYER_CUSTOM) /* its part is no register */
			widest = widest > layout.parts[i].columns ? widest : layout.parts[i].columns;
	for (unsigned i = 0; i < PP_PARAMS_MAX; i++) {
		widest = widest > params[i].rows ? widest : params[i].rows;
		widest = widest > params[i].columns ? widest : params[i].columns;
	}
	struct pp_flow hidden = {PP_FLOW_HIDDEN, 0, PP_WHOLE, shape->rows, layer->hidden}, none = {.kind = PP_FLOW_NONE};
	struct pp_flow after = pp_flow_after(layer, shape, layer->kind == PP_LAYER_CUSTOM ? none : hidden);
	return widest <= UINT32_MAX && layout_bytes(&layout) <= INT64_MAX &&
	       pp_times(after.rows, after.columns) <= UINT32_MAX;
}

/* Of the model, or of what one tensor-parallel rank keeps; each tensor in so many shards: the length of one. */
static uint64_t parameter_total(const struct pp_layer *layer, const struct pp_shape *shape, bool held, uint32_t shards)
{
	struct pp_param params[PP_PARAMS_MAX] = {0};
	pp_kinds[layer->kind]->params(layer, shape, params);
	uint64_t total = 0;
	for (unsigned i = 0; i < PP_PARAMS_MAX; i++) {
		struct pp_param param = held ? pp_param_local(&params[i], shape) : params[i];
		uint64_t rows = held ? param.rows : param.rows - param.padding;
		uint64_t elements = pp_times(rows, param.columns ? param.columns : 1);
		total = pp_plus(total, elements / shards + (elements % shards != 0));
	}
	if (layer->kind == PP_LAYER_CUSTOM)
		total = layer->custom.params / shards + (layer->custom.params % shards != 0);
	return total;
}

bool pp_layers_check(struct pp_arena *arena, const struct pp_spec *spec, struct pp_diag *diag)
{
	const uint64_t most = 1ull << 50;
	uint64_t kept = 0, params = 0;
	for (uint32_t i = 0; i < spec->model.layer_count; i++) {
		const struct pp_layer *layer = &spec->model.layers[i];
		struct pp_shape shape = pp_shape_make(layer, spec);
		struct pp_part_layout layout;
		pp_part_layout_make(layer, &shape, true, &layout);
		kept = pp_plus(kept, layout_bytes(&layout));
		params = pp_plus(params, pp_times(parameter_total(layer, &shape, true, 1), 16));
		if (layer_fits(layer, &shape) && kept <= most && params <= most)
			continue;
		const char *title = pp_layer_title(arena, layer);
		struct pp_message *message;
		if (kept > most)
			message = pp_error(diag, "E0312", layer->span,
			                   "with layer `%s` a microbatch keeps more than 2^50 bytes of activations", title);
		else if (params > most)
			message =
			    pp_error(diag, "E0312", layer->span, "with layer `%s` the parameters take more than 2^50 bytes", title);
		else
			message = pp_error(diag, "E0312", layer->span,
			                   "an array of layer `%s` has more than 2^32 - 1 rows, columns or elements", title);
		pp_help(message, "use a smaller microbatch, seq or hidden, or fewer bytes in custom layers");
		return false;
	}
	return true;
}

static void sum_backward(uint64_t phases[PP_PHASE_COUNT])
{
	phases[PP_PHASE_B] = pp_plus(phases[PP_PHASE_I], phases[PP_PHASE_W]);
}

void pp_layer_count(const struct pp_layer *layer, const struct pp_spec *spec, struct pp_layer_counts *counts)
{
	struct pp_shape shape = pp_shape_make(layer, spec);
	struct pp_part_layout fused, split;
	pp_part_layout_make(layer, &shape, false, &fused);
	pp_part_layout_make(layer, &shape, true, &split);
	memset(counts, 0, sizeof *counts);
	counts->params = parameter_total(layer, &shape, false, 1);
	counts->shard_params = parameter_total(layer, &shape, true, pp_spec_shards(spec));
	counts->stash_bytes = fused.bytes[PP_AREA_STASH];
	counts->extra_bytes = fused.bytes[PP_AREA_EXTRA];
	counts->split_bytes = split.bytes[PP_AREA_EXTRA] - fused.bytes[PP_AREA_EXTRA];
	counts->work_bytes = layer_fits(layer, &shape) ? pp_layer_work_bytes(layer, spec) : UINT64_MAX;
	pp_kinds[layer->kind]->count(layer, &shape, counts);
	sum_backward(counts->matmul_flops);
	sum_backward(counts->attention_flops);
	sum_backward(counts->repeated_flops);
	sum_backward(counts->memory_bytes);
	sum_backward(counts->fixed_ns);
}
