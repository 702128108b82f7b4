/* What the parts of the CUDA device and the transports on its memory share: a rank's GPU and stream, errors, events.
 *
 * Rules: streams are non-blocking ones, never the default stream; nothing is allocated after start; copies that do not
 * wait go from or to pinned memory; each thread that calls CUDA for a device has its GPU set (pp_cuda_enter). */
#ifndef PP_CUDA_H
#define PP_CUDA_H

#include "ir/status.h"

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_device;

struct pp_cuda {
	int ordinal;          /* of the GPU */
	cudaStream_t compute; /* what the device is given runs here, in order */
};

struct pp_cuda *pp_cuda_of(struct pp_device *device);

/* True on success; else the failure of `what` ("copying losses") goes to *status, PP_EXIT_ENVIRONMENT. */
bool pp_cuda_ok(cudaError_t error, const char *what, struct pp_status *status);

/* This thread works on a GPU from here on. */
bool pp_cuda_enter(int ordinal, struct pp_status *status);

/* Is all that a stream had been given until then done? Looks again and again, giving way to others: for the time before
 * the first step, between steps and after the last. */
bool pp_cuda_wait(cudaStream_t stream, const char *what, struct pp_status *status);

/* Events, made at start. `timed`: for measuring. */
struct pp_cuda_events {
	cudaEvent_t *items;
	size_t count;
};

bool pp_cuda_events_make(struct pp_cuda_events *events, size_t count, bool timed, struct pp_status *status);
void pp_cuda_events_free(struct pp_cuda_events *events);

#endif
