/* V10: bodies. Registers lie inside what they name, instructions are well typed (verify_body_ops.c), nothing is read
 * before it was written, every gradient of the stage is written once.
 *
 * requires: a program whose indices are in range (the readers guarantee that).
 * ensures:  a body that passes touches no byte outside its operands, slots and workspace, and reads only values
 *           that this body wrote, or that an earlier body of the same microbatch left in the stash.
 *
 * What may be read and written:
 *   F  reads in, aux, weights                writes out, stash, work, loss
 *   B  reads aux, stash, dout, weights       writes din, stash, work, grads
 *   I  reads aux, stash, dout, weights       writes din, stash, work
 *   W  reads aux, stash, weights             writes stash, work, grads
 * Whatever a body has written it may read again, but for grads and the loss.
 *
 * Values: a write makes a value out of the register's bytes, under the register's name, and ends every value that it
 * overlaps. A read must name a whole value as it was written: same name, shape, dtype and type. So stash and workspace
 * may be used over and over, within a body and, for the stash, from F to I to W, and a stale read is found: the bodies of
 * a stage call one value of the stash by one name. Within one instruction an output may overlap an input only
 * where the op allows it, and then exactly; outputs never overlap. */
#include "verify_body.h"
#include "verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------------------------- */

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
	struct pp_message *message = pp_error(check->diag, "V10", PP_NO_SPAN, "body s%" PRIu32 ".%s, instruction %" PRIu32 ": %s",
	                                      check->body->stage, pp_phase_name[check->body->phase], check->at, what);
	pp_note(message, "%s", line);
	return message;
}

static void body_complain(const struct pp_body_check *check, const char *format, ...) PP_PRINTF(2, 3);
static void body_complain(const struct pp_body_check *check, const char *format, ...)
{
	char what[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	pp_error(check->diag, "V10", PP_NO_SPAN, "body s%" PRIu32 ".%s: %s", check->body->stage, pp_phase_name[check->body->phase], what);
}

/* ---- what the program offers ------------------------------------------------------------------------------------ */

/* Per slot of the rank at hand: the use of this stage that names it. Entries of other stages are stale. */
struct slot_use {
	uint32_t stage; /* + 1 */
	uint32_t use, written; /* written: body + 1 */
};

struct verifier {
	const struct pp_program *program;
	struct pp_arena *arena;
	struct pp_diag *diag;
	struct slot_use *weights, *grads; /* [slot_most] */
	uint32_t slot_most; /* slots of the rank that has most */
	uint32_t *stage_uses, *stage_use_start; /* uses by stage */
	uint64_t *work_bytes; /* per rank: of its workspace slot */
	bool *has_losses;     /* per rank */
};

static uint64_t out_bytes(const struct pp_program *program, uint32_t stage)
{
	const struct pp_stage *at = &program->stages[stage];
	return (uint64_t)at->out_count * pp_dtype_size[at->out_dtype];
}

/* Bytes behind a base in the bodies of a stage. */
static uint64_t base_bytes(const struct verifier *v, const struct pp_body *body, const struct pp_reg *reg)
{
	const struct pp_stage *stage = &v->program->stages[body->stage];
	switch ((enum pp_base)reg->base) {
	case PP_BASE_IN:
	case PP_BASE_DIN:
		return body->stage ? out_bytes(v->program, body->stage - 1) : 0;
	case PP_BASE_OUT:
	case PP_BASE_DOUT:
		return out_bytes(v->program, body->stage);
	case PP_BASE_AUX:
		return stage->aux_bytes;
	case PP_BASE_STASH:
		return stage->stash_bytes;
	case PP_BASE_WORK:
		return body->work_bytes;
	case PP_BASE_LOSS:
		return v->has_losses[stage->rank] ? 2 * sizeof(double) : 0;
	case PP_BASE_WEIGHT:
	case PP_BASE_GRAD:
		return v->program->rank[stage->rank].slots[reg->slot].bytes;
	case PP_BASE_COUNT:
		break;
	}
	return 0;
}

static bool reg_end(const struct pp_reg *reg, uint64_t *end)
{
	uint64_t bytes;
	return !__builtin_mul_overflow((uint64_t)reg->rows * reg->columns, pp_dtype_size[reg->dtype], &bytes) &&
	       !__builtin_add_overflow(reg->offset, bytes, end);
}

/* ---- registers ----------------------------------------------------------------------------------------------------- */

/* What crosses a stage's boundary has the dtype of the boundary and is no partial sum. */
static bool boundary_check(const struct verifier *v, const struct pp_body_check *check, const struct pp_reg *reg)
{
	bool input = reg->base == PP_BASE_IN || reg->base == PP_BASE_DIN;
	bool output = reg->base == PP_BASE_OUT || reg->base == PP_BASE_DOUT;
	if (!input && !output)
		return true;
	if (reg->type == PP_TYPE_P) {
		body_complain(check, "register %s on %s holds partial sums (type P); reduce them over the tensor-parallel group first",
		              reg->name, pp_base_name[reg->base]);
		return false;
	}
	uint8_t wanted = v->program->stages[check->body->stage - (input ? 1 : 0)].out_dtype;
	if (reg->dtype == wanted)
		return true;
	body_complain(check, "register %s on %s is %s, expected %s as the boundary of the stage", reg->name, pp_base_name[reg->base],
	              pp_dtype_name[reg->dtype], pp_dtype_name[wanted]);
	return false;
}

/* Local shape of a tensor: the sharded dimension is cut by tp. */
static bool tensor_shape_check(const struct verifier *v, const struct pp_body_check *check, const struct pp_reg *reg,
                               const struct pp_tensor *tensor)
{
	uint32_t tp = v->program->tp ? v->program->tp : 1;
	bool sharded = tensor->shard < 2 && tp > 1;
	uint32_t rows = sharded && tensor->shard == 0 ? tensor->rows / tp : tensor->rows;
	uint32_t columns = sharded && tensor->shard == 1 ? tensor->columns / tp : tensor->columns;
	char shape[64];
	if (reg->rows != rows || reg->columns != columns || reg->offset != 0) {
		body_complain(check, "register %s is %s at byte %" PRIu64 ", expected [%" PRIu32 ",%" PRIu32 "] at byte 0 as tensor %s",
		              reg->name, pp_reg_shape_text(reg, shape), reg->offset, rows, columns, tensor->name);
		return false;
	}
	bool type_fits = reg->type == PP_TYPE_R ? !sharded
	                 : reg->type == PP_TYPE_S ? tensor->shard == reg->shard
	                                          : reg->base == PP_BASE_GRAD && tensor->tp_grad == PP_TP_REPLICATED_PARTIAL;
	if (!type_fits)
		body_complain(check, "register %s has tensor-parallel type %s, which tensor %s (%s) does not", reg->name,
		              reg->type == PP_TYPE_R ? "R" : reg->type == PP_TYPE_P ? "P" : reg->shard ? "S(1)" : "S(0)", tensor->name,
		              pp_tp_grad_name[tensor->tp_grad]);
	return type_fits;
}

static bool parameter_check(const struct verifier *v, const struct pp_body_check *check, const struct pp_reg *reg)
{
	bool grad = reg->base == PP_BASE_GRAD;
	const struct pp_rank *rank = &v->program->rank[v->program->stages[check->body->stage].rank];
	if (reg->slot >= rank->slot_count) {
		body_complain(check, "register %s names slot %" PRIu32 ", but the rank has %" PRIu32, reg->name, reg->slot, rank->slot_count);
		return false;
	}
	const struct pp_slot *slot = &rank->slots[reg->slot];
	uint8_t class = grad ? PP_SLOT_GRAD : PP_SLOT_WEIGHT;
	if (slot->class != class) {
		body_complain(check, "register %s names slot %" PRIu32 " of class %s, expected %s", reg->name, reg->slot,
		              pp_slot_class_name[slot->class], pp_slot_class_name[class]);
		return false;
	}
	const struct slot_use *named = grad ? &v->grads[reg->slot] : &v->weights[reg->slot];
	if (named->stage != check->body->stage + 1) {
		body_complain(check, "register %s names %s slot %" PRIu32 ", which no use of stage %" PRIu32 " has", reg->name,
		              pp_slot_class_name[class], reg->slot, check->body->stage);
		return false;
	}
	const struct pp_tensor *tensor = &v->program->tensors[v->program->uses[named->use].tensor];
	uint8_t dtype = grad ? PP_F32 : tensor->dtype;
	if (reg->dtype != dtype) {
		body_complain(check, "register %s is %s, expected %s as tensor %s", reg->name, pp_dtype_name[reg->dtype], pp_dtype_name[dtype],
		              tensor->name);
		return false;
	}
	return tensor_shape_check(v, check, reg, tensor);
}

static bool reg_check(const struct verifier *v, const struct pp_body_check *check, const struct pp_reg *reg)
{
	bool parameter = reg->base == PP_BASE_WEIGHT || reg->base == PP_BASE_GRAD;
	uint64_t align = reg->base == PP_BASE_AUX ? pp_dtype_size[PP_I32] : 16, end;
	if (parameter && !parameter_check(v, check, reg))
		return false;
	if (reg->rows == 0 || reg->columns == 0) {
		body_complain(check, "register %s is empty: [%" PRIu32 ",%" PRIu32 "]", reg->name, reg->rows, reg->columns);
		return false;
	}
	if (reg->offset % align) {
		body_complain(check, "register %s begins at byte %" PRIu64 ", expected a multiple of %" PRIu64, reg->name, reg->offset, align);
		return false;
	}
	uint64_t limit = base_bytes(v, check->body, reg);
	if (!reg_end(reg, &end) || end > limit) {
		char shape[64];
		body_complain(check, "register %s (%s at byte %" PRIu64 ") ends outside %s, which has %" PRIu64 " bytes", reg->name,
		              pp_reg_shape_text(reg, shape), reg->offset, pp_base_name[reg->base], limit);
		return false;
	}
	return boundary_check(v, check, reg);
}

/* ---- values ---------------------------------------------------------------------------------------------------------- */

/* The values that are defined at one moment, keyed by (base, offset). Keys are known beforehand (those of the registers),
 * so a set over their ranks with one summary level serves: next and previous element in a few words. */
struct value_key {
	uint8_t base;
	uint64_t offset;
};

struct values {
	const struct value_key *keys; /* sorted, distinct; shared by copies */
	uint32_t count;
	const struct pp_reg **written; /* [count]: the register whose write made the value, or NULL */
	uint64_t *bits, *summary;
};

static int compare_keys(const void *a, const void *b)
{
	const struct value_key *left = a, *right = b;
	if (left->base != right->base)
		return left->base < right->base ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static struct values values_make(struct pp_arena *arena, const struct value_key *keys, uint32_t count)
{
	struct values values = {.keys = keys, .count = count};
	values.written = pp_arena_alloc(arena, count, sizeof *values.written);
	values.bits = PP_NEW_ARRAY(arena, uint64_t, count / 64 + 1);
	values.summary = PP_NEW_ARRAY(arena, uint64_t, count / 4096 + 1);
	return values;
}

static uint32_t key_find(const struct values *values, uint8_t base, uint64_t offset)
{
	struct value_key wanted = {base, offset};
	const struct value_key *found = bsearch(&wanted, values->keys, values->count, sizeof wanted, compare_keys);
	return (uint32_t)(found - values->keys);
}

static void value_set(struct values *values, uint32_t key, const struct pp_reg *reg)
{
	values->written[key] = reg;
	if (reg) {
		values->bits[key / 64] |= 1ull << key % 64;
		values->summary[key / 4096] |= 1ull << key / 64 % 64;
		return;
	}
	values->bits[key / 64] &= ~(1ull << key % 64);
	if (values->bits[key / 64] == 0)
		values->summary[key / 4096] &= ~(1ull << key / 64 % 64);
}

/* The nearest defined key at or below `key`, or PP_NULL. */
static uint32_t value_at_or_below(const struct values *values, uint32_t key)
{
	uint64_t word = values->bits[key / 64] & (UINT64_MAX >> (63 - key % 64));
	if (word)
		return key / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word);
	uint32_t at = key / 64; /* words below this one */
	uint64_t mask = at % 64 ? UINT64_MAX >> (64 - at % 64) : 0;
	for (uint32_t block = at / 64 + 1; block-- > 0; mask = UINT64_MAX) {
		uint64_t words = values->summary[block] & mask;
		if (words == 0)
			continue;
		at = block * 64 + 63 - (uint32_t)__builtin_clzll(words);
		return at * 64 + 63 - (uint32_t)__builtin_clzll(values->bits[at]);
	}
	return PP_NULL;
}

static bool regs_overlap(const struct pp_reg *a, const struct pp_reg *b)
{
	uint64_t a_end, b_end;
	return a->base == b->base && a->slot == b->slot && reg_end(a, &a_end) && reg_end(b, &b_end) && a->offset < b_end && b->offset < a_end;
}

/* A write: ends the values that it overlaps, which are all neighbours from above. */
static void value_write(struct values *values, const struct pp_reg *reg)
{
	uint64_t end;
	if (!reg_end(reg, &end))
		return;
	uint32_t own = key_find(values, reg->base, reg->offset), low = own, high = values->count;
	while (low < high) { /* the first key at or after the end */
		uint32_t middle = low + (high - low) / 2;
		struct value_key last = {reg->base, end - 1};
		if (compare_keys(&values->keys[middle], &last) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (uint32_t key = low; key > 0;) {
		key = value_at_or_below(values, key - 1);
		if (key == PP_NULL || !regs_overlap(values->written[key], reg))
			break;
		value_set(values, key, NULL);
	}
	value_set(values, own, reg);
}

/* The value at the beginning of a register, or NULL. */
static const struct pp_reg *value_at(const struct values *values, const struct pp_reg *reg)
{
	return values->written[key_find(values, reg->base, reg->offset)];
}

static bool same_value(const struct pp_reg *written, const struct pp_reg *read)
{
	return written == read || (written->rows == read->rows && written->columns == read->columns && written->dtype == read->dtype &&
	                           written->type == read->type && written->shard == read->shard && strcmp(written->name, read->name) == 0);
}

/* ---- instructions ------------------------------------------------------------------------------------------------------ */

/* Bases by phase, as in the opening comment: given at the start, and writable. */
static bool is_given(enum pp_phase phase, uint8_t base)
{
	return base == PP_BASE_WEIGHT || base == PP_BASE_AUX || (base == PP_BASE_IN && phase == PP_PHASE_F) ||
	       (base == PP_BASE_DOUT && (phase == PP_PHASE_B || phase == PP_PHASE_I));
}

static bool is_writable(enum pp_phase phase, uint8_t base)
{
	switch ((enum pp_base)base) {
	case PP_BASE_STASH:
	case PP_BASE_WORK:
		return true;
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

static bool read_check(const struct pp_body_check *check, const struct values *values, const struct pp_reg *reg)
{
	enum pp_phase phase = (enum pp_phase)check->body->phase;
	char shape[64];
	if (is_given(phase, reg->base))
		return true;
	if (!is_writable(phase, reg->base) || reg->base == PP_BASE_GRAD || reg->base == PP_BASE_LOSS) {
		pp_body_complain(check, "reads %s (%s), but a body of phase %s may not read %s", reg->name, pp_reg_shape_text(reg, shape),
		                 pp_phase_name[phase], pp_base_name[reg->base]);
		return false;
	}
	const struct pp_reg *written = value_at(values, reg);
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
		if (!other || !regs_overlap(written, other))
			continue;
		bool exact = other->offset == written->offset && other->rows == written->rows && other->columns == written->columns;
		if (i < info->input_count && exact && pp_body_may_alias((enum pp_body_op)instr->op, i, output))
			continue;
		pp_body_complain(check, "output %s overlaps %s %s, which `%s` does not allow", written->name,
		                 i < info->input_count ? "input" : "output", other->name, info->mnemonic);
		return false;
	}
	return true;
}

static bool write_check(struct verifier *v, const struct pp_body_check *check, struct values *values, const struct pp_reg *reg)
{
	enum pp_phase phase = (enum pp_phase)check->body->phase;
	if (!is_writable(phase, reg->base)) {
		pp_body_complain(check, "writes %s, but a body of phase %s may not write %s", reg->name, pp_phase_name[phase],
		                 pp_base_name[reg->base]);
		return false;
	}
	if (reg->base == PP_BASE_GRAD) {
		struct slot_use *use = &v->grads[reg->slot];
		uint32_t body = (uint32_t)(check->body - v->program->bodies) + 1;
		if (use->written == body) {
			pp_body_complain(check, "writes the gradient %s a second time", reg->name);
			return false;
		}
		use->written = body;
		return true;
	}
	value_write(values, reg);
	return true;
}

static bool instr_check(struct verifier *v, const struct pp_body_check *check, struct values *values)
{
	const struct pp_body_instr *instr = &check->body->items[check->at];
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
	unsigned count = (unsigned)info.input_count + info.output_count;
	if (!pp_body_instr_check(check))
		return false;
	for (unsigned i = 0; i < info.input_count; i++)
		if (instr->operand[i] != PP_NULL && !read_check(check, values, &check->body->regs[instr->operand[i]]))
			return false;
	for (unsigned i = info.input_count; i < count; i++)
		if (instr->operand[i] != PP_NULL && !alias_check(check, &info, i))
			return false;
	for (unsigned i = info.input_count; i < count; i++)
		if (instr->operand[i] != PP_NULL && !write_check(v, check, values, &check->body->regs[instr->operand[i]]))
			return false;
	return true;
}

/* ---- bodies ---------------------------------------------------------------------------------------------------------------- */

static bool covered_check(const struct pp_body_check *check, const struct values *values, enum pp_base base, uint64_t bytes)
{
	uint64_t covered = 0, end;
	for (uint32_t r = 0; r < check->body->reg_count; r++) { /* values do not overlap: their sizes add up */
		const struct pp_reg *reg = &check->body->regs[r];
		if (reg->base == base && value_at(values, reg) == reg && reg_end(reg, &end))
			covered += end - reg->offset;
	}
	if (covered == bytes)
		return true;
	body_complain(check, "leaves %" PRIu64 " of %" PRIu64 " bytes of %s written", covered, bytes, pp_base_name[base]);
	return false;
}

/* After F the whole of `out` is there, and the loss where the stage has labels; after B and I the whole of `din`. */
static bool results_check(const struct verifier *v, const struct pp_body_check *check, const struct values *values)
{
	const struct pp_body *body = check->body;
	const struct pp_stage *stage = &v->program->stages[body->stage];
	if (body->phase == PP_PHASE_W)
		return true;
	if (body->phase == PP_PHASE_F)
		return covered_check(check, values, PP_BASE_OUT, out_bytes(v->program, body->stage)) &&
		       (!stage->loads_labels || covered_check(check, values, PP_BASE_LOSS, 2 * sizeof(double)));
	return covered_check(check, values, PP_BASE_DIN, body->stage ? out_bytes(v->program, body->stage - 1) : 0);
}

static bool grads_check(const struct verifier *v, const struct pp_body_check *check)
{
	const struct pp_body *body = check->body;
	bool ok = true;
	if (body->phase != PP_PHASE_B && body->phase != PP_PHASE_W)
		return true;
	for (uint32_t i = v->stage_use_start[body->stage]; i < v->stage_use_start[body->stage + 1]; i++) {
		const struct pp_use *use = &v->program->uses[v->stage_uses[i]];
		if (use->grad < v->slot_most && v->grads[use->grad].written == (uint32_t)(body - v->program->bodies) + 1)
			continue;
		body_complain(check, "never writes the gradient of %s (grad slot %" PRIu32 ")", v->program->tensors[use->tensor].name, use->grad);
		ok = false;
	}
	return ok;
}

/* One body from the values that the stash holds before it; *values holds those after it. */
static bool body_check(struct verifier *v, const struct pp_body *body, struct values *values)
{
	struct pp_body_check check = {.program = v->program, .body = body, .diag = v->diag};
	uint32_t rank = v->program->stages[body->stage].rank;
	bool ok = true;
	if (body->work_bytes > v->work_bytes[rank]) {
		body_complain(&check, "needs %" PRIu64 " bytes of workspace; rank %" PRIu32 " has %" PRIu64, body->work_bytes, rank,
		              v->work_bytes[rank]);
		ok = false;
	}
	for (uint32_t r = 0; r < body->reg_count; r++)
		ok &= reg_check(v, &check, &body->regs[r]);
	for (; ok && check.at < body->count; check.at++)
		ok &= instr_check(v, &check, values);
	return ok && results_check(v, &check, values) && grads_check(v, &check);
}

static struct values values_copy_stash(struct verifier *v, const struct values *from)
{
	struct values to = values_make(v->arena, from->keys, from->count);
	for (uint32_t key = 0; key < from->count; key++)
		if (from->keys[key].base == PP_BASE_STASH && from->written[key])
			value_set(&to, key, from->written[key]);
	return to;
}

/* Keys of all registers of the stage's bodies. */
static struct values stage_values(struct verifier *v, const struct pp_stage *stage)
{
	size_t total = 0, kept = 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		total += stage->body[phase] == PP_NULL ? 0 : v->program->bodies[stage->body[phase]].reg_count;
	struct value_key *keys = PP_NEW_ARRAY(v->arena, struct value_key, total);
	total = 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		const struct pp_body *body = stage->body[phase] == PP_NULL ? NULL : &v->program->bodies[stage->body[phase]];
		for (uint32_t r = 0; body && r < body->reg_count; r++)
			keys[total++] = (struct value_key){body->regs[r].base, body->regs[r].offset};
	}
	if (total)
		qsort(keys, total, sizeof *keys, compare_keys);
	for (size_t i = 0; i < total; i++)
		if (kept == 0 || compare_keys(&keys[kept - 1], &keys[i]) != 0)
			keys[kept++] = keys[i];
	return values_make(v->arena, keys, (uint32_t)kept);
}

static void uses_mark(struct verifier *v, uint32_t stage)
{
	for (uint32_t i = v->stage_use_start[stage]; i < v->stage_use_start[stage + 1]; i++) {
		const struct pp_use *use = &v->program->uses[v->stage_uses[i]];
		if (use->weight < v->slot_most)
			v->weights[use->weight] = (struct slot_use){.stage = stage + 1, .use = v->stage_uses[i]};
		if (use->grad < v->slot_most)
			v->grads[use->grad] = (struct slot_use){.stage = stage + 1, .use = v->stage_uses[i]};
	}
}

/* F from an empty stash; B and I from what F left; W from what I left. */
static bool stage_check(struct verifier *v, uint32_t s)
{
	const struct pp_stage *stage = &v->program->stages[s];
	const struct pp_body *bodies[PP_PHASE_COUNT];
	bool ok = true;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		bodies[phase] = stage->body[phase] == PP_NULL ? NULL : &v->program->bodies[stage->body[phase]];
	uses_mark(v, s);
	struct values left = stage_values(v, stage);
	if (bodies[PP_PHASE_F])
		ok = body_check(v, bodies[PP_PHASE_F], &left);
	if (!ok)
		return false;
	if (bodies[PP_PHASE_B]) {
		struct values fused = values_copy_stash(v, &left);
		ok = body_check(v, bodies[PP_PHASE_B], &fused);
	}
	if (bodies[PP_PHASE_I]) {
		left = values_copy_stash(v, &left);
		if (!body_check(v, bodies[PP_PHASE_I], &left))
			return false;
	}
	if (bodies[PP_PHASE_W]) {
		left = values_copy_stash(v, &left);
		ok &= body_check(v, bodies[PP_PHASE_W], &left);
	}
	return ok;
}

/* ---- program -------------------------------------------------------------------------------------------------------------- */

static void uses_by_stage(struct verifier *v)
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

static void ranks_look(struct verifier *v)
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
	v->weights = PP_NEW_ARRAY(v->arena, struct slot_use, v->slot_most);
	v->grads = PP_NEW_ARRAY(v->arena, struct slot_use, v->slot_most);
}

bool pp_verify_bodies(const struct pp_program *program, struct pp_diag *diag)
{
	struct verifier v = {.program = program, .diag = diag, .arena = pp_arena_scratch(program->arena)};
	bool ok = true;
	uses_by_stage(&v);
	ranks_look(&v);
	for (uint32_t s = 0; s < program->stage_count; s++)
		ok &= stage_check(&v, s);
	pp_arena_destroy(v.arena);
	return ok;
}
