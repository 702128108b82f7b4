/* Losses and gradients of every tensor against PyTorch's float64. Built twice: the float kernels must agree by the norm
 * rule |a - b| <= 1e-5 * max(|b|, 1e-3 * |gradients of that layer|), the double ones by the same rule at 1e-10. */
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void check(const char *path)
{
	struct reference *model = reference_read(path);
	assert_non_null(model);
	double total[2], sum = 0, count = 0;
	reference_step(model, total);
	for (uint32_t m = 0; m < model->shape.microbatches; m++) {
		sum += model->loss[2 * m];
		count += model->loss[2 * m + 1];
	}
	assert_true(total[1] == count);
	assert_true(fabs(total[0] - sum) <= reference_tolerance * sum);
	reference_assert_gradients(model);
	reference_free(model);
}

static void tied_tanh(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/gpt2_tied.grads");
}

static void untied_erf_window(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/gpt2_untied.grads");
}

static void llama(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/llama.grads");
}

static void llama_qk_norm_biases(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/llama_qk_norm.grads");
}

static void llama_biases_of_heads(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/llama_qkv_bias.grads");
}

int main(void)
{
	pp_kernels_one_thread();
	pp_kernels_flush_denormals();
	const struct CMUnitTest tests[] = {cmocka_unit_test(tied_tanh), cmocka_unit_test(untied_erf_window),
	                                   cmocka_unit_test(llama), cmocka_unit_test(llama_qk_norm_biases),
	                                   cmocka_unit_test(llama_biases_of_heads)};
	return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
