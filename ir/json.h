/* Writing JSON as a stream, one line unless asked otherwise, no trailing comma worries. Numbers are printed so that
 * they read back exactly; a number that is not finite becomes null. `key` is NULL inside arrays and at the top. */
#ifndef PP_JSON_H
#define PP_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pp_json {
	FILE *out;
	uint64_t arrays; /* bit d: nesting level d is an array */
	unsigned depth;  /* at most 63 */
	bool comma;
	bool line; /* the next key, item or end begins a line */
};

struct pp_json pp_json_begin(FILE *out);
void pp_json_open_object(struct pp_json *json, const char *key);
void pp_json_open_array(struct pp_json *json, const char *key);
void pp_json_close(struct pp_json *json);
void pp_json_string(struct pp_json *json, const char *key, const char *value);
void pp_json_uint(struct pp_json *json, const char *key, uint64_t value);
void pp_json_int(struct pp_json *json, const char *key, int64_t value);
void pp_json_number(struct pp_json *json, const char *key, double value);
void pp_json_bool(struct pp_json *json, const char *key, bool value);
void pp_json_null(struct pp_json *json, const char *key);

/* What comes next stands on a line of its own: files of many rows. */
void pp_json_line(struct pp_json *json);

#endif
