/* Writing `.ppx`. requires: a program whose indices are in range. ensures: bytes that depend on the program alone:
 * members that an instruction does not use are written at their resting values, padding is zero. */
#include "image.h"
#include "image_format.h"
#include "operands.h"

#include <assert.h>
#include <string.h>

struct image {
	struct pp_arena *arena;
	const struct pp_program *program;
	unsigned char *bytes;
	size_t length, capacity;
	/* strings are collected on the way and appended as the last section */
	char *strings;
	size_t strings_length, strings_capacity;
	uint64_t section_at[PP_SECTION_COUNT], section_count[PP_SECTION_COUNT];
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static unsigned char *room(struct image *image, size_t length)
{
	if (image->capacity - image->length < length) {
		size_t wanted = image->capacity * 2 > image->length + length ? image->capacity * 2 : image->length + length;
		image->bytes = pp_arena_grow(image->arena, image->bytes, image->capacity, wanted, 1);
		image->capacity = wanted;
	}
	unsigned char *at = image->bytes + image->length;
	image->length += length;
	return at;
}

static void put8(struct image *image, uint8_t value)
{
	*room(image, 1) = value;
}

static void put32(struct image *image, uint32_t value)
{
	pp_store32(room(image, 4), value);
}

static void put64(struct image *image, uint64_t value)
{
	pp_store64(room(image, 8), value);
}

static void put_number(struct image *image, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	put64(image, bits);
}

static void put_string(struct image *image, const char *text)
{
	if (!text) {
		put32(image, PP_NULL);
		return;
	}
	size_t size = strlen(text) + 1;
	assert(image->strings_length + size < PP_NULL);
	put32(image, (uint32_t)image->strings_length);
	if (image->strings_capacity - image->strings_length < size) {
		size_t wanted = image->strings_capacity * 2 + size;
		image->strings = pp_arena_grow(image->arena, image->strings, image->strings_capacity, wanted, 1);
		image->strings_capacity = wanted;
	}
	memcpy(image->strings + image->strings_length, text, size);
	image->strings_length += size;
}

static void begin_section(struct image *image, unsigned section, uint64_t count)
{
	room(image, (8 - image->length % 8) % 8); /* zero: the arena gives zeroed memory */
	image->section_at[section] = image->length;
	image->section_count[section] = count;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void put_field(struct image *image, const struct pp_field *field, const void *record)
{
	const uint32_t *u32 = pp_member_u32(record, field->offset);
	switch (field->kind) {
	case PP_FIELD_U8:
	case PP_FIELD_NAME:
		put8(image, *pp_member_u8(record, field->offset));
		break;
	case PP_FIELD_FLAG:
		put8(image, *pp_member_flag(record, field->offset));
		break;
	case PP_FIELD_U32:
	case PP_FIELD_INDEX:
	case PP_FIELD_SLOT:
		put32(image, *u32);
		break;
	case PP_FIELD_U64:
		put64(image, *pp_member_u64(record, field->offset));
		break;
	case PP_FIELD_NUMBER:
		put_number(image, *pp_member_number(record, field->offset));
		break;
	case PP_FIELD_TEXT:
	case PP_FIELD_WORD:
		put_string(image, *pp_member_text(record, field->offset));
		break;
	case PP_FIELD_PAYLOAD:
		put32(image, *u32);
		put8(image, *pp_member_u8(record, field->second));
		break;
	case PP_FIELD_SHAPE:
		put32(image, u32[0]);
		put32(image, u32[1]);
		put8(image, *pp_member_u8(record, field->second));
		if (field->third)
			put8(image, *pp_member_u8(record, field->third));
		break;
	case PP_FIELD_PLACE:
		put64(image, *pp_member_flag(record, field->second) ? *pp_member_u64(record, field->offset) : 0);
		put8(image, *pp_member_flag(record, field->second));
		break;
	case PP_FIELD_PHASES:
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			put64(image, pp_member_u64(record, field->offset)[phase]);
		break;
	case PP_FIELD_RANKS:
		put32(image, *pp_member_u32(record, field->second));
		break;
	case PP_FIELD_BASE:
		put8(image, *pp_member_u8(record, field->offset));
		put32(image, *pp_member_u32(record, field->second));
		break;
	}
}

static void put_records(struct image *image, enum pp_record_kind kind, const void *records, uint32_t count)
{
	const struct pp_record *shape = &pp_record_table[kind];
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t f = 0; f < shape->field_count; f++)
			put_field(image, &shape->fields[f], (const char *)records + (size_t)i * shape->size);
}

static void put_table(struct image *image, enum pp_record_kind kind, const void *records, uint32_t count)
{
	begin_section(image, kind, count);
	put_records(image, kind, records, count);
}

static void put_slots(struct image *image)
{
	const struct pp_program *program = image->program;
	uint64_t total = 0;
	begin_section(image, PP_SECTION_SLOT_COUNTS, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		put32(image, program->rank[r].slot_count);
		total += program->rank[r].slot_count;
	}
	begin_section(image, PP_RECORD_SLOT, total);
	for (uint32_t r = 0; r < program->ranks; r++)
		put_records(image, PP_RECORD_SLOT, program->rank[r].slots, program->rank[r].slot_count);
}

static void put_groups(struct image *image)
{
	const struct pp_program *program = image->program;
	uint64_t total = 0;
	put_table(image, PP_RECORD_GROUP, program->groups, program->group_count);
	for (uint32_t g = 0; g < program->group_count; g++)
		total += program->groups[g].member_count;
	begin_section(image, PP_SECTION_MEMBERS, total);
	for (uint32_t g = 0; g < program->group_count; g++)
		for (uint32_t i = 0; i < program->groups[g].member_count; i++)
			put32(image, program->groups[g].members[i]);
}

/* ---- bodies, streams ------------------------------------------------------------------------- */

static void put_body_instr(struct image *image, const struct pp_body_instr *instr)
{
	struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)instr->op);
	put8(image, instr->op);
	for (unsigned i = 0; i < PP_BODY_OPERANDS_MAX; i++)
		put32(image, i < (unsigned)info.input_count + info.output_count ? instr->operand[i] : PP_NULL);
	for (unsigned i = 0; i < PP_BODY_IMMEDIATES_MAX; i++)
		put64(image, i < info.immediate_count ? instr->imm[i] : 0);
}

static void put_bodies(struct image *image)
{
	const struct pp_program *program = image->program;
	uint64_t regs = 0, instrs = 0;
	put_table(image, PP_RECORD_BODY, program->bodies, program->body_count);
	begin_section(image, PP_SECTION_BODY_COUNTS, program->body_count);
	for (uint32_t b = 0; b < program->body_count; b++) {
		put32(image, program->bodies[b].reg_count);
		put32(image, program->bodies[b].count);
		regs += program->bodies[b].reg_count;
		instrs += program->bodies[b].count;
	}
	begin_section(image, PP_RECORD_REG, regs);
	for (uint32_t b = 0; b < program->body_count; b++)
		put_records(image, PP_RECORD_REG, program->bodies[b].regs, program->bodies[b].reg_count);
	begin_section(image, PP_SECTION_BODY_INSTRS, instrs);
	for (uint32_t b = 0; b < program->body_count; b++)
		for (uint32_t i = 0; i < program->bodies[b].count; i++)
			put_body_instr(image, &program->bodies[b].items[i]);
}

static void store_instr(unsigned char *at, const struct pp_instr *instr)
{
	at[0] = instr->op;
	at[1] = instr->sub;
	at[2] = instr->flags;
	at[3] = instr->dtype;
	pp_store32(at + 4, instr->stage);
	pp_store32(at + 8, instr->mb);
	for (unsigned i = 0; i < 4; i++)
		pp_store32(at + 12 + 4 * i, instr->a[i]);
	pp_store32(at + 28, instr->count);
}

static void put_instrs(struct image *image, uint64_t total)
{
	const struct pp_program *program = image->program;
	uint32_t members[PP_OP_COUNT];
	for (unsigned op = 0; op < PP_OP_COUNT; op++)
		members[op] = pp_op_members((enum pp_op)op);
	begin_section(image, PP_SECTION_INSTRS, total);
	unsigned char *at = room(image, (size_t)total * PP_IMAGE_INSTR);
	for (uint32_t p = 0; p < program->program_count; p++)
		for (uint32_t r = 0; r < program->ranks; r++) {
			const struct pp_stream *stream = &program->programs[p].streams[r];
			for (uint32_t i = 0; i < stream->count; i++, at += PP_IMAGE_INSTR) {
				struct pp_instr instr = pp_instr_canonical(&stream->items[i], members[stream->items[i].op]);
				store_instr(at, &instr);
			}
		}
}

static bool has_order(const struct pp_stream *stream)
{
	for (uint32_t i = 0; stream->order && i < stream->count; i++)
		if (stream->order[i] != PP_NULL)
			return true;
	return false;
}

static void put_streams(struct image *image)
{
	const struct pp_program *program = image->program;
	uint64_t total = 0, ordered = 0;
	begin_section(image, PP_SECTION_PROGRAMS, program->program_count);
	for (uint32_t p = 0; p < program->program_count; p++)
		put_string(image, program->programs[p].name);
	begin_section(image, PP_SECTION_STREAMS, (uint64_t)program->program_count * program->ranks);
	for (uint32_t p = 0; p < program->program_count; p++)
		for (uint32_t r = 0; r < program->ranks; r++) {
			const struct pp_stream *stream = &program->programs[p].streams[r];
			put32(image, stream->count);
			put32(image, has_order(stream));
			total += stream->count;
			ordered += has_order(stream) ? stream->count : 0;
		}
	put_instrs(image, total);
	begin_section(image, PP_SECTION_ORDERS, ordered);
	for (uint32_t p = 0; p < program->program_count; p++)
		for (uint32_t r = 0; r < program->ranks; r++) {
			const struct pp_stream *stream = &program->programs[p].streams[r];
			if (has_order(stream))
				for (uint32_t i = 0; i < stream->count; i++)
					put32(image, stream->order[i]);
		}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_rest(struct image *image)
{
	const struct pp_program *program = image->program;
	begin_section(image, PP_SECTION_TEXTS, program->text_count);
	for (uint32_t i = 0; i < program->text_count; i++)
		put_string(image, program->texts[i]);
	begin_section(image, PP_SECTION_SOURCE, 1);
	put_string(image, program->source_name);
	put_string(image, program->source_name ? program->source_text : NULL);
	begin_section(image, PP_SECTION_STAMP, 1);
	put8(image, program->stamp.proven);
	put8(image, program->stamp.bits_fixed);
	put32(image, program->stamp.layouts | program->stamp.in_order << 16);
	put_string(image, program->stamp.bits_reason);
	begin_section(image, PP_SECTION_STRINGS, image->strings_length);
	memcpy(room(image, image->strings_length), image->strings, image->strings_length);
	room(image, (8 - image->length % 8) % 8);
}

static void put_header(struct image *image)
{
	unsigned char *at = image->bytes;
	for (unsigned i = 0; i < PP_SECTION_COUNT; i++) {
		pp_store64(at + PP_IMAGE_HEADER + 16 * i, image->section_at[i]);
		pp_store64(at + PP_IMAGE_HEADER + 16 * i + 8, image->section_count[i]);
	}
	memcpy(at, pp_image_magic_bytes, sizeof pp_image_magic_bytes);
	pp_store32(at + PP_IMAGE_AT_VERSION, PP_IMAGE_VERSION);
	pp_store32(at + PP_IMAGE_AT_ORDER, PP_IMAGE_ORDER);
	pp_store64(at + PP_IMAGE_AT_SIZE, image->length);
	pp_store64(at + PP_IMAGE_AT_CHECKSUM, pp_image_mix(at + PP_IMAGE_HEADER, image->length - PP_IMAGE_HEADER));
	pp_store64(at + PP_IMAGE_AT_TABLES, pp_image_tables());
	pp_store64(at + PP_IMAGE_AT_HASH, pp_image_mix(at, PP_IMAGE_AT_HASH));
}

static size_t estimate(const struct pp_program *program)
{
	size_t bytes = 64 * 1024;
	for (uint32_t p = 0; p < program->program_count; p++)
		for (uint32_t r = 0; r < program->ranks; r++)
			bytes += (size_t)program->programs[p].streams[r].count * (PP_IMAGE_INSTR + 4);
	return bytes;
}

void pp_image_write(const struct pp_program *program, unsigned char **bytes, size_t *length)
{
	struct image image = {.arena = program->arena, .program = program, .capacity = estimate(program)};
	image.bytes = pp_arena_alloc(image.arena, image.capacity, 1);
	room(&image, PP_IMAGE_TABLE);
	put_table(&image, PP_RECORD_ABOUT, program, 1);
	put_table(&image, PP_RECORD_GRID, program, 1);
	put_table(&image, PP_RECORD_DEVICE, program->rank, program->ranks);
	put_table(&image, PP_RECORD_COST, &program->cost, 1);
	put_table(&image, PP_RECORD_TRAIN, &program->train, 1);
	put_table(&image, PP_RECORD_HYPER, program->train.hypers, program->train.hyper_count);
	put_table(&image, PP_RECORD_STAGE, program->stages, program->stage_count);
	put_table(&image, PP_RECORD_TENSOR, program->tensors, program->tensor_count);
	put_slots(&image);
	put_table(&image, PP_RECORD_USE, program->uses, program->use_count);
	put_table(&image, PP_RECORD_CHANNEL, program->channels, program->channel_count);
	put_groups(&image);
	put_bodies(&image);
	put_streams(&image);
	put_rest(&image);
	put_header(&image);
	*bytes = image.bytes;
	*length = image.length;
}
