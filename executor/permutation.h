/* A seeded permutation of 0 … n-1 in constant memory. */
#ifndef PP_PERMUTATION_H
#define PP_PERMUTATION_H

#include <stdint.h>

/* Image of `index` < n under the permutation of `key`; n >= 1. */
uint64_t pp_permute(uint64_t key, uint64_t n, uint64_t index);

#endif
