/* One communicator of a rank and the posts on it. Used by the files of the NCCL transport only. */
#ifndef PP_NCCL_LINE_H
#define PP_NCCL_LINE_H

#include "plan.h"

#include "executor/cuda/cuda.h"
#include "executor/transport/collective.h"

#include <nccl.h>

/* Post n lies at n mod capacity. */
struct pp_nccl_line {
	const struct pp_program *program;
	uint32_t index;               /* in the plan */
	struct pp_nccl_seat seat;     /* members == 0: none of this rank's */
	ncclComm_t comm;              /* NULL: the rank is alone in it */
	cudaStream_t stream;          /* of its queue: perhaps not its alone */
	struct pp_cuda_events events; /* [capacity][2]: where the device was at the post; its end */
	uint32_t capacity;
	uint64_t posted, base; /* base: posts before the present step */
};

/* Events for `posts` posts of a step. */
bool pp_nccl_line_open(struct pp_nccl_line *line, uint32_t posts, struct pp_status *status);
void pp_nccl_line_close(struct pp_nccl_line *line);

/* Hand a part to NCCL on the line's stream. Of a channel: `from` at its source, `to` at its destination. */
bool pp_nccl_line_start(const struct pp_nccl_line *line, const struct pp_part *part, struct pp_status *status);

/* The same behind all that the compute stream has been given. */
bool pp_nccl_line_post(struct pp_nccl_line *line, const struct pp_cuda *cuda, const struct pp_part *part,
                       uint64_t *number, struct pp_status *status);

/* What the compute stream is given from here on comes after post `number`. */
bool pp_nccl_line_follow(const struct pp_nccl_line *line, const struct pp_cuda *cuda, uint64_t number,
                         struct pp_status *status);

/* Has NCCL met an error that no call returned? False: *status names the line. */
bool pp_nccl_line_sound(const struct pp_nccl_line *line, struct pp_status *status);

/* True on success; else *status, PP_EXIT_RUN. `comm` may be NULL. */
bool pp_nccl_ok(ncclResult_t result, ncclComm_t comm, const char *what, struct pp_status *status);

#endif
