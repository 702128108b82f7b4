/* Gradients of every kernel, and of whole small models, against central differences, on the double build: at most 1e-6
 * of the largest gradient of the array (or of 0.01, where a sum of 100 losses leaves noise of 1e-9). The scalar is the
 * sum of the outputs, each times a fixed random weight. */
#include "executor/draw.h"
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

_Static_assert(sizeof(pp_real) == sizeof(double), "built with PP_KERNELS_DOUBLE");

enum { ROOM = 512 };

static void draw(double *to, size_t count, uint64_t stream)
{
	for (size_t i = 0; i < count; i++)
		to[i] = (double)(pp_draw(stream, i) >> 40) / (1 << 23) - 1;
}

static double weighted(const double *values, const double *weights, size_t count)
{
	double sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += values[i] * weights[i];
	return sum;
}

/* Compare `gradient` of the scalar with its differences over `at`, every `stride`-th element. */
static void differ(const char *what, double (*scalar)(void *), void *context, double *at, const double *gradient,
                   size_t count, size_t stride)
{
	const double step = 1e-5;
	double largest = 1e-2;
	for (size_t i = 0; i < count; i++)
		largest = fmax(largest, fabs(gradient[i]));
	for (size_t i = 0; i < count; i += stride) {
		double kept = at[i];
		at[i] = kept + step;
		double above = scalar(context);
		at[i] = kept - step;
		double below = scalar(context);
		at[i] = kept;
		double expected = (above - below) / (2 * step);
		if (!(fabs(expected - gradient[i]) <= 1e-6 * largest))
			fail_msg("%s[%zu]: gradient %.12g, differences give %.12g (largest %.3g)", what, i, gradient[i], expected,
			         largest);
	}
}

/* ---- norm ------------------------------------------------------------------------------------ */

struct norm_context {
	bool rms, affine;
	double x[ROOM], gamma[ROOM], beta[ROOM], dy[ROOM], y[ROOM], mean[ROOM], rstd[ROOM];
};

enum { NORM_ROWS = 3, NORM_COLUMNS = 11 };

static double norm_scalar(void *context)
{
	struct norm_context *c = context;
	pp_cpu_norm(NORM_ROWS, NORM_COLUMNS, c->rms, c->x, c->gamma, c->affine ? c->beta : NULL, c->y, c->mean, c->rstd);
	return weighted(c->y, c->dy, NORM_ROWS * NORM_COLUMNS);
}

static void norm(void **state)
{
	(void)state;
	for (unsigned flags = 0; flags < 4; flags++) {
		struct norm_context c = {.rms = flags & 1, .affine = flags & 2};
		double dx[ROOM], dgamma[ROOM], dbeta[ROOM];
		draw(c.x, ROOM, 1);
		draw(c.gamma, ROOM, 2);
		draw(c.beta, ROOM, 3);
		draw(c.dy, ROOM, 4);
		norm_scalar(&c);
		pp_cpu_norm_dx(NORM_ROWS, NORM_COLUMNS, c.rms, c.dy, c.x, c.gamma, c.mean, c.rstd, dx);
		pp_cpu_norm_dw(NORM_ROWS, NORM_COLUMNS, c.rms, c.dy, c.x, c.mean, c.rstd, dgamma, false, dbeta, false);
		differ("norm x", norm_scalar, &c, c.x, dx, NORM_ROWS * NORM_COLUMNS, 1);
		differ("norm gamma", norm_scalar, &c, c.gamma, dgamma, NORM_COLUMNS, 1);
		if (c.affine)
			differ("norm beta", norm_scalar, &c, c.beta, dbeta, NORM_COLUMNS, 1);
	}
}

/* ---- linear ---------------------------------------------------------------------------------- */

struct linear_context {
	double x[ROOM], w[ROOM], b[ROOM], dy[ROOM], y[ROOM];
};

enum { LINEAR_TOKENS = 5, LINEAR_INPUTS = 7, LINEAR_OUTPUTS = 9 };

static double linear_scalar(void *context)
{
	struct linear_context *c = context;
	pp_cpu_linear(LINEAR_TOKENS, LINEAR_INPUTS, LINEAR_OUTPUTS, c->x, c->w, c->b, c->y);
	return weighted(c->y, c->dy, LINEAR_TOKENS * LINEAR_OUTPUTS);
}

static void linear(void **state)
{
	(void)state;
	struct linear_context c;
	double dx[ROOM], dw[ROOM], db[ROOM];
	draw(c.x, ROOM, 1);
	draw(c.w, ROOM, 2);
	draw(c.b, ROOM, 3);
	draw(c.dy, ROOM, 4);
	pp_cpu_linear_dx(LINEAR_TOKENS, LINEAR_INPUTS, LINEAR_OUTPUTS, c.dy, c.w, dx);
	pp_cpu_linear_dw(LINEAR_TOKENS, LINEAR_INPUTS, LINEAR_OUTPUTS, c.dy, c.x, dw, false, db, false);
	differ("linear x", linear_scalar, &c, c.x, dx, LINEAR_TOKENS * LINEAR_INPUTS, 1);
	differ("linear w", linear_scalar, &c, c.w, dw, LINEAR_OUTPUTS * LINEAR_INPUTS, 1);
	differ("linear b", linear_scalar, &c, c.b, db, LINEAR_OUTPUTS, 1);
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attention_context {
	struct pp_attention shape;
	double q[4 * ROOM], k[4 * ROOM], v[4 * ROOM], d_o[4 * ROOM], o[4 * ROOM], lse[4 * ROOM];
};

static double attention_scalar(void *context)
{
	struct attention_context *c = context;
	pp_cpu_attention(&c->shape, c->q, c->k, c->v, c->o, c->lse);
	return weighted(c->o, c->d_o, c->shape.tokens * c->shape.heads * c->shape.head_columns);
}

static void attention(void **state)
{
	(void)state;
	static const struct pp_attention shapes[] = {
	    {.tokens = 10, .seq = 5, .heads = 4, .kv_heads = 2, .head_columns = 3},
	    {.tokens = 12, .seq = 12, .heads = 2, .kv_heads = 2, .head_columns = 4, .window = 4},
	    {.tokens = 140, .seq = 140, .heads = 2, .kv_heads = 1, .head_columns = 2, .window = 90},
	};
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		static struct attention_context c;
		static double dq[4 * ROOM], dk[4 * ROOM], dv[4 * ROOM];
		c.shape = shapes[s];
		size_t q_count = c.shape.tokens * c.shape.heads * c.shape.head_columns;
		size_t kv_count = c.shape.tokens * c.shape.kv_heads * c.shape.head_columns, stride = q_count / 100 + 1;
		draw(c.q, 4 * ROOM, 1);
		draw(c.k, 4 * ROOM, 2);
		draw(c.v, 4 * ROOM, 3);
		draw(c.d_o, 4 * ROOM, 4);
		attention_scalar(&c);
		pp_cpu_attention_dx(&c.shape, c.d_o, c.q, c.k, c.v, c.o, c.lse, dq, dk, dv);
		differ("attention q", attention_scalar, &c, c.q, dq, q_count, stride);
		differ("attention k", attention_scalar, &c, c.k, dk, kv_count, stride);
		differ("attention v", attention_scalar, &c, c.v, dv, kv_count, stride);
	}
}

/* ---- activation, embedding, loss ------------------------------------------------------------- */

struct activation_context {
	enum pp_gelu kind;
	double x[ROOM], dy[ROOM], y[ROOM];
};

static double activation_scalar(void *context)
{
	struct activation_context *c = context;
	pp_cpu_activate(c->kind, ROOM, c->x, c->y);
	return weighted(c->y, c->dy, ROOM);
}

static void activation(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 2; which++) {
		struct activation_context c = {.kind = which ? PP_GELU_TANH : PP_GELU_ERF};
		double dx[ROOM];
		draw(c.x, ROOM, 1);
		draw(c.dy, ROOM, 2);
		for (size_t i = 0; i < ROOM; i++)
			c.x[i] *= 6;
		pp_cpu_activate_dx(c.kind, ROOM, c.dy, c.x, dx);
		differ("activation x", activation_scalar, &c, c.x, dx, ROOM, 1);
	}
}

struct gated_context {
	double gate[ROOM], up[ROOM], dy[ROOM], y[ROOM];
};

static double gated_scalar(void *context)
{
	struct gated_context *c = context;
	pp_cpu_swiglu(ROOM, c->gate, c->up, c->y);
	return weighted(c->y, c->dy, ROOM);
}

static void gated_activation(void **state)
{
	(void)state;
	struct gated_context c;
	double dgate[ROOM], dup[ROOM];
	draw(c.gate, ROOM, 1);
	draw(c.up, ROOM, 2);
	draw(c.dy, ROOM, 3);
	for (size_t i = 0; i < ROOM; i++)
		c.gate[i] *= 6;
	pp_cpu_swiglu_dx(ROOM, c.dy, c.gate, c.up, dgate, dup);
	differ("swiglu gate", gated_scalar, &c, c.gate, dgate, ROOM, 1);
	differ("swiglu up", gated_scalar, &c, c.up, dup, ROOM, 1);
}

struct rotary_context {
	struct pp_rotation shape;
	double x[ROOM], dy[ROOM], y[ROOM];
};

static double rotary_scalar(void *context)
{
	struct rotary_context *c = context;
	pp_cpu_rotate(&c->shape, c->x, c->y);
	return weighted(c->y, c->dy, c->shape.tokens * c->shape.heads * c->shape.head_columns);
}

static void rotary_positions(void **state)
{
	(void)state;
	static const struct pp_rotation shapes[] = {
	    {.tokens = 10, .seq = 5, .heads = 3, .head_columns = 6, .theta = 10000},
	    {.tokens = 3, .seq = 3, .heads = 1, .head_columns = 140, .theta = 500000},
	};
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		struct rotary_context c = {.shape = shapes[s]};
		struct pp_rotation back = shapes[s];
		double dx[ROOM];
		back.back = true;
		draw(c.x, ROOM, 1);
		draw(c.dy, ROOM, 2);
		pp_cpu_rotate(&back, c.dy, dx);
		differ("rope x", rotary_scalar, &c, c.x, dx, back.tokens * back.heads * back.head_columns, 1);
	}
}

struct embedding_context {
	int32_t ids[10];
	double wte[ROOM], wpe[ROOM], dy[ROOM], y[ROOM];
};

static double embedding_scalar(void *context)
{
	struct embedding_context *c = context;
	pp_cpu_embed(10, 6, 5, c->ids, c->wte, c->wpe, c->y);
	return weighted(c->y, c->dy, 60);
}

static void embedding(void **state)
{
	(void)state;
	struct embedding_context c = {.ids = {3, 1, 3, 0, 6, 3, 2, 2, 1, 0}};
	double dwte[ROOM], dwpe[ROOM];
	draw(c.wte, ROOM, 1);
	draw(c.wpe, ROOM, 2);
	draw(c.dy, ROOM, 3);
	pp_cpu_embed_dw(10, 6, 5, 7, 5, c.ids, c.dy, dwte, false, dwpe, false);
	differ("embedding wte", embedding_scalar, &c, c.wte, dwte, 42, 1);
	differ("embedding wpe", embedding_scalar, &c, c.wpe, dwpe, 30, 1);
}

struct loss_context {
	bool mean;
	int32_t labels[4];
	double logits[44], dlogits[44];
};

static double loss_scalar(void *context)
{
	struct loss_context *c = context;
	double loss[2], ignored[44];
	pp_cpu_cross_entropy(4, 9, 11, c->mean, c->logits, c->labels, ignored, loss);
	return c->mean ? loss[0] / loss[1] : loss[0];
}

static void cross_entropy(void **state)
{
	(void)state;
	for (unsigned mean = 0; mean < 2; mean++) {
		struct loss_context c = {.mean = mean, .labels = {8, -1, 0, 4}};
		double loss[2];
		draw(c.logits, 44, 1);
		pp_cpu_cross_entropy(4, 9, 11, c.mean, c.logits, c.labels, c.dlogits, loss);
		differ("logits", loss_scalar, &c, c.logits, c.dlogits, 44, 1);
	}
}

/* ---- whole models --------------------------------------------------------------------------- */

/* The scalar runs the backward too, which overwrites gradients: they are copied before. */
static double model_scalar(void *context)
{
	double loss[2];
	reference_step(context, loss);
	return loss[0];
}

static void check_model(const char *path)
{
	struct reference *model = reference_read(path);
	assert_non_null(model);
	model_scalar(model);
	double *copies[64];
	assert_true(model->tensor_count <= 64);
	for (uint32_t t = 0; t < model->tensor_count; t++) {
		size_t bytes = (size_t)model->tensors[t].rows * model->tensors[t].columns * sizeof(double);
		copies[t] = malloc(bytes);
		assert_non_null(copies[t]);
		memcpy(copies[t], model->tensors[t].gradient, bytes);
	}
	for (uint32_t t = 0; t < model->tensor_count; t++) {
		const struct reference_tensor *tensor = &model->tensors[t];
		size_t count = (size_t)tensor->rows * tensor->columns;
		differ(tensor->name, model_scalar, model, tensor->weight, copies[t], count, count / 16 + 1);
	}
	for (uint32_t t = 0; t < model->tensor_count; t++)
		free(copies[t]);
	reference_free(model);
}

static void whole_models(void **state)
{
	(void)state;
	check_model(PP_TEST_DATA "/gpt2_tied.grads");
	check_model(PP_TEST_DATA "/gpt2_untied.grads");
	check_model(PP_TEST_DATA "/llama.grads");
	check_model(PP_TEST_DATA "/llama_qk_norm.grads");
	check_model(PP_TEST_DATA "/llama_qkv_bias.grads");
}

int main(void)
{
	pp_kernels_one_thread();
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(norm),
	    cmocka_unit_test(linear),
	    cmocka_unit_test(attention),
	    cmocka_unit_test(activation),
	    cmocka_unit_test(embedding),
	    cmocka_unit_test(cross_entropy),
	    cmocka_unit_test(gated_activation),
	    cmocka_unit_test(rotary_positions),
	    cmocka_unit_test(whole_models),
	};
	return cmocka_run_group_tests_name("differences", tests, NULL, NULL);
}
