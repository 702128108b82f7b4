/* docs/isa.md holds the instruction tables as ops.def has them. PP_UPDATE=1 rewrites the tables in place. */
#include "ir/arena.h"
#include "ir/file.h"
#include "ir/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char path[] = PP_SOURCE_DIR "/docs/isa.md";
static const char begin_mark[] = "<!-- tables from ir/ops.def: begin -->\n";
static const char end_mark[] = "<!-- tables from ir/ops.def: end -->\n";

static void print_tables(FILE *out)
{
	fputs("\n## Stream instructions\n\n| instruction | operands | meaning |\n|---|---|---|\n", out);
	for (unsigned op = 0; op < PP_OP_COUNT; op++)
		fprintf(out, "| `%s` | `%s` | %s |\n", pp_op_table[op].mnemonic, pp_op_table[op].signature,
		        pp_op_table[op].meaning);
	fputs("\n## Body instructions\n\n| instruction | inputs | outputs | numbers | meaning |\n|---|---|---|---|---|\n",
	      out);
	for (unsigned op = 0; op < PP_BODY_OP_COUNT; op++) {
		struct pp_body_op_info info = pp_body_op_info((enum pp_body_op)op);
		fprintf(out, "| `%s` | %s | %s | %s | %s |\n", info.mnemonic, info.inputs, info.outputs, info.immediates,
		        info.meaning);
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
	print_tables(out);
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
