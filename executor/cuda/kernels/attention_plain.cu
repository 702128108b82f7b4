/* Causal attention in f32 arithmetic, tile by tile: 256 threads work on TILE rows against TILE rows of the other side;
 * each has two rows and two columns of the scores, and every 16th column of two rows of the results. The gradients take
 * two passes, as in attention_backward.h, for the same reason. Each array is read once for each tile that needs it. */
#include "launch.h"

#include "attention_plain.h"

#include <cassert>

namespace
{

constexpr int TILE = 32, SIDE = 16, THREADS = SIDE * SIDE;
constexpr int WEIGHT_PITCH = TILE + 1;

/* What a kernel knows of struct pp_attention. */
struct frame {
	int seq, heads, columns, window, group;
	size_t q_stride, kv_stride; /* between tokens, in elements */
	float scale;
};

struct frame frame_of(const struct pp_attention *shape)
{
	struct frame frame;
	frame.seq = (int)shape->seq;
	frame.heads = (int)shape->heads;
	frame.columns = (int)shape->head_columns;
	frame.window = (int)(shape->window && shape->window < shape->seq ? shape->window : shape->seq);
	frame.group = (int)(shape->heads / shape->kv_heads);
	frame.q_stride = shape->heads * shape->head_columns;
	frame.kv_stride = shape->kv_heads * shape->head_columns;
	frame.scale = 1.0f / sqrtf((float)shape->head_columns);
	return frame;
}

__device__ __forceinline__ float number(float x)
{
	return x;
}

__device__ __forceinline__ float number(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

__device__ __forceinline__ void put(float *to, float x)
{
	*to = x;
}

__device__ __forceinline__ void put(__nv_bfloat16 *to, float x)
{
	*to = __float2bfloat16(x);
}

/* Rows of a tile in shared memory are an odd number of words apart: 32 rows then lie in 32 banks. */
__host__ __device__ inline int pitch_of(int columns)
{
	return columns | 1;
}

/* This thread's row and column of the 16 x 16; it works on each also 16 further on. */
__device__ __forceinline__ int thread_row(void)
{
	return (int)(threadIdx.x / SIDE);
}

__device__ __forceinline__ int thread_column(void)
{
	return (int)(threadIdx.x % SIDE);
}

/* tile = rows first … of a head, 0 from row `seq` on. */
template <class T>
__device__ void tile_load(float *tile, const T *head, size_t stride, int first, const struct frame &frame)
{
	for (int row = (int)(threadIdx.x / 32); row < TILE; row += THREADS / 32)
		for (int column = (int)(threadIdx.x % 32); column < frame.columns; column += 32)
			tile[row * pitch_of(frame.columns) + column] =
			    first + row < frame.seq ? number(head[(size_t)(first + row) * stride + column]) : 0.0f;
}

/* product[i][j] = dot of row i of `left` and row j of `right`. */
__device__ __forceinline__ void tile_product(float (&product)[2][2], const float *left, const float *right, int columns)
{
	int pitch = pitch_of(columns);
	const float *a = left + thread_row() * pitch, *b = right + thread_column() * pitch;
	product[0][0] = product[0][1] = product[1][0] = product[1][1] = 0;
	for (int c = 0; c < columns; c++) {
		float a0 = a[c], a1 = a[SIDE * pitch + c], b0 = b[c], b1 = b[SIDE * pitch + c];
		product[0][0] += a0 * b0;
		product[0][1] += a0 * b1;
		product[1][0] += a1 * b0;
		product[1][1] += a1 * b1;
	}
}

/* sum[i][c] += weights of row i times column c of the rows of `tile`. */
template <int COLUMNS>
__device__ __forceinline__ void weigh(float (&sum)[2][COLUMNS / SIDE], const float *weight, const float *tile,
                                      int columns)
{
	const float *w = weight + thread_row() * WEIGHT_PITCH;
	for (int j = 0; j < TILE; j++) {
		float w0 = w[j], w1 = w[SIDE * WEIGHT_PITCH + j];
		const float *row = tile + j * pitch_of(columns) + thread_column();
#pragma unroll
		for (int c = 0; c < COLUMNS / SIDE; c++) {
			float x = c * SIDE + thread_column() < columns ? row[c * SIDE] : 0.0f;
			sum[0][c] += w0 * x;
			sum[1][c] += w1 * x;
		}
	}
}

template <int COLUMNS> __device__ __forceinline__ void sum_clear(float (&sum)[2][COLUMNS / SIDE])
{
#pragma unroll
	for (int c = 0; c < COLUMNS / SIDE; c++)
		sum[0][c] = sum[1][c] = 0;
}

/* Rows first … of a head := factor of the row * sum. */
template <int COLUMNS, class T>
__device__ __forceinline__ void sum_store(const float (&sum)[2][COLUMNS / SIDE], const float (&factor)[2], T *head,
                                          size_t stride, int first, const struct frame &frame)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		int row = first + thread_row() + i * SIDE;
		if (row >= frame.seq)
			continue;
#pragma unroll
		for (int c = 0; c < COLUMNS / SIDE; c++) {
			int column = c * SIDE + thread_column();
			if (column < frame.columns)
				put(head + (size_t)row * stride + column, sum[i][c] * factor[i]);
		}
	}
}

__device__ __forceinline__ bool sees(const struct frame &frame, int query, int key)
{
	return key <= query && key + frame.window > query && query < frame.seq;
}

__device__ __forceinline__ int first_key_of(const struct frame &frame, int first_query)
{
	return max(first_query + 1 - frame.window, 0) / TILE * TILE;
}

__device__ __forceinline__ float side_largest(float x)
{
	for (int lanes = SIDE / 2; lanes; lanes /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
	return x;
}

__device__ __forceinline__ float side_sum(float x)
{
	for (int lanes = SIDE / 2; lanes; lanes /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, lanes);
	return x;
}

/* A row of scores to weights exp(score - best); returns what earlier sums are to be multiplied with. */
__device__ __forceinline__ float soften(const struct frame &frame, const float (&score)[2], int query, int first_key,
                                        float *best, float *sum, float *weight)
{
	float x[2], largest = -INFINITY;
#pragma unroll
	for (int j = 0; j < 2; j++) {
		bool seen = sees(frame, query, first_key + thread_column() + j * SIDE);
		x[j] = seen ? score[j] * frame.scale : -INFINITY;
		largest = fmaxf(largest, x[j]);
	}
	largest = fmaxf(*best, side_largest(largest));
	float shift = largest == -INFINITY ? 0.0f : largest, correction = expf(*best - shift);
	float w0 = expf(x[0] - shift), w1 = expf(x[1] - shift);
	weight[thread_column()] = w0;
	weight[thread_column() + SIDE] = w1;
	*sum = *sum * correction + side_sum(w0 + w1);
	*best = largest;
	return correction;
}

/* Grid: tiles of queries, heads, samples. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(THREADS, COLUMNS > 64 ? 2 : 3)
    attention_plain(struct frame frame, const T *q, const T *k, const T *v, T *o, float *lse)
{
	PP_DYNAMIC_SHARED(float, q_tile);
	float *kv_tile = q_tile + TILE * pitch_of(frame.columns), *weight = kv_tile + TILE * pitch_of(frame.columns);
	int head = (int)blockIdx.y, first_query = (int)blockIdx.x * TILE;
	size_t token = (size_t)blockIdx.z * frame.seq;
	size_t q_at = token * frame.q_stride + (size_t)head * frame.columns;
	size_t kv_at = token * frame.kv_stride + (size_t)(head / frame.group) * frame.columns;
	float out[2][COLUMNS / SIDE], best[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
	sum_clear<COLUMNS>(out);
	tile_load(q_tile, q + q_at, frame.q_stride, first_query, frame);
	for (int key = first_key_of(frame, first_query); key < min(first_query + TILE, frame.seq); key += TILE) {
		float score[2][2];
		tile_load(kv_tile, k + kv_at, frame.kv_stride, key, frame);
		__syncthreads();
		tile_product(score, q_tile, kv_tile, frame.columns);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int row = thread_row() + i * SIDE;
			float correction =
			    soften(frame, score[i], first_query + row, key, &best[i], &sum[i], weight + row * WEIGHT_PITCH);
#pragma unroll
			for (int c = 0; c < COLUMNS / SIDE; c++)
				out[i][c] *= correction;
		}
		__syncthreads();
		tile_load(kv_tile, v + kv_at, frame.kv_stride, key, frame);
		__syncthreads();
		weigh<COLUMNS>(out, weight, kv_tile, frame.columns);
		__syncthreads();
	}
	float factor[2];
#pragma unroll
	for (int i = 0; i < 2; i++) {
		int query = first_query + thread_row() + i * SIDE;
		factor[i] = 1.0f / sum[i];
		if (thread_column() == 0 && query < frame.seq)
			lse[(token + query) * frame.heads + head] = best[i] + logf(sum[i]);
	}
	sum_store<COLUMNS>(out, factor, o + q_at, frame.q_stride, first_query, frame);
}

/* dot(d_o, o) of the rows of a tile, to `kept` in device memory too. */
template <class T>
__device__ void dot_rows(float *dot, const float *d_o_tile, const T *o, int first_query, const struct frame &frame,
                         float *kept)
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		int row = thread_row() + i * SIDE, query = first_query + row;
		float sum = 0;
		for (int c = thread_column(); c < frame.columns && query < frame.seq; c += SIDE)
			sum += d_o_tile[row * pitch_of(frame.columns) + c] * number(o[(size_t)query * frame.q_stride + c]);
		sum = side_sum(sum);
		if (thread_column() != 0)
			continue;
		dot[row] = sum;
		if (query < frame.seq)
			kept[(size_t)query * frame.heads] = sum;
	}
}

/* Grid as attention_plain. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(THREADS, COLUMNS > 64 ? 2 : 3)
    attention_plain_dq(struct frame frame, const T *d_o, const T *q, const T *k, const T *v, const T *o,
                       const float *lse, float *kept, T *dq)
{
	int tile_size = TILE * pitch_of(frame.columns);
	PP_DYNAMIC_SHARED(float, q_tile);
	float *d_o_tile = q_tile + tile_size, *k_tile = d_o_tile + tile_size, *v_tile = k_tile + tile_size;
	float *weight = v_tile + tile_size, *dot = weight + TILE * WEIGHT_PITCH;
	int head = (int)blockIdx.y, first_query = (int)blockIdx.x * TILE;
	size_t token = (size_t)blockIdx.z * frame.seq, row_at = token * frame.heads + head;
	size_t q_at = token * frame.q_stride + (size_t)head * frame.columns;
	size_t kv_at = token * frame.kv_stride + (size_t)(head / frame.group) * frame.columns;
	float sum[2][COLUMNS / SIDE], factor[2] = {frame.scale, frame.scale};
	sum_clear<COLUMNS>(sum);
	tile_load(q_tile, q + q_at, frame.q_stride, first_query, frame);
	tile_load(d_o_tile, d_o + q_at, frame.q_stride, first_query, frame);
	__syncthreads();
	dot_rows(dot, d_o_tile, o + q_at, first_query, frame, kept + row_at);
	for (int key = first_key_of(frame, first_query); key < min(first_query + TILE, frame.seq); key += TILE) {
		float score[2][2], d_probability[2][2];
		tile_load(k_tile, k + kv_at, frame.kv_stride, key, frame);
		tile_load(v_tile, v + kv_at, frame.kv_stride, key, frame);
		__syncthreads();
		tile_product(score, q_tile, k_tile, frame.columns);
		tile_product(d_probability, d_o_tile, v_tile, frame.columns);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int row = thread_row() + i * SIDE, query = first_query + row;
			float row_lse = query < frame.seq ? lse[row_at + (size_t)query * frame.heads] : 0.0f;
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int column = thread_column() + j * SIDE;
				float probability = sees(frame, query, key + column) ? expf(score[i][j] * frame.scale - row_lse) : 0.0f;
				weight[row * WEIGHT_PITCH + column] = probability * (d_probability[i][j] - dot[row]);
			}
		}
		__syncthreads();
		weigh<COLUMNS>(sum, weight, k_tile, frame.columns);
		__syncthreads();
	}
	sum_store<COLUMNS>(sum, factor, dq + q_at, frame.q_stride, first_query, frame);
}

/* Grid: tiles of keys, key heads, samples. Rows are keys, columns queries. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(THREADS, COLUMNS > 64 ? 2 : 3)
    attention_plain_dkv(struct frame frame, const T *d_o, const T *q, const T *k, const T *v, const float *lse,
                        const float *dot, T *dk, T *dv)
{
	int tile_size = TILE * pitch_of(frame.columns);
	PP_DYNAMIC_SHARED(float, q_tile);
	float *d_o_tile = q_tile + tile_size, *k_tile = d_o_tile + tile_size, *v_tile = k_tile + tile_size;
	float *weight = v_tile + tile_size, *d_score = weight + TILE * WEIGHT_PITCH;
	int first_key = (int)blockIdx.x * TILE, last_key = min(first_key + TILE, frame.seq) - 1;
	size_t token = (size_t)blockIdx.z * frame.seq;
	size_t kv_at = token * frame.kv_stride + (size_t)blockIdx.y * frame.columns;
	float dk_sum[2][COLUMNS / SIDE], dv_sum[2][COLUMNS / SIDE];
	sum_clear<COLUMNS>(dk_sum);
	sum_clear<COLUMNS>(dv_sum);
	tile_load(k_tile, k + kv_at, frame.kv_stride, first_key, frame);
	tile_load(v_tile, v + kv_at, frame.kv_stride, first_key, frame);
	for (int head = (int)blockIdx.y * frame.group; head < ((int)blockIdx.y + 1) * frame.group; head++) {
		size_t q_at = token * frame.q_stride + (size_t)head * frame.columns, row_at = token * frame.heads + head;
		for (int first = first_key; first < min(last_key + frame.window, frame.seq); first += TILE) {
			float score[2][2], d_probability[2][2];
			tile_load(q_tile, q + q_at, frame.q_stride, first, frame);
			tile_load(d_o_tile, d_o + q_at, frame.q_stride, first, frame);
			__syncthreads();
			tile_product(score, k_tile, q_tile, frame.columns);
			tile_product(d_probability, v_tile, d_o_tile, frame.columns);
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int j = 0; j < 2; j++) {
					int row = thread_row() + i * SIDE, column = thread_column() + j * SIDE, query = first + column;
					bool seen = sees(frame, query, first_key + row);
					size_t at = row_at + (size_t)query * frame.heads;
					float probability = seen ? expf(score[i][j] * frame.scale - lse[at]) : 0.0f;
					weight[row * WEIGHT_PITCH + column] = probability;
					d_score[row * WEIGHT_PITCH + column] = seen ? probability * (d_probability[i][j] - dot[at]) : 0.0f;
				}
			__syncthreads();
			weigh<COLUMNS>(dv_sum, weight, d_o_tile, frame.columns);
			weigh<COLUMNS>(dk_sum, d_score, q_tile, frame.columns);
			__syncthreads();
		}
	}
	float factor[2] = {frame.scale, frame.scale}, one[2] = {1.0f, 1.0f};
	sum_store<COLUMNS>(dk_sum, factor, dk + kv_at, frame.kv_stride, first_key, frame);
	sum_store<COLUMNS>(dv_sum, one, dv + kv_at, frame.kv_stride, first_key, frame);
}

/* Bytes of the arrays, and the grid over rows of queries or keys. */
struct sizes {
	size_t q, kv, rows;
	dim3 queries, keys;
};

struct sizes sizes_of(const struct pp_attention *shape, size_t element)
{
	unsigned tiles = (unsigned)((shape->seq + TILE - 1) / TILE), samples = (unsigned)(shape->tokens / shape->seq);
	struct sizes sizes;
	sizes.q = shape->tokens * shape->heads * shape->head_columns * element;
	sizes.kv = shape->tokens * shape->kv_heads * shape->head_columns * element;
	sizes.rows = shape->tokens * shape->heads * sizeof(float);
	sizes.queries = dim3(tiles, (unsigned)shape->heads, samples);
	sizes.keys = dim3(tiles, (unsigned)shape->kv_heads, samples);
	return sizes;
}

/* Shared memory for `tiles` tiles, `weights` tiles of weights and a number for each row. */
size_t shared_bytes(const struct pp_attention *shape, int tiles, int weights)
{
	size_t words = (size_t)(tiles * TILE * pitch_of((int)shape->head_columns) + weights * TILE * WEIGHT_PITCH + TILE);
	return words * sizeof(float);
}

template <class T, int COLUMNS>
void forward(cudaStream_t stream, const struct pp_attention *shape, const void *q, const void *k, const void *v,
             void *o, float *lse)
{
	struct sizes sizes = sizes_of(shape, sizeof(T));
	size_t shared = shared_bytes(shape, 2, 1);
	void (*attention)(struct frame, const T *, const T *, const T *, T *, float *) = attention_plain<T, COLUMNS>;
	PP_ALLOW_SHARED(attention, shared);
	PP_READS(q, sizes.q);
	PP_READS(k, sizes.kv);
	PP_READS(v, sizes.kv);
	PP_WRITES(o, sizes.q);
	PP_WRITES(lse, sizes.rows);
	PP_LAUNCH(attention, sizes.queries, THREADS, shared, stream, frame_of(shape), static_cast<const T *>(q),
	          static_cast<const T *>(k), static_cast<const T *>(v), static_cast<T *>(o), lse);
}

template <class T, int COLUMNS>
void backward(cudaStream_t stream, const struct pp_attention *shape, const void *d_o, const void *q, const void *k,
              const void *v, const void *o, const float *lse, void *dq, void *dk, void *dv, float *dot)
{
	struct sizes sizes = sizes_of(shape, sizeof(T));
	size_t shared = shared_bytes(shape, 4, 2);
	const T *out = static_cast<const T *>(o), *d_out = static_cast<const T *>(d_o);
	const T *queries = static_cast<const T *>(q), *keys = static_cast<const T *>(k);
	const T *values = static_cast<const T *>(v);
	void (*attention_dq)(struct frame, const T *, const T *, const T *, const T *, const T *, const float *, float *,
	                     T *) = attention_plain_dq<T, COLUMNS>;
	void (*attention_dkv)(struct frame, const T *, const T *, const T *, const T *, const float *, const float *, T *,
	                      T *) = attention_plain_dkv<T, COLUMNS>;
	PP_ALLOW_SHARED(attention_dq, shared);
	PP_READS(d_o, sizes.q);
	PP_READS(q, sizes.q);
	PP_READS(k, sizes.kv);
	PP_READS(v, sizes.kv);
	PP_READS(o, sizes.q);
	PP_READS(lse, sizes.rows);
	PP_WRITES(dot, sizes.rows);
	PP_WRITES(dq, sizes.q);
	PP_LAUNCH(attention_dq, sizes.queries, THREADS, shared, stream, frame_of(shape), d_out, queries, keys, values, out,
	          lse, dot, static_cast<T *>(dq));
	PP_ALLOW_SHARED(attention_dkv, shared);
	PP_READS(d_o, sizes.q);
	PP_READS(q, sizes.q);
	PP_READS(k, sizes.kv);
	PP_READS(v, sizes.kv);
	PP_READS(lse, sizes.rows);
	PP_READS(dot, sizes.rows);
	PP_WRITES(dk, sizes.kv);
	PP_WRITES(dv, sizes.kv);
	PP_LAUNCH(attention_dkv, sizes.keys, THREADS, shared, stream, frame_of(shape), d_out, queries, keys, values, lse,
	          static_cast<const float *>(dot), static_cast<T *>(dk), static_cast<T *>(dv));
}

} // namespace

void pp_cuda_attention_plain(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape,
                             const void *q, const void *k, const void *v, void *o, float *lse)
{
	assert(shape->head_columns <= PP_CUDA_ATTENTION_COLUMNS);
	bool narrow = shape->head_columns <= 64;
	if (type == PP_CUDA_F32)
		(narrow ? forward<float, 64> : forward<float, 256>)(stream, shape, q, k, v, o, lse);
	else
		(narrow ? forward<__nv_bfloat16, 64> : forward<__nv_bfloat16, 256>)(stream, shape, q, k, v, o, lse);
}

void pp_cuda_attention_plain_dx(cudaStream_t stream, enum pp_cuda_type type, const struct pp_attention *shape,
                                const void *d_o, const void *q, const void *k, const void *v, const void *o,
                                const float *lse, void *dq, void *dk, void *dv, float *dot)
{
	assert(shape->head_columns <= PP_CUDA_ATTENTION_COLUMNS);
	bool narrow = shape->head_columns <= 64;
	if (type == PP_CUDA_F32)
		(narrow ? backward<float, 64> : backward<float, 256>)(stream, shape, d_o, q, k, v, o, lse, dq, dk, dv, dot);
	else
		(narrow ? backward<__nv_bfloat16, 64> : backward<__nv_bfloat16, 256>)(stream, shape, d_o, q, k, v, o, lse, dq,
		                                                                      dk, dv, dot);
}
