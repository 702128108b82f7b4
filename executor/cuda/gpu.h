/* The GPUs of this machine, before anything is done with one. */
#ifndef PP_GPU_H
#define PP_GPU_H

#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Number of GPUs, 0: none can be used; then *status says why and what would help, as a failure of the environment.
 * Never starts a context. Safe without a driver. */
int pp_gpu_count(struct pp_status *status);

/* Is there one? Asked by a process of its own: once a process has asked, those that it forks cannot use a GPU. */
bool pp_gpu_is_here(void);

/* The GPU of a process or thread that is the `local`-th on this machine, from 0: one after the other, over again where
 * there are more ranks than GPUs. `list` names GPUs by ordinal, as "0,2,3"; NULL: all. False: the list is wrong, or
 * there is no GPU. */
bool pp_gpu_choose(const char *list, uint32_t local, int *ordinal, struct pp_status *status);

/* Are the kernels built for this GPU, the one that is set? */
bool pp_gpu_fits(int ordinal, struct pp_status *status);

/* What tells that GPU from all others, on whatever machine and under whatever number it is seen there: its UUID. */
enum { PP_GPU_UUID = 16 };
bool pp_gpu_identify(const char *list, uint32_t local, uint8_t uuid[PP_GPU_UUID], struct pp_status *status);

#endif
