/* Norms, fused with the residual sum before them and not, and their gradients: one column, rows that fill no pack, rows
 * held in registers and rows read again. */
#include "ops.h"

struct norm_case {
	size_t rows, columns;
	bool rms, beta;
};

static const struct norm_case cases[] = {
    {1, 1, false, true},     {3, 7, false, true},     {5, 7, true, false},    {9, 64, false, true},
    {33, 128, true, false},  {7, 768, false, false},  {2, 1600, false, true}, {3, 4100, true, false},
    {2, 16384, false, true}, {2, 33000, false, true},
};

/* Few columns and many rows, for the sums over rows. */
static const struct norm_case tall[] = {
    {1, 1, false, true},     {63, 9, true, false},   {64, 32, false, true},     {65, 33, false, true},
    {200, 300, true, false}, {9000, 3, false, true}, {1000, 264, false, false},
};

/* Operands of one case, values of the device's elements. */
struct operands {
	size_t count;
	double *x, *gamma, *beta, *y, *mean, *rstd;
};

static struct operands operands_of(struct ops *ops, const struct norm_case *c)
{
	struct operands o = {.count = c->rows * c->columns};
	o.x = ops_values(ops, ops->element, o.count);
	o.gamma = ops_values(ops, ops->element, c->columns);
	o.beta = c->beta ? ops_values(ops, ops->element, c->columns) : NULL;
	o.y = ops_zeros(ops, o.count);
	o.mean = ops_zeros(ops, c->rows);
	o.rstd = ops_zeros(ops, c->rows);
	return o;
}

static void expect_norm(struct ops *ops, const struct norm_case *c, const struct operands *want, const void *y,
                        const float *mean, const float *rstd)
{
	ops_expect(ops, "y", ops->element, want->count, y, want->y);
	if (!c->rms)
		ops_expect(ops, "mean", OPS_F32, c->rows, mean, want->mean);
	ops_expect(ops, "rstd", OPS_F32, c->rows, rstd, want->rstd);
}

static void check_norm(struct ops *ops, const void *shape)
{
	const struct norm_case *c = shape;
	struct operands o = operands_of(ops, c);
	pp_cpu_norm(c->rows, c->columns, c->rms, o.x, o.gamma, o.beta, o.y, o.mean, o.rstd);
	void *y = ops_room(ops, ops->element, o.count);
	float *mean = c->rms ? NULL : ops_room(ops, OPS_F32, c->rows), *rstd = ops_room(ops, OPS_F32, c->rows);
	pp_cuda_norm(ops->stream, ops->type, c->rows, c->columns, c->rms, ops_give(ops, ops->element, o.count, o.x),
	             ops_give(ops, ops->element, c->columns, o.gamma),
	             o.beta ? ops_give(ops, ops->element, c->columns, o.beta) : NULL, y, mean, rstd);
	expect_norm(ops, c, &o, y, mean, rstd);
}

/* In place: the sum takes the place of its second operand. The bits are those of a sum, then a norm. */
static void check_add_norm(struct ops *ops, const void *shape)
{
	const struct norm_case *c = shape;
	struct operands o = operands_of(ops, c);
	double *plus = ops_values(ops, ops->element, o.count);
	void *a = ops_give(ops, ops->element, o.count, o.x), *b = ops_give(ops, ops->element, o.count, plus);
	void *gamma = ops_give(ops, ops->element, c->columns, o.gamma);
	void *beta = o.beta ? ops_give(ops, ops->element, c->columns, o.beta) : NULL;
	pp_cpu_add(o.count, o.x, plus, plus);
	ops_round(ops->element, o.count, plus);
	pp_cpu_norm(c->rows, c->columns, c->rms, plus, o.gamma, o.beta, o.y, o.mean, o.rstd);
	void *sum = ops_room(ops, ops->element, o.count), *y = ops_room(ops, ops->element, o.count);
	void *y_apart = ops_room(ops, ops->element, o.count);
	float *mean = c->rms ? NULL : ops_room(ops, OPS_F32, c->rows), *rstd = ops_room(ops, OPS_F32, c->rows);
	pp_cuda_add(ops->stream, ops->type, o.count, a, b, sum);
	pp_cuda_norm(ops->stream, ops->type, c->rows, c->columns, c->rms, sum, gamma, beta, y_apart, mean, rstd);
	pp_cuda_add_norm(ops->stream, ops->type, c->rows, c->columns, c->rms, a, b, b, gamma, beta, y, mean, rstd);
	ops_expect_same(ops, "sum", ops->element, o.count, b, sum);
	ops_expect_same(ops, "y", ops->element, o.count, y, y_apart);
	ops_expect_equal(ops, "sum", ops->element, o.count, b, plus);
	expect_norm(ops, c, &o, y, mean, rstd);
}

/* Statistics as a forward leaves them, in f32. */
static struct operands after_forward(struct ops *ops, const struct norm_case *c)
{
	struct operands o = operands_of(ops, c);
	pp_cpu_norm(c->rows, c->columns, c->rms, o.x, o.gamma, o.beta, o.y, o.mean, o.rstd);
	ops_round(OPS_F32, c->rows, o.mean);
	ops_round(OPS_F32, c->rows, o.rstd);
	return o;
}

/* With and without a sum behind it, whose bits are those of both apart. */
static void check_norm_dx(struct ops *ops, const void *shape)
{
	const struct norm_case *c = shape;
	struct operands o = after_forward(ops, c);
	double *dy = ops_values(ops, ops->element, o.count), *want = ops_zeros(ops, o.count);
	double *plus = ops_values(ops, ops->element, o.count);
	pp_cpu_norm_dx(c->rows, c->columns, c->rms, dy, o.x, o.gamma, o.mean, o.rstd, want);
	if (c->columns == 1) /* 0 but for rounding, where large terms cancel */
		return;
	void *dx = ops_room(ops, ops->element, o.count), *fused = ops_room(ops, ops->element, o.count);
	void *device_dy = ops_give(ops, ops->element, o.count, dy), *x = ops_give(ops, ops->element, o.count, o.x);
	void *gamma = ops_give(ops, ops->element, c->columns, o.gamma);
	void *device_plus = ops_give(ops, ops->element, o.count, plus);
	float *mean = c->rms ? NULL : ops_give(ops, OPS_F32, c->rows, o.mean);
	float *rstd = ops_give(ops, OPS_F32, c->rows, o.rstd);
	pp_cuda_norm_dx(ops->stream, ops->type, c->rows, c->columns, c->rms, device_dy, x, gamma, mean, rstd, dx);
	ops_expect(ops, "dx", ops->element, o.count, dx, want);
	pp_cuda_norm_dx_add(ops->stream, ops->type, c->rows, c->columns, c->rms, device_dy, x, gamma, mean, rstd,
	                    device_plus, fused);
	pp_cuda_add(ops->stream, ops->type, o.count, device_plus, dx, dx);
	ops_expect_same(ops, "plus + dx", ops->element, o.count, fused, dx);
}

static void check_norm_dw(struct ops *ops, const void *shape, bool accumulate)
{
	const struct norm_case *c = shape;
	struct operands o = after_forward(ops, c);
	double *dy = ops_values(ops, ops->element, o.count);
	double *dgamma = ops_values(ops, OPS_F32, c->columns), *dbeta = ops_values(ops, OPS_F32, c->columns);
	float *got_gamma = ops_give(ops, OPS_F32, c->columns, dgamma);
	float *got_beta = c->beta ? ops_give(ops, OPS_F32, c->columns, dbeta) : NULL;
	pp_cpu_norm_dw(c->rows, c->columns, c->rms, dy, o.x, o.mean, o.rstd, dgamma, accumulate, c->beta ? dbeta : NULL,
	               accumulate);
	pp_cuda_norm_dw(ops->stream, ops->type, c->rows, c->columns, c->rms, ops_give(ops, ops->element, o.count, dy),
	                ops_give(ops, ops->element, o.count, o.x), c->rms ? NULL : ops_give(ops, OPS_F32, c->rows, o.mean),
	                ops_give(ops, OPS_F32, c->rows, o.rstd), got_gamma, accumulate, got_beta, accumulate,
	                ops_scratch(ops, pp_scratch_norm_dw(c->rows, c->columns)));
	ops_expect(ops, "dgamma", OPS_F32, c->columns, got_gamma, dgamma);
	if (c->beta)
		ops_expect(ops, "dbeta", OPS_F32, c->columns, got_beta, dbeta);
}

static void check_norm_dw_written(struct ops *ops, const void *shape)
{
	check_norm_dw(ops, shape, false);
}

static void check_norm_dw_added(struct ops *ops, const void *shape)
{
	check_norm_dw(ops, shape, true);
}

void ops_norm(struct ops *ops)
{
	size_t count = sizeof cases / sizeof *cases, tall_count = sizeof tall / sizeof *tall;
	ops_run(ops, "norm", check_norm, cases, count, sizeof *cases, OPS_CLOSE);
	ops_run(ops, "add + norm", check_add_norm, cases, count, sizeof *cases, OPS_CLOSE);
	ops_run(ops, "norm_dx, + add", check_norm_dx, cases, count, sizeof *cases, OPS_CLOSE);
	ops_run(ops, "norm_dw", check_norm_dw_written, tall, tall_count, sizeof *tall, OPS_CLOSE);
	ops_run(ops, "norm_dw accumulate", check_norm_dw_added, tall, tall_count, sizeof *tall, OPS_CLOSE);
}
