/* Stream instructions as data: what the letters of ops.def's signatures mean, and which members an op uses. */
#ifndef PP_OPERANDS_H
#define PP_OPERANDS_H

#include "program_fields.h"

/* Operands of stream instructions, by the letters of ops.def's signatures. */
enum pp_operand_kind {
	PP_OPERAND_NONE,
	PP_OPERAND_NAME,
	PP_OPERAND_INDEX,
	PP_OPERAND_SLOT,
	PP_OPERAND_PAYLOAD,
	PP_OPERAND_TEXT
};

struct pp_operand {
	enum pp_operand_kind kind;
	char prefix;         /* PP_OPERAND_INDEX: s m c # k g h t */
	enum pp_bound bound; /* PP_OPERAND_INDEX, PP_OPERAND_TEXT */
	uint8_t offset;      /* within struct pp_instr */
	const char *const *names;
	uint32_t name_count;
	const char *what; /* "a stage such as s3" */
	bool trailing;    /* the last operand: not written where it is the null slot */
};

/* The operand of a signature letter. */
const struct pp_operand *pp_operand_of(char letter);

/* Instruction with every unused field at its resting value: 0, slots PP_NULL. */
struct pp_instr pp_instr_blank(enum pp_op op);

/* Which members the signature of an op uses: bits of enum pp_instr_member. */
enum pp_instr_member {
	PP_USES_SUB = 1,
	PP_USES_STAGE = 2,
	PP_USES_MB = 4,
	PP_USES_PAYLOAD = 8,
	PP_USES_A0 = 16, /* << i for a[i] */
	PP_USES_EXTRA = PP_USES_A0 << 4
};
uint32_t pp_op_members(enum pp_op op);

/* The same instruction with every member that `members` does not name at its resting value. */
struct pp_instr pp_instr_canonical(const struct pp_instr *instr, uint32_t members);

/* Whether an op is a post (send, recv, coll), which may carry a position in G. */
bool pp_op_is_post(enum pp_op op);

#endif
