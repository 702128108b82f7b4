/* Which communicators a program gets, in which rounds, and what launch order gives by driver. */
#include "executor/cuda/links/nccl/order.h"
#include "executor/cuda/links/nccl/plan.h"

#include "support/collectives.h"

#include "ir/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct pp_collective_grid grids[] = {
    {1, 1, 1, 0}, {2, 1, 1, 0}, {4, 1, 1, 0}, {8, 1, 1, 0}, {4, 2, 2, 0}, {3, 2, 1, PP_ORDER_PP_TP_DP}, {1, 4, 2, 0}};

/* Positions of one communicator, a bit each, over all ranks that make the split with its colour in its round. */
static uint64_t meet(const struct pp_nccl_plan *plan, uint32_t round, uint32_t index, uint32_t first)
{
	uint64_t met = 0;
	for (uint32_t world = 0; world < pp_grid_world(plan->program); world++) {
		struct pp_coord coord = pp_grid_coord(plan->program, world);
		uint32_t other = pp_nccl_plan_at(plan, round, coord);
		if (other == PP_NULL)
			continue;
		struct pp_nccl_seat seat = pp_nccl_plan_seat(plan->program, other, coord);
		if (seat.first != first)
			continue;
		assert_int_equal(other, index);
		assert_false(met >> seat.position & 1);
		met |= UINT64_C(1) << seat.position;
	}
	return met;
}

/* Everything that is posted on has its round, and in it all of its members meet, each at its position, and nobody else.
 */
static void members_meet(void **state)
{
	(void)state;
	for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const struct pp_program *program = pp_collective_program(arena, &grids[g], 3, 60);
		struct pp_nccl_plan plan;
		assert_true(pp_nccl_plan_make(&plan, program));
		for (uint32_t i = 0; i < plan.count; i++)
			for (uint32_t world = 0; plan.round[i] != PP_NULL && world < pp_grid_world(program); world++) {
				struct pp_nccl_seat seat = pp_nccl_plan_seat(program, i, pp_grid_coord(program, world));
				if (seat.members)
					assert_true(meet(&plan, plan.round[i], i, seat.first) == (UINT64_C(1) << seat.members) - 1);
			}
		for (uint32_t i = 0; i < program->channel_count; i++)
			assert_true(plan.round[i] < plan.rounds);
		pp_nccl_plan_free(&plan);
		pp_arena_destroy(arena);
	}
}

/* Channels both ways between neighbours: four rounds serve a pipeline of any length. */
static void rounds_do_not_grow_with_ranks(void **state)
{
	(void)state;
	for (uint32_t ranks = 3; ranks <= 48; ranks += 5) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const struct pp_program *program =
		    pp_collective_program(arena, &(struct pp_collective_grid){ranks, 1, 1, 0}, 3, 0);
		struct pp_nccl_plan plan;
		assert_true(pp_nccl_plan_make(&plan, program));
		assert_int_equal(plan.rounds, 4);
		/* A pipeline that does nothing else needs no communicator for its groups; a group of one never does. */
		for (uint32_t i = program->channel_count; i < plan.count; i++)
			assert_int_equal(plan.round[i], PP_NULL);
		pp_nccl_plan_free(&plan);
		pp_arena_destroy(arena);
	}
}

/* What V11 counted for the collectives of bodies is what their communicator gets. */
static void bodies_have_the_thread_blocks_proven(void **state)
{
	(void)state;
	struct pp_group groups[] = {{.axis = PP_AXIS_DP, .ctas = 16},
	                            {.axis = PP_AXIS_TP, .ctas = 2},
	                            {.axis = PP_AXIS_TP, .ctas = 8},
	                            {.axis = PP_AXIS_TP, .ctas = 4}};
	struct pp_program program = {.ranks = 1, .tp = 2, .dp = 2, .groups = groups, .group_count = 4};
	for (uint32_t g = 0; g < 4; g++)
		assert_int_equal(pp_nccl_plan_ctas(&program, g), groups[g].ctas);
	assert_int_equal(pp_grid_of_bodies(&program), 2);
	assert_int_equal(pp_nccl_plan_ctas(&program, 4), 8);
	program.group_count = 1;
	assert_int_equal(pp_nccl_plan_ctas(&program, 1), 0);
}

/* ---- launch order ---------------------------------------------------------------------------- */

enum { OF_CHANNEL = 1 << PP_LAYOUT_CHANNEL, OF_EDGE = OF_CHANNEL | 1 << PP_LAYOUT_EDGE, OF_ALL = PP_ALL_LAYOUTS };

struct case_of_order {
	uint32_t layouts, in_order, tp;
	struct pp_nccl_versions versions;
	const char *environment;
	bool fine, implicit;
	enum pp_layout layout;
	const char *text; /* part of what is said */
};

static const struct case_of_order cases[] = {
    {OF_ALL,
     OF_ALL,
     1,
     {22809, 13000, 13000},
     NULL,
     true,
     true,
     PP_LAYOUT_EDGE,
     "driver 13.0; launches in program order; queues per edge"},
    {OF_EDGE,
     OF_EDGE,
     1,
     {22809, 12030, 13000},
     "1",
     true,
     true,
     PP_LAYOUT_EDGE,
     "driver 12.3; launches in program order"},
    {OF_EDGE,
     OF_CHANNEL,
     1,
     {22809, 13000, 13000},
     NULL,
     true,
     false,
     PP_LAYOUT_EDGE,
     "in no order, since the program is not proven for launches that start in program order; queues per edge"},
    {OF_EDGE,
     OF_CHANNEL,
     1,
     {22809, 13000, 13000},
     "1",
     false,
     false,
     PP_LAYOUT_EDGE,
     "error[E0906]: with NCCL_LAUNCH_ORDER_IMPLICIT=1 this program could deadlock: launches would start in program "
     "order, for which it is not proven with --queues=edge; "},
    {OF_ALL, OF_ALL, 1, {22504, 13000, 13000}, NULL, true, false, PP_LAYOUT_EDGE, "since NCCL is older than 2.26"},
    {OF_ALL,
     OF_ALL,
     1,
     {22809, 12020, 12080},
     NULL,
     true,
     true,
     PP_LAYOUT_RANK,
     "driver 12.2 is older than 12.3: launches in program order, one after the other; queues per rank"},
    {OF_ALL,
     OF_ALL,
     2,
     {22809, 13000, 12020},
     NULL,
     true,
     true,
     PP_LAYOUT_BLOCKING,
     "CUDA 12.2 is older than 12.3: launches in program order, one after the other; queues per blocking"},
    {OF_ALL - (1 << PP_LAYOUT_BLOCKING),
     OF_EDGE,
     2,
     {22809, 12020, 12020},
     NULL,
     true,
     false,
     PP_LAYOUT_EDGE,
     "in no order, since it is older"},
    {OF_EDGE,
     OF_EDGE,
     1,
     {22809, 12020, 12020},
     NULL,
     true,
     false,
     PP_LAYOUT_EDGE,
     "not proven for one queue per rank"},
    {OF_EDGE,
     OF_EDGE,
     1,
     {22809, 12020, 12020},
     "1",
     false,
     false,
     PP_LAYOUT_EDGE,
     "error[E0906]: with NCCL_LAUNCH_ORDER_IMPLICIT=1 this program could deadlock: driver 12.2, older"},
    {OF_EDGE, 0, 1, {22809, 12020, 12020}, "0", true, false, PP_LAYOUT_EDGE, "since NCCL_LAUNCH_ORDER_IMPLICIT=0"},
};

static void drivers_decide(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct case_of_order *one = &cases[i];
		struct pp_rank ranks[] = {{.post_sms = 33}, {.post_sms = i % 2 ? 33 : 0}};
		struct pp_program program = {.ranks = 2,
		                             .rank = ranks,
		                             .tp = one->tp,
		                             .dp = 1,
		                             .stamp = {.proven = true, .layouts = one->layouts, .in_order = one->in_order}};
		struct pp_nccl_order order;
		struct pp_status status = {0};
		bool fine = pp_nccl_order_decide(&program, PP_LAYOUT_EDGE, &one->versions, one->environment, &order, &status);
		assert_int_equal(fine, one->fine);
		if (!strstr(fine ? order.text : status.text, one->text))
			fail_msg("case %zu: want %s in %s", i, one->text, fine ? order.text : status.text);
		if (!fine)
			continue;
		assert_int_equal(order.implicit, one->implicit);
		assert_int_equal(order.unproven, !one->implicit && i % 2 == 0);
		assert_int_equal(order.layout, one->layout);
	}
}

/* A rank in the middle has four channels, each a stream of its own, and one of compute. */
static void streams_have_connections(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program program = *pp_collective_program(arena, &(struct pp_collective_grid){3, 1, 1, 0}, 3, 0);
	program.group_count = 0;
	program.stamp.layouts = OF_ALL;
	const uint32_t bodies = pp_nccl_plan_seat(&program, program.channel_count, (struct pp_coord){0}).members != 0;
	assert_int_equal(pp_nccl_order_streams(&program, PP_LAYOUT_CHANNEL), 5 + bodies);
	assert_int_equal(pp_nccl_order_streams(&program, PP_LAYOUT_PAIR), 3 + bodies);
	assert_int_equal(pp_nccl_order_streams(&program, PP_LAYOUT_RANK), 2 + bodies);
	assert_int_equal(pp_nccl_order_narrow(&program, PP_LAYOUT_CHANNEL, 5 + bodies), PP_LAYOUT_CHANNEL);
	assert_int_equal(pp_nccl_order_narrow(&program, PP_LAYOUT_CHANNEL, 4 + bodies), PP_LAYOUT_DIRECTION);
	assert_int_equal(pp_nccl_order_narrow(&program, PP_LAYOUT_CHANNEL, 2 + bodies), PP_LAYOUT_RANK);
	/* None is narrow enough, or proven. */
	assert_int_equal(pp_nccl_order_narrow(&program, PP_LAYOUT_PAIR, 1), PP_LAYOUT_PAIR);
	program.stamp.layouts = OF_CHANNEL | 1 << PP_LAYOUT_RANK;
	assert_int_equal(pp_nccl_order_narrow(&program, PP_LAYOUT_CHANNEL, 4 + bodies), PP_LAYOUT_RANK);
	program.stamp.layouts = OF_CHANNEL;
	assert_int_equal(pp_nccl_order_narrow(&program, PP_LAYOUT_CHANNEL, 4 + bodies), PP_LAYOUT_CHANNEL);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(members_meet),
	    cmocka_unit_test(rounds_do_not_grow_with_ranks),
	    cmocka_unit_test(bodies_have_the_thread_blocks_proven),
	    cmocka_unit_test(drivers_decide),
	    cmocka_unit_test(streams_have_connections),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
