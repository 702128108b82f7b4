/* Prices: from exact counts of work to integer times, per layer and per stage. */
#ifndef PP_COST_H
#define PP_COST_H

#include "ir/spec.h"
#include "ir/stages.h"

/* Fill in stages->layers and stages->layer_ticks for every layer of the spec's model, in the arena. */
void pp_cost_layers(struct pp_arena *arena, const struct pp_spec *spec, struct pp_stages *stages);

/* requires: pp_cost_layers done; first_layer, layer_count and rank of every item set.
 * ensures:  the other fields of every item: sums over its layers, tied tensors counted where they are stored. */
void pp_cost_stages(const struct pp_spec *spec, struct pp_stages *stages);

/* Bytes of the parameters of a layer that are stored once, and of all of them together. */
struct pp_layer_states {
	uint64_t weights, gradients, moments, masters;
};
struct pp_layer_states pp_cost_states(const struct pp_spec *spec, const struct pp_layer_counts *counts);
uint64_t pp_cost_static_bytes(const struct pp_spec *spec, const struct pp_layer_counts *counts);

#endif
