/* JSON writer. Bytes that are not UTF-8 are written as U+FFFD. */
#include "json.h"

#include "str.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pp_json pp_json_begin(FILE *out)
{
	return (struct pp_json){.out = out};
}

static void quoted(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	fputc('"', out);
	while (*at) {
		size_t length = pp_utf8_length((const char *)at, 4); /* reads no further than the final NUL */
		if (length == 0) {
			fputs("\\ufffd", out);
			length = 1;
		} else if (*at == '"' || *at == '\\')
			fprintf(out, "\\%c", *at);
		else if (*at == '\n')
			fputs("\\n", out);
		else if (*at == '\t')
			fputs("\\t", out);
		else if (*at < 0x20)
			fprintf(out, "\\u%04x", *at);
		else
			fwrite(at, 1, length, out);
		at += length;
	}
	fputc('"', out);
}

static void lead(struct pp_json *json, const char *key)
{
	if (json->comma)
		fputs(json->line ? "," : ", ", json->out);
	if (json->line)
		fputc('\n', json->out);
	json->comma = true;
	json->line = false;
	if (key) {
		quoted(json->out, key);
		fputs(": ", json->out);
	}
}

static void open_level(struct pp_json *json, const char *key, bool array)
{
	lead(json, key);
	assert(json->depth < 63);
	json->depth++;
	json->arrays = (json->arrays & ~(UINT64_C(1) << json->depth)) | (uint64_t)array << json->depth;
	fputc(array ? '[' : '{', json->out);
	json->comma = false;
}

void pp_json_open_object(struct pp_json *json, const char *key)
{
	open_level(json, key, false);
}

void pp_json_open_array(struct pp_json *json, const char *key)
{
	open_level(json, key, true);
}

void pp_json_close(struct pp_json *json)
{
	assert(json->depth > 0);
	if (json->line)
		fputc('\n', json->out);
	json->line = false;
	fputc(json->arrays >> json->depth & 1 ? ']' : '}', json->out);
	json->depth--;
	json->comma = true;
}

void pp_json_string(struct pp_json *json, const char *key, const char *value)
{
	lead(json, key);
	quoted(json->out, value);
}

void pp_json_uint(struct pp_json *json, const char *key, uint64_t value)
{
	lead(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void pp_json_int(struct pp_json *json, const char *key, int64_t value)
{
	lead(json, key);
	fprintf(json->out, "%" PRId64, value);
}

void pp_json_number(struct pp_json *json, const char *key, double value)
{
	lead(json, key);
	if (!isfinite(value)) {
		fputs("null", json->out);
		return;
	}
	if (value == floor(value) && fabs(value) < 9007199254740992.0) { /* 2^53: every digit counts */
		fprintf(json->out, "%" PRId64, (int64_t)value);
		return;
	}
	char text[32];
	for (int precision = 6; precision <= 17; precision++) {
		snprintf(text, sizeof text, "%.*g", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fputs(text, json->out);
}

void pp_json_bool(struct pp_json *json, const char *key, bool value)
{
	lead(json, key);
	fputs(value ? "true" : "false", json->out);
}

void pp_json_null(struct pp_json *json, const char *key)
{
	lead(json, key);
	fputs("null", json->out);
}

void pp_json_line(struct pp_json *json)
{
	json->line = true;
}
