/* Layout of a `.ppx` file; shared by image_write.c and image_read.c.
 *
 *   0  magic "PPX1\r\n\032\n"    8  u32 format version    12  u32 byte-order mark
 *  16  u64 size of the file    24  u64 checksum of all after the header
 *  32  u64 fingerprint of the instruction set and the record fields that the file was written with
 *  40  u64 hash of the header before it, thus of the whole file
 *  48  section table: per section, in the order of enum pp_section, u64 offset and u64 count of records
 *
 * Sections start at multiples of 8 and hold records of fixed size, all numbers little-endian. Table records are the
 * fields of program_fields.c one after the other; texts are offsets into the strings section. */
#ifndef PP_IMAGE_FORMAT_H
#define PP_IMAGE_FORMAT_H

#include "program_fields.h"

#include <stddef.h>

enum {
	PP_IMAGE_VERSION = 6,
	PP_IMAGE_ORDER = 0x01020304,
	PP_IMAGE_AT_VERSION = 8,
	PP_IMAGE_AT_ORDER = 12,
	PP_IMAGE_AT_SIZE = 16,
	PP_IMAGE_AT_CHECKSUM = 24,
	PP_IMAGE_AT_TABLES = 32,
	PP_IMAGE_AT_HASH = 40,
	PP_IMAGE_HEADER = 48,
};

/* The first PP_RECORD_COUNT sections hold the tables of that number; slots of all ranks one after the other, likewise
 * registers of all bodies. */
enum pp_section {
	PP_SECTION_STRINGS = PP_RECORD_COUNT, /* bytes, the last one 0 */
	PP_SECTION_SLOT_COUNTS,               /* u32 per rank */
	PP_SECTION_MEMBERS,                   /* u32: ranks of all groups */
	PP_SECTION_BODY_COUNTS,               /* u32 registers, u32 instructions per body */
	PP_SECTION_BODY_INSTRS,
	PP_SECTION_TEXTS,    /* u32 string */
	PP_SECTION_PROGRAMS, /* u32 string: name */
	PP_SECTION_STREAMS,  /* u32 count, u32 1 if it has an order; per program and rank */
	PP_SECTION_INSTRS,
	PP_SECTION_ORDERS, /* u32 per instruction of streams that have one */
	PP_SECTION_SOURCE, /* u32 string: name, u32 string: text */
	PP_SECTION_STAMP,  /* u8 proven, u8 bits fixed, u32 layouts and << 16 in order, u32 string: reason */
	PP_SECTION_COUNT
};

enum {
	PP_IMAGE_INSTR = 32,
	PP_IMAGE_BODY_INSTR = 1 + 4 * PP_BODY_OPERANDS_MAX + 8 * PP_BODY_IMMEDIATES_MAX,
	PP_IMAGE_TABLE = PP_IMAGE_HEADER + 16 * PP_SECTION_COUNT, /* end of the section table */
};

extern const unsigned char pp_image_magic_bytes[8];

/* Bytes of a record of a section. */
uint32_t pp_section_record(enum pp_section section);

/* Bytes of a field in a record. */
uint32_t pp_field_size(const struct pp_field *field);

/* Fingerprint of ops.def and program_fields.c: an image written with other tables means something else. */
uint64_t pp_image_tables(void);

/* Hash of bytes, 8 at a time. */
uint64_t pp_image_mix(const unsigned char *bytes, size_t length);

static inline uint32_t pp_load32(const unsigned char *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t pp_load64(const unsigned char *at)
{
	return pp_load32(at) | (uint64_t)pp_load32(at + 4) << 32;
}

static inline void pp_store32(unsigned char *at, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (unsigned char)(value >> 8 * i);
}

static inline void pp_store64(unsigned char *at, uint64_t value)
{
	pp_store32(at, (uint32_t)value);
	pp_store32(at + 4, (uint32_t)(value >> 32));
}

#endif
