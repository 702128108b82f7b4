/* Arrays of the check and timing programs: drawn, rounded, copied and compared. */
#include "arrays.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gpu_must(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, cudaGetErrorString(error), cudaGetErrorName(error));
	exit(3);
}

cudaStream_t gpu_stream_make(void)
{
	cudaStream_t stream;
	gpu_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
	return stream;
}

void gpu_finish(cudaStream_t stream)
{
	gpu_must(cudaGetLastError(), "launching");
	gpu_must(cudaStreamSynchronize(stream), "running");
}

size_t gpu_type_bytes(enum pp_cuda_type type)
{
	return type == PP_CUDA_F32 ? 4 : 2;
}

const char *gpu_type_name(enum pp_cuda_type type)
{
	return type == PP_CUDA_F32 ? "f32" : "bf16";
}

/* bf16 is the upper half of f32; to nearest, ties to even. */
static uint16_t bf16_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	if (x != x)
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* Pinned: copies that do not wait want it. */
static void *memory(size_t bytes)
{
	void *at = NULL;
	gpu_must(cudaMallocHost(&at, bytes ? bytes : 1), "allocating on the host");
	return at;
}

static void copy(cudaStream_t stream, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	gpu_must(cudaMemcpyAsync(to, from, bytes, kind, stream), "copying");
	gpu_finish(stream);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The sum of four uniform numbers, which is near enough to normal. */
static float drawn(uint64_t seed, uint64_t at, float deviation)
{
	uint64_t bits = mix(seed * UINT64_C(0x9e3779b97f4a7c15) + at);
	float sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (float)(bits >> 16 * i & 0xffff) / 65536.0f - 0.5f + 1.0f / 131072.0f;
	return sum * deviation * 1.7320508f; /* each has the variance 1/12 */
}

static struct gpu_array array_of(cudaStream_t stream, enum pp_cuda_type type, size_t count)
{
	struct gpu_array array = {
	    .type = type, .count = count, .stream = stream, .host = memory(count * sizeof *array.host)};
	size_t bytes = count * gpu_type_bytes(type);
	gpu_must(cudaMalloc(&array.device, bytes ? bytes : 1), "allocating");
	return array;
}

static void send(const struct gpu_array *array)
{
	size_t bytes = array->count * gpu_type_bytes(array->type);
	void *raw = memory(bytes);
	for (size_t i = 0; i < array->count; i++) {
		if (array->type == PP_CUDA_F32)
			((float *)raw)[i] = array->host[i];
		else
			((uint16_t *)raw)[i] = bf16_of(array->host[i]);
	}
	copy(array->stream, array->device, raw, bytes, cudaMemcpyHostToDevice);
	gpu_must(cudaFreeHost(raw), "freeing");
}

struct gpu_array gpu_array_random(cudaStream_t stream, enum pp_cuda_type type, size_t count, uint64_t seed,
                                  float deviation)
{
	struct gpu_array array = array_of(stream, type, count);
	for (size_t i = 0; i < count; i++) {
		float x = drawn(seed, i, deviation);
		array.host[i] = type == PP_CUDA_F32 ? x : of_bf16(bf16_of(x));
	}
	send(&array);
	return array;
}

struct gpu_array gpu_array_unset(cudaStream_t stream, enum pp_cuda_type type, size_t count)
{
	struct gpu_array array = array_of(stream, type, count);
	gpu_array_unset_again(&array);
	return array;
}

void gpu_array_unset_again(struct gpu_array *array)
{
	for (size_t i = 0; i < array->count; i++)
		array->host[i] = NAN;
	send(array);
}

void gpu_array_fetch(struct gpu_array *array)
{
	size_t bytes = array->count * gpu_type_bytes(array->type);
	void *raw = memory(bytes);
	copy(array->stream, raw, array->device, bytes, cudaMemcpyDeviceToHost);
	for (size_t i = 0; i < array->count; i++)
		array->host[i] = array->type == PP_CUDA_F32 ? ((float *)raw)[i] : of_bf16(((uint16_t *)raw)[i]);
	gpu_must(cudaFreeHost(raw), "freeing");
}

uint64_t gpu_array_bits(const struct gpu_array *array)
{
	size_t bytes = array->count * gpu_type_bytes(array->type);
	unsigned char *raw = memory(bytes);
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	copy(array->stream, raw, array->device, bytes, cudaMemcpyDeviceToHost);
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ raw[i]) * UINT64_C(0x100000001b3);
	gpu_must(cudaFreeHost(raw), "freeing");
	return hash;
}

void gpu_array_free(struct gpu_array *array)
{
	gpu_must(cudaFree(array->device), "freeing");
	gpu_must(cudaFreeHost(array->host), "freeing");
}

double gpu_distance(size_t count, const float *got, const float *want, double smallest)
{
	double difference = 0, size = 0;
	for (size_t i = 0; i < count; i++) {
		double d = (double)got[i] - (double)want[i];
		if (!isfinite(d))
			return INFINITY;
		difference += d * d;
		size += (double)want[i] * (double)want[i];
	}
	return sqrt(difference) / fmax(sqrt(size), smallest * sqrt((double)count));
}
