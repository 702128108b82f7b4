/* The grid of a run: pipeline x tensor-parallel x data-parallel coordinates and the world ranks that hold them.
 *
 * A world rank is a process (a thread in the loop transport). Streams, slots and channels belong to pipeline ranks, the
 * coordinate pp: all coordinates of the tp and dp axes run the same stream of their pipeline rank, and a channel or a
 * group on the pp axis connects ranks of the same (tp, dp). */
#ifndef PP_GRID_H
#define PP_GRID_H

#include "program.h"

struct pp_coord {
	uint32_t pp, tp, dp;
};

/* Axes of an order, fastest first. */
extern const uint8_t pp_rank_order_axes[PP_RANK_ORDER_COUNT][PP_AXIS_COUNT];

/* The order of these axes, fastest first; they are a permutation. */
enum pp_rank_order pp_rank_order_of(const uint8_t axes[PP_AXIS_COUNT]);

enum { PP_GRID_MOST = 1 << 24 }; /* world ranks */

/* World ranks of a program. */
uint64_t pp_grid_world(const struct pp_program *program);

uint32_t pp_grid_rank(const struct pp_program *program, struct pp_coord coord);
struct pp_coord pp_grid_coord(const struct pp_program *program, uint32_t world_rank);

/* The node that a world rank is planned on. */
uint32_t pp_grid_node(const struct pp_program *program, uint32_t world_rank);

/* What messages call a world rank: "rank 5 (pp 2 tp 1 dp 0)", or "rank 5" where the pipeline is all there is. Returns
 * `name`. */
enum { PP_GRID_NAME = 64 };
const char *pp_grid_name(const struct pp_program *program, uint32_t world_rank, char name[PP_GRID_NAME]);

/* The coordinate along an axis. */
uint32_t *pp_grid_along(struct pp_coord *coord, enum pp_axis axis);

/* Size along an axis. */
uint32_t pp_grid_extent(const struct pp_program *program, enum pp_axis axis);

/* Members of the group that a coordinate belongs to. */
uint32_t pp_grid_members(const struct pp_program *program, const struct pp_group *group);

/* World rank of a member of the group that `coord` belongs to. */
uint32_t pp_grid_member(const struct pp_program *program, const struct pp_group *group, struct pp_coord coord,
                        uint32_t member);

/* Position of a coordinate in its group, PP_NULL if it is no member. */
uint32_t pp_grid_position(const struct pp_group *group, struct pp_coord coord);

/* Collectives of bodies run on a communicator of their own over tp. The group that says its thread blocks: of those
 * along tp the one with most. PP_NULL: there is none. */
uint32_t pp_grid_of_bodies(const struct pp_program *program);

/* The part of a tensor that a tp coordinate holds: a rectangle of the whole, stored row-major. */
struct pp_box {
	uint32_t row, rows, column, columns;
};

struct pp_box pp_tensor_box(const struct pp_program *program, uint32_t tensor, uint32_t tp);

#endif
