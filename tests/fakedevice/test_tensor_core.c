/* The emulated instructions of tensor cores against the manual of the instruction set, written down a second time: on
 * numbered matrices every element must come from where the manual has it. */
#include "tensor_trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Small whole numbers, so that any order of the sums is exact, and no two rows or columns alike. */
static void number(float *matrix, size_t count, int factor)
{
	for (size_t i = 0; i < count; i++)
		matrix[i] = (float)((int)i * factor % 251 - 125);
}

static void test_product(void **state)
{
	(void)state;
	float a[TENSOR_ROWS * TENSOR_DEPTH], b[TENSOR_DEPTH * TENSOR_COLUMNS], c[TENSOR_ROWS * TENSOR_COLUMNS];
	number(a, TENSOR_ROWS * TENSOR_DEPTH, 97);
	number(b, TENSOR_DEPTH * TENSOR_COLUMNS, 61);
	number(c, TENSOR_ROWS * TENSOR_COLUMNS, 13);
	float want[TENSOR_ROWS * TENSOR_COLUMNS];
	for (int row = 0; row < TENSOR_ROWS; row++)
		for (int column = 0; column < TENSOR_COLUMNS; column++) {
			float *sum = &want[row * TENSOR_COLUMNS + column];
			*sum = c[row * TENSOR_COLUMNS + column];
			for (int k = 0; k < TENSOR_DEPTH; k++)
				*sum += a[row * TENSOR_DEPTH + k] * b[k * TENSOR_COLUMNS + column];
		}
	tensor_trial_product(a, b, c);
	assert_memory_equal(c, want, sizeof c);
}

/* A row of a matrix belongs to four threads, two neighbouring numbers to each, the first in the lower half; transposed,
 * a column does. */
static void check_load(uint32_t pitch, int transposed)
{
	uint16_t matrices[4][8][8];
	uint32_t parts[TENSOR_LANES][4];
	for (int m = 0; m < 4; m++)
		for (int row = 0; row < 8; row++)
			for (int column = 0; column < 8; column++)
				matrices[m][row][column] = (uint16_t)(1000 * (m + 1) + 10 * row + column);
	tensor_trial_load(matrices[0][0], pitch, transposed, parts);
	for (int lane = 0; lane < TENSOR_LANES; lane++)
		for (int m = 0; m < 4; m++)
			for (int half = 0; half < 2; half++) {
				int across = lane / 4, along = lane % 4 * 2 + half;
				uint16_t want = transposed ? matrices[m][along][across] : matrices[m][across][along];
				assert_int_equal(parts[lane][m] >> (16 * half) & 0xffff, want);
			}
}

static void test_loads(void **state)
{
	(void)state;
	check_load(16, 0);
	check_load(144, 0);
	check_load(16, 1);
	check_load(272, 1);
}

/* Groups end in the order in which they were begun; before the wait nothing can be relied upon. */
static void test_copies(void **state)
{
	(void)state;
	uint32_t first[4], second[4];
	const uint32_t all[4] = {1, 2, 0, 4};
	tensor_trial_copies(first, second);
	assert_memory_equal(first, all, 2 * sizeof *first);
	assert_int_equal(first[2], UINT32_MAX);
	assert_int_equal(first[3], UINT32_MAX);
	assert_memory_equal(second, all, sizeof all);
}

static void test_quick_functions(void **state)
{
	(void)state;
	assert_true(tensor_trial_power2(-INFINITY) == 0);
	assert_true(isinf(tensor_trial_power2(INFINITY)) && isinf(tensor_trial_power2(128)));
	assert_true(isnan(tensor_trial_power2(NAN)) && isnan(tensor_trial_reciprocal(NAN)));
	assert_true(tensor_trial_power2(-126) > 0 && tensor_trial_power2(-127) == 0);
	assert_true(tensor_trial_power2(1e-40f) == 1);
	assert_true(tensor_trial_reciprocal(INFINITY) == 0 && tensor_trial_reciprocal(0x1p127f) == 0);
	assert_true(isinf(tensor_trial_reciprocal(0)) && isinf(tensor_trial_reciprocal(1e-40f)));
	assert_true(tensor_trial_reciprocal(4) == 0.25f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_product),
	    cmocka_unit_test(test_loads),
	    cmocka_unit_test(test_copies),
	    cmocka_unit_test(test_quick_functions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
