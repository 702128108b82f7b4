/* Which instructions of a body run as one kernel. Requires a verified body. */
#include "fuse_cuda.h"

static const struct pp_reg *operand(const struct pp_body *body, uint32_t at, unsigned number)
{
	uint32_t reg = body->items[at].operand[number];
	return reg == PP_NULL ? NULL : &body->regs[reg];
}

/* Operands of a call lie in slots of their own, so only registers of one base can overlap. */
static bool overlap(const struct pp_reg *a, const struct pp_reg *b)
{
	if (!a || !b || a->base != b->base || a->slot != b->slot)
		return false;
	uint64_t a_end = a->offset + (uint64_t)a->rows * a->columns * pp_dtype_size[a->dtype];
	uint64_t b_end = b->offset + (uint64_t)b->rows * b->columns * pp_dtype_size[b->dtype];
	return a->offset < b_end && b->offset < a_end;
}

bool pp_cuda_fuses_add_norm(const struct pp_body *body, uint32_t at)
{
	enum { A, B, SUM };
	enum { X, GAMMA, BETA, Y, MEAN, RSTD };
	if (at + 1 >= body->count || body->items[at].op != PP_BODY_ADD || body->items[at + 1].op != PP_BODY_NORM)
		return false;
	if (body->items[at].operand[SUM] != body->items[at + 1].operand[X])
		return false;
	for (unsigned written = Y; written <= RSTD; written++)
		if (overlap(operand(body, at, A), operand(body, at + 1, written)) ||
		    overlap(operand(body, at, B), operand(body, at + 1, written)))
			return false;
	return true;
}

uint32_t pp_cuda_fused_add_of_norm_dx(const struct pp_body *body, uint32_t at, uint32_t end)
{
	enum { DX = 5 };
	enum { A, B, SUM };
	if (body->items[at].op != PP_BODY_NORM_DX)
		return 0;
	uint32_t dx = body->items[at].operand[DX], add = at + 1;
	if (add < end && body->items[add].op == PP_BODY_NORM_DW) /* reads what norm_dx reads, writes gradients */
		add++;
	if (add >= end || body->items[add].op != PP_BODY_ADD)
		return 0;
	const uint32_t *of_add = body->items[add].operand;
	return of_add[SUM] == dx && (of_add[A] == dx) != (of_add[B] == dx) ? add : 0;
}
