/* memory_floor.h: the bodies of all stages in both forms of the backward, for the sizes of their slots only.
 * O(stages and their bodies). */
#include "memory_floor.h"

#include "codegen/layer.h"
#include "ir/capped.h"
#include "ir/order_program.h"

enum { FORMS = 2 };
static const uint8_t phases_of[FORMS] = {
    1 << PP_PHASE_F | 1 << PP_PHASE_B,
    1 << PP_PHASE_F | 1 << PP_PHASE_I | 1 << PP_PHASE_W,
};

/* Bytes that all bodies of a rank share are as many as its hungriest body needs. */
static bool depends_on_bodies(uint8_t class)
{
	return class == PP_SLOT_WORK || class == PP_SLOT_SCRATCH;
}

static struct pp_program *build_form(struct pp_arena *scratch, const struct pp_unit *unit, uint8_t phases)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	uint8_t *all = PP_NEW_ARRAY(scratch, uint8_t, unit->stages.count);
	for (uint32_t s = 0; s < unit->stages.count; s++)
		all[s] = phases;
	struct pp_program *program = pp_unit_frame(unit, scratch);
	pp_tensors_build(program, spec, &unit->stages);
	pp_bodies_build(program, spec, &unit->stages, all);
	return program;
}

/* The workspace that each stage needs in this form, if that is less than in the others. */
static void count_workspace(struct pp_arena *scratch, const struct pp_program *program, uint64_t *least)
{
	uint64_t *most = PP_NEW_ARRAY(scratch, uint64_t, program->stage_count);
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		most[body->stage] = body->work_bytes > most[body->stage] ? body->work_bytes : most[body->stage];
	}
	for (uint32_t s = 0; s < program->stage_count; s++)
		least[s] = most[s] < least[s] ? most[s] : least[s];
}

uint64_t *pp_memory_floor(struct pp_arena *arena, const struct pp_unit *unit)
{
	uint32_t ranks = unit->resolved.spec.parallel.pp, stages = unit->stages.count;
	uint64_t *floor = PP_NEW_ARRAY(arena, uint64_t, ranks);
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint64_t *work = PP_NEW_ARRAY(scratch, uint64_t, ranks), *passing = PP_NEW_ARRAY(scratch, uint64_t, ranks),
	         *least = PP_NEW_ARRAY(scratch, uint64_t, stages);
	const struct pp_program *program = NULL;
	for (uint32_t s = 0; s < stages; s++)
		least[s] = UINT64_MAX;
	for (unsigned form = 0; form < FORMS; form++) {
		program = build_form(scratch, unit, phases_of[form]);
		count_workspace(scratch, program, least);
	}
	for (uint32_t r = 0; r < ranks; r++) {
		passing[r] = UINT64_MAX;
		for (uint32_t i = 0; i < program->rank[r].slot_count; i++)
			if (!depends_on_bodies(program->rank[r].slots[i].class))
				floor[r] = pp_plus(floor[r], pp_aligned(program->rank[r].slots[i].bytes));
	}
	for (uint32_t s = 0; s < stages; s++) {
		uint32_t r = program->stages[s].rank;
		uint64_t bytes = pp_order_passing_bytes(program, s);
		work[r] = least[s] > work[r] ? least[s] : work[r];
		passing[r] = bytes < passing[r] ? bytes : passing[r];
	}
	for (uint32_t r = 0; r < ranks; r++) {
		floor[r] = pp_plus(floor[r], work[r] ? pp_aligned(work[r]) : 0);
		floor[r] = pp_plus(floor[r], passing[r] == UINT64_MAX ? 0 : passing[r]); /* a rank may have no stage */
	}
	pp_arena_destroy(scratch);
	return floor;
}
