/* Tables made from ops.def. */
#include "ops.h"

#include <string.h>

const struct pp_op_info pp_op_table[PP_OP_COUNT] = {
#define PP_OP(NAME, mnemonic, signature, meaning) [PP_OP_##NAME] = {mnemonic, signature, meaning},
#include "ops.def"
};

static const struct {
	const char *mnemonic, *inputs, *outputs, *immediates, *meaning;
} body_table[PP_BODY_OP_COUNT] = {
#define PP_BODY_OP(NAME, mnemonic, inputs, outputs, immediates, meaning)                                               \
	[PP_BODY_##NAME] = {mnemonic, inputs, outputs, immediates, meaning},
#include "ops.def"
};

/* Number of blank-separated words; sets bit `first + i` of *optional for each word i that ends in `?`. */
static uint8_t count_words(const char *words, unsigned first, uint32_t *optional)
{
	uint8_t count = 0;
	for (const char *at = words; *at;) {
		at += strcspn(at, " ");
		if (at[-1] == '?' && optional)
			*optional |= 1u << (first + count);
		count++;
		at += strspn(at, " ");
	}
	return count;
}

struct pp_body_op_info pp_body_op_info(enum pp_body_op op)
{
	struct pp_body_op_info info = {
	    .mnemonic = body_table[op].mnemonic,
	    .inputs = body_table[op].inputs,
	    .outputs = body_table[op].outputs,
	    .immediates = body_table[op].immediates,
	    .meaning = body_table[op].meaning,
	};
	info.input_count = count_words(info.inputs, 0, &info.optional);
	info.output_count = count_words(info.outputs, info.input_count, &info.optional);
	info.immediate_count = count_words(info.immediates, 0, NULL);
	return info;
}

enum pp_body_op pp_body_op_find(const char *mnemonic)
{
	for (unsigned op = 0; op < PP_BODY_OP_COUNT; op++)
		if (strcmp(body_table[op].mnemonic, mnemonic) == 0)
			return (enum pp_body_op)op;
	return PP_BODY_OP_COUNT;
}
