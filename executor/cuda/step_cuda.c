/* The beginning and the end of steps, and whole steps as graphs: the first step of a stream runs as it is given, the
 * second is captured on its way, from the third on only data and rates are new. */
#include "device_parts.h"

#include <stdlib.h>

struct known {
	const struct pp_stream *stream;
	uint64_t runs;
	cudaGraphExec_t graph; /* NULL: not captured yet */
	uint64_t nodes;        /* in it */
};

struct pp_cuda_steps {
	struct known *items; /* of each named program */
	uint32_t count;
	struct known *now; /* or NULL */
	bool replaying;
};

bool pp_cuda_steps_make(struct pp_device *device, struct pp_status *status)
{
	const struct pp_program *program = device->program;
	uint32_t marks = (uint32_t)device->marks.events.count;
	struct pp_cuda_steps *steps = device->steps = calloc(1, sizeof *steps);
	if (steps)
		steps->items = calloc((size_t)program->program_count + 1, sizeof *steps->items);
	if (!steps || !steps->items)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for graphs of steps");
	for (; steps->count < program->program_count; steps->count++)
		steps->items[steps->count].stream = &program->programs[steps->count].streams[device->coord.pp];
	uint32_t *numbers = malloc(((size_t)marks + 1) * sizeof *numbers);
	if (!numbers)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for graphs of steps");
	for (uint32_t i = 0; i < marks; i++)
		numbers[i] = i;
	bool ok = pp_cuda_write_to(device, device->memory.numbers, marks * sizeof *numbers, numbers, status);
	free(numbers);
	return ok;
}

/* A step that failed on its way may have left a capture open. */
static void abandon_capture(struct pp_device *device)
{
	cudaGraph_t graph = NULL;
	if (!device->capturing)
		return;
	device->capturing = false;
	cudaStreamEndCapture(device->cuda.compute, &graph);
	if (graph)
		cudaGraphDestroy(graph);
}

void pp_cuda_steps_forget(struct pp_device *device)
{
	struct pp_cuda_steps *steps = device->steps;
	abandon_capture(device);
	for (uint32_t i = 0; steps && i < steps->count; i++) {
		if (steps->items[i].graph)
			cudaGraphExecDestroy(steps->items[i].graph); /* one that runs goes when it has run */
		steps->items[i].graph = NULL;
	}
}

void pp_cuda_steps_free(struct pp_device *device)
{
	pp_cuda_steps_forget(device);
	if (device->steps)
		free(device->steps->items);
	free(device->steps);
	device->steps = NULL;
}

void pp_cuda_steps_count(const struct pp_device *device, uint64_t *graphs, uint64_t *nodes)
{
	const struct pp_cuda_steps *steps = device->steps;
	*graphs = *nodes = 0;
	for (uint32_t i = 0; steps && i < steps->count; i++) {
		*graphs += steps->items[i].graph != NULL;
		*nodes += steps->items[i].nodes;
	}
}

bool pp_cuda_replays(const struct pp_device *device)
{
	return device->steps && device->steps->replaying;
}

/* Of a few. */
static struct known *find(const struct pp_cuda_steps *steps, const struct pp_stream *stream)
{
	for (uint32_t i = 0; i < steps->count; i++)
		if (steps->items[i].stream == stream)
			return &steps->items[i];
	return NULL;
}

bool pp_cuda_begin(struct pp_device *device, const struct pp_stream *stream, uint64_t step, double lr)
{
	struct pp_cuda_steps *steps = device->steps;
	/* Launches tell of errors only by the thread's last one, in which libraries (NCCL, MPI) may have left theirs. */
	(void)cudaGetLastError();
	device->open = true;
	device->host.loads_used = 0;
	pp_cuda_marks_start(device);
	pp_cuda_tail_rates(device, step, lr);
	if (!steps)
		return false;
	steps->now = find(steps, stream);
	steps->replaying = steps->now && steps->now->graph;
	if (steps->replaying || !steps->now || steps->now->runs++ == 0)
		return steps->replaying;
	cudaError_t error = cudaStreamBeginCapture(device->cuda.compute, cudaStreamCaptureModeThreadLocal);
	pp_cuda_note(device, error, "capturing a step");
	device->capturing = error == cudaSuccess;
	return false;
}

/* A stream that goes before others does so in the graph, too. */
static void make_graph(struct pp_device *device, struct known *step, cudaGraph_t graph)
{
	size_t nodes = 0;
	pp_cuda_note(device, cudaGraphGetNodes(graph, NULL, &nodes), "counting what a step holds");
	pp_cuda_note(device, cudaGraphInstantiate(&step->graph, graph, cudaGraphInstantiateFlagUseNodePriority),
	             "making a graph of a step");
	step->nodes = nodes;
}

static void end_capture(struct pp_device *device)
{
	cudaGraph_t graph = NULL;
	device->capturing = false;
	cudaError_t error = cudaStreamEndCapture(device->cuda.compute, &graph);
	pp_cuda_note(device, error, "capturing a step");
	if (error == cudaSuccess)
		make_graph(device, device->steps->now, graph);
	if (graph)
		cudaGraphDestroy(graph);
}

void pp_cuda_end(struct pp_device *device)
{
	pp_cuda_flush(device);
	if (device->capturing)
		end_capture(device);
	if (device->steps && device->steps->now && device->steps->now->graph)
		pp_cuda_note(device, cudaGraphLaunch(device->steps->now->graph, device->cuda.compute), "starting a step");
	pp_cuda_note(device, cudaEventRecord(device->done, device->cuda.compute), "marking the end of a step");
	device->open = false;
}

void pp_cuda_step_over(struct pp_device *device)
{
	device->host.loads_used = 0;
	if (device->steps) {
		device->steps->now = NULL;
		device->steps->replaying = false;
	}
}
