/* Instructions of tensor cores, one warp at a time, on matrices that the caller numbers. Which thread holds which
 * element is taken from the PTX ISA, sections 9.7.14.5.8 "Matrix fragments for mma.m16n8k16 with floating point
 * type" and 9.7.14.5.15 "ldmatrix", not from the kernels or the emulation. */
#ifndef PP_TENSOR_TRIAL_H
#define PP_TENSOR_TRIAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TENSOR_ROWS = 16, TENSOR_COLUMNS = 8, TENSOR_DEPTH = 16, TENSOR_LANES = 32 };

/* c += a b, all row-major; a and b of numbers that bf16 has. */
void tensor_trial_product(const float *a, const float *b, float *c);

/* parts[lane][m] of four 8 x 8 matrices of 16-bit numbers, whose rows (8 of a matrix after the other) lie `pitch` bytes
 * apart. */
void tensor_trial_load(const uint16_t *matrices, uint32_t pitch, int transposed, uint32_t parts[TENSOR_LANES][4]);

/* Four copies of 16 bytes of 1, 2, 3, 4 in groups of their own, the third of them of nothing (zeros); what the target
 * holds after a wait for all but the last two groups, then for all. */
void tensor_trial_copies(uint32_t first[4], uint32_t second[4]);

float tensor_trial_power2(float x);
float tensor_trial_reciprocal(float x);

#ifdef __cplusplus
}
#endif

#endif
