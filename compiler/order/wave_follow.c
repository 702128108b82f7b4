/* Running an order with overtaking: a rank that would wait for the head of its row takes something behind it instead,
 * if that is ready, its memory doesn't stand in the way of anything that it overtakes, and the gap is long enough. The
 * published way of shortening warm-up and cool-down of a repeated pattern ("move left to the first free slot that keeps
 * data flow and does not raise the peak"), with real costs.
 *
 * requires: an order of every operation. ensures: one within the room, or false where it gets stuck. O(n window). */
#include "wave.h"
#include "wave_wake.h"

#include <string.h>

/* Bytes that an operation takes when it begins, and gives back when it ends. */
struct step {
	uint64_t takes, gives;
};

struct pp_wave_follow {
	const struct pp_wave *wave;
	const struct step *step; /* [kinds][stages] */
	struct pp_wave_clock *clock;
	uint64_t *ready;       /* [operations]: when the input is there if its channel is free; PP_WAVE_NEVER: not known */
	uint64_t *busy;        /* [2 * stages]: until when the hops of a channel take */
	uint32_t *next;        /* [operations]: by index of the row, what comes next; the end of a row: PP_WAVE_NONE */
	uint32_t *head, *done; /* [ranks]: index of the first that is left; operations written */
	uint64_t *free, *used; /* [ranks] */
	uint32_t *begun;       /* [kinds][stages] */
	uint32_t *forwards;    /* [ranks]: F to come */
	uint32_t *known;       /* [ranks]: kinds and stages whose next operation has its input, or will have */
	struct pp_wave_wake wake;
};

struct pp_wave_follow *pp_wave_follow_new(struct pp_arena *arena, const struct pp_wave *wave)
{
	size_t tokens = (size_t)wave->stages * PP_WAVE_KINDS, count = tokens * wave->microbatches;
	struct step *step = PP_NEW_ARRAY(arena, struct step, tokens);
	for (uint32_t s = 0; s < wave->stages; s++) {
		const struct pp_wave_stage *stage = &wave->stage[s];
		step[PP_WAVE_F * wave->stages + s] = (struct step){stage->held, 0};
		step[PP_WAVE_I * wave->stages + s] = (struct step){stage->more, stage->early};
		step[PP_WAVE_W * wave->stages + s] = (struct step){0, stage->held - stage->early + stage->more};
	}
	struct pp_wave_follow *follow = PP_NEW(arena, struct pp_wave_follow);
	*follow = (struct pp_wave_follow){.wave = wave,
	                                  .step = step,
	                                  .ready = PP_NEW_ARRAY(arena, uint64_t, count),
	                                  .next = PP_NEW_ARRAY(arena, uint32_t, count),
	                                  .head = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .done = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .forwards = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .free = PP_NEW_ARRAY(arena, uint64_t, wave->ranks),
	                                  .used = PP_NEW_ARRAY(arena, uint64_t, wave->ranks),
	                                  .busy = PP_NEW_ARRAY(arena, uint64_t, 2 * (size_t)wave->stages),
	                                  .known = PP_NEW_ARRAY(arena, uint32_t, wave->ranks),
	                                  .begun = PP_NEW_ARRAY(arena, uint32_t, tokens)};
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
	memset(follow->known, 0, wave->ranks * sizeof *follow->known);
	follow->known[wave->stage[0].rank] = 1;
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

/* Whether there is room for the next operation of a kind and stage ahead of what has been passed. */
static bool may_begin(const struct pp_wave_follow *follow, uint32_t rank, uint32_t token, const struct sight *sight)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t kind = wave->token_kind[token], stage = wave->token_stage[token];
	uint64_t takes = follow->step[token].takes;
	if (kind == PP_WAVE_W)
		return true;
	return sight->highest + takes <= wave->room[rank] &&
	       (kind == PP_WAVE_I || follow->used[rank] + takes + kept_free(follow, stage) <= wave->room[rank]);
}

static void pass(const struct step *step, struct sight *sight)
{
	sight->level += step->takes;
	sight->highest = sight->level > sight->highest ? sight->level : sight->highest;
	sight->level -= step->gives;
}

static void let_know(struct pp_wave_follow *follow, uint32_t operation, uint64_t now, uint64_t time)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t token = wave->token[operation];
	const struct pp_wave_stage *of = &wave->stage[wave->token_stage[token]];
	uint32_t rank = of->rank;
	uint64_t ahead = wave->token_kind[token] == PP_WAVE_I ? of->recompute : 0;
	time = time > now + ahead ? time - ahead : now;
	follow->ready[operation] = time;
	follow->known[rank] += operation == token * wave->microbatches + follow->begun[token];
	uint64_t when = time > follow->free[rank] ? time : follow->free[rank];
	if (when < pp_wave_wake_time(&follow->wake, rank))
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

/* False: the clock's limit is reached. */
static bool take(struct pp_wave_follow *follow, uint32_t rank, uint32_t operation, struct pp_wave_order *order)
{
	const struct pp_wave *wave = follow->wave;
	uint32_t m = wave->microbatches, token = wave->token[operation], kind = wave->token_kind[token],
	         stage = wave->token_stage[token];
	const struct pp_wave_stage *of = &wave->stage[stage];
	uint64_t now = pp_wave_wake_time(&follow->wake, rank), end = now + of->ticks[kind];
	if (wave->queued)
		pp_wave_use(wave, follow->busy, kind, stage,
		            ready_at(follow, operation) + (kind == PP_WAVE_I ? of->recompute : 0));
	order->operations[wave->rank_first[rank] * PP_WAVE_KINDS * m + follow->done[rank]++] = operation;
	bool more = ++follow->begun[token] < m;
	follow->known[rank] -= !more || follow->ready[operation + 1] == PP_WAVE_NEVER;
	follow->forwards[rank] -= kind == PP_WAVE_F;
	follow->used[rank] += follow->step[token].takes - follow->step[token].gives;
	follow->free[rank] = end;
	pp_wave_wake_set(&follow->wake, rank, follow->head[rank] == PP_WAVE_NONE ? PP_WAVE_NEVER : end);
	if (kind == PP_WAVE_I)
		let_know(follow, operation + wave->stages * m, now, end);
	uint32_t output = pp_wave_output(wave, operation);
	bool turn = kind == PP_WAVE_F && stage + 1 == wave->stages;
	if (output != PP_WAVE_NONE)
		let_know(follow, output, now, end + (turn ? 0 : kind == PP_WAVE_F ? of->forward_hop : of->backward_hop));
	return pp_wave_clock_add(follow->clock, operation);
}

/* The first of the row that is ready and may overtake those before it; it leaves the row. PP_WAVE_NONE: nothing is;
 * `soon` says when. */
static uint32_t next_ready(struct pp_wave_follow *follow, uint32_t rank, const struct pp_wave_order *base,
                           const struct pp_wave_pace *pace, bool patient, uint64_t *soon)
{
	const struct pp_wave *wave = follow->wave;
	uint64_t now = pp_wave_wake_time(&follow->wake, rank);
	uint32_t of_weights = PP_WAVE_W * wave->stages * wave->microbatches;
	struct sight sight = {follow->used[rank], follow->used[rank], PP_WAVE_NEVER};
	uint32_t before = PP_WAVE_NONE, seen = 0, known = follow->known[rank];
	for (uint32_t i = follow->head[rank]; known && i != PP_WAVE_NONE && seen < pace->window;
	     before = i, i = follow->next[i], seen++) {
		uint32_t operation = base->operations[i], token = wave->token[operation];
		bool next = operation == token * wave->microbatches + follow->begun[token];
		uint64_t ready = next ? ready_at(follow, operation) : PP_WAVE_NEVER;
		known -= ready != PP_WAVE_NEVER;
		/* once no forward is left, W has time until the end */
		bool yields = follow->forwards[rank] == 0 && operation >= of_weights && !patient;
		if (ready != PP_WAVE_NEVER && !yields && may_begin(follow, rank, token, &sight)) {
			uint64_t ticks = wave->stage[wave->token_stage[token]].ticks[wave->token_kind[token]];
			bool worth = sight.soon == PP_WAVE_NEVER || sight.soon - now >= ticks * pace->fill / 1000;
			if (ready <= now && worth) {
				*(before == PP_WAVE_NONE ? &follow->head[rank] : &follow->next[before]) = follow->next[i];
				return operation;
			}
			if (ready > now && ready < sight.soon)
				sight.soon = ready;
		}
		pass(&follow->step[token], &sight);
	}
	*soon = sight.soon;
	return PP_WAVE_NONE;
}

/* Take something, or wait. False: the clock's limit is reached. */
static bool decide(struct pp_wave_follow *follow, uint32_t rank, const struct pp_wave_order *base,
                   const struct pp_wave_pace *pace, struct pp_wave_order *order)
{
	uint64_t soon = PP_WAVE_NEVER;
	uint32_t operation = PP_WAVE_NONE;
	if (follow->forwards[rank] == 0)
		operation = next_ready(follow, rank, base, pace, false, &soon);
	if (operation == PP_WAVE_NONE)
		operation = next_ready(follow, rank, base, pace, true, &soon);
	if (operation != PP_WAVE_NONE)
		return take(follow, rank, operation, order);
	pp_wave_wake_set(&follow->wake, rank, soon);
	return true;
}

bool pp_wave_follow_run(struct pp_wave_follow *follow, const struct pp_wave_order *base,
                        const struct pp_wave_pace *pace, struct pp_wave_clock *clock, struct pp_wave_order *order)
{
	const struct pp_wave *wave = follow->wave;
	start(follow);
	follow->clock = clock;
	for (uint32_t rank; pp_wave_wake_first(&follow->wake, &rank);)
		if (!decide(follow, rank, base, pace, order))
			return false;
	for (uint32_t r = 0; r < wave->ranks; r++) {
		if (follow->head[r] != PP_WAVE_NONE)
			return false;
	}
	pp_wave_clock_sum(clock, order);
	return true;
}
