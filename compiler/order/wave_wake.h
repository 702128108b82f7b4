/* Which rank decides next: times by rank, and the least of them. */
#ifndef PP_ORDER_WAVE_WAKE_H
#define PP_ORDER_WAVE_WAKE_H

#include "ir/arena.h"

#include <stdint.h>

#define PP_WAVE_NEVER UINT64_MAX

struct pp_wave_wake {
	uint64_t *time;   /* [leaves]; PP_WAVE_NEVER: not */
	uint32_t *winner; /* a tournament: [1] is the rank with the least time, the lower one among equals */
	uint32_t leaves;
};

void pp_wave_wake_make(struct pp_arena *arena, struct pp_wave_wake *wake, uint32_t ranks);

/* Everybody sleeps. */
void pp_wave_wake_clear(struct pp_wave_wake *wake);

/* O(log ranks). */
void pp_wave_wake_set(struct pp_wave_wake *wake, uint32_t rank, uint64_t time);

#endif
