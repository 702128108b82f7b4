/* V10: what crosses a boundary between stages is read as it was written. Values have no names there, so place, shape,
 * dtype and tensor-parallel type must agree: a [4,8] that is read as [8,4] has the right number of bytes.
 *
 * requires: bodies that pass on their own; their results noted as they were checked.
 * ensures:  every value that a body reads from `in` or `dout` is one that the neighbour stage leaves in its `out` or
 *           `din`, in each phase that makes it. */
#include "body.h"

#include <inttypes.h>
#include <stdlib.h>

static int by_offset(const void *left, const void *right)
{
	const struct pp_reg *a = *(const struct pp_reg *const *)left, *b = *(const struct pp_reg *const *)right;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

void pp_body_results_note(struct pp_body_verifier *v, const struct pp_body *body, const struct pp_values *values)
{
	struct pp_body_results *results = &v->results[body - v->program->bodies];
	uint8_t base = body->phase == PP_PHASE_F ? PP_BASE_OUT : PP_BASE_DIN;
	uint32_t count = 0;
	for (uint32_t r = 0; r < body->reg_count; r++)
		count += body->regs[r].base == base;
	results->regs = PP_NEW_ARRAY(v->arena, const struct pp_reg *, count);
	for (uint32_t r = 0; r < body->reg_count; r++)
		if (body->regs[r].base == base && pp_value_at(values, &body->regs[r]) == &body->regs[r])
			results->regs[results->count++] = &body->regs[r];
	if (results->count)
		qsort(results->regs, results->count, sizeof *results->regs, by_offset);
}

static bool read_as_left(const struct pp_body_verifier *v, const struct pp_body_check *check, const struct pp_reg *reg,
                         uint32_t maker)
{
	const struct pp_body_results *results = &v->results[maker];
	const struct pp_reg *const *found =
	    results->count ? bsearch(&reg, results->regs, results->count, sizeof *results->regs, by_offset) : NULL;
	const struct pp_reg *left = found ? *found : NULL;
	if (left && left->rows == reg->rows && left->columns == reg->columns && left->dtype == reg->dtype &&
	    left->type == reg->type && (left->type != PP_TYPE_S || left->shard == reg->shard))
		return true;
	const struct pp_body *body = &v->program->bodies[maker];
	char read[64], held[64];
	if (left)
		pp_body_complain(check,
		                 "reads %s (%s at byte %" PRIu64 " of %s), but body s%" PRIu32 ".%s leaves %s there (%s%s)",
		                 reg->name, pp_reg_shape_text(reg, read), reg->offset, pp_base_name[reg->base], body->stage,
		                 pp_phase_name[body->phase], left->name, pp_reg_shape_text(left, held),
		                 left->type != reg->type ? ", another tensor-parallel type" : "");
	else
		pp_body_complain(check,
		                 "reads %s (%s at byte %" PRIu64 " of %s), but no value that body s%" PRIu32
		                 ".%s leaves begins there",
		                 reg->name, pp_reg_shape_text(reg, read), reg->offset, pp_base_name[reg->base], body->stage,
		                 pp_phase_name[body->phase]);
	return false;
}

/* What the register must agree with: phases of the stage that makes its value. */
static bool boundary_read(const struct pp_body_verifier *v, const struct pp_body_check *check, const struct pp_reg *reg)
{
	bool forward = reg->base == PP_BASE_IN;
	if (!forward && reg->base != PP_BASE_DOUT)
		return true;
	const struct pp_stage *maker = &v->program->stages[forward ? check->body->stage - 1 : check->body->stage + 1];
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		bool makes = forward ? phase == PP_PHASE_F : phase == PP_PHASE_B || phase == PP_PHASE_I;
		if (makes && maker->body[phase] != PP_NULL && !read_as_left(v, check, reg, maker->body[phase]))
			return false;
	}
	return true;
}

bool pp_body_boundary_check(const struct pp_body_verifier *v, const struct pp_body *body)
{
	struct pp_body_check check = {.program = v->program, .body = body, .diag = v->diag};
	for (; check.at < body->count; check.at++) {
		const struct pp_body_instr *instr = &body->items[check.at];
		unsigned inputs = pp_body_op_info((enum pp_body_op)instr->op).input_count;
		for (unsigned i = 0; i < inputs; i++)
			if (instr->operand[i] != PP_NULL && !boundary_read(v, &check, &body->regs[instr->operand[i]]))
				return false;
	}
	return true;
}
