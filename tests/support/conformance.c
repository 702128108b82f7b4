/* The judge of transports. */
#include "conformance.h"

#include "collectives.h"
#include "run_rank.h"
#include "sample_program.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------- */

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

enum { MODES = sizeof modes / sizeof *modes, MOST_RANKS = 4 };

static struct pp_test_run make_run(struct pp_arena *arena, const struct mode *mode, uint32_t ranks)
{
	struct pp_sample sample = {.ranks = ranks,
	                           .chunks = mode->chunks,
	                           .microbatches = mode->microbatches,
	                           .out_count = mode->out_count,
	                           .grad_count = mode->grad_count,
	                           .split = mode->split};
	return (struct pp_test_run){.program = pp_sample_program(arena, &sample),
	                            .options = mode->options,
	                            .steps = mode->steps,
	                            .timeout = UINT64_C(30000000000),
	                            .jitter = mode->jitter};
}

/* Number of ways in which a rank's result differs from the loop's. */
static int compare(const char *name, uint32_t rank, size_t mode, const struct pp_test_result *result,
                   const struct pp_test_result *loop)
{
	if (result->ok && loop->ok && result->errors + loop->errors == 0 && result->digest == loop->digest)
		return 0;
	fprintf(stderr,
	        "mode %zu rank %" PRIu32 ": %s %s %016" PRIx64 " %u wrong (%s), loop %s %016" PRIx64 " %u wrong (%s)\n",
	        mode, rank, name, result->ok ? "ok" : result->status.text, result->digest, result->errors, result->first,
	        loop->ok ? "ok" : loop->status.text, loop->digest, loop->errors, loop->first);
	return 1;
}

static void run_loop(const struct pp_test_run *run, struct pp_test_result *results)
{
	struct pp_test_run plain = *run;
	plain.jitter = 0;
	pp_test_run_loop(&plain, results);
}

static int run_mode(const struct pp_conformance_rank *rank, size_t number)
{
	struct pp_status status;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_test_run run = make_run(arena, &modes[number], rank->ranks);
	run.transport = rank->ops;
	struct pp_endpoint *endpoint = rank->bind(rank->context, run.program, &run.options, &status);
	if (!endpoint) {
		fprintf(stderr, "%s\n", status.text);
		return 1;
	}
	struct pp_test_result result = pp_test_run_rank(&run, rank->rank, endpoint), loop[MOST_RANKS];
	if (result.device)
		pp_device_null.destroy(result.device);
	run_loop(&run, loop);
	int differences = compare(rank->ops->name, rank->rank, number, &result, &loop[rank->rank]);
	pp_arena_destroy(arena);
	return differences;
}

/* ---- collectives ----------------------------------------------------------------------------- */

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

enum { OPTIONS = sizeof collective_options / sizeof *collective_options, GRIDS = sizeof grids / sizeof *grids };

static void complain(uint32_t rank, const struct pp_collective_grid *grid, size_t options, const char *why)
{
	fprintf(stderr, "rank %" PRIu32 " of pp %u tp %u dp %u order %s, options %zu: %s\n", rank, grid->pp, grid->tp,
	        grid->dp, pp_rank_order_name[grid->order], options, why);
}

static int run_collectives(const struct pp_conformance_rank *rank)
{
	int differences = 0;
	for (size_t i = 0; i < OPTIONS * GRIDS; i++) {
		const struct pp_collective_grid *grid = &grids[i / OPTIONS];
		if (grid->pp * grid->tp * grid->dp != rank->ranks)
			continue;
		struct pp_status status;
		struct pp_arena *arena = pp_arena_create(NULL);
		const struct pp_program *program = pp_collective_program(arena, grid, i, 20);
		struct pp_endpoint *endpoint = rank->bind(rank->context, program, &collective_options[i % OPTIONS], &status);
		char why[256] = "no room";
		const struct pp_test_seat seat = {.rank = rank->rank, .ops = rank->ops, .endpoint = endpoint};
		if (!endpoint || !pp_collectives_run(program, &seat, why)) {
			complain(rank->rank, grid, i % OPTIONS, why);
			differences++;
		}
		pp_arena_destroy(arena);
	}
	return differences;
}

/* ---- disagreement ---------------------------------------------------------------------------- */

/* Members that mean different collectives all notice. The endpoint is of no use afterwards. */
static bool disagree(const struct pp_transport_ops *ops, struct pp_endpoint *endpoint, uint32_t rank, uint32_t ranks)
{
	float from[2] = {0}, to[2] = {0};
	uint32_t ticket = ops->post_body(endpoint, PP_ALLREDUCE, PP_F32, from, to, rank == ranks - 1 ? 2 : 1);
	enum pp_progress progress;
	while ((progress = ops->test_body(endpoint, ticket)) == PP_PENDING)
		sched_yield();
	char wanted[200];
	snprintf(wanted, sizeof wanted,
	         "members of a tensor-parallel group disagree: member 0 posts allreduce of f32*1, member %" PRIu32
	         " allreduce of f32*2",
	         ranks - 1);
	bool noticed = progress == PP_FAILED && strcmp(ops->failure(endpoint), wanted) == 0;
	if (!noticed)
		fprintf(stderr, "disagreement: %s\n", ops->failure(endpoint));
	return noticed;
}

static const struct pp_transport_options checking = {.check_identity = true};

static struct pp_program *disagreement(struct pp_arena *arena, uint32_t ranks)
{
	return pp_collective_program(arena, &(struct pp_collective_grid){.pp = 1, .tp = ranks, .dp = 1}, 1, 1);
}

static int run_disagreement(const struct pp_conformance_rank *rank)
{
	struct pp_status status;
	if (rank->ranks == 1)
		return 0;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_endpoint *endpoint = rank->bind(rank->context, disagreement(arena, rank->ranks), &checking, &status);
	bool noticed = endpoint && disagree(rank->ops, endpoint, rank->rank, rank->ranks);
	pp_arena_destroy(arena);
	return !noticed;
}

int pp_conformance_run(const struct pp_conformance_rank *rank)
{
	int differences = run_collectives(rank);
	for (size_t i = 0; i < MODES && rank->ranks <= MOST_RANKS; i++)
		differences += run_mode(rank, i);
	return differences + run_disagreement(rank);
}

/* ---- threads --------------------------------------------------------------------------------- */

int pp_conformance_collectives(const struct pp_test_world *world, uint32_t ranks)
{
	int differences = 0;
	for (size_t i = 0; i < OPTIONS * GRIDS; i++) {
		const struct pp_collective_grid *grid = &grids[i / OPTIONS];
		if (grid->pp * grid->tp * grid->dp != ranks || (world->apart && i % OPTIONS > 0))
			continue;
		struct pp_arena *arena = pp_arena_create(NULL);
		const struct pp_program *program = pp_collective_program(arena, grid, i, 20);
		char why[256];
		if (!pp_collectives_run_threads(world, program, &collective_options[i % OPTIONS], why)) {
			complain(0, grid, i % OPTIONS, why);
			differences++;
		}
		pp_arena_destroy(arena);
	}
	return differences;
}

static bool disagree_job(void *context, const struct pp_test_seat *seat)
{
	return disagree(seat->ops, seat->endpoint, seat->rank, *(const uint32_t *)context);
}

int pp_conformance_threads(const struct pp_test_world *world, uint32_t ranks)
{
	int differences = pp_conformance_collectives(world, ranks);
	for (size_t i = 0; i < MODES && ranks <= MOST_RANKS; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct pp_test_run run = make_run(arena, &modes[i], ranks);
		struct pp_test_result results[MOST_RANKS], loop[MOST_RANKS];
		pp_test_run_threads(world, &run, results);
		run_loop(&run, loop);
		for (uint32_t rank = 0; rank < ranks; rank++)
			differences += compare(world->name, rank, i, &results[rank], &loop[rank]);
		pp_arena_destroy(arena);
	}
	struct pp_arena *arena = pp_arena_create(NULL);
	if (ranks > 1 && !pp_test_threads(world, disagreement(arena, ranks), &checking, disagree_job, &ranks))
		differences++;
	pp_arena_destroy(arena);
	return differences;
}
