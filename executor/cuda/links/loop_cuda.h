/* Ranks that are threads, all on one GPU: the loop transport's mover (transport/loop_mover.h). A transfer is a copy
 * within the GPU's memory, a collective a kernel, on a stream of its own behind an event of each rank; a rank that goes
 * on has its compute stream wait for the end. The host never waits for the GPU. */
#ifndef PP_LOOP_CUDA_H
#define PP_LOOP_CUDA_H

#include "executor/transport/loop_mover.h"

extern const struct pp_loop_mover pp_loop_mover_cuda;

#endif
