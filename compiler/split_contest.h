/* Splits of layers that compete by what their orders reach, where memory is short and a policy looks at it. */
#ifndef PP_SPLIT_CONTEST_H
#define PP_SPLIT_CONTEST_H

#include "pass.h"

/* requires: a unit after the resolve pass. ensures: where splits compete, unit->first and unit->given hold the fastest
 * of them and its order; the passes take them as they are. Competitors: the unit as it is, splits with room for k
 * microbatches on every stage, for `search` every named schedule with its own split, for rules orders made for ever
 * less memory, and what each makes without the bound, where that meets it. Deterministic. */
void pp_split_contest(struct pp_unit *unit);

/* Rules have made no order that fits: those that they make for ever less memory compete, the same
 * bounds whatever the limit. At most once for a unit. True: unit->first and unit->given hold the fastest. */
bool pp_split_contest_rooms(struct pp_unit *unit);

/* What the policy makes without a bound on memory may meet the bound, and be faster than the program at hand, if that
 * `fits`: they compete. At most once for a unit; not for `search`. requires: a planned program if `fits`. True:
 * unit->first and unit->given hold the faster. */
bool pp_split_contest_unbound(struct pp_unit *unit, bool fits);

/* `search` has made an order for the room that an earlier plan left, and its program `fits` or not: named schedules on
 * the same split compete, as what they take beside their stashes may be less. At most once for a unit. requires: a
 * planned program if `fits`. True: unit->first and unit->given hold the fastest. */
bool pp_split_contest_named(struct pp_unit *unit, bool fits);

#endif
