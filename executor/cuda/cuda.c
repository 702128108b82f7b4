/* Errors, waits and events of CUDA. */
#include "cuda.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

bool pp_cuda_ok(cudaError_t error, const char *what, struct pp_status *status)
{
	return error == cudaSuccess || pp_fail(status, PP_EXIT_ENVIRONMENT, "%s failed: %s (CUDA error %d)", what,
	                                       cudaGetErrorString(error), (int)error);
}

bool pp_cuda_enter(int ordinal, struct pp_status *status)
{
	return pp_cuda_ok(cudaSetDevice(ordinal), "choosing a GPU", status);
}

bool pp_cuda_wait(cudaStream_t stream, const char *what, struct pp_status *status)
{
	enum { BARE_LOOKS = 1000, YIELDS = 1000, SLEEP_NS = 50000 };
	cudaError_t error;
	for (unsigned looks = 0; (error = cudaStreamQuery(stream)) == cudaErrorNotReady; looks++) {
		if (looks >= BARE_LOOKS + YIELDS)
			nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
		else if (looks >= BARE_LOOKS)
			sched_yield();
	}
	return pp_cuda_ok(error, what, status);
}

bool pp_cuda_events_make(struct pp_cuda_events *events, size_t count, bool timed, struct pp_status *status)
{
	*events = (struct pp_cuda_events){.items = calloc(count + 1, sizeof *events->items)};
	if (!events->items)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for %zu events", count);
	for (; events->count < count; events->count++)
		if (!pp_cuda_ok(cudaEventCreateWithFlags(&events->items[events->count],
		                                         timed ? cudaEventDefault : cudaEventDisableTiming),
		                "making an event", status))
			return false;
	return true;
}

void pp_cuda_events_free(struct pp_cuda_events *events)
{
	for (size_t i = 0; i < events->count; i++)
		cudaEventDestroy(events->items[i]);
	free(events->items);
	*events = (struct pp_cuda_events){0};
}
