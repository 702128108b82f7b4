/* What placements that are not the spec's would give: joint.h. Loads only: in-flight counts of other schedules are not
 * known, so memory is left apart. */
#include "joint.h"

/* The slowest rank of the best split on a placement; 0: there is none. */
static uint64_t slowest_on(struct pp_arena *scratch, struct pp_balance_problem problem, uint32_t stages,
                           const uint32_t *stage_rank)
{
	struct pp_split split;
	problem.stages = stages;
	problem.stage_rank = stage_rank;
	return pp_balance_solve(scratch, &problem, &split) ? split.bottleneck : 0;
}

void pp_joint_placements(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                         uint64_t *folded, uint64_t *wrapped)
{
	uint32_t ranks = spec->parallel.pp, layers = spec->model.layer_count;
	*folded = *wrapped = 0;
	if (ranks < 2 || stages->count != ranks || layers < 2 * (uint64_t)ranks)
		return;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint32_t *place = PP_NEW_ARRAY(scratch, uint32_t, (size_t)2 * ranks);
	uint64_t *load = PP_NEW_ARRAY(scratch, uint64_t, layers);
	for (uint32_t i = 0; i < layers; i++) {
		const uint64_t *ticks = stages->layer_ticks[i];
		load[i] = pp_plus(pp_plus(ticks[PP_PHASE_F], ticks[PP_PHASE_R]), ticks[PP_PHASE_B]);
	}
	const struct pp_balance_problem problem = {.layers = layers,
	                                           .ranks = ranks,
	                                           .load = load,
	                                           .min_layers = spec->stages.min_layers,
	                                           .max_layers = spec->stages.max_layers};
	for (uint32_t s = 0; s < 2 * ranks; s++)
		place[s] = pp_place_rank(PP_PLACE_V, s, ranks, 2);
	*folded = slowest_on(scratch, problem, 2 * ranks, place);
	for (uint32_t s = 0; s <= ranks; s++)
		place[s] = s % ranks;
	*wrapped = slowest_on(scratch, problem, ranks + 1, place);
	pp_arena_destroy(scratch);
}
