/* How far the arenas are above live bytes, by family of schedules with stages of unequal size: mean and worst over
 * ranks and programs, ranks above 10 %, and the time of planning. Prints, asserts nothing. Usage: bench_plan [SEEDS
 * [FAMILY]] */
#include "codegen/lower.h"
#include "codegen/plan_memory.h"
#include "ir/spec.h"
#include "ir/verify.h"
#include "support/build_program.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- a schedule by list scheduling ----------------------------------------------------------- */

/* What a greedy machine runs when each rank takes, one action a tick, a weight gradient if it owes as many as there
 * are ranks, else a backward if one is ready, else a forward of the furthest chunk, else a weight gradient; stage 0
 * begins a microbatch only while fewer than `most` are on the way. */
struct machine {
	struct pp_schedule *schedule;
	uint32_t *forward, *backward, *weight; /* [stages]: microbatches done */
	uint32_t *forward_now, *backward_now;  /* done before this tick */
	uint32_t *debt;                        /* [ranks]: weight gradients owed */
	uint32_t most;
	bool split;
};

static bool can_forward(const struct machine *machine, uint32_t stage)
{
	const struct pp_schedule *schedule = machine->schedule;
	uint32_t mb = machine->forward[stage];
	if (mb == schedule->microbatches)
		return false;
	return stage ? mb < machine->forward_now[stage - 1] : mb < machine->backward_now[0] + machine->most;
}

static bool can_backward(const struct machine *machine, uint32_t stage)
{
	uint32_t mb = machine->backward[stage];
	if (mb >= machine->forward_now[stage])
		return false;
	return stage + 1 == machine->schedule->stages || mb < machine->backward_now[stage + 1];
}

static bool take_weight(struct machine *machine, uint32_t rank, struct pp_action *action)
{
	const struct pp_schedule *schedule = machine->schedule;
	for (uint32_t stage = 0; machine->debt[rank] && stage < schedule->stages; stage++)
		if (schedule->stage_rank[stage] == rank && machine->weight[stage] < machine->backward[stage]) {
			*action = (struct pp_action){.stage = stage, .mb = machine->weight[stage]++, .kind = PP_W};
			machine->debt[rank]--;
			return true;
		}
	return false;
}

static bool next_action(struct machine *machine, uint32_t rank, struct pp_action *action)
{
	const struct pp_schedule *schedule = machine->schedule;
	if (machine->debt[rank] >= schedule->ranks && take_weight(machine, rank, action))
		return true;
	for (uint32_t stage = 0; stage < schedule->stages; stage++)
		if (schedule->stage_rank[stage] == rank && can_backward(machine, stage)) {
			machine->debt[rank] += machine->split;
			*action = (struct pp_action){
			    .stage = stage, .mb = machine->backward[stage]++, .kind = machine->split ? PP_I : PP_B};
			return true;
		}
	for (uint32_t stage = schedule->stages; stage-- > 0;)
		if (schedule->stage_rank[stage] == rank && can_forward(machine, stage)) {
			*action = (struct pp_action){.stage = stage, .mb = machine->forward[stage]++, .kind = PP_F};
			return true;
		}
	return take_weight(machine, rank, action);
}

static struct pp_schedule *run_greedily(struct pp_arena *arena, enum pp_place place, uint32_t ranks, uint32_t chunks,
                                        uint32_t microbatches, bool split)
{
	struct pp_schedule *schedule = PP_NEW(arena, struct pp_schedule);
	uint32_t stages = ranks * chunks, each = (split ? 3 : 2) * microbatches * chunks;
	*schedule = (struct pp_schedule){.name = "greedy", .ranks = ranks, .stages = stages, .microbatches = microbatches};
	schedule->stage_rank = PP_NEW_ARRAY(arena, uint32_t, stages);
	schedule->rows = PP_NEW_ARRAY(arena, struct pp_row, ranks);
	for (uint32_t stage = 0; stage < stages; stage++)
		schedule->stage_rank[stage] = pp_place_rank(place, stage, ranks, chunks);
	struct machine machine = {.schedule = schedule, .most = 2 * ranks, .split = split};
	machine.forward = PP_NEW_ARRAY(arena, uint32_t, stages);
	machine.backward = PP_NEW_ARRAY(arena, uint32_t, stages);
	machine.weight = PP_NEW_ARRAY(arena, uint32_t, stages);
	machine.debt = PP_NEW_ARRAY(arena, uint32_t, ranks);
	machine.forward_now = PP_NEW_ARRAY(arena, uint32_t, stages);
	machine.backward_now = PP_NEW_ARRAY(arena, uint32_t, stages);
	for (uint32_t rank = 0; rank < ranks; rank++)
		schedule->rows[rank].actions = PP_NEW_ARRAY(arena, struct pp_action, each);
	for (uint64_t left = (uint64_t)ranks * each; left;) {
		for (uint32_t stage = 0; stage < stages; stage++) {
			machine.forward_now[stage] = machine.forward[stage];
			machine.backward_now[stage] = machine.backward[stage];
		}
		for (uint32_t rank = 0; rank < ranks; rank++) {
			struct pp_row *row = &schedule->rows[rank];
			if (next_action(&machine, rank, &row->actions[row->count]))
				row->count++, left--;
		}
	}
	return schedule;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

enum sizes { TWO_SIZES, NEAR_SIZES, FAR_SIZES, EXTREME_ENDS, LAYER_COUNTS, SIZES_COUNT };

static uint64_t draw_size(uint64_t *seed, enum sizes sizes, uint32_t chunk, const uint64_t *chunk_bytes)
{
	switch (sizes) {
	case TWO_SIZES:
		return chunk_bytes[chunk];
	case NEAR_SIZES:
		return 100000 + random_below(seed, 50000);
	case FAR_SIZES:
		return 20000 + random_below(seed, 180000);
	case EXTREME_ENDS:
		return 100000;
	case LAYER_COUNTS:
		return 50000 * (1 + random_below(seed, 4)) + 512 * random_below(seed, 2);
	case SIZES_COUNT:
		break;
	}
	return 0;
}

static struct pp_program *make_program(struct pp_arena *arena, const struct pp_schedule *schedule, enum sizes sizes,
                                       uint64_t *seed)
{
	static const uint32_t outs[] = {64, 512, 2048, 4096, 8192};
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	*program = (struct pp_program){.arena = arena,
	                               .ranks = schedule->ranks,
	                               .tp = 1,
	                               .dp = 1,
	                               .vpp = schedule->stages / schedule->ranks,
	                               .stage_count = schedule->stages,
	                               .microbatches = schedule->microbatches};
	program->stages = PP_NEW_ARRAY(arena, struct pp_stage, schedule->stages);
	program->rank = PP_NEW_ARRAY(arena, struct pp_rank, schedule->ranks);
	uint64_t *chunk_bytes = PP_NEW_ARRAY(arena, uint64_t, schedule->stages);
	for (uint32_t chunk = 0; chunk < schedule->stages; chunk++)
		chunk_bytes[chunk] = 100000 + 10000 * random_below(seed, 15);
	uint32_t out = outs[random_below(seed, sizeof outs / sizeof *outs)];
	for (uint32_t s = 0; s < schedule->stages; s++) {
		bool last = s + 1 == schedule->stages;
		uint64_t stash = draw_size(seed, sizes, s / schedule->ranks, chunk_bytes);
		if (sizes == EXTREME_ENDS && (s == 0 || last))
			stash = s == 0 ? 10000 + random_below(seed, 150000) : 100000 + random_below(seed, 900000);
		program->stages[s] = (struct pp_stage){.rank = schedule->stage_rank[s],
		                                       .title = "layers",
		                                       .first_layer = s,
		                                       .layer_count = 1,
		                                       .out_count = last ? 0 : out,
		                                       .loads_tokens = s == 0,
		                                       .loads_labels = last,
		                                       .body = {PP_NULL, PP_NULL, PP_NULL, PP_NULL, PP_NULL},
		                                       .stash_bytes = stash,
		                                       .aux_bytes = s == 0 || last ? 512 : 0,
		                                       .ticks = {100, 200, 100, 100}};
	}
	return program;
}

/* ---- families -------------------------------------------------------------------------------- */

struct tally {
	double total, worst, seconds;
	uint64_t ranks, above, slots, instructions;
};

static void plan(struct pp_arena *arena, const struct pp_schedule *schedule, enum sizes sizes, uint64_t *seed,
                 struct tally *tally)
{
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	struct pp_program *program = make_program(arena, schedule, sizes, seed);
	struct pp_spec spec = {
	    .cluster = {.nodes = 1, .gpus = schedule->ranks, .intra = {.latency = 5}, .inter = {.latency = 10}}};
	struct pp_stamp stamp;
	bool ok = pp_lower(program, &spec, schedule, diag);
	double start = now();
	ok = ok && pp_plan_memory(program, diag);
	tally->seconds += now() - start;
	if (!ok || !pp_verify(program, &stamp, diag)) {
		pp_diag_print(diag, stderr, PP_DIAG_HUMAN, false);
		exit(1);
	}
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_rank *table = &program->rank[rank];
		double gap = (double)(table->arena_bytes - table->static_bytes) / (double)table->live_bytes - 1;
		tally->worst = gap > tally->worst ? gap : tally->worst;
		tally->total += gap;
		tally->above += gap > 0.1;
		tally->ranks++;
		tally->slots += table->slot_count;
		tally->instructions += program->programs[0].streams[rank].count;
	}
}

static void print_tally(const char *name, uint32_t ranks, uint32_t chunks, const struct tally *tally)
{
	double instructions = (double)tally->instructions;
	printf("%-12s %3u %2u | %6.2f %% %6.2f %% | %5.1f %% | %8.1f ns | %5.1f\n", name, ranks, chunks,
	       100 * tally->total / (double)tally->ranks, 100 * tally->worst,
	       100 * (double)tally->above / (double)tally->ranks, 1e9 * tally->seconds / instructions,
	       (double)tally->slots / (double)tally->ranks);
	fflush(stdout);
}

enum family { INTERLEAVED, V_ROWS, V_SPLIT, LOOP_SPLIT, ZERO_BUBBLE, RANDOM, FAMILIES };

static const char *const names[] = {"interleaved", "v", "v-split", "loop-split", "zb-h1", "random"};

static struct pp_schedule *build(struct pp_arena *arena, enum family family, uint32_t ranks, uint32_t chunks,
                                 uint32_t m, uint64_t *seed)
{
	switch (family) {
	case INTERLEAVED:
		return build_interleaved(arena, ranks, chunks, m);
	case V_ROWS:
		return run_greedily(arena, PP_PLACE_V, ranks, chunks, m, false);
	case V_SPLIT:
		return run_greedily(arena, PP_PLACE_V, ranks, chunks, m, true);
	case LOOP_SPLIT:
		return run_greedily(arena, PP_PLACE_LOOP, ranks, chunks, m, true);
	case ZERO_BUBBLE:
		return build_zb_h1(arena, ranks, m);
	case RANDOM:
	case FAMILIES:
		break;
	}
	return build_random(arena, seed);
}

static void measure(enum family family, uint32_t ranks, uint32_t chunks, uint32_t seeds, struct tally *all)
{
	uint32_t microbatches[] = {ranks, 2 * ranks, 4 * ranks, ranks < 64 ? 64 : 0};
	struct tally tally = {0};
	for (uint32_t i = 0; i < sizeof microbatches / sizeof *microbatches; i++) {
		for (uint32_t s = 0; s < seeds && microbatches[i]; s++) {
			uint64_t seed = ((uint64_t)ranks << 32) + (chunks << 24) + (i << 16) + s;
			struct pp_arena *arena = pp_arena_create(NULL);
			const struct pp_schedule *schedule = build(arena, family, ranks, chunks, microbatches[i], &seed);
			plan(arena, schedule, s % SIZES_COUNT, &seed, &tally);
			pp_arena_destroy(arena);
		}
	}
	print_tally(names[family], ranks, chunks, &tally);
	all->total += tally.total;
	all->worst = tally.worst > all->worst ? tally.worst : all->worst;
	all->seconds += tally.seconds;
	all->ranks += tally.ranks;
	all->above += tally.above;
	all->slots += tally.slots;
	all->instructions += tally.instructions;
}

int main(int count, char **arguments)
{
	static const uint32_t ranks[] = {2, 4, 8, 16, 64};
	uint32_t seeds = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : SIZES_COUNT;
	struct tally all = {0};
	printf("family         p  v |    mean    worst | > 10 %%  |  plan/instr | slots/rank\n");
	for (enum family family = INTERLEAVED; family < FAMILIES; family++) {
		if (count > 2 && strcmp(arguments[2], names[family]) != 0)
			continue;
		for (size_t i = 0; i < sizeof ranks / sizeof *ranks && (family != RANDOM || i < 1); i++) {
			if (family == ZERO_BUBBLE || family == RANDOM) {
				measure(family, ranks[i], 1, family == RANDOM ? 20 * seeds : seeds, &all);
				continue;
			}
			for (uint32_t chunks = 2; chunks <= 4; chunks++)
				measure(family, ranks[i], chunks, ranks[i] == 64 ? (seeds + 3) / 4 : seeds, &all);
		}
	}
	print_tally("all", 0, 0, &all);
	return 0;
}
