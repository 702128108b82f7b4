/* Causal attention: which kernels a shape takes. bf16 goes to the tensor cores (attention_forward.h,
 * attention_backward.h) where heads are at most 128 wide and rows can be copied 16 bytes at a time; all else is plain.
 * The plans are the largest tiles that fit the registers without spilling on every architecture; gpu_attention_plans
 * times others. */
#include "launch.h"

#include "attention_backward.h"
#include "attention_forward.h"
#include "attention_plain.h"

#include <cassert>

using forward_64 = forward_plan<64, 4, 2, 64, 2>;
using forward_128 = forward_plan<128, 4, 2, 32, 2>;
using dq_64 = dq_plan<64, 4, 2, 64, 2>;
using dq_128 = dq_plan<128, 4, 2, 32, 2>;
using dkv_64 = dkv_plan<64, 4, 2, 64, 32, 2>;
using dkv_128 = dkv_plan<128, 4, 1, 64, 32, 2>;
/* Where two such blocks do not fit a multiprocessor's shared memory (before compute capability 9.0), of which a block
 * alone may have too little (8.6 and 8.9: 99 KiB): fewer rows a block, the same bits. */
using dq_128_small = dq_plan<128, 4, 1, 32, 2>;
using dkv_128_small = dkv_plan<128, 4, 1, 32, 32, 2>;
static_assert(dq_128::SHARED_BYTES <= dkv_128::SHARED_BYTES, "the second pass decides");

static bool aligned(const void *array)
{
	return (uintptr_t)array % 16 == 0;
}

static bool takes_tensor_cores(enum pp_cuda_type type, const struct pp_attention *shape)
{
	return type == PP_CUDA_BF16 && shape->head_columns % 8 == 0 && shape->head_columns <= 128;
}

static bool two_fit(int shared_bytes)
{
	enum { RESERVED = 1024 }; /* of each block, by CUDA */
	int device = 0, most = 0;
	(void)cudaGetDevice(&device);
	(void)cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
	return 2 * (shared_bytes + RESERVED) <= most;
}

void pp_cuda_attention(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape, const void *q,
                       const void *k, const void *v, void *o, float *lse)
{
	assert(shape->heads % shape->kv_heads == 0 && shape->tokens % shape->seq == 0);
	if (!takes_tensor_cores(type, shape) || !aligned(q) || !aligned(k) || !aligned(v) || !aligned(o))
		pp_cuda_attention_plain(stream, type, shape, q, k, v, o, lse);
	else if (shape->head_columns <= 64)
		attention_forward_launch<forward_64>(stream, shape, q, k, v, o, lse);
	else
		attention_forward_launch<forward_128>(stream, shape, q, k, v, o, lse);
}

void pp_cuda_attention_dx(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape,
                          const void *d_o, const void *q, const void *k, const void *v, const void *o, const float *lse,
                          void *dq, void *dk, void *dv, void *scratch)
{
	assert(shape->heads % shape->kv_heads == 0 && shape->tokens % shape->seq == 0);
	float *dot = static_cast<float *>(scratch);
	struct attention_arrays arrays = {d_o, q, k, v, o, lse, dot, dq, dk, dv};
	bool all_aligned = aligned(d_o) && aligned(q) && aligned(k) && aligned(v) && aligned(o) && aligned(dq) &&
	                   aligned(dk) && aligned(dv);
	if (!takes_tensor_cores(type, shape) || !all_aligned) {
		pp_cuda_attention_plain_dx(stream, type, shape, d_o, q, k, v, o, lse, dq, dk, dv, dot);
	} else if (shape->head_columns <= 64) {
		attention_dq_launch<dq_64>(stream, shape, &arrays);
		attention_dkv_launch<dkv_64>(stream, shape, &arrays);
	} else if (two_fit(dkv_128::SHARED_BYTES)) {
		attention_dq_launch<dq_128>(stream, shape, &arrays);
		attention_dkv_launch<dkv_128>(stream, shape, &arrays);
	} else {
		attention_dq_launch<dq_128_small>(stream, shape, &arrays);
		attention_dkv_launch<dkv_128_small>(stream, shape, &arrays);
	}
}
