/* Running an order with overtaking: a rank that would wait for the head of its row takes something behind it instead,
 * if that is ready, its memory doesn't stand in the way of anything that it overtakes, and the gap is long enough. The
 * published way of shortening warm-up and cool-down of a repeated pattern ("move left to the first free slot that keeps
 * data flow and does not raise the peak"), with real costs.
 *
 * requires: an order of every operation. ensures: one within the room, or false where it gets stuck. O(n window). */
#include "wave.h"
#include "wave_wake.h"

#include <string.h>

struct pp_wave_follow {
	const struct pp_wave *wave;
	uint64_t *ready;       /* [operations]: when the input is there if its channel is free; PP_WAVE_NEVER: not known */
	uint64_t *busy;        /* [2 * stages]: until when the hops of a channel take */
	uint32_t *next;        /* [operations]: by index of the row, what comes next; the end of a row: PP_WAVE_NONE */
	uint32_t *head, *done; /* [ranks]: index of the first that is left; operations written */
	uint64_t *free, *used; /* [ranks] */
	uint32_t *begun;       /* [kinds][stages] */
	uint32_t *forwards;    /* [ranks]: F to come */
	struct pp_wave_wake wake;
};

struct pp_wave_follow *pp_wave_follow_new(struct pp_arena *arena, const struct pp_wave *wave)
{
	size_t count = (size_t)wave->stages * PP_WAVE_KINDS * wave->microbatches;
	struct pp_wave_follow *follow = PP_NEW(arena, struct pp_wave_follow);
	*follow = (struct pp_wave_follow){.wave = wave,
	                                  .ready = PP_NEW_ARRAY(arena, uint64_t, count),
	                                  .next = PP_NEW_ARRAY(arena, uint32_t, count),
	                                  .head = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .done = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .forwards = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .free = PP_NEW_ARRAY(arena, uint64_t, wave->ranks),
	                                  .used = PP_NEW_ARRAY(arena, uint64_t, wave->ranks),
	                                  .busy = PP_NEW_ARRAY(arena, uint64_t, 2 * (size_t)wave->stages),
	                                  .begun = PP_NEW_ARRAY(arena, uint32_t, (size_t)PP_WAVE_KINDS * wave->stages)};
	pp_wave_wake_make(arena, &follow->wake, wave->ranks);
	return follow;
}

static void start(struct pp_wave_follow *follow)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t of_stage = PP_WAVE_KINDS * wave->microbatches;
	memset(follow->ready, 0xff, (size_t)wave->stages * of_stage * sizeof *follow->ready);
	memset(follow->ready, 0, wave->microbatches * sizeof *follow->ready);
	memset(follow->free, 0, wave->ranks * sizeof *follow->free);
	memset(follow->used, 0, wave->ranks * sizeof *follow->used);
	memset(follow->busy, 0, 2 * (size_t)wave->stages * sizeof *follow->busy);
	memset(follow->done, 0, wave->ranks * sizeof *follow->done);
	memset(follow->begun, 0, (size_t)PP_WAVE_KINDS * wave->stages * sizeof *follow->begun);
	for (uint32_t i = 0; i < wave->stages * of_stage; i++)
		follow->next[i] = i + 1;
	pp_wave_wake_clear(&follow->wake);
	for (uint32_t r = 0; r < wave->ranks; r++) {
		uint32_t first = wave->rank_first[r] * of_stage, end = wave->rank_first[r + 1] * of_stage;
		follow->forwards[r] = (end - first) / PP_WAVE_KINDS;
		follow->head[r] = first < end ? first : PP_WAVE_NONE;
		if (first < end)
			follow->next[end - 1] = PP_WAVE_NONE;
	}
	pp_wave_wake_set(&follow->wake, wave->stage[0].rank, 0);
}

/* Bytes that a forward must leave: a stash of every later stage of the rank that has nothing in flight, and what I
 * takes besides (wave_flow.c says why). */
static uint64_t kept_free(const struct pp_wave_follow *follow, uint32_t stage)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t rank = wave->stage[stage].rank;
	uint64_t bytes = wave->more[rank];
	for (uint32_t i = wave->rank_first[rank + 1]; wave->of_rank[--i] != stage;) {
		uint32_t other = wave->of_rank[i];
		bool idle = follow->begun[other] == follow->begun[PP_WAVE_W * wave->stages + other];
		bytes += idle ? wave->stage[other].held : 0;
	}
	return bytes;
}

/* How a rank looks along its row. */
struct sight {
	uint64_t level, highest; /* bytes after what it has passed, most during that */
	uint64_t soon;           /* when something it has passed becomes ready */
};

static bool may_begin(const struct pp_wave_follow *follow, uint32_t rank, uint32_t operation, const struct sight *sight)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t token = wave->token[operation], kind = wave->token_kind[token], stage = wave->token_stage[token];
	const struct pp_wave_stage *of = &wave->stage[stage];
	if (follow->begun[token] != operation - token * wave->microbatches)
		return false;
	if (kind == PP_WAVE_F)
		return follow->used[rank] + of->held + kept_free(follow, stage) <= wave->room[rank] &&
		       sight->highest + of->held <= wave->room[rank];
	return kind == PP_WAVE_W || sight->highest + of->more <= wave->room[rank];
}

static void pass(const struct pp_wave *wave, uint32_t operation, struct sight *sight)
{
	const struct pp_wave_stage *of = &wave->stage[pp_wave_stage_of(wave, operation)];
	uint32_t kind = pp_wave_kind_of(wave, operation);
	if (kind == PP_WAVE_W) {
		sight->level -= of->held - of->early + of->more;
		return;
	}
	sight->level += kind == PP_WAVE_F ? of->held : of->more;
	sight->highest = sight->level > sight->highest ? sight->level : sight->highest;
	sight->level -= kind == PP_WAVE_I ? of->early : 0;
}

static void let_know(struct pp_wave_follow *follow, uint32_t operation, uint64_t now, uint64_t time)
{
	const struct pp_wave *wave = follow->wave;
	const struct pp_wave_stage *of = &wave->stage[pp_wave_stage_of(wave, operation)];
	uint32_t rank = of->rank;
	uint64_t ahead = pp_wave_kind_of(wave, operation) == PP_WAVE_I ? of->recompute : 0;
	time = time > now + ahead ? time - ahead : now;
	follow->ready[operation] = time;
	uint64_t when = time > follow->free[rank] ? time : follow->free[rank];
	if (when < follow->wake.time[rank])
		pp_wave_wake_set(&follow->wake, rank, when);
}

/* When the input is there, behind what its channel brought; what is recomputed need not wait for it. */
static uint64_t ready_at(const struct pp_wave_follow *follow, uint32_t operation)
{
	const struct pp_wave *wave = follow->wave;
	uint64_t ready = follow->ready[operation];
	if (!wave->queued || ready == PP_WAVE_NEVER)
		return ready;
	uint32_t kind = pp_wave_kind_of(wave, operation), stage = pp_wave_stage_of(wave, operation);
	uint64_t ahead = kind == PP_WAVE_I ? wave->stage[stage].recompute : 0;
	return pp_wave_behind(wave, follow->busy, kind, stage, ready + ahead) - ahead;
}

static void take(struct pp_wave_follow *follow, uint32_t rank, uint32_t operation, struct pp_wave_order *order)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t m = wave->microbatches, token = wave->token[operation], kind = wave->token_kind[token],
	         stage = wave->token_stage[token];
	const struct pp_wave_stage *of = &wave->stage[stage];
	uint64_t now = follow->wake.time[rank], end = now + of->ticks[kind];
	if (wave->queued)
		pp_wave_use(wave, follow->busy, kind, stage,
		            ready_at(follow, operation) + (kind == PP_WAVE_I ? of->recompute : 0));
	order->operations[wave->rank_first[rank] * PP_WAVE_KINDS * m + follow->done[rank]++] = operation;
	follow->begun[token]++;
	follow->forwards[rank] -= kind == PP_WAVE_F;
	follow->used[rank] += kind == PP_WAVE_F   ? of->held
	                      : kind == PP_WAVE_I ? of->more - of->early
	                                          : of->early - of->held - of->more;
	follow->free[rank] = end;
	pp_wave_wake_set(&follow->wake, rank, follow->head[rank] == PP_WAVE_NONE ? PP_WAVE_NEVER : end);
	order->makespan = end > order->makespan ? end : order->makespan;
	if (kind == PP_WAVE_I)
		let_know(follow, operation + wave->stages * m, now, end);
	uint32_t output = pp_wave_output(wave, operation);
	if (output == PP_WAVE_NONE)
		return;
	bool turn = kind == PP_WAVE_F && stage + 1 == wave->stages;
	let_know(follow, output, now, end + (turn ? 0 : kind == PP_WAVE_F ? of->forward_hop : of->backward_hop));
}

/* Take the first of the row that is ready and may overtake those before it. False: nothing is; `soon` says when. */
static bool take_ready(struct pp_wave_follow *follow, uint32_t rank, const struct pp_wave_order *base,
                       const struct pp_wave_pace *pace, bool patient, uint64_t *soon, struct pp_wave_order *order)
{
	const struct pp_wave *wave = follow->wave;
	uint64_t now = follow->wake.time[rank];
	uint32_t of_weights = PP_WAVE_W * wave->stages * wave->microbatches;
	struct sight sight = {follow->used[rank], follow->used[rank], PP_WAVE_NEVER};
	uint32_t before = PP_WAVE_NONE, seen = 0;
	for (uint32_t i = follow->head[rank]; i != PP_WAVE_NONE && seen < pace->window; i = follow->next[i], seen++) {
		uint32_t operation = base->operations[i];
		uint64_t ready = ready_at(follow, operation);
		uint64_t ticks = wave->stage[pp_wave_stage_of(wave, operation)].ticks[pp_wave_kind_of(wave, operation)];
		/* once no forward is left, W has time until the end */
		bool yields = follow->forwards[rank] == 0 && operation >= of_weights && !patient;
		if (ready != PP_WAVE_NEVER && !yields && may_begin(follow, rank, operation, &sight)) {
			bool worth = sight.soon == PP_WAVE_NEVER || sight.soon - now >= ticks * pace->fill / 1000;
			if (ready <= now && worth) {
				*(before == PP_WAVE_NONE ? &follow->head[rank] : &follow->next[before]) = follow->next[i];
				take(follow, rank, operation, order);
				return true;
			}
			if (ready > now && ready < sight.soon)
				sight.soon = ready;
		}
		pass(wave, operation, &sight);
		before = i;
	}
	*soon = sight.soon;
	return false;
}

static void decide(struct pp_wave_follow *follow, uint32_t rank, const struct pp_wave_order *base,
                   const struct pp_wave_pace *pace, struct pp_wave_order *order)
{
	uint64_t soon;
	if (follow->forwards[rank] == 0 && take_ready(follow, rank, base, pace, false, &soon, order))
		return;
	if (!take_ready(follow, rank, base, pace, true, &soon, order))
		pp_wave_wake_set(&follow->wake, rank, soon);
}

bool pp_wave_follow_run(struct pp_wave_follow *follow, const struct pp_wave_order *base,
                        const struct pp_wave_pace *pace, struct pp_wave_order *order)
{
	const struct pp_wave *wave = follow->wave;
	start(follow);
	order->makespan = order->span = 0;
	for (uint32_t rank = follow->wake.winner[1]; follow->wake.time[rank] != PP_WAVE_NEVER;
	     rank = follow->wake.winner[1])
		decide(follow, rank, base, pace, order);
	for (uint32_t r = 0; r < wave->ranks; r++) {
		if (follow->head[r] != PP_WAVE_NONE)
			return false;
	}
	return true;
}
