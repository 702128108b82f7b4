/* Sums over the members of a group whose memory is that of one GPU. In member order, element by element, so all members
 * get the same bits, and in f32 and f64 those of the processor; bf16 is summed in f32 and rounded once. */
#ifndef PP_MEMBERS_CUDA_H
#define PP_MEMBERS_CUDA_H

#include <cuda_runtime_api.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PP_CUDA_MEMBERS = 64 }; /* at most: the addresses travel with the launch */

enum pp_cuda_summand { PP_CUDA_SUM_F32, PP_CUDA_SUM_F64, PP_CUDA_SUM_BF16 };

/* `to` of a member may be its `from`, or of shares lie in it at the member's place. */
struct pp_cuda_members {
	const void *from[PP_CUDA_MEMBERS];
	void *to[PP_CUDA_MEMBERS];
	uint32_t count;
};

/* to[i][k] = sum over j of from[j][k], for all members i and k < elements. */
void pp_cuda_sum_whole(cudaStream_t stream, enum pp_cuda_summand type, const struct pp_cuda_members *members,
                       uint64_t elements);

/* to[i][k] = sum over j of from[j][i * elements + k]. */
void pp_cuda_sum_shares(cudaStream_t stream, enum pp_cuda_summand type, const struct pp_cuda_members *members,
                        uint64_t elements);

#ifdef __cplusplus
}
#endif

#endif
