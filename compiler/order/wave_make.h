/* From shapes to the rows of a policy. */
#ifndef PP_ORDER_WAVE_MAKE_H
#define PP_ORDER_WAVE_MAKE_H

#include "order.h"
#include "wave_shape.h"

/* Stashes of its whole share of the model ("acts") that a rank may hold; the room still counts. */
#define PP_WAVE_ANY_ACTS UINT32_MAX

struct pp_wave_wish {
	uint32_t acts;            /* most acts of a rank, or PP_WAVE_ANY_ACTS */
	enum pp_wave_listed list; /* to try besides the basic ones */
	uint64_t drawn;           /* operations to place with shapes drawn and varied besides */
	uint64_t first;           /* so many of them as if there were no more, so that more is never worse */
	uint64_t floor;           /* a value that no order can beat: stop there; 0: not known */
	uint64_t deadline;        /* monotonic ns: draw no more shapes after it; 0: none */
	bool draft;               /* where the room is too small, take room for one microbatch */
	bool span;                /* seek the shortest longest span instead of the shortest makespan */
};

/* Most orders that pp_wave_make gives. */
enum { PP_WAVE_MADE = 4 };

/* The best orders of a contest of shapes, best first, in `rows` ([wanted][ranks]); `wanted` at most PP_WAVE_MADE.
 * Returns how many there are; 0: *refusal says why. Deterministic. */
uint32_t pp_wave_make(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_wave_wish *wish,
                      uint32_t wanted, struct pp_row **rows, struct pp_order_refusal *refusal);

#endif
