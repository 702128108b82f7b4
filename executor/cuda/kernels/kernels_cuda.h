/* The CUDA kernels behind plain C functions: one for each body instruction and for the local step tail, named and
 * shaped like those of executor/kernels/kernels.h, whose comments say what each computes. Each enqueues on the stream
 * and returns; a launch that fails leaves its error for cudaGetLastError. They allocate nothing and keep no state.
 * Matrix products: executor/cuda/gemm.h.
 *
 * Types: activations, weights and their gradients between bodies (`const void *`) are of `type`; gradients of weights,
 * statistics of rows (mean, rstd, lse, stats) and master weights are f32; losses, norms and the scale are f64. All
 * arithmetic is f32, sums of losses and norms f64; a bf16 result is the f32 one, rounded once, to nearest even.
 *
 * Bits depend on shapes and values only: not on addresses, streams, devices of one kind or the schedule. There are no
 * float atomics; every sum has one order. Arrays do not overlap unless kernels.h says so. Elements are aligned to their
 * size; what is aligned to 16 bytes, as arenas are, goes faster.
 *
 * scratch: memory of the device that a function may use until its launches have run, of the bytes that ir/scratch.h
 * computes for it, aligned to 256. Functions on one stream may share it. */
#ifndef PP_KERNELS_CUDA_H
#define PP_KERNELS_CUDA_H

#include "executor/kernels/kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is there code of the kernels for the GPU that is set? cudaErrorNoKernelImageForDevice: they were built for others. */
cudaError_t pp_cuda_has_code(void);

enum pp_cuda_type { PP_CUDA_F32, PP_CUDA_BF16, PP_CUDA_TYPE_COUNT };

/* ---- embedding: embed.cu --------------------------------------------------------------------- */

/* Rows of the token table that are here; ids outside count as 0. wpe may be NULL. */
void pp_cuda_embed(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, size_t seq,
                   const struct pp_table_part *part, const int32_t *ids, const void *wte, const void *wpe, void *y);
/* Sums in ascending t. dwpe may be NULL, then positions is 0. Scratch: pp_scratch_embed_dw. */
void pp_cuda_embed_dw(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, size_t seq,
                      const struct pp_table_part *part, size_t positions, const int32_t *ids, const void *dy,
                      float *dwte, bool accumulate_wte, float *dwpe, bool accumulate_wpe, void *scratch);

/* ---- norms: norm.cu -------------------------------------------------------------------------- */

void pp_cuda_norm(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *x,
                  const void *gamma, const void *beta, void *y, float *mean, float *rstd);
/* sum = a + b, then the norm of sum, in one pass with the bits of both apart. sum may be a or b. */
void pp_cuda_add_norm(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *a,
                      const void *b, void *sum, const void *gamma, const void *beta, void *y, float *mean, float *rstd);
void pp_cuda_norm_dx(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *dy,
                     const void *x, const void *gamma, const float *mean, const float *rstd, void *dx);
/* dx = the input gradient of the norm, then dx = plus + dx, in one pass with the bits of both apart. */
void pp_cuda_norm_dx_add(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms,
                         const void *dy, const void *x, const void *gamma, const float *mean, const float *rstd,
                         const void *plus, void *dx);

/* ---- attention: attention*.cu ---------------------------------------------------------------- */

/* Heads are at most this wide. Probabilities and their gradients are rounded to bf16 between products where the type
 * is bf16 and heads are at most 128 wide. */
enum { PP_CUDA_ATTENTION_COLUMNS = 256 };

void pp_cuda_attention(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape, const void *q,
                       const void *k, const void *v, void *o, float *lse);
/* Scratch: pp_scratch_attention_dx. */
void pp_cuda_attention_dx(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape,
                          const void *d_o, const void *q, const void *k, const void *v, const void *o, const float *lse,
                          void *dq, void *dk, void *dv, void *scratch);

/* ---- rope.cu --------------------------------------------------------------------------------- */

/* Scratch: pp_scratch_rotate. */
void pp_cuda_rotate(cudaStream_t stream, enum pp_cuda_type type, const struct pp_rotation *shape, const void *x,
                    void *y, void *scratch);

/* ---- pointwise.cu ---------------------------------------------------------------------------- */

void pp_cuda_activate(cudaStream_t stream, enum pp_cuda_type type, enum pp_gelu kind, size_t count, const void *x,
                      void *y);
void pp_cuda_activate_dx(cudaStream_t stream, enum pp_cuda_type type, enum pp_gelu kind, size_t count, const void *dy,
                         const void *x, void *dx);
void pp_cuda_swiglu(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *gate, const void *up,
                    void *y);
void pp_cuda_swiglu_dx(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *dy, const void *gate,
                       const void *up, void *dgate, void *dup);
void pp_cuda_add(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *a, const void *b, void *y);
/* Bytes of any type; nothing where x is y. */
void pp_cuda_copy(cudaStream_t stream, size_t bytes, const void *x, void *y);
void pp_cuda_zero(cudaStream_t stream, size_t bytes, void *y);
/* Custom layers: the stream takes this long. */
void pp_cuda_sleep(cudaStream_t stream, uint64_t nanoseconds);

/* ---- what tensor parallelism adds: shard.cu -------------------------------------------------- */

void pp_cuda_add_bias(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, const void *a,
                      const void *b, const void *bias, void *y);
void pp_cuda_take_columns(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, size_t first,
                          size_t count, const void *x, void *y);
void pp_cuda_put_columns(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, size_t first,
                         size_t count, const void *x, void *y);

/* ---- cross-entropy: loss.cu ------------------------------------------------------------------ */

/* Reads the logits twice, the second time mostly out of the cache; probabilities are never stored. Scratch:
 * pp_scratch_cross_entropy, likewise for _part. */
void pp_cuda_cross_entropy(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t vocab, size_t columns,
                           bool mean, const void *logits, const int32_t *labels, void *dlogits, double loss[2],
                           void *scratch);
void pp_cuda_cross_entropy_stats(cudaStream_t stream, enum pp_cuda_type type, const struct pp_vocab_part *part,
                                 size_t tokens, const void *logits, const int32_t *labels, float *stats);
void pp_cuda_cross_entropy_part(cudaStream_t stream, enum pp_cuda_type type, const struct pp_vocab_part *part,
                                size_t tokens, size_t members, bool mean, const void *logits, const int32_t *labels,
                                const float *stats, void *dlogits, double loss[2], void *scratch);

/* ---- sums: reduce.cu ------------------------------------------------------------------------- */

/* Scratch: pp_scratch_norm_dw. */
void pp_cuda_norm_dw(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *dy,
                     const void *x, const float *mean, const float *rstd, float *dgamma, bool accumulate_gamma,
                     float *dbeta, bool accumulate_beta, void *scratch);

/* sums[j] (+)= sum over t of x[t,j]: the gradient of a bias. Scratch: pp_scratch_column_sums. */
void pp_cuda_column_sums(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, const void *x,
                         float *sums, bool accumulate, void *scratch);

/* Squared norms of many arrays, few launches. `norm` := the sum over the item, or += where `add`: items of one norm
 * stand one after the other, only the first without `add`. Scratch: pp_scratch_square_norms. */
struct pp_cuda_norm_item {
	const float *elements;
	uint64_t count;
	double *norm;
	bool add;
};
void pp_cuda_square_norms(cudaStream_t stream, size_t count, const struct pp_cuda_norm_item *items, void *scratch);

/* ---- step tail: optimizer.cu ----------------------------------------------------------------- */

/* scale := factor on gradients, norm, finite or not, tokens (PP_SLOT_SCALE). `losses`: (sum, count) of each microbatch;
 * `parts` > 0: the mean is over that many, else over the tokens; clip = 0: none. One order, that of the CPU device. */
void pp_cuda_clip(cudaStream_t stream, size_t microbatches, const double *losses, size_t tensors, const double *norms,
                  double parts, double clip, double *scale);

/* What changes from step to step, in device memory (f64[4]), written in stream order: lr, 1 / (1 - beta1^step), 1 / (1
 * - beta2^step), nothing. pp_cuda_rates computes them on the host. */
enum { PP_CUDA_RATES = 4 };
void pp_cuda_rates(double lr, double beta1, double beta2, uint64_t step, double rates[PP_CUDA_RATES]);

/* Updates of many tensors, few launches; nothing where the scale says that the norm is not finite. `master` is f32 and
 * updated; `weight` gets it rounded to bf16, NULL: the master is the weight. SGD has no moments. */
struct pp_cuda_update {
	float *master;
	void *weight;
	const float *gradient;
	float *moment1, *moment2;
	uint64_t count;
};
struct pp_cuda_rule {
	double beta1, beta2, eps, weight_decay;
};
void pp_cuda_adamw(cudaStream_t stream, const struct pp_cuda_rule *rule, size_t count,
                   const struct pp_cuda_update *updates, const double *rates, const double *scale);
void pp_cuda_sgd(cudaStream_t stream, double weight_decay, size_t count, const struct pp_cuda_update *updates,
                 const double *rates, const double *scale);

#ifdef __cplusplus
}
#endif

#endif
