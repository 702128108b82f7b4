/* Placement under `schedule search` where the spec leaves it open. */
#ifndef PP_SEARCH_PLACE_H
#define PP_SEARCH_PLACE_H

#include "compiler/pass.h"

/* requires: a unit that resolved, with the policy `search`. ensures: options.hint of the unit is the best of linear
 * (one stage per rank), loop and V (two), each searched for a shorter time; unchanged where the spec pins the
 * placement. True: it changed, so resolve again. */
bool pp_search_place(struct pp_unit *unit);

#endif
