/* A tournament tree of wake-up times. */
#include "wave_wake.h"

void pp_wave_wake_make(struct pp_arena *arena, struct pp_wave_wake *wake, uint32_t ranks)
{
	for (wake->leaves = 1; wake->leaves < ranks;)
		wake->leaves *= 2;
	wake->time = PP_NEW_ARRAY(arena, uint64_t, (size_t)2 * wake->leaves);
	wake->rank = PP_NEW_ARRAY(arena, uint32_t, (size_t)2 * wake->leaves);
	pp_wave_wake_clear(wake);
}

void pp_wave_wake_clear(struct pp_wave_wake *wake)
{
	for (uint32_t node = 2 * wake->leaves; node-- > 1;) {
		wake->time[node] = PP_WAVE_NEVER;
		wake->rank[node] = node < wake->leaves ? wake->rank[2 * node] : node - wake->leaves;
	}
}

void pp_wave_wake_set(struct pp_wave_wake *wake, uint32_t rank, uint64_t time)
{
	uint32_t node = wake->leaves + rank, winner = rank;
	if (wake->time[node] == time)
		return;
	wake->time[node] = time;
	for (; node > 1; node /= 2) {
		uint64_t other = wake->time[node ^ 1];
		/* who wins can't be foreseen: no branch */
		uint32_t loses = -(uint32_t)((other < time) | ((other == time) & (node & 1)));
		time ^= (time ^ other) & (uint64_t)(int64_t)(int32_t)loses;
		winner ^= (winner ^ wake->rank[node ^ 1]) & loses;
		wake->time[node / 2] = time;
		wake->rank[node / 2] = winner;
	}
}
