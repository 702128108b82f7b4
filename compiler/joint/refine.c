/* Moving layers: joint.h.
 *
 * A move takes `stride` layers, first many and then one, from stage `from` to stage `to`; the stages between hand as
 * many on each. Its effect on a chain is the sum of what the borders that it shifts do, so that prefix sums give it in
 * O(1). A candidate is one move, or two that shift different borders. Its bound is the longest of the chains seen so
 * far as they would be. */
#include "joint.h"

#include "ir/capped.h"

#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide; /* thousandths of ns */

enum {
	MOST_PATHS = 24,
	MOST_TRIES = 16, /* runs for one step */
	FEW_RUNS = 40,
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
	uint64_t *until; /* [layers + 1]: time of the layers before */
	uint64_t *loads; /* [ranks]: scratch */
	uint32_t *trial; /* [stages + 1] */
	struct candidate *candidates;
	size_t count, capacity;
};

static struct refine begin(struct pp_arena *scratch, const struct pp_joint_problem *problem,
                           struct pp_joint_search *search)
{
	uint32_t stages = problem->schedule->stages, layers = problem->spec->model.layer_count;
	uint64_t *until = PP_NEW_ARRAY(scratch, uint64_t, (size_t)layers + 1);
	for (uint32_t i = 0; i < layers; i++)
		until[i + 1] = pp_plus(until[i], problem->caps->load[i]);
	return (struct refine){.arena = scratch,
	                       .problem = problem,
	                       .search = search,
	                       .stages = stages,
	                       .layers = layers,
	                       .until = until,
	                       .loads = PP_NEW_ARRAY(scratch, uint64_t, problem->schedule->ranks),
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
	if (pp_joint_run(scratch, problem, first, &path).makespan != UINT64_MAX)
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

/* How uneven the ranks are: the sum of their squared loads. Of splits with one makespan the evener is better, and on
 * the way to a smaller one where several ranks are the slowest together. */
static wide spread_of(const struct refine *refine, const uint32_t *first)
{
	const struct pp_schedule *schedule = refine->problem->schedule;
	wide spread = 0;
	memset(refine->loads, 0, schedule->ranks * sizeof *refine->loads);
	for (uint32_t s = 0; s < refine->stages; s++)
		refine->loads[schedule->stage_rank[s]] += refine->until[first[s + 1]] - refine->until[first[s]];
	for (uint32_t r = 0; r < schedule->ranks; r++)
		spread += (wide)refine->loads[r] * refine->loads[r];
	return spread;
}

/* Whether a candidate, in refine->trial then, may beat what there is; *spread: its own. */
static bool may_beat(const struct refine *refine, const struct candidate *candidate, uint64_t makespan, wide even,
                     wide *spread)
{
	wide bound = bound_of(refine, candidate);
	if (bound > (wide)makespan * 1000 || !apply(refine, candidate))
		return false;
	*spread = spread_of(refine, refine->trial);
	return bound < (wide)makespan * 1000 || *spread < even;
}

static struct pp_joint_value run_trial(struct refine *refine)
{
	struct pp_path path;
	struct pp_arena *scratch = pp_arena_scratch(refine->arena);
	struct pp_joint_value value = pp_joint_run(scratch, refine->problem, refine->trial, &path);
	refine->search->evaluations -= refine->search->evaluations > 0;
	refine->search->runs++;
	if (value.makespan != UINT64_MAX)
		remember(refine, &path);
	pp_arena_destroy(scratch);
	return value;
}

/* The split at hand is another one from now on. */
static void move_to(struct refine *refine, const uint32_t *first, uint64_t makespan)
{
	memcpy(refine->search->first, first, ((size_t)refine->stages + 1) * sizeof *first);
	refine->search->makespan = makespan;
	for (unsigned p = 0; p < refine->paths; p++)
		measure(refine, &refine->seen[p]);
}

/* Run candidates, those that may be best first, until none can beat the best; where runs are few or the makespan stays
 * the same, until one is better. False: none beats the split at hand. */
static bool try_candidates(struct refine *refine)
{
	struct pp_joint_search *search = refine->search;
	uint64_t best = search->makespan;
	wide even = spread_of(refine, search->first), spread;
	size_t chosen = refine->count;
	bool settled = false;
	unsigned tries = 0;
	for (size_t i = 0; i < refine->count && tries < MOST_TRIES && search->evaluations && !settled; i++) {
		const struct candidate *candidate = &refine->candidates[i];
		if (candidate->bound > (wide)best * 1000)
			break;
		if (!may_beat(refine, candidate, best, even, &spread))
			continue;
		struct pp_joint_value value = run_trial(refine);
		tries++;
		if (value.over > search->over || value.makespan > best || (value.makespan == best && spread >= even))
			continue;
		settled = value.makespan == best || search->evaluations < FEW_RUNS;
		best = value.makespan;
		even = spread;
		chosen = i;
	}
	if (chosen == refine->count || !apply(refine, &refine->candidates[chosen]))
		return false;
	move_to(refine, refine->trial, best);
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
	uint32_t *best = PP_NEW_ARRAY(refine->arena, uint32_t, (size_t)refine->stages + 1);
	uint64_t least = search->makespan;
	memcpy(best, search->first, ((size_t)refine->stages + 1) * sizeof *best);
	struct pp_joint_value value = run_trial(refine);
	if (value.makespan == UINT64_MAX || value.over > search->over)
		return false;
	move_to(refine, refine->trial, value.makespan);
	while (search->evaluations && step(refine))
		;
	if (search->makespan < least)
		return true;
	move_to(refine, best, least);
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
	if (pp_joint_run(scratch, problem, search->first, &path).makespan != UINT64_MAX) {
		remember(&refine, &path);
		list_moves(&refine);
		for (size_t i = 0; i < refine.count && i < PP_JOINT_NEIGHBOURS; i++) {
			apply(&refine, &refine.candidates[i]);
			struct pp_joint_value value = pp_joint_run(scratch, problem, refine.trial, NULL);
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
	struct pp_joint_value start = pp_joint_run(scratch, problem, search->first, &path);
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
