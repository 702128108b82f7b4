/* Operands of stream instructions. */
#include "operands.h"

_Static_assert(offsetof(struct pp_instr, extra) == offsetof(struct pp_instr, a) + 4 * sizeof(uint32_t),
               "extra is the fifth slot operand");

static const char slot_text[] = "a slot such as stash.7, or `-` for none";

static const struct pp_operand operands[128] = {
    ['k'] = {.kind = PP_OPERAND_NAME,
             .offset = offsetof(struct pp_instr, sub),
             .names = pp_load_name,
             .name_count = PP_LOAD_COUNT,
             .what = "a load kind: tokens, labels or tokens+labels"},
    ['r'] = {.kind = PP_OPERAND_NAME,
             .offset = offsetof(struct pp_instr, sub),
             .names = pp_collective_name,
             .name_count = PP_COLLECTIVE_COUNT,
             .what = "a collective: allreduce, allgather or reducescatter"},
    ['u'] = {.kind = PP_OPERAND_NAME,
             .offset = offsetof(struct pp_instr, sub),
             .names = pp_optimizer_name,
             .name_count = PP_OPTIMIZER_COUNT,
             .what = "an update rule: adamw or sgd"},
    ['e'] = {.kind = PP_OPERAND_NAME,
             .offset = offsetof(struct pp_instr, sub),
             .names = pp_mean_name,
             .name_count = PP_MEAN_COUNT,
             .what = "a mean: token_mean or mb_mean"},
    ['s'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 's',
             .bound = PP_BOUND_STAGE,
             .offset = offsetof(struct pp_instr, stage),
             .what = "a stage such as s3"},
    ['m'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 'm',
             .bound = PP_BOUND_MICROBATCH,
             .offset = offsetof(struct pp_instr, mb),
             .what = "a microbatch such as m5"},
    ['c'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 'c',
             .bound = PP_BOUND_CHANNEL,
             .offset = offsetof(struct pp_instr, a[0]),
             .what = "a channel such as c2"},
    ['q'] = {.kind = PP_OPERAND_INDEX,
             .prefix = '#',
             .bound = PP_BOUND_NONE,
             .offset = offsetof(struct pp_instr, a[1]),
             .what = "a sequence number such as #5"},
    ['1'] = {.kind = PP_OPERAND_SLOT, .offset = offsetof(struct pp_instr, a[0]), .what = slot_text},
    ['2'] = {.kind = PP_OPERAND_SLOT, .offset = offsetof(struct pp_instr, a[1]), .what = slot_text},
    ['3'] = {.kind = PP_OPERAND_SLOT, .offset = offsetof(struct pp_instr, a[2]), .what = slot_text},
    ['4'] = {.kind = PP_OPERAND_SLOT, .offset = offsetof(struct pp_instr, a[3]), .what = slot_text},
    ['5'] = {.kind = PP_OPERAND_SLOT, .offset = offsetof(struct pp_instr, extra), .what = slot_text, .trailing = true},
    ['t'] = {.kind = PP_OPERAND_PAYLOAD,
             .offset = offsetof(struct pp_instr, count),
             .what = "a payload such as f32*4096"},
    ['K'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 'k',
             .bound = PP_BOUND_NONE,
             .offset = offsetof(struct pp_instr, a[0]),
             .what = "a collective's number such as k3"},
    ['G'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 'g',
             .bound = PP_BOUND_GROUP,
             .offset = offsetof(struct pp_instr, a[1]),
             .what = "a group such as g0"},
    ['h'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 'h',
             .bound = PP_BOUND_HYPER,
             .offset = offsetof(struct pp_instr, mb),
             .what = "a hyper-parameter row such as h0"},
    ['n'] = {.kind = PP_OPERAND_INDEX,
             .prefix = 't',
             .bound = PP_BOUND_TENSOR,
             .offset = offsetof(struct pp_instr, mb),
             .what = "a tensor such as t17"},
    ['x'] = {.kind = PP_OPERAND_TEXT,
             .bound = PP_BOUND_TEXT,
             .offset = offsetof(struct pp_instr, a[0]),
             .what = "a text in double quotes"},
};

const struct pp_operand *pp_operand_of(char letter)
{
	return &operands[(unsigned char)letter & 127];
}

struct pp_instr pp_instr_blank(enum pp_op op)
{
	struct pp_instr instr = {.op = (uint8_t)op, .a = {PP_NULL, PP_NULL, PP_NULL, PP_NULL}};
	if (pp_op_members(op) & PP_USES_EXTRA)
		instr.extra = PP_NULL;
	return instr;
}

uint32_t pp_op_members(enum pp_op op)
{
	uint32_t members = 0;
	for (const char *letter = pp_op_table[op].signature; *letter; letter++) {
		const struct pp_operand *operand = pp_operand_of(*letter);
		if (operand->kind == PP_OPERAND_NAME)
			members |= PP_USES_SUB;
		else if (operand->kind == PP_OPERAND_PAYLOAD)
			members |= PP_USES_PAYLOAD;
		else if (operand->offset == offsetof(struct pp_instr, stage))
			members |= PP_USES_STAGE;
		else if (operand->offset == offsetof(struct pp_instr, mb))
			members |= PP_USES_MB;
		else
			members |= (uint32_t)PP_USES_A0 << (operand->offset - offsetof(struct pp_instr, a)) / sizeof(uint32_t);
	}
	return members;
}

struct pp_instr pp_instr_canonical(const struct pp_instr *instr, uint32_t members)
{
	struct pp_instr canonical = *instr;
	if (!(members & PP_USES_SUB))
		canonical.sub = 0;
	if (!(members & PP_USES_STAGE))
		canonical.stage = 0;
	if (!(members & PP_USES_MB))
		canonical.mb = 0;
	if (!(members & PP_USES_PAYLOAD))
		canonical.dtype = 0;
	if (!(members & (PP_USES_PAYLOAD | PP_USES_EXTRA)))
		canonical.count = 0;
	for (unsigned i = 0; i < 4; i++)
		if (!(members & (uint32_t)PP_USES_A0 << i))
			canonical.a[i] = PP_NULL;
	return canonical;
}

bool pp_op_is_post(enum pp_op op)
{
	return op == PP_OP_SEND || op == PP_OP_RECV || op == PP_OP_COLL;
}
