/* The CPU device: one arena, bodies, the local step tail. Requires a program that was verified; ensures that nothing is
 * allocated after create and that one device never touches another's memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "device.h"

#include "body_cpu.h"
#include "init.h"
#include "kernels/kernels.h"

#include "ir/token_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The scale slot. */
enum { SCALE_FACTOR, SCALE_NORM, SCALE_FINITE, SCALE_TOKENS };

struct pp_device {
	const struct pp_program *program;
	struct pp_coord coord;
	const struct pp_rank *rank;
	unsigned char *arena;
	void *allocation;  /* the arena and its guard zones */
	uint32_t losses;   /* slot, or PP_NULL */
	uint32_t work;     /* slot, or PP_NULL */
	uint32_t *tickets; /* [registers of the largest body] */
};

static unsigned char *slot_at(const struct pp_device *device, uint32_t slot)
{
	return slot == PP_NULL ? NULL : device->arena + device->rank->slots[slot].offset;
}

static bool cpu_supports(enum pp_body_op op)
{
	return pp_cpu_has_op(op);
}

static bool cpu_call(struct pp_device *device, const struct pp_call *call, const struct pp_body_link *link)
{
	struct pp_cpu_call bound = {
	    .body = call->body,
	    .first = call->first,
	    .arena = device->arena,
	    .slots = device->rank->slots,
	    .link = link,
	    .tp = pp_grid_extent(device->program, PP_AXIS_TP),
	    .tp_coord = device->coord.tp,
	    .tickets = device->tickets,
	};
	bound.base[PP_BASE_IN] = slot_at(device, call->in);
	bound.base[PP_BASE_AUX] = slot_at(device, call->aux);
	bound.base[PP_BASE_OUT] = slot_at(device, call->out);
	bound.base[PP_BASE_STASH] = slot_at(device, call->stash);
	bound.base[PP_BASE_EXTRA] = slot_at(device, call->extra);
	bound.base[PP_BASE_DOUT] = slot_at(device, call->dout);
	bound.base[PP_BASE_DIN] = slot_at(device, call->din);
	bound.base[PP_BASE_WORK] = slot_at(device, device->work);
	if (device->losses != PP_NULL)
		bound.base[PP_BASE_LOSS] = slot_at(device, device->losses) + (uint64_t)call->mb * 2 * sizeof(double);
	pp_kernels_flush_denormals();
	return pp_cpu_run_body(&bound);
}

/* ---- arena ----------------------------------------------------------------------------------- */

static uint32_t find_slot(const struct pp_rank *rank, enum pp_slot_class class)
{
	for (uint32_t slot = 0; slot < rank->slot_count; slot++)
		if (rank->slots[slot].class == class)
			return slot;
	return PP_NULL;
}

static void *cpu_slot(struct pp_device *device, uint32_t slot)
{
	return slot_at(device, slot);
}

static void cpu_destroy(struct pp_device *device)
{
	if (!device)
		return;
	free(device->allocation);
	free(device->tickets);
	free(device);
}

/* Half precision belongs to other devices: refuse before anything is allocated. */
static bool can_run(const struct pp_program *program, struct pp_status *status)
{
	for (uint32_t t = 0; t < program->tensor_count; t++)
		if (program->tensors[t].dtype != PP_F32)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "the cpu device computes in f32 only, tensor %s is %s; build with `dtype = fp32`",
			               program->tensors[t].name, pp_dtype_name[program->tensors[t].dtype]);
	return true;
}

/* The device itself writes to static slots; other slots are bounded by the verifier's body rules. */
static bool slots_fit(const struct pp_program *program, uint32_t rank, struct pp_status *status)
{
	const struct pp_rank *table = &program->rank[rank];
	for (uint32_t i = 0; i < table->slot_count; i++) {
		const struct pp_slot *slot = &table->slots[i];
		uint64_t needed;
		if (pp_slot_content_bytes(program, slot, &needed) && slot->bytes < needed)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "%s slot %" PRIu32 " of rank %" PRIu32 " has %" PRIu64 " bytes, it needs %" PRIu64,
			               pp_slot_class_name[slot->class], i, rank, slot->bytes, needed);
		if (slot->offset > table->arena_bytes || slot->bytes > table->arena_bytes - slot->offset)
			return pp_fail(status, PP_EXIT_ENVIRONMENT,
			               "%s slot %" PRIu32 " of rank %" PRIu32 " ends outside the arena",
			               pp_slot_class_name[slot->class], i, rank);
	}
	return true;
}

static uint32_t most_registers(const struct pp_program *program)
{
	uint32_t most = 1;
	for (uint32_t b = 0; b < program->body_count; b++)
		most = program->bodies[b].reg_count > most ? program->bodies[b].reg_count : most;
	return most;
}

static struct pp_device *cpu_create_guarded(const struct pp_program *program, struct pp_coord coord, uint64_t guard,
                                            struct pp_status *status)
{
	uint32_t rank = coord.pp;
	if (!can_run(program, status) || !slots_fit(program, rank, status))
		return NULL;
	struct pp_device *device = calloc(1, sizeof *device);
	if (device)
		device->tickets = calloc(most_registers(program), sizeof *device->tickets);
	if (!device || !device->tickets) {
		cpu_destroy(device);
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the cpu device");
		return NULL;
	}
	device->program = program;
	device->coord = coord;
	device->rank = &program->rank[rank];
	device->losses = find_slot(device->rank, PP_SLOT_LOSSES);
	device->work = find_slot(device->rank, PP_SLOT_WORK);
	const uint64_t huge_page = UINT64_C(2) << 20;
	uint64_t bytes = device->rank->arena_bytes, around = 2 * guard;
	uint64_t alignment = bytes >= huge_page ? huge_page : 4096;
	const uint64_t address_space = UINT64_C(1) << 47;
	if (bytes > address_space ||
	    posix_memalign(&device->allocation, alignment, bytes + around ? bytes + around : 1) != 0) {
		device->allocation = NULL;
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory: rank %" PRIu32 " needs an arena of %" PRIu64 " bytes",
		        rank, bytes);
		cpu_destroy(device);
		return NULL;
	}
	if (bytes >= huge_page)
		madvise(device->allocation, bytes, MADV_HUGEPAGE);
	memset(device->allocation, 0, bytes + around);
	device->arena = (unsigned char *)device->allocation + guard;
	pp_kernels_one_thread();
	return device;
}

static struct pp_device *cpu_create(const struct pp_program *program, struct pp_coord coord, struct pp_status *status)
{
	return cpu_create_guarded(program, coord, 0, status);
}

/* What this coordinate holds of a tensor, from the draws of the whole; padding is 0. */
static void init_weight(const struct pp_device *device, uint32_t tensor, uint64_t seed, float *to)
{
	const struct pp_tensor *whole = &device->program->tensors[tensor];
	struct pp_box box = pp_tensor_box(device->program, tensor, device->coord.tp);
	uint64_t run = box.columns == whole->columns ? (uint64_t)box.rows * box.columns : box.columns;
	for (uint64_t at = 0; at < (uint64_t)box.rows * box.columns; at += run)
		pp_init_fill(whole, seed, (box.row + at / box.columns) * whole->columns + box.column, run, to + at);
	uint32_t rows = pp_tensor_rows(device->program, tensor), kept = rows > box.row ? rows - box.row : 0;
	if (kept < box.rows)
		memset(to + (uint64_t)kept * box.columns, 0, (uint64_t)(box.rows - kept) * box.columns * sizeof *to);
}

static void cpu_init(struct pp_device *device, uint64_t seed)
{
	memset(device->arena, 0, device->rank->arena_bytes);
	for (uint32_t slot = 0; slot < device->rank->slot_count; slot++) {
		const struct pp_slot *weight = &device->rank->slots[slot];
		if (weight->class != PP_SLOT_WEIGHT || weight->tensor == PP_NULL) /* custom layers: room without a tensor */
			continue;
		init_weight(device, weight->tensor, seed, (float *)slot_at(device, slot));
	}
}

/* ---- step tail ------------------------------------------------------------------------------- */

static void cpu_zero(struct pp_device *device, uint32_t slot)
{
	memset(slot_at(device, slot), 0, device->rank->slots[slot].bytes);
}

/* Elements of a tensor: all that this tp coordinate holds, or the dp shard `owner` of them. The last shards may be
 * short or empty; what lies behind is padding. */
struct span {
	size_t first, count;
};

static struct span shard_of(const struct pp_device *device, uint32_t tensor, uint32_t owner)
{
	uint64_t local = pp_local_elements(device->program, tensor), dp = pp_grid_extent(device->program, PP_AXIS_DP);
	uint64_t each = local / dp + (local % dp != 0), first = each * owner;
	first = first < local ? first : local;
	return (struct span){(size_t)first, (size_t)(local - first < each ? local - first : each)};
}

static struct span span_of(const struct pp_device *device, uint32_t tensor, bool shard)
{
	return shard ? shard_of(device, tensor, device->coord.dp)
	             : (struct span){0, (size_t)pp_local_elements(device->program, tensor)};
}

static void cpu_add(struct pp_device *device, uint32_t destination, uint32_t source, bool shard)
{
	struct span span = span_of(device, device->rank->slots[destination].tensor, shard);
	float *to = (float *)slot_at(device, destination) + span.first;
	pp_kernels_flush_denormals();
	pp_cpu_add(span.count, to, (const float *)slot_at(device, source) + span.first, to);
}

static void cpu_sqnorm(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor, bool shard)
{
	pp_kernels_flush_denormals();
	double *to = (double *)slot_at(device, norms);
	const float *elements = (const float *)slot_at(device, grad);
	uint32_t first = shard ? device->coord.dp : 0,
	         last = shard ? first : pp_grid_extent(device->program, PP_AXIS_DP) - 1;
	to[tensor] = 0;
	if (device->program->tensors[tensor].tp_grad != PP_TP_SHARDED && device->coord.tp != 0)
		return;
	for (uint32_t owner = first; owner <= last; owner++) {
		struct span span = shard_of(device, tensor, owner);
		to[tensor] += pp_cpu_square_norm(span.count, elements + span.first);
	}
}

/* Gradients hold sums (token_mean: over tokens; mb_mean: over microbatches of means). The norm is that of the mean. */
static void cpu_clip(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
                     uint32_t norms, uint32_t scale)
{
	const double *loss = (const double *)slot_at(device, losses), *square = (const double *)slot_at(device, norms);
	uint64_t microbatches = device->rank->slots[losses].bytes / (2 * sizeof *loss);
	uint64_t tensors = device->rank->slots[norms].bytes / sizeof *square;
	double tokens = 0, squares = 0;
	for (uint64_t m = 0; m < microbatches; m++)
		tokens += loss[2 * m + 1];
	for (uint64_t t = 0; t < tensors; t++)
		squares += square[t];
	uint32_t replicas = pp_grid_extent(device->program, PP_AXIS_DP); /* each has this many microbatches */
	double parts = mean == PP_MB_MEAN ? (double)microbatches * replicas : tokens;
	double average = parts > 0 ? 1 / parts : 0;
	double norm = sqrt(squares) * average;
	double shrink = hyper->clip > 0 && norm > hyper->clip ? hyper->clip / norm : 1;
	double *to = (double *)slot_at(device, scale);
	bool finite = isfinite(norm);
	to[SCALE_FACTOR] = finite ? average * shrink : 0;
	to[SCALE_NORM] = norm;
	to[SCALE_FINITE] = finite;
	to[SCALE_TOKENS] = tokens;
}

static void cpu_opt(struct pp_device *device, enum pp_optimizer rule, const struct pp_hyper *hyper, double lr,
                    uint64_t step, uint32_t weight, uint32_t grad, uint32_t moment1, uint32_t moment2, uint32_t scale,
                    bool shard)
{
	const double *factor = (const double *)slot_at(device, scale);
	if (factor[SCALE_FINITE] == 0)
		return;
	struct span span = span_of(device, device->rank->slots[weight].tensor, shard);
	float *w = (float *)slot_at(device, weight) + span.first;
	const float *g = (const float *)slot_at(device, grad) + span.first;
	pp_kernels_flush_denormals();
	switch (rule) {
	case PP_ADAMW: {
		struct pp_adamw adamw = {lr,  hyper->beta1, hyper->beta2, hyper->eps, hyper->weight_decay, factor[SCALE_FACTOR],
		                         step};
		pp_cpu_adamw_update(&adamw, span.count, w, g, (float *)slot_at(device, moment1),
		                    (float *)slot_at(device, moment2));
		return;
	}
	case PP_SGD:
		pp_cpu_sgd_update(lr, hyper->weight_decay, factor[SCALE_FACTOR], span.count, w, g);
		return;
	case PP_OPTIMIZER_COUNT:
		break;
	}
}

const struct pp_device_ops pp_device_cpu = {
    .name = "cpu",
    .supports = cpu_supports,
    .create = cpu_create,
    .create_guarded = cpu_create_guarded,
    .destroy = cpu_destroy,
    .slot = cpu_slot,
    .call = cpu_call,
    .zero = cpu_zero,
    .add = cpu_add,
    .sqnorm = cpu_sqnorm,
    .clip = cpu_clip,
    .opt = cpu_opt,
    .init = cpu_init,
};
