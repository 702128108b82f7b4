/* Small functions on the spec. */
#include "spec.h"

#include <assert.h>
#include <string.h>

const char *pp_layer_title(struct pp_arena *arena, const struct pp_layer *layer)
{
	return layer->indexed ? pp_arena_printf(arena, "%s[%u]", layer->name, layer->index) : layer->name;
}

/* The layers from layers[0] on that are one statement's, in order. */
static uint32_t run_length(const struct pp_layer *layers, uint32_t count)
{
	uint32_t length = 1;
	while (length < count && layers[0].indexed && layers[length].indexed &&
	       strcmp(layers[length].name, layers[0].name) == 0 && layers[length].index == layers[0].index + length)
		length++;
	return length;
}

const char *pp_layers_title(struct pp_arena *arena, const struct pp_layer *layers, uint32_t count)
{
	enum { MOST_GROUPS = 8 };
	const char *title = count ? "" : "empty";
	uint32_t groups = 0;
	for (uint32_t i = 0; i < count; groups++) {
		if (groups == MOST_GROUPS)
			return pp_arena_printf(arena, "%s and %u more", title, count - i);
		const struct pp_layer *first = &layers[i];
		uint32_t length = run_length(first, count - i);
		const char *group =
		    length == 1 ? pp_layer_title(arena, first)
		                : pp_arena_printf(arena, "%s[%u..%u]", first->name, first->index, first->index + length - 1);
		title = pp_arena_printf(arena, "%s%s%s", title, i ? ", " : "", group);
		i += length;
	}
	return title;
}

uint32_t pp_place_rank(enum pp_place place, uint32_t stage, uint32_t ranks, uint32_t vpp)
{
	switch (place) {
	case PP_PLACE_LOOP:
		return stage % ranks;
	case PP_PLACE_V:
		return stage / ranks % 2 == 0 ? stage % ranks : ranks - 1 - stage % ranks;
	case PP_PLACE_LINEAR:
		return stage / vpp;
	case PP_PLACE_LIST:
		break;
	}
	assert(!"a list placement has its own table");
	return 0;
}

/* Groups fill blocks of tp * stride ranks. Blocks that do not end where nodes do have one that lies across the end of
 * the first node, and in it a group that does. */
bool pp_tp_crosses_nodes(const struct pp_spec *spec, uint64_t *first, uint64_t *stride)
{
	const struct pp_parallel *parallel = &spec->parallel;
	uint64_t gpus = spec->cluster.gpus, world = (uint64_t)parallel->tp * parallel->pp * parallel->dp;
	*stride = 1;
	for (unsigned i = 0; i < PP_AXIS_COUNT && parallel->rank_order[i] != PP_AXIS_TP; i++)
		*stride *= parallel->rank_order[i] == PP_AXIS_PP ? parallel->pp : parallel->dp;
	uint64_t block = *stride * parallel->tp, reach = (parallel->tp - 1) * *stride;
	if (gpus == 0 || world <= gpus || gpus % block == 0 || parallel->tp == 1)
		return false;
	uint64_t start = gpus / block * block, into = gpus - start;
	*first = start + (into > reach ? into - reach : 0);
	return true;
}
