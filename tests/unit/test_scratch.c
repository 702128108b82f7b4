/* Scratch of GPU kernels: formulas by kernel, the most of a body, sizes beyond 64 bits. */
#include "ir/program.h"
#include "ir/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const uint64_t mebibyte = UINT64_C(1) << 20;

static void test_formulas(void **state)
{
	(void)state;
	assert_int_equal(pp_scratch_embed_dw(8192), 8192);
	assert_int_equal(pp_scratch_embed_dw(1), 256);
	assert_int_equal(pp_scratch_row_chunk(1), 64);
	assert_int_equal(pp_scratch_row_chunk(8192), 64);
	assert_int_equal(pp_scratch_row_chunk(8193), 65);
	assert_int_equal(pp_scratch_column_sums(8193, 1600), 127 * 1600 * 4); /* 8193 rows are 127 chunks of 65 */
	assert_int_equal(pp_scratch_norm_dw(64, 64), 2 * 256);
	assert_int_equal(pp_scratch_rotate(2048, 128), 2048 * 64 * 2 * 4);
	assert_int_equal(pp_scratch_cross_entropy(1000), 8192 + 256);
	assert_int_equal(pp_scratch_product(32, 64), 32 * 64 * 32);
	assert_int_equal(pp_scratch_product(1024, 1024), 32 * mebibyte);
	assert_int_equal(pp_scratch_product(UINT32_MAX, UINT32_MAX), 32 * mebibyte);
	assert_int_equal(pp_scratch_square_norms(), 4096 * 8);
}

static void test_sizes_saturate(void **state)
{
	(void)state;
	assert_true(pp_scratch_embed_dw(UINT64_MAX) == UINT64_MAX);
	assert_true(pp_scratch_rotate(UINT64_MAX / 2, 128) == UINT64_MAX);
	assert_true(pp_scratch_cross_entropy(UINT64_MAX / 4) == UINT64_MAX);
	assert_true(pp_scratch_norm_dw(UINT64_MAX, UINT64_MAX) == UINT64_MAX);
}

/* A body takes what its hungriest instruction does; instructions without scratch take none. */
static void test_the_most_of_a_body(void **state)
{
	(void)state;
	enum { X, W, Y, DW, DB, REGISTERS };
	struct pp_reg regs[REGISTERS] = {
	    [X] = {.rows = 3000, .columns = 2}, [W] = {.rows = 5, .columns = 2},  [Y] = {.rows = 3000, .columns = 5},
	    [DW] = {.rows = 5, .columns = 2},   [DB] = {.rows = 5, .columns = 1},
	};
	struct pp_body_instr items[] = {
	    {.op = PP_BODY_ADD, .operand = {X, X, X}},
	    {.op = PP_BODY_LINEAR_DW, .operand = {Y, X, DW, DB}},
	    {.op = PP_BODY_LINEAR, .operand = {X, W, PP_NULL, Y}},
	};
	struct pp_body body = {.regs = regs, .reg_count = REGISTERS, .items = items, .count = 1};
	struct pp_program program = {0};
	assert_int_equal(pp_scratch_bytes(&program, &body), 0);
	body.count = 2; /* the gradient of the bias: 47 chunks of 5 columns, more than 8 parts of 5 x 2 */
	assert_int_equal(pp_scratch_bytes(&program, &body), 1024);
	body.count = 3;
	assert_int_equal(pp_scratch_bytes(&program, &body), 3000 * 5 * 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_formulas),
	    cmocka_unit_test(test_sizes_saturate),
	    cmocka_unit_test(test_the_most_of_a_body),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
