/* Kernels that say nothing of what they touch, under ThreadSanitizer: it sees the touches themselves, and edges only
 * where CUDA has them. Usage: fake_tsan_races good|missing-wait|reused-slot|host-read. The faulty ones end with the
 * sanitizer's report even where all values come out right. */
#include "fake_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

struct arguments {
	float *to;
	const float *from;
	float factor;
};

static void scale(void *closure)
{
	const struct arguments *given = closure;
	for (int i = 0; i < COUNT; i++)
		given->to[i] = given->factor * (given->from ? given->from[i] : 1);
}

static void launch(cudaStream_t stream, float *to, const float *from, float factor)
{
	struct arguments *closure = malloc(sizeof *closure);
	*closure = (struct arguments){.to = to, .from = from, .factor = factor};
	struct pp_fake_kernel kernel = {.name = "scale",
	                                .code = (const void *)(uintptr_t)scale,
	                                .grid = {1, 1, 1},
	                                .block = {32, 1, 1},
	                                .run = scale,
	                                .release = free,
	                                .closure = closure};
	if (pp_fake_launch(stream, &kernel) != cudaSuccess)
		exit(3);
}

static void pass(cudaEvent_t event, cudaStream_t from, cudaStream_t to)
{
	cudaEventRecord(event, from);
	cudaStreamWaitEvent(to, event, 0);
}

int main(int count, char **arguments)
{
	const char *mode = count > 1 ? arguments[1] : "good";
	cudaStream_t first, second;
	cudaEvent_t filled, taken;
	float *a, *b, *host;
	cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
	cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
	cudaEventCreateWithFlags(&filled, cudaEventDisableTiming);
	cudaEventCreateWithFlags(&taken, cudaEventDisableTiming);
	cudaMalloc((void **)&a, COUNT * sizeof(float));
	cudaMalloc((void **)&b, COUNT * sizeof(float));
	cudaMallocHost((void **)&host, COUNT * sizeof(float));
	for (int i = 0; i < 4; i++) {
		if (i > 0 && strcmp(mode, "reused-slot") != 0)
			cudaStreamWaitEvent(first, taken, 0);
		launch(first, a, NULL, (float)i);
		if (strcmp(mode, "missing-wait") != 0)
			pass(filled, first, second);
		launch(second, b, a, 2);
		cudaEventRecord(taken, second);
	}
	launch(second, host, b, 1); /* pinned memory is for kernels too */
	cudaEventRecord(filled, second);
	if (strcmp(mode, "host-read") != 0)
		cudaEventSynchronize(filled);
	float sum = 0;
	for (int i = 0; i < COUNT; i++)
		sum += host[i];
	printf("%g\n", (double)sum);
	cudaDeviceSynchronize();
	return 0;
}
