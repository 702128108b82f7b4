/* The predicted step as a Chrome trace: computes, transfers, collectives, one arrow per message, the memory curve. */
#include "emit.h"

#include "ir/lifetime.h"
#include "ir/trace.h"

#include <string.h>

/* Number of a channel's first message over all channels: ids of arrows. */
static uint64_t *message_bases(const struct pp_dump *dump)
{
	uint64_t *base = PP_NEW_ARRAY(dump->arena, uint64_t, dump->program->channel_count + 1);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		for (uint32_t i = 0; i < dump->named->streams[rank].count; i++)
			if (dump->named->streams[rank].items[i].op == PP_OP_SEND)
				base[dump->named->streams[rank].items[i].a[0] + 1]++;
	for (uint32_t c = 0; c < dump->program->channel_count; c++)
		base[c + 1] += base[c];
	return base;
}

static void trace_compute(const struct pp_dump *dump, struct pp_trace *trace, uint32_t rank, uint32_t at,
                          bool second_of_pair)
{
	const struct pp_instr *instr = &dump->named->streams[rank].items[at];
	const char kind[2] = {pp_compute_letter(instr), '\0'};
	pp_trace_slice(trace, &(struct pp_trace_slice){.rank = rank,
	                                               .track = second_of_pair ? PP_TRACE_PAIRED : PP_TRACE_COMPUTE,
	                                               .name = pp_dump_action(dump, instr),
	                                               .category = kind,
	                                               .start = dump->sim->instr[rank][at].start,
	                                               .end = dump->sim->instr[rank][at].end,
	                                               .stage = instr->stage,
	                                               .mb = instr->mb});
}

static void trace_message(const struct pp_dump *dump, struct pp_trace *trace, uint32_t rank, uint32_t at,
                          const uint64_t *bases)
{
	const struct pp_instr *instr = &dump->named->streams[rank].items[at];
	const struct pp_channel *channel = &dump->program->channels[instr->a[0]];
	bool sends = instr->op == PP_OP_SEND;
	struct pp_interval interval = dump->sim->instr[rank][at];
	enum pp_trace_track track = sends ? PP_TRACE_SEND : PP_TRACE_RECV;
	pp_trace_slice(trace, &(struct pp_trace_slice){
	                          .rank = rank,
	                          .track = track,
	                          .name = pp_arena_printf(dump->arena, "%s %s %u to %u", pp_value_name[channel->kind],
	                                                  sends ? "send" : "recv", channel->source, channel->destination),
	                          .category = sends ? "send" : "recv",
	                          .start = interval.start,
	                          .end = interval.end,
	                          .stage = instr->stage,
	                          .mb = instr->mb,
	                          .bytes = pp_payload_bytes(instr)});
	if (sends)
		pp_trace_flow_start(trace, bases[instr->a[0]] + instr->a[1], rank, track, interval.start);
	else
		pp_trace_flow_end(trace, bases[instr->a[0]] + instr->a[1], rank, track, interval.end);
}

static void trace_other(const struct pp_dump *dump, struct pp_trace *trace, uint32_t rank, uint32_t at)
{
	const struct pp_instr *instr = &dump->named->streams[rank].items[at];
	bool collective = instr->op == PP_OP_COLL;
	pp_trace_slice(trace, &(struct pp_trace_slice){.rank = rank,
	                                               .track = collective ? PP_TRACE_COLLECTIVE : PP_TRACE_COMPUTE,
	                                               .name = collective ? pp_collective_name[instr->sub]
	                                                                  : pp_op_table[instr->op].mnemonic,
	                                               .category = collective ? "collective" : "tail",
	                                               .start = dump->sim->instr[rank][at].start,
	                                               .end = dump->sim->instr[rank][at].end,
	                                               .stage = PP_NULL,
	                                               .mb = PP_NULL,
	                                               .bytes = collective ? pp_payload_bytes(instr) : 0});
}

static void trace_rank(const struct pp_dump *dump, struct pp_trace *trace, uint32_t rank, const uint64_t *bases)
{
	const struct pp_stream *stream = &dump->named->streams[rank];
	bool pair = false;
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		struct pp_interval interval = dump->sim->instr[rank][i];
		if (pp_is_compute(instr)) {
			trace_compute(dump, trace, rank, i, pair);
			pair = instr->flags & PP_PAIR;
		} else if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV)
			trace_message(dump, trace, rank, i, bases);
		else if (instr->op == PP_OP_COLL ||
		         (interval.end > interval.start && instr->op != PP_OP_WAIT && instr->op != PP_OP_WAITC))
			trace_other(dump, trace, rank, i);
	}
	struct pp_curve curve = pp_memory_curve(dump, rank, !dump->costless);
	for (size_t i = 0; i < curve.count; i++)
		pp_trace_counter(trace, rank, dump->costless ? "stashes" : "memory (bytes)", curve.at[i], curve.value[i]);
}

void pp_emit_trace(const struct pp_dump *dump)
{
	struct pp_trace trace;
	const uint64_t *bases = message_bases(dump);
	pp_trace_begin(&trace, dump->out, dump->program->ranks, NULL, NULL);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		if (dump->chosen[rank])
			trace_rank(dump, &trace, rank, bases);
	pp_trace_end(&trace);
}
