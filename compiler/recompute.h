/* What recompute saves and costs: the numbers of warnings and of help. */
#ifndef PP_COMPILER_RECOMPUTE_H
#define PP_COMPILER_RECOMPUTE_H

#include "ir/diag.h"
#include "ir/spec.h"
#include "ir/stages.h"

/* The spec with other parts of all its blocks computed again (a mask of enum pp_recompute). Layers are copied, the rest
 * is shared. */
struct pp_spec pp_recompute_instead(struct pp_arena *arena, const struct pp_spec *spec, uint8_t parts);

/* Warn where attention alone is computed again (W0707): the scores, which are what that saves elsewhere, are not kept
 * anyway. requires: stages->layers and layer_ticks of the spec. */
void pp_recompute_warn(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                       struct pp_diag *diag);

#endif
