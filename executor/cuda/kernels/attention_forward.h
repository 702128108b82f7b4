/* Causal attention on tensor cores: each block of threads has WARPS * TILES * 16 queries of one head and walks over the
 * keys that they see, KEYS at a time, with a running softmax; scores never leave the registers. The next keys and
 * values arrive while the block works on these. Tri Dao, "FlashAttention-2" (2023), algorithm 1. */
#ifndef PP_ATTENTION_FORWARD_H
#define PP_ATTENTION_FORWARD_H

#include "attention_tile.h"

template <int WIDTH_, int WARPS_, int TILES_, int KEYS_, int BLOCKS_> struct forward_plan {
	static constexpr int WIDTH = WIDTH_, WARPS = WARPS_, TILES = TILES_, KEYS = KEYS_;
	static constexpr int BLOCKS = BLOCKS_; /* meant to share a multiprocessor */
	static constexpr int THREADS = WARPS * 32, QUERIES = WARPS * TILES * 16;
	static constexpr int PITCH = TILE_PITCH<WIDTH>;
	static constexpr int SHARED_BYTES = (QUERIES + 4 * KEYS) * PITCH * 2;
};

/* Running softmax of a warp's rows, of which each thread knows two for each tile, and what they attended to so far:
 * weights are 2^(score - shift). `sum` is of this thread's columns only until the end. */
template <class PLAN> struct forward_state {
	float shift[PLAN::TILES][2], sum[PLAN::TILES][2];
	float out[PLAN::TILES][PLAN::WIDTH / 8][4];
};

/* A row keeps its shift until weights would exceed 2^HEADROOM: any shift gives the same quotients, and sums are far
 * from the end of the range. */
static constexpr float FORWARD_HEADROOM = 8;

template <class PLAN> using forward_scores = float[PLAN::TILES][PLAN::KEYS / 8][4];

/* The largest score of one row, for powers of two. */
template <class PLAN>
static __device__ __forceinline__ float largest_of_row(const forward_scores<PLAN> &score, int tile, int lower,
                                                       float scale2)
{
	float best = -INFINITY;
#pragma unroll
	for (int n = 0; n < PLAN::KEYS / 8; n++)
		best = fmaxf(best, fmaxf(score[tile][n][lower * 2], score[tile][n][lower * 2 + 1]));
	best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
	best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
	return best * scale2;
}

/* What a row has summed up so far, for a new shift. */
template <class PLAN>
static __device__ __forceinline__ void shift_row(struct forward_state<PLAN> &state, int tile, int lower, float best)
{
	float shift = fmaxf(state.shift[tile][lower], best);
	float correction = shift == -INFINITY ? 1.0f : pp_power2(state.shift[tile][lower] - shift);
	state.shift[tile][lower] = shift;
	state.sum[tile][lower] *= correction;
#pragma unroll
	for (int n = 0; n < PLAN::WIDTH / 8; n++) {
		state.out[tile][n][lower * 2] *= correction;
		state.out[tile][n][lower * 2 + 1] *= correction;
	}
}

/* New shifts where a row of the warp needs one. */
template <class PLAN>
static __device__ __forceinline__ void shift_rows(const forward_scores<PLAN> &score, struct forward_state<PLAN> &state,
                                                  float scale2)
{
	float best[PLAN::TILES][2];
	bool higher = false;
#pragma unroll
	for (int tile = 0; tile < PLAN::TILES; tile++)
#pragma unroll
		for (int lower = 0; lower < 2; lower++) {
			best[tile][lower] = largest_of_row<PLAN>(score, tile, lower, scale2);
			higher = higher || best[tile][lower] > state.shift[tile][lower] + FORWARD_HEADROOM;
		}
	if (!__any_sync(0xffffffffu, higher))
		return;
#pragma unroll
	for (int tile = 0; tile < PLAN::TILES; tile++)
#pragma unroll
		for (int lower = 0; lower < 2; lower++)
			shift_row<PLAN>(state, tile, lower, best[tile][lower]);
}

/* Weights of one row. */
template <class PLAN>
static __device__ __forceinline__ void soften_row(uint32_t (&weight)[PLAN::TILES][PLAN::KEYS / 16][4],
                                                  const forward_scores<PLAN> &score, struct forward_state<PLAN> &state,
                                                  int tile, int lower, float scale2)
{
	float shift = state.shift[tile][lower] == -INFINITY ? 0.0f : state.shift[tile][lower]; /* all masked so far */
#pragma unroll
	for (int n = 0; n < PLAN::KEYS / 8; n++) {
		float first = pp_power2(score[tile][n][lower * 2] * scale2 - shift);
		float second = pp_power2(score[tile][n][lower * 2 + 1] * scale2 - shift);
		state.sum[tile][lower] += first + second;
		operand_set(weight[tile], n, lower, first, second);
	}
}

/* A warp's part of one tile of keys and values. */
template <class PLAN>
static __device__ __forceinline__ void
forward_step(struct forward_state<PLAN> &state, const struct attention_frame &frame, const __nv_bfloat16 *q,
             const __nv_bfloat16 *k, const __nv_bfloat16 *v, int first_query, int first_key)
{
	constexpr int ROWS = PLAN::TILES * 16;
	if (first_key > first_query + ROWS - 1 || first_key + PLAN::KEYS + frame.window <= first_query + 1)
		return; /* seen by none */
	forward_scores<PLAN> score;
	product_rows<PLAN::WIDTH, PLAN::TILES, PLAN::KEYS / 8>(score, q, k);
	if (first_key + PLAN::KEYS - 1 > first_query || first_key + frame.window <= first_query + ROWS - 1)
		mask_scores<false>(score, first_query - first_key, frame.window);
	shift_rows<PLAN>(score, state, frame.scale2);
	uint32_t weight[PLAN::TILES][PLAN::KEYS / 16][4];
#pragma unroll
	for (int tile = 0; tile < PLAN::TILES; tile++)
#pragma unroll
		for (int lower = 0; lower < 2; lower++)
			soften_row<PLAN>(weight, score, state, tile, lower, frame.scale2);
	product_add<PLAN::WIDTH, PLAN::TILES, PLAN::KEYS / 16>(state.out, weight, v);
}

/* Sums over whole rows, log-sum-exp; factor = what the outputs are still to be multiplied with. */
template <class PLAN>
static __device__ __forceinline__ void forward_end(const struct forward_state<PLAN> &state,
                                                   const struct attention_frame &frame, float factor[PLAN::TILES][2],
                                                   float *lse, int first_query)
{
	int lane = lane_of_warp();
#pragma unroll
	for (int tile = 0; tile < PLAN::TILES; tile++)
#pragma unroll
		for (int lower = 0; lower < 2; lower++) {
			float sum = state.sum[tile][lower];
			sum += __shfl_xor_sync(0xffffffffu, sum, 1);
			sum += __shfl_xor_sync(0xffffffffu, sum, 2);
			factor[tile][lower] = 1.0f / sum;
			int query = first_query + tile * 16 + lower * 8 + lane / 4;
			if (lane % 4 == 0 && query < frame.seq)
				lse[(size_t)query * frame.heads] = state.shift[tile][lower] * 0.693147181f + logf(sum);
		}
}

/* Grid: heads; tiles of queries, the last first because they see the most keys; samples. */
template <class PLAN>
static __global__ void __launch_bounds__(PLAN::THREADS, PLAN::BLOCKS)
    attention_forward(struct attention_frame frame, const __nv_bfloat16 *q, const __nv_bfloat16 *k,
                      const __nv_bfloat16 *v, __nv_bfloat16 *o, float *lse)
{
	constexpr int WIDTH = PLAN::WIDTH, KEYS = PLAN::KEYS, PITCH = PLAN::PITCH, THREADS = PLAN::THREADS;
	PP_DYNAMIC_SHARED(__nv_bfloat16, q_tile);
	__nv_bfloat16 *k_tiles = q_tile + PLAN::QUERIES * PITCH, *v_tiles = k_tiles + 2 * KEYS * PITCH;
	int head = (int)blockIdx.x, first_query = (int)(gridDim.y - 1 - blockIdx.y) * PLAN::QUERIES;
	size_t token = (size_t)blockIdx.z * frame.seq, kv_head = head / frame.group;
	size_t q_at = token * frame.q_stride + (size_t)head * frame.columns;
	size_t kv_at = token * frame.kv_stride + kv_head * frame.columns;

	int first_key = max(first_query + 1 - frame.window, 0) / KEYS * KEYS;
	int end_key = min(first_query + PLAN::QUERIES, frame.seq);
	struct tile_cursor q_cursor = tile_cursor_of<WIDTH>(frame, q_at, frame.q_stride, first_query);
	struct tile_cursor cursor = tile_cursor_of<WIDTH>(frame, kv_at, frame.kv_stride, first_key);
	tile_begin<PLAN::QUERIES, WIDTH, THREADS>(q_tile, q, q_cursor, frame.q_stride);
	tile_begin<KEYS, WIDTH, THREADS>(k_tiles, k, cursor, frame.kv_stride);
	tile_begin<KEYS, WIDTH, THREADS>(v_tiles, v, cursor, frame.kv_stride);
	pp_copy_group();

	struct forward_state<PLAN> state;
#pragma unroll
	for (int tile = 0; tile < PLAN::TILES; tile++) {
		state.shift[tile][0] = state.shift[tile][1] = -INFINITY;
		state.sum[tile][0] = state.sum[tile][1] = 0;
#pragma unroll
		for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				state.out[tile][n][i] = 0;
	}
	int warp_row = warp_of_block() * PLAN::TILES * 16, stage = 0;
	for (int key = first_key; key < end_key; key += KEYS, stage ^= 1) {
		pp_copy_wait<0>();
		__syncthreads(); /* this tile is there, and nobody reads the one that comes next into the other stage */
		if (key + KEYS < end_key) {
			int at = (stage ^ 1) * KEYS * PITCH;
			tile_cursor_move(cursor, frame.kv_stride, KEYS);
			tile_begin<KEYS, WIDTH, THREADS>(k_tiles + at, k, cursor, frame.kv_stride);
			tile_begin<KEYS, WIDTH, THREADS>(v_tiles + at, v, cursor, frame.kv_stride);
			pp_copy_group();
		}
		forward_step<PLAN>(state, frame, q_tile + warp_row * PITCH, k_tiles + stage * KEYS * PITCH,
		                   v_tiles + stage * KEYS * PITCH, first_query + warp_row, key);
	}
	float factor[PLAN::TILES][2];
	forward_end<PLAN>(state, frame, factor, lse + token * frame.heads + head, first_query + warp_row);
	rows_store<WIDTH, PLAN::TILES>(state.out, factor, q_tile + warp_row * PITCH, o + q_at, frame.q_stride,
	                               first_query + warp_row, frame.seq, frame.columns);
}

template <class PLAN>
static void attention_forward_launch(cudaStream_t stream, const struct pp_attention *shape, const void *q,
                                     const void *k, const void *v, void *o, float *lse)
{
	struct attention_frame frame = attention_frame_of(shape);
	void (*attention)(struct attention_frame, const __nv_bfloat16 *, const __nv_bfloat16 *, const __nv_bfloat16 *,
	                  __nv_bfloat16 *, float *) = attention_forward<PLAN>;
	dim3 grid = tile_grid(shape->heads, (shape->seq + PLAN::QUERIES - 1) / PLAN::QUERIES, shape);
	PP_ALLOW_SHARED(attention, PLAN::SHARED_BYTES);
	PP_READS(q, shape->tokens * frame.q_stride * 2);
	PP_READS(k, shape->tokens * frame.kv_stride * 2);
	PP_READS(v, shape->tokens * frame.kv_stride * 2);
	PP_WRITES(o, shape->tokens * frame.q_stride * 2);
	PP_WRITES(lse, shape->tokens * shape->heads * sizeof *lse);
	PP_LAUNCH(attention, grid, PLAN::THREADS, PLAN::SHARED_BYTES, stream, frame, static_cast<const __nv_bfloat16 *>(q),
	          static_cast<const __nv_bfloat16 *>(k), static_cast<const __nv_bfloat16 *>(v),
	          static_cast<__nv_bfloat16 *>(o), lse);
}

#endif
