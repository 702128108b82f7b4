/* Kernels of the fake's own tests: plain functions in place of emulated ones. */
#ifndef PP_SMALL_KERNELS_H
#define PP_SMALL_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* to[i] = value */
cudaError_t small_fill(float *to, float value, uint32_t count, cudaStream_t stream);
/* to[i] = factor * from[i] */
cudaError_t small_scale(float *to, const float *from, float factor, uint32_t count, cudaStream_t stream);
/* Takes that long. */
cudaError_t small_nap(uint32_t microseconds, cudaStream_t stream);

#endif
