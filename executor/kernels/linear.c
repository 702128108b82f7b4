/* Linear layers: matrix products by BLAS, bias rows before, bias gradients after. */
#include "kernel_math.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

void pp_kernels_one_thread(void)
{
	openblas_set_num_threads(1);
}

const char *pp_kernels_core(void)
{
	return openblas_get_corename();
}

void pp_kernels_flush_denormals(void)
{
#if defined(__SSE2__)
	const unsigned int flush_results_and_inputs = 0x8040;
	_mm_setcsr(_mm_getcsr() | flush_results_and_inputs);
#endif
}

void pp_cpu_linear(size_t tokens, size_t inputs, size_t outputs, const pp_real *x, const pp_real *w, const pp_real *b,
                   pp_real *y)
{
	for (size_t t = 0; b && t < tokens; t++)
		memcpy(y + t * outputs, b, outputs * sizeof *y);
	multiply(tokens, outputs, inputs, 1, (struct matrix){x, inputs, false}, (struct matrix){w, inputs, true}, b ? 1 : 0,
	         y, outputs);
}

void pp_cpu_linear_dx(size_t tokens, size_t inputs, size_t outputs, const pp_real *dy, const pp_real *w, pp_real *dx)
{
	multiply(tokens, inputs, outputs, 1, (struct matrix){dy, outputs, false}, (struct matrix){w, inputs, false}, 0, dx,
	         inputs);
}

/* db[j] (+)= sum over t of dy[t,j], ascending t. */
static void sum_rows(size_t tokens, size_t columns, const pp_real *restrict dy, pp_real *restrict db, bool accumulate)
{
	if (!accumulate)
		memset(db, 0, columns * sizeof *db);
	for (size_t t = 0; t < tokens; t++) {
		const pp_real *restrict row = dy + t * columns;
#pragma omp simd
		for (size_t j = 0; j < columns; j++)
			db[j] += row[j];
	}
}

void pp_cpu_linear_dw(size_t tokens, size_t inputs, size_t outputs, const pp_real *dy, const pp_real *x, pp_real *dw,
                      bool accumulate_w, pp_real *db, bool accumulate_b)
{
	multiply(outputs, inputs, tokens, 1, (struct matrix){dy, outputs, true}, (struct matrix){x, inputs, false},
	         accumulate_w ? 1 : 0, dw, inputs);
	if (db)
		sum_rows(tokens, outputs, dy, db, accumulate_b);
}
