/* Coordinates and world ranks: every order is a bijection, the fastest axis has neighbours, groups agree with it. */
#include "ir/grid.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>

#include <cmocka.h>
#include <string.h>

static void assert_coord(struct pp_coord coord, uint32_t pp, uint32_t tp, uint32_t dp)
{
	assert_int_equal(coord.pp, pp);
	assert_int_equal(coord.tp, tp);
	assert_int_equal(coord.dp, dp);
}

static void default_order(void **state)
{
	(void)state;
	const struct pp_program program = {.ranks = 3, .tp = 2, .dp = 4};
	assert_int_equal(pp_grid_world(&program), 24);
	assert_coord(pp_grid_coord(&program, 0), 0, 0, 0);
	assert_coord(pp_grid_coord(&program, 1), 0, 1, 0);
	assert_coord(pp_grid_coord(&program, 2), 0, 0, 1);
	assert_coord(pp_grid_coord(&program, 8), 1, 0, 0);
	assert_coord(pp_grid_coord(&program, 23), 2, 1, 3);
	assert_int_equal(pp_grid_rank(&program, (struct pp_coord){.pp = 1, .tp = 1, .dp = 2}), 13);
}

static void every_order_is_a_bijection(void **state)
{
	(void)state;
	struct pp_program program = {.ranks = 3, .tp = 2, .dp = 4};
	for (uint8_t order = 0; order < PP_RANK_ORDER_COUNT; order++) {
		program.rank_order = order;
		bool seen[24] = {false};
		for (uint32_t rank = 0; rank < 24; rank++) {
			struct pp_coord coord = pp_grid_coord(&program, rank);
			assert_true(coord.pp < 3 && coord.tp < 2 && coord.dp < 4);
			uint32_t at = (coord.pp * 2 + coord.tp) * 4 + coord.dp;
			assert_false(seen[at]);
			seen[at] = true;
			assert_int_equal(pp_grid_rank(&program, coord), rank);
		}
		assert_int_equal(pp_rank_order_of(pp_rank_order_axes[order]), order);
		/* The first axis of the name is the one along which rank 1 lies. */
		struct pp_coord second = pp_grid_coord(&program, 1);
		const char *name = pp_rank_order_name[order];
		assert_int_equal(second.pp, strncmp(name, "pp", 2) == 0);
		assert_int_equal(second.tp, strncmp(name, "tp", 2) == 0);
		assert_int_equal(second.dp, strncmp(name, "dp", 2) == 0);
	}
}

static void groups(void **state)
{
	(void)state;
	const struct pp_program program = {.ranks = 3, .tp = 2, .dp = 4};
	uint32_t members[] = {0, 2};
	const struct pp_group pp = {.axis = PP_AXIS_PP, .members = members, .member_count = 2};
	const struct pp_group tp = {.axis = PP_AXIS_TP}, dp = {.axis = PP_AXIS_DP};
	const struct pp_coord coord = {.pp = 2, .tp = 1, .dp = 3};
	assert_int_equal(pp_grid_members(&program, &pp), 2);
	assert_int_equal(pp_grid_members(&program, &tp), 2);
	assert_int_equal(pp_grid_members(&program, &dp), 4);
	assert_int_equal(pp_grid_position(&pp, coord), 1);
	assert_int_equal(pp_grid_position(&tp, coord), 1);
	assert_int_equal(pp_grid_position(&dp, coord), 3);
	assert_int_equal(pp_grid_position(&pp, (struct pp_coord){.pp = 1}), PP_NULL);
	assert_coord(pp_grid_coord(&program, pp_grid_member(&program, &pp, coord, 0)), 0, 1, 3);
	assert_coord(pp_grid_coord(&program, pp_grid_member(&program, &tp, coord, 0)), 2, 0, 3);
	assert_coord(pp_grid_coord(&program, pp_grid_member(&program, &dp, coord, 1)), 2, 1, 1);
}

static void names(void **state)
{
	(void)state;
	char name[PP_GRID_NAME];
	struct pp_program program = {.ranks = 4, .tp = 1, .dp = 1, .gpus = 2};
	assert_string_equal(pp_grid_name(&program, 3, name), "rank 3");
	assert_string_equal(pp_grid_name(NULL, 3, name), "rank 3");
	assert_int_equal(pp_grid_node(&program, 3), 1);
	program = (struct pp_program){.ranks = 4, .tp = 2, .dp = 1};
	assert_string_equal(pp_grid_name(&program, 5, name), "rank 5 (pp 2 tp 1 dp 0)");
	assert_int_equal(pp_grid_node(&program, 5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(default_order),
	    cmocka_unit_test(every_order_is_a_bijection),
	    cmocka_unit_test(groups),
	    cmocka_unit_test(names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
