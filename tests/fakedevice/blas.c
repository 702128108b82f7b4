/* cuBLASLt: descriptors, and matmul as work of a stream. Refuses what a step must not do: TF32, the choice of an
 * algorithm while training, operands less aligned than what the algorithm was chosen for. */
#include "multiply.h"
#include "runtime.h"
#include "stream.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { ALGORITHM_MARK = 0x70706661, WORKSPACE_WANTED = 1 << 16, OPERANDS = 4 };

struct cublasLtContext {
	int device;
};

/* Our view of the opaque descriptors, which callers may also keep themselves. */
struct layout {
	struct pp_fake_matrix matrix;
};

struct description {
	cublasComputeType_t compute;
	cudaDataType_t scale;
	int32_t transpose_a, transpose_b; /* cublasOperation_t */
	uint32_t epilogue;                /* cublasLtEpilogue_t */
	const void *bias;
	int32_t bias_type; /* -1: that of d */
};

struct preference {
	uint64_t workspace;
	uint32_t alignment[OPERANDS]; /* of a, b, c, d */
};

struct algorithm {
	uint64_t mark, workspace;
	uint32_t alignment[OPERANDS];
};

_Static_assert(sizeof(struct description) <= sizeof(cublasLtMatmulDescOpaque_t), "our view fits");
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "our view fits");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "our view fits");
_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "our view fits");

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	*handle = pp_fake_new(sizeof(struct cublasLtContext));
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
	return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void)
{
	return CUDART_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
	static const char *const names[] = {
	    [CUBLAS_STATUS_SUCCESS] = "CUBLAS_STATUS_SUCCESS",
	    [CUBLAS_STATUS_NOT_INITIALIZED] = "CUBLAS_STATUS_NOT_INITIALIZED",
	    [CUBLAS_STATUS_INVALID_VALUE] = "CUBLAS_STATUS_INVALID_VALUE",
	    [CUBLAS_STATUS_NOT_SUPPORTED] = "CUBLAS_STATUS_NOT_SUPPORTED",
	};
	bool known = (unsigned)status < sizeof names / sizeof names[0] && names[status];
	return known ? names[status] : "unknown status";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t stride)
{
	if (size < sizeof(struct layout) || pp_fake_type_bytes(type) == 0)
		return CUBLAS_STATUS_INVALID_VALUE;
	struct pp_fake_matrix matrix = {.type = type, .rows = rows, .columns = columns, .stride = stride, .batch = 1};
	memset(layout, 0, size);
	((struct layout *)layout)->matrix = matrix;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride)
{
	*layout = pp_fake_new(sizeof **layout);
	return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, columns, stride);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	free(layout);
	return CUBLAS_STATUS_SUCCESS;
}

/* One attribute of a descriptor: where it is kept. */
struct attribute {
	int name;
	void *place;
	size_t bytes;
};

static cublasStatus_t set(const struct attribute *attributes, size_t count, int name, const void *value, size_t bytes)
{
	for (size_t i = 0; i < count; i++)
		if (attributes[i].name == name) {
			if (bytes != attributes[i].bytes)
				return CUBLAS_STATUS_INVALID_VALUE;
			memcpy(attributes[i].place, value, bytes);
			return CUBLAS_STATUS_SUCCESS;
		}
	return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes)
{
	struct pp_fake_matrix *matrix = &((struct layout *)layout)->matrix;
	int32_t order = matrix->by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
	const struct attribute attributes[] = {
	    {CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order},
	    {CUBLASLT_MATRIX_LAYOUT_ROWS, &matrix->rows, sizeof matrix->rows},
	    {CUBLASLT_MATRIX_LAYOUT_COLS, &matrix->columns, sizeof matrix->columns},
	    {CUBLASLT_MATRIX_LAYOUT_LD, &matrix->stride, sizeof matrix->stride},
	    {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrix->batch, sizeof matrix->batch},
	    {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix->batch_stride, sizeof matrix->batch_stride},
	};
	cublasStatus_t status = set(attributes, sizeof attributes / sizeof attributes[0], (int)name, value, bytes);
	if (order != CUBLASLT_ORDER_ROW && order != CUBLASLT_ORDER_COL)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	matrix->by_rows = order == CUBLASLT_ORDER_ROW;
	return status;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
	if (size < sizeof(struct description))
		return CUBLAS_STATUS_INVALID_VALUE;
	struct description made = {.compute = compute,
	                           .scale = scale,
	                           .transpose_a = CUBLAS_OP_N,
	                           .transpose_b = CUBLAS_OP_N,
	                           .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
	                           .bias_type = -1};
	memset(description, 0, size);
	*(struct description *)description = made;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
	*description = pp_fake_new(sizeof **description);
	return cublasLtMatmulDescInit_internal(*description, sizeof **description, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
	free(description);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
	struct description *ours = (struct description *)description;
	const struct attribute attributes[] = {
	    {CUBLASLT_MATMUL_DESC_TRANSA, &ours->transpose_a, sizeof ours->transpose_a},
	    {CUBLASLT_MATMUL_DESC_TRANSB, &ours->transpose_b, sizeof ours->transpose_b},
	    {CUBLASLT_MATMUL_DESC_EPILOGUE, &ours->epilogue, sizeof ours->epilogue},
	    {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &ours->bias, sizeof ours->bias},
	    {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &ours->bias_type, sizeof ours->bias_type},
	};
	return set(attributes, sizeof attributes / sizeof attributes[0], (int)name, value, bytes);
}

/* The alignment that cuBLASLt assumes of operands where a preference says nothing: its reference. */
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size)
{
	if (size < sizeof(struct preference))
		return CUBLAS_STATUS_INVALID_VALUE;
	memset(preference, 0, size);
	for (int i = 0; i < OPERANDS; i++)
		((struct preference *)preference)->alignment[i] = 256;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
	*preference = pp_fake_new(sizeof **preference);
	return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
	free(preference);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t bytes)
{
	struct preference *ours = (struct preference *)preference;
	uint32_t ignored; /* how algorithms may reduce changes nothing here */
	const struct attribute attributes[] = {
	    {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ours->workspace, sizeof ours->workspace},
	    {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &ignored, sizeof ignored},
	    {CUBLASLT_MATMUL_PREF_SEARCH_MODE, &ignored, sizeof ignored},
	    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &ours->alignment[0], sizeof ours->alignment[0]},
	    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &ours->alignment[1], sizeof ours->alignment[1]},
	    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &ours->alignment[2], sizeof ours->alignment[2]},
	    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &ours->alignment[3], sizeof ours->alignment[3]},
	};
	return set(attributes, sizeof attributes / sizeof attributes[0], (int)name, value, bytes);
}

static uint64_t rows_of(const struct pp_fake_matrix *matrix, bool transposed)
{
	return transposed ? matrix->columns : matrix->rows;
}

static bool shapes_fit(const struct pp_fake_product *product)
{
	const struct pp_fake_matrix *a = &product->a, *b = &product->b, *c = &product->c, *d = &product->d;
	return rows_of(a, product->transpose_a) == d->rows && rows_of(b, !product->transpose_b) == d->columns &&
	       rows_of(a, !product->transpose_a) == rows_of(b, product->transpose_b) && c->rows == d->rows &&
	       c->columns == d->columns && a->batch == d->batch && b->batch == d->batch && c->batch == d->batch;
}

/* What cuBLASLt can do of what we ask: operands of one type, d of that type or wider, a bias only by columns. */
static cublasStatus_t make_product(const struct description *description, const struct pp_fake_matrix *const matrices[],
                                   struct pp_fake_product *product)
{
	*product = (struct pp_fake_product){.a = *matrices[0],
	                                    .b = *matrices[1],
	                                    .c = *matrices[2],
	                                    .d = *matrices[3],
	                                    .transpose_a = description->transpose_a == CUBLAS_OP_T,
	                                    .transpose_b = description->transpose_b == CUBLAS_OP_T};
	if (!shapes_fit(product))
		return CUBLAS_STATUS_INVALID_VALUE;
	const struct pp_fake_matrix *d = &product->d;
	bool types = product->a.type == product->b.type && product->c.type == d->type &&
	             (d->type == product->a.type || d->type == CUDA_R_32F);
	bool orders = product->c.by_rows == d->by_rows;
	bool compute =
	    (description->compute == CUBLAS_COMPUTE_32F || description->compute == CUBLAS_COMPUTE_32F_PEDANTIC) &&
	    description->scale == CUDA_R_32F;
	bool bias = description->epilogue & CUBLASLT_EPILOGUE_BIAS;
	product->gelu = description->epilogue & CUBLASLT_EPILOGUE_GELU;
	uint32_t known = CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_GELU;
	if (!types || !orders || !compute || (description->epilogue & ~known) || (d->by_rows && (bias || product->gelu)))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	product->bias = bias ? description->bias : NULL;
	product->bias_type = description->bias_type < 0 ? d->type : (cudaDataType_t)description->bias_type;
	return bias && !description->bias ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

/* FNV-1a: Fowler, Noll, Vo. */
static uint64_t mixed(uint64_t hash, uint64_t value)
{
	for (int i = 0; i < 8; i++, value >>= 8)
		hash = (hash ^ (value & 0xff)) * 0x100000001b3;
	return hash;
}

/* The library picks kernels by all that it knows at a call: shapes, types, forms, and whether C is read. */
static uint64_t code_of(const struct pp_fake_product *product)
{
	const struct pp_fake_matrix *matrices[] = {&product->a, &product->b, &product->d};
	uint64_t hash = 0xcbf29ce484222325;
	for (int i = 0; i < 3; i++) {
		hash = mixed(hash, (uint64_t)matrices[i]->type);
		hash = mixed(hash, matrices[i]->rows);
		hash = mixed(hash, matrices[i]->columns);
	}
	hash = mixed(hash, (uint64_t)product->transpose_a << 1 | product->transpose_b);
	return mixed(hash, (uint64_t)(product->bias != NULL) << 1 | (product->beta != 0));
}

/* Which algorithm is best depends on the workspace that it may use, and bits depend on the algorithm. */
static void check_workspace(const struct pp_fake_product *product, uint64_t workspace)
{
	static struct known {
		struct known *next;
		uint64_t code, workspace;
	} * all;
	uint64_t code = code_of(product);
	for (const struct known *known = all; known; known = known->next)
		if (known->code == code && known->workspace != workspace)
			pp_fake_fault("cublasLtMatmulAlgoGetHeuristic: the same product has %llu bytes of workspace here and %llu "
			              "there: it may have other bits",
			              (unsigned long long)workspace, (unsigned long long)known->workspace);
		else if (known->code == code)
			return;
	struct known *known = pp_fake_new(sizeof *known);
	*known = (struct known){all, code, workspace};
	all = known;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
	(void)handle;
	*found = 0;
	const struct pp_fake_matrix *matrices[] = {&((struct layout *)a)->matrix, &((struct layout *)b)->matrix,
	                                           &((struct layout *)c)->matrix, &((struct layout *)d)->matrix};
	struct description asked = *(struct description *)description;
	if (!asked.bias)
		asked.bias = results; /* may be given later */
	struct pp_fake_product product;
	cublasStatus_t status = make_product(&asked, matrices, &product);
	if (wanted < 1 || status != CUBLAS_STATUS_SUCCESS)
		return wanted < 1 ? CUBLAS_STATUS_INVALID_VALUE : status;
	pp_fake_lock();
	const struct preference *ours = (const struct preference *)preference;
	pp_fake_frozen("a matmul algorithm was chosen");
	check_workspace(&product, ours->workspace);
	pp_fake_unlock();
	struct algorithm algorithm = {.mark = ALGORITHM_MARK,
	                              .workspace = ours->workspace < WORKSPACE_WANTED ? 0 : WORKSPACE_WANTED};
	memcpy(algorithm.alignment, ours->alignment, sizeof algorithm.alignment);
	memset(&results[0], 0, sizeof results[0]);
	memcpy(&results[0].algo, &algorithm, sizeof algorithm);
	results[0].workspaceSize = algorithm.workspace;
	results[0].state = CUBLAS_STATUS_SUCCESS;
	results[0].wavesCount = 1;
	*found = 1;
	return CUBLAS_STATUS_SUCCESS;
}

struct product_operation {
	struct pp_fake_operation base;
	struct pp_fake_product product;
};

static enum pp_fake_outcome step_product(struct pp_fake_operation *operation)
{
	pp_fake_multiply(&((struct product_operation *)operation)->product);
	return PP_FAKE_FINISHED;
}

static void release_product(struct pp_fake_operation *operation)
{
	free(operation);
}

static const struct pp_fake_operation_kind product_kind = {.step = step_product, .release = release_product};

static bool algorithm_fits(const cublasLtMatmulAlgo_t *given, const struct pp_fake_product *product,
                           const void *workspace, size_t workspace_bytes, struct algorithm *algorithm)
{
	if (!given) {
		pp_fake_fault("cublasLtMatmul without an algorithm: every call would search for one");
		return false;
	}
	memcpy(algorithm, given, sizeof *algorithm);
	if (algorithm->mark != ALGORITHM_MARK) {
		pp_fake_fault("cublasLtMatmul with an algorithm that cublasLtMatmulAlgoGetHeuristic didn't give");
		return false;
	}
	if (workspace_bytes < algorithm->workspace || (algorithm->workspace > 0 && (uintptr_t)workspace % 256 != 0)) {
		pp_fake_fault("cublasLtMatmul: its algorithm needs %llu bytes of workspace, aligned to 256; it has %zu at %p",
		              (unsigned long long)algorithm->workspace, workspace_bytes, workspace);
		return false;
	}
	const void *operands[OPERANDS] = {product->a_at, product->b_at, product->c_at, product->d_at};
	for (int i = 0; i < OPERANDS; i++)
		if ((uintptr_t)operands[i] % algorithm->alignment[i] != 0) {
			pp_fake_fault(
			    "cublasLtMatmul: operand %c at %p isn't aligned to %u bytes, which its algorithm was chosen for",
			    "ABCD"[i], operands[i], algorithm -> alignment[i]);
			return false;
		}
	return true;
}

static cublasStatus_t submit(struct pp_fake_host *host, struct CUstream_st *stream,
                             const struct pp_fake_product *product, void *workspace, uint64_t workspace_bytes)
{
	struct product_operation *operation = pp_fake_operation_make(&product_kind, sizeof *operation, "cublasLtMatmul");
	operation->product = *product;
	struct pp_fake_operation *base = &operation->base;
	pp_fake_code_runs(stream, code_of(product), "the kernel of a product");
	pp_fake_operation_touches(base, product->a_at, pp_fake_matrix_bytes(&product->a), false);
	pp_fake_operation_touches(base, product->b_at, pp_fake_matrix_bytes(&product->b), false);
	if (product->beta != 0)
		pp_fake_operation_touches(base, product->c_at, pp_fake_matrix_bytes(&product->c), false);
	if (product->bias)
		pp_fake_operation_touches(base, product->bias, product->d.rows * pp_fake_type_bytes(product->bias_type), false);
	pp_fake_operation_touches(base, product->d_at, pp_fake_matrix_bytes(&product->d), true);
	pp_fake_operation_touches(base, workspace, workspace_bytes, true);
	return pp_fake_submit(host, stream, base) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a_at, cublasLtMatrixLayout_t a, const void *b_at, cublasLtMatrixLayout_t b,
                              const void *beta, const void *c_at, cublasLtMatrixLayout_t c, void *d_at,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *given, void *workspace,
                              size_t workspace_bytes, cudaStream_t handle_of_stream)
{
	if (!handle)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	const struct pp_fake_matrix *matrices[] = {&((struct layout *)a)->matrix, &((struct layout *)b)->matrix,
	                                           &((struct layout *)c)->matrix, &((struct layout *)d)->matrix};
	struct pp_fake_product product;
	cublasStatus_t status = make_product((struct description *)description, matrices, &product);
	if (status != CUBLAS_STATUS_SUCCESS)
		return status;
	product.alpha = *(const float *)alpha;
	product.beta = *(const float *)beta;
	product.a_at = a_at;
	product.b_at = b_at;
	product.c_at = c_at;
	product.d_at = d_at;
	struct pp_fake_host *host = pp_fake_enter("cublasLtMatmul");
	struct CUstream_st *stream = pp_fake_stream(handle_of_stream, "cublasLtMatmul");
	struct algorithm algorithm;
	status = CUBLAS_STATUS_INVALID_VALUE;
	if (stream && algorithm_fits(given, &product, workspace, workspace_bytes, &algorithm))
		status = submit(host, stream, &product, workspace, algorithm.workspace);
	pp_fake_unlock();
	return status;
}
