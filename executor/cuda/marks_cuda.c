/* The GPU's clock: events in the compute stream, compared with one whose time on the host is known. */
#include "device_parts.h"

#include "executor/watch.h"

#include <stdlib.h>

bool pp_cuda_marks_make(struct pp_device *device, uint32_t count, struct pp_status *status)
{
	struct pp_cuda_marks *marks = &device->marks;
	marks->order = calloc((size_t)count + 1, sizeof *marks->order);
	if (!marks->order)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the marks of a step");
	*device->host.mark = PP_NULL;
	return pp_cuda_ok(cudaEventCreateWithFlags(&marks->start, cudaEventDefault), "making an event", status) &&
	       pp_cuda_events_make(&marks->events, count, true, status);
}

void pp_cuda_marks_free(struct pp_device *device)
{
	if (device->marks.start)
		cudaEventDestroy(device->marks.start);
	pp_cuda_events_free(&device->marks.events);
	free(device->marks.order);
}

/* The stream is idle between steps, so the event comes when it is recorded. The host may be held up behind that, so its
 * clock is read before: what has been marked is never in the future. */
void pp_cuda_marks_start(struct pp_device *device)
{
	struct pp_cuda_marks *marks = &device->marks;
	marks->count = marks->passed = 0;
	*device->host.mark = PP_NULL;
	marks->start_clock = pp_clock();
	pp_cuda_note(device, cudaEventRecord(marks->start, device->cuda.compute), "marking the start of a step");
}

/* In a step that is one graph, events tell times but not which one came last: until the graph gets there, they are
 * those of the step before. There the number itself is copied out. */
void pp_cuda_mark(struct pp_device *device, uint32_t number)
{
	struct pp_cuda_marks *marks = &device->marks;
	cudaStream_t stream = device->cuda.compute;
	pp_cuda_flush(device);
	device->open = true;
	if (!device->capturing) {
		pp_cuda_note(device, cudaEventRecord(marks->events.items[number], stream), "marking an instruction");
		marks->order[marks->count++] = number;
		return;
	}
	pp_cuda_note(device, cudaEventRecordWithFlags(marks->events.items[number], stream, cudaEventRecordExternal),
	             "marking an instruction");
	pp_cuda_note(device,
	             cudaMemcpyAsync((void *)(uintptr_t)device->host.mark, device->memory.numbers + number,
	                             sizeof *device->memory.numbers, cudaMemcpyDeviceToHost, stream),
	             "marking an instruction");
}

uint64_t pp_cuda_marked(const struct pp_device *device, uint32_t number)
{
	const struct pp_cuda_marks *marks = &device->marks;
	float milliseconds = 0;
	if (cudaEventElapsedTime(&milliseconds, marks->start, marks->events.items[number]) != cudaSuccess)
		milliseconds = 0;
	return marks->start_clock + (milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6) : 0);
}

uint32_t pp_cuda_passed(struct pp_device *device)
{
	struct pp_cuda_marks *marks = &device->marks;
	if (marks->count == 0)
		return device->steps ? *device->host.mark : PP_NULL; /* what a graph has copied out */
	while (marks->passed < marks->count &&
	       cudaEventQuery(marks->events.items[marks->order[marks->passed]]) == cudaSuccess)
		marks->passed++;
	return marks->passed ? marks->order[marks->passed - 1] : PP_NULL;
}
