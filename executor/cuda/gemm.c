/* Matrix products by cublasLt. Row-major matrices are column-major ones transposed, so every product below is that of
 * the transposed result: y^T = w x^T, dx^T = w^T dy^T, dw^T = x^T dy.
 *
 * Requires: a current device. Ensures: after planning nothing is allocated and no heuristic runs. Of the library it
 * uses cublasLtCreate, Destroy, GetStatusString; MatmulDescCreate, SetAttribute (TRANSA, TRANSB, EPILOGUE,
 * BIAS_POINTER), Destroy; MatrixLayoutCreate, Destroy; MatmulPreferenceCreate, SetAttribute (MAX_WORKSPACE_BYTES,
 * REDUCTION_SCHEME_MASK, MIN_ALIGNMENT_A/B/C/D_BYTES), Destroy; MatmulAlgoGetHeuristic; Matmul. */
#include "gemm.h"

#include "ir/program.h"
#include "ir/scratch.h"

#include <assert.h>
#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shape with all that a call hands over. C is D. */
struct plan {
	struct pp_gemm_shape shape;
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	uint64_t workspace_bytes;
};

struct pp_gemm {
	cublasLtHandle_t handle;
	uint64_t workspace_bytes;
	struct plan *plans; /* ascending by shape */
	size_t count, capacity;
	char failure[160]; /* empty: none */
};

/* ---- shapes ----------------------------------------------------------------------------------- */

static int ordered(size_t a, size_t b)
{
	return (a > b) - (a < b);
}

static int shape_compare(const struct pp_gemm_shape *a, const struct pp_gemm_shape *b)
{
	const int order[] = {
	    ordered((size_t)a->kind, (size_t)b->kind),
	    ordered((size_t)a->type, (size_t)b->type),
	    ordered(a->bias, b->bias),
	    ordered(a->tokens, b->tokens),
	    ordered(a->inputs, b->inputs),
	    ordered(a->outputs, b->outputs),
	};
	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		if (order[i])
			return order[i];
	return 0;
}

/* The first plan that is not before the shape. */
static size_t find(const struct pp_gemm *gemm, const struct pp_gemm_shape *shape)
{
	size_t low = 0, high = gemm->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (shape_compare(&gemm->plans[middle].shape, shape) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_planned(const struct pp_gemm *gemm, const struct pp_gemm_shape *shape, size_t at)
{
	return at < gemm->count && shape_compare(&gemm->plans[at].shape, shape) == 0;
}

/* ---- plans ------------------------------------------------------------------------------------ */

static bool done(cublasStatus_t result, const char *what, struct pp_status *status)
{
	return result == CUBLAS_STATUS_SUCCESS ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT, "cublasLt: %s: %s", what, cublasLtGetStatusString(result));
}

/* Column-major operands: D[m,n] = op(A) op(B) with k between; A and B as they are stored. */
struct operands {
	size_t m, n;
	size_t a_rows, a_columns, b_rows, b_columns;
	bool a_transposed, b_transposed;
};

static struct operands operands_of(const struct pp_gemm_shape *shape)
{
	size_t t = shape->tokens, i = shape->inputs, o = shape->outputs;
	switch (shape->kind) {
	case PP_GEMM_LINEAR: /* w is i x o, x is i x t */
		return (struct operands){o, t, i, o, i, t, true, false};
	case PP_GEMM_LINEAR_DX: /* w is i x o, dy is o x t */
		return (struct operands){i, t, i, o, o, t, false, false};
	case PP_GEMM_LINEAR_DW: /* x is i x t, dy is o x t */
		return (struct operands){i, o, i, t, o, t, false, true};
	case PP_GEMM_KIND_COUNT:
		break;
	}
	assert(!"a product of no kind");
	return (struct operands){0};
}

static void plan_free(struct plan *plan)
{
	if (plan->operation)
		cublasLtMatmulDescDestroy(plan->operation);
	if (plan->a)
		cublasLtMatrixLayoutDestroy(plan->a);
	if (plan->b)
		cublasLtMatrixLayoutDestroy(plan->b);
	if (plan->d)
		cublasLtMatrixLayoutDestroy(plan->d);
}

static bool set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const void *value,
                size_t bytes, struct pp_status *status)
{
	return done(cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes), "attribute of a product", status);
}

static bool describe(struct plan *plan, struct pp_status *status)
{
	const struct operands by = operands_of(&plan->shape);
	cudaDataType_t type = plan->shape.type == PP_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
	cudaDataType_t result = plan->shape.kind == PP_GEMM_LINEAR_DW ? CUDA_R_32F : type;
	cublasOperation_t a = by.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, b = by.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	const void *some_bias = (const void *)(uintptr_t)0x1010; /* on 16 bytes and no more, as the algorithm must expect */
	cublasLtEpilogue_t epilogue = plan->shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
	return done(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product", status) &&
	       set(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, status) &&
	       set(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, status) &&
	       set(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, status) &&
	       (!plan->shape.bias ||
	        set(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &some_bias, sizeof some_bias, status)) &&
	       done(cublasLtMatrixLayoutCreate(&plan->a, type, by.a_rows, by.a_columns, (int64_t)by.a_rows), "a matrix",
	            status) &&
	       done(cublasLtMatrixLayoutCreate(&plan->b, type, by.b_rows, by.b_columns, (int64_t)by.b_rows), "a matrix",
	            status) &&
	       done(cublasLtMatrixLayoutCreate(&plan->d, result, by.m, by.n, (int64_t)by.m), "a matrix", status);
}

/* Registers lie on multiples of 16 bytes. Parts of a sum over k are added in f32 and in a fixed order, or there are
 * none. */
static bool prefer(cublasLtMatmulPreference_t preference, uint64_t workspace_bytes, struct pp_status *status)
{
	const uint32_t alignment = 16, reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
	    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
	    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
	cublasStatus_t result = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
	                                                             &workspace_bytes, sizeof workspace_bytes);
	if (result == CUBLAS_STATUS_SUCCESS)
		result = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
		                                              &reduction, sizeof reduction);
	for (size_t i = 0; i < 4 && result == CUBLAS_STATUS_SUCCESS; i++)
		result = cublasLtMatmulPreferenceSetAttribute(preference, aligned[i], &alignment, sizeof alignment);
	return done(result, "preferences", status);
}

/* What the library may use decides what it chooses. So that is of the shape alone, whatever else the rank has room for:
 * the same layer has the same bits on every rank, however the model is cut. */
static bool choose(struct pp_gemm *gemm, struct plan *plan, struct pp_status *status)
{
	const struct operands by = operands_of(&plan->shape);
	cublasLtMatmulPreference_t preference = NULL;
	cublasLtMatmulHeuristicResult_t best;
	int found = 0;
	plan->workspace_bytes = pp_scratch_product(by.m, by.n);
	if (plan->workspace_bytes > gemm->workspace_bytes)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "a product of %zu x %zu wants %" PRIu64 " bytes of workspace, there are %" PRIu64, by.m, by.n,
		               plan->workspace_bytes, gemm->workspace_bytes);
	if (!done(cublasLtMatmulPreferenceCreate(&preference), "preferences", status))
		return false;
	bool chosen = prefer(preference, plan->workspace_bytes, status) &&
	              done(cublasLtMatmulAlgoGetHeuristic(gemm->handle, plan->operation, plan->a, plan->b, plan->d, plan->d,
	                                                  preference, 1, &best, &found),
	                   "choice of an algorithm", status);
	cublasLtMatmulPreferenceDestroy(preference);
	if (!chosen)
		return false;
	if (found == 0 || best.state != CUBLAS_STATUS_SUCCESS)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "cublasLt has no algorithm for a linear layer of %zu tokens, %zu inputs, %zu outputs",
		               plan->shape.tokens, plan->shape.inputs, plan->shape.outputs);
	plan->algorithm = best.algo;
	return true;
}

static bool reserve(struct pp_gemm *gemm, struct pp_status *status)
{
	if (gemm->count < gemm->capacity)
		return true;
	size_t capacity = gemm->capacity ? 2 * gemm->capacity : 16;
	struct plan *plans = realloc(gemm->plans, capacity * sizeof *plans);
	if (!plans)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for plans of matrix products");
	gemm->plans = plans;
	gemm->capacity = capacity;
	return true;
}

bool pp_gemm_plan(struct pp_gemm *gemm, const struct pp_gemm_shape *shape, struct pp_status *status)
{
	size_t at = find(gemm, shape);
	if (is_planned(gemm, shape, at))
		return true;
	struct plan plan = {.shape = *shape};
	if (!reserve(gemm, status) || !describe(&plan, status) || !choose(gemm, &plan, status)) {
		plan_free(&plan);
		return false;
	}
	memmove(gemm->plans + at + 1, gemm->plans + at, (gemm->count - at) * sizeof plan);
	gemm->plans[at] = plan;
	gemm->count++;
	return true;
}

/* Where the linear instructions have their operands; the first is x or dy. */
struct linear_form {
	bool is_linear;
	uint8_t kind; /* enum pp_gemm_kind */
	uint8_t weight, bias;
};

enum { NO_BIAS = 0, OPERAND_W = 1, OPERAND_B = 2, OPERAND_DW = 2 };
static const struct linear_form forms[PP_BODY_OP_COUNT] = {
    [PP_BODY_LINEAR] = {true, PP_GEMM_LINEAR, OPERAND_W, OPERAND_B},
    [PP_BODY_LINEAR_DX] = {true, PP_GEMM_LINEAR_DX, OPERAND_W, NO_BIAS},
    [PP_BODY_LINEAR_DW] = {true, PP_GEMM_LINEAR_DW, OPERAND_DW, NO_BIAS},
};

static bool plan_instr(struct pp_gemm *gemm, const struct pp_body *body, const struct pp_body_instr *instr,
                       struct pp_status *status)
{
	const struct linear_form *form = &forms[instr->op];
	if (!form->is_linear)
		return true;
	const struct pp_reg *first = &body->regs[instr->operand[0]], *weight = &body->regs[instr->operand[form->weight]];
	struct pp_gemm_shape shape = {
	    .kind = (enum pp_gemm_kind)form->kind,
	    .type = first->dtype == PP_BF16 ? PP_CUDA_BF16 : PP_CUDA_F32,
	    .bias = form->bias != NO_BIAS && instr->operand[form->bias] != PP_NULL,
	    .tokens = first->rows,
	    .inputs = weight->columns,
	    .outputs = weight->rows,
	};
	return pp_gemm_plan(gemm, &shape, status);
}

bool pp_gemm_plan_rank(struct pp_gemm *gemm, const struct pp_program *program, uint32_t rank, struct pp_status *status)
{
	for (uint32_t b = 0; b < program->body_count; b++) {
		const struct pp_body *body = &program->bodies[b];
		for (uint32_t i = 0; program->stages[body->stage].rank == rank && i < body->count; i++)
			if (!plan_instr(gemm, body, &body->items[i], status))
				return false;
	}
	return true;
}

/* ---- create, destroy -------------------------------------------------------------------------- */

struct pp_gemm *pp_gemm_create(uint64_t workspace_bytes, struct pp_status *status)
{
	struct pp_gemm *gemm = calloc(1, sizeof *gemm);
	if (!gemm) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for matrix products");
		return NULL;
	}
	gemm->workspace_bytes = workspace_bytes;
	if (!done(cublasLtCreate(&gemm->handle), "start", status)) {
		free(gemm);
		return NULL;
	}
	return gemm;
}

void pp_gemm_destroy(struct pp_gemm *gemm)
{
	if (!gemm)
		return;
	for (size_t i = 0; i < gemm->count; i++)
		plan_free(&gemm->plans[i]);
	free(gemm->plans);
	cublasLtDestroy(gemm->handle);
	free(gemm);
}

/* ---- products --------------------------------------------------------------------------------- */

static void multiply(struct pp_gemm *gemm, cudaStream_t stream, const struct pp_gemm_shape *shape, const void *a,
                     const void *b, const void *bias, void *d, bool accumulate, void *workspace)
{
	size_t at = find(gemm, shape);
	assert(is_planned(gemm, shape, at));
	struct plan *plan = &gemm->plans[at];
	const float alpha = 1, beta = accumulate ? 1 : 0;
	cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
	if (bias)
		result = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
	if (result == CUBLAS_STATUS_SUCCESS)
		result = cublasLtMatmul(gemm->handle, plan->operation, &alpha, a, plan->a, b, plan->b, &beta, d, plan->d, d,
		                        plan->d, &plan->algorithm, workspace, plan->workspace_bytes, stream);
	if (result != CUBLAS_STATUS_SUCCESS && !gemm->failure[0])
		snprintf(gemm->failure, sizeof gemm->failure, "cublasLt: product of %zu tokens, %zu inputs, %zu outputs: %s",
		         shape->tokens, shape->inputs, shape->outputs, cublasLtGetStatusString(result));
}

void pp_gemm_linear(struct pp_gemm *gemm, cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t inputs,
                    size_t outputs, const void *x, const void *w, const void *b, void *y, void *workspace)
{
	struct pp_gemm_shape shape = {PP_GEMM_LINEAR, type, b != NULL, tokens, inputs, outputs};
	multiply(gemm, stream, &shape, w, x, b, y, false, workspace);
}

void pp_gemm_linear_dx(struct pp_gemm *gemm, cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t inputs,
                       size_t outputs, const void *dy, const void *w, void *dx, void *workspace)
{
	struct pp_gemm_shape shape = {PP_GEMM_LINEAR_DX, type, false, tokens, inputs, outputs};
	multiply(gemm, stream, &shape, w, dy, NULL, dx, false, workspace);
}

void pp_gemm_linear_dw(struct pp_gemm *gemm, cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t inputs,
                       size_t outputs, const void *dy, const void *x, float *dw, bool accumulate, void *workspace)
{
	struct pp_gemm_shape shape = {PP_GEMM_LINEAR_DW, type, false, tokens, inputs, outputs};
	multiply(gemm, stream, &shape, x, dy, NULL, dw, accumulate, workspace);
}

const char *pp_gemm_failure(const struct pp_gemm *gemm)
{
	return gemm->failure[0] ? gemm->failure : NULL;
}
