/* Planted faults (fault.h) at an instruction. Part of interp.c. */
#ifndef PP_INTERP_FAULT_H
#define PP_INTERP_FAULT_H

#include "interp.h"

/* The fault of the running step strikes before this instruction. False: the step ends with *interp->status. */
bool pp_interp_meet_fault(struct pp_interp *interp, const struct pp_instr *instr, uint32_t index);

bool pp_interp_posts(const struct pp_instr *instr);

/* Is this a post on the channel or group of `skipped`, or a wait for one? */
bool pp_interp_is_mute(const struct pp_stream *stream, const struct pp_instr *instr, const struct pp_instr *skipped);

#endif
