/* A seeded permutation by a Feistel network on the smallest even number of bits that holds n, walked along its cycle
 * until the image is below n (Black and Rogaway 2002): at most four rounds of the network on average. */
#include "permutation.h"

#include "draw.h"

#include <assert.h>

enum { ROUNDS = 6 };

static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t x)
{
	uint64_t mask = (UINT64_C(1) << half_bits) - 1;
	uint64_t left = x >> half_bits, right = x & mask;
	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint64_t next = left ^ (pp_draw(pp_draw_key(key, round), right) & mask);
		left = right;
		right = next;
	}
	return left << half_bits | right;
}

uint64_t pp_permute(uint64_t key, uint64_t n, uint64_t index)
{
	assert(index < n);
	unsigned half_bits = 1;
	while (half_bits < 32 && (UINT64_C(1) << 2 * half_bits) < n)
		half_bits++;
	do
		index = feistel(key, half_bits, index);
	while (index >= n);
	return index;
}
