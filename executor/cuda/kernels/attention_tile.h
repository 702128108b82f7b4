/* What the tensor-core attention kernels share: tiles of bf16 rows in shared memory, a warp's operands from them and
 * the products of a warp. Requires launch.h before. Layouts of operands: tensor_core.h.
 *
 * A tile has rows of `WIDTH` columns, one of 64 or 128; narrower heads are filled up with zeros. Rows lie 16 bytes
 * further apart than they are wide: an odd multiple of 16 bytes, so that the eight rows of an 8 x 8 matrix come from
 * different banks without any swizzle, and every offset within a tile is a constant. */
#ifndef PP_ATTENTION_TILE_H
#define PP_ATTENTION_TILE_H

#include "kernels_cuda.h"
#include "tensor_core.h"

/* What a kernel knows of struct pp_attention. Strides are between tokens, in elements. */
struct attention_frame {
	int seq, heads, kv_heads, columns, window;
	int group; /* query heads for each key head */
	size_t q_stride, kv_stride;
	float scale;  /* of scores */
	float scale2; /* the same for powers of two: times log2 e */
};

static inline struct attention_frame attention_frame_of(const struct pp_attention *shape)
{
	struct attention_frame frame;
	frame.seq = (int)shape->seq;
	frame.heads = (int)shape->heads;
	frame.kv_heads = (int)shape->kv_heads;
	frame.columns = (int)shape->head_columns;
	frame.window = (int)(shape->window && shape->window < shape->seq ? shape->window : shape->seq);
	frame.group = (int)(shape->heads / shape->kv_heads);
	frame.q_stride = shape->heads * shape->head_columns;
	frame.kv_stride = shape->kv_heads * shape->head_columns;
	frame.scale = 1.0f / sqrtf((float)shape->head_columns);
	frame.scale2 = frame.scale * 1.44269504f;
	return frame;
}

/* Blocks start with x counting fastest: of a sample (z), the tiles with the most work (y = 0) of all heads (x) come
 * first, so that the last blocks to start are short and end together; and the tiles of a head that run at one time
 * begin at the same rows, which the first of them has brought to the cache. */
static inline dim3 tile_grid(size_t heads, size_t tiles, const struct pp_attention *shape)
{
	return dim3((unsigned)heads, (unsigned)tiles, (unsigned)(shape->tokens / shape->seq));
}

/* Between rows of a tile, in elements. */
template <int WIDTH> static constexpr int TILE_PITCH = WIDTH + 8;

/* Unsigned until here: dividing signed numbers takes more instructions and registers. */
static __device__ __forceinline__ int lane_of_warp(void)
{
	return (int)(threadIdx.x % 32);
}

static __device__ __forceinline__ int warp_of_block(void)
{
	return (int)(threadIdx.x / 32);
}

/* What a thread copies of a tile: 8 columns of one row and of rows THREADS / (WIDTH / 8) further on. */
struct tile_cursor {
	size_t at; /* its first element, from the start of the array */
	int rows;  /* from this one on to the end of the sample; none: columns beyond the head's */
};

/* For the tile from row `first` of a head that begins at `head_at`. */
template <int WIDTH>
static __device__ __forceinline__ struct tile_cursor tile_cursor_of(const struct attention_frame &frame, size_t head_at,
                                                                    size_t stride, int first)
{
	int row = first + (int)(threadIdx.x / (WIDTH / 8)), column = (int)(threadIdx.x % (WIDTH / 8)) * 8;
	struct tile_cursor cursor;
	cursor.at = head_at + (size_t)row * stride + column;
	cursor.rows = column < frame.columns ? frame.seq - row : 0;
	return cursor;
}

static __device__ __forceinline__ void tile_cursor_move(struct tile_cursor &cursor, size_t stride, int rows)
{
	cursor.at += (size_t)rows * stride;
	cursor.rows -= rows;
}

/* Begin the copy of ROWS rows into a tile: zeros where the head has none. All THREADS of the block take part. */
template <int ROWS, int WIDTH, int THREADS>
static __device__ __forceinline__ void tile_begin(__nv_bfloat16 *tile, const __nv_bfloat16 *array,
                                                  const struct tile_cursor &cursor, size_t stride)
{
	constexpr int CHUNKS = WIDTH / 8, TOGETHER = THREADS / CHUNKS;
	static_assert(ROWS % TOGETHER == 0, "a tile is copied in whole steps");
	__nv_bfloat16 *to = tile + (int)(threadIdx.x / CHUNKS) * TILE_PITCH<WIDTH> + (int)(threadIdx.x % CHUNKS) * 8;
	const __nv_bfloat16 *from = array + cursor.at;
#pragma unroll
	for (int step = 0; step < ROWS; step += TOGETHER) {
		pp_copy_begin(to + step * TILE_PITCH<WIDTH>, from, step < cursor.rows);
		from += (size_t)TOGETHER * stride;
	}
}

/* Where a thread's row of 8 x 8 matrices lies that are wanted as (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15),
 * (8-15, 8-15); and as (0-7, 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15). */
template <int WIDTH> static __device__ __forceinline__ unsigned matrices_down(void)
{
	unsigned lane = threadIdx.x % 32;
	return lane % 16 * TILE_PITCH<WIDTH> + lane / 16 * 8;
}

template <int WIDTH> static __device__ __forceinline__ unsigned matrices_across(void)
{
	unsigned lane = threadIdx.x % 32;
	return (lane / 16 * 8 + lane % 8) * TILE_PITCH<WIDTH> + lane / 8 % 2 * 8;
}

/* The left operand: rows 0 … 15 of `tile`, columns 16 step … */
template <int WIDTH>
static __device__ __forceinline__ void left_operand(uint32_t a[4], const __nv_bfloat16 *tile, int step)
{
	pp_matrices_load(a, tile + matrices_down<WIDTH>() + step * 16);
}

/* The right operand of a product with the transposed tile: its rows 0 … 15 become columns, as two operands. */
template <int WIDTH>
static __device__ __forceinline__ void right_operand_rows(uint32_t b[4], const __nv_bfloat16 *tile, int step)
{
	pp_matrices_load(b, tile + matrices_across<WIDTH>() + step * 16);
}

/* The right operand of a product with the tile as it lies: rows 0 … 15, columns 16 step … as two operands. */
template <int WIDTH>
static __device__ __forceinline__ void right_operand(uint32_t b[4], const __nv_bfloat16 *tile, int step)
{
	pp_matrices_load_transposed(b, tile + matrices_down<WIDTH>() + step * 16);
}

static __device__ __forceinline__ uint32_t pair_of(float first, float second)
{
	__nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
	uint32_t bits;
	memcpy(&bits, &pair, sizeof bits);
	return bits;
}

/* Two neighbouring results of a thread, in its upper or lower row of columns 8n …, as its part of left operands. */
static __device__ __forceinline__ void operand_set(uint32_t (*operand)[4], int n, int lower, float first, float second)
{
	operand[n / 2][n % 2 * 2 + lower] = pair_of(first, second);
}

/* result[16 TILES, 8 COUNT] = left rows of a warp times the transposed rows of `right`: sums over WIDTH columns. */
template <int WIDTH, int TILES, int COUNT>
static __device__ __forceinline__ void product_rows(float (&result)[TILES][COUNT][4], const __nv_bfloat16 *left,
                                                    const __nv_bfloat16 *right)
{
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
#pragma unroll
		for (int n = 0; n < COUNT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				result[tile][n][i] = 0;
#pragma unroll
	for (int step = 0; step < WIDTH / 16; step++) {
		uint32_t a[TILES][4];
#pragma unroll
		for (int tile = 0; tile < TILES; tile++)
			left_operand<WIDTH>(a[tile], left + tile * 16 * TILE_PITCH<WIDTH>, step);
#pragma unroll
		for (int n = 0; n < COUNT; n += 2) {
			uint32_t b[4];
			right_operand_rows<WIDTH>(b, right + n * 8 * TILE_PITCH<WIDTH>, step);
#pragma unroll
			for (int tile = 0; tile < TILES; tile++) {
				pp_tensor_product(result[tile][n], a[tile], b);
				pp_tensor_product(result[tile][n + 1], a[tile], b + 2);
			}
		}
	}
}

/* Scores to -inf where a query does not see a key: it sees itself and the window - 1 keys before. Queries are down,
 * keys across, or the other way round; `ahead` = first query - first key. */
template <bool KEYS_DOWN, int TILES, int COUNT>
static __device__ __forceinline__ void mask_scores(float (&score)[TILES][COUNT][4], int ahead, int window)
{
	int down = lane_of_warp() / 4, across = lane_of_warp() % 4 * 2;
	int distance = ahead + (KEYS_DOWN ? across - down : down - across);
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
#pragma unroll
		for (int n = 0; n < COUNT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int further = tile * 16 + i / 2 * 8 - n * 8 - i % 2;
				if ((unsigned)(distance + (KEYS_DOWN ? -further : further)) >= (unsigned)window)
					score[tile][n][i] = -INFINITY;
			}
}

/* sum[16 TILES, WIDTH] += weights (16 STEPS columns, as left operands) times the 16 STEPS rows of `right`. */
template <int WIDTH, int TILES, int STEPS>
static __device__ __forceinline__ void
product_add(float (&sum)[TILES][WIDTH / 8][4], const uint32_t (&weight)[TILES][STEPS][4], const __nv_bfloat16 *right)
{
#pragma unroll
	for (int step = 0; step < STEPS; step++)
#pragma unroll
		for (int n = 0; n < WIDTH / 8; n += 2) {
			uint32_t b[4];
			right_operand<WIDTH>(b, right + step * 16 * TILE_PITCH<WIDTH>, n / 2);
#pragma unroll
			for (int tile = 0; tile < TILES; tile++) {
				pp_tensor_product(sum[tile][n], weight[tile][step], b);
				pp_tensor_product(sum[tile][n + 1], weight[tile][step], b + 2);
			}
		}
}

/* Write the results of a warp, times `factor` of each row, as rows first … of a head, by way of rows of shared memory
 * that only this warp reads. */
template <int WIDTH, int TILES>
static __device__ __forceinline__ void rows_store(const float (&result)[TILES][WIDTH / 8][4],
                                                  const float (&factor)[TILES][2], __nv_bfloat16 *shared,
                                                  __nv_bfloat16 *head, size_t stride, int first, int seq, int columns)
{
	constexpr int PITCH = TILE_PITCH<WIDTH>, CHUNKS = WIDTH / 8;
	int lane = lane_of_warp();
	__syncwarp();
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
#pragma unroll
		for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
			for (int lower = 0; lower < 2; lower++) {
				__nv_bfloat16 *at = shared + (tile * 16 + lower * 8 + lane / 4) * PITCH + n * 8 + lane % 4 * 2;
				const float *pair = result[tile][n] + lower * 2;
				*reinterpret_cast<uint32_t *>(at) =
				    pair_of(pair[0] * factor[tile][lower], pair[1] * factor[tile][lower]);
			}
	__syncwarp();
#pragma unroll
	for (int i = 0; i < TILES * 16 * CHUNKS; i += 32) {
		int row = (i + lane) / CHUNKS, column = (i + lane) % CHUNKS * 8;
		if (first + row < seq && column < columns)
			*reinterpret_cast<uint4 *>(head + (size_t)(first + row) * stride + column) =
			    *reinterpret_cast<const uint4 *>(shared + row * PITCH + column);
	}
}

#endif
