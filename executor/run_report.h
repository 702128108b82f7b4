/* What a run measured, beside what was predicted: step time and idle time per rank, peak memory. Gathered over all
 * ranks; rank 0 prints. */
#ifndef PP_RUN_REPORT_H
#define PP_RUN_REPORT_H

#include "interp.h"
#include "run_options.h"

struct pp_run_report;

/* How a report reaches the other ranks. */
struct pp_report_link {
	const struct pp_transport_ops *transport;
	struct pp_endpoint *endpoint;
	struct pp_watch *watch;
	struct pp_interp *interp;
};

struct pp_run_report *pp_run_report_open(const struct pp_program *program, uint32_t world, struct pp_status *status);
void pp_run_report_close(struct pp_run_report *report);

/* Add a finished step. The first one warms caches up and does not count, unless it is the only one. */
void pp_run_report_step(struct pp_run_report *report, const struct pp_interp *interp);

/* Gather over all ranks and print to `out` (NULL: not on this rank). */
bool pp_run_report_print(struct pp_run_report *report, const struct pp_report_link *link,
                         const struct pp_run_options *options, FILE *out, struct pp_status *status);

#endif
