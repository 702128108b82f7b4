/* Which rank decides next: times by rank, and the least of them. */
#ifndef PP_ORDER_WAVE_WAKE_H
#define PP_ORDER_WAVE_WAKE_H

#include "ir/arena.h"

#include <stdbool.h>
#include <stdint.h>

#define PP_WAVE_NEVER UINT64_MAX

/* A tournament: the leaves are the ranks, [1] the winner of all. */
struct pp_wave_wake {
	uint64_t *time;  /* [2 * leaves]; PP_WAVE_NEVER: not */
	uint32_t *rank;  /* [2 * leaves] */
	uint32_t leaves; /* a power of two */
};

void pp_wave_wake_make(struct pp_arena *arena, struct pp_wave_wake *wake, uint32_t ranks);

/* Everybody sleeps. */
void pp_wave_wake_clear(struct pp_wave_wake *wake);

/* O(log ranks). */
void pp_wave_wake_set(struct pp_wave_wake *wake, uint32_t rank, uint64_t time);

static inline uint64_t pp_wave_wake_time(const struct pp_wave_wake *wake, uint32_t rank)
{
	return wake->time[wake->leaves + rank];
}

/* The rank with the least time, the lower one among equals; false: everybody sleeps. */
static inline bool pp_wave_wake_first(const struct pp_wave_wake *wake, uint32_t *rank)
{
	*rank = wake->rank[1];
	return wake->time[1] != PP_WAVE_NEVER;
}

#endif
