/* Competition of shapes. */
#include "wave_try.h"

#include <string.h>

/* The same with equal costs: a sixth of the period, in whole slots, and no hops. */
static struct pp_wave *even(struct pp_arena *arena, const struct pp_wave *wave)
{
	struct pp_wave *same = PP_NEW(arena, struct pp_wave);
	*same = *wave;
	same->queued = false;
	same->stage = PP_NEW_ARRAY(arena, struct pp_wave_stage, wave->stages);
	uint64_t slot = wave->period / 6 ? wave->period / 6 : 1;
	for (uint32_t s = 0; s < wave->stages; s++) {
		same->stage[s] = wave->stage[s];
		same->stage[s].forward_hop = same->stage[s].backward_hop = same->stage[s].recompute = 0;
		same->stage[s].hop[PP_WAVE_F] = same->stage[s].hop[PP_WAVE_I] = 0;
		for (uint32_t kind = 0; kind < PP_WAVE_KINDS; kind++)
			same->stage[s].ticks[kind] = slot;
	}
	return same;
}

struct pp_wave_contest *pp_wave_contest_new(struct pp_arena *arena, const struct pp_wave *wave, bool span,
                                            uint32_t more)
{
	struct pp_wave_contest *contest = PP_NEW(arena, struct pp_wave_contest);
	*contest = (struct pp_wave_contest){.wave = wave,
	                                    .span = span,
	                                    .more = more,
	                                    .wanted = PP_WAVE_KEPT,
	                                    .flow = {pp_wave_flow_new(arena, wave)},
	                                    .follow = {pp_wave_follow_new(arena, wave)},
	                                    .clock = pp_wave_clock_new(arena, wave, span),
	                                    .lanes = pp_wave_lanes_new(arena, wave),
	                                    .recent = PP_NEW_ARRAY(arena, uint64_t, PP_WAVE_RECENT),
	                                    .base = pp_wave_order_new(arena, wave),
	                                    .trial = pp_wave_order_new(arena, wave)};
	const struct pp_wave *same = even(arena, wave);
	contest->flow[1] = pp_wave_flow_new(arena, same);
	contest->follow[1] = pp_wave_follow_new(arena, same);
	pp_wave_rules_make(arena, wave, &contest->rules);
	for (uint32_t i = 0; i < PP_WAVE_KEPT; i++)
		contest->best[i] = (struct pp_wave_entry){.value = UINT64_MAX, .order = pp_wave_order_new(arena, wave)};
	return contest;
}

/* Keep the order under trial if it is among the best, one of each value. */
static void keep(struct pp_wave_contest *contest, const struct pp_wave_shape *shape, uint64_t value)
{
	struct pp_wave_entry *best = contest->best;
	uint32_t at = 0;
	while (at < PP_WAVE_KEPT && best[at].value < value)
		at++;
	if (at == PP_WAVE_KEPT || best[at].value == value)
		return;
	struct pp_wave_entry last = best[PP_WAVE_KEPT - 1];
	memmove(&best[at + 1], &best[at], (PP_WAVE_KEPT - 1 - at) * sizeof *best);
	best[at] = (struct pp_wave_entry){value, *shape, last.order};
	pp_wave_order_copy(contest->wave, last.order, contest->trial);
}

/* What so many more microbatches would take: at the rate at which the middle half of them leave. */
static uint64_t extrapolated(const struct pp_wave_contest *contest)
{
	const struct pp_wave *wave = contest->wave;
	uint32_t m = wave->microbatches, from = m / 4, to = m - 1 - m / 4;
	if (contest->more == 0 || to <= from)
		return 0;
	const uint64_t *leave = contest->clock->end + (size_t)wave->stages * m;
	return (leave[to] - leave[from]) / (to - from) * contest->more;
}

/* Whether the same was run before: shapes differ more than the orders of their targets do. */
static bool is_known(struct pp_wave_contest *contest, uint64_t print, const struct pp_wave_pace *pace, bool equal)
{
	print = (print ^ ((uint64_t)pace->window << 32 | pace->fill << 1 | equal)) * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t *recent = &contest->recent[(print >> 32) % PP_WAVE_RECENT];
	bool known = *recent == print;
	*recent = print;
	return known;
}

void pp_wave_contest_try(struct pp_wave_contest *contest, const struct pp_wave_shape *shape)
{
	bool made, equal = shape->blind == 2;
	pp_wave_shape_rules(contest->wave, shape, &contest->rules);
	/* what is extrapolated to is known only of whole orders */
	pp_wave_clock_begin(contest->clock, contest->more ? UINT64_MAX : contest->best[contest->wanted - 1].value);
	if (shape->window) {
		struct pp_wave_pace pace = {(uint32_t)shape->window, (uint32_t)shape->fill};
		uint64_t print = pp_wave_merge(contest->wave, &contest->rules, contest->lanes, contest->base);
		if (is_known(contest, print, &pace, equal))
			return; /* what is kept is no worse */
		made = pp_wave_follow_run(contest->follow[equal], contest->base, &pace, contest->clock, contest->trial);
	} else {
		made = pp_wave_flow_run(contest->flow[equal], &contest->rules, contest->clock, contest->trial);
	}
	if (!made)
		return;
	uint64_t value = contest->span ? contest->trial->span : contest->trial->makespan;
	keep(contest, shape, value + extrapolated(contest));
}
