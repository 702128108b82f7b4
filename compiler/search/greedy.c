/* A list scheduler over events.
 *
 * Of all ranks the one that can start something first decides next, so all that is ready by then is known. A forward is
 * let in only while the chunks after it on the same rank still find room for the microbatch, and so does what its
 * backward takes on top: microbatches pass every stage in order, hence the oldest one in flight can always go on to the
 * end and back, and no rank gets stuck. W fills gaps, or is brought forward when memory holds up a forward. */
#include "greedy.h"

#include "compiler/order/wave_wake.h"

#include <assert.h>
#include <string.h>

struct stage_state {
	uint32_t next[PP_ACTION_KINDS]; /* microbatches begun: [PP_F], [PP_I] for I or B, [PP_W] */
};

struct rank_state {
	uint64_t free;          /* when it is free */
	uint64_t started, work; /* begin of its first action; ns of the actions that are still to come */
	int64_t held;
	int64_t margin;     /* room that a backward may need on top */
	uint32_t in_flight; /* forwards without backward */
	uint32_t pending;   /* W that wait */
	uint32_t forwards;  /* F still to come */
	uint32_t filled;    /* actions placed */
	uint8_t last;       /* kind of the last F or backward */
};

struct choice {
	uint64_t at;    /* when its input is there, or the rank is free */
	uint64_t there; /* when its input is there */
	uint32_t stage;
	uint8_t kind;
	bool found;
};

struct greedy {
	const struct pp_packed *packed;
	const struct pp_greedy_rule *rule;
	struct stage_state *stage;
	struct rank_state *rank;
	uint64_t *end;            /* [ids] */
	uint64_t *busy;           /* [2 * stages], if queued: until when the hops of a channel take */
	struct pp_wave_wake wake; /* when ranks start what they do next */
	struct choice *choice;    /* [ranks]: what the rank does next, as far as is known */
	int64_t *later;           /* [stages]: bytes of later chunks of the same rank */
	uint32_t *order;
	uint64_t wait, chunk_wait; /* ns */
	uint8_t backward;
};

static uint32_t id_of(const struct greedy *g, uint32_t s, uint32_t kind)
{
	uint32_t counter = kind == PP_B ? PP_I : kind;
	return pp_action_id(g->packed, s, g->stage[s].next[counter], kind);
}

/* When a hop that begins at `end` is over, if it is the next one of its channel. */
static uint64_t hop_over(const struct greedy *g, uint64_t end, uint64_t hop, uint32_t channel)
{
	bool waits = channel != PP_NO_CHANNEL && g->busy[channel] > end;
	return (waits ? g->busy[channel] : end) + hop;
}

/* When the next action of a kind on a stage may start; PP_UNSET: not known yet, or none left. */
static uint64_t forward_there(const struct greedy *g, uint32_t s)
{
	const struct pp_packed *packed = g->packed;
	uint32_t mb = g->stage[s].next[PP_F];
	if (mb == packed->microbatches)
		return PP_UNSET;
	if (s == 0)
		return 0;
	uint64_t end = g->end[pp_action_id(packed, s - 1, mb, PP_F)];
	const struct pp_packed_stage *stage = &packed->stage[s];
	return end == PP_UNSET ? PP_UNSET : hop_over(g, end, stage->forward_hop, stage->forward_channel);
}

static uint64_t backward_there(const struct greedy *g, uint32_t s)
{
	const struct pp_packed *packed = g->packed;
	uint32_t mb = g->stage[s].next[PP_I];
	if (mb == packed->microbatches || mb >= g->stage[s].next[PP_F])
		return PP_UNSET;
	uint64_t own = g->end[pp_action_id(packed, s, mb, PP_F)];
	if (s + 1 == packed->stages)
		return own;
	uint64_t end = g->end[pp_action_id(packed, s + 1, mb, g->backward)];
	if (end == PP_UNSET)
		return PP_UNSET;
	end = hop_over(g, end, packed->stage[s].backward_hop, packed->stage[s].backward_channel);
	return end > own ? end : own;
}

static bool forward_fits(const struct greedy *g, uint32_t r, uint32_t s)
{
	const struct rank_state *rank = &g->rank[r];
	if (g->rule->most && g->stage[s].next[PP_F] - g->stage[s].next[PP_I] >= g->rule->most[s])
		return false;
	int64_t later = g->rule->bold ? 0 : g->later[s];
	return rank->held + g->packed->stage[s].take[PP_F] + later + rank->margin <= g->packed->room[r];
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Whether, both being there, a goes before b by the rule for their kind. */
static bool goes_first(const struct greedy *g, const struct choice *a, const struct choice *b)
{
	uint32_t counter = a->kind == PP_B ? PP_I : a->kind;
	bool earlier = a->stage < b->stage;
	switch ((enum pp_greedy_chunk)g->rule->chunk[counter]) {
	case PP_CHUNK_LAST:
		return !earlier;
	case PP_CHUNK_OLDEST:
		if (g->stage[a->stage].next[counter] != g->stage[b->stage].next[counter])
			return g->stage[a->stage].next[counter] < g->stage[b->stage].next[counter];
		return !earlier;
	case PP_CHUNK_LONGEST:
		return a->there != b->there ? a->there < b->there : !earlier;
	case PP_CHUNK_FIRST:
	case PP_CHUNK_COUNT:
		break;
	}
	return earlier;
}

static bool better(const struct greedy *g, const struct choice *a, const struct choice *b)
{
	if (!b->found)
		return true;
	if (g->rule->key) {
		if (a->at != b->at)
			return a->at < b->at;
		return g->rule->key[id_of(g, a->stage, a->kind)] < g->rule->key[id_of(g, b->stage, b->kind)];
	}
	bool first = goes_first(g, a, b);
	uint64_t wait = a->kind == PP_W ? 0 : g->chunk_wait;
	if (first)
		return a->at <= b->at + wait;
	return a->at + wait < b->at;
}

static void offer(const struct greedy *g, uint32_t r, uint32_t s, uint8_t kind, uint64_t there, struct choice *best)
{
	uint64_t free = g->rank[r].free;
	struct choice choice = {there > free ? there : free, there, s, kind, true};
	if (better(g, &choice, best))
		*best = choice;
}

struct offers {
	struct choice forward, backward, weight;
	struct choice blocked; /* a forward that is there but does not fit */
};

static void collect(const struct greedy *g, uint32_t r, struct offers *offers)
{
	const struct pp_packed *packed = g->packed;
	*offers = (struct offers){0};
	for (uint32_t i = packed->first_stage[r]; i < packed->first_stage[r + 1]; i++) {
		uint32_t s = packed->stages_of[i];
		uint64_t there = forward_there(g, s);
		if (there != PP_UNSET) {
			if (forward_fits(g, r, s))
				offer(g, r, s, PP_F, there, &offers->forward);
			else if (there <= g->rank[r].free)
				offer(g, r, s, PP_F, there, &offers->blocked);
		}
		there = backward_there(g, s);
		if (there != PP_UNSET && g->rank[r].held + packed->stage[s].take[g->backward] <= packed->room[r])
			offer(g, r, s, g->backward, there, &offers->backward);
		if (!packed->fused && g->stage[s].next[PP_W] < g->stage[s].next[PP_I])
			offer(g, r, s, PP_W, 0, &offers->weight);
	}
}

static bool forward_first(const struct greedy *g, uint32_t r, const struct choice *forward,
                          const struct choice *backward)
{
	const struct rank_state *rank = &g->rank[r];
	switch ((enum pp_greedy_prefer)(r < g->rule->split ? g->rule->prefer : g->rule->prefer_late)) {
	case PP_PREFER_FORWARD:
		return true;
	case PP_PREFER_TURNS:
		return rank->last != PP_F;
	case PP_PREFER_TARGET:
		return rank->in_flight < g->rule->target[r];
	case PP_PREFER_EARLIEST:
		return forward->there < backward->there;
	case PP_PREFER_BACKWARD:
	case PP_PREFER_COUNT:
		break;
	}
	return false;
}

/* By keys: of what can start first the smallest key; with patience, also what comes a little later. */
static struct choice by_key(const struct greedy *g, const struct offers *offers)
{
	const struct choice *all[] = {&offers->forward, &offers->backward, &offers->weight};
	uint64_t soonest = PP_UNSET;
	for (unsigned i = 0; i < 3; i++)
		if (all[i]->found && all[i]->at < soonest)
			soonest = all[i]->at;
	struct choice best = {0};
	uint64_t least = PP_UNSET;
	for (unsigned i = 0; i < 3; i++) {
		if (!all[i]->found || all[i]->at > soonest + g->rule->patience)
			continue;
		uint64_t key = g->rule->key[id_of(g, all[i]->stage, all[i]->kind)];
		if (!best.found || key < least) {
			best = *all[i];
			least = key;
		}
	}
	return best;
}

/* Whether W goes ahead of what is chosen, for the forward that does not fit. */
static bool makes_room(const struct greedy *g, uint32_t r, const struct offers *offers, const struct choice *chosen)
{
	if (chosen->kind == PP_F)
		return false;
	if (chosen->at > g->rank[r].free || g->rule->make_room == 2)
		return true;
	return g->rule->make_room == 1 && forward_first(g, r, &offers->blocked, &offers->backward);
}

/* What rank r does next. Not found: nothing is known that it could do. */
static struct choice choose(const struct greedy *g, uint32_t r)
{
	const struct rank_state *rank = &g->rank[r];
	struct offers offers;
	collect(g, r, &offers);
	if (g->rule->key)
		return by_key(g, &offers);
	const struct choice *f = &offers.forward, *b = &offers.backward, *w = &offers.weight;
	if (w->found && g->rule->lag && rank->pending > g->rule->lag[r])
		return *w;
	struct choice main = b->found ? *b : *f;
	if (f->found && b->found) {
		bool forward = forward_first(g, r, f, b);
		const struct choice *first = forward ? f : b, *other = forward ? b : f;
		main = first->at <= other->at + g->wait ? *first : *other;
	}
	if (!w->found)
		return main;
	if (!main.found)
		return *w;
	if (offers.blocked.found && makes_room(g, r, &offers, &main))
		return *w;
	bool drains = rank->forwards == 0;
	uint64_t gap = main.at - rank->free, quarters = drains ? g->rule->drain_gap : g->rule->weight_gap;
	return gap * 4 >= g->packed->stage[w->stage].ticks[PP_W] * quarters && gap > 0 ? *w : main;
}

/* ---- running --------------------------------------------------------------------------------- */

static void refresh(struct greedy *g, uint32_t r)
{
	g->choice[r] = choose(g, r);
	pp_wave_wake_set(&g->wake, r, g->choice[r].found ? g->choice[r].at : PP_WAVE_NEVER);
}

/* What rank r has just placed may be the next thing that another one has waited for. */
static void refresh_neighbour(struct greedy *g, uint32_t r, uint32_t s, uint8_t kind)
{
	uint32_t to = PP_UNSET & UINT32_MAX, counter = kind == PP_F ? PP_F : PP_I;
	if (kind == PP_F && s + 1 < g->packed->stages)
		to = s + 1;
	if (kind == g->backward && s > 0)
		to = s - 1;
	if (to < g->packed->stages && g->packed->stage[to].rank != r &&
	    g->stage[to].next[counter] + 1 == g->stage[s].next[counter])
		refresh(g, g->packed->stage[to].rank);
}

static void place(struct greedy *g, uint32_t r, const struct choice *choice)
{
	struct rank_state *rank = &g->rank[r];
	const struct pp_packed_stage *stage = &g->packed->stage[choice->stage];
	uint32_t id = id_of(g, choice->stage, choice->kind);
	uint64_t free = rank->free;
	if (choice->kind == PP_I || choice->kind == PP_B)
		free += stage->recompute;
	if (rank->filled == 0)
		rank->started = choice->at;
	rank->free = (free > choice->there ? free : choice->there) + stage->ticks[choice->kind];
	rank->work -= stage->ticks[choice->kind];
	g->end[id] = rank->free;
	uint32_t channel = pp_packed_channel(stage, choice->kind);
	if (channel != PP_NO_CHANNEL)
		g->busy[channel] = choice->there;
	g->order[g->packed->first[r] + rank->filled++] = id;
	rank->held += stage->take[choice->kind] - stage->give[choice->kind];
	g->stage[choice->stage].next[choice->kind == PP_B ? PP_I : choice->kind]++;
	if (choice->kind == PP_F) {
		rank->in_flight++;
		rank->forwards--;
	} else if (choice->kind == PP_W) {
		rank->pending--;
	} else {
		rank->in_flight--;
		rank->pending += choice->kind == PP_I;
	}
	if (choice->kind != PP_W)
		rank->last = choice->kind;
}

static void begin(struct pp_arena *scratch, struct greedy *g)
{
	const struct pp_packed *packed = g->packed;
	g->stage = PP_NEW_ARRAY(scratch, struct stage_state, packed->stages);
	g->rank = PP_NEW_ARRAY(scratch, struct rank_state, packed->ranks);
	g->end = PP_NEW_ARRAY(scratch, uint64_t, packed->ids);
	if (packed->queued)
		g->busy = PP_NEW_ARRAY(scratch, uint64_t, 2 * (size_t)packed->stages);
	g->choice = PP_NEW_ARRAY(scratch, struct choice, packed->ranks);
	g->later = PP_NEW_ARRAY(scratch, int64_t, packed->stages);
	pp_wave_wake_make(scratch, &g->wake, packed->ranks);
	g->backward = packed->fused ? PP_B : PP_I;
	for (uint32_t s = 0; s < packed->stages; s++)
		g->wait += packed->stage[s].ticks[PP_F];
	g->wait /= packed->stages;
	g->chunk_wait = g->wait * g->rule->chunk_wait / 8;
	g->wait = g->wait * g->rule->wait / 8;
	memset(g->end, 0xff, packed->ids * sizeof *g->end);
	for (uint32_t r = 0; r < packed->ranks; r++) {
		int64_t sum = 0;
		for (uint32_t i = packed->first_stage[r + 1]; i-- > packed->first_stage[r];) {
			const struct pp_packed_stage *stage = &packed->stage[packed->stages_of[i]];
			g->later[packed->stages_of[i]] = sum;
			sum += stage->take[PP_F];
			uint64_t backward = packed->fused ? stage->ticks[PP_B] : stage->ticks[PP_I] + stage->ticks[PP_W];
			g->rank[r].work += packed->microbatches * (stage->ticks[PP_F] + backward);
			if (stage->take[g->backward] > g->rank[r].margin)
				g->rank[r].margin = stage->take[g->backward];
		}
		g->rank[r].last = g->backward;
		g->rank[r].forwards = (packed->first_stage[r + 1] - packed->first_stage[r]) * packed->microbatches;
		refresh(g, r);
	}
}

/* No rank can be done before its time now plus the work that it has left. */
static bool can_keep(const struct greedy *g, uint32_t r)
{
	const struct rank_state *rank = &g->rank[r];
	uint64_t since = g->packed->span ? rank->started : 0;
	return rank->free - since + rank->work <= g->rule->cutoff;
}

bool pp_greedy(struct pp_arena *scratch, const struct pp_packed *packed, const struct pp_greedy_rule *rule,
               uint32_t *order)
{
	struct greedy g = {.packed = packed, .rule = rule, .order = order};
	begin(scratch, &g);
	for (uint32_t placed = 0; placed < packed->actions; placed++) {
		uint32_t r;
		*packed->effort += 4;
		if (!pp_wave_wake_first(&g.wake, &r))
			return false;
		struct choice choice = g.choice[r];
		place(&g, r, &choice);
		if (rule->cutoff && !can_keep(&g, r))
			return false;
		refresh(&g, r);
		refresh_neighbour(&g, r, choice.stage, choice.kind);
	}
	return true;
}
