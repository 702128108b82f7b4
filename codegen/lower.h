/* Lowering: a schedule becomes per-rank instruction streams through one global order G. Rules R1-R9, proofs T1-T5:
 * the opening comment of lower.c. */
#ifndef PP_LOWER_H
#define PP_LOWER_H

#include "ir/diag.h"
#include "ir/program.h"
#include "ir/schedule.h"
#include "ir/spec.h"

/* requires: a schedule that passed pp_schedule_check; program->ranks, stage_count, microbatches; program->stages (rank,
 *           ticks, out_count, out_dtype, stash and aux bytes, loads) and tables of tensors, uses and static slots
 * filled in by codegen/layer.h. ensures:  program->channels, groups, train (with hyper rows), programs[0] = "train"
 * with streams of every rank, and programs[1] = "eval", the forwards of train's rows, where the spec evaluates; behind
 * the static slots of each rank one slot for every value of the step, not placed: plan_memory.h gives values that never
 * live together the same bytes and makes them one slot. Latency and bandwidth of channels and groups come from
 * spec->cluster: rank r lives on node r / gpus. program->lowering chooses the order of the streams; PP_LOWERED_GIVEN
 * becomes PP_LOWERED_END. False after an error in diag: a program beyond the limits of the
 * format. */
bool pp_lower(struct pp_program *program, const struct pp_spec *spec, const struct pp_schedule *schedule,
              struct pp_diag *diag);

#endif
