/* Moving layers: joint.h.
 *
 * A move takes `stride` layers, first many and then one, from stage `from` to stage `to`; the stages between hand as
 * many on each. Its effect on a chain is the sum of what the borders that it shifts do, so that prefix sums give it in
 * O(1). A candidate is one move, or two that shift different borders. Its bound is the longest of the chains seen so
 * far as they would be. */
#include "joint.h"

#include "compiler/cost.h"
#include "compiler/measured.h"
#include "compiler/order_problem.h"

#include "ir/capped.h"

#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide; /* thousandths of ns */

enum {
	MOST_PATHS = 24,
	MOST_TRIES = 16,   /* runs for one step */
	MOST_PAIRED = 24,  /* moves of which pairs are formed */
	MOST_DETOURS = 12, /* neighbours of a split from which the search goes on */
	MOST_DISTANT = 256 /* stages up to which a layer may move to any other stage; beyond, NEAR stages away */
};
enum { NEAR = 8 };

struct move {
	uint32_t from, to;
};

struct candidate {
	struct move move[2];
	unsigned moves;
	wide bound;
	uint32_t order; /* among equals */
};

struct seen {
	struct pp_path path;
	wide length;        /* under the split at hand */
	wide *left, *right; /* [stages]: prefix sums over borders of what shifting them does */
};

struct refine {
	struct pp_arena *arena;
	const struct pp_joint_problem *problem;
	struct pp_joint_search *search;
	uint32_t stages, layers, stride;
	struct seen seen[MOST_PATHS];
	unsigned paths, next_path;
	uint32_t *trial; /* [stages + 1] */
	struct candidate *candidates;
	size_t count, capacity;
};

/* ---- runs ------------------------------------------------------------------------------------ */

struct pp_row *pp_joint_window(struct pp_arena *arena, const struct pp_schedule *schedule, uint32_t most)
{
	struct pp_row *rows = PP_NEW_ARRAY(arena, struct pp_row, schedule->ranks);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		const struct pp_row *row = &schedule->rows[rank];
		uint32_t count = 0;
		for (uint32_t i = 0; i < row->count; i++)
			count += row->actions[i].mb < most;
		rows[rank].actions = PP_NEW_ARRAY(arena, struct pp_action, count);
		for (uint32_t i = 0; i < row->count; i++) {
			if (row->actions[i].mb >= most)
				continue;
			struct pp_action *action = &rows[rank].actions[rows[rank].count++];
			*action = row->actions[i];
			action->paired &= row->actions[i + 1].mb < most; /* a paired action has a next one */
		}
	}
	return rows;
}

/* Which forms of the backward the rows use for a stage. */
static void count_steady(const struct pp_schedule *schedule, uint32_t rank, uint64_t weight, struct pp_path *path)
{
	for (uint32_t i = 0; i < schedule->rows[rank].count; i++) {
		const struct pp_action *action = &schedule->rows[rank].actions[i];
		if (action->mb != 0)
			continue;
		path->count[action->stage][action->kind] += weight;
		if (action->kind == PP_B || action->kind == PP_I)
			path->count[action->stage][PP_ACTION_KINDS] += weight;
	}
}

static uint64_t load_of(const struct pp_order_problem *order, uint32_t rank)
{
	uint64_t load = 0;
	for (uint32_t s = 0; s < order->stages; s++) {
		const struct pp_order_stage *stage = &order->stage[s];
		if (stage->rank == rank)
			load = pp_plus(load, pp_plus(pp_plus(stage->ticks[PP_F], stage->ticks[PP_B]), stage->recompute));
	}
	return load;
}

static uint32_t slowest_rank(const struct pp_order_problem *order, uint64_t *load)
{
	uint32_t slowest = 0;
	*load = load_of(order, 0);
	for (uint32_t rank = 1; rank < order->ranks; rank++) {
		uint64_t other = load_of(order, rank);
		if (other <= *load)
			continue;
		slowest = rank;
		*load = other;
	}
	return slowest;
}

static struct pp_order_problem *order_of(struct pp_arena *scratch, const struct pp_joint_problem *problem,
                                         const uint32_t *first)
{
	const struct pp_spec *spec = problem->spec;
	const struct pp_schedule *schedule = problem->schedule;
	struct pp_stages stages = *problem->stages;
	stages.count = schedule->stages;
	stages.items = PP_NEW_ARRAY(scratch, struct pp_stage_plan, schedule->stages);
	for (uint32_t s = 0; s < schedule->stages; s++) {
		stages.items[s].first_layer = first[s];
		stages.items[s].layer_count = first[s + 1] - first[s];
		stages.items[s].rank = schedule->stage_rank[s];
	}
	pp_cost_stages(spec, &stages);
	if (spec->profile)
		pp_measured_stages(spec, &stages);
	struct pp_order_problem *order =
	    pp_order_of_stages(scratch, spec, schedule->stage_rank, &stages, problem->headroom, spec->schedule_memory);
	order->microbatches = schedule->microbatches;
	order->pair_permille = spec->pair_permille;
	return order;
}

/* Bytes over the caps as the balance counts them, and over the room of the run. */
static uint64_t bytes_over(struct pp_arena *scratch, const struct pp_joint_problem *problem, const uint32_t *first,
                           const struct pp_order_problem *order, const struct pp_order_times *times)
{
	struct pp_split split = {.first = PP_NEW_ARRAY(scratch, uint32_t, (size_t)order->stages + 1)};
	memcpy(split.first, first, ((size_t)order->stages + 1) * sizeof *first);
	pp_balance_rate(scratch, problem->caps, &split);
	for (uint32_t rank = 0; rank < order->ranks; rank++)
		if (times->rank[rank].peak > order->room[rank])
			split.over = pp_plus(split.over, times->rank[rank].peak - order->room[rank]);
	return split.over;
}

/* `path`: in `arena`, unless NULL. */
static struct pp_joint_value run_split(struct pp_arena *arena, const struct pp_joint_problem *problem,
                                       const uint32_t *first, struct pp_path *path)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	const struct pp_order_problem *order = order_of(scratch, problem, first);
	const struct pp_schedule *schedule = problem->schedule;
	struct pp_order_times times;
	struct pp_joint_value value = {.makespan = UINT64_MAX, .over = UINT64_MAX};
	if (pp_order_run(scratch, order, schedule->rows, path != NULL, &times)) {
		/* Microbatches beyond the window pass at the pace of the slowest rank. */
		uint64_t load, rest = problem->spec->microbatches - schedule->microbatches;
		uint32_t slowest = slowest_rank(order, &load);
		value.makespan = pp_plus(times.makespan, pp_times(rest, load));
		value.over = bytes_over(scratch, problem, first, order, &times);
		if (path) {
			*path = pp_path_of(arena, order, schedule->rows, &times);
			count_steady(schedule, slowest, pp_times(1000, rest), path);
		}
	}
	pp_arena_destroy(scratch);
	return value;
}

struct pp_joint_value pp_joint_run(struct pp_arena *arena, const struct pp_joint_problem *problem,
                                   const uint32_t *first)
{
	return run_split(arena, problem, first, NULL);
}

static struct refine begin(struct pp_arena *scratch, const struct pp_joint_problem *problem,
                           struct pp_joint_search *search)
{
	uint32_t stages = problem->schedule->stages;
	return (struct refine){.arena = scratch,
	                       .problem = problem,
	                       .search = search,
	                       .stages = stages,
	                       .layers = problem->spec->model.layer_count,
	                       .stride = 1,
	                       .trial = PP_NEW_ARRAY(scratch, uint32_t, (size_t)stages + 1)};
}

/* ---- chains ---------------------------------------------------------------------------------- */

/* A layer's part of a chain while it is in a stage. */
static wide part_of(const struct refine *refine, const struct pp_path *path, uint32_t layer, uint32_t stage)
{
	static const uint8_t phase_of[PP_PATH_KINDS] = {[PP_F] = PP_PHASE_F,
	                                                [PP_B] = PP_PHASE_B,
	                                                [PP_I] = PP_PHASE_I,
	                                                [PP_W] = PP_PHASE_W,
	                                                [PP_ACTION_KINDS] = PP_PHASE_R};
	const uint64_t *ticks = refine->problem->stages->layer_ticks[layer];
	bool again = refine->problem->spec->model.layers[layer].recompute != 0;
	wide sum = 0;
	for (unsigned kind = 0; kind < PP_PATH_KINDS; kind++)
		if (kind != PP_ACTION_KINDS || again)
			sum += (wide)path->count[stage][kind] * ticks[phase_of[kind]];
	return sum;
}

/* What it does to a chain that the layers [from, to) go from one stage to another. */
static wide shift_part(const struct refine *refine, const struct pp_path *path, uint32_t from, uint32_t to,
                       uint32_t old_stage, uint32_t new_stage)
{
	wide sum = 0;
	for (uint32_t i = from; i < to; i++)
		sum += part_of(refine, path, i, new_stage) - part_of(refine, path, i, old_stage);
	return sum;
}

/* What shifting each border by a stride does to the chain. */
static void measure_shifts(const struct refine *refine, struct seen *seen)
{
	const uint32_t *first = refine->search->first;
	seen->left[0] = seen->right[0] = 0;
	for (uint32_t s = 0; s + 1 < refine->stages; s++) { /* the border between s and s + 1 */
		uint32_t border = first[s + 1];
		uint32_t low = border > refine->stride ? border - refine->stride : 0;
		uint32_t high = refine->layers - border > refine->stride ? border + refine->stride : refine->layers;
		seen->left[s + 1] = seen->left[s] + shift_part(refine, &seen->path, low, border, s, s + 1);
		seen->right[s + 1] = seen->right[s] + shift_part(refine, &seen->path, border, high, s + 1, s);
	}
}

/* The chain under the split at hand. */
static void measure(const struct refine *refine, struct seen *seen)
{
	const uint32_t *first = refine->search->first;
	seen->length = (wide)seen->path.hops * 1000;
	for (uint32_t s = 0; s < refine->stages; s++)
		for (uint32_t i = first[s]; i < first[s + 1]; i++)
			seen->length += part_of(refine, &seen->path, i, s);
	measure_shifts(refine, seen);
}

static void remember(struct refine *refine, const struct pp_path *path)
{
	struct seen *seen = &refine->seen[refine->next_path];
	refine->next_path = (refine->next_path + 1) % MOST_PATHS;
	if (refine->paths < MOST_PATHS) {
		refine->paths++;
		seen->left = PP_NEW_ARRAY(refine->arena, wide, refine->stages);
		seen->right = PP_NEW_ARRAY(refine->arena, wide, refine->stages);
		seen->path.count = pp_arena_alloc(refine->arena, refine->stages, sizeof *path->count);
	}
	memcpy(seen->path.count, path->count, refine->stages * sizeof *path->count);
	seen->path.hops = path->hops;
	measure(refine, seen);
}

static wide effect(const struct seen *seen, const struct move *move)
{
	return move->from < move->to ? seen->left[move->to] - seen->left[move->from]
	                             : seen->right[move->from] - seen->right[move->to];
}

static wide bound_of(const struct refine *refine, const struct candidate *candidate)
{
	wide bound = 0;
	for (unsigned p = 0; p < refine->paths; p++) {
		wide length = refine->seen[p].length;
		for (unsigned m = 0; m < candidate->moves; m++)
			length += effect(&refine->seen[p], &candidate->move[m]);
		bound = length > bound ? length : bound;
	}
	return bound;
}

uint64_t pp_joint_path_time(struct pp_arena *arena, const struct pp_joint_problem *problem, const uint32_t *first,
                            uint64_t *on_rank)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_joint_search search = {.first = PP_NEW_ARRAY(scratch, uint32_t, (size_t)problem->schedule->stages + 1)};
	struct refine refine = begin(scratch, problem, &search);
	struct pp_path path;
	uint64_t sum = 0;
	if (run_split(scratch, problem, first, &path).makespan != UINT64_MAX)
		for (uint32_t s = 0; s < refine.stages; s++)
			for (uint32_t i = first[s]; i < first[s + 1]; i++) {
				uint64_t part = (uint64_t)(part_of(&refine, &path, i, s) / 1000);
				on_rank[problem->schedule->stage_rank[s]] = pp_plus(on_rank[problem->schedule->stage_rank[s]], part);
				sum = pp_plus(sum, part);
			}
	pp_arena_destroy(scratch);
	return sum;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static void shift(uint32_t *first, const struct move *move, uint32_t stride)
{
	for (uint32_t s = move->from + 1; s <= move->to; s++)
		first[s] -= stride;
	for (uint32_t s = move->to + 1; s <= move->from; s++)
		first[s] += stride;
}

/* The split after the moves, in refine->trial. False: a stage would be too small or too large. */
static bool apply(const struct refine *refine, const struct candidate *candidate)
{
	uint32_t least = refine->problem->caps->min_layers, most = refine->problem->caps->max_layers;
	memcpy(refine->trial, refine->search->first, ((size_t)refine->stages + 1) * sizeof *refine->trial);
	for (unsigned m = 0; m < candidate->moves; m++)
		shift(refine->trial, &candidate->move[m], refine->stride);
	for (uint32_t s = 0; s < refine->stages; s++) {
		uint32_t before = refine->trial[s], after = refine->trial[s + 1];
		if (before > refine->layers || after < before || after - before < least || (most && after - before > most) ||
		    after > refine->layers)
			return false;
	}
	return true;
}

static void add_candidate(struct refine *refine, struct candidate candidate)
{
	candidate.bound = bound_of(refine, &candidate);
	candidate.order = (uint32_t)refine->count;
	if (apply(refine, &candidate))
		*PP_PUSH(refine->arena, &refine->candidates, &refine->count, &refine->capacity, struct candidate) = candidate;
}

static int by_bound(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	if (a->bound != b->bound)
		return a->bound < b->bound ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

static void sort_candidates(struct refine *refine)
{
	if (refine->count)
		qsort(refine->candidates, refine->count, sizeof *refine->candidates, by_bound);
}

static uint32_t size_of(const struct refine *refine, uint32_t stage)
{
	return refine->search->first[stage + 1] - refine->search->first[stage];
}

static void list_moves(struct refine *refine)
{
	const struct pp_balance_problem *caps = refine->problem->caps;
	uint32_t reach = refine->stages <= MOST_DISTANT ? refine->stages : NEAR;
	refine->count = 0;
	for (uint32_t from = 0; from < refine->stages; from++) {
		if (size_of(refine, from) < (uint64_t)caps->min_layers + refine->stride)
			continue;
		uint32_t low = from > reach ? from - reach : 0;
		uint32_t high = from + reach < refine->stages - 1 ? from + reach : refine->stages - 1;
		for (uint32_t to = low; to <= high; to++)
			if (to != from && (!caps->max_layers || size_of(refine, to) + refine->stride <= caps->max_layers))
				add_candidate(refine, (struct candidate){.move = {{from, to}}, .moves = 1});
	}
	sort_candidates(refine);
}

static bool apart(const struct move *a, const struct move *b)
{
	uint32_t low_a = a->from < a->to ? a->from : a->to, high_a = a->from + a->to - low_a;
	uint32_t low_b = b->from < b->to ? b->from : b->to, high_b = b->from + b->to - low_b;
	return high_a <= low_b || high_b <= low_a;
}

/* Pairs of the best moves in place of them. */
static void list_pairs(struct refine *refine)
{
	struct candidate best[MOST_PAIRED];
	size_t count = refine->count < MOST_PAIRED ? refine->count : MOST_PAIRED;
	if (count)
		memcpy(best, refine->candidates, count * sizeof *best);
	refine->count = 0;
	for (size_t i = 0; i < count; i++)
		for (size_t k = i + 1; k < count; k++)
			if (apart(&best[i].move[0], &best[k].move[0]))
				add_candidate(refine, (struct candidate){.move = {best[i].move[0], best[k].move[0]}, .moves = 2});
	sort_candidates(refine);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void note_neighbour(struct pp_joint_search *search, const struct candidate *candidate, uint64_t makespan)
{
	struct pp_joint_neighbour neighbour = {candidate->move[0].from, candidate->move[0].to, makespan};
	uint32_t at = search->next_count;
	while (at > 0 && search->next[at - 1].makespan > makespan)
		at--;
	if (at == PP_JOINT_NEIGHBOURS)
		return;
	search->next_count += search->next_count < PP_JOINT_NEIGHBOURS;
	for (uint32_t i = search->next_count - 1; i > at; i--)
		search->next[i] = search->next[i - 1];
	search->next[at] = neighbour;
}

/* Run candidates, those that may be best first, until none can beat the best. False: none beats the split at hand. */
static bool try_candidates(struct refine *refine)
{
	struct pp_joint_search *search = refine->search;
	uint64_t best = search->makespan;
	size_t chosen = refine->count;
	unsigned tries = 0;
	for (size_t i = 0; i < refine->count && tries < MOST_TRIES && search->evaluations; i++) {
		struct candidate *candidate = &refine->candidates[i];
		if (candidate->bound >= (wide)best * 1000)
			break;
		if (bound_of(refine, candidate) >= (wide)best * 1000) /* chains seen since */
			continue;
		struct pp_path path;
		struct pp_arena *scratch = pp_arena_scratch(refine->arena);
		apply(refine, candidate);
		struct pp_joint_value value = run_split(scratch, refine->problem, refine->trial, &path);
		tries++;
		search->evaluations--;
		search->runs++;
		if (value.makespan != UINT64_MAX)
			remember(refine, &path);
		pp_arena_destroy(scratch);
		if (value.over > search->over || value.makespan == UINT64_MAX)
			continue;
		if (value.makespan >= best)
			continue;
		best = value.makespan;
		chosen = i;
	}
	if (chosen == refine->count)
		return false;
	apply(refine, &refine->candidates[chosen]);
	memcpy(search->first, refine->trial, ((size_t)refine->stages + 1) * sizeof *search->first);
	search->makespan = best;
	for (unsigned p = 0; p < refine->paths; p++)
		measure(refine, &refine->seen[p]);
	return true;
}

static bool step(struct refine *refine)
{
	list_moves(refine);
	if (try_candidates(refine))
		return true;
	if (refine->stride > 1)
		return false;
	list_pairs(refine);
	return try_candidates(refine);
}

/* Large steps first: many layers would take many small ones. */
static void descend(struct refine *refine)
{
	refine->stride = 1;
	while ((uint64_t)refine->stride * 8 * refine->stages <= refine->layers)
		refine->stride *= 2;
	for (; refine->stride; refine->stride /= 2) {
		for (unsigned p = 0; p < refine->paths; p++)
			measure_shifts(refine, &refine->seen[p]);
		while (refine->search->evaluations && step(refine))
			;
	}
}

/* Go on from a split that is not the best, in refine->trial. False: nothing better came of it, and the best is back. */
static bool detour(struct refine *refine)
{
	struct pp_joint_search *search = refine->search;
	size_t size = ((size_t)refine->stages + 1) * sizeof *search->first;
	uint32_t *best = PP_NEW_ARRAY(refine->arena, uint32_t, (size_t)refine->stages + 1);
	uint64_t least = search->makespan;
	struct pp_path path;
	memcpy(best, search->first, size);
	memcpy(search->first, refine->trial, size);
	struct pp_joint_value value = run_split(refine->arena, refine->problem, search->first, &path);
	search->evaluations -= search->evaluations > 0;
	search->runs++;
	search->makespan = value.makespan;
	if (value.makespan != UINT64_MAX && value.over <= search->over) {
		remember(refine, &path);
		for (unsigned p = 0; p < refine->paths; p++)
			measure(refine, &refine->seen[p]);
		while (search->evaluations && step(refine))
			;
	} else
		search->makespan = UINT64_MAX;
	if (search->makespan < least)
		return true;
	memcpy(search->first, best, size);
	search->makespan = least;
	for (unsigned p = 0; p < refine->paths; p++)
		measure(refine, &refine->seen[p]);
	return false;
}

/* Out of a split that no move and no pair of moves improves: through its neighbours, most promising first. */
static void explore(struct refine *refine)
{
	struct candidate ways[MOST_DETOURS];
	for (bool again = true; again && refine->search->evaluations;) {
		list_moves(refine);
		size_t count = refine->count < MOST_DETOURS ? refine->count : MOST_DETOURS;
		if (count)
			memcpy(ways, refine->candidates, count * sizeof *ways);
		again = false;
		for (size_t i = 0; i < count && !again && refine->search->evaluations; i++)
			if (apply(refine, &ways[i]))
				again = detour(refine);
	}
}

void pp_joint_look_around(struct pp_arena *arena, const struct pp_joint_problem *problem,
                          struct pp_joint_search *search)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct refine refine = begin(scratch, problem, search);
	struct pp_path path;
	search->next_count = 0;
	if (run_split(scratch, problem, search->first, &path).makespan != UINT64_MAX) {
		remember(&refine, &path);
		list_moves(&refine);
		for (size_t i = 0; i < refine.count && i < PP_JOINT_NEIGHBOURS; i++) {
			apply(&refine, &refine.candidates[i]);
			struct pp_joint_value value = run_split(scratch, problem, refine.trial, NULL);
			if (value.makespan != UINT64_MAX && value.over <= search->over)
				note_neighbour(search, &refine.candidates[i], value.makespan);
		}
	}
	pp_arena_destroy(scratch);
}

void pp_joint_refine(struct pp_arena *arena, const struct pp_joint_problem *problem, struct pp_joint_search *search)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct refine refine = begin(scratch, problem, search);
	struct pp_path path;
	struct pp_joint_value start = run_split(scratch, problem, search->first, &path);
	search->makespan = start.makespan;
	search->over = start.over;
	search->evaluations -= search->evaluations > 0;
	search->runs++;
	if (start.makespan != UINT64_MAX) {
		remember(&refine, &path);
		descend(&refine);
		refine.stride = 1;
		search->evaluations = search->evaluations < search->detours ? search->evaluations : search->detours;
		explore(&refine);
	}
	pp_arena_destroy(scratch);
}
