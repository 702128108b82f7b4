/* Tables of tests/data: fields separated by tabs, names in the first line. */
#ifndef PP_TEST_TABLE_H
#define PP_TEST_TABLE_H

#include "ir/arena.h"
#include "golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_COLUMNS = 40 };

struct table {
	struct pp_arena *arena;
	const char *names[TABLE_COLUMNS], *fields[TABLE_COLUMNS];
	size_t columns;
	char *at; /* rest of the text */
};

static inline size_t table_cut(char *line, const char **fields)
{
	size_t count = 0;
	for (char *at = line; at && count < TABLE_COLUMNS; count++) {
		fields[count] = at;
		at = strchr(at, '\t');
		if (at)
			*at++ = '\0';
	}
	return count;
}

static inline char *table_line(struct table *table)
{
	char *line = table->at, *end = strchr(line, '\n');
	if (*line == '\0')
		return NULL;
	table->at = end ? end + 1 : line + strlen(line);
	if (end)
		*end = '\0';
	return line;
}

/* Its whole text, in the arena. */
static inline char *table_text(struct pp_arena *arena, const char *name)
{
	const char *path = pp_arena_printf(arena, "%s/%s", PP_TEST_DATA, name);
	FILE *file = fopen(path, "rb");
	if (!file)
		fail_msg("cannot open %s", path);
	fseek(file, 0, SEEK_END);
	size_t length = (size_t)ftell(file);
	rewind(file);
	char *text = pp_arena_alloc(arena, length + 1, 1);
	assert_int_equal(fread(text, 1, length, file), length);
	fclose(file);
	text[length] = '\0';
	return text;
}

static inline struct table table_open(const char *name)
{
	struct table table = {.arena = pp_arena_create(NULL)};
	table.at = table_text(table.arena, name);
	char *names = table_line(&table);
	assert_non_null(names);
	table.columns = table_cut(names, table.names);
	return table;
}

static inline bool table_next(struct table *table)
{
	char *line = table_line(table);
	if (!line)
		return false;
	for (size_t i = 0; i < TABLE_COLUMNS; i++)
		table->fields[i] = "";
	table_cut(line, table->fields);
	return true;
}

static inline const char *table_field(const struct table *table, const char *name)
{
	for (size_t i = 0; i < table->columns; i++)
		if (strcmp(table->names[i], name) == 0)
			return table->fields[i];
	fail_msg("no column %s", name);
	return "";
}

static inline double table_number(const struct table *table, const char *name)
{
	return strtod(table_field(table, name), NULL);
}

static inline void table_close(struct table *table)
{
	pp_arena_destroy(table->arena);
}

#endif
