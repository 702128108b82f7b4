/* Hand-built programs for tests of the executor.
 *
 * Ensures: stages, channels, slots, streams and one all-rank group are consistent; the weights are absent, gradients
 * are reduced over all ranks chunk by chunk. */
#include "sample_program.h"

#include "ir/operands.h"

struct builder {
	struct pp_arena *arena;
	struct pp_program *program;
	const struct pp_sample *sample;
	/* by [stage * microbatches + mb] */
	uint32_t *in, *out, *dout, *din, *stash;
	uint32_t *seq; /* next seq, [channel * 2 + end] */
};

static uint32_t rank_of(const struct builder *b, uint32_t stage)
{
	return stage % b->sample->ranks;
}

static uint32_t add_slot(struct builder *b, uint32_t rank, enum pp_slot_class class, uint64_t bytes, uint32_t tensor)
{
	struct pp_rank *to = &b->program->rank[rank];
	to->slots = pp_arena_grow(b->arena, to->slots, to->slot_count, to->slot_count + 1, sizeof *to->slots);
	to->slots[to->slot_count] = (struct pp_slot){
	    .class = (uint8_t) class, .placed = true, .tensor = tensor, .bytes = bytes, .offset = to->arena_bytes};
	to->arena_bytes += (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
	return to->slot_count++;
}

static struct pp_instr *add_instr(struct builder *b, uint32_t rank, enum pp_op op, uint32_t stage, uint32_t mb)
{
	struct pp_stream *stream = &b->program->programs[0].streams[rank];
	stream->items = pp_arena_grow(b->arena, stream->items, stream->count, stream->count + 1, sizeof *stream->items);
	struct pp_instr *instr = &stream->items[stream->count++];
	*instr = pp_instr_blank(op);
	instr->stage = stage;
	instr->mb = mb;
	return instr;
}

static uint32_t find_channel(const struct builder *b, uint32_t source, uint32_t destination, enum pp_value kind)
{
	for (uint32_t i = 0; i < b->program->channel_count; i++) {
		const struct pp_channel *channel = &b->program->channels[i];
		if (channel->source == source && channel->destination == destination && channel->kind == kind)
			return i;
	}
	return PP_NULL;
}

static void post(struct builder *b, uint32_t rank, enum pp_op op, uint32_t channel, uint32_t stage, uint32_t mb,
                 uint32_t slot)
{
	struct pp_instr *instr = add_instr(b, rank, op, stage, mb);
	instr->a[0] = channel;
	instr->a[1] = b->seq[2 * channel + (op == PP_OP_RECV)]++;
	instr->a[2] = slot;
	instr->dtype = PP_F32;
	instr->count = b->sample->out_count;
}

static void wait_post(struct builder *b, uint32_t rank, uint32_t channel, uint32_t seq)
{
	struct pp_instr *instr = add_instr(b, rank, PP_OP_WAIT, 0, 0);
	instr->a[0] = channel;
	instr->a[1] = seq;
}

/* The channel on which (stage, kind) leaves, PP_NULL if it stays on the rank or there is none. */
static uint32_t leaves_on(const struct builder *b, uint32_t stage, enum pp_value kind)
{
	uint32_t last = b->program->stage_count - 1;
	if ((kind == PP_ACT && stage == last) || (kind == PP_GRAD && stage == 0))
		return PP_NULL;
	return find_channel(b, rank_of(b, stage), rank_of(b, kind == PP_ACT ? stage + 1 : stage - 1), kind);
}

static void make_channels(struct builder *b)
{
	uint32_t stages = b->program->stage_count;
	b->program->channels = pp_arena_alloc(b->arena, 2 * (size_t)stages, sizeof *b->program->channels);
	for (uint32_t s = 0; s + 1 < stages; s++)
		for (unsigned kind = 0; kind < PP_VALUE_COUNT; kind++) {
			uint32_t source = rank_of(b, kind == PP_ACT ? s : s + 1),
			         destination = rank_of(b, kind == PP_ACT ? s + 1 : s);
			if (source == destination)
				continue;
			uint32_t at = find_channel(b, source, destination, (enum pp_value)kind);
			if (at == PP_NULL) {
				at = b->program->channel_count++;
				b->program->channels[at] =
				    (struct pp_channel){.source = source, .destination = destination, .kind = (uint8_t)kind};
			}
			b->program->channels[at].messages += b->sample->microbatches;
			b->program->channels[at].depth += b->sample->microbatches;
		}
}

static void make_slots(struct builder *b)
{
	uint64_t bytes = (uint64_t)b->sample->out_count * sizeof(float);
	uint32_t m = b->sample->microbatches, stages = b->program->stage_count;
	for (uint32_t s = 0; s < stages; s++)
		for (uint32_t k = 0; k < m; k++) {
			uint32_t at = s * m + k, rank = rank_of(b, s);
			b->in[at] = s == 0                      ? PP_NULL
			            : rank_of(b, s - 1) == rank ? b->out[at - m]
			                                        : add_slot(b, rank, PP_SLOT_RECV, bytes, PP_NULL);
			b->out[at] = s + 1 == stages ? PP_NULL : add_slot(b, rank, PP_SLOT_OUT, bytes, PP_NULL);
			b->stash[at] = add_slot(b, rank, PP_SLOT_STASH, 64, PP_NULL);
		}
	for (uint32_t s = stages; s-- > 0;)
		for (uint32_t k = 0; k < m; k++) {
			uint32_t at = s * m + k, rank = rank_of(b, s);
			b->dout[at] = s + 1 == stages             ? PP_NULL
			              : rank_of(b, s + 1) == rank ? b->din[at + m]
			                                          : add_slot(b, rank, PP_SLOT_RECV, bytes, PP_NULL);
			b->din[at] = s == 0 ? PP_NULL : add_slot(b, rank, PP_SLOT_OUT, bytes, PP_NULL);
		}
}

/* All receives of a rank in the order in which its computes will consume them. */
static void post_receives(struct builder *b, uint32_t rank, enum pp_value kind)
{
	uint32_t stages = b->program->stage_count, m = b->sample->microbatches;
	for (uint32_t i = 0; i < stages; i++) {
		uint32_t s = kind == PP_ACT ? i : stages - 1 - i;
		if (rank_of(b, s) != rank || (kind == PP_ACT ? s == 0 : s == stages - 1))
			continue;
		uint32_t from = kind == PP_ACT ? s - 1 : s + 1, channel = leaves_on(b, from, kind);
		for (uint32_t k = 0; k < m && channel != PP_NULL; k++)
			post(b, rank, PP_OP_RECV, channel, from, k, kind == PP_ACT ? b->in[s * m + k] : b->dout[s * m + k]);
	}
}

static void forward(struct builder *b, uint32_t rank, uint32_t s, uint32_t k)
{
	uint32_t at = s * b->sample->microbatches + k, channel = leaves_on(b, s, PP_ACT);
	struct pp_instr *instr = add_instr(b, rank, PP_OP_FWD, s, k);
	instr->a[0] = b->in[at];
	instr->a[2] = b->out[at];
	instr->a[3] = b->stash[at];
	if (channel != PP_NULL)
		post(b, rank, PP_OP_SEND, channel, s, k, b->out[at]);
}

static void backward(struct builder *b, uint32_t rank, uint32_t s, uint32_t k)
{
	uint32_t at = s * b->sample->microbatches + k, channel = leaves_on(b, s, PP_GRAD);
	struct pp_instr *instr = add_instr(b, rank, b->sample->split ? PP_OP_BWDI : PP_OP_BWD, s, k);
	instr->a[1] = b->stash[at];
	instr->a[2] = b->dout[at];
	instr->a[3] = b->din[at];
	instr->flags = k == 0 && !b->sample->split ? PP_FIRST : 0;
	if (channel != PP_NULL)
		post(b, rank, PP_OP_SEND, channel, s, k, b->din[at]);
	if (b->sample->split) {
		instr = add_instr(b, rank, PP_OP_BWDW, s, k);
		instr->a[1] = b->stash[at];
		instr->flags = k == 0 ? PP_FIRST : 0;
	}
}

static void make_pass(struct builder *b, uint32_t rank, enum pp_value kind)
{
	uint32_t stages = b->program->stage_count, m = b->sample->microbatches;
	for (uint32_t i = 0; i < stages; i++) {
		uint32_t s = kind == PP_ACT ? i : stages - 1 - i;
		if (rank_of(b, s) != rank)
			continue;
		uint32_t from = kind == PP_ACT ? s - 1 : s + 1;
		bool ends = kind == PP_ACT ? s == 0 : s == stages - 1;
		uint32_t channel = ends ? PP_NULL : leaves_on(b, from, kind);
		for (uint32_t k = 0; k < m; k++) {
			/* Receives of a channel were posted in this very order: the n-th consumed is the n-th posted. */
			if (channel != PP_NULL) {
				uint32_t before = 0;
				const struct pp_stream *stream = &b->program->programs[0].streams[rank];
				for (uint32_t n = 0; n < stream->count; n++)
					before += stream->items[n].op == PP_OP_WAIT && stream->items[n].a[0] == channel;
				wait_post(b, rank, channel, before);
			}
			if (kind == PP_ACT)
				forward(b, rank, s, k);
			else
				backward(b, rank, s, k);
		}
	}
}

static void make_tail(struct builder *b, uint32_t rank)
{
	for (uint32_t i = 0; i < b->program->channel_count; i++)
		if (b->program->channels[i].source == rank)
			for (uint32_t q = 0; q < b->program->channels[i].messages; q++)
				wait_post(b, rank, i, q);
	for (uint32_t c = 0; c < b->sample->chunks && b->sample->grad_count; c++) {
		struct pp_instr *instr = add_instr(b, rank, PP_OP_COLL, 0, 0);
		instr->sub = PP_ALLREDUCE;
		instr->a[0] = c;
		instr->a[1] = 0;
		instr->a[2] = instr->a[3] = b->program->uses[c * b->sample->ranks + rank].grad;
		instr->dtype = PP_F32;
		instr->count = b->sample->grad_count;
	}
	for (uint32_t c = 0; c < b->sample->chunks && b->sample->grad_count; c++)
		add_instr(b, rank, PP_OP_WAITC, 0, 0)->a[0] = c;
}

/* The body of a phase that the program uses: it fills its output, as custom layers do. */
static uint32_t add_body(struct builder *b, uint32_t s, enum pp_phase phase)
{
	struct pp_program *program = b->program;
	bool forward = phase == PP_PHASE_F, writes = forward ? s + 1 < program->stage_count : s > 0 && phase != PP_PHASE_W;
	struct pp_body *body = &program->bodies[program->body_count];
	*body = (struct pp_body){.stage = s, .phase = (uint8_t)phase};
	if (writes && b->sample->out_count) {
		body->regs = PP_NEW(b->arena, struct pp_reg);
		body->regs[0] = (struct pp_reg){.name = "y",
		                                .base = forward ? PP_BASE_OUT : PP_BASE_DIN,
		                                .dtype = PP_F32,
		                                .type = PP_TYPE_R,
		                                .slot = PP_NULL,
		                                .rows = b->sample->out_count,
		                                .columns = 1};
		body->items = PP_NEW(b->arena, struct pp_body_instr);
		body->items[0].op = PP_BODY_FILL;
		for (unsigned i = 1; i < PP_BODY_OPERANDS_MAX; i++)
			body->items[0].operand[i] = PP_NULL;
		body->reg_count = body->count = 1;
	}
	return program->body_count++;
}

static void make_stages(struct builder *b)
{
	struct pp_program *program = b->program;
	uint32_t stages = program->stage_count;
	program->bodies = pp_arena_alloc(b->arena, (size_t)stages * PP_PHASE_COUNT, sizeof *program->bodies);
	program->uses = pp_arena_alloc(b->arena, stages, sizeof *program->uses);
	program->tensors = pp_arena_alloc(b->arena, stages, sizeof *program->tensors);
	for (uint32_t s = 0; s < stages; s++) {
		struct pp_stage *stage = &program->stages[s];
		*stage = (struct pp_stage){.rank = rank_of(b, s),
		                           .title = "custom",
		                           .out_count = s + 1 < stages ? b->sample->out_count : 0,
		                           .out_dtype = PP_F32};
		for (uint32_t phase = 0; phase < PP_PHASE_COUNT; phase++) {
			bool used = phase == PP_PHASE_F || (phase == PP_PHASE_B) == !b->sample->split;
			stage->body[phase] = used ? add_body(b, s, (enum pp_phase)phase) : PP_NULL;
		}
		if (!b->sample->grad_count)
			continue;
		program->tensors[s] = (struct pp_tensor){
		    .name = pp_arena_printf(b->arena, "t%u", s), .rows = b->sample->grad_count, .columns = 1, .dims = 1};
		uint64_t bytes = (uint64_t)b->sample->grad_count * sizeof(float);
		program->uses[s] = (struct pp_use){.tensor = s,
		                                   .stage = s,
		                                   .weight = add_slot(b, stage->rank, PP_SLOT_WEIGHT, bytes, s),
		                                   .grad = add_slot(b, stage->rank, PP_SLOT_GRAD, bytes, s)};
	}
	if (b->sample->grad_count)
		program->tensor_count = program->use_count = stages;
}

static void make_group(struct builder *b)
{
	struct pp_program *program = b->program;
	program->groups = pp_arena_alloc(b->arena, 1, sizeof *program->groups);
	program->group_count = 1;
	program->groups[0].axis = PP_AXIS_PP;
	program->groups[0].member_count = b->sample->ranks;
	program->groups[0].members = pp_arena_alloc(b->arena, b->sample->ranks, sizeof(uint32_t));
	for (uint32_t i = 0; i < b->sample->ranks; i++)
		program->groups[0].members[i] = i;
}

struct pp_program *pp_sample_program(struct pp_arena *arena, const struct pp_sample *sample)
{
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	struct builder b = {.arena = arena, .program = program, .sample = sample};
	program->arena = arena;
	program->ranks = sample->ranks;
	program->tp = program->dp = 1;
	program->vpp = sample->chunks;
	program->microbatches = sample->microbatches;
	program->stage_count = sample->ranks * sample->chunks;
	program->stages = pp_arena_alloc(arena, program->stage_count, sizeof *program->stages);
	program->rank = pp_arena_alloc(arena, sample->ranks, sizeof *program->rank);
	program->programs = pp_arena_alloc(arena, 1, sizeof *program->programs);
	program->program_count = 1;
	program->programs[0].name = "train";
	program->programs[0].streams = pp_arena_alloc(arena, sample->ranks, sizeof *program->programs[0].streams);
	program->schedule_name = "sample";
	size_t values = (size_t)program->stage_count * sample->microbatches;
	uint32_t **tables[] = {&b.in, &b.out, &b.dout, &b.din, &b.stash};
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		*tables[i] = pp_arena_alloc(arena, values, sizeof(uint32_t));
	make_channels(&b);
	b.seq = pp_arena_alloc(arena, 2 * (size_t)program->channel_count + 1, sizeof *b.seq);
	make_stages(&b);
	make_group(&b);
	make_slots(&b);
	for (uint32_t rank = 0; rank < sample->ranks; rank++) {
		post_receives(&b, rank, PP_ACT);
		post_receives(&b, rank, PP_GRAD);
		make_pass(&b, rank, PP_ACT);
		make_pass(&b, rank, PP_GRAD);
		make_tail(&b, rank);
	}
	return program;
}
