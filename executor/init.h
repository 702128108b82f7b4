/* Initial weights: a draw on (seed, global tensor name, logical index) and nothing else, with IEEE operations only, so
 * that every layout on every machine starts from the same bits. */
#ifndef PP_INIT_H
#define PP_INIT_H

#include "ir/program.h"

/* Write elements first … first + count - 1 (row-major index in the logical tensor) to `to`. */
void pp_init_fill(const struct pp_tensor *tensor, uint64_t seed, uint64_t first, uint64_t count, float *to);

/* Two independent standard normal values: pair `index` of the stream `key`. */
void pp_init_normal(uint64_t key, uint64_t index, double pair[2]);

#endif
