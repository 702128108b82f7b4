/* What the kernels share: exponential, complementary error function, matrix product, rows and sums for pp_real. The
 * fp32 functions are branch-free polynomials, so that loops over them become vector code; NaN stays NaN. The double
 * build, which exists for tests, takes libm. Only kernels_*.c include this. */
#ifndef PP_KERNELS_MATH_H
#define PP_KERNELS_MATH_H

#include "kernels.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#ifdef PP_KERNELS_DOUBLE

static inline pp_real real_exp(pp_real x)
{
	return exp(x);
}

static inline pp_real real_log(pp_real x)
{
	return log(x);
}

static inline pp_real real_sqrt(pp_real x)
{
	return sqrt(x);
}

/* exp(z^2) * erfc(z) for z >= 0, here as erfc(z) with `gauss` = exp(-z^2) already in it. */
static inline pp_real real_erfc(pp_real z, pp_real gauss)
{
	(void)gauss;
	return erfc(z);
}

#else

/* exp(x) with a relative error of about 1e-7 * max(1, |x|); below exp(-87) it stays at the smallest normal number,
 * above exp(88) at the largest. x = n ln 2 + f: 2^n comes from the exponent bits, 2^f from a polynomial fitted on
 * [-1/2, 1/2] (relative error 1.9e-9). */
static inline float real_exp(float x)
{
	float t = x * 1.44269504f;
	t = t < -126.0f ? -126.0f : t;
	t = t > 127.49f ? 127.49f : t;
	float whole = rintf(t >= -126.0f ? t : -126.0f); /* NaN goes on in `t` only: converting it is undefined */
	float f = t - whole;
	float p = 0.00015345805f;
	p = p * f + 0.0013399931f;
	p = p * f + 0.009618489f;
	p = p * f + 0.05550329f;
	p = p * f + 0.24022647f;
	p = p * f + 0.6931472f;
	p = p * f + 1.0f;
	int32_t bits = ((int32_t)whole + 127) << 23;
	float scale;
	memcpy(&scale, &bits, sizeof scale);
	return p * scale;
}

static inline float real_log(float x)
{
	return logf(x);
}

static inline float real_sqrt(float x)
{
	return sqrtf(x);
}

/* erfc(z) for z >= 0 where gauss = exp(-z^2): gauss times a polynomial in 1 / (1 + 0.4 z), fitted on z <= 6.5 with a
 * relative error of 2e-8. */
static inline float real_erfc(float z, float gauss)
{
	float t = 1.0f / (1.0f + 0.4f * z);
	float p = 0.082849257f;
	p = p * t - 0.43986747f;
	p = p * t + 0.78740024f;
	p = p * t - 0.50498395f;
	p = p * t + 0.51054893f;
	p = p * t + 0.090345503f;
	p = p * t + 0.25096804f;
	p = p * t + 0.22257422f;
	p = p * t + 0.00016520671f;
	return p * gauss;
}

#endif

/* The largest of x and `best`; skips NaN. In lanes by hand: compilers do not reorder a maximum that may meet NaN. */
static inline pp_real row_largest(size_t count, const pp_real *x, pp_real best)
{
	enum { LANES = 16 };
	pp_real lane[LANES];
	size_t i = 0;
	for (size_t j = 0; j < LANES; j++)
		lane[j] = best;
	for (; i + LANES <= count; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
	for (; i < count; i++)
		best = x[i] > best ? x[i] : best;
	for (size_t j = 0; j < LANES; j++)
		best = lane[j] > best ? lane[j] : best;
	return best;
}

/* out[i] = exp(x[i] - shift), out may be x; returns the sum. */
static inline pp_real row_exp(size_t count, const pp_real *x, pp_real shift, pp_real *out)
{
	pp_real sum = 0;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < count; i++) {
		out[i] = real_exp(x[i] - shift);
		sum += out[i];
	}
	return sum;
}

static inline void row_scale(size_t count, pp_real factor, pp_real *x)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		x[i] *= factor;
}

/* A row-major operand of a product: rows are `stride` elements apart. */
struct matrix {
	const pp_real *at;
	size_t stride;
	bool transposed;
};

/* c[m,n] = alpha * a[m,k] b[k,n] + beta * c. Sizes below 2^31. */
static inline void multiply(size_t m, size_t n, size_t k, pp_real alpha, struct matrix a, struct matrix b, pp_real beta,
                            pp_real *c, size_t stride)
{
	enum CBLAS_TRANSPOSE ta = a.transposed ? CblasTrans : CblasNoTrans;
	enum CBLAS_TRANSPOSE tb = b.transposed ? CblasTrans : CblasNoTrans;
#ifdef PP_KERNELS_DOUBLE
	cblas_dgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, alpha, a.at, (blasint)a.stride, b.at,
	            (blasint)b.stride, beta, c, (blasint)stride);
#else
	cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, alpha, a.at, (blasint)a.stride, b.at,
	            (blasint)b.stride, beta, c, (blasint)stride);
#endif
}

#endif
