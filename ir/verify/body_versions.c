/* V10: versions of a value within a body. A register may be written more than once, as gradients are summed up in
 * place; then its name stands for several versions, and which of them an instruction reads is a matter of order alone.
 * So only the last version may be read by others: what makes the next one reads the one before, and nobody else does,
 * or one that it depends on: gradients of a shard of logits replace these once their statistics have gone round.
 * And nothing is made in vain: of every instruction one output is read, by another instruction of this body or of a
 * later one of the stage, or is a result (not in a stage without parameters, which may have nothing to give).
 *
 * requires: instructions that pass on their own; registers of a body with different names (the readers see to it).
 * ensures:  any order of a body's instructions that passes gives each of them the same versions of what it reads, but
 *           for the order in which one register's sums are added up. */
#include "body.h"

#include <inttypes.h>

/* An await looks at no byte. */
static bool is_silent(const struct pp_body_check *check)
{
	return check->body->items[check->at].op == PP_BODY_AWAIT;
}

void pp_versions_begin(struct pp_body_verifier *v, const struct pp_body *body)
{
	v->versions[body - v->program->bodies] = (struct pp_versions){
	    .reader = PP_NEW_ARRAY(v->arena, uint32_t, body->reg_count),
	    .last = PP_NEW_ARRAY(v->arena, uint32_t, body->reg_count),
	    .readers = PP_NEW_ARRAY(v->arena, uint32_t, body->reg_count),
	    .writer = PP_NEW_ARRAY(v->arena, uint32_t, body->reg_count),
	    .used = PP_NEW_ARRAY(v->arena, bool, body->count),
	};
}

static struct pp_versions *versions_of(struct pp_body_verifier *v, const struct pp_body_check *check)
{
	return &v->versions[check->body - v->program->bodies];
}

/* The instruction, of whichever body of the stage, that wrote this register last. */
static void mark_used(struct pp_body_verifier *v, uint32_t stage, const struct pp_reg *written)
{
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		uint32_t b = v->program->stages[stage].body[phase];
		const struct pp_body *body = b == PP_NULL ? NULL : &v->program->bodies[b];
		if (!body || !v->versions[b].used || written < body->regs || written >= body->regs + body->reg_count)
			continue;
		uint32_t writer = v->versions[b].writer[written - body->regs];
		if (writer)
			v->versions[b].used[writer - 1] = true;
	}
}

void pp_version_read(struct pp_body_verifier *v, const struct pp_body_check *check, uint32_t reg,
                     const struct pp_reg *written)
{
	struct pp_versions *versions = versions_of(v, check);
	if (is_silent(check))
		return;
	if (!versions->reader[reg])
		versions->reader[reg] = check->at + 1;
	if (versions->last[reg] != check->at + 1)
		versions->readers[reg]++;
	versions->last[reg] = check->at + 1;
	if (written)
		mark_used(v, check->body->stage, written);
}

/* Whether the instruction at hand reads what instruction `maker` made, itself or by one collective between. */
static bool comes_of(const struct pp_versions *versions, const struct pp_body_check *check, uint32_t maker)
{
	const struct pp_body_instr *instr = &check->body->items[check->at];
	unsigned count = pp_body_op_info((enum pp_body_op)instr->op).input_count;
	for (unsigned i = 0; i < count; i++) {
		uint32_t writer = instr->operand[i] == PP_NULL ? 0 : versions->writer[instr->operand[i]];
		if (writer == 0)
			continue;
		if (writer - 1 == maker)
			return true;
		const struct pp_body_instr *made = &check->body->items[writer - 1];
		bool collective = made->op == PP_BODY_ALLGATHER || made->op == PP_BODY_ALLREDUCE;
		if (collective && versions->writer[made->operand[0]] == maker + 1 && maker + 1 < writer)
			return true;
	}
	return false;
}

/* The one that makes the next version is the only reader of this one, or reads what the only other made of it. */
static bool may_replace(const struct pp_versions *versions, const struct pp_body_check *check, uint32_t reg)
{
	uint32_t reader = versions->reader[reg], now = check->at + 1;
	if (reader == 0 || reader == now)
		return true;
	return versions->readers[reg] == 2 && versions->last[reg] == now && comes_of(versions, check, reader - 1);
}

bool pp_version_write(struct pp_body_verifier *v, const struct pp_body_check *check, uint32_t reg)
{
	struct pp_versions *versions = versions_of(v, check);
	const char *name = check->body->regs[reg].name;
	uint32_t reader = versions->reader[reg], writer = versions->writer[reg];
	if (!may_replace(versions, check, reg)) {
		pp_body_complain(check,
		                 "writes %s again, which instruction %" PRIu32
		                 " has read before; only the last version of a value may be read by others",
		                 name, reader - 1);
		return false;
	}
	if (writer && !reader) {
		pp_body_complain(check, "writes %s again, whose version of instruction %" PRIu32 " nobody has read", name,
		                 writer - 1);
		return false;
	}
	versions->reader[reg] = versions->last[reg] = versions->readers[reg] = 0;
	versions->writer[reg] = check->at + 1;
	return true;
}

void pp_versions_result(struct pp_body_verifier *v, const struct pp_body *body, uint32_t reg)
{
	mark_used(v, body->stage, &body->regs[reg]);
}

bool pp_versions_used(struct pp_body_verifier *v, const struct pp_body *body)
{
	struct pp_body_check check = {.program = v->program, .body = body, .diag = v->diag};
	const struct pp_versions *versions = &v->versions[body - v->program->bodies];
	for (; versions->used && check.at < body->count; check.at++) {
		const struct pp_body_instr *instr = &body->items[check.at];
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
		if (info.output_count == 0 || versions->used[check.at])
			continue;
		pp_body_complain(&check, "makes %s, which nobody reads", body->regs[instr->operand[info.input_count]].name);
		return false;
	}
	return true;
}
