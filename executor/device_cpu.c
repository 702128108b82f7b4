/* The CPU device: one arena, bodies, the local step tail. Requires a program that was verified; ensures that nothing is
 * allocated after create and that one device never touches another's memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "device.h"

#include "body_cpu.h"
#include "device_share.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct pp_device {
	const struct pp_program *program;
	struct pp_coord coord;
	const struct pp_rank *rank;
	unsigned char *arena;
	void *allocation;  /* the arena and its guard zones */
	uint64_t guard;    /* bytes of a zone */
	void *kept;        /* a copy of the losses */
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
	struct pp_bound_call bound = {
	    .body = call->body,
	    .first = call->first,
	    .arena = device->arena,
	    .slots = device->rank->slots,
	    .link = link,
	    .tp = pp_grid_extent(device->program, PP_AXIS_TP),
	    .tp_coord = device->coord.tp,
	    .tickets = device->tickets,
	};
	bind_slots(&bound, call);
	bound.base[PP_BASE_WORK] = slot_at(device, device->work);
	if (device->losses != PP_NULL)
		bound.base[PP_BASE_LOSS] = slot_at(device, device->losses) + (uint64_t)call->mb * 2 * sizeof(double);
	pp_kernels_flush_denormals();
	return pp_cpu_run_body(&bound);
}

/* ---- arena ----------------------------------------------------------------------------------- */

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
	free(device->kept);
	free(device);
}

/* Options of GPUs belong to other devices: refuse before anything is allocated. */
static bool can_run(const struct pp_device_options *options, struct pp_status *status)
{
	if (options && options->gpus)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "--gpus=%.40s: the ranks run on the cpu device; leave it out, or ask for --device=cuda",
		               options->gpus);
	if (options && options->graph == PP_GRAPH_STEP)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "--graph=step: the cpu device, on which the ranks run, has no graphs; leave it out, or ask for "
		               "--device=cuda");
	return true;
}

static bool allocate(struct pp_device *device, uint64_t guard)
{
	const struct pp_rank *rank = device->rank;
	const uint64_t huge_page = UINT64_C(2) << 20, address_space = UINT64_C(1) << 47;
	uint64_t bytes = rank->arena_bytes, whole = bytes + 2 * guard;
	uint64_t alignment = bytes >= huge_page ? huge_page : 4096;
	if (bytes > address_space || posix_memalign(&device->allocation, alignment, whole ? whole : 1) != 0) {
		device->allocation = NULL;
		return false;
	}
	if (bytes >= huge_page)
		madvise(device->allocation, bytes, MADV_HUGEPAGE);
	memset(device->allocation, 0, whole);
	device->arena = (unsigned char *)device->allocation + guard;
	device->guard = guard;
	return true;
}

static struct pp_device *cpu_create(const struct pp_program *program, struct pp_coord coord,
                                    const struct pp_device_options *options, struct pp_status *status)
{
	uint32_t rank = coord.pp;
	if (!can_run(options, status) || !pp_device_slots_fit(program, rank, status))
		return NULL;
	struct pp_device *device = calloc(1, sizeof *device);
	if (device) {
		device->program = program;
		device->coord = coord;
		device->rank = &program->rank[rank];
		device->losses = pp_only_slot(device->rank, PP_SLOT_LOSSES);
		device->work = pp_only_slot(device->rank, PP_SLOT_WORK);
		device->tickets = calloc(pp_most_registers(program), sizeof *device->tickets);
		device->kept = calloc(1, device->losses == PP_NULL ? 1 : device->rank->slots[device->losses].bytes + 1);
	}
	if (!device || !device->tickets || !device->kept) {
		cpu_destroy(device);
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the cpu device");
		return NULL;
	}
	if (!allocate(device, options ? options->guard : 0)) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory: rank %" PRIu32 " needs an arena of %" PRIu64 " bytes",
		        rank, device->rank->arena_bytes);
		cpu_destroy(device);
		return NULL;
	}
	pp_kernels_one_thread();
	return device;
}

static bool cpu_init(struct pp_device *device, uint64_t seed, struct pp_status *status)
{
	(void)status;
	memset(device->arena, 0, device->rank->arena_bytes);
	for (uint32_t slot = 0; slot < device->rank->slot_count; slot++) {
		uint32_t tensor = device->rank->slots[slot].tensor;
		if (device->rank->slots[slot].class != PP_SLOT_WEIGHT || tensor == PP_NULL)
			continue; /* custom layers: room without a tensor */
		pp_weight_init(device->program, device->coord, tensor, seed, 0, pp_local_elements(device->program, tensor),
		               (float *)slot_at(device, slot));
	}
	return true;
}

/* ---- host's view ----------------------------------------------------------------------------- */

static unsigned char *part_of(const struct pp_device *device, uint32_t slot, uint64_t offset)
{
	return (slot == PP_NULL ? device->arena - device->guard : slot_at(device, slot)) + offset;
}

static bool cpu_read(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
                     struct pp_status *status)
{
	(void)status;
	memcpy(to, part_of(device, slot, offset), bytes);
	return true;
}

static bool cpu_write(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, const void *from,
                      struct pp_status *status)
{
	(void)status;
	memcpy(part_of(device, slot, offset), from, bytes);
	return true;
}

static void *cpu_load_begin(struct pp_device *device, const struct pp_instr *instr)
{
	return slot_at(device, instr->a[0]);
}

static void cpu_load_end(struct pp_device *device, const struct pp_instr *instr)
{
	(void)device;
	(void)instr;
}

static void cpu_keep(struct pp_device *device, uint32_t slot)
{
	memcpy(device->kept, slot_at(device, slot), device->rank->slots[slot].bytes);
}

static const void *cpu_kept(struct pp_device *device)
{
	return device->kept;
}

static enum pp_progress cpu_settle(struct pp_device *device)
{
	(void)device;
	return PP_DONE;
}

static const char *cpu_failure(const struct pp_device *device)
{
	(void)device;
	return "";
}

/* ---- step tail ------------------------------------------------------------------------------- */

static void cpu_zero(struct pp_device *device, uint32_t slot)
{
	memset(slot_at(device, slot), 0, device->rank->slots[slot].bytes);
}

static void cpu_add(struct pp_device *device, uint32_t destination, uint32_t source, bool shard)
{
	struct pp_elements span =
	    pp_elements_of(device->program, device->coord, device->rank->slots[destination].tensor, shard);
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
		struct pp_elements span = pp_elements_of_shard(device->program, tensor, owner);
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
	to[PP_SCALE_FACTOR] = finite ? average * shrink : 0;
	to[PP_SCALE_NORM] = norm;
	to[PP_SCALE_FINITE] = finite;
	to[PP_SCALE_TOKENS] = tokens;
}

static void cpu_opt(struct pp_device *device, const struct pp_update *update)
{
	const double *scale = (const double *)slot_at(device, update->scale);
	const struct pp_hyper *hyper = update->hyper;
	if (scale[PP_SCALE_FINITE] == 0)
		return;
	struct pp_elements span =
	    pp_elements_of(device->program, device->coord, device->rank->slots[update->weight].tensor, update->shard);
	float *w = (float *)slot_at(device, update->weight) + span.first;
	const float *g = (const float *)slot_at(device, update->grad) + span.first;
	pp_kernels_flush_denormals();
	switch (update->rule) {
	case PP_ADAMW: {
		struct pp_adamw adamw = {.lr = update->lr,
		                         .beta1 = hyper->beta1,
		                         .beta2 = hyper->beta2,
		                         .eps = hyper->eps,
		                         .weight_decay = hyper->weight_decay,
		                         .factor = scale[PP_SCALE_FACTOR],
		                         .step = update->step};
		pp_cpu_adamw_update(&adamw, span.count, w, g, (float *)slot_at(device, update->moment1),
		                    (float *)slot_at(device, update->moment2));
		return;
	}
	case PP_SGD:
		pp_cpu_sgd_update(update->lr, hyper->weight_decay, scale[PP_SCALE_FACTOR], span.count, w, g);
		return;
	case PP_OPTIMIZER_COUNT:
		break;
	}
}

const struct pp_device_ops pp_device_cpu = {
    .name = "cpu",
    .has_guards = true,
    .supports = cpu_supports,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .slot = cpu_slot,
    .read = cpu_read,
    .write = cpu_write,
    .call = cpu_call,
    .load_begin = cpu_load_begin,
    .load_end = cpu_load_end,
    .zero = cpu_zero,
    .add = cpu_add,
    .sqnorm = cpu_sqnorm,
    .clip = cpu_clip,
    .opt = cpu_opt,
    .keep = cpu_keep,
    .kept = cpu_kept,
    .settle = cpu_settle,
    .failure = cpu_failure,
    .init = cpu_init,
};
