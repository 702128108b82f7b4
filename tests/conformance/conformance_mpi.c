/* Run under mpirun: hand-built programs over the mpi transport must give the bits that the loop transport gives, in
 * every mode (synchronous sends, identity check, payloads in pieces, jitter) and for every size of message; collectives
 * of every kind on every axis must give the bits of sums in member order. */
#include "support/collectives.h"
#include "support/run_rank.h"
#include "support/sample_program.h"

#include "executor/transport/transport_mpi.h"

#include <mpi.h>

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Communicators made so far; MPI lets its calls be wrapped. */
static int communicators;

int MPI_Comm_dup(MPI_Comm from, MPI_Comm *to)
{
	communicators++;
	return PMPI_Comm_dup(from, to);
}

int MPI_Comm_split(MPI_Comm from, int color, int key, MPI_Comm *to)
{
	communicators++;
	return PMPI_Comm_split(from, color, key, to);
}

int MPI_Comm_create(MPI_Comm from, MPI_Group group, MPI_Comm *to)
{
	communicators++;
	return PMPI_Comm_create(from, group, to);
}

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

/* Grids of as many ranks as there are; each with every group on another axis. */
static const struct pp_collective_grid grids[] = {
    {1, 1, 1, PP_ORDER_TP_DP_PP}, {2, 1, 1, PP_ORDER_TP_DP_PP}, {1, 2, 1, PP_ORDER_TP_DP_PP},
    {1, 1, 2, PP_ORDER_TP_DP_PP}, {3, 1, 1, PP_ORDER_TP_DP_PP}, {1, 3, 1, PP_ORDER_TP_DP_PP},
    {1, 1, 3, PP_ORDER_TP_DP_PP}, {4, 1, 1, PP_ORDER_TP_DP_PP}, {2, 2, 1, PP_ORDER_TP_DP_PP},
    {2, 1, 2, PP_ORDER_DP_PP_TP}, {1, 4, 1, PP_ORDER_TP_DP_PP}, {2, 2, 2, PP_ORDER_TP_DP_PP},
    {2, 2, 2, PP_ORDER_PP_DP_TP}, {4, 2, 1, PP_ORDER_DP_TP_PP}, {1, 8, 1, PP_ORDER_TP_DP_PP},
    {8, 1, 1, PP_ORDER_TP_DP_PP}, {1, 1, 8, PP_ORDER_TP_DP_PP},
};

static const struct pp_transport_options collective_options[] = {
    {0},
    {.sync_send = true, .check_identity = true},
    {.sync_send = true, .largest_message = 1000},
};

static int run_collectives(struct pp_endpoint *endpoint)
{
	int differences = 0;
	enum { OPTIONS = sizeof collective_options / sizeof *collective_options };
	for (size_t i = 0; i < OPTIONS * sizeof grids / sizeof *grids; i++) {
		const struct pp_collective_grid *grid = &grids[i / OPTIONS];
		if (grid->pp * grid->tp * grid->dp != pp_mpi_ranks(endpoint))
			continue;
		struct pp_status status;
		struct pp_arena *arena = pp_arena_create(NULL);
		const struct pp_program *program = pp_collective_program(arena, grid, i, 20);
		char why[256] = "no room";
		if (!pp_mpi_bind(endpoint, program, &collective_options[i % OPTIONS], &status) ||
		    !pp_collectives_run(program, &pp_transport_mpi, endpoint, pp_mpi_rank(endpoint), why)) {
			fprintf(stderr, "rank %" PRIu32 " of pp %u tp %u dp %u order %s, options %zu: %s\n", pp_mpi_rank(endpoint),
			        grid->pp, grid->tp, grid->dp, pp_rank_order_name[grid->order], i % OPTIONS, why);
			differences++;
		}
		pp_arena_destroy(arena);
	}
	return differences;
}

/* Members that mean different collectives all notice, if asked to check. The endpoint is of no use afterwards. */
static int run_disagreement(struct pp_endpoint *endpoint)
{
	uint32_t ranks = pp_mpi_ranks(endpoint);
	struct pp_status status;
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *program =
	    pp_collective_program(arena, &(struct pp_collective_grid){.pp = 1, .tp = ranks, .dp = 1}, 1, 1);
	const struct pp_transport_options options = {.check_identity = true};
	float from[2] = {0}, to[2] = {0};
	if (ranks == 1 || !pp_mpi_bind(endpoint, program, &options, &status))
		return ranks > 1;
	uint64_t count = pp_mpi_rank(endpoint) == ranks - 1 ? 2 : 1;
	uint32_t ticket = pp_transport_mpi.post_body(endpoint, PP_ALLREDUCE, PP_F32, from, to, count);
	enum pp_progress progress;
	while ((progress = pp_transport_mpi.test_body(endpoint, ticket)) == PP_PENDING)
		sched_yield();
	char wanted[200];
	snprintf(wanted, sizeof wanted,
	         "members of a tensor-parallel group disagree: member 0 posts allreduce of f32*1, member %" PRIu32
	         " allreduce of f32*2",
	         ranks - 1);
	bool noticed = progress == PP_FAILED && strcmp(pp_transport_mpi.failure(endpoint), wanted) == 0;
	if (!noticed)
		fprintf(stderr, "disagreement: %s\n", pp_transport_mpi.failure(endpoint));
	pp_arena_destroy(arena);
	return !noticed;
}

int main(void)
{
	struct pp_status status;
	struct pp_endpoint *endpoint = pp_mpi_open(&status);
	if (!endpoint) {
		fprintf(stderr, "%s\n", status.text);
		return 3;
	}
	/* All are made at the start, in one order; programs are bound and run without further ones. */
	int made = communicators, differences = run_collectives(endpoint);
	for (size_t i = 0; i < sizeof modes / sizeof *modes && pp_mpi_ranks(endpoint) <= 4; i++)
		differences += run_mode(endpoint, i);
	differences += run_disagreement(endpoint);
	if (made != 3 || communicators != made) {
		fprintf(stderr, "%d communicators made at the start, %d later\n", made, communicators - made);
		differences++;
	}
	pp_mpi_close(endpoint);
	return differences != 0;
}
