/* Launches that start in program order: what the proof says of a program, a layout of queues and that order is what
 * happens to its posts on the fake device's NCCL, where they start like that whatever the link decides. */
#include "gpu_worlds.h"

#include "unit/lowering_fixture.h"

#include "codegen/plan_memory.h"
#include "ir/verify.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLOCK = 86, TOGETHER = 16 };

/* ---- the posts and waits of a stream --------------------------------------------------------- */

static bool run_stream(void *context, const struct pp_test_seat *seat)
{
	const struct pp_program *program = context;
	const struct pp_stream *stream = &program->programs[0].streams[seat->rank];
	const struct pp_test_memory *memory = seat->memory;
	uint64_t bytes = sizeof(float), at = 0;
	for (uint32_t i = 0; i < stream->count; i++)
		if (stream->items[i].op == PP_OP_SEND || stream->items[i].op == PP_OP_RECV)
			bytes += pp_payload_bytes(&stream->items[i]);
	unsigned char *room = memory->take(memory->context, bytes);
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (instr->op == PP_OP_SEND)
			seat->ops->post_send(seat->endpoint, instr, room + at);
		else if (instr->op == PP_OP_RECV)
			seat->ops->post_recv(seat->endpoint, instr, room + at);
		else if (instr->op == PP_OP_WAIT && seat->ops->test(seat->endpoint, instr->a[0], instr->a[1]) != PP_DONE)
			return false;
		if (instr->op == PP_OP_SEND || instr->op == PP_OP_RECV)
			at += pp_payload_bytes(instr);
	}
	float last;
	memory->get(memory->context, &last, room + at, sizeof last); /* behind all that the device was given */
	memory->give(memory->context, room);
	return true;
}

/* ---- many programs --------------------------------------------------------------------------- */

struct trial {
	pid_t child;
	bool proven;
	char name[64];
};

struct trials {
	struct trial items[TOGETHER];
	unsigned count;
	unsigned ended[2]; /* by what was proven */
};

static void collect(struct trials *trials)
{
	for (unsigned i = 0; i < trials->count; i++) {
		const struct trial *trial = &trials->items[i];
		int status;
		assert_int_equal(waitpid(trial->child, &status, 0), trial->child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != (trial->proven ? 0 : DEADLOCK))
			fail_msg("%s: %s, and ends with %d", trial->name, trial->proven ? "proven" : "not proven",
			         WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
		trials->ended[trial->proven]++;
	}
	trials->count = 0;
}

static void begin(struct trials *trials, struct pp_program *program, enum pp_layout layout, const char *name)
{
	struct trial *trial = &trials->items[trials->count++];
	trial->proven = program->stamp.in_order >> layout & 1;
	snprintf(trial->name, sizeof trial->name, "%s, queues per %s", name, pp_layout_name[layout]);
	fflush(NULL);
	trial->child = fork();
	assert_true(trial->child >= 0);
	if (trial->child == 0) {
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
		_exit(!pp_test_threads(&pp_test_worlds_nccl[layout], program, &(struct pp_transport_options){0}, run_stream,
		                       program));
	}
	if (trials->count == TOGETHER)
		collect(trials);
}

/* In the finest layout; where they differ, in the coarsest that is proven too. */
static void try(struct trials *trials, struct world *w, enum pp_lowered lowering, const char *name)
{
	w->program.lowering = (uint8_t)lowering;
	lower(w);
	assert_true(pp_plan_memory(&w->program, w->diag) && pp_verify(&w->program, &w->program.stamp, w->diag));
	unsigned coarsest = PP_LAYOUT_RANK;
	while (!(w->program.stamp.layouts >> coarsest & 1))
		coarsest--;
	begin(trials, &w->program, PP_LAYOUT_CHANNEL, name);
	if (lowering == PP_LOWERED_FREE && coarsest != PP_LAYOUT_CHANNEL)
		begin(trials, &w->program, (enum pp_layout)coarsest, name);
}

static void families_do_as_proven(void **state)
{
	(void)state;
	struct trials trials = {0};
	for (unsigned family = 0; family < FAMILIES; family++)
		for (unsigned lowering = PP_LOWERED_END; lowering <= PP_LOWERED_FREE; lowering++) {
			struct world w = make_world(family);
			char name[32];
			snprintf(name, sizeof name, "family %u, %s", family, pp_lowered_name[lowering]);
			write_family(&w, family, 3, 3);
			make_program(&w, 100, 100, 100, 10);
			try(&trials, &w, (enum pp_lowered)lowering, name);
			end_world(&w);
		}
	collect(&trials);
	assert_true(trials.ended[false] >= FAMILIES && trials.ended[true] >= 3 * FAMILIES);
}

/* Orders of all kinds, few microbatches: some of them hold where posts start in order, though not in all layouts. */
static void orders_do_as_proven(void **state)
{
	(void)state;
	struct trials trials = {0};
	unsigned between = 0;
	for (uint64_t seed = 0; seed < 10; seed++) {
		struct world w = make_world(seed);
		char name[32];
		snprintf(name, sizeof name, "seed %u", (unsigned)seed);
		draw_schedule(&w, 4, 3, 2);
		make_program(&w, 100, 100, 100, 10);
		try(&trials, &w, PP_LOWERED_FREE, name);
		between += w.program.stamp.in_order && w.program.stamp.layouts != PP_ALL_LAYOUTS;
		end_world(&w);
	}
	collect(&trials);
	printf("  %u run through, %u get stuck; %u programs hold in some layouts only\n", trials.ended[true],
	       trials.ended[false], between);
	assert_true(trials.ended[true] && trials.ended[false] && between);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(families_do_as_proven),
	    cmocka_unit_test(orders_do_as_proven),
	};
	/* Before there are threads. */
	setenv("PP_FAKE_ORDERED", "1", 1);
	setenv("PP_FAKE_DEVICES", "4", 1);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
