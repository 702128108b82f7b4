/* Layers to stages to ranks: the explicit split of the spec, or the best one for its `balance`. */
#ifndef PP_PARTITION_H
#define PP_PARTITION_H

#include "ir/diag.h"
#include "ir/schedule.h"
#include "ir/stages.h"

/* requires: stages->layers and layer_ticks (cost.h); a schedule whose rows say how many microbatches are in flight on
 *           each stage when its rank is fullest (memory caps count static bytes and that many stashes). headroom: bytes
 * of every rank that an earlier plan took for other things (message buffers, workspace), or NULL. ensures:
 * stages->items with layers, rank and sums; every layer in exactly one stage, in order; stages->over where no split is
 * within the memory. Errors: E0407 fewer layers than stages allow, E0408 `balance = even` with a remainder. Warning:
 * W0405 a stage far above the mean. */
bool pp_partition(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule,
                  const uint64_t *headroom, struct pp_stages *stages, struct pp_diag *diag);

/* ---- for splits that are judged by more than the balance (compiler/joint) -------------------- */

struct pp_balance_problem;

/* What pp_partition balances, and under which caps. */
struct pp_balance_problem *pp_partition_problem(struct pp_arena *arena, const struct pp_spec *spec,
                                                const struct pp_schedule *schedule, const uint64_t *headroom,
                                                const struct pp_stages *stages);

/* Numbers of blocks per stage that differ by 1 at most; what stands before the first block goes with it, likewise after
 * the last. False: fewer blocks than stages, or stages of a size that is not allowed. */
bool pp_partition_even(const struct pp_spec *spec, const struct pp_balance_problem *problem, uint32_t *first);

/* Take this split in place of that of pp_partition. */
void pp_partition_use(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_balance_problem *problem,
                      const uint32_t *first, struct pp_stages *stages);

/* Warnings on the final split: W0406. */
void pp_partition_warn(const struct pp_spec *spec, const struct pp_stages *stages, struct pp_diag *diag);

#endif
