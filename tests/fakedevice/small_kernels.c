/* Kernels of the fake's own tests (small_kernels.h). */
#include "small_kernels.h"
#include "fake_launch.h"

#include <stdlib.h>
#include <time.h>

struct arguments {
	float *to;
	const float *from;
	float value;
	uint32_t count;
};

static void run_fill(void *closure)
{
	const struct arguments *given = closure;
	for (uint32_t i = 0; i < given->count; i++)
		given->to[i] = given->value;
}

static void run_scale(void *closure)
{
	const struct arguments *given = closure;
	for (uint32_t i = 0; i < given->count; i++)
		given->to[i] = given->value * given->from[i];
}

static void run_nap(void *closure)
{
	const struct arguments *given = closure;
	nanosleep(&(struct timespec){.tv_nsec = (long)given->count * 1000}, NULL);
}

static cudaError_t launch(const char *name, void (*run)(void *), struct arguments given, cudaStream_t stream)
{
	struct arguments *closure = malloc(sizeof *closure);
	*closure = given;
	struct pp_fake_kernel kernel = {.name = name,
	                                .code = (const void *)(uintptr_t)run,
	                                .grid = {1, 1, 1},
	                                .block = {32, 1, 1},
	                                .run = run,
	                                .release = free,
	                                .closure = closure};
	return pp_fake_launch(stream, &kernel);
}

cudaError_t small_fill(float *to, float value, uint32_t count, cudaStream_t stream)
{
	pp_fake_writes(to, count * sizeof *to);
	return launch("small_fill", run_fill, (struct arguments){.to = to, .value = value, .count = count}, stream);
}

cudaError_t small_scale(float *to, const float *from, float factor, uint32_t count, cudaStream_t stream)
{
	pp_fake_reads(from, count * sizeof *from);
	pp_fake_writes(to, count * sizeof *to);
	return launch("small_scale", run_scale, (struct arguments){.to = to, .from = from, .value = factor, .count = count},
	              stream);
}

cudaError_t small_nap(uint32_t microseconds, cudaStream_t stream)
{
	return launch("small_nap", run_nap, (struct arguments){.count = microseconds}, stream);
}
