/* Layer norm and root-mean-square norm, row by row. The weight gradient walks tokens in ascending order. */
#include "kernel_math.h"

static const pp_real layer_eps = (pp_real)1e-5, rms_eps = (pp_real)1e-6;

static pp_real row_mean(size_t columns, const pp_real *x)
{
	pp_real sum = 0;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < columns; i++)
		sum += x[i];
	return sum / (pp_real)columns;
}

static pp_real row_variance(size_t columns, const pp_real *x, pp_real mean)
{
	pp_real sum = 0;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < columns; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	return sum / (pp_real)columns;
}

void pp_cpu_norm(size_t rows, size_t columns, bool rms, const pp_real *x, const pp_real *gamma, const pp_real *beta,
                 pp_real *y, pp_real *mean, pp_real *rstd)
{
	for (size_t t = 0; t < rows; t++) {
		const pp_real *restrict in = x + t * columns;
		pp_real *restrict out = y + t * columns;
		pp_real m = rms ? 0 : row_mean(columns, in);
		pp_real r = 1 / real_sqrt(row_variance(columns, in, m) + (rms ? rms_eps : layer_eps));
		if (beta) {
#pragma omp simd
			for (size_t i = 0; i < columns; i++)
				out[i] = (in[i] - m) * r * gamma[i] + beta[i];
		} else {
#pragma omp simd
			for (size_t i = 0; i < columns; i++)
				out[i] = (in[i] - m) * r * gamma[i];
		}
		if (!rms)
			mean[t] = m;
		rstd[t] = r;
	}
}

/* With h = (x - mean) * rstd and g = dy * gamma: dx = rstd * (g - mean(g) - h * mean(g * h)); without the mean(g) for
 * the root-mean-square norm, whose h has no mean to keep. */
void pp_cpu_norm_dx(size_t rows, size_t columns, bool rms, const pp_real *dy, const pp_real *x, const pp_real *gamma,
                    const pp_real *mean, const pp_real *rstd, pp_real *dx)
{
	for (size_t t = 0; t < rows; t++) {
		const pp_real *restrict in = x + t * columns, *restrict up = dy + t * columns;
		pp_real *restrict out = dx + t * columns;
		pp_real m = rms ? 0 : mean[t], r = rstd[t];
		pp_real sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
		for (size_t i = 0; i < columns; i++) {
			pp_real g = up[i] * gamma[i];
			sum_g += g;
			sum_gh += g * ((in[i] - m) * r);
		}
		pp_real mean_g = rms ? 0 : sum_g / (pp_real)columns, mean_gh = sum_gh / (pp_real)columns;
#pragma omp simd
		for (size_t i = 0; i < columns; i++)
			out[i] = r * (up[i] * gamma[i] - mean_g - (in[i] - m) * r * mean_gh);
	}
}

void pp_cpu_norm_dw(size_t rows, size_t columns, bool rms, const pp_real *dy, const pp_real *x, const pp_real *mean,
                    const pp_real *rstd, pp_real *dgamma, bool accumulate_gamma, pp_real *dbeta, bool accumulate_beta)
{
	if (!accumulate_gamma)
		memset(dgamma, 0, columns * sizeof *dgamma);
	if (dbeta && !accumulate_beta)
		memset(dbeta, 0, columns * sizeof *dbeta);
	for (size_t t = 0; t < rows; t++) {
		const pp_real *restrict in = x + t * columns, *restrict up = dy + t * columns;
		pp_real m = rms ? 0 : mean[t], r = rstd[t];
#pragma omp simd
		for (size_t i = 0; i < columns; i++)
			dgamma[i] += up[i] * ((in[i] - m) * r);
		if (!dbeta)
			continue;
#pragma omp simd
		for (size_t i = 0; i < columns; i++)
			dbeta[i] += up[i];
	}
}
