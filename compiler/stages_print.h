/* `--emit=stages`: the split as a table, the load of every rank, and why this split. */
#ifndef PP_STAGES_PRINT_H
#define PP_STAGES_PRINT_H

#include "ir/stages.h"

#include <stdio.h>

void pp_stages_print(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out);

/* "emb, block[0..2]": the layers of a stage, runs of one statement joined. In the arena. */
const char *pp_layers_title(struct pp_arena *arena, const struct pp_model *model, uint32_t first, uint32_t count);

#endif
