/* What `schedule search` says of itself: its figures are those of the program, in which messages wait for each other.
 */
#include "compiler/library.h"
#include "compiler/pass.h"
#include "compiler/search/make.h"
#include "ir/order_program.h"

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

static struct pp_unit compile(struct pp_arena *arena, const char *text, const char *schedule)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.schedule = schedule;
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
	struct pp_unit unit = compile(arena, fill(arena, bandwidth, objective), "se");
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
	     "search: place loop, vpp 1; makespan 46.088 us, bound 46.088 us, gap 0.0 %; from eager_1f1b; 0.0 M actions "
	     "evaluated; stopped by proof\n",
	     "{\"search\": {\"objective\": \"time\", \"place\": \"loop\", \"vpp\": 1, \"seed\": 1, \"value\": 46088, "
	     "\"simulated\": 46088, \"bound\": 46088, \"gap\": 0, \"start\": \"eager_1f1b\", \"effort\": 252, \"stopped\": "
	     "\"optimal\", \"proven\": true}}");
	says(
	    "1GB/s", "memory",
	    "search: place loop, vpp 1; makespan 46.088 us, bound 46.088 us, gap 0.0 %; from list scheduler; 0.0 M actions "
	    "evaluated; stopped by proof\n"
	    "search: activations of the fullest rank 293.2 KiB, 391.0 KiB for the fastest order; at most 5 % slower\n",
	    "{\"search\": {\"objective\": \"memory\", \"place\": \"loop\", \"vpp\": 1, \"seed\": 1, \"value\": 46088, "
	    "\"simulated\": 46088, \"bound\": 46088, \"gap\": 0, \"held_bytes\": 300288, \"held_bytes_of_fastest\": "
	    "400384, \"start\": \"list scheduler\", \"effort\": 25920, \"stopped\": \"optimal\", \"proven\": true}}");
}

static void messages_do_not_queue(void **state)
{
	(void)state;
	says("1000GB/s", "memory",
	     "search: place loop, vpp 1; makespan 14.02 us, bound 14.02 us, gap 0.0 %; from 1f1b; 0.0 M actions evaluated; "
	     "stopped by proof\n"
	     "search: activations of the fullest rank 293.2 KiB, 293.2 KiB for the fastest order; at most 5 % slower\n",
	     "{\"search\": {\"objective\": \"memory\", \"place\": \"loop\", \"vpp\": 1, \"seed\": 1, \"value\": 14020, "
	     "\"simulated\": 14020"
	     ", \"bound\": 14020, \"gap\": 0, \"held_bytes\": 300288, \"held_bytes_of_fastest\": 300288, \"start\": "
	     "\"1f1b\", \"effort\": 30708, \"stopped\": \"optimal\", "
	     "\"proven\": true}}");
}

/* Two stages a rank, whose messages share channels, the second ones larger. */
static const char chunks[] =
    "model x {\n"
    "  layer a : custom * 3 { time_f = 900ns time_i = 1us time_w = 2us output = 4KiB activation = 1KiB }\n"
    "  layer b : custom * 3 { time_f = 1us time_i = 700ns time_w = 2us output = 6KiB activation = 1KiB }\n"
    "}\n"
    "cluster c { nodes = 1 gpus = 3 gpu { memory = 64MiB } link intra { bandwidth = 500MB/s latency = 100ns } }\n"
    "parallel { pp = 3 vpp = 2 }\n"
    "stages { split { a | a | a | b | b | b } place = PLACE }\n"
    "train { microbatch = 1 microbatches = 6 }\n"
    "run { steps = 1 }\n";

static void same_as_simulated(const char *text, const char *schedule, bool queues)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit = compile(arena, text, schedule);
	struct pp_order_problem problem = *pp_order_of_program(arena, unit.program);
	struct pp_order_times times, ideal;
	assert_true(pp_order_run(arena, &problem, unit.schedule.rows, false, &times));
	problem.queued = false;
	assert_true(pp_order_run(arena, &problem, unit.schedule.rows, false, &ideal));
	assert_int_equal(times.makespan, unit.sim.makespan - unit.sim.rank[0].first);
	assert_int_equal(times.longest_span, unit.sim.longest_span);
	assert_int_equal(times.makespan > ideal.makespan, queues);
	assert_true(unit.sim.bound.makespan <= times.makespan);
	pp_arena_destroy(arena);
}

static char *place(struct pp_arena *arena, const char *how)
{
	const char *at = strstr(chunks, "PLACE");
	return pp_arena_printf(arena, "%.*s%s%s", (int)(at - chunks), chunks, how, at + strlen("PLACE"));
}

static void queues_as_simulated(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *text = fill(arena, "1GB/s", "time");
	same_as_simulated(text, "1f1b", true);
	same_as_simulated(text, "gpipe", true);
	same_as_simulated(text, "zb_h1", true);
	same_as_simulated(text, "zb_h2", true);
	same_as_simulated(fill(arena, "1000GB/s", "time"), "1f1b", false);
	same_as_simulated(place(arena, "loop"), "interleaved", true);
	same_as_simulated(place(arena, "v"), "zb_v", false);
	pp_arena_destroy(arena);
}

/* Not slower in the simulator than a named schedule that needs no more memory. */
static void never_behind_a_named_one(void **state)
{
	(void)state;
	static const char *const names[] = {"1f1b", "gpipe", "zb_h1", "zb_h2"};
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *text = fill(arena, "1GB/s", "time");
	uint64_t searched = compile(arena, text, "se").sim.makespan;
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		assert_true(searched <= compile(arena, text, names[i]).sim.makespan);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(queues_as_simulated),
	    cmocka_unit_test(never_behind_a_named_one),
	    cmocka_unit_test(messages_queue),
	    cmocka_unit_test(messages_do_not_queue),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
