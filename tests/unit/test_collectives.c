/* Collectives of the loop transport: every kind on every axis, to the bit of sums in member order. */
#include "support/collectives.h"

#include "executor/transport/transport_loop.h"
#include "ir/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static void run(const struct pp_collective_grid *grid, uint64_t seed, uint32_t count)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *program = pp_collective_program(arena, grid, seed, count);
	char why[256] = "";
	if (!pp_collectives_run_threads(&pp_test_world_loop, program,
	                                &(struct pp_transport_options){.check_identity = true}, why))
		fail_msg("pp %u tp %u dp %u order %s: %s", grid->pp, grid->tp, grid->dp, pp_rank_order_name[grid->order], why);
	pp_arena_destroy(arena);
}

static void every_number_of_members(void **state)
{
	(void)state;
	for (uint32_t members = 1; members <= 8; members++) {
		run(&(struct pp_collective_grid){members, 1, 1, 0}, members, 20);
		run(&(struct pp_collective_grid){1, members, 1, 0}, 10 + members, 20);
		run(&(struct pp_collective_grid){1, 1, members, 0}, 20 + members, 20);
	}
}

static void every_order_of_ranks(void **state)
{
	(void)state;
	for (uint8_t order = 0; order < PP_RANK_ORDER_COUNT; order++)
		run(&(struct pp_collective_grid){3, 2, 2, order}, 30 + order, 30);
}

/* Members that mean different collectives are told, whatever was asked to be checked. */
static void disagreement_is_noticed(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *program = pp_collective_program(arena, &(struct pp_collective_grid){1, 2, 1, 0}, 1, 1);
	struct pp_status status;
	struct pp_loop *loop = pp_loop_create(program, &(struct pp_transport_options){0}, &status);
	const struct pp_transport_ops *ops = &pp_transport_loop;
	struct pp_endpoint *ends[] = {pp_loop_endpoint(loop, 0), pp_loop_endpoint(loop, 1)};
	float from[4] = {1, 2, 3, 4}, to[2][4] = {{0}};
	uint32_t first = ops->post_body(ends[0], PP_ALLREDUCE, PP_F32, from, to[0], 4);
	uint32_t second = ops->post_body(ends[1], PP_REDUCESCATTER, PP_F32, from, to[1], 2);
	assert_int_equal(ops->test_body(ends[0], first), PP_FAILED);
	assert_int_equal(ops->test_body(ends[1], second), PP_FAILED);
	assert_string_equal(ops->failure(ends[1]), "members of a tensor-parallel group disagree: member 0 posts allreduce "
	                                           "of f32*4, member 1 reducescatter of f32*2");
	assert_true(to[0][0] == 0 && to[1][0] == 0);
	pp_loop_destroy(loop);
	pp_arena_destroy(arena);
}

/* A body's post moves only when all members have posted, and names a rank by its coordinate when one gives up. */
static void bodies_meet(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const struct pp_program *program = pp_collective_program(arena, &(struct pp_collective_grid){2, 2, 1, 0}, 1, 1);
	struct pp_status status;
	struct pp_loop *loop = pp_loop_create(program, &(struct pp_transport_options){0}, &status);
	const struct pp_transport_ops *ops = &pp_transport_loop;
	struct pp_endpoint *ends[] = {pp_loop_endpoint(loop, 2), pp_loop_endpoint(loop, 3)}; /* pp 1, tp 0 and 1 */
	float own[2] = {1, 2}, to[2] = {0};
	uint32_t first = ops->post_body(ends[0], PP_ALLREDUCE, PP_F32, &own[0], &to[0], 1);
	uint32_t again = ops->post_body(ends[0], PP_ALLREDUCE, PP_F32, &own[0], &to[0], 1);
	assert_int_equal(ops->test_body(ends[0], first), PP_PENDING);
	uint32_t other = ops->post_body(ends[1], PP_ALLREDUCE, PP_F32, &own[1], &to[1], 1);
	assert_int_equal(ops->test_body(ends[1], other), PP_DONE);
	assert_int_equal(ops->test_body(ends[0], first), PP_DONE);
	assert_int_equal(ops->test_body(ends[0], again), PP_PENDING);
	assert_true(to[0] == 3 && to[1] == 3);
	ops->give_up(ends[1], "enough");
	assert_int_equal(ops->test_body(ends[0], again), PP_FAILED);
	assert_string_equal(ops->failure(ends[0]), "rank 3 (pp 1 tp 1 dp 0) gave up");
	pp_loop_destroy(loop);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_number_of_members),
	    cmocka_unit_test(every_order_of_ranks),
	    cmocka_unit_test(disagreement_is_noticed),
	    cmocka_unit_test(bodies_meet),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
