/* Simulated annealing over orders.
 *
 * A step takes an action on a critical path that waits for its rank and moves it, or a few from it on, ahead of one or
 * several actions before it, or moves those before it behind it; both only where that keeps microbatches in order,
 * forward before backward and memory within the room. The rest is left to the run, which goes from the change on and
 * ends as soon as the move is sure to be refused. What counts is the value, and to a small part the mean end of the
 * ranks, which tells plateaus apart. */
#include "anneal.h"

#include "random.h"

#include "compiler/deadline.h"

#include <string.h>

enum {
	MOST_BLOCK = 4, /* actions moved together */
	BLOCKS = 3,     /* one in so many takes one more along */
	MOVES = 64,     /* between looks at the clock */
};

struct state {
	const struct pp_packed *packed;
	const struct pp_anneal *options;
	uint32_t *order, *best;
	uint32_t *saved; /* what a move overwrote */
	int64_t *held;   /* [actions]: bytes before an action */
	uint64_t *work;  /* [actions + 1]: ticks of all actions before a position, of all ranks */
	struct pp_packed_times *now, *trial;
	uint32_t *critical; /* positions whose action begins when the one before it on the rank ends */
	uint32_t critical_count;
	uint32_t *position; /* [ids] */
	uint64_t random;
};

/* The actions at [middle, limit) go ahead of those at [begin, middle), of the same rank. */
struct move {
	uint32_t begin, middle, limit;
};

/* ---- critical path --------------------------------------------------------------------------- */

static uint32_t last_position(struct state *s)
{
	const struct pp_packed *packed = s->packed;
	uint32_t found = 0, ties = 0;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint64_t value = s->now->rank_end[r] - (packed->span ? s->now->rank_start[r] : 0);
		if (value == s->now->value && pp_random_below(&s->random, ++ties) == 0)
			found = packed->first[r + 1] - 1;
	}
	return found;
}

static uint32_t input_of(const struct pp_packed *packed, uint32_t id)
{
	uint32_t stride = packed->microbatches * PP_ACTION_KINDS, stage = pp_id_stage(packed, id), kind = pp_id_kind(id);
	if (kind == PP_F)
		return stage ? id - stride : UINT32_MAX;
	if (kind == PP_W)
		return id - PP_W + PP_I;
	return stage + 1 < packed->stages ? id + stride : id - kind + PP_F;
}

/* Through a channel that was busy: the position of the action whose input the chain of hops began with that ends with
 * the input of the one at `at`. Each of those behind it might have had its input ahead of the others: they are noted.
 */
static uint32_t head_of_queue(struct state *s, uint32_t at)
{
	const struct pp_packed *packed = s->packed;
	for (uint32_t before = at;; before--) {
		uint32_t id = s->order[before], kind = pp_id_kind(id);
		const struct pp_packed_stage *stage = &packed->stage[pp_id_stage(packed, id)];
		if (pp_packed_channel(stage, kind) !=
		    pp_packed_channel(&packed->stage[pp_id_stage(packed, s->order[at])], pp_id_kind(s->order[at])))
			continue;
		at = before;
		uint64_t hop = kind == PP_F ? stage->forward_hop : stage->backward_hop;
		if (s->now->there[id] - hop == s->now->end[input_of(packed, id)])
			return at;
		if (s->critical_count < packed->actions)
			s->critical[s->critical_count++] = at;
	}
}

static void trace_path(struct state *s)
{
	const struct pp_packed *packed = s->packed;
	const uint64_t *end = s->now->end;
	uint32_t at = last_position(s);
	s->critical_count = 0;
	for (;;) {
		uint32_t id = s->order[at], kind = pp_id_kind(id), input = input_of(packed, id);
		const struct pp_packed_stage *stage = &packed->stage[pp_id_stage(packed, id)];
		uint64_t begin = end[id] - stage->ticks[kind], there = 0;
		bool queued = packed->queued && pp_packed_channel(stage, kind) != PP_NO_CHANNEL;
		if (queued) {
			there = s->now->there[id];
		} else if (input != UINT32_MAX) {
			there = end[input];
			if (kind == PP_F)
				there += stage->forward_hop;
			else if (kind != PP_W && pp_id_kind(input) != PP_F)
				there += stage->backward_hop;
		}
		bool first = at == packed->first[stage->rank];
		uint64_t before = first ? 0 : end[s->order[at - 1]];
		if (kind == PP_I || kind == PP_B)
			before += stage->recompute;
		bool by_rank = !first && before == begin, by_input = input != UINT32_MAX && there == begin;
		if (by_rank && s->critical_count < packed->actions)
			s->critical[s->critical_count++] = at;
		if (by_rank && by_input && pp_random_below(&s->random, 2))
			by_rank = false;
		if (by_rank)
			at--;
		else if (by_input)
			at = s->position[queued ? input_of(packed, s->order[head_of_queue(s, at)]) : input];
		else
			return;
	}
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Whether `later`, now behind `earlier` on the same rank, may go ahead of it. */
static bool may_pass(const struct pp_packed *packed, uint32_t earlier, uint32_t later)
{
	if (pp_id_stage(packed, earlier) != pp_id_stage(packed, later))
		return true;
	if (pp_id_kind(earlier) == pp_id_kind(later))
		return false;
	return pp_id_mb(packed, earlier) != pp_id_mb(packed, later);
}

static bool may_move(const struct state *s, const struct move *move)
{
	for (uint32_t earlier = move->begin; earlier < move->middle; earlier++)
		for (uint32_t later = move->middle; later < move->limit; later++)
			if (!may_pass(s->packed, s->order[earlier], s->order[later]))
				return false;
	return true;
}

static void shift(uint32_t *order, const struct move *move)
{
	uint32_t ahead = move->middle - move->begin, behind = move->limit - move->middle, kept[MOST_BLOCK];
	if (behind <= ahead) {
		memcpy(kept, &order[move->middle], behind * sizeof *order);
		memmove(&order[move->begin + behind], &order[move->begin], ahead * sizeof *order);
		memcpy(&order[move->begin], kept, behind * sizeof *order);
	} else {
		memcpy(kept, &order[move->begin], ahead * sizeof *order);
		memmove(&order[move->begin], &order[move->middle], behind * sizeof *order);
		memcpy(&order[move->begin + behind], kept, ahead * sizeof *order);
	}
}

static bool fits(struct state *s, const struct move *move)
{
	const struct pp_packed *packed = s->packed;
	int64_t held = s->held[move->begin],
	        room = packed->room[packed->stage[pp_id_stage(packed, s->order[move->begin])].rank];
	for (uint32_t at = move->begin; at < move->limit; at++) {
		const struct pp_packed_stage *stage = &packed->stage[pp_id_stage(packed, s->order[at])];
		uint32_t kind = pp_id_kind(s->order[at]);
		if (held + stage->take[kind] > room)
			return false;
		held += stage->take[kind] - stage->give[kind];
	}
	return true;
}

static void settle(struct state *s, uint32_t begin, uint32_t limit)
{
	for (uint32_t at = begin; at < limit; at++) {
		const struct pp_packed_stage *stage = &s->packed->stage[pp_id_stage(s->packed, s->order[at])];
		uint32_t kind = pp_id_kind(s->order[at]);
		s->position[s->order[at]] = at;
		s->work[at + 1] = s->work[at] + stage->ticks[kind];
		if (at + 1 < s->packed->first[stage->rank + 1])
			s->held[at + 1] = s->held[at] + stage->take[kind] - stage->give[kind];
	}
}

static struct move propose(struct state *s)
{
	uint32_t at = s->critical[pp_random_below(&s->random, s->critical_count)];
	const struct pp_packed *packed = s->packed;
	uint32_t rank = packed->stage[pp_id_stage(packed, s->order[at])].rank;
	uint32_t first = packed->first[rank], limit = packed->first[rank + 1], reach = 1;
	while (reach < 64 && pp_random_below(&s->random, 3) != 0)
		reach += 1 + reach / 4;
	uint32_t length = 1;
	while (length < MOST_BLOCK && pp_random_below(&s->random, BLOCKS) == 0)
		length++;
	if (pp_random_below(&s->random, 2)) { /* it goes ahead */
		uint32_t most = at - first, behind = limit - at;
		return (struct move){at - (reach < most ? reach : most), at, at + (length < behind ? length : behind)};
	}
	uint32_t most = limit - at, ahead = at - first; /* what is before it goes behind */
	return (struct move){at - (length < ahead ? length : ahead), at, at + (reach < most ? reach : most)};
}

/* ---- the walk -------------------------------------------------------------------------------- */

static double cost_of(const struct pp_packed *packed, const struct pp_packed_times *times)
{
	return (double)times->value + 0.1 * (double)times->total / packed->ranks;
}

static void begin(struct pp_arena *scratch, struct state *s)
{
	const struct pp_packed *packed = s->packed;
	s->best = PP_NEW_ARRAY(scratch, uint32_t, packed->actions);
	s->held = PP_NEW_ARRAY(scratch, int64_t, packed->actions + 1);
	s->work = PP_NEW_ARRAY(scratch, uint64_t, packed->actions + 1);
	s->critical = PP_NEW_ARRAY(scratch, uint32_t, packed->actions);
	s->position = PP_NEW_ARRAY(scratch, uint32_t, packed->ids);
	s->now = pp_packed_times_make(scratch, packed);
	s->trial = pp_packed_times_make(scratch, packed);
	s->random = pp_random_seed(s->options->seed);
	memcpy(s->best, s->order, packed->actions * sizeof *s->order);
	for (uint32_t r = 0; r < packed->ranks; r++)
		if (packed->first[r + 1] > packed->first[r])
			settle(s, packed->first[r], packed->first[r + 1]);
	pp_packed_run(packed, s->order, s->now);
}

uint64_t pp_anneal(struct pp_arena *scratch, const struct pp_packed *packed, const struct pp_anneal *options,
                   uint32_t *order)
{
	struct state s = {.packed = packed, .options = options, .order = order};
	begin(scratch, &s);
	uint64_t best = s.now->value, first = *packed->effort;
	double cost = cost_of(packed, s.now);
	trace_path(&s);
	for (uint32_t i = 1; *packed->effort < options->until && best > options->target && s.critical_count; i++) {
		if (i % MOVES == 0 && pp_is_late(options->deadline))
			break;
		double share = (double)(*packed->effort - first) / (double)(options->until - first);
		double heat = options->hot / (1 + share * (options->hot / options->cold - 1));
		struct move move = propose(&s);
		*packed->effort += 1;
		if (!may_move(&s, &move))
			continue;
		shift(order, &move);
		double slack = heat * pp_random_exponential(&s.random);
		struct pp_packed_change change = {s.now, s.work, move.begin, move.limit - 1, s.now->value + (uint64_t)slack};
		double after = 0;
		if (fits(&s, &move) && pp_packed_rerun(packed, order, &change, s.trial))
			after = cost_of(packed, s.trial);
		if (after == 0 || after > cost + slack) {
			shift(order, &(struct move){move.begin, move.begin + move.limit - move.middle, move.limit});
			continue;
		}
		settle(&s, move.begin, move.limit);
		struct pp_packed_times *times = s.now;
		s.now = s.trial;
		s.trial = times;
		cost = after;
		if (s.now->value < best) {
			best = s.now->value;
			memcpy(s.best, order, packed->actions * sizeof *order);
		}
		trace_path(&s);
	}
	memcpy(order, s.best, packed->actions * sizeof *order);
	return best;
}
