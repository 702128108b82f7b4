/* What several views say of a program in the same way. */
#include "emit.h"

#include "ir/lifetime.h"

const char *pp_dump_time(const struct pp_dump *dump, uint64_t ns)
{
	return pp_show_time(dump->arena, ns, dump->unit);
}

const char *pp_dump_time_unit(const struct pp_dump *dump)
{
	return dump->costless ? "unit" : "ns";
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

/* Whether the forward body of a stage looks tokens up in this weight, or makes the logits of the loss with it. */
static bool is_token_table(const struct pp_program *program, uint32_t stage, uint32_t weight)
{
	enum { WEIGHT = 1, OUTPUT = 3, LOGITS = 0 };
	uint32_t at = program->stages[stage].body[PP_PHASE_F], logits = PP_NULL;
	const struct pp_body *body = at == PP_NULL ? NULL : &program->bodies[at];
	for (uint32_t i = 0; body && i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		bool linear = instr->op == PP_BODY_LINEAR, embeds = instr->op == PP_BODY_EMBED;
		uint32_t reg = linear || embeds ? instr->operand[WEIGHT] : PP_NULL;
		bool reads = reg != PP_NULL && body->regs[reg].base == PP_BASE_WEIGHT && body->regs[reg].slot == weight;
		bool ends = (instr->op == PP_BODY_XENT || instr->op == PP_BODY_XENT_STATS) && instr->operand[LOGITS] == logits;
		if ((reads && embeds) || (ends && logits != PP_NULL))
			return true;
		logits = reads ? instr->operand[OUTPUT] : logits;
	}
	return false;
}

uint64_t pp_use_params(const struct pp_program *program, uint32_t use)
{
	const struct pp_use *at = &program->uses[use];
	const struct pp_tensor *tensor = &program->tensors[at->tensor];
	bool pads = tensor->rows > program->train.vocab && is_token_table(program, at->stage, at->weight);
	return (uint64_t)(pads ? program->train.vocab : tensor->rows) * tensor->columns;
}

uint64_t pp_rank_params(const struct pp_program *program, uint32_t rank)
{
	uint64_t params = 0;
	for (uint32_t i = 0; i < program->use_count; i++) {
		const struct pp_use *use = &program->uses[i];
		bool here = program->stages[use->stage].rank == rank, counted = false;
		for (uint32_t k = i; here && k-- > 0 && program->uses[k].tensor == use->tensor;)
			counted |= program->stages[program->uses[k].stage].rank == rank;
		params += here && !counted ? pp_use_params(program, i) : 0;
	}
	return params;
}
