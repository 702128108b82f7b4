/* Collectives between threads: one team per instance of a group, moved by whichever member sees that all have posted.
 * Used by transport_loop.c only. */
#ifndef PP_COLLECTIVE_LOOP_H
#define PP_COLLECTIVE_LOOP_H

#include "loop_mover.h"

#include <stdatomic.h>

/* The posts of one member. Post k lies at k mod capacity. */
struct pp_loop_member {
	struct pp_part *posts;
	uint32_t capacity;
	atomic_uint_least64_t posted;
};

struct pp_loop_team {
	struct pp_loop_member *members;
	uint32_t member_count;
	atomic_uint_least64_t done;
	atomic_flag moving;
	const struct pp_loop_mover *mover; /* NULL: the members' memory is the host's */
	struct pp_lane *lane;
	const struct pp_part **parts; /* [members]: of the present collective, the mover's */
};

/* Zeroed memory; released with pp_loop_team_free. False: out of memory. */
bool pp_loop_team_make(struct pp_loop_team *team, uint32_t members);
/* Room for `capacity` posts that are not waited for. */
bool pp_loop_team_join(struct pp_loop_team *team, uint32_t member, uint32_t capacity);
void pp_loop_team_free(struct pp_loop_team *team);

/* The number that the member's next post will have: it is over once `done` is larger. */
static inline uint64_t pp_loop_team_next(const struct pp_loop_team *team, uint32_t member)
{
	return atomic_load_explicit(&team->members[member].posted, memory_order_relaxed);
}

/* Returns the number of the post. */
uint64_t pp_loop_team_post(struct pp_loop_team *team, uint32_t member, const struct pp_part *part);

/* Move everything that all members have posted, unless another member is at it. False: members posted different
 * collectives, or the mover failed; `why` says what: it goes on from "members of …". */
bool pp_loop_team_move(struct pp_loop_team *team, char *why, size_t size);

static inline bool pp_loop_team_is_done(const struct pp_loop_team *team, uint64_t number)
{
	return atomic_load_explicit(&team->done, memory_order_acquire) > number;
}

#endif
