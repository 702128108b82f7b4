/* What is said of a plan that is over its memory: the numbers of the leanest build where that is over, too, else of the
 * plan. */
#include "compiler/lean.h"
#include "compiler/library.h"
#include "compiler/rounds.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char text[] =
    "model measured { layer part : custom * 8 { time_f = 1ms  time_i = 1.2ms  time_w = 0.8ms\n"
    "  activation = 64MiB  output = 1MiB } }\n"
    "cluster lab { nodes = 1  gpus = 4  gpu { memory = 2GiB }  link intra { bandwidth = 20GB/s  latency = 10us } }\n"
    "parallel { pp = 4 }\n"
    "schedule 1f1b\n"
    "train { microbatch = 1  microbatches = 8 }\n";

/* The message about a plan of 600 MiB in `memory` where another build needs `lean`. */
static void check(uint64_t memory, uint64_t lean, const char *said)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	assert_true(pp_compile(&unit, PP_PASS_plan, NULL, NULL));
	unit.resolved.spec.cluster.gpu.memory = memory;
	unit.program->rank[2].arena_bytes = (uint64_t)600 << 20;
	unit.lean = &(struct pp_lean){.needed = lean, .rank = 1};
	assert_false(pp_rounds_within(&unit));
	char *printed = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&printed, &size);
	pp_diag_print(unit.diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	if (!strstr(printed, said))
		fail_msg("want \"%s\" in:\n%s", said, printed);
	free(printed);
	pp_arena_destroy(arena);
}

static void the_shortage_is_never_negative(void **state)
{
	(void)state;
	const uint64_t mebibyte = 1 << 20;
	check(300 * mebibyte, 400 * mebibyte, "rank 1 needs 400.0 MiB of 300.0 MiB (100.0 MiB over)\n");
	check(300 * mebibyte, 300 * mebibyte, "rank 2 needs 600.0 MiB of 300.0 MiB (300.0 MiB over)\n");
	check(300 * mebibyte, 200 * mebibyte, "rank 2 needs 600.0 MiB of 300.0 MiB (300.0 MiB over)\n");
	check(300 * mebibyte, 700 * mebibyte, "rank 2 needs 600.0 MiB of 300.0 MiB (300.0 MiB over)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_shortage_is_never_negative)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
