/* Small functions on the spec. */
#include "spec.h"

#include <assert.h>

const char *pp_layer_title(struct pp_arena *arena, const struct pp_layer *layer)
{
	return layer->indexed ? pp_arena_printf(arena, "%s[%u]", layer->name, layer->index) : layer->name;
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
