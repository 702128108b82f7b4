/* The CUDA device as a library of its own, loaded when a run wants it: CUDA's libraries are large, and piperun is to
 * start at once on machines that have none of them. */
#ifndef PP_GPU_LIBRARY_H
#define PP_GPU_LIBRARY_H

#include "device.h"

/* NULL: this piperun was built without CUDA, or its library cannot be loaded; *status says which. */
const struct pp_device_ops *pp_gpu_library(struct pp_status *status);

#endif
