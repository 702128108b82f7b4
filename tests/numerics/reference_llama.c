/* A small Llama by hand: forward and backward of one microbatch, in the simplest order; every value has its own
 * array until the microbatch is done. Test code: memory that runs out aborts. */
#include "reference.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS_MAX = 512 };

/* What a block keeps for its backward; q and k as projected, after qk-norm, after rope. */
struct kept {
	pp_real *x, *rstd1, *n1, *plain[2], *rstd[2], *normed[2], *turned[2], *v, *o, *lse, *x2, *rstd2, *n2, *f, *u, *g;
};

struct run {
	struct reference *model;
	size_t tokens, hidden, heads[2], width; /* heads of q, of k */
	bool add;                               /* to the gradients */
	uint32_t block;
	struct pp_attention attention;
	struct kept *kept; /* one per block */
	pp_real *arrays[ARRAYS_MAX];
	size_t array_count;
};

static const char *const projections[2] = {"attn.q", "attn.k"};

static pp_real *reals(struct run *run, size_t count)
{
	pp_real *made = calloc(count, sizeof *made);
	if (!made || run->array_count == ARRAYS_MAX)
		abort();
	return run->arrays[run->array_count++] = made;
}

/* A tensor of the block at hand, or NULL. */
static struct reference_tensor *tensor(const struct run *run, const char *part, const char *end)
{
	char name[REFERENCE_NAME_BYTES];
	snprintf(name, sizeof name, "block.%u.%s%s", run->block, part, end);
	return reference_tensor_named(run->model, name);
}

static pp_real *weight_of(const struct reference_tensor *tensor)
{
	return tensor ? tensor->weight : NULL;
}

static pp_real *linear(struct run *run, const char *name, const pp_real *x)
{
	const struct reference_tensor *w = tensor(run, name, ".weight"), *b = tensor(run, name, ".bias");
	pp_real *y = reals(run, run->tokens * w->rows);
	pp_cpu_linear(run->tokens, w->columns, w->rows, x, w->weight, weight_of(b), y);
	return y;
}

/* Gradients of weight and bias are kept, that of x is returned. */
static pp_real *linear_back(struct run *run, const char *name, const pp_real *x, const pp_real *dy)
{
	struct reference_tensor *w = tensor(run, name, ".weight"), *b = tensor(run, name, ".bias");
	pp_real *dx = reals(run, run->tokens * w->columns);
	pp_cpu_linear_dx(run->tokens, w->columns, w->rows, dy, w->weight, dx);
	pp_cpu_linear_dw(run->tokens, w->columns, w->rows, dy, x, w->gradient, run->add, b ? b->gradient : NULL, run->add);
	return dx;
}

/* Norm of `rows` rows as long as the weight; *rstd is made. */
static pp_real *norm(struct run *run, const struct reference_tensor *weight, size_t rows, const pp_real *x,
                     pp_real **rstd)
{
	pp_real *y = reals(run, rows * weight->rows);
	*rstd = reals(run, rows);
	pp_cpu_norm(rows, weight->rows, true, x, weight->weight, NULL, y, NULL, *rstd);
	return y;
}

static pp_real *norm_back(struct run *run, struct reference_tensor *weight, size_t rows, const pp_real *x,
                          const pp_real *rstd, const pp_real *dy)
{
	pp_real *dx = reals(run, rows * weight->rows);
	pp_cpu_norm_dx(rows, weight->rows, true, dy, x, weight->weight, NULL, rstd, dx);
	pp_cpu_norm_dw(rows, weight->rows, true, dy, x, NULL, rstd, weight->gradient, run->add, NULL, false);
	return dx;
}

static pp_real *turn(struct run *run, unsigned which, const pp_real *x, bool back)
{
	struct pp_rotation rotation = {.tokens = run->tokens,
	                               .seq = run->model->shape.seq,
	                               .heads = run->heads[which],
	                               .head_columns = run->width,
	                               .theta = run->model->shape.theta,
	                               .back = back};
	pp_real *y = reals(run, run->tokens * run->heads[which] * run->width);
	pp_cpu_rotate(&rotation, x, y);
	return y;
}

static void query_key_forward(struct run *run, struct kept *k, unsigned which)
{
	const struct reference_tensor *weight = tensor(run, projections[which], "_norm.weight");
	k->plain[which] = k->normed[which] = linear(run, projections[which], k->n1);
	if (weight)
		k->normed[which] = norm(run, weight, run->tokens * run->heads[which], k->plain[which], &k->rstd[which]);
	k->turned[which] = turn(run, which, k->normed[which], false);
}

/* From the gradient of q or k as attention reads it to that of n1. */
static pp_real *query_key_back(struct run *run, const struct kept *k, unsigned which, const pp_real *gradient)
{
	struct reference_tensor *weight = tensor(run, projections[which], "_norm.weight");
	pp_real *d = turn(run, which, gradient, true);
	if (weight)
		d = norm_back(run, weight, run->tokens * run->heads[which], k->plain[which], k->rstd[which], d);
	return linear_back(run, projections[which], k->n1, d);
}

/* y (which holds the block's input) becomes its output. */
static void block_forward(struct run *run, pp_real *y)
{
	struct kept *k = &run->kept[run->block];
	size_t t = run->tokens, wide = t * run->hidden;
	k->x = reals(run, wide);
	memcpy(k->x, y, wide * sizeof *y);
	k->n1 = norm(run, tensor(run, "norm1", ".weight"), t, k->x, &k->rstd1);
	query_key_forward(run, k, 0);
	query_key_forward(run, k, 1);
	k->v = linear(run, "attn.v", k->n1);
	k->o = reals(run, t * run->heads[0] * run->width);
	k->lse = reals(run, t * run->heads[0]);
	pp_cpu_attention(&run->attention, k->turned[0], k->turned[1], k->v, k->o, k->lse);
	k->x2 = linear(run, "attn.o", k->o);
	pp_cpu_add(wide, k->x2, k->x, k->x2);
	k->n2 = norm(run, tensor(run, "norm2", ".weight"), t, k->x2, &k->rstd2);
	k->f = linear(run, "mlp.gate", k->n2);
	k->u = linear(run, "mlp.up", k->n2);
	k->g = reals(run, t * run->model->shape.ffn);
	pp_cpu_swiglu(t * run->model->shape.ffn, k->f, k->u, k->g);
	pp_cpu_add(wide, k->x2, linear(run, "mlp.down", k->g), y);
}

/* d (which holds the gradient of the block's output) becomes that of its input. */
static void block_back(struct run *run, pp_real *d)
{
	const struct kept *k = &run->kept[run->block];
	size_t t = run->tokens, wide = t * run->hidden, inner = t * run->model->shape.ffn;
	pp_real *dg = linear_back(run, "mlp.down", k->g, d), *df = reals(run, inner), *du = reals(run, inner);
	pp_cpu_swiglu_dx(inner, dg, k->f, k->u, df, du);
	pp_real *dn = linear_back(run, "mlp.gate", k->n2, df);
	pp_cpu_add(wide, dn, linear_back(run, "mlp.up", k->n2, du), dn);
	pp_cpu_add(wide, d, norm_back(run, tensor(run, "norm2", ".weight"), t, k->x2, k->rstd2, dn), d);
	size_t query = t * run->heads[0] * run->width, key = t * run->heads[1] * run->width;
	pp_real *d_o = linear_back(run, "attn.o", k->o, d);
	pp_real *dq = reals(run, query), *dk = reals(run, key), *dv = reals(run, key);
	pp_cpu_attention_dx(&run->attention, d_o, k->turned[0], k->turned[1], k->v, k->o, k->lse, dq, dk, dv);
	dn = query_key_back(run, k, 0, dq);
	pp_cpu_add(wide, dn, query_key_back(run, k, 1, dk), dn);
	pp_cpu_add(wide, dn, linear_back(run, "attn.v", k->n1, dv), dn);
	pp_cpu_add(wide, d, norm_back(run, tensor(run, "norm1", ".weight"), t, k->x, k->rstd1, dn), d);
}

/* Final norm, head and loss: y is the last block's output and becomes its gradient. */
static void head(struct run *run, const int32_t *labels, pp_real *y, double loss[2])
{
	struct reference_tensor *weight = reference_tensor_named(run->model, "norm.weight");
	struct reference_tensor *table = reference_tensor_named(run->model, "head.weight");
	size_t t = run->tokens, h = run->hidden, vocab = run->model->shape.vocab;
	pp_real *rstd, *n = norm(run, weight, t, y, &rstd), *logits = reals(run, t * vocab), *dn = reals(run, t * h);
	pp_cpu_linear(t, h, vocab, n, table->weight, NULL, logits);
	pp_cpu_cross_entropy(t, vocab, vocab, false, logits, labels, logits, loss);
	pp_cpu_linear_dx(t, h, vocab, logits, table->weight, dn);
	pp_cpu_linear_dw(t, h, vocab, logits, n, table->gradient, run->add, NULL, false);
	memcpy(y, norm_back(run, weight, t, y, rstd, dn), t * h * sizeof *y);
}

void reference_llama_microbatch(struct reference *model, uint32_t mb, bool first, double loss[2])
{
	const struct reference_shape *shape = &model->shape;
	size_t tokens = (size_t)shape->microbatch * shape->seq;
	struct run run = {
	    .model = model,
	    .tokens = tokens,
	    .hidden = shape->hidden,
	    .heads = {shape->heads, shape->kv_heads},
	    .width = shape->head_dim,
	    .add = !first,
	    .attention = {.tokens = tokens,
	                  .seq = shape->seq,
	                  .heads = shape->heads,
	                  .kv_heads = shape->kv_heads,
	                  .head_columns = shape->head_dim},
	    .kept = calloc(shape->layers, sizeof(struct kept)),
	};
	if (!run.kept)
		abort();
	const int32_t *ids = model->ids + mb * tokens, *labels = model->labels + mb * tokens;
	struct reference_tensor *table = reference_tensor_named(model, "emb.weight");
	pp_real *y = reals(&run, tokens * run.hidden);
	pp_cpu_embed(tokens, run.hidden, shape->seq, ids, table->weight, NULL, y);
	for (run.block = 0; run.block < shape->layers; run.block++)
		block_forward(&run, y);
	head(&run, labels, y, loss);
	while (run.block-- > 0)
		block_back(&run, y);
	pp_cpu_embed_dw(tokens, run.hidden, shape->seq, shape->vocab, 0, ids, y, table->gradient, run.add, NULL, false);
	for (size_t i = 0; i < run.array_count; i++)
		free(run.arrays[i]);
	free(run.kept);
}
