/* Values of the language: numbers with a dimension, strings, names, truth values, lists, ranges. Numbers are exact
 * fractions; only sqrt, log2 and literals beyond 38 digits give a double. Base units: bytes, seconds, flop. */
#ifndef PP_DATUM_H
#define PP_DATUM_H

#include "rational.h"

#include "ir/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum pp_datum_kind { PP_DATUM_NUMBER, PP_DATUM_STRING, PP_DATUM_NAME, PP_DATUM_BOOL, PP_DATUM_LIST, PP_DATUM_RANGE };

/* Powers of the base units: a rate is bytes 1, time -1; a speed is work 1, time -1. */
struct pp_dimension {
	int8_t bytes, time, work;
};

#define PP_PURE ((struct pp_dimension){0, 0, 0})
#define PP_BYTES ((struct pp_dimension){1, 0, 0})
#define PP_TIME ((struct pp_dimension){0, 1, 0})
#define PP_RATE ((struct pp_dimension){1, -1, 0})
#define PP_WORK ((struct pp_dimension){0, 0, 1})
#define PP_SPEED ((struct pp_dimension){0, -1, 1})

struct pp_datum {
	uint8_t kind; /* enum pp_datum_kind */
	bool exact;   /* NUMBER: `number` holds it, else `real` does */
	bool truth;   /* BOOL */
	struct pp_dimension dimension;
	struct pp_rational number;
	double real;
	const char *text;       /* STRING: value; NAME: an interned bare name */
	struct pp_datum *items; /* LIST: `count` of them; RANGE: first and last */
	uint32_t count;
};

struct pp_datum pp_datum_number(struct pp_rational number, struct pp_dimension dimension);
struct pp_datum pp_datum_whole(int64_t value);
struct pp_datum pp_datum_real(double value, struct pp_dimension dimension);
struct pp_datum pp_datum_bool(bool truth);
struct pp_datum pp_datum_string(const char *text);
struct pp_datum pp_datum_name(const char *text);

static inline bool pp_dimension_equal(struct pp_dimension a, struct pp_dimension b)
{
	return a.bytes == b.bytes && a.time == b.time && a.work == b.work;
}

/* The number as a double, in base units. */
double pp_datum_to_real(const struct pp_datum *datum);

/* -1, 0, 1 for two numbers of equal dimension. */
int pp_datum_compare(const struct pp_datum *a, const struct pp_datum *b);

/* A literal: digits as in the text, and its unit or NULL. */
enum pp_literal { PP_LITERAL_OK, PP_LITERAL_TOO_LARGE, PP_LITERAL_UNKNOWN_UNIT };
enum pp_literal pp_datum_read_number(const char *digits, const char *unit, struct pp_datum *out);

/* The unit nearest to a wrong one, or NULL. */
const char *pp_unit_nearest(const char *unit);

/* For people: "30", "7.5", "5us", "24GiB", "12.5GB/s", "fp32", "[1, 2]", "1..64". */
const char *pp_datum_text(struct pp_arena *arena, const struct pp_datum *datum);

/* For people: "a number", "bytes", "a time", "a string", "a list", … */
const char *pp_dimension_noun(struct pp_dimension dimension);
const char *pp_datum_noun(const struct pp_datum *datum);

#endif
