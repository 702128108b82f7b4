/* Sums and products of sizes and times that stop at UINT64_MAX, which stands for "too much to count", instead of
 * wrapping. */
#ifndef PP_CAPPED_H
#define PP_CAPPED_H

#include <stdint.h>

static inline uint64_t pp_plus(uint64_t a, uint64_t b)
{
	uint64_t sum;
	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t pp_times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* So many thousandths of it, rounded down; 0 stands for 1000. */
static inline uint64_t pp_thousandths(uint64_t ticks, uint64_t permille)
{
	permille = permille ? permille : 1000;
	return pp_plus(pp_times(ticks / 1000, permille), ticks % 1000 * permille / 1000);
}

#endif
