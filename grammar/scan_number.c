/* Numbers, quantities and cells. Requires text that matched the scanner's pattern for them. Ensures that a value comes
 * back in any case; a wrong one is reported and marked. */
#include "scan.h"

#include "build.h"
#include "parser.h"

#include <ctype.h>
#include <string.h>

const char *pp_scan_digits(struct pp_parse *parse, const char *text, size_t length)
{
	char *digits = pp_arena_alloc(parse->arena, length + 1, 1);
	size_t count = 0;
	for (size_t i = 0; i < length; i++) {
		bool leading = count == 0 && text[i] == '0' && i + 1 < length &&
		               (isdigit((unsigned char)text[i + 1]) || text[i + 1] == '_');
		if (text[i] != '_' && !leading)
			digits[count++] = text[i];
	}
	return pp_intern(parse->strings, digits, count);
}

/* ---- quantities ------------------------------------------------------------------------------ */

/* What they are worth is known to the evaluator. */
static const char *const units[] = {
    "B",      "KB",     "MB",     "GB",     "TB",     "KiB",    "MiB",   "GiB",   "TiB",   "Mbit",
    "Gbit",   "B/s",    "KB/s",   "MB/s",   "GB/s",   "TB/s",   "KiB/s", "MiB/s", "GiB/s", "TiB/s",
    "Mbit/s", "Gbit/s", "ns",     "us",     "ms",     "s",      "min",   "h",     "MFLOP", "GFLOP",
    "TFLOP",  "PFLOP",  "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS", "k",     "M",     "G",     "T",
};

enum { UNIT_COUNT = sizeof units / sizeof units[0] };

bool pp_scan_is_unit(const char *name)
{
	for (size_t i = 0; i < UNIT_COUNT; i++) {
		if (strcmp(units[i], name) == 0)
			return true;
	}
	return false;
}

static bool digit_at(const char *text, size_t length, size_t at)
{
	return at < length && isdigit((unsigned char)text[at]);
}

static size_t skip_digits(const char *text, size_t length, size_t at)
{
	while (digit_at(text, length, at) || (at < length && text[at] == '_' && digit_at(text, length, at + 1)))
		at++;
	return at;
}

/* Length of the number at the start of a quantity. */
static size_t number_length(const char *text, size_t length)
{
	size_t at = skip_digits(text, length, 0);
	if (at < length && text[at] == '.')
		at = skip_digits(text, length, at + 1);
	if (at < length && (text[at] == 'e' || text[at] == 'E')) {
		size_t exponent = at + 1;
		if (exponent < length && (text[exponent] == '+' || text[exponent] == '-'))
			exponent++;
		if (digit_at(text, length, exponent))
			at = skip_digits(text, length, exponent);
	}
	return at;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
	size_t size = strlen(end);
	return length >= size && memcmp(text + length - size, end, size) == 0;
}

size_t pp_scan_quantity_length(const char *text, size_t length)
{
	const char *slash = memchr(text, '/', length);
	if (!slash)
		return length;
	size_t before = (size_t)(slash - text);
	bool per_second = length - before == 2 && slash[1] == 's';
	bool data = ends_with(text, before, "B") || ends_with(text, before, "b") || ends_with(text, before, "bit");
	return per_second && data ? length : before;
}

static const char *shortened(struct pp_parse *parse, const char *text)
{
	return strlen(text) <= 24 ? text : pp_arena_printf(parse->arena, "%.20s...", text);
}

/* `80Gb`, `400Gb/s`: bits or bytes is a factor of 8, so both are offered. */
static bool bits_or_bytes(struct pp_parse *parse, struct pp_span span, const char *number, const char *unit)
{
	size_t length = strcspn(unit, "/");
	if (length < 2 || length > 3 || unit[length - 1] != 'b' || !strchr("kKMGT", unit[0]))
		return false;
	const char *rate = unit + length;
	const char *bytes =
	    pp_arena_printf(parse->arena, "%c%sB%s", toupper((unsigned char)unit[0]), length == 3 ? "i" : "", rate);
	const char *bits = pp_arena_printf(parse->arena, "%cbit%s", unit[0], rate);
	if (!pp_scan_is_unit(bits)) {
		struct pp_message *message =
		    pp_error(parse->diag, "E0003", span, "unknown unit `%s`; write `%s` (bytes)", unit, bytes);
		pp_help(message, "write `%s%s`", number, bytes);
		return true;
	}
	struct pp_message *message =
	    pp_error(parse->diag, "E0003", span, "unknown unit `%s`; write `%s` (bytes) or `%s` (bits, 8 times less)", unit,
	             bytes, bits);
	pp_help(message, "write `%s%s` or `%s%s`", number, bytes, number, bits);
	return true;
}

/* `7b`, `7bn`, `7billion` are how people write billions. */
static bool billions(struct pp_parse *parse, struct pp_span span, const char *number, const char *unit)
{
	static const char *const words[] = {"b", "bn", "Bn", "bil", "billion"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (strcmp(unit, words[i]) != 0)
			continue;
		pp_error(parse->diag, "E0004", span,
		         "`%s` is no unit; for %s billion write `%sG` or `%se9`, for %s bytes write `%sB`", unit, number,
		         number, number, number, number);
		return true;
	}
	return false;
}

/* What other tools write: `100Gbps`, `5usec`. */
static bool usual_name(struct pp_parse *parse, struct pp_span span, const char *number, const char *unit)
{
	static const char *const names[][2] = {
	    {"Gbps", "Gbit/s"}, {"Mbps", "Mbit/s"}, {"GBps", "GB/s"}, {"MBps", "MB/s"}, {"GiBps", "GiB/s"},
	    {"sec", "s"},       {"secs", "s"},      {"seconds", "s"}, {"msec", "ms"},   {"usec", "us"},
	    {"nsec", "ns"},     {"mins", "min"},    {"hour", "h"},    {"hours", "h"},   {"bytes", "B"},
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (strcmp(unit, names[i][0]) != 0)
			continue;
		pp_help(pp_error(parse->diag, "E0003", span, "unknown unit `%s`; it is `%s` here", unit, names[i][1]),
		        "write `%s%s`", number, names[i][1]);
		return true;
	}
	return false;
}

/* `schedule 1f1`: no number is meant. */
static bool schedule_name(struct pp_parse *parse, struct pp_span span, const char *number, const char *unit)
{
	static const char *const known[] = {"1f1b"}; /* the others begin with a letter */
	const struct pp_token_place *before = &parse->tokens[0];
	bool named = before->kind == T_NAME && strcmp(pp_parse_text(parse, before->span), "schedule") == 0;
	if (!named && before->kind != T_EXTENDS)
		return false;
	const char *name = pp_arena_printf(parse->arena, "%s%s", number, shortened(parse, unit));
	struct pp_message *message = pp_error(parse->diag, "E0001", span, "`%s` is no name of a schedule", name);
	const char *nearest = pp_nearest(name, known, sizeof known / sizeof *known);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else
		pp_help(message, "the library has gpipe, 1f1b, interleaved; the name of your own begins with a letter");
	return true;
}

static void report_unit(struct pp_parse *parse, struct pp_span span, const char *number, const char *unit)
{
	parse->wrong_quantity = span.end;
	if (strcmp(number, "0") == 0 && strlen(unit) > 1 && strchr("xXbBoO", unit[0]) && isxdigit((unsigned char)unit[1])) {
		struct pp_message *message = pp_error(parse->diag, "E0001", span,
		                                      "unexpected number `0%s`; numbers are decimal", shortened(parse, unit));
		pp_help(message, "write it in decimal digits; `_` may group them: 65_536");
		return;
	}
	struct pp_span at = {span.end - (uint32_t)strlen(unit), span.end};
	if (schedule_name(parse, span, number, unit) || bits_or_bytes(parse, at, number, unit) ||
	    billions(parse, at, number, unit) || usual_name(parse, at, number, unit))
		return;
	const char *nearest = pp_nearest(unit, units, UNIT_COUNT);
	if (nearest) {
		struct pp_message *message =
		    pp_error(parse->diag, "E0003", at, "unknown unit `%s`; did you mean `%s`?", unit, nearest);
		pp_help(message, "write `%s%s`, or `%s*%s` to multiply", number, nearest, number, unit);
		return;
	}
	struct pp_message *message = pp_error(parse->diag, "E0003", at, "unknown unit `%s`", shortened(parse, unit));
	pp_note(message, "units: bytes `GB` `GiB`, rates `GB/s` `Gbit/s`, times `us` `ms`, work `TFLOP`, speeds `TFLOPS`, "
	                 "counts `k` `M` `G` `T`");
	if (strlen(unit) <= 24)
		pp_help(message, "to multiply write `%s*%s`", number, unit);
}

struct pp_quantity pp_scan_quantity(struct pp_parse *parse, struct pp_span span, const char *text, size_t length)
{
	size_t split = number_length(text, length);
	const char *number = pp_scan_digits(parse, text, split);
	const char *unit = pp_intern(parse->strings, text + split, length - split);
	if (pp_scan_is_unit(unit))
		return (struct pp_quantity){number, unit};
	report_unit(parse, span, shortened(parse, number), unit);
	return (struct pp_quantity){NULL, NULL};
}

/* ---- cells ----------------------------------------------------------------------------------- */

static bool read_number(const char *text, size_t length, size_t *at, uint64_t *number)
{
	*number = 0;
	for (; digit_at(text, length, *at); ++*at) {
		if (__builtin_mul_overflow(*number, 10, number) ||
		    __builtin_add_overflow(*number, (uint64_t)(text[*at] - '0'), number))
			return false;
	}
	return true;
}

struct pp_cell pp_scan_cell(struct pp_parse *parse, struct pp_span span, const char *text, size_t length)
{
	struct pp_cell cell = {.letter = NULL};
	size_t at = 0;
	bool fits = read_number(text, length, &at, &cell.stage);
	while (digit_at(text, length, at))
		at++;
	cell.letter = pp_intern(parse->strings, text + at, 1);
	at++;
	fits = read_number(text, length, &at, &cell.number) && fits;
	if (!fits)
		pp_error(parse->diag, "E0001", span, "unexpected cell `%.40s`; its numbers must be below 2^64",
		         pp_parse_text(parse, span));
	return cell;
}
