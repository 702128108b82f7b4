/* A small lowering for tests: computes in a topological order, transfers as soon as they may enter, everything in the
 * order of that one sequence. */
#include "build_program.h"

#include <assert.h>
#include <string.h>

struct free_slot {
	uint32_t slot;
	uint32_t channel, sequence; /* wait still owed; channel PP_NULL: none */
};

struct channel_list {
	uint32_t *producer, *consumer; /* computes, in consumption order */
	uint32_t count, entered;
	uint32_t ring[64];
};

struct compute {
	uint32_t rank, channel, sequence; /* of its input transfer; channel PP_NULL: none */
	uint32_t out_channel, out_sequence;
	uint32_t in, out, aux, stash, extra;
	struct pp_action action;
	uint32_t producer; /* of its boundary input, PP_NULL: none */
	bool done;
};

struct builder {
	struct pp_arena *arena;
	const struct pp_schedule *schedule;
	const struct build_options *options;
	struct pp_program *program;
	struct compute *computes;
	uint32_t *first; /* [ranks + 1] */
	uint32_t *next;  /* [ranks] */
	struct channel_list *lists;
	size_t *stream_capacity, *slot_capacity;
	struct free_slot **outs;
	size_t *out_count, *out_capacity, *out_head;
	uint32_t **pool[PP_SLOT_CLASS_COUNT]; /* per rank: free slots of stash, aux and extra */
	size_t *pool_count[PP_SLOT_CLASS_COUNT], *pool_capacity[PP_SLOT_CLASS_COUNT];
	uint32_t *forward_of;      /* [stages * mbs]: compute of F */
	uint32_t weights_of[1024]; /* per stage: weight gradients emitted */
	uint32_t depth, next_collective;
};

static struct pp_instr *emit(struct builder *b, uint32_t rank, struct pp_instr instr)
{
	struct pp_stream *stream = &b->program->programs[0].streams[rank];
	size_t count = stream->count;
	struct pp_instr *place = PP_PUSH(b->arena, &stream->items, &count, &b->stream_capacity[rank], struct pp_instr);
	stream->count = (uint32_t)count;
	*place = instr;
	return place;
}

static uint32_t new_slot(struct builder *b, uint32_t rank, enum pp_slot_class class, uint32_t tensor, uint64_t bytes)
{
	struct pp_rank *memory = &b->program->rank[rank];
	size_t count = memory->slot_count;
	*PP_PUSH(b->arena, &memory->slots, &count, &b->slot_capacity[rank], struct pp_slot) =
	    (struct pp_slot){.class = (uint8_t) class, .tensor = tensor, .bytes = bytes};
	memory->slot_count = (uint32_t)count;
	return memory->slot_count - 1;
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum { OUT_COUNT = 64, STASH_BYTES = 512, AUX_BYTES = 256, EXTRA_BYTES = 384, SIDE = 4 };

static void build_stages(struct builder *b)
{
	struct pp_program *program = b->program;
	static const uint64_t usual[PP_PHASE_COUNT] = {100, 200, 100, 100, 100};
	bool given = b->options->ticks[0] || b->options->ticks[1] || b->options->ticks[2] || b->options->ticks[3];
	program->stages = PP_NEW_ARRAY(b->arena, struct pp_stage, program->stage_count);
	for (uint32_t s = 0; s < program->stage_count; s++) {
		struct pp_stage *stage = &program->stages[s];
		bool last = s + 1 == program->stage_count;
		*stage = (struct pp_stage){.rank = b->schedule->stage_rank[s],
		                           .title = "stage",
		                           .first_layer = s,
		                           .layer_count = 1,
		                           .out_count = last ? 0 : OUT_COUNT,
		                           .loads_tokens = s == 0,
		                           .loads_labels = last,
		                           .recomputes = b->options->recompute >> s % 32 & 1,
		                           .extra_bytes =
		                               (b->options->recompute | b->options->extra) >> s % 32 & 1 ? EXTRA_BYTES : 0,
		                           .stash_bytes = STASH_BYTES,
		                           .aux_bytes = AUX_BYTES};
		for (int phase = 0; phase < PP_PHASE_COUNT; phase++) {
			stage->body[phase] = PP_NULL;
			stage->ticks[phase] = given ? b->options->ticks[phase] : usual[phase];
		}
	}
}

/* A slot as long as what it holds. */
static uint32_t content_slot(struct builder *b, uint32_t rank, enum pp_slot_class class, uint32_t tensor)
{
	uint64_t bytes = 0;
	pp_slot_content_bytes(b->program, &(struct pp_slot){.class = (uint8_t) class, .tensor = tensor}, &bytes);
	return new_slot(b, rank, class, tensor, bytes);
}

/* Tensor 0 is used by the first and the last stage; tensor 1 + s by stage s. */
static void build_tensors(struct builder *b)
{
	struct pp_program *program = b->program;
	uint32_t stages = program->stage_count;
	program->tensor_count = stages + 1;
	program->tensors = PP_NEW_ARRAY(b->arena, struct pp_tensor, program->tensor_count);
	program->uses = PP_NEW_ARRAY(b->arena, struct pp_use, (size_t)stages + 2);
	for (uint32_t t = 0; t < program->tensor_count; t++) {
		program->tensors[t] =
		    (struct pp_tensor){.name = pp_arena_printf(b->arena, t ? "stage.%u.weight" : "emb.weight", t - 1),
		                       .rows = SIDE,
		                       .columns = SIDE,
		                       .dims = 2,
		                       .dtype = b->options->half ? PP_BF16 : PP_F32,
		                       .init = PP_INIT_NORMAL,
		                       .tp_grad = (uint8_t)(t % PP_TP_GRAD_COUNT),
		                       .shard = t % PP_TP_GRAD_COUNT == PP_TP_SHARDED ? 0 : 255,
		                       .decay = t > 0,
		                       .std = 0.02};
		for (uint32_t i = 0; i < (t == 0 && stages > 1 ? 2 : 1); i++)
			program->uses[program->use_count++] = (struct pp_use){.tensor = t, .stage = t ? t - 1 : i ? stages - 1 : 0};
	}
	for (uint32_t u = 0; u < program->use_count; u++) {
		struct pp_use *use = &program->uses[u];
		uint32_t rank = program->stages[use->stage].rank;
		use->weight = PP_NULL;
		for (uint32_t e = 0; e < u; e++)
			if (program->uses[e].tensor == use->tensor && program->stages[program->uses[e].stage].rank == rank)
				use->weight = program->uses[e].weight;
		if (use->weight == PP_NULL) {
			use->weight = content_slot(b, rank, PP_SLOT_WEIGHT, use->tensor);
			content_slot(b, rank, PP_SLOT_MOMENT, use->tensor);
			content_slot(b, rank, PP_SLOT_MOMENT, use->tensor);
			if (pp_tensor_has_master(&program->tensors[use->tensor]))
				content_slot(b, rank, PP_SLOT_MASTER, use->tensor);
		}
		use->grad = content_slot(b, rank, PP_SLOT_GRAD, use->tensor);
	}
	for (uint32_t r = 0; r < program->ranks; r++) {
		emit(b, r,
		     (struct pp_instr){.op = PP_OP_ZERO,
		                       .a = {new_slot(b, r, PP_SLOT_LOSSES, PP_NULL, 16ul * program->microbatches)}});
		emit(b, r,
		     (struct pp_instr){.op = PP_OP_ZERO,
		                       .a = {new_slot(b, r, PP_SLOT_NORMS, PP_NULL, 8ul * program->tensor_count)}});
		new_slot(b, r, PP_SLOT_SCALE, PP_NULL, 32);
	}
}

static uint32_t slot_of_class(const struct builder *b, uint32_t rank, enum pp_slot_class class, uint32_t tensor,
                              uint32_t skip)
{
	const struct pp_rank *memory = &b->program->rank[rank];
	for (uint32_t i = 0; i < memory->slot_count; i++)
		if (memory->slots[i].class == class && (tensor == PP_NULL || memory->slots[i].tensor == tensor) && skip-- == 0)
			return i;
	return PP_NULL;
}

/* ---- channels -------------------------------------------------------------------------------- */

static uint32_t channel_between(struct builder *b, uint32_t source, uint32_t destination, enum pp_value kind)
{
	struct pp_program *program = b->program;
	for (uint32_t c = 0; c < program->channel_count; c++)
		if (program->channels[c].source == source && program->channels[c].destination == destination &&
		    program->channels[c].kind == kind)
			return c;
	struct channel_list *list = &b->lists[program->channel_count];
	program->channels[program->channel_count] = (struct pp_channel){.source = source,
	                                                                .destination = destination,
	                                                                .kind = (uint8_t)kind,
	                                                                .depth = b->depth,
	                                                                .latency = b->options->latency};
	list->producer = PP_NEW_ARRAY(b->arena, uint32_t, (size_t)program->stage_count * program->microbatches);
	list->consumer = PP_NEW_ARRAY(b->arena, uint32_t, (size_t)program->stage_count * program->microbatches);
	for (uint32_t i = 0; i < b->depth; i++)
		list->ring[i] = new_slot(b, destination, PP_SLOT_RECV, PP_NULL, OUT_COUNT * 4);
	return program->channel_count++;
}

static void list_computes(struct builder *b)
{
	const struct pp_schedule *schedule = b->schedule;
	uint32_t n = 0, m = schedule->microbatches,
	         *backward_of = PP_NEW_ARRAY(b->arena, uint32_t, (size_t)schedule->stages * m);
	for (uint32_t r = 0; r < schedule->ranks; r++)
		n += schedule->rows[r].count;
	b->computes = PP_NEW_ARRAY(b->arena, struct compute, n);
	b->first = PP_NEW_ARRAY(b->arena, uint32_t, (size_t)schedule->ranks + 1);
	b->next = PP_NEW_ARRAY(b->arena, uint32_t, schedule->ranks);
	b->forward_of = PP_NEW_ARRAY(b->arena, uint32_t, (size_t)schedule->stages * m);
	uint32_t at = 0;
	for (uint32_t r = 0; r < schedule->ranks; r++) {
		b->first[r] = b->next[r] = at;
		for (uint32_t i = 0; i < schedule->rows[r].count; i++, at++) {
			const struct pp_action *action = &schedule->rows[r].actions[i];
			b->computes[at] = (struct compute){.rank = r,
			                                   .action = *action,
			                                   .channel = PP_NULL,
			                                   .out_channel = PP_NULL,
			                                   .in = PP_NULL,
			                                   .out = PP_NULL,
			                                   .aux = PP_NULL,
			                                   .stash = PP_NULL,
			                                   .producer = PP_NULL};
			if (action->kind != PP_W)
				(action->kind == PP_F ? b->forward_of : backward_of)[action->stage * m + action->mb] = at;
		}
	}
	b->first[schedule->ranks] = at;
	for (uint32_t i = 0; i < at; i++) {
		struct compute *c = &b->computes[i];
		uint32_t s = c->action.stage;
		bool forward = c->action.kind == PP_F;
		if (c->action.kind == PP_W || (forward ? s == 0 : s + 1 == schedule->stages))
			continue;
		c->producer = forward ? b->forward_of[(s - 1) * m + c->action.mb] : backward_of[(s + 1) * m + c->action.mb];
		struct compute *producer = &b->computes[c->producer];
		if (producer->rank == c->rank)
			continue;
		c->channel = producer->out_channel = channel_between(b, producer->rank, c->rank, forward ? PP_ACT : PP_GRAD);
		struct channel_list *list = &b->lists[c->channel];
		c->sequence = producer->out_sequence = list->count;
		list->producer[list->count] = c->producer;
		list->consumer[list->count++] = i;
	}
}

/* ---- slots ----------------------------------------------------------------------------------- */

static uint32_t take_out(struct builder *b, uint32_t rank)
{
	if (b->out_head[rank] == b->out_count[rank])
		return new_slot(b, rank, PP_SLOT_OUT, PP_NULL, OUT_COUNT * 4);
	struct free_slot got = b->outs[rank][b->out_head[rank]++];
	if (got.channel != PP_NULL)
		emit(b, rank, (struct pp_instr){.op = PP_OP_WAIT, .a = {got.channel, got.sequence}});
	return got.slot;
}

static void free_out(struct builder *b, uint32_t rank, uint32_t slot, uint32_t channel, uint32_t sequence)
{
	*PP_PUSH(b->arena, &b->outs[rank], &b->out_count[rank], &b->out_capacity[rank], struct free_slot) =
	    (struct free_slot){slot, channel, sequence};
}

static uint32_t take_pool(struct builder *b, uint32_t rank, enum pp_slot_class class)
{
	static const uint64_t bytes[PP_SLOT_CLASS_COUNT] = {
	    [PP_SLOT_STASH] = STASH_BYTES, [PP_SLOT_AUX] = AUX_BYTES, [PP_SLOT_EXTRA] = EXTRA_BYTES};
	size_t *count = &b->pool_count[class][rank];
	return *count ? b->pool[class][rank][--*count] : new_slot(b, rank, class, PP_NULL, bytes[class]);
}

static void free_pool(struct builder *b, uint32_t rank, enum pp_slot_class class, uint32_t slot)
{
	if (slot != PP_NULL)
		*PP_PUSH(b->arena, &b->pool[class][rank], &b->pool_count[class][rank], &b->pool_capacity[class][rank],
		         uint32_t) = slot;
}

/* ---- emission -------------------------------------------------------------------------------- */

static bool input_ready(const struct builder *b, const struct compute *c)
{
	if (c->channel != PP_NULL)
		return b->lists[c->channel].entered > c->sequence;
	return c->producer == PP_NULL || b->computes[c->producer].done;
}

/* Before B or I: the slot extra where the stage wants it, and what fills it. */
static void take_extra(struct builder *b, const struct compute *c, struct compute *forward)
{
	const struct pp_stage *stage = &b->program->stages[c->action.stage];
	forward->extra = PP_NULL;
	if (!stage->recomputes && (!stage->extra_bytes || c->action.kind == PP_B))
		return;
	forward->extra = take_pool(b, c->rank, PP_SLOT_EXTRA);
	if (stage->recomputes)
		emit(b, c->rank,
		     (struct pp_instr){.op = PP_OP_REMAT,
		                       .stage = c->action.stage,
		                       .mb = c->action.mb,
		                       .a = {forward->stash, PP_NULL, PP_NULL, PP_NULL},
		                       .extra = forward->extra});
}

static void emit_compute(struct builder *b, struct compute *c)
{
	const struct pp_program *program = b->program;
	uint32_t s = c->action.stage, m = c->action.mb, r = c->rank;
	bool forward = c->action.kind == PP_F, loads = program->stages[s].loads_tokens || program->stages[s].loads_labels;
	if (c->channel != PP_NULL) {
		emit(b, r, (struct pp_instr){.op = PP_OP_WAIT, .a = {c->channel, c->sequence}});
		c->in = b->lists[c->channel].ring[c->sequence % b->depth];
	} else if (c->producer != PP_NULL) {
		c->in = b->computes[c->producer].out;
	}
	if (forward ? s + 1 < program->stage_count : s > 0 && c->action.kind != PP_W)
		c->out = take_out(b, r);
	struct compute *f = &b->computes[b->forward_of[s * program->microbatches + m]];
	if (forward) {
		f->stash = take_pool(b, r, PP_SLOT_STASH);
		if (loads) {
			f->aux = take_pool(b, r, PP_SLOT_AUX);
			uint8_t kind = !program->stages[s].loads_tokens  ? PP_LOAD_LABELS
			               : program->stages[s].loads_labels ? PP_LOAD_BOTH
			                                                 : PP_LOAD_TOKENS;
			emit(b, r,
			     (struct pp_instr){
			         .op = PP_OP_LOAD, .sub = kind, .stage = s, .mb = m, .a = {f->aux, PP_NULL, PP_NULL, PP_NULL}});
		}
		emit(b, r, (struct pp_instr){.op = PP_OP_FWD, .stage = s, .mb = m, .a = {c->in, f->aux, c->out, f->stash}});
		return;
	}
	static const uint8_t op[] = {PP_OP_FWD, PP_OP_BWD, PP_OP_BWDI, PP_OP_BWDW};
	bool weights = c->action.kind != PP_I;
	if (c->action.kind != PP_W)
		take_extra(b, c, f);
	struct pp_instr instr = {
	    .op = op[c->action.kind], .stage = s, .mb = m, .a = {f->aux, f->stash, c->in, c->out}, .extra = f->extra};
	if (c->action.kind == PP_W)
		instr.a[2] = instr.a[3] = PP_NULL;
	if (weights && b->weights_of[s]++ == 0)
		instr.flags = PP_FIRST;
	emit(b, r, instr);
	if (weights) {
		free_pool(b, r, PP_SLOT_STASH, f->stash);
		free_pool(b, r, PP_SLOT_AUX, f->aux);
		free_pool(b, r, PP_SLOT_EXTRA, f->extra);
	}
}

static void enter_transfers(struct builder *b, uint32_t channel)
{
	struct channel_list *list = &b->lists[channel];
	const struct pp_channel *c = &b->program->channels[channel];
	for (; list->entered < list->count; list->entered++) {
		uint32_t j = list->entered;
		const struct compute *producer = &b->computes[list->producer[j]];
		if (!producer->done || (j >= b->depth && !b->computes[list->consumer[j - b->depth]].done))
			return;
		struct pp_instr post = {.op = PP_OP_SEND,
		                        .dtype = PP_F32,
		                        .stage = producer->action.stage,
		                        .mb = producer->action.mb,
		                        .count = OUT_COUNT,
		                        .a = {channel, j, producer->out, PP_NULL}};
		emit(b, c->source, post);
		free_out(b, c->source, producer->out, channel, j);
		post.op = PP_OP_RECV;
		post.a[2] = list->ring[j % b->depth];
		emit(b, c->destination, post);
	}
}

static bool run_next(struct builder *b, uint32_t rank)
{
	if (b->next[rank] == b->first[rank + 1])
		return false;
	struct compute *c = &b->computes[b->next[rank]];
	if (!input_ready(b, c))
		return false;
	emit_compute(b, c);
	c->done = true;
	b->next[rank]++;
	if (c->channel != PP_NULL)
		enter_transfers(b, c->channel);
	else if (c->producer != PP_NULL)
		free_out(b, rank, c->in, PP_NULL, 0);
	if (c->out_channel != PP_NULL)
		enter_transfers(b, c->out_channel);
	return true;
}

/* ---- tail ------------------------------------------------------------------------------------ */

static void emit_collective(struct builder *b, uint32_t rank, struct pp_instr instr, uint32_t slot)
{
	instr.op = PP_OP_COLL;
	instr.a[0] = b->next_collective;
	instr.a[2] = instr.a[3] = slot;
	emit(b, rank, instr);
	emit(b, rank, (struct pp_instr){.op = PP_OP_WAITC, .a = {b->next_collective}});
}

static uint32_t add_group(struct builder *b, enum pp_axis axis, const uint32_t *members, uint32_t count)
{
	struct pp_group *group = &b->program->groups[b->program->group_count];
	*group = (struct pp_group){.axis = (uint8_t)axis, .member_count = count, .latency = b->options->latency};
	group->members = PP_NEW_ARRAY(b->arena, uint32_t, count);
	for (uint32_t i = 0; i < count; i++)
		group->members[i] = members[i];
	return b->program->group_count++;
}

/* Whole gradients: they are summed over tp and dp later. */
static void sum_tied(struct builder *b)
{
	const struct pp_program *program = b->program;
	const struct pp_use *first = &program->uses[0], *second = &program->uses[1];
	if (program->stage_count == 1)
		return;
	uint32_t r = program->stages[first->stage].rank, q = program->stages[second->stage].rank;
	if (r == q) {
		emit(b, r, (struct pp_instr){.op = PP_OP_ADD, .a = {first->grad, second->grad}});
		return;
	}
	uint32_t members[] = {r < q ? r : q, r < q ? q : r}, group = add_group(b, PP_AXIS_PP, members, 2);
	struct pp_instr sum = {.count = (uint32_t)pp_local_elements(program, 0), .a = {0, group}};
	emit_collective(b, r, sum, first->grad);
	emit_collective(b, q, sum, second->grad);
	b->next_collective++;
}

static void sum_all(struct builder *b, uint32_t group, enum pp_slot_class class, uint32_t count)
{
	for (uint32_t r = 0; r < b->program->ranks && group != PP_NULL; r++)
		emit_collective(b, r, (struct pp_instr){.dtype = PP_F64, .count = count, .a = {0, group}},
		                slot_of_class(b, r, class, PP_NULL, 0));
	b->next_collective++;
}

/* Whether a use is the first of its tensor on its rank: the others have added to its gradient. */
static bool first_on_rank(const struct builder *b, uint32_t use)
{
	const struct pp_use *uses = b->program->uses;
	for (uint32_t u = 0; u < use; u++)
		if (uses[u].tensor == uses[use].tensor &&
		    b->program->stages[uses[u].stage].rank == b->program->stages[uses[use].stage].rank)
			return false;
	return true;
}

/* One collective for every tensor on every rank. */
static void each_tensor(struct builder *b, uint32_t group, enum pp_collective kind, bool partial_only)
{
	const struct pp_program *program = b->program;
	for (uint32_t u = 0; u < program->use_count && group != PP_NULL; u++) {
		const struct pp_use *use = &program->uses[u];
		if (!first_on_rank(b, u) || (partial_only && program->tensors[use->tensor].tp_grad != PP_TP_REPLICATED_PARTIAL))
			continue;
		uint64_t count =
		    kind == PP_ALLREDUCE ? pp_local_elements(program, use->tensor) : pp_shard_elements(program, use->tensor);
		emit_collective(b, program->stages[use->stage].rank,
		                (struct pp_instr){.sub = (uint8_t)kind,
		                                  .dtype = kind == PP_ALLGATHER ? program->tensors[use->tensor].dtype : PP_F32,
		                                  .count = (uint32_t)count,
		                                  .a = {0, group}},
		                kind == PP_ALLGATHER ? use->weight : use->grad);
		b->next_collective++;
	}
}

static void emit_updates(struct builder *b, uint8_t flags)
{
	const struct pp_program *program = b->program;
	for (uint32_t r = 0; r < program->ranks; r++)
		emit(b, r,
		     (struct pp_instr){.op = PP_OP_CLIP,
		                       .a = {slot_of_class(b, r, PP_SLOT_LOSSES, PP_NULL, 0),
		                             slot_of_class(b, r, PP_SLOT_NORMS, PP_NULL, 0),
		                             slot_of_class(b, r, PP_SLOT_SCALE, PP_NULL, 0)}});
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_use *use = &program->uses[u];
		uint32_t r = program->stages[use->stage].rank;
		if (!first_on_rank(b, u))
			continue;
		emit(b, r,
		     (struct pp_instr){.op = PP_OP_OPT,
		                       .sub = PP_ADAMW,
		                       .flags = flags,
		                       .mb = program->tensors[use->tensor].decay ? 0 : 1,
		                       .a = {use->weight, use->grad, slot_of_class(b, r, PP_SLOT_MOMENT, use->tensor, 0),
		                             slot_of_class(b, r, PP_SLOT_MOMENT, use->tensor, 1)},
		                       .extra = pp_tensor_has_master(&program->tensors[use->tensor])
		                                    ? slot_of_class(b, r, PP_SLOT_MASTER, use->tensor, 0)
		                                    : PP_NULL});
	}
}

/* In another order than the compiler's lowering: ties first, then tp, dp; norms over pp first. */
static void emit_tail(struct builder *b)
{
	struct pp_program *program = b->program;
	bool shards = program->zero && program->dp > 1;
	uint8_t flags = shards ? PP_SHARD : 0;
	uint32_t *all = PP_NEW_ARRAY(b->arena, uint32_t, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++)
		all[r] = r;
	sum_tied(b);
	uint32_t pp = add_group(b, PP_AXIS_PP, all, program->ranks);
	uint32_t tp = program->tp > 1 ? add_group(b, PP_AXIS_TP, NULL, 0) : PP_NULL;
	uint32_t dp = program->dp > 1 ? add_group(b, PP_AXIS_DP, NULL, 0) : PP_NULL;
	pp = program->ranks > 1 ? pp : PP_NULL;
	each_tensor(b, tp, PP_ALLREDUCE, true);
	each_tensor(b, dp, shards ? PP_REDUCESCATTER : PP_ALLREDUCE, false);
	sum_all(b, pp, PP_SLOT_LOSSES, 2 * program->microbatches);
	sum_all(b, dp, PP_SLOT_LOSSES, 2 * program->microbatches);
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_use *use = &program->uses[u];
		uint32_t r = program->stages[use->stage].rank;
		if (u == 0 || program->uses[u - 1].tensor != use->tensor)
			emit(b, r,
			     (struct pp_instr){.op = PP_OP_SQNORM,
			                       .flags = flags,
			                       .mb = use->tensor,
			                       .a = {use->grad, slot_of_class(b, r, PP_SLOT_NORMS, PP_NULL, 0)}});
	}
	sum_all(b, pp, PP_SLOT_NORMS, program->tensor_count);
	sum_all(b, tp, PP_SLOT_NORMS, program->tensor_count);
	sum_all(b, shards ? dp : PP_NULL, PP_SLOT_NORMS, program->tensor_count);
	emit_updates(b, flags);
	each_tensor(b, shards ? dp : PP_NULL, PP_ALLGATHER, false);
}

static void place_slots(struct pp_rank *memory)
{
	for (int dynamic = 0; dynamic < 2; dynamic++) {
		for (uint32_t i = 0; i < memory->slot_count; i++) {
			struct pp_slot *slot = &memory->slots[i];
			if (pp_slot_is_static(slot->class) == dynamic)
				continue;
			slot->placed = true;
			slot->offset = memory->arena_bytes;
			memory->arena_bytes += (slot->bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
		}
		if (!dynamic)
			memory->static_bytes = memory->arena_bytes;
	}
}

/* ---- all ------------------------------------------------------------------------------------- */

static struct builder begin(struct pp_arena *arena, const struct pp_schedule *schedule,
                            const struct build_options *options)
{
	uint32_t p = schedule->ranks;
	struct builder b = {
	    .arena = arena, .schedule = schedule, .options = options, .depth = options->depth ? options->depth : 2};
	assert(b.depth <= 64 && schedule->stages <= 1024);
	struct pp_program *program = b.program = PP_NEW(arena, struct pp_program);
	*program = (struct pp_program){.arena = arena,
	                               .ranks = p,
	                               .tp = options->tp ? options->tp : 1,
	                               .dp = options->dp ? options->dp : 1,
	                               .zero = options->zero,
	                               .vpp = schedule->stages / p,
	                               .stage_count = schedule->stages,
	                               .microbatches = schedule->microbatches,
	                               .program_count = 1,
	                               .schedule_name = schedule->name};
	program->rank = PP_NEW_ARRAY(arena, struct pp_rank, p);
	program->channels = PP_NEW_ARRAY(arena, struct pp_channel, 2 * (size_t)schedule->stages);
	program->groups = PP_NEW_ARRAY(arena, struct pp_group, 4);
	program->programs = PP_NEW(arena, struct pp_named_program);
	program->programs[0] =
	    (struct pp_named_program){.name = "train", .streams = PP_NEW_ARRAY(arena, struct pp_stream, p)};
	program->train.hypers = PP_NEW_ARRAY(arena, struct pp_hyper, 2);
	program->train.hypers[0].weight_decay = 0.1;
	program->train.hyper_count = 2;
	b.lists = PP_NEW_ARRAY(arena, struct channel_list, 2 * (size_t)schedule->stages);
	size_t **sizes[] = {&b.stream_capacity, &b.slot_capacity, &b.out_count, &b.out_capacity, &b.out_head};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		*sizes[i] = PP_NEW_ARRAY(arena, size_t, p);
	b.outs = PP_NEW_ARRAY(arena, struct free_slot *, p);
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++) {
		b.pool[class] = PP_NEW_ARRAY(arena, uint32_t *, p);
		b.pool_count[class] = PP_NEW_ARRAY(arena, size_t, p);
		b.pool_capacity[class] = PP_NEW_ARRAY(arena, size_t, p);
	}
	return b;
}

struct pp_program *build_program(struct pp_arena *arena, const struct pp_schedule *schedule,
                                 const struct build_options *options)
{
	struct builder b = begin(arena, schedule, options);
	struct pp_program *program = b.program;
	build_stages(&b);
	if (options->trains)
		build_tensors(&b);
	list_computes(&b);
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t r = 0; r < program->ranks; r++)
			moved |= run_next(&b, r);
	}
	for (uint32_t r = 0; r < program->ranks; r++) {
		assert(b.next[r] == b.first[r + 1]);
		for (; b.out_head[r] < b.out_count[r]; b.out_head[r]++)
			if (b.outs[r][b.out_head[r]].channel != PP_NULL)
				emit(&b, r,
				     (struct pp_instr){.op = PP_OP_WAIT,
				                       .a = {b.outs[r][b.out_head[r]].channel, b.outs[r][b.out_head[r]].sequence}});
	}
	if (options->trains)
		emit_tail(&b);
	for (uint32_t c = 0; c < program->channel_count; c++)
		program->channels[c].messages = b.lists[c].count;
	for (uint32_t r = 0; r < program->ranks && options->placed; r++)
		place_slots(&program->rank[r]);
	return program;
}

struct pp_program *build_copy(struct pp_arena *arena, const struct pp_program *program)
{
	struct pp_program *copy = PP_NEW(arena, struct pp_program);
	*copy = *program;
	copy->arena = arena;
	copy->rank = PP_NEW_ARRAY(arena, struct pp_rank, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		copy->rank[r] = program->rank[r];
		copy->rank[r].slots = PP_NEW_ARRAY(arena, struct pp_slot, program->rank[r].slot_count);
		memcpy(copy->rank[r].slots, program->rank[r].slots, program->rank[r].slot_count * sizeof(struct pp_slot));
	}
	copy->programs = PP_NEW_ARRAY(arena, struct pp_named_program, program->program_count);
	for (uint32_t i = 0; i < program->program_count; i++) {
		copy->programs[i].name = program->programs[i].name;
		copy->programs[i].streams = PP_NEW_ARRAY(arena, struct pp_stream, program->ranks);
		for (uint32_t r = 0; r < program->ranks; r++) {
			const struct pp_stream *from = &program->programs[i].streams[r];
			struct pp_stream *to = &copy->programs[i].streams[r];
			to->count = from->count;
			to->items = PP_NEW_ARRAY(arena, struct pp_instr, (size_t)from->count + 1);
			memcpy(to->items, from->items, from->count * sizeof *to->items);
		}
	}
	return copy;
}
