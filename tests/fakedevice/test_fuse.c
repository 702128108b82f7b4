/* Which adds and norms run as one kernel. That it has the bits of both apart is the conformance's matter. */
#include "executor/cuda/fuse_cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { A, B, SUM, GAMMA, Y, MEAN, RSTD, REGISTERS };

/* y, mean, rstd = norm(sum = a + b), 4 rows of 8 columns, every register in a place of its own. */
struct example {
	struct pp_reg regs[REGISTERS];
	struct pp_body_instr items[2];
	struct pp_body body;
};

static void example_make(struct example *example)
{
	*example = (struct example){0};
	for (uint32_t i = 0; i < REGISTERS; i++)
		example->regs[i] = (struct pp_reg){.base = PP_BASE_WORK,
		                                   .dtype = PP_F32,
		                                   .slot = PP_NULL,
		                                   .rows = 4,
		                                   .columns = 8,
		                                   .offset = 128 * (uint64_t)i};
	example->items[0] = (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {A, B, SUM}};
	example->items[1] = (struct pp_body_instr){.op = PP_BODY_NORM, .operand = {SUM, GAMMA, PP_NULL, Y, MEAN, RSTD}};
	example->body =
	    (struct pp_body){.regs = example->regs, .reg_count = REGISTERS, .items = example->items, .count = 2};
}

static void test_an_add_before_its_norm_is_fused(void **state)
{
	(void)state;
	struct example example;
	example_make(&example);
	assert_true(pp_cuda_fuses_add_norm(&example.body, 0));
	assert_false(pp_cuda_fuses_add_norm(&example.body, 1));
	example.body.count = 1;
	assert_false(pp_cuda_fuses_add_norm(&example.body, 0));
	example_make(&example);
	example.items[0].operand[B] = SUM; /* in place */
	assert_true(pp_cuda_fuses_add_norm(&example.body, 0));
	example.items[1].operand[4] = PP_NULL; /* root-mean-square: no mean */
	assert_true(pp_cuda_fuses_add_norm(&example.body, 0));
}

static void test_a_norm_of_something_else_is_not(void **state)
{
	(void)state;
	struct example example;
	example_make(&example);
	example.items[1].operand[0] = A;
	assert_false(pp_cuda_fuses_add_norm(&example.body, 0));
	example_make(&example);
	example.items[1].op = PP_BODY_NORM_DX;
	assert_false(pp_cuda_fuses_add_norm(&example.body, 0));
}

static void test_outputs_over_inputs_are_not(void **state)
{
	(void)state;
	for (uint32_t output = Y; output <= RSTD; output++)
		for (uint32_t input = A; input <= B; input++) {
			struct example example;
			example_make(&example);
			example.regs[output].offset = example.regs[input].offset + 124; /* the last element is shared */
			example.regs[output].rows = 1;
			assert_false(pp_cuda_fuses_add_norm(&example.body, 0));
			example.regs[output].base = PP_BASE_STASH;
			assert_true(pp_cuda_fuses_add_norm(&example.body, 0));
		}
}

/* dx = norm_dx(dy, x, gamma, mean, rstd); norm_dw; dx = plus + dx. */
enum { DX_DY, DX_X, DX_GAMMA, DX_MEAN, DX_RSTD, DX_DX, DX_PLUS, DX_DGAMMA, DX_REGISTERS };

static void test_an_add_to_an_input_gradient_is_fused(void **state)
{
	(void)state;
	struct pp_reg regs[DX_REGISTERS] = {0};
	struct pp_body_instr items[3] = {
	    {.op = PP_BODY_NORM_DX, .operand = {DX_DY, DX_X, DX_GAMMA, DX_MEAN, DX_RSTD, DX_DX}},
	    {.op = PP_BODY_NORM_DW, .operand = {DX_DY, DX_X, DX_MEAN, DX_RSTD, DX_DGAMMA, PP_NULL}},
	    {.op = PP_BODY_ADD, .operand = {DX_PLUS, DX_DX, DX_DX}},
	};
	struct pp_body body = {.regs = regs, .reg_count = DX_REGISTERS, .items = items, .count = 3};
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 3), 2);
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 2), 0);
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 1, 3), 0);
	items[2].operand[0] = DX_DX; /* dx + plus */
	items[2].operand[1] = DX_PLUS;
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 3), 2);
	items[2].operand[1] = DX_DX; /* dx + dx */
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 3), 0);
	items[2] = (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {DX_PLUS, DX_DX, DX_PLUS}}; /* dx is still wanted */
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 3), 0);
	items[1] = (struct pp_body_instr){.op = PP_BODY_ADD, .operand = {DX_PLUS, DX_DX, DX_DX}};
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 3), 1);
	items[1].op = PP_BODY_COPY;
	assert_int_equal(pp_cuda_fused_add_of_norm_dx(&body, 0, 3), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_an_add_before_its_norm_is_fused),
	    cmocka_unit_test(test_a_norm_of_something_else_is_not),
	    cmocka_unit_test(test_outputs_over_inputs_are_not),
	    cmocka_unit_test(test_an_add_to_an_input_gradient_is_fused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
