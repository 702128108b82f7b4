/* The norm rule |a - b| <= tolerance * max(|b|, 1e-3 * |gradients of that layer|). */
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

const double reference_tolerance = sizeof(pp_real) == sizeof(double) ? 1e-10 : 1e-5;

static size_t size_of(const struct reference_tensor *tensor)
{
	return (size_t)tensor->rows * tensor->columns;
}

/* "block.1.attn.q.weight" belongs to layer "block.1", "norm.weight" to "norm": the length of that part. */
static size_t layer_length(const char *name)
{
	size_t first = strcspn(name, ".");
	return strncmp(name, "block", first) == 0 ? first + 1 + strcspn(name + first + 1, ".") : first;
}

static double layer_norm(const struct reference *model, const char *name)
{
	double sum = 0;
	for (uint32_t t = 0; t < model->tensor_count; t++) {
		const struct reference_tensor *tensor = &model->tensors[t];
		if (layer_length(tensor->name) != layer_length(name) || strncmp(tensor->name, name, layer_length(name)) != 0)
			continue;
		for (size_t i = 0; i < size_of(tensor); i++)
			sum += tensor->expected[i] * tensor->expected[i];
	}
	return sqrt(sum);
}

static void assert_gradient(const struct reference *model, const struct reference_tensor *tensor, double count)
{
	double difference = 0, norm = 0;
	for (size_t i = 0; i < size_of(tensor); i++) {
		difference += pow((double)tensor->gradient[i] / count - tensor->expected[i], 2);
		norm += tensor->expected[i] * tensor->expected[i];
	}
	double bound = reference_tolerance * fmax(sqrt(norm), 1e-3 * layer_norm(model, tensor->name));
	if (!(sqrt(difference) <= bound))
		fail_msg("%s: gradient is off by %.3g, allowed %.3g (its norm: %.3g)", tensor->name, sqrt(difference), bound,
		         sqrt(norm));
}

void reference_assert_gradients(const struct reference *model)
{
	double count = 0;
	for (uint32_t m = 0; m < model->shape.microbatches; m++)
		count += model->loss[2 * m + 1];
	for (uint32_t t = 0; t < model->tensor_count; t++)
		assert_gradient(model, &model->tensors[t], count);
}
