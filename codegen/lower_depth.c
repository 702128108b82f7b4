/* Receive slots of each channel (T4): as many as lose no time, at least two.
 *
 * One pass gives the times of the unlimited run: rows and data flow, every transfer starting as soon as its value is
 * made and its channel is free. Then transfer j may start as late as latest(j) = min(start of its consumer,
 * latest(j+1)) - its own ticks without delaying anything, so its slot must be free by then: k = 1 + max over j of the
 * number of i < j whose consumer ends after latest(j). With transfers not longer than the shortest compute, latest(j) =
 * start(C_j) - c: the formula of T4. Both consumer ends and latest(j) ascend along a channel, so one sliding window
 * counts them. O(actions). */
#include "lowering.h"

#include <assert.h>

/* A value waits in the receiver's slot or in the sender's: a deeper ring than this only moves memory between ranks. */
enum { LEAST_DEPTH = 2, MOST_DEPTH = 16 };

struct ideal {
	struct pp_lowering *lowering;
	uint64_t *start, *end; /* [computes] */
	bool *ended;
	uint64_t *channel_free;
	uint64_t *rank_free;
	uint32_t *next;  /* [ranks]: next compute */
	uint32_t *ready; /* stack of ranks */
	uint32_t ready_count;
	bool *queued;
};

static void wake(struct ideal *ideal, uint32_t rank)
{
	if (ideal->queued[rank])
		return;
	ideal->queued[rank] = true;
	ideal->ready[ideal->ready_count++] = rank;
}

/* The messages of a step are all made? */
static bool is_made(const struct ideal *ideal, uint32_t first, uint32_t last)
{
	for (uint32_t id = first; id <= last; id++) {
		uint32_t transfer = ideal->lowering->computes[id].transfer_in;
		if (transfer != PP_NULL && !ideal->ended[ideal->lowering->transfers[transfer].producer])
			return false;
	}
	return true;
}

/* When a message is there. */
static uint64_t arrive(struct ideal *ideal, const struct pp_transfer *transfer)
{
	uint64_t *channel_free = &ideal->channel_free[transfer->channel];
	uint64_t made = ideal->end[transfer->producer];
	*channel_free = pp_plus(made > *channel_free ? made : *channel_free, transfer->ticks);
	return *channel_free;
}

static bool run_next(struct ideal *ideal, uint32_t rank)
{
	const struct pp_lowering *lowering = ideal->lowering;
	uint32_t first = ideal->next[rank];
	if (first == lowering->base[rank + 1])
		return false;
	uint32_t last = pp_step_last(lowering, first);
	uint64_t start = ideal->rank_free[rank];
	if (!is_made(ideal, first, last))
		return false;
	for (uint32_t id = first; id <= last; id++) {
		uint32_t transfer = lowering->computes[id].transfer_in;
		uint64_t there = transfer == PP_NULL ? 0 : arrive(ideal, &lowering->transfers[transfer]);
		start = there > start ? there : start;
	}
	ideal->rank_free[rank] = pp_plus(start, pp_step_ticks(lowering, first));
	ideal->next[rank] = last + 1;
	for (uint32_t id = first; id <= last; id++) {
		const struct pp_compute *compute = &lowering->computes[id];
		ideal->start[id] = start;
		ideal->end[id] = ideal->rank_free[rank];
		ideal->ended[id] = true;
		if (compute->transfer_out != PP_NULL)
			wake(ideal, lowering->computes[lowering->transfers[compute->transfer_out].consumer].rank);
	}
	return true;
}

static void run_unlimited(struct ideal *ideal)
{
	uint32_t ranks = ideal->lowering->program->ranks;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		ideal->next[rank] = ideal->lowering->base[rank];
		wake(ideal, rank);
	}
	while (ideal->ready_count) {
		uint32_t rank = ideal->ready[--ideal->ready_count];
		ideal->queued[rank] = false;
		while (run_next(ideal, rank))
			;
	}
	for (uint32_t rank = 0; rank < ranks; rank++)
		assert(ideal->next[rank] == ideal->lowering->base[rank + 1]);
}

static uint64_t subtract(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0; /* only saturated times would go below 0 */
}

static uint32_t depth_of(const struct ideal *ideal, uint32_t channel, uint64_t *latest)
{
	const struct pp_lowering *lowering = ideal->lowering;
	uint32_t first = lowering->channel_base[channel], count = lowering->channel_base[channel + 1] - first;
	const struct pp_transfer *transfers = &lowering->transfers[first];
	uint64_t next = UINT64_MAX;
	for (uint32_t j = count; j-- > 0;) {
		uint64_t start = ideal->start[transfers[j].consumer];
		next = latest[j] = subtract(start < next ? start : next, transfers[j].ticks);
	}
	uint32_t depth = LEAST_DEPTH;
	for (uint32_t j = 0, oldest = 0; j < count; j++) {
		while (oldest < j && ideal->end[transfers[oldest].consumer] <= latest[j])
			oldest++;
		if (j - oldest + 1 > depth)
			depth = j - oldest + 1;
	}
	if (depth > MOST_DEPTH)
		depth = MOST_DEPTH;
	return depth < count ? depth : count;
}

void pp_lower_depths(struct pp_lowering *lowering)
{
	struct pp_program *program = lowering->program;
	struct pp_arena *scratch = lowering->scratch;
	uint32_t computes = lowering->base[program->ranks], most_messages = 0;
	struct ideal ideal = {
	    .lowering = lowering,
	    .start = PP_NEW_ARRAY(scratch, uint64_t, computes),
	    .end = PP_NEW_ARRAY(scratch, uint64_t, computes),
	    .ended = PP_NEW_ARRAY(scratch, bool, computes),
	    .channel_free = PP_NEW_ARRAY(scratch, uint64_t, program->channel_count),
	    .rank_free = PP_NEW_ARRAY(scratch, uint64_t, program->ranks),
	    .next = PP_NEW_ARRAY(scratch, uint32_t, program->ranks),
	    .ready = PP_NEW_ARRAY(scratch, uint32_t, program->ranks),
	    .queued = PP_NEW_ARRAY(scratch, bool, program->ranks),
	};
	run_unlimited(&ideal);
	for (uint32_t channel = 0; channel < program->channel_count; channel++)
		if (program->channels[channel].messages > most_messages)
			most_messages = program->channels[channel].messages;
	uint64_t *latest = PP_NEW_ARRAY(scratch, uint64_t, most_messages);
	for (uint32_t channel = 0; channel < program->channel_count; channel++)
		program->channels[channel].depth = depth_of(&ideal, channel, latest);
}
