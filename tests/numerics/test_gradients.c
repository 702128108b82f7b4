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

static const double tolerance = sizeof(pp_real) == sizeof(double) ? 1e-10 : 1e-5;

static size_t size_of(const struct gpt2_tensor *tensor)
{
	return (size_t)tensor->rows * tensor->columns;
}

/* "block.1.attn.q.weight" belongs to layer "block.1", "norm.weight" to "norm": the length of that part. */
static size_t layer_length(const char *name)
{
	size_t first = strcspn(name, ".");
	return strncmp(name, "block", first) == 0 ? first + 1 + strcspn(name + first + 1, ".") : first;
}

static double layer_norm(const struct gpt2 *model, const char *name)
{
	double sum = 0;
	for (uint32_t t = 0; t < model->tensor_count; t++) {
		const struct gpt2_tensor *tensor = &model->tensors[t];
		if (layer_length(tensor->name) != layer_length(name) || strncmp(tensor->name, name, layer_length(name)) != 0)
			continue;
		for (size_t i = 0; i < size_of(tensor); i++)
			sum += tensor->expected[i] * tensor->expected[i];
	}
	return sqrt(sum);
}

static void assert_gradient(const struct gpt2 *model, const struct gpt2_tensor *tensor, double count)
{
	double difference = 0, norm = 0;
	for (size_t i = 0; i < size_of(tensor); i++) {
		difference += pow((double)tensor->gradient[i] / count - tensor->expected[i], 2);
		norm += tensor->expected[i] * tensor->expected[i];
	}
	double bound = tolerance * fmax(sqrt(norm), 1e-3 * layer_norm(model, tensor->name));
	if (!(sqrt(difference) <= bound))
		fail_msg("%s: gradient is off by %.3g, allowed %.3g (its norm: %.3g)", tensor->name, sqrt(difference), bound, sqrt(norm));
}

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
	assert_true(fabs(total[0] - sum) <= tolerance * sum);
	for (uint32_t t = 0; t < model->tensor_count; t++)
		assert_gradient(model, &model->tensors[t], count);
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
