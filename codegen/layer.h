/* Layer kinds: one file layer_<kind>.c each, one table row each. A kind knows its parameters, its exact costs and how
 * to write its forward, input-gradient and weight-gradient instructions. Formulas: cost model 1.1-1.3, sources in
 * the files. */
#ifndef PP_LAYER_H
#define PP_LAYER_H

#include "ir/diag.h"
#include "ir/program.h"
#include "ir/spec.h"
#include "ir/stages.h"

/* Whether every array of every layer can be planned: shapes and boundary messages fit 32 bits, and a microbatch keeps,
 * like the parameters, at most 2^50 bytes in the whole model (E0312 at the layer). To be called before any of the
 * functions below; only pp_layer_count does without. */
bool pp_layers_check(struct pp_arena *arena, const struct pp_spec *spec, struct pp_diag *diag);

/* Exact counts of one layer for one microbatch, in the dtype and under the tensor parallelism of the spec. */
void pp_layer_count(const struct pp_layer *layer, const struct pp_spec *spec, struct pp_layer_counts *counts);

/* Collectives of a layer's bodies on the tensor-parallel group; none with tp = 1. */
struct pp_layer_collective {
	uint8_t kind;    /* enum pp_collective */
	uint8_t phases;  /* mask of 1 << enum pp_phase: the bodies that have it */
	uint64_t bytes;  /* of the whole value: what is summed, gathered or scattered */
	uint64_t window; /* flops between its post and its await */
};
enum { PP_LAYER_COLLECTIVES_MAX = 20 };
struct pp_layer_collectives {
	struct pp_layer_collective items[PP_LAYER_COLLECTIVES_MAX];
	uint32_t count;
};
void pp_layer_collectives_list(const struct pp_layer *layer, const struct pp_spec *spec,
                               struct pp_layer_collectives *list);

/* Fill in program->tensors (global, layer order, tied tensors once) and program->uses (per stage, without slots) from
 * the spec and the stages. */
void pp_tensors_build(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages);

/* Fill in program->stages[] (title, out_count, loads, stash and aux bytes), create the static slots of every rank
 * (weights, grads, moments, losses, norms, scale, workspace; class and bytes, not placed) and build
 * program->bodies. `phases[s]` is a mask of 1 << enum pp_phase: which phases the schedule uses for stage s.
 * Where a stage is only ever run as fused B, what W needs of the output gradients lives in workspace instead of the
 * stash. */
void pp_bodies_build(struct pp_program *program, const struct pp_spec *spec, const struct pp_stages *stages,
                     const uint8_t *phases);

#endif
