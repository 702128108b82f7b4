/* Time per instruction of checking and lowering a schedule, planning memory and proving the program: interleaved, two
 * chunks, from ten thousand to ten million instructions; peak memory of the process after each. Prints, asserts
 * nothing. Usage: bench_lower [MICROBATCHES_MAX] */
#include "codegen/lower.h"
#include "codegen/plan_memory.h"
#include "ir/verify.h"
#include "support/build_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* `extra`: bytes by which the second chunk's stash is larger. */
static struct pp_program *make_program(struct pp_arena *arena, const struct pp_schedule *schedule, uint64_t extra)
{
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
	for (uint32_t s = 0; s < schedule->stages; s++) {
		bool last = s + 1 == schedule->stages;
		program->stages[s] = (struct pp_stage){.rank = schedule->stage_rank[s],
		                                       .title = "layers",
		                                       .first_layer = s,
		                                       .layer_count = 1,
		                                       .out_count = last ? 0 : 4096,
		                                       .loads_tokens = s == 0,
		                                       .loads_labels = last,
		                                       .body = {PP_NULL, PP_NULL, PP_NULL, PP_NULL, PP_NULL},
		                                       .stash_bytes = 100000 + (s >= schedule->ranks ? extra : 0),
		                                       .aux_bytes = s == 0 || last ? 512 : 0,
		                                       .ticks = {100, 200, 100, 100}};
	}
	return program;
}

static uint64_t instructions_of(const struct pp_program *program)
{
	uint64_t count = 0;
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		count += program->programs[0].streams[rank].count;
	return count;
}

static double worst_gap(const struct pp_program *program)
{
	double worst = 0;
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_rank *table = &program->rank[rank];
		double gap = (double)(table->arena_bytes - table->static_bytes) / (double)table->live_bytes - 1;
		worst = gap > worst ? gap : worst;
	}
	return worst;
}

static void measure(uint32_t ranks, uint32_t microbatches, uint64_t extra)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	const struct pp_schedule *schedule = build_interleaved(arena, ranks, 2, microbatches);
	struct pp_program *program = make_program(arena, schedule, extra);
	struct pp_spec spec = {
	    .cluster = {.nodes = ranks / 8, .gpus = 8, .intra = {.latency = 5}, .inter = {.latency = 10}}};
	struct pp_stamp stamp = {.proven = false};
	double start = now();
	bool ok = pp_schedule_check(arena, schedule, diag);
	double checked = now();
	ok = ok && pp_lower(program, &spec, schedule, diag);
	double lowered = now();
	ok = ok && pp_plan_memory(program, diag);
	double planned = now();
	ok = ok && pp_verify(program, &stamp, diag);
	double proven = now();
	if (!ok) {
		pp_diag_print(diag, stderr, PP_DIAG_HUMAN, false);
		exit(1);
	}
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	double count = (double)instructions_of(program), each = 1e9 / count;
	printf("%6u %9u %12.0f | %7.1f %7.1f %7.1f %7.1f ns | %6.3f s %6.3f s | %5ld MiB | %.2f %%\n", ranks, microbatches,
	       count, each * (checked - start), each * (lowered - checked), each * (planned - lowered),
	       each * (proven - planned), planned - start, proven - start, usage.ru_maxrss / 1024,
	       100 * worst_gap(program));
	pp_arena_destroy(arena);
}

int main(int count, char **arguments)
{
	static const uint32_t cases[][2] = {{8, 64}, {64, 64}, {64, 256}, {64, 1024}, {64, 8192}};
	uint32_t most = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : UINT32_MAX;
	for (uint64_t extra = 0; extra <= 20000; extra += 20000) {
		printf("stashes of 100000 and %u bytes\n", (unsigned)(100000 + extra));
		printf(" ranks microbat. instructions |   check   lower    plan   prove    | to plan  proven   | peak     | "
		       "worst gap\n");
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			if (cases[i][1] <= most)
				measure(cases[i][0], cases[i][1], extra);
	}
	return 0;
}
