/* Programs as text (`.pps`). requires: indices in range. ensures: reading the text gives the same program, and printing
 * that the same text. Everything follows program_fields.c and the signatures of ops.def; nothing here knows an op. */
#include "text_write.h"

#include "ir/operands.h"
#include "ir/program_text.h"

#include <string.h>

/* ---- fields ---------------------------------------------------------------------------------- */

static void print_slot(struct pp_writer *w, const struct pp_rank *rank, uint32_t slot)
{
	if (slot == PP_NULL) {
		pp_write_char(w, '-');
		return;
	}
	pp_write_text(w, slot < rank->slot_count ? pp_slot_class_name[rank->slots[slot].class] : "slot");
	pp_write_char(w, '.');
	pp_write_uint(w, slot);
}

static void print_index(struct pp_writer *w, char letter, uint32_t value)
{
	if (value == PP_NULL) {
		pp_write_char(w, '-');
		return;
	}
	if (letter)
		pp_write_char(w, letter);
	pp_write_uint(w, value);
}

static void print_payload(struct pp_writer *w, uint8_t dtype, uint32_t count)
{
	pp_write_text(w, pp_dtype_name[dtype]);
	pp_write_char(w, '*');
	pp_write_uint(w, count);
}

/* 0,3-5: runs of three or more are folded. */
static void print_ranks(struct pp_writer *w, const uint32_t *ranks, uint32_t count)
{
	for (uint32_t i = 0; i < count;) {
		uint32_t last = i;
		while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
			last++;
		if (i)
			pp_write_char(w, ',');
		pp_write_uint(w, ranks[i]);
		if (last >= i + 2) {
			pp_write_char(w, '-');
			pp_write_uint(w, ranks[last]);
			i = last + 1;
		} else
			i++;
	}
}

static bool is_initial(const struct pp_field *field, const void *record)
{
	const uint64_t *phases = pp_member_u64(record, field->offset);
	static const uint64_t zeros[PP_PHASE_COUNT];
	switch (field->kind) {
	case PP_FIELD_U8:
	case PP_FIELD_NAME:
		return *pp_member_u8(record, field->offset) == field->initial;
	case PP_FIELD_U32:
	case PP_FIELD_INDEX:
		return *pp_member_u32(record, field->offset) == field->initial;
	case PP_FIELD_U64:
		return *pp_member_u64(record, field->offset) == field->initial;
	case PP_FIELD_FLAG:
		return !*pp_member_flag(record, field->offset);
	case PP_FIELD_NUMBER:
		return *pp_member_number(record, field->offset) == 0;
	case PP_FIELD_TEXT:
	case PP_FIELD_WORD:
		return !*pp_member_text(record, field->offset);
	case PP_FIELD_PAYLOAD:
		return *pp_member_u32(record, field->offset) == 0 && *pp_member_u8(record, field->second) == PP_F32;
	case PP_FIELD_PLACE:
		return !*pp_member_flag(record, field->second);
	case PP_FIELD_PHASES:
		return memcmp(phases, field->initials ? field->initials : zeros, sizeof zeros) == 0;
	case PP_FIELD_RANKS:
		return *pp_member_u32(record, field->second) == 0;
	case PP_FIELD_SHAPE:
	case PP_FIELD_SLOT:
	case PP_FIELD_BASE:
		return false;
	}
	return false;
}

static void print_base(struct pp_writer *w, const struct pp_field *field, const void *record)
{
	uint32_t slot = *pp_member_u32(record, field->second);
	pp_write_text(w, pp_base_name[*pp_member_u8(record, field->offset)]);
	if (slot != PP_NULL) {
		pp_write_char(w, '.');
		pp_write_uint(w, slot);
	}
}

static void print_shape(struct pp_writer *w, const struct pp_field *field, const void *record)
{
	const uint32_t *shape = pp_member_u32(record, field->offset);
	print_payload(w, *pp_member_u8(record, field->second), shape[0]);
	if (field->third ? *pp_member_u8(record, field->third) == 2 : shape[1] != 1) {
		pp_write_char(w, 'x');
		pp_write_uint(w, shape[1]);
	}
}

static void print_value(struct pp_writer *w, const struct pp_field *field, const void *record,
                        const struct pp_rank *rank)
{
	const uint32_t *u32 = pp_member_u32(record, field->offset);
	switch (field->kind) {
	case PP_FIELD_U8:
		pp_write_uint(w, *pp_member_u8(record, field->offset));
		break;
	case PP_FIELD_U32:
		pp_write_uint(w, *u32);
		break;
	case PP_FIELD_U64:
	case PP_FIELD_PLACE:
		pp_write_uint(w, *pp_member_u64(record, field->offset));
		break;
	case PP_FIELD_NUMBER:
		pp_write_number(w, *pp_member_number(record, field->offset));
		break;
	case PP_FIELD_NAME:
		pp_write_text(w, field->names[*pp_member_u8(record, field->offset)]);
		break;
	case PP_FIELD_INDEX:
		print_index(w, field->letter, *u32);
		break;
	case PP_FIELD_TEXT:
		pp_write_string(w, *pp_member_text(record, field->offset));
		break;
	case PP_FIELD_WORD:
		pp_write_text(w, *pp_member_text(record, field->offset));
		break;
	case PP_FIELD_PAYLOAD:
		print_payload(w, *pp_member_u8(record, field->second), *u32);
		break;
	case PP_FIELD_SHAPE:
		print_shape(w, field, record);
		break;
	case PP_FIELD_PHASES:
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			uint64_t value = pp_member_u64(record, field->offset)[phase];
			if (phase == PP_PHASE_R && value == 0)
				continue;
			if (phase)
				pp_write_char(w, ' ');
			pp_write_uint(w, value);
		}
		break;
	case PP_FIELD_RANKS:
		print_ranks(w, *pp_member_ranks(record, field->offset), *pp_member_u32(record, field->second));
		break;
	case PP_FIELD_SLOT:
		print_slot(w, rank, *u32);
		break;
	case PP_FIELD_BASE:
		print_base(w, field, record);
		break;
	case PP_FIELD_FLAG:
		break;
	}
}

static void print_fields(struct pp_writer *w, enum pp_record_kind kind, const void *record, const struct pp_rank *rank)
{
	const struct pp_record *shape = &pp_record_table[kind];
	for (uint32_t i = 0; i < shape->field_count; i++) {
		const struct pp_field *field = &shape->fields[i];
		if (!field->key || (!field->required && is_initial(field, record)))
			continue;
		pp_write_char(w, ' ');
		pp_write_text(w, field->key);
		if (*field->key && field->kind != PP_FIELD_FLAG)
			pp_write_char(w, ' ');
		print_value(w, field, record, rank);
	}
}

/* ---- tables ---------------------------------------------------------------------------------- */

static bool all_initial(enum pp_record_kind kind, const void *record)
{
	const struct pp_record *shape = &pp_record_table[kind];
	for (uint32_t i = 0; i < shape->field_count; i++)
		if (shape->fields[i].required || !is_initial(&shape->fields[i], record))
			return false;
	return true;
}

/* A line that stands alone; left out when it would say nothing. */
static void print_single(struct pp_writer *w, enum pp_record_kind kind, const void *record)
{
	if (all_initial(kind, record))
		return;
	pp_write_text(w, pp_record_table[kind].word);
	print_fields(w, kind, record, NULL);
	pp_write_char(w, '\n');
}

static void print_head(struct pp_writer *w, enum pp_record_kind kind, uint32_t number)
{
	pp_write_text(w, pp_record_table[kind].word);
	pp_write_char(w, ' ');
	print_index(w, pp_record_table[kind].letter, number);
}

static void print_table(struct pp_writer *w, enum pp_record_kind kind, const void *records, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		print_head(w, kind, i);
		print_fields(w, kind, (const char *)records + (size_t)i * pp_record_table[kind].size, NULL);
		pp_write_char(w, '\n');
	}
}

static void print_devices(struct pp_writer *w, const struct pp_program *program)
{
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		if (all_initial(PP_RECORD_DEVICE, &program->rank[rank]))
			continue;
		print_head(w, PP_RECORD_DEVICE, rank);
		print_fields(w, PP_RECORD_DEVICE, &program->rank[rank], NULL);
		pp_write_char(w, '\n');
	}
}

static void print_slots(struct pp_writer *w, const struct pp_program *program)
{
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < program->rank[r].slot_count; i++) {
			print_head(w, PP_RECORD_SLOT, r);
			pp_write_char(w, ' ');
			print_slot(w, &program->rank[r], i);
			print_fields(w, PP_RECORD_SLOT, &program->rank[r].slots[i], NULL);
			pp_write_char(w, '\n');
		}
}

static void print_uses(struct pp_writer *w, const struct pp_program *program)
{
	for (uint32_t i = 0; i < program->use_count; i++) {
		const struct pp_use *use = &program->uses[i];
		pp_write_text(w, pp_record_table[PP_RECORD_USE].word);
		print_fields(w, PP_RECORD_USE, use, &program->rank[program->stages[use->stage].rank]);
		pp_write_char(w, '\n');
	}
}

static void print_source(struct pp_writer *w, const struct pp_program *program)
{
	if (!program->source_name)
		return;
	pp_write_text(w, "source ");
	pp_write_string(w, program->source_name);
	pp_write_char(w, '\n');
	const char *at = program->source_text ? program->source_text : "";
	while (*at) {
		pp_write_text(w, "| ");
		for (; *at && *at != '\n'; at++)
			pp_write_char(w, *at);
		pp_write_char(w, '\n');
		at += *at == '\n';
	}
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void print_body_operands(struct pp_writer *w, const struct pp_body *body, const uint32_t *operands,
                                unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		pp_write_char(w, ' ');
		pp_write_text(w, operands[i] == PP_NULL ? "-" : body->regs[operands[i]].name);
	}
}

static void print_body_instr(struct pp_writer *w, const struct pp_body *body, const struct pp_body_instr *instr)
{
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
	pp_write_text(w, "  ");
	pp_write_text(w, info.mnemonic);
	print_body_operands(w, body, instr->operand, info.input_count);
	if (info.output_count)
		pp_write_text(w, " ->");
	print_body_operands(w, body, instr->operand + info.input_count, info.output_count);
	const char *name = info.immediates;
	for (unsigned i = 0; i < info.immediate_count; i++) {
		pp_write_char(w, ' ');
		for (; *name && *name != ' '; name++)
			pp_write_char(w, *name);
		name += *name == ' ';
		pp_write_char(w, '=');
		pp_write_uint(w, instr->imm[i]);
	}
	pp_write_char(w, '\n');
}

static void print_bodies(struct pp_writer *w, const struct pp_program *program)
{
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		print_head(w, PP_RECORD_BODY, b);
		print_fields(w, PP_RECORD_BODY, body, NULL);
		pp_write_text(w, " {\n");
		for (uint32_t i = 0; i < body->reg_count; i++) {
			pp_write_text(w, "  reg");
			print_fields(w, PP_RECORD_REG, &body->regs[i], NULL);
			pp_write_char(w, '\n');
		}
		for (uint32_t i = 0; i < body->count; i++)
			print_body_instr(w, body, &body->items[i]);
		pp_write_text(w, "}\n");
	}
}

/* ---- streams --------------------------------------------------------------------------------- */

static void print_operand(struct pp_writer *w, const struct pp_program *program, const struct pp_rank *rank,
                          const struct pp_instr *instr, const struct pp_operand *operand)
{
	const uint32_t *value = pp_member_u32(instr, operand->offset);
	switch (operand->kind) {
	case PP_OPERAND_NAME:
		pp_write_text(w, operand->names[instr->sub]);
		break;
	case PP_OPERAND_INDEX:
		pp_write_char(w, operand->prefix);
		pp_write_uint(w, *value);
		break;
	case PP_OPERAND_SLOT:
		print_slot(w, rank, *value);
		break;
	case PP_OPERAND_PAYLOAD:
		print_payload(w, instr->dtype, instr->count);
		break;
	case PP_OPERAND_TEXT:
		pp_write_string(w, program->texts[*value]);
		break;
	case PP_OPERAND_NONE:
		break;
	}
}

static void print_instr(struct pp_writer *w, const struct pp_program *program, const struct pp_rank *rank,
                        const struct pp_instr *instr)
{
	const struct pp_op_info *info = &pp_op_table[instr->op];
	pp_write_text(w, info->mnemonic);
	for (const char *letter = info->signature; *letter; letter++) {
		const struct pp_operand *operand = pp_operand_of(*letter);
		if (operand->trailing && *pp_member_u32(instr, operand->offset) == PP_NULL)
			continue;
		pp_write_char(w, ' ');
		print_operand(w, program, rank, instr, operand);
	}
	for (unsigned flag = 0; flag < PP_FLAG_COUNT; flag++)
		if (instr->flags >> flag & 1) {
			pp_write_char(w, ' ');
			pp_write_text(w, pp_flag_name[flag]);
		}
}

static void print_stream(struct pp_writer *w, const struct pp_program *program, uint32_t rank,
                         const struct pp_stream *stream)
{
	pp_write_text(w, "  rank ");
	pp_write_uint(w, rank);
	pp_write_text(w, " {\n");
	for (uint32_t i = 0; i < stream->count; i++) {
		pp_write_text(w, "    ");
		print_instr(w, program, &program->rank[rank], &stream->items[i]);
		if (stream->order && stream->order[i] != PP_NULL) {
			pp_write_text(w, " @");
			pp_write_uint(w, stream->order[i]);
		}
		pp_write_char(w, '\n');
	}
	pp_write_text(w, "  }\n");
}

void pp_instr_print(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr, FILE *out)
{
	struct pp_writer w;
	pp_write_begin(&w, out);
	print_instr(&w, program, &program->rank[rank], instr);
	pp_write_flush(&w);
}

void pp_program_print(const struct pp_program *program, FILE *out)
{
	struct pp_writer writer, *w = &writer;
	pp_write_begin(w, out);
	pp_write_text(w, "pps 1\n");
	print_single(w, PP_RECORD_ABOUT, program);
	print_single(w, PP_RECORD_GRID, program);
	print_devices(w, program);
	print_single(w, PP_RECORD_COST, &program->cost);
	print_single(w, PP_RECORD_TRAIN, &program->train);
	print_table(w, PP_RECORD_HYPER, program->train.hypers, program->train.hyper_count);
	print_table(w, PP_RECORD_STAGE, program->stages, program->stage_count);
	print_table(w, PP_RECORD_TENSOR, program->tensors, program->tensor_count);
	print_slots(w, program);
	print_uses(w, program);
	print_table(w, PP_RECORD_CHANNEL, program->channels, program->channel_count);
	print_table(w, PP_RECORD_GROUP, program->groups, program->group_count);
	print_bodies(w, program);
	print_source(w, program);
	for (uint32_t i = 0; i < program->program_count; i++) {
		pp_write_text(w, "program ");
		pp_write_text(w, program->programs[i].name);
		pp_write_text(w, " {\n");
		for (uint32_t rank = 0; rank < program->ranks; rank++)
			print_stream(w, program, rank, &program->programs[i].streams[rank]);
		pp_write_text(w, "}\n");
	}
	pp_write_flush(w);
}
