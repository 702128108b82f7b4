/* The ordering problem packed for the schedules on a V, and orders back to rows.
 *
 * requires: a problem with at least one stage and microbatch. ensures: sums that don't wrap (times and bytes are
 * clamped far below that). */
#include "wave.h"

#include <assert.h>
#include <string.h>

/* A minute of one action, a terabyte of one stash: more says "too much" all the same, and with the actions that a
 * schedule may have at most (rows.h) no sum wraps. */
static const uint64_t most_ticks = (uint64_t)1 << 36, most_bytes = (uint64_t)1 << 40;

static uint64_t at_most(uint64_t value, uint64_t most)
{
	return value < most ? value : most;
}

static void pack_stages(struct pp_wave *wave, const struct pp_order_problem *problem)
{
	for (uint32_t s = 0; s < wave->stages; s++) {
		const struct pp_order_stage *from = &problem->stage[s];
		struct pp_wave_stage *to = &wave->stage[s];
		to->rank = from->rank;
		to->ticks[PP_WAVE_F] = at_most(from->ticks[PP_F], most_ticks);
		to->recompute = at_most(from->recompute, most_ticks);
		to->ticks[PP_WAVE_I] = at_most(from->ticks[PP_I], most_ticks) + to->recompute;
		to->ticks[PP_WAVE_W] = at_most(from->ticks[PP_W], most_ticks);
		to->forward_hop = at_most(from->forward_hop, most_ticks);
		to->backward_hop = at_most(from->backward_hop, most_ticks);
		to->held = at_most(from->held, most_bytes);
		to->early = at_most(from->early, to->held);
		to->more = at_most(from->more_split, most_bytes);
		wave->rank_first[from->rank + 1]++;
	}
}

static void find_channels(struct pp_arena *arena, const struct pp_order_problem *problem, struct pp_wave *wave)
{
	const uint32_t *channel = pp_order_queues(arena, problem);
	wave->queued = channel != NULL;
	for (uint32_t s = 0; s < wave->stages; s++) {
		struct pp_wave_stage *stage = &wave->stage[s];
		stage->channel[PP_WAVE_F] = channel && s ? channel[2 * (size_t)(s - 1)] : PP_NO_CHANNEL;
		stage->channel[PP_WAVE_I] = channel && s + 1 < wave->stages ? channel[2 * (size_t)s + 3] : PP_NO_CHANNEL;
		stage->hop[PP_WAVE_F] = s ? stage[-1].forward_hop : 0;
		stage->hop[PP_WAVE_I] = s + 1 < wave->stages ? stage[1].backward_hop : 0;
	}
}

static void number_operations(struct pp_arena *arena, struct pp_wave *wave)
{
	uint32_t tokens = PP_WAVE_KINDS * wave->stages;
	wave->token = PP_NEW_ARRAY(arena, uint32_t, (size_t)tokens * wave->microbatches);
	wave->token_stage = PP_NEW_ARRAY(arena, uint32_t, tokens);
	wave->token_kind = PP_NEW_ARRAY(arena, uint8_t, tokens);
	for (uint32_t token = 0; token < tokens; token++) {
		wave->token_kind[token] = (uint8_t)(token / wave->stages);
		wave->token_stage[token] = token % wave->stages;
		for (uint32_t mb = 0; mb < wave->microbatches; mb++)
			wave->token[(size_t)token * wave->microbatches + mb] = token;
	}
}

struct pp_wave *pp_wave_of_few(struct pp_arena *arena, const struct pp_wave *wave, uint32_t microbatches)
{
	struct pp_wave *few = PP_NEW(arena, struct pp_wave);
	*few = *wave;
	few->microbatches = microbatches;
	number_operations(arena, few);
	return few;
}

struct pp_wave *pp_wave_pack(struct pp_arena *arena, const struct pp_order_problem *problem)
{
	struct pp_wave *wave = PP_NEW(arena, struct pp_wave);
	*wave = (struct pp_wave){.ranks = problem->ranks,
	                         .stages = problem->stages,
	                         .microbatches = problem->microbatches,
	                         .stage = PP_NEW_ARRAY(arena, struct pp_wave_stage, problem->stages),
	                         .of_rank = PP_NEW_ARRAY(arena, uint32_t, problem->stages),
	                         .rank_first = PP_NEW_ARRAY(arena, uint32_t, problem->ranks + 1),
	                         .room = PP_NEW_ARRAY(arena, uint64_t, problem->ranks),
	                         .more = PP_NEW_ARRAY(arena, uint64_t, problem->ranks)};
	pack_stages(wave, problem);
	for (uint32_t r = 0; r < wave->ranks; r++) {
		wave->rank_first[r + 1] += wave->rank_first[r];
		wave->room[r] = problem->room[r];
	}
	find_channels(arena, problem, wave);
	number_operations(arena, wave);
	uint32_t *filled = PP_NEW_ARRAY(arena, uint32_t, wave->ranks);
	uint64_t *work = PP_NEW_ARRAY(arena, uint64_t, wave->ranks);
	for (uint32_t s = 0; s < wave->stages; s++) {
		const struct pp_wave_stage *stage = &wave->stage[s];
		uint32_t r = stage->rank;
		wave->of_rank[wave->rank_first[r] + filled[r]++] = s;
		wave->more[r] = stage->more > wave->more[r] ? stage->more : wave->more[r];
		work[r] += stage->ticks[PP_WAVE_F] + stage->ticks[PP_WAVE_I] + stage->ticks[PP_WAVE_W];
		wave->period = work[r] > wave->period ? work[r] : wave->period;
	}
	return wave;
}

struct pp_wave_order *pp_wave_order_new(struct pp_arena *arena, const struct pp_wave *wave)
{
	struct pp_wave_order *order = PP_NEW(arena, struct pp_wave_order);
	order->operations = PP_NEW_ARRAY(arena, uint32_t, (size_t)wave->stages * PP_WAVE_KINDS * wave->microbatches);
	order->makespan = order->span = UINT64_MAX;
	return order;
}

void pp_wave_order_copy(const struct pp_wave *wave, struct pp_wave_order *to, const struct pp_wave_order *from)
{
	size_t count = (size_t)wave->stages * PP_WAVE_KINDS * wave->microbatches;
	memcpy(to->operations, from->operations, count * sizeof *to->operations);
	to->makespan = from->makespan;
	to->span = from->span;
}

void pp_wave_unpack(struct pp_arena *arena, const struct pp_wave *wave, const struct pp_wave_order *order,
                    struct pp_row *rows)
{
	static const uint8_t kind_of[PP_WAVE_KINDS] = {PP_F, PP_I, PP_W};
	for (uint32_t r = 0; r < wave->ranks; r++) {
		size_t first = (size_t)wave->rank_first[r] * PP_WAVE_KINDS * wave->microbatches;
		size_t end = (size_t)wave->rank_first[r + 1] * PP_WAVE_KINDS * wave->microbatches;
		rows[r].count = (uint32_t)(end - first);
		rows[r].actions = PP_NEW_ARRAY(arena, struct pp_action, rows[r].count);
		for (size_t i = first; i < end; i++) {
			uint32_t operation = order->operations[i];
			rows[r].actions[i - first] = (struct pp_action){.stage = pp_wave_stage_of(wave, operation),
			                                                .mb = operation % wave->microbatches,
			                                                .kind = kind_of[pp_wave_kind_of(wave, operation)],
			                                                .span = PP_NO_SPAN};
		}
	}
}

void pp_wave_read(const struct pp_wave *wave, const struct pp_row *rows, struct pp_wave_order *order)
{
	static const uint32_t kind_of[PP_ACTION_KINDS] = {[PP_F] = PP_WAVE_F, [PP_I] = PP_WAVE_I, [PP_W] = PP_WAVE_W};
	uint32_t written = 0;
	for (uint32_t r = 0; r < wave->ranks; r++) {
		assert(rows[r].count == (wave->rank_first[r + 1] - wave->rank_first[r]) * PP_WAVE_KINDS * wave->microbatches);
		for (uint32_t i = 0; i < rows[r].count; i++) {
			const struct pp_action *action = &rows[r].actions[i];
			order->operations[written++] =
			    (kind_of[action->kind] * wave->stages + action->stage) * wave->microbatches + action->mb;
		}
	}
}
