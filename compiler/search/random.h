/* Random numbers of the search: xorshift, the same on every machine. */
#ifndef PP_SEARCH_RANDOM_H
#define PP_SEARCH_RANDOM_H

#include <stdint.h>

static inline uint64_t pp_random_seed(uint64_t seed)
{
	return (seed * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x2545f4914f6cdd1d)) | 1;
}

static inline uint64_t pp_random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline uint32_t pp_random_below(uint64_t *state, uint32_t bound)
{
	return (uint32_t)((pp_random_next(state) >> 32) * bound >> 32);
}

/* -ln of a uniform number from 0 to 1, with log2(1 + f) taken for f: of basic operations alone, so that every machine
 * walks the same way. */
static inline double pp_random_exponential(uint64_t *state)
{
	uint64_t random = pp_random_next(state) | 1;
	int zeros = __builtin_clzll(random);
	double rest = (double)(random << zeros << 1 >> 11) * 0x1p-53;
	return 0.6931471805599453 * (zeros + 1 - rest);
}

#endif
