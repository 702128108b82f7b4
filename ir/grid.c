/* Coordinates and world ranks. Requires: a checked program, whose world ranks are less than 2^32. */
#include "grid.h"

#include <inttypes.h>
#include <stdio.h>

const uint8_t pp_rank_order_axes[PP_RANK_ORDER_COUNT][PP_AXIS_COUNT] = {
    [PP_ORDER_TP_DP_PP] = {PP_AXIS_TP, PP_AXIS_DP, PP_AXIS_PP},
    [PP_ORDER_TP_PP_DP] = {PP_AXIS_TP, PP_AXIS_PP, PP_AXIS_DP},
    [PP_ORDER_DP_TP_PP] = {PP_AXIS_DP, PP_AXIS_TP, PP_AXIS_PP},
    [PP_ORDER_DP_PP_TP] = {PP_AXIS_DP, PP_AXIS_PP, PP_AXIS_TP},
    [PP_ORDER_PP_TP_DP] = {PP_AXIS_PP, PP_AXIS_TP, PP_AXIS_DP},
    [PP_ORDER_PP_DP_TP] = {PP_AXIS_PP, PP_AXIS_DP, PP_AXIS_TP},
};

enum pp_rank_order pp_rank_order_of(const uint8_t axes[PP_AXIS_COUNT])
{
	for (unsigned order = 0; order < PP_RANK_ORDER_COUNT; order++)
		if (pp_rank_order_axes[order][0] == axes[0] && pp_rank_order_axes[order][1] == axes[1])
			return (enum pp_rank_order)order;
	return PP_ORDER_TP_DP_PP;
}

uint32_t pp_grid_extent(const struct pp_program *program, enum pp_axis axis)
{
	uint32_t extent = axis == PP_AXIS_PP ? program->ranks : axis == PP_AXIS_TP ? program->tp : program->dp;
	return extent ? extent : 1;
}

uint32_t *pp_grid_along(struct pp_coord *coord, enum pp_axis axis)
{
	return axis == PP_AXIS_PP ? &coord->pp : axis == PP_AXIS_TP ? &coord->tp : &coord->dp;
}

uint64_t pp_grid_world(const struct pp_program *program)
{
	return (uint64_t)program->ranks * pp_grid_extent(program, PP_AXIS_TP) * pp_grid_extent(program, PP_AXIS_DP);
}

uint32_t pp_grid_rank(const struct pp_program *program, struct pp_coord coord)
{
	uint32_t rank = 0;
	for (unsigned i = PP_AXIS_COUNT; i-- > 0;) {
		enum pp_axis axis = (enum pp_axis)pp_rank_order_axes[program->rank_order][i];
		rank = rank * pp_grid_extent(program, axis) + *pp_grid_along(&coord, axis);
	}
	return rank;
}

struct pp_coord pp_grid_coord(const struct pp_program *program, uint32_t world_rank)
{
	struct pp_coord coord;
	for (unsigned i = 0; i < PP_AXIS_COUNT; i++) {
		enum pp_axis axis = (enum pp_axis)pp_rank_order_axes[program->rank_order][i];
		*pp_grid_along(&coord, axis) = world_rank % pp_grid_extent(program, axis);
		world_rank /= pp_grid_extent(program, axis);
	}
	return coord;
}

uint32_t pp_grid_node(const struct pp_program *program, uint32_t world_rank)
{
	return program->gpus ? world_rank / program->gpus : 0;
}

const char *pp_grid_name(const struct pp_program *program, uint32_t world_rank, char name[PP_GRID_NAME])
{
	struct pp_coord coord = {0};
	bool plain = !program || (program->tp <= 1 && program->dp <= 1);
	if (!plain)
		coord = pp_grid_coord(program, world_rank);
	if (plain)
		snprintf(name, PP_GRID_NAME, "rank %" PRIu32, world_rank);
	else
		snprintf(name, PP_GRID_NAME, "rank %" PRIu32 " (pp %" PRIu32 " tp %" PRIu32 " dp %" PRIu32 ")", world_rank,
		         coord.pp, coord.tp, coord.dp);
	return name;
}

/* ---- groups ---------------------------------------------------------------------------------- */

uint32_t pp_grid_members(const struct pp_program *program, const struct pp_group *group)
{
	return group->axis == PP_AXIS_PP ? group->member_count : pp_grid_extent(program, (enum pp_axis)group->axis);
}

uint32_t pp_grid_member(const struct pp_program *program, const struct pp_group *group, struct pp_coord coord,
                        uint32_t member)
{
	*pp_grid_along(&coord, (enum pp_axis)group->axis) = group->axis == PP_AXIS_PP ? group->members[member] : member;
	return pp_grid_rank(program, coord);
}

uint32_t pp_grid_position(const struct pp_group *group, struct pp_coord coord)
{
	if (group->axis != PP_AXIS_PP)
		return *pp_grid_along(&coord, (enum pp_axis)group->axis);
	for (uint32_t i = 0; i < group->member_count; i++)
		if (group->members[i] == coord.pp)
			return i;
	return PP_NULL;
}

/* ---- shards ---------------------------------------------------------------------------------- */

uint32_t pp_grid_of_bodies(const struct pp_program *program)
{
	uint32_t found = PP_NULL;
	for (uint32_t g = 0; g < program->group_count; g++)
		if (program->groups[g].axis == PP_AXIS_TP &&
		    (found == PP_NULL || program->groups[g].ctas > program->groups[found].ctas))
			found = g;
	return found;
}

struct pp_box pp_tensor_box(const struct pp_program *program, uint32_t tensor, uint32_t tp)
{
	const struct pp_tensor *whole = &program->tensors[tensor];
	struct pp_box box = {.rows = whole->rows, .columns = whole->columns};
	uint32_t parts = pp_grid_extent(program, PP_AXIS_TP);
	if (whole->tp_grad != PP_TP_SHARDED || parts == 1)
		return box;
	if (whole->shard == 1) {
		box.columns /= parts;
		box.column = tp * box.columns;
	} else {
		box.rows /= parts;
		box.row = tp * box.rows;
	}
	return box;
}
