/* Sums over members. An element is read at all members and then written by one thread, so memory may be shared between
 * what is read and what is written at the same index.
 *
 * Requires: at most PP_CUDA_MEMBERS members on this GPU. */
#include "launch.h"

#include "members_cuda.h"

namespace
{

constexpr uint64_t THREADS = 256, BLOCKS = 1024;

__device__ inline float wide(float value)
{
	return value;
}

__device__ inline double wide(double value)
{
	return value;
}

__device__ inline float wide(__nv_bfloat16 value)
{
	return __bfloat162float(value);
}

__device__ inline void narrow(float sum, float *to)
{
	*to = sum;
}

__device__ inline void narrow(double sum, double *to)
{
	*to = sum;
}

__device__ inline void narrow(float sum, __nv_bfloat16 *to)
{
	*to = __float2bfloat16_rn(sum);
}

template <typename T> __device__ inline auto sum_at(const pp_cuda_members &members, uint64_t at)
{
	auto sum = wide(static_cast<const T *>(members.from[0])[at]);
	for (uint32_t j = 1; j < members.count; j++)
		sum += wide(static_cast<const T *>(members.from[j])[at]);
	return sum;
}

template <typename T> __global__ void sum_whole(pp_cuda_members members, uint64_t elements)
{
	const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
	for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < elements; k += stride) {
		const auto sum = sum_at<T>(members, k);
		for (uint32_t i = 0; i < members.count; i++)
			narrow(sum, static_cast<T *>(members.to[i]) + k);
	}
}

/* One row of blocks per member. */
template <typename T> __global__ void sum_shares(pp_cuda_members members, uint64_t elements)
{
	const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
	for (uint64_t k = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < elements; k += stride)
		narrow(sum_at<T>(members, blockIdx.y * elements + k), static_cast<T *>(members.to[blockIdx.y]) + k);
}

void touch(const pp_cuda_members &members, uint64_t read, uint64_t written)
{
	for (uint32_t i = 0; i < members.count; i++) {
		PP_READS(members.from[i], read);
		PP_WRITES(members.to[i], written);
	}
}

dim3 grid_of(uint64_t elements, uint32_t rows)
{
	const uint64_t blocks = (elements + THREADS - 1) / THREADS;
	return dim3(static_cast<unsigned>(blocks < BLOCKS ? blocks : BLOCKS), rows);
}

template <typename T> void launch_whole(cudaStream_t stream, const pp_cuda_members &members, uint64_t elements)
{
	touch(members, elements * sizeof(T), elements * sizeof(T));
	PP_LAUNCH_FREE(sum_whole<T>, grid_of(elements, 1), dim3(THREADS), stream, members, elements);
}

template <typename T> void launch_shares(cudaStream_t stream, const pp_cuda_members &members, uint64_t elements)
{
	touch(members, members.count * elements * sizeof(T), elements * sizeof(T));
	PP_LAUNCH_FREE(sum_shares<T>, grid_of(elements, members.count), dim3(THREADS), stream, members, elements);
}

} // namespace

void pp_cuda_sum_whole(cudaStream_t stream, enum pp_cuda_summand type, const struct pp_cuda_members *members,
                       uint64_t elements)
{
	if (elements == 0)
		return;
	if (type == PP_CUDA_SUM_F64)
		launch_whole<double>(stream, *members, elements);
	else if (type == PP_CUDA_SUM_BF16)
		launch_whole<__nv_bfloat16>(stream, *members, elements);
	else
		launch_whole<float>(stream, *members, elements);
}

void pp_cuda_sum_shares(cudaStream_t stream, enum pp_cuda_summand type, const struct pp_cuda_members *members,
                        uint64_t elements)
{
	if (elements == 0)
		return;
	if (type == PP_CUDA_SUM_F64)
		launch_shares<double>(stream, *members, elements);
	else if (type == PP_CUDA_SUM_BF16)
		launch_shares<__nv_bfloat16>(stream, *members, elements);
	else
		launch_shares<float>(stream, *members, elements);
}
