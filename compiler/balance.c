/* Balancing layers over stages.
 *
 * One stage per rank: two dynamic programmes over (stage, first layer): the least largest load, then the least sum of
 * squares among splits that reach it. Several stages per rank (interleaving, V): the DP's split on stage loads is
 * improved by moving single layers between stages, then a depth-first search with pruning tries to beat it or to
 * prove that nothing does. */
#include "balance.h"

#include "ir/capped.h"

#include <assert.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

enum {
	NODE_BUDGET = 2000000, /* of the search over several stages per rank */
	TABLE_CELLS = 1 << 22, /* of the dynamic programmes; beyond it, layers are dealt out by their share of the load */
	TABLE_LAYERS = 8192,   /* likewise: the programmes take the square of it in time */
	SEARCH_DEPTH = 4096    /* stages: depth of the recursion */
};

static const uint64_t infinite = UINT64_MAX;

struct solver {
	const struct pp_balance_problem *p;
	uint64_t *load, *fixed, *stash, *extra, *split; /* prefix sums, [layers + 1] */
	bool limited;                                   /* memory caps apply */
};

/* What a split is judged by, in order. */
struct rating {
	uint64_t over, bottleneck, stage;
	wide squares;
};

static bool better(const struct rating *a, const struct rating *b)
{
	if (a->over != b->over)
		return a->over < b->over;
	if (a->bottleneck != b->bottleneck)
		return a->bottleneck < b->bottleneck;
	if (a->stage != b->stage)
		return a->stage < b->stage;
	return a->squares < b->squares;
}

static uint64_t *prefix_sums(struct pp_arena *arena, const uint64_t *items, uint32_t count)
{
	uint64_t *sums = PP_NEW_ARRAY(arena, uint64_t, (size_t)count + 1);
	for (uint32_t i = 0; items && i < count; i++)
		sums[i + 1] = pp_plus(sums[i], items[i]);
	return sums;
}

static struct solver solver_make(struct pp_arena *arena, const struct pp_balance_problem *p)
{
	struct solver s = {.p = p, .limited = p->static_bytes && p->cap};
	s.load = prefix_sums(arena, p->load, p->layers);
	s.fixed = prefix_sums(arena, p->static_bytes, p->layers);
	s.stash = prefix_sums(arena, p->stash_bytes, p->layers);
	s.extra = prefix_sums(arena, p->extra_bytes, p->layers);
	s.split = prefix_sums(arena, p->split_bytes, p->layers);
	return s;
}

static uint64_t stage_load(const struct solver *s, uint32_t from, uint32_t to)
{
	return s->load[to] - s->load[from];
}

static uint64_t stage_bytes(const struct solver *s, uint32_t stage, uint32_t from, uint32_t to)
{
	uint64_t held = pp_plus(pp_times(s->p->in_flight[stage], s->stash[to] - s->stash[from]),
	                        pp_times(s->p->extras[stage], s->extra[to] - s->extra[from]));
	if (s->p->split_bytes)
		held = pp_plus(held, pp_times(s->p->split_extras[stage], s->split[to] - s->split[from]));
	return pp_plus(s->fixed[to] - s->fixed[from], held);
}

static uint32_t longest(const struct solver *s)
{
	return s->p->max_layers ? s->p->max_layers : s->p->layers;
}

/* Sums per rank of a split; `loads` and `bytes` are scratch of [ranks]. */
static struct rating rate(const struct solver *s, const uint32_t *first, uint64_t *loads, uint64_t *bytes)
{
	const struct pp_balance_problem *p = s->p;
	struct rating r = {0};
	memset(loads, 0, p->ranks * sizeof *loads);
	memset(bytes, 0, p->ranks * sizeof *bytes);
	for (uint32_t i = 0; i < p->stages; i++) {
		uint64_t load = stage_load(s, first[i], first[i + 1]);
		loads[p->stage_rank[i]] += load;
		r.stage = load > r.stage ? load : r.stage;
		r.squares += (wide)load * load;
		if (s->limited)
			bytes[p->stage_rank[i]] = pp_plus(bytes[p->stage_rank[i]], stage_bytes(s, i, first[i], first[i + 1]));
	}
	for (uint32_t i = 0; i < p->ranks; i++) {
		r.bottleneck = loads[i] > r.bottleneck ? loads[i] : r.bottleneck;
		if (s->limited && bytes[i] > p->cap[i])
			r.over = pp_plus(r.over, bytes[i] - p->cap[i]);
	}
	return r;
}

/* ---- dynamic programming on stages ----------------------------------------------------------- */

/* Table over (stage, first layer): the best value of stages stage.. that start there. */
struct table {
	uint64_t *most; /* least largest load, infinite: impossible */
	wide *squares;
	uint32_t *end; /* end of the stage on the best path */
};

static size_t cell(const struct solver *s, uint32_t stage, uint32_t layer)
{
	return (size_t)stage * (s->p->layers + 1) + layer;
}

/* Does a stage [from, to) fit the cap of its rank on its own? */
static bool fits(const struct solver *s, uint32_t stage, uint32_t from, uint32_t to)
{
	return !s->limited || stage_bytes(s, stage, from, to) <= s->p->cap[s->p->stage_rank[stage]];
}

static void fill_most(const struct solver *s, struct table *t, bool capped)
{
	const struct pp_balance_problem *p = s->p;
	for (uint32_t i = 0; i < p->layers; i++)
		t->most[cell(s, p->stages, i)] = infinite;
	t->most[cell(s, p->stages, p->layers)] = 0;
	for (uint32_t stage = p->stages; stage-- > 0;) {
		for (uint32_t from = 0; from <= p->layers; from++) {
			uint64_t best = infinite;
			for (uint32_t to = from + p->min_layers; to <= p->layers && to - from <= longest(s); to++) {
				uint64_t load = stage_load(s, from, to), rest = t->most[cell(s, stage + 1, to)];
				if (load >= best || (capped && !fits(s, stage, from, to)))
					break; /* both only grow with `to` */
				uint64_t most = load > rest ? load : rest;
				best = most < best ? most : best;
			}
			t->most[cell(s, stage, from)] = best;
		}
	}
}

static void fill_squares(const struct solver *s, struct table *t, bool capped, uint64_t limit)
{
	const struct pp_balance_problem *p = s->p;
	const wide none = ~(wide)0;
	for (uint32_t i = 0; i < p->layers; i++)
		t->squares[cell(s, p->stages, i)] = none;
	t->squares[cell(s, p->stages, p->layers)] = 0;
	for (uint32_t stage = p->stages; stage-- > 0;) {
		for (uint32_t from = 0; from <= p->layers; from++) {
			wide best = none;
			uint64_t lightest = infinite;
			uint32_t end = from;
			for (uint32_t to = from + p->min_layers; to <= p->layers && to - from <= longest(s); to++) {
				uint64_t load = stage_load(s, from, to);
				if (load > limit || (capped && !fits(s, stage, from, to)))
					break;
				wide rest = t->squares[cell(s, stage + 1, to)];
				if (rest == none)
					continue;
				wide sum = rest + (wide)load * load;
				uint64_t bytes = s->fixed[to] - s->fixed[from];
				if (sum < best || (sum == best && bytes < lightest)) {
					best = sum;
					lightest = bytes;
					end = to;
				}
			}
			t->squares[cell(s, stage, from)] = best;
			t->end[cell(s, stage, from)] = end;
		}
	}
}

/* The best split by single stages. False if there is none (under the caps when `capped`). */
static bool split_by_stages(struct pp_arena *arena, const struct solver *s, bool capped, uint32_t *first)
{
	size_t cells = ((size_t)s->p->stages + 1) * ((size_t)s->p->layers + 1);
	struct table t = {PP_NEW_ARRAY(arena, uint64_t, cells), PP_NEW_ARRAY(arena, wide, cells),
	                  PP_NEW_ARRAY(arena, uint32_t, cells)};
	fill_most(s, &t, capped);
	uint64_t limit = t.most[cell(s, 0, 0)];
	if (limit == infinite)
		return false;
	fill_squares(s, &t, capped, limit);
	uint32_t at = 0;
	for (uint32_t stage = 0; stage < s->p->stages; stage++) {
		first[stage] = at;
		at = t.end[cell(s, stage, at)];
	}
	first[s->p->stages] = at;
	assert(at == s->p->layers);
	return true;
}

/* For very many layers and stages: each stage ends where its share of the total load is reached. */
static void split_by_share(const struct solver *s, uint32_t *first)
{
	const struct pp_balance_problem *p = s->p;
	uint32_t at = 0;
	for (uint32_t stage = 0; stage < p->stages; stage++) {
		first[stage] = at;
		uint32_t after = p->stages - stage - 1;
		uint64_t least = at + p->min_layers, most = (uint64_t)at + longest(s);
		uint64_t needed = p->layers > (uint64_t)after * longest(s) ? p->layers - (uint64_t)after * longest(s) : 0;
		uint64_t spare = p->layers - (uint64_t)after * p->min_layers;
		least = needed > least ? needed : least;
		most = spare < most ? spare : most;
		wide goal = (wide)s->load[p->layers] * (stage + 1) / p->stages;
		for (at = (uint32_t)least; at < most && s->load[at] < goal; at++)
			;
	}
	first[p->stages] = at;
}

/* ---- several stages per rank ----------------------------------------------------------------- */

struct search {
	const struct solver *s;
	uint32_t *first, *best;  /* [stages + 1] */
	uint64_t *loads, *bytes; /* [ranks], of the stages placed so far */
	struct rating best_rating;
	uint64_t *scratch_loads, *scratch_bytes;
	uint64_t nodes;
	bool finished;
};

/* Move one layer from stage `from` to stage `to`: all stages between shift by one layer. */
static bool move_layer(const struct solver *s, const uint32_t *first, uint32_t *moved, uint32_t from, uint32_t to)
{
	memcpy(moved, first, ((size_t)s->p->stages + 1) * sizeof *moved);
	if (from < to)
		for (uint32_t i = from + 1; i <= to; i++)
			moved[i]--;
	else
		for (uint32_t i = to + 1; i <= from; i++)
			moved[i]++;
	uint32_t given = first[from + 1] - first[from], taken = moved[to + 1] - moved[to];
	return given > s->p->min_layers && taken <= longest(s);
}

/* First-improvement local search over single moves out of stages on the worst ranks. */
static void improve(struct search *x)
{
	const struct pp_balance_problem *p = x->s->p;
	for (bool again = true; again;) {
		again = false;
		for (uint32_t from = 0; from < p->stages && !again; from++) {
			rate(x->s, x->best, x->scratch_loads, x->scratch_bytes);
			uint32_t rank = p->stage_rank[from];
			bool worst = x->scratch_loads[rank] == x->best_rating.bottleneck ||
			             (x->s->limited && x->scratch_bytes[rank] > p->cap[rank]) ||
			             stage_load(x->s, x->best[from], x->best[from + 1]) == x->best_rating.stage;
			for (uint32_t to = 0; worst && to < p->stages && !again; to++) {
				if (to == from || !move_layer(x->s, x->best, x->first, from, to))
					continue;
				struct rating r = rate(x->s, x->first, x->scratch_loads, x->scratch_bytes);
				if (better(&r, &x->best_rating)) {
					x->best_rating = r;
					memcpy(x->best, x->first, ((size_t)p->stages + 1) * sizeof *x->best);
					again = true;
				}
			}
		}
	}
}

/* Could stages stage.. starting at layer `from` still give a split at least as good as the best? */
static bool hopeless(const struct search *x, uint32_t from)
{
	const struct pp_balance_problem *p = x->s->p;
	uint64_t room = 0, left = x->s->load[p->layers] - x->s->load[from];
	for (uint32_t i = 0; i < p->ranks; i++)
		room = pp_plus(room, x->best_rating.bottleneck - x->loads[i]);
	return left > room;
}

static void search_stage(struct search *x, uint32_t stage, uint32_t from)
{
	const struct pp_balance_problem *p = x->s->p;
	x->first[stage] = from;
	if (stage == p->stages) {
		if (from != p->layers)
			return;
		struct rating r = rate(x->s, x->first, x->scratch_loads, x->scratch_bytes);
		if (better(&r, &x->best_rating)) {
			x->best_rating = r;
			memcpy(x->best, x->first, ((size_t)p->stages + 1) * sizeof *x->best);
		}
		return;
	}
	uint32_t rank = p->stage_rank[stage], after = p->stages - stage - 1;
	for (uint32_t to = from + p->min_layers; to <= p->layers && to - from <= longest(x->s); to++) {
		if (x->nodes++ >= NODE_BUDGET) {
			x->finished = false;
			return;
		}
		if (p->layers - to < (uint64_t)after * p->min_layers)
			break;
		if ((uint64_t)after * longest(x->s) < p->layers - to)
			continue;
		uint64_t load = stage_load(x->s, from, to), bytes = x->s->limited ? stage_bytes(x->s, stage, from, to) : 0;
		if (x->loads[rank] + load > x->best_rating.bottleneck && x->best_rating.over == 0)
			break;
		if (x->best_rating.over == 0 && x->s->limited && pp_plus(x->bytes[rank], bytes) > p->cap[rank])
			break;
		x->loads[rank] += load;
		x->bytes[rank] += bytes;
		if (x->best_rating.over || !hopeless(x, to))
			search_stage(x, stage + 1, to);
		x->loads[rank] -= load;
		x->bytes[rank] -= bytes;
	}
}

static bool solve_grouped(struct pp_arena *arena, const struct solver *s, uint32_t *first)
{
	const struct pp_balance_problem *p = s->p;
	struct search x = {.s = s, .best = first, .finished = p->stages <= SEARCH_DEPTH};
	x.first = PP_NEW_ARRAY(arena, uint32_t, (size_t)p->stages + 1);
	x.loads = PP_NEW_ARRAY(arena, uint64_t, p->ranks);
	x.bytes = PP_NEW_ARRAY(arena, uint64_t, p->ranks);
	x.scratch_loads = PP_NEW_ARRAY(arena, uint64_t, p->ranks);
	x.scratch_bytes = PP_NEW_ARRAY(arena, uint64_t, p->ranks);
	x.best_rating = rate(s, first, x.scratch_loads, x.scratch_bytes);
	improve(&x);
	if (x.finished)
		search_stage(&x, 0, 0);
	return x.finished;
}

/* ---- bound ----------------------------------------------------------------------------------- */

/* Can ranks of capacity `limit` hold `count` layers of load `unit` besides one layer of load `extra`? */
static bool holds(uint64_t limit, uint32_t ranks, uint64_t unit, uint64_t count, uint64_t extra)
{
	if (limit < extra)
		return false;
	return pp_times(ranks - 1, limit / unit) + (limit - extra) / unit >= count;
}

/* A load that no split goes below: the mean over ranks, the heaviest layer, and, since layers are not divisible, the
 * least capacity at which the most frequent layer load and the heaviest other layer can be dealt out. */
static uint64_t lower_bound(const struct solver *s)
{
	const struct pp_balance_problem *p = s->p;
	uint64_t total = s->load[p->layers], heaviest = 0, unit = 0, count = 0, extra = 0;
	for (uint32_t i = 0; i < p->layers; i++)
		heaviest = p->load[i] > heaviest ? p->load[i] : heaviest;
	for (uint32_t i = 0, run = 0; i < p->layers; i++) { /* longest run of equal loads */
		run = i && p->load[i] == p->load[i - 1] ? run + 1 : 1;
		if (run > count) {
			count = run;
			unit = p->load[i];
		}
	}
	uint64_t bound = total / p->ranks + (total % p->ranks != 0);
	bound = heaviest > bound ? heaviest : bound;
	if (unit == 0)
		return bound;
	for (uint32_t i = 0; i < p->layers; i++)
		extra = p->load[i] != unit && p->load[i] > extra ? p->load[i] : extra;
	uint64_t dealt = infinite;
	for (uint64_t k = 0; k <= count; k++) {
		if (holds(k * unit, p->ranks, unit, count, extra) && k * unit < dealt)
			dealt = k * unit;
		if (holds(extra + k * unit, p->ranks, unit, count, extra) && extra + k * unit < dealt)
			dealt = extra + k * unit;
	}
	return dealt != infinite && dealt > bound ? dealt : bound;
}

/* ---- interface ------------------------------------------------------------------------------- */

/* Does any split at all keep min_layers and max_layers? */
static bool possible(const struct pp_balance_problem *p)
{
	uint64_t least = (uint64_t)p->stages * p->min_layers, most = (uint64_t)p->stages * p->max_layers;
	return p->layers >= least && (p->max_layers == 0 || p->layers <= most);
}

static bool one_stage_per_rank(struct pp_arena *arena, const struct pp_balance_problem *p)
{
	bool *seen = PP_NEW_ARRAY(arena, bool, p->ranks);
	for (uint32_t i = 0; i < p->stages; i++) {
		if (seen[p->stage_rank[i]])
			return false;
		seen[p->stage_rank[i]] = true;
	}
	return true;
}

void pp_balance_rate(struct pp_arena *arena, const struct pp_balance_problem *p, struct pp_split *split)
{
	struct solver s = solver_make(arena, p);
	struct rating r =
	    rate(&s, split->first, PP_NEW_ARRAY(arena, uint64_t, p->ranks), PP_NEW_ARRAY(arena, uint64_t, p->ranks));
	split->bottleneck = r.bottleneck;
	split->over = r.over;
	split->bound = lower_bound(&s);
	split->exact = split->bottleneck == split->bound && split->over == 0;
}

bool pp_balance_solve(struct pp_arena *arena, const struct pp_balance_problem *p, struct pp_split *result)
{
	if (!possible(p))
		return false;
	struct solver s = solver_make(arena, p);
	result->first = PP_NEW_ARRAY(arena, uint32_t, (size_t)p->stages + 1);
	if (p->layers > TABLE_LAYERS || (uint64_t)(p->stages + 1) * (p->layers + 1) > TABLE_CELLS) {
		split_by_share(&s, result->first);
		pp_balance_rate(arena, p, result);
		return true;
	}
	bool finished = split_by_stages(arena, &s, s.limited, result->first) && one_stage_per_rank(arena, p);
	if (!finished && s.limited && result->first[p->stages] == 0)
		split_by_stages(arena, &s, false, result->first);
	if (!finished)
		finished = solve_grouped(arena, &s, result->first);
	pp_balance_rate(arena, p, result);
	result->exact |= finished && result->over == 0;
	if (result->exact)
		result->bound = result->bottleneck;
	return true;
}
