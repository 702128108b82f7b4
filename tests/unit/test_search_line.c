/* What `schedule search` says of itself: its figures are those of the order; where the messages of the program queue,
 * that is said, and nothing is called proven that the program does not reach. */
#include "compiler/library.h"
#include "compiler/pass.h"
#include "compiler/search/make.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Messages of 8 KiB take 8.192 us at 1 GB/s, the computes between them a few. */
static const char slow[] =
    "model x {\n"
    "  layer l0 : custom { time_f = 0ns time_i = 1us time_w = 2us output = 64B activation = 100000B }\n"
    "  layer l1 : custom { time_f = 0ns time_i = 1us time_w = 2us output = 8192B activation = 0B }\n"
    "  layer l2 : custom { time_f = 0ns time_i = 1us time_w = 2us activation = 1000B }\n"
    "}\n"
    "cluster c { nodes = 1 gpus = 3 gpu { memory = 64MiB } link intra { bandwidth = BANDWIDTH latency = 0ns } }\n"
    "parallel { pp = 3 vpp = 1 }\n"
    "stages { split { l0 | l1 | l2 } place = loop }\n"
    "train { microbatch = 1 microbatches = 4 }\n"
    "run { steps = 1 }\n"
    "schedule se extends search { objective = OBJECTIVE effort = 20000 }\n";

/* The text with its two words filled in. */
static char *fill(struct pp_arena *arena, const char *bandwidth, const char *objective)
{
	const char *at = strstr(slow, "BANDWIDTH"), *then = strstr(slow, "OBJECTIVE");
	const char *between = at + strlen("BANDWIDTH"), *rest = then + strlen("OBJECTIVE");
	return pp_arena_printf(arena, "%.*s%s%.*s%s%s", (int)(at - slow), slow, bandwidth, (int)(then - between), between,
	                       objective, rest);
}

static struct pp_unit compile(struct pp_arena *arena, const char *bandwidth, const char *objective)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	const char *text = fill(arena, bandwidth, objective);
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.schedule = "se";
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	if (!pp_compile(&unit, PP_PASS_simulate, NULL, NULL)) {
		pp_diag_print(unit.diag, stderr, PP_DIAG_HUMAN, false);
		fail();
	}
	return unit;
}

static void says(const char *bandwidth, const char *objective, const char *line, const char *object)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit = compile(arena, bandwidth, objective);
	char *text = NULL, *json_text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	assert_non_null(out);
	pp_search_print(arena, &unit.resolved, &unit.schedule, &unit.sim, out);
	fclose(out);
	out = open_memstream(&json_text, &size);
	assert_non_null(out);
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_search_json(&unit.resolved, &unit.schedule, &unit.sim, &json);
	pp_json_close(&json);
	fclose(out);
	assert_string_equal(text, line);
	assert_string_equal(json_text, object);
	free(text);
	free(json_text);
	pp_arena_destroy(arena);
}

static void messages_queue(void **state)
{
	(void)state;
	says("1GB/s", "time",
	     "search: ideal makespan 30.512 us (transfers that do not wait for each other; simulated 70.664 us), "
	     "bound 30.512 us, gap 0.0 %; from gpipe; 0.0 M actions evaluated; optimal but for transfers that queue\n",
	     "{\"search\": {\"objective\": \"time\", \"seed\": 1, \"value\": 30512, \"simulated\": 70664"
	     ", \"bound\": 30512, \"gap\": 0, \"start\": \"gpipe\", \"effort\": 252, \"stopped\": \"optimal\", \"proven\": "
	     "false}}");
	says("1GB/s", "span",
	     "search: ideal longest span 30.512 us (transfers that do not wait for each other; simulated 70.664 us), "
	     "bound 30.512 us, gap 0.0 %; from gpipe; 0.0 M actions evaluated; optimal but for transfers that queue\n",
	     "{\"search\": {\"objective\": \"span\", \"seed\": 1, \"value\": 30512, \"simulated\": 70664"
	     ", \"bound\": 30512, \"gap\": 0, \"start\": \"gpipe\", \"effort\": 252, \"stopped\": \"optimal\", \"proven\": "
	     "false}}");
}

static void messages_do_not_queue(void **state)
{
	(void)state;
	says("1000GB/s", "memory",
	     "search: makespan 14.02 us, bound 14.02 us, gap 0.0 %; from 1f1b; 0.0 M actions evaluated; stopped by proof\n",
	     "{\"search\": {\"objective\": \"memory\", \"seed\": 1, \"value\": 14020, \"simulated\": 14020"
	     ", \"bound\": 14020, \"gap\": 0, \"start\": \"1f1b\", \"effort\": 25740, \"stopped\": \"optimal\", "
	     "\"proven\": true}}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_queue),
	    cmocka_unit_test(messages_do_not_queue),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
