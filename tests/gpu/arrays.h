/* Arrays for programs that check or time kernels on a GPU or on the fake device: numbers on the host, their copy on the
 * device in a type. What goes wrong ends the program with a message: these are mains. */
#ifndef PP_GPU_ARRAYS_H
#define PP_GPU_ARRAYS_H

#include "executor/cuda/kernels/kernels_cuda.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_array {
	enum pp_cuda_type type;
	size_t count;
	cudaStream_t stream; /* for copies */
	float *host;         /* as the device has them: already rounded to the type */
	void *device;
};

void gpu_must(cudaError_t error, const char *what);

/* A stream that waits for no other, not the default one: for the whole program. */
cudaStream_t gpu_stream_make(void);
/* Wait until it is done. */
void gpu_finish(cudaStream_t stream);

/* Normal numbers of this deviation, by a seed; NaN. */
struct gpu_array gpu_array_random(cudaStream_t stream, enum pp_cuda_type type, size_t count, uint64_t seed,
                                  float deviation);
struct gpu_array gpu_array_unset(cudaStream_t stream, enum pp_cuda_type type, size_t count);
void gpu_array_unset_again(struct gpu_array *array);
/* Device to host. */
void gpu_array_fetch(struct gpu_array *array);
/* A number that stands for the bits on the device. */
uint64_t gpu_array_bits(const struct gpu_array *array);
void gpu_array_free(struct gpu_array *array);

/* |got - want| / max(|want|, smallest * sqrt(count)), in the 2-norm; infinite where a number is not finite. */
double gpu_distance(size_t count, const float *got, const float *want, double smallest);

size_t gpu_type_bytes(enum pp_cuda_type type);
const char *gpu_type_name(enum pp_cuda_type type);

#ifdef __cplusplus
}
#endif

#endif
