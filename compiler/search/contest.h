/* The best orders found so far, of whatever origin. */
#ifndef PP_SEARCH_CONTEST_H
#define PP_SEARCH_CONTEST_H

#include "packed.h"

enum { PP_CONTEST_MOST = 6 };

struct pp_entry {
	uint32_t *order;
	uint64_t value, total;
	const char *name; /* where it comes from */
};

struct pp_contest {
	struct pp_arena *arena; /* of the search; its scratch arenas come from here */
	const struct pp_packed *packed;
	struct pp_entry best[PP_CONTEST_MOST]; /* ascending */
	uint32_t count;
	uint32_t *order; /* [actions]: the candidate at hand */
	struct pp_packed_times *times;
	struct pp_order_bound bounds;
	uint64_t bound, seed; /* bound: on the value */
	uint64_t most;        /* actions evaluated; 0: no limit */
	uint64_t deadline;    /* monotonic ns, 0: none */
	bool late;            /* it has passed */
};

struct pp_contest *pp_contest_make(struct pp_arena *arena, const struct pp_packed *packed);

/* Judge the candidate at hand: it enters if it is among the best. False: it does not fit, or can't finish. Its value is
 * in contest->times. */
bool pp_contest_enter(struct pp_contest *contest, const char *name);

/* Nothing more to gain, or no more effort or time. */
bool pp_contest_over(struct pp_contest *contest);

#endif
