/* A small GPT-2 put together by hand from the kernels, for numerics tests: the same formulas as the bodies, in the
 * simplest order, in float or (PP_KERNELS_DOUBLE) double. The reference that it is compared with comes from
 * tests/data/make_gpt2_grads.py. */
#ifndef PP_TEST_GPT2_H
#define PP_TEST_GPT2_H

#include "executor/kernels/kernels.h"

enum { GPT2_NAME_BYTES = 32 };

struct gpt2_shape {
	uint32_t hidden, heads, layers, vocab, seq, microbatch, microbatches, window;
	uint32_t tied, tanh; /* head shares the token table; activation in its tanh form */
};

struct gpt2_tensor {
	char name[GPT2_NAME_BYTES];
	uint32_t rows, columns;
	pp_real *weight, *gradient; /* gradient of the sum of all tokens' losses */
	double *expected;           /* gradient of their mean, by PyTorch in float64 */
};

struct gpt2 {
	struct gpt2_shape shape;
	int32_t *ids, *labels; /* [microbatches][microbatch * seq] */
	double *loss;          /* expected (sum, count) of each microbatch */
	struct gpt2_tensor *tensors;
	uint32_t tensor_count;
};

/* Read a model with its expected gradients; NULL: missing or damaged file. */
struct gpt2 *gpt2_read(const char *path);
void gpt2_free(struct gpt2 *model);

/* Forward and backward of one microbatch: loss = (sum, count); gradients are written if `first`, else added to. */
void gpt2_microbatch(struct gpt2 *model, uint32_t mb, bool first, double loss[2]);

/* All microbatches; loss = (sum, count) over all. */
void gpt2_step(struct gpt2 *model, double loss[2]);

/* Fail the running cmocka test unless every tensor's gradient agrees with the expected one: 1e-5 in float, 1e-10 in
 * double. */
extern const double gpt2_tolerance;
void gpt2_assert_gradients(const struct gpt2 *model);

#endif
