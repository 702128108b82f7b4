/* Runs bodies on a GPU: binds the operands of each body instruction and calls its kernel. Part of device_cuda. */
#ifndef PP_BODY_CUDA_H
#define PP_BODY_CUDA_H

#include "executor/body_frame.h"

#include "gemm.h"

#include <cuda_runtime_api.h>

/* What kernels of a device run with. */
struct pp_cuda_body {
	cudaStream_t stream;
	struct pp_gemm *gemm;
	void *scratch;
};

bool pp_cuda_has_op(enum pp_body_op op);

/* Is this a collective of a group of more than one, or the wait for one: what cannot be part of a graph? */
bool pp_cuda_is_exchange(const struct pp_body_instr *instr, uint32_t tp);

/* The end of the stretch of instructions that begins at `first`: a single exchange, or kernels up to the next one. */
uint32_t pp_cuda_stretch_end(const struct pp_body *body, uint32_t first, uint32_t tp);

/* Give instructions [first, end) of a body to the stream. False: an await failed, the run is lost. */
bool pp_cuda_run_body(const struct pp_cuda_body *with, const struct pp_bound_call *call, uint32_t first, uint32_t end);

#endif
