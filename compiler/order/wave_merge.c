/* Rows in the order of target times: a building block repeated. */
#include "wave.h"

/* Of the next operation of a kind and stage. */
struct pp_wave_lane {
	int64_t target;
	int64_t due; /* the target; INT64_MAX while its F or I, of the same stage, is not ahead of it, or none is left */
	uint32_t token, next;
};

struct pp_wave_lane *pp_wave_lanes_new(struct pp_arena *arena, const struct pp_wave *wave)
{
	return PP_NEW_ARRAY(arena, struct pp_wave_lane, (size_t)PP_WAVE_KINDS * wave->stages);
}

/* The lanes of a rank: of each stage those of F, I and W, one after the other. */
static uint32_t begin(const struct pp_wave *wave, const struct pp_wave_rules *rules, uint32_t rank,
                      struct pp_wave_lane *lanes)
{
	uint32_t count = 0;
	for (uint32_t i = wave->rank_first[rank]; i < wave->rank_first[rank + 1]; i++)
		for (uint32_t kind = 0; kind < PP_WAVE_KINDS; kind++) {
			uint32_t stage = wave->of_rank[i];
			int64_t target = rules->target[kind == PP_WAVE_F ? PP_WAVE_F : PP_WAVE_I][stage];
			target += kind == PP_WAVE_W ? rules->weight[stage] : 0;
			lanes[count++] = (struct pp_wave_lane){
			    .target = target, .due = kind == PP_WAVE_F ? target : INT64_MAX, .token = kind * wave->stages + stage};
		}
	return count;
}

/* The lane that is due first, the first of equals. */
static uint32_t first_due(const struct pp_wave_lane *lanes, uint32_t count)
{
	uint32_t first = 0;
	for (uint32_t i = 1; i < count; i++)
		first = lanes[i].due < lanes[first].due ? i : first;
	return first;
}

/* Another operation of the lane at `at` stands in the row. */
static void advance(struct pp_wave_lane *lanes, uint32_t at, int64_t period, uint32_t microbatches)
{
	struct pp_wave_lane *lane = &lanes[at];
	uint32_t most = at % PP_WAVE_KINDS == PP_WAVE_F ? microbatches : lane[-1].next;
	lane->next++;
	lane->target += period;
	lane->due = lane->next < most ? lane->target : INT64_MAX;
	if (at % PP_WAVE_KINDS != PP_WAVE_W)
		lane[1].due = lane[1].target;
}

uint64_t pp_wave_merge(const struct pp_wave *wave, const struct pp_wave_rules *rules, struct pp_wave_lane *lanes,
                       struct pp_wave_order *order)
{
	uint32_t written = 0, m = wave->microbatches;
	uint64_t print = 0;
	for (uint32_t r = 0; r < wave->ranks; r++) {
		uint32_t count = begin(wave, rules, r, lanes);
		for (uint32_t left = count * m; left > 0; left--) {
			uint32_t at = first_due(lanes, count), operation = lanes[at].token * m + lanes[at].next;
			order->operations[written++] = operation;
			print = (print ^ operation) * UINT64_C(0x9e3779b97f4a7c15);
			print ^= print >> 32;
			advance(lanes, at, rules->period, m);
		}
	}
	return print;
}
