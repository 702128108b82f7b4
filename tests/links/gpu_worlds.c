/* Devices for worlds of tests, and memory on them. */
#include "gpu_worlds.h"

#include "executor/cuda/cuda.h"
#include "executor/cuda/device_cuda.h"
#include "executor/cuda/links/loop_cuda.h"
#include "executor/cuda/links/staged.h"
#include "executor/transport/transport_local.h"
#include "executor/transport/transport_loop.h"
#ifdef PP_HAVE_NCCL
#include "executor/cuda/links/nccl/nccl.h"
#endif

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a device -------------------------------------------------------------------------------- */

enum { BLOCKS = 256 };

struct block {
	void *start;
	size_t bytes;
	bool taken;
};

/* A rank's device without a program, and blocks of its memory, which are kept: freeing would wait for all ranks. */
struct gpu {
	struct pp_program *none;
	struct pp_device *device;
	struct block blocks[BLOCKS];
	struct pp_test_memory memory;
	const struct pp_link *link; /* or NULL */
	struct pp_endpoint *below;  /* of a link over the local transport, or NULL */
};

static void check(bool fine, const struct pp_status *status)
{
	if (!fine)
		fprintf(stderr, "%s\n", status->text);
	assert(fine);
}

static void *take(void *context, size_t bytes)
{
	struct gpu *gpu = context;
	struct pp_status status;
	for (int i = 0; i < BLOCKS; i++) {
		struct block *block = &gpu->blocks[i];
		if (!block->start) {
			block->bytes = bytes < 4096 ? 4096 : 2 * bytes;
			check(pp_cuda_ok(cudaMalloc(&block->start, block->bytes), "allocating", &status), &status);
		}
		if (block->taken || block->bytes < bytes)
			continue;
		block->taken = true;
		return block->start;
	}
	assert(!"more blocks");
	return NULL;
}

static void give(void *context, void *there)
{
	struct gpu *gpu = context;
	for (int i = 0; i < BLOCKS; i++)
		if (gpu->blocks[i].start == there)
			gpu->blocks[i].taken = false;
}

static void copy(struct gpu *gpu, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	struct pp_status status;
	cudaStream_t stream = pp_cuda_of(gpu->device)->compute;
	if (bytes == 0)
		return;
	check(pp_cuda_ok(cudaMemcpyAsync(to, from, bytes, kind, stream), "copying", &status) &&
	          pp_cuda_wait(stream, "copying", &status),
	      &status);
}

/* Through pinned memory: asynchronous copies want it. */
static void *pinned(size_t bytes)
{
	void *memory = NULL;
	struct pp_status status;
	check(pp_cuda_ok(cudaHostAlloc(&memory, bytes + 1, cudaHostAllocDefault), "pinning", &status), &status);
	return memory;
}

static void put(void *context, void *there, const void *here, size_t bytes)
{
	void *between = pinned(bytes);
	memcpy(between, here, bytes);
	copy(context, there, between, bytes, cudaMemcpyHostToDevice);
	cudaFreeHost(between);
}

static void get(void *context, void *here, const void *there, size_t bytes)
{
	void *between = pinned(bytes);
	copy(context, between, there, bytes, cudaMemcpyDeviceToHost);
	memcpy(here, between, bytes);
	cudaFreeHost(between);
}

/* `local`: which GPU, if there are several. */
static struct gpu *make_gpu(uint32_t local)
{
	struct pp_status status;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct gpu *gpu = calloc(1, sizeof *gpu);
	assert(gpu);
	struct pp_program *none = PP_NEW(arena, struct pp_program);
	*none = (struct pp_program){.arena = arena, .ranks = 1, .tp = 1, .dp = 1, .rank = PP_NEW(arena, struct pp_rank)};
	none->rank[0].arena_bytes = PP_ALIGN;
	gpu->none = none;
	gpu->device =
	    pp_device_cuda.create(none, (struct pp_coord){0}, &(struct pp_device_options){.local = local}, &status);
	check(gpu->device != NULL, &status);
	gpu->memory = (struct pp_test_memory){gpu, take, give, put, get};
	return gpu;
}

static void destroy_gpu(struct gpu *gpu)
{
	for (int i = 0; i < BLOCKS; i++)
		if (gpu->blocks[i].start)
			cudaFree(gpu->blocks[i].start);
	pp_device_cuda.destroy(gpu->device);
	pp_arena_destroy(gpu->none->arena);
	free(gpu);
}

/* ---- worlds ---------------------------------------------------------------------------------- */

struct world {
	const struct pp_program *program;
	struct pp_transport_options options;
	struct pp_loop *loop;   /* or NULL */
	struct pp_local *local; /* or NULL */
	struct gpu **gpus;
	struct pp_transport_ops aware; /* the loop's, as a transport that takes addresses of devices */
};

static struct world *open_world(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct world *world = calloc(1, sizeof *world);
	assert(world);
	world->program = program;
	world->options = *options;
	world->gpus = calloc(pp_grid_world(program), sizeof(struct gpu *));
	assert(world->gpus);
	return world;
}

static void *open_loop(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct pp_status status;
	struct world *world = open_world(program, options);
	world->loop = pp_loop_create(program, options, &status);
	check(world->loop != NULL, &status);
	return world;
}

static void *open_cuda(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct world *world = open_loop(program, options);
	pp_loop_move_by(world->loop, &pp_loop_mover_cuda);
	return world;
}

static void *open_local(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct pp_status status;
	struct world *world = open_world(program, options);
	world->local = pp_local_create(program, options, &status);
	check(world->local != NULL, &status);
	return world;
}

static void close_world(void *context)
{
	struct world *world = context;
	if (world->loop)
		pp_loop_destroy(world->loop);
	if (world->local)
		pp_local_destroy(world->local);
	free(world->gpus);
	free(world);
}

static void enter_cuda(void *context, uint32_t rank, struct pp_test_seat *seat)
{
	struct world *world = context;
	struct pp_status status;
	struct gpu *gpu = world->gpus[rank] = make_gpu(0);
	seat->memory = &gpu->memory;
	seat->endpoint = pp_loop_endpoint(world->loop, rank);
	check(pp_transport_loop_ordered.bind(seat->endpoint, gpu->device, &status), &status);
}

/* Takes addresses of devices, as CUDA-aware MPI does: on the fake device they are the host's too. */
static bool takes_devices(const struct pp_endpoint *endpoint)
{
	(void)endpoint;
	return true;
}

static bool share_devices(const struct pp_program *program)
{
	int count = 0;
	cudaGetDeviceCount(&count);
	return pp_grid_world(program) > (uint64_t)count;
}

static void enter_link(struct world *world, uint32_t rank, struct pp_test_seat *seat, const struct pp_link *link,
                       const struct pp_transport_ops *below, enum pp_layout queues)
{
	struct pp_status status;
	struct gpu *gpu = world->gpus[rank] = make_gpu(rank);
	gpu->link = link;
	gpu->below = world->local ? pp_local_open(world->local, rank, &status) : NULL;
	struct pp_link_environment environment = {0}; /* threads run already: nothing of it is set */
	struct pp_link_start start = {.program = world->program,
	                              .world = rank,
	                              .shared = share_devices(world->program),
	                              .below = below,
	                              .endpoint = gpu->below ? gpu->below : pp_loop_endpoint(world->loop, rank),
	                              .options = world->options,
	                              .queues = queues,
	                              .environment = &environment,
	                              .quiet = true};
	seat->memory = &gpu->memory;
	seat->endpoint = link->open(&start, &status);
	check(seat->endpoint && link->ops->bind(seat->endpoint, gpu->device, &status), &status);
	seat->ops = link->ops;
}

static void enter_staged_loop(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_link(world, rank, seat, &pp_link_staged, &pp_transport_loop, PP_LAYOUT_CHANNEL);
}

static void enter_staged_local(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_link(world, rank, seat, &pp_link_staged, &pp_transport_local, PP_LAYOUT_CHANNEL);
}

static void *open_direct(const struct pp_program *program, const struct pp_transport_options *options)
{
	struct world *world = open_loop(program, options);
	world->aware = pp_transport_loop;
	world->aware.takes_devices = takes_devices;
	return world;
}

static void enter_direct(void *context, uint32_t rank, struct pp_test_seat *seat)
{
	struct world *world = context;
	enter_link(world, rank, seat, &pp_link_staged, &world->aware, PP_LAYOUT_CHANNEL);
}

struct pp_device *pp_test_gpu_device(const struct pp_test_seat *seat)
{
	const struct world *world = seat->world;
	return world->gpus[seat->rank]->device;
}

static void leave(struct pp_test_seat *seat)
{
	struct world *world = seat->world;
	struct gpu *gpu = world->gpus[seat->rank];
	if (gpu->link)
		gpu->link->close(seat->endpoint);
	if (gpu->below)
		pp_local_close(gpu->below);
	destroy_gpu(gpu);
}

const struct pp_test_world pp_test_world_cuda = {.name = "cuda+loop",
                                                 .ops = &pp_transport_loop_ordered,
                                                 .open = open_cuda,
                                                 .close = close_world,
                                                 .enter = enter_cuda,
                                                 .leave = leave};

const struct pp_test_world pp_test_world_staged_loop = {
    .name = "staged over loop", .open = open_loop, .close = close_world, .enter = enter_staged_loop, .leave = leave};

const struct pp_test_world pp_test_world_staged_local = {
    .name = "staged over local", .open = open_local, .close = close_world, .enter = enter_staged_local, .leave = leave};

const struct pp_test_world pp_test_world_direct = {
    .name = "direct over loop", .open = open_direct, .close = close_world, .enter = enter_direct, .leave = leave};

#ifdef PP_HAVE_NCCL
static void enter_layout(void *world, uint32_t rank, struct pp_test_seat *seat, enum pp_layout queues)
{
	enter_link(world, rank, seat, &pp_link_nccl, &pp_transport_loop, queues);
	seat->any_order = true;
}

static void enter_channel(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_layout(world, rank, seat, PP_LAYOUT_CHANNEL);
}

static void enter_edge(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_layout(world, rank, seat, PP_LAYOUT_EDGE);
}

static void enter_direction(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_layout(world, rank, seat, PP_LAYOUT_DIRECTION);
}

static void enter_pair(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_layout(world, rank, seat, PP_LAYOUT_PAIR);
}

static void enter_rank(void *world, uint32_t rank, struct pp_test_seat *seat)
{
	enter_layout(world, rank, seat, PP_LAYOUT_RANK);
}

#define NCCL_WORLD(what)                                                                                               \
	{                                                                                                                  \
		.name = "nccl", .apart = true, .open = open_loop, .close = close_world, .enter = what, .leave = leave          \
	}

const struct pp_test_world pp_test_world_nccl = NCCL_WORLD(enter_channel);

const struct pp_test_world pp_test_worlds_nccl[PP_LAYOUT_BLOCKING] = {[PP_LAYOUT_CHANNEL] = NCCL_WORLD(enter_channel),
                                                                      [PP_LAYOUT_EDGE] = NCCL_WORLD(enter_edge),
                                                                      [PP_LAYOUT_DIRECTION] =
                                                                          NCCL_WORLD(enter_direction),
                                                                      [PP_LAYOUT_PAIR] = NCCL_WORLD(enter_pair),
                                                                      [PP_LAYOUT_RANK] = NCCL_WORLD(enter_rank)};
#endif
