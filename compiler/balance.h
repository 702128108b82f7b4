/* Contiguous layers to stages: the pure combinatorial problem, without knowledge of layer kinds.
 *
 * Minimises, in this order: memory over the caps (0 where possible), the largest rank load, the largest stage load,
 * the sum of squared stage loads; ties put less memory on earlier stages. A rank's load is the sum over its stages. */
#ifndef PP_BALANCE_H
#define PP_BALANCE_H

#include "ir/arena.h"
#include "ir/capped.h"

#include <stdbool.h>
#include <stdint.h>

struct pp_balance_problem {
	uint32_t layers, stages, ranks;
	const uint64_t *load;            /* [layers], any unit; the sum must fit 63 bits */
	const uint64_t *static_bytes;    /* [layers], or NULL: memory is not limited */
	const uint64_t *stash_bytes;     /* [layers], per microbatch in flight */
	const uint64_t *extra_bytes;     /* [layers], per microbatch in its backward */
	const uint32_t *stage_rank;      /* [stages] */
	const uint32_t *in_flight;       /* [stages], microbatches whose stash is held at the rank's fullest instant */
	const uint32_t *extras;          /* [stages], those whose extra is */
	const uint64_t *split_bytes;     /* [layers], what an extra holds besides where the backward is split, or NULL */
	const uint32_t *split_extras;    /* [stages], extras of that kind */
	const uint64_t *cap;             /* [ranks], bytes; UINT64_MAX: none */
	uint32_t min_layers, max_layers; /* per stage; max_layers 0: no limit */
};

/* What a layer takes on its stage's rank at the fullest instant. */
static inline uint64_t pp_balance_bytes(const struct pp_balance_problem *problem, uint32_t stage, uint32_t layer)
{
	uint64_t held = pp_plus(pp_times(problem->in_flight[stage], problem->stash_bytes[layer]),
	                        pp_times(problem->extras[stage], problem->extra_bytes[layer]));
	if (problem->split_bytes)
		held = pp_plus(held, pp_times(problem->split_extras[stage], problem->split_bytes[layer]));
	return pp_plus(problem->static_bytes[layer], held);
}

struct pp_split {
	uint32_t *first;     /* [stages + 1]: first layer of each stage, then the number of layers */
	uint64_t bottleneck; /* largest rank load */
	uint64_t bound;      /* no split has a smaller one; equal to bottleneck when `exact` */
	bool exact;          /* proven optimal */
	uint64_t over;       /* bytes over the caps, summed over ranks; 0: fits */
};

/* False only if min_layers and max_layers leave no split at all. With at most one stage per rank the result is always
 * optimal (dynamic programming, O(stages * layers * longest stage)); otherwise optimal when the search below its node
 * budget finishes, which `exact` says. Deterministic. */
bool pp_balance_solve(struct pp_arena *arena, const struct pp_balance_problem *problem, struct pp_split *result);

/* Rate a given split (split->first): bottleneck, bound, exact and over. */
void pp_balance_rate(struct pp_arena *arena, const struct pp_balance_problem *problem, struct pp_split *split);

#endif
