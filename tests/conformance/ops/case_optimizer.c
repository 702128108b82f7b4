/* The step tail: factor on gradients, AdamW and SGD of many tensors, with f32 masters of bf16 weights, and the step
 * that does not count. */
#include "ops.h"

#include <math.h>
#include <string.h>

enum { SCALE = 4, FINITE = 2, TENSORS_MOST = 60 };

struct clip_case {
	size_t microbatches, tensors;
	double parts, clip;
};

static const struct clip_case clips[] = {{1, 1, 0, 0}, {3, 5, 0, 1e-3}, {300, 600, 7, 1}, {2, 3, 4, 1e9}};

static void check_clip(struct ops *ops, const void *shape)
{
	const struct clip_case *c = shape;
	double *losses = ops_values(ops, OPS_F64, 2 * c->microbatches), *norms = ops_values(ops, OPS_F64, c->tensors);
	double tokens = 0, squares = 0, want[SCALE];
	for (size_t m = 0; m < c->microbatches; m++)
		tokens += losses[2 * m + 1] = (double)(m % 5 + 1);
	for (size_t t = 0; t < c->tensors; t++)
		squares += norms[t] = fabs(norms[t]);
	double parts = c->parts > 0 ? c->parts : tokens, norm = sqrt(squares) / parts;
	want[0] = (c->clip > 0 && norm > c->clip ? c->clip / norm : 1) / parts;
	want[1] = norm;
	want[FINITE] = 1;
	want[3] = tokens;
	double *scale = ops_room(ops, OPS_F64, SCALE);
	pp_cuda_clip(ops->stream, c->microbatches, ops_give(ops, OPS_F64, 2 * c->microbatches, losses), c->tensors,
	             ops_give(ops, OPS_F64, c->tensors, norms), c->parts, c->clip, scale);
	for (size_t i = 0; i < SCALE; i++)
		ops_expect(ops, "scale", OPS_F64, 1, scale + i, want + i);
	norms[c->tensors - 1] = (double)INFINITY;
	pp_cuda_clip(ops->stream, c->microbatches, ops_give(ops, OPS_F64, 2 * c->microbatches, losses), c->tensors,
	             ops_give(ops, OPS_F64, c->tensors, norms), c->parts, c->clip, scale);
	const double none[2] = {0, 0};
	ops_expect_equal(ops, "factor of inf", OPS_F64, 1, scale, none);
	ops_expect_equal(ops, "finite of inf", OPS_F64, 1, scale + FINITE, none);
}

/* `tensors` tensors, number i of (i * step) mod bound elements. */
struct update_case {
	size_t tensors, step, bound;
	double decay;
	bool skip; /* the norm was not finite */
};

static const struct update_case updates[] = {
    {1, 1, 2, 0.1, false},
    {3, 3333, 10000, 0, false},
    {60, 17, 200, 0.1, false},
    {2, 9000, 20000, 0.1, true},
};

/* One tensor on both sides; the device's weight is bf16 or the master itself. */
struct tensor {
	size_t count;
	double *w, *g, *m, *v;
	float *master, *moment1, *moment2;
	void *weight;
};

static struct tensor tensor_of(struct ops *ops, size_t count, struct pp_cuda_update *update)
{
	struct tensor t = {.count = count};
	t.w = ops_values(ops, OPS_F32, count);
	t.g = ops_values(ops, OPS_F32, count);
	t.m = ops_values(ops, OPS_F32, count);
	t.v = ops_values(ops, OPS_F32, count);
	for (size_t i = 0; i < count; i++)
		t.v[i] = fabs(t.v[i]);
	t.master = ops_give(ops, OPS_F32, count, t.w);
	t.moment1 = ops_give(ops, OPS_F32, count, t.m);
	t.moment2 = ops_give(ops, OPS_F32, count, t.v);
	t.weight = ops->element == OPS_BF16 ? ops_give(ops, OPS_BF16, count, t.w) : NULL;
	*update =
	    (struct pp_cuda_update){t.master, t.weight, ops_give(ops, OPS_F32, count, t.g), t.moment1, t.moment2, count};
	return t;
}

static void expect_tensor(struct ops *ops, const struct tensor *t, bool moments)
{
	ops_expect(ops, "master", OPS_F32, t->count, t->master, t->w);
	if (moments) {
		ops_expect(ops, "moment1", OPS_F32, t->count, t->moment1, t->m);
		ops_expect(ops, "moment2", OPS_F32, t->count, t->moment2, t->v);
	}
	if (t->weight)
		ops_expect(ops, "weight", OPS_BF16, t->count, t->weight, t->w);
}

static void check_updates(struct ops *ops, const struct update_case *c, bool moments)
{
	struct pp_cuda_update items[TENSORS_MOST];
	struct tensor tensors[TENSORS_MOST];
	struct pp_adamw rule = {0.01, 0.9, 0.95, 1e-8, c->decay, 0.25, 3};
	struct pp_cuda_rule device_rule = {rule.beta1, rule.beta2, rule.eps, rule.weight_decay};
	double rates[PP_CUDA_RATES], scale[SCALE] = {rule.factor, 1, !c->skip, 1};
	pp_cuda_rates(rule.lr, rule.beta1, rule.beta2, rule.step, rates);
	for (size_t i = 0; i < c->tensors; i++)
		tensors[i] = tensor_of(ops, (i + 1) * c->step % c->bound, &items[i]);
	double *device_rates = ops_give(ops, OPS_F64, PP_CUDA_RATES, rates);
	double *device_scale = ops_give(ops, OPS_F64, SCALE, scale);
	if (moments)
		pp_cuda_adamw(ops->stream, &device_rule, c->tensors, items, device_rates, device_scale);
	else
		pp_cuda_sgd(ops->stream, c->decay, c->tensors, items, device_rates, device_scale);
	for (size_t i = 0; i < c->tensors; i++) {
		struct tensor *t = &tensors[i];
		if (!c->skip && moments)
			pp_cpu_adamw_update(&rule, t->count, t->w, t->g, t->m, t->v);
		else if (!c->skip)
			pp_cpu_sgd_update(rule.lr, c->decay, rule.factor, t->count, t->w, t->g);
		expect_tensor(ops, t, moments);
	}
}

static void check_adamw(struct ops *ops, const void *shape)
{
	check_updates(ops, shape, true);
}

static void check_sgd(struct ops *ops, const void *shape)
{
	check_updates(ops, shape, false);
}

void ops_optimizer(struct ops *ops)
{
	size_t count = sizeof updates / sizeof *updates;
	ops_run(ops, "clip", check_clip, clips, sizeof clips / sizeof *clips, sizeof *clips, OPS_CLOSE);
	ops_run(ops, "opt adamw", check_adamw, updates, count, sizeof *updates, OPS_CLOSE);
	ops_run(ops, "opt sgd", check_sgd, updates, count, sizeof *updates, OPS_CLOSE);
}
