/* The best order of a small problem, by looking at all of them. Written apart from the bounds and the search, to judge
 * both. */
#ifndef PP_TEST_EXACT_H
#define PP_TEST_EXACT_H

#include "ir/order.h"

enum exact_result {
	EXACT_FOUND,
	EXACT_NONE,  /* no order fits the rooms */
	EXACT_LIMIT, /* more than `states` were met: `value` is the best so far, or UINT64_MAX */
};

struct exact {
	bool fused, span; /* F and B only, or I and W too; longest span or makespan */
	uint64_t states;  /* give up after so many */
	uint64_t start;   /* only orders below this are looked for; UINT64_MAX: all */
	uint64_t value;   /* result */
};

/* Requires: at most 7 microbatches and 20 tracks (a kind of action of a stage); pairs are not formed. Orders of equal
 * microbatches that differ in their names only are the same. */
enum exact_result exact_order(const struct pp_order_problem *problem, struct exact *exact);

#endif
