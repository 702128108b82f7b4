/* Memory outside of the arenas after a run: predicted by formula, measured by the kernel's account. */
#ifndef PP_RUN_MEMORY_H
#define PP_RUN_MEMORY_H

#include "run_report.h"

/* Gather over all ranks; print the process that holds most of it to `out` (NULL: not on this rank). To be called after
 * the last step and before anything is gathered: what later reports need is not counted. */
bool pp_run_memory_print(const struct pp_report_link *link, const struct pp_run_options *options, uint64_t kept_steps,
                         FILE *out, struct pp_status *status);

#endif
