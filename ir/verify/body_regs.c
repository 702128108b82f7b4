/* V10: registers of bodies. Each lies inside its operand, slot or workspace, and a parameter has the shape, dtype and
 * tensor-parallel type of its tensor.
 *
 * requires: a program whose indices are in range; the uses of the stage marked in the verifier.
 * ensures:  a register that passes has an end that fits its base. */
#include "body.h"

#include <inttypes.h>

uint64_t pp_stage_out_bytes(const struct pp_program *program, uint32_t stage)
{
	const struct pp_stage *at = &program->stages[stage];
	if (stage + 1 == program->stage_count) /* no stage reads it, no slot holds it */
		return 0;
	return (uint64_t)at->out_count * pp_dtype_size[at->out_dtype];
}

/* Bytes behind a base in the bodies of a stage. */
static uint64_t base_bytes(const struct pp_body_verifier *v, const struct pp_body *body, const struct pp_reg *reg)
{
	const struct pp_stage *stage = &v->program->stages[body->stage];
	switch ((enum pp_base)reg->base) {
	case PP_BASE_IN:
	case PP_BASE_DIN:
		return body->stage ? pp_stage_out_bytes(v->program, body->stage - 1) : 0;
	case PP_BASE_OUT:
	case PP_BASE_DOUT:
		return pp_stage_out_bytes(v->program, body->stage);
	case PP_BASE_AUX:
		return stage->aux_bytes;
	case PP_BASE_STASH:
		return stage->stash_bytes;
	case PP_BASE_EXTRA: /* B has it only from R */
		return body->phase == PP_PHASE_B && !stage->recomputes ? 0 : stage->extra_bytes;
	case PP_BASE_WORK:
		return body->work_bytes;
	case PP_BASE_LOSS:
		return v->has_losses[stage->rank] ? 2 * sizeof(double) : 0;
	case PP_BASE_WEIGHT:
	case PP_BASE_GRAD:
		return v->program->rank[stage->rank].slots[reg->slot].bytes;
	case PP_BASE_COUNT:
		break;
	}
	return 0;
}

bool pp_reg_end(const struct pp_reg *reg, uint64_t *end)
{
	uint64_t bytes;
	return !__builtin_mul_overflow((uint64_t)reg->rows * reg->columns, pp_dtype_size[reg->dtype], &bytes) &&
	       !__builtin_add_overflow(reg->offset, bytes, end);
}

bool pp_regs_overlap(const struct pp_reg *a, const struct pp_reg *b)
{
	uint64_t a_end, b_end;
	return a->base == b->base && a->slot == b->slot && pp_reg_end(a, &a_end) && pp_reg_end(b, &b_end) &&
	       a->offset < b_end && b->offset < a_end;
}

/* What crosses a stage's boundary has the dtype of the boundary and is no partial sum. */
static bool boundary_check(const struct pp_body_verifier *v, const struct pp_body_check *check,
                           const struct pp_reg *reg)
{
	bool input = reg->base == PP_BASE_IN || reg->base == PP_BASE_DIN;
	bool output = reg->base == PP_BASE_OUT || reg->base == PP_BASE_DOUT;
	if (!input && !output)
		return true;
	if (reg->type == PP_TYPE_P) {
		pp_body_complain_whole(
		    check, "register %s on %s holds partial sums (type P); reduce them over the tensor-parallel group first",
		    reg->name, pp_base_name[reg->base]);
		return false;
	}
	uint8_t wanted = v->program->stages[check->body->stage - (input ? 1 : 0)].out_dtype;
	if (reg->dtype == wanted)
		return true;
	pp_body_complain_whole(check, "register %s on %s is %s, expected %s as the boundary of the stage", reg->name,
	                       pp_base_name[reg->base], pp_dtype_name[reg->dtype], pp_dtype_name[wanted]);
	return false;
}

/* Norms, checkpoints and the first weights go by `tp_grad`, bodies by `shard`: both must say the same, and the shards
 * be of one size. */
static bool tensor_split_check(const struct pp_body_check *check, const struct pp_reg *reg,
                               const struct pp_tensor *tensor, uint32_t tp)
{
	bool split = tensor->shard < 2;
	uint32_t whole = tensor->shard == 1 ? tensor->columns : tensor->rows;
	if (split != (tensor->tp_grad == PP_TP_SHARDED))
		pp_body_complain_whole(check, "register %s names tensor %s, which is %s, but has `shard` %u (255: not split)",
		                       reg->name, tensor->name, pp_tp_grad_name[tensor->tp_grad], tensor->shard);
	else if (split && whole % tp)
		pp_body_complain_whole(check,
		                       "register %s names tensor %s, whose %" PRIu32 " %s do not fall into %" PRIu32 " shards",
		                       reg->name, tensor->name, whole, tensor->shard ? "columns" : "rows", tp);
	else
		return true;
	return false;
}

/* Local shape of a tensor: the sharded dimension is cut by tp. */
static bool tensor_shape_check(const struct pp_body_verifier *v, const struct pp_body_check *check,
                               const struct pp_reg *reg, const struct pp_tensor *tensor)
{
	uint32_t tp = v->program->tp ? v->program->tp : 1;
	bool sharded = tensor->shard < 2 && tp > 1;
	uint32_t rows = sharded && tensor->shard == 0 ? tensor->rows / tp : tensor->rows;
	uint32_t columns = sharded && tensor->shard == 1 ? tensor->columns / tp : tensor->columns;
	char shape[64];
	if (tp > 1 && !tensor_split_check(check, reg, tensor, tp))
		return false;
	if (reg->rows != rows || reg->columns != columns || reg->offset != 0) {
		pp_body_complain_whole(
		    check, "register %s is %s at byte %" PRIu64 ", expected [%" PRIu32 ",%" PRIu32 "] at byte 0 as tensor %s",
		    reg->name, pp_reg_shape_text(reg, shape), reg->offset, rows, columns, tensor->name);
		return false;
	}
	bool partial = tensor->tp_grad == PP_TP_REPLICATED_PARTIAL && reg->base == PP_BASE_GRAD;
	bool type_fits = reg->type == PP_TYPE_R   ? !sharded && !(partial && tp > 1)
	                 : reg->type == PP_TYPE_S ? tensor->shard == reg->shard
	                                          : partial;
	if (!type_fits)
		pp_body_complain_whole(check, "register %s has tensor-parallel type %s, which tensor %s (%s) does not",
		                       reg->name,
		                       reg->type == PP_TYPE_R   ? "R"
		                       : reg->type == PP_TYPE_P ? "P"
		                       : reg->shard             ? "S(1)"
		                                                : "S(0)",
		                       tensor->name, pp_tp_grad_name[tensor->tp_grad]);
	return type_fits;
}

static bool parameter_check(const struct pp_body_verifier *v, const struct pp_body_check *check,
                            const struct pp_reg *reg)
{
	bool grad = reg->base == PP_BASE_GRAD;
	const struct pp_rank *rank = &v->program->rank[v->program->stages[check->body->stage].rank];
	if (reg->slot >= rank->slot_count) {
		pp_body_complain_whole(check, "register %s names slot %" PRIu32 ", but the rank has %" PRIu32, reg->name,
		                       reg->slot, rank->slot_count);
		return false;
	}
	const struct pp_slot *slot = &rank->slots[reg->slot];
	uint8_t class = grad ? PP_SLOT_GRAD : PP_SLOT_WEIGHT;
	if (slot->class != class) {
		pp_body_complain_whole(check, "register %s names slot %" PRIu32 " of class %s, expected %s", reg->name,
		                       reg->slot, pp_slot_class_name[slot->class], pp_slot_class_name[class]);
		return false;
	}
	const struct pp_slot_use *named = grad ? &v->grads[reg->slot] : &v->weights[reg->slot];
	if (named->stage != check->body->stage + 1) {
		pp_body_complain_whole(check, "register %s names %s slot %" PRIu32 ", which no use of stage %" PRIu32 " has",
		                       reg->name, pp_slot_class_name[class], reg->slot, check->body->stage);
		return false;
	}
	const struct pp_tensor *tensor = &v->program->tensors[v->program->uses[named->use].tensor];
	uint8_t dtype = grad ? PP_F32 : tensor->dtype;
	if (reg->dtype != dtype) {
		pp_body_complain_whole(check, "register %s is %s, expected %s as tensor %s", reg->name,
		                       pp_dtype_name[reg->dtype], pp_dtype_name[dtype], tensor->name);
		return false;
	}
	return tensor_shape_check(v, check, reg, tensor);
}

bool pp_body_reg_check(const struct pp_body_verifier *v, const struct pp_body_check *check, const struct pp_reg *reg)
{
	bool parameter = reg->base == PP_BASE_WEIGHT || reg->base == PP_BASE_GRAD;
	uint64_t align = reg->base == PP_BASE_AUX ? pp_dtype_size[PP_I32] : 16, end;
	if (parameter && !parameter_check(v, check, reg))
		return false;
	if (reg->rows == 0 || reg->columns == 0) {
		pp_body_complain_whole(check, "register %s is empty: [%" PRIu32 ",%" PRIu32 "]", reg->name, reg->rows,
		                       reg->columns);
		return false;
	}
	if (reg->offset % align) {
		pp_body_complain_whole(check, "register %s begins at byte %" PRIu64 ", expected a multiple of %" PRIu64,
		                       reg->name, reg->offset, align);
		return false;
	}
	uint64_t limit = base_bytes(v, check->body, reg);
	if (!pp_reg_end(reg, &end) || end > limit) {
		char shape[64];
		pp_body_complain_whole(check,
		                       "register %s (%s at byte %" PRIu64 ") ends outside %s, which has %" PRIu64 " bytes",
		                       reg->name, pp_reg_shape_text(reg, shape), reg->offset, pp_base_name[reg->base], limit);
		return false;
	}
	return boundary_check(v, check, reg);
}
