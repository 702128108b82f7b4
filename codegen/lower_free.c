/* The order `free`: streams without a global order.
 * requires: pp_lower_graph, pp_lower_depths.
 * ensures:  a send stands right behind its producer, or behind that of an earlier message of its channel (R1) if this
 *           is made later; the first `depth` receives of a channel stand at the beginning of the stream, message j
 * right behind the consumer of message j - depth. So nothing but data flow, rows and channels decides when a transfer
 * begins, however long computes take; with one queue for each channel it cannot deadlock, but where channels share
 * queues it can, since no order is common to their ends.
 *
 * The wait for a send belongs to the first block that begins with a message whose sender had taken the sent value
 * before it made that message: there it never waits. What no message confirms is waited for at the end. O(actions). */
#include "lowering.h"

struct free_order {
	struct pp_lowering *lowering;
	bool *made;              /* [transfers]: the producer's block is emitted */
	uint32_t *sent, *waited; /* [channels]: sends posted, and waited for */
	uint32_t (*back)[2];     /* [channels]: those from its destination to its source, PP_NULL: none */
};

static uint32_t message_count(const struct pp_lowering *lowering, uint32_t channel)
{
	return lowering->channel_base[channel + 1] - lowering->channel_base[channel];
}

/* Channels are sorted by source, then destination. */
static void find_back(const struct free_order *order, uint32_t channel)
{
	const struct pp_program *program = order->lowering->program;
	const struct pp_channel *wanted = &program->channels[channel];
	uint32_t low = 0, high = program->channel_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct pp_channel *at = &program->channels[middle];
		if (at->source < wanted->destination || (at->source == wanted->destination && at->destination < wanted->source))
			low = middle + 1;
		else
			high = middle;
	}
	for (unsigned i = 0; i < 2; i++, low++) {
		const struct pp_channel *at = &program->channels[low];
		bool found =
		    low < program->channel_count && at->source == wanted->destination && at->destination == wanted->source;
		order->back[channel][i] = found ? low : PP_NULL;
	}
}

static void post_send(const struct free_order *order, uint32_t transfer)
{
	struct pp_lowering *lowering = order->lowering;
	uint32_t channel = lowering->transfers[transfer].channel, base = lowering->channel_base[channel];
	order->made[transfer] = true;
	while (order->sent[channel] < message_count(lowering, channel) && order->made[base + order->sent[channel]])
		pp_lowering_emit_post(lowering, base + order->sent[channel]++, false, PP_NULL);
}

/* The consumer of this message has run, so its slot is free. */
static void post_next_receive(const struct free_order *order, uint32_t transfer)
{
	struct pp_lowering *lowering = order->lowering;
	uint32_t channel = lowering->transfers[transfer].channel;
	uint32_t next = transfer + lowering->program->channels[channel].depth;
	if (next < lowering->channel_base[channel + 1])
		pp_lowering_emit_post(lowering, next, true, PP_NULL);
}

/* Wait for what the sender of this message had taken before it sent it. */
static void wait_confirmed(const struct free_order *order, uint32_t rank, uint32_t transfer)
{
	struct pp_lowering *lowering = order->lowering;
	const struct pp_transfer *message = &lowering->transfers[transfer];
	for (unsigned i = 0; i < 2; i++) {
		uint32_t channel = order->back[message->channel][i];
		if (channel == PP_NULL)
			continue;
		const struct pp_transfer *sent = &lowering->transfers[lowering->channel_base[channel]];
		uint32_t *waited = &order->waited[channel];
		for (; *waited < order->sent[channel] && sent[*waited].consumer <= message->producer; ++*waited)
			pp_lowering_emit_wait(lowering, rank, lowering->channel_base[channel] + *waited);
	}
}

/* A compute, or two that overlap. */
static void emit_block(const struct free_order *order, uint32_t first, uint32_t last)
{
	struct pp_lowering *lowering = order->lowering;
	const struct pp_compute *computes = lowering->computes;
	for (uint32_t id = first; id <= last; id++)
		if (computes[id].transfer_in != PP_NULL) {
			pp_lowering_emit_wait(lowering, computes[id].rank, computes[id].transfer_in);
			wait_confirmed(order, computes[id].rank, computes[id].transfer_in);
		}
	for (uint32_t id = first; id <= last; id++)
		pp_lowering_emit_compute(lowering, id);
	for (uint32_t id = first; id <= last; id++) {
		if (computes[id].transfer_out != PP_NULL)
			post_send(order, computes[id].transfer_out);
		if (computes[id].transfer_in != PP_NULL)
			post_next_receive(order, computes[id].transfer_in);
	}
}

static void post_first_receives(struct pp_lowering *lowering)
{
	for (uint32_t channel = 0; channel < lowering->program->channel_count; channel++)
		for (uint32_t i = 0; i < lowering->program->channels[channel].depth; i++)
			pp_lowering_emit_post(lowering, lowering->channel_base[channel] + i, true, PP_NULL);
}

static void wait_for_the_rest(const struct free_order *order)
{
	struct pp_lowering *lowering = order->lowering;
	for (uint32_t channel = 0; channel < lowering->program->channel_count; channel++)
		for (; order->waited[channel] < order->sent[channel]; order->waited[channel]++)
			pp_lowering_emit_wait(lowering, lowering->program->channels[channel].source,
			                      lowering->channel_base[channel] + order->waited[channel]);
}

void pp_lower_free(struct pp_lowering *lowering)
{
	const struct pp_program *program = lowering->program;
	struct pp_arena *scratch = lowering->scratch;
	struct free_order order = {
	    .lowering = lowering,
	    .made = PP_NEW_ARRAY(scratch, bool, lowering->channel_base[program->channel_count]),
	    .sent = PP_NEW_ARRAY(scratch, uint32_t, program->channel_count),
	    .waited = PP_NEW_ARRAY(scratch, uint32_t, program->channel_count),
	    .back = pp_arena_alloc(scratch, program->channel_count, sizeof *order.back),
	};
	for (uint32_t channel = 0; channel < program->channel_count; channel++)
		find_back(&order, channel);
	post_first_receives(lowering);
	for (uint32_t id = 0; id < lowering->base[program->ranks]; id++) {
		uint32_t last = pp_step_last(lowering, id);
		emit_block(&order, id, last);
		id = last;
	}
	wait_for_the_rest(&order);
}
