/* List schedulers: actions are placed in the order of time, each rank takes the best of what is ready. */
#ifndef PP_SEARCH_GREEDY_H
#define PP_SEARCH_GREEDY_H

#include "packed.h"

enum pp_greedy_prefer {
	PP_PREFER_BACKWARD, /* I (B) before F */
	PP_PREFER_FORWARD,  /* F before I (B) */
	PP_PREFER_TURNS,    /* the kind that was not done last */
	PP_PREFER_TARGET,   /* F below the rank's target, else I */
	PP_PREFER_EARLIEST, /* what has been ready for longest */
	PP_PREFER_COUNT
};

struct pp_greedy_rule {
	uint8_t prefer;         /* enum pp_greedy_prefer */
	bool late_chunks;       /* among forwards: the last chunk first, else the first */
	bool late_backward;     /* among backwards: the same */
	bool bold;              /* let forwards in without room for their later chunks: it may get stuck */
	uint8_t weight_gap;     /* W may start where at least so many quarters of it fit before the next known arrival */
	const uint32_t *most;   /* [ranks]: forwards in flight, over all chunks; NULL: no limit but memory */
	const uint32_t *target; /* [ranks]: PP_PREFER_TARGET: forwards in flight */
	const uint32_t *lag;    /* [ranks]: W is due once so many wait; NULL: never */
	const uint64_t *key;    /* [ids]: if given, the smallest key is taken first, whatever the kind */
	uint8_t wait;           /* eighths of a mean F to wait for the preferred one of F and backward */
	uint64_t patience;      /* with keys: how long to wait for something of a smaller key */
};

/* False: memory never let it finish. O(actions * chunks of a rank). */
bool pp_greedy(struct pp_arena *scratch, const struct pp_packed *packed, const struct pp_greedy_rule *rule,
               uint32_t *order);

#endif
