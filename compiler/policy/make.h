/* The order of a `policy { limit … prefer … }`: its rules, run by the list scheduler under the costs of the problem and
 * within the room of its ranks.
 *
 * Reports E0609 (chunk that no rank holds), E0623 (too large), E0630 (stuck), E0631 (an action that a rule cannot
 * name), E0632 (policy beside order), E0633 (no rule takes an action that is needed), W0630 (limit that never holds
 * anything back), W0631 (prefer line whose turn never comes), W0632 (action in a line that is never taken), and what
 * evaluating the expressions reports. */
#ifndef PP_RULES_MAKE_H
#define PP_RULES_MAKE_H

#include "compiler/rows.h"
#include "ir/order.h"

/* The `policy` block of a schedule, or NULL. */
const struct pp_stmt *pp_rules_block(const struct pp_stmt *schedule);

/* Requires a block that holds a `policy`, and a problem with the ranks, stages and microbatches of the input. `draft`:
 * one of many trials; nothing is warned of, and no advice is looked for. Ensures complete rows that run within the
 * room, with the ties in out->remarks. */
bool pp_rules_make(struct pp_arena *arena, const struct pp_rows_input *input, const struct pp_order_problem *problem,
                   bool draft, struct pp_diag *diag, struct pp_schedule *out);

#endif
