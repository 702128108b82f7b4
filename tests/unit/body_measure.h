/* The work of a body, from its instructions and their operands. */
#ifndef BODY_MEASURE_H
#define BODY_MEASURE_H

#include "ir/program.h"

static inline uint64_t reg_bytes(const struct pp_reg *reg)
{
	return (uint64_t)reg->rows * reg->columns * pp_dtype_size[reg->dtype];
}

/* Copies and collectives are no work of the layer's own. */
static inline bool is_moved(uint8_t op)
{
	return op == PP_BODY_COPY || op == PP_BODY_ALLREDUCE || op == PP_BODY_ALLGATHER || op == PP_BODY_REDUCESCATTER ||
	       op == PP_BODY_AWAIT;
}

/* What the instructions of a body do, added up from their operands. */
static inline void measure(const struct pp_body *body, uint64_t *matmul, uint64_t *attention, uint64_t *traffic)
{
	*matmul = *attention = *traffic = 0;
	for (uint32_t i = 0; i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
		const struct pp_reg *first = &body->regs[instr->operand[0]], *second = &body->regs[instr->operand[1]];
		if (instr->op == PP_BODY_LINEAR)
			*matmul += 2ull * first->rows * second->rows * second->columns;
		else if (instr->op == PP_BODY_LINEAR_DX)
			*matmul += 2ull * first->rows * second->rows * second->columns;
		else if (instr->op == PP_BODY_LINEAR_DW)
			*matmul += 2ull * first->rows * first->columns * second->columns;
		else if (instr->op == PP_BODY_ATTN)
			*attention += 4ull * first->rows * instr->imm[0] * first->columns;
		else if (instr->op == PP_BODY_ATTN_DX)
			*attention += 8ull * first->rows * instr->imm[0] * first->columns;
		else if (instr->op == PP_BODY_EMBED)
			*traffic +=
			    reg_bytes(first) + (instr->operand[2] == PP_NULL ? 2 : 3) * reg_bytes(&body->regs[instr->operand[3]]);
		else if (instr->op == PP_BODY_EMBED_DW)
			*traffic += reg_bytes(first) + reg_bytes(second) +
			            (instr->operand[3] == PP_NULL ? 8ull : 16ull) * second->rows * second->columns;
		else if (!is_moved(instr->op))
			for (unsigned k = 0; k < (unsigned)info.input_count + info.output_count; k++)
				*traffic += instr->operand[k] == PP_NULL ? 0 : reg_bytes(&body->regs[instr->operand[k]]);
	}
}

#endif
