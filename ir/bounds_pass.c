/* Earliest starts of all actions, and latest ends, by one sweep over the microbatches.
 * requires: pp_bound_before.
 * ensures:  times that no order can undercut, from the first F of a stage on, or to the end of a rank or of all.
 *
 * An action starts no earlier than
 *   - its input arrives: the chain of its microbatch through the stages, with hops, each behind that of the microbatch
 *     before where hops of a channel wait for each other;
 *   - its rank has done all the actions that must come before it: one after another, none before its own earliest start
 *     (`struct pp_bound_done`). This is where memory comes in: some of them are there to make room;
 *   - enough bytes of its rank have been given back, by whichever actions can do it first.
 * Tails are the same with time running backwards; then I waits until enough F have "given back" what they take. All
 * relations lead from a microbatch to itself or a later one, so one sweep is enough. */
#include "bounds_state.h"

#include "capped.h"

#include <string.h>

/* ---- a rank's work done ---------------------------------------------------------------------- */

/* Of actions that a rank does one after another, none before its own earliest time: when the last of them can have
 * ended. Sorted by these times; ends[i] = max(ends[i - 1], begins[i]) + length[i]. Newcomers come almost at the end. Of
 * long lists the old part counts as one action, and a newcomer that would belong there is left out. */
enum { KEPT = 32 };

struct done_action {
	int64_t begin, length, ends;
};

struct done_list {
	struct done_action actions[2 * KEPT];
	uint32_t count;
	bool shortened;
	int64_t latest; /* end of any one of them */
};

static void renew(struct done_list *list, uint32_t from)
{
	for (uint32_t i = from; i < list->count; i++) {
		struct done_action *action = &list->actions[i];
		int64_t start = i && list->actions[i - 1].ends > action->begin ? list->actions[i - 1].ends : action->begin;
		action->ends = start + action->length;
	}
}

static void shorten(struct done_list *list)
{
	struct done_action past = list->actions[KEPT];
	past.length = past.ends - past.begin; /* no less, whatever comes in between */
	list->actions[0] = past;
	memmove(&list->actions[1], &list->actions[KEPT + 1], (KEPT - 1) * sizeof *list->actions);
	list->count = KEPT;
	list->shortened = true;
	renew(list, 0);
}

static void add_done(struct done_list *list, int64_t begin, int64_t end, int64_t length)
{
	if (!pp_bound_known(begin))
		return;
	list->latest = end > list->latest ? end : list->latest;
	if (length == 0 || (list->shortened && begin < list->actions[0].begin))
		return;
	if (list->count == 2 * (uint32_t)KEPT)
		shorten(list);
	uint32_t at = list->count;
	while (at && list->actions[at - 1].begin > begin)
		at--;
	memmove(&list->actions[at + 1], &list->actions[at], (list->count - at) * sizeof *list->actions);
	list->actions[at] = (struct done_action){.begin = begin, .length = length};
	list->count++;
	renew(list, at);
}

static int64_t done_at(const struct done_list *list)
{
	int64_t ends = list->count ? list->actions[list->count - 1].ends : PP_BOUND_NONE;
	return ends > list->latest ? ends : list->latest;
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* For each track: what its next action must wait for. */
struct track_state {
	struct done_list done;
	uint32_t *taken; /* [tracks of the rank]: actions of each in `done` */
	/* [tracks of the rank]: actions of each that have given back bytes, `given` in all, the last at `since` */
	uint32_t *freed;
	uint64_t given;
	int64_t since;
	struct done_list pool; /* the same as `done`, with the W of a pool in place of those of certain stages */
	uint32_t pooled;       /* of them */
};

/* W of a rank with a pool, by earliest start. */
struct pool_state {
	uint32_t *next; /* [stages of the rank] */
	uint32_t count;
	int64_t length;
};

struct sweep {
	const struct pp_bound_state *state;
	struct pp_bound_times times;
	struct track_state *track; /* [3 stages] */
	struct pool_state *pool;   /* [ranks], of heads */
	int64_t *hopped;           /* [2 stages]: F, I of a stage: end of the hop of the microbatch before */
	bool backwards;
	uint32_t origin; /* of heads */
	uint32_t target; /* of tails */
};

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Find the earliest starts of the rank's first `wanted` W, of microbatches before k: the n-th of any order can't be
 * earlier than the n-th smallest. Those of a stage ascend, so the smallest is the next of some stage. */
static void fill_pool(struct sweep *sweep, uint32_t r, uint32_t wanted, uint32_t k)
{
	const struct pp_bound_state *state = sweep->state;
	const struct pp_bound_rank *rank = &state->rank[r];
	struct pool_state *pool = &sweep->pool[r];
	for (; pool->count < wanted; pool->count++) {
		uint32_t best = UINT32_MAX;
		int64_t first = INT64_MAX;
		for (uint32_t i = 0; i < rank->count; i++) {
			if (pool->next[i] >= k)
				continue;
			int64_t begin = sweep->times.begin[pp_bound_at(state, rank->stages[i], PP_BOUND_W, pool->next[i])];
			if (begin < first) {
				first = begin;
				best = i;
			}
		}
		if (best == UINT32_MAX)
			return;
		pool->next[best]++;
		sweep->times.pool[r][pool->count] = first;
	}
}

/* The same as after_work where the rank must have done a number of W, whichever they are. */
static int64_t after_pool(struct sweep *sweep, uint32_t s, enum pp_bound_kind kind, uint32_t k)
{
	const struct pp_bound_stage *stage = &sweep->state->stage[s];
	const struct pp_bound_rank *rank = &sweep->state->rank[stage->rank];
	struct track_state *track = &sweep->track[s * PP_BOUND_KINDS + kind];
	if (sweep->backwards || !rank->pool || kind == PP_BOUND_W)
		return PP_BOUND_NONE;
	uint32_t ended = pp_bound_pool_ended(sweep->state, rank, stage->place, kind, k);
	fill_pool(sweep, stage->rank, ended, k);
	const struct pool_state *pool = &sweep->pool[stage->rank];
	for (; track->pooled < ended && track->pooled < pool->count; track->pooled++) {
		int64_t begin = sweep->times.pool[stage->rank][track->pooled];
		add_done(&track->pool, begin, begin + pool->length, pool->length);
	}
	return done_at(&track->pool);
}

/* When the rank has done all that must come before microbatch k (from the last, when going backwards). */
static int64_t after_work(struct sweep *sweep, uint32_t s, enum pp_bound_kind kind, uint32_t k)
{
	const struct pp_bound_state *state = sweep->state;
	const struct pp_bound_rank *rank = &state->rank[state->stage[s].rank];
	struct track_state *track = &sweep->track[s * PP_BOUND_KINDS + kind];
	if (!rank->related)
		return k ? sweep->times.end[pp_bound_at(state, s, kind, k - 1)] : PP_BOUND_NONE;
	uint32_t tracks = rank->count * PP_BOUND_KINDS, own = state->stage[s].place * PP_BOUND_KINDS + kind;
	for (uint32_t other = 0; other < tracks; other++) {
		int32_t lag = rank->lag[sweep->backwards ? (size_t)own * tracks + other : (size_t)other * tracks + own];
		if (lag == PP_BOUND_NEVER)
			continue;
		uint32_t stage = rank->stages[other / PP_BOUND_KINDS];
		enum pp_bound_kind their = other % PP_BOUND_KINDS;
		int64_t length = pp_bound_length(&state->stage[stage], their);
		for (; (int64_t)track->taken[other] <= (int64_t)k + lag; track->taken[other]++) {
			size_t at = pp_bound_at(state, stage, their, track->taken[other]);
			add_done(&track->done, sweep->times.begin[at], sweep->times.end[at], length);
			if (rank->pool && !sweep->backwards && their != PP_BOUND_W)
				add_done(&track->pool, sweep->times.begin[at], sweep->times.end[at], length);
		}
	}
	return later(done_at(&track->done), after_pool(sweep, s, kind, k));
}

/* Bytes that an action gives back at its end; going backwards, those that it takes at its start. */
static uint64_t gives(const struct sweep *sweep, uint32_t stage, enum pp_bound_kind kind)
{
	const struct pp_bound_stage *given = &sweep->state->stage[stage];
	switch (kind) {
	case PP_BOUND_F:
		return sweep->backwards ? given->held : 0;
	case PP_BOUND_I:
		return sweep->backwards ? 0 : given->early;
	case PP_BOUND_W:
		return sweep->backwards ? 0 : given->held - given->early;
	case PP_BOUND_KINDS:
		break;
	}
	return 0;
}

/* Going forwards, F_s(k) starts when F of k + 1 microbatches has started on the rank's stages up to s, and nothing of
 * microbatch k is given back there: what they hold beyond the room must have been given back by earlier ones. Going
 * backwards, when I_s(k) starts none of the microbatches from k on has given back anything on these stages: as many
 * bytes as they hold together beyond the room are taken after it. */
static int64_t after_room(struct sweep *sweep, uint32_t s, enum pp_bound_kind kind, uint32_t k)
{
	const struct pp_bound_state *state = sweep->state;
	const struct pp_bound_rank *rank = &state->rank[state->stage[s].rank];
	struct track_state *track = &sweep->track[s * PP_BOUND_KINDS + kind];
	uint32_t place = state->stage[s].place;
	if (rank->room == PP_ROOM_UNLIMITED || !rank->related || (place == 0 && state->stage[s].early == 0))
		return PP_BOUND_NONE; /* of one stage whose bytes all come back at once, the lags say it all */
	uint64_t held = 0;
	for (uint32_t t = 0; t <= place; t++)
		held = pp_plus(held, state->stage[rank->stages[t]].held);
	uint64_t taken = pp_times(held, (uint64_t)k + 1);
	while (taken > rank->room && track->given < taken - rank->room) {
		uint32_t best = UINT32_MAX;
		int64_t first = INT64_MAX;
		for (uint32_t other = 0; other < (place + 1) * PP_BOUND_KINDS; other++) {
			uint32_t stage = rank->stages[other / PP_BOUND_KINDS];
			if (track->freed[other] >= k || gives(sweep, stage, other % PP_BOUND_KINDS) == 0)
				continue;
			int64_t end = sweep->times.end[pp_bound_at(state, stage, other % PP_BOUND_KINDS, track->freed[other])];
			if (end < first) {
				first = end;
				best = other;
			}
		}
		if (best == UINT32_MAX)
			break;
		track->freed[best]++;
		track->since = later(track->since, first);
		track->given = pp_plus(track->given, gives(sweep, rank->stages[best / PP_BOUND_KINDS], best % PP_BOUND_KINDS));
	}
	return track->since;
}

static int64_t get(const struct sweep *sweep, const int64_t *times, uint32_t s, enum pp_bound_kind kind, uint32_t k)
{
	return times[pp_bound_at(sweep->state, s, kind, k)];
}

static void set(const struct sweep *sweep, uint32_t s, enum pp_bound_kind kind, uint32_t k, int64_t begin, int64_t end)
{
	size_t at = pp_bound_at(sweep->state, s, kind, k);
	sweep->times.begin[at] = begin;
	sweep->times.end[at] = end;
}

static int64_t plus(int64_t time, int64_t more)
{
	return pp_bound_known(time) ? time + more : PP_BOUND_NONE;
}

/* The end of a hop from what is there at `end`; from the end, its start. */
static int64_t hop_over(struct sweep *sweep, uint32_t s, unsigned way, int64_t end)
{
	const struct pp_bound_stage *stage = &sweep->state->stage[s];
	int64_t *hopped = &sweep->hopped[2 * (size_t)s + way], hop = way ? stage->backward_hop : stage->forward_hop;
	if (sweep->state->channel && sweep->state->channel[2 * (size_t)s + way] != PP_NO_CHANNEL)
		end = later(end, *hopped);
	return *hopped = plus(end, hop);
}

static void sweep_heads(struct sweep *sweep, uint32_t k)
{
	const struct pp_bound_state *state = sweep->state;
	for (uint32_t s = 0; s < state->stages; s++) {
		int64_t begin = s == sweep->origin ? 0 : PP_BOUND_NONE;
		if (s > 0)
			begin = later(begin, hop_over(sweep, s - 1, 0, get(sweep, sweep->times.end, s - 1, PP_BOUND_F, k)));
		begin = later(begin, after_work(sweep, s, PP_BOUND_F, k));
		begin = later(begin, after_room(sweep, s, PP_BOUND_F, k));
		set(sweep, s, PP_BOUND_F, k, begin, plus(begin, state->stage[s].ticks[PP_BOUND_F]));
	}
	for (uint32_t s = state->stages; s-- > 0;) {
		const struct pp_bound_stage *stage = &state->stage[s];
		int64_t there = PP_BOUND_NONE, begin = get(sweep, sweep->times.end, s, PP_BOUND_F, k);
		if (s + 1 < state->stages)
			there = hop_over(sweep, s + 1, 1, get(sweep, sweep->times.end, s + 1, PP_BOUND_I, k));
		begin = later(later(begin, plus(there, -stage->recompute)), after_work(sweep, s, PP_BOUND_I, k));
		int64_t end = plus(later(plus(begin, stage->recompute), there), stage->ticks[PP_BOUND_I]);
		set(sweep, s, PP_BOUND_I, k, begin, end);
		begin = later(end, after_work(sweep, s, PP_BOUND_W, k));
		set(sweep, s, PP_BOUND_W, k, begin, plus(begin, stage->ticks[PP_BOUND_W]));
	}
}

static void sweep_tails(struct sweep *sweep, uint32_t k)
{
	const struct pp_bound_state *state = sweep->state;
	for (uint32_t s = 0; s < state->stages; s++) {
		const struct pp_bound_stage *stage = &state->stage[s];
		int64_t base = sweep->target == UINT32_MAX || sweep->target == stage->rank ? 0 : PP_BOUND_NONE;
		int64_t begin = later(base, after_work(sweep, s, PP_BOUND_W, k));
		int64_t end = plus(begin, stage->ticks[PP_BOUND_W]);
		set(sweep, s, PP_BOUND_W, k, begin, end);
		begin =
		    later(later(base, end), later(after_work(sweep, s, PP_BOUND_I, k), after_room(sweep, s, PP_BOUND_I, k)));
		if (s > 0) /* the gradient that left here arrives behind a recompute that may have been done ahead */
			begin = later(begin, hop_over(sweep, s, 1,
			                              plus(get(sweep, sweep->times.begin, s - 1, PP_BOUND_I, k),
			                                   state->stage[s - 1].ticks[PP_BOUND_I])));
		set(sweep, s, PP_BOUND_I, k, begin, plus(begin, stage->recompute + stage->ticks[PP_BOUND_I]));
	}
	for (uint32_t s = state->stages; s-- > 0;) {
		const struct pp_bound_stage *stage = &state->stage[s];
		int64_t base = sweep->target == UINT32_MAX || sweep->target == stage->rank ? 0 : PP_BOUND_NONE;
		int64_t begin = later(base, get(sweep, sweep->times.end, s, PP_BOUND_I, k));
		if (s + 1 < state->stages)
			begin = later(begin, hop_over(sweep, s, 0, get(sweep, sweep->times.end, s + 1, PP_BOUND_F, k)));
		begin = later(begin, after_work(sweep, s, PP_BOUND_F, k));
		set(sweep, s, PP_BOUND_F, k, begin, plus(begin, stage->ticks[PP_BOUND_F]));
	}
}

static void begin_pools(struct sweep *sweep, struct pp_arena *arena, struct pp_arena *scratch)
{
	const struct pp_bound_state *state = sweep->state;
	sweep->times.pool = PP_NEW_ARRAY(arena, int64_t *, state->ranks);
	sweep->pool = PP_NEW_ARRAY(scratch, struct pool_state, state->ranks);
	for (uint32_t r = 0; r < state->ranks; r++) {
		const struct pp_bound_rank *rank = &state->rank[r];
		if (!rank->pool)
			continue;
		sweep->times.pool[r] = PP_NEW_ARRAY(arena, int64_t, (size_t)rank->count * state->window);
		sweep->pool[r].next = PP_NEW_ARRAY(scratch, uint32_t, rank->count);
		sweep->pool[r].length = pp_bound_pool_length(state, rank);
	}
}

static struct pp_bound_times run(struct sweep *sweep, struct pp_arena *arena)
{
	const struct pp_bound_state *state = sweep->state;
	size_t tracks = (size_t)state->stages * PP_BOUND_KINDS, actions = tracks * state->window;
	sweep->times.begin = PP_NEW_ARRAY(arena, int64_t, actions);
	sweep->times.end = PP_NEW_ARRAY(arena, int64_t, actions);
	struct pp_arena *scratch = pp_arena_scratch(arena);
	sweep->track = PP_NEW_ARRAY(scratch, struct track_state, tracks);
	sweep->hopped = PP_NEW_ARRAY(scratch, int64_t, 2 * (size_t)state->stages);
	for (size_t i = 0; i < 2 * (size_t)state->stages; i++)
		sweep->hopped[i] = PP_BOUND_NONE;
	for (size_t i = 0; i < tracks; i++) {
		const struct pp_bound_rank *rank = &state->rank[state->stage[i / PP_BOUND_KINDS].rank];
		struct track_state *track = &sweep->track[i];
		track->since = track->done.latest = track->pool.latest = PP_BOUND_NONE;
		if (!rank->related)
			continue;
		track->taken = PP_NEW_ARRAY(scratch, uint32_t, rank->count * PP_BOUND_KINDS);
		track->freed = PP_NEW_ARRAY(scratch, uint32_t, rank->count * PP_BOUND_KINDS);
	}
	if (!sweep->backwards)
		begin_pools(sweep, arena, scratch);
	for (uint32_t k = 0; k < state->window; k++) {
		if (sweep->backwards)
			sweep_tails(sweep, k);
		else
			sweep_heads(sweep, k);
	}
	for (uint32_t r = 0; !sweep->backwards && r < state->ranks; r++)
		if (state->rank[r].pool)
			fill_pool(sweep, r, state->rank[r].count * state->window, state->window);
	pp_arena_destroy(scratch);
	return sweep->times;
}

struct pp_bound_times pp_bound_heads(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t origin)
{
	struct sweep sweep = {.state = state, .origin = origin};
	struct pp_bound_times times = run(&sweep, arena);
	if (state->window < state->microbatches)
		times.stride = times.begin[pp_bound_at(state, origin, PP_BOUND_F, state->window - 1)];
	return times;
}

struct pp_bound_times pp_bound_tails(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t target)
{
	struct sweep sweep = {.state = state, .target = target, .backwards = true};
	return run(&sweep, arena);
}
