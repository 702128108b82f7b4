/* `--emit=stages`: the split as a table, the load of every rank, and why this split. */
#ifndef PP_STAGES_PRINT_H
#define PP_STAGES_PRINT_H

#include "ir/stages.h"

#include <stdio.h>

void pp_stages_print(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out);

#endif
