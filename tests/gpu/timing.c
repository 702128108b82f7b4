/* Times of work on the device by events; ceilings. */
#include "timing.h"

#include "arrays.h"

#include <cublasLt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 5, WARM_RUNS = 2, ALGORITHMS = 8, MOST_RUNS = 1000 };

/* Until the clocks of an idle GPU have risen. */
static const double warm_up_seconds = 0.3;

bool gpu_rehearsal(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--small") == 0)
			return true;
	return false;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Events around a batch. */
struct watch {
	cudaStream_t stream;
	cudaEvent_t start, end;
};

/* Seconds of `runs` runs one after the other. */
static double batch(const struct watch *watch, int runs, void (*work)(void *), void *argument)
{
	gpu_must(cudaEventRecord(watch->start, watch->stream), "recording an event");
	for (int i = 0; i < runs; i++)
		work(argument);
	gpu_must(cudaEventRecord(watch->end, watch->stream), "recording an event");
	gpu_finish(watch->stream);
	float milliseconds = 0;
	gpu_must(cudaEventElapsedTime(&milliseconds, watch->start, watch->end), "reading a time");
	return milliseconds * 1e-3;
}

/* The median of batches that are long enough to be told from the launches. */
static double median(const struct watch *watch, void (*work)(void *), void *argument)
{
	batch(watch, WARM_RUNS, work, argument);
	double once = batch(watch, 1, work, argument), times[BATCHES];
	int runs = once > 0 ? (int)(10e-3 / once) + 1 : 1;
	runs = runs < MOST_RUNS ? runs : MOST_RUNS;
	for (int i = 0; i < BATCHES; i++)
		times[i] = batch(watch, runs, work, argument) / runs;
	qsort(times, BATCHES, sizeof *times, by_size);
	return times[BATCHES / 2];
}

double gpu_seconds(cudaStream_t stream, bool rehearsal, void (*work)(void *), void *argument)
{
	struct watch watch = {.stream = stream};
	gpu_must(cudaEventCreate(&watch.start), "making an event");
	gpu_must(cudaEventCreate(&watch.end), "making an event");
	double seconds = rehearsal ? batch(&watch, 1, work, argument) : median(&watch, work, argument);
	gpu_must(cudaEventDestroy(watch.start), "freeing an event");
	gpu_must(cudaEventDestroy(watch.end), "freeing an event");
	return seconds;
}

struct copy {
	cudaStream_t stream;
	void *to;
	const void *from;
	size_t bytes;
};

static void copy_run(void *argument)
{
	const struct copy *copy = argument;
	gpu_must(cudaMemcpyAsync(copy->to, copy->from, copy->bytes, cudaMemcpyDeviceToDevice, copy->stream), "copying");
}

static double copy_rate(cudaStream_t stream, bool rehearsal)
{
	struct copy copy = {.stream = stream, .bytes = rehearsal ? 4096 : (size_t)4 << 30};
	void *from;
	gpu_must(cudaMalloc(&copy.to, copy.bytes), "allocating");
	gpu_must(cudaMalloc(&from, copy.bytes), "allocating");
	gpu_must(cudaMemsetAsync(from, 0x3c, copy.bytes, stream), "filling");
	copy.from = from;
	for (double warm = 0; !rehearsal && warm < warm_up_seconds;)
		warm += BATCHES * gpu_seconds(stream, rehearsal, copy_run, &copy);
	double seconds = gpu_seconds(stream, rehearsal, copy_run, &copy);
	gpu_must(cudaFree(copy.to), "freeing");
	gpu_must(cudaFree(from), "freeing");
	return 2 * (double)copy.bytes / seconds;
}

/* One product of square matrices, as cuBLASLt has it. */
struct product {
	cudaStream_t stream;
	cublasLtHandle_t handle;
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t layout;
	const void *a, *b;
	void *c, *workspace;
	size_t workspace_bytes;
	cublasLtMatmulHeuristicResult_t algorithm;
};

static void must_multiply(cublasStatus_t status, const char *what)
{
	if (status == CUBLAS_STATUS_SUCCESS)
		return;
	fprintf(stderr, "%s: cuBLASLt status %d\n", what, (int)status);
	exit(3);
}

static void product_run(void *argument)
{
	const struct product *p = argument;
	const float one = 1, zero = 0;
	must_multiply(cublasLtMatmul(p->handle, p->operation, &one, p->a, p->layout, p->b, p->layout, &zero, p->c,
	                             p->layout, p->c, p->layout, &p->algorithm.algo, p->workspace, p->workspace_bytes,
	                             p->stream),
	              "multiplying");
}

/* Operations/s of the fastest algorithm that the library proposes. */
static double fastest(struct product *p, size_t size, bool rehearsal)
{
	cublasLtMatmulPreference_t preference;
	cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
	int count = 0;
	must_multiply(cublasLtMatmulPreferenceCreate(&preference), "making a preference");
	must_multiply(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
	                                                   &p->workspace_bytes, sizeof p->workspace_bytes),
	              "limiting the workspace");
	must_multiply(cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->layout, p->layout, p->layout, p->layout,
	                                             preference, ALGORITHMS, found, &count),
	              "choosing an algorithm");
	double best = 0;
	for (int i = 0; i < count; i++) {
		if (found[i].state != CUBLAS_STATUS_SUCCESS)
			continue;
		p->algorithm = found[i];
		double rate =
		    2 * (double)size * (double)size * (double)size / gpu_seconds(p->stream, rehearsal, product_run, p);
		best = rate > best ? rate : best;
	}
	must_multiply(cublasLtMatmulPreferenceDestroy(preference), "freeing a preference");
	return best;
}

static double product_rate(cudaStream_t stream, bool rehearsal)
{
	size_t size = rehearsal ? 64 : 8192;
	struct gpu_array a = gpu_array_random(stream, PP_CUDA_BF16, size * size, 1, 1);
	struct gpu_array b = gpu_array_random(stream, PP_CUDA_BF16, size * size, 2, 1);
	struct gpu_array c = gpu_array_unset(stream, PP_CUDA_BF16, size * size);
	struct product p = {
	    .stream = stream, .a = a.device, .b = b.device, .c = c.device, .workspace_bytes = (size_t)32 << 20};
	gpu_must(cudaMalloc(&p.workspace, p.workspace_bytes), "allocating");
	must_multiply(cublasLtCreate(&p.handle), "starting cuBLASLt");
	must_multiply(cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
	int32_t transpose = CUBLAS_OP_T;
	must_multiply(
	    cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
	    "describing a product");
	must_multiply(cublasLtMatrixLayoutCreate(&p.layout, CUDA_R_16BF, size, size, (int64_t)size), "describing a matrix");
	double rate = fastest(&p, size, rehearsal);
	must_multiply(cublasLtMatrixLayoutDestroy(p.layout), "freeing");
	must_multiply(cublasLtMatmulDescDestroy(p.operation), "freeing");
	must_multiply(cublasLtDestroy(p.handle), "stopping cuBLASLt");
	gpu_must(cudaFree(p.workspace), "freeing");
	gpu_array_free(&a);
	gpu_array_free(&b);
	gpu_array_free(&c);
	return rate;
}

struct gpu_ceilings gpu_ceilings_measure(cudaStream_t stream, bool rehearsal)
{
	struct gpu_ceilings ceilings = {copy_rate(stream, rehearsal), product_rate(stream, rehearsal)};
	printf("ceilings: copy %.2f TB/s, bf16 product %.0f TFLOP/s\n", ceilings.copy * 1e-12, ceilings.product * 1e-12);
	return ceilings;
}
