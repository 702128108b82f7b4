/* From the times of instructions to a profile: start and end of every instruction of a program, step by step, as
 * `piperun` keeps them and as a trace of it holds them. */
#ifndef PP_MEASURE_H
#define PP_MEASURE_H

#include "profile.h"
#include "simulate.h"

/* What a rank's time goes to: one class per stream op, waits of sends apart from waits of receives. */
enum { PP_CLASS_WAIT_SEND = PP_OP_COUNT, PP_CLASS_COUNT };
unsigned pp_class_of(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr);
const char *pp_class_name(unsigned kind); /* "fwd", "wait recv", "wait send", … */

struct pp_measure;

/* `clock` [world ranks]: equal numbers mean one clock, so that times of these ranks can be compared; NULL: all share
 * one. Everything lives in the arena; so does each sample, 8 bytes, until the end. */
struct pp_measure *pp_measure_begin(struct pp_arena *arena, const struct pp_program *program,
                                    const struct pp_named_program *named, const uint64_t *clock);

/* times[world rank * 2 * longest + 2 * i]: start and end of instruction i of that rank's stream. */
void pp_measure_step(struct pp_measure *measure, const uint64_t *times, uint64_t longest);

/* All but tool, transport and device. requires: at least one step. */
struct pp_profile *pp_measure_end(struct pp_measure *measure);

/* Time of a class per step, summed over all world ranks: median over the steps. */
uint64_t pp_measure_class(struct pp_measure *measure, unsigned kind);

#endif
