/* Run under mpirun: hand-built programs over the mpi transport must give the bits that the loop transport gives, in
 * every mode (synchronous sends, identity check, payloads in pieces, jitter) and for every size of message. */
#include "support/run_rank.h"
#include "support/sample_program.h"

#include "executor/transport/transport_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct mode {
	uint32_t chunks, microbatches, out_count, grad_count;
	bool split;
	struct pp_transport_options options;
	uint64_t jitter, steps;
};

static const struct mode modes[] = {
    {1, 4, 16, 10, false, {0}, 0, 3},
    {2, 4, 16, 10, false, {.sync_send = true, .check_identity = true}, 0, 2},
    {1, 4, 1024, 1000, true, {.sync_send = true}, 3, 2},
    {2, 4, 16386, 0, false, {.sync_send = true}, 0, 2},
    {2, 3, 16386, 200000, true, {.check_identity = true, .largest_message = 1000}, 5, 2},
    {2, 3, 0, 65536, false, {.sync_send = true}, 0, 2},
    {1, 4, 2097152, 0, false, {.sync_send = true, .largest_message = 3000000}, 0, 1},
    {1, 4, 2097152, 0, false, {0}, 0, 1},
};

/* Number of ways in which a rank's result differs from the loop's. */
static int compare(uint32_t rank, size_t mode, const struct pp_test_result *mpi, const struct pp_test_result *loop)
{
	if (mpi->ok && loop->ok && mpi->errors + loop->errors == 0 && mpi->digest == loop->digest)
		return 0;
	fprintf(stderr,
	        "mode %zu rank %" PRIu32 ": mpi %s %016" PRIx64 " %u wrong (%s), loop %s %016" PRIx64 " %u wrong (%s)\n",
	        mode, rank, mpi->ok ? "ok" : mpi->status.text, mpi->digest, mpi->errors, mpi->first,
	        loop->ok ? "ok" : loop->status.text, loop->digest, loop->errors, loop->first);
	return 1;
}

static int run_mode(struct pp_endpoint *endpoint, size_t number)
{
	const struct mode *mode = &modes[number];
	struct pp_status status;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sample sample = {.ranks = pp_mpi_ranks(endpoint),
	                           .chunks = mode->chunks,
	                           .microbatches = mode->microbatches,
	                           .out_count = mode->out_count,
	                           .grad_count = mode->grad_count,
	                           .split = mode->split};
	struct pp_test_run run = {.program = pp_sample_program(arena, &sample),
	                          .transport = &pp_transport_mpi,
	                          .options = mode->options,
	                          .steps = mode->steps,
	                          .timeout = UINT64_C(30000000000),
	                          .jitter = mode->jitter};
	if (!pp_mpi_bind(endpoint, run.program, &run.options, &status)) {
		fprintf(stderr, "%s\n", status.text);
		return 1;
	}
	uint32_t rank = pp_mpi_rank(endpoint);
	struct pp_test_result mpi = pp_test_run_rank(&run, rank, endpoint);
	if (mpi.device)
		pp_device_null.destroy(mpi.device);
	struct pp_test_result *loop = calloc(sample.ranks, sizeof *loop);
	run.transport = &pp_transport_loop;
	run.jitter = 0;
	pp_test_run_loop(&run, loop);
	int differences = compare(rank, number, &mpi, &loop[rank]);
	free(loop);
	pp_arena_destroy(arena);
	return differences;
}

int main(void)
{
	struct pp_status status;
	struct pp_endpoint *endpoint = pp_mpi_open(&status);
	if (!endpoint) {
		fprintf(stderr, "%s\n", status.text);
		return 3;
	}
	int differences = 0;
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		differences += run_mode(endpoint, i);
	pp_mpi_close(endpoint);
	return differences != 0;
}
