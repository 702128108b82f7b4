/* Which runs can have whole steps as graphs. Sources: NCCL User Guide, "Using NCCL with CUDA Graphs": whether a post is
 * captured is a property of all its ends; a graph is launched by the same ranks that captured it. CUDA C++ Programming
 * Guide, "Creating a graph using stream capture": captures of two threads do not merge. */
#include "graph_choice.h"

#include <inttypes.h>

enum pp_graph pp_graph_wanted(const struct pp_run_options *options)
{
	bool whole = options->fault.kind == PP_FAULT_NONE;
	return options->device.graph == PP_GRAPH_STEP && !whole ? PP_GRAPH_BODY : options->device.graph;
}

bool pp_graph_agree(const struct pp_card *cards, uint32_t ranks, enum pp_graph *graph, struct pp_status *notice)
{
	uint32_t with = 0, without = 0;
	while (with < ranks && cards[with].graph != PP_GRAPH_STEP)
		with++;
	while (without < ranks && cards[without].graph == PP_GRAPH_STEP)
		without++;
	if (with == ranks || without == ranks)
		return true;
	if (*graph == PP_GRAPH_STEP)
		*graph = PP_GRAPH_BODY;
	return pp_fail(notice, PP_EXIT_OK,
	               "piperun: no rank has --graph=step: rank %" PRIu32 " wants it and rank %" PRIu32
	               " does not, and what one rank captures all must",
	               with, without);
}

bool pp_graph_fits(const struct pp_rank_run *run, enum pp_graph graph, struct pp_status *status)
{
	uint64_t world = pp_grid_world(run->program);
	if (graph != PP_GRAPH_STEP || world == 1)
		return true;
	if (!run->transport->captures)
		return pp_fail(status, PP_EXIT_USAGE,
		               "--graph=step: messages over transport %s cannot be part of a graph: %s; use --graph=body, or "
		               "NCCL with a process and a GPU for each rank",
		               run->transport->name, run->transport->captures_not);
	if (run->options->here < world)
		return pp_fail(status, PP_EXIT_USAGE,
		               "--graph=step is for ranks of one machine: of %" PRIu64 " ranks %" PRIu32
		               " are on this one; use --graph=body",
		               world, run->options->here);
	return true;
}
