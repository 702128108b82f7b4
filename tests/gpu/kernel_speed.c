/* How fast the other kernels are in bf16: those that move memory against a copy, by the bytes that they cannot avoid;
 * matrix products of a GPT-2 XL block and its head against the fastest product of large matrices. Sizes are several
 * times a GPU's cache.
 *
 * gpu_kernel_speed [--small] */
#include "arrays.h"
#include "timing.h"

#include "executor/cuda/gemm.h"
#include "ir/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything that the kernels get, whatever they make of it. `elements` is tokens times columns. */
struct bench {
	cudaStream_t stream;
	bool rehearsal;
	struct gpu_ceilings ceilings;
	size_t tokens, columns, elements, seq;
	void *a, *b, *c, *d, *e; /* bf16 */
	float *x, *y, *z, *w;    /* f32, a quarter of the elements; w is 0: roots of second moments must exist */
	size_t floats;
	void *scratch;
	int32_t *ids;
	double *numbers;
};

static const size_t vocabulary = 50304;

/* In `numbers`: rates of the optimizer, then a scale, then room for sums. */
enum { SCALE = PP_CUDA_RATES, SUMS = 8, NUMBERS = 16 };

static void add(void *at)
{
	const struct bench *t = at;
	pp_cuda_add(t->stream, PP_CUDA_BF16, t->elements, t->a, t->b, t->c);
}

static void add_norm(void *at)
{
	const struct bench *t = at;
	pp_cuda_add_norm(t->stream, PP_CUDA_BF16, t->tokens, t->columns, false, t->a, t->b, t->c, t->a, t->b, t->d, t->x,
	                 t->y);
}

static void norm(void *at)
{
	const struct bench *t = at;
	pp_cuda_norm(t->stream, PP_CUDA_BF16, t->tokens, t->columns, false, t->a, t->b, t->c, t->d, t->x, t->y);
}

static void norm_dx(void *at)
{
	const struct bench *t = at;
	pp_cuda_norm_dx(t->stream, PP_CUDA_BF16, t->tokens, t->columns, false, t->a, t->b, t->c, t->x, t->y, t->d);
}

static void norm_dw(void *at)
{
	const struct bench *t = at;
	pp_cuda_norm_dw(t->stream, PP_CUDA_BF16, t->tokens, t->columns, false, t->a, t->b, t->x, t->y, t->z, true,
	                t->z + t->columns, true, t->scratch);
}

static void activate(void *at)
{
	const struct bench *t = at;
	pp_cuda_activate(t->stream, PP_CUDA_BF16, PP_GELU_TANH, t->elements, t->a, t->c);
}

static void activate_dx(void *at)
{
	const struct bench *t = at;
	pp_cuda_activate_dx(t->stream, PP_CUDA_BF16, PP_GELU_TANH, t->elements, t->a, t->b, t->c);
}

static void swiglu(void *at)
{
	const struct bench *t = at;
	pp_cuda_swiglu(t->stream, PP_CUDA_BF16, t->elements, t->a, t->b, t->c);
}

static void swiglu_dx(void *at)
{
	const struct bench *t = at;
	pp_cuda_swiglu_dx(t->stream, PP_CUDA_BF16, t->elements, t->a, t->b, t->c, t->d, t->e);
}

static void rotate(void *at)
{
	const struct bench *t = at;
	struct pp_rotation shape = {t->tokens, t->seq, t->columns / 64, 64, 10000, false};
	pp_cuda_rotate(t->stream, PP_CUDA_BF16, &shape, t->a, t->c, t->scratch);
}

static void add_bias(void *at)
{
	const struct bench *t = at;
	pp_cuda_add_bias(t->stream, PP_CUDA_BF16, t->tokens, t->columns, t->a, t->b, t->c, t->d);
}

static void take_columns(void *at)
{
	const struct bench *t = at;
	pp_cuda_take_columns(t->stream, PP_CUDA_BF16, t->tokens, t->columns, t->columns / 2, t->columns / 2, t->a, t->c);
}

/* Rows four times as long: they still fit the registers of a block. */
static void norm_long(void *at)
{
	const struct bench *t = at;
	pp_cuda_norm(t->stream, PP_CUDA_BF16, t->tokens / 4, t->columns * 4, false, t->a, t->b, t->c, t->d, t->x, t->y);
}

static size_t loss_columns(const struct bench *t)
{
	return t->rehearsal ? 1024 : vocabulary;
}

static size_t loss_tokens(const struct bench *t)
{
	return t->elements / loss_columns(t);
}

static void cross_entropy(void *at)
{
	const struct bench *t = at;
	size_t columns = loss_columns(t);
	pp_cuda_cross_entropy(t->stream, PP_CUDA_BF16, loss_tokens(t), columns, columns, false, t->a, t->ids, t->c,
	                      t->numbers + SUMS, t->scratch);
}

/* A vocabulary whose rows do not stay in the cache. */
static void cross_entropy_long(void *at)
{
	const struct bench *t = at;
	size_t columns = t->columns * 32;
	pp_cuda_cross_entropy(t->stream, PP_CUDA_BF16, t->elements / columns, columns, columns, false, t->a, t->ids, t->c,
	                      t->numbers + SUMS, t->scratch);
}

/* The first half of the columns of the loss, of two members. */
static struct pp_vocab_part half_of_loss(const struct bench *t)
{
	return (struct pp_vocab_part){loss_columns(t), 0, loss_columns(t) / 2};
}

static void loss_stats(void *at)
{
	const struct bench *t = at;
	struct pp_vocab_part part = half_of_loss(t);
	pp_cuda_cross_entropy_stats(t->stream, PP_CUDA_BF16, &part, loss_tokens(t) * 2, t->a, t->ids, t->x);
}

static void loss_shard(void *at)
{
	const struct bench *t = at;
	struct pp_vocab_part part = half_of_loss(t);
	pp_cuda_cross_entropy_part(t->stream, PP_CUDA_BF16, &part, loss_tokens(t) * 2, 2, false, t->a, t->ids, t->x, t->c,
	                           t->numbers + SUMS, t->scratch);
}

/* The table is as large as the other arrays. */
static size_t table_rows(const struct bench *t)
{
	return t->elements / t->columns < vocabulary ? t->elements / t->columns : vocabulary;
}

static void embed(void *at)
{
	const struct bench *t = at;
	struct pp_table_part part = {0, table_rows(t)};
	pp_cuda_embed(t->stream, PP_CUDA_BF16, t->tokens, t->columns, t->seq, &part, t->ids, t->a, NULL, t->c);
}

static void column_sums(void *at)
{
	const struct bench *t = at;
	pp_cuda_column_sums(t->stream, PP_CUDA_BF16, t->tokens, t->columns, t->a, t->x, true, t->scratch);
}

static void square_norms(void *at)
{
	const struct bench *t = at;
	struct pp_cuda_norm_item item = {t->x, t->floats, t->numbers + SUMS, false};
	pp_cuda_square_norms(t->stream, 1, &item, t->scratch);
}

static void adamw(void *at)
{
	const struct bench *t = at;
	struct pp_cuda_rule rule = {0.9, 0.95, 1e-8, 0.1};
	struct pp_cuda_update update = {t->x, t->c, t->y, t->z, t->w, t->floats};
	pp_cuda_adamw(t->stream, &rule, 1, &update, t->numbers, t->numbers + SCALE);
}

static void zero(void *at)
{
	const struct bench *t = at;
	pp_cuda_zero(t->stream, t->elements * 2, t->c);
}

static void copy(void *at)
{
	const struct bench *t = at;
	pp_cuda_copy(t->stream, t->elements * 2, t->a, t->c);
}

/* Bytes that each must move, for each element of what it works on. */
enum work { ELEMENTS, LOGITS, FLOATS };
static const struct {
	const char *name;
	void (*run)(void *);
	enum work work;
	double bytes;
} memory_bound[] = {
    {"copy", copy, ELEMENTS, 4},
    {"zero", zero, ELEMENTS, 2},
    {"add", add, ELEMENTS, 6},
    {"add_bias", add_bias, ELEMENTS, 6},
    {"take_columns", take_columns, ELEMENTS, 2},
    {"norm", norm, ELEMENTS, 4},
    {"norm_long", norm_long, ELEMENTS, 4},
    {"add_norm", add_norm, ELEMENTS, 8},
    {"norm_dx", norm_dx, ELEMENTS, 6},
    {"norm_dw", norm_dw, ELEMENTS, 4},
    {"gelu", activate, ELEMENTS, 4},
    {"gelu_dx", activate_dx, ELEMENTS, 6},
    {"swiglu", swiglu, ELEMENTS, 6},
    {"swiglu_dx", swiglu_dx, ELEMENTS, 10},
    {"rope", rotate, ELEMENTS, 4},
    {"embed", embed, ELEMENTS, 4},
    {"cross_entropy", cross_entropy, LOGITS, 4},
    {"xent_long", cross_entropy_long, ELEMENTS, 4},
    {"xent_stats", loss_stats, LOGITS, 2},
    {"xent_shard", loss_shard, LOGITS, 4},
    {"column_sums", column_sums, ELEMENTS, 2},
    {"square_norms", square_norms, FLOATS, 4},
    {"adamw", adamw, FLOATS, 30},
};

static void run_memory_bound(struct bench *bench)
{
	for (size_t i = 0; i < sizeof memory_bound / sizeof *memory_bound; i++) {
		double count = (double)bench->elements;
		if (memory_bound[i].work == LOGITS)
			count = (double)(loss_tokens(bench) * loss_columns(bench));
		if (memory_bound[i].work == FLOATS)
			count = (double)bench->floats;
		double seconds = gpu_seconds(bench->stream, bench->rehearsal, memory_bound[i].run, bench);
		double rate = count * memory_bound[i].bytes / seconds;
		printf("kernel %-14s %8.3f ms %7.0f GB/s %5.1f %% of a copy\n", memory_bound[i].name, seconds * 1e3,
		       rate * 1e-9, 100 * rate / bench->ceilings.copy);
		fflush(stdout);
	}
}

/* One matrix product of a linear layer. */
struct product {
	const struct bench *bench;
	struct pp_gemm *gemm;
	struct pp_gemm_shape shape;
	void *workspace;
};

static void product_run(void *at)
{
	const struct product *p = at;
	const struct bench *t = p->bench;
	size_t tokens = p->shape.tokens, inputs = p->shape.inputs, outputs = p->shape.outputs;
	switch (p->shape.kind) {
	case PP_GEMM_LINEAR:
		pp_gemm_linear(p->gemm, t->stream, PP_CUDA_BF16, tokens, inputs, outputs, t->a, t->b, NULL, t->c, p->workspace);
		break;
	case PP_GEMM_LINEAR_DX:
		pp_gemm_linear_dx(p->gemm, t->stream, PP_CUDA_BF16, tokens, inputs, outputs, t->a, t->b, t->c, p->workspace);
		break;
	case PP_GEMM_LINEAR_DW:
		pp_gemm_linear_dw(p->gemm, t->stream, PP_CUDA_BF16, tokens, inputs, outputs, t->a, t->b, t->x, true,
		                  p->workspace);
		break;
	case PP_GEMM_KIND_COUNT:
		break;
	}
}

static void run_products(struct bench *bench)
{
	static const char *const kinds[PP_GEMM_KIND_COUNT] = {"linear", "linear_dx", "linear_dw"};
	static const size_t layers[][2] = {{1600, 1600}, {1600, 6400}, {6400, 1600}, {1600, vocabulary}};
	const uint64_t workspace_bytes = UINT64_C(32) << 20;
	struct pp_status status = {0};
	struct product product = {.bench = bench, .gemm = pp_gemm_create(workspace_bytes, &status)};
	gpu_must(cudaMalloc(&product.workspace, (size_t)workspace_bytes), "allocating");
	for (size_t i = 0; product.gemm && i < sizeof layers / sizeof *layers; i++)
		for (int kind = 0; kind < PP_GEMM_KIND_COUNT; kind++) {
			product.shape = (struct pp_gemm_shape){.kind = (enum pp_gemm_kind)kind, .type = PP_CUDA_BF16};
			product.shape.tokens = bench->rehearsal ? 16 : i == 3 ? 4096 : 8192;
			product.shape.inputs = bench->rehearsal ? 32 : layers[i][0];
			product.shape.outputs = bench->rehearsal ? 16 : layers[i][1];
			if (!pp_gemm_plan(product.gemm, &product.shape, &status))
				break;
			double seconds = gpu_seconds(bench->stream, bench->rehearsal, product_run, &product);
			double rate = 2 * (double)product.shape.tokens * (double)product.shape.inputs *
			              (double)product.shape.outputs / seconds;
			printf("product %-9s %zu x %zu x %zu %8.3f ms %7.1f TFLOP/s %5.1f %% of 8192^3\n", kinds[kind],
			       product.shape.tokens, product.shape.inputs, product.shape.outputs, seconds * 1e3, rate * 1e-12,
			       100 * rate / bench->ceilings.product);
			fflush(stdout);
		}
	const char *failure = product.gemm ? pp_gemm_failure(product.gemm) : "no library";
	if (failure || status.code) {
		fprintf(stderr, "products: %s\n", failure ? failure : status.text);
		exit(3);
	}
	pp_gemm_destroy(product.gemm);
}

/* Device memory filled with copies of a few million random numbers. */
static void *filled(cudaStream_t stream, enum pp_cuda_type type, size_t count)
{
	size_t part = count < (size_t)1 << 22 ? count : (size_t)1 << 22, width = gpu_type_bytes(type);
	struct gpu_array pattern = gpu_array_random(stream, type, part, 1, 1);
	unsigned char *at = NULL;
	gpu_must(cudaMalloc((void **)&at, count * width), "allocating");
	for (size_t done = 0; done < count; done += part) {
		size_t bytes = (count - done < part ? count - done : part) * width;
		gpu_must(cudaMemcpyAsync(at + done * width, pattern.device, bytes, cudaMemcpyDeviceToDevice, stream),
		         "copying");
	}
	gpu_finish(stream);
	gpu_array_free(&pattern);
	return at;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int32_t *random_ids(const struct bench *bench)
{
	int32_t *host, *device;
	size_t rows = table_rows(bench) < loss_columns(bench) ? table_rows(bench) : loss_columns(bench);
	size_t count = (size_t)larger(bench->tokens, 2 * loss_tokens(bench)), bytes = count * sizeof *host;
	gpu_must(cudaMallocHost((void **)&host, bytes), "allocating");
	gpu_must(cudaMalloc((void **)&device, bytes), "allocating");
	uint64_t state = 1;
	for (size_t i = 0; i < count; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		host[i] = (int32_t)((state >> 33) % rows);
	}
	gpu_must(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, bench->stream), "copying");
	gpu_finish(bench->stream);
	gpu_must(cudaFreeHost(host), "freeing");
	return device;
}

static double *some_numbers(cudaStream_t stream)
{
	double *host, *device;
	gpu_must(cudaMallocHost((void **)&host, NUMBERS * sizeof *host), "allocating");
	gpu_must(cudaMalloc((void **)&device, NUMBERS * sizeof *device), "allocating");
	for (int i = 0; i < NUMBERS; i++)
		host[i] = 1e-3;
	pp_cuda_rates(1e-4, 0.9, 0.95, 10, host);
	for (int i = 0; i < PP_CUDA_RATES; i++)
		host[SCALE + i] = 1;
	gpu_must(cudaMemcpyAsync(device, host, NUMBERS * sizeof *host, cudaMemcpyHostToDevice, stream), "copying");
	gpu_finish(stream);
	gpu_must(cudaFreeHost(host), "freeing");
	return device;
}

static struct bench bench_make(bool rehearsal)
{
	cudaStream_t stream = gpu_stream_make();
	struct bench bench = {.stream = stream,
	                      .rehearsal = rehearsal,
	                      .ceilings = gpu_ceilings_measure(stream, rehearsal),
	                      .tokens = rehearsal ? 64 : 65536,
	                      .columns = rehearsal ? 128 : 4096,
	                      .seq = rehearsal ? 32 : 1024};
	bench.elements = bench.tokens * bench.columns;
	bench.floats = bench.elements / 4;
	void **const halves[] = {&bench.a, &bench.b, &bench.c, &bench.d, &bench.e};
	for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
		*halves[i] = filled(stream, PP_CUDA_BF16, bench.elements);
	float **const floats[] = {&bench.x, &bench.y, &bench.z, &bench.w};
	for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
		*floats[i] = filled(stream, PP_CUDA_F32, larger(bench.floats, rehearsal ? 4096 : 1600 * vocabulary));
	gpu_must(cudaMemsetAsync(bench.w, 0, bench.floats * sizeof *bench.w, stream), "filling");
	uint64_t bytes = larger(pp_scratch_norm_dw(bench.tokens, bench.columns), pp_scratch_rotate(bench.seq, 64));
	bytes = larger(bytes, pp_scratch_column_sums(bench.tokens, bench.columns));
	size_t losses = (size_t)larger(bench.tokens, 2 * loss_tokens(&bench));
	bytes = larger(bytes, larger(pp_scratch_cross_entropy(losses), pp_scratch_square_norms()));
	gpu_must(cudaMalloc(&bench.scratch, (size_t)bytes), "allocating");
	bench.ids = random_ids(&bench);
	bench.numbers = some_numbers(stream);
	return bench;
}

int main(int argc, char **argv)
{
	struct bench bench = bench_make(gpu_rehearsal(argc, argv));
	run_memory_bound(&bench);
	run_products(&bench);
	return 0;
}
