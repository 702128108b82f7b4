/* The report of a run that is lost: what every rank waits for, and who is to blame. */
#ifndef PP_REPORT_H
#define PP_REPORT_H

#include "judge.h"

#include <stdio.h>

/* "rank 2 waits: recv grad s3 m5 from rank 3 for 20.0 s (step 4, instruction 17 of 60); rank 3's last instruction: fwd
 * s3 m6", without newline. */
void pp_report_rank(const struct pp_scene *scene, uint32_t rank, FILE *out);

/* One line per rank that waits or works, in the order of ranks, at most this many; then one that names the culprit. The
 * text is built first and written at once, so that those of several processes do not mix. `occasion`: what set it off,
 * "no rank has moved for 60 s". */
enum { PP_REPORT_LINES = 64 };
void pp_report_print(const struct pp_scene *scene, const char *occasion, FILE *out);

/* To standard error and, since launchers may drop what a run says last, to the end of the file `path` (NULL: none). */
void pp_report_publish(const struct pp_scene *scene, const char *occasion, const char *path);

#endif
