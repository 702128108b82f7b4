/* Local search: actions on the critical path change places, as simulated annealing accepts it. */
#ifndef PP_SEARCH_ANNEAL_H
#define PP_SEARCH_ANNEAL_H

#include "packed.h"

struct pp_anneal {
	uint64_t seed;
	uint64_t until;    /* stop once packed->effort has come so far */
	uint64_t target;   /* or once the value is no larger */
	double hot, cold;  /* temperatures, ns */
	uint64_t deadline; /* monotonic ns, or 0 */
};

/* Improve an order in place; its value afterwards. requires: an order that runs and fits. */
uint64_t pp_anneal(struct pp_arena *scratch, const struct pp_packed *packed, const struct pp_anneal *options,
                   uint32_t *order);

#endif
