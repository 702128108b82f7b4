/* Random small problems: unequal stages and hops, rooms, recomputes, any placement. */
#ifndef PP_TEST_ORDER_RANDOM_H
#define PP_TEST_ORDER_RANDOM_H

#include "ir/order.h"

#include <stdbool.h>
#include <stdint.h>

enum { ORDER_RANDOM_MOST_STAGES = 12, ORDER_RANDOM_MOST_RANKS = 6 };

struct order_random {
	struct pp_order_stage stage[ORDER_RANDOM_MOST_STAGES];
	uint64_t room[ORDER_RANDOM_MOST_RANKS];
	struct pp_order_problem problem;
};

/* Up to 3 ranks; at most `actions` F, so 3 times as many in all. `alike`: stages, hops and rooms are. The problem
 * points into `out`.
 */
void order_random(uint64_t *seed, uint32_t actions, bool alike, struct order_random *out);

/* The same with so many ranks, stages and microbatches. */
void order_random_of(uint64_t *seed, uint32_t ranks, uint32_t stages, uint32_t microbatches, bool alike,
                     struct order_random *out);

#endif
