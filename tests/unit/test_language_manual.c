/* docs/language.md holds the attributes of the language as schema.def has them. PP_UPDATE=1 rewrites the tables. */
#include "compiler/schema.h"
#include "ir/arena.h"
#include "ir/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char path[] = PP_SOURCE_DIR "/docs/language.md";
static const char begin_mark[] = "<!-- tables from compiler/schema.def: begin -->\n";
static const char end_mark[] = "<!-- tables from compiler/schema.def: end -->";

static const char *preset_of(const struct pp_attribute_row *row)
{
	if (strncmp(row->preset, "required", 8) == 0)
		return "required";
	return strcmp(row->preset, "derived") == 0 ? "" : row->preset;
}

/* `|` separates the cells of a table. */
static void print_cell(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void print_block(struct pp_arena *arena, FILE *out, enum pp_block block)
{
	const struct pp_block_row *row = &pp_block_table[block];
	size_t count;
	enum pp_attribute first = pp_schema_first(block, &count);
	bool arguments = strcmp(row->parents, "()") == 0;
	fprintf(out, "\n**`%s%s`**: %s\n\n| attribute | value | default | meaning |\n|---|---|---|---|\n", row->name,
	        arguments ? "(…)" : "", row->doc);
	for (size_t i = 0; i < count; i++) {
		const struct pp_attribute_row *attribute = &pp_attribute_table[first + i];
		if (attribute->status != PP_NOW)
			continue;
		fprintf(out, "| `%s` | ", attribute->name);
		print_cell(out, pp_schema_wanted(arena, attribute));
		if (*attribute->range)
			fprintf(out, ", %s", attribute->range);
		fprintf(out, " | %s | ", preset_of(attribute));
		print_cell(out, attribute->doc);
		fputs(" |\n", out);
	}
}

static void print_tables(struct pp_arena *arena, FILE *out)
{
	fputs("\n## Blocks and attributes\n\nWhat a default is derived from stands after the semicolon of its meaning.\n",
	      out);
	for (int block = 0; block < PP_BLOCK_COUNT; block++) {
		size_t count;
		pp_schema_first((enum pp_block)block, &count);
		if (pp_block_table[block].status == PP_NOW && count > 0 && strcmp(pp_block_table[block].name, "sgd") != 0)
			print_block(arena, out, (enum pp_block)block);
	}
	fputc('\n', out);
}

static void manual_is_current(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_status status;
	char *text;
	size_t length;
	assert_true(pp_file_read(arena, path, &text, &length, &status));
	char *begin = strstr(text, begin_mark), *end = strstr(text, end_mark);
	assert_non_null(begin);
	assert_non_null(end);
	begin += sizeof begin_mark - 1;

	char *tables = NULL;
	size_t tables_length = 0;
	FILE *out = open_memstream(&tables, &tables_length);
	print_tables(arena, out);
	fclose(out);
	if (getenv("PP_UPDATE")) {
		char *whole = pp_arena_printf(arena, "%.*s%s%s", (int)(begin - text), text, tables, end);
		assert_true(pp_file_write(path, whole, strlen(whole), &status));
	} else {
		*end = '\0';
		assert_string_equal(begin, tables);
	}
	free(tables);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(manual_is_current)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
