/* Constructors as starts: those of policies.def whose placement is the problem's. */
#include "starts.h"

#include "compiler/policy.h"

#include <string.h>

static bool placed_as(const struct pp_order_problem *problem, const struct pp_policy *policy)
{
	uint32_t p = problem->ranks;
	if (policy->vpp && problem->stages != p * policy->vpp)
		return false;
	if (policy->place == PP_PLACE_LIST)
		return true;
	for (uint32_t s = 0; s < problem->stages; s++)
		if (problem->stage[s].rank != pp_place_rank((enum pp_place)policy->place, s, p, problem->stages / p))
			return false;
	return true;
}

static void enter(struct pp_contest *contest, const struct pp_order_problem *problem, const struct pp_policy *policy,
                  bool brief)
{
	struct pp_arena *scratch = pp_arena_scratch(contest->arena);
	struct pp_row *rows = PP_NEW_ARRAY(scratch, struct pp_row, problem->ranks);
	bool fused = contest->packed->fused;
	struct pp_order_options options = {.fused = fused,
	                                   .span = contest->packed->span,
	                                   .start = brief,
	                                   .deadline = contest->deadline,
	                                   .floor = fused ? 0 : contest->bound};
	struct pp_order_refusal refusal;
	if (policy->make(scratch, problem, &options, rows, &refusal) &&
	    pp_packed_read(contest->packed, rows, contest->order))
		pp_contest_enter(contest, policy->name);
	pp_arena_destroy(scratch);
}

void pp_search_starts(struct pp_contest *contest, const struct pp_order_problem *problem, bool brief)
{
	for (size_t i = 0; i < pp_policy_count && !pp_contest_over(contest); i++) {
		const struct pp_policy *policy = &pp_policies[i];
		if (policy->make && strcmp(policy->name, "search") != 0 && placed_as(problem, policy))
			enter(contest, problem, policy, brief);
	}
}
