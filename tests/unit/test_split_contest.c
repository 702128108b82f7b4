/* Under a bound on memory `search` is never slower than a named schedule on the split that this one would have, more
 * memory never makes it slower here, and nothing it makes is over the bound. */
#include "compiler/library.h"
#include "compiler/pass.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MIB = 1 << 20 };

static const char gpt[] = "model gpt { hidden = 1024  heads = 16  layers = 8  vocab = 50304  seq = 1024 }\n"
                          "cluster lab { nodes = 1  gpus = 3\n"
                          "  gpu { memory = 24GiB  bandwidth = 2TB/s  flops { bf16 = 300TFLOPS } }\n"
                          "  link intra { bandwidth = 25GB/s  latency = 5us } }\n"
                          "parallel { pp = 3 }\n"
                          "schedule 1f1b\n"
                          "train { microbatch = 1  microbatches = 6  dtype = bf16 }\n";
static const char small[] =
    "model gpt { hidden = 128  heads = 4  layers = 12  vocab = 256  seq = 64 }\n"
    "cluster box { nodes = 1  gpus = 4  gpu { memory = 64MiB }  link intra { bandwidth = 5GB/s  latency = 5us } }\n"
    "parallel { pp = 4 }\n"
    "stages { place = v }\n"
    "schedule v_half\n"
    "train { microbatch = 1  microbatches = 8 }\n";
static const char custom[] =
    "model measured { layer part : custom * 8 { time_f = 1ms  time_i = 1.2ms  time_w = 0.8ms\n"
    "  activation = 64MiB  output = 1MiB } }\n"
    "cluster lab { nodes = 1  gpus = 4  gpu { memory = 2GiB }  link intra { bandwidth = 20GB/s  latency = 10us } }\n"
    "parallel { pp = 4 }\n"
    "schedule 1f1b\n"
    "train { microbatch = 1  microbatches = 8 }\n";
static const char few_layers[] = "model gpt { hidden = 64  heads = 4  layers = 9  vocab = 256  seq = 32 }\n"
                                 "cluster box { nodes = 1  gpus = 3 }\n"
                                 "parallel { pp = 3 }\n"
                                 "schedule zb_h2\n"
                                 "train { microbatch = 1  microbatches = 2 }\n";
static const char tight[] =
    "model tight { layer part : custom * 7 { time_f = 3us  time_i = 8us  time_w = 7us  activation = 1MiB  output = "
    "256B }\n"
    "  layer last : custom { time_f = 3us  time_i = 8us  time_w = 7us  activation = 1MiB } }\n"
    "cluster lab { nodes = 1  gpus = 4  gpu { memory = 2GiB }  link intra { bandwidth = inf  latency = 15us } }\n"
    "parallel { pp = 4 }\n"
    "stages { place = v  split { part | part | part | part | part | part | part | last } }\n"
    "schedule v_min\n"
    "train { microbatch = 1  microbatches = 8 }\n";

/* Makespan; UINT64_MAX: refused. `taken`: bytes of the fullest rank. `bytes`: of `bound`; 0 for no bound. */
static uint64_t built_within(const char *bound, const char *text, const char *schedule, const char *vpp, uint64_t bytes,
                             uint64_t *taken)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	const char *sets[] = {vpp, pp_arena_printf(arena, "%s=%" PRIu64 "B", bound, bytes)};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.sets = sets;
	unit.options.set_count = bytes ? 2 : 1;
	unit.options.schedule = schedule;
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	uint64_t makespan = UINT64_MAX;
	if (pp_compile(&unit, PP_PASS_simulate, NULL, NULL)) {
		makespan = unit.sim.makespan;
		*taken = 0;
		for (uint32_t r = 0; r < unit.program->ranks; r++)
			*taken = unit.program->rank[r].arena_bytes > *taken ? unit.program->rank[r].arena_bytes : *taken;
		assert_true(!bytes || *taken <= bytes);
	}
	pp_arena_destroy(arena);
	return makespan;
}

static uint64_t built(const char *text, const char *schedule, const char *vpp, uint64_t bytes, uint64_t *taken)
{
	return built_within("schedule.memory", text, schedule, vpp, bytes, taken);
}

static uint64_t makespan_of(const char *text, const char *schedule, const char *vpp, uint64_t bytes)
{
	uint64_t taken;
	return built(text, schedule, vpp, bytes, &taken);
}

static void check(const char *text, const char *vpp, const uint64_t *caps, const char *const *named)
{
	uint64_t before = UINT64_MAX;
	for (; *caps; caps++) {
		uint64_t searched = makespan_of(text, "search", vpp, *caps);
		assert_true(searched < UINT64_MAX && searched <= before);
		before = searched;
		for (const char *const *name = named; *name; name++)
			if (searched > makespan_of(text, *name, vpp, *caps))
				fail_msg("%s within %" PRIu64 " bytes is faster than search, which takes %" PRIu64 " ns", *name, *caps,
				         searched);
	}
}

static void search_beats_what_fits(void **state)
{
	(void)state;
	static const char *const flat[] = {"1f1b", "eager_1f1b", "zb_h1", NULL};
	static const char *const folded[] = {"v_half", "v_min", "v_adaptive", "gis_h", NULL};
	static const uint64_t caps[] = {1536 * MIB, 1700 * MIB, 2000 * MIB, 0}, few[] = {550 * MIB, 0},
	                      rough[] = {130 * MIB, 600 * MIB, 0};
	check(gpt, "parallel.vpp=1", caps, flat);
	check(custom, "parallel.vpp=1", rough, flat);
	check(custom, "parallel.vpp=2", few, folded);
}

/* What a named schedule takes to the byte, on a split of the spec's: no room is left for an estimate. */
static void search_beats_what_fits_exactly(void **state)
{
	(void)state;
	static const char *const folded[] = {"v_half", "v_min", NULL};
	static const uint64_t caps[] = {4195584, 0};
	check(tight, "parallel.vpp=2", caps, folded);
}

/* A bound that is what a schedule takes without one: neither that schedule nor the search is slower for it. */
static void a_bound_that_is_met_costs_nothing(void **state)
{
	(void)state;
	static const struct {
		const char *text, *name, *vpp;
	} cases[] = {{few_layers, "zb_h2", "parallel.vpp=1"}, {tight, "v_half", "parallel.vpp=2"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t taken, within, free = built(cases[i].text, cases[i].name, cases[i].vpp, 0, &taken);
		assert_true(free < UINT64_MAX);
		assert_true(built(cases[i].text, cases[i].name, cases[i].vpp, taken, &within) <= free);
		assert_true(built_within("cluster.gpu.memory", cases[i].text, cases[i].name, cases[i].vpp, taken, &within) <=
		            free);
		assert_true(built(cases[i].text, "search", cases[i].vpp, taken, &within) <= free);
	}
}

static void more_memory_is_never_slower(void **state)
{
	(void)state;
	static const uint64_t caps[] = {14 * MIB, 15 * MIB};
	static const char *const names[] = {"v_half", "v_min"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		uint64_t before = UINT64_MAX;
		for (size_t k = 0; k < sizeof caps / sizeof *caps; k++) {
			uint64_t makespan = makespan_of(small, names[i], "parallel.vpp=2", caps[k]);
			assert_true(makespan < UINT64_MAX && makespan <= before);
			before = makespan;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(search_beats_what_fits), cmocka_unit_test(search_beats_what_fits_exactly),
	    cmocka_unit_test(a_bound_that_is_met_costs_nothing), cmocka_unit_test(more_memory_is_never_slower)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
