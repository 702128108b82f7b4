/* Schedules made by rules, on problems made by hand. */
#ifndef PP_POLICY_FIXTURE_H
#define PP_POLICY_FIXTURE_H

#include "rows_fixture.h"

#include "compiler/policy/make.h"
#include "ir/order.h"

/* Costs of one stage, in ticks, the same for all stages; hops between ranks. */
struct costs {
	uint64_t f, i, w, hop;
	uint64_t held, early, more_fused, more_split; /* bytes */
	uint64_t room;                                /* of every rank; 0: unlimited */
};

static inline struct pp_order_problem *problem_of(struct pp_arena *arena, const struct shape *shape, struct costs costs)
{
	uint32_t stages = shape->list ? shape->stages : shape->p * shape->v;
	struct pp_order_problem *problem = PP_NEW(arena, struct pp_order_problem);
	struct pp_order_stage *stage = PP_NEW_ARRAY(arena, struct pp_order_stage, stages);
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, shape->p);
	for (uint32_t r = 0; r < shape->p; r++)
		room[r] = costs.room ? costs.room : PP_ROOM_UNLIMITED;
	for (uint32_t s = 0; s < stages; s++)
		stage[s] = (struct pp_order_stage){
		    .rank = shape->list ? shape->list[s] : pp_place_rank(shape->place, s, shape->p, shape->v),
		    .ticks = {[PP_F] = costs.f, [PP_B] = costs.i + costs.w, [PP_I] = costs.i, [PP_W] = costs.w},
		    .held = costs.held,
		    .early = costs.early,
		    .more_fused = costs.more_fused,
		    .more_split = costs.more_split};
	for (uint32_t s = 0; s + 1 < stages; s++)
		if (stage[s].rank != stage[s + 1].rank)
			stage[s].forward_hop = stage[s + 1].backward_hop = costs.hop;
	*problem = (struct pp_order_problem){.ranks = shape->p,
	                                     .stages = stages,
	                                     .microbatches = shape->m,
	                                     .stage = stage,
	                                     .room = room,
	                                     .pair_permille = 1000};
	return problem;
}

/* Rules run on a problem; `text` is the body of the schedule. x->schedule is checked too. */
static inline struct expanded run_schedule(const char *text, struct shape shape, struct costs costs,
                                           const struct pp_order_problem **problem, bool draft)
{
	struct expanded x = expanded_create();
	const struct pp_stmt *block = schedule_block(&x, text);
	const struct pp_order_problem *made = problem_of(x.arena, &shape, costs);
	uint32_t *stage_rank = PP_NEW_ARRAY(x.arena, uint32_t, made->stages);
	for (uint32_t s = 0; s < made->stages; s++)
		stage_rank[s] = made->stage[s].rank;
	struct pp_rows_input input = {.name = "mine",
	                              .block = block,
	                              .place = block->name.span,
	                              .room_place = block->name.span,
	                              .ranks = made->ranks,
	                              .stages = made->stages,
	                              .microbatches = made->microbatches,
	                              .stage_rank = stage_rank,
	                              .strings = x.strings,
	                              .sources = x.sources};
	x.ok = pp_rules_make(x.arena, &input, made, draft, x.diag, &x.schedule) &&
	       pp_schedule_check(x.arena, &x.schedule, x.diag);
	if (problem)
		*problem = made;
	return x;
}

static inline struct expanded run_rules(const char *rules, struct shape shape, struct costs costs,
                                        const struct pp_order_problem **problem)
{
	char text[4096];
	snprintf(text, sizeof text, "policy { %s }", rules);
	return run_schedule(text, shape, costs, problem, false);
}

static inline struct pp_order_times times_of(const struct expanded *x, const struct pp_order_problem *problem)
{
	struct pp_order_times times;
	assert_true(x->ok);
	assert_true(pp_order_run(x->arena, problem, x->schedule.rows, false, &times));
	return times;
}

static inline uint32_t peak_stashes(const struct pp_order_problem *problem, const struct pp_order_times *times)
{
	uint32_t most = 0;
	for (uint32_t r = 0; r < problem->ranks; r++)
		if (times->rank[r].peak_stashes > most)
			most = times->rank[r].peak_stashes;
	return most;
}

static inline void assert_same_rows(const struct pp_schedule *a, const struct pp_schedule *b)
{
	assert_int_equal(a->ranks, b->ranks);
	for (uint32_t r = 0; r < a->ranks; r++) {
		assert_int_equal(a->rows[r].count, b->rows[r].count);
		for (uint32_t i = 0; i < a->rows[r].count; i++) {
			assert_int_equal(a->rows[r].actions[i].kind, b->rows[r].actions[i].kind);
			assert_int_equal(a->rows[r].actions[i].stage, b->rows[r].actions[i].stage);
			assert_int_equal(a->rows[r].actions[i].mb, b->rows[r].actions[i].mb);
		}
	}
}

#endif
