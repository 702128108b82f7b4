/* What a rank may take against what its plan takes: other splits and orders where memory is short, and what is said
 * where none fits. */
#ifndef PP_ROUNDS_H
#define PP_ROUNDS_H

#include "order_problem.h"
#include "pass.h"

/* Is the split of the layers ours to choose, and not chosen yet? */
bool pp_rounds_split_is_ours(const struct pp_unit *unit);

/* Where this split leaves a rank without the room that its order needs at least: take that much more from the layers,
 * and say false. Messages and workspace are first known from a split. */
bool pp_rounds_leave_room(struct pp_unit *unit);

/* After the plan pass. Where a rank is over its memory and split or order are ours to choose, another round: the layers
 * are split again, or at least the order is made again, with as much less room as the plan took for messages and
 * workspace; in the end the leanest build known (lean.h). `from`: the pass to go on with. */
bool pp_rounds_again(struct pp_unit *unit, enum pp_pass *from);

/* How often the room of orders is to be halved in this round: where estimates of what else a plan takes do not lead to
 * one that fits, orders that hold less may. */
unsigned pp_rounds_halvings(const struct pp_unit *unit);

/* Is every rank within its memory? False: said, as E0640, E0671 or E0501. */
bool pp_rounds_within(struct pp_unit *unit);

/* A policy refused to order: if memory is why, take the leanest build in its place, or say in `diag` what would be
 * enough. True: taken. */
bool pp_rounds_rescue(struct pp_unit *unit, struct pp_diag *diag);

/* No split is within the memory: E0501, with the numbers of the leanest build. */
void pp_rounds_report_split(struct pp_unit *unit);

#endif
