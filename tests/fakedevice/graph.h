/* Graphs: operations with what each comes after. Made by captures (capture.c), run by graph.c. Lock held. */
#ifndef PP_FAKE_GRAPH_H
#define PP_FAKE_GRAPH_H

#include "stream.h"

struct pp_fake_node {
	struct pp_fake_operation *operation;
	uint32_t *after; /* earlier nodes that come first */
	uint32_t after_count;
	bool overlaps; /* it also comes after the start of the earlier node: */
	uint32_t behind;
	bool begun, done; /* in the present launch */
};

struct CUgraph_st {
	uint32_t references;
	struct pp_fake_node *nodes; /* each after those that it comes after */
	uint32_t count, capacity;
	struct pp_fake_record *last; /* of its launches, which follow each other: a chain */
	bool started;                /* the present launch */
};

struct CUgraph_st *pp_fake_graph_make(void);
void pp_fake_graph_drop(struct CUgraph_st *graph);
/* Takes the operation; its index. */
uint32_t pp_fake_graph_add(struct CUgraph_st *graph, struct pp_fake_operation *operation, const uint32_t *after,
                           uint32_t after_count);
/* reached[i]: node i is one of `from` or comes before one of them. */
void pp_fake_graph_reach(const struct CUgraph_st *graph, const uint32_t *from, uint32_t count, bool *reached);

#endif
