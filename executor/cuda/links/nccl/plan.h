/* Which communicators a program needs, and in which order they are split off that of the world: one per channel and
 * group of every coordinate, disjoint ones in the same round. The same on all ranks. */
#ifndef PP_NCCL_PLAN_H
#define PP_NCCL_PLAN_H

#include "ir/grid.h"

/* What posts go through: a channel, a group, or the tensor-parallel group of bodies. */
struct pp_nccl_plan {
	const struct pp_program *program;
	uint32_t count;  /* channels, then groups, then that of bodies */
	uint32_t *round; /* [count]; PP_NULL: nobody posts on it, or it has one member only */
	uint32_t rounds;
};

/* False: out of memory. */
bool pp_nccl_plan_make(struct pp_nccl_plan *plan, const struct pp_program *program);
void pp_nccl_plan_free(struct pp_nccl_plan *plan);

/* The group behind an index that is no channel's. */
const struct pp_group *pp_nccl_plan_group(const struct pp_program *program, uint32_t index);

/* A rank's part in it: members, its position among them, and the world rank of the first one, which tells its
 * communicator from the others of the round. members == 0: it has none. */
struct pp_nccl_seat {
	uint32_t members, position, first;
};

struct pp_nccl_seat pp_nccl_plan_seat(const struct pp_program *program, uint32_t index, struct pp_coord coord);

/* What a rank takes part in in a round, PP_NULL: nothing. */
uint32_t pp_nccl_plan_at(const struct pp_nccl_plan *plan, uint32_t round, struct pp_coord coord);

/* NCCL's maxCTAs of its communicator; 0: NCCL's own choice. */
uint32_t pp_nccl_plan_ctas(const struct pp_program *program, uint32_t index);

/* "c2 (rank 0 to rank 1)", "g1", "the tensor-parallel group of bodies"; pipeline ranks. */
enum { PP_NCCL_NAME = 96 };
const char *pp_nccl_plan_name(const struct pp_program *program, uint32_t index, char name[PP_NCCL_NAME]);

#endif
