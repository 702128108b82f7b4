/* Small models with their gradients by PyTorch in float64, and the same models put together by hand from the kernels:
 * the formulas of the bodies, in the simplest order, in float or (PP_KERNELS_DOUBLE) double. The files come from
 * tests/data/make_gpt2_grads.py and make_llama_grads.py. */
#ifndef PP_TEST_REFERENCE_H
#define PP_TEST_REFERENCE_H

#include "executor/kernels/kernels.h"

enum { REFERENCE_NAME_BYTES = 32 };

struct reference_shape {
	uint32_t hidden, heads, layers, vocab, seq, microbatch, microbatches, window;
	uint32_t tied, tanh; /* head shares the token table; activation in its tanh form */
	/* Of Llama models, whose theta is not 0; GPT-2's have as many kv_heads as heads and an ffn of 4 * hidden. */
	uint32_t kv_heads, head_dim, ffn, theta, qk_norm, tensors;
};

struct reference_tensor {
	char name[REFERENCE_NAME_BYTES];
	uint32_t rows, columns;
	pp_real *weight, *gradient; /* gradient of the sum of all tokens' losses */
	double *expected;           /* gradient of their mean, by PyTorch in float64 */
};

struct reference {
	struct reference_shape shape;
	int32_t *ids, *labels; /* [microbatches][microbatch * seq] */
	double *loss;          /* expected (sum, count) of each microbatch */
	struct reference_tensor *tensors;
	uint32_t tensor_count;
};

/* Read a model with its expected gradients; NULL: missing or damaged file. */
struct reference *reference_read(const char *path);
void reference_free(struct reference *model);
/* The tensor of this name, or NULL. */
struct reference_tensor *reference_tensor_named(const struct reference *model, const char *name);

/* Forward and backward of one microbatch: loss = (sum, count); gradients are written if `first`, else added to. */
void reference_microbatch(struct reference *model, uint32_t mb, bool first, double loss[2]);

void reference_gpt2_microbatch(struct reference *model, uint32_t mb, bool first, double loss[2]);
void reference_llama_microbatch(struct reference *model, uint32_t mb, bool first, double loss[2]);

/* All microbatches; loss = (sum, count) over all. */
void reference_step(struct reference *model, double loss[2]);

/* Fail the running cmocka test unless every tensor's gradient agrees with the expected one: 1e-5 in float, 1e-10 in
 * double. */
extern const double reference_tolerance;
void reference_assert_gradients(const struct reference *model);

#endif
