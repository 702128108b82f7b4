/* Strings, and bytes that are no token. Requires spans of the text being read. Ensures that strings hold neither NUL
 * nor broken UTF-8. */
#include "scan.h"

#include "ir/str.h"

#include <ctype.h>
#include <string.h>

/* ---- strings --------------------------------------------------------------------------------- */

struct reader {
	struct pp_parse *parse;
	const char *text;
	size_t length, at;
	uint32_t start; /* absolute offset of text[0] */
};

static struct pp_span span_here(const struct reader *reader, size_t length)
{
	uint32_t start = reader->start + (uint32_t)reader->at;
	return (struct pp_span){start, start + (uint32_t)length};
}

static int digit_value(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

static bool digit_of(const struct reader *reader, size_t at, int base)
{
	return at < reader->length && isxdigit((unsigned char)reader->text[at]) && digit_value(reader->text[at]) < base;
}

/* Up to `most` digits from `at` on. */
static int read_code(const struct reader *reader, size_t *at, int base, int most)
{
	int code = 0;
	for (int i = 0; i < most && digit_of(reader, *at, base); i++)
		code = code * base + digit_value(reader->text[(*at)++]);
	return code;
}

static char escaped(struct reader *reader)
{
	static const char letters[] = "abfnrtv\\\"'?", values[] = "\a\b\f\n\r\t\v\\\"'?";
	char letter = reader->text[reader->at + 1];
	const char *known = letter ? strchr(letters, letter) : NULL;
	if (known) {
		reader->at += 2;
		return values[known - letters];
	}
	size_t end = reader->at + 1 + (letter == 'x');
	size_t digits = end;
	int code = letter == 'x' ? read_code(reader, &end, 16, 2) : read_code(reader, &end, 8, 3);
	if (end == digits || code == 0 || code > 127) {
		struct pp_message *message =
		    pp_error(reader->parse->diag, "E0007", span_here(reader, end == digits ? 2 : end - reader->at),
		             "unknown escape in a string");
		pp_help(message, "escapes are \\n \\t \\r \\\\ \\\" and \\x01..\\x7f; other characters stand for themselves");
		code = '?';
	}
	reader->at = end > reader->at + 2 ? end : reader->at + 2;
	return (char)code;
}

const char *pp_scan_string(struct pp_parse *parse, uint32_t start, const char *text, size_t length)
{
	struct reader reader = {parse, text, length, 0, start};
	char *value = pp_arena_alloc(parse->arena, length + 1, 1);
	size_t count = 0;
	bool reported = false;
	while (reader.at < length) {
		if (text[reader.at] == '\\') {
			value[count++] = escaped(&reader);
			continue;
		}
		size_t size = text[reader.at] ? pp_utf8_length(text + reader.at, length - reader.at) : 0;
		if (size == 0 && !reported)
			pp_error(parse->diag, "E0007", span_here(&reader, 1), "byte 0x%02x in a string is not UTF-8 text",
			         (unsigned)(unsigned char)text[reader.at]);
		reported |= size == 0;
		for (size_t i = 0; i < size; i++)
			value[count++] = text[reader.at + i];
		reader.at += size ? size : 1;
	}
	return pp_intern(parse->strings, value, count);
}

/* ---- wrong bytes ----------------------------------------------------------------------------- */

/* A byte-order mark, as between files that were joined, stands alone; other letters belong to the word around them. */
static bool is_mark(const char *text, size_t length)
{
	return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
}

size_t pp_scan_wrong_length(const char *text, size_t length)
{
	return is_mark(text, length) ? 3 : length;
}

/* What was meant by a character that word processors and keyboards put in the place of an ASCII one. */
static const char *plain_form(const char *text, size_t size)
{
	static const char *const forms[][2] = {
	    {"\xc2\xb5", "us"},     {"\xce\xbc", "us"},     {"\xe2\x80\x9c", "\""},
	    {"\xe2\x80\x9d", "\""}, {"\xe2\x80\x93", "-"},  {"\xe2\x88\x92", "-"},
	    {"\xc3\x97", "*"},      {"\xe2\x89\xa4", "<="}, {"\xe2\x89\xa5", ">="},
	};
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
		if (strlen(forms[i][0]) == size && memcmp(forms[i][0], text, size) == 0)
			return forms[i][1];
	return NULL;
}

void pp_scan_wrong_bytes(struct pp_parse *parse, struct pp_span span, const char *text, size_t length)
{
	unsigned char first = (unsigned char)text[0];
	size_t size = pp_utf8_length(text, length);
	struct pp_message *message;
	if (is_mark(text, length))
		message = pp_error(parse->diag, "E0007", span, "byte-order mark in the middle of the text");
	else if (size == 0)
		message = pp_error(parse->diag, "E0007", span, "byte 0x%02x is not UTF-8 text", (unsigned)first);
	else if (first < 0x20 || first == 0x7f)
		message = pp_error(parse->diag, "E0007", span, "unexpected control character 0x%02x", (unsigned)first);
	else
		message = pp_error(parse->diag, "E0007", span, "unexpected character `%.*s`", (int)size, text);
	const char *plain = size ? plain_form(text, size) : NULL;
	if (plain)
		pp_help(message, "write `%s`", plain);
	else if (is_mark(text, length))
		pp_help(message, "remove it");
	else if (first >= 0x80 && size)
		pp_help(message, "outside strings and comments only ASCII characters are used");
	else if (first >= 0x80)
		pp_help(message, "save the file as UTF-8; outside strings and comments only ASCII characters are used");
	else
		pp_help(message, "remove it");
}

void pp_scan_wrong_operator(struct pp_parse *parse, struct pp_span span, const char *wrong, const char *right)
{
	pp_error(parse->diag, "E0001", span, "unexpected `%s`; write `%s`", wrong, right);
}

void pp_scan_wrong_comment(struct pp_parse *parse, struct pp_span span, bool block)
{
	if (block)
		pp_error(parse->diag, "E0002", span, "comments start with `#` and end with the line, there is no `/*`");
	else
		pp_error(parse->diag, "E0002", span, "comments start with `#`, not `//`");
}

void pp_scan_open_string(struct pp_parse *parse, struct pp_span span)
{
	struct pp_message *message =
	    pp_error(parse->diag, "E0005", span, "string is not closed before the end of the line");
	pp_help(message, "add `\"`; a line end within a string is written \\n, long strings are joined with `+`");
}

void pp_scan_semicolon(struct pp_parse *parse, struct pp_span span)
{
	if (parse->separator_reported)
		return;
	parse->separator_reported = true;
	struct pp_message *message =
	    pp_error(parse->diag, "E0001", span, "unexpected `;`; attributes are separated by spaces or line ends");
	pp_help(message, "remove every `;`");
}

bool pp_scan_encoding(struct pp_parse *parse)
{
	const char *text = parse->source->text;
	uint32_t length = parse->source->length, base = parse->source->base;
	bool marked = length >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
	bool wide = length >= 2 && (text[0] == '\0') != (text[1] == '\0');
	if (!marked && !wide)
		return true;
	struct pp_message *message =
	    pp_error(parse->diag, "E0007", (struct pp_span){base, base + 1}, "text is in UTF-16, wanted UTF-8");
	pp_help(message, "convert it: iconv -f UTF-16 -t UTF-8 %s", parse->source->name);
	return false;
}
