/* The instructions that the orders of a lowering put into streams: computes with their loads, both ends of transfers,
 * waits.
 *
 * requires: the graph of lower_graph.c.
 * ensures:  lowering.h; streams grow in the program's arena. */
#include "lowering.h"

#include "ir/operands.h"

#include <assert.h>

void pp_lowering_emit(struct pp_lowering *lowering, uint32_t rank, const struct pp_instr *instr, uint32_t order)
{
	struct pp_stream *stream = &lowering->named->streams[rank];
	uint32_t *capacity = &lowering->stream_capacity[rank];
	if (stream->count == *capacity) {
		struct pp_arena *arena = lowering->program->arena;
		uint32_t wanted = *capacity ? *capacity + *capacity / 8 + 64 : lowering->stream_length[rank] + 64;
		stream->items = pp_arena_grow(arena, stream->items, *capacity, wanted, sizeof *stream->items);
		stream->order = pp_arena_grow(arena, stream->order, *capacity, wanted, sizeof *stream->order);
		*capacity = wanted;
	}
	stream->order[stream->count] = order;
	stream->items[stream->count++] = *instr;
}

void pp_lowering_emit_wait(struct pp_lowering *lowering, uint32_t rank, uint32_t transfer)
{
	uint32_t channel = lowering->transfers[transfer].channel;
	uint32_t sequence = transfer - lowering->channel_base[channel];
	pp_lowering_emit(lowering, rank, &(struct pp_instr){.op = PP_OP_WAIT, .a = {channel, sequence}}, PP_NULL);
}

static void emit_load(struct pp_lowering *lowering, const struct pp_compute *compute)
{
	const struct pp_stage *stage = &lowering->program->stages[compute->stage];
	enum pp_load kind = !stage->loads_labels ? PP_LOAD_TOKENS : !stage->loads_tokens ? PP_LOAD_LABELS : PP_LOAD_BOTH;
	struct pp_instr instr = {
	    .op = PP_OP_LOAD, .sub = (uint8_t)kind, .stage = compute->stage, .mb = compute->mb, .a = {compute->aux}};
	pp_lowering_emit(lowering, compute->rank, &instr, PP_NULL);
}

static struct pp_instr compute_instr(const struct pp_compute *compute)
{
	static const uint8_t ops[PP_PHASE_COUNT] = {[PP_PHASE_F] = PP_OP_FWD,
	                                            [PP_PHASE_B] = PP_OP_BWD,
	                                            [PP_PHASE_I] = PP_OP_BWDI,
	                                            [PP_PHASE_W] = PP_OP_BWDW,
	                                            [PP_PHASE_R] = PP_OP_REMAT};
	struct pp_instr instr = pp_instr_blank((enum pp_op)ops[compute->kind]);
	instr.flags = compute->flags;
	instr.stage = compute->stage;
	instr.mb = compute->mb;
	switch ((enum pp_phase)compute->kind) {
	case PP_PHASE_F:
		instr.a[0] = compute->in;
		instr.a[1] = compute->aux;
		instr.a[2] = compute->out;
		instr.a[3] = compute->stash;
		return instr;
	case PP_PHASE_R:
		instr.a[0] = compute->stash;
		instr.extra = compute->extra;
		return instr;
	case PP_PHASE_B:
	case PP_PHASE_I:
		instr.extra = compute->extra;
		instr.a[0] = compute->aux;
		instr.a[1] = compute->stash;
		instr.a[2] = compute->in;
		instr.a[3] = compute->out;
		return instr;
	case PP_PHASE_W:
		instr.extra = compute->extra;
		instr.a[0] = compute->aux;
		instr.a[1] = compute->stash;
		return instr;
	case PP_PHASE_COUNT:
		break;
	}
	assert(compute->kind < PP_PHASE_COUNT);
	return instr;
}

void pp_lowering_emit_compute(struct pp_lowering *lowering, uint32_t id)
{
	const struct pp_compute *compute = &lowering->computes[id];
	if (compute->kind == PP_F && compute->aux != PP_NULL)
		emit_load(lowering, compute);
	struct pp_instr instr = compute_instr(compute);
	pp_lowering_emit(lowering, compute->rank, &instr, PP_NULL);
}

void pp_lowering_emit_post(struct pp_lowering *lowering, uint32_t id, bool receives, uint32_t order)
{
	const struct pp_transfer *transfer = &lowering->transfers[id];
	const struct pp_channel *channel = &lowering->program->channels[transfer->channel];
	const struct pp_compute *producer = &lowering->computes[transfer->producer];
	const struct pp_compute *consumer = &lowering->computes[transfer->consumer];
	const struct pp_stage *shape =
	    &lowering->program->stages[channel->kind == PP_ACT ? producer->stage : consumer->stage];
	struct pp_instr post = {.op = receives ? PP_OP_RECV : PP_OP_SEND,
	                        .dtype = shape->out_dtype,
	                        .stage = producer->stage,
	                        .mb = producer->mb,
	                        .a = {transfer->channel, id - lowering->channel_base[transfer->channel],
	                              receives ? consumer->in : producer->out},
	                        .count = shape->out_count};
	pp_lowering_emit(lowering, receives ? channel->destination : channel->source, &post, order);
}
