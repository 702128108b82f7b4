/* A contest of shapes over one problem: the best orders so far, and scratch memory to try more. */
#ifndef PP_ORDER_WAVE_TRY_H
#define PP_ORDER_WAVE_TRY_H

#include "wave_shape.h"

enum {
	PP_WAVE_KEPT = 4,
	PP_WAVE_RECENT = 1024, /* orders of targets that are known again */
};

struct pp_wave_entry {
	uint64_t value; /* UINT64_MAX: none */
	struct pp_wave_shape shape;
	struct pp_wave_order *order;
};

struct pp_wave_contest {
	const struct pp_wave *wave;
	bool span;                               /* the longest span counts instead of the makespan */
	uint32_t more;                           /* microbatches of the real problem besides: values are extrapolated */
	uint32_t wanted;                         /* of the best; what is worse may be given up half done */
	struct pp_wave_entry best[PP_WAVE_KEPT]; /* ascending, of different values */
	struct pp_wave_flow *flow[2];            /* with real costs, with equal ones */
	struct pp_wave_follow *follow[2];
	struct pp_wave_clock *clock;
	struct pp_wave_rules rules;
	struct pp_wave_lane *lanes;
	uint64_t *recent; /* [PP_WAVE_RECENT]: fingerprints of orders of targets that were run, with how */
	struct pp_wave_order *base, *trial;
};

/* All that are kept are wanted. */
struct pp_wave_contest *pp_wave_contest_new(struct pp_arena *arena, const struct pp_wave *wave, bool span,
                                            uint32_t more);

/* Try a shape, until it is stuck or sure to be none of the best. O(n log ranks) for a window of bounded size. */
void pp_wave_contest_try(struct pp_wave_contest *contest, const struct pp_wave_shape *shape);

#endif
