/* Lower bounds on the makespan: what no order of the computes on their ranks can beat.
 *
 * With head(s) = the forward chain of stages before s, tail(s) = the backward chain of stages before s, both with their
 * hops, and last = the last W of stage 0 if that is split, the makespan is at least
 *   - for a rank with lowest stage s: head(s) + its busy time [+ tail(s) if every backward on it is fused:
 *     then its last compute is a B, whose gradient still travels down];
 *   - for a rank with lowest stage s: head(s) + its busy time without W + tail(s) + last: all its F come
 *     before its last input gradient, which still travels down;
 *   - for a stage s: head(s) + m (F + B or I, + R where it recomputes) + tail(s) + last.
 * A forward-only program: the same with the forward chain of the stages after the highest one. With pairs that may
 * overlap, the chains are scaled by pair_permille. Saturating arithmetic. O(instructions). */
#include "capped.h"
#include "lifetime.h"
#include "simulate.h"

#include <stdlib.h>

struct stage_bound {
	/* Ticks of F; of B or I, whichever is shorter in this program; of W if always split; of R if it recomputes. */
	uint64_t forward, backward, weight, recompute;
	uint64_t head, tail, rest; /* rest: forward chain after the stage */
	uint64_t act, grad;        /* hop to the next stage, and of the gradient back from it */
	bool fused, split, recomputes;
};

struct rank_bound {
	uint64_t weights;   /* ticks of W */
	uint32_t low, high; /* stages; low PP_NULL: none */
	bool split;         /* some backward on the rank is split */
};

struct bounds {
	const struct pp_program *program;
	struct stage_bound *stage;
	struct rank_bound *rank;
	bool backwards, pairs;
};

static void read_streams(struct bounds *b, const struct pp_named_program *named)
{
	for (uint32_t r = 0; r < b->program->ranks; r++) {
		const struct pp_stream *stream = &named->streams[r];
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (!pp_is_compute(instr))
				continue;
			struct stage_bound *stage = &b->stage[instr->stage];
			b->backwards |= instr->op != PP_OP_FWD;
			b->pairs |= instr->flags & PP_PAIR;
			stage->fused |= instr->op == PP_OP_BWD;
			stage->split |= instr->op == PP_OP_BWDI;
			stage->recomputes |= instr->op == PP_OP_REMAT;
			if (instr->op == PP_OP_BWDW)
				b->rank[r].weights = pp_plus(b->rank[r].weights, b->program->stages[instr->stage].ticks[PP_PHASE_W]);
		}
	}
}

/* ---- hops ------------------------------------------------------------------------------------ */

static int by_ends(const void *left, const void *right)
{
	const struct pp_channel *const *a = left, *const *b = right;
	if ((*a)->source != (*b)->source)
		return (*a)->source < (*b)->source ? -1 : 1;
	if ((*a)->destination != (*b)->destination)
		return (*a)->destination < (*b)->destination ? -1 : 1;
	return (*a)->kind < (*b)->kind ? -1 : (*a)->kind > (*b)->kind;
}

static uint64_t hop(const struct pp_channel **sorted, uint32_t count, const struct pp_channel *wanted, uint64_t bytes)
{
	const struct pp_channel *const *found = count ? bsearch(&wanted, sorted, count, sizeof *sorted, by_ends) : NULL;
	return found ? pp_transfer_ticks((*found)->latency, (*found)->bandwidth, bytes) : 0;
}

static void price_hops(struct bounds *b, struct pp_arena *arena)
{
	const struct pp_program *program = b->program;
	const struct pp_channel **sorted = PP_NEW_ARRAY(arena, const struct pp_channel *, program->channel_count);
	for (uint32_t c = 0; c < program->channel_count; c++)
		sorted[c] = &program->channels[c];
	if (program->channel_count)
		qsort(sorted, program->channel_count, sizeof *sorted, by_ends);
	for (uint32_t s = 0; s + 1 < program->stage_count; s++) {
		const struct pp_stage *from = &program->stages[s], *to = &program->stages[s + 1];
		if (from->rank == to->rank)
			continue;
		uint64_t bytes = (uint64_t)from->out_count * pp_dtype_size[from->out_dtype];
		struct pp_channel act = {.source = from->rank, .destination = to->rank, .kind = PP_ACT};
		struct pp_channel grad = {.source = to->rank, .destination = from->rank, .kind = PP_GRAD};
		b->stage[s].act = hop(sorted, program->channel_count, &act, bytes);
		b->stage[s].grad = hop(sorted, program->channel_count, &grad, bytes);
	}
}

/* ---- chains ---------------------------------------------------------------------------------- */

static uint64_t scaled(const struct bounds *b, uint64_t ticks)
{
	uint64_t permille = b->program->cost.pair_permille;
	return b->pairs && permille && permille < 1000 ? ticks / 1000 * permille : ticks;
}

static void price_stages(struct bounds *b)
{
	const struct pp_program *program = b->program;
	for (uint32_t s = 0; s < program->stage_count; s++) {
		struct stage_bound *stage = &b->stage[s];
		const uint64_t *ticks = program->stages[s].ticks;
		stage->forward = scaled(b, ticks[PP_PHASE_F]);
		uint64_t shorter = ticks[PP_PHASE_B] < ticks[PP_PHASE_I] ? ticks[PP_PHASE_B] : ticks[PP_PHASE_I];
		stage->backward = scaled(b, stage->fused && stage->split ? shorter
		                            : stage->fused               ? ticks[PP_PHASE_B]
		                            : stage->split               ? ticks[PP_PHASE_I]
		                                                         : 0);
		stage->recompute = stage->recomputes ? scaled(b, ticks[PP_PHASE_R]) : 0;
		stage->weight = stage->split && !stage->fused ? scaled(b, ticks[PP_PHASE_W]) : 0;
		struct rank_bound *rank = &b->rank[program->stages[s].rank];
		if (rank->low == PP_NULL)
			rank->low = s;
		rank->high = s;
		rank->split |= stage->split;
	}
	for (uint32_t s = 1; s < program->stage_count; s++) {
		const struct stage_bound *before = &b->stage[s - 1];
		b->stage[s].head = pp_plus(before->head, pp_plus(before->forward, before->act));
		b->stage[s].tail = pp_plus(before->tail, pp_plus(before->backward, before->grad));
	}
	for (uint32_t s = program->stage_count; s-- > 1;)
		b->stage[s - 1].rest = pp_plus(b->stage[s - 1].act, pp_plus(b->stage[s].forward, b->stage[s].rest));
}

static uint64_t rank_limit(const struct bounds *b, uint32_t r, uint64_t busy)
{
	const struct rank_bound *rank = &b->rank[r];
	if (rank->low == PP_NULL)
		return busy;
	const struct stage_bound *low = &b->stage[rank->low];
	if (!b->backwards)
		return pp_plus(pp_plus(low->head, busy), b->stage[rank->high].rest);
	uint64_t whole = pp_plus(pp_plus(low->head, busy), rank->split ? 0 : low->tail);
	uint64_t without = busy > rank->weights ? busy - rank->weights : 0;
	uint64_t inputs = pp_plus(pp_plus(low->head, without), pp_plus(low->tail, b->stage[0].weight));
	return whole > inputs ? whole : inputs;
}

static uint64_t stage_limit(const struct bounds *b, uint32_t s)
{
	const struct stage_bound *stage = &b->stage[s];
	uint64_t work =
	    pp_times(b->program->microbatches, pp_plus(pp_plus(stage->forward, stage->recompute), stage->backward));
	if (!b->backwards)
		return pp_plus(pp_plus(stage->head, work), stage->rest);
	return pp_plus(pp_plus(stage->head, work), pp_plus(stage->tail, b->stage[0].weight));
}

uint64_t pp_makespan_bound(struct pp_arena *arena, const struct pp_program *program,
                           const struct pp_named_program *named, const uint64_t *busy)
{
	struct bounds b = {.program = program,
	                   .stage = PP_NEW_ARRAY(arena, struct stage_bound, program->stage_count),
	                   .rank = PP_NEW_ARRAY(arena, struct rank_bound, program->ranks)};
	for (uint32_t r = 0; r < program->ranks; r++)
		b.rank[r].low = PP_NULL;
	read_streams(&b, named);
	price_hops(&b, arena);
	price_stages(&b);
	uint64_t bound = 0;
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t limit = rank_limit(&b, r, busy[r]);
		bound = limit > bound ? limit : bound;
	}
	for (uint32_t s = 0; s < program->stage_count; s++) {
		uint64_t limit = stage_limit(&b, s);
		bound = limit > bound ? limit : bound;
	}
	return bound;
}
