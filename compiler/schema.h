/* The table of blocks and attributes (schema.def) as data. */
#ifndef PP_SCHEMA_H
#define PP_SCHEMA_H

#include "eval/datum.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pp_block {
#define PP_BLOCK(name, parents, label, status, doc) PP_BLOCK_##name,
#define PP_ATTRIBUTE(block, name, want, names, preset, range, status, doc)
#include "schema.def"
#undef PP_BLOCK
#undef PP_ATTRIBUTE
	PP_BLOCK_COUNT
};

enum pp_attribute {
#define PP_BLOCK(name, parents, label, status, doc)
#define PP_ATTRIBUTE(block, name, want, names, preset, range, status, doc) PP_ATTR_##block##_##name,
#include "schema.def"
#undef PP_BLOCK
#undef PP_ATTRIBUTE
	PP_ATTR_COUNT
};

enum pp_want {
	PP_WANT_WHOLE,
	PP_WANT_NUMBER,
	PP_WANT_TRUTH,
	PP_WANT_STRING,
	PP_WANT_BYTES,
	PP_WANT_RATE,
	PP_WANT_TIME,
	PP_WANT_WORK,
	PP_WANT_SPEED,
	PP_WANT_LIST,
	PP_WANT_RANGE, /* 0..7 */
	PP_WANT_NAME
};

enum pp_label { PP_NO_LABEL, PP_MAY_LABEL, PP_MUST_LABEL };
enum pp_feature { PP_NOW, PP_LATER };

struct pp_block_row {
	const char *name, *parents;
	uint8_t label;  /* enum pp_label */
	uint8_t status; /* enum pp_feature */
	const char *doc;
};

struct pp_attribute_row {
	uint8_t block; /* enum pp_block */
	const char *name;
	uint8_t want; /* enum pp_want */
	const char *names, *preset, *range;
	uint8_t status; /* enum pp_feature */
	const char *doc;
};

extern const struct pp_block_row pp_block_table[PP_BLOCK_COUNT];
extern const struct pp_attribute_row pp_attribute_table[PP_ATTR_COUNT];

/* The block of this name that may stand in `parent` (a block's name, "" for the top, "()" for argument lists), or
 * PP_BLOCK_COUNT. */
enum pp_block pp_schema_block(const char *name, const char *parent);

/* The attribute of this name, or PP_ATTR_COUNT. */
enum pp_attribute pp_schema_attribute(enum pp_block block, const char *name);

/* The first attribute of a block and their number: the rows of a block stand together. */
enum pp_attribute pp_schema_first(enum pp_block block, size_t *count);

/* The nearest attribute of a block, or block within a parent, or NULL. */
const char *pp_schema_nearest_attribute(enum pp_block block, const char *word);
const char *pp_schema_nearest_block(const char *parent, const char *word);

/* Walk a set "a|b*|c". `at` starts at the set; false at the end. *later: marked with *. */
bool pp_schema_next_name(const char **at, const char **name, size_t *length, bool *later);

/* Is the name in the set? */
bool pp_schema_has_name(const char *names, const char *name, bool *later);

/* Does a number lie within a range text such as "1..64", ">0", ">=0"? */
bool pp_schema_in_range(const char *range, const struct pp_datum *number);

/* What a value should be, for messages: "a whole number", "bytes", "loop, v or linear"; only what is supported. */
const char *pp_schema_wanted(struct pp_arena *arena, const struct pp_attribute_row *row);

/* The doc without the formula of a default that stands after its semicolon. */
const char *pp_schema_doc(struct pp_arena *arena, const struct pp_attribute_row *row);

struct pp_dimension pp_want_dimension(enum pp_want want);

#endif
