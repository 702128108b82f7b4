/* JSON reader: json_read.h. requires: `length` bytes at `text`. ensures: no byte outside of them is read; time linear
 * in what is read. */
#include "json_read.h"

#include "str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LEVELS = 32, MOST_DIGITS = 64 };

struct pp_json_reader pp_json_read_begin(const char *text, size_t length)
{
	return (struct pp_json_reader){.text = text, .length = length};
}

static bool wrong_at(struct pp_json_reader *reader, size_t at, const char *what)
{
	if (reader->failed)
		return false;
	reader->failed = true;
	reader->wrong_at = at;
	snprintf(reader->wrong, sizeof reader->wrong, "%s", what);
	return false;
}

bool pp_json_wrong(struct pp_json_reader *reader, const char *format, ...)
{
	if (reader->failed)
		return false;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(reader->wrong, sizeof reader->wrong, format, arguments);
	va_end(arguments);
	reader->failed = true;
	reader->wrong_at = reader->token;
	return false;
}

struct pp_position pp_json_position(const struct pp_json_reader *reader, size_t offset)
{
	struct pp_position position = {1, 1};
	for (size_t i = 0; i < offset && i < reader->length; i++) {
		position.column++;
		if (reader->text[i] == '\n')
			position = (struct pp_position){position.line + 1, 1};
	}
	return position;
}

/* ---- characters ------------------------------------------------------------------------------ */

/* The next byte that is no blank, which is not passed; 0 at the end and where a zero byte stands. */
static char peek(struct pp_json_reader *reader)
{
	while (reader->at < reader->length) {
		char c = reader->text[reader->at];
		if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
			return c;
		reader->at++;
	}
	return '\0';
}

/* "expected X, got …" at the next character. */
static bool expected(struct pp_json_reader *reader, const char *what)
{
	char c = peek(reader);
	reader->token = reader->at;
	if (reader->at == reader->length)
		return pp_json_wrong(reader, "expected %s, but the file ends here", what);
	if (c > ' ' && c <= '~')
		return pp_json_wrong(reader, "expected %s, got `%c`", what, c);
	return pp_json_wrong(reader, "expected %s, got byte 0x%02x", what, (unsigned char)c);
}

/* A value begins with this character: blanks are passed, the place is kept. */
static bool begins(struct pp_json_reader *reader, char wanted, const char *what)
{
	if (reader->failed)
		return false;
	if (peek(reader) != wanted || reader->at == reader->length)
		return expected(reader, what);
	reader->token = reader->at;
	return true;
}

static bool enter(struct pp_json_reader *reader, bool array)
{
	if (!begins(reader, array ? '[' : '{', array ? "an array" : "an object"))
		return false;
	if (reader->depth == MOST_LEVELS)
		return wrong_at(reader, reader->at, "more than 32 levels of nesting");
	reader->at++;
	reader->depth++;
	uint64_t bit = UINT64_C(1) << reader->depth;
	reader->arrays = array ? reader->arrays | bit : reader->arrays & ~bit;
	reader->filled &= ~bit;
	return true;
}

bool pp_json_enter_object(struct pp_json_reader *reader)
{
	return enter(reader, false);
}

bool pp_json_enter_array(struct pp_json_reader *reader)
{
	return enter(reader, true);
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four digits after \u; -1: they are none. */
static int unit_of(struct pp_json_reader *reader)
{
	int unit = 0;
	if (reader->length - reader->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int value = hex_value(reader->text[reader->at + (size_t)i]);
		if (value < 0)
			return -1;
		unit = unit * 16 + value;
	}
	reader->at += 4;
	return unit;
}

/* A code point as UTF-8; its length. */
static size_t encode(int point, char to[4])
{
	if (point < 0x80) {
		to[0] = (char)point;
		return 1;
	}
	if (point < 0x800) {
		to[0] = (char)(0xc0 | point >> 6);
		to[1] = (char)(0x80 | (point & 0x3f));
		return 2;
	}
	if (point < 0x10000) {
		to[0] = (char)(0xe0 | point >> 12);
		to[1] = (char)(0x80 | (point >> 6 & 0x3f));
		to[2] = (char)(0x80 | (point & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | point >> 18);
	to[1] = (char)(0x80 | (point >> 12 & 0x3f));
	to[2] = (char)(0x80 | (point >> 6 & 0x3f));
	to[3] = (char)(0x80 | (point & 0x3f));
	return 4;
}

/* What stands after \u, with the second half of a pair. */
static int point_of(struct pp_json_reader *reader)
{
	int unit = unit_of(reader);
	if (unit < 0xd800 || unit > 0xdfff)
		return unit == 0 ? -1 : unit; /* no zero bytes in strings */
	if (unit > 0xdbff || reader->length - reader->at < 2 || memcmp(reader->text + reader->at, "\\u", 2) != 0)
		return -1;
	reader->at += 2;
	int low = unit_of(reader);
	return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* The character behind a backslash; its length, 0: there is no such escape. */
static size_t escape(struct pp_json_reader *reader, char to[4])
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	if (reader->at == reader->length)
		return 0;
	char c = reader->text[reader->at++];
	const char *name = c ? strchr(names, c) : NULL;
	if (name) {
		to[0] = values[name - names];
		return 1;
	}
	int point = c == 'u' ? point_of(reader) : -1;
	return point < 0 ? 0 : encode(point, to);
}

/* The next character of a string, decoded; its length, 0: an error is reported. */
static size_t character(struct pp_json_reader *reader, char to[4])
{
	size_t start = reader->at;
	unsigned char c = (unsigned char)reader->text[reader->at];
	if (c < 0x20) {
		wrong_at(reader, start, "a control character in a string");
		return 0;
	}
	if (c == '\\') {
		reader->at++;
		size_t length = escape(reader, to);
		if (length == 0)
			wrong_at(reader, start, "unknown escape in a string");
		return length;
	}
	size_t length = pp_utf8_length(reader->text + start, reader->length - start);
	if (length == 0)
		wrong_at(reader, start, "a string that is not UTF-8");
	memcpy(to, reader->text + start, length);
	reader->at += length;
	return length;
}

/* The rest of a string whose quote has been passed. `to` may be NULL: thrown away. */
static bool string_rest(struct pp_json_reader *reader, char *to, size_t size)
{
	size_t length = 0;
	for (;;) {
		char piece[4];
		if (reader->at == reader->length)
			return pp_json_wrong(reader, "this string is not closed");
		if (reader->text[reader->at] == '"')
			break;
		size_t more = character(reader, piece);
		if (more == 0)
			return false;
		if (to && length + more >= size)
			return pp_json_wrong(reader, "this string is longer than %zu bytes", size - 1);
		if (to)
			memcpy(to + length, piece, more);
		length += more;
	}
	reader->at++;
	if (to)
		to[length] = '\0';
	return true;
}

bool pp_json_get_string(struct pp_json_reader *reader, char *to, size_t size)
{
	to[0] = '\0';
	if (!begins(reader, '"', "a string"))
		return false;
	reader->at++;
	return string_rest(reader, to, size);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool is_digit(const struct pp_json_reader *reader, size_t at)
{
	return at < reader->length && reader->text[at] >= '0' && reader->text[at] <= '9';
}

static size_t digits_from(const struct pp_json_reader *reader, size_t at)
{
	size_t end = at;
	while (is_digit(reader, end))
		end++;
	return end - at;
}

/* The parts of a number as JSON writes it. */
struct number {
	bool negative;
	size_t whole, whole_digits, part, part_digits; /* offsets and lengths */
	bool exponent;
};

static bool scan_exponent(struct pp_json_reader *reader, struct number *number)
{
	if (reader->at == reader->length || (reader->text[reader->at] != 'e' && reader->text[reader->at] != 'E'))
		return true;
	number->exponent = true;
	reader->at++;
	if (reader->at < reader->length && (reader->text[reader->at] == '+' || reader->text[reader->at] == '-'))
		reader->at++;
	size_t digits = digits_from(reader, reader->at);
	reader->at += digits;
	return digits > 0 || pp_json_wrong(reader, "this number has no digits in its exponent");
}

static bool scan_number(struct pp_json_reader *reader, struct number *number)
{
	*number = (struct number){.negative = false};
	if (reader->failed)
		return false;
	char c = peek(reader);
	if (c != '-' && !is_digit(reader, reader->at))
		return expected(reader, "a number");
	reader->token = reader->at;
	number->negative = c == '-';
	reader->at += number->negative;
	number->whole = reader->at;
	number->whole_digits = digits_from(reader, reader->at);
	if (number->whole_digits == 0 || (number->whole_digits > 1 && reader->text[number->whole] == '0'))
		return pp_json_wrong(reader, "this number has %s", number->whole_digits ? "a zero in front" : "no digits");
	reader->at += number->whole_digits;
	if (reader->at < reader->length && reader->text[reader->at] == '.') {
		number->part = ++reader->at;
		number->part_digits = digits_from(reader, reader->at);
		reader->at += number->part_digits;
		if (number->part_digits == 0)
			return pp_json_wrong(reader, "this number has no digits behind its point");
	}
	if (!scan_exponent(reader, number))
		return false;
	return reader->at - reader->token < MOST_DIGITS ||
	       pp_json_wrong(reader, "this number is longer than %d characters", MOST_DIGITS - 1);
}

/* value := value * 10 + digit, for each digit; false: too large. */
static bool add_digits(const struct pp_json_reader *reader, size_t at, size_t count, uint64_t *value)
{
	for (size_t i = 0; i < count; i++)
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, (uint64_t)(reader->text[at + i] - '0'), value))
			return false;
	return true;
}

bool pp_json_get_decimal(struct pp_json_reader *reader, unsigned places, uint64_t *to)
{
	struct number number;
	*to = 0;
	if (!scan_number(reader, &number))
		return false;
	if (number.negative)
		return pp_json_wrong(reader, "this number must not be negative");
	if (number.exponent || number.part_digits > places)
		return places ? pp_json_wrong(reader, "this number must have at most %u decimals and no exponent", places)
		              : pp_json_wrong(reader, "this number must be whole, without point or exponent");
	bool fits = add_digits(reader, number.whole, number.whole_digits, to) &&
	            add_digits(reader, number.part, number.part_digits, to);
	for (size_t i = number.part_digits; fits && i < places; i++)
		fits = !__builtin_mul_overflow(*to, 10, to);
	return fits || pp_json_wrong(reader, "this number is too large");
}

bool pp_json_get_uint(struct pp_json_reader *reader, uint64_t *to, uint64_t most)
{
	if (!pp_json_get_decimal(reader, 0, to))
		return false;
	return *to <= most || pp_json_wrong(reader, "this number must be at most %llu", (unsigned long long)most);
}

/* ---- words, any value ------------------------------------------------------------------------ */

static bool word(struct pp_json_reader *reader, const char *text)
{
	size_t length = strlen(text);
	if (reader->length - reader->at < length || memcmp(reader->text + reader->at, text, length) != 0)
		return false;
	reader->token = reader->at;
	reader->at += length;
	return true;
}

bool pp_json_get_bool(struct pp_json_reader *reader, bool *to)
{
	if (reader->failed)
		return false;
	peek(reader);
	*to = word(reader, "true");
	return *to || word(reader, "false") || expected(reader, "true or false");
}

/* One value that holds no others. */
static bool skip_plain(struct pp_json_reader *reader)
{
	struct number number;
	char c = peek(reader);
	if (c == '"') {
		reader->token = reader->at++;
		return string_rest(reader, NULL, 0);
	}
	if (c == '-' || is_digit(reader, reader->at))
		return scan_number(reader, &number);
	return word(reader, "true") || word(reader, "false") || word(reader, "null") || expected(reader, "a value");
}

bool pp_json_skip(struct pp_json_reader *reader)
{
	unsigned base = reader->depth;
	do {
		char c = reader->failed ? '\0' : peek(reader);
		bool opens = c == '{' || c == '[';
		if (reader->failed || !(opens ? enter(reader, c == '[') : skip_plain(reader)))
			return false;
		/* Close what ends here; stop where another value follows. */
		while (reader->depth > base) {
			bool array = reader->arrays >> reader->depth & 1;
			if (array ? pp_json_next_item(reader) : pp_json_next_key(reader, NULL, 0))
				break;
			if (reader->failed)
				return false;
		}
	} while (reader->depth > base);
	return true;
}

/* ---- objects and arrays ---------------------------------------------------------------------- */

/* Past the comma to the next item, or past the end. */
static bool advance(struct pp_json_reader *reader, char end)
{
	if (reader->failed)
		return false;
	uint64_t bit = UINT64_C(1) << reader->depth;
	char c = peek(reader);
	if (c == end && reader->at < reader->length) {
		reader->at++;
		reader->depth--;
		return false;
	}
	if (reader->filled & bit) {
		if (c != ',')
			return expected(reader, end == '}' ? "`,` or `}`" : "`,` or `]`");
		reader->at++;
	}
	reader->filled |= bit;
	return true;
}

bool pp_json_next_item(struct pp_json_reader *reader)
{
	return advance(reader, ']');
}

bool pp_json_next_key(struct pp_json_reader *reader, char *to, size_t size)
{
	if (!advance(reader, '}') || !begins(reader, '"', "a key in quotes"))
		return false;
	size_t token = reader->at++;
	if (!string_rest(reader, to, size))
		return false;
	if (peek(reader) != ':')
		return expected(reader, "`:`");
	reader->at++;
	reader->token = token;
	return true;
}

bool pp_json_read_end(struct pp_json_reader *reader)
{
	if (reader->failed)
		return false;
	peek(reader);
	return reader->at == reader->length || expected(reader, "the end of the file");
}
