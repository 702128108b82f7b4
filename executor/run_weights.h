/* Hashes of the final weights, by global tensors: equal bits give equal hashes, however a model is cut. */
#ifndef PP_RUN_WEIGHTS_H
#define PP_RUN_WEIGHTS_H

#include "run_report.h"

/* Print `weights NAME HASH` per tensor, in tensor order, to `out` (NULL: not on this rank). The hash is that of the
 * whole tensor in row-major order. Called by all ranks together; fails if copies of a tensor differ: tied ones over pp,
 * replicated ones over tp, all over dp. */
bool pp_run_weights(const struct pp_report_link *link, FILE *out, struct pp_status *status);

#endif
