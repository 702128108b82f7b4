/* Gradients of causal attention on tensor cores, in two passes without atomics, so that every sum has one order:
 * `attention_dq` gives each block of threads some queries and walks over the keys that they see; it also leaves
 * dot(d_o, o) of each row for the second. `attention_dkv` gives each block some keys and walks over the queries that
 * see them, of all query heads that share the keys; it works on transposed scores, whose gradients so come out of one
 * product in the registers where the next wants them. Both compute probabilities anew from the log-sum-exp. Tri Dao,
 * "FlashAttention-2" (2023), algorithm 2, with its loops over keys and over queries apart. */
#ifndef PP_ATTENTION_BACKWARD_H
#define PP_ATTENTION_BACKWARD_H

#include "attention_tile.h"

/* First pass: WARPS * TILES * 16 queries a block, KEYS keys a step. */
template <int WIDTH_, int WARPS_, int TILES_, int KEYS_, int BLOCKS_> struct dq_plan {
	static constexpr int WIDTH = WIDTH_, WARPS = WARPS_, TILES = TILES_, KEYS = KEYS_;
	static constexpr int BLOCKS = BLOCKS_; /* meant to share a multiprocessor */
	static constexpr int THREADS = WARPS * 32, QUERIES = WARPS * TILES * 16;
	static constexpr int PITCH = TILE_PITCH<WIDTH>;
	static constexpr int SHARED_BYTES = (2 * QUERIES + 4 * KEYS) * PITCH * 2 + QUERIES * 4;
};

/* Second pass: WARPS * TILES * 16 keys a block, QUERIES queries a step, PART of them at a time. */
template <int WIDTH_, int WARPS_, int TILES_, int QUERIES_, int PART_, int BLOCKS_> struct dkv_plan {
	static constexpr int WIDTH = WIDTH_, WARPS = WARPS_, TILES = TILES_, QUERIES = QUERIES_, PART = PART_;
	static constexpr int BLOCKS = BLOCKS_;
	static constexpr int THREADS = WARPS * 32, KEYS = WARPS * TILES * 16;
	static constexpr int PITCH = TILE_PITCH<WIDTH>;
	static constexpr int SHARED_BYTES = (2 * KEYS + 4 * QUERIES) * PITCH * 2 + 4 * QUERIES * 4;
	static_assert(2 * QUERIES <= THREADS, "a thread brings one number of a row");
};

template <int TILES, int COUNT> static __device__ __forceinline__ void results_clear(float (&result)[TILES][COUNT][4])
{
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
#pragma unroll
		for (int n = 0; n < COUNT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				result[tile][n][i] = 0;
}

/* Dot product of two pairs of bf16. */
static __device__ __forceinline__ float dot_pairs(uint32_t a, uint32_t b)
{
	return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
	       __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

/* dot[row] = dot(d_o, o) of the warp's rows, d_o from its tile. Also to `kept`, one number for each token and head. */
template <class PLAN>
static __device__ __forceinline__ void dot_rows(float *dot, const __nv_bfloat16 *d_o, const __nv_bfloat16 *o,
                                                const struct attention_frame &frame, int first_query, float *kept)
{
	constexpr int CHUNKS = PLAN::WIDTH / 8, TOGETHER = 32 / CHUNKS;
	int lane = lane_of_warp(), column = lane % CHUNKS * 8;
#pragma unroll 4
	for (int at = 0; at < PLAN::TILES * 16; at += TOGETHER) {
		int row = at + lane / CHUNKS;
		bool there = first_query + row < frame.seq && column < frame.columns;
		float sum = 0;
		if (there) {
			uint4 a = *reinterpret_cast<const uint4 *>(o + (size_t)(first_query + row) * frame.q_stride + column);
			uint4 b = *reinterpret_cast<const uint4 *>(d_o + row * PLAN::PITCH + column);
			sum = dot_pairs(a.x, b.x) + dot_pairs(a.y, b.y) + dot_pairs(a.z, b.z) + dot_pairs(a.w, b.w);
		}
#pragma unroll
		for (int lanes = CHUNKS / 2; lanes; lanes /= 2)
			sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
		if (column == 0) {
			dot[row] = sum;
			if (first_query + row < frame.seq)
				kept[(size_t)(first_query + row) * frame.heads] = sum;
		}
	}
	__syncwarp();
}

/* Numbers of a thread's rows. */
template <int TILES> struct dq_rows {
	float lse2[TILES][2], dot[TILES][2]; /* log-sum-exp for powers of two */
};

/* d_score = gradient of the unscaled scores but for a factor: probability * (d_probability - dot). */
template <class PLAN>
static __device__ __forceinline__ void dq_scores(uint32_t (&d_score)[PLAN::TILES][PLAN::KEYS / 16][4],
                                                 const float (&score)[PLAN::TILES][PLAN::KEYS / 8][4],
                                                 const float (&d_probability)[PLAN::TILES][PLAN::KEYS / 8][4],
                                                 const struct dq_rows<PLAN::TILES> &rows, float scale2)
{
#pragma unroll
	for (int tile = 0; tile < PLAN::TILES; tile++)
#pragma unroll
		for (int n = 0; n < PLAN::KEYS / 8; n++)
#pragma unroll
			for (int lower = 0; lower < 2; lower++) {
				float result[2];
#pragma unroll
				for (int i = 0; i < 2; i++) {
					float x = score[tile][n][lower * 2 + i], d = d_probability[tile][n][lower * 2 + i];
					result[i] = pp_power2(x * scale2 - rows.lse2[tile][lower]) * (d - rows.dot[tile][lower]);
				}
				operand_set(d_score[tile], n, lower, result[0], result[1]);
			}
}

/* A warp's part of one tile of keys and values. */
template <class PLAN>
static __device__ __forceinline__ void
dq_step(float (&dq)[PLAN::TILES][PLAN::WIDTH / 8][4], const struct dq_rows<PLAN::TILES> &rows,
        const struct attention_frame &frame, const __nv_bfloat16 *q, const __nv_bfloat16 *d_o, const __nv_bfloat16 *k,
        const __nv_bfloat16 *v, int first_query, int first_key)
{
	constexpr int TILES = PLAN::TILES, COUNT = PLAN::KEYS / 8;
	if (first_key > first_query + TILES * 16 - 1 || first_key + PLAN::KEYS + frame.window <= first_query + 1)
		return; /* seen by none */
	float score[TILES][COUNT][4], d_probability[TILES][COUNT][4];
	product_rows<PLAN::WIDTH, TILES, COUNT>(score, q, k);
	if (first_key + PLAN::KEYS - 1 > first_query || first_key + frame.window <= first_query + TILES * 16 - 1)
		mask_scores<false>(score, first_query - first_key, frame.window);
	product_rows<PLAN::WIDTH, TILES, COUNT>(d_probability, d_o, v);
	uint32_t d_score[TILES][COUNT / 2][4];
	dq_scores<PLAN>(d_score, score, d_probability, rows, frame.scale2);
	product_add<PLAN::WIDTH, TILES, COUNT / 2>(dq, d_score, k);
}

/* Grid as attention_forward. `dot` is written: one number for each token and head. */
template <class PLAN>
static __global__ void __launch_bounds__(PLAN::THREADS, PLAN::BLOCKS)
    attention_dq(struct attention_frame frame, const __nv_bfloat16 *d_o, const __nv_bfloat16 *q, const __nv_bfloat16 *k,
                 const __nv_bfloat16 *v, const __nv_bfloat16 *o, const float *lse, float *dot, __nv_bfloat16 *dq)
{
	constexpr int WIDTH = PLAN::WIDTH, KEYS = PLAN::KEYS, PITCH = PLAN::PITCH, THREADS = PLAN::THREADS;
	constexpr int TILES = PLAN::TILES;
	PP_DYNAMIC_SHARED(__nv_bfloat16, q_tile);
	__nv_bfloat16 *d_o_tile = q_tile + PLAN::QUERIES * PITCH, *k_tiles = d_o_tile + PLAN::QUERIES * PITCH;
	__nv_bfloat16 *v_tiles = k_tiles + 2 * KEYS * PITCH;
	float *dots = reinterpret_cast<float *>(v_tiles + 2 * KEYS * PITCH);
	int head = (int)blockIdx.x, first_query = (int)(gridDim.y - 1 - blockIdx.y) * PLAN::QUERIES;
	size_t token = (size_t)blockIdx.z * frame.seq, kv_head = head / frame.group;
	size_t q_at = token * frame.q_stride + (size_t)head * frame.columns;
	size_t kv_at = token * frame.kv_stride + kv_head * frame.columns, row_at = token * frame.heads + head;

	int first_key = max(first_query + 1 - frame.window, 0) / KEYS * KEYS;
	int end_key = min(first_query + PLAN::QUERIES, frame.seq);
	struct tile_cursor q_cursor = tile_cursor_of<WIDTH>(frame, q_at, frame.q_stride, first_query);
	struct tile_cursor cursor = tile_cursor_of<WIDTH>(frame, kv_at, frame.kv_stride, first_key);
	tile_begin<PLAN::QUERIES, WIDTH, THREADS>(q_tile, q, q_cursor, frame.q_stride);
	tile_begin<PLAN::QUERIES, WIDTH, THREADS>(d_o_tile, d_o, q_cursor, frame.q_stride);
	tile_begin<KEYS, WIDTH, THREADS>(k_tiles, k, cursor, frame.kv_stride);
	tile_begin<KEYS, WIDTH, THREADS>(v_tiles, v, cursor, frame.kv_stride);
	pp_copy_group();
	pp_copy_wait<0>();
	__syncthreads();

	int warp_row = warp_of_block() * TILES * 16, stage = 0;
	dot_rows<PLAN>(dots + warp_row, d_o_tile + warp_row * PITCH, o + q_at, frame, first_query + warp_row, dot + row_at);
	struct dq_rows<TILES> rows;
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
#pragma unroll
		for (int lower = 0; lower < 2; lower++) {
			int row = warp_row + tile * 16 + lower * 8 + lane_of_warp() / 4, query = first_query + row;
			rows.lse2[tile][lower] = query < frame.seq ? lse[row_at + (size_t)query * frame.heads] * 1.44269504f : 0.0f;
			rows.dot[tile][lower] = dots[row];
		}
	float sum[TILES][WIDTH / 8][4], factor[TILES][2];
	results_clear<TILES, WIDTH / 8>(sum);
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
		dq_step<PLAN>(sum, rows, frame, q_tile + warp_row * PITCH, d_o_tile + warp_row * PITCH,
		              k_tiles + stage * KEYS * PITCH, v_tiles + stage * KEYS * PITCH, first_query + warp_row, key);
	}
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
		factor[tile][0] = factor[tile][1] = frame.scale;
	rows_store<WIDTH, TILES>(sum, factor, q_tile + warp_row * PITCH, dq + q_at, frame.q_stride, first_query + warp_row,
	                         frame.seq, frame.columns);
}

/* Probabilities and gradients of the unscaled scores but for a factor, both transposed (keys down, queries across), as
 * operands. `lse` and `dot` are those of the queries. */
template <class PLAN> struct dkv_operands {
	uint32_t probability[PLAN::TILES][PLAN::PART / 16][4], d_score[PLAN::TILES][PLAN::PART / 16][4];
};

template <class PLAN>
static __device__ __forceinline__ void dkv_scores(struct dkv_operands<PLAN> &operands,
                                                  const float (&score)[PLAN::TILES][PLAN::PART / 8][4],
                                                  const float (&d_probability)[PLAN::TILES][PLAN::PART / 8][4],
                                                  const float *lse, const float *dot, float scale2)
{
#pragma unroll
	for (int n = 0; n < PLAN::PART / 8; n++) {
		int column = n * 8 + lane_of_warp() % 4 * 2;
		float2 lse_pair = *reinterpret_cast<const float2 *>(lse + column);
		float2 dot_pair = *reinterpret_cast<const float2 *>(dot + column);
		float lse2[2] = {lse_pair.x * 1.44269504f, lse_pair.y * 1.44269504f};
		float row_dot[2] = {dot_pair.x, dot_pair.y};
#pragma unroll
		for (int tile = 0; tile < PLAN::TILES; tile++)
#pragma unroll
			for (int lower = 0; lower < 2; lower++) {
				float probability[2], result[2];
#pragma unroll
				for (int i = 0; i < 2; i++) {
					float x = score[tile][n][lower * 2 + i], d = d_probability[tile][n][lower * 2 + i];
					probability[i] = pp_power2(x * scale2 - lse2[i]);
					result[i] = probability[i] * (d - row_dot[i]);
				}
				operand_set(operands.probability[tile], n, lower, probability[0], probability[1]);
				operand_set(operands.d_score[tile], n, lower, result[0], result[1]);
			}
	}
}

/* Where a walk over the queries that see the keys of a block is: `tile` of the `tiles` of one head that start at
 * `first`, and what comes next there; head by head of those that share the keys. */
struct dkv_walk {
	int first, tiles, tile, heads_left;
	struct tile_cursor cursor; /* of q and d_o */
	size_t row_at;             /* of lse and dot: the sample's first row */
};

template <class PLAN>
static __device__ __forceinline__ struct dkv_walk dkv_walk_of(const struct attention_frame &frame, int first_key,
                                                              size_t q_at, size_t row_at)
{
	struct dkv_walk walk;
	walk.first = first_key / PLAN::QUERIES * PLAN::QUERIES;
	int end = min(min(first_key + PLAN::KEYS, frame.seq) - 1 + frame.window, frame.seq);
	walk.tiles = (end - walk.first + PLAN::QUERIES - 1) / PLAN::QUERIES;
	walk.tile = 0;
	walk.heads_left = frame.group - 1;
	walk.cursor = tile_cursor_of<PLAN::WIDTH>(frame, q_at, frame.q_stride, walk.first);
	walk.row_at = row_at;
	return walk;
}

/* On to the next tile; false: that was the last. */
template <class PLAN>
static __device__ __forceinline__ bool dkv_walk_move(struct dkv_walk &walk, const struct attention_frame &frame)
{
	if (++walk.tile < walk.tiles) {
		tile_cursor_move(walk.cursor, frame.q_stride, PLAN::QUERIES);
		return true;
	}
	int back = (walk.tiles - 1) * PLAN::QUERIES;
	walk.tile = 0;
	walk.row_at++;
	walk.cursor.at = walk.cursor.at + frame.columns - (size_t)back * frame.q_stride;
	walk.cursor.rows += back;
	return walk.heads_left-- > 0;
}

/* One tile of queries in shared memory. */
struct dkv_tile {
	__nv_bfloat16 *q, *d_o;
	float *lse, *dot;
};

template <class PLAN> static __device__ __forceinline__ struct dkv_tile dkv_tile_of(__nv_bfloat16 *tiles, int stage)
{
	float *numbers = reinterpret_cast<float *>(tiles + 4 * PLAN::QUERIES * PLAN::PITCH) + stage * 2 * PLAN::QUERIES;
	__nv_bfloat16 *q = tiles + stage * 2 * PLAN::QUERIES * PLAN::PITCH;
	struct dkv_tile tile = {q, q + PLAN::QUERIES * PLAN::PITCH, numbers, numbers + PLAN::QUERIES};
	return tile;
}

/* Arrays of query rows. */
struct dkv_source {
	const __nv_bfloat16 *q, *d_o;
	const float *lse, *dot;
};

/* Begin the copy of the tile where the walk is. */
template <class PLAN>
static __device__ __forceinline__ void dkv_begin(const struct attention_frame &frame, const struct dkv_source &from,
                                                 const struct dkv_walk &walk, const struct dkv_tile &to)
{
	constexpr int QUERIES = PLAN::QUERIES, WIDTH = PLAN::WIDTH, THREADS = PLAN::THREADS;
	tile_begin<QUERIES, WIDTH, THREADS>(to.q, from.q, walk.cursor, frame.q_stride);
	tile_begin<QUERIES, WIDTH, THREADS>(to.d_o, from.d_o, walk.cursor, frame.q_stride);
	int thread = (int)threadIdx.x, row = walk.first + walk.tile * QUERIES + thread % QUERIES;
	if (thread < 2 * QUERIES) { /* the numbers of a tile are one after the other, lse first */
		const float *numbers = thread < QUERIES ? from.lse : from.dot;
		pp_copy_begin_word(to.lse + thread, numbers + walk.row_at + (size_t)row * frame.heads, row < frame.seq);
	}
	pp_copy_group();
}

/* A warp's part of one tile of queries. */
template <class PLAN>
static __device__ __forceinline__ void
dkv_step(float (&dk)[PLAN::TILES][PLAN::WIDTH / 8][4], float (&dv)[PLAN::TILES][PLAN::WIDTH / 8][4],
         const struct attention_frame &frame, const __nv_bfloat16 *k, const __nv_bfloat16 *v,
         const struct dkv_tile &tile, int first_query, int first_key)
{
	constexpr int WIDTH = PLAN::WIDTH, TILES = PLAN::TILES, COUNT = PLAN::PART / 8;
#pragma unroll 1
	for (int part = 0; part < PLAN::QUERIES; part += PLAN::PART) {
		int query = first_query + part;
		if (query + PLAN::PART - 1 < first_key || first_key + TILES * 16 - 1 + frame.window <= query)
			continue; /* none sees any */
		const __nv_bfloat16 *q = tile.q + part * PLAN::PITCH, *d_o = tile.d_o + part * PLAN::PITCH;
		float score[TILES][COUNT][4], d_probability[TILES][COUNT][4];
		product_rows<WIDTH, TILES, COUNT>(score, k, q);
		if (first_key + TILES * 16 - 1 > query || first_key + frame.window <= query + PLAN::PART - 1)
			mask_scores<true>(score, query - first_key, frame.window);
		product_rows<WIDTH, TILES, COUNT>(d_probability, v, d_o);
		struct dkv_operands<PLAN> operands;
		dkv_scores<PLAN>(operands, score, d_probability, tile.lse + part, tile.dot + part, frame.scale2);
		product_add<WIDTH, TILES, COUNT / 2>(dv, operands.probability, d_o);
		product_add<WIDTH, TILES, COUNT / 2>(dk, operands.d_score, q);
	}
}

/* Grid: key heads; tiles of keys, the first, which most queries see, first; samples. */
template <class PLAN>
static __global__ void __launch_bounds__(PLAN::THREADS, PLAN::BLOCKS)
    attention_dkv(struct attention_frame frame, struct dkv_source from, const __nv_bfloat16 *k, const __nv_bfloat16 *v,
                  __nv_bfloat16 *dk, __nv_bfloat16 *dv)
{
	constexpr int WIDTH = PLAN::WIDTH, PITCH = PLAN::PITCH, TILES = PLAN::TILES, QUERIES = PLAN::QUERIES;
	PP_DYNAMIC_SHARED(__nv_bfloat16, k_tile);
	__nv_bfloat16 *v_tile = k_tile + PLAN::KEYS * PITCH, *tiles = v_tile + PLAN::KEYS * PITCH;
	int first_key = (int)blockIdx.y * PLAN::KEYS;
	size_t token = (size_t)blockIdx.z * frame.seq, head = (size_t)blockIdx.x * frame.group;
	size_t kv_at = token * frame.kv_stride + (size_t)blockIdx.x * frame.columns;
	struct tile_cursor cursor = tile_cursor_of<WIDTH>(frame, kv_at, frame.kv_stride, first_key);
	struct dkv_walk walk =
	    dkv_walk_of<PLAN>(frame, first_key, token * frame.q_stride + head * frame.columns, token * frame.heads + head);
	tile_begin<PLAN::KEYS, WIDTH, PLAN::THREADS>(k_tile, k, cursor, frame.kv_stride);
	tile_begin<PLAN::KEYS, WIDTH, PLAN::THREADS>(v_tile, v, cursor, frame.kv_stride);
	dkv_begin<PLAN>(frame, from, walk, dkv_tile_of<PLAN>(tiles, 0));

	int warp_row = warp_of_block() * TILES * 16, stage = 0;
	float dk_sum[TILES][WIDTH / 8][4], dv_sum[TILES][WIDTH / 8][4], factor[TILES][2];
	results_clear<TILES, WIDTH / 8>(dk_sum);
	results_clear<TILES, WIDTH / 8>(dv_sum);
	for (bool more = true; more; stage ^= 1) {
		int first_query = walk.first + walk.tile * QUERIES;
		pp_copy_wait<0>();
		__syncthreads(); /* this tile is there, and nobody reads the one that comes next into the other stage */
		more = dkv_walk_move<PLAN>(walk, frame);
		if (more)
			dkv_begin<PLAN>(frame, from, walk, dkv_tile_of<PLAN>(tiles, stage ^ 1));
		dkv_step<PLAN>(dk_sum, dv_sum, frame, k_tile + warp_row * PITCH, v_tile + warp_row * PITCH,
		               dkv_tile_of<PLAN>(tiles, stage), first_query, first_key + warp_row);
	}
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
		factor[tile][0] = factor[tile][1] = frame.scale;
	rows_store<WIDTH, TILES>(dk_sum, factor, k_tile + warp_row * PITCH, dk + kv_at, frame.kv_stride,
	                         first_key + warp_row, frame.seq, frame.columns);
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
		factor[tile][0] = factor[tile][1] = 1.0f;
	rows_store<WIDTH, TILES>(dv_sum, factor, v_tile + warp_row * PITCH, dv + kv_at, frame.kv_stride,
	                         first_key + warp_row, frame.seq, frame.columns);
}

/* What the gradients are made from, and where they go. */
struct attention_arrays {
	const void *d_o, *q, *k, *v, *o;
	const float *lse;
	float *dot; /* scratch: one number for each token and head */
	void *dq, *dk, *dv;
};

template <class PLAN>
static void attention_dq_launch(cudaStream_t stream, const struct pp_attention *shape,
                                const struct attention_arrays *arrays)
{
	struct attention_frame frame = attention_frame_of(shape);
	size_t q_bytes = shape->tokens * frame.q_stride * 2, kv_bytes = shape->tokens * frame.kv_stride * 2;
	size_t row_bytes = shape->tokens * shape->heads * sizeof *arrays->dot;
	void (*attention_queries)(struct attention_frame, const __nv_bfloat16 *, const __nv_bfloat16 *,
	                          const __nv_bfloat16 *, const __nv_bfloat16 *, const __nv_bfloat16 *, const float *,
	                          float *, __nv_bfloat16 *) = attention_dq<PLAN>;
	dim3 grid = tile_grid(shape->heads, (shape->seq + PLAN::QUERIES - 1) / PLAN::QUERIES, shape);
	PP_ALLOW_SHARED(attention_queries, PLAN::SHARED_BYTES);
	PP_READS(arrays->d_o, q_bytes);
	PP_READS(arrays->q, q_bytes);
	PP_READS(arrays->k, kv_bytes);
	PP_READS(arrays->v, kv_bytes);
	PP_READS(arrays->o, q_bytes);
	PP_READS(arrays->lse, row_bytes);
	PP_WRITES(arrays->dot, row_bytes);
	PP_WRITES(arrays->dq, q_bytes);
	PP_LAUNCH(attention_queries, grid, PLAN::THREADS, PLAN::SHARED_BYTES, stream, frame,
	          static_cast<const __nv_bfloat16 *>(arrays->d_o), static_cast<const __nv_bfloat16 *>(arrays->q),
	          static_cast<const __nv_bfloat16 *>(arrays->k), static_cast<const __nv_bfloat16 *>(arrays->v),
	          static_cast<const __nv_bfloat16 *>(arrays->o), arrays->lse, arrays->dot,
	          static_cast<__nv_bfloat16 *>(arrays->dq));
}

template <class PLAN>
static void attention_dkv_launch(cudaStream_t stream, const struct pp_attention *shape,
                                 const struct attention_arrays *arrays)
{
	struct attention_frame frame = attention_frame_of(shape);
	size_t q_bytes = shape->tokens * frame.q_stride * 2, kv_bytes = shape->tokens * frame.kv_stride * 2;
	size_t row_bytes = shape->tokens * shape->heads * sizeof *arrays->dot;
	struct dkv_source from = {static_cast<const __nv_bfloat16 *>(arrays->q),
	                          static_cast<const __nv_bfloat16 *>(arrays->d_o), arrays->lse, arrays->dot};
	void (*attention_keys)(struct attention_frame, struct dkv_source, const __nv_bfloat16 *, const __nv_bfloat16 *,
	                       __nv_bfloat16 *, __nv_bfloat16 *) = attention_dkv<PLAN>;
	dim3 grid = tile_grid(shape->kv_heads, (shape->seq + PLAN::KEYS - 1) / PLAN::KEYS, shape);
	PP_ALLOW_SHARED(attention_keys, PLAN::SHARED_BYTES);
	PP_READS(arrays->d_o, q_bytes);
	PP_READS(arrays->q, q_bytes);
	PP_READS(arrays->k, kv_bytes);
	PP_READS(arrays->v, kv_bytes);
	PP_READS(arrays->lse, row_bytes);
	PP_READS(arrays->dot, row_bytes);
	PP_WRITES(arrays->dk, kv_bytes);
	PP_WRITES(arrays->dv, kv_bytes);
	PP_LAUNCH(attention_keys, grid, PLAN::THREADS, PLAN::SHARED_BYTES, stream, frame, from,
	          static_cast<const __nv_bfloat16 *>(arrays->k), static_cast<const __nv_bfloat16 *>(arrays->v),
	          static_cast<__nv_bfloat16 *>(arrays->dk), static_cast<__nv_bfloat16 *>(arrays->dv));
}

#endif
