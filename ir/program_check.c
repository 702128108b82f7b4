/* Range checks of programs. requires: tables whose counts match their arrays. ensures: indices, enums and sizes in
 * range, sizes free of overflow; the first fault is described with expected and found. */
#include "program_check.h"

#include "grid.h"
#include "operands.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t most_whole = UINT64_C(1) << 53; /* exact in every JSON reader */
enum { MOST_NAME = 255, MOST_TEXT = 4096 }; /* an image's records may share a text: bounds what printing can cost */
static const uint64_t most_bytes = UINT64_C(1) << 50; /* of one object; sums over a rank stay far below 2^64 */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static bool
fail(struct pp_fault *fault, const char *code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fault->code = code;
	fault->operand = PP_NULL;
	fault->help[0] = fault->cause[0] = '\0';
	vsnprintf(fault->text, sizeof fault->text, format, args);
	va_end(args);
	return false;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool check_whole(const struct pp_field *field, uint64_t value, uint64_t fallback, struct pp_fault *fault)
{
	uint64_t most = field->most ? field->most : fallback;
	if (value >= field->least && value <= most)
		return true;
	return fail(fault, "E1004", "`%s` is %" PRIu64 ", outside %" PRIu64 "..%" PRIu64, field->key ? field->key : "index",
	            value, field->least, most);
}

static bool check_index(const struct pp_program *program, enum pp_bound bound, uint32_t value, struct pp_fault *fault)
{
	uint32_t count = pp_bound_count(program, bound);
	if (value < count)
		return true;
	if (count == 0)
		fail(fault, "E1005", "there is no %s %u: this program has none", pp_bound_name[bound], value);
	else if (bound == PP_BOUND_MICROBATCH || bound == PP_BOUND_RANK)
		fail(fault, "E1005", "there is no %s %u: `grid` says %u, so 0..%u", pp_bound_name[bound], value, count,
		     count - 1);
	else
		fail(fault, "E1005", "there is no %s %u: the table has 0..%u", pp_bound_name[bound], value, count - 1);
	snprintf(fault->cause, sizeof fault->cause, "a %s that is not there", pp_bound_name[bound]);
	return false;
}

static bool check_slot(const struct pp_program *program, uint32_t rank, uint32_t slot, unsigned classes,
                       const char *wanted, struct pp_fault *fault)
{
	const struct pp_rank *owner = &program->rank[rank];
	if (slot >= owner->slot_count && owner->slot_count == 0)
		return fail(fault, "E1005", "rank %u has no slots", rank);
	if (slot >= owner->slot_count)
		return fail(fault, "E1005", "rank %u has no slot %u: its slots are 0..%u", rank, slot, owner->slot_count - 1);
	if (classes >> owner->slots[slot].class & 1)
		return true;
	fail(fault, "E1006", "slot %u of rank %u is of class %s, but %s is wanted here", slot, rank,
	     pp_slot_class_name[owner->slots[slot].class], wanted);
	snprintf(fault->cause, sizeof fault->cause, "slot %u of rank %u as another class", slot, rank);
	return false;
}

static bool check_shape(uint32_t rows, uint32_t columns, uint8_t dtype, struct pp_fault *fault)
{
	uint64_t elements = (uint64_t)rows * columns;
	if (dtype >= PP_DTYPE_COUNT)
		return fail(fault, "E1004", "there is no dtype %u", dtype);
	if (rows && columns && elements <= most_bytes / pp_dtype_size[dtype])
		return true;
	return fail(fault, "E1004",
	            "shape %u x %u is out of range: every dimension is at least 1, and the whole at most 2^50 bytes", rows,
	            columns);
}

static bool check_word(const char *word, struct pp_fault *fault)
{
	if (!word || !*word || strcmp(word, "-") == 0 || strcmp(word, "->") == 0)
		return fail(fault, "E1003", "a name is missing or is no name");
	if (strnlen(word, MOST_NAME + 1) > MOST_NAME)
		return fail(fault, "E1004", "name %.40s... is too long: at most %d bytes", word, MOST_NAME);
	for (const char *at = word; *at; at++)
		if (*at <= ' ' || *at > '~' || strchr(";{}\"=|", *at))
			return fail(fault, "E1003",
			            "name %.60s holds a blank, one of ; { } \" = | or a byte that is not printable ASCII", word);
	return true;
}

static bool check_text(const char *text, struct pp_fault *fault)
{
	return !text || strnlen(text, MOST_TEXT + 1) <= MOST_TEXT ||
	       fail(fault, "E1004", "text %.40s... is too long: at most %d bytes", text, MOST_TEXT);
}

static bool check_ranks(const struct pp_program *program, const struct pp_field *field, const void *record,
                        struct pp_fault *fault)
{
	const uint32_t *ranks = *pp_member_ranks(record, field->offset);
	uint32_t count = *pp_member_u32(record, field->second);
	for (uint32_t i = 0; i < count; i++) {
		if (!check_index(program, PP_BOUND_RANK, ranks[i], fault))
			return false;
		if (i && ranks[i] <= ranks[i - 1])
			return fail(fault, "E1011", "ranks of a group ascend, but %u comes after %u", ranks[i], ranks[i - 1]);
	}
	return true;
}

static bool check_base(const struct pp_program *program, uint32_t rank, const struct pp_field *field,
                       const void *record, struct pp_fault *fault)
{
	uint8_t base = *pp_member_u8(record, field->offset);
	uint32_t slot = *pp_member_u32(record, field->second);
	if (base >= PP_BASE_COUNT)
		return fail(fault, "E1004", "there is no register base %u", base);
	if (base == PP_BASE_WEIGHT)
		return check_slot(program, rank, slot, 1u << PP_SLOT_WEIGHT, "weight", fault);
	if (base == PP_BASE_GRAD)
		return check_slot(program, rank, slot, 1u << PP_SLOT_GRAD, "grad", fault);
	return slot == PP_NULL || fail(fault, "E1006", "a register on `%s` has no slot number", pp_base_name[base]);
}

static bool check_place(const struct pp_field *field, const void *record, struct pp_fault *fault)
{
	uint64_t offset = *pp_member_u64(record, field->offset);
	if (offset <= most_bytes && offset % PP_ALIGN == 0)
		return true;
	return fail(fault, "E1004", "offset %" PRIu64 " is not a multiple of %d up to 2^50", offset, PP_ALIGN);
}

bool pp_check_field(const struct pp_program *program, uint32_t rank, const struct pp_field *field, const void *record,
                    struct pp_fault *fault)
{
	const uint32_t *u32 = pp_member_u32(record, field->offset);
	switch (field->kind) {
	case PP_FIELD_U8:
		return check_whole(field, *pp_member_u8(record, field->offset), UINT8_MAX, fault);
	case PP_FIELD_U32:
		return check_whole(field, *u32, UINT32_MAX, fault);
	case PP_FIELD_U64:
		return check_whole(field, *pp_member_u64(record, field->offset), most_whole, fault);
	case PP_FIELD_PHASES:
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			if (!check_whole(field, pp_member_u64(record, field->offset)[phase], most_bytes, fault))
				return false;
		return true;
	case PP_FIELD_NUMBER:
		return isfinite(*pp_member_number(record, field->offset)) ||
		       fail(fault, "E1004", "`%s` is not finite", field->key);
	case PP_FIELD_NAME:
		return *pp_member_u8(record, field->offset) < field->name_count ||
		       fail(fault, "E1004", "there is no %s %u", field->key && *field->key ? field->key : "kind",
		            *pp_member_u8(record, field->offset));
	case PP_FIELD_INDEX:
		return (field->nullable && *u32 == PP_NULL) || check_index(program, field->bound, *u32, fault);
	case PP_FIELD_PAYLOAD:
		return *pp_member_u8(record, field->second) < PP_DTYPE_COUNT ||
		       fail(fault, "E1004", "there is no dtype %u", *pp_member_u8(record, field->second));
	case PP_FIELD_SHAPE:
		return check_shape(u32[0], u32[1], *pp_member_u8(record, field->second), fault);
	case PP_FIELD_SLOT:
		return (field->nullable && *u32 == PP_NULL) ||
		       check_slot(program, rank, *u32,
		                  field->names[0] == pp_slot_class_name[PP_SLOT_WEIGHT] ? 1u << PP_SLOT_WEIGHT
		                                                                        : 1u << PP_SLOT_GRAD,
		                  field->names[0], fault);
	case PP_FIELD_BASE:
		return check_base(program, rank, field, record, fault);
	case PP_FIELD_RANKS:
		return check_ranks(program, field, record, fault);
	case PP_FIELD_PLACE:
		return check_place(field, record, fault);
	case PP_FIELD_WORD:
		return check_word(*pp_member_text(record, field->offset), fault);
	case PP_FIELD_TEXT:
		return check_text(*pp_member_text(record, field->offset), fault);
	case PP_FIELD_FLAG:
		return true;
	}
	return true;
}

/* ---- records --------------------------------------------------------------------------------- */

static bool check_tensor(const struct pp_tensor *tensor, struct pp_fault *fault)
{
	if (tensor->dims != 1 && tensor->dims != 2)
		return fail(fault, "E1004", "a tensor has 1 or 2 dimensions, not %u", tensor->dims);
	if (tensor->dims == 1 && tensor->columns != 1)
		return fail(fault, "E1011", "a vector has 1 column, not %u", tensor->columns);
	return tensor->shard < tensor->dims || tensor->shard == 255 ||
	       fail(fault, "E1004", "`shard` names dimension %u of a tensor with %u (255: not split)", tensor->shard,
	            tensor->dims);
}

static bool check_slot_record(const struct pp_slot *slot, struct pp_fault *fault)
{
	if (slot->bytes > most_bytes)
		return fail(fault, "E1004", "a slot of %" PRIu64 " bytes is out of range: at most 2^50", slot->bytes);
	bool of_tensor = slot->class == PP_SLOT_WEIGHT || slot->class == PP_SLOT_GRAD || slot->class == PP_SLOT_MOMENT ||
	                 slot->class == PP_SLOT_MASTER;
	return of_tensor || slot->tensor == PP_NULL ||
	       fail(fault, "E1006",
	            "a slot of class %s belongs to no tensor: `tensor` goes with weight, grad, moment and master",
	            pp_slot_class_name[slot->class]);
}

static bool check_group(const struct pp_group *group, struct pp_fault *fault)
{
	if (group->axis == PP_AXIS_PP && group->member_count == 0)
		return fail(fault, "E1008", "a group on the pp axis lists its ranks: write `ranks 0,3-5`");
	return group->axis == PP_AXIS_PP || group->member_count == 0 ||
	       fail(fault, "E1011", "members of a group on the %s axis follow from the coordinate: leave `ranks` out",
	            pp_axis_name[group->axis]);
}

static bool check_reg(const struct pp_reg *reg, struct pp_fault *fault)
{
	if (reg->offset > most_bytes)
		return fail(fault, "E1004", "a register at byte %" PRIu64 " is out of range: at most 2^50", reg->offset);
	return reg->shard < 2 || fail(fault, "E1004", "`shard` is 0 or 1, not %u", reg->shard);
}

static bool check_grid(const struct pp_program *program, struct pp_fault *fault)
{
	uint64_t world = pp_grid_world(program);
	return world <= PP_GRID_MOST ||
	       fail(fault, "E1004",
	            "pp * tp * dp = %" PRIu32 " * %" PRIu32 " * %" PRIu32 " = %" PRIu64 " ranks: at most %u",
	            program->ranks, program->tp, program->dp, world, PP_GRID_MOST);
}

bool pp_check_record(const struct pp_program *program, enum pp_record_kind kind, const void *record,
                     struct pp_fault *fault)
{
	const struct pp_channel *channel = record;
	switch (kind) {
	case PP_RECORD_TENSOR:
		return check_tensor(record, fault);
	case PP_RECORD_SLOT:
		return check_slot_record(record, fault);
	case PP_RECORD_CHANNEL:
		return channel->source != channel->destination ||
		       fail(fault, "E1011", "a channel joins two different ranks, but `from` and `to` are both %u",
		            channel->source);
	case PP_RECORD_GROUP:
		return check_group(record, fault);
	case PP_RECORD_REG:
		return check_reg(record, fault);
	case PP_RECORD_GRID:
		return check_grid(record, fault);
	case PP_RECORD_DEVICE:
	case PP_RECORD_USE:
	case PP_RECORD_BODY:
	case PP_RECORD_ABOUT:
	case PP_RECORD_COST:
	case PP_RECORD_TRAIN:
	case PP_RECORD_HYPER:
	case PP_RECORD_STAGE:
	case PP_RECORD_COUNT:
		break;
	}
	(void)program;
	return true;
}

uint32_t pp_use_rank(const struct pp_program *program, const struct pp_use *use)
{
	return use->stage < program->stage_count ? program->stages[use->stage].rank : 0;
}

/* ---- instructions ---------------------------------------------------------------------------- */

enum {
	NONE = 1 << PP_SLOT_CLASS_COUNT, /* the null slot is allowed */
	RECV = 1 << PP_SLOT_RECV,
	OUT = 1 << PP_SLOT_OUT,
	STASH = 1 << PP_SLOT_STASH,
	AUX = 1 << PP_SLOT_AUX,
	EXTRA = 1 << PP_SLOT_EXTRA,
	WEIGHT = 1 << PP_SLOT_WEIGHT,
	GRAD = 1 << PP_SLOT_GRAD,
	MOMENT = 1 << PP_SLOT_MOMENT,
	MASTER = 1 << PP_SLOT_MASTER,
	LOSSES = 1 << PP_SLOT_LOSSES,
	NORMS = 1 << PP_SLOT_NORMS,
	SCALE = 1 << PP_SLOT_SCALE,
	ANY = NONE - 1,
	BOUNDARY = RECV | OUT | NONE, /* a value from or for a neighbour stage, on another rank or this one */
};

/* Classes that an op takes in a[0] .. a[3] and extra, and its flags. */
static const struct {
	uint16_t classes[PP_SLOT_OPERANDS];
	uint8_t flags;
} rules[PP_OP_COUNT] = {
    [PP_OP_LOAD] = {{AUX}, 0},
    [PP_OP_FWD] = {{BOUNDARY, AUX | NONE, OUT | NONE, STASH | NONE}, PP_PAIR},
    [PP_OP_REMAT] = {{STASH | NONE, 0, 0, 0, EXTRA}, PP_PAIR},
    [PP_OP_BWD] = {{AUX | NONE, STASH | NONE, BOUNDARY, OUT | NONE, EXTRA | NONE}, PP_PAIR | PP_FIRST},
    [PP_OP_BWDI] = {{AUX | NONE, STASH | NONE, BOUNDARY, OUT | NONE, EXTRA | NONE}, PP_PAIR},
    [PP_OP_BWDW] = {{AUX | NONE, STASH | NONE, 0, 0, EXTRA | NONE}, PP_PAIR | PP_FIRST},
    [PP_OP_SEND] = {{0, 0, OUT, 0}, 0},
    [PP_OP_RECV] = {{0, 0, RECV, 0}, 0},
    [PP_OP_COLL] = {{0, 0, ANY, ANY}, PP_SHARD},
    [PP_OP_ZERO] = {{ANY}, 0},
    [PP_OP_ADD] = {{GRAD, GRAD}, PP_SHARD},
    [PP_OP_SQNORM] = {{GRAD, NORMS}, PP_SHARD},
    [PP_OP_CLIP] = {{LOSSES, NORMS, SCALE}, 0},
    [PP_OP_OPT] = {{WEIGHT, GRAD, MOMENT | NONE, MOMENT | NONE, MASTER | NONE}, PP_SHARD},
};

/* "recv or out". */
static void class_words(unsigned classes, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT && used < size; class ++)
		if (classes >> class & 1)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " or " : "", pp_slot_class_name[class]);
}

static bool check_slot_operand(const struct pp_program *program, uint32_t rank, uint32_t slot, unsigned classes,
                               struct pp_fault *fault)
{
	char wanted[128];
	if (slot == PP_NULL && (classes & NONE))
		return true;
	if (slot < program->rank[rank].slot_count && (classes >> program->rank[rank].slots[slot].class & 1))
		return true;
	class_words(classes, wanted, sizeof wanted);
	if (slot == PP_NULL)
		return fail(fault, "E1006", "this operand wants a slot of class %s, got none", wanted);
	return check_slot(program, rank, slot, classes, wanted, fault);
}

static bool check_operand(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr,
                          const struct pp_operand *operand, struct pp_fault *fault)
{
	const uint32_t *value = pp_member_u32(instr, operand->offset);
	switch (operand->kind) {
	case PP_OPERAND_NAME:
		return instr->sub < operand->name_count || fail(fault, "E1004", "there is no such kind: %u", instr->sub);
	case PP_OPERAND_INDEX:
	case PP_OPERAND_TEXT:
		return operand->bound == PP_BOUND_NONE || check_index(program, operand->bound, *value, fault);
	case PP_OPERAND_SLOT:
		return check_slot_operand(program, rank, *value,
		                          rules[instr->op].classes[(operand->offset - offsetof(struct pp_instr, a)) / 4],
		                          fault);
	case PP_OPERAND_PAYLOAD:
		return instr->dtype < PP_DTYPE_COUNT || fail(fault, "E1004", "there is no dtype %u", instr->dtype);
	case PP_OPERAND_NONE:
		break;
	}
	return true;
}

bool pp_check_instr(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr,
                    struct pp_fault *fault)
{
	if (instr->op >= PP_OP_COUNT)
		return fail(fault, "E1002", "there is no instruction %u", instr->op);
	const char *signature = pp_op_table[instr->op].signature;
	for (unsigned i = 0; signature[i]; i++)
		if (!check_operand(program, rank, instr, pp_operand_of(signature[i]), fault)) {
			fault->operand = i;
			return false;
		}
	unsigned wrong = instr->flags & ~(unsigned)rules[instr->op].flags;
	if (wrong == 0)
		return true;
	unsigned flag = 0;
	while (!(wrong >> flag & 1))
		flag++;
	return fail(fault, "E1003", "`%s` takes no flag `%s`", pp_op_table[instr->op].mnemonic,
	            flag < PP_FLAG_COUNT ? pp_flag_name[flag] : "(unknown)");
}

bool pp_check_body_instr(const struct pp_body *body, const struct pp_body_instr *instr, struct pp_fault *fault)
{
	if (instr->op >= PP_BODY_OP_COUNT)
		return fail(fault, "E1002", "there is no body instruction %u", instr->op);
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
	unsigned count = info.input_count + info.output_count;
	for (unsigned i = 0; i < PP_BODY_OPERANDS_MAX; i++) {
		uint32_t reg = instr->operand[i];
		bool null_allowed = i >= count || (info.optional >> i & 1);
		if (reg == PP_NULL ? null_allowed : i < count && reg < body->reg_count)
			continue;
		if (reg == PP_NULL)
			fail(fault, "E1005", "operand %u of `%s` can't be left out", i + 1, info.mnemonic);
		else
			fail(fault, "E1005", "`%s` names register %u; the body has %u, and the op %u operands", info.mnemonic, reg,
			     body->reg_count, count);
		fault->operand = i;
		return false;
	}
	return true;
}

/* ---- tables together ------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct pp_tensor *const *)a)->name, (*(const struct pp_tensor *const *)b)->name);
}

static bool check_names(struct pp_arena *arena, const struct pp_program *program, uint32_t *culprit,
                        struct pp_fault *fault)
{
	const struct pp_tensor **sorted = PP_NEW_ARRAY(arena, const struct pp_tensor *, program->tensor_count);
	for (uint32_t i = 0; i < program->tensor_count; i++)
		sorted[i] = &program->tensors[i];
	if (program->tensor_count)
		qsort(sorted, program->tensor_count, sizeof(const struct pp_tensor *), by_name);
	for (uint32_t i = 1; i < program->tensor_count; i++) {
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0)
			continue;
		const struct pp_tensor *first = sorted[i - 1] < sorted[i] ? sorted[i - 1] : sorted[i];
		const struct pp_tensor *second = sorted[i - 1] < sorted[i] ? sorted[i] : sorted[i - 1];
		*culprit = (uint32_t)(second - program->tensors);
		return fail(fault, "E1007", "tensors %u and %u are both named %.100s: names are unique",
		            (unsigned)(first - program->tensors), *culprit, first->name);
	}
	return true;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_registers(struct pp_arena *arena, const struct pp_program *program, uint32_t *culprit,
                            struct pp_fault *fault)
{
	uint32_t most = 1;
	for (uint32_t b = 0; b < program->body_count; b++)
		most = program->bodies[b].reg_count > most ? program->bodies[b].reg_count : most;
	const char **names = PP_NEW_ARRAY(arena, const char *, most);
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		for (uint32_t i = 0; i < body->reg_count; i++)
			names[i] = body->regs[i].name;
		qsort(names, body->reg_count, sizeof(const char *), by_text);
		for (uint32_t i = 1; i < body->reg_count; i++)
			if (strcmp(names[i - 1], names[i]) == 0) {
				*culprit = b;
				return fail(fault, "E1007", "body %u has two registers named %.60s", b, names[i]);
			}
	}
	return true;
}

static bool check_bodies(const struct pp_program *program, uint32_t *culprit, struct pp_fault *fault)
{
	for (uint32_t s = 0; s < program->stage_count; s++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			uint32_t index = program->stages[s].body[phase];
			if (index == PP_NULL || (program->bodies[index].stage == s && program->bodies[index].phase == phase))
				continue;
			*culprit = index;
			return fail(fault, "E1011", "stage %u names body %u for phase %s, which is for another", s, index,
			            pp_phase_name[phase]);
		}
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		uint32_t owned = program->stages[body->stage].body[body->phase];
		if (owned == b)
			continue;
		*culprit = b;
		return fail(fault, "E1007", "stage %u has two bodies for phase %s: %u and %u", body->stage,
		            pp_phase_name[body->phase], owned, b);
	}
	return true;
}

static bool check_uses(const struct pp_program *program, struct pp_fault *fault)
{
	for (uint32_t i = 1; i < program->use_count; i++)
		if (program->uses[i].tensor < program->uses[i - 1].tensor)
			return fail(fault, "E1011", "uses are sorted by tensor, but use %u (tensor %u) comes after tensor %u", i,
			            program->uses[i].tensor, program->uses[i - 1].tensor);
	return true;
}

static bool check_counts(const struct pp_program *program, struct pp_fault *fault)
{
	uint64_t members = 0;
	for (uint32_t i = 0; i < program->group_count; i++)
		members += program->groups[i].member_count;
	if (members > PP_MOST_MEMBERS)
		return fail(fault, "E1004", "groups list %" PRIu64 " ranks altogether, at most %d", members, PP_MOST_MEMBERS);
	if (program->stage_count == 0)
		return fail(fault, "E1008", "the program has no stages");
	if (program->stage_count > 65535)
		return fail(fault, "E1004", "%u stages are too many: at most 65535", program->stage_count);
	if (program->program_count == 0 || program->program_count > PP_MOST_PROGRAMS)
		return fail(fault, "E1008", "there are %u programs, wanted 1..%d", program->program_count, PP_MOST_PROGRAMS);
	if (!(program->train.eval_tail >= 0 && program->train.eval_tail <= 0.9))
		return fail(fault, "E1004", "`eval_tail` is %g, outside 0..0.9", program->train.eval_tail);
	for (uint32_t i = 0; i < program->text_count; i++)
		if (!check_text(program->texts[i], fault))
			return false;
	for (uint32_t i = 0; i < program->program_count; i++)
		if (!check_word(program->programs[i].name, fault))
			return false;
	for (uint32_t i = 0; i < program->program_count; i++)
		for (uint32_t j = 0; j < i; j++)
			if (strcmp(program->programs[i].name, program->programs[j].name) == 0)
				return fail(fault, "E1007", "two programs are named %.60s", program->programs[i].name);
	return true;
}

bool pp_check_tables(struct pp_arena *arena, const struct pp_program *program, uint32_t *tensor, uint32_t *body,
                     struct pp_fault *fault)
{
	*tensor = *body = PP_NULL;
	return check_counts(program, fault) && check_names(arena, program, tensor, fault) &&
	       check_bodies(program, body, fault) && check_registers(arena, program, body, fault) &&
	       check_uses(program, fault);
}
