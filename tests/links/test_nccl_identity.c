/* --check-identity over NCCL: at the next exchange all ranks know that the ends of a channel, or the members of a
 * group, have posted different things, even of the same size. */
#include "gpu_worlds.h"

#include "support/sample_program.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 3, STEPS = 2, ODD = 2 }; /* ODD: the rank that means something else */

struct trial {
	struct pp_program *program;
	bool checked;
	bool other_message;   /* at rank ODD, in the second step */
	const char *expected; /* by all ranks; NULL: nothing */
};

/* Rank 1 sends to rank 2, both as microbatch 1. */
static void pass(const struct trial *trial, const struct pp_test_seat *seat, unsigned char *room, bool odd)
{
	struct pp_instr instr = {.dtype = PP_F32, .mb = odd && trial->other_message ? 2 : 1, .count = 4};
	for (uint32_t channel = 0; channel < trial->program->channel_count; channel++)
		if (trial->program->channels[channel].source == 1 && trial->program->channels[channel].destination == 2)
			instr.a[0] = channel;
	if (seat->rank == 1)
		seat->ops->post_send(seat->endpoint, &instr, room);
	if (seat->rank == 2)
		seat->ops->post_recv(seat->endpoint, &instr, room + 64);
	if (seat->rank != 0)
		assert_int_equal(seat->ops->test(seat->endpoint, instr.a[0], 0), PP_DONE);
}

/* Every rank gives the world its number; true: what comes back is right, or fails with the expected text. */
static bool meet(const struct trial *trial, const struct pp_test_seat *seat, bool last)
{
	uint32_t mine = 100 + seat->rank, all[RANKS] = {0};
	enum pp_progress progress;
	seat->ops->exchange(seat->endpoint, &mine, all, sizeof mine);
	while ((progress = seat->ops->test_exchange(seat->endpoint)) == PP_PENDING)
		;
	if (last && trial->expected)
		return progress == PP_FAILED && strcmp(seat->ops->failure(seat->endpoint), trial->expected) == 0;
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (all[rank] != 100 + rank)
			return false;
	return progress == PP_DONE;
}

static bool run(void *context, const struct pp_test_seat *seat)
{
	const struct trial *trial = context;
	unsigned char *room = seat->memory->take(seat->memory->context, 128), found[16];
	bool fine = true;
	for (int step = 1; step <= STEPS && fine; step++) {
		pass(trial, seat, room, step == STEPS && seat->rank == ODD);
		seat->memory->get(seat->memory->context, found, room, sizeof found);
		fine = meet(trial, seat, step == STEPS);
	}
	seat->memory->give(seat->memory->context, room);
	return fine;
}

static void try(const struct trial *trial)
{
	int status;
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(!pp_test_threads(&pp_test_world_nccl, trial->program,
		                       &(struct pp_transport_options){.check_identity = trial->checked}, run,
		                       (void *)(uintptr_t)trial));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void other_messages_are_found(void **state)
{
	struct trial trial = {.program = *state, .checked = true};
	try(&trial);
	trial.other_message = true;
	trial.expected =
	    "message identity differs: on c2 (rank 1 to rank 2), rank 1 and rank 2 have not posted the same; find "
	    "the message with --check-identity --staged";
	try(&trial);
	trial.checked = false;
	trial.expected = NULL;
	try(&trial);
}

static int make(void **state)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	*state = pp_sample_program(
	    arena, &(struct pp_sample){.ranks = RANKS, .chunks = 1, .microbatches = 3, .out_count = 4, .grad_count = 4});
	return 0;
}

static int drop(void **state)
{
	pp_arena_destroy(((struct pp_program *)*state)->arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(other_messages_are_found)};
	setenv("PP_FAKE_DEVICES", "3", 1);
	return cmocka_run_group_tests(tests, make, drop);
}
