/* The schedule of a resolved spec: its own rows, or what the policy that it names makes, on its placement. */
#ifndef PP_SCHEDULE_MAKE_H
#define PP_SCHEDULE_MAKE_H

#include "ir/order.h"
#include "ir/schedule.h"
#include "resolve.h"

/* The rank of every stage as the spec places them, [stage_count], in the arena. */
uint32_t *pp_schedule_place(struct pp_arena *arena, const struct pp_spec *spec);

/* Whether its order depends on costs and memory: then it wants a problem, and is made again when the split is known. */
bool pp_schedule_aware(const struct pp_resolved *resolved);

/* Requires a spec that resolved without error; `sources` gets the library's text when a library schedule is used.
 * `problem`: costs and memory of the stages; NULL where pp_schedule_aware says no. `draft`: the split is not the last
 * one. Ensures rows with the right number of every action; pp_schedule_check says whether they can be executed. */
bool pp_schedule_make(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                      struct pp_diag *diag, const struct pp_order_problem *problem, bool draft,
                      struct pp_schedule *out);

#endif
