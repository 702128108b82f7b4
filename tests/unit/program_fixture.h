/* A program with tensors, slots and bodies of a spec from model_fixture.h; no streams. */
#ifndef PROGRAM_FIXTURE_H
#define PROGRAM_FIXTURE_H

#include "model_fixture.h"

#include "codegen/layer.h"
#include "compiler/cost.h"

enum {
	FUSED = 1 << PP_PHASE_F | 1 << PP_PHASE_B,
	SPLIT = 1 << PP_PHASE_F | 1 << PP_PHASE_I | 1 << PP_PHASE_W,
	MIXED = FUSED | SPLIT
};

struct built {
	struct pp_arena *arena;
	struct pp_spec *spec;
	struct pp_stages stages;
	struct pp_program *program;
};

/* Bodies of all stages for the given phases; stage s on rank s mod ranks. */
static inline void build_bodies(struct built *built, const uint32_t *first, uint32_t count, uint32_t ranks,
                                uint8_t phases)
{
	struct pp_program *program = built->program = PP_NEW(built->arena, struct pp_program);
	uint8_t *masks = PP_NEW_ARRAY(built->arena, uint8_t, count);
	memset(masks, phases, count);
	pp_cost_layers(built->arena, built->spec, &built->stages);
	fixture_stages(built->arena, built->spec, first, count, ranks, &built->stages);
	pp_cost_stages(built->spec, &built->stages);
	*program = (struct pp_program){.arena = built->arena,
	                               .ranks = ranks,
	                               .tp = built->spec->parallel.tp,
	                               .dp = built->spec->parallel.dp,
	                               .zero = built->spec->parallel.zero,
	                               .vpp = 1,
	                               .microbatches = built->spec->microbatches,
	                               .train = built->spec->train};
	pp_tensors_build(program, built->spec, &built->stages);
	pp_bodies_build(program, built->spec, &built->stages, masks);
}

static inline struct built built_of(const struct model_size *size)
{
	struct built built = {.arena = pp_arena_create(NULL)};
	built.spec = fixture_spec(built.arena, size);
	return built;
}

/* What blocks may compute again: number i mod RECOMPUTES; 0: nothing. */
enum { RECOMPUTES = 7 };
static inline uint8_t recompute_variant(unsigned i)
{
	static const uint8_t variants[RECOMPUTES] = {0,
	                                             PP_RECOMPUTE_NORM,
	                                             PP_RECOMPUTE_ACT,
	                                             PP_RECOMPUTE_ATTENTION,
	                                             PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT,
	                                             PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT | PP_RECOMPUTE_ATTENTION,
	                                             PP_RECOMPUTE_FULL};
	return variants[i % RECOMPUTES];
}

/* All blocks compute again what the mask of enum pp_recompute says. */
static inline void recompute_blocks(struct built *built, uint8_t what)
{
	for (uint32_t l = 0; l < built->spec->model.layer_count; l++)
		if (built->spec->model.layers[l].kind == PP_LAYER_BLOCK)
			built->spec->model.layers[l].recompute = what;
}

static inline const struct pp_body *body_of(const struct built *built, uint32_t stage, enum pp_phase phase)
{
	return &built->program->bodies[built->program->stages[stage].body[phase]];
}

#endif
