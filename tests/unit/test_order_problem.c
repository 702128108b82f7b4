/* The ordering problem of stages has the costs of the program that is made of them; its order takes the simulated time
 * from the first forward on, whatever the policy, the links and the costs of the layers. */
#include "compiler/library.h"
#include "compiler/order_problem.h"
#include "compiler/memory_floor.h"
#include "compiler/pass.h"
#include "compiler/policy.h"
#include "compiler/schedule_make.h"
#include "ir/order_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_SETS = 8, MOST_WAITING = 12 };

static struct pp_unit make(struct pp_arena *arena, const char *text, const char *const *sets, const char *schedule)
{
	struct pp_unit unit = {.arena = arena,
	                       .strings = pp_strtab_create(arena),
	                       .sources = pp_sources_create(arena),
	                       .tool_version = "test"};
	unit.diag = pp_diag_create(arena, unit.sources);
	unit.options.sets = sets;
	while (sets && sets[unit.options.set_count])
		unit.options.set_count++;
	unit.options.schedule = schedule;
	unit.options.shipped = pp_library;
	unit.options.shipped_count = pp_library_count;
	unit.source = pp_sources_add(unit.sources, "x.pipe", text, strlen(text));
	return unit;
}

static void compile(struct pp_unit *unit)
{
	if (pp_compile(unit, PP_PASS_simulate, NULL, NULL))
		return;
	pp_diag_print(unit->diag, stderr, PP_DIAG_HUMAN, false);
	fail();
}

/* Custom layers of unequal costs and sizes over three ranks and two nodes; a transformer with its ends. */
static const char custom[] =
    "model odd {\n"
    "  layer a : custom * 2 { time_f = 3us  time_i = 2us  time_w = 1us  activation = 4KiB  output = 256B }\n"
    "  layer b : custom { time_f = 30us  time_i = 20us  time_w = 15us  activation = 9KiB  output = 512B  params = 700 "
    "}\n"
    "  layer c : custom * 7 { time_f = 5us  time_i = 7us  time_w = 4us  activation = 1KiB  output = 2KiB }\n"
    "}\n"
    "cluster two { nodes = 2  gpus = 2\n"
    "  link intra { bandwidth = 4GB/s  latency = 300ns }\n"
    "  link inter { bandwidth = 2GB/s  latency = 900ns } }\n"
    "parallel { pp = 4 }\n"
    "schedule 1f1b\n"
    "train { microbatches = 7 }\n";
static const char blocks[] = "model tiny { hidden = 32  heads = 2  layers = 7  vocab = 64  seq = 16 }\n"
                             "cluster local { nodes = 1  gpus = 3 }\n"
                             "parallel { pp = 3 }\n"
                             "schedule 1f1b\n"
                             "train { microbatch = 2  microbatches = 6 }\n";

/* Stages by stage; a stage of only split or only whole backwards says what it holds besides. */
static void assert_same_stages(const struct pp_order_problem *a, const struct pp_order_problem *b,
                               const struct pp_program *program)
{
	assert_int_equal(a->ranks, b->ranks);
	assert_int_equal(a->stages, b->stages);
	assert_int_equal(a->microbatches, b->microbatches);
	for (uint32_t s = 0; s < a->stages; s++) {
		const struct pp_order_stage *x = &a->stage[s], *y = &b->stage[s];
		assert_int_equal(x->rank, y->rank);
		for (unsigned kind = 0; kind < PP_ACTION_KINDS; kind++)
			assert_int_equal(x->ticks[kind], y->ticks[kind]);
		assert_int_equal(x->recompute, y->recompute);
		assert_int_equal(x->forward_hop, y->forward_hop);
		assert_int_equal(x->backward_hop, y->backward_hop);
		assert_int_equal(x->held, y->held);
		bool split = program->stages[s].body[PP_PHASE_I] != PP_NULL;
		assert_int_equal(split ? x->more_split : x->more_fused, split ? y->more_split : y->more_fused);
	}
}

static uint64_t largest_message(const struct pp_program *program)
{
	uint64_t most = 0;
	for (uint32_t s = 0; s < program->stage_count; s++) {
		uint64_t bytes = pp_aligned(4 * (uint64_t)program->stages[s].out_count);
		most = bytes > most ? bytes : most;
	}
	return most;
}

static void check(const char *text, const char *const *sets, const char *schedule)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_unit unit = make(arena, text, sets, schedule);
	struct pp_order_times times;
	compile(&unit);
	const uint64_t *floor = pp_memory_floor(arena, &unit), message = largest_message(unit.program);
	const struct pp_order_problem *before = pp_order_of_stages(arena, &unit.resolved.spec, unit.schedule.stage_rank,
	                                                           &unit.stages, NULL, 0),
	                              *after = pp_order_of_program(arena, unit.program);
	assert_same_stages(before, after, unit.program);
	assert_true(pp_order_run(arena, before, unit.schedule.rows, false, &times));
	/* rank 0 clears a gradient before anything else */
	assert_int_equal(times.makespan, unit.sim.makespan - unit.sim.rank[0].first);
	assert_int_equal(times.longest_span, unit.sim.longest_span);
	for (uint32_t r = 0; r < before->ranks; r++) {
		assert_int_equal(times.rank[r].busy, unit.sim.rank[r].busy);
		assert_int_equal(times.rank[r].peak_stashes, unit.sim.rank[r].peak_stashes);
		/* what any order takes besides is no more than what this one does */
		assert_true(floor[r] + times.rank[r].peak <= unit.program->rank[r].arena_bytes);
		/* and all that is not sure is where messages wait */
		assert_true(unit.program->rank[r].arena_bytes <= floor[r] + times.rank[r].peak + MOST_WAITING * message);
		assert_true(after->room[r] >= times.rank[r].peak);
	}
	pp_arena_destroy(arena);
}

/* Pairs that begin together and share less time than both take in turn. */
static void pairs_in_the_program(void **state)
{
	(void)state;
	const char *const gains[] = {"schedule.pair_cost=0.8", "train.microbatches=9", NULL};
	const char *const none[] = {"schedule.pair_cost=1", NULL};
	check(custom, gains, "dualpipe_v");
	check(custom, none, "dualpipe_v");
	check(blocks, gains, "dualpipe_v");
}

static void as_in_the_program(void **state)
{
	(void)state;
	const char *const chunks[] = {"parallel.vpp=2", NULL}, *const again[] = {"train.recompute=full", NULL};
	const char *const small[] = {"train.microbatches=2", "stages.place=linear", "parallel.vpp=1", NULL},
	                  *const small_v[] = {"train.microbatches=2", NULL};
	for (size_t i = 0; i < pp_policy_count; i++) {
		const struct pp_policy *policy = &pp_policies[i];
		bool looped = policy->place == PP_PLACE_LOOP;
		if (policy->status != PP_NOW)
			continue;
		if (policy->aware) { /* these take their time */
			check(custom, policy->vpp ? small_v : small, policy->name);
			continue;
		}
		check(custom, looped ? chunks : NULL, policy->name);
		check(blocks, looped ? chunks : NULL, policy->name);
		if (!looped)
			check(blocks, again, policy->name);
	}
}

/* Capacity and bound, less what is static and what was planned besides. */
static void room(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *const sets[] = {"cluster.gpu.memory=1MiB", "cluster.gpu.reserve=1KiB", NULL};
	struct pp_unit unit = make(arena, custom, sets, NULL);
	compile(&unit);
	uint64_t headroom[4] = {100, 200, 300, 1 << 30};
	const struct pp_order_problem *problem =
	    pp_order_of_stages(arena, &unit.resolved.spec, unit.schedule.stage_rank, &unit.stages, headroom, 0);
	for (uint32_t r = 0; r < 3; r++)
		assert_int_equal(problem->room[r], (1 << 20) - 1024 - headroom[r] - unit.stages.items[r].static_bytes);
	assert_int_equal(problem->room[3], 0);
	problem = pp_order_of_stages(arena, &unit.resolved.spec, unit.schedule.stage_rank, &unit.stages, headroom, 50000);
	assert_int_equal(problem->room[0], 50000 - 100 - unit.stages.items[0].static_bytes);
	uint64_t *found = pp_order_headroom(arena, unit.program, &unit.stages, NULL);
	const struct pp_order_problem *after = pp_order_of_program(arena, unit.program);
	for (uint32_t r = 0; r < 4; r++)
		assert_true(after->room[r] >= (1 << 20) - 1024 - found[r] - unit.stages.items[r].static_bytes);
	uint64_t before[4] = {1 << 20, 0, 0, 0};
	assert_int_equal(pp_order_headroom(arena, unit.program, &unit.stages, before)[0], 1 << 20);
	assert_int_equal(pp_order_headroom(arena, unit.program, &unit.stages, before)[1], found[1]);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_in_the_program), cmocka_unit_test(pairs_in_the_program),
	                                   cmocka_unit_test(room)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
