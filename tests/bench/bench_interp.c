/* Cost of interpreting a stream: bodies do nothing, loop transport. One rank: dispatch, times and collectives of one
 * member. Goal: <= 1 us per instruction. */
#include "support/device_null.h"
#include "support/sample_program.h"

#include "executor/interp.h"
#include "executor/transport/transport_loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static double measure(const struct pp_sample *sample, bool timed, uint32_t *count)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = pp_sample_program(arena, sample);
	const struct pp_stream *stream = &program->programs[0].streams[0];
	struct pp_status status;
	struct pp_watch watch;
	pp_watch_init(&watch, program, 0, UINT64_C(1000000000));
	struct pp_loop *loop = pp_loop_create(program, &(struct pp_transport_options){0}, &status);
	struct pp_interp interp = {.program = program,
	                           .device_ops = &pp_device_void,
	                           .device = pp_device_void.create(program, (struct pp_coord){0}, &status),
	                           .transport = &pp_transport_loop,
	                           .endpoint = loop ? pp_loop_endpoint(loop, 0) : NULL,
	                           .watch = &watch};
	if (!loop || !interp.device || !pp_interp_open(&interp, &status))
		exit(3);
	interp.times = timed ? calloc(2 * (size_t)stream->count, sizeof *interp.times) : NULL;
	*count = stream->count;
	uint64_t best = UINT64_MAX;
	for (interp.step = 1; interp.step <= 20; interp.step++) {
		if (!pp_interp_step(&interp, stream, &status))
			exit(5);
		if (interp.ended - interp.began < best)
			best = interp.ended - interp.began;
	}
	free(interp.times);
	pp_interp_close(&interp);
	pp_device_void.destroy(interp.device);
	pp_loop_destroy(loop);
	pp_arena_destroy(arena);
	return (double)best / (double)*count;
}

int main(void)
{
	const struct pp_sample samples[] = {
	    {.ranks = 1, .chunks = 1, .microbatches = 2000, .out_count = 16},
	    {.ranks = 1, .chunks = 4, .microbatches = 500, .out_count = 16, .grad_count = 16, .split = true},
	};
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
		for (int timed = 0; timed < 2; timed++) {
			uint32_t count;
			double ns = measure(&samples[i], timed, &count);
			printf("interpreter: %" PRIu32 " instructions, %u stages%s%s: %.0f ns per instruction (goal 1000)\n", count,
			       samples[i].chunks, samples[i].split ? ", split" : "", timed ? ", traced" : "", ns);
		}
	return 0;
}
