/* Launches of emulated kernels, and host functions (fake_launch.h). */
#include "fake_launch.h"
#include "capture.h"
#include "fake.h"
#include "runtime.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOUCHES_MOST = 256 };

/* What the next launch of this thread touches. */
static _Thread_local struct {
	struct pp_fake_touch touches[TOUCHES_MOST];
	uint32_t count;
} noted;

static void note(const void *start, uint64_t bytes, bool writes)
{
	if (bytes == 0)
		return;
	if (noted.count == TOUCHES_MOST)
		pp_fake_die("a launch notes more than %d touches", TOUCHES_MOST);
	noted.touches[noted.count++] = (struct pp_fake_touch){.start = (uintptr_t)start, .bytes = bytes, .writes = writes};
}

void pp_fake_reads(const void *start, uint64_t bytes)
{
	note(start, bytes, false);
}

void pp_fake_writes(const void *start, uint64_t bytes)
{
	note(start, bytes, true);
}

struct kernel_operation {
	struct pp_fake_operation base;
	struct pp_fake_kernel kernel;
};

static enum pp_fake_outcome step_kernel(struct pp_fake_operation *operation)
{
	struct kernel_operation *launch = (struct kernel_operation *)operation;
	launch->kernel.run(launch->kernel.closure);
	return PP_FAKE_FINISHED;
}

static void release_kernel(struct pp_fake_operation *operation)
{
	struct kernel_operation *launch = (struct kernel_operation *)operation;
	if (launch->kernel.release)
		launch->kernel.release(launch->kernel.closure);
	free(launch);
}

static const struct pp_fake_operation_kind kernel_kind = {.step = step_kernel, .release = release_kernel};

/* Limits of compute capability 8.0 and up: CUDA C++ Programming Guide, "Technical specifications per compute
 * capability"; 99 KiB of shared memory is what the smallest of them (8.6, 8.9, 12.0) gives a block. */
static bool possible(const struct pp_fake_kernel *kernel)
{
	const uint32_t *grid = kernel->grid, *block = kernel->block;
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
	bool grid_fits =
	    grid[0] >= 1 && grid[0] <= 0x7fffffff && grid[1] >= 1 && grid[1] <= 65535 && grid[2] >= 1 && grid[2] <= 65535;
	bool block_fits = threads >= 1 && threads <= 1024 && block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64;
	return grid_fits && block_fits && kernel->shared_bytes <= 227 * 1024;
}

/* Has the process launched this kernel before? If not, CUDA loads it now. Under the lock of the runtime. */
static bool loaded(uint64_t code)
{
	static uint64_t *codes;
	static uint32_t count;
	for (uint32_t i = 0; i < count; i++)
		if (codes[i] == code)
			return true;
	codes = pp_fake_grow(codes, (count + 1) * sizeof *codes);
	codes[count++] = code;
	return false;
}

void pp_fake_code_runs(const struct CUstream_st *stream, uint64_t code, const char *name)
{
	if (loaded(code))
		return;
	char what[160];
	snprintf(what, sizeof what, "kernel %s was launched for the first time", name);
	pp_fake_frozen(what);
	if (stream->capture)
		pp_fake_fault(
		    "%s was launched for the first time while %s is being captured: loading a kernel may be no part of "
		    "a capture",
		    name, stream->where);
}

static cudaError_t launch(struct pp_fake_host *host, struct CUstream_st *stream, const struct pp_fake_kernel *kernel)
{
	if (!possible(kernel)) {
		pp_fake_fault(
		    "%s: no device has a grid of %u,%u,%u blocks of %u,%u,%u threads with %llu bytes of shared memory",
		    kernel->name, kernel->grid[0], kernel->grid[1], kernel->grid[2], kernel->block[0], kernel->block[1],
		    kernel->block[2], (unsigned long long)kernel->shared_bytes);
		return cudaErrorInvalidConfiguration;
	}
	if (stream->device != host->device) {
		pp_fake_fault("%s: launched on %s of device %d while device %d is current", kernel->name, stream->where,
		              stream->device, host->device);
		return cudaErrorInvalidResourceHandle;
	}
	pp_fake_code_runs(stream, (uintptr_t)kernel->code, kernel->name);
	return cudaSuccess;
}

cudaError_t pp_fake_launch(cudaStream_t handle, const struct pp_fake_kernel *kernel)
{
	struct pp_fake_host *host = pp_fake_enter(kernel->name);
	struct kernel_operation *operation = pp_fake_operation_make(&kernel_kind, sizeof *operation, kernel->name);
	operation->kernel = *kernel;
	for (uint32_t i = 0; i < noted.count; i++)
		pp_fake_operation_touches(&operation->base, (const void *)noted.touches[i].start, noted.touches[i].bytes,
		                          noted.touches[i].writes);
	noted.count = 0;
	struct CUstream_st *stream = pp_fake_stream(handle, kernel->name);
	cudaError_t error = stream ? launch(host, stream, kernel) : cudaErrorInvalidResourceHandle;
	if (error == cudaSuccess)
		error = pp_fake_submit(host, stream, &operation->base);
	else
		pp_fake_operation_free(&operation->base);
	return pp_fake_leave(host, error);
}

struct host_operation {
	struct pp_fake_operation base;
	cudaHostFn_t function;
	void *argument;
};

static enum pp_fake_outcome step_host(struct pp_fake_operation *operation)
{
	struct host_operation *call = (struct host_operation *)operation;
	pp_fake_host_function(true);
	call->function(call->argument);
	pp_fake_host_function(false);
	return PP_FAKE_FINISHED;
}

static void release_host(struct pp_fake_operation *operation)
{
	free(operation);
}

static const struct pp_fake_operation_kind host_kind = {.step = step_host, .release = release_host};

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument)
{
	struct pp_fake_host *host = pp_fake_enter("cudaLaunchHostFunc");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaLaunchHostFunc");
	if (!stream || !function)
		return pp_fake_leave(host, cudaErrorInvalidValue);
	struct host_operation *operation = pp_fake_operation_make(&host_kind, sizeof *operation, "host function");
	operation->function = function;
	operation->argument = argument;
	return pp_fake_leave(host, pp_fake_submit(host, stream, &operation->base));
}

void pp_fake_host_reads(const void *start, uint64_t bytes, const char *name)
{
	struct pp_fake_host *host = pp_fake_enter(name);
	pp_fake_clock_tick(&host->clock, host->agent);
	struct pp_fake_toucher by = {.agent = host->agent,
	                             .clock = &host->clock,
	                             .name = pp_fake_text("%s", name),
	                             .where = pp_fake_text("host %u", host->number)};
	pp_fake_races_touch(&by, &(struct pp_fake_touch){.start = (uintptr_t)start, .bytes = bytes});
	pp_fake_leave(host, cudaSuccess);
}
