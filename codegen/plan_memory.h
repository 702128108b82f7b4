/* Memory plan: every value of every rank gets its bytes in one arena by its own lifetime. */
#ifndef PP_PLAN_MEMORY_H
#define PP_PLAN_MEMORY_H

#include "ir/diag.h"
#include "ir/program.h"

/* requires: streams whose dynamic slots say class and bytes but have no offset; static slots likewise.
 * ensures:  every slot placed, 256-byte aligned; static slots first; dynamic slots renumbered so that each distinct
 *           (class, offset, bytes) is one slot; rank->arena_bytes, static_bytes, live_bytes filled in. Streams that
 *           already have offsets (from a .pps) are left alone. */
bool pp_plan_memory(struct pp_program *program, struct pp_diag *diag);

#endif
