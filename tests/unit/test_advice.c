/* What the compiler says of memory is true: what it calls enough is, what it refuses does not fit, and what it calls
 * proven under a bound is beaten by no order that fits. Each spec once led to a wrong statement. */
#include "compiler/library.h"
#include "compiler/pass.h"
#include "compiler/search/search.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct pp_unit open_unit(struct pp_arena *arena, const char *text, const char *schedule, const char *memory)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	const char **sets = PP_NEW_ARRAY(arena, const char *, 1);
	sets[0] = memory;
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.sets = sets;
	unit.options.set_count = memory != NULL;
	unit.options.schedule = schedule;
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	return unit;
}

static uint64_t most_bytes(const struct pp_program *program)
{
	uint64_t most = 0;
	for (uint32_t r = 0; r < program->ranks; r++)
		most = program->rank[r].arena_bytes > most ? program->rank[r].arena_bytes : most;
	return most;
}

/* Makespan from the first action on; 0: refused, `said` then holds the messages. `bytes`: of the fullest rank. */
static uint64_t build(const char *text, const char *schedule, uint64_t memory, uint64_t *bytes, char *said, size_t room)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *set = memory ? pp_arena_printf(arena, "schedule.memory=%" PRIu64 "B", memory) : NULL;
	struct pp_unit unit = open_unit(arena, text, schedule, set);
	uint64_t makespan = 0;
	*bytes = 0;
	if (pp_compile(&unit, PP_PASS_simulate, NULL, NULL)) {
		makespan = unit.sim.makespan - unit.sim.rank[0].first;
		*bytes = most_bytes(unit.program);
		assert_true(memory == 0 || *bytes <= memory);
		/* a bound holds for all that fits, and a proof is the bound */
		assert_true(unit.sim.bound.makespan <= makespan);
	}
	if (said) {
		FILE *out = fmemopen(said, room, "w");
		pp_diag_print(unit.diag, out, PP_DIAG_HUMAN, false);
		fclose(out);
	}
	pp_arena_destroy(arena);
	return makespan;
}

/* Refused, and what is called enough is. Returns that. */
static uint64_t advised(const char *text, const char *schedule, uint64_t memory, const char *code)
{
	char said[4096] = "";
	uint64_t enough = 0, bytes;
	assert_int_equal(build(text, schedule, memory, &bytes, said, sizeof said), 0);
	assert_non_null(strstr(said, code));
	const char *at = strstr(said, "= help: `memory <= ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "= help: `memory <= %" SCNu64 "B` is enough", &enough), 1);
	assert_true(enough > memory);
	assert_true(build(text, schedule, enough, &bytes, NULL, 0) > 0);
	assert_true(build(text, schedule, enough + enough / 50, &bytes, NULL, 0) > 0);
	return enough;
}

static const char tiny[] = "model tiny    { hidden = 64  heads = 4  layers = 8  vocab = 256 }\n"
                           "cluster local { nodes = 1  gpus = 4 }\n"
                           "parallel      { pp = 4  vpp = 1 }\n"
                           "stages        { balance = even }\n"
                           "train         { seq = 32  microbatch = 1  microbatches = 8 }\n"
                           "run           { data = synthetic(seed = 1)  steps = 20  lr = 1e-3 }\n"
                           "schedule lean extends search { effort = 20000 }\n"
                           "schedule mixed { order { (F B)*m | (F I W)*m | (F I W)*m | (F B)*m } }\n"
                           "schedule whole { order for r { (F B)*m } }\n"
                           "schedule parts { order for r { (F I W)*m } }\n";

/* A rank that is whole and one that is split: what fits exactly is not refused. */
static void mixed_rows_fit(void **state)
{
	(void)state;
	uint64_t bytes, again;
	assert_true(build(tiny, "mixed", 0, &bytes, NULL, 0) > 0);
	assert_true(build(tiny, "mixed", bytes, &again, NULL, 0) > 0);
	assert_int_equal(advised(tiny, "mixed", bytes - 1, "E0671"), bytes);
	assert_int_equal(advised(tiny, "whole", bytes - 30000, "E0671"), bytes);
}

/* Nothing that fits is faster than what is called optimal there; and where one fits, search finds one too. */
static void proofs_hold(const char *text, const char *search, const char *const *others, uint64_t memory)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit =
	    open_unit(arena, text, search, pp_arena_printf(arena, "schedule.memory=%" PRIu64 "B", memory));
	assert_true(pp_compile(&unit, PP_PASS_simulate, NULL, NULL));
	const struct pp_search_report *report = unit.schedule.search;
	assert_non_null(report);
	assert_true(most_bytes(unit.program) <= memory);
	unsigned fitting = 0;
	for (; *others; others++) {
		uint64_t bytes, makespan = build(text, *others, 0, &bytes, NULL, 0);
		assert_true(makespan > 0);
		if (bytes > memory)
			continue;
		fitting++;
		assert_true(report->bound.makespan <= makespan);
	}
	assert_true(fitting > 0);
	pp_arena_destroy(arena);
}

static void proof_of_one_form(void **state)
{
	(void)state;
	static const char *const others[] = {"mixed", "whole", NULL};
	proofs_hold(tiny, "lean", others, 2244864);
}

static const char messages[] =
    "model x {\n"
    "  layer l0 : custom { time_f = 5us time_i = 19us time_w = 2us output = 4B activation = 3145728B }\n"
    "  layer l1 : custom { time_f = 5us time_i = 4us time_w = 13us output = 64B activation = 1048576B }\n"
    "  layer l2 : custom { time_f = 1us time_i = 5us time_w = 2us  activation = 3145728B }\n"
    "}\n"
    "cluster c { nodes = 1 gpus = 3 gpu { memory = 64MiB } link intra { bandwidth = inf latency = 0ns } }\n"
    "parallel { pp = 3 vpp = 1 }\n"
    "stages { split { l0 | l1 | l2 } place = loop }\n"
    "train { microbatch = 1 microbatches = 4 }\n"
    "run { steps = 1 }\n"
    "schedule o0 { order { F F F B B F B B | F F B B F B F B | F B F B F B F B } }\n"
    "schedule o1 { order { F F F F B B B B | F F B B F F B B | F B F B F B F B } }\n"
    "schedule o4 { order { F F F I I W F I W W I W | F F I W I W F I W F I W | F I W F I W F I W F I W } }\n"
    "schedule o5 { order { F F F F I I I I W W W W | F F I I F F I I W W W W | F I F I W W F I F I W W } }\n"
    "schedule se extends search { effort = 20000 }\n";

/* The fastest order needs fewer messages than another that was planned first. */
static void proof_with_few_messages(void **state)
{
	(void)state;
	static const char *const others[] = {"o0", "o1", "o4", "o5", NULL};
	proofs_hold(messages, "se", others, 12583680);
}

static const char narrow[] =
    "model x {\n"
    "  layer l0 : custom { time_f = 20us time_i = 5us time_w = 1us output = 64B activation = 1234567B }\n"
    "  layer l1 : custom { time_f = 20us time_i = 5us time_w = 1us  activation = 5242880B }\n"
    "}\n"
    "cluster c { nodes = 1 gpus = 2 gpu { memory = 64MiB } link intra { bandwidth = 1GB/s latency = 1us } }\n"
    "parallel { pp = 2 vpp = 1 }\n"
    "stages { split { l0 | l1 } place = loop }\n"
    "train { microbatch = 1 microbatches = 3 }\n"
    "run { steps = 1 }\n"
    "schedule o0 { order { F F B F B B | F B F B F B } }\n"
    "schedule o4 { order { F F I W F I W I W | F I W F I W F I W } }\n"
    "schedule serial { order { F B F B F B | F B F B F B } }\n"
    "schedule se extends search { effort = 20000 }\n";

/* "No order fits" is said only where none does, to the byte. */
static void least_memory(void **state)
{
	(void)state;
	static const char *const others[] = {"serial", NULL};
	uint64_t bytes, least;
	assert_true(build(narrow, "serial", 0, &least, NULL, 0) > 0);
	proofs_hold(narrow, "se", others, least);
	assert_true(build(narrow, "se", 5243392, &bytes, NULL, 0) > 0);
	assert_true(advised(narrow, "se", least - 1, "E0640") <= least);
	assert_true(build(narrow, "o0", 0, &bytes, NULL, 0) > 0);
	uint64_t given = build(narrow, "o0", bytes, &least, NULL, 0), found = build(narrow, "se", bytes, &least, NULL, 0);
	assert_true(found > 0 && found <= given);
}

static const char measured[] =
    "model measured { layer part : custom * 8 { time_f = 1ms  time_i = 1.2ms  time_w = 0.8ms  activation = 64MiB  "
    "output "
    "= 1MiB } }\n"
    "cluster lab    { nodes = 1  gpus = 4  gpu { memory = 2GiB }  link intra { bandwidth = 20GB/s  latency = 10us } }\n"
    "parallel       { pp = 4  vpp = 1 }\n"
    "train          { microbatch = 1  microbatches = 8 }\n";
static const char gpt[] = "model gpt   { hidden = 1024  heads = 16  layers = 24  vocab = 50304  seq = 1024 }\n"
                          "cluster lab { nodes = 1  gpus = 6\n"
                          "  gpu { memory = 24GiB  bandwidth = 2TB/s  flops { bf16 = 300TFLOPS } }  link intra { "
                          "bandwidth = 25GB/s  latency = "
                          "5us } }\n"
                          "parallel    { pp = 6 }\n"
                          "train       { microbatch = 1  microbatches = 16  dtype = bf16 }\n";

/* Where the split is ours, the number is that of the split whose fullest rank needs least. */
static void splits(void **state)
{
	(void)state;
	assert_int_equal(advised(measured, "1f1b", 256 << 20, "E0501"), 260 << 20);
	advised(measured, "zb_h1", 256 << 20, "E0501");
	advised(measured, "eager_1f1b", 256 << 20, "E0501");
	advised(gpt, "zb_h1", 1800 << 20, "E0501");
	advised(gpt, "1f1b", 1000 << 20, "E0501");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(mixed_rows_fit), cmocka_unit_test(proof_of_one_form),
	                                   cmocka_unit_test(proof_with_few_messages), cmocka_unit_test(least_memory),
	                                   cmocka_unit_test(splits)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
