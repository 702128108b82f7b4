/* Two body instructions that run as one kernel, with the same bits: fewer launches, and memory read once. */
#ifndef PP_FUSE_CUDA_H
#define PP_FUSE_CUDA_H

#include "ir/program.h"

#include <stdbool.h>
#include <stdint.h>

/* Is instruction `at` an `add` whose sum the one after it, a `norm`, reads, so that pp_cuda_add_norm can do both? False
 * where what the norm writes overlaps what the add reads: one kernel reads and writes in other rows at once. */
bool pp_cuda_fuses_add_norm(const struct pp_body *body, uint32_t at);

#endif
