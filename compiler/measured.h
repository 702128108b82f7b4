/* Measured costs in place of the cost model's: a profile that `piperun --profile` wrote, for this model. */
#ifndef PP_MEASURED_H
#define PP_MEASURED_H

#include "ir/diag.h"
#include "ir/profile.h"
#include "ir/spec.h"
#include "ir/stages.h"

/* Read a profile. NULL: E0511 says where and why it is refused. */
const struct pp_profile *pp_measured_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag);

/* Whether the profile is of this model and training: E0512 where it is not, E0513 where a stage has no times. requires:
 * stages->layers. */
bool pp_measured_check(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                       struct pp_diag *diag);

/* Replace stages->layer_ticks: what each layer takes so that the profile's stages come out as measured. Layers of one
 * kind and size count as equal, and the split tells kinds apart as far as it can; what it leaves open stays in the
 * proportions of the model. Returns the largest deviation of a stage from what was measured, as a share. */
double pp_measured_layers(struct pp_arena *arena, const struct pp_spec *spec, struct pp_stages *stages);

/* After the split: where it is the profile's own, the stages take exactly what was measured. */
void pp_measured_stages(const struct pp_spec *spec, struct pp_stages *stages);

/* W0514 where it is another one and the deviation is above 10 %. */
void pp_measured_warn(const struct pp_spec *spec, const struct pp_stages *stages, double deviation,
                      struct pp_diag *diag);

/* The split is the one that was measured. */
bool pp_measured_split(const struct pp_profile *profile, const struct pp_stages *stages);

#endif
