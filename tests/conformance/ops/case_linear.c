/* Linear layers and their gradients, by the library of matrix products. */
#include "ops.h"

#include "executor/cuda/gemm.h"

struct linear_case {
	size_t tokens, inputs, outputs;
	bool bias;
};

static const struct linear_case cases[] = {
    {1, 1, 1, true},    {3, 5, 7, true},      {32, 64, 48, false},
    {33, 40, 24, true}, {100, 17, 130, true}, {128, 256, 64, true},
};

/* Products of one shape, with the workspace that the formulas give them, by an object that has room for larger ones:
 * the algorithm must be that of one which has not. NULL: the case has failed. */
static struct pp_gemm *products(struct ops *ops, const struct linear_case *c, enum pp_gemm_kind kind,
                                uint64_t workspace)
{
	struct pp_status status = {0};
	struct pp_gemm *exact = pp_gemm_create(workspace, &status), *gemm = pp_gemm_create(2 * workspace, &status);
	bool bias = kind == PP_GEMM_LINEAR && c->bias;
	struct pp_gemm_shape shape = {kind, ops->type, bias, c->tokens, c->inputs, c->outputs};
	bool planned = exact && gemm && pp_gemm_plan(exact, &shape, &status) && pp_gemm_plan(gemm, &shape, &status);
	pp_gemm_destroy(exact);
	if (planned)
		return gemm;
	ops_fail(ops, status.text);
	pp_gemm_destroy(gemm);
	return NULL;
}

static void finish(struct ops *ops, struct pp_gemm *gemm)
{
	if (pp_gemm_failure(gemm))
		ops_fail(ops, pp_gemm_failure(gemm));
	(void)cudaStreamSynchronize(ops->stream);
	pp_gemm_destroy(gemm);
}

static void check_linear(struct ops *ops, const void *shape)
{
	const struct linear_case *c = shape;
	ops->aligned = true;
	double *x = ops_values(ops, ops->element, c->tokens * c->inputs);
	double *w = ops_values(ops, ops->element, c->outputs * c->inputs);
	double *b = c->bias ? ops_values(ops, ops->element, c->outputs) : NULL;
	double *want = ops_zeros(ops, c->tokens * c->outputs);
	pp_cpu_linear(c->tokens, c->inputs, c->outputs, x, w, b, want);
	uint64_t workspace = pp_scratch_product(c->tokens, c->outputs);
	struct pp_gemm *gemm = products(ops, c, PP_GEMM_LINEAR, workspace);
	if (!gemm)
		return;
	void *y = ops_room(ops, ops->element, c->tokens * c->outputs);
	pp_gemm_linear(gemm, ops->stream, ops->type, c->tokens, c->inputs, c->outputs,
	               ops_give(ops, ops->element, c->tokens * c->inputs, x),
	               ops_give(ops, ops->element, c->outputs * c->inputs, w),
	               b ? ops_give(ops, ops->element, c->outputs, b) : NULL, y, ops_scratch(ops, workspace));
	ops_expect(ops, "y", ops->element, c->tokens * c->outputs, y, want);
	finish(ops, gemm);
}

static void check_linear_dx(struct ops *ops, const void *shape)
{
	const struct linear_case *c = shape;
	ops->aligned = true;
	double *dy = ops_values(ops, ops->element, c->tokens * c->outputs);
	double *w = ops_values(ops, ops->element, c->outputs * c->inputs);
	double *want = ops_zeros(ops, c->tokens * c->inputs);
	pp_cpu_linear_dx(c->tokens, c->inputs, c->outputs, dy, w, want);
	uint64_t workspace = pp_scratch_product(c->tokens, c->inputs);
	struct pp_gemm *gemm = products(ops, c, PP_GEMM_LINEAR_DX, workspace);
	if (!gemm)
		return;
	void *dx = ops_room(ops, ops->element, c->tokens * c->inputs);
	pp_gemm_linear_dx(gemm, ops->stream, ops->type, c->tokens, c->inputs, c->outputs,
	                  ops_give(ops, ops->element, c->tokens * c->outputs, dy),
	                  ops_give(ops, ops->element, c->outputs * c->inputs, w), dx, ops_scratch(ops, workspace));
	ops_expect(ops, "dx", ops->element, c->tokens * c->inputs, dx, want);
	finish(ops, gemm);
}

static void check_linear_dw(struct ops *ops, const void *shape, bool accumulate)
{
	const struct linear_case *c = shape;
	ops->aligned = true;
	double *dy = ops_values(ops, ops->element, c->tokens * c->outputs);
	double *x = ops_values(ops, ops->element, c->tokens * c->inputs);
	double *dw = ops_values(ops, OPS_F32, c->outputs * c->inputs);
	float *got = ops_give(ops, OPS_F32, c->outputs * c->inputs, dw);
	pp_cpu_linear_dw(c->tokens, c->inputs, c->outputs, dy, x, dw, accumulate, NULL, false);
	uint64_t workspace = pp_scratch_product(c->outputs, c->inputs);
	struct pp_gemm *gemm = products(ops, c, PP_GEMM_LINEAR_DW, workspace);
	if (!gemm)
		return;
	pp_gemm_linear_dw(gemm, ops->stream, ops->type, c->tokens, c->inputs, c->outputs,
	                  ops_give(ops, ops->element, c->tokens * c->outputs, dy),
	                  ops_give(ops, ops->element, c->tokens * c->inputs, x), got, accumulate,
	                  ops_scratch(ops, workspace));
	ops_expect(ops, "dw", OPS_F32, c->outputs * c->inputs, got, dw);
	finish(ops, gemm);
}

static void check_linear_dw_written(struct ops *ops, const void *shape)
{
	check_linear_dw(ops, shape, false);
}

static void check_linear_dw_added(struct ops *ops, const void *shape)
{
	check_linear_dw(ops, shape, true);
}

void ops_linear(struct ops *ops)
{
	size_t count = sizeof cases / sizeof *cases;
	ops_run(ops, "linear", check_linear, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "linear_dx", check_linear_dx, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "linear_dw", check_linear_dw_written, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
	ops_run(ops, "linear_dw accumulate", check_linear_dw_added, cases, count, sizeof *cases, OPS_CLOSE_AND_EXACT);
}
