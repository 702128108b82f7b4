/* V10: bodies. Registers lie inside what they name, instructions are well typed (body_ops.c), nothing is read
 * before it was written, every gradient of the stage is written once.
 *
 * requires: a program whose indices are in range (the readers guarantee that).
 * ensures:  a body that passes touches no byte outside its operands, slots and workspace, and reads only values
 *           that this body wrote, or that an earlier body of the same microbatch left in the stash or in extra.
 *
 * What may be read and written:
 *   F  reads in, aux, weights                    writes out, stash, work, loss
 *   R  reads stash, weights                      writes extra, work
 *   B  reads aux, stash, extra, dout, weights    writes din, stash, extra, work, grads
 *   I  reads aux, stash, extra, dout, weights    writes din, stash, extra, work
 *   W  reads aux, stash, extra, weights          writes stash, extra, work, grads
 * Whatever a body has written it may read again, but for grads and the loss.
 *
 * Values: a write makes a value out of the register's bytes, under the register's name, and ends every value that it
 * overlaps. A read must name a whole value as it was written: same name, shape, dtype and type. So stash and workspace
 * may be used over and over, within a body and, for stash and extra, from F to R to I to W, and a stale read is found:
 * the bodies of a stage call one value by one name. Extra is empty before R, or, in a stage that does not recompute,
 * before I; it has no bytes for B there. Within one instruction an output may overlap an input only where the op allows
 * it, and then exactly; outputs never overlap. A collective writes its value at once here; that nobody looks before it
 * is awaited is checked beside (body_flight.c). */
#include "body.h"

#include "ir/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------- */

const char *pp_body_operand_name(enum pp_body_op op, unsigned operand, char name[32])
{
	struct pp_body_op_info info = pp_body_op_info(op);
	const char *word = operand < info.input_count ? info.inputs : info.outputs;
	for (unsigned skip = operand < info.input_count ? operand : operand - info.input_count; skip; skip--)
		word = strchr(word, ' ') + 1;
	snprintf(name, 32, "%.*s", (int)strcspn(word, " ?"), word);
	return name;
}

const char *pp_reg_shape_text(const struct pp_reg *reg, char text[64])
{
	snprintf(text, 64, "%s[%" PRIu32 ",%" PRIu32 "]", pp_dtype_name[reg->dtype], reg->rows, reg->columns);
	return text;
}

static void instr_text(const struct pp_body *body, const struct pp_body_instr *instr, char *text, size_t size)
{
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
	size_t length = (size_t)snprintf(text, size, "%s", info.mnemonic);
	for (unsigned i = 0; i < (unsigned)info.input_count + info.output_count && length < size; i++) {
		uint32_t reg = instr->operand[i];
		length += (size_t)snprintf(text + length, size - length, "%s %s", i == info.input_count ? " ->" : "",
		                           reg == PP_NULL ? "-" : body->regs[reg].name);
	}
}

struct pp_message *pp_body_complain(const struct pp_body_check *check, const char *format, ...)
{
	char what[512], line[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	instr_text(check->body, &check->body->items[check->at], line, sizeof line);
	struct pp_message *message =
	    pp_error(check->diag, "V10", PP_NO_SPAN, "body s%" PRIu32 ".%s, instruction %" PRIu32 ": %s",
	             check->body->stage, pp_phase_name[check->body->phase], check->at, what);
	pp_note(message, "%s", line);
	return message;
}

void pp_body_complain_whole(const struct pp_body_check *check, const char *format, ...)
{
	char what[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	pp_error(check->diag, "V10", PP_NO_SPAN, "body s%" PRIu32 ".%s: %s", check->body->stage,
	         pp_phase_name[check->body->phase], what);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Bases by phase, as in the opening comment: given at the start, and writable. */
static bool is_given(enum pp_phase phase, uint8_t base)
{
	return base == PP_BASE_WEIGHT || (base == PP_BASE_AUX && phase != PP_PHASE_R) ||
	       (base == PP_BASE_IN && phase == PP_PHASE_F) ||
	       (base == PP_BASE_DOUT && (phase == PP_PHASE_B || phase == PP_PHASE_I));
}

static bool is_writable(enum pp_phase phase, uint8_t base)
{
	switch ((enum pp_base)base) {
	case PP_BASE_WORK:
		return true;
	case PP_BASE_STASH:
		return phase != PP_PHASE_R;
	case PP_BASE_EXTRA:
		return phase != PP_PHASE_F;
	case PP_BASE_OUT:
	case PP_BASE_LOSS:
		return phase == PP_PHASE_F;
	case PP_BASE_DIN:
		return phase == PP_PHASE_B || phase == PP_PHASE_I;
	case PP_BASE_GRAD:
		return phase == PP_PHASE_B || phase == PP_PHASE_W;
	case PP_BASE_IN:
	case PP_BASE_AUX:
	case PP_BASE_DOUT:
	case PP_BASE_WEIGHT:
	case PP_BASE_COUNT:
		break;
	}
	return false;
}

static bool same_value(const struct pp_reg *written, const struct pp_reg *read)
{
	return written == read ||
	       (written->rows == read->rows && written->columns == read->columns && written->dtype == read->dtype &&
	        written->type == read->type && written->shard == read->shard && strcmp(written->name, read->name) == 0);
}

static bool read_check(const struct pp_body_check *check, const struct pp_values *values, const struct pp_reg *reg)
{
	enum pp_phase phase = (enum pp_phase)check->body->phase;
	char shape[64];
	if (is_given(phase, reg->base))
		return true;
	bool readable = is_writable(phase, reg->base) ? reg->base != PP_BASE_GRAD && reg->base != PP_BASE_LOSS
	                                              : reg->base == PP_BASE_STASH;
	if (!readable) {
		pp_body_complain(check, "reads %s (%s), but a body of phase %s may not read %s", reg->name,
		                 pp_reg_shape_text(reg, shape), pp_phase_name[phase], pp_base_name[reg->base]);
		return false;
	}
	const struct pp_reg *written = pp_value_at(values, reg);
	if (written && same_value(written, reg))
		return true;
	char held[64];
	if (written)
		pp_body_complain(check, "reads %s (%s at byte %" PRIu64 " of %s), but those bytes hold %s (%s)", reg->name,
		                 pp_reg_shape_text(reg, shape), reg->offset, pp_base_name[reg->base], written->name,
		                 pp_reg_shape_text(written, held));
	else
		pp_body_complain(check, "reads %s (%s at byte %" PRIu64 " of %s), which nobody has written", reg->name,
		                 pp_reg_shape_text(reg, shape), reg->offset, pp_base_name[reg->base]);
	return false;
}

static bool alias_check(const struct pp_body_check *check, const struct pp_body_op_info *info, unsigned output)
{
	const struct pp_body_instr *instr = &check->body->items[check->at];
	const struct pp_reg *written = &check->body->regs[instr->operand[output]];
	for (unsigned i = 0; i < output; i++) {
		const struct pp_reg *other = instr->operand[i] == PP_NULL ? NULL : &check->body->regs[instr->operand[i]];
		if (!other || !pp_regs_overlap(written, other))
			continue;
		bool exact =
		    other->offset == written->offset && other->rows == written->rows && other->columns == written->columns;
		if (i < info->input_count && exact && pp_body_may_alias((enum pp_body_op)instr->op, i, output))
			continue;
		pp_body_complain(check, "output %s overlaps %s %s, which `%s` does not allow", written->name,
		                 i < info->input_count ? "input" : "output", other->name, info->mnemonic);
		return false;
	}
	return true;
}

static bool write_check(struct pp_body_verifier *v, const struct pp_body_check *check, struct pp_values *values,
                        const struct pp_reg *reg)
{
	enum pp_phase phase = (enum pp_phase)check->body->phase;
	if (!is_writable(phase, reg->base)) {
		pp_body_complain(check, "writes %s, but a body of phase %s may not write %s", reg->name, pp_phase_name[phase],
		                 pp_base_name[reg->base]);
		return false;
	}
	if (reg->base == PP_BASE_GRAD) {
		struct pp_slot_use *use = &v->grads[reg->slot];
		uint32_t body = (uint32_t)(check->body - v->program->bodies) + 1;
		if (use->written == body) {
			pp_body_complain(check, "writes the gradient %s a second time", reg->name);
			return false;
		}
		use->written = body;
		return true;
	}
	if (reg->base == PP_BASE_LOSS && pp_value_at(values, reg)) {
		pp_body_complain(check, "writes the loss %s a second time", reg->name);
		return false;
	}
	pp_value_write(values, reg);
	return true;
}

/* Operands before or after this position: inputs are read, outputs written. */
static bool flights_check(const struct pp_body_check *check, const struct pp_flights *flights, unsigned from,
                          unsigned end, bool writes)
{
	const struct pp_body_instr *instr = &check->body->items[check->at];
	for (unsigned i = from; i < end; i++)
		if (instr->operand[i] != PP_NULL &&
		    !pp_flights_allow(check, flights, &check->body->regs[instr->operand[i]], writes))
			return false;
	return true;
}

static bool instr_check(struct pp_body_verifier *v, const struct pp_body_check *check, struct pp_values *values,
                        struct pp_flights *flights)
{
	const struct pp_body_instr *instr = &check->body->items[check->at];
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
	unsigned count = (unsigned)info.input_count + info.output_count;
	if (!pp_body_instr_check(check) || !flights_check(check, flights, 0, info.input_count, false) ||
	    !flights_check(check, flights, info.input_count, count, true))
		return false;
	for (unsigned i = 0; i < info.input_count; i++) {
		const struct pp_reg *reg = instr->operand[i] == PP_NULL ? NULL : &check->body->regs[instr->operand[i]];
		if (reg && !read_check(check, values, reg))
			return false;
		if (reg && instr->op != PP_BODY_AWAIT && !is_given((enum pp_phase)check->body->phase, reg->base))
			pp_makers_read(v, check->body->stage, pp_value_at(values, reg));
		if (reg && reg->base == PP_BASE_WEIGHT)
			v->weights[reg->slot].read = (uint32_t)(check->body - v->program->bodies) + 1;
	}
	for (unsigned i = info.input_count; i < count; i++)
		if (instr->operand[i] != PP_NULL && !alias_check(check, &info, i))
			return false;
	for (unsigned i = info.input_count; i < count; i++)
		if (instr->operand[i] != PP_NULL && !(write_check(v, check, values, &check->body->regs[instr->operand[i]]) &&
		                                      pp_makers_write(v, check, instr->operand[i])))
			return false;
	return pp_flights_step(check, flights);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static bool covered_check(const struct pp_body_check *check, const struct pp_values *values, enum pp_base base,
                          uint64_t bytes)
{
	uint64_t covered = 0, end;
	for (uint32_t r = 0; r < check->body->reg_count; r++) { /* values do not overlap: their sizes add up */
		const struct pp_reg *reg = &check->body->regs[r];
		if (reg->base == base && pp_value_at(values, reg) == reg && pp_reg_end(reg, &end))
			covered += end - reg->offset;
	}
	if (covered == bytes)
		return true;
	pp_body_complain_whole(check, "leaves %" PRIu64 " of %" PRIu64 " bytes of %s written", covered, bytes,
	                       pp_base_name[base]);
	return false;
}

/* After F the whole of `out` is there, and the loss where the stage has labels; after B and I the whole of `din`. */
static bool results_check(const struct pp_body_verifier *v, const struct pp_body_check *check,
                          const struct pp_values *values)
{
	const struct pp_body *body = check->body;
	const struct pp_stage *stage = &v->program->stages[body->stage];
	if (body->phase == PP_PHASE_W || body->phase == PP_PHASE_R)
		return true;
	if (body->phase == PP_PHASE_F)
		return covered_check(check, values, PP_BASE_OUT, pp_stage_out_bytes(v->program, body->stage)) &&
		       (!stage->loads_labels || covered_check(check, values, PP_BASE_LOSS, 2 * sizeof(double)));
	return covered_check(check, values, PP_BASE_DIN, body->stage ? pp_stage_out_bytes(v->program, body->stage - 1) : 0);
}

static bool grads_check(const struct pp_body_verifier *v, const struct pp_body_check *check)
{
	const struct pp_body *body = check->body;
	bool ok = true;
	if (body->phase != PP_PHASE_B && body->phase != PP_PHASE_W)
		return true;
	for (uint32_t i = v->stage_use_start[body->stage]; i < v->stage_use_start[body->stage + 1]; i++) {
		const struct pp_use *use = &v->program->uses[v->stage_uses[i]];
		if (use->grad < v->slot_most && v->grads[use->grad].written == (uint32_t)(body - v->program->bodies) + 1)
			continue;
		pp_body_complain_whole(check, "never writes the gradient of %s (grad slot %" PRIu32 ")",
		                       v->program->tensors[use->tensor].name, use->grad);
		ok = false;
	}
	return ok;
}

/* A parameter that the forward leaves out has no gradient: what backward writes as one belongs to another. */
static bool weights_check(const struct pp_body_verifier *v, const struct pp_body_check *check)
{
	const struct pp_body *body = check->body;
	for (uint32_t i = v->stage_use_start[body->stage]; i < v->stage_use_start[body->stage + 1]; i++) {
		const struct pp_use *use = &v->program->uses[v->stage_uses[i]];
		if (body->phase != PP_PHASE_F ||
		    (use->weight < v->slot_most && v->weights[use->weight].read == (uint32_t)(body - v->program->bodies) + 1))
			continue;
		pp_body_complain_whole(check, "never reads %s (weight slot %" PRIu32 "), which its stage uses",
		                       v->program->tensors[use->tensor].name, use->weight);
		return false;
	}
	return true;
}

/* What the body leaves for others than the bodies of its stage is of use. So is the stash where none comes after. */
static void results_use(struct pp_body_verifier *v, const struct pp_body *body, const struct pp_values *values)
{
	const uint32_t *of = v->program->stages[body->stage].body;
	bool last = of[PP_PHASE_B] == PP_NULL && of[PP_PHASE_I] == PP_NULL && of[PP_PHASE_W] == PP_NULL;
	for (uint32_t r = 0; r < body->reg_count; r++) {
		const struct pp_reg *reg = &body->regs[r];
		bool parameter = reg->base == PP_BASE_GRAD;
		bool result = reg->base == PP_BASE_OUT || reg->base == PP_BASE_DIN || reg->base == PP_BASE_LOSS ||
		              (last && (reg->base == PP_BASE_STASH || reg->base == PP_BASE_EXTRA));
		if (parameter || (result && pp_value_at(values, reg) == reg))
			pp_makers_read(v, body->stage, reg);
	}
}

/* One body from the values that the stash holds before it; *values holds those after it. */
static bool body_check(struct pp_body_verifier *v, const struct pp_body *body, struct pp_values *values)
{
	struct pp_body_check check = {.program = v->program, .body = body, .diag = v->diag};
	uint32_t rank = v->program->stages[body->stage].rank;
	struct pp_flights flights = {.count = 0};
	bool ok = true;
	pp_makers_begin(v, body);
	if (body->work_bytes > v->work_bytes[rank]) {
		pp_body_complain_whole(&check, "needs %" PRIu64 " bytes of workspace; rank %" PRIu32 " has %" PRIu64,
		                       body->work_bytes, rank, v->work_bytes[rank]);
		ok = false;
	}
	for (uint32_t r = 0; r < body->reg_count; r++)
		ok &= pp_body_reg_check(v, &check, &body->regs[r]);
	for (; ok && check.at < body->count; check.at++)
		ok &= instr_check(v, &check, values, &flights);
	if (!ok || !pp_flights_landed(&check, &flights) || !results_check(v, &check, values) || !grads_check(v, &check) ||
	    !weights_check(v, &check))
		return false;
	pp_body_results_note(v, body, values);
	results_use(v, body, values);
	return true;
}

static void uses_mark(struct pp_body_verifier *v, uint32_t stage)
{
	for (uint32_t i = v->stage_use_start[stage]; i < v->stage_use_start[stage + 1]; i++) {
		const struct pp_use *use = &v->program->uses[v->stage_uses[i]];
		if (use->weight < v->slot_most)
			v->weights[use->weight] = (struct pp_slot_use){.stage = stage + 1, .use = v->stage_uses[i]};
		if (use->grad < v->slot_most)
			v->grads[use->grad] = (struct pp_slot_use){.stage = stage + 1, .use = v->stage_uses[i]};
	}
}

/* F from an empty stash; R from what F left; B and I from what both left; W from what I left. */
static bool stage_check(struct pp_body_verifier *v, uint32_t s)
{
	const struct pp_stage *stage = &v->program->stages[s];
	const struct pp_body *bodies[PP_PHASE_COUNT];
	bool ok = true;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		bodies[phase] = stage->body[phase] == PP_NULL ? NULL : &v->program->bodies[stage->body[phase]];
	uses_mark(v, s);
	struct pp_values left = pp_values_make(v->arena, v->program, stage);
	if (bodies[PP_PHASE_F])
		ok = body_check(v, bodies[PP_PHASE_F], &left);
	if (!ok)
		return false;
	if (bodies[PP_PHASE_R]) {
		left = pp_values_kept(v->arena, &left);
		if (!body_check(v, bodies[PP_PHASE_R], &left) ||
		    (bodies[PP_PHASE_F] && !pp_body_remat_check(v, bodies[PP_PHASE_R], bodies[PP_PHASE_F])))
			return false;
	}
	if (bodies[PP_PHASE_B]) {
		struct pp_values fused = pp_values_kept(v->arena, &left);
		ok = body_check(v, bodies[PP_PHASE_B], &fused);
	}
	if (bodies[PP_PHASE_I]) {
		left = pp_values_kept(v->arena, &left);
		if (!body_check(v, bodies[PP_PHASE_I], &left))
			return false;
	}
	if (bodies[PP_PHASE_W]) {
		left = pp_values_kept(v->arena, &left);
		ok &= body_check(v, bodies[PP_PHASE_W], &left);
	}
	return ok;
}

/* ---- program --------------------------------------------------------------------------------- */

static void uses_by_stage(struct pp_body_verifier *v)
{
	const struct pp_program *program = v->program;
	v->stage_use_start = PP_NEW_ARRAY(v->arena, uint32_t, (size_t)program->stage_count + 2);
	v->stage_uses = PP_NEW_ARRAY(v->arena, uint32_t, program->use_count);
	uint32_t *next = v->stage_use_start + 1; /* one ahead while filling */
	for (uint32_t u = 0; u < program->use_count; u++)
		next[program->uses[u].stage + 1]++;
	for (uint32_t s = 0; s < program->stage_count; s++)
		next[s + 1] += next[s];
	for (uint32_t u = 0; u < program->use_count; u++)
		v->stage_uses[next[program->uses[u].stage]++] = u;
}

static void ranks_look(struct pp_body_verifier *v)
{
	const struct pp_program *program = v->program;
	v->work_bytes = PP_NEW_ARRAY(v->arena, uint64_t, program->ranks);
	v->has_losses = PP_NEW_ARRAY(v->arena, bool, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_rank *rank = &program->rank[r];
		v->slot_most = rank->slot_count > v->slot_most ? rank->slot_count : v->slot_most;
		for (uint32_t i = 0; i < rank->slot_count; i++) {
			if (rank->slots[i].class == PP_SLOT_WORK && rank->slots[i].bytes > v->work_bytes[r])
				v->work_bytes[r] = rank->slots[i].bytes;
			v->has_losses[r] |= rank->slots[i].class == PP_SLOT_LOSSES;
		}
	}
	v->weights = PP_NEW_ARRAY(v->arena, struct pp_slot_use, v->slot_most);
	v->grads = PP_NEW_ARRAY(v->arena, struct pp_slot_use, v->slot_most);
}

bool pp_verify_bodies(const struct pp_program *program, struct pp_diag *diag)
{
	struct pp_body_verifier v = {.program = program, .diag = diag, .arena = pp_arena_scratch(program->arena)};
	bool ok = true;
	uses_by_stage(&v);
	ranks_look(&v);
	v.results = PP_NEW_ARRAY(v.arena, struct pp_body_results, program->body_count);
	v.makers = PP_NEW_ARRAY(v.arena, struct pp_makers, program->body_count);
	for (uint32_t s = 0; s < program->stage_count; s++)
		ok &= stage_check(&v, s);
	for (uint32_t b = 0; b < program->body_count && ok; b++)
		ok &= pp_body_boundary_check(&v, &program->bodies[b]);
	for (uint32_t b = 0; b < program->body_count && ok; b++) {
		const uint32_t *uses = v.stage_use_start + program->bodies[b].stage; /* none: its backward may be for nobody */
		ok &= uses[0] == uses[1] || pp_makers_used(&v, &program->bodies[b]);
	}
	pp_arena_destroy(v.arena);
	return ok;
}
