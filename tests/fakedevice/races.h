/* The race detector: every touch of known memory is remembered with its agent and epoch; a touch conflicts with an
 * earlier one of the same bytes that isn't ordered before it, if one of the two writes. Decided when work is given to a
 * stream, from the order that calls have made: chance and timing play no part. Lock held. */
#ifndef PP_FAKE_RACES_H
#define PP_FAKE_RACES_H

#include "clock.h"

#include <stdbool.h>
#include <stdint.h>

struct pp_fake_touch {
	uintptr_t start;
	uint64_t bytes;
	bool writes;
	const char *name; /* of the kernel in a graph; NULL: that of the toucher; must stay */
};

struct pp_fake_access {
	uintptr_t start, end;
	uint32_t agent, epoch;
	const char *name;  /* of the kernel or call */
	const char *where; /* of the stream or host thread */
	bool writes;
};

/* Of one allocation: the touches that a later one may still conflict with. */
struct pp_fake_history {
	struct pp_fake_access *accesses;
	uint32_t count, capacity;
};

struct pp_fake_toucher {
	uint32_t agent;
	const struct pp_fake_clock *clock;
	const char *name, *where; /* both must stay */
};

/* Looks at the touch and remembers it. Memory that isn't known has no history: nothing happens. */
void pp_fake_races_touch(const struct pp_fake_toucher *by, const struct pp_fake_touch *touch);
/* Is everything that touched these bytes, or only what wrote them, ordered before `clock`? */
bool pp_fake_races_settled(const struct pp_fake_clock *clock, const void *start, uint64_t bytes, bool only_writes);

#endif
