/* E0501: what fills the rank that needs most where no split of the layers fits the memory. */
#ifndef PP_SHORTAGE_H
#define PP_SHORTAGE_H

#include "lean.h"

/* Whether it is the schedule's `memory <=` that limits ranks, rather than the device's memory. */
bool pp_shortage_is_bounded(const struct pp_unit *unit);

/* "`memory <= 2244864B` is enough", or what the device would need. `needed`: bytes of the fullest arena as planned. */
void pp_shortage_help(const struct pp_unit *unit, struct pp_message *message, uint64_t needed);

/* What recomputing more in all blocks would need, of each setting with which it is less than `needed`. */
void pp_shortage_help_recompute(const struct pp_unit *unit, struct pp_message *message, uint64_t needed);

/* requires: the unit's stages from pp_partition, over their memory. lean: what the numbers are of; NULL: none could be
 * made, then they are those of the balance. */
void pp_shortage_report(const struct pp_unit *unit, const struct pp_lean *lean);

#endif
