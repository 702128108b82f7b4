/* Loading what `pipedump` is given: an image or a program text, told apart by content. */
#ifndef PP_DUMP_LOAD_H
#define PP_DUMP_LOAD_H

#include "ir/diag.h"
#include "ir/program.h"

/* NULL: either `diag` has errors (the text was wrong), or `status` says what the file is instead. */
struct pp_program *pp_dump_load(struct pp_arena *arena, const char *path, struct pp_diag **diag,
                                struct pp_status *status);

#endif
