/* Reading `.ppx`. requires: any bytes. ensures: a program with the guarantees of pp_program_read (program_check.c), or
 * one message; memory stays in proportion to the file. Order: header and section table, then records, then checks
 * in the order in which one table's checks need another's. */
#include "image.h"
#include "image_format.h"
#include "operands.h"
#include "program_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct loader {
	struct pp_arena *arena;
	const char *name;
	const unsigned char *bytes;
	size_t length;
	struct pp_program *program;
	struct pp_status *status;
	const unsigned char *at[PP_SECTION_COUNT];
	uint64_t count[PP_SECTION_COUNT];
	const char *strings; /* one copy of the section: records share texts, so copying each could multiply the file */
	bool bad_string;
};

static bool damaged(struct loader *loader, const char *why)
{
	return pp_fail(loader->status, PP_EXIT_ENVIRONMENT, "%s is not a usable image: %s", loader->name, why);
}

static bool faulty(struct loader *loader, const char *what, uint64_t number, const struct pp_fault *fault)
{
	return pp_fail(loader->status, PP_EXIT_ENVIRONMENT, "%s is not a usable image: %s %" PRIu64 ": %s", loader->name,
	               what, number, fault->text);
}

/* ---- header ---------------------------------------------------------------------------------- */

static bool check_header(struct loader *loader)
{
	const unsigned char *bytes = loader->bytes;
	if (!pp_image_magic(bytes, loader->length))
		return damaged(loader, "it does not begin with PPX1");
	if (loader->length < PP_IMAGE_TABLE)
		return damaged(loader, "it ends within the header; was the copy cut short?");
	if (memcmp(bytes, pp_image_magic_bytes, sizeof pp_image_magic_bytes) != 0)
		return damaged(loader, "its first bytes were changed, as a transfer in text mode does");
	if (pp_load32(bytes + PP_IMAGE_AT_ORDER) != PP_IMAGE_ORDER)
		return damaged(loader, "its byte order is not little-endian");
	if (pp_load32(bytes + PP_IMAGE_AT_VERSION) != PP_IMAGE_VERSION)
		return pp_fail(loader->status, PP_EXIT_ENVIRONMENT,
		               "%s has image version %u, this tool reads version %d: build it again", loader->name,
		               pp_load32(bytes + PP_IMAGE_AT_VERSION), PP_IMAGE_VERSION);
	if (pp_load64(bytes + PP_IMAGE_AT_TABLES) != pp_image_tables())
		return pp_fail(loader->status, PP_EXIT_ENVIRONMENT,
		               "%s was made by another build of the compiler, with another instruction set: build it again",
		               loader->name);
	if (pp_load64(bytes + PP_IMAGE_AT_SIZE) != loader->length)
		return pp_fail(loader->status, PP_EXIT_ENVIRONMENT,
		               "%s is not a usable image: it has %zu bytes, its header says %" PRIu64
		               "; was the copy cut short?",
		               loader->name, loader->length, pp_load64(bytes + PP_IMAGE_AT_SIZE));
	if (pp_load64(bytes + PP_IMAGE_AT_HASH) != pp_image_mix(bytes, PP_IMAGE_AT_HASH) ||
	    pp_load64(bytes + PP_IMAGE_AT_CHECKSUM) !=
	        pp_image_mix(bytes + PP_IMAGE_HEADER, loader->length - PP_IMAGE_HEADER))
		return damaged(loader, "its checksum does not match: bytes were changed after it was written");
	return true;
}

static bool check_sections(struct loader *loader)
{
	for (unsigned i = 0; i < PP_SECTION_COUNT; i++) {
		uint64_t offset = pp_load64(loader->bytes + PP_IMAGE_HEADER + 16 * i);
		uint64_t count = pp_load64(loader->bytes + PP_IMAGE_HEADER + 16 * i + 8), size;
		if (__builtin_mul_overflow(count, (uint64_t)pp_section_record((enum pp_section)i), &size) || offset % 8 ||
		    offset < PP_IMAGE_TABLE || offset > loader->length || size > loader->length - offset || count >= PP_NULL)
			return damaged(loader, "a section lies outside of the file");
		loader->at[i] = loader->bytes + offset;
		loader->count[i] = count;
	}
	return true;
}

/* Counts of sections that follow from each other. */
static bool check_counts(struct loader *loader)
{
	static const uint8_t single[] = {PP_RECORD_ABOUT, PP_RECORD_GRID,    PP_RECORD_COST,
	                                 PP_RECORD_TRAIN, PP_SECTION_SOURCE, PP_SECTION_STAMP};
	const uint64_t *count = loader->count;
	for (unsigned i = 0; i < sizeof single; i++)
		if (count[single[i]] != 1)
			return damaged(loader, "a section that holds one record does not");
	uint64_t streams;
	if (count[PP_RECORD_DEVICE] == 0 || count[PP_SECTION_SLOT_COUNTS] != count[PP_RECORD_DEVICE] ||
	    count[PP_SECTION_BODY_COUNTS] != count[PP_RECORD_BODY] || count[PP_SECTION_PROGRAMS] > PP_MOST_PROGRAMS ||
	    __builtin_mul_overflow(count[PP_SECTION_PROGRAMS], count[PP_RECORD_DEVICE], &streams) ||
	    count[PP_SECTION_STREAMS] != streams)
		return damaged(loader, "its sections do not fit together");
	uint64_t size = count[PP_SECTION_STRINGS];
	if (size == 0 || loader->at[PP_SECTION_STRINGS][size - 1] != 0)
		return damaged(loader, "its strings are not closed");
	return true;
}

/* ---- records --------------------------------------------------------------------------------- */

static const char *string_at(struct loader *loader, uint32_t offset)
{
	if (offset == PP_NULL)
		return NULL;
	if (offset >= loader->count[PP_SECTION_STRINGS]) {
		loader->bad_string = true;
		return NULL;
	}
	return loader->strings + offset;
}

static void load_field(struct loader *loader, const struct pp_field *field, void *record, const unsigned char *at)
{
	uint64_t bits;
	switch (field->kind) {
	case PP_FIELD_U8:
	case PP_FIELD_NAME:
		*pp_member_u8(record, field->offset) = at[0];
		break;
	case PP_FIELD_FLAG:
		*pp_member_flag(record, field->offset) = at[0] != 0;
		break;
	case PP_FIELD_U32:
	case PP_FIELD_INDEX:
	case PP_FIELD_SLOT:
		*pp_member_u32(record, field->offset) = pp_load32(at);
		break;
	case PP_FIELD_U64:
		*pp_member_u64(record, field->offset) = pp_load64(at);
		break;
	case PP_FIELD_NUMBER:
		bits = pp_load64(at);
		memcpy(pp_member_number(record, field->offset), &bits, sizeof bits);
		break;
	case PP_FIELD_TEXT:
	case PP_FIELD_WORD:
		*pp_member_text(record, field->offset) = string_at(loader, pp_load32(at));
		break;
	case PP_FIELD_PAYLOAD:
		*pp_member_u32(record, field->offset) = pp_load32(at);
		*pp_member_u8(record, field->second) = at[4];
		break;
	case PP_FIELD_SHAPE:
		pp_member_u32(record, field->offset)[0] = pp_load32(at);
		pp_member_u32(record, field->offset)[1] = pp_load32(at + 4);
		*pp_member_u8(record, field->second) = at[8];
		if (field->third)
			*pp_member_u8(record, field->third) = at[9];
		break;
	case PP_FIELD_PLACE:
		*pp_member_u64(record, field->offset) = pp_load64(at);
		*pp_member_flag(record, field->second) = at[8] != 0;
		break;
	case PP_FIELD_PHASES:
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			pp_member_u64(record, field->offset)[phase] = pp_load64(at + 8 * phase);
		break;
	case PP_FIELD_RANKS:
		*pp_member_u32(record, field->second) = pp_load32(at);
		break;
	case PP_FIELD_BASE:
		*pp_member_u8(record, field->offset) = at[0];
		*pp_member_u32(record, field->second) = pp_load32(at + 1);
		break;
	}
}

static void load_records(struct loader *loader, enum pp_record_kind kind, void *records)
{
	const struct pp_record *shape = &pp_record_table[kind];
	const unsigned char *at = loader->at[kind];
	for (uint64_t i = 0; i < loader->count[kind]; i++)
		for (uint32_t f = 0; f < shape->field_count; f++) {
			load_field(loader, &shape->fields[f], (char *)records + (size_t)i * shape->size, at);
			at += pp_field_size(&shape->fields[f]);
		}
}

/* A whole table into a new array. */
static void *load_table(struct loader *loader, enum pp_record_kind kind, uint32_t *count)
{
	void *records = pp_arena_alloc(loader->arena, loader->count[kind], pp_record_table[kind].size);
	load_records(loader, kind, records);
	*count = (uint32_t)loader->count[kind];
	return records;
}

/* The next `wanted` of a section's records, or NULL if it has fewer left. */
static const unsigned char *take(struct loader *loader, unsigned section, uint64_t *used, uint64_t wanted)
{
	if (wanted > loader->count[section] - *used)
		return NULL;
	const unsigned char *at = loader->at[section] + *used * pp_section_record((enum pp_section)section);
	*used += wanted;
	return at;
}

static bool load_slots(struct loader *loader)
{
	uint32_t total;
	uint64_t used = 0;
	struct pp_slot *slots = load_table(loader, PP_RECORD_SLOT, &total);
	for (uint32_t r = 0; r < loader->program->ranks; r++) {
		struct pp_rank *rank = &loader->program->rank[r];
		rank->slot_count = pp_load32(loader->at[PP_SECTION_SLOT_COUNTS] + 4 * (size_t)r);
		rank->slots = slots + used;
		if (!take(loader, PP_RECORD_SLOT, &used, rank->slot_count))
			return damaged(loader, "its slots are fewer than the ranks say");
	}
	return used == total || damaged(loader, "its slots are more than the ranks say");
}

static bool load_groups(struct loader *loader)
{
	struct pp_program *program = loader->program;
	uint64_t used = 0;
	program->groups = load_table(loader, PP_RECORD_GROUP, &program->group_count);
	for (uint32_t g = 0; g < program->group_count; g++) {
		struct pp_group *group = &program->groups[g];
		const unsigned char *at = take(loader, PP_SECTION_MEMBERS, &used, group->member_count);
		if (!at)
			return damaged(loader, "its groups list more ranks than are stored");
		group->members = PP_NEW_ARRAY(loader->arena, uint32_t, group->member_count);
		for (uint32_t i = 0; i < group->member_count; i++)
			group->members[i] = pp_load32(at + 4 * (size_t)i);
	}
	return true;
}

static void load_body_instr(struct pp_body_instr *instr, const unsigned char *at)
{
	instr->op = at[0];
	for (unsigned i = 0; i < PP_BODY_OPERANDS_MAX; i++)
		instr->operand[i] = pp_load32(at + 1 + 4 * i);
	for (unsigned i = 0; i < PP_BODY_IMMEDIATES_MAX; i++)
		instr->imm[i] = pp_load64(at + 1 + 4 * PP_BODY_OPERANDS_MAX + 8 * i);
}

static bool load_bodies(struct loader *loader)
{
	struct pp_program *program = loader->program;
	uint32_t total;
	uint64_t regs_used = 0, instrs_used = 0;
	program->bodies = load_table(loader, PP_RECORD_BODY, &program->body_count);
	struct pp_reg *regs = load_table(loader, PP_RECORD_REG, &total);
	for (uint32_t b = 0; b < program->body_count; b++) {
		struct pp_body *body = &program->bodies[b];
		const unsigned char *counts = loader->at[PP_SECTION_BODY_COUNTS] + 8 * (size_t)b;
		body->reg_count = pp_load32(counts);
		body->count = pp_load32(counts + 4);
		body->regs = regs + regs_used;
		const unsigned char *at = take(loader, PP_SECTION_BODY_INSTRS, &instrs_used, body->count);
		if (!at || !take(loader, PP_RECORD_REG, &regs_used, body->reg_count))
			return damaged(loader, "its bodies are longer than what is stored");
		body->items = PP_NEW_ARRAY(loader->arena, struct pp_body_instr, body->count);
		for (uint32_t i = 0; i < body->count; i++)
			load_body_instr(&body->items[i], at + (size_t)i * PP_IMAGE_BODY_INSTR);
	}
	return true;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void load_instr(struct pp_instr *instr, const unsigned char *at)
{
	instr->op = at[0];
	instr->sub = at[1];
	instr->flags = at[2];
	instr->dtype = at[3];
	instr->stage = pp_load32(at + 4);
	instr->mb = pp_load32(at + 8);
	for (unsigned i = 0; i < 4; i++)
		instr->a[i] = pp_load32(at + 12 + 4 * i);
	instr->count = pp_load32(at + 28);
}

static bool load_stream(struct loader *loader, struct pp_stream *stream, const unsigned char *counts, uint64_t *used,
                        uint64_t *ordered)
{
	stream->count = pp_load32(counts);
	const unsigned char *at = take(loader, PP_SECTION_INSTRS, used, stream->count);
	const unsigned char *order = pp_load32(counts + 4) ? take(loader, PP_SECTION_ORDERS, ordered, stream->count) : NULL;
	if (!at || (pp_load32(counts + 4) && !order))
		return damaged(loader, "its streams are longer than what is stored");
	stream->items = PP_NEW_ARRAY(loader->arena, struct pp_instr, stream->count);
	for (uint32_t i = 0; i < stream->count; i++)
		load_instr(&stream->items[i], at + (size_t)i * PP_IMAGE_INSTR);
	if (!order)
		return true;
	stream->order = PP_NEW_ARRAY(loader->arena, uint32_t, stream->count);
	for (uint32_t i = 0; i < stream->count; i++)
		stream->order[i] = pp_load32(order + 4 * (size_t)i);
	return true;
}

static bool load_programs(struct loader *loader)
{
	struct pp_program *program = loader->program;
	uint64_t used = 0, ordered = 0;
	program->program_count = (uint32_t)loader->count[PP_SECTION_PROGRAMS];
	program->programs = PP_NEW_ARRAY(loader->arena, struct pp_named_program, program->program_count);
	for (uint32_t p = 0; p < program->program_count; p++) {
		struct pp_named_program *named = &program->programs[p];
		named->name = string_at(loader, pp_load32(loader->at[PP_SECTION_PROGRAMS] + 4 * (size_t)p));
		named->streams = PP_NEW_ARRAY(loader->arena, struct pp_stream, program->ranks);
		for (uint32_t r = 0; r < program->ranks; r++) {
			const unsigned char *counts = loader->at[PP_SECTION_STREAMS] + 8 * ((size_t)p * program->ranks + r);
			if (!load_stream(loader, &named->streams[r], counts, &used, &ordered))
				return false;
		}
	}
	return true;
}

static void load_rest(struct loader *loader)
{
	struct pp_program *program = loader->program;
	program->text_count = (uint32_t)loader->count[PP_SECTION_TEXTS];
	program->texts = PP_NEW_ARRAY(loader->arena, const char *, program->text_count);
	for (uint32_t i = 0; i < program->text_count; i++) {
		program->texts[i] = string_at(loader, pp_load32(loader->at[PP_SECTION_TEXTS] + 4 * (size_t)i));
		loader->bad_string |= !program->texts[i];
	}
	program->source_name = string_at(loader, pp_load32(loader->at[PP_SECTION_SOURCE]));
	program->source_text = string_at(loader, pp_load32(loader->at[PP_SECTION_SOURCE] + 4));
	const unsigned char *stamp = loader->at[PP_SECTION_STAMP];
	program->stamp.proven = stamp[0] != 0;
	program->stamp.bits_fixed = stamp[1] != 0;
	program->stamp.layouts = pp_load32(stamp + 2) & PP_ALL_LAYOUTS;
	program->stamp.in_order = pp_load32(stamp + 2) >> 16 & PP_ALL_LAYOUTS;
	const char *reason = string_at(loader, pp_load32(stamp + 6));
	snprintf(program->stamp.bits_reason, sizeof program->stamp.bits_reason, "%s", reason ? reason : "");
}

static bool load_all(struct loader *loader)
{
	struct pp_program *program = loader->program;
	loader->strings =
	    pp_arena_copy(loader->arena, (const char *)loader->at[PP_SECTION_STRINGS], loader->count[PP_SECTION_STRINGS]);
	load_records(loader, PP_RECORD_ABOUT, program);
	load_records(loader, PP_RECORD_GRID, program);
	if (program->ranks != loader->count[PP_RECORD_DEVICE])
		return damaged(loader, "its number of ranks differs from its table of ranks");
	program->rank = PP_NEW_ARRAY(loader->arena, struct pp_rank, program->ranks);
	load_records(loader, PP_RECORD_DEVICE, program->rank);
	load_records(loader, PP_RECORD_COST, &program->cost);
	load_records(loader, PP_RECORD_TRAIN, &program->train);
	program->train.hypers = load_table(loader, PP_RECORD_HYPER, &program->train.hyper_count);
	program->stages = load_table(loader, PP_RECORD_STAGE, &program->stage_count);
	program->tensors = load_table(loader, PP_RECORD_TENSOR, &program->tensor_count);
	program->uses = load_table(loader, PP_RECORD_USE, &program->use_count);
	program->channels = load_table(loader, PP_RECORD_CHANNEL, &program->channel_count);
	load_rest(loader);
	return load_slots(loader) && load_groups(loader) && load_bodies(loader) && load_programs(loader);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool check_one(struct loader *loader, enum pp_record_kind kind, const void *record, uint32_t rank,
                      uint64_t number)
{
	struct pp_fault fault;
	const struct pp_record *shape = &pp_record_table[kind];
	for (uint32_t f = 0; f < shape->field_count; f++) {
		if (kind == PP_RECORD_USE && shape->fields[f].kind == PP_FIELD_SLOT)
			rank = pp_use_rank(loader->program, record);
		if (!pp_check_field(loader->program, rank, &shape->fields[f], record, &fault))
			return faulty(loader, shape->word, number, &fault);
	}
	return pp_check_record(loader->program, kind, record, &fault) || faulty(loader, shape->word, number, &fault);
}

static bool check_records(struct loader *loader, enum pp_record_kind kind, const void *records, uint32_t count,
                          uint32_t rank)
{
	for (uint32_t i = 0; i < count; i++)
		if (!check_one(loader, kind, (const char *)records + (size_t)i * pp_record_table[kind].size, rank, i))
			return false;
	return true;
}

static bool check_slots(struct loader *loader)
{
	for (uint32_t r = 0; r < loader->program->ranks; r++)
		if (!check_records(loader, PP_RECORD_SLOT, loader->program->rank[r].slots, loader->program->rank[r].slot_count,
		                   r))
			return false;
	return true;
}

static bool check_body(struct loader *loader, const struct pp_body *body)
{
	struct pp_fault fault;
	if (!check_records(loader, PP_RECORD_REG, body->regs, body->reg_count, loader->program->stages[body->stage].rank))
		return false;
	for (uint32_t i = 0; i < body->count; i++)
		if (!pp_check_body_instr(body, &body->items[i], &fault))
			return faulty(loader, "body instruction", i, &fault);
	return true;
}

static bool check_stream(struct loader *loader, uint32_t rank, struct pp_stream *stream, const uint32_t *members)
{
	struct pp_fault fault;
	for (uint32_t i = 0; i < stream->count; i++) {
		if (!pp_check_instr(loader->program, rank, &stream->items[i], &fault))
			return faulty(loader, "instruction", i, &fault);
		stream->items[i] = pp_instr_canonical(&stream->items[i], members[stream->items[i].op]);
		if (stream->order && stream->order[i] != PP_NULL && !pp_op_is_post((enum pp_op)stream->items[i].op))
			return damaged(loader, "an instruction that is no post has a position in the global order");
	}
	return true;
}

static bool check_streams(struct loader *loader)
{
	uint32_t members[PP_OP_COUNT];
	for (unsigned op = 0; op < PP_OP_COUNT; op++)
		members[op] = pp_op_members((enum pp_op)op);
	for (uint32_t p = 0; p < loader->program->program_count; p++)
		for (uint32_t r = 0; r < loader->program->ranks; r++)
			if (!check_stream(loader, r, &loader->program->programs[p].streams[r], members))
				return false;
	return true;
}

static bool check_all(struct loader *loader)
{
	const struct pp_program *p = loader->program;
	struct pp_fault fault;
	uint32_t tensor, body;
	if (loader->bad_string)
		return damaged(loader, "a text lies outside of its strings");
	if (!check_one(loader, PP_RECORD_ABOUT, p, 0, 0) || !check_one(loader, PP_RECORD_GRID, p, 0, 0) ||
	    !check_records(loader, PP_RECORD_DEVICE, p->rank, p->ranks, 0) ||
	    !check_one(loader, PP_RECORD_COST, &p->cost, 0, 0) || !check_one(loader, PP_RECORD_TRAIN, &p->train, 0, 0) ||
	    !check_records(loader, PP_RECORD_HYPER, p->train.hypers, p->train.hyper_count, 0) ||
	    !check_records(loader, PP_RECORD_STAGE, p->stages, p->stage_count, 0) ||
	    !check_records(loader, PP_RECORD_TENSOR, p->tensors, p->tensor_count, 0) || !check_slots(loader) ||
	    !check_records(loader, PP_RECORD_USE, p->uses, p->use_count, 0) ||
	    !check_records(loader, PP_RECORD_CHANNEL, p->channels, p->channel_count, 0) ||
	    !check_records(loader, PP_RECORD_GROUP, p->groups, p->group_count, 0) ||
	    !check_records(loader, PP_RECORD_BODY, p->bodies, p->body_count, 0))
		return false;
	for (uint32_t b = 0; b < p->body_count; b++)
		if (!check_body(loader, &p->bodies[b]))
			return false;
	if (!pp_check_tables(loader->arena, p, &tensor, &body, &fault))
		return faulty(loader, "tables", 0, &fault);
	return check_streams(loader);
}

struct pp_program *pp_image_read(struct pp_arena *arena, const char *name, const unsigned char *bytes, size_t length,
                                 struct pp_status *status)
{
	struct loader loader = {.arena = arena, .name = name, .bytes = bytes, .length = length, .status = status};
	if (!check_header(&loader) || !check_sections(&loader) || !check_counts(&loader))
		return NULL;
	loader.program = PP_NEW(arena, struct pp_program);
	loader.program->arena = arena;
	return load_all(&loader) && check_all(&loader) ? loader.program : NULL;
}
