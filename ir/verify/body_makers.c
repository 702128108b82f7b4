/* V10: each value is made once, and for somebody. An instruction may write over what it reads; what was there before
 * and what is there then are values of different names on the same bytes. So a body writes a register at most once, and
 * a name says which value is meant: an instruction that is missing, doubled or in another order leaves a reader with
 * bytes that hold something else, or makes a second value of one name. And nothing is made in vain: of every
 * instruction one output is read, by another instruction of this body or of a later one of the stage, or is a result;
 * and every register is named by an instruction, or one that made a result has gone (not in a stage without parameters,
 * which may have nothing to give).
 *
 * requires: instructions that pass on their own; registers of a body with different names (the readers see to it).
 * ensures:  any order of a body's instructions that passes computes the same; no instruction can be left out or run
 *           twice. */
#include "body.h"

#include <inttypes.h>

void pp_makers_begin(struct pp_body_verifier *v, const struct pp_body *body)
{
	v->makers[body - v->program->bodies] = (struct pp_makers){
	    .writer = PP_NEW_ARRAY(v->arena, uint32_t, body->reg_count),
	    .used = PP_NEW_ARRAY(v->arena, bool, body->count),
	};
}

void pp_makers_read(struct pp_body_verifier *v, uint32_t stage, const struct pp_reg *written)
{
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		uint32_t b = v->program->stages[stage].body[phase];
		const struct pp_body *body = b == PP_NULL ? NULL : &v->program->bodies[b];
		if (!body || !v->makers[b].used || written < body->regs || written >= body->regs + body->reg_count)
			continue;
		uint32_t writer = v->makers[b].writer[written - body->regs];
		if (writer)
			v->makers[b].used[writer - 1] = true;
	}
}

bool pp_makers_write(struct pp_body_verifier *v, const struct pp_body_check *check, uint32_t reg)
{
	uint32_t *writer = &v->makers[check->body - v->program->bodies].writer[reg];
	if (*writer) {
		struct pp_message *message =
		    pp_body_complain(check, "writes %s a second time: instruction %" PRIu32 " has made it",
		                     check->body->regs[reg].name, *writer - 1);
		pp_help(message, "name each version of a value that is worked on in place, on the same bytes");
		return false;
	}
	*writer = check->at + 1;
	return true;
}

static bool all_named(const struct pp_body_verifier *v, const struct pp_body_check *check)
{
	const struct pp_body *body = check->body;
	bool *named = PP_NEW_ARRAY(v->arena, bool, body->reg_count);
	for (uint32_t i = 0; i < body->count; i++)
		for (unsigned k = 0; k < PP_BODY_OPERANDS_MAX; k++)
			if (body->items[i].operand[k] != PP_NULL)
				named[body->items[i].operand[k]] = true;
	for (uint32_t r = 0; r < body->reg_count; r++)
		if (!named[r]) {
			pp_body_complain_whole(check, "has a register %s that no instruction names", body->regs[r].name);
			return false;
		}
	return true;
}

bool pp_makers_used(struct pp_body_verifier *v, const struct pp_body *body)
{
	struct pp_body_check check = {.program = v->program, .body = body, .diag = v->diag};
	const struct pp_makers *makers = &v->makers[body - v->program->bodies];
	for (; makers->used && check.at < body->count; check.at++) {
		const struct pp_body_instr *instr = &body->items[check.at];
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
		if (info.output_count == 0 || makers->used[check.at])
			continue;
		pp_body_complain(&check, "makes %s, which nobody reads", body->regs[instr->operand[info.input_count]].name);
		return false;
	}
	return all_named(v, &check);
}
