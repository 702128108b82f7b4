/* Reading JSON (RFC 8259) step by step, for files of our own schemas: the caller asks for what must come next, so
 * nothing is built in memory and hostile input costs no more than its length. Strict: no comments, no commas at the
 * end, no NaN, UTF-8 only, at most 32 levels.
 *
 *     pp_json_enter_object(reader);
 *     while (pp_json_next_key(reader, key, sizeof key))
 *         if (strcmp(key, "steps") == 0) pp_json_get_uint(reader, &steps, 1 << 20);
 *         else pp_json_wrong(reader, "unknown key `%s`", key);
 *
 * The first error stays; from then on everything says false. */
#ifndef PP_JSON_READ_H
#define PP_JSON_READ_H

#include "diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_json_reader {
	const char *text;
	size_t length, at;
	size_t token;    /* where the value or key read last begins */
	unsigned depth;  /* open objects and arrays */
	uint64_t arrays; /* bit d: level d is an array */
	uint64_t filled; /* bit d: level d has an item already */
	bool failed;
	size_t wrong_at; /* offset of the error */
	char wrong[200]; /* its text */
};

struct pp_json_reader pp_json_read_begin(const char *text, size_t length);

/* Values. Each fails if something else comes next. */
bool pp_json_enter_object(struct pp_json_reader *reader);
bool pp_json_enter_array(struct pp_json_reader *reader);
bool pp_json_get_string(struct pp_json_reader *reader, char *to, size_t size);          /* fails if it does not fit */
bool pp_json_get_uint(struct pp_json_reader *reader, uint64_t *to, uint64_t most);      /* whole, no exponent */
bool pp_json_get_decimal(struct pp_json_reader *reader, unsigned places, uint64_t *to); /* 12.345 -> 12345 */
bool pp_json_get_bool(struct pp_json_reader *reader, bool *to);
bool pp_json_skip(struct pp_json_reader *reader); /* any value */

/* The next key of the object, or the next item of the array; false at its end, which is passed, or after an error. */
bool pp_json_next_key(struct pp_json_reader *reader, char *to, size_t size);
bool pp_json_next_item(struct pp_json_reader *reader);

/* Nothing but blanks may follow the value. */
bool pp_json_read_end(struct pp_json_reader *reader);

/* Report an error at the value or key read last. Always false. */
bool pp_json_wrong(struct pp_json_reader *reader, const char *format, ...) PP_PRINTF(2, 3);

/* Line and column (in bytes) of an offset, from 1. */
struct pp_position pp_json_position(const struct pp_json_reader *reader, size_t offset);

#endif
