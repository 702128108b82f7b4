/* Orders of computes under costs, apart from any program: what policies, the search, the bounds and the balance argue
 * about. A problem says what every stage costs, how far stages are from each other and how much memory ranks have;
 * an order is a row of actions per rank (schedule.h).
 *
 * Time: F of a stage starts when its rank is free and F of the stage before has ended and hopped over; B or I when the
 * rank is free, its own F has ended and B or I of the stage after has ended and hopped over; W when the rank is free
 * and its I has ended. A rank does one action at a time, in the order of its row, each as soon as it may. Where the
 * problem is `queued`, as those of specs and programs are, hops of F from one rank to another go one after another, in
 * the order in which the other rank uses what they bring, and so do those of B and I (layout `channel` of simulate.h,
 * where no message finds its channel full); else hops do not wait for each other. Actions joined by `paired` are one
 * step: it starts when the inputs of all are there, takes pair_permille of their sum, and what they make is there at
 * its end; recomputes come ahead of it.
 *
 * Memory: bytes are taken when an action starts and given back when one ends. What a program needs besides (weights,
 * message buffers, workspace) is not of the order: `room` is what is left. */
#ifndef PP_ORDER_H
#define PP_ORDER_H

#include "arena.h"
#include "schedule.h"

#include <stdbool.h>
#include <stdint.h>

#define PP_ROOM_UNLIMITED UINT64_MAX

struct pp_order_stage {
	uint32_t rank;
	uint64_t ticks[PP_ACTION_KINDS]; /* ns of F, B, I, W; B is I + W unless measured */
	uint64_t recompute;              /* ns ahead of every B or I, before or after its gradient arrives; 0: none */
	/* ns from the end of F here until F of the next stage may start, and of B or I here until that of the stage
	 * before may; 0 where both live on one rank, and at the ends of the model */
	uint64_t forward_hop, backward_hop;
	uint64_t held;       /* bytes from the start of F to the end of B or W */
	uint64_t early;      /* part of `held` given back at the end of I already; 0 is what piperun does */
	uint64_t more_fused; /* bytes besides, during B */
	uint64_t more_split; /* bytes besides, from the start of I to the end of W */
};

struct pp_order_problem {
	uint32_t ranks, stages, microbatches;
	const struct pp_order_stage *stage; /* [stages], in the order of the model */
	const uint64_t *room;               /* [ranks]: bytes, or PP_ROOM_UNLIMITED */
	uint32_t pair_permille;             /* time of an overlapped pair, in thousandths of the sum; 1000: no gain */
	bool queued;                        /* hops from one rank to another wait for each other */
	/* [ranks], or NULL: the same as `room`. Where what a program needs besides is an estimate, `room` is what orders
	 * are made for, and this what no program leaves more than: bounds, and all that is called impossible, go by it. */
	const uint64_t *most_room;
};

struct pp_order_rank {
	uint64_t busy;         /* ns of compute */
	uint64_t first, last;  /* start of the first and end of the last action; both 0: none */
	uint64_t peak;         /* most bytes held */
	uint32_t peak_stashes; /* most (stage, microbatch) forwards whose B or W is still to end */
};

struct pp_order_times {
	uint64_t makespan;          /* 0 to the end of the last action */
	uint64_t longest_span;      /* largest last - first of a rank */
	bool fits;                  /* every peak is within its room */
	struct pp_order_rank *rank; /* [ranks] */
	uint64_t **start;           /* [ranks][actions of the row], NULL unless asked */
};

/* The channel of a stage's hops of F and of its hops of B and I: [2 * stages], the number of its first user in there;
 * PP_NO_CHANNEL where nothing leaves the rank. NULL: hops of this problem do not wait for each other. */
#define PP_NO_CHANNEL UINT32_MAX
uint32_t *pp_order_channels(struct pp_arena *arena, const struct pp_order_problem *problem);

/* The same, and NULL also where no order without pairs lets a hop find its channel busy: none takes longer than the
 * shortest action that hands on by it. */
uint32_t *pp_order_queues(struct pp_arena *arena, const struct pp_order_problem *problem);

/* Run `rows` ([ranks]). False: they can't finish (a cycle of rows and data flow). O(actions). Saturating. */
bool pp_order_run(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_row *rows,
                  bool starts, struct pp_order_times *times);

/* What no order of F and B (`fused`), or of F and for each microbatch B or I and W, on these ranks within this room can
 * beat: bounds.c gives the formulas. Both UINT64_MAX: no order fits, and the terms say why. Pairs may be formed where
 * pair_permille is below 1000.
 */
struct pp_order_bound {
	uint64_t makespan, span;
	const char *makespan_term, *span_term; /* which formula binds, for people */
};
struct pp_order_bound pp_order_bound(struct pp_arena *arena, const struct pp_order_problem *problem, bool fused);

/* One of the two only, without words: several times as fast. */
uint64_t pp_order_bound_value(struct pp_arena *arena, const struct pp_order_problem *problem, bool fused, bool span);

/* How far a value is above its bound, as a share of it: 0.1 is 10 %. */
static inline double pp_bound_gap(uint64_t value, uint64_t bound)
{
	return bound && value > bound ? (double)value / (double)bound - 1 : 0;
}

#endif
