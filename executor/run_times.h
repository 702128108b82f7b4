/* Start and end of every instruction, kept while steps run, gathered over all ranks when they are over: for the Chrome
 * trace, the profile, and the comparison with what was predicted. */
#ifndef PP_RUN_TIMES_H
#define PP_RUN_TIMES_H

#include "run_report.h"

struct pp_run_times;

/* Steps that fit into 256 MiB of times per rank are kept; for a profile alone the first and 64 more. Rank 0 opens the
 * trace and tries the folder of the profile at once, so that a wrong path is known before the run. */
struct pp_run_times *pp_run_times_open(const struct pp_interp *interp, const struct pp_named_program *named,
                                       uint64_t steps, const struct pp_run_options *options, struct pp_status *status);
void pp_run_times_close(struct pp_run_times *times);

/* All ranks have just met: time 0 of the trace. */
void pp_run_times_start(struct pp_run_times *times);

/* Where the interpreter keeps the times of this step (from 1), or NULL. */
uint64_t *pp_run_times_of(struct pp_run_times *times, uint64_t step);

/* Steps that are kept. */
uint64_t pp_run_times_kept(const struct pp_run_times *times);

/* Gather; rank 0 writes the trace and the profile, and prints the comparison to `out` (NULL: nothing is printed). */
bool pp_run_times_finish(struct pp_run_times *times, const struct pp_report_link *link, FILE *out,
                         struct pp_status *status);

#endif
