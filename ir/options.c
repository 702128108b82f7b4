/* Reading command lines by table. requires: a table whose offsets lie in `values`. ensures: every failure names the
 * option as the user typed it, what it wants, and the nearest thing that exists. */
#include "options.h"

#include "str.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct parser {
	struct pp_arena *arena;
	const char *tool;
	const struct pp_option *table;
	size_t count;
	uint32_t command;
	int argc, at;
	char **argv;
	char *values;
	struct pp_arguments *arguments;
	struct pp_status *status;
};

static bool known_here(const struct pp_option *option, uint32_t command)
{
	return option->commands == 0 || (option->commands & command);
}

/* ---- choices --------------------------------------------------------------------------------- */

int pp_choice_find(const char *choices, const char *word)
{
	size_t length = strlen(word);
	int position = 0;
	for (const char *at = choices;; position++) {
		size_t size = strcspn(at, "|");
		if (size == length && memcmp(at, word, size) == 0)
			return position;
		if (!at[size])
			return -1;
		at += size + 1;
	}
}

const char *pp_choice_nearest(struct pp_arena *arena, const char *choices, const char *word)
{
	const char **items = NULL;
	size_t count = 0, capacity = 0;
	for (const char *at = choices;;) {
		size_t size = strcspn(at, "|");
		*PP_PUSH(arena, &items, &count, &capacity, const char *) = pp_arena_copy(arena, at, size);
		if (!at[size])
			break;
		at += size + 1;
	}
	return pp_nearest(word, items, count);
}

/* "a|b|c" as "a, b, c". */
static const char *comma_separated(struct pp_arena *arena, const char *choices)
{
	size_t length = strlen(choices), used = 0;
	char *text = pp_arena_alloc(arena, 2 * length + 1, 1);
	for (size_t i = 0; i < length; i++) {
		text[used++] = choices[i] == '|' ? ',' : choices[i];
		if (choices[i] == '|')
			text[used++] = ' ';
	}
	return text;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool read_uint(const char *text, uint64_t *value)
{
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno)
		return false;
	*value = number;
	return true;
}

static bool store_uint(struct parser *parser, const struct pp_option *option, const char *shown, const char *text,
                       uint64_t *value)
{
	uint64_t most = option->most ? option->most : UINT64_MAX;
	if (read_uint(text, value) && *value >= option->least && *value <= most)
		return true;
	if (option->most)
		return pp_fail(parser->status, PP_EXIT_USAGE,
		               "%s wants a whole number from %" PRIu64 " to %" PRIu64 ", got `%s`", shown, option->least, most,
		               text);
	return pp_fail(parser->status, PP_EXIT_USAGE, "%s wants a whole number of at least %" PRIu64 ", got `%s`", shown,
	               option->least, text);
}

static bool store_number(struct parser *parser, const char *shown, const char *text, double *value)
{
	char *end;
	*value = strtod(text, &end);
	if (end != text && !*end && isfinite(*value) && *value >= 0)
		return true;
	return pp_fail(parser->status, PP_EXIT_USAGE, "%s wants a number of at least 0, got `%s`", shown, text);
}

static bool store_choice(struct parser *parser, const struct pp_option *option, const char *shown, const char *text,
                         unsigned *value)
{
	int position = pp_choice_find(option->argument, text);
	if (position >= 0) {
		*value = (unsigned)position;
		return true;
	}
	const char *nearest = pp_choice_nearest(parser->arena, option->argument, text);
	return pp_fail(parser->status, PP_EXIT_USAGE, "%s has no choice `%s`%s%s%s; choose from %s", shown, text,
	               nearest ? "; did you mean `" : "", nearest ? nearest : "", nearest ? "`?" : "",
	               comma_separated(parser->arena, option->argument));
}

static void push(struct pp_arena *arena, struct pp_option_list *list, const char *text)
{
	*PP_PUSH(arena, &list->items, &list->count, &list->capacity, const char *) = text;
}

static bool store(struct parser *parser, const struct pp_option *option, const char *shown, const char *text)
{
	void *value = parser->values + option->offset;
	switch (option->kind) {
	case PP_OPTION_FLAG:
		*(bool *)value = true;
		return true;
	case PP_OPTION_TEXT:
		*(const char **)value = text;
		return true;
	case PP_OPTION_UINT:
		return store_uint(parser, option, shown, text, value);
	case PP_OPTION_NUMBER:
		return store_number(parser, shown, text, value);
	case PP_OPTION_CHOICE:
		return store_choice(parser, option, shown, text, value);
	case PP_OPTION_LIST:
		push(parser->arena, value, text);
		return true;
	}
	return false;
}

/* ---- options --------------------------------------------------------------------------------- */

/* The value that follows as the next word, or a message that says what is wanted. */
static const char *next_word(struct parser *parser, const struct pp_option *option, const char *shown)
{
	const char *word = parser->at + 1 < parser->argc ? parser->argv[parser->at + 1] : NULL;
	if (word && strncmp(word, "--", 2) != 0) {
		parser->at++;
		return word;
	}
	/* A value that looks like an option is a forgotten value; one that is meant is written --name=--value. */
	pp_fail(parser->status, PP_EXIT_USAGE, "%s wants a value: %s %s", shown, shown, option->argument);
	return NULL;
}

static bool unknown_long(struct parser *parser, const char *name)
{
	const char **names = PP_NEW_ARRAY(parser->arena, const char *, parser->count + 2);
	size_t count = 0;
	for (size_t i = 0; i < parser->count; i++) {
		if (parser->table[i].name && strcmp(parser->table[i].name, name) == 0)
			return pp_fail(parser->status, PP_EXIT_USAGE, "--%s does not apply to `%s`; `%s --help` lists what does",
			               name, parser->tool, parser->tool);
		if (parser->table[i].name && known_here(&parser->table[i], parser->command))
			names[count++] = parser->table[i].name;
	}
	names[count++] = "help";
	names[count++] = "version";
	const char *nearest = pp_nearest(name, names, count);
	if (nearest)
		return pp_fail(parser->status, PP_EXIT_USAGE, "unknown option --%s; did you mean --%s?", name, nearest);
	return pp_fail(parser->status, PP_EXIT_USAGE, "unknown option --%s; `%s --help` lists all", name, parser->tool);
}

static bool parse_long(struct parser *parser, const char *word)
{
	size_t length = strcspn(word + 2, "=");
	const char *name = pp_arena_copy(parser->arena, word + 2, length);
	const char *value = word[2 + length] ? word + 2 + length + 1 : NULL;
	if (strcmp(name, "help") == 0 || strcmp(name, "version") == 0) {
		*(*name == 'h' ? &parser->arguments->help : &parser->arguments->version) = true;
		return true;
	}
	for (size_t i = 0; i < parser->count; i++) {
		const struct pp_option *option = &parser->table[i];
		if (!option->name || strcmp(option->name, name) != 0 || !known_here(option, parser->command))
			continue;
		const char *shown = pp_arena_printf(parser->arena, "--%s", name);
		if (option->kind == PP_OPTION_FLAG && value)
			return pp_fail(parser->status, PP_EXIT_USAGE, "%s takes no value, got `%s`", shown, value);
		if (option->kind != PP_OPTION_FLAG && !value && !(value = next_word(parser, option, shown)))
			return false;
		return store(parser, option, shown, value);
	}
	return unknown_long(parser, name);
}

static bool parse_letters(struct parser *parser, const char *letters)
{
	for (; *letters; letters++) {
		const char shown[] = {'-', *letters, '\0'};
		const struct pp_option *option = NULL;
		for (size_t i = 0; i < parser->count && !option; i++)
			if (parser->table[i].letter == *letters && known_here(&parser->table[i], parser->command))
				option = &parser->table[i];
		if (!option && (*letters == 'h' || *letters == 'V')) {
			*(*letters == 'h' ? &parser->arguments->help : &parser->arguments->version) = true;
			return true;
		}
		if (!option)
			return pp_fail(parser->status, PP_EXIT_USAGE, "unknown option %s; `%s --help` lists all", shown,
			               parser->tool);
		if (option->kind == PP_OPTION_FLAG) {
			store(parser, option, shown, NULL);
			continue;
		}
		const char *value = letters[1] ? letters + 1 : next_word(parser, option, shown);
		return value && store(parser, option, shown, value);
	}
	return true;
}

bool pp_options_parse(struct pp_arena *arena, const char *tool, const struct pp_option *table, size_t count,
                      uint32_t command, int argc, char **argv, void *values, struct pp_arguments *arguments,
                      struct pp_status *status)
{
	struct parser parser = {arena, tool, table, count, command, argc, 1, argv, values, arguments, status};
	*arguments = (struct pp_arguments){0};
	bool options = true;
	for (; parser.at < argc; parser.at++) {
		const char *word = argv[parser.at];
		bool ok = true;
		if (!options || word[0] != '-' || !word[1])
			push(arena, &arguments->operands, word);
		else if (strcmp(word, "--") == 0)
			options = false;
		else
			ok = word[1] == '-' ? parse_long(&parser, word) : parse_letters(&parser, word + 1);
		if (!ok)
			return false;
		if (arguments->help || arguments->version)
			return true;
	}
	return true;
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { HELP_COLUMN = 34 };

static void help_line(FILE *out, char letter, const char *name, const char *argument, const char *help)
{
	int column = 2;
	fputs("  ", out);
	column += letter ? fprintf(out, "-%c%s", letter, name ? ", " : "") : fprintf(out, "    ");
	if (name)
		column += fprintf(out, "--%s", name);
	if (argument)
		column += fprintf(out, "%s%s", name ? "=" : " ", argument);
	if (column >= HELP_COLUMN) {
		fputc('\n', out);
		column = 0;
	}
	fprintf(out, "%*s%s\n", HELP_COLUMN - column, "", help);
}

void pp_options_help(const struct pp_option *table, size_t count, uint32_t command, FILE *out)
{
	for (size_t i = 0; i < count; i++)
		if (known_here(&table[i], command))
			help_line(out, table[i].letter, table[i].name, table[i].argument, table[i].help);
	help_line(out, 'h', "help", NULL, "this text");
	help_line(out, 'V', "version", NULL, "name and version");
}

/* ---- lists of ranks -------------------------------------------------------------------------- */

/* Digits at *at, at most UINT32_MAX; false unless there is at least one. */
static bool rank_number(const char **at, uint32_t *rank)
{
	uint64_t number = 0;
	const char *start = *at;
	for (; **at >= '0' && **at <= '9'; (*at)++)
		number = number > UINT32_MAX ? number : number * 10 + (uint64_t)(**at - '0');
	*rank = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
	return *at > start;
}

bool pp_parse_ranks(const char *text, uint32_t count, bool *chosen, struct pp_status *status)
{
	const char *at = text;
	do {
		uint32_t first, last;
		bool ok = rank_number(&at, &first);
		last = first;
		if (ok && *at == '-') {
			at++;
			ok = rank_number(&at, &last);
		}
		if (!ok || (*at && *at != ','))
			return pp_fail(
			    status, PP_EXIT_USAGE,
			    "`%s` is no list of ranks: write numbers and ranges such as 0,3-5; the pipeline has ranks 0..%u", text,
			    count - 1);
		if (last < first)
			return pp_fail(status, PP_EXIT_USAGE, "ranks %u-%u: the range runs backwards; write %u-%u", first, last,
			               last, first);
		if (last >= count)
			return pp_fail(status, PP_EXIT_USAGE, "there is no rank %u: ranks are those of the pipeline, 0..%u", last,
			               count - 1);
		for (uint32_t rank = first; rank <= last; rank++)
			chosen[rank] = true;
	} while (*at++ == ',');
	return true;
}
