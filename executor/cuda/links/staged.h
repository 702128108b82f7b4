/* Payloads of devices through a transport that works on host memory: mpi, or that of --spawn. What a rank gives is
 * copied into pinned memory in the order of its compute stream, passed on once it is there, and what comes is copied to
 * the device likewise. Where the transport takes addresses of devices (CUDA-aware MPI), messages go without a copy.
 * The host never waits for the GPU; it looks. */
#ifndef PP_STAGED_H
#define PP_STAGED_H

#include "executor/link.h"

extern const struct pp_link pp_link_staged;

#endif
