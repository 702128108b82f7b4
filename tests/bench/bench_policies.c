/* CPU time of making, lowering, planning and proving a program by every named schedule, against its size: ns for an
 * action, and the ratio to the smallest size. Prints, asserts nothing. Usage: bench_policies [POLICY] */
#include "compiler/library.h"
#include "compiler/pass.h"
#include "compiler/policy.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char text[] = "param pp : int\n"
                           "param vpp : int\n"
                           "param mbs : int\n"
                           "model g { hidden = 64  heads = 4  layers = pp * vpp  vocab = 256  seq = 32 }\n"
                           "cluster c { nodes = 1  gpus = pp  link intra { bandwidth = 100GB/s  latency = 100ns } }\n"
                           "parallel { pp = pp  vpp = vpp }\n"
                           "stages { balance = layers }\n"
                           "schedule gpipe\n"
                           "train { microbatches = mbs }\n";

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

struct clock {
	double last, spent[PP_PASS_COUNT];
};

static void take_time(const struct pp_unit *unit, enum pp_pass pass, void *context)
{
	struct clock *clock = context;
	(void)unit;
	double at = now();
	clock->spent[pass] += at - clock->last;
	clock->last = at;
}

static uint64_t actions_of(const struct pp_schedule *schedule)
{
	uint64_t count = 0;
	for (uint32_t r = 0; r < schedule->ranks; r++)
		count += schedule->rows[r].count;
	return count;
}

/* Returns ns for an action of all passes. */
static double measure(const struct pp_policy *policy, uint32_t ranks, uint32_t microbatches, double first)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	uint32_t vpp = policy->vpp ? policy->vpp : policy->place == PP_PLACE_LOOP ? 2 : 1;
	const char *defines[] = {pp_arena_printf(arena, "pp=%u", ranks), pp_arena_printf(arena, "vpp=%u", vpp),
	                         pp_arena_printf(arena, "mbs=%u", microbatches)};
	const char *place = pp_arena_printf(arena, "stages.place=%s", pp_place_name[policy->place]);
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "bench",
	                       .options = {.defines = defines,
	                                   .define_count = 3,
	                                   .sets = &place,
	                                   .set_count = policy->place != PP_PLACE_LIST,
	                                   .schedule = policy->name,
	                                   .shipped = pp_library,
	                                   .shipped_count = pp_library_count}};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.source = pp_sources_add(unit.sources, "bench.pipe", text, strlen(text));
	struct clock clock = {.last = now()};
	double start = clock.last, each = 0;
	if (pp_compile(&unit, PP_PASS_simulate, take_time, &clock)) {
		double made = clock.spent[PP_PASS_draft] + clock.spent[PP_PASS_schedule], all = now() - start;
		uint64_t actions = actions_of(&unit.schedule);
		each = 1e9 * all / (double)actions;
		printf("%-12s %4u %5u %8llu  %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.1f %7.2f\n", policy->name, ranks,
		       microbatches, (unsigned long long)actions, 1e3 * made, 1e3 * clock.spent[PP_PASS_lower],
		       1e3 * clock.spent[PP_PASS_plan], 1e3 * clock.spent[PP_PASS_verify], 1e3 * clock.spent[PP_PASS_simulate],
		       1e3 * all, each, first > 0 ? each / first : 1.0);
	} else {
		pp_diag_print(unit.diag, stdout, PP_DIAG_HUMAN, false);
	}
	fflush(stdout);
	pp_arena_destroy(arena);
	return each;
}

int main(int argc, char **argv)
{
	static const uint32_t shapes[][2] = {{16, 64}, {16, 256}, {64, 256}, {64, 1024}};
	printf("%-12s %4s %5s %8s  %9s %9s %9s %9s %9s %9s %9s %7s\n", "policy", "p", "m", "actions", "make_ms", "lower_ms",
	       "plan_ms", "verify_ms", "sim_ms", "all_ms", "ns/action", "ratio");
	for (size_t i = 0; i < pp_policy_count; i++) {
		const struct pp_policy *policy = &pp_policies[i];
		double first = 0;
		if (policy->status != PP_NOW || (argc > 1 && strcmp(argv[1], policy->name) != 0))
			continue;
		for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
			double each = measure(policy, shapes[s][0], shapes[s][1], first);
			first = first > 0 ? first : each;
		}
	}
	return 0;
}
