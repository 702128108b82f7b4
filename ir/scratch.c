/* Sizes of the scratch of GPU kernels, by formula. Requires: a program whose bodies were verified. */
#include "scratch.h"

#include "capped.h"
#include "program.h"

static uint64_t aligned(uint64_t bytes)
{
	const uint64_t last = PP_SCRATCH_ALIGN - 1;
	return bytes > UINT64_MAX - last ? UINT64_MAX : (bytes + last) / PP_SCRATCH_ALIGN * PP_SCRATCH_ALIGN;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* ---- by kernel -------------------------------------------------------------------------------- */

uint64_t pp_scratch_embed_dw(uint64_t tokens)
{
	return aligned(tokens);
}

/* Enough chunks to fill a GPU, so few that adding them up is nothing beside reading the rows. */
uint64_t pp_scratch_row_chunk(uint64_t rows)
{
	const uint64_t least = 64, most_chunks = 128;
	return larger(least, ceil_of(rows, most_chunks));
}

uint64_t pp_scratch_column_sums(uint64_t rows, uint64_t columns)
{
	uint64_t chunks = ceil_of(rows, pp_scratch_row_chunk(rows));
	return aligned(pp_times(pp_times(chunks, columns), sizeof(float)));
}

uint64_t pp_scratch_norm_dw(uint64_t rows, uint64_t columns)
{
	return pp_times(2, pp_scratch_column_sums(rows, columns)); /* dgamma, dbeta */
}

uint64_t pp_scratch_rotate(uint64_t seq, uint64_t head_columns)
{
	return aligned(pp_times(pp_times(seq, head_columns), sizeof(float))); /* half as many pairs, two numbers each */
}

uint64_t pp_scratch_cross_entropy(uint64_t tokens)
{
	return pp_plus(aligned(pp_times(tokens, sizeof(double))), PP_SCRATCH_ALIGN);
}

uint64_t pp_scratch_attention_dx(uint64_t tokens, uint64_t heads, uint64_t kv_heads, uint64_t head_columns)
{
	(void)kv_heads;
	(void)head_columns;
	return aligned(pp_times(pp_times(tokens, heads), sizeof(float)));
}

uint64_t pp_scratch_product(uint64_t rows, uint64_t columns)
{
	const uint64_t most = UINT64_C(32) << 20, parts = 8 * sizeof(float);
	uint64_t bytes = pp_times(pp_times(rows, columns), parts);
	return bytes < most ? aligned(bytes) : most;
}

uint64_t pp_scratch_square_norms(void)
{
	return aligned(PP_SCRATCH_NORM_CHUNKS * sizeof(double));
}

/* ---- of bodies -------------------------------------------------------------------------------- */

static const struct pp_reg *shape(const struct pp_body *body, const struct pp_body_instr *instr, unsigned operand)
{
	return &body->regs[instr->operand[operand]];
}

static uint64_t elements(const struct pp_reg *reg)
{
	return (uint64_t)reg->rows * reg->columns;
}

static uint64_t embed_dw(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { IDS, DY };
	return pp_scratch_embed_dw(shape(body, instr, DY)->rows);
}

static uint64_t norm_dw(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { DY, X, MEAN, RSTD, DGAMMA };
	uint64_t columns = shape(body, instr, DGAMMA)->rows;
	return pp_scratch_norm_dw(columns ? elements(shape(body, instr, X)) / columns : 0, columns);
}

static uint64_t linear(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { X, W, B, Y };
	return pp_scratch_product(shape(body, instr, X)->rows, shape(body, instr, W)->rows);
}

static uint64_t linear_dx(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { DY, W };
	return pp_scratch_product(shape(body, instr, DY)->rows, shape(body, instr, W)->columns);
}

static uint64_t linear_dw(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { DY, X, DW, DB };
	const struct pp_reg *dw = shape(body, instr, DW);
	uint64_t weight = pp_scratch_product(dw->rows, dw->columns);
	return larger(weight, pp_scratch_column_sums(shape(body, instr, DY)->rows, dw->rows));
}

static uint64_t attention_dx(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { DO, Q };
	uint64_t heads = instr->imm[1], columns = heads ? shape(body, instr, Q)->columns / heads : 0;
	return pp_scratch_attention_dx(shape(body, instr, Q)->rows, heads, instr->imm[2], columns);
}

static uint64_t rotate(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { X };
	uint64_t heads = instr->imm[1];
	return pp_scratch_rotate(instr->imm[0], heads ? shape(body, instr, X)->columns / heads : 0);
}

static uint64_t cross_entropy(const struct pp_body *body, const struct pp_body_instr *instr)
{
	enum { LOGITS };
	return pp_scratch_cross_entropy(shape(body, instr, LOGITS)->rows);
}

/* NULL: none. */
static uint64_t (*const of_op[PP_BODY_OP_COUNT])(const struct pp_body *, const struct pp_body_instr *) = {
    [PP_BODY_EMBED_DW] = embed_dw,   [PP_BODY_NORM_DW] = norm_dw,
    [PP_BODY_LINEAR] = linear,       [PP_BODY_LINEAR_DX] = linear_dx,
    [PP_BODY_LINEAR_DW] = linear_dw, [PP_BODY_ATTN_DX] = attention_dx,
    [PP_BODY_ROPE] = rotate,         [PP_BODY_ROPE_DX] = rotate,
    [PP_BODY_XENT] = cross_entropy,  [PP_BODY_XENT_SHARD] = cross_entropy,
};

uint64_t pp_scratch_bytes(const struct pp_program *program, const struct pp_body *body)
{
	(void)program;
	uint64_t most = 0;
	for (uint32_t i = 0; i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		if (of_op[instr->op])
			most = larger(most, of_op[instr->op](body, instr));
	}
	return most;
}

uint64_t pp_scratch_tail_bytes(const struct pp_program *program, uint32_t rank)
{
	for (uint32_t slot = 0; slot < program->rank[rank].slot_count; slot++)
		if (program->rank[rank].slots[slot].class == PP_SLOT_GRAD)
			return pp_scratch_square_norms();
	return 0;
}

uint64_t pp_scratch_rank_bytes(const struct pp_program *program, uint32_t rank)
{
	uint64_t most = pp_scratch_tail_bytes(program, rank);
	for (uint32_t b = 0; b < program->body_count; b++)
		if (program->stages[program->bodies[b].stage].rank == rank)
			most = larger(most, pp_scratch_bytes(program, &program->bodies[b]));
	return most;
}
