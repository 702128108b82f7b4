/* V10: what a stage recomputes. R goes by the forward: its instructions are some of those of F, in their order, and of
 * a value that it makes again it makes every step. So a rotation by another angle, an addition that is missing or a
 * projection by another weight is found, where the kept and the recomputed values of a microbatch would not belong
 * together. Waits for collectives may stand elsewhere.
 *
 * requires: bodies F and R of one stage that pass on their own.
 * ensures:  values that R makes have the bits that they had in F. */
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

/* What R reads, or what it writes: sorted. */
struct names {
	const char **items;
	bool *used; /* by an instruction that R repeats */
	uint32_t count;
};

static struct names names_of(const struct pp_body_verifier *v, const struct pp_body *remat, bool written)
{
	size_t most = (size_t)remat->count * PP_BODY_OPERANDS_MAX + 1;
	struct names names = {.items = pp_arena_alloc(v->arena, most, sizeof *names.items),
	                      .used = PP_NEW_ARRAY(v->arena, bool, most)};
	for (uint32_t at = next_loud(remat, 0); at < remat->count; at = next_loud(remat, at + 1)) {
		const struct pp_body_instr *instr = &remat->items[at];
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
		unsigned from = written ? info.input_count : 0, count = written ? info.output_count : info.input_count;
		for (unsigned i = from; i < from + count; i++)
			if (instr->operand[i] != PP_NULL)
				names.items[names.count++] = remat->regs[instr->operand[i]].name;
	}
	if (names.count == 0)
		return names;
	qsort(names.items, names.count, sizeof *names.items, by_text);
	uint32_t kept = 1;
	for (uint32_t i = 1; i < names.count; i++)
		if (strcmp(names.items[i], names.items[kept - 1]) != 0)
			names.items[kept++] = names.items[i];
	names.count = kept;
	return names;
}

/* The place of a name, or PP_NULL. */
static uint32_t name_find(const struct names *names, const char *name)
{
	const char **found =
	    names->count ? bsearch(&name, names->items, names->count, sizeof *names->items, by_text) : NULL;
	return found ? (uint32_t)(found - names->items) : PP_NULL;
}

static void note_reads(struct names *reads, const struct pp_body *forward, const struct pp_body_instr *made)
{
	unsigned count = pp_body_op_info((enum pp_body_op)made->op).input_count;
	for (unsigned i = 0; i < count; i++) {
		uint32_t name = made->operand[i] == PP_NULL ? PP_NULL : name_find(reads, forward->regs[made->operand[i]].name);
		if (name != PP_NULL)
			reads->used[name] = true;
	}
}

/* An instruction of the forward that R does not repeat makes nothing that R makes, and changes nothing that an
 * instruction has read which R repeats. */
static bool may_stay_out(const struct pp_body_check *check, const struct pp_body *forward, uint32_t f,
                         const struct names *writes, const struct names *reads)
{
	const struct pp_body_instr *made = &forward->items[f];
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)made->op);
	for (unsigned i = info.input_count; i < (unsigned)info.input_count + info.output_count; i++) {
		if (made->operand[i] == PP_NULL)
			continue;
		const char *name = forward->regs[made->operand[i]].name;
		uint32_t read = name_find(reads, name);
		if (name_find(writes, name) == PP_NULL && (read == PP_NULL || !reads->used[read]))
			continue;
		if (name_find(writes, name) == PP_NULL)
			pp_body_complain_whole(
			    check, "reads %s, which instruction %" PRIu32 " of the forward, `%s`, changes after it was used there",
			    name, f, info.mnemonic);
		else if (check->at < check->body->count)
			pp_body_complain(check, "stands where the forward makes %s by its instruction %" PRIu32 ", `%s`", name, f,
			                 info.mnemonic);
		else
			pp_body_complain_whole(check, "makes %s again without instruction %" PRIu32 " of the forward, `%s`", name,
			                       f, info.mnemonic);
		return false;
	}
	return true;
}

bool pp_body_remat_check(const struct pp_body_verifier *v, const struct pp_body *remat, const struct pp_body *forward)
{
	struct pp_body_check check = {.program = v->program, .body = remat, .diag = v->diag, .at = next_loud(remat, 0)};
	struct names writes = names_of(v, remat, true), reads = names_of(v, remat, false);
	for (uint32_t f = next_loud(forward, 0); f < forward->count; f = next_loud(forward, f + 1)) {
		const struct pp_body_instr *made = &forward->items[f];
		if (check.at < remat->count && same_instr(remat, &remat->items[check.at], forward, made)) {
			note_reads(&reads, forward, made);
			check.at = next_loud(remat, check.at + 1);
		} else if (!may_stay_out(&check, forward, f, &writes, &reads)) {
			return false;
		}
	}
	if (check.at == remat->count)
		return true;
	pp_body_complain(&check, "is none of the instructions by which the forward goes on");
	return false;
}
