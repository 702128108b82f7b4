/* What several views say of a program in the same way. */
#include "emit.h"

#include "ir/lifetime.h"

const char *pp_dump_time(const struct pp_dump *dump, uint64_t ns)
{
	return pp_show_time(dump->arena, ns, dump->unit);
}

char pp_compute_letter(const struct pp_instr *instr)
{
	return pp_is_compute(instr) ? pp_phase_name[pp_phase_of(instr)][0] : '\0';
}

const char *pp_dump_action(const struct pp_dump *dump, const struct pp_instr *instr)
{
	uint32_t chunk = dump->chunk[instr->stage];
	if (chunk)
		return pp_arena_printf(dump->arena, "%c%u.%u", pp_compute_letter(instr), instr->mb, chunk);
	return pp_arena_printf(dump->arena, "%c%u", pp_compute_letter(instr), instr->mb);
}

struct pp_time_unit pp_stage_unit(const struct pp_dump *dump)
{
	uint64_t most = 0;
	for (uint32_t s = 0; s < dump->program->stage_count; s++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			if (dump->program->stages[s].ticks[phase] > most)
				most = dump->program->stages[s].ticks[phase];
	return most < dump->unit.ns ? pp_time_unit_for(most) : dump->unit;
}

uint64_t pp_rank_params(const struct pp_program *program, uint32_t rank)
{
	uint64_t params = 0;
	for (uint32_t i = 0; i < program->rank[rank].slot_count; i++) {
		const struct pp_slot *slot = &program->rank[rank].slots[i];
		if (slot->class == PP_SLOT_WEIGHT && slot->tensor != PP_NULL)
			params += (uint64_t)program->tensors[slot->tensor].rows * program->tensors[slot->tensor].columns;
	}
	return params;
}
