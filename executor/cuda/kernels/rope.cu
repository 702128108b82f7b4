/* Rotary positions. The angles are taken in fp64, so that they are right at any position, once for all heads: a table
 * of cosines and sines of the positions of a sample in scratch, then the turns. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

#include <math.h>

enum { BLOCK = 256, HEADS = 4 }; /* heads that a thread turns by the same angles */

/* cosine[position][pair], then sine likewise. A pair turns by theta^(-pair / pairs) from one position to the next. */
__global__ void rotation_table(size_t seq, size_t pairs, double log2_theta, bool back, float *cosine, float *sine)
{
	size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
	if (i >= seq * pairs)
		return;
	size_t position = i / pairs, pair = i % pairs;
	double angle = (double)position * exp2(-(double)pair / (double)pairs * log2_theta), s, c;
	sincos(back ? -angle : angle, &s, &c);
	cosine[i] = (float)c;
	sine[i] = (float)s;
}

template <typename T> struct rotate_call {
	size_t tokens, seq, heads, head_columns;
	const T *x;
	T *y;
	const float *cosine, *sine;
};

/* A thread takes one pack of pairs of up to HEADS heads of a token: threadIdx.x counts packs, threadIdx.y tokens,
 * blockIdx.y groups of heads. */
template <typename T, bool aligned> __global__ void __launch_bounds__(BLOCK) rotate_pairs(rotate_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t pairs = call.head_columns / 2, t = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
	size_t first_head = (size_t)blockIdx.y * HEADS;
	if (t >= call.tokens)
		return;
	size_t table = t % call.seq * pairs;
	for (size_t number = threadIdx.x; number * SIZE < pairs; number += blockDim.x) {
		pack<SIZE> cosine = load_f32<aligned, SIZE>(call.cosine + table, number, pairs);
		pack<SIZE> sine = load_f32<aligned, SIZE>(call.sine + table, number, pairs);
		size_t at[HEADS];
		raw_pack<T> low[HEADS], high[HEADS];
#pragma unroll
		for (size_t h = 0; h < HEADS; h++) {
			at[h] = (t * call.heads + first_head + h) * call.head_columns;
			if (first_head + h >= call.heads)
				continue;
			low[h] = load_raw<aligned>(call.x + at[h], number, pairs);
			high[h] = load_raw<aligned>(call.x + at[h] + pairs, number, pairs);
		}
#pragma unroll
		for (size_t h = 0; h < HEADS; h++) {
			if (first_head + h >= call.heads)
				break;
			pack<SIZE> a = unpacked(low[h]), b = unpacked(high[h]), turned_a, turned_b;
#pragma unroll
			for (int i = 0; i < SIZE; i++) {
				turned_a.at[i] = a.at[i] * cosine.at[i] - b.at[i] * sine.at[i];
				turned_b.at[i] = b.at[i] * cosine.at[i] + a.at[i] * sine.at[i];
			}
			store<aligned>(call.y + at[h], number, pairs, turned_a);
			store<aligned>(call.y + at[h] + pairs, number, pairs, turned_b);
		}
	}
}

template <typename T> static void rotate(cudaStream_t stream, const rotate_call<T> &call)
{
	size_t pairs = call.head_columns / 2, packs = ceil_of(pairs, pack_of<T>::SIZE);
	unsigned across = 1;
	while (across < packs && across < WARP)
		across *= 2;
	dim3 block(across, BLOCK / across);
	dim3 grid(blocks_of(call.tokens, block.y), blocks_of(call.heads, HEADS));
	bool aligned = pairs % pack_of<T>::SIZE == 0 && on_16_bytes(call.x) && on_16_bytes(call.y);
	size_t bytes = call.tokens * call.heads * call.head_columns * sizeof(T);
	PP_READS(call.x, bytes);
	PP_READS(call.cosine, 2 * call.seq * pairs * sizeof(float));
	PP_WRITES(call.y, bytes);
	if (aligned)
		PP_LAUNCH_FREE((rotate_pairs<T, true>), grid, block, stream, call);
	else
		PP_LAUNCH_FREE((rotate_pairs<T, false>), grid, block, stream, call);
}

void pp_cuda_rotate(cudaStream_t stream, enum pp_cuda_type type, const struct pp_rotation *shape, const void *x,
                    void *y, void *scratch)
{
	typedef __nv_bfloat16 bf16;
	size_t pairs = shape->head_columns / 2, angles = shape->seq * pairs;
	float *cosine = static_cast<float *>(scratch), *sine = cosine + angles;
	PP_WRITES(cosine, 2 * angles * sizeof *cosine);
	PP_LAUNCH_FREE(rotation_table, blocks_of(angles, BLOCK), BLOCK, stream, shape->seq, pairs,
	               log2((double)shape->theta), shape->back, cosine, sine);
	if (type == PP_CUDA_BF16)
		rotate<bf16>(stream, {shape->tokens, shape->seq, shape->heads, shape->head_columns, (const bf16 *)x, (bf16 *)y,
		                      cosine, sine});
	else
		rotate<float>(stream, {shape->tokens, shape->seq, shape->heads, shape->head_columns, (const float *)x,
		                       (float *)y, cosine, sine});
}
