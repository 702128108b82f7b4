/* The matrix product: exact on integers at every kind of edge, nothing outside its result is written, and the bits of
 * an element do not depend on how rows and columns are split into calls. */
#include "executor/draw.h"
#include "executor/kernels/multiply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MARGIN = 3 }; /* elements between rows that belong to nobody */

struct product {
	size_t m, n, k;
	bool left_turned, right_turned, add;
};

static pp_real *values(size_t count, uint64_t stream, bool integers)
{
	pp_real *made = malloc(count * sizeof *made);
	assert_non_null(made);
	for (size_t i = 0; i < count; i++) {
		uint64_t draw = pp_draw(stream, i);
		made[i] = integers ? (pp_real)(draw % 7) - 3 : (pp_real)(draw >> 40) / (pp_real)(1 << 24) - (pp_real)0.5;
	}
	return made;
}

/* An operand of `rows` x `columns`, lying turned around if wanted. */
static struct pp_matrix operand(size_t rows, size_t columns, bool turned, uint64_t stream, bool integers, pp_real **own)
{
	size_t stride = (turned ? rows : columns) + MARGIN;
	*own = values((turned ? columns : rows) * stride, stream, integers);
	return (struct pp_matrix){*own, stride, turned};
}

static pp_real element(const struct pp_matrix *matrix, size_t row, size_t column)
{
	return matrix->at[matrix->transposed ? column * matrix->stride + row : row * matrix->stride + column];
}

static void check(const struct product *p)
{
	pp_real *own_a, *own_b;
	struct pp_matrix a = operand(p->m, p->k, p->left_turned, 1, true, &own_a);
	struct pp_matrix b = operand(p->k, p->n, p->right_turned, 2, true, &own_b);
	size_t stride = p->n + MARGIN;
	pp_real *c = values(p->m * stride, 3, true), *before = values(p->m * stride, 3, true);
	pp_cpu_multiply(p->m, p->n, p->k, 2, a, b, p->add, c, stride);
	for (size_t i = 0; i < p->m; i++) {
		for (size_t j = 0; j < p->n; j++) {
			pp_real sum = 0;
			for (size_t l = 0; l < p->k; l++)
				sum += element(&a, i, l) * element(&b, l, j);
			before[i * stride + j] = 2 * sum + (p->add ? before[i * stride + j] : 0);
		}
	}
	if (memcmp(c, before, p->m * stride * sizeof *c) != 0)
		fail_msg("wrong: m %zu n %zu k %zu, left turned %d, right turned %d, add %d", p->m, p->n, p->k, p->left_turned,
		         p->right_turned, p->add);
	free(own_a);
	free(own_b);
	free(c);
	free(before);
}

/* Sizes around the tile (up to 8 x 32), the block (384 deep, 256 wide) and the group of rows. */
static void exact_at_every_edge(void **state)
{
	(void)state;
	static const size_t sizes[][3] = {{1, 1, 1},    {3, 5, 2},    {8, 32, 4},     {9, 33, 5},
	                                  {7, 31, 64},  {64, 64, 64}, {40, 256, 384}, {17, 70, 385},
	                                  {97, 300, 3}, {300, 9, 40}, {12, 257, 770}};
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (unsigned bits = 0; bits < 8; bits++)
			check(&(struct product){sizes[s][0], sizes[s][1], sizes[s][2], bits & 1, bits & 2, bits & 4});
}

/* The whole product against the same one made of pieces with other edges, and with each operand turned around. */
static void bits_do_not_depend_on_the_split(void **state)
{
	(void)state;
	enum { M = 70, N = 90, K = 500 };
	static pp_real whole[M * N], pieces[M * N];
	for (unsigned bits = 0; bits < 4; bits++) {
		pp_real *own_a, *own_b;
		struct pp_matrix a = operand(M, K, bits & 1, 1, false, &own_a), b = operand(K, N, bits & 2, 2, false, &own_b);
		pp_cpu_multiply(M, N, K, 1, a, b, false, whole, N);
		const size_t rows[] = {0, 1, 14, 40, M}, columns[] = {0, 31, 64, N};
		for (size_t r = 0; r + 1 < sizeof rows / sizeof *rows; r++) {
			for (size_t c = 0; c + 1 < sizeof columns / sizeof *columns; c++) {
				struct pp_matrix part_a = a, part_b = b;
				part_a.at += rows[r] * (a.transposed ? 1 : a.stride);
				part_b.at += columns[c] * (b.transposed ? b.stride : 1);
				pp_cpu_multiply(rows[r + 1] - rows[r], columns[c + 1] - columns[c], K, 1, part_a, part_b, false,
				                pieces + rows[r] * N + columns[c], N);
			}
		}
		assert_memory_equal(whole, pieces, sizeof whole);
		free(own_a);
		free(own_b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(exact_at_every_edge),
	    cmocka_unit_test(bits_do_not_depend_on_the_split),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
