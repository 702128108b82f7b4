/* Losses and gradients of every tensor against PyTorch's float64. Built twice: the float kernels must agree by the norm
 * rule |a - b| <= 1e-5 * max(|b|, 1e-3 * |gradients of that layer|), the double ones by the same rule at 1e-10. */
#include "reference.h"
#include "reference_dumps.h"

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

static void compare(void **state)
{
	check(reference_path(state));
}

int main(void)
{
	pp_kernels_one_thread();
	pp_kernels_flush_denormals();
	return reference_run_all("gradients", compare);
}
