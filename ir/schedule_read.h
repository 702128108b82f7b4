/* Read a schedule from the CSV grid of torch.distributed.pipelining: one row per rank, cells `2F0`, blank cells idle,
 * overlapped pairs `(0F7;7B3)OVERLAP_F_B`; compute only. */
#ifndef PP_SCHEDULE_READ_H
#define PP_SCHEDULE_READ_H

#include "schedule.h"

/* The schedule, its stages placed on the rows they appear in; NULL after errors in diag: E0613 for a cell that is no
 * action, E0609 for a stage on two rows or on none. Not checked otherwise: pp_schedule_check. Blank rows at the end are
 * dropped. */
struct pp_schedule *pp_schedule_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag);

#endif
