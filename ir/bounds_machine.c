/* What one rank alone gives: its actions one after another, or its memory over time. */
#include "bounds_state.h"

#include <math.h>
#include <stdlib.h>

/* ---- one machine ----------------------------------------------------------------------------- */

/* Actions of a track with the same head and tail. */
struct batch {
	int64_t head, length, tail;
};

static int by_head(const void *left, const void *right)
{
	const struct batch *a = left, *b = right;
	if (a->head != b->head)
		return a->head < b->head ? -1 : 1;
	return (a->tail < b->tail) - (a->tail > b->tail);
}

/* What comes from microbatch j on is a smaller problem of the same kind that begins with the origin's F of j: so heads
 * beyond the window are at least those of as many windows as fit, one after another. */
static int64_t head_of(const struct pp_bound_state *state, const struct pp_bound_times *heads, uint32_t s,
                       enum pp_bound_kind kind, uint32_t k)
{
	uint32_t stride = state->window - 1;
	if (k <= stride)
		return heads->begin[pp_bound_at(state, s, kind, k)];
	if (stride == 0)
		return heads->begin[pp_bound_at(state, s, kind, 0)];
	int64_t head = heads->begin[pp_bound_at(state, s, kind, k % stride)];
	int64_t last = heads->begin[pp_bound_at(state, s, kind, stride)];
	head = pp_bound_known(head) ? head + k / stride * heads->stride : head;
	return head > last ? head : last;
}

/* Something that is done for every microbatch: behind the start of an action by `after`, ahead of the end of another by
 * `before`. */
struct task {
	uint32_t from, to; /* stages */
	enum pp_bound_kind from_kind, to_kind;
	int64_t after, length, before;
};

static void add_task(const struct pp_bound_state *state, const struct task *task, const struct pp_bound_times *heads,
                     const struct pp_bound_times *tails, struct batch *batches, size_t *count)
{
	uint32_t m = state->microbatches, window = state->window;
	for (uint32_t k = 0; k < m;) {
		/* Those in the middle, out of both windows, make one batch. */
		bool middle = k >= window && m - 1 - k >= window;
		uint32_t these = middle ? m - window - k : 1, from_end = m - 1 - k;
		int64_t head = head_of(state, heads, task->from, task->from_kind, k);
		int64_t tail =
		    tails->begin[pp_bound_at(state, task->to, task->to_kind, from_end < window ? from_end : window - 1)];
		if (pp_bound_known(head) && pp_bound_known(tail))
			batches[(*count)++] = (struct batch){head + task->after, task->length * these, tail + task->before};
		k += these;
	}
}

static void add_track(const struct pp_bound_state *state, uint32_t s, enum pp_bound_kind kind,
                      const struct pp_bound_times *heads, const struct pp_bound_times *tails, struct batch *batches,
                      size_t *count)
{
	const struct task task = {
	    .from = s, .to = s, .from_kind = kind, .to_kind = kind, .length = pp_bound_length(&state->stage[s], kind)};
	add_task(state, &task, heads, tails, batches, count);
}

/* A heap of batches, the one with the longest tail on top. */
static void sift(struct batch *heap, size_t count, size_t at)
{
	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && heap[child + 1].tail > heap[child].tail)
			child++;
		if (heap[at].tail >= heap[child].tail)
			return;
		struct batch swapped = heap[at];
		heap[at] = heap[child];
		heap[child] = swapped;
	}
}

static void push(struct batch *heap, size_t *count, struct batch batch)
{
	size_t at = (*count)++;
	for (; at && heap[(at - 1) / 2].tail < batch.tail; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = batch;
}

/* Jackson's preemptive schedule: always work on what is there and has the longest tail. Its end is the best that any
 * order with interruptions reaches, and the largest of head + lengths + tail over all sets of actions (Carlier, The
 * one-machine sequencing problem, 1982). */
static int64_t preemptive(struct batch *batches, size_t count, struct batch *heap)
{
	qsort(batches, count, sizeof *batches, by_head);
	int64_t now = count ? batches[0].head : 0, bound = 0;
	size_t next = 0, waiting = 0;
	while (next < count || waiting) {
		if (!waiting && now < batches[next].head)
			now = batches[next].head;
		for (; next < count && batches[next].head <= now; next++)
			push(heap, &waiting, batches[next]);
		struct batch *top = &heap[0];
		int64_t until = now + top->length;
		if (next < count && batches[next].head < until) {
			top->length -= batches[next].head - now;
			now = batches[next].head;
			continue;
		}
		now = until;
		bound = now + top->tail > bound ? now + top->tail : bound;
		heap[0] = heap[--waiting];
		sift(heap, waiting, 0);
	}
	return bound;
}

static void add_pool(const struct pp_bound_state *state, struct pp_arena *scratch, uint32_t r,
                     const struct pp_bound_times *heads, const struct pp_bound_times *tails, struct batch *batches,
                     size_t *count)
{
	const struct pp_bound_rank *rank = &state->rank[r];
	int64_t length = pp_bound_pool_length(state, rank);
	const int64_t *tail = pp_bound_pool_tails(state, scratch, r, tails);
	for (uint32_t n = 0; n < rank->count * state->microbatches; n++)
		if (pp_bound_known(heads->pool[r][n]) && pp_bound_known(tail[n]))
			batches[(*count)++] = (struct batch){heads->pool[r][n], length, tail[n]};
}

int64_t pp_bound_machine(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t r,
                         const struct pp_bound_times *heads, const struct pp_bound_times *tails)
{
	const struct pp_bound_rank *rank = &state->rank[r];
	uint64_t looked_at = (uint64_t)state->window * 2 + 1;
	size_t most =
	    (size_t)(looked_at < state->microbatches ? looked_at : state->microbatches) * rank->count * PP_BOUND_KINDS;
	if (most == 0)
		return 0;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct batch *batches = PP_NEW_ARRAY(scratch, struct batch, most),
	             *heap = PP_NEW_ARRAY(scratch, struct batch, most);
	size_t count = 0;
	for (uint32_t i = 0; i < rank->count; i++)
		for (unsigned kind = 0; kind < PP_BOUND_KINDS; kind++)
			add_track(state, rank->stages[i], kind, heads, tails, batches, &count);
	int64_t bound = preemptive(batches, count, heap);
	if (rank->pool) {
		count = 0;
		for (uint32_t i = 0; i < rank->count; i++)
			for (unsigned kind = 0; kind < PP_BOUND_W; kind++)
				add_track(state, rank->stages[i], kind, heads, tails, batches, &count);
		add_pool(state, scratch, r, heads, tails, batches, &count);
		int64_t other = preemptive(batches, count, heap);
		bound = other > bound ? other : bound;
	}
	pp_arena_destroy(scratch);
	return bound;
}

/* A channel is a machine too. */
int64_t pp_bound_channel(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t channel,
                         const struct pp_bound_times *heads, const struct pp_bound_times *tails)
{
	uint64_t looked_at = (uint64_t)state->window * 2 + 1;
	uint32_t users = 0, way = channel % 2;
	for (uint32_t s = channel / 2; s < state->stages; s++)
		users += state->channel[2 * (size_t)s + way] == channel;
	size_t most = (size_t)(looked_at < state->microbatches ? looked_at : state->microbatches) * users, count = 0;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct batch *batches = PP_NEW_ARRAY(scratch, struct batch, most),
	             *heap = PP_NEW_ARRAY(scratch, struct batch, most);
	enum pp_bound_kind kind = way ? PP_BOUND_I : PP_BOUND_F;
	for (uint32_t s = channel / 2; s < state->stages; s++) {
		if (state->channel[2 * (size_t)s + way] != channel)
			continue;
		const struct pp_bound_stage *stage = &state->stage[s], *next = way ? stage - 1 : stage + 1;
		/* what is recomputed next need not wait for the hop */
		const struct task task = {.from = s,
		                          .to = way ? s - 1 : s + 1,
		                          .from_kind = kind,
		                          .to_kind = kind,
		                          .after = pp_bound_length(stage, kind),
		                          .length = way ? stage->backward_hop : stage->forward_hop,
		                          .before = next->ticks[kind]};
		add_task(state, &task, heads, tails, batches, &count);
	}
	int64_t bound = preemptive(batches, count, heap);
	pp_arena_destroy(scratch);
	return bound;
}

/* ---- memory over time ------------------------------------------------------------------------ */

/* Least time from the start of F of a stage to the end of its I. */
static int64_t residence(const struct pp_bound_state *state, uint32_t s)
{
	int64_t there = state->stage[s].ticks[PP_BOUND_F];
	for (uint32_t t = s + 1; t < state->stages; t++)
		there += state->stage[t - 1].forward_hop + state->stage[t].ticks[PP_BOUND_F];
	for (uint32_t t = state->stages; t-- > s;) {
		there += state->stage[t].ticks[PP_BOUND_I] + (t > s ? state->stage[t].backward_hop : 0);
		if (t + 1 == state->stages)
			there += state->stage[t].recompute;
	}
	return there;
}

/* Little's law: over the span of a rank, every microbatch holds its bytes for as long as it takes to come back, and all
 * together no more than the room for as long as the span. The first stashes come one F after another, so the room is
 * not full from the start; where W gives all back, nor to the end. */
int64_t pp_bound_area(const struct pp_bound_state *state, uint32_t r)
{
	const struct pp_bound_rank *rank = &state->rank[r];
	if (rank->room == PP_ROOM_UNLIMITED || rank->count == 0)
		return 0;
	double area = 0, room = (double)rank->room, most_held = 0, forward = 0, last = 0;
	bool early = false, alike = true;
	for (uint32_t i = 0; i < rank->count; i++) {
		const struct pp_bound_stage *stage = &state->stage[rank->stages[i]];
		double stays = (double)residence(state, rank->stages[i]), weight = (double)stage->ticks[PP_BOUND_W];
		double end = weight > 0 ? weight : (double)pp_bound_length(stage, PP_BOUND_I);
		area += (double)stage->early * stays + (double)(stage->held - stage->early) * (stays + weight);
		most_held = (double)stage->held > most_held ? (double)stage->held : most_held;
		forward = i == 0 || (double)stage->ticks[PP_BOUND_F] < forward ? (double)stage->ticks[PP_BOUND_F] : forward;
		last = i == 0 || end < last ? end : last;
		early |= stage->early > 0;
		alike &= stage->held == state->stage[rank->stages[0]].held;
	}
	if (most_held <= 0)
		return 0;
	if (alike && !early)
		room = (double)(rank->room / state->stage[rank->stages[0]].held) * most_held;
	double whole = (double)state->microbatches * rank->count, stashes = room / most_held;
	area *= state->microbatches;
	stashes = stashes < whole ? stashes : whole;
	/* n stashes are there no earlier than n - 1 F after the first, and n are left no later than n ends before the last.
	 */
	double ramp = stashes * (stashes - 1) / 2 * most_held;
	if (ramp > 0)
		area += ramp * (forward + (early ? 0 : last));
	/* Spans are whole: rounded up, less what the sums above may be off. */
	return room > 0 ? (int64_t)ceil(area / room * (1 - 1e-12) - 1e-6) : 0;
}
