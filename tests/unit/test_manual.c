/* docs/isa.md holds the instruction tables as ops.def has them. PP_UPDATE=1 rewrites the tables in place. */
#include "golden.h"

#include "ir/arena.h"
#include "ir/file.h"
#include "ir/ops.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	char *tables = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&tables, &length);
	print_tables(out);
	fclose(out);
	golden_part(arena, path, begin_mark, end_mark, tables);
	free(tables);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(manual_is_current)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
