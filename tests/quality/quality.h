/* Published schedules and proven optima, as problems that our own schedulers are held to. */
#ifndef PP_TEST_QUALITY_H
#define PP_TEST_QUALITY_H

#include "ir/order.h"

enum { QUALITY_MOST_RANKS = 8, QUALITY_TICKS = 1000, QUALITY_ACT = 1000 };

enum quality_shape { QUALITY_LINEAR, QUALITY_V, QUALITY_LOOP, QUALITY_LOOP4, QUALITY_SHAPES };
extern const char *const quality_shape_name[];

/* A row of tests/data/quality: the problem in a form that rows share, and what others reached. Times in thousandths of
 * the row's unit, memory in thousandths of the activation of one microbatch on one device's whole share. */
struct quality_row {
	const char *schedule, *costs; /* names */
	uint32_t line, ranks, microbatches, chunks;
	uint64_t forward[QUALITY_MOST_RANKS], input[QUALITY_MOST_RANKS], weight[QUALITY_MOST_RANKS], hop;
	uint64_t room, early; /* early: part of QUALITY_ACT */
	const char *limit;    /* as written, or NULL: the row's own peak */
	bool exact;           /* of schedule_exact.tsv: one shape, one objective */
	bool fused, proven;
	bool reported; /* only reported: another kind of problem */
	enum quality_shape shape;
	uint64_t makespan, span; /* UINT64_MAX: not the objective */
};

struct quality_rows {
	struct quality_row *items;
	size_t count, capacity;
};

/* Read both tables of `folder`; exits with a message if they are not as they were copied. */
struct quality_rows quality_read(struct pp_arena *arena, const char *folder);

/* The problem of a row on a placement. */
struct pp_order_problem *quality_problem(struct pp_arena *arena, const struct quality_row *row,
                                         enum quality_shape shape);

/* The best order of all families and the search. */
struct quality_best {
	uint64_t value, bound; /* bound: on the same placement */
	uint64_t least;        /* least bound of all placements: nothing of ours could be below */
	const char *maker;
	enum quality_shape shape;
};

struct quality_options {
	uint64_t effort; /* of a search; 0: its own */
	bool search;
	bool verbose;
};

/* `span`: the longest span counts, else the makespan. False: nothing fits. */
bool quality_best(struct pp_arena *arena, const struct quality_row *row, bool span,
                  const struct quality_options *options, struct quality_best *best);

#endif
