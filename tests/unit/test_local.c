/* The local transport before the judge of transports, ranks as threads; what is left for processes: tests/spawn. */
#include "support/conformance.h"

#include "support/sample_program.h"

#include "ir/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void does_what_the_loop_does(void **state)
{
	(void)state;
	for (uint32_t ranks = 1; ranks <= 3; ranks++)
		assert_int_equal(pp_conformance_threads(&pp_test_world_local, ranks), 0);
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

struct pair {
	struct pp_arena *arena;
	struct pp_program *program;
	void *world;
	struct pp_test_seat seats[2];
	const struct pp_instr *send, *recv;
};

static const struct pp_instr *first(const struct pp_program *program, uint32_t rank, enum pp_op op)
{
	const struct pp_instr *instr = program->programs[0].streams[rank].items;
	while (instr->op != op)
		instr++;
	return instr;
}

static struct pair open_pair(void)
{
	struct pair pair = {.arena = pp_arena_create(NULL)};
	pair.program =
	    pp_sample_program(pair.arena, &(struct pp_sample){.ranks = 2, .chunks = 1, .microbatches = 2, .out_count = 8});
	pair.world = pp_test_world_local.open(pair.program, &(struct pp_transport_options){.check_identity = true});
	for (uint32_t i = 0; i < 2; i++)
		pp_test_world_local.enter(pair.world, i, &pair.seats[i]);
	pair.send = first(pair.program, 0, PP_OP_SEND);
	pair.recv = first(pair.program, 1, PP_OP_RECV);
	return pair;
}

static void close_pair(struct pair *pair)
{
	for (uint32_t i = 0; i < 2; i++)
		pp_test_world_local.leave(&pair->seats[i]);
	pp_test_world_local.close(pair->world);
	pp_arena_destroy(pair->arena);
}

/* Not even eight floats are sent before they are wanted. */
static void nothing_is_buffered(void **state)
{
	(void)state;
	const struct pp_transport_ops *ops = pp_test_world_local.ops;
	struct pair pair = open_pair();
	struct pp_endpoint *sender = pair.seats[0].endpoint, *receiver = pair.seats[1].endpoint;
	float from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, to[8] = {0};
	ops->post_send(sender, pair.send, from);
	for (int i = 0; i < 5; i++)
		assert_int_equal(ops->test(sender, pair.send->a[0], 0), PP_PENDING);
	from[7] = 9;
	ops->post_recv(receiver, pair.recv, to);
	assert_int_equal(ops->test(receiver, pair.recv->a[0], 0), PP_PENDING);
	assert_int_equal(ops->test(sender, pair.send->a[0], 0), PP_DONE);
	assert_int_equal(ops->test(receiver, pair.recv->a[0], 0), PP_DONE);
	assert_memory_equal(from, to, sizeof to);
	close_pair(&pair);
}

static void identity_is_checked(void **state)
{
	(void)state;
	const struct pp_transport_ops *ops = pp_test_world_local.ops;
	struct pair pair = open_pair();
	struct pp_instr other = *pair.recv;
	float from[8] = {0}, to[8] = {0};
	other.mb = 1;
	ops->post_recv(pair.seats[1].endpoint, &other, to);
	ops->post_send(pair.seats[0].endpoint, pair.send, from);
	assert_int_equal(ops->test(pair.seats[1].endpoint, other.a[0], 0), PP_FAILED);
	assert_non_null(strstr(ops->failure(pair.seats[1].endpoint), "message identity differs: sent c0 #0 act s0 m0"));
	close_pair(&pair);
}

static void giving_up_is_told(void **state)
{
	(void)state;
	const struct pp_transport_ops *ops = pp_test_world_local.ops;
	struct pair pair = open_pair();
	float from[8] = {0};
	ops->post_send(pair.seats[0].endpoint, pair.send, from);
	ops->give_up(pair.seats[1].endpoint, "no more ink");
	assert_int_equal(ops->test(pair.seats[0].endpoint, pair.send->a[0], 0), PP_FAILED);
	assert_string_equal(ops->failure(pair.seats[0].endpoint), "rank 1 gave up");
	assert_string_equal(ops->failure(pair.seats[1].endpoint), "no more ink");
	close_pair(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(does_what_the_loop_does),
	    cmocka_unit_test(nothing_is_buffered),
	    cmocka_unit_test(identity_is_checked),
	    cmocka_unit_test(giving_up_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
