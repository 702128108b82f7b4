/* The fake NCCL by itself: values, splits, groups, and the ways a communicator ends. */
#include "fake.h"
#include "multiply.h"
#include "scenario.h"
#include "small_kernels.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = scenario_count };

static void must(unsigned error, const char *what)
{
	scenario_good(error, what);
}

static void sync(struct scenario_rank *rank)
{
	must(cudaStreamSynchronize(rank->streams[1]), "cudaStreamSynchronize");
}

static void put(struct scenario_rank *rank, float *to, uint64_t bytes)
{
	must(cudaMemcpyAsync(to, rank->host, bytes, cudaMemcpyHostToDevice, rank->streams[1]), "cudaMemcpyAsync");
	sync(rank);
}

static void get(struct scenario_rank *rank, const float *from, uint64_t bytes)
{
	must(cudaMemcpyAsync(rank->host, from, bytes, cudaMemcpyDeviceToHost, rank->streams[1]), "cudaMemcpyAsync");
	sync(rank);
}

/* Values whose sum depends on the order. */
static float addend(uint32_t rank, uint32_t i)
{
	return (rank == 1 ? 1e8f : rank == 2 ? -1e8f : 1.25f) + (float)(i % 13);
}

static float sum_in_order(uint32_t ranks, uint32_t i)
{
	float sum = addend(0, i);
	for (uint32_t k = 1; k < ranks; k++)
		sum += addend(k, i);
	return sum;
}

static void all_reduce(struct scenario_rank *rank)
{
	for (uint32_t i = 0; i < COUNT; i++)
		rank->host[i] = addend(rank->rank, i);
	put(rank, rank->memory[2], COUNT * sizeof(float));
	must(ncclAllReduce(rank->memory[2], rank->memory[2], COUNT, ncclFloat, ncclSum, rank->communicator,
	                   rank->streams[1]),
	     "ncclAllReduce");
	get(rank, rank->memory[2], COUNT * sizeof(float));
	for (uint32_t i = 0; i < COUNT; i++)
		must(rank->host[i] != sum_in_order(rank->ranks, i), "a sum");
}

static void doubles(struct scenario_rank *rank)
{
	double *host = (double *)(void *)rank->host;
	host[0] = 1.0 / (1 + rank->rank);
	put(rank, rank->memory[2], sizeof(double));
	must(ncclAllReduce(rank->memory[2], rank->memory[3], 1, ncclDouble, ncclSum, rank->communicator, rank->streams[1]),
	     "ncclAllReduce");
	get(rank, rank->memory[3], sizeof(double));
	double sum = 1;
	for (uint32_t i = 1; i < rank->ranks; i++)
		sum += 1.0 / (1 + i);
	must(host[0] != sum, "a sum of doubles");
}

static void halves(struct scenario_rank *rank)
{
	uint16_t *host = (uint16_t *)(void *)rank->host;
	for (uint32_t i = 0; i < COUNT; i++)
		host[i] = pp_fake_to_bf16((float)(rank->rank + 1) * 0.3f + (float)i);
	put(rank, rank->memory[2], COUNT * 2);
	must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclBfloat16, ncclSum, rank->communicator,
	                   rank->streams[1]),
	     "ncclAllReduce");
	get(rank, rank->memory[3], COUNT * 2);
	for (uint32_t i = 0; i < COUNT; i++) {
		float sum = pp_fake_from_bf16(pp_fake_to_bf16(0.3f + (float)i));
		for (uint32_t k = 1; k < rank->ranks; k++) {
			float next = pp_fake_from_bf16(pp_fake_to_bf16((float)(k + 1) * 0.3f + (float)i));
			sum += next;
		}
		must(host[i] != pp_fake_to_bf16(sum), "a sum of bf16");
	}
}

static void scatter_and_gather(struct scenario_rank *rank)
{
	uint32_t share = COUNT / rank->ranks;
	for (uint32_t i = 0; i < share * rank->ranks; i++)
		rank->host[i] = addend(rank->rank, i);
	put(rank, rank->memory[2], share * rank->ranks * sizeof(float));
	must(ncclReduceScatter(rank->memory[2], rank->memory[3], share, ncclFloat, ncclSum, rank->communicator,
	                       rank->streams[1]),
	     "ncclReduceScatter");
	must(ncclAllGather(rank->memory[3], rank->memory[0], share, ncclFloat, rank->communicator, rank->streams[1]),
	     "ncclAllGather");
	get(rank, rank->memory[0], share * rank->ranks * sizeof(float));
	for (uint32_t i = 0; i < share * rank->ranks; i++)
		must(rank->host[i] != sum_in_order(rank->ranks, i), "a scattered and gathered sum");
}

static void broadcast(struct scenario_rank *rank)
{
	small_fill(rank->memory[2], (float)rank->rank, COUNT, rank->streams[1]);
	must(ncclBroadcast(rank->memory[2], rank->memory[2], COUNT, ncclFloat, 1, rank->communicator, rank->streams[1]),
	     "ncclBroadcast");
	get(rank, rank->memory[2], COUNT * sizeof(float));
	must(rank->host[0] != 1 || rank->host[COUNT - 1] != 1, "what was broadcast");
}

/* A ring in one group over two streams, which it joins: what the other stream does next comes after it. */
static void group_over_two_streams(struct scenario_rank *rank)
{
	uint32_t next = (rank->rank + 1) % rank->ranks, previous = (rank->rank + rank->ranks - 1) % rank->ranks;
	for (int round = 0; round < 5; round++) {
		small_fill(rank->memory[2], (float)(rank->rank + (uint32_t)round), COUNT, rank->streams[1]);
		ncclGroupStart();
		must(ncclSend(rank->memory[2], COUNT, ncclFloat, (int)next, rank->communicator, rank->streams[1]), "ncclSend");
		must(ncclRecv(rank->memory[3], COUNT, ncclFloat, (int)previous, rank->communicator, rank->streams[2]),
		     "ncclRecv");
		must(ncclGroupEnd(), "ncclGroupEnd");
		small_scale(rank->memory[0], rank->memory[3], 2, COUNT, rank->streams[2]);
		must(cudaEventRecord(rank->events[0], rank->streams[2]), "cudaEventRecord");
		must(cudaStreamWaitEvent(rank->streams[1], rank->events[0], 0), "cudaStreamWaitEvent");
		get(rank, rank->memory[0], COUNT * sizeof(float));
		must(rank->host[7] != 2 * (float)(previous + (uint32_t)round), "what went round the ring");
	}
}

/* Even and odd ranks apart, in the reverse order; then the halves work at the same time as the whole. */
static void splits(struct scenario_rank *rank)
{
	ncclComm_t half;
	int ranks, place;
	must(ncclCommSplit(rank->communicator, (int)(rank->rank % 2), -(int)rank->rank, &half, NULL), "ncclCommSplit");
	must(ncclCommCount(half, &ranks), "ncclCommCount");
	must(ncclCommUserRank(half, &place), "ncclCommUserRank");
	must(ranks != 2 || place != (rank->rank < 2), "the place in a split");
	small_fill(rank->memory[2], (float)(1 + rank->rank), COUNT, rank->streams[1]);
	must(cudaEventRecord(rank->events[0], rank->streams[1]), "cudaEventRecord");
	must(cudaStreamWaitEvent(rank->streams[2], rank->events[0], 0), "cudaStreamWaitEvent");
	must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, half, rank->streams[2]),
	     "ncclAllReduce");
	must(ncclAllReduce(rank->memory[2], rank->memory[0], COUNT, ncclFloat, ncclMax, rank->communicator,
	                   rank->streams[1]),
	     "ncclAllReduce");
	must(cudaStreamSynchronize(rank->streams[2]), "cudaStreamSynchronize");
	get(rank, rank->memory[3], COUNT * sizeof(float));
	must(rank->host[9] != (rank->rank % 2 ? 6 : 4), "the sum of a half");
	get(rank, rank->memory[0], COUNT * sizeof(float));
	must(rank->host[9] != 4, "the largest of all");
	must(ncclCommFinalize(half), "ncclCommFinalize");
	must(ncclCommDestroy(half), "ncclCommDestroy");
	ncclComm_t none;
	must(ncclCommSplit(rank->communicator, rank->rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL), "ncclCommSplit");
	must((none == NULL) != (rank->rank == 0), "a split without the rank");
	if (none)
		must(ncclCommDestroy(none), "ncclCommDestroy");
}

/* A captured exchange, launched again and again, between eager ones on the same communicator. */
static void captured(struct scenario_rank *rank)
{
	uint32_t peer = 1 - rank->rank;
	cudaStream_t stream = rank->streams[1];
	cudaGraph_t graph;
	cudaGraphExec_t executable;
	small_fill(rank->memory[2], 1, COUNT, stream);
	small_scale(rank->memory[3], rank->memory[2], 1, COUNT, stream); /* loaded before the capture */
	must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
	ncclGroupStart();
	must(ncclSend(rank->memory[2], COUNT, ncclFloat, (int)peer, rank->communicator, stream), "ncclSend");
	must(ncclRecv(rank->memory[3], COUNT, ncclFloat, (int)peer, rank->communicator, stream), "ncclRecv");
	must(ncclGroupEnd(), "ncclGroupEnd");
	small_scale(rank->memory[2], rank->memory[3], 2, COUNT, stream);
	must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
	must(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
	must(cudaGraphDestroy(graph), "cudaGraphDestroy");
	for (int i = 0; i < 4; i++) {
		must(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
		must(ncclAllReduce(rank->memory[2], rank->memory[2], COUNT, ncclFloat, ncclMax, rank->communicator, stream),
		     "ncclAllReduce");
	}
	get(rank, rank->memory[2], COUNT * sizeof(float));
	must(rank->host[11] != 16, "what the graphs exchanged");
	must(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
}

/* Rank 1 never posts; rank 0 gives its communicator up and goes on. */
static void aborted(struct scenario_rank *rank)
{
	if (rank->rank == 0) {
		must(ncclRecv(rank->memory[2], COUNT, ncclFloat, 1, rank->communicator, rank->streams[1]), "ncclRecv");
		must(cudaStreamQuery(rank->streams[1]) != cudaErrorNotReady, "cudaStreamQuery of a receive");
	}
	must(ncclCommAbort(rank->communicator), "ncclCommAbort");
	rank->communicator = NULL;
	sync(rank);
}

/* PP_FAKE_ASYNC_ERROR=0:3: the connecting group and two more work. */
static void broken(struct scenario_rank *rank)
{
	ncclResult_t state = ncclSuccess;
	for (int i = 0; i < 3 && rank->rank == 0; i++)
		must(ncclSend(rank->memory[2], COUNT, ncclFloat, 1, rank->communicator, rank->streams[1]), "ncclSend");
	for (int i = 0; i < 2 && rank->rank == 1; i++)
		must(ncclRecv(rank->memory[2], COUNT, ncclFloat, 0, rank->communicator, rank->streams[1]), "ncclRecv");
	if (rank->rank == 1)
		sync(rank);
	do
		must(ncclCommGetAsyncError(rank->communicator, &state), "ncclCommGetAsyncError");
	while (rank->rank == 0 && state == ncclSuccess);
	must(state != (rank->rank == 0 ? ncclRemoteError : ncclSuccess), "the state of the communicator");
	if (rank->rank == 0) {
		must(ncclSend(rank->memory[2], 1, ncclFloat, 1, rank->communicator, rank->streams[1]) == ncclSuccess,
		     "a send on a broken communicator");
		must(ncclCommAbort(rank->communicator), "ncclCommAbort");
		rank->communicator = NULL;
	}
	sync(rank);
}

static void one_gpu_for_all(struct scenario_rank *rank)
{
	(void)rank;
}

/* Two communicators in the same order on both ranks, one place on each device. */
static void in_the_order_of_calls(struct scenario_rank *rank)
{
	ncclComm_t other;
	must(ncclCommSplit(rank->communicator, 0, (int)rank->rank, &other, NULL), "ncclCommSplit");
	for (int i = 0; i < 20; i++) {
		must(ncclAllReduce(rank->memory[2], rank->memory[2], COUNT, ncclFloat, ncclMax, rank->communicator,
		                   rank->streams[1]),
		     "ncclAllReduce");
		must(ncclAllReduce(rank->memory[3], rank->memory[3], COUNT, ncclFloat, ncclMax, other, rank->streams[2]),
		     "ncclAllReduce");
	}
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	must(ncclCommDestroy(other), "ncclCommDestroy");
}

/* Each rank sends first: works only for what is buffered. */
static void both_send_first(struct scenario_rank *rank)
{
	must(ncclSend(rank->memory[2], COUNT, ncclFloat, (int)(1 - rank->rank), rank->communicator, rank->streams[1]),
	     "ncclSend");
	must(ncclRecv(rank->memory[3], COUNT, ncclFloat, (int)(1 - rank->rank), rank->communicator, rank->streams[1]),
	     "ncclRecv");
}

struct expected {
	struct scenario scenario;
	const char *options[3];
	int status;
	const char *said;
};

static const struct expected cases[] = {
    {{"all-reduce", all_reduce, 4, true, false}, {NULL}, 0, ""},
    {{"doubles", doubles, 3, true, false}, {NULL}, 0, ""},
    {{"bf16", halves, 3, true, false}, {NULL}, 0, ""},
    {{"scatter and gather", scatter_and_gather, 3, true, false}, {NULL}, 0, ""},
    {{"broadcast", broadcast, 3, true, false}, {NULL}, 0, ""},
    {{"group over two streams", group_over_two_streams, 3, true, false}, {NULL}, 0, ""},
    {{"splits", splits, 4, true, false}, {NULL}, 0, ""},
    {{"captured", captured, 2, true, false}, {NULL}, 0, ""},
    {{"aborted", aborted, 2, true, false}, {NULL}, 0, ""},
    {{"broken", broken, 2, true, false}, {"PP_FAKE_ASYNC_ERROR=0:3"}, 0, ""},
    {{"one GPU for all", one_gpu_for_all, 2, true, false}, {"PP_SCENARIO_DEVICES=1"}, 3, "duplicate GPU detected"},
    {{"in the order of calls", in_the_order_of_calls, 2, true, false},
     {"NCCL_LAUNCH_ORDER_IMPLICIT=1", "PP_FAKE_RESIDENT=1"},
     0,
     ""},
    {{"in the order of calls, older driver", in_the_order_of_calls, 2, true, false},
     {"NCCL_LAUNCH_ORDER_IMPLICIT=1", "PP_FAKE_DRIVER=12020"},
     0,
     ""},
    {{"both send first", both_send_first, 2, true, false}, {"PP_FAKE_QUIET_MS=40"}, PP_FAKE_EXIT, "deadlock"},
    {{"both send first, buffered", both_send_first, 2, true, false}, {"PP_FAKE_BUFFERED=32768"}, 0, ""},
};

static void expect_all(bool processes)
{
	struct scenario_outcome outcome;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int seed = 0; seed < 3; seed++) {
			char jitter[32];
			snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
			const char *options[] = {jitter, cases[i].options[0], cases[i].options[1], NULL};
			scenario_run(&cases[i].scenario, false, processes, options, &outcome);
			bool said = cases[i].said[0] ? strstr(outcome.text, cases[i].said) != NULL : outcome.text[0] == '\0';
			if (outcome.status != cases[i].status || !said)
				fail_msg("%s, %s, seed %d: ended with %d and said\n%s", cases[i].scenario.name,
				         processes ? "processes" : "threads", seed, outcome.status, outcome.text);
		}
}

static void between_threads(void **state)
{
	(void)state;
	expect_all(false);
}

static void between_processes(void **state)
{
	(void)state;
	expect_all(true);
}

/* Without room for both, two communicators in no common order get into each other's way in some run or other. */
static void no_room_and_no_order(void **state)
{
	(void)state;
	static const struct scenario scenario = {"no order", in_the_order_of_calls, 2, true, false};
	struct scenario_outcome outcome;
	bool stuck = false;
	for (int seed = 1; seed <= 20 && !stuck; seed++) {
		char jitter[32];
		snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
		const char *options[] = {jitter, "PP_FAKE_RESIDENT=1", "PP_FAKE_QUIET_MS=40", NULL};
		scenario_run(&scenario, false, false, options, &outcome);
		stuck = outcome.status == PP_FAKE_EXIT && strstr(outcome.text, "deadlock");
	}
	assert_true(stuck);
}

/* However short a quiet is taken for a deadlock, who only waits for the processor is in none: the watchdog asks again.
 */
static void a_slow_machine_is_no_deadlock(void **state)
{
	(void)state;
	static const struct scenario scenario = {"slow machine", in_the_order_of_calls, 2, true, false};
	struct scenario_outcome outcome;
	for (int seed = 1; seed <= 8; seed++) {
		char jitter[32];
		snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
		const char *options[] = {jitter, "PP_FAKE_QUIET_MS=0", NULL};
		scenario_run(&scenario, false, seed % 2, options, &outcome);
		if (outcome.status != 0)
			fail_msg("seed %d: ended with %d and said\n%s", seed, outcome.status, outcome.text);
	}
}

/* What the ranks of all these tests shared has no name any more: memory that nobody can free would be left else. */
static void no_memory_is_left_behind(void **state)
{
	(void)state;
	char prefix[64], left[512] = "";
	snprintf(prefix, sizeof prefix, "pp-fake-nccl-%ld-", (long)getpid());
	DIR *folder = opendir("/dev/shm");
	assert_non_null(folder);
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			snprintf(left, sizeof left, "%s", entry->d_name);
	closedir(folder);
	assert_string_equal(left, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(between_threads),          cmocka_unit_test(between_processes),
	    cmocka_unit_test(no_room_and_no_order),     cmocka_unit_test(a_slow_machine_is_no_deadlock),
	    cmocka_unit_test(no_memory_is_left_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
