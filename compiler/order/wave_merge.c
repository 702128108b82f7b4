/* Rows in the order of target times: a building block repeated. */
#include "wave.h"

#include <string.h>

struct merge {
	const struct pp_wave *wave;
	const struct pp_wave_rules *rules;
	uint32_t *next; /* [kinds][stages]: microbatch that comes next */
};

static int64_t target(const struct merge *merge, uint32_t kind, uint32_t stage)
{
	const struct pp_wave_rules *rules = merge->rules;
	int64_t at =
	    kind == PP_WAVE_W ? rules->target[PP_WAVE_I][stage] + rules->weight[stage] : rules->target[kind][stage];
	return at + rules->period * merge->next[kind * merge->wave->stages + stage];
}

/* Whether the next of this kind has its F or I, of the same stage, ahead of it. */
static bool due(const struct merge *merge, uint32_t kind, uint32_t stage)
{
	uint32_t stages = merge->wave->stages, mb = merge->next[kind * stages + stage];
	return mb < merge->wave->microbatches && (kind == PP_WAVE_F || mb < merge->next[(kind - 1) * stages + stage]);
}

void pp_wave_merge(const struct pp_wave *wave, const struct pp_wave_rules *rules, uint32_t *next,
                   struct pp_wave_order *order)
{
	struct merge merge = {wave, rules, next};
	memset(next, 0, (size_t)PP_WAVE_KINDS * wave->stages * sizeof *next);
	uint32_t written = 0;
	for (uint32_t r = 0; r < wave->ranks; r++) {
		uint32_t first = wave->rank_first[r], end = wave->rank_first[r + 1];
		for (uint32_t left = (end - first) * PP_WAVE_KINDS * wave->microbatches; left > 0; left--) {
			uint32_t stage = 0, kind = PP_WAVE_KINDS;
			int64_t best = 0;
			for (uint32_t i = first; i < end; i++) {
				for (uint32_t k = 0; k < PP_WAVE_KINDS; k++) {
					if (!due(&merge, k, wave->of_rank[i]))
						continue;
					int64_t at = target(&merge, k, wave->of_rank[i]);
					if (kind == PP_WAVE_KINDS || at < best) {
						best = at;
						stage = wave->of_rank[i];
						kind = k;
					}
				}
			}
			order->operations[written++] =
			    (kind * wave->stages + stage) * wave->microbatches + next[kind * wave->stages + stage]++;
		}
	}
}
