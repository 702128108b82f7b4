/* Inside ir/: what schedule_check.c and schedule_cycle.c share. */
#ifndef PP_SCHEDULE_ORDER_H
#define PP_SCHEDULE_ORDER_H

#include "schedule.h"

/* Chunk of each stage on its rank (0, 1, … in stage order) and number of stages of each rank. */
struct pp_chunks {
	uint32_t *chunk;  /* [stages] */
	uint32_t *stages; /* [ranks] */
};

/* "F3", or "F3.1" where the rank holds several chunks. */
const char *pp_action_name(struct pp_arena *arena, const struct pp_chunks *chunks, const struct pp_schedule *schedule,
                           const struct pp_action *action);

/* The action that makes the boundary value which `action` needs: stage, microbatch and whether it is a forward.
 * False: it needs none (first forward, last backward, W). */
bool pp_action_needs(const struct pp_schedule *schedule, const struct pp_action *action, uint32_t *stage,
                     bool *forward);

/* Run the rows in order as far as data flow lets them, all at once; `position[rank]` := first action that cannot run.
 * `together`: the two of a pair begin when the inputs of both are there. Returns the number of actions that ran.
 * O(actions). */
uint64_t pp_schedule_run(struct pp_arena *arena, const struct pp_schedule *schedule, bool together, uint32_t *position);

/* Report E0605 for a schedule that got stuck at `position`. */
void pp_schedule_report_cycle(struct pp_arena *arena, const struct pp_schedule *schedule,
                              const struct pp_chunks *chunks, const uint32_t *position, struct pp_diag *diag);

#endif
