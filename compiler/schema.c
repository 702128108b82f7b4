/* The schema table and look-ups in it. */
#include "schema.h"

#include "ir/str.h"

#include <assert.h>
#include <string.h>

const struct pp_block_row pp_block_table[PP_BLOCK_COUNT] = {
#define PP_BLOCK(name, parents, label, status, doc) {#name, parents, PP_##label, PP_##status, doc},
#define PP_ATTRIBUTE(block, name, want, names, preset, range, status, doc)
#include "schema.def"
#undef PP_BLOCK
#undef PP_ATTRIBUTE
};

const struct pp_attribute_row pp_attribute_table[PP_ATTR_COUNT] = {
#define PP_BLOCK(name, parents, label, status, doc)
#define PP_ATTRIBUTE(block, name, want, names, preset, range, status, doc)                                             \
	{PP_BLOCK_##block, #name, PP_WANT_##want, names, preset, range, PP_##status, doc},
#include "schema.def"
#undef PP_BLOCK
#undef PP_ATTRIBUTE
};

bool pp_schema_next_name(const char **at, const char **name, size_t *length, bool *later)
{
	if (!**at)
		return false;
	*name = *at;
	size_t span = strcspn(*at, "|");
	*at += span + ((*at)[span] == '|');
	*later = span > 0 && (*name)[span - 1] == '*';
	*length = span - *later;
	return true;
}

bool pp_schema_has_name(const char *names, const char *name, bool *later)
{
	const char *item;
	size_t length, wanted = strlen(name);
	while (pp_schema_next_name(&names, &item, &length, later))
		if (length == wanted && memcmp(item, name, length) == 0)
			return true;
	return false;
}

static bool in_parents(const char *parents, const char *parent)
{
	const char *item;
	size_t length;
	bool later;
	if (!*parent)
		return !*parents || *parents == '|';
	const char *at = parents + (*parents == '|');
	while (pp_schema_next_name(&at, &item, &length, &later))
		if (length == strlen(parent) && memcmp(item, parent, length) == 0)
			return true;
	return false;
}

enum pp_block pp_schema_block(const char *name, const char *parent)
{
	for (int i = 0; i < PP_BLOCK_COUNT; i++)
		if (strcmp(pp_block_table[i].name, name) == 0 && in_parents(pp_block_table[i].parents, parent))
			return (enum pp_block)i;
	return PP_BLOCK_COUNT;
}

enum pp_attribute pp_schema_first(enum pp_block block, size_t *count)
{
	int first = 0;
	while (first < PP_ATTR_COUNT && pp_attribute_table[first].block != block)
		first++;
	int end = first;
	while (end < PP_ATTR_COUNT && pp_attribute_table[end].block == block)
		end++;
	*count = (size_t)(end - first);
	return (enum pp_attribute)first;
}

enum pp_attribute pp_schema_attribute(enum pp_block block, const char *name)
{
	size_t count;
	enum pp_attribute first = pp_schema_first(block, &count);
	for (size_t i = 0; i < count; i++)
		if (strcmp(pp_attribute_table[first + i].name, name) == 0)
			return (enum pp_attribute)(first + i);
	return PP_ATTR_COUNT;
}

const char *pp_schema_nearest_attribute(enum pp_block block, const char *word)
{
	const char *names[PP_ATTR_COUNT];
	size_t count;
	enum pp_attribute first = pp_schema_first(block, &count);
	for (size_t i = 0; i < count; i++)
		names[i] = pp_attribute_table[first + i].name;
	return pp_nearest(word, names, count);
}

const char *pp_schema_nearest_block(const char *parent, const char *word)
{
	const char *names[PP_BLOCK_COUNT];
	size_t count = 0;
	for (int i = 0; i < PP_BLOCK_COUNT; i++)
		if (in_parents(pp_block_table[i].parents, parent))
			names[count++] = pp_block_table[i].name;
	return pp_nearest(word, names, count);
}

/* A bound may carry no unit: it is in base units. */
static bool compare_bound(const struct pp_datum *number, const char *text, size_t length, int *order)
{
	char digits[64];
	assert(length < sizeof(digits));
	memcpy(digits, text, length);
	digits[length] = '\0';
	struct pp_datum bound;
	if (pp_datum_read_number(digits, NULL, &bound) != PP_LITERAL_OK)
		return false;
	*order = pp_datum_compare(number, &bound);
	return true;
}

bool pp_schema_in_range(const char *range, const struct pp_datum *number)
{
	int order = 0, upper = 0;
	if (!*range)
		return true;
	if (range[0] == '>') {
		bool equal = range[1] == '=';
		return compare_bound(number, range + 1 + equal, strlen(range) - 1 - equal, &order) &&
		       (equal ? order >= 0 : order > 0);
	}
	const char *dots = strstr(range, "..");
	assert(dots);
	return compare_bound(number, range, (size_t)(dots - range), &order) && order >= 0 &&
	       compare_bound(number, dots + 2, strlen(dots + 2), &upper) && upper <= 0;
}

struct pp_dimension pp_want_dimension(enum pp_want want)
{
	switch (want) {
	case PP_WANT_BYTES:
		return PP_BYTES;
	case PP_WANT_RATE:
		return PP_RATE;
	case PP_WANT_TIME:
		return PP_TIME;
	case PP_WANT_WORK:
		return PP_WORK;
	case PP_WANT_SPEED:
		return PP_SPEED;
	case PP_WANT_WHOLE:
	case PP_WANT_NUMBER:
	case PP_WANT_TRUTH:
	case PP_WANT_STRING:
	case PP_WANT_LIST:
	case PP_WANT_RANGE:
	case PP_WANT_NAME:
		break;
	}
	return PP_PURE;
}

static const char *want_text(enum pp_want want)
{
	static const char *const texts[] = {
	    [PP_WANT_WHOLE] = "a whole number",
	    [PP_WANT_NUMBER] = "a number",
	    [PP_WANT_TRUTH] = "true or false",
	    [PP_WANT_STRING] = "a string",
	    [PP_WANT_BYTES] = "bytes",
	    [PP_WANT_RATE] = "a rate",
	    [PP_WANT_TIME] = "a time",
	    [PP_WANT_WORK] = "work (such as 2GFLOP)",
	    [PP_WANT_SPEED] = "a speed (such as 100GFLOPS)",
	    [PP_WANT_LIST] = "a list",
	    [PP_WANT_RANGE] = "a range such as 0..7",
	    [PP_WANT_NAME] = "",
	};
	return texts[want];
}

const char *pp_schema_wanted(struct pp_arena *arena, const struct pp_attribute_row *row)
{
	const char *text = want_text((enum pp_want)row->want), *at = row->names, *name;
	size_t length, left = 0;
	bool later, first = true;
	while (pp_schema_next_name(&at, &name, &length, &later))
		left += !later;
	for (at = row->names; pp_schema_next_name(&at, &name, &length, &later);) {
		if (later)
			continue;
		left--;
		const char *before = first && !*text ? "" : left == 0 ? " or " : ", ";
		bool kind = *name == '@';
		text = pp_arena_printf(arena, "%s%s%s%.*s", text, before, kind ? "the name of a " : "", (int)(length - kind),
		                       name + kind);
		first = false;
	}
	return text;
}

const char *pp_schema_doc(struct pp_arena *arena, const struct pp_attribute_row *row)
{
	return pp_arena_copy(arena, row->doc, strcspn(row->doc, ";"));
}
