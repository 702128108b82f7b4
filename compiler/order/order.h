/* Constructive schedulers: an order of computes from costs, hops and room, one family per file. policies.def says which
 * policy is made by which. */
#ifndef PP_COMPILER_ORDER_H
#define PP_COMPILER_ORDER_H

#include "ir/order.h"

struct pp_order_options {
	uint32_t group;    /* microbatches per group; 0: the family's own */
	bool fused;        /* only F and B, where the family has both forms */
	bool span;         /* seek the shortest longest span of a rank instead of the shortest makespan */
	bool start;        /* the order is where another search starts from: don't improve it by one */
	uint64_t deadline; /* monotonic ns: come to an end after it; 0: none */
	uint64_t floor;    /* a value that no order can beat (pp_order_bound_value, not of fused backwards); 0: not known */
	bool draft;        /* a first guess, from a split that is not the last one: be quick */
};

/* Why a family makes no order of a problem. Texts live in the arena. */
struct pp_order_refusal {
	const char *reason; /* "needs m >= 2 p - 1: m = 3, p = 4", without the name of the policy */
	const char *help;   /* what to use instead, or NULL */
	/* Where memory is the reason: the rank that has too little, and the room it needs at least. */
	uint32_t rank;
	uint64_t least_room; /* 0: another reason */
};

/* Fill in `rows` ([ranks], empty; actions in the arena). False: *refusal says why. The result passes
 * pp_schedule_check and, unless `draft`, fits the room. Deterministic. */
typedef bool pp_order_maker(struct pp_arena *arena, const struct pp_order_problem *problem,
                            const struct pp_order_options *options, struct pp_row *rows,
                            struct pp_order_refusal *refusal);

#endif
