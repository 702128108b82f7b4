/* Whole steps as graphs: all ranks or none, and where messages can be part of one. */
#include "executor/graph_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static void faults_leave_no_step_whole(void **state)
{
	(void)state;
	struct pp_run_options options = {.device.graph = PP_GRAPH_STEP};
	assert_int_equal(pp_graph_wanted(&options), PP_GRAPH_STEP);
	options.fault.kind = PP_FAULT_SLEEP;
	assert_int_equal(pp_graph_wanted(&options), PP_GRAPH_BODY);
	options.device.graph = PP_GRAPH_OFF;
	assert_int_equal(pp_graph_wanted(&options), PP_GRAPH_OFF);
}

/* What each of three ranks comes to. */
static void expect_agreed(const enum pp_graph *wanted, const enum pp_graph *agreed, const char *notice)
{
	struct pp_card cards[3] = {{.graph = wanted[0]}, {.graph = wanted[1]}, {.graph = wanted[2]}};
	for (int rank = 0; rank < 3; rank++) {
		enum pp_graph graph = wanted[rank];
		struct pp_status status = {.text = ""};
		assert_int_equal(pp_graph_agree(cards, 3, &graph, &status), notice[0] == '\0');
		assert_int_equal(graph, agreed[rank]);
		assert_string_equal(status.text, notice);
	}
}

static void all_or_none(void **state)
{
	(void)state;
	static const enum pp_graph steps[] = {PP_GRAPH_STEP, PP_GRAPH_STEP, PP_GRAPH_STEP},
	                           others[] = {PP_GRAPH_OFF, PP_GRAPH_BODY, PP_GRAPH_OFF},
	                           mixed[] = {PP_GRAPH_OFF, PP_GRAPH_STEP, PP_GRAPH_BODY},
	                           from_mixed[] = {PP_GRAPH_OFF, PP_GRAPH_BODY, PP_GRAPH_BODY};
	expect_agreed(steps, steps, "");
	expect_agreed(others, others, "");
	expect_agreed(mixed, from_mixed,
	              "piperun: no rank has --graph=step: rank 1 wants it and rank 0 does not, and what one rank captures "
	              "all must");
}

static void where_messages_fit(void **state)
{
	(void)state;
	const struct pp_program one = {.ranks = 1, .tp = 1, .dp = 1}, four = {.ranks = 2, .tp = 2, .dp = 1};
	const struct pp_transport_ops nccl = {.name = "nccl", .stream_ordered = true, .captures = true},
	                              staged = {.name = "staged", .stream_ordered = true, .captures_not = "the reason"};
	struct pp_run_options options = {.here = 4};
	struct pp_rank_run run = {.program = &four, .transport = &nccl, .options = &options};
	struct pp_status status = {.text = ""};
	assert_true(pp_graph_fits(&run, PP_GRAPH_STEP, &status));
	options.here = 2;
	assert_false(pp_graph_fits(&run, PP_GRAPH_STEP, &status));
	assert_int_equal(status.code, PP_EXIT_USAGE);
	assert_string_equal(status.text, "--graph=step is for ranks of one machine: of 4 ranks 2 are on this one; use "
	                                 "--graph=body");
	run.transport = &staged;
	assert_false(pp_graph_fits(&run, PP_GRAPH_STEP, &status));
	assert_string_equal(status.text,
	                    "--graph=step: messages over transport staged cannot be part of a graph: the reason; use "
	                    "--graph=body, or NCCL with a process and a GPU for each rank");
	assert_true(pp_graph_fits(&run, PP_GRAPH_BODY, &status));
	run.program = &one;
	assert_true(pp_graph_fits(&run, PP_GRAPH_STEP, &status));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(faults_leave_no_step_whole),
	    cmocka_unit_test(all_or_none),
	    cmocka_unit_test(where_messages_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
