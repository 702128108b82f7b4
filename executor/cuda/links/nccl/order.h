/* What the order of NCCL's launches gives. Kernels of several communicators on one GPU may wait for each other; with
 * NCCL_LAUNCH_ORDER_IMPLICIT=1 NCCL starts them in the order of the program. The program must be proven for that
 * (`in_order` of its stamp): a send that waits for its compute holds up what was posted after it. Where CUDA is too old
 * to tell the start of a kernel, NCCL runs them one after the other; then all posts of a rank stand in one queue, and
 * the program must be proven for that. Without an order there is V11: all that is outstanding has room at once. */
#ifndef PP_NCCL_ORDER_H
#define PP_NCCL_ORDER_H

#include "ir/queues.h"
#include "ir/status.h"

enum { PP_NCCL_ORDER_TEXT = 240 };

/* As NCCL and CUDA write them: 22809, 13000. */
struct pp_nccl_versions {
	int nccl, driver;
	int toolkit; /* that this was built with, and NCCL no older one */
};

struct pp_nccl_order {
	bool implicit;                 /* NCCL_LAUNCH_ORDER_IMPLICIT=1, else 0 */
	bool unproven;                 /* no order, and nothing proven of room either */
	enum pp_layout layout;         /* that posts stand in, in effect */
	char text[PP_NCCL_ORDER_TEXT]; /* what was decided, for people */
};

/* The queue in which posts on a line stand (plan.h: channels, then groups, then that of bodies) at its `position`-th
 * member, which is pipeline rank `rank`; PP_NULL: that of bodies. */
uint32_t pp_nccl_order_queue(const struct pp_queues *queues, uint32_t line, uint32_t position, uint32_t rank);

/* CUDA streams of the rank that has most: one for each queue, that of bodies, that of compute. */
uint32_t pp_nccl_order_streams(const struct pp_program *program, enum pp_layout layout);

/* Streams that share a connection to the GPU (CUDA_DEVICE_MAX_CONNECTIONS) wait for each other where no proof knows of
 * it. So: the layout that was asked for, or if it has more streams than that the next narrower one that the program is
 * proven for and that has not. The asked one if there is none. */
enum pp_layout pp_nccl_order_narrow(const struct pp_program *program, enum pp_layout asked, uint32_t connections);

/* The layout in which everything that a rank posts, collectives of bodies too, runs one after the other. */
enum pp_layout pp_nccl_order_serial(const struct pp_program *program);

/* `environment`: the variable as the user set it, or NULL; `asked`: of --queues. False: the program is not proven for
 * what this would give. */
bool pp_nccl_order_decide(const struct pp_program *program, enum pp_layout asked,
                          const struct pp_nccl_versions *versions, const char *environment, struct pp_nccl_order *order,
                          struct pp_status *status);

#endif
