/* Layers to stages to ranks: the explicit split of the spec, or the best one for its `balance`. */
#ifndef PP_PARTITION_H
#define PP_PARTITION_H

#include "ir/diag.h"
#include "ir/schedule.h"
#include "ir/stages.h"

/* requires: stages->layers and layer_ticks (cost.h); a schedule whose rows say how many microbatches are in flight on
 *           each stage when its rank is fullest (memory caps count static bytes and that many stashes). headroom: bytes
 * of every rank that an earlier plan took for other things (message buffers, workspace), or NULL. ensures:
 * stages->items with layers, rank and sums; every layer in exactly one stage, in order. Errors: E0407 fewer layers than
 * stages allow, E0408 `balance = even` with a remainder, E0501 no split fits the memory. Warnings: W0405 a stage far
 * above the mean, W0406 an empty stage. */
bool pp_partition(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule,
                  const uint64_t *headroom, struct pp_stages *stages, struct pp_diag *diag);

#endif
