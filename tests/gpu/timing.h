/* Times of work on the device, and the rates that everything is compared with: a copy and a product of bf16 matrices.
 */
#ifndef PP_GPU_TIMING_H
#define PP_GPU_TIMING_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is this a rehearsal (--small)? Then everything runs once, on small arrays, and times mean nothing. */
bool gpu_rehearsal(int argc, char **argv);

/* Seconds of `work(argument)`, which enqueues on the stream: by events, the median of five batches of at least 10 ms
 * after two runs that do not count. A rehearsal: one run. */
double gpu_seconds(cudaStream_t stream, bool rehearsal, void (*work)(void *), void *argument);

struct gpu_ceilings {
	double copy;    /* bytes/s of a large copy on the device, read and written */
	double product; /* floating-point operations/s of 8192^3 in bf16, by the fastest of the library's algorithms */
};
/* Prints them, too. Call it first: it waits for the GPU's clocks to rise. */
struct gpu_ceilings gpu_ceilings_measure(cudaStream_t stream, bool rehearsal);

#ifdef __cplusplus
}
#endif

#endif
