/* Other compilations of a unit's text, made only to learn from them, and what is taken over from such a one. */
#ifndef PP_UNIT_TRIAL_H
#define PP_UNIT_TRIAL_H

#include "pass.h"

/* A unit of its own for the same text, with an arena of its own below that of `unit`: the caller destroys it. Settings
 * are those of the unit; what was found of it so far is not taken over. */
struct pp_unit pp_unit_trial(const struct pp_unit *unit);

/* Copies that outlive the trial. Actions lose their places in the text. */
uint32_t *pp_split_copy(struct pp_arena *arena, const struct pp_stages *stages, uint32_t layers);
struct pp_schedule *pp_schedule_copy(struct pp_arena *arena, const struct pp_schedule *from);

#endif
