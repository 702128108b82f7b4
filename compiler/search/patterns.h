/* Repeating patterns as candidates: tried over a range of periods, rolled out over all microbatches. */
#ifndef PP_SEARCH_PATTERNS_H
#define PP_SEARCH_PATTERNS_H

#include "contest.h"
#include "periodic.h"

/* Roll a pattern out: as it is, and as priorities of the list scheduler. True: as it is it fits. */
bool pp_pattern_enter(struct pp_contest *contest, const struct pp_pattern *pattern);

/* Try periods of `group` microbatches from the shortest on until a few fit. `best`: the pattern that gave the best
 * value, kept in the contest's arena, if better than `*value`. */
void pp_try_patterns(struct pp_contest *contest, uint32_t group, struct pp_pattern *best, uint64_t *value);

#endif
