/* The compute of a schedule file in CSV: csv.h, in one call. */
#ifndef PP_SCHEDULE_READ_H
#define PP_SCHEDULE_READ_H

#include "schedule.h"

/* The schedule, its stages placed on the rows they appear in; NULL after errors in diag. Not checked otherwise. */
struct pp_schedule *pp_schedule_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag);

#endif
