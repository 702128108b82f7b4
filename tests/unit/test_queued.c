/* Posts in queues: they hold each other up as the simulator and the verifier say, layout by layout. A program runs in
 * all layouts that it is proven for, with the same bits; in the others the ranks get stuck, which is why piperun
 * refuses them. */
#include "lowering_fixture.h"
#include "model_fixture.h"

#include "codegen/plan_memory.h"
#include "executor/start_check.h"
#include "executor/transport/queued.h"
#include "executor/transport/transport_loop.h"
#include "ir/simulate.h"
#include "ir/verify.h"
#include "support/build_program.h"
#include "support/training.h"

enum { QUEUED = PP_LAYOUT_BLOCKING }; /* layouts of a transport */

/* ---- by hand --------------------------------------------------------------------------------- */

/* All ranks of a program over queued endpoints, driven by one thread. */
struct hand {
	const struct pp_program *program;
	struct pp_loop *loop;
	struct pp_endpoint **ends;
	unsigned char **memory; /* one buffer per rank: contents do not matter here */
	uint32_t *at;
};

static struct hand take(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout)
{
	struct hand hand = {.program = program};
	struct pp_status status;
	hand.loop = pp_loop_create(program, &(struct pp_transport_options){.check_identity = true}, &status);
	assert_non_null(hand.loop);
	hand.ends = PP_NEW_ARRAY(arena, struct pp_endpoint *, program->ranks);
	hand.memory = PP_NEW_ARRAY(arena, unsigned char *, program->ranks);
	hand.at = PP_NEW_ARRAY(arena, uint32_t, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t most = 1;
		for (uint32_t i = 0; i < program->rank[r].slot_count; i++)
			most = program->rank[r].slots[i].bytes > most ? program->rank[r].slots[i].bytes : most;
		hand.memory[r] = PP_NEW_ARRAY(arena, unsigned char, most);
		hand.ends[r] = pp_queued_open(program, (struct pp_coord){.pp = r}, layout, &pp_transport_loop,
		                              pp_loop_endpoint(hand.loop, r), &status);
		assert_non_null(hand.ends[r]);
	}
	return hand;
}

static void let_go(struct hand *hand)
{
	for (uint32_t r = 0; r < hand->program->ranks; r++)
		pp_queued_close(hand->ends[r]);
	pp_loop_destroy(hand->loop);
}

/* False: it waits, or the stream is over. */
static bool step(struct hand *hand, uint32_t r)
{
	const struct pp_transport_ops *ops = &pp_transport_queued;
	const struct pp_stream *stream = &hand->program->programs[0].streams[r];
	if (hand->at[r] == stream->count)
		return false;
	const struct pp_instr *instr = &stream->items[hand->at[r]];
	enum pp_progress progress = PP_DONE;
	if (instr->op == PP_OP_SEND)
		ops->post_send(hand->ends[r], instr, hand->memory[r]);
	else if (instr->op == PP_OP_RECV)
		ops->post_recv(hand->ends[r], instr, hand->memory[r]);
	else if (instr->op == PP_OP_COLL)
		ops->post_coll(hand->ends[r], instr, hand->memory[r], hand->memory[r]);
	else if (instr->op == PP_OP_WAIT)
		progress = ops->test(hand->ends[r], instr->a[0], instr->a[1]);
	else if (instr->op == PP_OP_WAITC)
		progress = ops->test_coll(hand->ends[r], instr->a[0]);
	assert_int_not_equal(progress, PP_FAILED);
	hand->at[r] += progress == PP_DONE;
	return progress == PP_DONE;
}

/* Does every rank reach the end of its stream? */
static bool finishes(struct pp_arena *arena, const struct pp_program *program, enum pp_layout layout)
{
	struct hand hand = take(arena, program, layout);
	for (uint32_t idle = 0; idle < 3;) { /* a post may let another rank's go one look later */
		idle++;
		for (uint32_t r = 0; r < program->ranks; r++)
			while (step(&hand, r))
				idle = 0;
	}
	bool all = true;
	for (uint32_t r = 0; r < program->ranks; r++)
		all &= hand.at[r] == program->programs[0].streams[r].count;
	let_go(&hand);
	return all;
}

/* The post of one end of message `seq` of a channel. */
static const struct pp_instr *find(const struct pp_program *program, enum pp_op op, uint32_t channel, uint32_t seq)
{
	uint32_t r = op == PP_OP_SEND ? program->channels[channel].source : program->channels[channel].destination;
	const struct pp_stream *stream = &program->programs[0].streams[r];
	for (uint32_t i = 0; i < stream->count; i++)
		if (stream->items[i].op == op && stream->items[i].a[0] == channel && stream->items[i].a[1] == seq)
			return &stream->items[i];
	fail();
	return NULL;
}

static void the_head_of_the_line_holds_up_the_rest(void **state)
{
	(void)state;
	struct world w = make_world(1);
	write_interleaved(&w, 2, 1, 2);
	make_program(&w, 100, 100, 100, 10);
	lower(&w);
	assert_true(pp_plan_memory(&w.program, w.diag));
	const struct pp_program *program = &w.program;
	const struct pp_transport_ops *ops = &pp_transport_queued;
	const uint32_t act = 0, grad = 1;
	const struct pp_instr *posts[] = {find(program, PP_OP_SEND, act, 0), find(program, PP_OP_RECV, act, 0),
	                                  find(program, PP_OP_SEND, grad, 0), find(program, PP_OP_RECV, grad, 0)};
	for (unsigned layout = 0; layout < QUEUED; layout++) {
		struct hand hand = take(w.arena, program, (enum pp_layout)layout);
		/* Rank 0 asks for the gradient first; rank 1 wants the activation. */
		ops->post_recv(hand.ends[0], posts[3], hand.memory[0]);
		ops->post_send(hand.ends[0], posts[0], hand.memory[0]);
		ops->post_recv(hand.ends[1], posts[1], hand.memory[1]);
		bool shared = layout == PP_LAYOUT_PAIR || layout == PP_LAYOUT_RANK; /* by a send and a receive */
		for (int i = 0; i < 3; i++)
			for (uint32_t r = 0; r < 2; r++)
				assert_int_equal(ops->test(hand.ends[r], act, 0), shared ? PP_PENDING : PP_DONE);
		assert_int_equal(ops->test(hand.ends[0], grad, 0), PP_PENDING);
		ops->post_send(hand.ends[1], posts[2], hand.memory[1]);
		for (int i = 0; i < 3; i++)
			for (uint32_t r = 0; r < 2; r++)
				assert_int_equal(ops->test(hand.ends[r], grad, 0), shared ? PP_PENDING : PP_DONE);
		let_go(&hand);
	}
	end_world(&w);
}

/* ---- against simulator and verifier ---------------------------------------------------------- */

static uint32_t check_layouts(struct pp_arena *arena, const struct pp_program *program, uint32_t stamped)
{
	uint32_t finished = 0;
	for (unsigned layout = 0; layout < QUEUED; layout++) {
		struct pp_sim sim;
		bool simulated = pp_simulate(arena, program, &program->programs[0], (enum pp_layout)layout, false, &sim);
		bool ran = finishes(arena, program, (enum pp_layout)layout);
		assert_int_equal(ran, simulated);
		assert_int_equal(ran, stamped >> layout & 1);
		finished |= (uint32_t)ran << layout;
	}
	return finished;
}

static void transport_simulator_and_verifier_agree(void **state)
{
	(void)state;
	unsigned stuck[QUEUED] = {0};
	for (uint64_t seed = 0; seed < 150; seed++) {
		struct world w = make_world(seed);
		struct pp_stamp stamp;
		draw_schedule(&w, 5, 7, 3);
		make_program(&w, 100, 100, 100, 10);
		w.program.lowering = seed % 3 ? PP_LOWERED_FREE : PP_LOWERED_LAZY;
		lower(&w);
		assert_true(pp_plan_memory(&w.program, w.diag) && pp_verify(&w.program, &stamp, w.diag));
		uint32_t finished = check_layouts(w.arena, &w.program, stamp.layouts);
		for (unsigned layout = 0; layout < QUEUED; layout++)
			stuck[layout] += !(finished >> layout & 1);
		end_world(&w);
	}
	assert_int_equal(stuck[PP_LAYOUT_CHANNEL], 0);
	for (unsigned layout = PP_LAYOUT_EDGE; layout < QUEUED; layout++)
		assert_true(stuck[layout] > 0);
}

/* "Receive right before use, send right after": with waits behind the posts nothing holds, even a queue per channel;
 * with the waits where they belong, a queue per channel or direction does, one per pair of ranks does not. */
static void naive_streams_get_stuck(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	for (unsigned layout = 0; layout < QUEUED; layout++)
		assert_false(finishes(arena, build_naive(arena, build_1f1b(arena, 4, 8)), (enum pp_layout)layout));
	struct pp_program *program = build_naive(arena, build_1f1b(arena, 4, 8));
	for (uint32_t r = 0; r < 4; r++) { /* waits for sends to the end of the stream */
		struct pp_stream *stream = &program->programs[0].streams[r];
		struct pp_instr *late = PP_NEW_ARRAY(arena, struct pp_instr, stream->count);
		uint32_t kept = 0, moved = 0;
		for (uint32_t i = 0; i < stream->count; i++) {
			bool for_send = stream->items[i].op == PP_OP_WAIT && program->channels[stream->items[i].a[0]].source == r;
			if (for_send)
				late[moved++] = stream->items[i];
			else
				stream->items[kept++] = stream->items[i];
		}
		memcpy(stream->items + kept, late, moved * sizeof *late);
	}
	uint32_t layouts = 0;
	struct pp_diag *diag = pp_diag_create(arena, pp_sources_create(arena));
	for (unsigned layout = 0; layout < QUEUED; layout++)
		if (pp_verify_layout(program, &program->programs[0], (enum pp_layout)layout, diag))
			layouts |= 1u << layout;
	assert_int_equal(check_layouts(arena, program, layouts), layouts);
	assert_true(layouts >> PP_LAYOUT_CHANNEL & 1);
	assert_false(layouts >> PP_LAYOUT_PAIR & 1);
	assert_false(layouts >> PP_LAYOUT_RANK & 1);
	pp_arena_destroy(arena);
}

/* ---- training -------------------------------------------------------------------------------- */

static struct pp_hyper hypers[2] = {{0.9, 0.95, 1e-8, 0.1, 1.0}, {0.9, 0.95, 1e-8, 0.0, 1.0}};

static struct pp_program *trained(struct world *w, enum pp_lowered lowering)
{
	struct model_size size = {16, 2, 2, 3, 32, 32, 8, 2, true};
	struct pp_spec *spec = fixture_spec(w->arena, &size);
	spec->microbatches = 8;
	spec->cluster.nodes = 1;
	spec->cluster.gpus = 4;
	spec->train.steps = 2;
	spec->train.data = PP_DATA_SYNTHETIC;
	spec->train.lr_peak = spec->train.lr_floor = 0.01;
	spec->train.hypers = hypers;
	spec->train.hyper_count = 2;
	spec->train.eval_steps = 1;
	write_interleaved(w, 4, 1, 8);
	struct pp_program *program = pp_training_program_lowered(w->arena, spec, &w->schedule, lowering, w->diag);
	if (!program)
		fail_msg("%s", diagnostics(w));
	return program;
}

static struct pp_training_result train(struct world *w, const struct pp_program *program, enum pp_layout queues,
                                       uint64_t timeout)
{
	return pp_training_run_probed(
	    w->arena, program, &(struct pp_transport_options){.check_identity = true}, &(struct pp_run_options){0},
	    &(struct pp_training_probe){.device = &pp_device_cpu, .queues = queues, .timeout = timeout});
}

static void every_order_in_every_proven_layout_has_the_same_bits(void **state)
{
	(void)state;
	static const enum pp_lowered orders[] = {PP_LOWERED_END, PP_LOWERED_LAZY, PP_LOWERED_START, PP_LOWERED_FREE};
	struct world w = make_world(1);
	struct pp_training_result first = {0};
	for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
		struct pp_program *program = trained(&w, orders[i]);
		for (unsigned layout = 0; layout < QUEUED; layout++) {
			if (!(program->stamp.layouts >> layout & 1))
				continue;
			struct pp_training_result result = train(&w, program, (enum pp_layout)layout, 0);
			if (!result.ok)
				fail_msg("%s in layout %s: %s", pp_lowered_name[orders[i]], pp_layout_name[layout], result.status.text);
			if (!first.ok)
				first = result;
			assert_string_equal(result.steps, first.steps);
			assert_string_equal(result.evaluations, first.evaluations);
			for (uint32_t t = 0; t < program->tensor_count; t++)
				assert_true(result.hashes[t] == first.hashes[t] && first.hashes[t]);
		}
	}
	end_world(&w);
}

/* The check that refuses what is not proven, and what would happen without it. */
static void what_is_not_proven_is_refused_and_gets_stuck(void **state)
{
	(void)state;
	struct world w = make_world(1);
	struct pp_program *program = trained(&w, PP_LOWERED_FREE);
	struct pp_loaded loaded = {.program = program, .diag = w.diag};
	struct pp_status status;
	assert_int_equal(program->stamp.layouts, 1 << PP_LAYOUT_CHANNEL | 1 << PP_LAYOUT_EDGE);
	assert_true(pp_check_proof(&loaded, PP_LAYOUT_CHANNEL, &status) &&
	            pp_check_proof(&loaded, PP_LAYOUT_EDGE, &status));
	assert_false(pp_check_proof(&loaded, PP_LAYOUT_PAIR, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_string_equal(status.text, "error[E0906]: with --queues=pair this program could deadlock: it is proven for "
	                                 "channel, edge only; use one of these, or build it with --lowering=end, which is "
	                                 "proven for all");
	for (unsigned layout = PP_LAYOUT_DIRECTION; layout < QUEUED; layout++) {
		struct pp_training_result result = train(&w, program, (enum pp_layout)layout, UINT64_C(300000000));
		assert_false(result.ok);
		assert_int_equal(result.status.code, PP_EXIT_RUN);
		assert_true(strstr(result.status.text, "waited longer than") || strstr(result.status.text, " gave up"));
		assert_string_equal(result.steps, "");
	}
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_head_of_the_line_holds_up_the_rest),
	    cmocka_unit_test(transport_simulator_and_verifier_agree),
	    cmocka_unit_test(naive_streams_get_stuck),
	    cmocka_unit_test(every_order_in_every_proven_layout_has_the_same_bits),
	    cmocka_unit_test(what_is_not_proven_is_refused_and_gets_stuck),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
