/* Measured times as a Chrome trace: each instruction is one slice, each message one arrow from its send to the wait
 * that took it. Requires: the streams that were run. */
#include "run_trace.h"

#include "ir/grid.h"
#include "ir/lifetime.h"

#include <inttypes.h>
#include <stdio.h>

static enum pp_trace_track track_of(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_SEND:
		return PP_TRACE_SEND;
	case PP_OP_RECV:
		return PP_TRACE_RECV;
	case PP_OP_WAIT:
		return program->channels[instr->a[0]].source == rank ? PP_TRACE_SEND : PP_TRACE_RECV;
	case PP_OP_COLL:
	case PP_OP_WAITC:
		return PP_TRACE_COLLECTIVE;
	case PP_OP_LOAD:
	case PP_OP_FWD:
	case PP_OP_REMAT:
	case PP_OP_BWD:
	case PP_OP_BWDI:
	case PP_OP_BWDW:
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		return PP_TRACE_COMPUTE;
	}
	return PP_TRACE_COMPUTE;
}

/* F B I W R for calls of bodies, else the mnemonic. */
static const char *category_of(const struct pp_instr *instr)
{
	return pp_is_compute(instr) ? pp_phase_name[pp_phase_of(instr)] : pp_op_table[instr->op].mnemonic;
}

static void name_slice(const struct pp_instr *instr, const char *category, char *name, size_t size,
                       struct pp_trace_slice *slice)
{
	bool call = pp_is_compute(instr);
	bool p2p = instr->op == PP_OP_SEND || instr->op == PP_OP_RECV;
	slice->stage = slice->mb = PP_NULL;
	if (call || p2p || instr->op == PP_OP_LOAD) {
		slice->stage = instr->stage;
		slice->mb = instr->mb;
		snprintf(name, size, "%s%s%" PRIu32 ".%" PRIu32, category, call ? "" : " ", instr->stage, instr->mb);
	} else if (instr->op == PP_OP_WAIT) {
		snprintf(name, size, "wait c%" PRIu32 " #%" PRIu32, instr->a[0], instr->a[1]);
	} else {
		snprintf(name, size, "%s", category);
	}
	if (p2p || instr->op == PP_OP_COLL)
		slice->bytes = pp_payload_bytes(instr);
}

static void write_arrow(struct pp_trace *trace, const struct pp_program *program, uint64_t step,
                        const struct pp_instr *instr, const struct pp_trace_slice *slice)
{
	struct pp_coord coord = pp_grid_coord(program, slice->rank);
	uint64_t copies = pp_grid_world(program) / program->ranks;
	uint64_t copy = (uint64_t)coord.dp * pp_grid_extent(program, PP_AXIS_TP) + coord.tp;
	uint64_t id = ((((step - 1) * copies + copy) * program->channel_count + instr->a[0]) << 24) + instr->a[1];
	if (instr->op == PP_OP_SEND)
		pp_trace_flow_start(trace, id, slice->rank, PP_TRACE_SEND, slice->start);
	else if (instr->op == PP_OP_WAIT && program->channels[instr->a[0]].destination == coord.pp)
		pp_trace_flow_end(trace, id, slice->rank, PP_TRACE_RECV,
		                  slice->end > slice->start ? slice->end - 1 : slice->start);
}

void pp_run_trace_step(struct pp_trace *trace, const struct pp_program *program, const struct pp_named_program *named,
                       uint64_t step, const uint64_t *times, uint64_t longest)
{
	for (uint32_t world = 0; world < pp_grid_world(program); world++) {
		uint32_t rank = pp_grid_coord(program, world).pp;
		const struct pp_stream *stream = &named->streams[rank];
		const uint64_t *of_rank = times + 2 * longest * world;
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (instr->op == PP_OP_MARK)
				continue;
			char name[64];
			struct pp_trace_slice slice = {.rank = world,
			                               .track = track_of(program, rank, instr),
			                               .name = name,
			                               .category = category_of(instr),
			                               .start = of_rank[2 * i],
			                               .end = of_rank[2 * i + 1]};
			name_slice(instr, slice.category, name, sizeof name, &slice);
			pp_trace_slice(trace, &slice);
			write_arrow(trace, program, step, instr, &slice);
		}
	}
}
