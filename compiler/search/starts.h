/* The constructors of compiler/order/ as candidates. */
#ifndef PP_SEARCH_STARTS_H
#define PP_SEARCH_STARTS_H

#include "contest.h"

/* Every constructive policy that is made for the placement of the problem enters the contest. */
void pp_search_starts(struct pp_contest *contest, const struct pp_order_problem *problem);

/* Of those, the ones that search themselves, as far as they do when asked for by name. */
void pp_search_finish(struct pp_contest *contest, const struct pp_order_problem *problem);

#endif
