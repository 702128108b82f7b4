/* A small GPT-2 by hand: forward and backward of one microbatch. Test code: memory that runs out aborts. */
#include "reference.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Order of the tensors in the file: token table, positions, per block these, final norm, head if untied. */
enum {
	NORM1_WEIGHT,
	NORM1_BIAS,
	Q_WEIGHT,
	Q_BIAS,
	K_WEIGHT,
	K_BIAS,
	V_WEIGHT,
	V_BIAS,
	O_WEIGHT,
	O_BIAS,
	NORM2_WEIGHT,
	NORM2_BIAS,
	FC1_WEIGHT,
	FC1_BIAS,
	FC2_WEIGHT,
	FC2_BIAS,
	BLOCK_TENSORS
};
enum { TOKEN_TABLE, POSITIONS, FIRST_BLOCK };

static void *make(size_t count, size_t size)
{
	void *made = calloc(count ? count : 1, size);
	if (!made)
		abort();
	return made;
}

static pp_real *reals(size_t count)
{
	return make(count, sizeof(pp_real));
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* What a block keeps for its backward. */
struct kept {
	pp_real *x, *mean1, *rstd1, *n1, *q, *k, *v, *o, *lse, *x2, *mean2, *rstd2, *n2, *f, *g;
};

/* The model at work on one microbatch. */
struct run {
	struct reference *model;
	size_t tokens, hidden, inner;
	bool add; /* to the gradients */
	struct pp_attention attention;
	struct kept *kept; /* one per block */
};

static struct kept kept_make(const struct run *run)
{
	size_t wide = run->tokens * run->hidden, tokens = run->tokens;
	return (struct kept){
	    .x = reals(wide),
	    .mean1 = reals(tokens),
	    .rstd1 = reals(tokens),
	    .n1 = reals(wide),
	    .q = reals(wide),
	    .k = reals(wide),
	    .v = reals(wide),
	    .o = reals(wide),
	    .lse = reals(tokens * run->attention.heads),
	    .x2 = reals(wide),
	    .mean2 = reals(tokens),
	    .rstd2 = reals(tokens),
	    .n2 = reals(wide),
	    .f = reals(tokens * run->inner),
	    .g = reals(tokens * run->inner),
	};
}

static void kept_free(struct kept *kept)
{
	pp_real *all[] = {kept->x,   kept->mean1, kept->rstd1, kept->n1,    kept->q,  kept->k, kept->v, kept->o,
	                  kept->lse, kept->x2,    kept->mean2, kept->rstd2, kept->n2, kept->f, kept->g};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static enum pp_gelu gelu_of(const struct run *run)
{
	return run->model->shape.tanh ? PP_GELU_TANH : PP_GELU_ERF;
}

/* y (which holds the block's input) becomes its output. */
static void block_forward(const struct run *run, uint32_t b, pp_real *y)
{
	const struct reference_tensor *w = run->model->tensors + FIRST_BLOCK + b * BLOCK_TENSORS;
	struct kept *k = &run->kept[b];
	size_t t = run->tokens, h = run->hidden, f = run->inner, wide = t * h;
	memcpy(k->x, y, wide * sizeof *y);
	pp_cpu_norm(t, h, false, k->x, w[NORM1_WEIGHT].weight, w[NORM1_BIAS].weight, k->n1, k->mean1, k->rstd1);
	pp_cpu_linear(t, h, h, k->n1, w[Q_WEIGHT].weight, w[Q_BIAS].weight, k->q);
	pp_cpu_linear(t, h, h, k->n1, w[K_WEIGHT].weight, w[K_BIAS].weight, k->k);
	pp_cpu_linear(t, h, h, k->n1, w[V_WEIGHT].weight, w[V_BIAS].weight, k->v);
	pp_cpu_attention(&run->attention, k->q, k->k, k->v, k->o, k->lse);
	pp_cpu_linear(t, h, h, k->o, w[O_WEIGHT].weight, w[O_BIAS].weight, k->x2);
	pp_cpu_add(wide, k->x2, k->x, k->x2);
	pp_cpu_norm(t, h, false, k->x2, w[NORM2_WEIGHT].weight, w[NORM2_BIAS].weight, k->n2, k->mean2, k->rstd2);
	pp_cpu_linear(t, h, f, k->n2, w[FC1_WEIGHT].weight, w[FC1_BIAS].weight, k->f);
	pp_cpu_activate(gelu_of(run), t * f, k->f, k->g);
	pp_cpu_linear(t, f, h, k->g, w[FC2_WEIGHT].weight, w[FC2_BIAS].weight, y);
	pp_cpu_add(wide, y, k->x2, y);
}

static void linear_gradients(const struct run *run, struct reference_tensor *weight_and_bias, size_t inputs,
                             size_t outputs, const pp_real *dy, const pp_real *x)
{
	pp_cpu_linear_dw(run->tokens, inputs, outputs, dy, x, weight_and_bias[0].gradient, run->add,
	                 weight_and_bias[1].gradient, run->add);
}

/* dx2 (which holds the MLP's output gradient) becomes the gradient of its input, the residual path included. */
static void mlp_backward(const struct run *run, struct reference_tensor *w, const struct kept *k, pp_real *dx2)
{
	size_t t = run->tokens, h = run->hidden, f = run->inner;
	pp_real *df = reals(t * f), *dn = reals(t * h), *dx = reals(t * h);
	pp_cpu_linear_dx(t, f, h, dx2, w[FC2_WEIGHT].weight, df);
	linear_gradients(run, w + FC2_WEIGHT, f, h, dx2, k->g);
	pp_cpu_activate_dx(gelu_of(run), t * f, df, k->f, df);
	pp_cpu_linear_dx(t, h, f, df, w[FC1_WEIGHT].weight, dn);
	linear_gradients(run, w + FC1_WEIGHT, h, f, df, k->n2);
	pp_cpu_norm_dx(t, h, false, dn, k->x2, w[NORM2_WEIGHT].weight, k->mean2, k->rstd2, dx);
	pp_cpu_norm_dw(t, h, false, dn, k->x2, k->mean2, k->rstd2, w[NORM2_WEIGHT].gradient, run->add,
	               w[NORM2_BIAS].gradient, run->add);
	pp_cpu_add(t * h, dx2, dx, dx2);
	free(df);
	free(dn);
	free(dx);
}

/* Likewise for the attention half: dx holds the gradient of x2, then of x. */
static void attention_backward(const struct run *run, struct reference_tensor *w, const struct kept *k, pp_real *dx)
{
	size_t t = run->tokens, h = run->hidden, wide = t * h;
	pp_real *d_o = reals(wide), *dn = reals(wide), *part = reals(wide);
	pp_real *d[3] = {reals(wide), reals(wide), reals(wide)};
	pp_cpu_linear_dx(t, h, h, dx, w[O_WEIGHT].weight, d_o);
	linear_gradients(run, w + O_WEIGHT, h, h, dx, k->o);
	pp_cpu_attention_dx(&run->attention, d_o, k->q, k->k, k->v, k->o, k->lse, d[0], d[1], d[2]);
	for (unsigned i = 0; i < 3; i++) {
		pp_cpu_linear_dx(t, h, h, d[i], w[Q_WEIGHT + 2 * i].weight, part);
		linear_gradients(run, w + Q_WEIGHT + 2 * i, h, h, d[i], k->n1);
		pp_cpu_add(wide, dn, part, dn);
	}
	pp_cpu_norm_dx(t, h, false, dn, k->x, w[NORM1_WEIGHT].weight, k->mean1, k->rstd1, part);
	pp_cpu_norm_dw(t, h, false, dn, k->x, k->mean1, k->rstd1, w[NORM1_WEIGHT].gradient, run->add,
	               w[NORM1_BIAS].gradient, run->add);
	pp_cpu_add(wide, dx, part, dx);
	pp_real *all[] = {d_o, dn, part, d[0], d[1], d[2]};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* Final norm, head and loss: y is the last block's output and becomes its gradient. */
static void head(const struct run *run, const int32_t *labels, pp_real *y, double loss[2])
{
	struct reference *model = run->model;
	size_t t = run->tokens, h = run->hidden, vocab = model->shape.vocab, wide = t * h;
	struct reference_tensor *norm = model->tensors + FIRST_BLOCK + model->shape.layers * BLOCK_TENSORS;
	struct reference_tensor *table = model->shape.tied ? &model->tensors[TOKEN_TABLE] : norm + 2;
	pp_real *n = reals(wide), *mean = reals(t), *rstd = reals(t), *logits = reals(t * vocab), *dn = reals(wide),
	        *dx = reals(wide);
	pp_cpu_norm(t, h, false, y, norm[0].weight, norm[1].weight, n, mean, rstd);
	pp_cpu_linear(t, h, vocab, n, table->weight, NULL, logits);
	pp_cpu_cross_entropy(t, vocab, vocab, false, logits, labels, logits, loss);
	pp_cpu_linear_dx(t, h, vocab, logits, table->weight, dn);
	pp_cpu_linear_dw(t, h, vocab, logits, n, table->gradient, run->add, NULL, false);
	pp_cpu_norm_dx(t, h, false, dn, y, norm[0].weight, mean, rstd, dx);
	pp_cpu_norm_dw(t, h, false, dn, y, mean, rstd, norm[0].gradient, run->add, norm[1].gradient, run->add);
	memcpy(y, dx, wide * sizeof *y);
	pp_real *all[] = {n, mean, rstd, logits, dn, dx};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

void reference_gpt2_microbatch(struct reference *model, uint32_t mb, bool first, double loss[2])
{
	const struct reference_shape *shape = &model->shape;
	size_t tokens = (size_t)shape->microbatch * shape->seq, h = shape->hidden;
	struct run run = {
	    .model = model,
	    .tokens = tokens,
	    .hidden = h,
	    .inner = 4 * h,
	    .add = !first,
	    .attention = {.tokens = tokens,
	                  .seq = shape->seq,
	                  .heads = shape->heads,
	                  .kv_heads = shape->heads,
	                  .head_columns = h / shape->heads,
	                  .window = shape->window},
	    .kept = make(shape->layers, sizeof(struct kept)),
	};
	const int32_t *ids = model->ids + mb * tokens, *labels = model->labels + mb * tokens;
	struct reference_tensor *table = &model->tensors[TOKEN_TABLE], *positions = &model->tensors[POSITIONS];
	pp_real *y = reals(tokens * h);
	pp_cpu_embed(tokens, h, shape->seq, ids, table->weight, positions->weight, y);
	for (uint32_t b = 0; b < shape->layers; b++) {
		run.kept[b] = kept_make(&run);
		block_forward(&run, b, y);
	}
	head(&run, labels, y, loss);
	for (uint32_t b = shape->layers; b-- > 0;) {
		struct reference_tensor *w = model->tensors + FIRST_BLOCK + b * BLOCK_TENSORS;
		mlp_backward(&run, w, &run.kept[b], y);
		attention_backward(&run, w, &run.kept[b], y);
		kept_free(&run.kept[b]);
	}
	/* Tied: the head has written or added its part already. */
	pp_cpu_embed_dw(tokens, h, shape->seq, shape->vocab, shape->seq, ids, y, table->gradient, run.add || shape->tied,
	                positions->gradient, run.add);
	free(run.kept);
	free(y);
}
