/* Sizes and hash of the image format. */
#include "image_format.h"

#include "hash.h"
#include "image.h"

#include <string.h>

const unsigned char pp_image_magic_bytes[8] = {'P', 'P', 'X', '1', '\r', '\n', 032, '\n'};

uint32_t pp_field_size(const struct pp_field *field)
{
	switch (field->kind) {
	case PP_FIELD_U8:
	case PP_FIELD_NAME:
	case PP_FIELD_FLAG:
		return 1;
	case PP_FIELD_U32:
	case PP_FIELD_INDEX:
	case PP_FIELD_TEXT:
	case PP_FIELD_WORD:
	case PP_FIELD_SLOT:
	case PP_FIELD_RANKS:
		return 4;
	case PP_FIELD_U64:
	case PP_FIELD_NUMBER:
		return 8;
	case PP_FIELD_PAYLOAD:
	case PP_FIELD_BASE:
		return 5;
	case PP_FIELD_SHAPE:
		return field->third ? 10 : 9;
	case PP_FIELD_PLACE:
		return 9;
	case PP_FIELD_PHASES:
		return 8 * PP_PHASE_COUNT;
	}
	return 0;
}

static uint32_t table_record(enum pp_record_kind kind)
{
	uint32_t size = 0;
	for (uint32_t i = 0; i < pp_record_table[kind].field_count; i++)
		size += pp_field_size(&pp_record_table[kind].fields[i]);
	return size;
}

static const uint8_t extra_record[PP_SECTION_COUNT - PP_RECORD_COUNT] = {
    [PP_SECTION_STRINGS - PP_RECORD_COUNT] = 1,
    [PP_SECTION_SLOT_COUNTS - PP_RECORD_COUNT] = 4,
    [PP_SECTION_MEMBERS - PP_RECORD_COUNT] = 4,
    [PP_SECTION_BODY_COUNTS - PP_RECORD_COUNT] = 8,
    [PP_SECTION_BODY_INSTRS - PP_RECORD_COUNT] = PP_IMAGE_BODY_INSTR,
    [PP_SECTION_TEXTS - PP_RECORD_COUNT] = 4,
    [PP_SECTION_PROGRAMS - PP_RECORD_COUNT] = 4,
    [PP_SECTION_STREAMS - PP_RECORD_COUNT] = 8,
    [PP_SECTION_INSTRS - PP_RECORD_COUNT] = PP_IMAGE_INSTR,
    [PP_SECTION_ORDERS - PP_RECORD_COUNT] = 4,
    [PP_SECTION_SOURCE - PP_RECORD_COUNT] = 8,
    [PP_SECTION_STAMP - PP_RECORD_COUNT] = 10,
};

uint32_t pp_section_record(enum pp_section section)
{
	if ((unsigned)section < PP_RECORD_COUNT)
		return table_record((enum pp_record_kind)section);
	return extra_record[(unsigned)section - PP_RECORD_COUNT];
}

static uint64_t add_text(uint64_t hash, const char *text)
{
	return pp_hash_more(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

uint64_t pp_image_tables(void)
{
	uint64_t hash = PP_HASH_EMPTY;
	for (unsigned op = 0; op < PP_OP_COUNT; op++)
		hash = add_text(add_text(hash, pp_op_table[op].mnemonic), pp_op_table[op].signature);
	for (unsigned op = 0; op < PP_BODY_OP_COUNT; op++) {
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)op);
		hash = add_text(add_text(hash, info.mnemonic), info.inputs);
		hash = add_text(add_text(hash, info.outputs), info.immediates);
	}
	for (unsigned kind = 0; kind < PP_RECORD_COUNT; kind++) {
		const struct pp_record *record = &pp_record_table[kind];
		hash = add_text(hash, record->word);
		for (uint32_t i = 0; i < record->field_count; i++) {
			const unsigned char shape = (unsigned char)record->fields[i].kind;
			hash = pp_hash_more(add_text(hash, record->fields[i].key), &shape, 1);
			for (uint32_t n = 0; n < record->fields[i].name_count; n++)
				hash = add_text(hash, record->fields[i].names[n]);
		}
	}
	return hash;
}

/* Multiply and rotate per 8 bytes, then a finisher that spreads every bit. Not cryptographic. */
uint64_t pp_image_mix(const unsigned char *bytes, size_t length)
{
	const uint64_t multiplier = 0x9e3779b97f4a7c15u;
	uint64_t hash = length * multiplier + 1;
	size_t at = 0;
	for (; at + 8 <= length; at += 8) {
		hash = (hash ^ pp_load64(bytes + at)) * multiplier;
		hash = hash << 29 | hash >> 35;
	}
	for (; at < length; at++)
		hash = (hash ^ bytes[at]) * multiplier;
	hash = (hash ^ hash >> 32) * multiplier;
	hash = (hash ^ hash >> 29) * multiplier;
	return hash ^ hash >> 32;
}

bool pp_image_magic(const unsigned char *bytes, size_t length)
{
	return length >= 4 && memcmp(bytes, pp_image_magic_bytes, 4) == 0;
}

uint64_t pp_image_hash(const unsigned char *bytes, size_t length)
{
	return length >= PP_IMAGE_HEADER ? pp_load64(bytes + PP_IMAGE_AT_HASH) : 0;
}
