/* Cost of interpreting streams: bodies do nothing, loop transport. One rank: dispatch and collectives of one member,
 * by the clock. A world of pp x dp ranks, which are threads: processor time, messages and the polls of waits included.
 * Goal: <= 1 us per instruction. */
#include "support/device_null.h"
#include "support/sample_program.h"

#include "executor/interp.h"
#include "executor/transport/transport_loop.h"
#include "ir/grid.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 20, WORLD_MAX = 8 };

/* One rank at work, and its least time for a step. */
struct worker {
	const struct pp_program *program;
	struct pp_loop *loop;
	uint32_t world;
	bool timed;
	uint64_t best_clock, best_processor;
};

static uint64_t processor_time(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void *work(void *context)
{
	struct worker *worker = context;
	const struct pp_program *program = worker->program;
	struct pp_coord coord = pp_grid_coord(program, worker->world);
	const struct pp_stream *stream = &program->programs[0].streams[coord.pp];
	struct pp_status status;
	struct pp_watch watch;
	pp_watch_init(&watch, program, worker->world, UINT64_C(10000000000));
	struct pp_interp interp = {.program = program,
	                           .world = worker->world,
	                           .device_ops = &pp_device_void,
	                           .device = pp_device_void.create(program, coord, NULL, &status),
	                           .transport = &pp_transport_loop,
	                           .endpoint = pp_loop_endpoint(worker->loop, worker->world),
	                           .watch = &watch};
	if (!interp.device || !pp_interp_open(&interp, &status))
		exit(3);
	interp.times = worker->timed ? calloc(2 * (size_t)stream->count, sizeof *interp.times) : NULL;
	worker->best_clock = worker->best_processor = UINT64_MAX;
	for (interp.step = 1; interp.step <= STEPS; interp.step++) {
		uint64_t start = processor_time();
		if (!pp_interp_step(&interp, stream, &status))
			exit(5);
		worker->best_processor = smaller(worker->best_processor, processor_time() - start);
		worker->best_clock = smaller(worker->best_clock, interp.ended - interp.began);
	}
	free(interp.times);
	pp_interp_close(&interp);
	pp_device_void.destroy(interp.device);
	return NULL;
}

static void measure(const struct pp_sample *sample, uint32_t dp, bool timed)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = pp_sample_program(arena, sample);
	program->dp = dp;
	struct pp_status status;
	struct pp_loop *loop = pp_loop_create(program, &(struct pp_transport_options){0}, &status);
	if (!loop)
		exit(3);
	struct worker workers[WORLD_MAX];
	pthread_t threads[WORLD_MAX];
	uint32_t world = sample->ranks * dp;
	uint64_t clock = 0, processor = 0, count = 0;
	for (uint32_t rank = 0; rank < world; rank++) {
		workers[rank] = (struct worker){.program = program, .loop = loop, .world = rank, .timed = timed};
		if (pthread_create(&threads[rank], NULL, work, &workers[rank]) != 0)
			exit(3);
	}
	for (uint32_t rank = 0; rank < world; rank++) {
		pthread_join(threads[rank], NULL);
		clock += workers[rank].best_clock;
		processor += workers[rank].best_processor;
		count += program->programs[0].streams[pp_grid_coord(program, rank).pp].count;
	}
	printf("interpreter: pp %u x dp %u, %" PRIu64 " instructions%s%s: %.0f ns per instruction (goal 1000)\n",
	       sample->ranks, dp, count, sample->split ? ", split" : "", timed ? ", traced" : "",
	       (double)(world == 1 ? clock : processor) / (double)count);
	pp_loop_destroy(loop);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct pp_sample alone = {.ranks = 1, .chunks = 1, .microbatches = 2000, .out_count = 16},
	                       chunks = {.ranks = 1,
	                                 .chunks = 4,
	                                 .microbatches = 500,
	                                 .out_count = 16,
	                                 .grad_count = 16,
	                                 .split = true},
	                       pipeline = {.ranks = 2, .chunks = 4, .microbatches = 250, .out_count = 16, .grad_count = 16};
	for (int timed = 0; timed < 2; timed++) {
		measure(&alone, 1, timed);
		measure(&chunks, 1, timed);
		measure(&pipeline, 1, timed);
		measure(&pipeline, 2, timed);
	}
	return 0;
}
