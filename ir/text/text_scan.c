/* Words and lines of the text forms. Lines end at LF; a CR counts as a blank. */
#include "text_scan.h"

#include <math.h>
#include <stdlib.h>

void pp_scan_begin(struct pp_scan *scan, const struct pp_source *source)
{
	*scan = (struct pp_scan){
	    .source = source, .line = source->text, .at = source->text, .end = source->text + source->length};
}

static bool blank(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\r';
}

static const char *line_end(const struct pp_scan *scan)
{
	const char *end = memchr(scan->at, '\n', (size_t)(scan->end - scan->at));
	return end ? end : scan->end;
}

bool pp_scan_line(struct pp_scan *scan)
{
	for (;; scan->started = true) {
		if (scan->started) {
			const char *end = line_end(scan);
			scan->at = end == scan->end ? end : end + 1;
		}
		scan->line = scan->at;
		while (scan->at < scan->end && blank(*scan->at))
			scan->at++;
		if (scan->at == scan->end)
			return false;
		if (*scan->at != '\n' && *scan->at != ';') {
			scan->started = true;
			return true;
		}
	}
}

static uint32_t string_length(const char *start, const char *end)
{
	const char *at = start + 1;
	while (at < end && *at != '\n' && *at != '"')
		at += *at == '\\' && at + 1 < end && at[1] != '\n' ? 2 : 1;
	return (uint32_t)(at < end && *at == '"' ? at + 1 - start : at - start);
}

struct pp_word pp_scan_word(struct pp_scan *scan)
{
	const char *at = scan->at, *end = scan->end;
	while (at < end && blank(*at))
		at++;
	struct pp_word word = {at, 0};
	if (at == end || *at == '\n' || *at == ';') {
		scan->at = at;
		return word;
	}
	if (*at == '"')
		word.length = string_length(at, end);
	else if (*at == '{' || *at == '}')
		word.length = 1;
	else {
		while (at < end && (unsigned char)*at > ' ' && *at != ';' && *at != '{' && *at != '}' && *at != '"')
			at++;
		word.length = (uint32_t)(at - word.text);
		if (word.length == 0) /* a control byte: a word that means nothing, so that it is reported */
			word.length = 1;
	}
	scan->at = word.text + word.length;
	return word;
}

struct pp_word pp_scan_rest(struct pp_scan *scan)
{
	struct pp_word word = {scan->at, (uint32_t)(line_end(scan) - scan->at)};
	scan->at += word.length;
	return word;
}

struct pp_span pp_scan_span(const struct pp_scan *scan, struct pp_word word)
{
	uint32_t start = scan->source->base + (uint32_t)(word.text - scan->source->text);
	return (struct pp_span){start, start + word.length};
}

struct pp_span pp_scan_line_span(const struct pp_scan *scan)
{
	const char *start = scan->line, *end = scan->at;
	while (start < end && blank(*start))
		start++;
	while (end > start && blank(end[-1]))
		end--;
	uint32_t base = scan->source->base;
	return (struct pp_span){base + (uint32_t)(start - scan->source->text), base + (uint32_t)(end - scan->source->text)};
}

bool pp_word_uint(const char *text, uint32_t length, uint64_t *value)
{
	uint64_t number = 0;
	for (uint32_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		uint64_t digit = (uint64_t)(text[i] - '0');
		if (number > UINT64_MAX / 10 || number * 10 > UINT64_MAX - digit)
			return false;
		number = number * 10 + digit;
	}
	*value = number;
	return length > 0;
}

bool pp_word_number(struct pp_word word, double *value)
{
	char copy[64], *end;
	if (word.length == 0 || word.length >= sizeof copy)
		return false;
	memcpy(copy, word.text, word.length);
	copy[word.length] = '\0';
	*value = strtod(copy, &end);
	return *end == '\0' && isfinite(*value);
}

static int hex_digit(char byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	if (byte >= 'a' && byte <= 'f')
		return byte - 'a' + 10;
	return -1;
}

/* The byte of the escape at `at` (after the backslash); *used bytes. 0: no such escape. */
static char escape(const char *at, const char *end, unsigned *used)
{
	*used = 1;
	if (at == end)
		return '\0';
	switch (*at) {
	case 'n':
		return '\n';
	case 't':
		return '\t';
	case '"':
	case '\\':
		return *at;
	default:
		break;
	}
	if (*at != 'x' || end - at < 3 || hex_digit(at[1]) < 0 || hex_digit(at[2]) < 0)
		return '\0';
	*used = 3;
	return (char)(hex_digit(at[1]) * 16 + hex_digit(at[2]));
}

const char *pp_word_string(struct pp_arena *arena, struct pp_word word)
{
	if (word.length < 2 || word.text[0] != '"' || word.text[word.length - 1] != '"')
		return NULL;
	const char *at = word.text + 1, *end = word.text + word.length - 1;
	char *copy = pp_arena_alloc(arena, word.length, 1);
	size_t length = 0;
	while (at < end) {
		unsigned used = 1;
		char byte = *at == '\\' ? escape(at + 1, end, &used) : *at;
		if (byte == '\0')
			return NULL;
		at += *at == '\\' ? used + 1 : 1;
		copy[length++] = byte;
	}
	copy[length] = '\0';
	return at == end ? copy : NULL;
}

const char *pp_word_show(struct pp_arena *arena, struct pp_word word)
{
	enum { MOST = 40 };
	if (word.length == 0)
		return "the end of the line";
	bool cut = word.length > MOST;
	char *copy = pp_arena_printf(arena, "`%.*s%s`", cut ? MOST - 3 : (int)word.length, word.text, cut ? "..." : "");
	for (char *at = copy; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	return copy;
}
