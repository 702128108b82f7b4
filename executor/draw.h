/* Counter-based random draws: a value is a pure function of a key and a counter, so that every rank, whatever part it
 * needs, gets the same numbers without a generator to share. Integer operations only. */
#ifndef PP_DRAW_H
#define PP_DRAW_H

#include <stdint.h>

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
static inline uint64_t pp_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Draw `counter` of stream `key`: SplitMix64 started at the key, so keys should be mixed themselves. */
static inline uint64_t pp_draw(uint64_t key, uint64_t counter)
{
	return pp_mix(key + (counter + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* A key for a sub-stream. */
static inline uint64_t pp_draw_key(uint64_t key, uint64_t name)
{
	return pp_mix(pp_mix(key ^ UINT64_C(0x6a09e667f3bcc909)) + name * UINT64_C(0xd1342543de82ef95) + 1);
}

/* Uniform in [0, bound) for bound >= 1: the high half of a 64 x 64 bit product (bias below bound / 2^64). */
static inline uint64_t pp_draw_below(uint64_t key, uint64_t counter, uint64_t bound)
{
	uint64_t draw = pp_draw(key, counter);
	uint64_t low = (draw & UINT32_MAX) * (bound & UINT32_MAX);
	uint64_t left = (draw >> 32) * (bound & UINT32_MAX);
	uint64_t right = (draw & UINT32_MAX) * (bound >> 32);
	uint64_t carry = ((low >> 32) + (left & UINT32_MAX) + (right & UINT32_MAX)) >> 32;
	return (draw >> 32) * (bound >> 32) + (left >> 32) + (right >> 32) + carry;
}

#endif
