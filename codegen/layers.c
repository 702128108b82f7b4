/* The table of layer kinds, and what follows from the lists of a kind: stash layout, collectives, boundary values.
 *
 * requires: layers as the resolver leaves them.
 * ensures:  sizes that do not fit stop at UINT64_MAX; nothing wraps. */
#include "layer_kind.h"

#include <assert.h>
#include <string.h>

const struct pp_kind *const pp_kinds[PP_LAYER_KIND_COUNT] = {
    [PP_LAYER_EMBEDDING] = &pp_kind_embedding, [PP_LAYER_BLOCK] = &pp_kind_block,   [PP_LAYER_NORM] = &pp_kind_norm,
    [PP_LAYER_HEAD] = &pp_kind_head,           [PP_LAYER_CUSTOM] = &pp_kind_custom,
};

struct pp_shape pp_shape_make(const struct pp_layer *layer, const struct pp_spec *spec)
{
	struct pp_shape shape = {.tokens = pp_times(spec->train.microbatch, layer->seq),
	                         .seq = layer->seq,
	                         .dtype = (enum pp_dtype)spec->dtype,
	                         .tp = spec->parallel.tp,
	                         .sp = spec->parallel.sp && spec->parallel.tp > 1};
	shape.rows = shape.sp ? shape.tokens / shape.tp : shape.tokens;
	return shape;
}

struct pp_param pp_param_local(const struct pp_param *param, const struct pp_shape *shape)
{
	struct pp_param local = *param;
	if (param->shard == 0)
		local.rows /= shape->tp;
	else if (param->shard == 1)
		local.columns /= shape->tp;
	return local;
}

static uint64_t part_bytes(const struct pp_part *part)
{
	uint64_t bytes = pp_times(pp_times(part->rows, part->columns), pp_dtype_size[part->dtype]);
	uint64_t padded = pp_plus(bytes, PP_PART_ALIGN - 1);
	return padded == UINT64_MAX ? padded : padded / PP_PART_ALIGN * PP_PART_ALIGN;
}

void pp_part_layout_make(const struct pp_layer *layer, const struct pp_shape *shape, bool split,
                         struct pp_part_layout *layout)
{
	memset(layout, 0, sizeof *layout);
	pp_kinds[layer->kind]->parts(layer, shape, layout->parts);
	for (unsigned i = 0; i < PP_PARTS_MAX; i++) {
		const struct pp_part *part = &layout->parts[i];
		if (part->rows == 0 || (part->weight_pass && !split))
			continue;
		if (part->weight_pass && part->over != PP_NO_PART) {
			assert(part->over < i && part_bytes(part) == part_bytes(&layout->parts[part->over]));
			layout->area[i] = layout->area[part->over];
			layout->offset[i] = layout->offset[part->over];
			continue;
		}
		layout->area[i] = part->weight_pass || layer->recompute & part->again ? PP_AREA_EXTRA : PP_AREA_STASH;
		uint64_t *bytes = &layout->bytes[layout->area[i]];
		layout->offset[i] = *bytes;
		*bytes = pp_plus(*bytes, part_bytes(part));
	}
}

void pp_layer_collectives_list(const struct pp_layer *layer, const struct pp_spec *spec,
                               struct pp_layer_collectives *list)
{
	struct pp_shape shape = pp_shape_make(layer, spec);
	list->count = 0;
	if (shape.tp > 1 && pp_kinds[layer->kind]->collectives)
		pp_kinds[layer->kind]->collectives(layer, &shape, list);
}

struct pp_flow pp_flow_after(const struct pp_layer *layer, const struct pp_shape *shape, struct pp_flow before)
{
	if (pp_kinds[layer->kind]->makes_hidden)
		return (struct pp_flow){PP_FLOW_HIDDEN, (uint8_t)shape->dtype, (uint8_t)pp_hidden_spread(shape), shape->rows,
		                        layer->hidden};
	if (layer->kind == PP_LAYER_CUSTOM && before.kind == PP_FLOW_HIDDEN)
		return before;
	if (layer->kind == PP_LAYER_CUSTOM && layer->custom.output)
		return (struct pp_flow){PP_FLOW_RAW, PP_F32, PP_WHOLE, pp_plus(layer->custom.output, 3) / 4, 1};
	return (struct pp_flow){.kind = PP_FLOW_NONE};
}

uint64_t pp_flow_bytes(const struct pp_flow *flow)
{
	return pp_times(pp_times(flow->rows, flow->columns), pp_dtype_size[flow->dtype]);
}
