/* The CPU kernels: one function per body instruction of ops.def, plus the local step-tail instructions. Plain C
 * functions over row-major arrays; they allocate nothing, keep no state and may run in many threads at once.
 *
 * Bits: a result depends only on shapes and values, never on addresses, threads, ranks or the schedule. Sums over
 * tokens run in ascending order.
 *
 * The sources kernels_*.c compile a second time with PP_KERNELS_DOUBLE for the numerics tests. Names: tokens = rows
 * of a microbatch, `accumulate` = add to the gradient instead of writing it. Arrays do not overlap unless said. */
#ifndef PP_KERNELS_CPU_H
#define PP_KERNELS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef PP_KERNELS_DOUBLE
typedef double pp_real;
#else
typedef float pp_real;
#endif

/* Once per device: BLAS runs in the calling thread. Once per thread that calls kernels: denormals are flushed. */
void pp_kernels_one_thread(void);
void pp_kernels_flush_denormals(void);

/* The code path of BLAS, by its own name: the processor's, or the one that OPENBLAS_CORETYPE asks for. */
const char *pp_kernels_core(void);

/* y[t,:] = wte[ids[t],:] + wpe[t mod seq,:]; wpe may be NULL. */
void pp_cpu_embed(size_t tokens, size_t columns, size_t seq, const int32_t *ids, const pp_real *wte, const pp_real *wpe,
                  pp_real *y);
/* Tables of vocab and positions rows; dwpe may be NULL. */
void pp_cpu_embed_dw(size_t tokens, size_t columns, size_t seq, size_t vocab, size_t positions, const int32_t *ids,
                     const pp_real *dy, pp_real *dwte, bool accumulate_wte, pp_real *dwpe, bool accumulate_wpe);
/* The same where only rows first to first + rows - 1 of the token table are here: other rows count as 0, and their
 * tokens add nothing to dwte. */
struct pp_table_part {
	size_t first, rows;
};
void pp_cpu_embed_part(size_t tokens, size_t columns, size_t seq, const struct pp_table_part *part, const int32_t *ids,
                       const pp_real *wte, const pp_real *wpe, pp_real *y);
void pp_cpu_embed_part_dw(size_t tokens, size_t columns, size_t seq, const struct pp_table_part *part, size_t positions,
                          const int32_t *ids, const pp_real *dy, pp_real *dwte, bool accumulate_wte, pp_real *dwpe,
                          bool accumulate_wpe);

/* Layer norm (rms = false, eps 1e-5) or root-mean-square norm (rms = true, eps 1e-6; mean is NULL) of each row.
 * beta and dbeta may be NULL. */
void pp_cpu_norm(size_t rows, size_t columns, bool rms, const pp_real *x, const pp_real *gamma, const pp_real *beta,
                 pp_real *y, pp_real *mean, pp_real *rstd);
void pp_cpu_norm_dx(size_t rows, size_t columns, bool rms, const pp_real *dy, const pp_real *x, const pp_real *gamma,
                    const pp_real *mean, const pp_real *rstd, pp_real *dx);
void pp_cpu_norm_dw(size_t rows, size_t columns, bool rms, const pp_real *dy, const pp_real *x, const pp_real *mean,
                    const pp_real *rstd, pp_real *dgamma, bool accumulate_gamma, pp_real *dbeta, bool accumulate_beta);

/* y[tokens,outputs] = x[tokens,inputs] w[outputs,inputs]^T + b; b may be NULL. */
void pp_cpu_linear(size_t tokens, size_t inputs, size_t outputs, const pp_real *x, const pp_real *w, const pp_real *b,
                   pp_real *y);
void pp_cpu_linear_dx(size_t tokens, size_t inputs, size_t outputs, const pp_real *dy, const pp_real *w, pp_real *dx);
/* db may be NULL. */
void pp_cpu_linear_dw(size_t tokens, size_t inputs, size_t outputs, const pp_real *dy, const pp_real *x, pp_real *dw,
                      bool accumulate_w, pp_real *db, bool accumulate_b);

/* Causal attention. q, o: [tokens, heads * head_columns]; k, v: [tokens, kv_heads * head_columns]; lse: [tokens,
 * heads]. heads is a multiple of kv_heads; query head h reads key head h / (heads / kv_heads). Each query sees the last
 * `window` keys, its own included; 0: all. Extra memory: two tiles on the stack. */
struct pp_attention {
	size_t tokens, seq, heads, kv_heads, head_columns, window;
};
void pp_cpu_attention(const struct pp_attention *shape, const pp_real *q, const pp_real *k, const pp_real *v,
                      pp_real *o, pp_real *lse);
void pp_cpu_attention_dx(const struct pp_attention *shape, const pp_real *d_o, const pp_real *q, const pp_real *k,
                         const pp_real *v, const pp_real *o, const pp_real *lse, pp_real *dq, pp_real *dk, pp_real *dv);

/* Rotary positions: columns i and i + head_columns / 2 of each head turn as a pair by (t mod seq) * theta^(-2i /
 * head_columns); `back`: by the opposite angle, which is the gradient. head_columns is even. */
struct pp_rotation {
	size_t tokens, seq, heads, head_columns;
	uint64_t theta;
	bool back;
};
void pp_cpu_rotate(const struct pp_rotation *shape, const pp_real *x, pp_real *y);

enum pp_gelu { PP_GELU_ERF, PP_GELU_TANH };
void pp_cpu_activate(enum pp_gelu kind, size_t count, const pp_real *x, pp_real *y);
/* dx may be dy or x. */
void pp_cpu_activate_dx(enum pp_gelu kind, size_t count, const pp_real *dy, const pp_real *x, pp_real *dx);

/* y = gate / (1 + exp(-gate)) * up. */
void pp_cpu_swiglu(size_t count, const pp_real *gate, const pp_real *up, pp_real *y);
/* dgate may be dy or gate, dup may be up. */
void pp_cpu_swiglu_dx(size_t count, const pp_real *dy, const pp_real *gate, const pp_real *up, pp_real *dgate,
                      pp_real *dup);

/* y = a + b; y may be a or b. */
void pp_cpu_add(size_t count, const pp_real *a, const pp_real *b, pp_real *y);

/* y[t,:] = (a[t,:] + b[t,:]) + bias; y may be a or b. */
void pp_cpu_add_bias(size_t tokens, size_t columns, const pp_real *a, const pp_real *b, const pp_real *bias,
                     pp_real *y);

/* Take `count` columns from `first` on out of rows of `columns`; and put them back between zeros. */
void pp_cpu_take_columns(size_t tokens, size_t columns, size_t first, size_t count, const pp_real *x, pp_real *y);
void pp_cpu_put_columns(size_t tokens, size_t columns, size_t first, size_t count, const pp_real *x, pp_real *y);

/* loss[0] = sum over tokens with label >= 0 of -log softmax(logits)[label], loss[1] = their count. dlogits = gradient
 * of the sum, or of the mean over the count; rows with label < 0 and columns >= vocab get 0. dlogits may be logits.
 * Rows are `columns` apart. */
void pp_cpu_cross_entropy(size_t tokens, size_t vocab, size_t columns, bool mean, const pp_real *logits,
                          const int32_t *labels, pp_real *dlogits, double loss[2]);

/* The same for columns first to first + columns - 1 of the logits, in two steps. Stats are three numbers for each
 * token: largest, sum of exp(x - largest), logit of the label, -inf where it is not among these columns; 0 where there
 * is no label. The second step reads the stats of all members, one after the other, and combines them in that order. */
struct pp_vocab_part {
	size_t vocab, first, columns;
};
void pp_cpu_cross_entropy_stats(const struct pp_vocab_part *part, size_t tokens, const pp_real *logits,
                                const int32_t *labels, pp_real *stats);
void pp_cpu_cross_entropy_part(const struct pp_vocab_part *part, size_t tokens, size_t members, bool mean,
                               const pp_real *logits, const int32_t *labels, const pp_real *stats, pp_real *dlogits,
                               double loss[2]);

/* Sum of squares in fp64. */
double pp_cpu_square_norm(size_t count, const pp_real *x);

/* One update of AdamW: g = gradient * factor, moments, bias correction by step (from 1), decoupled decay:
 * p -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * p). */
struct pp_adamw {
	double lr, beta1, beta2, eps, weight_decay, factor;
	uint64_t step;
};
void pp_cpu_adamw_update(const struct pp_adamw *rule, size_t count, pp_real *weight, const pp_real *gradient,
                         pp_real *moment1, pp_real *moment2);
/* p -= lr * (factor * gradient + weight_decay * p). */
void pp_cpu_sgd_update(double lr, double weight_decay, double factor, size_t count, pp_real *weight,
                       const pp_real *gradient);

#endif
