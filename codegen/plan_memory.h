/* Memory plan: every value of every rank gets its bytes in one arena by its own lifetime. */
#ifndef PP_PLAN_MEMORY_H
#define PP_PLAN_MEMORY_H

#include "ir/diag.h"
#include "ir/program.h"

/* requires: streams whose dynamic slots say class and bytes but have no offset; static slots likewise.
 * ensures:  every slot placed, PP_ALIGN-aligned, static slots first; rank->arena_bytes, static_bytes, live_bytes filled
 * in. Streams made by the lowering have one slot per value: values that came to the same (class, offset, bytes) are
 * made one slot, and each `wait` for a send is moved to just before the first write over the sent bytes. Streams read
 * from text (with spans) keep their instructions and slots: each slot gets bytes of its own from its first to its last
 * use. Ranks whose slots are all placed are left alone. False after an error in diag: a rank needs more bytes than 64
 * bits count. */
bool pp_plan_memory(struct pp_program *program, struct pp_diag *diag);

#endif
