/* A tournament tree of wake-up times. */
#include "wave_wake.h"

void pp_wave_wake_make(struct pp_arena *arena, struct pp_wave_wake *wake, uint32_t ranks)
{
	for (wake->leaves = 1; wake->leaves < ranks;)
		wake->leaves *= 2;
	wake->time = PP_NEW_ARRAY(arena, uint64_t, wake->leaves);
	wake->winner = PP_NEW_ARRAY(arena, uint32_t, (size_t)2 * wake->leaves);
	for (uint32_t leaf = 0; leaf < wake->leaves; leaf++)
		wake->winner[wake->leaves + leaf] = leaf;
}

void pp_wave_wake_clear(struct pp_wave_wake *wake)
{
	for (uint32_t leaf = 0; leaf < wake->leaves; leaf++)
		wake->time[leaf] = PP_WAVE_NEVER;
	for (uint32_t node = wake->leaves; node-- > 1;)
		wake->winner[node] = wake->winner[2 * node];
}

void pp_wave_wake_set(struct pp_wave_wake *wake, uint32_t rank, uint64_t time)
{
	wake->time[rank] = time;
	for (uint32_t node = (wake->leaves + rank) / 2; node > 0; node /= 2) {
		uint32_t left = wake->winner[2 * node], right = wake->winner[2 * node + 1];
		wake->winner[node] = wake->time[right] < wake->time[left] ? right : left;
	}
}
