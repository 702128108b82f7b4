/* The best order that can be found for a problem (ir/order.h): many constructions compete, the best ones are improved,
 * until one meets the lower bound or the effort is spent. Any map of stages to ranks.
 *
 * Times are those of order.h, in all that is built and compared: where the problem is `queued`, hops of a channel wait
 * for each other.
 *
 * Deterministic for problem and options as long as no timeout strikes. Never worse than any construction it tries, nor
 * than `start`. */
#ifndef PP_SEARCH_H
#define PP_SEARCH_H

#include "ir/order.h"

enum pp_objective {
	PP_SEEK_TIME,   /* least makespan */
	PP_SEEK_SPAN,   /* least longest span of a rank */
	PP_SEEK_MEMORY, /* least memory that costs at most PP_MEMORY_PERCENT of the least makespan found */
};

enum { PP_MEMORY_PERCENT = 5 };

/* An order from elsewhere. */
struct pp_search_start {
	const char *name; /* for people */
	const struct pp_row *rows;
};

struct pp_search_options {
	enum pp_objective objective;
	uint64_t seed;
	uint64_t effort;   /* actions evaluated; 0: what suits the size */
	uint64_t floor;    /* a value that no order beats, where it is known: the report has no other bound; 0: not known */
	uint64_t timeout;  /* ns of wall time, 0: none. A safety: what it cuts off depends on the machine */
	uint64_t deadline; /* monotonic ns in place of `timeout`: shared by several searches; 0: none */
	const struct pp_row *start; /* [ranks], or NULL: all constructions compete, that of policies.def among them */
	const char *start_name;     /* of `start`, for people */
	const struct pp_search_start
	    *more; /* [more_count]: orders that compete besides; those that do not fit are left out */
	uint32_t more_count;
	bool fused; /* only F and B */
	bool brief; /* a sixteenth of the effort, and only the rules and `more` compete */
};

struct pp_search_report {
	struct pp_order_bound bound; /* of a brief search, or with a floor, only that of the objective, without words */
	uint64_t value;              /* of the objective: ns */
	uint64_t effort;             /* actions evaluated */
	const char *start;           /* construction that the result was improved from */
	const char *stopped;         /* optimal | effort | timeout */
	/* PP_SEEK_MEMORY: activations of the fullest rank in bytes, and of the fullest in the fastest order found. */
	uint64_t held, held_fastest;
	/* Infeasible: the rank that lacks memory, and the bytes that it needs at least. */
	uint32_t tight_rank;
	uint64_t least_room;
};

/* requires: a problem with at least one rank, stage and microbatch. ensures: rows ([ranks], made in `arena`) that
 * pp_order_run finishes within the room of every rank. False: no order fits; the report says where. */
bool pp_search(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_search_options *options,
               struct pp_row *rows, struct pp_search_report *report);

#endif
