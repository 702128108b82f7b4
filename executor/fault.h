/* Planted faults, for tests of what happens when a rank is lost. */
#ifndef PP_FAULT_H
#define PP_FAULT_H

#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

/* At an instruction of a step, of one world rank. Those that take the rank away first wait a moment, until the others
 * have come to where they miss it. */
enum pp_fault_kind {
	PP_FAULT_NONE,
	PP_FAULT_EXIT,  /* the rank leaves without a word */
	PP_FAULT_FAIL,  /* it reports a failure */
	PP_FAULT_SLEEP, /* it hangs in the instruction */
	PP_FAULT_KILL,  /* its process kills itself with SIGKILL */
	PP_FAULT_STOP,  /* … stops itself with SIGSTOP */
	PP_FAULT_SKIP,  /* the next send, receive or collective is never posted, nor later ones of its channel or group */
	PP_FAULT_CUT,   /* its connections of the control star fall silent, as if a cable was pulled */
	PP_FAULT_NAN,   /* a number that the instruction reads becomes NaN, in this step and all later ones */
};

/* While saving checkpoints: the process is killed at the `index`-th point where it can matter (from 1, over the whole
 * run), or pauses for a moment at each of them. */
enum pp_fault_saving { PP_SAVING_FINE, PP_SAVING_KILL, PP_SAVING_SLOW };

struct pp_fault {
	enum pp_fault_kind kind;
	enum pp_fault_saving saving;
	uint32_t rank, index; /* index from 0 */
	uint64_t step;        /* 0 is the first, too */
};

/* RANK:INSTRUCTION[@STEP]:KIND with STEP 1 unless given, or RANK:save:POINT:kill|slow. False with a usage message. */
bool pp_fault_parse(const char *text, struct pp_fault *fault, struct pp_status *status);

/* The instruction of this step that the fault strikes, UINT32_MAX: none. */
uint32_t pp_fault_index(const struct pp_fault *fault, uint32_t world, uint64_t step);

/* Do what concerns the process, and say again what kind it is. */
enum pp_fault_kind pp_fault_meet(enum pp_fault_kind kind);

#endif
