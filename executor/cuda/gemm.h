/* Matrix products of linear layers on the GPU, by cublasLt. Every shape that a rank's bodies use is planned before the
 * first step: its algorithm is chosen once, so that a product has the same bits in every call, in graphs and out of
 * them. f32: exact f32 arithmetic, no TF32. bf16: f32 accumulation, one rounding. Weight gradients are f32 in both.
 *
 * One object per device; not for two threads at once. The workspace is scratch memory of the caller (ir/scratch.h:
 * pp_scratch_product of the largest result), aligned to 256 bytes, of at least the bytes given at create. */
#ifndef PP_GEMM_H
#define PP_GEMM_H

#include "executor/cuda/kernels/kernels_cuda.h"

#include "ir/status.h"

struct pp_gemm;
struct pp_program;

enum pp_gemm_kind { PP_GEMM_LINEAR, PP_GEMM_LINEAR_DX, PP_GEMM_LINEAR_DW, PP_GEMM_KIND_COUNT };

/* x is [tokens, inputs], w [outputs, inputs], y [tokens, outputs]. `bias`: LINEAR adds one. */
struct pp_gemm_shape {
	enum pp_gemm_kind kind;
	enum pp_cuda_type type;
	bool bias;
	size_t tokens, inputs, outputs;
};

/* NULL: no library, or no device. */
struct pp_gemm *pp_gemm_create(uint64_t workspace_bytes, struct pp_status *status);
void pp_gemm_destroy(struct pp_gemm *gemm);

/* Choose an algorithm for a shape; nothing where it has one. False: the library has none, or no memory. */
bool pp_gemm_plan(struct pp_gemm *gemm, const struct pp_gemm_shape *shape, struct pp_status *status);
/* For every linear instruction in the bodies of a pipeline rank. */
bool pp_gemm_plan_rank(struct pp_gemm *gemm, const struct pp_program *program, uint32_t rank, struct pp_status *status);

/* As pp_cpu_linear and its gradients, for shapes that are planned. b may be NULL. The gradient of the bias:
 * pp_cuda_column_sums. */
void pp_gemm_linear(struct pp_gemm *gemm, cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t inputs,
                    size_t outputs, const void *x, const void *w, const void *b, void *y, void *workspace);
void pp_gemm_linear_dx(struct pp_gemm *gemm, cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t inputs,
                       size_t outputs, const void *dy, const void *w, void *dx, void *workspace);
void pp_gemm_linear_dw(struct pp_gemm *gemm, cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t inputs,
                       size_t outputs, const void *dy, const void *x, float *dw, bool accumulate, void *workspace);

/* What went wrong first in a product since create, or NULL. */
const char *pp_gemm_failure(const struct pp_gemm *gemm);

#endif
