/* Planted faults, in small programs: each class is caught in every run, by what it is and not by what it happens to do,
 * and the same program without the fault gives no report under ten seeds of jitter. Ranks as threads and as processes.
 */
#include "fake.h"
#include "scenario.h"
#include "small_kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = scenario_count, SEEDS = 10 };

static void must(unsigned error, const char *what)
{
	scenario_good(error, what);
}

/* The host looks at its own memory, as far as the fake is told. */
static void check_host(const struct scenario_rank *rank, float expected)
{
	pp_fake_host_reads(rank->host, COUNT * sizeof(float), "the check");
	for (uint32_t i = 0; i < COUNT && !rank->faulty; i++)
		must(rank->host[i] != expected, "the value");
}

static void copy_out(struct scenario_rank *rank, const float *from, cudaStream_t stream)
{
	must(cudaMemcpyAsync(rank->host, from, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
}

static void order(struct scenario_rank *rank, int event, cudaStream_t before, cudaStream_t after)
{
	must(cudaEventRecord(rank->events[event], before), "cudaEventRecord");
	must(cudaStreamWaitEvent(after, rank->events[event], 0), "cudaStreamWaitEvent");
}

/* A consumer on another stream. */
static void missing_event_wait(struct scenario_rank *rank)
{
	small_fill(rank->memory[0], 3, COUNT, rank->streams[0]);
	if (!rank->faulty)
		order(rank, 0, rank->streams[0], rank->streams[1]);
	small_scale(rank->memory[1], rank->memory[0], 2, COUNT, rank->streams[1]);
	copy_out(rank, rank->memory[1], rank->streams[1]);
	must(cudaStreamSynchronize(rank->streams[1]), "cudaStreamSynchronize");
	check_host(rank, 6);
}

/* A slot is filled again while the copy of its last contents may still read it. */
static void slot_reused_too_early(struct scenario_rank *rank)
{
	for (int i = 0; i < 4; i++) {
		if (i > 0 && !rank->faulty)
			must(cudaStreamWaitEvent(rank->streams[0], rank->events[1], 0), "cudaStreamWaitEvent");
		small_fill(rank->memory[0], (float)i, COUNT, rank->streams[0]);
		order(rank, 0, rank->streams[0], rank->streams[1]);
		copy_out(rank, rank->memory[0], rank->streams[1]);
		must(cudaEventRecord(rank->events[1], rank->streams[1]), "cudaEventRecord");
	}
	must(cudaStreamSynchronize(rank->streams[1]), "cudaStreamSynchronize");
	check_host(rank, 3);
}

static void send_or_receive(struct scenario_rank *rank, float *memory, bool sends, uint32_t peer, cudaStream_t stream)
{
	if (sends)
		must(ncclSend(memory, COUNT, ncclFloat, (int)peer, rank->communicator, stream), "ncclSend");
	else
		must(ncclRecv(memory, COUNT, ncclFloat, (int)peer, rank->communicator, stream), "ncclRecv");
}

static void send_before_compute(struct scenario_rank *rank)
{
	if (rank->rank == 0) {
		small_fill(rank->memory[2], 7, COUNT, rank->streams[0]);
		if (!rank->faulty)
			order(rank, 0, rank->streams[0], rank->streams[1]);
		send_or_receive(rank, rank->memory[2], true, 1, rank->streams[1]);
		must(cudaStreamSynchronize(rank->streams[1]), "cudaStreamSynchronize");
		return;
	}
	send_or_receive(rank, rank->memory[2], false, 0, rank->streams[1]);
	copy_out(rank, rank->memory[2], rank->streams[1]);
	must(cudaStreamSynchronize(rank->streams[1]), "cudaStreamSynchronize");
	check_host(rank, 7);
}

/* Both ranks send on one stream and receive on another: one communicator has one order all the same. */
static void two_streams_one_communicator(struct scenario_rank *rank)
{
	uint32_t peer = 1 - rank->rank;
	bool sends_first = rank->faulty || rank->rank == 0;
	send_or_receive(rank, rank->memory[2 + !sends_first], sends_first, peer, rank->streams[sends_first ? 1 : 2]);
	send_or_receive(rank, rank->memory[2 + sends_first], !sends_first, peer, rank->streams[sends_first ? 2 : 1]);
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/* First contacts in a ring of single calls, against the pairs of even and odd ranks. */
static void cold_connect_cycle(struct scenario_rank *rank)
{
	uint32_t next = (rank->rank + 1) % rank->ranks, previous = (rank->rank + rank->ranks - 1) % rank->ranks;
	if (!rank->faulty)
		ncclGroupStart();
	send_or_receive(rank, rank->memory[2], true, next, rank->streams[1]);
	send_or_receive(rank, rank->memory[3], false, previous, rank->streams[1]);
	if (!rank->faulty)
		must(ncclGroupEnd(), "ncclGroupEnd");
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void mismatched_size(struct scenario_rank *rank)
{
	size_t count = rank->faulty && rank->rank == 1 ? COUNT - 1 : COUNT;
	if (rank->rank == 0)
		must(ncclSend(rank->memory[2], count, ncclFloat, 1, rank->communicator, rank->streams[1]), "ncclSend");
	else
		must(ncclRecv(rank->memory[2], count, ncclFloat, 0, rank->communicator, rank->streams[1]), "ncclRecv");
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void mismatched_collective(struct scenario_rank *rank)
{
	bool odd = rank->faulty && rank->rank == 1;
	must(ncclAllReduce(rank->memory[2], rank->memory[3], odd ? COUNT / 2 : COUNT, odd ? ncclDouble : ncclFloat, ncclSum,
	                   rank->communicator, rank->streams[1]),
	     "ncclAllReduce");
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void missing_rank_in_collective(struct scenario_rank *rank)
{
	for (int i = 0; i < 3; i++) {
		if (rank->faulty && rank->rank == 1 && i == 2)
			break;
		must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, rank->communicator,
		                   rank->streams[1]),
		     "ncclAllReduce");
	}
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/* The middle one of three posts its receive of a gradient ahead of the send that its neighbour computes it from. */
static void head_of_line_gradient(struct scenario_rank *rank)
{
	cudaStream_t stream = rank->streams[1];
	if (rank->rank == 0) {
		send_or_receive(rank, rank->memory[2], true, 1, stream);
	} else if (rank->rank == 1) {
		send_or_receive(rank, rank->memory[2], false, 0, stream);
		if (rank->faulty)
			send_or_receive(rank, rank->memory[3], false, 2, stream);
		send_or_receive(rank, rank->memory[2], true, 2, stream);
		if (!rank->faulty)
			send_or_receive(rank, rank->memory[3], false, 2, stream);
	} else {
		send_or_receive(rank, rank->memory[2], false, 1, stream);
		small_scale(rank->memory[3], rank->memory[2], 2, COUNT, stream);
		send_or_receive(rank, rank->memory[3], true, 1, stream);
	}
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void host_read_without_sync(struct scenario_rank *rank)
{
	small_fill(rank->memory[0], 4, COUNT, rank->streams[0]);
	copy_out(rank, rank->memory[0], rank->streams[0]);
	must(cudaEventRecord(rank->events[0], rank->streams[0]), "cudaEventRecord");
	while (!rank->faulty && cudaEventQuery(rank->events[0]) == cudaErrorNotReady)
		;
	check_host(rank, 4);
}

/* The host fills the source of a copy again before the copy; nobody tells the fake. */
static void host_write_without_sync(struct scenario_rank *rank)
{
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < COUNT; k++)
			rank->host[k] = (float)(i + k);
		small_nap(2000, rank->streams[0]);
		must(cudaMemcpyAsync(rank->memory[0], rank->host, COUNT * sizeof(float), cudaMemcpyHostToDevice,
		                     rank->streams[0]),
		     "cudaMemcpyAsync");
		if (!rank->faulty)
			must(cudaStreamSynchronize(rank->streams[0]), "cudaStreamSynchronize");
	}
}

static void null_stream(struct scenario_rank *rank)
{
	small_fill(rank->memory[0], 1, COUNT, rank->faulty ? NULL : rank->streams[0]);
}

static void pageable_copy(struct scenario_rank *rank)
{
	static float pageable[COUNT];
	(void)cudaMemcpyAsync(rank->memory[0], rank->faulty ? pageable : rank->host, COUNT * sizeof(float),
	                      cudaMemcpyHostToDevice, rank->streams[0]);
}

static void use_after_free(struct scenario_rank *rank)
{
	float *memory;
	must(cudaMalloc((void **)&memory, COUNT * sizeof(float)), "cudaMalloc");
	if (rank->faulty)
		must(cudaFree(memory), "cudaFree");
	small_fill(memory, 1, COUNT, rank->streams[0]);
	if (!rank->faulty)
		must(cudaFree(memory), "cudaFree");
}

static void beyond_the_end(struct scenario_rank *rank)
{
	small_fill(rank->memory[0], 1, rank->faulty ? COUNT + 1 : COUNT, rank->streams[0]);
}

static void allocation_in_a_step(struct scenario_rank *rank)
{
	if (rank->faulty)
		pp_fake_freeze();
	void *memory;
	must(cudaMalloc(&memory, 100), "cudaMalloc");
	must(cudaFree(memory), "cudaFree");
}

static void first_launch_in_a_step(struct scenario_rank *rank)
{
	if (!rank->faulty)
		must(small_scale(rank->memory[1], rank->memory[0], 2, COUNT, rank->streams[0]), "small_scale");
	pp_fake_freeze();
	must(small_scale(rank->memory[1], rank->memory[0], 2, COUNT, rank->streams[0]), "small_scale");
	pp_fake_thaw();
}

static void first_use_in_a_step(struct scenario_rank *rank)
{
	if (!rank->faulty)
		must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, rank->communicator,
		                   rank->streams[1]),
		     "ncclAllReduce");
	pp_fake_freeze();
	must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, rank->communicator,
	                   rank->streams[1]),
	     "ncclAllReduce");
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	pp_fake_thaw();
}

static void post_without_priority(struct scenario_rank *rank)
{
	cudaStream_t stream = rank->streams[rank->faulty ? 0 : 1];
	must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, rank->communicator, stream),
	     "ncclAllReduce");
	pp_fake_freeze();
	must(ncclAllReduce(rank->memory[2], rank->memory[3], COUNT, ncclFloat, ncclSum, rank->communicator, stream),
	     "ncclAllReduce");
	must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	pp_fake_thaw();
}

struct fault {
	struct scenario scenario;
	const char *said; /* part of the report */
	const char *also; /* and this */
};

static const struct fault alone[] = {
    {{"missing event wait", missing_event_wait, 1, false, false},
     "race: read by small_scale on stream 1",
     "write by small_fill"},
    {{"slot reused too early", slot_reused_too_early, 1, false, false},
     "race: write by small_fill",
     "read by cudaMemcpyAsync"},
    {{"host read without sync", host_read_without_sync, 1, false, false},
     "race: read by the check on host",
     "write by cudaMemcpyAsync"},
    {{"host write without sync", host_write_without_sync, 1, false, false}, "race: the host wrote", "the copy"},
    {{"null stream", null_stream, 1, false, false}, "small_fill on the NULL stream", ""},
    {{"pageable copy", pageable_copy, 1, false, false}, "cudaMemcpyAsync from pageable memory", ""},
    {{"use after free", use_after_free, 1, false, false},
     "small_fill writes 20000 bytes",
     "no device or pinned memory"},
    {{"beyond the end", beyond_the_end, 1, false, false}, "small_fill writes 20004 bytes", "has only 20000 bytes"},
    {{"allocation in a step", allocation_in_a_step, 1, false, false}, "memory was allocated within a step", ""},
    {{"first launch in a step", first_launch_in_a_step, 1, false, false},
     "kernel small_scale was launched for the first time within a step",
     ""},
};

static const struct fault together[] = {
    {{"send before compute", send_before_compute, 2, true, false},
     "race: read by ncclSend on stream 1",
     "write by small_fill"},
    {{"two streams on one communicator", two_streams_one_communicator, 2, true, false},
     "deadlock",
     "send #2 to rank 1 (5000 f32)"},
    {{"cold connect cycle", cold_connect_cycle, 3, true, true}, "deadlock", "the first contact of rank 1 with rank 2"},
    {{"cold connect of two", cold_connect_cycle, 2, true, true},
     "so the first groups must be alike",
     "has a send with rank"},
    {{"mismatched size", mismatched_size, 2, true, false},
     "#2 from rank 0 is a send of 5000 f32",
     "rank 1 receives 4999 f32"},
    {{"mismatched collective", mismatched_collective, 2, true, false},
     "members of a collective disagree",
     "of 2500 f64"},
    {{"missing rank in a collective", missing_rank_in_collective, 3, true, false}, "deadlock", "all-reduce #3"},
    {{"head-of-line gradient receive", head_of_line_gradient, 3, true, false},
     "deadlock",
     "rank 1 of communicator world: receive #2 from rank 2 (5000 f32)"},
    {{"first use in a step", first_use_in_a_step, 2, true, false},
     "a collective was used for the first time within a step",
     ""},
    {{"post without priority", post_without_priority, 2, true, false},
     "NCCL posts on stream 0 of host",
     "no priority over compute"},
};

static void expect_caught(const struct fault *fault, bool processes)
{
	struct scenario_outcome outcome;
	for (int seed = 0; seed < 2; seed++) {
		char jitter[32];
		snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
		const char *options[] = {jitter, "PP_FAKE_QUIET_MS=40", NULL};
		scenario_run(&fault->scenario, true, processes, options, &outcome);
		if (outcome.status != PP_FAKE_EXIT || !strstr(outcome.text, fault->said) || !strstr(outcome.text, fault->also))
			fail_msg("%s, %s, seed %d: ended with %d and said\n%s", fault->scenario.name,
			         processes ? "processes" : "threads", seed, outcome.status, outcome.text);
	}
}

static void expect_silence(const struct fault *fault, bool processes, const char *option)
{
	struct scenario_outcome outcome;
	for (int seed = 1; seed <= SEEDS; seed++) {
		char jitter[32];
		snprintf(jitter, sizeof jitter, "PP_FAKE_JITTER=%d", seed);
		const char *options[] = {jitter, option, NULL};
		scenario_run(&fault->scenario, false, processes, options, &outcome);
		if (outcome.status != 0 || outcome.text[0])
			fail_msg("%s without the fault, %s, seed %d: ended with %d and said\n%s", fault->scenario.name,
			         processes ? "processes" : "threads", seed, outcome.status, outcome.text);
	}
}

static void faults_of_one_rank(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
		expect_caught(&alone[i], false);
		expect_silence(&alone[i], false, NULL);
	}
}

static void faults_between_threads(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof together / sizeof together[0]; i++) {
		expect_caught(&together[i], false);
		expect_silence(&together[i], false, NULL);
	}
}

static void faults_between_processes(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof together / sizeof together[0]; i++) {
		expect_caught(&together[i], true);
		expect_silence(&together[i], true, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(faults_of_one_rank),
	    cmocka_unit_test(faults_between_threads),
	    cmocka_unit_test(faults_between_processes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
