/* Lowering: a schedule becomes per-rank instruction streams through one global order G. Rules R1-R9, proofs T1-T5:
 * the opening comment of lower.c. */
#ifndef PP_LOWER_H
#define PP_LOWER_H

#include "ir/diag.h"
#include "ir/program.h"
#include "ir/schedule.h"
#include "ir/spec.h"

/* requires: a schedule that passed pp_schedule_check; program->stages (rank, ticks, out_count, stash and aux bytes,
 *           loads) and tables of tensors, uses and static slots filled in by codegen/layer.h.
 * ensures:  program->channels, groups, hypers, programs[0] = "train" with streams of every rank, dynamic slots not yet
 *           placed (one slot per value class and lifetime pool, R1/R4/R6).
 * links[channel]: latency and bandwidth of the link between two ranks come from spec->cluster. */
bool pp_lower(struct pp_program *program, const struct pp_spec *spec, const struct pp_schedule *schedule, struct pp_diag *diag);

#endif
