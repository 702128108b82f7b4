/* Small programs of several ranks (scenario.h). */
#include "scenario.h"
#include "fake.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct thread {
	const struct scenario *scenario;
	bool faulty;
	uint32_t rank;
	ncclUniqueId id;
};

void scenario_good(unsigned error, const char *what)
{
	if (error == 0)
		return;
	fprintf(stderr, "%s gave %u\n", what, error);
	fflush(NULL);
	_exit(3);
}

static void make_rank(struct scenario_rank *rank)
{
	const char *devices = getenv("PP_SCENARIO_DEVICES");
	int count = devices ? atoi(devices) : 8;
	scenario_good(cudaSetDevice((int)rank->rank % count), "cudaSetDevice");
	for (int i = 0; i < 3; i++)
		scenario_good(cudaStreamCreateWithPriority(&rank->streams[i], cudaStreamNonBlocking, i ? -1 : 0), "a stream");
	for (int i = 0; i < 4; i++) {
		scenario_good(cudaEventCreateWithFlags(&rank->events[i], cudaEventDisableTiming), "an event");
		scenario_good(cudaMalloc((void **)&rank->memory[i], scenario_count * sizeof(float)), "memory");
		scenario_good(cudaMemsetAsync(rank->memory[i], 0, scenario_count * sizeof(float), rank->streams[0]), "a fill");
	}
	scenario_good(cudaMallocHost((void **)&rank->host, scenario_count * sizeof(float)), "pinned memory");
	scenario_good(cudaStreamSynchronize(rank->streams[0]), "cudaStreamSynchronize");
}

/* Everybody's first contact with everybody, as the executor does it before the first step. */
static void connect_all(struct scenario_rank *rank)
{
	ncclGroupStart();
	for (uint32_t i = 0; i < rank->ranks; i++) {
		if (i == rank->rank)
			continue;
		scenario_good(ncclSend(rank->memory[0], 1, ncclFloat, (int)i, rank->communicator, rank->streams[0]),
		              "ncclSend");
		scenario_good(ncclRecv(rank->memory[1] + i, 1, ncclFloat, (int)i, rank->communicator, rank->streams[0]),
		              "ncclRecv");
	}
	scenario_good(ncclGroupEnd(), "ncclGroupEnd");
	scenario_good(cudaStreamSynchronize(rank->streams[0]), "cudaStreamSynchronize");
}

static void free_rank(struct scenario_rank *rank)
{
	scenario_good(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	if (rank->communicator)
		scenario_good(ncclCommDestroy(rank->communicator), "ncclCommDestroy");
	for (int i = 0; i < 4; i++) {
		cudaEventDestroy(rank->events[i]);
		cudaFree(rank->memory[i]);
	}
	for (int i = 0; i < 3; i++)
		cudaStreamDestroy(rank->streams[i]);
	cudaFreeHost(rank->host);
}

static void *run_rank(void *given)
{
	struct thread *thread = given;
	const struct scenario *scenario = thread->scenario;
	struct scenario_rank rank = {.rank = thread->rank, .ranks = scenario->ranks, .faulty = thread->faulty};
	make_rank(&rank);
	if (scenario->communicates)
		scenario_good(ncclCommInitRank(&rank.communicator, (int)rank.ranks, thread->id, (int)rank.rank),
		              "ncclCommInitRank");
	if (scenario->communicates && !scenario->cold)
		connect_all(&rank);
	scenario->run(&rank);
	free_rank(&rank);
	return NULL;
}

static void be_threads(struct thread *threads, uint32_t count)
{
	pthread_t handles[8];
	for (uint32_t i = 0; i < count; i++)
		pthread_create(&handles[i], NULL, run_rank, &threads[i]);
	for (uint32_t i = 0; i < count; i++)
		pthread_join(handles[i], NULL);
	const char *seed = getenv("PP_FAKE_JITTER");
	bool again = seed && strcmp(seed, "0") != 0 && strcmp(seed, "1") != 0;
	if (again && pp_fake_reports() == 0)
		_exit(0); /* leaks were looked for under the first seeds */
	exit(0);
}

static void set_options(const char *const *options)
{
	setenv("PP_FAKE_DEVICES", "8", 1);
	for (; options && *options; options++) {
		char name[64];
		const char *value = strchr(*options, '=');
		snprintf(name, sizeof name, "%.*s", (int)(value - *options), *options);
		setenv(name, value + 1, 1);
	}
}

/* A child that runs `count` threads, its stderr going to the file. */
static pid_t start(struct thread *threads, uint32_t count, FILE *file, const char *const *options)
{
	fflush(NULL);
	pid_t child = fork();
	if (child != 0)
		return child;
	dup2(fileno(file), STDERR_FILENO);
	set_options(options);
	be_threads(threads, count);
	return 0;
}

void scenario_run(const struct scenario *scenario, bool faulty, bool processes, const char *const *options,
                  struct scenario_outcome *outcome)
{
	struct thread threads[8] = {0};
	ncclUniqueId id;
	ncclGetUniqueId(&id);
	for (uint32_t i = 0; i < scenario->ranks; i++)
		threads[i] = (struct thread){.scenario = scenario, .faulty = faulty, .rank = i, .id = id};
	FILE *file = tmpfile();
	uint32_t children = processes ? scenario->ranks : 1, each = processes ? 1 : scenario->ranks;
	pid_t pids[8];
	for (uint32_t i = 0; i < children; i++)
		pids[i] = start(&threads[i * each], each, file, options);
	outcome->status = 0;
	for (uint32_t i = 0; i < children; i++) {
		int status;
		pid_t ended = waitpid(-1, &status, 0);
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (code == 0 || outcome->status != 0)
			continue;
		outcome->status = code; /* the others would wait for ever, as under mpirun, which ends them */
		for (uint32_t k = 0; k < children; k++)
			if (pids[k] != ended)
				kill(pids[k], SIGTERM);
	}
	rewind(file);
	size_t length = fread(outcome->text, 1, sizeof outcome->text - 1, file);
	outcome->text[length] = '\0';
	fclose(file);
}
