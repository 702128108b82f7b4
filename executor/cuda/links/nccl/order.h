/* What the order of NCCL's launches gives. Kernels of several communicators on one GPU may wait for each other; with
 * NCCL_LAUNCH_ORDER_IMPLICIT=1 NCCL starts them in the order of the program, and where the driver is too old to let one
 * start while another runs, it runs them one after the other. Then all posts of a rank stand in one queue, and the
 * program must be proven for that. */
#ifndef PP_NCCL_ORDER_H
#define PP_NCCL_ORDER_H

#include "ir/program.h"
#include "ir/status.h"

enum { PP_NCCL_ORDER_TEXT = 240 };

struct pp_nccl_order {
	bool implicit;                 /* set NCCL_LAUNCH_ORDER_IMPLICIT */
	enum pp_layout layout;         /* that posts stand in, in effect */
	char text[PP_NCCL_ORDER_TEXT]; /* what was decided, for people */
};

/* `driver`: as cudaDriverGetVersion has it; `environment`: the variable as the user set it, or NULL; `asked`: of
 * --queues. False: the image is not proven for what this would give. */
bool pp_nccl_order_decide(const struct pp_program *program, enum pp_layout asked, int driver, const char *environment,
                          struct pp_nccl_order *order, struct pp_status *status);

#endif
