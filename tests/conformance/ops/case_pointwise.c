/* Activations and sums, in place where that is allowed; large arguments, NaN; copies, fills and naps. */
#include "ops.h"

#include <math.h>
#include <time.h>

static const size_t counts[] = {1, 7, 256, 4096, 5000, 9001};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Wide enough for both tails, with what is not finite in between. */
static double *arguments(struct ops *ops, size_t count)
{
	double *x = ops_values(ops, ops->element, count);
	for (size_t i = 0; i < count; i++)
		x[i] = ops_rounded(ops->element, x[i] * (i % 3 == 0 ? 100 : 6));
	if (count > 4)
		x[4] = (double)NAN;
	return x;
}

static void check_activate(struct ops *ops, size_t count, enum pp_gelu kind)
{
	double *x = arguments(ops, count), *want = ops_zeros(ops, count);
	pp_cpu_activate(kind, count, x, want);
	void *y = ops_room(ops, ops->element, count);
	pp_cuda_activate(ops->stream, ops->type, kind, count, ops_give(ops, ops->element, count, x), y);
	ops_expect(ops, "y", ops->element, count, y, want);
}

static void check_erf(struct ops *ops, const void *shape)
{
	check_activate(ops, *(const size_t *)shape, PP_GELU_ERF);
}

static void check_tanh(struct ops *ops, const void *shape)
{
	check_activate(ops, *(const size_t *)shape, PP_GELU_TANH);
}

static void check_activate_dx(struct ops *ops, size_t count, enum pp_gelu kind)
{
	double *dy = ops_values(ops, ops->element, count), *x = arguments(ops, count), *want = ops_zeros(ops, count);
	pp_cpu_activate_dx(kind, count, dy, x, want);
	void *dx = ops_give(ops, ops->element, count, dy);
	pp_cuda_activate_dx(ops->stream, ops->type, kind, count, dx, ops_give(ops, ops->element, count, x), dx);
	ops_expect(ops, "dx", ops->element, count, dx, want);
}

static void check_erf_dx(struct ops *ops, const void *shape)
{
	check_activate_dx(ops, *(const size_t *)shape, PP_GELU_ERF);
}

static void check_tanh_dx(struct ops *ops, const void *shape)
{
	check_activate_dx(ops, *(const size_t *)shape, PP_GELU_TANH);
}

static void check_swiglu(struct ops *ops, const void *shape)
{
	size_t count = *(const size_t *)shape;
	double *gate = arguments(ops, count), *up = ops_values(ops, ops->element, count), *want = ops_zeros(ops, count);
	pp_cpu_swiglu(count, gate, up, want);
	void *y = ops_room(ops, ops->element, count);
	pp_cuda_swiglu(ops->stream, ops->type, count, ops_give(ops, ops->element, count, gate),
	               ops_give(ops, ops->element, count, up), y);
	ops_expect(ops, "y", ops->element, count, y, want);
}

static void check_swiglu_dx(struct ops *ops, const void *shape)
{
	size_t count = *(const size_t *)shape;
	double *dy = ops_values(ops, ops->element, count), *gate = arguments(ops, count);
	double *up = ops_values(ops, ops->element, count), *want_gate = ops_zeros(ops, count),
	       *want_up = ops_zeros(ops, count);
	pp_cpu_swiglu_dx(count, dy, gate, up, want_gate, want_up);
	void *dgate = ops_give(ops, ops->element, count, gate), *dup = ops_give(ops, ops->element, count, up);
	pp_cuda_swiglu_dx(ops->stream, ops->type, count, ops_give(ops, ops->element, count, dy), dgate, dup, dgate, dup);
	ops_expect(ops, "dgate", ops->element, count, dgate, want_gate);
	ops_expect(ops, "dup", ops->element, count, dup, want_up);
}

static void check_add(struct ops *ops, const void *shape)
{
	size_t count = *(const size_t *)shape;
	double *a = ops_values(ops, ops->element, count), *b = ops_values(ops, ops->element, count);
	void *y = ops_give(ops, ops->element, count, a);
	pp_cuda_add(ops->stream, ops->type, count, y, ops_give(ops, ops->element, count, b), y);
	pp_cpu_add(count, a, b, b);
	ops_expect(ops, "y", ops->element, count, y, b);
}

static void check_copy(struct ops *ops, const void *shape)
{
	size_t count = *(const size_t *)shape, bytes = count * (ops->element == OPS_BF16 ? 2 : 4);
	double *x = ops_values(ops, ops->element, count);
	void *from = ops_give(ops, ops->element, count, x), *y = ops_room(ops, ops->element, count);
	pp_cuda_copy(ops->stream, bytes, from, y);
	pp_cuda_copy(ops->stream, bytes, y, y);
	ops_expect_equal(ops, "y", ops->element, count, y, x);
	pp_cuda_zero(ops->stream, bytes, y);
	ops_expect_equal(ops, "zero", ops->element, count, y, ops_zeros(ops, count));
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* At least as long as asked; how much longer is no matter of right or wrong. */
static void check_sleep(struct ops *ops, const void *shape)
{
	double begin = seconds(), enough = 1;
	pp_cuda_sleep(ops->stream, *(const uint64_t *)shape);
	void *mark = ops_give(ops, OPS_F64, 1, &enough);
	double slept = seconds() - begin >= 0.99e-9 * (double)*(const uint64_t *)shape;
	ops_expect_equal(ops, "slept long enough", OPS_F64, 1, mark, &slept);
}

void ops_pointwise(struct ops *ops)
{
	static const uint64_t naps[] = {0, 3000000};
	ops_run(ops, "act erf", check_erf, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "act tanh", check_tanh, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "act_dx erf", check_erf_dx, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "act_dx tanh", check_tanh_dx, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "swiglu", check_swiglu, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "swiglu_dx", check_swiglu_dx, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "add", check_add, counts, COUNTS, sizeof *counts, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "copy, fill", check_copy, counts, COUNTS, sizeof *counts, OPS_CLOSE);
	ops_run(ops, "sleep", check_sleep, naps, sizeof naps / sizeof *naps, sizeof *naps, OPS_CLOSE);
}
