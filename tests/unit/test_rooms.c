/* Orders that a policy makes for less room than there is compete where memory is short: more memory is not slower. */
#include "compiler/library.h"
#include "compiler/pass.h"
#include "compiler/summary.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char small_gpt[] =
    "model gpt { hidden = 128  heads = 4  layers = 12  vocab = 256  seq = 64 }\n"
    "cluster box { nodes = 1  gpus = 4  gpu { memory = 64MiB }  link intra { bandwidth = 5GB/s  latency = 5us } }\n"
    "parallel { pp = 4 }\n"
    "train { microbatch = 1  microbatches = 8 }\n"
    "run { schedule = greedy  data = synthetic(seed = 1)  steps = 5  lr = 1e-3 }\n"
    "schedule greedy { policy { prefer I > F > W } }\n"
    "schedule eager { policy { prefer F > I > W } }\n"
    "schedule counted { policy { limit F - I <= p - r  prefer I > F > W when I - W < 2  prefer W > I > F } }\n";

static struct pp_unit open_unit(struct pp_arena *arena, const char *text, const char *schedule, const char *const *sets,
                                size_t count)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.sets = sets;
	unit.options.set_count = count;
	unit.options.schedule = schedule;
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	return unit;
}

/* Makespan; UINT64_MAX: refused. */
static uint64_t makespan_within(const char *text, const char *schedule, uint64_t bytes)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *sets[] = {pp_arena_printf(arena, "schedule.memory=%" PRIu64 "B", bytes)};
	struct pp_unit unit = open_unit(arena, text, schedule, sets, 1);
	uint64_t makespan = UINT64_MAX;
	if (pp_compile(&unit, PP_PASS_simulate, NULL, NULL)) {
		makespan = unit.sim.makespan;
		for (uint32_t r = 0; r < unit.program->ranks; r++)
			assert_true(unit.program->rank[r].arena_bytes <= bytes);
	}
	pp_arena_destroy(arena);
	return makespan;
}

/* Under each of these the policy took its room at once and was stuck, where less had given it an order. */
static void more_memory_is_not_slower(void **state)
{
	(void)state;
	static const char *const rules[] = {"greedy", "eager", "counted"};
	static const unsigned kibibytes[] = {14500, 15000, 16000, 16500, 19000, 19500};
	for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++) {
		uint64_t before = UINT64_MAX;
		for (unsigned k = 0; k < sizeof kibibytes / sizeof *kibibytes; k++) {
			uint64_t now = makespan_within(small_gpt, rules[i], (uint64_t)kibibytes[k] << 10);
			if (now > before)
				fail_msg("%s within %u KiB takes %" PRIu64 " ns, and %" PRIu64 " in less", rules[i], kibibytes[k], now,
				         before);
			before = now;
		}
	}
}

/* The summary of a build of `greedy`. */
static void summarise(const char *microbatches, char *said, size_t room)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *sets[] = {"schedule.memory=16500KiB", microbatches};
	struct pp_unit unit = open_unit(arena, small_gpt, "greedy", sets, 2);
	assert_true(pp_compile(&unit, PP_PASS_simulate, NULL, NULL));
	FILE *out = fmemopen(said, room, "w");
	pp_summary_print(&unit, NULL, false, out);
	fclose(out);
	pp_arena_destroy(arena);
}

/* Of a step with as many actions only the leanest order is made. */
static void leanest_order_is_said(void **state)
{
	(void)state;
	char said[1024];
	summarise("train.microbatches=1700", said, sizeof said);
	assert_non_null(strstr(said, "\norder: the leanest that is known, "));
	summarise("train.microbatches=8", said, sizeof said);
	assert_null(strstr(said, "leanest"));
}

/* What a refusal calls enough is no more than what the build without a limit takes. */
static void no_more_is_advised_than_is_taken(void **state)
{
	(void)state;
	static const char *const schedules[] = {"zb_h1", "gis"};
	for (unsigned i = 0; i < 2; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const char *sets[] = {"parallel.vpp=2", "schedule.memory=9MiB"};
		struct pp_unit free = open_unit(arena, small_gpt, schedules[i], sets, 1),
		               tight = open_unit(arena, small_gpt, schedules[i], sets, 2);
		assert_true(pp_compile(&free, PP_PASS_simulate, NULL, NULL));
		assert_false(pp_compile(&tight, PP_PASS_simulate, NULL, NULL));
		uint64_t taken = 0;
		for (uint32_t r = 0; r < free.program->ranks; r++)
			taken = free.program->rank[r].arena_bytes > taken ? free.program->rank[r].arena_bytes : taken;
		char said[4096] = "";
		FILE *out = fmemopen(said, sizeof said, "w");
		pp_diag_print(tight.diag, out, PP_DIAG_HUMAN, false);
		fclose(out);
		const char *advice = strstr(said, "`memory <= ");
		assert_non_null(advice);
		assert_true(strtoull(advice + strlen("`memory <= "), NULL, 10) <= taken);
		pp_arena_destroy(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(more_memory_is_not_slower),
	                                   cmocka_unit_test(leanest_order_is_said),
	                                   cmocka_unit_test(no_more_is_advised_than_is_taken)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
