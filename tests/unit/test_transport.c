/* The loop transport and the interpreter: rendezvous, FIFO, member order sums, identity, deadlines, failures. */
#include "support/run_rank.h"
#include "support/sample_program.h"

#include "executor/transport/transport_loop.h"
#include "ir/arena.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TIMEOUT_NS = 20000000 };

static const uint64_t long_timeout = UINT64_C(60000000000);

/* Two ranks, one channel each way: enough to drive endpoints by hand from one thread. */
struct pair {
	struct pp_arena *arena;
	struct pp_program *program;
	struct pp_loop *loop;
	struct pp_endpoint *end[2];
	const struct pp_transport_ops *ops;
	uint32_t act; /* channel 0 -> 1 */
};

static struct pair make_pair(uint32_t count, bool check_identity)
{
	struct pair pair = {.arena = pp_arena_create(NULL), .ops = &pp_transport_loop};
	struct pp_status status;
	pair.program = pp_sample_program(
	    pair.arena,
	    &(struct pp_sample){.ranks = 2, .chunks = 1, .microbatches = 3, .out_count = count, .grad_count = count});
	pair.loop = pp_loop_create(pair.program, &(struct pp_transport_options){.check_identity = check_identity}, &status);
	assert_non_null(pair.loop);
	for (uint32_t rank = 0; rank < 2; rank++)
		pair.end[rank] = pp_loop_endpoint(pair.loop, rank);
	assert_int_equal(pair.program->channels[0].source, 0);
	return pair;
}

static void free_pair(struct pair *pair)
{
	pp_loop_destroy(pair->loop);
	pp_arena_destroy(pair->arena);
}

static struct pp_instr message(enum pp_op op, uint32_t channel, uint32_t seq, uint32_t mb, uint32_t count)
{
	return (struct pp_instr){
	    .op = (uint8_t)op, .dtype = PP_F32, .mb = mb, .a = {channel, seq, 0, PP_NULL}, .count = count};
}

static void a_send_alone_never_completes(void **state)
{
	(void)state;
	struct pair pair = make_pair(2, false);
	float from[2] = {1, 2}, to[2] = {0, 0};
	struct pp_instr send = message(PP_OP_SEND, 0, 0, 0, 2), recv = message(PP_OP_RECV, 0, 0, 0, 2);
	pair.ops->post_send(pair.end[0], &send, from);
	for (int i = 0; i < 1000; i++) {
		pair.ops->poll(pair.end[1]);
		assert_int_equal(pair.ops->test(pair.end[0], 0, 0), PP_PENDING);
	}
	from[0] = 7; /* read when the transfer starts, not when it was posted */
	pair.ops->post_recv(pair.end[1], &recv, to);
	assert_int_equal(pair.ops->test(pair.end[0], 0, 0), PP_DONE);
	assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_DONE);
	assert_true(to[0] == 7 && to[1] == 2);
	free_pair(&pair);
}

static void a_receive_alone_never_completes(void **state)
{
	(void)state;
	struct pair pair = make_pair(2, false);
	float from[2] = {1, 2}, to[2] = {5, 5};
	struct pp_instr send = message(PP_OP_SEND, 0, 0, 0, 2), recv = message(PP_OP_RECV, 0, 0, 0, 2);
	pair.ops->post_recv(pair.end[1], &recv, to);
	assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_PENDING);
	pair.ops->poll(pair.end[0]);
	assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_PENDING);
	assert_true(to[0] == 5);
	pair.ops->post_send(pair.end[0], &send, from);
	assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_DONE);
	assert_true(to[0] == 1 && to[1] == 2);
	free_pair(&pair);
}

static void channels_are_first_in_first_out(void **state)
{
	(void)state;
	struct pair pair = make_pair(1, true);
	float from[3] = {10, 11, 12}, to[3] = {0, 0, 0};
	struct pp_instr send[3], recv[3];
	for (uint32_t step = 0; step < 3; step++) { /* seq starts again in every step */
		for (uint32_t q = 0; q < 3; q++) {
			send[q] = message(PP_OP_SEND, 0, q, q, 1);
			recv[q] = message(PP_OP_RECV, 0, q, q, 1);
			pair.ops->post_send(pair.end[0], &send[q], &from[q]);
		}
		pair.ops->post_recv(pair.end[1], &recv[0], &to[2]);
		assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_DONE);
		assert_int_equal(pair.ops->test(pair.end[0], 0, 1), PP_PENDING);
		pair.ops->post_recv(pair.end[1], &recv[1], &to[1]);
		pair.ops->post_recv(pair.end[1], &recv[2], &to[0]);
		assert_int_equal(pair.ops->test(pair.end[1], 0, 2), PP_DONE); /* out of order is fine */
		assert_int_equal(pair.ops->test(pair.end[0], 0, 1), PP_DONE);
		assert_true(to[2] == 10 && to[1] == 11 && to[0] == 12);
	}
	free_pair(&pair);
}

static void empty_messages_still_meet(void **state)
{
	(void)state;
	struct pair pair = make_pair(1, true);
	struct pp_instr send = message(PP_OP_SEND, 0, 0, 0, 0), recv = message(PP_OP_RECV, 0, 0, 0, 0);
	float nothing = 3;
	pair.ops->post_send(pair.end[0], &send, &nothing);
	assert_int_equal(pair.ops->test(pair.end[0], 0, 0), PP_PENDING);
	pair.ops->post_recv(pair.end[1], &recv, &nothing);
	assert_int_equal(pair.ops->test(pair.end[0], 0, 0), PP_DONE);
	assert_true(nothing == 3);
	free_pair(&pair);
}

static void identity_is_checked_on_request(void **state)
{
	(void)state;
	for (int check = 0; check < 2; check++) {
		struct pair pair = make_pair(1, check == 1);
		float from = 1, to = 0;
		struct pp_instr send = message(PP_OP_SEND, 0, 0, 1, 1), recv = message(PP_OP_RECV, 0, 0, 2, 1);
		pair.ops->post_send(pair.end[0], &send, &from);
		pair.ops->post_recv(pair.end[1], &recv, &to);
		assert_int_equal(pair.ops->test(pair.end[1], 0, 0), check ? PP_FAILED : PP_DONE);
		if (check)
			assert_string_equal(pair.ops->failure(pair.end[1]),
			                    "message identity differs: sent c0 #0 act s0 m1, 4 bytes of f32; expected c0 #0 act s0 "
			                    "m2, 4 bytes of f32");
		free_pair(&pair);
	}
}

static void sizes_are_always_checked(void **state)
{
	(void)state;
	struct pair pair = make_pair(2, false);
	float from[2] = {1, 2}, to[2] = {0, 0};
	struct pp_instr send = message(PP_OP_SEND, 0, 0, 0, 2), recv = message(PP_OP_RECV, 0, 0, 0, 1);
	pair.ops->post_send(pair.end[0], &send, from);
	pair.ops->post_recv(pair.end[1], &recv, to);
	assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_FAILED);
	assert_true(to[0] == 0 && to[1] == 0);
	free_pair(&pair);
}

static void a_rank_that_gives_up_fails_the_others(void **state)
{
	(void)state;
	struct pair pair = make_pair(1, false);
	float to = 0;
	struct pp_instr recv = message(PP_OP_RECV, 0, 0, 0, 1);
	pair.ops->post_recv(pair.end[1], &recv, &to);
	pair.ops->give_up(pair.end[0], "out of patience");
	pair.ops->give_up(pair.end[1], "later");
	assert_int_equal(pair.ops->test(pair.end[1], 0, 0), PP_FAILED);
	assert_string_equal(pair.ops->failure(pair.end[1]), "rank 0 gave up");
	assert_string_equal(pair.ops->failure(pair.end[0]), "out of patience");
	pair.ops->exchange(pair.end[1], NULL, NULL, 0);
	assert_int_equal(pair.ops->test_exchange(pair.end[1]), PP_FAILED);
	free_pair(&pair);
}

static void sums_go_in_member_order(void **state)
{
	(void)state;
	enum { COUNT = 3000 };
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program = pp_sample_program(
	    arena, &(struct pp_sample){.ranks = 3, .chunks = 1, .microbatches = 1, .out_count = 1, .grad_count = COUNT});
	struct pp_status status;
	struct pp_loop *loop = pp_loop_create(program, &(struct pp_transport_options){0}, &status);
	const struct pp_transport_ops *ops = &pp_transport_loop;
	double *values = malloc(3 * COUNT * sizeof *values), *sums = malloc(COUNT * sizeof *sums);
	struct pp_instr coll = {.op = PP_OP_COLL, .sub = PP_ALLREDUCE, .dtype = PP_F64, .a = {4, 0, 0, 0}, .count = COUNT};
	for (int i = 0; i < COUNT; i++) {
		values[i] = 1.0 + i;
		values[COUNT + i] = 1e16;
		values[2 * COUNT + i] = -1e16;
		sums[i] = ((1.0 + i) + 1e16) + -1e16;
	}
	assert_true(sums[0] != 1.0 && sums[2] != 3.0); /* any other order gives 1 + i */
	const uint32_t order[3] = {2, 0, 1};           /* of posting */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(i == 0 ? PP_PENDING : ops->test_coll(pp_loop_endpoint(loop, order[0]), 4), PP_PENDING);
		ops->post_coll(pp_loop_endpoint(loop, order[i]), &coll, &values[order[i] * COUNT], &values[order[i] * COUNT]);
	}
	for (uint32_t rank = 0; rank < 3; rank++) {
		assert_int_equal(ops->test_coll(pp_loop_endpoint(loop, rank), 4), PP_DONE);
		assert_memory_equal(&values[rank * COUNT], sums, COUNT * sizeof *sums);
	}
	free(values);
	free(sums);
	pp_loop_destroy(loop);
	pp_arena_destroy(arena);
}

static void exchange_gathers_in_rank_order(void **state)
{
	(void)state;
	struct pair pair = make_pair(1, false);
	for (int round = 0; round < 3; round++) {
		int mine[2] = {10 + round, 20 + round}, all[2][2] = {{0}};
		pair.ops->exchange(pair.end[0], &mine[0], all[0], sizeof(int));
		assert_int_equal(pair.ops->test_exchange(pair.end[0]), PP_PENDING);
		pair.ops->exchange(pair.end[1], &mine[1], all[1], sizeof(int));
		while (pair.ops->test_exchange(pair.end[0]) != PP_DONE)
			pair.ops->test_exchange(pair.end[1]);
		assert_int_equal(pair.ops->test_exchange(pair.end[1]), PP_DONE);
		for (int i = 0; i < 2; i++)
			assert_memory_equal(all[i], mine, sizeof mine);
	}
	free_pair(&pair);
}

/* ---- whole programs -------------------------------------------------------------------------- */

static void run_sample(const struct pp_sample *sample, const struct pp_test_run *like, struct pp_test_result *results)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_test_run run = *like;
	run.program = pp_sample_program(arena, sample);
	run.transport = &pp_transport_loop;
	pp_test_run_loop(&run, results);
	pp_arena_destroy(arena);
}

static void every_value_reaches_its_place(void **state)
{
	(void)state;
	const struct {
		uint32_t ranks, chunks, microbatches, count;
		bool split;
	} cases[] = {{1, 1, 1, 16, false}, {1, 3, 4, 16, true},     {2, 1, 4, 16, false},  {2, 2, 4, 1024, true},
	             {3, 2, 5, 7, false},  {4, 2, 4, 16386, false}, {4, 1, 1, 1024, true}, {8, 1, 3, 0, false}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pp_test_result plain[8], shaken[8];
		struct pp_sample sample = {.ranks = cases[i].ranks,
		                           .chunks = cases[i].chunks,
		                           .microbatches = cases[i].microbatches,
		                           .out_count = cases[i].count,
		                           .grad_count = 2000,
		                           .split = cases[i].split};
		struct pp_test_run run = {.steps = 3, .timeout = long_timeout, .options = {.check_identity = true}};
		run_sample(&sample, &run, plain);
		run.jitter = 7 + i;
		run.steps = 1;
		run_sample(&sample, &run, shaken);
		for (uint32_t rank = 0; rank < cases[i].ranks; rank++) {
			assert_true(plain[rank].ok && shaken[rank].ok);
			assert_string_equal(plain[rank].first, "");
			assert_string_equal(shaken[rank].first, "");
			assert_int_equal(plain[rank].errors + shaken[rank].errors, 0);
			assert_true(plain[rank].digest == plain[0].digest); /* all hold the same sums */
			assert_true(plain[rank].digest == shaken[rank].digest);
		}
	}
}

static void a_wrong_program_is_noticed(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program =
	    pp_sample_program(arena, &(struct pp_sample){.ranks = 2, .chunks = 1, .microbatches = 2, .out_count = 8});
	struct pp_stream *stream = &program->programs[0].streams[1];
	assert_int_equal(stream->items[0].op, PP_OP_RECV);
	uint32_t slot = stream->items[0].a[2];
	stream->items[0].a[2] = stream->items[1].a[2];
	stream->items[1].a[2] = slot;
	struct pp_test_result results[2];
	pp_test_run_loop(
	    &(struct pp_test_run){.program = program, .transport = &pp_transport_loop, .steps = 1, .timeout = long_timeout},
	    results);
	assert_int_equal(results[1].errors, 2);
	assert_string_equal(results[1].first, "rank 1: wrong activation at s1 m0 step 1");
	pp_arena_destroy(arena);
}

static void a_lost_rank_ends_the_run(void **state)
{
	(void)state;
	const enum pp_fault_kind kinds[] = {PP_FAULT_EXIT, PP_FAULT_FAIL};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct pp_test_result results[4];
		struct pp_test_run run = {.steps = 2,
		                          .timeout = kinds[i] == PP_FAULT_EXIT ? TIMEOUT_NS : long_timeout,
		                          .fault = {.kind = kinds[i], .rank = 2, .index = 7}};
		run_sample(&(struct pp_sample){.ranks = 4, .chunks = 1, .microbatches = 4, .out_count = 8}, &run, results);
		for (uint32_t rank = 0; rank < 4; rank++) {
			assert_false(results[rank].ok);
			assert_int_equal(results[rank].status.code, PP_EXIT_RUN);
		}
		assert_non_null(strstr(results[2].status.text, "planted fault"));
	}
}

static void a_stuck_rank_reports_where_it_is(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_program *program =
	    pp_sample_program(arena, &(struct pp_sample){.ranks = 2, .chunks = 1, .microbatches = 1, .out_count = 8});
	struct pp_test_result results[2];
	struct pp_watch watches[2];
	struct pp_test_run run = {.program = program,
	                          .transport = &pp_transport_loop,
	                          .steps = 1,
	                          .timeout = TIMEOUT_NS,
	                          .fault = {.kind = PP_FAULT_EXIT, .rank = 0, .index = 1},
	                          .watches = watches};
	pp_test_run_loop(&run, results);
	/* What a report says is kept when a run fails; "finishing" is what the helper does afterwards. */
	pp_watch_enter(&watches[1], &program->programs[0].streams[1], 1, 0);
	pp_watch_at(&watches[1], 1);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	assert_true(pp_watch_report(&watches[1], "why not", out));
	assert_false(pp_watch_report(&watches[1], "why not", out));
	fclose(out);
	assert_string_equal(text, "piperun: rank 1 runs: wait for recv act s0 m0 (step 1, instruction 1 of 6); why not\n");
	free(text);
	pp_arena_destroy(arena);
}

static void faults_are_read(void **state)
{
	(void)state;
	struct pp_fault fault;
	struct pp_status status;
	assert_true(pp_fault_parse("2:13:sleep", &fault, &status));
	assert_int_equal(fault.kind, PP_FAULT_SLEEP);
	assert_int_equal(fault.rank, 2);
	assert_int_equal(fault.index, 13);
	assert_int_equal(pp_fault_index(&fault, 2, 1), 13);
	assert_int_equal(pp_fault_index(&fault, 2, 2), UINT32_MAX);
	assert_int_equal(pp_fault_index(&fault, 1, 1), UINT32_MAX);
	assert_true(pp_fault_parse("3:0@7:nan", &fault, &status));
	assert_int_equal(fault.kind, PP_FAULT_NAN);
	assert_int_equal(pp_fault_index(&fault, 3, 6), UINT32_MAX);
	assert_int_equal(pp_fault_index(&fault, 3, 8), 0);
	assert_true(pp_fault_parse("1:save:7:kill", &fault, &status));
	assert_int_equal(fault.kind, PP_FAULT_NONE);
	assert_int_equal(fault.saving, PP_SAVING_KILL);
	assert_int_equal(fault.rank, 1);
	assert_int_equal(fault.index, 7);
	assert_false(pp_fault_parse("1:save:7:exit", &fault, &status));
	assert_false(pp_fault_parse("2:13:explode", &fault, &status));
	assert_int_equal(status.code, PP_EXIT_USAGE);
	assert_string_equal(status.text,
	                    "PP_FAULT=2:13:explode: want "
	                    "RANK:INSTRUCTION[@STEP]:exit|fail|sleep|kill|stop|skip|cut|nan, such as 2:3:exit");
	assert_false(pp_fault_parse("2:sleep", &fault, &status));
	assert_false(pp_fault_parse("2:3:exit5", &fault, &status));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_send_alone_never_completes),
	    cmocka_unit_test(a_receive_alone_never_completes),
	    cmocka_unit_test(channels_are_first_in_first_out),
	    cmocka_unit_test(empty_messages_still_meet),
	    cmocka_unit_test(identity_is_checked_on_request),
	    cmocka_unit_test(sizes_are_always_checked),
	    cmocka_unit_test(a_rank_that_gives_up_fails_the_others),
	    cmocka_unit_test(sums_go_in_member_order),
	    cmocka_unit_test(exchange_gathers_in_rank_order),
	    cmocka_unit_test(every_value_reaches_its_place),
	    cmocka_unit_test(a_wrong_program_is_noticed),
	    cmocka_unit_test(a_lost_rank_ends_the_run),
	    cmocka_unit_test(a_stuck_rank_reports_where_it_is),
	    cmocka_unit_test(faults_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
