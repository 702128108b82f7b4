/* An independent judge of finished streams for tests: a blocking run with value tags in slots, and a timed run. */
#ifndef PP_STREAM_JUDGE_H
#define PP_STREAM_JUDGE_H

#include "lowering_fixture.h"

/* ---- the judge: one blocking run under rendezvous, with value tags in slots ------------------ */

enum tag_kind { TAG_ACT, TAG_GRAD, TAG_AUX, TAG_FULL, TAG_HALF, TAG_AGAIN, TAG_AGAIN_HALF };

static inline uint64_t tag(enum tag_kind kind, uint32_t stage, uint32_t mb)
{
	return 1 + (((uint64_t)kind << 56) | ((uint64_t)stage << 32) | mb);
}

struct slot_state {
	uint64_t tag;   /* 0: empty */
	uint32_t sends; /* being read by this many */
	bool flying;
};

struct judge {
	const struct pp_program *program;
	struct slot_state **slots;
	uint32_t *next;       /* [ranks]: instruction */
	uint32_t (*posts)[2]; /* [channels]: sends and recvs posted */
	uint32_t **slot_of;   /* [2 * channels]: of each post */
	uint8_t **waited;
	uint8_t *forward, *again, *backward, *weight; /* [stages * microbatches] */
	uint64_t errors;
};

static inline void expect(struct judge *judge, bool condition)
{
	judge->errors += !condition;
}

static inline void write_slot(struct judge *judge, uint32_t rank, uint32_t slot, uint64_t value)
{
	struct slot_state *state = &judge->slots[rank][slot];
	expect(judge, !state->tag && !state->sends && !state->flying);
	state->tag = value;
}

static inline void take_slot(struct judge *judge, uint32_t rank, uint32_t slot, uint64_t value)
{
	struct slot_state *state = &judge->slots[rank][slot];
	expect(judge, state->tag == value && !state->flying);
	state->tag = 0;
}

/* The stash is there and stays; the extra is made. */
static inline void do_recompute(struct judge *judge, uint32_t rank, const struct pp_instr *x)
{
	size_t at = (size_t)x->stage * judge->program->microbatches + x->mb;
	expect(judge, judge->program->stages[x->stage].recomputes && judge->program->stages[x->stage].rank == rank);
	expect(judge, judge->forward[at] && !judge->again[at]++ && !judge->backward[at]);
	expect(judge, judge->slots[rank][x->a[0]].tag == tag(TAG_FULL, x->stage, x->mb));
	write_slot(judge, rank, x->extra, tag(TAG_AGAIN, x->stage, x->mb));
}

/* What a backward finds in extra, and leaves there. */
static inline void do_extra(struct judge *judge, uint32_t rank, const struct pp_instr *x)
{
	const struct pp_stage *stage = &judge->program->stages[x->stage];
	bool weights = x->op == PP_OP_BWDW, split = x->op == PP_OP_BWDI;
	if (!stage->recomputes && (x->op == PP_OP_BWD || !stage->extra_bytes)) {
		expect(judge, x->extra == PP_NULL);
		return;
	}
	if (weights || stage->recomputes)
		take_slot(judge, rank, x->extra, tag(weights ? TAG_AGAIN_HALF : TAG_AGAIN, x->stage, x->mb));
	if (split)
		write_slot(judge, rank, x->extra, tag(TAG_AGAIN_HALF, x->stage, x->mb));
}

static inline void do_compute(struct judge *judge, uint32_t rank, const struct pp_instr *x)
{
	const struct pp_program *program = judge->program;
	size_t at = (size_t)x->stage * program->microbatches + x->mb;
	bool first = x->stage == 0, last = x->stage + 1 == program->stage_count;
	expect(judge, program->stages[x->stage].rank == rank);
	switch ((enum pp_op)x->op) {
	case PP_OP_FWD:
		expect(judge, !judge->forward[at]++);
		expect(judge, first == (x->a[0] == PP_NULL) && last == (x->a[2] == PP_NULL) &&
		                  (first || last) == (x->a[1] != PP_NULL));
		if (!first)
			take_slot(judge, rank, x->a[0], tag(TAG_ACT, x->stage - 1, x->mb));
		if (!last)
			write_slot(judge, rank, x->a[2], tag(TAG_ACT, x->stage, x->mb));
		write_slot(judge, rank, x->a[3], tag(TAG_FULL, x->stage, x->mb));
		return;
	case PP_OP_REMAT:
		do_recompute(judge, rank, x);
		return;
	case PP_OP_BWD:
	case PP_OP_BWDI:
		do_extra(judge, rank, x);
		expect(judge, judge->forward[at] && !judge->backward[at]++);
		expect(judge, last == (x->a[2] == PP_NULL) && first == (x->a[3] == PP_NULL));
		if (!last)
			take_slot(judge, rank, x->a[2], tag(TAG_GRAD, x->stage + 1, x->mb));
		if (!first)
			write_slot(judge, rank, x->a[3], tag(TAG_GRAD, x->stage, x->mb));
		take_slot(judge, rank, x->a[1], tag(TAG_FULL, x->stage, x->mb));
		if (x->op == PP_OP_BWDI)
			write_slot(judge, rank, x->a[1], tag(TAG_HALF, x->stage, x->mb));
		break;
	case PP_OP_BWDW:
		do_extra(judge, rank, x);
		take_slot(judge, rank, x->a[1], tag(TAG_HALF, x->stage, x->mb));
		break;
	default:
		fail();
	}
	if (x->op == PP_OP_BWDI)
		return;
	expect(judge, !judge->weight[at]++);
	bool begun = false;
	for (uint32_t mb = 0; mb < program->microbatches; mb++)
		begun |= mb != x->mb && judge->weight[(size_t)x->stage * program->microbatches + mb];
	expect(judge, begun == !(x->flags & PP_FIRST));
	if (first || last)
		take_slot(judge, rank, x->a[0], tag(TAG_AUX, x->stage, x->mb));
}

static inline void do_wait(struct judge *judge, uint32_t rank, const struct pp_instr *x)
{
	bool receiving = judge->program->channels[x->a[0]].destination == rank;
	expect(judge, x->a[1] < judge->posts[x->a[0]][receiving]);
	expect(judge, !judge->waited[2 * x->a[0] + receiving][x->a[1]]++);
	struct slot_state *state = &judge->slots[rank][judge->slot_of[2 * x->a[0] + receiving][x->a[1]]];
	if (receiving)
		state->flying = false;
	else
		state->sends--;
}

/* Both heads of a channel stand at their posts of the same message: exchange it. */
static inline void exchange(struct judge *judge, uint32_t channel, const struct pp_instr *send,
                            const struct pp_instr *recv)
{
	const struct pp_channel *info = &judge->program->channels[channel];
	uint32_t sequence = judge->posts[channel][0]++;
	judge->posts[channel][1]++;
	expect(judge,
	       send->a[1] == sequence && recv->a[1] == sequence && send->stage == recv->stage && send->mb == recv->mb);
	expect(judge, send->dtype == recv->dtype && send->count == recv->count);
	expect(judge, sequence < info->depth || judge->waited[2 * channel + 1][sequence - info->depth]);
	judge->slot_of[2 * channel][sequence] = send->a[2];
	judge->slot_of[2 * channel + 1][sequence] = recv->a[2];
	uint64_t value = tag(info->kind == PP_ACT ? TAG_ACT : TAG_GRAD, send->stage, send->mb);
	take_slot(judge, info->source, send->a[2], value);
	judge->slots[info->source][send->a[2]].sends++;
	write_slot(judge, info->destination, recv->a[2], value);
	judge->slots[info->destination][recv->a[2]].flying = true;
}

static const struct pp_instr *head(const struct judge *judge, uint32_t rank)
{
	const struct pp_stream *stream = &judge->program->programs[0].streams[rank];
	return judge->next[rank] < stream->count ? &stream->items[judge->next[rank]] : NULL;
}

static inline bool step(struct judge *judge, uint32_t rank)
{
	const struct pp_instr *x = head(judge, rank);
	if (!x)
		return false;
	if (x->op == PP_OP_SEND) {
		uint32_t peer = judge->program->channels[x->a[0]].destination;
		expect(judge, judge->program->channels[x->a[0]].source == rank);
		const struct pp_instr *y = head(judge, peer);
		if (!y || y->op != PP_OP_RECV || y->a[0] != x->a[0])
			return false;
		exchange(judge, x->a[0], x, y);
		judge->next[peer]++;
	} else if (x->op == PP_OP_RECV) {
		expect(judge, judge->program->channels[x->a[0]].destination == rank);
		return false; /* the sender's step does both */
	} else if (x->op == PP_OP_WAIT) {
		do_wait(judge, rank, x);
	} else if (x->op == PP_OP_LOAD) {
		write_slot(judge, rank, x->a[0], tag(TAG_AUX, x->stage, x->mb));
	} else if (x->op < PP_OP_SEND) {
		do_compute(judge, rank, x);
	}
	judge->next[rank]++;
	return true;
}

static inline void judge_end(struct judge *judge)
{
	const struct pp_program *program = judge->program;
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		expect(judge, !head(judge, rank)); /* not stuck */
		for (uint32_t slot = 0; slot < program->rank[rank].slot_count; slot++) {
			const struct slot_state *state = &judge->slots[rank][slot];
			expect(judge, !state->tag && !state->sends && !state->flying);
		}
	}
	for (size_t i = 0; i < (size_t)program->stage_count * program->microbatches; i++)
		expect(judge, judge->forward[i] == 1 && judge->backward[i] == 1 && judge->weight[i] == 1 &&
		                  judge->again[i] == program->stages[i / program->microbatches].recomputes);
	for (uint32_t channel = 0; channel < program->channel_count; channel++)
		for (uint32_t i = 0; i < program->channels[channel].messages; i++)
			expect(judge, judge->waited[2 * channel][i] == 1 && judge->waited[2 * channel + 1][i] == 1);
}

static inline uint64_t errors_in(struct world *w)
{
	const struct pp_program *program = &w->program;
	size_t actions = (size_t)program->stage_count * program->microbatches;
	struct judge judge = {
	    .program = program,
	    .slots = PP_NEW_ARRAY(w->arena, struct slot_state *, program->ranks),
	    .next = PP_NEW_ARRAY(w->arena, uint32_t, program->ranks),
	    .posts = pp_arena_alloc(w->arena, program->channel_count, sizeof(uint32_t[2])),
	    .slot_of = PP_NEW_ARRAY(w->arena, uint32_t *, (size_t)2 * program->channel_count),
	    .waited = PP_NEW_ARRAY(w->arena, uint8_t *, (size_t)2 * program->channel_count),
	    .forward = PP_NEW_ARRAY(w->arena, uint8_t, actions),
	    .again = PP_NEW_ARRAY(w->arena, uint8_t, actions),
	    .backward = PP_NEW_ARRAY(w->arena, uint8_t, actions),
	    .weight = PP_NEW_ARRAY(w->arena, uint8_t, actions),
	};
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		judge.slots[rank] = PP_NEW_ARRAY(w->arena, struct slot_state, program->rank[rank].slot_count);
	for (uint32_t end = 0; end < 2 * program->channel_count; end++) {
		judge.slot_of[end] = PP_NEW_ARRAY(w->arena, uint32_t, program->channels[end / 2].messages);
		judge.waited[end] = PP_NEW_ARRAY(w->arena, uint8_t, program->channels[end / 2].messages);
	}
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t rank = 0; rank < program->ranks; rank++)
			while (step(&judge, rank))
				moved = true;
	}
	judge_end(&judge);
	return judge.errors;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Time of a run in which a channel carries one message at a time, as soon as both ends are posted. */
static inline uint64_t run_time(struct world *w)
{
	const struct pp_program *program = &w->program;
	uint64_t *clock = PP_NEW_ARRAY(w->arena, uint64_t, program->ranks), last = 0;
	uint32_t *next = PP_NEW_ARRAY(w->arena, uint32_t, program->ranks);
	uint64_t *free_at = PP_NEW_ARRAY(w->arena, uint64_t, program->channel_count);
	uint64_t **posted =
	    PP_NEW_ARRAY(w->arena, uint64_t *, (size_t)2 * program->channel_count); /* time + 1; 0: not yet */
	uint64_t **over = PP_NEW_ARRAY(w->arena, uint64_t *, program->channel_count);
	for (uint32_t c = 0; c < program->channel_count; c++) {
		posted[2 * c] = PP_NEW_ARRAY(w->arena, uint64_t, program->channels[c].messages);
		posted[2 * c + 1] = PP_NEW_ARRAY(w->arena, uint64_t, program->channels[c].messages);
		over[c] = PP_NEW_ARRAY(w->arena, uint64_t, program->channels[c].messages);
	}
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t rank = 0; rank < program->ranks; rank++) {
			const struct pp_stream *stream = &program->programs[0].streams[rank];
			for (; next[rank] < stream->count; next[rank]++, moved = true) {
				const struct pp_instr *x = &stream->items[next[rank]];
				const struct pp_channel *channel = &program->channels[x->a[0] < program->channel_count ? x->a[0] : 0];
				if (x->op == PP_OP_LOAD)
					continue;
				if (x->op == PP_OP_WAIT) {
					if (!over[x->a[0]][x->a[1]])
						break;
					if (over[x->a[0]][x->a[1]] - 1 > clock[rank])
						clock[rank] = over[x->a[0]][x->a[1]] - 1;
				} else if (x->op == PP_OP_SEND || x->op == PP_OP_RECV) {
					posted[2 * x->a[0] + (x->op == PP_OP_RECV)][x->a[1]] = clock[rank] + 1;
					uint64_t a = posted[2 * x->a[0]][x->a[1]], b = posted[2 * x->a[0] + 1][x->a[1]];
					if (!a || !b)
						continue;
					uint64_t start = (a > b ? a : b) - 1;
					start = start > free_at[x->a[0]] ? start : free_at[x->a[0]];
					free_at[x->a[0]] =
					    start + pp_transfer_ticks(channel->latency, channel->bandwidth, pp_payload_bytes(x));
					over[x->a[0]][x->a[1]] = free_at[x->a[0]] + 1;
				} else {
					static const enum pp_phase phases[] = {[PP_OP_FWD] = PP_PHASE_F,
					                                       [PP_OP_BWD] = PP_PHASE_B,
					                                       [PP_OP_BWDI] = PP_PHASE_I,
					                                       [PP_OP_BWDW] = PP_PHASE_W,
					                                       [PP_OP_REMAT] = PP_PHASE_R};
					clock[rank] += program->stages[x->stage].ticks[phases[x->op]];
					last = clock[rank] > last ? clock[rank] : last;
				}
			}
		}
	}
	return last;
}

/* Longest path through rows, data flow and channels with unlimited receive slots, by plain iteration. */
static inline uint64_t ideal_time(struct world *w)
{
	const struct pp_schedule *schedule = &w->schedule;
	uint32_t m = schedule->microbatches, stages = schedule->stages;
	uint64_t *made = PP_NEW_ARRAY(w->arena, uint64_t, (size_t)2 * stages * m); /* end + 1 */
	uint64_t *clock = PP_NEW_ARRAY(w->arena, uint64_t, schedule->ranks), last = 0;
	uint64_t(*free_at)[2] = pp_arena_alloc(w->arena, (size_t)schedule->ranks * schedule->ranks, sizeof *free_at);
	uint32_t *next = PP_NEW_ARRAY(w->arena, uint32_t, schedule->ranks);
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t rank = 0; rank < schedule->ranks; rank++)
			for (; next[rank] < schedule->rows[rank].count; next[rank]++, moved = true) {
				const struct pp_action *action = &schedule->rows[rank].actions[next[rank]];
				bool forward = action->kind == PP_F;
				const struct pp_stage *stage = &w->program.stages[action->stage];
				bool again = stage->recomputes && (action->kind == PP_B || action->kind == PP_I);
				uint64_t ready =
				    clock[rank] + (again ? stage->ticks[PP_PHASE_R] : 0); /* before the gradient is there */
				bool needs = action->kind != PP_W && (forward ? action->stage > 0 : action->stage + 1 < stages);
				if (needs) {
					uint32_t maker = forward ? action->stage - 1 : action->stage + 1,
					         source = schedule->stage_rank[maker];
					uint64_t at = made[2 * ((size_t)maker * m + action->mb) + forward];
					if (!at)
						break;
					at--;
					if (source != rank) {
						const struct pp_link *link = source / w->spec.cluster.gpus == rank / w->spec.cluster.gpus
						                                 ? &w->spec.cluster.intra
						                                 : &w->spec.cluster.inter;
						const struct pp_stage *shape = &w->program.stages[forward ? maker : action->stage];
						uint64_t *busy = &free_at[(size_t)source * schedule->ranks + rank][forward];
						*busy = (at > *busy ? at : *busy) +
						        pp_transfer_ticks(link->latency, link->bandwidth, (uint64_t)shape->out_count * 4);
						at = *busy;
					}
					ready = at > ready ? at : ready;
				}
				clock[rank] = ready + stage->ticks[action->kind];
				last = clock[rank] > last ? clock[rank] : last;
				if (action->kind != PP_W)
					made[2 * ((size_t)action->stage * m + action->mb) + forward] = clock[rank] + 1;
			}
	}
	return last;
}

#endif
