/* The rounds of a case, its memory on host and device, and comparisons. */
#include "ops.h"

#include "executor/draw.h"
#ifdef PP_FAKE_DEVICE
#include "tests/fakedevice/emulation_order.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 16 << 20, GAP = 256, ARRAYS = 512 };

struct ops_memory {
	unsigned char *arena, *mirror; /* device; pinned host memory of the same size */
	size_t used, ends[ARRAYS], begins[ARRAYS], arrays;
	void *blocks[ARRAYS];
	size_t block_count;
	uint64_t draw;
	size_t shift; /* elements */
	/* Bytes of all results of the first round, and how many of them this round has compared. */
	unsigned char *results;
	size_t result_bytes, result_at, result_capacity;
	bool first_round;
	double worst; /* error as a part of what is allowed */
	bool failed, failed_ever;
	const char *name;
};

static const size_t bytes_of[OPS_ELEMENT_COUNT] = {[OPS_F32] = 4, [OPS_BF16] = 2, [OPS_F64] = 8, [OPS_I32] = 4};

static void must(cudaError_t result, const char *what)
{
	if (result == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
	exit(1);
}

static void *must_have(void *memory)
{
	if (memory)
		return memory;
	fprintf(stderr, "out of memory\n");
	exit(1);
}

/* ---- host values ------------------------------------------------------------------------------- */

static void *host_block(struct ops *ops, size_t bytes)
{
	struct ops_memory *memory = ops->memory;
	if (memory->block_count == ARRAYS) {
		fprintf(stderr, "%s: too many arrays in one case\n", memory->name);
		exit(1);
	}
	return memory->blocks[memory->block_count++] = must_have(calloc(bytes ? bytes : 1, 1));
}

double *ops_zeros(struct ops *ops, size_t count)
{
	return host_block(ops, count * sizeof(double));
}

static uint16_t bf16_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	if (isnan(value))
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float bf16_value(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

double ops_rounded(enum ops_element element, double value)
{
	switch (element) {
	case OPS_F32:
		return (double)(float)value;
	case OPS_BF16:
		return (double)bf16_value(bf16_of((float)value));
	case OPS_F64:
	case OPS_I32:
	case OPS_ELEMENT_COUNT:
		break;
	}
	return value;
}

void ops_round(enum ops_element element, size_t count, double *values)
{
	for (size_t i = 0; i < count; i++)
		values[i] = ops_rounded(element, values[i]);
}

double *ops_values(struct ops *ops, enum ops_element element, size_t count)
{
	double *made = ops_zeros(ops, count);
	uint64_t stream = pp_draw_key(1, ++ops->memory->draw);
	for (size_t i = 0; i < count; i++) {
		double value = (double)(pp_draw(stream, i) >> 40) / (1 << 23) - 1;
		made[i] = ops->exact ? floor(value * 3.5 + 0.5) : ops_rounded(element, value);
	}
	return made;
}

double *ops_copy(struct ops *ops, size_t count, const double *values)
{
	double *made = ops_zeros(ops, count);
	memcpy(made, values, count * sizeof *made);
	return made;
}

int32_t *ops_ids(struct ops *ops, size_t count, size_t below, bool none)
{
	int32_t *ids = host_block(ops, count * sizeof *ids);
	uint64_t stream = pp_draw_key(1, ++ops->memory->draw);
	for (size_t i = 0; i < count; i++) {
		uint64_t draw = pp_draw(stream, i);
		size_t span = draw & 3 ? below : (below + 9) / 10;
		ids[i] = none && (draw >> 2 & 7) == 0 ? -1 : (int32_t)((draw >> 8) % span);
	}
	return ids;
}

/* ---- the device -------------------------------------------------------------------------------- */

static void sync(struct ops *ops, const char *what)
{
	must(cudaGetLastError(), what);
	must(cudaStreamSynchronize(ops->stream), what);
}

/* An array between two gaps of poison. Its place is poison in the mirror, too. */
static void *device_block(struct ops *ops, size_t bytes, size_t alignment, size_t offset)
{
	struct ops_memory *memory = ops->memory;
	size_t at = (memory->used + GAP + alignment - 1) / alignment * alignment + offset;
	if (memory->arrays == ARRAYS || at + bytes + GAP > ARENA) {
		fprintf(stderr, "%s: the arrays of a case do not fit\n", memory->name);
		exit(1);
	}
	memory->begins[memory->arrays] = at;
	memory->ends[memory->arrays++] = at + bytes;
	memory->used = at + bytes;
	return memory->arena + at;
}

static void *array(struct ops *ops, enum ops_element element, size_t count)
{
	size_t offset = ops->aligned ? 0 : ops->memory->shift * bytes_of[element];
	return device_block(ops, count * bytes_of[element], 256, offset);
}

void *ops_room(struct ops *ops, enum ops_element element, size_t count)
{
	return array(ops, element, count);
}

void *ops_scratch(struct ops *ops, uint64_t bytes)
{
	return device_block(ops, bytes, 256, 0);
}

static void upload(struct ops *ops, void *to, size_t bytes)
{
	size_t at = (size_t)((unsigned char *)to - ops->memory->arena);
	must(cudaMemcpyAsync(to, ops->memory->mirror + at, bytes, cudaMemcpyHostToDevice, ops->stream), "upload");
	sync(ops, "upload");
}

static void *mirrored(struct ops *ops, const void *device)
{
	return ops->memory->mirror + ((const unsigned char *)device - ops->memory->arena);
}

void *ops_give(struct ops *ops, enum ops_element element, size_t count, const double *values)
{
	void *to = array(ops, element, count);
	unsigned char *from = mirrored(ops, to);
	for (size_t i = 0; i < count; i++) {
		float single = (float)values[i];
		uint16_t half = bf16_of(single);
		const void *bits = element == OPS_F64   ? (const void *)&values[i]
		                   : element == OPS_F32 ? (const void *)&single
		                                        : (const void *)&half;
		memcpy(from + i * bytes_of[element], bits, bytes_of[element]);
	}
	upload(ops, to, count * bytes_of[element]);
	return to;
}

int32_t *ops_give_ids(struct ops *ops, size_t count, const int32_t *ids)
{
	int32_t *to = array(ops, OPS_I32, count);
	memcpy(mirrored(ops, to), ids, count * sizeof *ids);
	upload(ops, to, count * sizeof *ids);
	return to;
}

static double element_at(enum ops_element element, const unsigned char *from)
{
	float single;
	double number;
	uint16_t half;
	switch (element) {
	case OPS_F32:
		memcpy(&single, from, sizeof single);
		return (double)single;
	case OPS_BF16:
		memcpy(&half, from, sizeof half);
		return (double)bf16_value(half);
	case OPS_F64:
		memcpy(&number, from, sizeof number);
		return number;
	case OPS_I32:
	case OPS_ELEMENT_COUNT:
		break;
	}
	return 0;
}

/* ---- comparisons ------------------------------------------------------------------------------- */

void ops_fail(struct ops *ops, const char *why)
{
	if (!ops->memory->failed)
		printf("  %s %s: %s\n", ops->memory->name, ops->type == PP_CUDA_BF16 ? "bf16" : "f32", why);
	ops->memory->failed = true;
}

static void report(struct ops *ops, const char *what, size_t at, double got, double expected, const char *why)
{
	if (!ops->memory->failed)
		printf("  %s %s: %s[%zu] is %.9g, expected %.9g%s\n", ops->memory->name,
		       ops->type == PP_CUDA_BF16 ? "bf16" : "f32", what, at, got, expected, why);
	ops->memory->failed = true;
}

/* Results of later rounds must have the bits of the first. */
static void compare_rounds(struct ops *ops, const char *what, const unsigned char *got, size_t bytes)
{
	struct ops_memory *memory = ops->memory;
	if (memory->first_round) {
		if (memory->result_at + bytes > memory->result_capacity) {
			memory->result_capacity = 2 * (memory->result_at + bytes);
			memory->results = must_have(realloc(memory->results, memory->result_capacity));
		}
		memcpy(memory->results + memory->result_at, got, bytes);
	} else if (memcmp(memory->results + memory->result_at, got, bytes) != 0 && !memory->failed) {
		printf("  %s: %s has other bits with another order of threads or another address\n", memory->name, what);
		memory->failed = true;
	}
	memory->result_at += bytes;
}

static unsigned char *download(struct ops *ops, const char *what, size_t bytes, const void *device)
{
	unsigned char *got = mirrored(ops, device);
	sync(ops, what);
	must(cudaMemcpyAsync(got, device, bytes, cudaMemcpyDeviceToHost, ops->stream), what);
	sync(ops, what);
	return got;
}

void ops_expect_same(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *a,
                     const void *b)
{
	size_t bytes = count * bytes_of[element];
	if (memcmp(download(ops, what, bytes, a), download(ops, what, bytes, b), bytes) == 0 || ops->memory->failed)
		return;
	printf("  %s: %s differs in its bits\n", ops->memory->name, what);
	ops->memory->failed = true;
}

static void expect(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *device,
                   const double *expected, bool equal)
{
	size_t bytes = count * bytes_of[element];
	unsigned char *got = download(ops, what, bytes, device);
	double largest = 0;
	for (size_t i = 0; i < count; i++)
		largest = isfinite(expected[i]) ? fmax(largest, fabs(expected[i])) : largest;
	for (size_t i = 0; i < count; i++) {
		double value = element_at(element, got + i * bytes_of[element]), error = fabs(value - expected[i]);
		double allowed = 1e-5 * largest + (element == OPS_BF16 ? fabs(expected[i]) / 256 : 0);
		double nearest = ops_rounded(element, expected[i]);
		bool same = value == nearest || (isnan(value) && isnan(nearest));
		if (!same && equal)
			report(ops, what, i, value, expected[i], " exactly");
		else if (!same && !(error <= allowed))
			report(ops, what, i, value, expected[i], "");
		else if (!same)
			ops->memory->worst = fmax(ops->memory->worst, error / allowed);
	}
	compare_rounds(ops, what, got, bytes);
}

void ops_expect(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *device,
                const double *expected)
{
	expect(ops, what, element, count, device, expected, ops->exact);
}

void ops_expect_equal(struct ops *ops, const char *what, enum ops_element element, size_t count, const void *device,
                      const double *expected)
{
	expect(ops, what, element, count, device, expected, true);
}

/* ---- rounds ------------------------------------------------------------------------------------ */

struct round {
	int order; /* of the emulation */
	size_t shift;
};

static const struct round rounds[] = {{0, 0}, {1, 0}, {2, 1}};

static void check_gaps(struct ops *ops)
{
	struct ops_memory *memory = ops->memory;
	size_t end = memory->used + GAP, from = 0;
	must(cudaMemcpyAsync(memory->mirror, memory->arena, end, cudaMemcpyDeviceToHost, ops->stream), "gaps");
	sync(ops, "gaps");
	for (size_t i = 0; i <= memory->arrays; i++) {
		size_t to = i < memory->arrays ? memory->begins[i] : end;
		for (size_t at = from; at < to; at++)
			if (memory->mirror[at] != 0xff && !memory->failed) {
				printf("  %s: a byte %zu bytes behind array %zu of the case was written\n", memory->name, at - from, i);
				memory->failed = true;
			}
		from = i < memory->arrays ? memory->ends[i] : to;
	}
}

static void poison(struct ops *ops, size_t bytes)
{
	must(cudaMemsetAsync(ops->memory->arena, 0xff, bytes, ops->stream), "poison");
	sync(ops, "poison");
}

static void run_round(struct ops *ops, const struct round *round, void (*check)(struct ops *, const void *),
                      const void *shape)
{
	struct ops_memory *memory = ops->memory;
#ifdef PP_FAKE_DEVICE
	pp_emulation_set_order((enum pp_emulation_order)round->order, 1);
#endif
	poison(ops, memory->used + GAP < ARENA ? memory->used + GAP : ARENA); /* what the case before left */
	memory->used = memory->arrays = memory->block_count = memory->result_at = 0;
	memory->draw = 0;
	memory->shift = round->shift;
	ops->aligned = false;
	check(ops, shape);
	sync(ops, memory->name);
	check_gaps(ops);
	for (size_t i = 0; i < memory->block_count; i++)
		free(memory->blocks[i]);
}

static void run_shape(struct ops *ops, void (*check)(struct ops *, const void *), const void *shape)
{
	for (size_t r = 0; r < sizeof rounds / sizeof *rounds && !ops->memory->failed; r++) {
		ops->memory->first_round = r == 0;
		run_round(ops, &rounds[r], check, shape);
	}
}

static void run_type(struct ops *ops, void (*check)(struct ops *, const void *), const void *shapes, size_t count,
                     size_t size, enum ops_also also)
{
	struct ops_memory *memory = ops->memory;
	memory->worst = 0;
	memory->failed = false;
	for (size_t i = 0; i < count; i++)
		for (int exact = 0; exact <= (also == OPS_CLOSE_AND_EXACT) && !memory->failed; exact++) {
			ops->exact = exact;
			run_shape(ops, check, (const unsigned char *)shapes + i * size);
			if (memory->failed)
				printf("  %s: shape %zu\n", memory->name, i);
		}
	printf("%-24s %-4s %2zu shapes  error %5.3f of what is allowed%s  %s\n", memory->name,
	       ops->type == PP_CUDA_BF16 ? "bf16" : "f32", count, memory->worst,
	       also == OPS_CLOSE_AND_EXACT ? ", integers equal" : "                ", memory->failed ? "FAILED" : "ok");
	fflush(stdout);
}

static bool any_failed(struct ops *ops, const char *name, void (*check)(struct ops *, const void *), const void *shapes,
                       size_t count, size_t size, enum ops_also also)
{
	bool failed = false;
	ops->memory->name = name;
	for (int type = 0; type < PP_CUDA_TYPE_COUNT; type++) {
		ops->type = (enum pp_cuda_type)type;
		ops->element = type == PP_CUDA_BF16 ? OPS_BF16 : OPS_F32;
		run_type(ops, check, shapes, count, size, also);
		failed |= ops->memory->failed;
	}
	return failed;
}

void ops_run(struct ops *ops, const char *name, void (*check)(struct ops *ops, const void *shape), const void *shapes,
             size_t count, size_t size, enum ops_also also)
{
	ops->memory->failed_ever |= any_failed(ops, name, check, shapes, count, size, also);
}

int main(void)
{
	static void (*const all[])(struct ops *) = {ops_embed, ops_norm, ops_linear, ops_rope,     ops_pointwise,
	                                            ops_shard, ops_loss, ops_reduce, ops_optimizer};
	struct ops_memory memory = {0};
	struct ops ops = {.memory = &memory};
	must(cudaStreamCreateWithFlags(&ops.stream, cudaStreamNonBlocking), "stream");
	must(cudaMalloc((void **)&memory.arena, ARENA), "device memory");
	must(cudaMallocHost((void **)&memory.mirror, ARENA), "pinned memory");
	poison(&ops, ARENA);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		all[i](&ops);
	must(cudaFreeHost(memory.mirror), "free");
	must(cudaFree(memory.arena), "free");
	must(cudaStreamDestroy(ops.stream), "stream");
	free(memory.results);
	printf("%s\n", memory.failed_ever ? "conformance FAILED" : "conformance ok");
	return memory.failed_ever;
}
