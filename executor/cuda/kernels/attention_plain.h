/* Causal attention without tensor cores: f32, and bf16 where attention.cu finds no tile for it. Arguments as
 * pp_cuda_attention and pp_cuda_attention_dx have them. */
#ifndef PP_ATTENTION_PLAIN_H
#define PP_ATTENTION_PLAIN_H

#include "kernels_cuda.h"

void pp_cuda_attention_plain(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape,
                             const void *q, const void *k, const void *v, void *o, float *lse);
void pp_cuda_attention_plain_dx(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape,
                                const void *d_o, const void *q, const void *k, const void *v, const void *o,
                                const float *lse, void *dq, void *dk, void *dv, float *dot);

#endif
