/* The matrix product that linear layers and attention are made of. */
#ifndef PP_KERNELS_MULTIPLY_H
#define PP_KERNELS_MULTIPLY_H

#include "kernels.h"

/* A row-major operand of a product: rows are `stride` elements apart. */
struct pp_matrix {
	const pp_real *at;
	size_t stride;
	bool transposed;
};

/* c[m,n] = alpha * a[m,k] b[k,n], or added to what c holds. c does not overlap a or b.
 *
 * Bits: an element of c is made of its row of a and its column of b in an order that k alone fixes, so that any split
 * of rows, columns or calls gives the same. */
void pp_cpu_multiply(size_t m, size_t n, size_t k, pp_real alpha, struct pp_matrix a, struct pp_matrix b, bool add,
                     pp_real *c, size_t stride);

#endif
