/* docs/program-text.md holds the tables of the text form as program_fields.c has them, and its example is a program
 * that is proven. PP_UPDATE=1 rewrites the tables in place. */
#include "golden.h"

#include "ir/file.h"
#include "ir/program_fields.h"
#include "ir/program_text.h"
#include "ir/verify.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char path[] = PP_SOURCE_DIR "/docs/program-text.md";
static const char begin_mark[] = "<!-- tables from ir/program_fields.c: begin -->\n";
static const char end_mark[] = "<!-- tables from ir/program_fields.c: end -->\n";

/* What the value of a field looks like. */
static const char *value_of(struct pp_arena *arena, const struct pp_field *field)
{
	char *names = NULL;
	switch (field->kind) {
	case PP_FIELD_U8:
	case PP_FIELD_U32:
	case PP_FIELD_U64:
	case PP_FIELD_PLACE:
		return "N";
	case PP_FIELD_FLAG:
		return "";
	case PP_FIELD_NUMBER:
		return "X";
	case PP_FIELD_NAME:
		names = pp_arena_printf(arena, "%s", field->names[0]);
		for (uint32_t i = 1; i < field->name_count; i++)
			names = pp_arena_printf(arena, "%s\\|%s", names, field->names[i]);
		return names;
	case PP_FIELD_INDEX:
		return field->letter ? pp_arena_printf(arena, "%cN", field->letter) : "RANK";
	case PP_FIELD_TEXT:
		return "\"text\"";
	case PP_FIELD_WORD:
		return "NAME";
	case PP_FIELD_PAYLOAD:
		return "f32*N";
	case PP_FIELD_SHAPE:
		return "f32*N or f32*NxN";
	case PP_FIELD_PHASES:
		return "N N N N [N]";
	case PP_FIELD_RANKS:
		return "0,3-5";
	case PP_FIELD_SLOT:
		return pp_arena_printf(arena, "%s.N", field->names[0]);
	case PP_FIELD_BASE:
		return "BASE";
	}
	return "";
}

static const char *default_of(struct pp_arena *arena, const struct pp_field *field)
{
	if (field->required)
		return "";
	if (field->kind == PP_FIELD_NAME)
		return pp_arena_printf(arena, " (%s)", field->names[field->initial]);
	if (field->kind == PP_FIELD_PHASES && field->initials)
		return pp_arena_printf(arena, " (%u %u %u %u)", (unsigned)field->initials[0], (unsigned)field->initials[1],
		                       (unsigned)field->initials[2], (unsigned)field->initials[3]);
	bool whole = field->kind == PP_FIELD_U8 || field->kind == PP_FIELD_U32 || field->kind == PP_FIELD_U64;
	if (whole && field->initial && field->initial != PP_NULL)
		return pp_arena_printf(arena, " (%u)", (unsigned)field->initial);
	return "";
}

static void print_line(struct pp_arena *arena, FILE *out, const struct pp_record *record)
{
	fprintf(out, "| `%s", record->word);
	if (record->letter)
		fprintf(out, " %cN", record->letter);
	if (strcmp(record->word, "device") == 0)
		fputs(" RANK", out);
	if (strcmp(record->word, "slot") == 0)
		fputs(" RANK class.N", out);
	for (uint32_t i = 0; i < record->field_count; i++)
		if (record->fields[i].key && !*record->fields[i].key)
			fprintf(out, " %s", value_of(arena, &record->fields[i]));
	fputs("` |", out);
	const char *comma = " ";
	for (uint32_t i = 0; i < record->field_count; i++) {
		const struct pp_field *field = &record->fields[i];
		if (!field->key || !*field->key)
			continue;
		const char *value = value_of(arena, field);
		fprintf(out, "%s%s`%s%s%s`%s%s", comma, field->required ? "**" : "", field->key, *value ? " " : "", value,
		        default_of(arena, field), field->required ? "**" : "");
		comma = ", ";
	}
	fputs(" |\n", out);
}

static void print_tables(struct pp_arena *arena, FILE *out)
{
	fputs(
	    "\n## Table lines\n\nBold keys are required; in parentheses what a key left out means, where that is not 0 or "
	    "nothing.\n\n| line | keys |\n|---|---|\n",
	    out);
	for (unsigned kind = 0; kind < PP_RECORD_COUNT; kind++)
		print_line(arena, out, &pp_record_table[kind]);
	fputs("\nTimes are ns, sizes bytes, bandwidths bytes per second. `ticks` and `flops` are of F, B, I, W. `messages` "
	      "left out is the number of sends on the channel.\n\n",
	      out);
}

static void tables_are_current(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	char *tables = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&tables, &length);
	print_tables(arena, out);
	fclose(out);
	golden_part(arena, path, begin_mark, end_mark, tables);
	free(tables);
	pp_arena_destroy(arena);
}

static void example_is_proven(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	struct pp_status status;
	char *text;
	size_t length;
	assert_true(pp_file_read(arena, path, &text, &length, &status));
	char *begin = strstr(text, "pps 1"), *end = strstr(begin, "```");
	*end = '\0';
	struct pp_program *program =
	    pp_program_read(arena, pp_sources_add(sources, "program-text.md", begin, strlen(begin)), diag);
	struct pp_stamp stamp;
	bool proven = program && pp_verify(program, &stamp, diag);
	if (!proven)
		pp_diag_print(diag, stderr, PP_DIAG_HUMAN, false);
	assert_true(proven);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(tables_are_current), cmocka_unit_test(example_is_proven)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
