/* The step tail on one tensor: squared norm, AdamW, SGD. */
#include "kernel_math.h"

double pp_cpu_square_norm(size_t count, const pp_real *x)
{
	double sum = 0;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < count; i++)
		sum += (double)x[i] * (double)x[i];
	return sum;
}

/* base^exponent by squaring: IEEE multiplications only, so that every machine gets the same bits. */
static double power(double base, uint64_t exponent)
{
	double result = 1;
	for (; exponent; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}

void pp_cpu_adamw_update(const struct pp_adamw *rule, size_t count, pp_real *restrict weight,
                         const pp_real *restrict gradient, pp_real *restrict moment1, pp_real *restrict moment2)
{
	const pp_real beta1 = (pp_real)rule->beta1, beta2 = (pp_real)rule->beta2, eps = (pp_real)rule->eps;
	const pp_real rest1 = (pp_real)(1 - rule->beta1), rest2 = (pp_real)(1 - rule->beta2);
	const pp_real correct1 = (pp_real)(1 / (1 - power(rule->beta1, rule->step)));
	const pp_real correct2 = (pp_real)(1 / (1 - power(rule->beta2, rule->step)));
	const pp_real lr = (pp_real)rule->lr, decay = (pp_real)rule->weight_decay, factor = (pp_real)rule->factor;
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		pp_real g = gradient[i] * factor;
		pp_real m = beta1 * moment1[i] + rest1 * g;
		pp_real v = beta2 * moment2[i] + rest2 * g * g;
		moment1[i] = m;
		moment2[i] = v;
		weight[i] -= lr * (m * correct1 / (real_sqrt(v * correct2) + eps) + decay * weight[i]);
	}
}

void pp_cpu_sgd_update(double lr, double weight_decay, double factor, size_t count, pp_real *restrict weight,
                       const pp_real *restrict gradient)
{
	const pp_real rate = (pp_real)lr, decay = (pp_real)weight_decay, scale = (pp_real)factor;
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		weight[i] -= rate * (gradient[i] * scale + decay * weight[i]);
}
