/* Values: making, comparing, the table of units, and how a value is shown to people. */
#include "datum.h"

#include "ir/str.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *name;
	int64_t top, bottom; /* in base units: top / bottom */
	struct pp_dimension dimension;
	bool shown; /* used when a value is shown */
};

#define KI ((int64_t)1024)

/* Largest first within a dimension: that is the order in which a unit is chosen to show a value. */
static const struct unit units[] = {
    {"TiB", KI *KI *KI *KI, 1, {1, 0, 0}, true},
    {"TB", 1000000000000, 1, {1, 0, 0}, true},
    {"GiB", KI *KI *KI, 1, {1, 0, 0}, true},
    {"GB", 1000000000, 1, {1, 0, 0}, true},
    {"Gbit", 125000000, 1, {1, 0, 0}, false},
    {"MiB", KI *KI, 1, {1, 0, 0}, true},
    {"MB", 1000000, 1, {1, 0, 0}, true},
    {"Mbit", 125000, 1, {1, 0, 0}, false},
    {"KiB", KI, 1, {1, 0, 0}, true},
    {"KB", 1000, 1, {1, 0, 0}, true},
    {"B", 1, 1, {1, 0, 0}, true},
    {"TB/s", 1000000000000, 1, {1, -1, 0}, true},
    {"TiB/s", KI *KI *KI *KI, 1, {1, -1, 0}, false},
    {"GB/s", 1000000000, 1, {1, -1, 0}, true},
    {"GiB/s", KI *KI *KI, 1, {1, -1, 0}, false},
    {"Gbit/s", 125000000, 1, {1, -1, 0}, false},
    {"MB/s", 1000000, 1, {1, -1, 0}, true},
    {"MiB/s", KI *KI, 1, {1, -1, 0}, false},
    {"Mbit/s", 125000, 1, {1, -1, 0}, false},
    {"KB/s", 1000, 1, {1, -1, 0}, true},
    {"KiB/s", KI, 1, {1, -1, 0}, false},
    {"B/s", 1, 1, {1, -1, 0}, true},
    {"h", 3600, 1, {0, 1, 0}, false},
    {"min", 60, 1, {0, 1, 0}, false},
    {"s", 1, 1, {0, 1, 0}, true},
    {"ms", 1, 1000, {0, 1, 0}, true},
    {"us", 1, 1000000, {0, 1, 0}, true},
    {"ns", 1, 1000000000, {0, 1, 0}, true},
    {"PFLOP", 1000000000000000, 1, {0, 0, 1}, true},
    {"TFLOP", 1000000000000, 1, {0, 0, 1}, true},
    {"GFLOP", 1000000000, 1, {0, 0, 1}, true},
    {"MFLOP", 1000000, 1, {0, 0, 1}, true},
    {"PFLOPS", 1000000000000000, 1, {0, -1, 1}, true},
    {"TFLOPS", 1000000000000, 1, {0, -1, 1}, true},
    {"GFLOPS", 1000000000, 1, {0, -1, 1}, true},
    {"MFLOPS", 1000000, 1, {0, -1, 1}, true},
    {"T", 1000000000000, 1, {0, 0, 0}, false},
    {"G", 1000000000, 1, {0, 0, 0}, false},
    {"M", 1000000, 1, {0, 0, 0}, false},
    {"k", 1000, 1, {0, 0, 0}, false},
};

enum { UNIT_COUNT = sizeof(units) / sizeof(units[0]) };

static struct pp_rational unit_size(const struct unit *unit)
{
	return (struct pp_rational){unit->top, unit->bottom};
}

struct pp_datum pp_datum_number(struct pp_rational number, struct pp_dimension dimension)
{
	return (struct pp_datum){.kind = PP_DATUM_NUMBER, .exact = true, .number = number, .dimension = dimension};
}

struct pp_datum pp_datum_whole(int64_t value)
{
	return pp_datum_number(pp_rational_whole(value), PP_PURE);
}

struct pp_datum pp_datum_real(double value, struct pp_dimension dimension)
{
	return (struct pp_datum){.kind = PP_DATUM_NUMBER, .real = value, .dimension = dimension, .number = {0, 1}};
}

struct pp_datum pp_datum_bool(bool truth)
{
	return (struct pp_datum){.kind = PP_DATUM_BOOL, .truth = truth};
}

struct pp_datum pp_datum_string(const char *text)
{
	return (struct pp_datum){.kind = PP_DATUM_STRING, .text = text};
}

struct pp_datum pp_datum_name(const char *text)
{
	return (struct pp_datum){.kind = PP_DATUM_NAME, .text = text};
}

double pp_datum_to_real(const struct pp_datum *datum)
{
	return datum->exact ? pp_rational_real(datum->number) : datum->real;
}

int pp_datum_compare(const struct pp_datum *a, const struct pp_datum *b)
{
	if (a->exact && b->exact)
		return pp_rational_compare(a->number, b->number);
	double x = pp_datum_to_real(a), y = pp_datum_to_real(b);
	return x < y ? -1 : x > y;
}

enum pp_literal pp_datum_read_number(const char *digits, const char *name, struct pp_datum *out)
{
	const struct unit *unit = NULL;
	for (int i = 0; name && i < UNIT_COUNT && !unit; i++)
		if (strcmp(units[i].name, name) == 0)
			unit = &units[i];
	if (name && !unit)
		return PP_LITERAL_UNKNOWN_UNIT;
	struct pp_dimension dimension = unit ? unit->dimension : PP_PURE;
	struct pp_rational number;
	if (pp_rational_read(digits, &number) && (!unit || pp_rational_multiply(number, unit_size(unit), &number))) {
		*out = pp_datum_number(number, dimension);
		return PP_LITERAL_OK;
	}
	double real = strtod(digits, NULL) * (unit ? pp_rational_real(unit_size(unit)) : 1.0);
	if (!isfinite(real) || fabs(real) > 1e30)
		return PP_LITERAL_TOO_LARGE;
	*out = pp_datum_real(real, dimension);
	return PP_LITERAL_OK;
}

const char *pp_unit_nearest(const char *name)
{
	const char *names[UNIT_COUNT];
	for (int i = 0; i < UNIT_COUNT; i++)
		names[i] = units[i].name;
	return pp_nearest(name, names, UNIT_COUNT);
}

/* ---- shown to people ------------------------------------------------------------------------- */

/* At most three decimals in this unit, and not below 1 nor a long number. */
static bool shows_well(const struct pp_datum *datum, const struct unit *unit)
{
	struct pp_rational share, thousandths;
	return datum->exact && pp_rational_divide(datum->number, unit_size(unit), &share) &&
	       pp_rational_compare(share, pp_rational_whole(1)) >= 0 &&
	       pp_rational_compare(share, pp_rational_whole(10000)) < 0 &&
	       pp_rational_multiply(share, pp_rational_whole(1000), &thousandths) && pp_rational_is_whole(thousandths);
}

/* The largest unit that shows it well; else the smallest if it is exact in it; else the largest not above the value. */
static const struct unit *unit_to_show(const struct pp_datum *datum)
{
	const struct unit *below = NULL, *last = NULL;
	double size = fabs(pp_datum_to_real(datum));
	for (int i = 0; i < UNIT_COUNT; i++) {
		const struct unit *unit = &units[i];
		if (!unit->shown || !pp_dimension_equal(unit->dimension, datum->dimension))
			continue;
		if (shows_well(datum, unit))
			return unit;
		if (!below && pp_rational_real(unit_size(unit)) <= size)
			below = unit;
		last = unit;
	}
	struct pp_rational share;
	bool exact = last && datum->exact && pp_rational_divide(datum->number, unit_size(last), &share) &&
	             pp_rational_is_whole(share);
	return below && !exact ? below : last;
}

static const char *number_text(struct pp_arena *arena, const struct pp_datum *datum)
{
	const struct unit *unit = unit_to_show(datum);
	const char *name = unit ? unit->name : "";
	struct pp_rational share = datum->number;
	if (datum->exact && (!unit || pp_rational_divide(share, unit_size(unit), &share)) && pp_rational_is_whole(share)) {
		char digits[48];
		return pp_arena_printf(arena, "%s%s", pp_wide_text(share.top, digits), name);
	}
	double value = pp_datum_to_real(datum) / (unit ? pp_rational_real(unit_size(unit)) : 1.0);
	return pp_arena_printf(arena, "%.7g%s", value, name);
}

enum { LONGEST_SHOWN = 8 }; /* items of a list */

static const char *list_text(struct pp_arena *arena, const struct pp_datum *list)
{
	const char *text = "";
	for (uint32_t i = 0; i < list->count && i < LONGEST_SHOWN; i++)
		text = pp_arena_printf(arena, "%s%s%s", text, i > 0 ? ", " : "", pp_datum_text(arena, &list->items[i]));
	return pp_arena_printf(arena, "[%s%s]", text, list->count > LONGEST_SHOWN ? ", …" : "");
}

const char *pp_datum_text(struct pp_arena *arena, const struct pp_datum *datum)
{
	switch ((enum pp_datum_kind)datum->kind) {
	case PP_DATUM_NUMBER:
		return number_text(arena, datum);
	case PP_DATUM_STRING:
		return pp_arena_printf(arena, "\"%.60s\"", datum->text);
	case PP_DATUM_NAME:
		return datum->text;
	case PP_DATUM_BOOL:
		return datum->truth ? "true" : "false";
	case PP_DATUM_LIST:
		return list_text(arena, datum);
	case PP_DATUM_RANGE:
		return pp_arena_printf(arena, "%s..%s", pp_datum_text(arena, &datum->items[0]),
		                       pp_datum_text(arena, &datum->items[1]));
	}
	assert(!"kind of value");
	return "";
}

const char *pp_dimension_noun(struct pp_dimension dimension)
{
	static const struct {
		struct pp_dimension dimension;
		const char *noun;
	} nouns[] = {
	    {{0, 0, 0}, "a number"}, {{1, 0, 0}, "bytes"}, {{0, 1, 0}, "a time"},
	    {{1, -1, 0}, "a rate"},  {{0, 0, 1}, "work"},  {{0, -1, 1}, "a speed"},
	};
	for (size_t i = 0; i < sizeof(nouns) / sizeof(nouns[0]); i++)
		if (pp_dimension_equal(nouns[i].dimension, dimension))
			return nouns[i].noun;
	return "a quantity of mixed units";
}

const char *pp_datum_noun(const struct pp_datum *datum)
{
	static const char *const nouns[] = {
	    [PP_DATUM_NUMBER] = "a number",    [PP_DATUM_STRING] = "a string", [PP_DATUM_NAME] = "a name",
	    [PP_DATUM_BOOL] = "true or false", [PP_DATUM_LIST] = "a list",     [PP_DATUM_RANGE] = "a range",
	};
	return datum->kind == PP_DATUM_NUMBER ? pp_dimension_noun(datum->dimension) : nouns[datum->kind];
}
