/* Splits of layers that compete by what their orders reach, where memory is short and a policy looks at it. */
#ifndef PP_SPLIT_CONTEST_H
#define PP_SPLIT_CONTEST_H

#include "pass.h"

/* requires: a unit after the resolve pass. ensures: where splits compete, unit->first and unit->given hold the fastest
 * of them and its order; the passes take them as they are. Competitors: the unit as it is, splits with room for k
 * microbatches on every stage, for `search` every named schedule with its own split, and for rules orders made for
 * ever less memory. Deterministic. */
void pp_split_contest(struct pp_unit *unit);

/* Rules have made no order that fits: those that they make for ever less memory compete, the same
 * bounds whatever the limit. At most once for a unit. True: unit->first and unit->given hold the fastest. */
bool pp_split_contest_rooms(struct pp_unit *unit);

#endif
