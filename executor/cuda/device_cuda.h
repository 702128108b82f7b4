/* The CUDA device (device.h). In the library pp_executor_cuda. */
#ifndef PP_CUDA_DEVICE_H
#define PP_CUDA_DEVICE_H

#include "executor/device.h"

extern const struct pp_device_ops pp_device_cuda;

#endif
