/* The schedule of a resolved spec: its own rows, or those of the library schedule that it names, on its placement. */
#ifndef PP_SCHEDULE_MAKE_H
#define PP_SCHEDULE_MAKE_H

#include "ir/schedule.h"
#include "resolve.h"

/* Requires a spec that resolved without error; `sources` gets the library's text when a library schedule is used.
 * Ensures rows with the right number of every action; pp_schedule_check says whether they can be executed. */
bool pp_schedule_make(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                      struct pp_diag *diag, struct pp_schedule *out);

#endif
