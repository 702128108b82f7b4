/* The fake CUDA runtime by itself: what works on a device works here, in the order that streams and events give. */
#include "fake.h"
#include "multiply.h"
#include "small_kernels.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { COUNT = 1000 };

static cudaStream_t new_stream(void)
{
	cudaStream_t stream;
	assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
	return stream;
}

static cudaEvent_t new_event(unsigned int flags)
{
	cudaEvent_t event;
	assert_int_equal(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
	return event;
}

static void *on_device(size_t bytes)
{
	void *memory;
	assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
	return memory;
}

static void *pinned(size_t bytes)
{
	void *memory;
	assert_int_equal(cudaMallocHost(&memory, bytes), cudaSuccess);
	return memory;
}

static void fresh_memory_is_nan(void **state)
{
	(void)state;
	float *device = on_device(COUNT * sizeof(float)), *host = pinned(COUNT * sizeof(float));
	cudaStream_t stream = new_stream();
	assert_int_equal(cudaMemcpyAsync(host, device, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream), cudaSuccess);
	assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
	for (int i = 0; i < COUNT; i++)
		assert_true(isnan(host[i]));
	cudaFree(device);
	cudaFreeHost(host);
	cudaStreamDestroy(stream);
}

static atomic_bool gate;

static void wait_for_gate(void *unused)
{
	(void)unused;
	while (!atomic_load(&gate))
		sched_yield();
}

/* fill, scale on a second stream behind an event, copy back behind another. */
static void events_order_streams(void **state)
{
	(void)state;
	float *a = on_device(COUNT * sizeof(float)), *b = on_device(COUNT * sizeof(float));
	float *host = pinned(COUNT * sizeof(float));
	cudaStream_t first = new_stream(), second = new_stream();
	cudaEvent_t filled = new_event(cudaEventDisableTiming), begin = new_event(0), end = new_event(0);
	for (int round = 0; round < 20; round++) {
		cudaEventRecord(begin, first);
		atomic_store(&gate, false);
		cudaLaunchHostFunc(first, wait_for_gate, NULL);
		small_nap(200, first);
		small_fill(a, (float)round, COUNT, first);
		cudaEventRecord(filled, first);
		cudaStreamWaitEvent(second, filled, 0);
		small_scale(b, a, 2, COUNT, second);
		cudaMemcpyAsync(host, b, COUNT * sizeof(float), cudaMemcpyDeviceToHost, second);
		cudaEventRecord(end, second);
		assert_true(isnan(host[0])); /* what isn't waited for isn't there */
		atomic_store(&gate, true);
		while (cudaEventQuery(end) == cudaErrorNotReady)
			;
		for (int i = 0; i < COUNT; i++)
			assert_true(host[i] == 2 * (float)round);
	}
	float milliseconds;
	assert_int_equal(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
	assert_true(milliseconds >= 0.2f);
	assert_int_equal(cudaEventElapsedTime(&milliseconds, filled, end), cudaErrorInvalidResourceHandle);
	assert_int_equal(pp_fake_reports(), 0);
	cudaEventDestroy(filled);
	cudaEventDestroy(begin);
	cudaEventDestroy(end);
	cudaStreamDestroy(first);
	cudaStreamDestroy(second);
	cudaFree(a);
	cudaFree(b);
	cudaFreeHost(host);
}

static void add_one(void *argument)
{
	*(int *)argument += 1;
}

static void host_functions_run_in_order(void **state)
{
	(void)state;
	int calls = 0;
	cudaStream_t stream = new_stream();
	for (int i = 0; i < 100; i++)
		cudaLaunchHostFunc(stream, add_one, &calls);
	assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
	assert_int_equal(calls, 100);
	cudaStreamDestroy(stream);
}

/* A graph with a fork runs as often as it is launched, with what its memory holds then. */
static void graphs_repeat_what_was_captured(void **state)
{
	(void)state;
	float *a = on_device(COUNT * sizeof(float)), *b = on_device(COUNT * sizeof(float)),
	      *c = on_device(COUNT * sizeof(float));
	float *host = pinned(2 * COUNT * sizeof(float));
	cudaStream_t stream = new_stream(), side = new_stream();
	cudaEvent_t fork = new_event(cudaEventDisableTiming), join = new_event(cudaEventDisableTiming);
	small_fill(a, 1, COUNT, stream);
	assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
	small_scale(b, a, 2, COUNT, stream);
	cudaEventRecord(fork, stream);
	cudaStreamWaitEvent(side, fork, 0);
	small_scale(c, b, 5, COUNT, side);
	small_scale(a, b, 1, COUNT, stream);
	cudaEventRecord(join, side);
	cudaStreamWaitEvent(stream, join, 0);
	cudaMemcpyAsync(host, a, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream);
	cudaMemcpyAsync(host + COUNT, c, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream);
	cudaGraph_t graph;
	cudaGraphExec_t executable;
	assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
	assert_int_equal(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
	assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
	for (int i = 0; i < 10; i++)
		assert_int_equal(cudaGraphLaunch(executable, stream), cudaSuccess);
	assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
	assert_true(host[0] == 1024 && host[COUNT - 1] == 1024); /* 2^10 */
	assert_true(host[COUNT] == 5120 && host[2 * COUNT - 1] == 5120);
	assert_int_equal(pp_fake_reports(), 0);
	cudaGraphExecDestroy(executable);
	cudaEventDestroy(fork);
	cudaEventDestroy(join);
	cudaStreamDestroy(stream);
	cudaStreamDestroy(side);
	cudaFree(a);
	cudaFree(b);
	cudaFree(c);
	cudaFreeHost(host);
}

/* The arithmetic that a product should have, from its definition. */
struct case_of_product {
	bool by_rows[3], transpose_a, transpose_b, bf16, wide, bias;
	float beta;
};

static float value_of(uint32_t i)
{
	return (float)((int)(i * 7 % 11) - 5);
}

static void put(void *memory, bool bf16, uint32_t i, float value)
{
	if (bf16)
		((uint16_t *)memory)[i] = pp_fake_to_bf16(value);
	else
		((float *)memory)[i] = value;
}

static float get(const void *memory, bool bf16, uint32_t i)
{
	return bf16 ? pp_fake_from_bf16(((const uint16_t *)memory)[i]) : ((const float *)memory)[i];
}

/* Element (i,j) of op(x), where x is stored rows x columns with one more element per line than needed. */
static uint32_t at(bool by_rows, bool transposed, uint32_t rows, uint32_t columns, uint32_t i, uint32_t j)
{
	uint32_t row = transposed ? j : i, column = transposed ? i : j;
	uint32_t stored_rows = transposed ? columns : rows, stored_columns = transposed ? rows : columns;
	return by_rows ? row * (stored_columns + 1) + column : column * (stored_rows + 1) + row;
}

static cublasLtMatrixLayout_t layout_of(bool by_rows, bool transposed, bool bf16, uint32_t rows, uint32_t columns)
{
	uint32_t stored_rows = transposed ? columns : rows, stored_columns = transposed ? rows : columns;
	cublasLtMatrixLayout_t layout;
	assert_int_equal(cublasLtMatrixLayoutCreate(&layout, bf16 ? CUDA_R_16BF : CUDA_R_32F, stored_rows, stored_columns,
	                                            (by_rows ? stored_columns : stored_rows) + 1),
	                 CUBLAS_STATUS_SUCCESS);
	int32_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
	assert_int_equal(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order),
	                 CUBLAS_STATUS_SUCCESS);
	return layout;
}

enum { M = 6, N = 5, K = 9, ROOM = 256 };

static void check_product(const struct case_of_product *given)
{
	void *memory = pinned(4 * ROOM * sizeof(float));
	float *a = memory, *b = a + ROOM, *d = b + ROOM, *bias = d + ROOM;
	bool d_bf16 = given->bf16 && !given->wide;
	for (uint32_t i = 0; i < ROOM; i++) {
		put(a, given->bf16, i, value_of(i));
		put(b, given->bf16, i, value_of(3 * i + 1));
		put(d, d_bf16, i, value_of(i + 5));
		put(bias, d_bf16, i, value_of(i + 2));
	}
	float want[M][N];
	for (uint32_t i = 0; i < M; i++)
		for (uint32_t j = 0; j < N; j++) {
			float sum = given->bias ? get(bias, d_bf16, i) : 0;
			for (uint32_t k = 0; k < K; k++)
				sum += get(a, given->bf16, at(given->by_rows[0], given->transpose_a, M, K, i, k)) *
				       get(b, given->bf16, at(given->by_rows[1], given->transpose_b, K, N, k, j));
			want[i][j] =
			    sum + (given->beta != 0 ? given->beta * get(d, d_bf16, at(given->by_rows[2], false, M, N, i, j)) : 0);
		}
	cublasLtHandle_t handle;
	cublasLtMatmulDesc_t description;
	cublasLtMatmulPreference_t preference;
	cublasLtCreate(&handle);
	cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
	cublasLtMatmulPreferenceCreate(&preference);
	int32_t ta = given->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = given->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
	cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
	if (given->bias) {
		uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
		cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
		cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
	}
	cublasLtMatrixLayout_t layouts[] = {layout_of(given->by_rows[0], given->transpose_a, given->bf16, M, K),
	                                    layout_of(given->by_rows[1], given->transpose_b, given->bf16, K, N),
	                                    layout_of(given->by_rows[2], false, d_bf16, M, N)};
	cublasLtMatmulHeuristicResult_t result;
	int found;
	assert_int_equal(cublasLtMatmulAlgoGetHeuristic(handle, description, layouts[0], layouts[1], layouts[2], layouts[2],
	                                                preference, 1, &result, &found),
	                 CUBLAS_STATUS_SUCCESS);
	assert_int_equal(found, 1);
	cudaStream_t stream = new_stream();
	float one = 1;
	assert_int_equal(cublasLtMatmul(handle, description, &one, a, layouts[0], b, layouts[1], &given->beta, d,
	                                layouts[2], d, layouts[2], &result.algo, NULL, 0, stream),
	                 CUBLAS_STATUS_SUCCESS);
	assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
	for (uint32_t i = 0; i < M; i++)
		for (uint32_t j = 0; j < N; j++) {
			float expected = d_bf16 ? pp_fake_from_bf16(pp_fake_to_bf16(want[i][j])) : want[i][j];
			assert_true(get(d, d_bf16, at(given->by_rows[2], false, M, N, i, j)) == expected);
		}
	for (int i = 0; i < 3; i++)
		cublasLtMatrixLayoutDestroy(layouts[i]);
	cublasLtMatmulPreferenceDestroy(preference);
	cublasLtMatmulDescDestroy(description);
	cublasLtDestroy(handle);
	cudaStreamDestroy(stream);
	cudaFreeHost(memory);
}

/* All orders, transposes, types; small integers, so that every order of summation gives the same. */
static void products_are_right(void **state)
{
	(void)state;
	for (uint32_t bits = 0; bits < 512; bits++) {
		struct case_of_product given = {.by_rows = {bits & 1, bits >> 1 & 1, bits >> 2 & 1},
		                                .transpose_a = bits >> 3 & 1,
		                                .transpose_b = bits >> 4 & 1,
		                                .bf16 = bits >> 5 & 1,
		                                .wide = bits >> 6 & 1,
		                                .beta = (float)(bits >> 7 & 1),
		                                .bias = bits >> 8 & 1};
		if (!given.bias || !given.by_rows[2]) /* there is no bias along rows */
			check_product(&given);
	}
	assert_int_equal(pp_fake_reports(), 0);
}

static void memory_is_counted(void **state)
{
	(void)state;
	size_t before, after, total;
	cudaMemGetInfo(&before, &total);
	void *memory = on_device(1 << 20);
	cudaMemGetInfo(&after, &total);
	assert_int_equal(before - after, 1 << 20);
	cudaFree(memory);
	assert_int_equal(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaSuccess);
	assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fresh_memory_is_nan),         cmocka_unit_test(events_order_streams),
	    cmocka_unit_test(host_functions_run_in_order), cmocka_unit_test(graphs_repeat_what_was_captured),
	    cmocka_unit_test(products_are_right),          cmocka_unit_test(memory_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
