/* A stand-in for the BLAS of the CPU kernels, in double, for the reference of the operator conformance: the machine
 * with the GPU need not have one. Plain loops; only what the kernels call. */
#ifndef PP_PLAIN_CBLAS_H
#define PP_PLAIN_CBLAS_H

#include <stddef.h>

enum CBLAS_ORDER { CblasRowMajor };
enum CBLAS_TRANSPOSE { CblasNoTrans, CblasTrans };
typedef int blasint;

static inline void openblas_set_num_threads(int threads)
{
	(void)threads;
}

static inline const char *openblas_get_corename(void)
{
	return "plain";
}

/* c[m,n] = alpha * op(a)[m,k] op(b)[k,n] + beta * c. */
static inline void cblas_dgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE a_form, enum CBLAS_TRANSPOSE b_form, int m,
                               int n, int k, double alpha, const double *a, int a_stride, const double *b, int b_stride,
                               double beta, double *c, int c_stride)
{
	(void)order;
	for (ptrdiff_t i = 0; i < m; i++)
		for (ptrdiff_t j = 0; j < n; j++) {
			double sum = 0;
			for (ptrdiff_t l = 0; l < k; l++)
				sum += a[a_form == CblasTrans ? l * a_stride + i : i * a_stride + l] *
				       b[b_form == CblasTrans ? j * b_stride + l : l * b_stride + j];
			double *to = &c[i * c_stride + j];
			*to = alpha * sum + (beta == 0 ? 0 : beta * *to); /* what is not read may be anything */
		}
}

#endif
