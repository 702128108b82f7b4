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

/* Which of a rank's stages goes first, for actions of one kind. */
enum pp_greedy_chunk {
	PP_CHUNK_FIRST,
	PP_CHUNK_LAST,
	PP_CHUNK_OLDEST,  /* the one with the lowest microbatch */
	PP_CHUNK_LONGEST, /* the one whose input has been there for longest */
	PP_CHUNK_COUNT
};

struct pp_greedy_rule {
	uint8_t prefer, prefer_late; /* enum pp_greedy_prefer: of ranks below `split`, and of the others */
	uint32_t split;
	uint8_t chunk[PP_ACTION_KINDS]; /* enum pp_greedy_chunk, for each kind; [PP_I] also for B */
	uint8_t chunk_wait;             /* eighths of a mean F to wait for the stage that goes first */
	bool bold;                      /* let forwards in without room for their later chunks: it may get stuck */
	uint8_t weight_gap;     /* W may start where at least so many quarters of it fit before the next known arrival */
	uint8_t drain_gap;      /* the same once all forwards of the rank are done */
	const uint32_t *most;   /* [ranks]: forwards in flight, over all chunks; NULL: no limit but memory */
	const uint32_t *target; /* [ranks]: PP_PREFER_TARGET: forwards in flight */
	const uint32_t *lag;    /* [ranks]: W is due once so many wait; NULL: never */
	const uint64_t *key;    /* [ids]: if given, the smallest key is taken first, whatever the kind */
	uint8_t make_room; /* W goes ahead for a forward that lacks memory: 0 if idle, 1 in the forward's turn, 2 always */
	uint8_t wait;      /* eighths of a mean F to wait for the preferred one of F and backward */
	uint64_t cutoff;   /* give up once the value is sure to be larger; 0: never */
	uint64_t patience; /* with keys: how long to wait for something of a smaller key */
};

/* False: memory never let it finish, or the cutoff struck. O(actions * chunks of a rank). */
bool pp_greedy(struct pp_arena *scratch, const struct pp_packed *packed, const struct pp_greedy_rule *rule,
               uint32_t *order);

#endif
