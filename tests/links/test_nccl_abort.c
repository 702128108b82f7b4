/* Giving up over NCCL: operations that stand behind those of another communicator, which never end, do not keep the
 * rank from leaving. */
#include "gpu_worlds.h"

#include "support/sample_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { COUNT = 4 };

/* The middle one of three ranks waits for a gradient that does not come; behind that it sends on all its channels, some
 * of which come before that of the gradient, some after. */
static bool run(void *context, const struct pp_test_seat *seat)
{
	const struct pp_program *program = context;
	unsigned char *room = seat->memory->take(seat->memory->context, 256);
	uint32_t awaited = PP_NULL;
	for (uint32_t c = 0; c < program->channel_count; c++)
		if (program->channels[c].source == 2 && program->channels[c].destination == 1)
			awaited = c;
	bool fine = true;
	if (seat->rank == 1) {
		struct pp_instr recv = {.op = PP_OP_RECV, .dtype = PP_F32, .count = COUNT, .a = {awaited}};
		seat->ops->post_recv(seat->endpoint, &recv, room);
		fine = seat->ops->test(seat->endpoint, awaited, 0) == PP_DONE;
		for (uint32_t c = 0; c < program->channel_count; c++) {
			struct pp_instr send = {.op = PP_OP_SEND, .dtype = PP_F32, .count = COUNT, .a = {c}};
			if (program->channels[c].source == 1)
				seat->ops->post_send(seat->endpoint, &send, room + 64);
		}
	}
	seat->ops->give_up(seat->endpoint, "a test");
	seat->memory->give(seat->memory->context, room);
	return fine;
}

static void a_rank_leaves(void **state)
{
	int status;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(!pp_test_threads(&pp_test_world_nccl, *state, &(struct pp_transport_options){0}, run, *state));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int make(void **state)
{
	*state = pp_sample_program(
	    pp_arena_create(NULL),
	    &(struct pp_sample){.ranks = 3, .chunks = 1, .microbatches = 3, .out_count = COUNT, .grad_count = COUNT});
	return 0;
}

static int drop(void **state)
{
	pp_arena_destroy(((struct pp_program *)*state)->arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_leaves)};
	setenv("PP_FAKE_DEVICES", "3", 1);
	return cmocka_run_group_tests(tests, make, drop);
}
