#include "order_random.h"

#include "random.h"

static uint64_t up_to(uint64_t *seed, uint32_t least, uint32_t most)
{
	return least + random_below(seed, most - least + 1);
}

static uint32_t place_of(uint32_t way, uint32_t stage, uint32_t ranks, uint64_t *seed)
{
	if (way == 0)
		return stage % ranks;
	if (way == 1) {
		uint32_t at = stage % (2 * ranks);
		return at < ranks ? at : 2 * ranks - 1 - at;
	}
	return random_below(seed, ranks);
}

static void random_stage(uint64_t *seed, bool memory, struct pp_order_stage *stage)
{
	stage->ticks[PP_F] = up_to(seed, 1, 12);
	stage->ticks[PP_I] = up_to(seed, 1, 12);
	stage->ticks[PP_W] = up_to(seed, 0, 12);
	stage->ticks[PP_B] = stage->ticks[PP_I] + stage->ticks[PP_W];
	stage->held = up_to(seed, 1, 3);
	stage->recompute = random_below(seed, 4) ? 0 : up_to(seed, 0, 6);
	stage->early = memory && random_below(seed, 2) ? up_to(seed, 0, (uint32_t)stage->held) : 0;
	stage->more_fused = memory && random_below(seed, 3) == 0 ? up_to(seed, 0, 2) : 0;
	stage->more_split = memory && random_below(seed, 3) == 0 ? up_to(seed, 0, 2) : 0;
}

void order_random_of(uint64_t *seed, uint32_t ranks, uint32_t stages, uint32_t microbatches, bool alike,
                     struct order_random *out)
{
	uint32_t way = random_below(seed, 4);
	*out = (struct order_random){.problem = {.ranks = ranks,
	                                         .stages = stages,
	                                         .microbatches = microbatches,
	                                         .stage = out->stage,
	                                         .room = out->room,
	                                         .pair_permille = 1000,
	                                         .queued = random_below(seed, 2)}};
	uint64_t hop = random_below(seed, 3) ? up_to(seed, 0, 5) : 0;
	bool memory = random_below(seed, 2);
	for (uint32_t s = 0; s < stages; s++) {
		if (s == 0 || !alike)
			random_stage(seed, memory, &out->stage[s]);
		else
			out->stage[s] = out->stage[0];
		out->stage[s].rank = place_of(way, s, ranks, seed);
	}
	for (uint32_t s = 0; s < stages; s++) {
		bool next = s + 1 < stages && out->stage[s].rank != out->stage[s + 1].rank;
		bool before = s > 0 && out->stage[s].rank != out->stage[s - 1].rank;
		out->stage[s].forward_hop = !next ? 0 : alike ? hop : up_to(seed, 0, 6);
		out->stage[s].backward_hop = !before ? 0 : alike ? hop : up_to(seed, 0, 6);
	}
	uint32_t narrow = 2 * (stages / ranks), wide = narrow + 5 * ranks; /* bytes: stashes take 1 to 3 */
	uint64_t same = up_to(seed, narrow, wide);
	for (uint32_t r = 0; r < ranks; r++)
		out->room[r] = random_below(seed, 5) == 0 ? PP_ROOM_UNLIMITED : alike ? same : up_to(seed, narrow, wide);
}

void order_random(uint64_t *seed, uint32_t actions, bool alike, struct order_random *out)
{
	uint32_t ranks = (uint32_t)up_to(seed, 1, 3), stages = ranks * (uint32_t)up_to(seed, 1, 2);
	uint32_t most = actions / stages < 4 ? actions / stages : 4;
	uint32_t microbatches = (uint32_t)up_to(seed, 1, most ? most : 1);
	order_random_of(seed, ranks, stages, microbatches, alike, out);
}
