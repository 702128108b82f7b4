/* NCCL in graphs: what is allowed gives the right values, also again and again and with forks; and each thing that NCCL
 * or CUDA does not allow, or that would hang, is caught whatever the jitter. */
#include "fake.h"
#include "scenario.h"
#include "small_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = scenario_count, SEEDS = 4 };

static void must(unsigned error, const char *what)
{
	scenario_good(error, what);
}

static void order(struct scenario_rank *rank, int event, int before, int after)
{
	must(cudaEventRecord(rank->events[event], rank->streams[before]), "cudaEventRecord");
	must(cudaStreamWaitEvent(rank->streams[after], rank->events[event], 0), "cudaStreamWaitEvent");
}

/* Kernels have run before: loading one may be no part of a capture. */
static void begin(struct scenario_rank *rank)
{
	small_fill(rank->memory[3], 0, COUNT, rank->streams[0]);
	small_scale(rank->memory[3], rank->memory[3], 1, COUNT, rank->streams[0]);
	must(cudaStreamBeginCapture(rank->streams[0], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

static cudaGraphExec_t end(struct scenario_rank *rank)
{
	cudaGraph_t graph;
	cudaGraphExec_t executable;
	must(cudaStreamEndCapture(rank->streams[0], &graph), "cudaStreamEndCapture");
	must(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
	must(cudaGraphDestroy(graph), "cudaGraphDestroy");
	return executable;
}

static void launch(struct scenario_rank *rank, cudaGraphExec_t executable)
{
	must(cudaGraphLaunch(executable, rank->streams[0]), "cudaGraphLaunch");
}

static void finish(struct scenario_rank *rank, cudaGraphExec_t executable)
{
	must(cudaStreamSynchronize(rank->streams[0]), "cudaStreamSynchronize");
	must(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
}

/* From rank 0 to rank 1. */
static void pass(struct scenario_rank *rank, float *memory, int stream)
{
	if (rank->rank == 0)
		must(ncclSend(memory, COUNT, ncclFloat, 1, rank->communicator, rank->streams[stream]), "ncclSend");
	else
		must(ncclRecv(memory, COUNT, ncclFloat, 0, rank->communicator, rank->streams[stream]), "ncclRecv");
}

static void sum(struct scenario_rank *rank, int stream)
{
	must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, rank->communicator,
	                   rank->streams[stream]),
	     "ncclAllReduce");
}

/* A step: compute, a fork with a message, compute beside it, a join, and a sum; captured and launched three times. */
static void steps(struct scenario_rank *rank)
{
	sum(rank, 0); /* its first use */
	begin(rank);
	small_scale(rank->memory[0], rank->memory[0], 2, COUNT, rank->streams[0]);
	order(rank, 0, 0, 1);
	pass(rank, rank->memory[0], 1);
	small_fill(rank->memory[2], 1, COUNT, rank->streams[0]);
	order(rank, 1, 1, 0);
	sum(rank, 0);
	small_scale(rank->memory[3], rank->memory[0], 1, COUNT, rank->streams[0]);
	cudaGraphExec_t step = end(rank);
	small_fill(rank->memory[0], rank->rank == 0 ? 1 : 50, COUNT, rank->streams[0]);
	for (int i = 0; i < 3; i++)
		launch(rank, step);
	must(cudaMemcpyAsync(rank->host, rank->memory[3], COUNT * sizeof(float), cudaMemcpyDeviceToHost, rank->streams[0]),
	     "cudaMemcpyAsync");
	finish(rank, step);
	for (uint32_t i = 0; i < COUNT; i++)
		must(rank->host[i] != 8, "the value");
}

static void captured_at_one_end(struct scenario_rank *rank)
{
	bool captures = !rank->faulty || rank->rank == 1;
	if (captures)
		begin(rank);
	pass(rank, rank->memory[0], 0);
	if (!captures)
		return;
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	finish(rank, graph);
}

/* Both ends are graphs, but not of the same capture. */
static void other_captures(struct scenario_rank *rank)
{
	cudaGraphExec_t graphs[2];
	bool turned = rank->faulty && rank->rank == 1;
	for (int i = 0; i < 2; i++) {
		begin(rank);
		pass(rank, rank->memory[i], 0);
		graphs[i] = end(rank);
	}
	launch(rank, graphs[turned]);
	launch(rank, graphs[!turned]);
	finish(rank, graphs[0]);
	finish(rank, graphs[1]);
}

/* The message does not join the capture and goes at once. */
static void no_fork(struct scenario_rank *rank)
{
	begin(rank);
	small_fill(rank->memory[1], 1, COUNT, rank->streams[0]);
	if (!rank->faulty || rank->rank == 1)
		order(rank, 0, 0, 1);
	pass(rank, rank->memory[0], 1);
	if (!rank->faulty || rank->rank == 1)
		order(rank, 1, 1, 0);
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	finish(rank, graph);
}

/* What comes after the message in its stream is all that is joined. */
static void no_join(struct scenario_rank *rank)
{
	begin(rank);
	order(rank, 0, 0, 1);
	pass(rank, rank->memory[0], 1);
	if (!rank->faulty)
		order(rank, 1, 1, 0);
	small_fill(rank->memory[0], 1, COUNT, rank->streams[0]);
	order(rank, 1, 1, 0);
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	finish(rank, graph);
}

static void left_out(struct scenario_rank *rank)
{
	begin(rank);
	small_fill(rank->memory[1], 1, COUNT, rank->streams[0]);
	if (!rank->faulty || rank->rank == 1)
		pass(rank, rank->memory[0], 0);
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	finish(rank, graph);
}

static void first_sum_in_a_capture(struct scenario_rank *rank)
{
	if (!rank->faulty)
		sum(rank, 0);
	begin(rank);
	sum(rank, 0);
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	finish(rank, graph);
}

static void first_contact_in_a_capture(struct scenario_rank *rank)
{
	if (!rank->faulty)
		pass(rank, rank->memory[0], 0);
	begin(rank);
	pass(rank, rank->memory[0], 0);
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	finish(rank, graph);
}

static void split_in_a_capture(struct scenario_rank *rank)
{
	ncclComm_t half;
	if (rank->faulty)
		begin(rank);
	must(ncclCommSplit(rank->communicator, 0, (int)rank->rank, &half, NULL), "ncclCommSplit");
	must(ncclCommDestroy(half), "ncclCommDestroy");
}

/* NCCL waits for the end of every graph that holds operations of a communicator. */
static void graph_outlives_communicator(struct scenario_rank *rank)
{
	begin(rank);
	pass(rank, rank->memory[0], 0);
	cudaGraphExec_t graph = end(rank);
	launch(rank, graph);
	must(cudaStreamSynchronize(rank->streams[0]), "cudaStreamSynchronize");
	if (!rank->faulty)
		must(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
	must(ncclCommDestroy(rank->communicator), "ncclCommDestroy");
	rank->communicator = NULL;
}

/* A graph with messages on two communicators, of which the other rank takes none: each abort by itself would wait for
 * the message on the other one. */
static void aborted_with_a_graph(struct scenario_rank *rank)
{
	ncclComm_t second;
	must(ncclCommSplit(rank->communicator, 0, (int)rank->rank, &second, NULL), "ncclCommSplit");
	ncclComm_t both[2] = {rank->communicator, second};
	for (int i = 0; i < 2; i++) {
		rank->communicator = both[i];
		pass(rank, rank->memory[0], 0);
	}
	must(cudaStreamSynchronize(rank->streams[0]), "cudaStreamSynchronize");
	if (rank->rank == 0) {
		begin(rank);
		for (int i = 0; i < 2; i++) {
			rank->communicator = both[i];
			pass(rank, rank->memory[0], 0);
		}
		cudaGraphExec_t graph = end(rank);
		launch(rank, graph);
		must(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
	}
	if (!rank->faulty)
		ncclGroupStart();
	must(ncclCommAbort(both[0]), "ncclCommAbort");
	must(ncclCommAbort(both[1]), "ncclCommAbort");
	if (!rank->faulty)
		must(ncclGroupEnd(), "ncclGroupEnd");
	rank->communicator = NULL;
}

/* Messages on two communicators that nothing orders, where the GPU has room for one. */
static void two_communicators(struct scenario_rank *rank)
{
	ncclComm_t second, both[2] = {rank->communicator};
	must(ncclCommSplit(rank->communicator, 0, (int)rank->rank, &second, NULL), "ncclCommSplit");
	both[1] = second;
	for (int i = 0; i < 2; i++) {
		rank->communicator = both[i];
		pass(rank, rank->memory[i], 0);
	}
	begin(rank);
	for (int i = 0; i < 2; i++) {
		rank->communicator = both[i];
		order(rank, i, 0, 1 + i);
		pass(rank, rank->memory[i], 1 + i);
	}
	order(rank, 2, 1, 0);
	order(rank, 3, 2, 0);
	cudaGraphExec_t graph = end(rank);
	for (int i = 0; i < 3; i++)
		launch(rank, graph);
	finish(rank, graph);
	must(ncclCommDestroy(second), "ncclCommDestroy");
	rank->communicator = both[0];
}

struct fault {
	struct scenario scenario;
	const char *said;
	const char *also;
};

static const struct fault faults[] = {
    {{"captured at one end", captured_at_one_end, 2, true, false},
     "ends of a transfer disagree",
     ": one is in a graph, the other is not"},
    {{"graphs of other captures", other_captures, 2, true, false},
     "ends of a transfer disagree",
     ": graphs that were not captured together"},
    {{"no fork", no_fork, 2, true, false}, ": one is in a graph, the other is not", ""},
    {{"no join", no_join, 2, true, false}, "race: in a graph nothing orders", "small_fill"},
    {{"a post left out of one graph", left_out, 2, true, false}, "deadlock", "a graph at node 1 of 2: rank 1"},
    {{"first sum in a capture", first_sum_in_a_capture, 2, true, false},
     "the first all-reduce of 5000 f32 on communicator world is in a capture",
     ""},
    {{"first contact in a capture", first_contact_in_a_capture, 2, true, true}, "is in a capture: connect before", ""},
    {{"a split in a capture", split_in_a_capture, 2, true, false}, "ncclCommSplit while stream", ""},
    {{"a graph that outlives its communicator", graph_outlives_communicator, 2, true, false},
     "deadlock",
     "ncclCommDestroy of communicator world, rank 0, for graphs that hold its operations"},
    {{"aborts one by one", aborted_with_a_graph, 2, true, false}, "deadlock", "waits in ncclCommAbort of communicator"},
};

static void expect_caught(const struct fault *fault, bool processes, int seed)
{
	struct scenario_outcome outcome;
	char jitter[32];
	snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
	const char *options[] = {jitter, "PP_FAKE_QUIET_MS=40", "PP_FAKE_STOP=1", NULL};
	scenario_run(&fault->scenario, true, processes, options, &outcome);
	if (outcome.status != PP_FAKE_EXIT || !strstr(outcome.text, fault->said) || !strstr(outcome.text, fault->also))
		fail_msg("%s, %s, seed %d: ended with %d and said\n%s", fault->scenario.name,
		         processes ? "processes" : "threads", seed, outcome.status, outcome.text);
}

static void expect_silence(const struct scenario *scenario, bool processes, int seed, const char *option)
{
	struct scenario_outcome outcome;
	char jitter[32];
	snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
	const char *options[] = {jitter, option, NULL};
	scenario_run(scenario, false, processes, options, &outcome);
	if (outcome.status != 0 || outcome.text[0])
		fail_msg("%s, %s, seed %d, %s: ended with %d and said\n%s", scenario->name, processes ? "processes" : "threads",
		         seed, option ? option : "no option", outcome.status, outcome.text);
}

static void faults_are_caught(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
		for (int seed = 0; seed < 2; seed++)
			expect_caught(&faults[i], seed == 1, seed);
}

static void without_the_fault_silence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
		for (int seed = 0; seed < SEEDS; seed++)
			expect_silence(&faults[i].scenario, seed % 2 == 1, seed, NULL);
}

static void steps_are_right(void **state)
{
	(void)state;
	static const struct scenario scenario = {"steps", steps, 2, true, false};
	for (int seed = 0; seed < SEEDS; seed++)
		expect_silence(&scenario, seed % 2 == 1, seed, NULL);
}

/* A capture keeps the order of the program: of starts, with an old driver of whole operations. Without it there is a
 * seed under which each rank lets another message in first. */
static void order_of_launches(void **state)
{
	(void)state;
	static const struct scenario scenario = {"two communicators", two_communicators, 2, true, false};
	static const char *const drivers[] = {"PP_FAKE_DRIVER=13000", "PP_FAKE_DRIVER=12080"};
	struct scenario_outcome outcome;
	bool stuck = false;
	for (int seed = 1; seed <= 20; seed++) {
		char jitter[32];
		snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
		const char *options[] = {
		    jitter, "PP_FAKE_RESIDENT=1", "PP_FAKE_QUIET_MS=40", drivers[seed % 2], "NCCL_LAUNCH_ORDER_IMPLICIT=1",
		    NULL};
		scenario_run(&scenario, false, true, options, &outcome);
		if (outcome.status != 0 || outcome.text[0])
			fail_msg("in order, seed %d: ended with %d and said\n%s", seed, outcome.status, outcome.text);
		options[4] = NULL;
		if (!stuck)
			scenario_run(&scenario, false, true, options, &outcome);
		stuck = stuck || (outcome.status == PP_FAKE_EXIT && strstr(outcome.text, "deadlock"));
	}
	assert_true(stuck);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(steps_are_right),
	    cmocka_unit_test(order_of_launches),
	    cmocka_unit_test(faults_are_caught),
	    cmocka_unit_test(without_the_fault_silence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
