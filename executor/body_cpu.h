/* Runs a body on the CPU. Part of device_cpu. */
#ifndef PP_BODY_CPU_H
#define PP_BODY_CPU_H

#include "body_frame.h"

bool pp_cpu_has_op(enum pp_body_op op);

/* Polls the call's link between instructions and during sleeps. False: an await failed, the run is lost. */
bool pp_cpu_run_body(const struct pp_bound_call *call);

#endif
