/* Posts within a step that is captured as one graph. */
#ifndef PP_NCCL_CAPTURE_H
#define PP_NCCL_CAPTURE_H

#include "order.h"

/* Launches within a graph start in the order of the program from CUDA 12.9 on; where an older driver has them wait for
 * each other's end, the program must be proven for that. `driver`: as cudaDriverGetVersion has it. */
bool pp_nccl_capture_fits(const struct pp_program *program, const struct pp_nccl_order *order, int driver,
                          struct pp_status *status);

#endif
