/* Planted faults, for tests of what happens when a rank is lost. */
#ifndef PP_FAULT_H
#define PP_FAULT_H

#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A planted fault, for tests: at instruction `index` (from 0) of rank `rank` in the first step. */
enum pp_fault_kind { PP_FAULT_NONE, PP_FAULT_EXIT, PP_FAULT_FAIL, PP_FAULT_SLEEP };

/* While saving checkpoints: the process is killed at the `index`-th point where it can matter (from 1, over the whole
 * run), or pauses for a moment at each of them. */
enum pp_fault_saving { PP_SAVING_FINE, PP_SAVING_KILL, PP_SAVING_SLOW };

struct pp_fault {
	enum pp_fault_kind kind;
	enum pp_fault_saving saving;
	uint32_t rank, index;
};

/* RANK:INSTR:exit|fail|sleep, or RANK:save:POINT:kill|slow. False with a usage message. */
bool pp_fault_parse(const char *text, struct pp_fault *fault, struct pp_status *status);

#endif
