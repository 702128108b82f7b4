/* The shape of a program's tables and instructions as data: text printer and reader, image writer and reader and the
 * range checks all walk these descriptions, so a member is described once.
 *
 * A table line of the text form is `word`, the record's own number where the table is numbered, the positional fields
 * (key ""), then `key value` for every field that differs from its initial value; flags are the key alone. */
#ifndef PP_PROGRAM_FIELDS_H
#define PP_PROGRAM_FIELDS_H

#include "program.h"

enum pp_field_kind {
	PP_FIELD_U8,      /* uint8_t */
	PP_FIELD_U32,     /* uint32_t */
	PP_FIELD_U64,     /* uint64_t */
	PP_FIELD_FLAG,    /* bool; text: the key alone */
	PP_FIELD_NUMBER,  /* double, finite */
	PP_FIELD_NAME,    /* uint8_t, written as a name of its enum */
	PP_FIELD_INDEX,   /* uint32_t below a bound; with `nullable` PP_NULL, written `-` */
	PP_FIELD_TEXT,    /* const char *, quoted; NULL when left out */
	PP_FIELD_WORD,    /* const char *, a bare word */
	PP_FIELD_PAYLOAD, /* f32*16: uint32_t count, second: uint8_t dtype */
	PP_FIELD_SHAPE,   /* f32*16x4: uint32_t rows, then columns; second: uint8_t dtype; third: uint8_t dims, 0 if none */
	PP_FIELD_PLACE,   /* uint64_t offset, second: bool placed */
	PP_FIELD_PHASES,  /* uint64_t[PP_PHASE_COUNT]; text: the last one, of R, only where it is not 0 */
	PP_FIELD_RANKS,   /* uint32_t *: 0,3-5; second: uint32_t count */
	PP_FIELD_SLOT,    /* uint32_t, a slot of the record's rank: weight.3; names[0] is its class */
	PP_FIELD_BASE,    /* uint8_t base; second: uint32_t slot: in, weight.3 */
};

/* What an index must be below. */
enum pp_bound {
	PP_BOUND_NONE,
	PP_BOUND_RANK,
	PP_BOUND_STAGE,
	PP_BOUND_MICROBATCH,
	PP_BOUND_TENSOR,
	PP_BOUND_CHANNEL,
	PP_BOUND_GROUP,
	PP_BOUND_HYPER,
	PP_BOUND_BODY,
	PP_BOUND_TEXT,
	PP_BOUND_COUNT
};

struct pp_field {
	const char *key; /* "": positional; NULL: not in the text, derived from elsewhere */
	enum pp_field_kind kind;
	uint16_t offset, second, third;
	bool required, nullable;
	char letter;         /* PP_FIELD_INDEX: prefix in text, 0: none */
	enum pp_bound bound; /* PP_FIELD_INDEX */
	const char *const *names;
	uint32_t name_count;
	uint64_t least, most;     /* whole numbers; most 0: 2^53, exact in any JSON reader */
	uint64_t initial;         /* whole numbers and names */
	const uint64_t *initials; /* PP_FIELD_PHASES; NULL: zeros */
};

enum pp_record_kind {
	PP_RECORD_ABOUT,
	PP_RECORD_GRID,
	PP_RECORD_DEVICE,
	PP_RECORD_COST,
	PP_RECORD_TRAIN,
	PP_RECORD_HYPER,
	PP_RECORD_STAGE,
	PP_RECORD_TENSOR,
	PP_RECORD_SLOT,
	PP_RECORD_USE,
	PP_RECORD_CHANNEL,
	PP_RECORD_GROUP,
	PP_RECORD_BODY,
	PP_RECORD_REG,
	PP_RECORD_COUNT
};

struct pp_record {
	const char *word; /* first word of its line */
	char letter;      /* of its number: stage s3; 0: not numbered, or a bare number */
	const struct pp_field *fields;
	uint32_t field_count;
	uint32_t size; /* of the C struct */
};

extern const struct pp_record pp_record_table[PP_RECORD_COUNT];

/* Set all fields to their initial values. */
void pp_record_reset(enum pp_record_kind kind, void *record);

extern const char *const pp_bound_name[PP_BOUND_COUNT]; /* "", "rank", "stage", … */
uint32_t pp_bound_count(const struct pp_program *program, enum pp_bound bound);

/* Members of a record by offset. */
static inline uint8_t *pp_member_u8(const void *record, uint32_t offset)
{
	return (uint8_t *)(uintptr_t)record + offset;
}

static inline uint32_t *pp_member_u32(const void *record, uint32_t offset)
{
	return (uint32_t *)(void *)pp_member_u8(record, offset);
}

static inline uint64_t *pp_member_u64(const void *record, uint32_t offset)
{
	return (uint64_t *)(void *)pp_member_u8(record, offset);
}

static inline double *pp_member_number(const void *record, uint32_t offset)
{
	return (double *)(void *)pp_member_u8(record, offset);
}

static inline const char **pp_member_text(const void *record, uint32_t offset)
{
	return (const char **)(void *)pp_member_u8(record, offset);
}

static inline uint32_t **pp_member_ranks(const void *record, uint32_t offset)
{
	return (uint32_t **)(void *)pp_member_u8(record, offset);
}

static inline bool *pp_member_flag(const void *record, uint32_t offset)
{
	return (bool *)(void *)pp_member_u8(record, offset);
}

#endif
