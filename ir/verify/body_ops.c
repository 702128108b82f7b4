/* V10, one instruction at a time: typing rules of the body instructions, as one table.
 *
 * requires: register indices in range or PP_NULL.
 * ensures:  what passes has operands on bases that fit their meaning, dtypes and shapes that agree, immediates that
 *           divide what they must, and tensor-parallel types from the list of the op.
 *
 * The columns, one letter or pair of letters per operand (inputs, then outputs):
 *   roles   a an activation or its gradient (f32 or bf16, all alike); s f32 beside it; w a weight (like a);
 *           g the gradient of a weight (f32); i token ids or labels; l the loss entry
 *   shapes  rows and columns: a letter stands for the same number everywhere in the instruction; digits for themselves;
 *           s, H for the immediates seq, heads
 *   types   the permitted combinations, blank-separated: R, P, 0 for S(0), 1 for S(1); - when the operand must be
 *           absent. S(0) splits the tokens of an activation, the outputs of a weight; S(1) the columns of an
 *           activation, the inputs of a weight. An absent operand fits any letter.
 *   alias   pairs of operand numbers: the output may lie exactly on the input */
#include "body.h"

#include "ir/capped.h"

#include <inttypes.h>
#include <string.h>

struct rule {
	const char *roles, *shapes, *types, *alias;
};

static const struct rule rules[PP_BODY_OP_COUNT] = {
    [PP_BODY_EMBED] = {"iwwa", "T1 Vh sh Th", "RRRR R0RP", ""},
    [PP_BODY_EMBED_DW] = {"iagg", "T1 Th Vh sh", "RRRR RR0R", ""},
    [PP_BODY_NORM] = {"awwass", "Tc h1 h1 Tc Tg Tg", "RRRRRR 0RR000 1RR111", ""},
    [PP_BODY_NORM_DX] = {"aawssa", "Tc Tc h1 Tg Tg Tc", "RRRRRR 00R000 11R111", ""},
    [PP_BODY_NORM_DW] = {"aassgg", "Tc Tc Tg Tg h1 h1", "RRRRRR 0000PP 1111PP", ""},
    [PP_BODY_LINEAR] = {"awwa", "Ti oi o1 To", "RRRR R001 11-P 0RR0 PR-P", ""},
    [PP_BODY_LINEAR_DX] = {"awa", "To oi Ti", "RRR 10P R11 0R0 PRP", ""},
    [PP_BODY_LINEAR_DW] = {"aagg", "To Ti oi o1", "RRRR 1R00 R11R 00PP PRPP", ""},
    [PP_BODY_ATTN] = {"aaaas", "Tq Tk Tk Tq TH", "RRRRR 11111", ""},
    [PP_BODY_ATTN_DX] = {"aaaaasaaa", "Tq Tq Tk Tk Tq TH Tq Tk Tk", "RRRRRRRRR 111111111", ""},
    [PP_BODY_ROPE] = {"aa", "Tc Tc", "RR 11", ""},
    [PP_BODY_ROPE_DX] = {"aa", "Tc Tc", "RR 11", ""},
    [PP_BODY_ACT] = {"aa", "Tc Tc", "RR 00 11", ""},
    [PP_BODY_ACT_DX] = {"aaa", "Tc Tc Tc", "RRR 000 111", "0212"},
    [PP_BODY_SWIGLU] = {"aaa", "Tc Tc Tc", "RRR 000 111", ""},
    [PP_BODY_SWIGLU_DX] = {"aaaaa", "Tc Tc Tc Tc Tc", "RRRRR 00000 11111", "031324"},
    [PP_BODY_ADD] = {"aaa", "Tc Tc Tc", "RRR 000 111 PPP", "0212"},
    [PP_BODY_ADD_BIAS] = {"aawa", "Tc Tc c1 Tc", "RRRR 00R0", "0313"},
    [PP_BODY_OWN_HEAD] = {"aa", "Ta Te", "R1", ""},
    [PP_BODY_OWN_HEAD_DX] = {"aa", "Te Ta", "1P", ""},
    [PP_BODY_COPY] = {"aa", "Tc Tc", "RR 00 11 PP", ""},
    [PP_BODY_XENT] = {"aial", "Tc T1 Tc 21", "RRRR", "02"},
    [PP_BODY_XENT_STATS] = {"ais", "Tc T1 T3", "1R0", ""},
    [PP_BODY_XENT_SHARD] = {"aisal", "Tc T1 G3 Tc 21", "1RR1R", "03"},
    [PP_BODY_SLEEP] = {"", "", "", ""},
    [PP_BODY_FILL] = {"a", "Tc", "R 0 1 P", ""},
    [PP_BODY_ALLREDUCE] = {"aa", "Tc Tc", "PR", "01"},
    [PP_BODY_ALLGATHER] = {"aa", "Ac Bc", "0R", ""},
    [PP_BODY_REDUCESCATTER] = {"aa", "Ac Bc", "P0", ""},
    [PP_BODY_AWAIT] = {"a", "Tc", "R 0", ""},
};

bool pp_body_may_alias(enum pp_body_op op, unsigned input, unsigned output)
{
	for (const char *pair = rules[op].alias; *pair; pair += 2)
		if ((unsigned)(pair[0] - '0') == input && (unsigned)(pair[1] - '0') == output)
			return true;
	return false;
}

static const struct pp_body_instr *instr_of(const struct pp_body_check *check)
{
	return &check->body->items[check->at];
}

static const struct pp_reg *operand_reg(const struct pp_body_check *check, unsigned operand)
{
	uint32_t reg = instr_of(check)->operand[operand];
	return reg == PP_NULL ? NULL : &check->body->regs[reg];
}

static const char *operand_text(const struct pp_body_check *check, unsigned operand, char text[32])
{
	return pp_body_operand_name((enum pp_body_op)instr_of(check)->op, operand, text);
}

/* ---- presence, bases, dtypes ----------------------------------------------------------------- */

static bool present_check(const struct pp_body_check *check, const struct pp_body_op_info *info)
{
	char name[32];
	for (unsigned i = 0; i < (unsigned)info->input_count + info->output_count; i++) {
		if (operand_reg(check, i) || info->optional & 1u << i)
			continue;
		pp_body_complain(check, "operand `%s` is absent; `%s` needs it", operand_text(check, i, name), info->mnemonic);
		return false;
	}
	return true;
}

static bool base_fits(char role, uint8_t base)
{
	switch (role) {
	case 'w':
		return base == PP_BASE_WEIGHT;
	case 'g':
		return base == PP_BASE_GRAD;
	case 'i':
		return base == PP_BASE_AUX;
	case 'l':
		return base == PP_BASE_LOSS;
	}
	return base == PP_BASE_IN || base == PP_BASE_OUT || base == PP_BASE_STASH || base == PP_BASE_EXTRA ||
	       base == PP_BASE_DOUT || base == PP_BASE_DIN || base == PP_BASE_WORK;
}

static const char *base_wanted(char role)
{
	switch (role) {
	case 'w':
		return "a weight slot";
	case 'g':
		return "a grad slot";
	case 'i':
		return "aux";
	case 'l':
		return "the loss entry";
	}
	return "in, out, stash, dout, din or work";
}

static bool bases_check(const struct pp_body_check *check, const struct rule *rule)
{
	char name[32];
	for (unsigned i = 0; rule->roles[i]; i++) {
		const struct pp_reg *reg = operand_reg(check, i);
		if (!reg || base_fits(rule->roles[i], reg->base))
			continue;
		pp_body_complain(check, "operand `%s` (%s) lies on %s, expected %s", operand_text(check, i, name), reg->name,
		                 pp_base_name[reg->base], base_wanted(rule->roles[i]));
		return false;
	}
	return true;
}

static bool dtypes_check(const struct pp_body_check *check, const struct rule *rule)
{
	char name[32];
	uint8_t activation = PP_DTYPE_COUNT; /* of the first a or w */
	for (unsigned i = 0; rule->roles[i]; i++) {
		const struct pp_reg *reg = operand_reg(check, i);
		if (!reg)
			continue;
		bool like = rule->roles[i] == 'a' || rule->roles[i] == 'w';
		if (like && activation == PP_DTYPE_COUNT)
			activation = reg->dtype == PP_BF16 ? PP_BF16 : PP_F32;
		uint8_t wanted = like ? activation : rule->roles[i] == 'i' ? PP_I32 : rule->roles[i] == 'l' ? PP_F64 : PP_F32;
		if (reg->dtype == wanted)
			continue;
		pp_body_complain(check, "operand `%s` (%s) is %s, expected %s", operand_text(check, i, name), reg->name,
		                 pp_dtype_name[reg->dtype], pp_dtype_name[wanted]);
		return false;
	}
	return true;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* What a letter of the shape column stands for, and who said so. */
struct binding {
	uint64_t value;
	const char *source; /* register, or the immediate's name */
};

static bool dimension_check(const struct pp_body_check *check, unsigned operand, bool is_rows, char letter,
                            struct binding *bound)
{
	const struct pp_reg *reg = operand_reg(check, operand);
	uint32_t value = is_rows ? reg->rows : reg->columns;
	struct binding literal = {(uint64_t)(letter - '0'), "the op"};
	struct binding *binding = letter >= '1' && letter <= '9' ? &literal : &bound[(unsigned char)letter];
	char name[32], shape[64];
	if (!binding->source)
		*binding = (struct binding){value, reg->name};
	if (binding->value == value)
		return true;
	pp_body_complain(check, "operand `%s` (%s) is %s, expected %" PRIu64 " %s (from %s)",
	                 operand_text(check, operand, name), reg->name, pp_reg_shape_text(reg, shape), binding->value,
	                 is_rows ? "rows" : "columns", binding->source);
	return false;
}

static bool shapes_check(const struct pp_body_check *check, const struct rule *rule, struct binding bound[128])
{
	const struct pp_body_instr *instr = instr_of(check);
	if (strchr(rule->shapes, 's'))
		bound['s'] = (struct binding){instr->imm[0], "immediate seq"};
	if (strchr(rule->shapes, 'H'))
		bound['H'] = (struct binding){instr->imm[1], "immediate heads"};
	for (unsigned i = 0; rule->roles[i]; i++) {
		const char *pair = rule->shapes + 3 * i;
		if (operand_reg(check, i) &&
		    !(dimension_check(check, i, true, pair[0], bound) && dimension_check(check, i, false, pair[1], bound)))
			return false;
	}
	return true;
}

/* ---- immediates ------------------------------------------------------------------------------ */

static bool divides(const struct pp_body_check *check, const char *divisor_name, uint64_t divisor, const char *name,
                    uint64_t value)
{
	if (divisor && value % divisor == 0)
		return true;
	pp_body_complain(check, "%s = %" PRIu64 " does not divide %s = %" PRIu64, divisor_name, divisor, name, value);
	return false;
}

static bool below(const struct pp_body_check *check, const char *name, uint64_t value, uint64_t end)
{
	if (value < end)
		return true;
	pp_body_complain(check, "%s = %" PRIu64 " is out of range 0..%" PRIu64, name, value, end - 1);
	return false;
}

/* A sample has as many tokens everywhere as the data has. */
static bool seq_check(const struct pp_body_check *check, uint64_t tokens)
{
	uint64_t seq = instr_of(check)->imm[0];
	if (!divides(check, "seq", seq, "tokens", tokens))
		return false;
	if (seq == check->program->train.seq)
		return true;
	pp_body_complain(check, "seq = %" PRIu64 ", but a sample has %" PRIu32 " tokens (`train`)", seq,
	                 check->program->train.seq);
	return false;
}

static bool attention_check(const struct pp_body_check *check, const struct binding *bound)
{
	const uint64_t *imm = instr_of(check)->imm;
	uint64_t heads = imm[1], kv_heads = imm[2];
	uint64_t query = bound['q'].value, key = bound['k'].value;
	if (!seq_check(check, bound['T'].value) || !divides(check, "heads", heads, "columns of q", query) ||
	    !divides(check, "kv_heads", kv_heads, "heads", heads))
		return false;
	if (key == kv_heads * (query / heads))
		return true;
	pp_body_complain(check, "k and v have %" PRIu64 " columns, expected kv_heads * head_dim = %" PRIu64 " * %" PRIu64,
	                 key, kv_heads, query / heads);
	return false;
}

/* Heads of even width, each as long as the whole says. */
static bool rope_check(const struct pp_body_check *check, const struct binding *bound)
{
	const uint64_t *imm = instr_of(check)->imm;
	uint64_t heads = imm[1], theta = imm[2];
	if (!seq_check(check, bound['T'].value) || !divides(check, "heads", heads, "columns of x", bound['c'].value))
		return false;
	if (bound['c'].value / heads % 2 != 0) {
		pp_body_complain(check, "a head has %" PRIu64 " columns, which do not fall into pairs",
		                 bound['c'].value / heads);
		return false;
	}
	if (theta > 0)
		return true;
	pp_body_complain(check, "theta = 0 has no powers; expected at least 1");
	return false;
}

/* Statistics for each run of as many columns as gamma has; a mean unless rms. */
static bool norm_check(const struct pp_body_check *check, const struct binding *bound, unsigned mean)
{
	uint64_t rms = instr_of(check)->imm[0], width = bound['h'].value, runs = bound['g'].value;
	if (!below(check, "rms", rms, 2))
		return false;
	if (width * runs != bound['c'].value) {
		pp_body_complain(check,
		                 "x has %" PRIu64 " columns, expected columns of rstd * rows of gamma = %" PRIu64 " * %" PRIu64,
		                 bound['c'].value, runs, width);
		return false;
	}
	if ((operand_reg(check, mean) == NULL) == (rms == 1))
		return true;
	pp_body_complain(check,
	                 rms ? "rms = 1 keeps no mean, but one is given" : "rms = 0 needs the mean, but it is absent");
	return false;
}

/* Every token is a row of the table, whole or in shards. */
static bool table_check(const struct pp_body_check *check, unsigned operand)
{
	const struct pp_reg *reg = operand_reg(check, operand);
	uint64_t rows = reg->rows;
	if (reg->type == PP_TYPE_S && reg->shard == 0)
		rows *= check->program->tp;
	if (rows >= check->program->train.vocab)
		return true;
	pp_body_complain(check, "%s has %" PRIu64 " rows, but tokens run to %" PRIu32 " (vocab of `train`)", reg->name,
	                 rows, check->program->train.vocab);
	return false;
}

/* `ids` first, `labels` after them where the stage loads both; all that a load brings. */
static bool aux_check(const struct pp_body_check *check, unsigned operand, bool labels)
{
	const struct pp_reg *reg = operand_reg(check, operand);
	const struct pp_stage *stage = &check->program->stages[check->body->stage];
	const char *what = labels ? "labels" : "token ids";
	uint64_t wanted = labels && stage->loads_tokens ? (uint64_t)reg->rows * pp_dtype_size[PP_I32] : 0;
	if (!(labels ? stage->loads_labels : stage->loads_tokens)) {
		pp_body_complain(check, "reads %s, but stage %" PRIu32 " does not load them", what, check->body->stage);
		return false;
	}
	uint64_t tokens = (uint64_t)check->program->train.microbatch * check->program->train.seq;
	if (reg->rows != tokens) {
		pp_body_complain(check, "%s (%s) are %" PRIu32 ", but a microbatch has %" PRIu64 " (`train`)", what, reg->name,
		                 reg->rows, tokens);
		return false;
	}
	if (reg->offset == wanted)
		return true;
	pp_body_complain(check, "%s (%s) begin at byte %" PRIu64 " of aux, expected %" PRIu64, what, reg->name, reg->offset,
	                 wanted);
	return false;
}

/* The columns of the logits, of all shards together, hold the vocabulary. */
static bool vocab_check(const struct pp_body_check *check, const struct binding *bound)
{
	const struct pp_body_instr *instr = instr_of(check);
	uint64_t columns = bound['c'].value;
	if (operand_reg(check, 0)->type == PP_TYPE_S)
		columns *= check->program->tp;
	if (instr->imm[0] == 0 || instr->imm[0] > columns) {
		pp_body_complain(check, "vocab = %" PRIu64 " is out of range 1..%" PRIu64 " (columns of the logits)",
		                 instr->imm[0], columns);
		return false;
	}
	if (instr->imm[0] == check->program->train.vocab)
		return true;
	pp_body_complain(check, "vocab = %" PRIu64 ", but `train` says %" PRIu32, instr->imm[0],
	                 check->program->train.vocab);
	return false;
}

static bool xent_check(const struct pp_body_check *check, const struct binding *bound)
{
	const struct pp_body_instr *instr = instr_of(check);
	const struct pp_train *train = &check->program->train;
	if (!vocab_check(check, bound))
		return false;
	if (!below(check, "mean", instr->imm[1], 2))
		return false;
	if ((instr->imm[1] == 1) == (train->mean == PP_MB_MEAN))
		return aux_check(check, 1, true);
	pp_body_complain(check, "mean = %" PRIu64 " %s, but `train` takes the %s: gradients would be scaled %s",
	                 instr->imm[1], instr->imm[1] ? "divides by the tokens of the microbatch" : "sums over tokens",
	                 pp_mean_name[train->mean], instr->imm[1] ? "twice" : "by the number of microbatches alone");
	return false;
}

/* The stats of every member, each a row for each token. */
static bool stats_check(const struct pp_body_check *check, const struct binding *bound)
{
	uint64_t rows = pp_times(bound['T'].value, check->program->tp);
	if (bound['G'].value == rows)
		return true;
	pp_body_complain(check, "stats have %" PRIu64 " rows, expected tp * tokens = %" PRIu32 " * %" PRIu64,
	                 bound['G'].value, check->program->tp, bound['T'].value);
	return false;
}

/* Each head serves as many coordinates as any other. */
static bool own_head_check(const struct pp_body_check *check, const struct binding *bound)
{
	uint64_t kv_heads = instr_of(check)->imm[0], all = bound['a'].value, own = bound['e'].value;
	if (!divides(check, "kv_heads", kv_heads, "tp", check->program->tp) ||
	    !divides(check, "kv_heads", kv_heads, "columns of all heads", all))
		return false;
	if (own == all / kv_heads)
		return true;
	pp_body_complain(check, "the own head has %" PRIu64 " columns, expected %" PRIu64 " / kv_heads %" PRIu64, own, all,
	                 kv_heads);
	return false;
}

/* Rows of a sharded collective: tp shards make the whole. */
static bool shards_check(const struct pp_body_check *check, unsigned shard, unsigned whole)
{
	uint64_t rows = (uint64_t)operand_reg(check, shard)->rows * check->program->tp;
	if (operand_reg(check, whole)->rows == rows)
		return true;
	pp_body_complain(check, "%s has %" PRIu32 " rows, expected tp = %" PRIu32 " times the %" PRIu32 " rows of %s",
	                 operand_reg(check, whole)->name, operand_reg(check, whole)->rows, check->program->tp,
	                 operand_reg(check, shard)->rows, operand_reg(check, shard)->name);
	return false;
}

static bool immediates_check(const struct pp_body_check *check, const struct binding *bound)
{
	const struct pp_body_instr *instr = instr_of(check);
	switch ((enum pp_body_op)instr->op) {
	case PP_BODY_EMBED:
		return seq_check(check, bound['T'].value) && aux_check(check, 0, false) && table_check(check, 1);
	case PP_BODY_EMBED_DW:
		return seq_check(check, bound['T'].value) && aux_check(check, 0, false) && table_check(check, 2);
	case PP_BODY_NORM:
		return norm_check(check, bound, 4);
	case PP_BODY_NORM_DX:
		return norm_check(check, bound, 3);
	case PP_BODY_NORM_DW:
		return norm_check(check, bound, 2);
	case PP_BODY_ATTN:
	case PP_BODY_ATTN_DX:
		return attention_check(check, bound);
	case PP_BODY_ROPE:
	case PP_BODY_ROPE_DX:
		return rope_check(check, bound);
	case PP_BODY_ACT:
	case PP_BODY_ACT_DX:
		return below(check, "kind", instr->imm[0], 2);
	case PP_BODY_XENT:
		return xent_check(check, bound);
	case PP_BODY_XENT_STATS:
		return vocab_check(check, bound) && aux_check(check, 1, true);
	case PP_BODY_XENT_SHARD:
		return xent_check(check, bound) && stats_check(check, bound);
	case PP_BODY_OWN_HEAD:
	case PP_BODY_OWN_HEAD_DX:
		return own_head_check(check, bound);
	case PP_BODY_ALLGATHER:
		return shards_check(check, 0, 1);
	case PP_BODY_REDUCESCATTER:
		return shards_check(check, 1, 0);
	case PP_BODY_LINEAR:
	case PP_BODY_LINEAR_DX:
	case PP_BODY_LINEAR_DW:
	case PP_BODY_SWIGLU:
	case PP_BODY_SWIGLU_DX:
	case PP_BODY_ADD:
	case PP_BODY_ADD_BIAS:
	case PP_BODY_COPY:
	case PP_BODY_SLEEP:
	case PP_BODY_FILL:
	case PP_BODY_ALLREDUCE:
	case PP_BODY_AWAIT:
	case PP_BODY_OP_COUNT:
		return true;
	}
	return true;
}

/* ---- tensor-parallel types ------------------------------------------------------------------- */

static char type_letter(const struct pp_reg *reg)
{
	return reg->type == PP_TYPE_R ? 'R' : reg->type == PP_TYPE_P ? 'P' : reg->shard ? '1' : '0';
}

static bool types_check(const struct pp_body_check *check, const struct rule *rule)
{
	char found[PP_BODY_OPERANDS_MAX + 1] = {0};
	unsigned count = (unsigned)strlen(rule->roles);
	for (unsigned i = 0; i < count; i++)
		found[i] = operand_reg(check, i) ? type_letter(operand_reg(check, i)) : '-';
	for (const char *row = rule->types; *row;) {
		bool fits = true;
		for (unsigned i = 0; i < count; i++)
			fits &= found[i] == row[i] || found[i] == '-';
		if (fits)
			return true;
		row += count;
		row += *row == ' ';
	}
	if (count == 0)
		return true;
	struct pp_message *message =
	    pp_body_complain(check, "operands have the tensor-parallel types %s, expected one of: %s", found, rule->types);
	pp_note(message, "R replicated, P partial sums, 0 and 1 split by rows and by columns, - absent");
	return false;
}

bool pp_body_instr_check(const struct pp_body_check *check)
{
	enum pp_body_op op = (enum pp_body_op)instr_of(check)->op;
	const struct rule *rule = &rules[op];
	struct pp_body_op_info info = pp_body_op_info(op);
	struct binding bound[128] = {0};
	return present_check(check, &info) && bases_check(check, rule) && dtypes_check(check, rule) &&
	       shapes_check(check, rule, bound) && immediates_check(check, bound) && types_check(check, rule);
}
