/* Lowering through one global order G.
 *
 * requires, ensures: lower.h. Tables: lower_graph.c; receive slots of channels: lower_depth.c; step tail:
 * lower_tail.c.
 *
 * G is one sequence of all computes and transfers of all ranks, in the order of a simulated run. The stream of a rank
 * is what G says about that rank, nothing else; so no rank and no queue ever waits for something that stands later in
 * G.
 *
 * R1  A channel carries its messages in the order in which the consumer's rank wants them. Transfer j of a channel
 *     enters G when (a) j-1 has entered, (b) its producer has ended, (c) the consumer of j-k has ended, k the
 *     channel's receive slots. So a send may stand later than the next output of its stage.
 * R2  A compute stands in G at its end, with its block: `wait` for its message, `wait`s for sends that are over,
 *     `load`, compute. Two that overlap are one step with one block: it starts when the messages of both are there,
 *     and both end together.
 * R3  When a transfer enters, the blocks of its producer and of the consumer of j-k are emitted (and all before them
 *     on their ranks), then `send` and `recv`. Then the blocks of all other computes that ended at this tick.
 * R4  Outputs are never limited. The `wait` of a send belongs to the first block that starts after the transfer is
 *     over; the memory plan delays it to just before its bytes are written again.
 * R5  A hand-over on one rank is no transfer: the consumer's `in` is the producer's `out`.
 * R6  A stash lives from F to the end of B or W, and so does aux (from its load). A stage that recomputes does so
 *     right before B or I, while the rank waits for the gradient; where computes may overlap, before the first of
 *     them. Its extra lives from there, or else from I, to the end of B or W.
 * R7  Ties within a tick: all ends first; then transfers enter, sorted by how soon their consumer is due, then
 *     channel; then ranks in ascending order start their next compute. A duration of zero makes a further round of the
 *     same tick.
 * R8  A channel is busy while it carries a message; times are integers, so the order is the same on every machine.
 * R9  Step tail: lower_tail.c.
 *
 * What R2 and R3 say is the order `end`. `lazy` emits a compute's block only when a transfer needs it: all posts stand
 * as early as they can, which helps where times vary; queues have the same order. `start` emits it when the compute
 * starts: better where one queue takes everything, computes too (a transport that blocks), since a compute is then not
 * held up by posts that entered while it ran. `free` has no G: lower_free.c; there `eval` has the order `end`.
 *
 * The program `eval` has the forwards of the rows in their order, and channels and receive slots of `train`. There no
 * backward keeps an early stage from running ahead, so R4 would let its outputs pile up: here a rank starts a compute
 * only while fewer of its outputs are on their way than at most in `train`, or than OUTPUTS. When nothing else can
 * happen, all ranks held back so start: with outputs unlimited the construction never gets stuck, so neither does it
 * then.
 *
 * Why it works.
 * T1  Nothing deadlocks under rendezvous, in any queue layout, if streams and queues are subsequences of G and each
 *     transfer stands behind its producer and the last reader of its receive slot: the first unfinished element of G
 *     has everything before it on its ranks and in its queues finished, so both its posts are made and head their
 *     queues.
 * T2  The construction never gets stuck for any k >= 1 if rows and data flow are acyclic: with R1 the extra orders
 *     producer(j) -> consumer(j) -> consumer(i) and consumer(j-k) -> consumer(j) -> consumer(i), i >= j, are data flow
 *     and row order already. (With messages in the order of production no fixed k would do.)
 * T3  A real run with these times takes exactly the simulated time (`end`, `lazy`): before a post in a stream stand
 *     only blocks that ended by the tick at which the transfer entered. With `start` a post may stand behind a compute
 *     that runs then, and the transfer begins when that ends.
 * T4  Receive slots that lose nothing: lower_depth.c.
 * T5  A run in which every post blocks succeeds iff some G exists, and then all queue layouts do: so one such run
 *     proves them all.
 *
 * O(n log(ranks + receive slots)) in the number of instructions. */
#include "lowering.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* Streams, slots and the graph use 32-bit ids; a compute has at most 8 instructions. */
#define COMPUTES_MAX ((uint64_t)UINT32_MAX / 8)

struct event {
	uint64_t tick;
	uint32_t serial;
	uint32_t id; /* compute that ends, or number of computes + transfer that is over */
};

/* A transfer that may enter now. */
struct candidate {
	uint32_t due; /* computes of its rank before the consumer */
	uint32_t channel, transfer;
};

/* Outputs of a rank of `eval` that may always be on their way: one is sent while the next is computed. */
enum { OUTPUTS = 2 };

struct rank_state {
	uint32_t next;            /* compute that runs, or is to start next */
	uint32_t emitted;         /* first compute whose block is not emitted */
	uint32_t owed, last_owed; /* list of transfers sent from here that are over, their `wait` not emitted; PP_NULL */
	uint32_t unsent;          /* forward outputs whose transfer is not over */
	bool busy, touched;
	bool held; /* by its unsent outputs; stands in order->held */
};

struct channel_state {
	uint64_t free_at;
	uint32_t entered; /* transfers */
	uint32_t used;    /* receive slots */
	bool touched;
};

struct order {
	struct pp_lowering *lowering;
	enum pp_lowered key; /* where computes stand: END, LAZY or START */
	struct rank_state *ranks;
	struct channel_state *channels;
	bool *over;          /* [transfers] */
	uint32_t *wait_at;   /* [transfers]: first compute of the source rank that starts after it is over */
	uint32_t *next_owed; /* [transfers] */
	struct event *heap;
	uint32_t heap_count, serial;
	uint64_t now;      /* tick of the last round */
	uint32_t position; /* in G, of transfers */
	/* of one round: */
	uint32_t *ended, ended_count;
	uint32_t *touched_ranks, touched_rank_count;
	uint32_t *touched_channels, touched_channel_count;
	struct candidate *candidates;
	uint32_t candidate_count;
	uint32_t *held, held_count; /* ranks, by and by */
};

/* ---- event heap ------------------------------------------------------------------------------ */

static bool sooner(const struct event *a, const struct event *b)
{
	return a->tick != b->tick ? a->tick < b->tick : a->serial < b->serial;
}

static void push_event(struct order *order, uint64_t tick, uint32_t id)
{
	struct event event = {tick, order->serial++, id};
	uint32_t at = order->heap_count++;
	for (; at && sooner(&event, &order->heap[(at - 1) / 2]); at = (at - 1) / 2)
		order->heap[at] = order->heap[(at - 1) / 2];
	order->heap[at] = event;
}

static uint32_t pop_event(struct order *order)
{
	struct event *heap = order->heap, last = heap[--order->heap_count];
	uint32_t id = heap[0].id, at = 0;
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= order->heap_count)
			break;
		if (child + 1 < order->heap_count && sooner(&heap[child + 1], &heap[child]))
			child++;
		if (sooner(&last, &heap[child]))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return id;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The waits for sends that were over before compute `id` of this rank started. */
static void emit_owed_waits(struct order *order, uint32_t rank, uint32_t id)
{
	struct rank_state *state = &order->ranks[rank];
	while (state->owed != PP_NULL && order->wait_at[state->owed] <= id) {
		pp_lowering_emit_wait(order->lowering, rank, state->owed);
		state->owed = order->next_owed[state->owed];
	}
}

/* The block of a compute, or of those that overlap: they follow each other. */
static void emit_block(struct order *order, uint32_t first, uint32_t last)
{
	const struct pp_compute *computes = order->lowering->computes;
	for (uint32_t id = first; id <= last; id++)
		if (computes[id].transfer_in != PP_NULL)
			pp_lowering_emit_wait(order->lowering, computes[id].rank, computes[id].transfer_in);
	emit_owed_waits(order, computes[first].rank, first);
	for (uint32_t id = first; id <= last; id++)
		pp_lowering_emit_compute(order->lowering, id);
}

static void emit_up_to(struct order *order, uint32_t id)
{
	struct rank_state *rank = &order->ranks[order->lowering->computes[id].rank];
	while (rank->emitted <= id) {
		uint32_t last = pp_step_last(order->lowering, rank->emitted);
		emit_block(order, rank->emitted, last);
		rank->emitted = last + 1;
	}
}

/* ---- the simulated run ----------------------------------------------------------------------- */

static void touch_rank(struct order *order, uint32_t rank)
{
	if (order->ranks[rank].touched)
		return;
	order->ranks[rank].touched = true;
	order->touched_ranks[order->touched_rank_count++] = rank;
}

static void touch_channel(struct order *order, uint32_t channel)
{
	if (order->channels[channel].touched)
		return;
	order->channels[channel].touched = true;
	order->touched_channels[order->touched_channel_count++] = channel;
}

/* Wait for transfers before making more outputs? */
static bool hold_back(struct order *order, uint32_t rank, const struct pp_compute *compute)
{
	struct rank_state *state = &order->ranks[rank];
	if (!order->lowering->forward_only || compute->transfer_out == PP_NULL || state->unsent < OUTPUTS ||
	    state->unsent < order->lowering->outputs[rank])
		return false;
	if (!state->held)
		order->held[order->held_count++] = rank;
	state->held = true;
	return true;
}

static void start(struct order *order, uint32_t rank, uint64_t tick)
{
	const struct pp_lowering *lowering = order->lowering;
	struct rank_state *state = &order->ranks[rank];
	uint32_t last = pp_step_last(lowering, state->next);
	uint64_t end = pp_plus(tick, pp_step_ticks(lowering, state->next));
	for (uint32_t id = state->next; id <= last; id++) {
		const struct pp_compute *compute = &lowering->computes[id];
		if (compute->kind == PP_F && compute->transfer_out != PP_NULL && ++state->unsent > lowering->outputs[rank])
			lowering->outputs[rank] = state->unsent;
		push_event(order, end, id);
	}
	state->busy = true;
	if (order->key == PP_LOWERED_START)
		emit_up_to(order, state->next);
}

/* `forced`: whatever its outputs do. */
static void start_next(struct order *order, uint32_t rank, uint64_t tick, bool forced)
{
	const struct pp_lowering *lowering = order->lowering;
	struct rank_state *state = &order->ranks[rank];
	if (state->busy || state->next == lowering->base[rank + 1])
		return;
	const struct pp_compute *compute = &lowering->computes[state->next];
	for (uint32_t id = state->next, last = pp_step_last(lowering, id); id <= last; id++) {
		uint32_t transfer = lowering->computes[id].transfer_in;
		if (transfer != PP_NULL && !order->over[transfer])
			return;
	}
	if (forced || !hold_back(order, rank, compute))
		start(order, rank, tick);
}

/* Nothing else can happen: those held back only by their outputs go on. */
static void start_held(struct order *order, uint64_t tick)
{
	uint32_t count = order->held_count;
	order->held_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		order->ranks[order->held[i]].held = false;
		start_next(order, order->held[i], tick, true);
	}
}

static void end_compute(struct order *order, uint32_t id)
{
	const struct pp_lowering *lowering = order->lowering;
	const struct pp_compute *compute = &lowering->computes[id];
	struct rank_state *rank = &order->ranks[compute->rank];
	rank->next = id + 1;
	rank->busy = false;
	touch_rank(order, compute->rank);
	order->ended[order->ended_count++] = id;
	if (compute->transfer_in != PP_NULL) {
		uint32_t channel = lowering->transfers[compute->transfer_in].channel;
		order->channels[channel].used--;
		touch_channel(order, channel);
	}
	if (compute->transfer_out != PP_NULL)
		touch_channel(order, lowering->transfers[compute->transfer_out].channel);
}

static void end_transfer(struct order *order, uint32_t id)
{
	const struct pp_channel *channel = &order->lowering->program->channels[order->lowering->transfers[id].channel];
	struct rank_state *source = &order->ranks[channel->source];
	order->over[id] = true;
	source->unsent -= channel->kind == PP_ACT;
	order->wait_at[id] = source->busy ? pp_step_last(order->lowering, source->next) + 1 : source->next;
	order->next_owed[id] = PP_NULL;
	if (source->owed == PP_NULL)
		source->owed = id;
	else
		order->next_owed[source->last_owed] = id;
	source->last_owed = id;
	touch_rank(order, channel->source);
	touch_rank(order, channel->destination);
}

/* All ends of this tick; they change the state before anything new begins. */
static void end_all(struct order *order, uint64_t tick)
{
	uint32_t computes = order->lowering->base[order->lowering->program->ranks];
	while (order->heap_count && order->heap[0].tick == tick) {
		uint32_t id = pop_event(order);
		if (id < computes)
			end_compute(order, id);
		else
			end_transfer(order, id - computes);
	}
}

static void find_candidates(struct order *order, uint32_t channel_id)
{
	const struct pp_lowering *lowering = order->lowering;
	const struct pp_channel *channel = &lowering->program->channels[channel_id];
	const struct channel_state *state = &order->channels[channel_id];
	uint32_t messages = lowering->channel_base[channel_id + 1] - lowering->channel_base[channel_id];
	for (uint32_t i = 0; state->used + i < channel->depth && state->entered + i < messages; i++) {
		uint32_t id = lowering->channel_base[channel_id] + state->entered + i;
		const struct pp_transfer *transfer = &lowering->transfers[id];
		if (transfer->producer >= order->ranks[channel->source].next)
			return;
		uint32_t due = transfer->consumer - order->ranks[channel->destination].next;
		order->candidates[order->candidate_count++] = (struct candidate){due, channel_id, id};
	}
}

static int compare_candidates(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	if (a->due != b->due)
		return a->due < b->due ? -1 : 1;
	return a->channel < b->channel ? -1 : a->channel > b->channel; /* within a channel `due` differs */
}

static void enter_transfer(struct order *order, uint32_t id, uint64_t tick)
{
	struct pp_lowering *lowering = order->lowering;
	const struct pp_transfer *transfer = &lowering->transfers[id];
	struct channel_state *channel = &order->channels[transfer->channel];
	uint32_t depth = lowering->program->channels[transfer->channel].depth;
	assert(id == lowering->channel_base[transfer->channel] + channel->entered && channel->used < depth);
	emit_up_to(order, transfer->producer);
	if (channel->entered >= depth)
		emit_up_to(order, lowering->transfers[id - depth].consumer);
	pp_lowering_emit_post(lowering, id, false, order->position);
	pp_lowering_emit_post(lowering, id, true, order->position++);
	channel->used++;
	channel->entered++;
	channel->free_at = pp_plus(tick > channel->free_at ? tick : channel->free_at, transfer->ticks);
	push_event(order, channel->free_at, lowering->base[lowering->program->ranks] + id);
}

static void enter_transfers(struct order *order, uint64_t tick)
{
	order->candidate_count = 0;
	for (uint32_t i = 0; i < order->touched_channel_count; i++) {
		order->channels[order->touched_channels[i]].touched = false;
		find_candidates(order, order->touched_channels[i]);
	}
	order->touched_channel_count = 0;
	if (order->candidate_count > 1)
		qsort(order->candidates, order->candidate_count, sizeof *order->candidates, compare_candidates);
	for (uint32_t i = 0; i < order->candidate_count; i++)
		enter_transfer(order, order->candidates[i].transfer, tick);
}

static int compare_ranks(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return a < b ? -1 : a > b;
}

static void start_ranks(struct order *order, uint64_t tick)
{
	if (order->touched_rank_count > 1)
		qsort(order->touched_ranks, order->touched_rank_count, sizeof *order->touched_ranks, compare_ranks);
	for (uint32_t i = 0; i < order->touched_rank_count; i++) {
		order->ranks[order->touched_ranks[i]].touched = false;
		start_next(order, order->touched_ranks[i], tick, false);
	}
	order->touched_rank_count = 0;
}

static void run_round(struct order *order)
{
	uint64_t tick = order->now = order->heap[0].tick;
	order->ended_count = 0;
	end_all(order, tick);
	enter_transfers(order, tick);
	start_ranks(order, tick);
	for (uint32_t i = 0; order->key == PP_LOWERED_END && i < order->ended_count; i++)
		emit_up_to(order, order->ended[i]);
	if (order->ended_count)
		order->lowering->makespan = tick;
}

static struct order make_order(struct pp_lowering *lowering)
{
	const struct pp_program *program = lowering->program;
	struct pp_arena *scratch = lowering->scratch;
	uint32_t transfers = lowering->channel_base[program->channel_count];
	size_t slots = 0;
	for (uint32_t i = 0; i < program->channel_count; i++)
		slots += program->channels[i].depth;
	struct order order = {
	    .lowering = lowering,
	    .key = program->lowering == PP_LOWERED_FREE ? PP_LOWERED_END : (enum pp_lowered)program->lowering,
	    .ranks = PP_NEW_ARRAY(scratch, struct rank_state, program->ranks),
	    .channels = PP_NEW_ARRAY(scratch, struct channel_state, program->channel_count),
	    .over = PP_NEW_ARRAY(scratch, bool, transfers),
	    .wait_at = PP_NEW_ARRAY(scratch, uint32_t, transfers),
	    .next_owed = PP_NEW_ARRAY(scratch, uint32_t, transfers),
	    .heap = PP_NEW_ARRAY(scratch, struct event, 2 * (size_t)program->ranks + slots),
	    .ended = PP_NEW_ARRAY(scratch, uint32_t, 2 * (size_t)program->ranks),
	    .touched_ranks = PP_NEW_ARRAY(scratch, uint32_t, program->ranks),
	    .touched_channels = PP_NEW_ARRAY(scratch, uint32_t, program->channel_count),
	    .candidates = PP_NEW_ARRAY(scratch, struct candidate, slots),
	    .held = PP_NEW_ARRAY(scratch, uint32_t, program->ranks),
	};
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		order.ranks[rank].next = order.ranks[rank].emitted = lowering->base[rank];
		order.ranks[rank].owed = PP_NULL;
	}
	return order;
}

void pp_lower_order(struct pp_lowering *lowering)
{
	struct order order = make_order(lowering);
	for (uint32_t rank = 0; rank < lowering->program->ranks; rank++)
		start_next(&order, rank, 0, false);
	while (order.heap_count || order.held_count) {
		if (!order.heap_count)
			start_held(&order, order.now);
		else
			run_round(&order);
	}
	for (uint32_t rank = 0; rank < lowering->program->ranks; rank++) {
		assert(order.ranks[rank].next == lowering->base[rank + 1]); /* T2: the schedule was checked */
		if (lowering->base[rank] < lowering->base[rank + 1])
			emit_up_to(&order, lowering->base[rank + 1] - 1);
		emit_owed_waits(&order, rank, PP_NULL);
	}
}

/* ---- the pass -------------------------------------------------------------------------------- */

static bool within_limits(const struct pp_program *program, const struct pp_schedule *schedule, struct pp_diag *diag)
{
	uint64_t computes = 0;
	for (uint32_t s = 0; s < schedule->stages; s++)
		computes += program->stages[s].recomputes ? schedule->microbatches : 0;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		computes += schedule->rows[rank].count;
	if (computes <= COMPUTES_MAX)
		return true;
	struct pp_message *m =
	    pp_error(diag, "E0617", PP_NO_SPAN,
	             "the step has %" PRIu64 " compute actions; a program holds at most %" PRIu64, computes, COMPUTES_MAX);
	pp_help(m, "use fewer microbatches or chunks");
	return false;
}

static struct pp_lowering lowering_begin(struct pp_program *program, const char *name, const struct pp_spec *spec,
                                         const struct pp_schedule *schedule, uint32_t *outputs)
{
	struct pp_named_program *named = &program->programs[program->program_count++];
	*named = (struct pp_named_program){.name = name,
	                                   .streams = PP_NEW_ARRAY(program->arena, struct pp_stream, program->ranks)};
	return (struct pp_lowering){.scratch = pp_arena_scratch(program->arena),
	                            .program = program,
	                            .spec = spec,
	                            .schedule = schedule,
	                            .named = named,
	                            .outputs = outputs};
}

static bool lower_train(struct pp_program *program, const struct pp_spec *spec, const struct pp_schedule *schedule,
                        uint32_t *outputs, struct pp_diag *diag)
{
	struct pp_lowering lowering = lowering_begin(program, "train", spec, schedule, outputs);
	pp_lower_graph(&lowering);
	pp_lower_depths(&lowering);
	pp_lower_start(&lowering);
	(program->lowering == PP_LOWERED_FREE ? pp_lower_free : pp_lower_order)(&lowering);
	bool ok = pp_lower_tail(&lowering, diag);
	pp_arena_destroy(lowering.scratch);
	return ok;
}

/* The rows without their backwards. */
static struct pp_schedule forward_rows(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	struct pp_schedule forwards = *schedule;
	forwards.rows = PP_NEW_ARRAY(arena, struct pp_row, schedule->ranks);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		const struct pp_row *row = &schedule->rows[rank];
		struct pp_row *kept = &forwards.rows[rank];
		kept->actions = PP_NEW_ARRAY(arena, struct pp_action, row->count);
		for (uint32_t i = 0; i < row->count; i++) {
			if (row->actions[i].kind != PP_F)
				continue;
			kept->actions[kept->count] = row->actions[i];
			kept->actions[kept->count++].paired = false;
		}
	}
	return forwards;
}

static void lower_eval(struct pp_program *program, const struct pp_spec *spec, const struct pp_schedule *schedule,
                       uint32_t *outputs)
{
	struct pp_arena *scratch = pp_arena_scratch(program->arena);
	struct pp_schedule forwards = forward_rows(scratch, schedule);
	struct pp_lowering lowering = lowering_begin(program, "eval", spec, &forwards, outputs);
	lowering.forward_only = true;
	pp_lower_graph(&lowering);
	pp_lower_start(&lowering);
	pp_lower_order(&lowering);
	pp_lower_eval_tail(&lowering);
	pp_arena_destroy(lowering.scratch);
	pp_arena_destroy(scratch);
}

bool pp_lower(struct pp_program *program, const struct pp_spec *spec, const struct pp_schedule *schedule,
              struct pp_diag *diag)
{
	assert(program->ranks == schedule->ranks && program->stage_count == schedule->stages &&
	       program->microbatches == schedule->microbatches);
	if (!within_limits(program, schedule, diag))
		return false;
	if (program->lowering == PP_LOWERED_GIVEN)
		program->lowering = PP_LOWERED_END;
	program->programs = PP_NEW_ARRAY(program->arena, struct pp_named_program, 2);
	program->program_count = 0;
	struct pp_arena *scratch = pp_arena_scratch(program->arena);
	uint32_t *outputs = PP_NEW_ARRAY(scratch, uint32_t, program->ranks);
	bool ok = lower_train(program, spec, schedule, outputs, diag);
	if (ok && spec->train.eval_steps)
		lower_eval(program, spec, schedule, outputs);
	pp_arena_destroy(scratch);
	return ok;
}
