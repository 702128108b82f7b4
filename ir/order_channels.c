/* Which hops share a channel: order.h. */
#include "order.h"

#include "capped.h"

/* Hops of F (`way` 0) lead to the next stage, those of B and I (1) to the one before. False: what a stage makes stays
 * on its rank, or goes nowhere. */
static bool goes_to(const struct pp_order_problem *problem, uint32_t stage, unsigned way, uint32_t *rank)
{
	if (way ? stage == 0 : stage + 1 == problem->stages)
		return false;
	*rank = problem->stage[way ? stage - 1 : stage + 1].rank;
	return *rank != problem->stage[stage].rank;
}

uint32_t *pp_order_channels(struct pp_arena *arena, const struct pp_order_problem *problem)
{
	if (!problem->queued)
		return NULL;
	uint32_t *channel = PP_NEW_ARRAY(arena, uint32_t, pp_times(problem->stages, 2)), to, others;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint32_t *latest = PP_NEW_ARRAY(scratch, uint32_t, problem->ranks); /* stage of the rank so far, + 1 */
	uint32_t *before = PP_NEW_ARRAY(scratch, uint32_t, problem->stages);
	for (uint32_t s = 0; s < problem->stages; s++) {
		uint32_t rank = problem->stage[s].rank;
		before[s] = latest[rank];
		latest[rank] = s + 1;
		for (unsigned way = 0; way < 2; way++) {
			uint32_t *found = &channel[2 * (size_t)s + way];
			*found = PP_NO_CHANNEL;
			if (!goes_to(problem, s, way, &to))
				continue;
			*found = 2 * s + way;
			/* a rank has few stages */
			for (uint32_t other = before[s]; *found == 2 * s + way && other-- > 0; other = before[other])
				if (goes_to(problem, other, way, &others) && others == to)
					*found = channel[2 * (size_t)other + way];
		}
	}
	pp_arena_destroy(scratch);
	return channel;
}

/* The shortest of the actions that hand on by a channel. */
static uint64_t shortest(const struct pp_order_problem *problem, uint32_t stage, unsigned way)
{
	const uint64_t *ticks = problem->stage[stage].ticks;
	return way == 0 ? ticks[PP_F] : ticks[PP_B] < ticks[PP_I] ? ticks[PP_B] : ticks[PP_I];
}

uint32_t *pp_order_queues(struct pp_arena *arena, const struct pp_order_problem *problem)
{
	uint32_t *channel = pp_order_channels(arena, problem);
	if (!channel)
		return NULL;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint64_t *hop = PP_NEW_ARRAY(scratch, uint64_t, pp_times(problem->stages, 2)); /* longest of a channel */
	bool any = false;
	for (uint32_t i = 0; i < 2 * problem->stages; i++) {
		const struct pp_order_stage *stage = &problem->stage[i / 2];
		uint64_t own = i % 2 ? stage->backward_hop : stage->forward_hop;
		if (channel[i] != PP_NO_CHANNEL && own > hop[channel[i]])
			hop[channel[i]] = own;
	}
	for (uint32_t i = 0; i < 2 * problem->stages; i++)
		any |= channel[i] != PP_NO_CHANNEL && hop[channel[i]] > shortest(problem, i / 2, i % 2);
	pp_arena_destroy(scratch);
	return any ? channel : NULL;
}
