/* Worlds of ranks with devices, as threads on one GPU: the loop transport with its mover, staging over host transports,
 * NCCL with the loop transport for control data. */
#ifndef PP_GPU_WORLDS_H
#define PP_GPU_WORLDS_H

#include "support/world.h"

extern const struct pp_test_world pp_test_world_cuda, pp_test_world_staged_loop, pp_test_world_staged_local;
/* Messages without a copy, as over a CUDA-aware MPI. */
extern const struct pp_test_world pp_test_world_direct;

/* Of a seat in one of these worlds. */
struct pp_device *pp_test_gpu_device(const struct pp_test_seat *seat);

#ifdef PP_HAVE_NCCL
extern const struct pp_test_world pp_test_world_nccl;
/* With the queues of a layout, for a program that is proven for them. */
extern const struct pp_test_world pp_test_worlds_nccl[PP_LAYOUT_BLOCKING];
#endif

#endif
