/* Between the files of V10. */
#ifndef PP_VERIFY_BODY_H
#define PP_VERIFY_BODY_H

#include "diag.h"
#include "program.h"

/* One body under check. */
struct pp_body_check {
	const struct pp_program *program;
	const struct pp_body *body;
	struct pp_diag *diag;
	uint32_t at; /* instruction */
};

/* Report against the instruction at hand: its body and number, the text, and the instruction itself as a note. */
struct pp_message *pp_body_complain(const struct pp_body_check *check, const char *format, ...) PP_PRINTF(2, 3);

/* The word of an operand in ops.def, without its `?`: "dgamma". Points to a buffer of the caller. */
const char *pp_body_operand_name(enum pp_body_op op, unsigned operand, char name[32]);

/* "f32[4,8]" */
const char *pp_reg_shape_text(const struct pp_reg *reg, char text[64]);

/* Operands there or absent, bases, dtypes, shapes, R/P/S types and immediates of one instruction. */
bool pp_body_instr_check(const struct pp_body_check *check);

/* Whether the op lets output `output` lie exactly on input `input`. */
bool pp_body_may_alias(enum pp_body_op op, unsigned input, unsigned output);

#endif
