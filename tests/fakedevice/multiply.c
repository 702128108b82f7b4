/* Matrix products (multiply.h). In fp32 they are the calls of BLAS that the CPU device makes, so that results can be
 * equal to the bit; bf16 operands are widened first. Under ThreadSanitizer plain loops, which it sees. */
#include "multiply.h"
#include "runtime.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t pp_fake_type_bytes(cudaDataType_t type)
{
	if (type == CUDA_R_32F)
		return 4;
	return type == CUDA_R_16BF ? 2 : 0;
}

static uint64_t elements(const struct pp_fake_matrix *matrix)
{
	uint64_t lines = matrix->by_rows ? matrix->rows : matrix->columns;
	uint64_t length = matrix->by_rows ? matrix->columns : matrix->rows;
	return lines == 0 || length == 0 ? 0 : (lines - 1) * (uint64_t)matrix->stride + length;
}

uint64_t pp_fake_matrix_bytes(const struct pp_fake_matrix *matrix)
{
	uint64_t further = matrix->batch > 1 ? (uint64_t)(matrix->batch - 1) * (uint64_t)matrix->batch_stride : 0;
	return (further + elements(matrix)) * pp_fake_type_bytes(matrix->type);
}

float pp_fake_from_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;
	memcpy(&value, &wide, sizeof value);
	return value;
}

uint16_t pp_fake_to_bf16(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float load(const void *at, cudaDataType_t type, uint64_t i)
{
	return type == CUDA_R_32F ? ((const float *)at)[i] : pp_fake_from_bf16(((const uint16_t *)at)[i]);
}

static void store(void *at, cudaDataType_t type, uint64_t i, float value)
{
	if (type == CUDA_R_32F)
		((float *)at)[i] = value;
	else
		((uint16_t *)at)[i] = pp_fake_to_bf16(value);
}

/* The k-th matrix of the batch in fp32, laid out the same: itself, or a copy for the caller to free. */
static const float *widened(const struct pp_fake_matrix *matrix, const void *at, int32_t k, float **copy)
{
	uint64_t first = (uint64_t)k * (uint64_t)matrix->batch_stride;
	*copy = NULL;
	if (matrix->type == CUDA_R_32F)
		return (const float *)at + first;
	uint64_t count = elements(matrix);
	*copy = pp_fake_new(count * sizeof(float));
	for (uint64_t i = 0; i < count; i++)
		(*copy)[i] = pp_fake_from_bf16(((const uint16_t *)at)[first + i]);
	return *copy;
}

/* c[m,n] = alpha a b + beta c, all by rows. */
static void multiply_rows(uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a, int64_t a_stride,
                          bool transpose_a, const float *b, int64_t b_stride, bool transpose_b, float beta, float *c,
                          int64_t c_stride)
{
#if defined(__SANITIZE_THREAD__)
	for (uint64_t i = 0; i < m; i++)
		for (uint64_t j = 0; j < n; j++) {
			float sum = 0;
			for (uint64_t l = 0; l < k; l++)
				sum += a[transpose_a ? l * (uint64_t)a_stride + i : i * (uint64_t)a_stride + l] *
				       b[transpose_b ? j * (uint64_t)b_stride + l : l * (uint64_t)b_stride + j];
			float *to = &c[i * (uint64_t)c_stride + j];
			*to = alpha * sum + (beta != 0 ? beta * *to : 0);
		}
#else
	cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
	            (blasint)m, (blasint)n, (blasint)k, alpha, a, (blasint)a_stride, b, (blasint)b_stride, beta, c,
	            (blasint)c_stride);
#endif
}

/* Element (row, column) of a matrix. */
static uint64_t place(const struct pp_fake_matrix *matrix, uint64_t row, uint64_t column)
{
	uint64_t stride = (uint64_t)matrix->stride;
	return matrix->by_rows ? row * stride + column : column * stride + row;
}

static float finish(const struct pp_fake_product *product, float value, uint64_t row)
{
	if (product->bias)
		value += load(product->bias, product->bias_type, row);
	if (product->gelu) /* Hendrycks, Gimpel, arXiv:1606.08415 */
		value = 0.5f * value * (1 + tanhf(0.7978845608f * (value + 0.044715f * value * value * value)));
	return value;
}

/* What the product is added to; where it isn't written in place, the result goes through fp32. */
static void multiply_one(const struct pp_fake_product *product, int32_t k)
{
	const struct pp_fake_matrix *d = &product->d, *c = &product->c;
	float *a_copy, *b_copy;
	const float *a = widened(&product->a, product->a_at, k, &a_copy);
	const float *b = widened(&product->b, product->b_at, k, &b_copy);
	uint64_t first = (uint64_t)k * (uint64_t)d->batch_stride, c_first = (uint64_t)k * (uint64_t)c->batch_stride;
	bool in_place = d->type == CUDA_R_32F;
	float *sums = in_place ? (float *)product->d_at + first : pp_fake_new(elements(d) * sizeof(float));
	if (product->beta != 0 && (!in_place || product->c_at != product->d_at))
		for (uint64_t i = 0; i < d->rows; i++)
			for (uint64_t j = 0; j < d->columns; j++)
				sums[place(d, i, j)] = load(product->c_at, c->type, c_first + place(c, i, j));
	uint64_t inner = product->transpose_a ? product->a.rows : product->a.columns;
	bool ta = product->a.by_rows == product->transpose_a, tb = product->b.by_rows == product->transpose_b;
	if (d->by_rows) /* an operand is transposed as seen by rows */
		multiply_rows(d->rows, d->columns, inner, product->alpha, a, product->a.stride, ta, b, product->b.stride, tb,
		              product->beta, sums, d->stride);
	else /* by rows it is the transposed result: b' a' */
		multiply_rows(d->columns, d->rows, inner, product->alpha, b, product->b.stride, !tb, a, product->a.stride, !ta,
		              product->beta, sums, d->stride);
	if (!in_place || product->bias || product->gelu)
		for (uint64_t i = 0; i < d->rows; i++)
			for (uint64_t j = 0; j < d->columns; j++)
				store(product->d_at, d->type, first + place(d, i, j), finish(product, sums[place(d, i, j)], i));
	if (!in_place)
		free(sums);
	free(a_copy);
	free(b_copy);
}

void pp_fake_multiply(const struct pp_fake_product *product)
{
	for (int32_t k = 0; k < (product->d.batch ? product->d.batch : 1); k++)
		multiply_one(product, k);
}
