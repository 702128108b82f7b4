/* Does a run stay within the memory that was planned, and does it use all of it? Before the first step all of the arena
 * that initialisation does not write is filled with a pattern of NaNs, so that whoever computes with what nobody has
 * written gets NaNs; guard zones around it get a pattern of their own. After each step the guards and every byte that
 * belongs to nothing must still hold the pattern; after the last, whatever else still holds it was planned in vain. */
#ifndef PP_CANARY_H
#define PP_CANARY_H

#include "run_report.h"

enum { PP_CANARY_GUARD = 4096 }; /* bytes of a guard zone */

struct pp_canary;

/* Fill. Requires a device made with guard zones of PP_CANARY_GUARD, weights and moments initialised. */
struct pp_canary *pp_canary_open(const struct pp_interp *interp, struct pp_status *status);
void pp_canary_close(struct pp_canary *canary);

/* After a step. False, PP_EXIT_RUN: something was written outside of everything planned; *status says where. */
bool pp_canary_check(struct pp_canary *canary, uint64_t step, struct pp_status *status);

/* Gather what was touched over all ranks and print it to `out` (NULL: not on this rank). */
bool pp_canary_report(struct pp_canary *canary, const struct pp_report_link *link, FILE *out, struct pp_status *status);

#endif
