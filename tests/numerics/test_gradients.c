/* Losses and gradients of every tensor against PyTorch's float64. Built twice: the float kernels must agree by the norm
 * rule |a - b| <= 1e-5 * max(|b|, 1e-3 * |gradients of that layer|), the double ones by the same rule at 1e-10. */
#include "gpt2.h"

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
	struct gpt2 *model = gpt2_read(path);
	assert_non_null(model);
	double total[2], sum = 0, count = 0;
	gpt2_step(model, total);
	for (uint32_t m = 0; m < model->shape.microbatches; m++) {
		sum += model->loss[2 * m];
		count += model->loss[2 * m + 1];
	}
	assert_true(total[1] == count);
	assert_true(fabs(total[0] - sum) <= gpt2_tolerance * sum);
	gpt2_assert_gradients(model);
	gpt2_free(model);
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

int main(void)
{
	pp_kernels_one_thread();
	pp_kernels_flush_denormals();
	const struct CMUnitTest tests[] = {cmocka_unit_test(tied_tanh), cmocka_unit_test(untied_erf_window)};
	return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
