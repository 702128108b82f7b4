/* Stream capture: the calls that it makes illegal give the errors that CUDA gives, and are reported; what is captured
 * is looked at for races among its nodes. */
#include "fake.h"
#include "small_kernels.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { COUNT = 100 };

static struct {
	cudaStream_t stream, side;
	cudaEvent_t event, outside;
	float *a, *b;
} on;

static int set_up(void **state)
{
	(void)state;
	cudaStreamCreateWithFlags(&on.stream, cudaStreamNonBlocking);
	cudaStreamCreateWithFlags(&on.side, cudaStreamNonBlocking);
	cudaEventCreateWithFlags(&on.event, cudaEventDisableTiming);
	cudaEventCreateWithFlags(&on.outside, cudaEventDisableTiming);
	cudaMalloc((void **)&on.a, COUNT * sizeof(float));
	cudaMalloc((void **)&on.b, COUNT * sizeof(float));
	small_fill(on.a, 1, COUNT, on.stream);
	small_fill(on.b, 1, COUNT, on.stream);
	small_scale(on.b, on.b, 1, COUNT, on.stream);
	cudaStreamSynchronize(on.stream);
	cudaEventRecord(on.outside, on.side);
	cudaStreamSynchronize(on.side);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	cudaStreamDestroy(on.stream);
	cudaStreamDestroy(on.side);
	cudaEventDestroy(on.event);
	cudaEventDestroy(on.outside);
	cudaFree(on.a);
	cudaFree(on.b);
	return 0;
}

static void begin(enum cudaStreamCaptureMode mode)
{
	assert_int_equal(cudaStreamBeginCapture(on.stream, mode), cudaSuccess);
	small_fill(on.a, 2, COUNT, on.stream);
}

/* The report of an illegal call, and then the capture is void. */
static void expect_void(const char *said)
{
	cudaGraph_t graph;
	assert_int_equal(pp_fake_reports(), 1);
	assert_non_null(strstr(pp_fake_report(), said));
	pp_fake_forgive();
	assert_int_equal(small_fill(on.a, 3, COUNT, on.stream), cudaErrorStreamCaptureInvalidated);
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaErrorStreamCaptureInvalidated);
	assert_null(graph);
	assert_int_equal(small_fill(on.a, 3, COUNT, on.stream), cudaSuccess);
	assert_int_equal(cudaStreamSynchronize(on.stream), cudaSuccess);
	(void)cudaGetLastError();
}

static void synchronising_is_illegal(void **state)
{
	(void)state;
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaStreamSynchronize(on.stream), cudaErrorStreamCaptureUnsupported);
	expect_void("cudaStreamSynchronize on stream");
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaStreamQuery(on.stream), cudaErrorStreamCaptureUnsupported);
	expect_void("cudaStreamQuery on stream");
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
	expect_void("cudaDeviceSynchronize while");
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaEventQuery(on.outside), cudaErrorStreamCaptureUnsupported);
	expect_void("cudaEventQuery while");
}

static void allocating_is_illegal(void **state)
{
	(void)state;
	void *memory;
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaMalloc(&memory, 100), cudaErrorStreamCaptureUnsupported);
	expect_void("allocating memory while");
	begin(cudaStreamCaptureModeGlobal);
	assert_int_equal(cudaFree(on.b), cudaErrorStreamCaptureUnsupported);
	expect_void("freeing memory while");
	begin(cudaStreamCaptureModeRelaxed);
	assert_int_equal(cudaMalloc(&memory, 100), cudaSuccess);
	assert_int_equal(cudaFree(memory), cudaSuccess);
	cudaGraph_t graph;
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaSuccess);
	assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
	assert_int_equal(pp_fake_reports(), 0);
}

static void first_launches_are_reported(void **state)
{
	(void)state;
	cudaGraph_t graph;
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(small_nap(1, on.stream), cudaSuccess);
	assert_int_equal(pp_fake_reports(), 1);
	assert_non_null(strstr(pp_fake_report(), "small_nap was launched for the first time while stream"));
	pp_fake_forgive();
	assert_int_equal(small_nap(1, on.stream), cudaSuccess);
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaSuccess);
	assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
	assert_int_equal(pp_fake_reports(), 0);
}

static void *allocate(void *given)
{
	void *memory;
	*(cudaError_t *)given = cudaMalloc(&memory, 100);
	return NULL;
}

/* Only a capture in global mode forbids other threads. */
static void other_threads(void **state)
{
	(void)state;
	cudaError_t error;
	pthread_t thread;
	begin(cudaStreamCaptureModeGlobal);
	pthread_create(&thread, NULL, allocate, &error);
	pthread_join(thread, NULL);
	assert_int_equal(error, cudaErrorStreamCaptureUnsupported);
	expect_void("by another thread, in global mode");
}

static void events_of_a_capture(void **state)
{
	(void)state;
	cudaGraph_t graph;
	begin(cudaStreamCaptureModeThreadLocal);
	cudaEventRecord(on.event, on.stream);
	assert_int_equal(cudaEventQuery(on.event), cudaErrorCapturedEvent);
	assert_int_equal(cudaEventSynchronize(on.event), cudaErrorCapturedEvent);
	assert_int_equal(pp_fake_reports(), 2);
	pp_fake_forgive();
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaSuccess);
	cudaGraphDestroy(graph);
	assert_int_equal(cudaStreamWaitEvent(on.side, on.event, 0), cudaErrorCapturedEvent);
	assert_int_equal(pp_fake_reports(), 1);
	pp_fake_forgive();
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaStreamWaitEvent(on.stream, on.outside, 0), cudaErrorStreamCaptureIsolation);
	expect_void("wasn't recorded in the capture");
}

/* Recorded in each launch, for whoever asks from outside; no capture joins by it. */
static void events_for_outside(void **state)
{
	(void)state;
	cudaGraph_t graph;
	cudaGraphExec_t executable;
	cudaEvent_t first, second;
	float milliseconds = -1, before = -1;
	cudaEventCreate(&first);
	cudaEventCreate(&second);
	assert_int_equal(cudaEventRecordWithFlags(first, on.stream, cudaEventRecordExternal), cudaErrorInvalidValue);
	assert_non_null(strstr(pp_fake_report(), "cudaEventRecordExternal on stream"));
	pp_fake_forgive();
	small_nap(1, on.stream); /* its first launch is no part of a capture */
	cudaEventRecord(first, on.stream);
	begin(cudaStreamCaptureModeThreadLocal);
	small_nap(2000, on.stream);
	assert_int_equal(cudaEventRecordWithFlags(second, on.stream, cudaEventRecordExternal), cudaSuccess);
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaSuccess);
	assert_int_equal(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
	cudaGraphDestroy(graph);
	assert_int_equal(cudaEventElapsedTime(&milliseconds, first, second), cudaErrorInvalidResourceHandle);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cudaGraphLaunch(executable, on.stream), cudaSuccess);
		assert_int_equal(cudaStreamSynchronize(on.stream), cudaSuccess);
		assert_int_equal(cudaEventElapsedTime(&milliseconds, first, second), cudaSuccess);
		assert_true(milliseconds >= before + 2);
		before = milliseconds;
	}
	begin(cudaStreamCaptureModeThreadLocal);
	cudaEventRecordWithFlags(second, on.stream, cudaEventRecordExternal);
	assert_int_equal(cudaStreamWaitEvent(on.side, second, 0), cudaSuccess);
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaSuccess);
	cudaGraphDestroy(graph);
	cudaGraphExecDestroy(executable);
	cudaEventDestroy(first);
	cudaEventDestroy(second);
	(void)cudaGetLastError();
}

static void ends_that_do_not_fit(void **state)
{
	(void)state;
	cudaGraph_t graph;
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaErrorIllegalState);
	begin(cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaStreamBeginCapture(on.stream, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
	cudaEventRecord(on.event, on.stream);
	cudaStreamWaitEvent(on.side, on.event, 0);
	small_fill(on.b, 2, COUNT, on.side);
	assert_int_equal(cudaStreamEndCapture(on.side, &graph), cudaErrorStreamCaptureUnmatched);
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaErrorStreamCaptureUnjoined);
	assert_int_equal(small_fill(on.b, 2, COUNT, on.side), cudaSuccess);
	assert_int_equal(cudaStreamSynchronize(on.side), cudaSuccess);
}

/* Two captures can't become one. */
static void captures_do_not_merge(void **state)
{
	(void)state;
	cudaGraph_t graph;
	begin(cudaStreamCaptureModeThreadLocal);
	cudaEventRecord(on.event, on.stream);
	assert_int_equal(cudaStreamBeginCapture(on.side, cudaStreamCaptureModeThreadLocal), cudaSuccess);
	assert_int_equal(cudaStreamWaitEvent(on.side, on.event, 0), cudaErrorStreamCaptureMerge);
	assert_int_equal(cudaStreamEndCapture(on.side, &graph), cudaErrorStreamCaptureInvalidated);
	expect_void("two captures can't merge");
}

static cudaGraphExec_t fork_without_join_of_memory(bool join)
{
	cudaGraph_t graph;
	cudaGraphExec_t executable;
	begin(cudaStreamCaptureModeThreadLocal);
	cudaEventRecord(on.event, on.stream);
	cudaStreamWaitEvent(on.side, on.event, 0);
	small_scale(on.b, on.a, 2, COUNT, on.side);
	if (join) {
		cudaEventRecord(on.event, on.side);
		cudaStreamWaitEvent(on.stream, on.event, 0);
	}
	small_fill(on.a, 5, COUNT, on.stream);
	cudaEventRecord(on.event, on.side);
	cudaStreamWaitEvent(on.stream, on.event, 0);
	assert_int_equal(cudaStreamEndCapture(on.stream, &graph), cudaSuccess);
	assert_int_equal(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
	cudaGraphDestroy(graph);
	return executable;
}

static void races_within_a_graph(void **state)
{
	(void)state;
	cudaGraphExecDestroy(fork_without_join_of_memory(true));
	assert_int_equal(pp_fake_races(), 0);
	cudaGraphExecDestroy(fork_without_join_of_memory(false));
	assert_int_equal(pp_fake_races(), 1);
	assert_non_null(
	    strstr(pp_fake_report(), "in a graph nothing orders the write by small_fill and the read by small_scale"));
	pp_fake_forgive();
}

/* A graph touches what its nodes touch. */
static void races_of_a_launch(void **state)
{
	(void)state;
	cudaGraphExec_t executable = fork_without_join_of_memory(true);
	assert_int_equal(cudaGraphLaunch(executable, on.stream), cudaSuccess);
	small_scale(on.b, on.a, 1, COUNT, on.stream);
	assert_int_equal(pp_fake_races(), 0);
	small_fill(on.b, 1, COUNT, on.side);
	assert_true(pp_fake_races() > 0);
	pp_fake_forgive();
	cudaDeviceSynchronize();
	cudaGraphExecDestroy(executable);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(synchronising_is_illegal, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(allocating_is_illegal, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(first_launches_are_reported, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(other_threads, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(events_of_a_capture, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(events_for_outside, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(ends_that_do_not_fit, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(captures_do_not_merge, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(races_within_a_graph, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(races_of_a_launch, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
