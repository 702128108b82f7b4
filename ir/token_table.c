/* Finding tables of tokens in the bodies. Requires: a checked program. */
#include "token_table.h"

/* The linear that makes register `logits` of a body, or NULL. */
static const struct pp_body_instr *maker(const struct pp_body *body, uint32_t logits)
{
	enum { Y = 3 };
	for (uint32_t i = 0; i < body->count; i++)
		if (body->items[i].op == PP_BODY_LINEAR && body->items[i].operand[Y] == logits)
			return &body->items[i];
	return NULL;
}

/* The register of the table that a body instruction stands for, PP_NULL: none. */
static uint32_t table_of(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { LOGITS = 0, W = 1 };
	if (instr->op == PP_BODY_EMBED)
		return instr->operand[W];
	bool judges = instr->op == PP_BODY_XENT || instr->op == PP_BODY_XENT_STATS;
	const struct pp_body_instr *head = judges ? maker(body, instr->operand[LOGITS]) : NULL;
	return head ? head->operand[W] : PP_NULL;
}

static bool uses_as_table(const struct pp_body *body, uint32_t weight)
{
	for (uint32_t i = 0; i < body->count; i++) {
		uint32_t table = table_of(body, &body->items[i]);
		if (table != PP_NULL && body->regs[table].base == PP_BASE_WEIGHT && body->regs[table].slot == weight)
			return true;
	}
	return false;
}

bool pp_is_token_table(const struct pp_program *program, uint32_t tensor)
{
	for (uint32_t i = 0; i < program->use_count; i++) {
		const struct pp_use *use = &program->uses[i];
		if (use->tensor != tensor)
			continue;
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			uint32_t body = program->stages[use->stage].body[phase];
			if (body < program->body_count && uses_as_table(&program->bodies[body], use->weight))
				return true;
		}
	}
	return false;
}

uint32_t pp_tensor_rows(const struct pp_program *program, uint32_t tensor)
{
	uint32_t rows = program->tensors[tensor].rows;
	bool pads = program->train.vocab < rows && pp_is_token_table(program, tensor);
	return pads ? program->train.vocab : rows;
}
