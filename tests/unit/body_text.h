/* Bodies as text, for tests: one line per register and per instruction. */
#ifndef BODY_TEXT_H
#define BODY_TEXT_H

#include "ir/program.h"

#include <stdio.h>

static inline void body_print_registers(const struct pp_body *body, FILE *out)
{
	for (uint32_t r = 0; r < body->reg_count; r++) {
		const struct pp_reg *reg = &body->regs[r];
		fprintf(out, "%s = %s", reg->name, pp_base_name[reg->base]);
		if (reg->slot != PP_NULL)
			fprintf(out, ".%u", reg->slot);
		fprintf(out, "+%llu %s[%u,%u]\n", (unsigned long long)reg->offset, pp_dtype_name[reg->dtype], reg->rows,
		        reg->columns);
	}
}

static inline void body_print_instructions(const struct pp_body *body, FILE *out)
{
	for (uint32_t i = 0; i < body->count; i++) {
		const struct pp_body_instr *instr = &body->items[i];
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
		fprintf(out, "%s", info.mnemonic);
		for (unsigned k = 0; k < (unsigned)info.input_count + info.output_count; k++)
			fprintf(out, "%s %s", k == info.input_count ? " ->" : "",
			        instr->operand[k] == PP_NULL ? "-" : body->regs[instr->operand[k]].name);
		for (unsigned k = 0; k < info.immediate_count; k++)
			fprintf(out, " #%llu", (unsigned long long)instr->imm[k]);
		fputc('\n', out);
	}
}

#endif
