/* The constructors of compiler/order/ as candidates. */
#ifndef PP_SEARCH_STARTS_H
#define PP_SEARCH_STARTS_H

#include "contest.h"

/* Every constructive policy that is made for the placement of the problem enters the contest: as it is when asked for
 * by name, so that nothing that it finds is missed; if `brief`, without a search of its own. */
void pp_search_starts(struct pp_contest *contest, const struct pp_order_problem *problem, bool brief);

#endif
