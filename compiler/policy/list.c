/* The event-driven list scheduler. A heap holds when ranks may have something to do: when an action of theirs ends,
 * and when something arrives. */
#include "list.h"

#include "compiler/rows.h"
#include "ir/capped.h"

#include <string.h>

/* What has come in for a stage, in the order of microbatches. */
struct arrivals {
	uint64_t *forward, *backward; /* [microbatches]: when it may be used, if its channel is free */
	uint32_t forwards, backwards; /* how many are on their way or there */
};

struct event {
	uint64_t time;
	uint32_t rank;
};

struct pp_list {
	struct pp_arena *arena;
	const struct pp_order_problem *problem;
	struct arrivals *stage;     /* [stages] */
	struct pp_list_rank *ranks; /* [ranks] */
	uint64_t *free_at;          /* [ranks] */
	const uint32_t *channel;    /* pp_order_queues */
	uint64_t *busy;             /* [2 * stages]: until when the hops of a channel take */
	uint32_t **split;    /* [stages][microbatches]: microbatches whose I was taken, in turn; NULL until one was */
	struct pp_row *rows; /* [ranks] */
	struct pp_list_candidate *ready;
	struct event *heap;
	size_t count, capacity;
	uint64_t now, taken;
};

/* Chunks are looked through at every decision. */
#define MOST_LOOKS (UINT64_C(1) << 31)

bool pp_list_possible(const struct pp_order_problem *problem)
{
	uint64_t actions = pp_times(pp_times(3, problem->stages), problem->microbatches);
	uint64_t chunks = problem->ranks ? problem->stages / problem->ranks + 1 : 1;
	return actions <= PP_ROWS_MOST_ACTIONS && pp_times(actions, chunks) <= MOST_LOOKS;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void list_chunks(struct pp_list *list)
{
	const struct pp_order_problem *problem = list->problem;
	uint32_t most = 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		list->ranks[problem->stage[s].rank].chunks++;
	uint32_t **chunks = PP_NEW_ARRAY(list->arena, uint32_t *, problem->ranks);
	for (uint32_t r = 0; r < problem->ranks; r++) {
		struct pp_list_rank *rank = &list->ranks[r];
		rank->rank = r;
		chunks[r] = PP_NEW_ARRAY(list->arena, uint32_t, rank->chunks);
		rank->stage = chunks[r];
		rank->chunk = pp_arena_alloc(list->arena, rank->chunks, sizeof *rank->chunk);
		list->rows[r].actions =
		    PP_NEW_ARRAY(list->arena, struct pp_action, 3 * (size_t)rank->chunks * problem->microbatches);
		if (rank->chunks > most)
			most = rank->chunks;
	}
	uint32_t *at = PP_NEW_ARRAY(list->arena, uint32_t, problem->ranks);
	for (uint32_t s = 0; s < problem->stages; s++)
		chunks[problem->stage[s].rank][at[problem->stage[s].rank]++] = s;
	list->ready = PP_NEW_ARRAY(list->arena, struct pp_list_candidate, (size_t)PP_ACTION_KINDS * most);
}

struct pp_list *pp_list_create(struct pp_arena *arena, const struct pp_order_problem *problem)
{
	struct pp_list *list = PP_NEW(arena, struct pp_list);
	*list = (struct pp_list){
	    .arena = arena,
	    .problem = problem,
	    .stage = PP_NEW_ARRAY(arena, struct arrivals, problem->stages),
	    .ranks = PP_NEW_ARRAY(arena, struct pp_list_rank, problem->ranks),
	    .free_at = PP_NEW_ARRAY(arena, uint64_t, problem->ranks),
	    .split = PP_NEW_ARRAY(arena, uint32_t *, problem->stages),
	    .rows = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks),
	};
	list->channel = pp_order_queues(arena, problem);
	if (list->channel)
		list->busy = PP_NEW_ARRAY(arena, uint64_t, pp_times(problem->stages, 2));
	for (uint32_t s = 0; s < problem->stages; s++) {
		list->stage[s].forward = PP_NEW_ARRAY(arena, uint64_t, problem->microbatches);
		list->stage[s].backward = PP_NEW_ARRAY(arena, uint64_t, problem->microbatches);
	}
	list_chunks(list);
	return list;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool earlier(struct event a, struct event b)
{
	return a.time != b.time ? a.time < b.time : a.rank < b.rank;
}

static void wake(struct pp_list *list, uint64_t time, uint32_t rank)
{
	PP_PUSH(list->arena, &list->heap, &list->count, &list->capacity, struct event);
	struct event event = {time, rank};
	size_t at = list->count - 1;
	for (; at > 0 && earlier(event, list->heap[(at - 1) / 2]); at = (at - 1) / 2)
		list->heap[at] = list->heap[(at - 1) / 2];
	list->heap[at] = event;
}

static struct event next_event(struct pp_list *list)
{
	struct event first = list->heap[0], last = list->heap[--list->count];
	size_t at = 0;
	for (size_t child = 1; child < list->count; child = 2 * at + 1) {
		if (child + 1 < list->count && earlier(list->heap[child + 1], list->heap[child]))
			child++;
		if (!earlier(list->heap[child], last))
			break;
		list->heap[at] = list->heap[child];
		at = child;
	}
	list->heap[at] = last;
	return first;
}

/* ---- what is ready --------------------------------------------------------------------------- */

static uint64_t peak_of(const struct pp_list_rank *rank, const struct pp_order_stage *stage, enum pp_action_kind kind)
{
	const uint64_t more[PP_ACTION_KINDS] = {
	    [PP_F] = stage->held, [PP_B] = stage->more_fused, [PP_I] = stage->more_split, [PP_W] = 0};
	return pp_plus(rank->bytes, more[kind]);
}

/* The channel that brings the input of an action to a stage, and its hop. */
static uint32_t channel_of(const struct pp_list *list, uint32_t s, bool backward, uint64_t *hop)
{
	const struct pp_order_problem *problem = list->problem;
	if (!list->channel || (backward ? s + 1 == problem->stages : s == 0))
		return PP_NO_CHANNEL;
	uint32_t from = backward ? s + 1 : s - 1;
	*hop = backward ? problem->stage[from].backward_hop : problem->stage[from].forward_hop;
	return list->channel[2 * (size_t)from + backward];
}

/* When something may be used that came in for a stage, if it is the next that its channel brings. */
static uint64_t there_at(const struct pp_list *list, uint32_t s, bool backward, uint32_t mb)
{
	const struct arrivals *in = &list->stage[s];
	uint64_t hop, there = backward ? in->backward[mb] : in->forward[mb];
	uint32_t channel = channel_of(list, s, backward, &hop);
	if (channel == PP_NO_CHANNEL)
		return there;
	uint64_t behind = pp_plus(list->busy[channel], hop);
	return behind > there ? behind : there;
}

/* Is this kind of a chunk ready now, and which microbatch? */
static bool is_ready(const struct pp_list *list, const struct pp_list_rank *rank, uint32_t chunk,
                     enum pp_action_kind kind, uint32_t *mb)
{
	uint32_t s = rank->stage[chunk];
	const struct arrivals *in = &list->stage[s];
	const uint32_t *done = rank->chunk[chunk];
	switch (kind) {
	case PP_F:
		*mb = done[PP_F];
		return *mb < in->forwards && there_at(list, s, false, *mb) <= list->now;
	case PP_B:
	case PP_I:
		*mb = done[PP_B] + done[PP_I];
		return *mb < in->backwards && there_at(list, s, true, *mb) <= list->now;
	case PP_W:
		*mb = done[PP_W] < done[PP_I] ? list->split[s][done[PP_W]] : 0;
		return done[PP_W] < done[PP_I];
	case PP_ACTION_KINDS:
		break;
	}
	return false;
}

uint32_t pp_list_ready(struct pp_list *list, uint32_t r, const struct pp_list_candidate **ready)
{
	const struct pp_list_rank *rank = &list->ranks[r];
	uint32_t count = 0;
	for (uint32_t kind = 0; kind < PP_ACTION_KINDS; kind++)
		for (uint32_t chunk = 0; chunk < rank->chunks; chunk++) {
			struct pp_list_candidate *at = &list->ready[count];
			if (!is_ready(list, rank, chunk, (enum pp_action_kind)kind, &at->mb))
				continue;
			at->chunk = chunk;
			at->kind = (uint8_t)kind;
			at->peak = peak_of(rank, &list->problem->stage[rank->stage[chunk]], (enum pp_action_kind)kind);
			at->over = at->peak > list->problem->room[r] ? at->peak - list->problem->room[r] : 0;
			count++;
		}
	*ready = list->ready;
	return count;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static uint64_t duration_of(const struct pp_order_stage *stage, enum pp_action_kind kind)
{
	bool again = kind == PP_B || kind == PP_I;
	return again ? pp_plus(stage->ticks[kind], stage->recompute) : stage->ticks[kind];
}

/* The bytes held once it has ended. What was taken is there to be given back; a sum beyond counting stays so. */
static void account(struct pp_list_rank *rank, const struct pp_order_stage *stage, enum pp_action_kind kind)
{
	const uint64_t more[PP_ACTION_KINDS] = {[PP_F] = stage->held, [PP_I] = stage->more_split};
	const uint64_t less[PP_ACTION_KINDS] = {
	    [PP_B] = stage->held, [PP_I] = stage->early, [PP_W] = pp_plus(stage->held - stage->early, stage->more_split)};
	rank->bytes = pp_plus(rank->bytes, more[kind]);
	if (rank->bytes != UINT64_MAX)
		rank->bytes -= less[kind];
}

static void arrive(struct pp_list *list, uint32_t stage, bool forward, uint64_t time)
{
	struct arrivals *in = &list->stage[stage];
	uint32_t mb = forward ? in->forwards++ : in->backwards++;
	(forward ? in->forward : in->backward)[mb] = time;
	wake(list, there_at(list, stage, !forward, mb), list->problem->stage[stage].rank);
}

static void hand_on(struct pp_list *list, uint32_t s, enum pp_action_kind kind, uint64_t end)
{
	const struct pp_order_problem *problem = list->problem;
	const struct pp_order_stage *stage = &problem->stage[s];
	if (kind == PP_F && s + 1 < problem->stages)
		arrive(list, s + 1, true, pp_plus(end, stage->forward_hop));
	else if (kind == PP_F)
		arrive(list, s, false, end);
	else if (kind != PP_W && s > 0)
		arrive(list, s - 1, false, pp_plus(end, stage->backward_hop));
}

/* What is next for another stage comes later by this one's hop. */
static void use_channel(struct pp_list *list, const struct pp_list_rank *rank, uint32_t s, bool backward, uint32_t mb)
{
	uint64_t hop, none;
	uint32_t channel = channel_of(list, s, backward, &hop);
	if (channel == PP_NO_CHANNEL)
		return;
	list->busy[channel] = there_at(list, s, backward, mb);
	for (uint32_t chunk = 0; chunk < rank->chunks; chunk++) {
		const uint32_t *done = rank->chunk[chunk];
		uint32_t other = rank->stage[chunk], next = backward ? done[PP_B] + done[PP_I] : done[PP_F];
		bool waits = next < (backward ? list->stage[other].backwards : list->stage[other].forwards);
		if (waits && channel_of(list, other, backward, &none) == channel)
			wake(list, there_at(list, other, backward, next), rank->rank);
	}
}

static void take(struct pp_list *list, struct pp_list_rank *rank, struct pp_list_candidate chosen)
{
	uint32_t s = rank->stage[chosen.chunk];
	enum pp_action_kind kind = (enum pp_action_kind)chosen.kind;
	const struct pp_order_stage *stage = &list->problem->stage[s];
	uint64_t end = pp_plus(list->now, duration_of(stage, kind));
	struct pp_row *row = &list->rows[rank->rank];
	row->actions[row->count++] =
	    (struct pp_action){.stage = s, .mb = chosen.mb, .kind = chosen.kind, .span = PP_NO_SPAN};
	if (kind == PP_I) {
		if (!list->split[s])
			list->split[s] = PP_NEW_ARRAY(list->arena, uint32_t, list->problem->microbatches);
		list->split[s][rank->chunk[chosen.chunk][PP_I]] = chosen.mb;
	}
	rank->done[kind]++;
	rank->chunk[chosen.chunk][kind]++;
	account(rank, stage, kind);
	if (kind != PP_W)
		use_channel(list, rank, s, kind != PP_F, chosen.mb);
	list->free_at[rank->rank] = end;
	list->taken++;
	wake(list, end, rank->rank);
	hand_on(list, s, kind, end);
}

/* ---- running --------------------------------------------------------------------------------- */

static void reset(struct pp_list *list)
{
	const struct pp_order_problem *problem = list->problem;
	for (uint32_t r = 0; r < problem->ranks; r++) {
		struct pp_list_rank *rank = &list->ranks[r];
		memset(rank->done, 0, sizeof rank->done);
		if (rank->chunks)
			memset(rank->chunk, 0, rank->chunks * sizeof *rank->chunk);
		rank->bytes = 0;
		list->free_at[r] = 0;
		list->rows[r].count = 0;
	}
	for (uint32_t s = 0; s < problem->stages; s++)
		list->stage[s].forwards = list->stage[s].backwards = 0;
	if (list->channel)
		memset(list->busy, 0, 2 * (size_t)problem->stages * sizeof *list->busy);
	list->count = 0;
	list->now = list->taken = 0;
	if (problem->stages == 0)
		return;
	list->stage[0].forwards = problem->microbatches;
	memset(list->stage[0].forward, 0, problem->microbatches * sizeof *list->stage[0].forward);
	wake(list, 0, problem->stage[0].rank);
}

/* Every microbatch of every stage has its backward, whole or in two. */
static bool finished(const struct pp_list *list)
{
	uint32_t m = list->problem->microbatches;
	for (uint32_t r = 0; r < list->problem->ranks; r++) {
		const struct pp_list_rank *rank = &list->ranks[r];
		for (uint32_t chunk = 0; chunk < rank->chunks; chunk++)
			if (rank->chunk[chunk][PP_B] + rank->chunk[chunk][PP_W] < m)
				return false;
	}
	return true;
}

enum pp_list_outcome pp_list_run(struct pp_list *list, const struct pp_list_chooser *chooser)
{
	reset(list);
	while (list->count > 0) {
		struct event event = next_event(list);
		list->now = event.time;
		if (list->free_at[event.rank] > event.time)
			continue;
		const struct pp_list_candidate *ready;
		uint32_t count = pp_list_ready(list, event.rank, &ready);
		if (count == 0)
			continue;
		struct pp_list_rank *rank = &list->ranks[event.rank];
		uint32_t chosen = chooser->choose(chooser->context, event.time, rank, ready, count);
		if (chosen == PP_LIST_STOP)
			return PP_LIST_STOPPED;
		if (chosen != PP_LIST_WAIT)
			take(list, rank, ready[chosen]);
	}
	return finished(list) ? PP_LIST_FINISHED : PP_LIST_STUCK;
}

uint64_t pp_list_time(const struct pp_list *list)
{
	return list->now;
}

uint64_t pp_list_count(const struct pp_list *list)
{
	return list->taken;
}

const struct pp_list_rank *pp_list_rank_of(const struct pp_list *list, uint32_t rank)
{
	return &list->ranks[rank];
}

const struct pp_row *pp_list_rows(const struct pp_list *list)
{
	return list->rows;
}
