/* Body instructions that run as one kernel, with the same bits: fewer launches, and memory read once. */
#ifndef PP_FUSE_CUDA_H
#define PP_FUSE_CUDA_H

#include "ir/program.h"

#include <stdbool.h>
#include <stdint.h>

/* Is instruction `at` an `add` whose sum the one after it, a `norm`, reads, so that pp_cuda_add_norm can do both? False
 * where what the norm writes overlaps what the add reads: one kernel reads and writes in other rows at once. */
bool pp_cuda_fuses_add_norm(const struct pp_body *body, uint32_t at);

/* Is instruction `at` a `norm_dx` to whose result an `add` then adds in place, at once or with the norm_dw of the same
 * norm between, so that pp_cuda_norm_dx_add can do both? Gives the add, before instruction `end`, or 0. */
uint32_t pp_cuda_fused_add_of_norm_dx(const struct pp_body *body, uint32_t at, uint32_t end);

#endif
