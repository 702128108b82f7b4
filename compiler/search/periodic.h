/* Orders that repeat: the actions of one or a few microbatches are laid on a circle, and the next ones do the same one
 * period later. Hops are laid as if none waited for another; a run of what comes of it shows what they take. What a
 * large number of microbatches needs, and what memory below 1F1B's asks for: short lives. */
#ifndef PP_SEARCH_PERIODIC_H
#define PP_SEARCH_PERIODIC_H

#include "packed.h"

struct pp_pattern {
	uint64_t period;
	uint32_t group; /* microbatches of a period */
	int64_t *at;    /* [stages * group * PP_ACTION_KINDS]: start of an action; the first is 0 */
	int64_t *peak;  /* [ranks]: bytes once it repeats */
};

/* The patterns of a period with the shortest lives, best first; as many as `most`, or fewer. Beam search from the last
 * stage outwards. O(stages * group * width * options). */
uint32_t pp_patterns(struct pp_arena *arena, const struct pp_packed *packed, uint64_t period, uint32_t group,
                     uint32_t width, struct pp_pattern *patterns, uint32_t most);

/* When an action would start if the pattern went on for all microbatches: [ids]. */
void pp_pattern_keys(const struct pp_packed *packed, const struct pp_pattern *pattern, uint64_t *key);

/* Shortest period that the work of the ranks allows, and the hops of the channels. */
uint64_t pp_period_least(const struct pp_packed *packed);

#endif
