/* Memory of the CUDA device: one allocation of the GPU, one of pinned host memory, both at create.
 *
 * Requires: the rank's GPU is set. Ensures: what is missing is said with both numbers before anything is allocated. */
#include "device_parts.h"

#include "executor/device_share.h"
#include "ir/outside.h"
#include "ir/scratch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
}

static uint64_t rates_bytes(const struct pp_program *program)
{
	uint64_t rows = program->train.hyper_count ? program->train.hyper_count : 1;
	return rows * PP_CUDA_RATES * sizeof(double);
}

/* ---- the GPU's -------------------------------------------------------------------------------- */

/* Scratch that the compiler planned must do; else there is room behind the arena. */
static bool scratch_fits(const struct pp_device *device, uint32_t slot, struct pp_status *status)
{
	uint64_t needed = pp_scratch_rank_bytes(device->program, device->coord.pp);
	const struct pp_slot *planned = &device->rank->slots[slot];
	return planned->bytes >= needed ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "scratch slot %" PRIu32 " of rank %" PRIu32 " has %" PRIu64 " bytes, kernels need %" PRIu64
	               ": build the program again with the tools of this piperun",
	               slot, device->coord.pp, planned->bytes, needed);
}

uint64_t pp_cuda_free_memory(void)
{
	size_t free_bytes = 0, all = 0;
	return cudaMemGetInfo(&free_bytes, &all) == cudaSuccess ? free_bytes : 0;
}

static bool has_room(struct pp_device *device, struct pp_status *status)
{
	size_t free_bytes = 0, all = 0;
	uint64_t needed = device->memory.bytes;
	if (!pp_cuda_ok(cudaMemGetInfo(&free_bytes, &all), "asking for free memory", status))
		return false;
	device->memory.free_first = free_bytes;
	return needed <= free_bytes ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "rank %" PRIu32 " needs %" PRIu64 " bytes of GPU %d (arena %" PRIu64 "), of whose %zu bytes %zu are "
	               "free: plan for less with `gpu.memory`, or give the rank a GPU of its own",
	               pp_grid_rank(device->program, device->coord), needed, device->cuda.ordinal,
	               device->rank->arena_bytes, all, free_bytes);
}

/* What is summed below cannot overflow: the address space of a GPU ends at 2^47 bytes, and nothing here is beyond it.
 */
static bool sizes_are_sane(const struct pp_device *device, const struct pp_device_options *options,
                           struct pp_status *status)
{
	const uint64_t most = UINT64_C(1) << 47;
	uint64_t scratch = pp_scratch_rank_bytes(device->program, device->coord.pp);
	if (device->rank->arena_bytes > most)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "rank %" PRIu32 " needs an arena of %" PRIu64 " bytes",
		               device->coord.pp, device->rank->arena_bytes);
	return (scratch <= most && options->guard <= most) ||
	       pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "rank %" PRIu32 " needs %" PRIu64 " bytes of scratch and guard zones of %" PRIu64 " bytes",
	               device->coord.pp, scratch, options->guard);
}

static bool make_gpu_memory(struct pp_device *device, const struct pp_device_options *options, struct pp_status *status)
{
	struct pp_cuda_memory *memory = &device->memory;
	uint32_t slot = pp_only_slot(device->rank, PP_SLOT_SCRATCH);
	if (slot != PP_NULL && !scratch_fits(device, slot, status))
		return false;
	if (!sizes_are_sane(device, options, status))
		return false;
	uint64_t guarded = aligned(device->rank->arena_bytes + 2 * options->guard), rates = rates_bytes(device->program);
	uint64_t scratch = slot == PP_NULL ? aligned(pp_scratch_rank_bytes(device->program, device->coord.pp)) : 0;
	uint64_t numbers = options->graph == PP_GRAPH_STEP ? aligned(options->marks * sizeof(uint32_t)) : 0;
	memory->guard = options->guard;
	memory->beside = scratch + aligned(rates) + PP_ALIGN + numbers;
	memory->bytes = guarded + memory->beside;
	if (!has_room(device, status) ||
	    !pp_cuda_ok(cudaMalloc((void **)&memory->all, memory->bytes), "allocating memory of the GPU", status))
		return false;
	unsigned char *at = memory->all;
	memory->guarded = at;
	memory->scratch = slot == PP_NULL ? at + guarded : pp_cuda_slot(device, slot);
	memory->scratch_bytes = slot == PP_NULL ? scratch : device->rank->slots[slot].bytes;
	at += guarded + scratch;
	memory->rates = (double *)at;
	memory->loss = (double *)(at + aligned(rates));
	memory->numbers = numbers ? (uint32_t *)(at + aligned(rates) + PP_ALIGN) : NULL;
	return true;
}

/* ---- the host's ------------------------------------------------------------------------------- */

/* Of the step that loads most. */
static uint64_t most_loads(const struct pp_device *device)
{
	uint64_t most = 0;
	for (uint32_t p = 0; p < device->program->program_count; p++) {
		const struct pp_stream *stream = &device->program->programs[p].streams[device->coord.pp];
		uint64_t bytes = 0;
		for (uint32_t i = 0; i < stream->count; i++)
			if (stream->items[i].op == PP_OP_LOAD)
				bytes += aligned(pp_load_bytes(device->program, &stream->items[i]));
		most = bytes > most ? bytes : most;
	}
	return most;
}

static bool make_host_memory(struct pp_device *device, struct pp_status *status)
{
	struct pp_cuda_host *host = &device->host;
	host->loads_bytes = most_loads(device);
	uint64_t kept = device->losses == PP_NULL ? 0 : aligned(device->rank->slots[device->losses].bytes);
	uint64_t rates = aligned(rates_bytes(device->program));
	uint64_t bytes = PP_CUDA_BOUNCE + host->loads_bytes + kept + rates + PP_ALIGN;
	if (!pp_cuda_ok(cudaHostAlloc((void **)&host->memory, bytes, cudaHostAllocDefault),
	                "allocating pinned memory of the host", status))
		return false;
	memset(host->memory, 0, bytes);
	host->bytes = bytes;
	host->bounce = host->memory;
	host->loads = host->bounce + PP_CUDA_BOUNCE;
	host->kept = (double *)(host->loads + host->loads_bytes);
	host->rates = (double *)((unsigned char *)host->kept + kept);
	host->mark = (uint32_t *)((unsigned char *)host->rates + rates);
	return true;
}

bool pp_cuda_memory_make(struct pp_device *device, const struct pp_device_options *options, struct pp_status *status)
{
	return make_gpu_memory(device, options, status) && make_host_memory(device, status);
}

void pp_cuda_memory_free(struct pp_device *device)
{
	if (device->memory.all)
		cudaFree(device->memory.all);
	if (device->host.memory)
		cudaFreeHost(device->host.memory);
}

/* ---- for --memory ----------------------------------------------------------------------------- */

static uint64_t growth(uint64_t free_before, uint64_t free_after)
{
	return free_before > free_after ? free_before - free_after : 0;
}

/* Estimates, on the safe side: docs/cuda.md, Memory. */
void pp_cuda_holding(struct pp_device *device, struct pp_device_holding *holding)
{
	const uint64_t kibibyte = 1 << 10, mebibyte = 1 << 20;
	const struct pp_cuda_memory *memory = &device->memory;
	size_t free_now = 0, all = 0;
	uint64_t graphs, launches, steps, nodes;
	pp_cuda_bodies_count(device, &graphs, &launches);
	pp_cuda_steps_count(device, &steps, &nodes);
	if (cudaMemGetInfo(&free_now, &all) != cudaSuccess)
		free_now = all = 0;
	*holding = (struct pp_device_holding){
	    .memory = all,
	    .free = free_now,
	    .pinned = device->host.bytes,
	    .predicted = {[PP_DEVICE_CONTEXT] = PP_GPU_CONTEXT_MIB * mebibyte,
	                  [PP_DEVICE_BESIDE] = memory->beside,
	                  [PP_DEVICE_KERNELS] = PP_GPU_KERNELS_MIB * mebibyte,
	                  [PP_DEVICE_GRAPHS] = (graphs * PP_GPU_GRAPH_KIB + launches * PP_GPU_LAUNCH_KIB) * kibibyte,
	                  [PP_DEVICE_LATER] = (steps * PP_GPU_GRAPH_KIB + nodes * PP_GPU_LAUNCH_KIB) * kibibyte},
	    .measured = {[PP_DEVICE_CONTEXT] = growth(all, memory->free_first),
	                 [PP_DEVICE_BESIDE] = memory->beside,
	                 [PP_DEVICE_KERNELS] = growth(growth(memory->free_first, memory->bytes), memory->free_kernels),
	                 [PP_DEVICE_GRAPHS] = growth(memory->free_kernels, memory->free_graphs),
	                 [PP_DEVICE_LATER] = growth(memory->free_ready, free_now)},
	};
}

/* ---- beginnings ------------------------------------------------------------------------------- */

bool pp_cuda_zero_all(struct pp_device *device, struct pp_status *status)
{
	const struct pp_cuda_memory *memory = &device->memory;
	if (!pp_cuda_ok(cudaMemsetAsync(memory->all, 0, memory->bytes, device->cuda.compute), "clearing memory", status))
		return false;
	return pp_cuda_wait(device->cuda.compute, "clearing memory", status);
}

/* To nearest, ties to even. Initial values are finite. */
static uint16_t rounded(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint32_t master_of(const struct pp_rank *rank, uint32_t tensor)
{
	for (uint32_t slot = 0; slot < rank->slot_count; slot++)
		if (rank->slots[slot].class == PP_SLOT_MASTER && rank->slots[slot].tensor == tensor)
			return slot;
	return PP_NULL;
}

enum { PIECE = 65536 };

/* Values on their way to the device. */
struct piece {
	float drawn[PIECE];
	uint16_t halves[PIECE];
};

/* Elements from `first` on of what this coordinate holds of a tensor, drawn and written to a slot piece by piece. */
static bool init_slot(struct pp_device *device, uint32_t slot, enum pp_dtype dtype, uint64_t seed,
                      struct pp_elements part, struct piece *piece, struct pp_status *status)
{
	uint32_t tensor = device->rank->slots[slot].tensor;
	for (size_t at = 0; at < part.count; at += PIECE) {
		size_t count = part.count - at < PIECE ? part.count - at : PIECE;
		pp_weight_init(device->program, device->coord, tensor, seed, part.first + at, count, piece->drawn);
		for (size_t i = 0; dtype == PP_BF16 && i < count; i++)
			piece->halves[i] = rounded(piece->drawn[i]);
		uint64_t size = pp_dtype_size[dtype];
		const void *from = dtype == PP_BF16 ? (const void *)piece->halves : piece->drawn;
		if (!pp_cuda_write(device, slot, at * size, count * size, from, status))
			return false;
	}
	return true;
}

/* A weight, and its master copy where it has one. */
static bool init_weight(struct pp_device *device, uint32_t slot, uint64_t seed, struct piece *piece,
                        struct pp_status *status)
{
	const struct pp_program *program = device->program;
	uint32_t tensor = device->rank->slots[slot].tensor, master = master_of(device->rank, tensor);
	bool shard = program->zero && pp_grid_extent(program, PP_AXIS_DP) > 1;
	return init_slot(device, slot, (enum pp_dtype)program->tensors[tensor].dtype, seed,
	                 pp_elements_of(program, device->coord, tensor, false), piece, status) &&
	       (master == PP_NULL || init_slot(device, master, PP_F32, seed,
	                                       pp_elements_of(program, device->coord, tensor, shard), piece, status));
}

bool pp_cuda_init(struct pp_device *device, uint64_t seed, struct pp_status *status)
{
	struct piece *piece = malloc(sizeof *piece);
	bool ok = piece || pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for initial weights");
	ok = ok && pp_cuda_ok(cudaMemsetAsync(pp_cuda_arena(device), 0, device->rank->arena_bytes, device->cuda.compute),
	                      "clearing the arena", status);
	for (uint32_t slot = 0; ok && slot < device->rank->slot_count; slot++)
		if (device->rank->slots[slot].class == PP_SLOT_WEIGHT &&
		    device->rank->slots[slot].tensor != PP_NULL) /* custom layers have room without a tensor */
			ok = init_weight(device, slot, seed, piece, status);
	free(piece);
	return ok;
}
