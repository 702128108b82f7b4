/* Measured times of a step as slices and arrows of a Chrome trace. */
#ifndef PP_RUN_TRACE_H
#define PP_RUN_TRACE_H

#include "ir/program.h"
#include "ir/trace.h"

/* times[world rank * 2 * longest + 2 * i]: start and end of instruction i of its stream, ns from the start of the run.
 */
void pp_run_trace_step(struct pp_trace *trace, const struct pp_program *program, const struct pp_named_program *named,
                       uint64_t step, const uint64_t *times, uint64_t longest);

#endif
