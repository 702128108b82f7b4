/* Making the communicators of a rank, and using each of them once. */
#ifndef PP_NCCL_COMMS_H
#define PP_NCCL_COMMS_H

#include "line.h"

#include "executor/transport.h"

/* Communicator of the world; NULL before it is made. */
struct pp_nccl_world {
	const struct pp_program *program;
	uint32_t rank, ranks;
	ncclComm_t comm;
	uint64_t grown; /* bytes of the GPU that were taken when everything had been used before */
};

/* The unique id travels by the control data of `below`; then one communicator for each line [plan->count], in rounds.
 * All ranks together; blocks until all have come. `fine`: this rank is ready for it, else *status says why not, and no
 * rank begins. */
bool pp_nccl_world_make(struct pp_nccl_world *world, const struct pp_nccl_plan *plan, struct pp_nccl_line *lines,
                        const struct pp_transport_ops *below, struct pp_endpoint *endpoint, bool fine,
                        struct pp_status *status);

/* Run every (line, operation, count, dtype) of the program once, with this memory of the device, whose contents are of
 * no use; NULL: with some that is allocated for the time. What NCCL allocates at first use it has then. All ranks
 * together. */
bool pp_nccl_world_warm(struct pp_nccl_world *world, const struct pp_nccl_plan *plan, struct pp_nccl_line *lines,
                        void *room, uint64_t bytes, struct pp_status *status);

/* `lost`: operations may be under way that never end. Graphs that hold posts must be gone: NCCL waits for their end. */
void pp_nccl_world_end(struct pp_nccl_world *world, struct pp_nccl_line *lines, uint32_t count, bool lost);

#endif
