/* A list scheduler for chains of stages: ranks take, in the order of time, what their rules want most of what is ready
 * and fits into their room.
 *
 * requires: a packed problem. ensures: an order within the room in which every operation occurs once, or false.
 *
 * It can't get stuck where one microbatch fits: a forward is let in only if every later stage of its rank that has
 * nothing in flight still finds room. Take a forward that waits for room. Its stage has something in flight (else there
 * would be room), of an earlier microbatch, which waits further down the chain. Follow it; at the last stage nothing
 * waits for room. */
#include "wave.h"
#include "wave_wake.h"

#include <string.h>

struct counters {
	uint32_t next[PP_WAVE_KINDS]; /* microbatch that comes next */
};

struct pp_wave_flow {
	const struct pp_wave *wave;
	const struct pp_wave_rules *rules;
	struct pp_wave_clock *clock;
	struct counters *stage;   /* [stages] */
	uint64_t *ready[2];       /* F, I: [stages][microbatches], if the channel is free; PP_WAVE_NEVER while unknown */
	uint64_t *busy;           /* [2 * stages]: until when the hops of a channel take */
	uint64_t *free, *used;    /* [ranks] */
	uint32_t *left, *written; /* [ranks]: operations to come, and done */
	struct pp_wave_wake wake; /* when ranks decide next */
};

/* What a rank sees when it decides. */
struct view {
	uint32_t kind, stage; /* of the best that is ready; kind PP_WAVE_KINDS: nothing */
	int64_t target;
	uint64_t soon;       /* when the next one becomes ready */
	int64_t soon_target; /* smallest target of those to come */
	uint64_t soon_best;  /* when that one comes */
	bool blocked;        /* something waits for room */
};

struct pp_wave_flow *pp_wave_flow_new(struct pp_arena *arena, const struct pp_wave *wave)
{
	struct pp_wave_flow *flow = PP_NEW(arena, struct pp_wave_flow);
	flow->wave = wave;
	flow->stage = PP_NEW_ARRAY(arena, struct counters, wave->stages);
	for (uint32_t kind = 0; kind < 2; kind++)
		flow->ready[kind] = PP_NEW_ARRAY(arena, uint64_t, (size_t)wave->stages * wave->microbatches);
	flow->free = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	flow->used = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	flow->busy = PP_NEW_ARRAY(arena, uint64_t, 2 * (size_t)wave->stages);
	flow->left = PP_NEW_ARRAY(arena, uint32_t, wave->ranks);
	flow->written = PP_NEW_ARRAY(arena, uint32_t, wave->ranks);
	pp_wave_wake_make(arena, &flow->wake, wave->ranks);
	return flow;
}

static void start(struct pp_wave_flow *flow, const struct pp_wave_rules *rules)
{
	const struct pp_wave *wave = flow->wave;
	size_t values = (size_t)wave->stages * wave->microbatches;
	flow->rules = rules;
	memset(flow->stage, 0, wave->stages * sizeof *flow->stage);
	for (uint32_t kind = 0; kind < 2; kind++)
		memset(flow->ready[kind], 0xff, values * sizeof *flow->ready[kind]);
	memset(flow->ready[PP_WAVE_F], 0, wave->microbatches * sizeof *flow->ready[PP_WAVE_F]);
	memset(flow->free, 0, wave->ranks * sizeof *flow->free);
	memset(flow->used, 0, wave->ranks * sizeof *flow->used);
	memset(flow->busy, 0, 2 * (size_t)wave->stages * sizeof *flow->busy);
	memset(flow->written, 0, wave->ranks * sizeof *flow->written);
	pp_wave_wake_clear(&flow->wake);
	for (uint32_t r = 0; r < wave->ranks; r++)
		flow->left[r] = (wave->rank_first[r + 1] - wave->rank_first[r]) * PP_WAVE_KINDS * wave->microbatches;
	pp_wave_wake_set(&flow->wake, wave->stage[0].rank, 0);
}

/* ---- choosing -------------------------------------------------------------------------------- */

static uint32_t in_flight(const struct pp_wave_flow *flow, uint32_t stage)
{
	return flow->stage[stage].next[PP_WAVE_F] - flow->stage[stage].next[PP_WAVE_W];
}

/* Bytes to leave for the stages of the rank behind position `behind` that have nothing in flight, and for what I takes
 * besides. */
static uint64_t kept_free(const struct pp_wave_flow *flow, uint32_t rank, uint32_t behind)
{
	const struct pp_wave *wave = flow->wave;
	uint64_t bytes = wave->more[rank];
	for (uint32_t i = behind + 1; i < wave->rank_first[rank + 1]; i++)
		bytes += in_flight(flow, wave->of_rank[i]) ? 0 : wave->stage[wave->of_rank[i]].held;
	return bytes;
}

static bool fits(const struct pp_wave_flow *flow, uint32_t rank, uint32_t kind, uint32_t position)
{
	const struct pp_wave *wave = flow->wave;
	uint32_t stage = wave->of_rank[position];
	uint64_t room = wave->room[rank];
	if (kind == PP_WAVE_I)
		return flow->used[rank] + wave->stage[stage].more <= room;
	if (flow->rules->quota && in_flight(flow, stage) >= flow->rules->quota[stage])
		return false;
	return flow->used[rank] + wave->stage[stage].held + kept_free(flow, rank, position) <= room;
}

/* `ready` where the input must wait for its channel; what is recomputed need not wait for it. */
static uint64_t ready_behind(const struct pp_wave_flow *flow, uint32_t kind, uint32_t stage, uint64_t ready)
{
	uint64_t ahead = kind == PP_WAVE_I ? flow->wave->stage[stage].recompute : 0;
	return pp_wave_behind(flow->wave, flow->busy, kind, stage, ready + ahead) - ahead;
}

static void consider(const struct pp_wave_flow *flow, uint32_t rank, uint64_t now, uint32_t kind, uint32_t position,
                     struct view *view)
{
	const struct pp_wave *wave = flow->wave;
	uint32_t stage = wave->of_rank[position], mb = flow->stage[stage].next[kind];
	if (mb == wave->microbatches)
		return;
	uint64_t ready = flow->ready[kind][(size_t)stage * wave->microbatches + mb];
	if (ready == PP_WAVE_NEVER)
		return;
	if (wave->queued)
		ready = ready_behind(flow, kind, stage, ready);
	if (!fits(flow, rank, kind, position)) {
		view->blocked |= ready <= now;
		return;
	}
	int64_t target = flow->rules->target[kind][stage] + flow->rules->period * mb;
	if (ready > now) {
		view->soon = ready < view->soon ? ready : view->soon;
		if (target < view->soon_target) {
			view->soon_target = target;
			view->soon_best = ready;
		}
	} else if (view->kind == PP_WAVE_KINDS || target < view->target) {
		view->kind = kind;
		view->stage = stage;
		view->target = target;
	}
}

static struct view look(const struct pp_wave_flow *flow, uint32_t rank, uint64_t now)
{
	const struct pp_wave *wave = flow->wave;
	struct view view = {
	    .kind = PP_WAVE_KINDS, .soon = PP_WAVE_NEVER, .soon_target = INT64_MAX, .soon_best = PP_WAVE_NEVER};
	for (uint32_t i = wave->rank_first[rank]; i < wave->rank_first[rank + 1]; i++) {
		consider(flow, rank, now, PP_WAVE_I, i, &view);
		consider(flow, rank, now, PP_WAVE_F, i, &view);
	}
	return view;
}

/* The stage of the oldest pending weight gradient, by the target of its I; the number of stages if there is none. */
static uint32_t oldest_weight(const struct pp_wave_flow *flow, uint32_t rank, int64_t *target)
{
	const struct pp_wave *wave = flow->wave;
	uint32_t oldest = wave->stages;
	for (uint32_t i = wave->rank_first[rank]; i < wave->rank_first[rank + 1]; i++) {
		uint32_t stage = wave->of_rank[i];
		const struct counters *counters = &flow->stage[stage];
		if (counters->next[PP_WAVE_W] == counters->next[PP_WAVE_I])
			continue;
		int64_t at = flow->rules->target[PP_WAVE_I][stage] + flow->rules->period * counters->next[PP_WAVE_W];
		if (oldest == wave->stages || at < *target) {
			oldest = stage;
			*target = at;
		}
	}
	return oldest;
}

/* ---- doing ------------------------------------------------------------------------------------ */

/* The input of an operation comes at `time`; what it recomputes may begin before that, but not before now. */
static void arrive(struct pp_wave_flow *flow, uint32_t kind, uint32_t stage, uint32_t mb, uint64_t now, uint64_t time)
{
	const struct pp_wave *wave = flow->wave;
	uint32_t rank = wave->stage[stage].rank;
	uint64_t ahead = kind == PP_WAVE_I ? wave->stage[stage].recompute : 0;
	time = time > now + ahead ? time - ahead : now;
	flow->ready[kind][(size_t)stage * wave->microbatches + mb] = time;
	uint64_t when = time > flow->free[rank] ? time : flow->free[rank];
	if (when < pp_wave_wake_time(&flow->wake, rank))
		pp_wave_wake_set(&flow->wake, rank, when);
}

static void hand_on(struct pp_wave_flow *flow, uint32_t kind, uint32_t stage, uint32_t mb, uint64_t now, uint64_t end)
{
	const struct pp_wave *wave = flow->wave;
	const struct pp_wave_stage *of = &wave->stage[stage];
	if (kind == PP_WAVE_F && stage + 1 < wave->stages)
		arrive(flow, PP_WAVE_F, stage + 1, mb, now, end + of->forward_hop);
	else if (kind == PP_WAVE_F)
		arrive(flow, PP_WAVE_I, stage, mb, now, end);
	else if (kind == PP_WAVE_I && stage > 0)
		arrive(flow, PP_WAVE_I, stage - 1, mb, now, end + of->backward_hop);
}

/* False: the clock's limit is reached. */
static bool take(struct pp_wave_flow *flow, uint32_t kind, uint32_t stage, uint64_t now, struct pp_wave_order *order)
{
	const struct pp_wave *wave = flow->wave;
	const struct pp_wave_stage *of = &wave->stage[stage];
	uint32_t rank = of->rank, mb = flow->stage[stage].next[kind]++;
	if (wave->queued && kind != PP_WAVE_W) {
		uint64_t ready = flow->ready[kind][(size_t)stage * wave->microbatches + mb];
		uint64_t ahead = kind == PP_WAVE_I ? of->recompute : 0;
		pp_wave_use(wave, flow->busy, kind, stage, ready_behind(flow, kind, stage, ready) + ahead);
	}
	uint64_t end = now + of->ticks[kind];
	uint32_t operation = (kind * wave->stages + stage) * wave->microbatches + mb;
	order->operations[(size_t)wave->rank_first[rank] * PP_WAVE_KINDS * wave->microbatches + flow->written[rank]++] =
	    operation;
	if (kind == PP_WAVE_F)
		flow->used[rank] += of->held;
	else if (kind == PP_WAVE_I)
		flow->used[rank] += of->more - of->early;
	else
		flow->used[rank] -= of->held - of->early + of->more;
	flow->free[rank] = end;
	pp_wave_wake_set(&flow->wake, rank, --flow->left[rank] ? end : PP_WAVE_NEVER);
	hand_on(flow, kind, stage, mb, now, end);
	return pp_wave_clock_add(flow->clock, operation);
}

/* Take something, or wait. False: the clock's limit is reached. */
static bool decide(struct pp_wave_flow *flow, uint32_t rank, struct pp_wave_order *order)
{
	const struct pp_wave *wave = flow->wave;
	const struct pp_wave_rules *rules = flow->rules;
	uint64_t now = pp_wave_wake_time(&flow->wake, rank);
	struct view view = look(flow, rank, now);
	int64_t target = 0;
	uint32_t weight = oldest_weight(flow, rank, &target);
	bool pending = weight < wave->stages;
	if (view.kind < PP_WAVE_KINDS && rules->patience != INT64_MAX && view.soon_best != PP_WAVE_NEVER &&
	    view.soon_target + rules->patience < view.target &&
	    view.soon_best - now < wave->stage[view.stage].ticks[view.kind])
		view.kind = PP_WAVE_KINDS;
	if (view.kind < PP_WAVE_KINDS) {
		bool late = pending && rules->weight_lag != INT64_MAX && target + rules->weight_lag < view.target;
		return take(flow, late ? PP_WAVE_W : view.kind, late ? weight : view.stage, now, order);
	}
	uint64_t gap = view.soon == PP_WAVE_NEVER ? PP_WAVE_NEVER : view.soon - now;
	if (pending &&
	    (view.blocked || gap == PP_WAVE_NEVER || gap >= wave->stage[weight].ticks[PP_WAVE_W] * rules->fill / 1000))
		return take(flow, PP_WAVE_W, weight, now, order);
	pp_wave_wake_set(&flow->wake, rank, view.soon);
	return true;
}

bool pp_wave_flow_run(struct pp_wave_flow *flow, const struct pp_wave_rules *rules, struct pp_wave_clock *clock,
                      struct pp_wave_order *order)
{
	start(flow, rules);
	flow->clock = clock;
	for (uint32_t rank; pp_wave_wake_first(&flow->wake, &rank);)
		if (!decide(flow, rank, order))
			return false;
	for (uint32_t r = 0; r < flow->wave->ranks; r++) {
		if (flow->left[r])
			return false;
	}
	pp_wave_clock_sum(clock, order);
	return true;
}
