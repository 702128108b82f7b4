/* Lowering: streams of small cases written out, then properties of thousands of random schedules, judged by an
 * independent blocking run of the streams. */
#include "stream_judge.h"

#include "codegen/lowering.h"
#include "ir/simulate.h"

/* ---- small cases, written out ---------------------------------------------------------------- */

static void write_instr(const struct pp_program *program, uint32_t rank, const struct pp_instr *x, FILE *out)
{
	const char *kind = x->op == PP_OP_SEND || x->op == PP_OP_RECV || x->op == PP_OP_WAIT
	                       ? (program->channels[x->a[0]].kind == PP_ACT ? "F" : "B")
	                       : "";
	switch ((enum pp_op)x->op) {
	case PP_OP_FWD:
		fprintf(out, "F%u", x->mb);
		break;
	case PP_OP_BWD:
		fprintf(out, "B%u%s", x->mb, x->flags & PP_FIRST ? "!" : "");
		break;
	case PP_OP_SEND:
	case PP_OP_RECV:
		fprintf(out, "%s-%s%u", x->op == PP_OP_SEND ? "send" : "recv", kind, x->mb);
		break;
	case PP_OP_WAIT:
		fprintf(out, "%s-%s#%u", program->channels[x->a[0]].source == rank ? "sent" : "got", kind, x->a[1]);
		break;
	case PP_OP_LOAD:
		fprintf(out, "load%u", x->mb);
		break;
	default:
		fprintf(out, "%s", pp_op_table[x->op].mnemonic);
		break;
	}
}

static void assert_stream(struct world *w, uint32_t rank, const char *expected)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	const struct pp_stream *stream = &w->program.programs[0].streams[rank];
	for (uint32_t i = 0; i < stream->count; i++) {
		if (i)
			fputc(' ', out);
		write_instr(&w->program, rank, &stream->items[i], out);
	}
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

/* Field case B02 (a): send F0 | {send F1, recv B0} {send F2, recv B1} {send F3, recv B2} | recv B3; braces are posted
 * before any wait. */
static void one_forward_one_backward_on_two_ranks(void **state)
{
	(void)state;
	struct world w = make_world(0);
	write_schedule(&w, 2, NULL, 4, "F0 F1 B0 F2 B1 F3 B2 B3\nF0 B0 F1 B1 F2 B2 F3 B3\n");
	make_program(&w, 100, 100, 100, 10);
	lower(&w);
	assert_stream(
	    &w, 0,
	    "load0 F0 send-F0 load1 F1 send-F1 recv-B0 got-B#0 sent-F#0 sent-F#1 B0! recv-B1 load2 F2 send-F2 got-B#1 B1 "
	    "sent-F#2 load3 F3 send-F3 recv-B2 got-B#2 sent-F#3 B2 recv-B3 got-B#3 B3");
	assert_stream(
	    &w, 1,
	    "recv-F0 recv-F1 got-F#0 load0 F0 B0! send-B0 got-F#1 load1 F1 sent-B#0 B1 send-B1 recv-F2 got-F#2 sent-B#1 "
	    "load2 F2 recv-F3 B2 send-B2 got-F#3 load3 F3 sent-B#2 B3 send-B3 sent-B#3");
	assert_int_equal(errors_in(&w), 0);
	end_world(&w);
}

/* ---- messages, slots, tails of field cases --------------------------------------------------- */

static void count_messages(struct world *w, uint32_t remote, uint32_t local)
{
	uint32_t sends = 0, kept = 0;
	for (uint32_t rank = 0; rank < w->program.ranks; rank++) {
		const struct pp_stream *stream = &w->program.programs[0].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *x = &stream->items[i];
			sends += x->op == PP_OP_SEND;
			uint32_t input = x->op == PP_OP_FWD ? x->a[0] : x->op == PP_OP_BWD ? x->a[2] : PP_NULL;
			kept += input != PP_NULL && w->program.rank[rank].slots[input].class == PP_SLOT_OUT;
		}
	}
	assert_int_equal(sends, remote);
	assert_int_equal(kept, local);
	for (uint32_t c = 0; c < w->program.channel_count; c++)
		assert_int_not_equal(w->program.channels[c].source, w->program.channels[c].destination);
}

/* Field case B07 (a), (b). */
static void hand_over_on_one_rank_is_no_message(void **state)
{
	(void)state;
	static const struct {
		uint32_t ranks, stages, microbatches, remote, local;
		uint32_t place[8];
	} cases[] = {
	    {2, 4, 4, 16, 8, {0, 1, 1, 0}},
	    {4, 8, 8, 96, 16, {0, 1, 2, 3, 3, 2, 1, 0}},
	    {1, 2, 4, 0, 8, {0, 0}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct world w = make_world(0);
		write_gpipe(&w, cases[i].ranks, cases[i].stages, cases[i].place, cases[i].microbatches);
		make_program(&w, 100, 100, 100, 10);
		lower(&w);
		count_messages(&w, cases[i].remote, cases[i].local);
		assert_int_equal(errors_in(&w), 0);
		end_world(&w);
	}
}

/* With transfers no longer than the shortest compute two receive slots lose nothing. */
static void two_slots_suffice_for_short_transfers(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		make_program(&w, 100, 100, 100, draw(&w, 101));
		lower(&w);
		for (uint32_t c = 0; c < w.program.channel_count; c++)
			assert_int_equal(w.program.channels[c].depth, w.program.channels[c].messages > 1 ? 2 : 1);
		end_world(&w);
	}
}

/* ---- times ----------------------------------------------------------------------------------- */

/* The same parts as pp_lower, without tail, so that the simulated time is seen. */
static uint64_t lower_for_time(struct world *w)
{
	struct pp_lowering lowering = {
	    .scratch = w->arena, .program = &w->program, .spec = &w->spec, .schedule = &w->schedule};
	lowering.outputs = PP_NEW_ARRAY(w->arena, uint32_t, w->program.ranks);
	lowering.named = w->program.programs = PP_NEW(w->arena, struct pp_named_program);
	lowering.named->name = "train";
	lowering.named->streams = PP_NEW_ARRAY(w->arena, struct pp_stream, w->program.ranks);
	pp_lower_graph(&lowering);
	pp_lower_depths(&lowering);
	pp_lower_order(&lowering);
	return lowering.makespan;
}

/* T3: a run of the streams takes the simulated time. T4: and that is the ideal one, whatever the costs. */
static void streams_take_the_ideal_time(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 2000; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		draw_program(&w);
		uint64_t simulated = lower_for_time(&w);
		uint64_t run = run_time(&w), ideal = ideal_time(&w);
		struct pp_sim sim;
		assert_true(pp_simulate(w.arena, &w.program, &w.program.programs[0], PP_LAYOUT_CHANNEL, false, &sim));
		assert_int_equal(sim.makespan, simulated);
		if (simulated != run || simulated != ideal)
			fail_msg("seed %u: simulated %u, run %u, ideal %u", (unsigned)seed, (unsigned)simulated, (unsigned)run,
			         (unsigned)ideal);
		end_world(&w);
	}
}

/* ---- properties over random schedules -------------------------------------------------------- */

static void random_schedules_lower_to_sound_streams(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 3000; seed++) {
		struct world w = make_world(seed);
		draw_schedule(&w, 6, 9, 4);
		draw_program(&w);
		lower(&w);
		if (errors_in(&w))
			fail_msg("seed %u: %u errors", (unsigned)seed, (unsigned)errors_in(&w));
		end_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_forward_one_backward_on_two_ranks),
	    cmocka_unit_test(hand_over_on_one_rank_is_no_message),
	    cmocka_unit_test(two_slots_suffice_for_short_transfers),
	    cmocka_unit_test(streams_take_the_ideal_time),
	    cmocka_unit_test(random_schedules_lower_to_sound_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
