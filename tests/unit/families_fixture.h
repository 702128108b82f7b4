/* Schedules of the library as orders under costs that are the same for every stage. */
#ifndef PP_FAMILIES_FIXTURE_H
#define PP_FAMILIES_FIXTURE_H

#include "ir/order.h"
#include "rows_fixture.h"

/* Ticks of one chunk and of a hop between ranks. */
struct even_costs {
	uint64_t forward, input, weight, hop;
	uint32_t pair_permille; /* 0: 1000 */
};

static const struct even_costs unit_costs = {1, 1, 1, 0, 0};

/* A stash is one byte; half of it is free after I where `halves`. */
static inline struct pp_order_problem even_problem(struct pp_arena *arena, const struct pp_schedule *schedule,
                                                   struct even_costs costs, bool halves)
{
	uint32_t stages = schedule->stages;
	struct pp_order_stage *stage = PP_NEW_ARRAY(arena, struct pp_order_stage, stages);
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, schedule->ranks);
	for (uint32_t r = 0; r < schedule->ranks; r++)
		room[r] = PP_ROOM_UNLIMITED;
	for (uint32_t s = 0; s < stages; s++) {
		const uint32_t *rank = schedule->stage_rank;
		stage[s] = (struct pp_order_stage){
		    .rank = rank[s],
		    .ticks = {[PP_F] = costs.forward,
		              [PP_B] = costs.input + costs.weight,
		              [PP_I] = costs.input,
		              [PP_W] = costs.weight},
		    .forward_hop = s + 1 < stages && rank[s + 1] != rank[s] ? costs.hop : 0,
		    .backward_hop = s > 0 && rank[s - 1] != rank[s] ? costs.hop : 0,
		    .held = 2,
		    .early = halves ? 1 : 0,
		};
	}
	return (struct pp_order_problem){.ranks = schedule->ranks,
	                                 .stages = stages,
	                                 .microbatches = schedule->microbatches,
	                                 .stage = stage,
	                                 .room = room,
	                                 .pair_permille = costs.pair_permille ? costs.pair_permille : 1000};
}

static inline struct pp_order_times even_times(const struct expanded *x, struct even_costs costs)
{
	struct pp_order_times times;
	struct pp_order_problem problem = even_problem(x->arena, &x->schedule, costs, false);
	assert_true(pp_order_run(x->arena, &problem, x->schedule.rows, false, &times));
	return times;
}

/* Expand a schedule of the library that must be accepted. */
static inline struct expanded expand_family(const char *name, struct shape shape)
{
	struct expanded x = expand_named(name, shape);
	if (!x.ok)
		fail_msg("%s p=%u v=%u m=%u: %s", name, shape.p, shape.v, shape.m, expanded_messages(&x, PP_DIAG_SHORT));
	return x;
}

static inline uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

#endif
