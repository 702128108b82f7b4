/* Tables of the lowering, built in a few scans of the rows.
 * requires: a checked schedule and the stages of the program.
 * ensures:  channels (one per directed pair of ranks and kind of value, sorted by source, destination, kind), computes,
 *           transfers in consumption order, a slot for every value: received input, output, stash, aux. O(actions). */
#include "crossings.h"
#include "link.h"
#include "lowering.h"

#include <assert.h>
#include <string.h>

/* What the scans look up. */
struct tables {
	uint32_t
	    *channel[PP_VALUE_COUNT]; /* [stages]: of the value that the stage makes, PP_NULL: none, or stays on the rank */
	uint64_t *ticks[PP_VALUE_COUNT]; /* [stages]: of that value's transfer */
	uint32_t *maker[PP_VALUE_COUNT]; /* [stages * microbatches]: compute that makes the value */
};

/* The stage whose output has the shape of the value that `stage` makes: a gradient looks like the input. */
static uint32_t shape_of(enum pp_value kind, uint32_t stage)
{
	return kind == PP_ACT ? stage : stage - 1;
}

static uint64_t value_bytes(const struct pp_program *program, enum pp_value kind, uint32_t stage)
{
	const struct pp_stage *shape = &program->stages[shape_of(kind, stage)];
	return (uint64_t)shape->out_count * pp_dtype_size[shape->out_dtype];
}

/* ---- channels -------------------------------------------------------------------------------- */

static bool same_channel(const struct pp_channel *channel, const struct pp_crossing *crossing)
{
	return channel->source == crossing->source && channel->destination == crossing->destination &&
	       channel->kind == crossing->kind;
}

static void make_channels(const struct pp_lowering *lowering, const struct pp_crossing *crossings, uint32_t count)
{
	struct pp_program *program = lowering->program;
	program->channels = PP_NEW_ARRAY(program->arena, struct pp_channel, count);
	program->channel_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct pp_crossing *at = &crossings[i];
		struct pp_channel *channel = &program->channels[program->channel_count];
		if (!program->channel_count || !same_channel(channel - 1, at)) {
			struct pp_link link =
			    pp_link_channel(program, lowering->spec, at->source, at->destination, (enum pp_value)at->kind,
			                    value_bytes(program, (enum pp_value)at->kind, pp_crossing_maker(at)));
			*channel = (struct pp_channel){.source = at->source,
			                               .destination = at->destination,
			                               .kind = at->kind,
			                               .latency = link.latency,
			                               .bandwidth = link.bandwidth};
			program->channel_count++;
		}
		program->channels[program->channel_count - 1].messages += lowering->schedule->microbatches;
	}
}

static void build_channels(struct pp_lowering *lowering, struct tables *tables)
{
	struct pp_program *program = lowering->program;
	uint32_t stages = lowering->schedule->stages;
	for (int kind = 0; kind < PP_VALUE_COUNT; kind++) {
		tables->channel[kind] = PP_NEW_ARRAY(lowering->scratch, uint32_t, stages);
		tables->ticks[kind] = PP_NEW_ARRAY(lowering->scratch, uint64_t, stages);
		memset(tables->channel[kind], 0xff, stages * sizeof(uint32_t));
	}
	struct pp_crossing *crossings;
	uint32_t count = pp_crossings_find(lowering->scratch, lowering->schedule->stage_rank, stages, &crossings);
	if (!lowering->forward_only)
		make_channels(lowering, crossings, count);
	lowering->channel_base = PP_NEW_ARRAY(lowering->scratch, uint32_t, (size_t)program->channel_count + 1);
	for (uint32_t i = 0, next = 0; i < count; i++) {
		const struct pp_crossing *at = &crossings[i];
		uint32_t maker = pp_crossing_maker(at);
		next += !same_channel(&program->channels[next], at);
		const struct pp_channel *channel = &program->channels[next];
		tables->channel[at->kind][maker] = next;
		tables->ticks[at->kind][maker] =
		    pp_transfer_ticks(channel->latency, channel->bandwidth, value_bytes(program, at->kind, maker));
		if (at->kind == PP_ACT || !lowering->forward_only)
			lowering->channel_base[next + 1] += lowering->schedule->microbatches;
	}
	for (uint32_t i = 0; i < program->channel_count; i++)
		lowering->channel_base[i + 1] += lowering->channel_base[i];
}

/* ---- computes -------------------------------------------------------------------------------- */

static size_t value_at(const struct pp_lowering *lowering, uint32_t stage, uint32_t mb)
{
	return (size_t)stage * lowering->schedule->microbatches + mb;
}

/* Whether the lowering puts a recompute before this action. */
static bool recomputes_for(const struct pp_lowering *lowering, const struct pp_action *action)
{
	return (action->kind == PP_B || action->kind == PP_I) && lowering->program->stages[action->stage].recomputes;
}

static struct pp_compute make_compute(uint32_t rank, const struct pp_action *action, enum pp_phase phase)
{
	return (struct pp_compute){.stage = action->stage,
	                           .mb = action->mb,
	                           .rank = rank,
	                           .kind = (uint8_t)phase,
	                           .transfer_in = PP_NULL,
	                           .transfer_out = PP_NULL,
	                           .in = PP_NULL,
	                           .out = PP_NULL,
	                           .aux = PP_NULL,
	                           .extra = PP_NULL};
}

/* The recomputes that stand right before action `at` of a row: its own, and before the first of actions that overlap
 * those of all of them. Returns the id after them. */
static uint32_t build_recomputes(struct pp_lowering *lowering, uint32_t rank, uint32_t at, uint32_t id)
{
	const struct pp_row *row = &lowering->schedule->rows[rank];
	if (at && row->actions[at - 1].paired)
		return id;
	for (bool more = true; more && at < row->count; at++) {
		const struct pp_action *action = &row->actions[at];
		if (recomputes_for(lowering, action))
			lowering->computes[id++] = make_compute(rank, action, PP_PHASE_R);
		more = action->paired;
	}
	return id;
}

static void build_computes(struct pp_lowering *lowering, struct tables *tables)
{
	const struct pp_schedule *schedule = lowering->schedule;
	lowering->base = PP_NEW_ARRAY(lowering->scratch, uint32_t, (size_t)schedule->ranks + 1);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		lowering->base[rank + 1] = lowering->base[rank] + schedule->rows[rank].count;
		for (uint32_t i = 0; i < schedule->rows[rank].count; i++)
			lowering->base[rank + 1] += recomputes_for(lowering, &schedule->rows[rank].actions[i]) ? 1 : 0;
	}
	lowering->computes = PP_NEW_ARRAY(lowering->scratch, struct pp_compute, lowering->base[schedule->ranks]);
	for (int kind = 0; kind < PP_VALUE_COUNT; kind++)
		tables->maker[kind] = PP_NEW_ARRAY(lowering->scratch, uint32_t, value_at(lowering, schedule->stages, 0));
	bool *begun = PP_NEW_ARRAY(lowering->scratch, bool, schedule->stages);
	uint32_t id = 0;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		for (uint32_t i = 0; i < schedule->rows[rank].count; i++, id++) {
			const struct pp_action *action = &schedule->rows[rank].actions[i];
			id = build_recomputes(lowering, rank, i, id);
			struct pp_compute *compute = &lowering->computes[id];
			*compute = make_compute(rank, action, (enum pp_phase)action->kind);
			compute->flags = action->paired ? PP_PAIR : 0;
			if (action->kind != PP_W)
				tables->maker[action->kind == PP_F ? PP_ACT : PP_GRAD][value_at(lowering, action->stage, action->mb)] =
				    id;
			if ((action->kind == PP_B || action->kind == PP_W) && !begun[action->stage]) {
				compute->flags |= PP_FIRST;
				begun[action->stage] = true;
			}
		}
}

/* The value that a compute takes in: its kind and the stage that makes it. */
static bool input_of(const struct pp_lowering *lowering, const struct pp_compute *compute, enum pp_value *kind,
                     uint32_t *stage)
{
	*kind = compute->kind == PP_F ? PP_ACT : PP_GRAD;
	if (compute->kind == PP_PHASE_W || compute->kind == PP_PHASE_R)
		return false;
	if (*kind == PP_ACT ? compute->stage == 0 : compute->stage + 1 == lowering->schedule->stages)
		return false;
	*stage = *kind == PP_ACT ? compute->stage - 1 : compute->stage + 1;
	return true;
}

/* Kind of the boundary value that F, B and I make. */
static enum pp_value made_by(const struct pp_compute *compute)
{
	return compute->kind == PP_F ? PP_ACT : PP_GRAD;
}

static bool has_output(const struct pp_lowering *lowering, const struct pp_compute *compute)
{
	if (compute->kind == PP_PHASE_W || compute->kind == PP_PHASE_R)
		return false;
	return compute->kind == PP_F ? compute->stage + 1 < lowering->schedule->stages : compute->stage > 0;
}

static bool loads(const struct pp_lowering *lowering, uint32_t stage)
{
	return lowering->program->stages[stage].loads_tokens || lowering->program->stages[stage].loads_labels;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* R, and in a stage that does not recompute I, is the first to write to extra. */
static bool fills_extra(const struct pp_lowering *lowering, const struct pp_compute *compute)
{
	const struct pp_stage *stage = &lowering->program->stages[compute->stage];
	return stage->recomputes ? compute->kind == PP_PHASE_R : compute->kind == PP_PHASE_I && stage->extra_bytes;
}

/* Lengths of the slot tables and streams: one slot per value; a transfer is a post and a wait on both ranks. */
static void make_room(struct pp_lowering *lowering, const struct tables *tables)
{
	struct pp_program *program = lowering->program;
	lowering->stream_length = PP_NEW_ARRAY(lowering->scratch, uint32_t, program->ranks);
	lowering->stream_capacity = PP_NEW_ARRAY(lowering->scratch, uint32_t, program->ranks);
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		uint32_t values = 0, length = 0;
		for (uint32_t id = lowering->base[rank]; id < lowering->base[rank + 1]; id++) {
			const struct pp_compute *compute = &lowering->computes[id];
			enum pp_value kind;
			uint32_t stage;
			bool received = input_of(lowering, compute, &kind, &stage) && tables->channel[kind][stage] != PP_NULL;
			bool output = has_output(lowering, compute);
			bool sent = output && tables->channel[made_by(compute)][compute->stage] != PP_NULL;
			bool loading = compute->kind == PP_F && loads(lowering, compute->stage);
			bool keeps = compute->kind == PP_F || fills_extra(lowering, compute);
			values += (received ? 1u : 0) + (output ? 1u : 0) + (keeps ? 1u : 0) + (loading ? 1u : 0);
			length += 1 + (received ? 2u : 0) + (sent ? 2u : 0) + (loading ? 1u : 0);
		}
		lowering->stream_length[rank] = length;
		struct pp_rank *table = &program->rank[rank];
		table->slots = pp_arena_grow(program->arena, table->slots, table->slot_count,
		                             (size_t)table->slot_count + values, sizeof *table->slots);
	}
}

static uint32_t add_slot(struct pp_lowering *lowering, uint32_t rank, enum pp_slot_class class, uint64_t bytes)
{
	struct pp_rank *table = &lowering->program->rank[rank];
	table->slots[table->slot_count] = (struct pp_slot){.class = (uint8_t) class, .tensor = PP_NULL, .bytes = bytes};
	return table->slot_count++;
}

static void connect_input(struct pp_lowering *lowering, const struct tables *tables, uint32_t id, uint32_t *filled)
{
	struct pp_compute *compute = &lowering->computes[id];
	enum pp_value kind;
	uint32_t stage;
	if (!input_of(lowering, compute, &kind, &stage))
		return;
	uint32_t producer = tables->maker[kind][value_at(lowering, stage, compute->mb)];
	uint32_t channel = tables->channel[kind][stage];
	if (channel == PP_NULL) {
		assert(producer < id);                          /* same row: the check saw to it */
		compute->in = lowering->computes[producer].out; /* R5 */
		return;
	}
	uint32_t transfer = lowering->channel_base[channel] + filled[channel]++;
	lowering->transfers[transfer] = (struct pp_transfer){
	    .producer = producer, .consumer = id, .channel = channel, .ticks = tables->ticks[kind][stage]};
	compute->transfer_in = transfer;
	lowering->computes[producer].transfer_out = transfer;
	compute->in = add_slot(lowering, compute->rank, PP_SLOT_RECV, value_bytes(lowering->program, kind, stage));
}

/* Without backwards one stash per rank does for all its stages. */
static uint32_t stash_of(struct pp_lowering *lowering, const struct pp_compute *compute)
{
	const struct pp_program *program = lowering->program;
	uint64_t bytes = program->stages[compute->stage].stash_bytes;
	if (!lowering->forward_only)
		return add_slot(lowering, compute->rank, PP_SLOT_STASH, bytes);
	uint32_t *shared = &lowering->scratch_stash[compute->rank];
	if (*shared == PP_NULL)
		*shared = add_slot(lowering, compute->rank, PP_SLOT_STASH, bytes);
	struct pp_slot *slot = &program->rank[compute->rank].slots[*shared];
	slot->bytes = bytes > slot->bytes ? bytes : slot->bytes;
	return *shared;
}

static void connect_rest(struct pp_lowering *lowering, const struct tables *tables, uint32_t id)
{
	struct pp_program *program = lowering->program;
	struct pp_compute *compute = &lowering->computes[id];
	if (has_output(lowering, compute))
		compute->out =
		    add_slot(lowering, compute->rank, PP_SLOT_OUT, value_bytes(program, made_by(compute), compute->stage));
	if (compute->kind == PP_F) {
		compute->stash = stash_of(lowering, compute);
		if (loads(lowering, compute->stage))
			compute->aux = add_slot(lowering, compute->rank, PP_SLOT_AUX, program->stages[compute->stage].aux_bytes);
		return;
	}
	struct pp_compute *forward =
	    &lowering->computes[tables->maker[PP_ACT][value_at(lowering, compute->stage, compute->mb)]];
	compute->stash = forward->stash;
	compute->aux = forward->aux;
	if (fills_extra(lowering, compute))
		forward->extra = add_slot(lowering, compute->rank, PP_SLOT_EXTRA, program->stages[compute->stage].extra_bytes);
	compute->extra = forward->extra;
}

void pp_lower_graph(struct pp_lowering *lowering)
{
	struct tables tables;
	build_channels(lowering, &tables);
	build_computes(lowering, &tables);
	make_room(lowering, &tables);
	uint32_t channels = lowering->program->channel_count, computes = lowering->base[lowering->program->ranks];
	lowering->transfers = PP_NEW_ARRAY(lowering->scratch, struct pp_transfer, lowering->channel_base[channels]);
	uint32_t *filled = PP_NEW_ARRAY(lowering->scratch, uint32_t, channels);
	lowering->scratch_stash = PP_NEW_ARRAY(lowering->scratch, uint32_t, lowering->program->ranks);
	memset(lowering->scratch_stash, 0xff, lowering->program->ranks * sizeof *lowering->scratch_stash);
	for (uint32_t id = 0; id < computes; id++) {
		connect_input(lowering, &tables, id, filled);
		connect_rest(lowering, &tables, id);
	}
}
