/* Queues over transports on devices: a post that stands behind another one holds up nothing but what waits for it. A
 * rank's compute stream is held; what must not depend on it gets to its end all the same. */
#include "gpu_worlds.h"

#include "executor/cuda/cuda.h"
#include "executor/transport/queued.h"

#include "support/sample_program.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

enum { MESSAGES = 3, BYTES = 64, SENDER = 1, RECEIVER = 0 };

struct trial {
	struct pp_program *program;
	uint32_t channel;     /* from SENDER to RECEIVER */
	uint32_t held;        /* the rank whose compute stream is held once it has posted, PP_NULL: none */
	atomic_bool released; /* it goes on */
	pthread_barrier_t together;
};

static void doze(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void CUDART_CB hold(void *context)
{
	struct trial *trial = context;
	while (!atomic_load(&trial->released))
		doze();
}

/* One rank with its queues: one for all that it posts. */
struct rank {
	struct trial *trial;
	const struct pp_test_seat *seat;
	const struct pp_transport_ops *ops;
	struct pp_endpoint *endpoint;
	struct pp_instr instr[MESSAGES];
	unsigned char *room;
};

static void post_all(struct rank *rank)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		bool sends = rank->seat->rank == SENDER;
		rank->instr[i] = (struct pp_instr){.op = sends ? PP_OP_SEND : PP_OP_RECV,
		                                   .dtype = PP_F32,
		                                   .mb = i,
		                                   .count = BYTES / sizeof(float),
		                                   .a = {rank->trial->channel, i}};
		if (sends)
			rank->ops->post_send(rank->endpoint, &rank->instr[i], rank->room + i * BYTES);
		else
			rank->ops->post_recv(rank->endpoint, &rank->instr[i], rank->room + i * BYTES);
	}
}

/* The transport below has all of them, and needs nothing but the devices: true. */
static bool on_their_way(const struct rank *rank)
{
	rank->ops->poll(rank->endpoint);
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (rank->seat->ops->probe(rank->seat->endpoint, &rank->instr[i]) != PP_DONE)
			return false;
	return true;
}

static void wait_all(const struct rank *rank)
{
	for (uint32_t i = 0; i < MESSAGES; i++)
		while (rank->ops->test(rank->endpoint, rank->trial->channel, i) == PP_PENDING)
			doze();
}

/* Does all that the compute stream has been given run, while the other one is held? */
static bool runs(const struct rank *rank)
{
	enum { PATIENCE = 20000 };
	cudaStream_t stream = pp_cuda_of(pp_test_gpu_device(rank->seat))->compute;
	for (int i = 0; i < PATIENCE; i++, doze())
		if (cudaStreamQuery(stream) == cudaSuccess)
			return !atomic_load(&rank->trial->released);
	return false;
}

/* `held` is the receiver: the copies come before what holds it, also those whose posts stood behind others, so the
 * sender's waits end. It is the sender, before its posts: the receiver's computes go on until they wait. */
static bool run_rank(struct rank *rank)
{
	struct trial *trial = rank->trial;
	uint32_t self = rank->seat->rank;
	cudaStream_t stream = pp_cuda_of(pp_test_gpu_device(rank->seat))->compute;
	bool holds = trial->held == self, fine = true;
	if (holds && self == SENDER)
		cudaLaunchHostFunc(stream, hold, trial);
	post_all(rank);
	if (holds && self == RECEIVER)
		cudaLaunchHostFunc(stream, hold, trial);
	pthread_barrier_wait(&trial->together);
	while (!on_their_way(rank))
		doze();
	if (self == SENDER && !holds)
		wait_all(rank);
	if (!holds) {
		fine = runs(rank);
		atomic_store(&trial->released, true);
	}
	if (self == RECEIVER || holds)
		wait_all(rank);
	return fine;
}

static bool run(void *context, const struct pp_test_seat *seat)
{
	struct trial *trial = context;
	struct pp_status status;
	float values[MESSAGES * BYTES / sizeof(float)], found[MESSAGES * BYTES / sizeof(float)];
	enum { COUNT = sizeof values / sizeof *values };
	for (size_t i = 0; i < COUNT; i++) {
		values[i] = (float)i;
		found[i] = -1;
	}
	struct rank rank = {.trial = trial,
	                    .seat = seat,
	                    .ops = &pp_transport_queued_ordered,
	                    .endpoint = pp_queued_open(trial->program, (struct pp_coord){.pp = seat->rank}, PP_LAYOUT_RANK,
	                                               seat->ops, seat->endpoint, &status),
	                    .room = seat->memory->take(seat->memory->context, sizeof values)};
	seat->memory->put(seat->memory->context, rank.room, seat->rank == SENDER ? values : found, sizeof values);
	pthread_barrier_wait(&trial->together); /* what `put` does waits for the whole GPU */
	bool fine = run_rank(&rank);
	seat->memory->get(seat->memory->context, found, rank.room, sizeof found);
	for (size_t i = 0; i < COUNT; i++)
		fine = fine && found[i] == values[i];
	seat->memory->give(seat->memory->context, rank.room);
	pp_queued_close(rank.endpoint);
	return fine;
}

static void nothing_else_waits(void **state)
{
	struct pp_program *program = *state;
	for (uint32_t held = 0; held < 2; held++) {
		struct trial trial = {.program = program, .held = held};
		for (uint32_t c = 0; c < program->channel_count; c++)
			if (program->channels[c].source == SENDER)
				trial.channel = c;
		pthread_barrier_init(&trial.together, NULL, 2);
		assert_true(pp_test_threads(&pp_test_world_cuda, program, &(struct pp_transport_options){0}, run, &trial));
		pthread_barrier_destroy(&trial.together);
	}
}

static int make(void **state)
{
	*state = pp_sample_program(pp_arena_create(NULL), &(struct pp_sample){.ranks = 2,
	                                                                      .chunks = 1,
	                                                                      .microbatches = MESSAGES,
	                                                                      .out_count = BYTES / sizeof(float),
	                                                                      .grad_count = BYTES / sizeof(float)});
	return 0;
}

static int drop(void **state)
{
	pp_arena_destroy(((struct pp_program *)*state)->arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_else_waits)};
	return cmocka_run_group_tests(tests, make, drop);
}
