/* Time of the proof and of the simulated run per instruction, for interleaved programs with a step tail:
 * bench_verify [RANKS CHUNKS MICROBATCHES], default a series up to 1.3 M instructions. */
#include "support/build_program.h"

#include "ir/diag.h"
#include "ir/simulate.h"
#include "ir/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 5 };

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool measure(uint32_t ranks, uint32_t chunks, uint32_t microbatches)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct build_options options = {.depth = 3, .trains = true, .placed = true, .latency = 10};
	const struct pp_program *program =
	    build_program(arena, build_interleaved(arena, ranks, chunks, microbatches), &options);
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	uint64_t count = 0;
	for (uint32_t r = 0; r < ranks; r++)
		count += program->programs[0].streams[r].count;
	double verify = 1e9, simulate = 1e9;
	bool good = true;
	for (int i = 0; i < REPEATS; i++) {
		struct pp_stamp stamp;
		struct pp_sim sim;
		double start = seconds();
		good &= pp_verify(program, &stamp, diag);
		double middle = seconds();
		good &= pp_simulate(arena, program, &program->programs[0], PP_LAYOUT_CHANNEL, false, &sim);
		double end = seconds();
		verify = middle - start < verify ? middle - start : verify;
		simulate = end - middle < simulate ? end - middle : simulate;
	}
	printf("pp %3" PRIu32 " vpp %" PRIu32 " m %5" PRIu32 ": %8" PRIu64
	       " instructions, proof %7.4f s = %5.1f ns each, simulation %7.4f s = %5.1f M/s%s\n",
	       ranks, chunks, microbatches, count, verify, 1e9 * verify / (double)count, simulate,
	       1e-6 * (double)count / simulate, good ? "" : " (REJECTED)");
	pp_diag_print(diag, stdout, PP_DIAG_HUMAN, false);
	pp_arena_destroy(arena);
	return good;
}

int main(int count, char **words)
{
	if (count == 4)
		return !measure((uint32_t)strtoul(words[1], NULL, 10), (uint32_t)strtoul(words[2], NULL, 10),
		                (uint32_t)strtoul(words[3], NULL, 10));
	static const uint32_t series[][3] = {{8, 2, 64}, {16, 2, 256}, {64, 2, 256}, {64, 2, 1024}};
	bool good = true;
	for (size_t i = 0; i < sizeof series / sizeof *series; i++)
		good &= measure(series[i][0], series[i][1], series[i][2]);
	return !good;
}
