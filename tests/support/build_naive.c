/* Streams that people write by hand: posts in the order of the data, waits right behind them. */
#include "build_program.h"

enum { COUNT = 16 };

struct writer {
	struct pp_arena *arena;
	struct pp_program *program;
	uint32_t rank;
	size_t *capacity;
	uint32_t *sequence; /* [2 * channels]: next number at either end */
};

static void emit(struct writer *w, struct pp_instr instr)
{
	struct pp_stream *stream = &w->program->programs[0].streams[w->rank];
	size_t count = stream->count;
	*PP_PUSH(w->arena, &stream->items, &count, &w->capacity[w->rank], struct pp_instr) = instr;
	stream->count = (uint32_t)count;
}

static uint32_t channel_of(const struct pp_program *program, uint32_t source, uint32_t destination, enum pp_value kind)
{
	uint32_t c = 0;
	while (program->channels[c].source != source || program->channels[c].destination != destination ||
	       program->channels[c].kind != kind)
		c++;
	return c;
}

static uint32_t post(struct writer *w, enum pp_op op, uint32_t channel, uint32_t slot, uint32_t stage, uint32_t mb)
{
	uint32_t sequence = w->sequence[2 * channel + (op == PP_OP_RECV)]++;
	w->program->channels[channel].messages += op == PP_OP_SEND;
	emit(w, (struct pp_instr){.op = (uint8_t)op,
	                          .dtype = PP_F32,
	                          .stage = stage,
	                          .mb = mb,
	                          .count = COUNT,
	                          .a = {channel, sequence, slot, PP_NULL}});
	return sequence;
}

static void wait(struct writer *w, uint32_t channel, uint32_t sequence)
{
	emit(w, (struct pp_instr){.op = PP_OP_WAIT, .a = {channel, sequence}});
}

/* Channels both ways between neighbours; slots: in, out, din, dout, then one stash per microbatch. */
static struct writer begin(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches)
{
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	*program = (struct pp_program){.arena = arena,
	                               .ranks = ranks,
	                               .tp = 1,
	                               .dp = 1,
	                               .vpp = 1,
	                               .stage_count = ranks,
	                               .microbatches = microbatches,
	                               .program_count = 1};
	program->rank = PP_NEW_ARRAY(arena, struct pp_rank, ranks);
	program->stages = PP_NEW_ARRAY(arena, struct pp_stage, ranks);
	program->channels = PP_NEW_ARRAY(arena, struct pp_channel, 2 * (size_t)ranks);
	program->programs = PP_NEW(arena, struct pp_named_program);
	program->programs[0] =
	    (struct pp_named_program){.name = "train", .streams = PP_NEW_ARRAY(arena, struct pp_stream, ranks)};
	for (uint32_t r = 0; r < ranks; r++) {
		program->stages[r] = (struct pp_stage){.rank = r,
		                                       .title = "stage",
		                                       .out_count = r + 1 < ranks ? COUNT : 0,
		                                       .body = {PP_NULL, PP_NULL, PP_NULL, PP_NULL, PP_NULL}};
		struct pp_rank *memory = &program->rank[r];
		memory->slot_count = 4 + microbatches;
		memory->slots = PP_NEW_ARRAY(arena, struct pp_slot, memory->slot_count);
		for (uint32_t i = 0; i < memory->slot_count; i++)
			memory->slots[i] = (struct pp_slot){.class = i == 0 || i == 3 ? PP_SLOT_RECV
			                                             : i < 3          ? PP_SLOT_OUT
			                                                              : PP_SLOT_STASH,
			                                    .tensor = PP_NULL,
			                                    .bytes = 4 * COUNT};
		if (r + 1 == ranks)
			continue;
		program->channels[program->channel_count++] =
		    (struct pp_channel){.source = r, .destination = r + 1, .kind = PP_ACT, .depth = 1};
		program->channels[program->channel_count++] =
		    (struct pp_channel){.source = r + 1, .destination = r, .kind = PP_GRAD, .depth = 1};
	}
	return (struct writer){.arena = arena,
	                       .program = program,
	                       .capacity = PP_NEW_ARRAY(arena, size_t, ranks),
	                       .sequence = PP_NEW_ARRAY(arena, uint32_t, 4 * (size_t)ranks)};
}

static void step(struct writer *w, const struct pp_action *action, bool first_backward)
{
	const struct pp_program *program = w->program;
	uint32_t r = w->rank, m = action->mb, last = program->ranks - 1;
	bool forward = action->kind == PP_F, receives = forward ? r > 0 : r < last, sends = forward ? r < last : r > 0;
	uint32_t from = forward ? r - 1 : r + 1, to = forward ? r + 1 : r - 1, in = forward ? 0 : 3, out = forward ? 1 : 2;
	enum pp_value kind = forward ? PP_ACT : PP_GRAD;
	if (receives) {
		uint32_t channel = channel_of(program, from, r, kind);
		wait(w, channel, post(w, PP_OP_RECV, channel, in, from, m));
	}
	uint32_t read = receives ? in : PP_NULL, written = sends ? out : PP_NULL;
	struct pp_instr compute = {.op = forward ? PP_OP_FWD : PP_OP_BWD,
	                           .flags = first_backward ? PP_FIRST : 0,
	                           .stage = r,
	                           .mb = m,
	                           .a = {forward ? read : PP_NULL, forward ? PP_NULL : 4 + m, forward ? written : read,
	                                 forward ? 4 + m : written}};
	if (!forward)
		compute.extra = PP_NULL;
	emit(w, compute);
	if (sends) {
		uint32_t channel = channel_of(program, r, to, kind);
		wait(w, channel, post(w, PP_OP_SEND, channel, out, r, m));
	}
}

struct pp_program *build_naive(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	struct writer w = begin(arena, schedule->ranks, schedule->microbatches);
	for (w.rank = 0; w.rank < schedule->ranks; w.rank++) {
		bool first = true;
		for (uint32_t i = 0; i < schedule->rows[w.rank].count; i++) {
			const struct pp_action *action = &schedule->rows[w.rank].actions[i];
			step(&w, action, action->kind == PP_B && first);
			first &= action->kind != PP_B;
		}
	}
	return w.program;
}

struct pp_program *build_exchange(struct pp_arena *arena, uint32_t ranks, enum build_exchange how)
{
	struct writer w = begin(arena, ranks, 1);
	for (w.rank = 0; w.rank < ranks; w.rank++) {
		uint32_t r = w.rank, posted = 0, channels[4], sequences[4];
		for (int i = 0; i < 4; i++) {
			bool previous = i < 2, sends = (i % 2 == 0) != (how == BUILD_PARITY && r % 2);
			if (previous ? r == 0 : r + 1 == ranks)
				continue;
			uint32_t other = previous ? r - 1 : r + 1, source = sends ? r : other, destination = sends ? other : r;
			uint32_t channel = channels[posted] =
			    channel_of(w.program, source, destination, source < destination ? PP_ACT : PP_GRAD);
			sequences[posted] = post(&w, sends ? PP_OP_SEND : PP_OP_RECV, channel, (uint32_t)i, source, 0);
			if (how != BUILD_GROUPED)
				wait(&w, channel, sequences[posted]);
			posted++;
		}
		for (uint32_t i = 0; how == BUILD_GROUPED && i < posted; i++)
			wait(&w, channels[i], sequences[i]);
	}
	return w.program;
}
