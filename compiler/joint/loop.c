/* The loop of partition and schedule: joint.h.
 *
 * Rows that do not depend on costs are the same for every split, so refining is all there is. Rows that do are made for
 * the split of the balance, the split is refined under them, they are made again for the refined one, and so on while
 * the makespan falls; the even split gets rows of its own if it is not far behind under the first ones. */
#include "joint.h"

#include "compiler/cost.h"
#include "compiler/measured.h"
#include "compiler/partition.h"

#include "ir/capped.h"

#include <string.h>

enum {
	BUDGET = 1500000, /* actions and layers that are run, apart from the few runs that compare starts */
	MOST_RUNS = 200,
	LEAST_RUNS = 8,
	WINDOW = 50000, /* actions of a run: beyond, only the first microbatches are run, and the rest is extrapolated */
	ROUNDS = 3,
	ROUNDS_MADE = 2, /* where rows are made anew for each */
	NOT_FAR = 30     /* percent: rows made for one split do that much worse on a better one */
};

struct loop {
	const struct pp_joint_loop *given;
	struct pp_arena *arena; /* scratch */
	const struct pp_balance_problem *caps;
	struct pp_stages *stages;
	uint32_t runs;
};

/* A split with rows and what they reach on it. */
struct state {
	uint32_t *first;
	struct pp_schedule schedule; /* all microbatches */
	struct pp_joint_value value;
};

static uint64_t count_actions(const struct pp_schedule *schedule)
{
	uint64_t count = 0;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		count += schedule->rows[rank].count;
	return count;
}

static bool better(const struct pp_joint_value *a, const struct pp_joint_value *b)
{
	return a->over != b->over ? a->over < b->over : a->makespan < b->makespan;
}

static struct pp_joint_problem problem_of(const struct loop *loop, const struct pp_schedule *schedule)
{
	return (struct pp_joint_problem){.spec = loop->given->spec,
	                                 .stages = loop->stages,
	                                 .schedule = schedule,
	                                 .headroom = loop->given->order_headroom,
	                                 .caps = loop->caps};
}

static void evaluate(struct loop *loop, struct state *state)
{
	struct pp_joint_problem problem = problem_of(loop, &state->schedule);
	state->value = pp_joint_run(loop->arena, &problem, state->first, NULL);
	loop->runs++;
}

/* The rows of a split: those that there are, or made for it. */
static bool find_rows(struct loop *loop, struct state *state)
{
	const struct pp_joint_loop *given = loop->given;
	if (!given->make) {
		state->schedule = *given->draft;
		return true;
	}
	struct pp_stages stages = *loop->stages;
	stages.items = PP_NEW_ARRAY(loop->arena, struct pp_stage_plan, stages.count);
	for (uint32_t s = 0; s < stages.count; s++) {
		stages.items[s].first_layer = state->first[s];
		stages.items[s].layer_count = state->first[s + 1] - state->first[s];
		stages.items[s].rank = given->draft->stage_rank[s];
	}
	pp_cost_stages(given->spec, &stages);
	if (given->spec->profile)
		pp_measured_stages(given->spec, &stages);
	return given->make(given->context, &stages, &state->schedule);
}

static struct state state_of(struct loop *loop, const uint32_t *first)
{
	struct state state = {.first = PP_NEW_ARRAY(loop->arena, uint32_t, (size_t)loop->stages->count + 1)};
	memcpy(state.first, first, ((size_t)loop->stages->count + 1) * sizeof *first);
	state.value = (struct pp_joint_value){UINT64_MAX, UINT64_MAX};
	if (find_rows(loop, &state))
		evaluate(loop, &state);
	return state;
}

/* As many microbatches as WINDOW allows, but enough to fill and drain the pipeline. */
static struct pp_schedule window_of(struct loop *loop, const struct pp_schedule *schedule)
{
	uint64_t actions = count_actions(schedule), most = schedule->microbatches;
	struct pp_schedule window = *schedule;
	if (actions <= WINDOW)
		return window;
	most = most * WINDOW / actions;
	if (most < 2 * (uint64_t)schedule->ranks)
		most = 2 * (uint64_t)schedule->ranks;
	if (most >= schedule->microbatches)
		return window;
	window.microbatches = (uint32_t)most;
	window.rows = pp_joint_window(loop->arena, schedule, window.microbatches);
	return window;
}

static uint32_t runs_for(const struct loop *loop, const struct pp_schedule *window)
{
	uint64_t runs = BUDGET / (count_actions(window) + loop->caps->layers);
	return (uint32_t)(runs < LEAST_RUNS ? LEAST_RUNS : runs > MOST_RUNS ? MOST_RUNS : runs);
}

/* Move layers under the rows of the state, where there are rows for its split; true if a split that is better on all
 * microbatches comes out. */
static bool refine(struct loop *loop, struct state *state)
{
	if (state->value.makespan == UINT64_MAX)
		return false;
	struct pp_schedule window = window_of(loop, &state->schedule);
	struct pp_joint_problem problem = problem_of(loop, &window);
	struct pp_joint_search search = {.first = PP_NEW_ARRAY(loop->arena, uint32_t, (size_t)loop->stages->count + 1),
	                                 .evaluations = runs_for(loop, &window),
	                                 .detours = runs_for(loop, &window) / 2};
	memcpy(search.first, state->first, ((size_t)loop->stages->count + 1) * sizeof *search.first);
	pp_joint_refine(loop->arena, &problem, &search);
	loop->runs += search.runs;
	if (memcmp(search.first, state->first, ((size_t)loop->stages->count + 1) * sizeof *search.first) == 0)
		return false;
	struct state moved = {.first = search.first, .schedule = state->schedule};
	if (loop->given->make && !loop->given->once)
		moved = state_of(loop, search.first);
	else
		evaluate(loop, &moved);
	if (!better(&moved.value, &state->value))
		return false;
	*state = moved;
	return true;
}

/* ---- what is said about it ------------------------------------------------------------------- */

/* The rank with most of the critical path. */
static void describe_path(struct loop *loop, const struct state *state, struct pp_joint_report *report)
{
	struct pp_schedule window = window_of(loop, &state->schedule);
	struct pp_joint_problem problem = problem_of(loop, &window);
	uint64_t *on_rank = PP_NEW_ARRAY(loop->arena, uint64_t, window.ranks);
	uint64_t all = pp_joint_path_time(loop->arena, &problem, state->first, on_rank);
	for (uint32_t rank = 1; rank < window.ranks; rank++)
		if (on_rank[rank] > on_rank[report->rank])
			report->rank = rank;
	report->share = all ? (double)on_rank[report->rank] / (double)all : 0;
}

static void look_around(struct loop *loop, const struct state *state, struct pp_joint_report *report)
{
	struct pp_joint_problem problem = problem_of(loop, &state->schedule);
	struct pp_joint_search search = {.first = state->first, .over = state->value.over};
	if (count_actions(&state->schedule) > BUDGET / LEAST_RUNS)
		return;
	pp_joint_look_around(loop->arena, &problem, &search);
	memcpy(report->next, search.next, sizeof report->next);
	report->next_count = search.next_count;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* The even split and what it reaches; over and slower than all if there is none. */
static struct state even_state(struct loop *loop, const struct state *balanced, uint32_t *first)
{
	struct state even = {.first = first, .schedule = balanced->schedule, .value = {UINT64_MAX, UINT64_MAX}};
	if (!pp_partition_even(loop->given->spec, loop->caps, first))
		return even;
	if (balanced->value.makespan == UINT64_MAX)
		return state_of(loop, first);
	evaluate(loop, &even);
	bool far = even.value.makespan / (100 + NOT_FAR) > balanced->value.makespan / 100;
	return loop->given->make && !loop->given->once && !far && even.value.over <= balanced->value.over
	           ? state_of(loop, first)
	           : even;
}

static void run_loop(struct loop *loop, struct pp_joint_report *report, struct state *best)
{
	uint32_t count = loop->stages->count, *first = PP_NEW_ARRAY(loop->arena, uint32_t, (size_t)count + 1);
	unsigned rounds = loop->given->once ? 1 : loop->given->make ? ROUNDS_MADE : ROUNDS;
	for (uint32_t s = 0; s < count; s++)
		first[s] = loop->stages->items[s].first_layer;
	first[count] = loop->caps->layers;
	*best = state_of(loop, first);
	report->balanced = best->value.makespan;
	struct state even = even_state(loop, best, first);
	report->even = even.value.makespan;
	if (best->value.makespan == UINT64_MAX && even.value.makespan == UINT64_MAX)
		return;
	bool close = even.value.over <= best->value.over && (!loop->given->make || better(&even.value, &best->value));
	for (unsigned round = 0; round < rounds && refine(loop, best); round++)
		;
	for (unsigned round = 0; round < rounds && close && refine(loop, &even); round++)
		;
	if (better(&even.value, &best->value))
		*best = even;
}

void pp_joint_balance(struct pp_arena *arena, const struct pp_joint_loop *given, struct pp_stages *stages)
{
	struct loop loop = {.given = given, .arena = pp_arena_scratch(arena), .stages = stages};
	struct pp_joint_report *report = PP_NEW(arena, struct pp_joint_report);
	struct state best;
	loop.caps = pp_partition_problem(loop.arena, given->spec, given->draft, given->headroom, stages);
	run_loop(&loop, report, &best);
	report->chosen = best.value.makespan;
	report->quick = given->make != NULL;
	for (uint32_t s = 0; s < stages->count; s++)
		report->moved |= best.first[s] != stages->items[s].first_layer;
	if (best.value.makespan != UINT64_MAX) {
		describe_path(&loop, &best, report);
		look_around(&loop, &best, report);
		report->runs = loop.runs;
		stages->joint = report;
		if (report->moved)
			pp_partition_use(arena, given->spec, loop.caps, best.first, stages);
	}
	pp_arena_destroy(loop.arena);
}
