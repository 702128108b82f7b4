/* Rules for the list scheduler, tuned to a problem: which numbers of forwards in flight, which priorities. */
#ifndef PP_SEARCH_TUNE_H
#define PP_SEARCH_TUNE_H

#include "contest.h"
#include "greedy.h"

enum { PP_TUNE_POOL = 6 };

struct pp_tuned {
	struct pp_greedy_rule rule; /* its arrays are the ones below */
	uint32_t *most;             /* [stages] */
	uint32_t *target, *lag;     /* [ranks] */
	uint64_t value, total;
};

/* Tune rules until so many actions were evaluated; every order they give enters the contest. `pool`
 * ([PP_TUNE_POOL]) holds `count` rules to go on from, 0: the usual ones. Afterwards it holds the best rules, whose
 * number is returned: they make sense for any number of microbatches. */
uint32_t pp_tune(struct pp_contest *contest, uint64_t effort, struct pp_tuned *pool, uint32_t count);

/* What a rule gives in another contest of the same stages. False: nothing that fits. */
bool pp_tune_apply(struct pp_contest *contest, const struct pp_greedy_rule *rule);

#endif
