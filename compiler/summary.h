/* What a build or a check that succeeded says: one line of text, or one object of JSON. */
#ifndef PP_SUMMARY_H
#define PP_SUMMARY_H

#include "pass.h"

/* `output`: the image that was written, NULL if none was. JSON has "schema": "pipec.summary/1". */
void pp_summary_print(const struct pp_unit *unit, const char *output, bool json, FILE *out);

/* " (2 of 8 GPUs idle)" where the grid leaves some of the cluster unused. */
void pp_summary_idle(const struct pp_unit *unit, FILE *out);

/* "proven: no deadlock in any queue layout" */
void pp_proof_print(FILE *out, const struct pp_stamp *stamp);

#endif
