/* Enumerations and descriptions made from ops.def. */
#ifndef PP_OPS_H
#define PP_OPS_H

#include <stdint.h>

enum pp_op {
#define PP_OP(NAME, mnemonic, signature, meaning) PP_OP_##NAME,
#include "ops.def"
	PP_OP_COUNT
};

enum pp_body_op {
#define PP_BODY_OP(NAME, mnemonic, inputs, outputs, immediates, meaning) PP_BODY_##NAME,
#include "ops.def"
	PP_BODY_OP_COUNT
};

struct pp_op_info {
	const char *mnemonic, *signature, *meaning;
};

enum {
	PP_BODY_INPUTS_MAX = 6,
	PP_BODY_OUTPUTS_MAX = 3,
	PP_BODY_OPERANDS_MAX = PP_BODY_INPUTS_MAX + PP_BODY_OUTPUTS_MAX,
	PP_BODY_IMMEDIATES_MAX = 4
};

struct pp_body_op_info {
	const char *mnemonic, *inputs, *outputs, *immediates, *meaning;
	uint8_t input_count, output_count, immediate_count;
	uint32_t optional; /* bit i: operand i (inputs, then outputs) may be the null register */
};

extern const struct pp_op_info pp_op_table[PP_OP_COUNT];

/* Counts and the optional mask are derived from the operand strings. */
struct pp_body_op_info pp_body_op_info(enum pp_body_op op);

/* The op of a mnemonic, or PP_BODY_OP_COUNT. */
enum pp_body_op pp_body_op_find(const char *mnemonic);

#endif
