/* V10: what a stage recomputes. R goes by the forward: its instructions are some of those of F, in their order, and of
 * a value that it makes again it makes every step. So a rotation by another angle, an addition that is missing or a
 * projection by another weight is found, where the kept and the recomputed values of a microbatch would not belong
 * together. Waits for collectives may stand elsewhere.
 *
 * requires: bodies F and R of one stage that pass on their own.
 * ensures:  R makes each of its values by the instructions that made it in F, out of what it made before and of what F
 *           has left in the stash. */
#include "body.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_text(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Makes no value. */
static bool is_silent(const struct pp_body_instr *instr)
{
	return instr->op == PP_BODY_AWAIT || instr->op == PP_BODY_SLEEP;
}

static uint32_t next_loud(const struct pp_body *body, uint32_t at)
{
	while (at < body->count && is_silent(&body->items[at]))
		at++;
	return at;
}

static bool same_operand(const struct pp_reg *a, const struct pp_reg *b)
{
	bool weight = a->base == PP_BASE_WEIGHT || b->base == PP_BASE_WEIGHT;
	return strcmp(a->name, b->name) == 0 && a->rows == b->rows && a->columns == b->columns && a->dtype == b->dtype &&
	       a->type == b->type && (a->type != PP_TYPE_S || a->shard == b->shard) &&
	       (!weight || (a->base == b->base && a->slot == b->slot));
}

static bool same_instr(const struct pp_body *remat, const struct pp_body_instr *again, const struct pp_body *forward,
                       const struct pp_body_instr *made)
{
	if (again->op != made->op)
		return false;
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)made->op);
	for (unsigned i = 0; i < info.immediate_count; i++)
		if (again->imm[i] != made->imm[i])
			return false;
	for (unsigned i = 0; i < (unsigned)info.input_count + info.output_count; i++) {
		uint32_t here = again->operand[i], there = made->operand[i];
		if ((here == PP_NULL) != (there == PP_NULL))
			return false;
		if (here != PP_NULL && !same_operand(&remat->regs[here], &forward->regs[there]))
			return false;
	}
	return true;
}

/* What R writes, sorted. */
static const char **names_made(const struct pp_body_verifier *v, const struct pp_body *remat, uint32_t *count)
{
	const char **names =
	    pp_arena_alloc(v->arena, (size_t)remat->count * PP_BODY_OPERANDS_MAX + 1, sizeof(const char *));
	*count = 0;
	for (uint32_t at = next_loud(remat, 0); at < remat->count; at = next_loud(remat, at + 1)) {
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)remat->items[at].op);
		for (unsigned i = info.input_count; i < (unsigned)info.input_count + info.output_count; i++)
			if (remat->items[at].operand[i] != PP_NULL)
				names[(*count)++] = remat->regs[remat->items[at].operand[i]].name;
	}
	if (*count)
		qsort(names, *count, sizeof *names, by_text);
	return names;
}

/* The output of the forward's instruction that is among the names, or NULL. */
static const char *made_again(const struct pp_body *forward, const struct pp_body_instr *made, const char **names,
                              uint32_t count)
{
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)made->op);
	for (unsigned i = info.input_count; i < (unsigned)info.input_count + info.output_count; i++) {
		const char *name = made->operand[i] == PP_NULL ? NULL : forward->regs[made->operand[i]].name;
		if (name && count && bsearch(&name, names, count, sizeof *names, by_text))
			return name;
	}
	return NULL;
}

bool pp_body_remat_check(const struct pp_body_verifier *v, const struct pp_body *remat, const struct pp_body *forward)
{
	struct pp_body_check check = {.program = v->program, .body = remat, .diag = v->diag, .at = next_loud(remat, 0)};
	uint32_t count;
	const char **names = names_made(v, remat, &count);
	for (uint32_t f = next_loud(forward, 0); f < forward->count; f = next_loud(forward, f + 1)) {
		const struct pp_body_instr *made = &forward->items[f];
		if (check.at < remat->count && same_instr(remat, &remat->items[check.at], forward, made)) {
			check.at = next_loud(remat, check.at + 1);
			continue;
		}
		const char *name = made_again(forward, made, names, count);
		if (!name)
			continue;
		const char *mnemonic = pp_body_op_info((enum pp_body_op)made->op).mnemonic;
		if (check.at < remat->count)
			pp_body_complain(&check, "stands where the forward makes %s by its instruction %" PRIu32 ", `%s`", name, f,
			                 mnemonic);
		else
			pp_body_complain_whole(&check, "makes %s again without instruction %" PRIu32 " of the forward, `%s`", name,
			                       f, mnemonic);
		return false;
	}
	if (check.at == remat->count)
		return true;
	pp_body_complain(&check, "is none of the instructions by which the forward goes on");
	return false;
}
