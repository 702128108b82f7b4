/* The step tail on a GPU. Norms and updates of tensors are gathered and started together: a model has hundreds of
 * tensors, most of them small. What changes from step to step lies in device memory, so that graphs can hold the rest.
 *
 * Ensures: everything that was gathered starts before whatever is given after it. */
#include "device_parts.h"

#include "executor/device_share.h"

#include <assert.h>
#include <stdlib.h>

enum { GATHERED = 256 }; /* arrays that start together, at most */

bool pp_cuda_tail_make(struct pp_device *device, struct pp_status *status)
{
	struct pp_cuda_tail *tail = &device->tail;
	tail->norms = calloc(GATHERED, sizeof *tail->norms);
	tail->updates = calloc(GATHERED, sizeof *tail->updates);
	return (tail->norms && tail->updates) || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the step tail");
}

void pp_cuda_tail_free(struct pp_device *device)
{
	free(device->tail.norms);
	free(device->tail.updates);
}

/* ---- rates ------------------------------------------------------------------------------------ */

static uint32_t hyper_rows(const struct pp_device *device)
{
	return device->program->train.hyper_count;
}

void pp_cuda_tail_rates(struct pp_device *device, uint64_t step, double lr)
{
	const struct pp_hyper *hypers = device->program->train.hypers;
	double *rates = device->host.rates;
	for (uint32_t i = 0; i < hyper_rows(device); i++)
		pp_cuda_rates(lr, hypers[i].beta1, hypers[i].beta2, step, rates + (size_t)i * PP_CUDA_RATES);
	size_t bytes = (size_t)hyper_rows(device) * PP_CUDA_RATES * sizeof *rates;
	if (bytes)
		pp_cuda_note(device,
		             cudaMemcpyAsync(device->memory.rates, rates, bytes, cudaMemcpyHostToDevice, device->cuda.compute),
		             "writing the learning rate");
}

/* ---- gathering -------------------------------------------------------------------------------- */

static void start_norms(struct pp_device *device)
{
	struct pp_cuda_tail *tail = &device->tail;
	if (tail->norm_count == 0)
		return;
	pp_cuda_square_norms(device->cuda.compute, tail->norm_count, tail->norms, device->memory.scratch);
	pp_cuda_note(device, cudaGetLastError(), "starting norms");
	tail->norm_count = 0;
}

static void start_updates(struct pp_device *device)
{
	struct pp_cuda_tail *tail = &device->tail;
	if (tail->update_count == 0)
		return;
	const struct pp_hyper *hyper = tail->hyper;
	size_t row = (size_t)(hyper - device->program->train.hypers);
	const double *rates = device->memory.rates + row * PP_CUDA_RATES;
	assert(row < hyper_rows(device));
	switch (tail->rule) {
	case PP_ADAMW: {
		const struct pp_cuda_rule rule = {hyper->beta1, hyper->beta2, hyper->eps, hyper->weight_decay};
		pp_cuda_adamw(device->cuda.compute, &rule, tail->update_count, tail->updates, rates, tail->scale);
		break;
	}
	case PP_SGD:
		pp_cuda_sgd(device->cuda.compute, hyper->weight_decay, tail->update_count, tail->updates, rates, tail->scale);
		break;
	case PP_OPTIMIZER_COUNT:
		break;
	}
	pp_cuda_note(device, cudaGetLastError(), "starting updates");
	tail->update_count = 0;
}

void pp_cuda_flush(struct pp_device *device)
{
	start_norms(device);
	start_updates(device);
}

/* ---- instructions ----------------------------------------------------------------------------- */

void pp_cuda_zero_slot(struct pp_device *device, uint32_t slot)
{
	pp_cuda_flush(device);
	device->open = true;
	pp_cuda_zero(device->cuda.compute, device->rank->slots[slot].bytes, pp_cuda_slot(device, slot));
	pp_cuda_note(device, cudaGetLastError(), "starting to clear a slot");
}

void pp_cuda_add_slots(struct pp_device *device, uint32_t destination, uint32_t source, bool shard)
{
	struct pp_elements part =
	    pp_elements_of(device->program, device->coord, device->rank->slots[destination].tensor, shard);
	float *to = (float *)pp_cuda_slot(device, destination) + part.first;
	pp_cuda_flush(device);
	device->open = true;
	pp_cuda_add(device->cuda.compute, PP_CUDA_F32, part.count, to,
	            (const float *)pp_cuda_slot(device, source) + part.first, to);
	pp_cuda_note(device, cudaGetLastError(), "starting to add gradients");
}

static void gather_norm(struct pp_device *device, const struct pp_cuda_norm_item *item)
{
	struct pp_cuda_tail *tail = &device->tail;
	if (tail->norm_count == GATHERED)
		start_norms(device);
	tail->norms[tail->norm_count++] = *item;
}

void pp_cuda_sqnorm(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor, bool shard)
{
	uint32_t first = shard ? device->coord.dp : 0,
	         last = shard ? first : pp_grid_extent(device->program, PP_AXIS_DP) - 1;
	const float *all = (const float *)pp_cuda_slot(device, grad);
	double *norm = (double *)pp_cuda_slot(device, norms) + tensor;
	bool counts = device->program->tensors[tensor].tp_grad == PP_TP_SHARDED || device->coord.tp == 0;
	start_updates(device);
	device->open = true;
	for (uint32_t owner = first; owner <= last && (counts || owner == first); owner++) {
		struct pp_elements part = pp_elements_of_shard(device->program, tensor, owner);
		gather_norm(device, &(struct pp_cuda_norm_item){.elements = all + part.first,
		                                                .count = counts ? part.count : 0,
		                                                .norm = norm,
		                                                .add = owner != first});
	}
}

/* Gradients hold sums (token_mean: over tokens; mb_mean: over microbatches of means). The norm is that of the mean. */
void pp_cuda_clip_norm(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
                       uint32_t norms, uint32_t scale)
{
	const struct pp_slot *slots = device->rank->slots;
	uint64_t microbatches = slots[losses].bytes / (2 * sizeof(double)), tensors = slots[norms].bytes / sizeof(double);
	uint32_t replicas = pp_grid_extent(device->program, PP_AXIS_DP); /* each has this many microbatches */
	pp_cuda_flush(device);
	device->open = true;
	pp_cuda_clip(device->cuda.compute, microbatches, (const double *)pp_cuda_slot(device, losses), tensors,
	             (const double *)pp_cuda_slot(device, norms), mean == PP_MB_MEAN ? (double)microbatches * replicas : 0,
	             hyper->clip, (double *)pp_cuda_slot(device, scale));
	pp_cuda_note(device, cudaGetLastError(), "starting to clip");
}

/* Moments and masters of a shard have room for it alone, weights and gradients for all. */
void pp_cuda_opt(struct pp_device *device, const struct pp_update *update)
{
	struct pp_cuda_tail *tail = &device->tail;
	uint32_t tensor = device->rank->slots[update->weight].tensor;
	struct pp_elements part = pp_elements_of(device->program, device->coord, tensor, update->shard);
	unsigned char *weight = pp_cuda_slot(device, update->weight);
	const double *scale = (const double *)pp_cuda_slot(device, update->scale);
	bool half = device->program->tensors[tensor].dtype != PP_F32;
	start_norms(device);
	if (tail->update_count == GATHERED || tail->rule != update->rule || tail->hyper != update->hyper ||
	    tail->scale != scale)
		start_updates(device);
	tail->rule = update->rule;
	tail->hyper = update->hyper;
	tail->scale = scale;
	device->open = true;
	if (part.count == 0)
		return;
	tail->updates[tail->update_count++] = (struct pp_cuda_update){
	    .master = half ? (float *)pp_cuda_slot(device, update->master) : (float *)weight + part.first,
	    .weight = half ? weight + part.first * sizeof(uint16_t) : NULL,
	    .gradient = (const float *)pp_cuda_slot(device, update->grad) + part.first,
	    .moment1 = (float *)pp_cuda_slot(device, update->moment1),
	    .moment2 = (float *)pp_cuda_slot(device, update->moment2),
	    .count = part.count,
	};
}

/* ---- start ------------------------------------------------------------------------------------ */

/* Every kernel of the tail once, on one element of a scratch that nobody uses yet: kernels are loaded when they first
 * run, which may wait for everything that the GPU does. */
void pp_cuda_tail_warm(struct pp_device *device)
{
	cudaStream_t stream = device->cuda.compute;
	unsigned char *place = (unsigned char *)device->memory.loss; /* PP_ALIGN bytes */
	double *norm = (double *)place, *scale = norm + 2;
	float *numbers = (float *)(norm + 8);
	const struct pp_cuda_norm_item item = {.elements = numbers, .count = 1, .norm = norm};
	const struct pp_cuda_rule rule = {0.9, 0.95, 1e-8, 0};
	struct pp_cuda_update update = {.master = numbers,
	                                .weight = numbers + 4,
	                                .gradient = numbers + 5,
	                                .moment1 = numbers + 6,
	                                .moment2 = numbers + 7,
	                                .count = 1};
	pp_cuda_zero(stream, PP_ALIGN, place);
	/* On 16 bytes and off them are two kernels. */
	pp_cuda_add(stream, PP_CUDA_F32, 4, numbers, numbers + 4, numbers);
	pp_cuda_add(stream, PP_CUDA_F32, 1, numbers, numbers + 1, numbers);
	pp_cuda_square_norms(stream, 1, &item, device->memory.scratch);
	pp_cuda_clip(stream, 1, norm + 6, 1, norm, 0, 1, scale);
	pp_cuda_adamw(stream, &rule, 1, &update, device->memory.rates, scale);
	pp_cuda_sgd(stream, 0, 1, &update, device->memory.rates, scale);
	pp_cuda_note(device, cudaGetLastError(), "trying the kernels of the step tail");
}
