/* Small models: file, and one step of whichever kind it is. Test code: memory that runs out aborts. */
#include "reference.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *make(size_t count, size_t size)
{
	void *made = calloc(count ? count : 1, size);
	if (!made)
		abort();
	return made;
}

static pp_real *reals(size_t count)
{
	return make(count, sizeof(pp_real));
}

/* ---- file ------------------------------------------------------------------------------------ */

static bool read_tensor(FILE *in, struct reference_tensor *tensor)
{
	if (fread(tensor->name, 1, sizeof tensor->name, in) != sizeof tensor->name ||
	    tensor->name[REFERENCE_NAME_BYTES - 1] || fread(&tensor->rows, sizeof tensor->rows, 1, in) != 1 ||
	    fread(&tensor->columns, sizeof tensor->columns, 1, in) != 1)
		return false;
	size_t count = (size_t)tensor->rows * tensor->columns;
	float *weight = make(count, sizeof *weight);
	tensor->weight = reals(count);
	tensor->gradient = reals(count);
	tensor->expected = make(count, sizeof *tensor->expected);
	bool ok = fread(weight, sizeof *weight, count, in) == count &&
	          fread(tensor->expected, sizeof *tensor->expected, count, in) == count;
	for (size_t i = 0; i < count; i++)
		tensor->weight[i] = (pp_real)weight[i];
	free(weight);
	return ok;
}

/* PPGRADS1: GPT-2, whose sizes say the rest; PPGRADS2: Llama. */
static bool read_shape(FILE *in, struct reference_shape *shape)
{
	char magic[8];
	size_t common = offsetof(struct reference_shape, kv_heads);
	if (fread(magic, 1, sizeof magic, in) != sizeof magic || fread(shape, common, 1, in) != 1)
		return false;
	if (memcmp(magic, "PPGRADS2", sizeof magic) == 0)
		return fread(&shape->kv_heads, sizeof *shape - common, 1, in) == 1;
	if (memcmp(magic, "PPGRADS1", sizeof magic) != 0)
		return false;
	shape->kv_heads = shape->heads;
	shape->head_dim = shape->hidden / shape->heads;
	shape->ffn = 4 * shape->hidden;
	shape->tensors = 2 + shape->layers * 16 + (shape->tied ? 2 : 3);
	return true;
}

static bool read_model(FILE *in, struct reference *model)
{
	struct reference_shape *shape = &model->shape;
	if (!read_shape(in, shape))
		return false;
	size_t tokens = (size_t)shape->microbatches * shape->microbatch * shape->seq;
	model->ids = make(tokens, sizeof *model->ids);
	model->labels = make(tokens, sizeof *model->labels);
	model->loss = make(2 * (size_t)shape->microbatches, sizeof *model->loss);
	if (fread(model->ids, sizeof *model->ids, tokens, in) != tokens ||
	    fread(model->labels, sizeof *model->labels, tokens, in) != tokens ||
	    fread(model->loss, 2 * sizeof *model->loss, shape->microbatches, in) != shape->microbatches)
		return false;
	model->tensor_count = shape->tensors;
	model->tensors = make(model->tensor_count, sizeof *model->tensors);
	for (uint32_t t = 0; t < model->tensor_count; t++)
		if (!read_tensor(in, &model->tensors[t]))
			return false;
	return fgetc(in) == EOF;
}

struct reference *reference_read(const char *path)
{
	FILE *in = fopen(path, "rb");
	if (!in)
		return NULL;
	struct reference *model = make(1, sizeof *model);
	bool ok = read_model(in, model);
	fclose(in);
	if (ok)
		return model;
	reference_free(model);
	return NULL;
}

void reference_free(struct reference *model)
{
	for (uint32_t t = 0; model->tensors && t < model->tensor_count; t++) {
		free(model->tensors[t].weight);
		free(model->tensors[t].gradient);
		free(model->tensors[t].expected);
	}
	free(model->tensors);
	free(model->ids);
	free(model->labels);
	free(model->loss);
	free(model);
}

struct reference_tensor *reference_tensor_named(const struct reference *model, const char *name)
{
	for (uint32_t t = 0; t < model->tensor_count; t++)
		if (strcmp(model->tensors[t].name, name) == 0)
			return &model->tensors[t];
	return NULL;
}

/* ---- a step ---------------------------------------------------------------------------------- */

void reference_microbatch(struct reference *model, uint32_t mb, bool first, double loss[2])
{
	if (model->shape.theta)
		reference_llama_microbatch(model, mb, first, loss);
	else
		reference_gpt2_microbatch(model, mb, first, loss);
}

void reference_step(struct reference *model, double loss[2])
{
	loss[0] = loss[1] = 0;
	for (uint32_t mb = 0; mb < model->shape.microbatches; mb++) {
		double part[2];
		reference_microbatch(model, mb, mb == 0, part);
		loss[0] += part[0];
		loss[1] += part[1];
	}
}
