/* A device that computes identities instead of layers. */
#include "device_null.h"

#include "ir/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pp_device {
	const struct pp_program *program;
	uint32_t rank;
	unsigned char *arena;
	uint32_t *steps;  /* forwards run of (stage, mb): the step they belong to */
	const void *kept; /* the losses: nobody looks at what they were before */
	unsigned errors;
	char first[160];
};

static bool supports(enum pp_body_op op)
{
	(void)op;
	return true;
}

static void destroy(struct pp_device *device)
{
	free(device->arena);
	free(device->steps);
	free(device);
}

static struct pp_device *create(const struct pp_program *program, struct pp_coord coord,
                                const struct pp_device_options *options, struct pp_status *status)
{
	(void)options;
	uint32_t rank = coord.pp;
	struct pp_device *device = calloc(1, sizeof *device);
	if (device) {
		device->program = program;
		device->rank = rank;
		device->arena = calloc(1, program->rank[rank].arena_bytes + 1);
		device->steps = calloc((size_t)program->stage_count * program->microbatches + 1, sizeof *device->steps);
		if (device->arena && device->steps)
			return device;
		destroy(device);
	}
	pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	return NULL;
}

static void *slot(struct pp_device *device, uint32_t index)
{
	return device->arena + device->program->rank[device->rank].slots[index].offset;
}

/* Word i of a boundary value. */
static uint32_t pattern(enum pp_value kind, uint32_t stage, uint32_t mb, uint32_t step, uint32_t i)
{
	uint32_t word = ((stage * 1000003u + mb) * 1000003u + step) * 1000003u + i * 2654435761u + (uint32_t)kind;
	return word ^ word >> 15;
}

static uint32_t words(const struct pp_device *device, uint32_t stage)
{
	const struct pp_stage *of = &device->program->stages[stage];
	return (uint32_t)((uint64_t)of->out_count * pp_dtype_size[of->out_dtype] / sizeof(uint32_t));
}

static void write_value(struct pp_device *device, uint32_t to, enum pp_value kind, uint32_t stage, uint32_t count,
                        uint32_t mb, uint32_t step)
{
	uint32_t *value = slot(device, to);
	for (uint32_t i = 0; i < count; i++)
		value[i] = pattern(kind, stage, mb, step, i);
}

static void complain(struct pp_device *device, const char *what, uint32_t stage, uint32_t mb, uint32_t step)
{
	if (device->errors++ == 0)
		snprintf(device->first, sizeof device->first,
		         "rank %" PRIu32 ": wrong %s at s%" PRIu32 " m%" PRIu32 " step %" PRIu32, device->rank, what, stage, mb,
		         step);
}

static void check_value(struct pp_device *device, uint32_t from, enum pp_value kind, uint32_t stage, uint32_t count,
                        uint32_t mb, uint32_t step)
{
	const uint32_t *value = slot(device, from);
	for (uint32_t i = 0; i < count; i++)
		if (value[i] != pattern(kind, stage, mb, step, i)) {
			complain(device, kind == PP_ACT ? "activation" : "gradient", kind == PP_ACT ? stage + 1 : stage - 1, mb,
			         step);
			return;
		}
}

static void add_gradients(struct pp_device *device, uint32_t stage, uint32_t mb, bool first)
{
	for (uint32_t i = 0; i < device->program->use_count; i++) {
		const struct pp_use *use = &device->program->uses[i];
		if (use->stage != stage)
			continue;
		float *grad = slot(device, use->grad);
		uint64_t count = device->program->rank[device->rank].slots[use->grad].bytes / sizeof(float);
		for (uint64_t k = 0; k < count; k++) {
			float value = (float)(pattern(PP_GRAD, stage, mb, 0, (uint32_t)k) % 100000) * 0.001f;
			grad[k] = first ? value : grad[k] + value;
		}
	}
}

static bool call(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link)
{
	uint32_t stage = call->body->stage, mb = call->mb;
	uint32_t *step = &device->steps[stage * device->program->microbatches + mb];
	uint32_t *stash = call->stash == PP_NULL ? NULL : slot(device, call->stash);
	if (call->body->phase == PP_PHASE_F) {
		++*step;
		if (call->in != PP_NULL)
			check_value(device, call->in, PP_ACT, stage - 1, words(device, stage - 1), mb, *step);
		link->poll(link->context);
		if (call->out != PP_NULL)
			write_value(device, call->out, PP_ACT, stage, words(device, stage), mb, *step);
		if (stash)
			stash[0] = pattern(PP_ACT, stage, mb, *step, PP_PHASE_F);
		return true;
	}
	uint32_t expected = pattern(PP_ACT, stage, mb, *step, call->body->phase == PP_PHASE_W ? PP_PHASE_I : PP_PHASE_F);
	if (stash && stash[0] != expected)
		complain(device, "stash", stage, mb, *step);
	if (stash)
		stash[0] = pattern(PP_ACT, stage, mb, *step, PP_PHASE_I);
	if (call->dout != PP_NULL)
		check_value(device, call->dout, PP_GRAD, stage + 1, words(device, stage), mb, *step);
	link->poll(link->context);
	if (call->din != PP_NULL)
		write_value(device, call->din, PP_GRAD, stage, words(device, stage - 1), mb, *step);
	if (call->body->phase != PP_PHASE_I)
		add_gradients(device, stage, mb, call->first);
	return true;
}

static bool call_void(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link)
{
	(void)device;
	(void)call;
	(void)link;
	return true;
}

static void zero(struct pp_device *device, uint32_t index)
{
	memset(slot(device, index), 0, device->program->rank[device->rank].slots[index].bytes);
}

static void add(struct pp_device *device, uint32_t destination, uint32_t source, bool shard)
{
	(void)shard;
	float *to = slot(device, destination);
	const float *from = slot(device, source);
	uint64_t count = device->program->rank[device->rank].slots[destination].bytes / sizeof(float);
	for (uint64_t i = 0; i < count; i++)
		to[i] += from[i];
}

static void sqnorm(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor, bool shard)
{
	(void)grad;
	(void)shard;
	((double *)slot(device, norms))[tensor] = 1.0;
}

static void clip(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
                 uint32_t norms, uint32_t scale)
{
	(void)hyper;
	(void)mean;
	(void)losses;
	(void)norms;
	double *out = slot(device, scale);
	out[0] = out[1] = out[2] = out[3] = 1.0;
}

static void opt(struct pp_device *device, const struct pp_update *update)
{
	(void)device;
	(void)update;
}

static bool init(struct pp_device *device, uint64_t seed, struct pp_status *status)
{
	(void)device;
	(void)seed;
	(void)status;
	return true;
}

/* ---- host's view ----------------------------------------------------------------------------- */

static bool read_slot(struct pp_device *device, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                      struct pp_status *status)
{
	(void)status;
	memcpy(to, (unsigned char *)slot(device, index) + offset, bytes);
	return true;
}

static bool write_slot(struct pp_device *device, uint32_t index, uint64_t offset, uint64_t bytes, const void *from,
                       struct pp_status *status)
{
	(void)status;
	memcpy((unsigned char *)slot(device, index) + offset, from, bytes);
	return true;
}

static void *load_begin(struct pp_device *device, const struct pp_instr *instr)
{
	return slot(device, instr->a[0]);
}

static void load_end(struct pp_device *device, const struct pp_instr *instr)
{
	(void)device;
	(void)instr;
}

static void keep(struct pp_device *device, uint32_t index)
{
	device->kept = slot(device, index);
}

static const void *kept(struct pp_device *device)
{
	return device->kept;
}

static enum pp_progress settle(struct pp_device *device)
{
	(void)device;
	return PP_DONE;
}

static const char *failure(const struct pp_device *device)
{
	(void)device;
	return "";
}

unsigned pp_device_null_errors(const struct pp_device *device, const char **first)
{
	*first = device->first;
	return device->errors;
}

uint64_t pp_device_null_digest(const struct pp_device *device)
{
	const struct pp_rank *rank = &device->program->rank[device->rank];
	uint64_t hash = PP_HASH_EMPTY;
	for (uint32_t i = 0; i < rank->slot_count; i++)
		if (rank->slots[i].class == PP_SLOT_GRAD)
			hash = pp_hash_more(hash, device->arena + rank->slots[i].offset, rank->slots[i].bytes);
	return hash;
}

const struct pp_device_ops pp_device_null = {
    .name = "null",
    .supports = supports,
    .create = create,
    .destroy = destroy,
    .slot = slot,
    .call = call,
    .read = read_slot,
    .write = write_slot,
    .load_begin = load_begin,
    .load_end = load_end,
    .keep = keep,
    .kept = kept,
    .settle = settle,
    .failure = failure,
    .zero = zero,
    .add = add,
    .sqnorm = sqnorm,
    .clip = clip,
    .opt = opt,
    .init = init,
};

const struct pp_device_ops pp_device_void = {
    .name = "null",
    .supports = supports,
    .create = create,
    .destroy = destroy,
    .slot = slot,
    .call = call_void,
    .read = read_slot,
    .write = write_slot,
    .load_begin = load_begin,
    .load_end = load_end,
    .keep = keep,
    .kept = kept,
    .settle = settle,
    .failure = failure,
    .zero = zero,
    .add = add,
    .sqnorm = sqnorm,
    .clip = clip,
    .opt = opt,
    .init = init,
};
