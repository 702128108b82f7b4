/* Files that `pipedump` shows: programs, and schedule files of torch.distributed.pipelining (ir/csv.h). */
#ifndef PP_SCHEDULE_FILE_H
#define PP_SCHEDULE_FILE_H

#include "ir/program_file.h"

/* As pp_program_load; a schedule in CSV, which content or name says, becomes a program of its order, `costless`:
 * F, I and W of every stage take 1 unit, B 2, transfers none, and no value has bytes. `legacy`: its letters are the old
 * ones. */
bool pp_shown_load(struct pp_arena *arena, const char *path, bool legacy, struct pp_loaded *loaded,
                   struct pp_status *status);

/* Whether it would be taken for a program or a schedule. */
bool pp_shown_is(const char *path, const char *text, size_t length);

#endif
