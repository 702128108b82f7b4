/* Random numbers for tests (splitmix64): the same on every machine for the same seed, 0 included. */
#ifndef PP_TEST_RANDOM_H
#define PP_TEST_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *seed)
{
	uint64_t x = *seed += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* 0 .. below - 1. */
static inline uint32_t random_below(uint64_t *seed, uint32_t below)
{
	return (uint32_t)(random_next(seed) % below);
}

#endif
