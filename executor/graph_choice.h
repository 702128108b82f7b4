/* Whole steps as graphs (--graph=step): which runs can have them, and that all ranks have them or none has. */
#ifndef PP_GRAPH_CHOICE_H
#define PP_GRAPH_CHOICE_H

#include "start_check.h"
#include "train_loop.h"

/* What this rank can do of what was asked: faults strike between instructions, so they leave no step whole. */
enum pp_graph pp_graph_wanted(const struct pp_run_options *options);

/* What all ranks do: a post that is captured at one end must be at the other, so none has whole steps unless all want
 * them. False: some do, and *notice says who. */
bool pp_graph_agree(const struct pp_card *cards, uint32_t ranks, enum pp_graph *graph, struct pp_status *notice);

/* Can posts of this run become part of a step that the device knows by heart, if it is asked for? The same on all
 * ranks. */
bool pp_graph_fits(const struct pp_rank_run *run, enum pp_graph graph, struct pp_status *status);

#endif
