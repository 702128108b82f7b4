/* Graphs (graph.h). A launch is one operation of its stream; its nodes run as soon as what they come after has, those
 * that wait for other ranks beside the others. What two nodes touch that nothing orders is looked for once, at the
 * instantiation; against everything else the graph touches what its nodes touch. */
#include "graph.h"
#include "capture.h"
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
	struct CUgraph_st *graph;
	struct pp_fake_touch *touches; /* of all nodes, each once */
	uint32_t touch_count;
	bool talks;
};

struct graph_operation {
	struct pp_fake_operation base;
	struct CUgraph_st *graph;
};

struct CUgraph_st *pp_fake_graph_make(void)
{
	struct CUgraph_st *graph = pp_fake_new(sizeof *graph);
	graph->references = 1;
	return graph;
}

void pp_fake_graph_drop(struct CUgraph_st *graph)
{
	if (!graph || --graph->references > 0)
		return;
	for (uint32_t i = 0; i < graph->count; i++) {
		pp_fake_operation_free(graph->nodes[i].operation);
		free(graph->nodes[i].after);
	}
	pp_fake_record_drop(graph->last);
	free(graph->nodes);
	free(graph);
}

uint32_t pp_fake_graph_add(struct CUgraph_st *graph, struct pp_fake_operation *operation, const uint32_t *after,
                           uint32_t after_count)
{
	if (graph->count == graph->capacity) {
		graph->capacity = graph->capacity ? 2 * graph->capacity : 32;
		graph->nodes = pp_fake_grow(graph->nodes, graph->capacity * sizeof *graph->nodes);
	}
	struct pp_fake_node *node = &graph->nodes[graph->count];
	*node = (struct pp_fake_node){.operation = operation, .after_count = after_count};
	node->after = pp_fake_new(after_count * sizeof *after);
	if (after_count > 0)
		memcpy(node->after, after, after_count * sizeof *after);
	return graph->count++;
}

void pp_fake_graph_reach(const struct CUgraph_st *graph, const uint32_t *from, uint32_t count, bool *reached)
{
	for (uint32_t i = 0; i < count; i++)
		reached[from[i]] = true;
	for (uint32_t i = graph->count; i-- > 0;)
		for (uint32_t k = 0; reached[i] && k < graph->nodes[i].after_count; k++)
			reached[graph->nodes[i].after[k]] = true;
}

static bool conflict(const struct pp_fake_touch *a, const struct pp_fake_touch *b)
{
	return (a->writes || b->writes) && a->start < b->start + b->bytes && b->start < a->start + a->bytes;
}

static void compare(const struct pp_fake_operation *a, const struct pp_fake_operation *b)
{
	for (uint32_t i = 0; i < a->touch_count; i++)
		for (uint32_t k = 0; k < b->touch_count; k++)
			if (conflict(&a->touches[i], &b->touches[k])) {
				pp_fake_race("race: in a graph nothing orders the %s by %s and the %s by %s of %llu bytes at %p",
				             a->touches[i].writes ? "write" : "read", a->name, b->touches[k].writes ? "write" : "read",
				             b->name, (unsigned long long)a->touches[i].bytes, (void *)a->touches[i].start);
				return;
			}
}

static void look_for_races(const struct CUgraph_st *graph)
{
	bool *before = pp_fake_new(graph->count * sizeof *before);
	for (uint32_t i = 0; i < graph->count; i++) {
		memset(before, 0, graph->count * sizeof *before);
		pp_fake_graph_reach(graph, &i, 1, before);
		for (uint32_t k = 0; k < i; k++)
			if (!before[k])
				compare(graph->nodes[i].operation, graph->nodes[k].operation);
	}
	free(before);
}

static int by_range(const void *a, const void *b)
{
	const struct pp_fake_touch *x = a, *y = b;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return (int)x->writes - (int)y->writes;
}

static void collect_touches(struct CUgraphExec_st *executable)
{
	const struct CUgraph_st *graph = executable->graph;
	uint32_t count = 0;
	for (uint32_t i = 0; i < graph->count; i++)
		count += graph->nodes[i].operation->touch_count;
	struct pp_fake_touch *touches = pp_fake_new(count * sizeof *touches);
	count = 0;
	for (uint32_t i = 0; i < graph->count; i++) {
		const struct pp_fake_operation *operation = graph->nodes[i].operation;
		for (uint32_t k = 0; k < operation->touch_count; k++, count++) {
			touches[count] = operation->touches[k];
			touches[count].name = operation->name;
		}
	}
	qsort(touches, count, sizeof *touches, by_range);
	for (uint32_t i = 0; i < count; i++)
		if (i == 0 || by_range(&touches[i], &touches[i - 1]) != 0)
			touches[executable->touch_count++] = touches[i];
	executable->touches = touches;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
{
	(void)flags;
	struct pp_fake_host *host = pp_fake_enter("cudaGraphInstantiate");
	if (!graph)
		return pp_fake_leave(host, cudaErrorInvalidValue);
	struct CUgraphExec_st *executable = pp_fake_new(sizeof *executable);
	executable->graph = graph;
	graph->references++;
	look_for_races(graph);
	collect_touches(executable);
	for (uint32_t i = 0; i < graph->count; i++)
		executable->talks |= graph->nodes[i].operation->kind->talks;
	*made = executable;
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
{
	return cudaGraphInstantiate(made, graph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGraphDestroy");
	pp_fake_graph_drop(graph);
	return pp_fake_leave(host, cudaSuccess);
}

/* A launch that is still to run keeps the graph. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGraphExecDestroy");
	pp_fake_graph_drop(executable->graph);
	free(executable->touches);
	free(executable);
	return pp_fake_leave(host, cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGraphUpload");
	bool good = executable && pp_fake_stream(handle, "cudaGraphUpload");
	return pp_fake_leave(host, good ? cudaSuccess : cudaErrorInvalidValue);
}

/* With `nodes` NULL the count only; nodes themselves can't be asked about. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGraphGetNodes");
	if (!graph || nodes)
		return pp_fake_leave(host, cudaErrorNotSupported);
	*count = graph->count;
	return pp_fake_leave(host, cudaSuccess);
}

static bool may_run(const struct CUgraph_st *graph, const struct pp_fake_node *node)
{
	if (node->done || (node->overlaps && !graph->nodes[node->behind].begun))
		return false;
	for (uint32_t i = 0; i < node->after_count; i++)
		if (!graph->nodes[node->after[i]].done)
			return false;
	return true;
}

static void start_launch(struct CUgraph_st *graph)
{
	for (uint32_t i = 0; i < graph->count; i++) {
		struct pp_fake_operation *operation = graph->nodes[i].operation;
		graph->nodes[i].begun = graph->nodes[i].done = false;
		if (operation->kind->restart)
			operation->kind->restart(operation);
	}
	graph->started = true;
}

/* With jitter, by dice. */
static uint32_t first_to_look_at(const struct CUgraph_st *graph)
{
	if (!pp_fake_settings()->jitter || graph->count == 0)
		return 0;
	pp_fake_lock();
	uint32_t first = (uint32_t)(pp_fake_random() % graph->count);
	pp_fake_unlock();
	return first;
}

/* Steps every node that may run once. */
static enum pp_fake_outcome step_graph(struct pp_fake_operation *operation)
{
	struct CUgraph_st *graph = ((struct graph_operation *)operation)->graph;
	if (!graph->started)
		start_launch(graph);
	bool moved = false, finished = true;
	uint32_t first = first_to_look_at(graph);
	for (uint32_t i = 0; i < graph->count; i++) {
		struct pp_fake_node *node = &graph->nodes[(first + i) % graph->count];
		if (!may_run(graph, node)) {
			finished &= node->done;
			continue;
		}
		const struct pp_fake_operation_kind *kind = node->operation->kind;
		enum pp_fake_outcome outcome = kind->step ? kind->step(node->operation) : PP_FAKE_FINISHED;
		moved |= !node->begun && outcome > PP_FAKE_REFUSED; /* others may be in its turn */
		node->begun |= outcome > PP_FAKE_REFUSED;
		node->done = outcome == PP_FAKE_FINISHED;
		finished &= node->done;
		moved |= outcome >= PP_FAKE_MOVED;
	}
	if (!finished)
		return moved ? PP_FAKE_MOVED : PP_FAKE_BLOCKED;
	graph->started = false;
	return PP_FAKE_FINISHED;
}

static void describe_graph(const struct pp_fake_operation *operation, char *text, size_t size)
{
	const struct CUgraph_st *graph = ((const struct graph_operation *)operation)->graph;
	snprintf(text, size, "a graph");
	for (uint32_t i = 0; i < graph->count; i++) {
		if (!may_run(graph, &graph->nodes[i]))
			continue;
		size_t length = (size_t)snprintf(text, size, "a graph at node %u of %u: ", i, graph->count);
		if (length < size)
			pp_fake_operation_text(graph->nodes[i].operation, text + length, size - length);
		return;
	}
}

static void release_graph(struct pp_fake_operation *operation)
{
	pp_fake_graph_drop(((struct graph_operation *)operation)->graph);
	free(operation);
}

static const struct pp_fake_operation_kind quiet_kind = {
    .step = step_graph, .describe = describe_graph, .release = release_graph, .computes = true};
static const struct pp_fake_operation_kind talking_kind = {
    .step = step_graph, .describe = describe_graph, .release = release_graph, .computes = true, .talks = true};

/* The launch follows whatever the chains of its nodes have had before, and is the last of them. */
static cudaError_t wait_for_chains(struct pp_fake_host *host, struct CUstream_st *stream,
                                   const struct CUgraph_st *graph)
{
	for (uint32_t i = 0; i < graph->count; i++) {
		struct pp_fake_record **chain = graph->nodes[i].operation->chain;
		if (!chain || !*chain)
			continue;
		struct pp_fake_operation *wait =
		    pp_fake_operation_make(&pp_fake_nothing, sizeof *wait, "order of a communicator");
		wait->awaits = *chain;
		*chain = NULL;
		cudaError_t error = pp_fake_submit(host, stream, wait);
		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

static void be_last_of_chains(const struct CUgraph_st *graph, struct pp_fake_record *record)
{
	for (uint32_t i = 0; i < graph->count; i++) {
		struct pp_fake_record **chain = graph->nodes[i].operation->chain;
		if (!chain)
			continue;
		pp_fake_record_drop(*chain);
		*chain = pp_fake_record_keep(record);
	}
}

static cudaError_t launch(struct pp_fake_host *host, struct CUstream_st *stream,
                          const struct CUgraphExec_st *executable)
{
	struct CUgraph_st *graph = executable->graph;
	if (stream->capture) {
		pp_fake_fault("a graph was launched on %s, which is being captured", stream->where);
		return cudaErrorStreamCaptureUnsupported;
	}
	cudaError_t error = wait_for_chains(host, stream, graph);
	if (error != cudaSuccess)
		return error;
	struct graph_operation *operation =
	    pp_fake_operation_make(executable->talks ? &talking_kind : &quiet_kind, sizeof *operation, "cudaGraphLaunch");
	operation->graph = graph;
	graph->references++;
	operation->base.chain = &graph->last;
	operation->base.touches = pp_fake_new(executable->touch_count * sizeof(struct pp_fake_touch));
	memcpy(operation->base.touches, executable->touches, executable->touch_count * sizeof(struct pp_fake_touch));
	operation->base.touch_count = executable->touch_count;
	struct pp_fake_record *before = graph->last;
	error = pp_fake_submit(host, stream, &operation->base);
	if (error == cudaSuccess && graph->last != before)
		be_last_of_chains(graph, graph->last);
	return error;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle)
{
	struct pp_fake_host *host = pp_fake_enter("cudaGraphLaunch");
	struct CUstream_st *stream = pp_fake_stream(handle, "cudaGraphLaunch");
	if (!stream || !executable)
		return pp_fake_leave(host, cudaErrorInvalidResourceHandle);
	return pp_fake_leave(host, launch(host, stream, executable));
}
