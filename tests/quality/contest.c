/* All that we have on one problem: the named schedules that fit its placement, and the search. */
#include "quality.h"

#include "compiler/library.h"
#include "compiler/policy.h"
#include "compiler/rows.h"
#include "compiler/search/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct shape {
	enum pp_place place;
	uint32_t chunks;
} shapes[] = {
    [QUALITY_LINEAR] = {PP_PLACE_LINEAR, 1},
    [QUALITY_V] = {PP_PLACE_V, 2},
    [QUALITY_LOOP] = {PP_PLACE_LOOP, 2},
    [QUALITY_LOOP4] = {PP_PLACE_LOOP, 4},
};

struct pp_order_problem *quality_problem(struct pp_arena *arena, const struct quality_row *row,
                                         enum quality_shape shape)
{
	uint32_t chunks = shapes[shape].chunks, stages = row->ranks * chunks;
	struct pp_order_stage *stage = PP_NEW_ARRAY(arena, struct pp_order_stage, stages);
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, row->ranks);
	for (uint32_t s = 0; s < stages; s++) {
		uint32_t rank = pp_place_rank(shapes[shape].place, s, row->ranks, chunks);
		stage[s] = (struct pp_order_stage){.rank = rank,
		                                   .ticks = {[PP_F] = row->forward[rank] / chunks,
		                                             [PP_I] = row->input[rank] / chunks,
		                                             [PP_W] = row->weight[rank] / chunks,
		                                             [PP_B] = row->input[rank] / chunks + row->weight[rank] / chunks},
		                                   .held = QUALITY_ACT / chunks,
		                                   .early = row->early / chunks};
	}
	for (uint32_t s = 0; s + 1 < stages; s++)
		if (stage[s].rank != stage[s + 1].rank)
			stage[s].forward_hop = stage[s + 1].backward_hop = row->hop;
	for (uint32_t r = 0; r < row->ranks; r++)
		room[r] = row->room;
	struct pp_order_problem *problem = PP_NEW(arena, struct pp_order_problem);
	*problem = (struct pp_order_problem){.ranks = row->ranks,
	                                     .stages = stages,
	                                     .microbatches = row->microbatches,
	                                     .stage = stage,
	                                     .room = room,
	                                     .pair_permille = 1000};
	return problem;
}

/* ---- families -------------------------------------------------------------------------------- */

/* Rows of the library for this placement; false where they are not for it. */
static bool expand(struct pp_arena *arena, const struct pp_policy *policy, const struct pp_order_problem *problem,
                   struct pp_row *rows)
{
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_strtab *strings = pp_strtab_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_stmt *block = pp_library_schedule(arena, strings, sources, diag, policy->name);
	if (!block)
		return false;
	uint32_t *stage_rank = PP_NEW_ARRAY(arena, uint32_t, problem->stages);
	for (uint32_t s = 0; s < problem->stages; s++)
		stage_rank[s] = problem->stage[s].rank;
	struct pp_binding names[] = {{pp_intern_z(strings, "group"), pp_datum_whole(0)}};
	struct pp_scope scope = {.bindings = names, .count = 1};
	struct pp_rows_input input = {.name = policy->name,
	                              .block = block,
	                              .shipped = true,
	                              .ranks = problem->ranks,
	                              .stages = problem->stages,
	                              .microbatches = problem->microbatches,
	                              .stage_rank = stage_rank,
	                              .scope = &scope,
	                              .strings = strings,
	                              .sources = sources};
	struct pp_schedule schedule;
	if (!pp_rows_expand(arena, &input, diag, &schedule) || !pp_schedule_check(arena, &schedule, diag))
		return false;
	memcpy(rows, schedule.rows, problem->ranks * sizeof *rows);
	return true;
}

static bool has_only(const struct pp_order_problem *problem, const struct pp_row *rows, bool fused)
{
	for (uint32_t r = 0; r < problem->ranks; r++)
		for (uint32_t i = 0; i < rows[r].count; i++) {
			uint8_t kind = rows[r].actions[i].kind;
			if (fused && kind != PP_F && kind != PP_B)
				return false;
		}
	return true;
}

struct contest {
	struct pp_arena *arena;
	const struct quality_row *row;
	const struct quality_options *options;
	bool span, found;
	struct quality_best *best;
	const struct pp_order_problem *problem; /* on the shape at hand */
	enum quality_shape shape;
	uint64_t bound;
};

static void enter(struct contest *contest, const struct pp_row *rows, const char *maker)
{
	struct pp_order_times times;
	if (!pp_order_run(contest->arena, contest->problem, rows, false, &times) || !times.fits ||
	    (contest->row->exact && !has_only(contest->problem, rows, contest->row->fused)))
		return;
	uint64_t value = contest->span ? times.longest_span : times.makespan;
	if (contest->options->verbose)
		printf("    %-8s %-14s %12.3f  bound %12.3f\n", quality_shape_name[contest->shape], maker,
		       (double)value / QUALITY_TICKS, (double)contest->bound / QUALITY_TICKS);
	if (value < contest->bound)
		printf("    BOUND ABOVE A SCHEDULE: line %" PRIu32 ", %s, %s\n", contest->row->line, maker,
		       quality_shape_name[contest->shape]);
	if (contest->found && value >= contest->best->value)
		return;
	contest->found = true;
	contest->best->value = value;
	contest->best->bound = contest->bound;
	contest->best->maker = maker;
	contest->best->shape = contest->shape;
}

static void enter_families(struct contest *contest)
{
	const struct pp_order_problem *problem = contest->problem;
	for (size_t i = 0; i < pp_policy_count; i++) {
		const struct pp_policy *policy = &pp_policies[i];
		const struct shape *shape = &shapes[contest->shape];
		bool linear = shape->chunks == 1; /* where all placements are the same */
		if (policy->status != PP_NOW || strcmp(policy->name, "search") == 0 ||
		    (policy->vpp && policy->vpp != shape->chunks) ||
		    (policy->place != PP_PLACE_LIST && policy->place != shape->place && !linear))
			continue;
		struct pp_row *rows = PP_NEW_ARRAY(contest->arena, struct pp_row, problem->ranks);
		struct pp_order_refusal refusal = {0};
		struct pp_order_options options = {.fused = contest->row->fused};
		bool made = policy->make ? policy->make(contest->arena, problem, &options, rows, &refusal)
		                         : expand(contest->arena, policy, problem, rows);
		if (made)
			enter(contest, rows, policy->name);
	}
}

static void enter_search(struct contest *contest)
{
	struct pp_search_options options = {.objective = contest->span ? PP_SEEK_SPAN : PP_SEEK_TIME,
	                                    .effort = contest->options->effort,
	                                    .fused = contest->row->fused};
	struct pp_search_report report = {0};
	struct pp_row *rows = PP_NEW_ARRAY(contest->arena, struct pp_row, contest->problem->ranks);
	if (pp_search(contest->arena, contest->problem, &options, rows, &report))
		enter(contest, rows, "search");
}

static bool wanted(const struct quality_row *row, enum quality_shape shape)
{
	return row->exact ? shape == row->shape : shape != QUALITY_LOOP4 || row->chunks == 4;
}

bool quality_best(struct pp_arena *arena, const struct quality_row *row, bool span,
                  const struct quality_options *options, struct quality_best *best)
{
	struct contest contest = {.arena = arena, .row = row, .options = options, .span = span, .best = best};
	const struct pp_order_problem *problems[QUALITY_SHAPES] = {NULL};
	uint64_t bounds[QUALITY_SHAPES];
	*best = (struct quality_best){.least = UINT64_MAX};
	for (enum quality_shape shape = 0; shape < QUALITY_SHAPES; shape++) {
		if (!wanted(row, shape))
			continue;
		contest.problem = problems[shape] = quality_problem(arena, row, shape);
		contest.shape = shape;
		struct pp_order_bound bound = pp_order_bound(arena, contest.problem, row->fused);
		contest.bound = bounds[shape] = span ? bound.span : bound.makespan;
		best->least = contest.bound < best->least ? contest.bound : best->least;
		if (contest.bound != UINT64_MAX)
			enter_families(&contest);
	}
	for (enum quality_shape shape = 0; options->search && shape < QUALITY_SHAPES; shape++) {
		if (!problems[shape] || bounds[shape] == UINT64_MAX || (contest.found && best->value <= bounds[shape]))
			continue; /* nothing to be had on this placement */
		contest.problem = problems[shape];
		contest.shape = shape;
		contest.bound = bounds[shape];
		enter_search(&contest);
	}
	return contest.found;
}
