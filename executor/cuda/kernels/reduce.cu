/* Sums in two levels, each in a fixed order: over rows for the gradients of biases and norm weights, over elements for
 * squared norms. The first level cuts the rows or elements into chunks by shape alone and leaves a partial sum of each
 * in scratch; the second adds the chunks. */
#include "launch.h"

#include "ir/scratch.h"
#include "kernels_cuda.h"
#include "vector.h"

enum { LINES = 8, BLOCK = WARP * LINES }; /* rows that a block adds up side by side */

/* ---- sums over rows --------------------------------------------------------------------------- */

template <typename T> struct rows_call {
	size_t rows, columns, chunk;
	const T *dy, *x; /* x: NULL for plain sums */
	const float *mean, *rstd;
	float *sums, *products; /* [chunks][columns]: of dy, and of dy * (x - mean) * rstd; NULL: not wanted */
	bool rms;
};

/* The LINES partial sums of each column of the block, added in order and stored. */
template <int SIZE>
__device__ __forceinline__ void add_lines(const pack<SIZE> &mine, float (*lines)[WARP * SIZE], size_t columns,
                                          float *to)
{
	__syncthreads();
#pragma unroll
	for (int i = 0; i < SIZE; i++)
		lines[threadIdx.y][threadIdx.x * SIZE + i] = mine.at[i];
	__syncthreads();
	unsigned number = threadIdx.y * WARP + threadIdx.x;
	size_t column = (size_t)blockIdx.x * WARP * SIZE + number;
	if (number >= WARP * SIZE || column >= columns)
		return;
	float sum = lines[0][number];
#pragma unroll
	for (int i = 1; i < LINES; i++)
		sum += lines[i][number];
	to[(size_t)blockIdx.y * columns + column] = sum;
}

/* Rows that a thread has loaded before it adds them up: a branch between a load and the next would leave the memory
 * system one load of each thread at a time. */
template <typename T, bool normed, int ROWS> struct loaded_rows {
	raw_pack<T> dy[ROWS], x[normed ? ROWS : 1];
	float mean[normed ? ROWS : 1], rstd[normed ? ROWS : 1];
};

/* sum and product += rows row, row + LINES, … of the thread's pack of columns, in that order. */
template <typename T, bool aligned, bool normed, int ROWS>
__device__ __forceinline__ void add_rows(const rows_call<T> &call, size_t row, size_t number,
                                         pack<pack_of<T>::SIZE> *sum, pack<pack_of<T>::SIZE> *product)
{
	enum { SIZE = pack_of<T>::SIZE };
	loaded_rows<T, normed, ROWS> rows;
	const float *means = call.rms ? call.rstd : call.mean; /* any numbers: a load under a condition parts the others */
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		size_t at = row + (size_t)r * LINES;
		rows.dy[r] = load_raw<aligned>(call.dy + at * call.columns, number, call.columns);
		if constexpr (normed) {
			rows.x[r] = load_raw<aligned>(call.x + at * call.columns, number, call.columns);
			rows.mean[r] = means[at];
			rows.rstd[r] = call.rstd[at];
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		pack<SIZE> dy = unpacked(rows.dy[r]);
		if constexpr (normed) {
			pack<SIZE> x = unpacked(rows.x[r]);
			float mean = call.rms ? 0.0f : rows.mean[r];
#pragma unroll
			for (int i = 0; i < SIZE; i++)
				product->at[i] += dy.at[i] * ((x.at[i] - mean) * rows.rstd[r]);
		}
#pragma unroll
		for (int i = 0; i < SIZE; i++)
			sum->at[i] += dy.at[i];
	}
}

/* blockIdx.x: WARP packs of columns; blockIdx.y: a chunk of rows. */
template <typename T, bool aligned, bool normed> __global__ void __launch_bounds__(BLOCK) sum_rows(rows_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE, TOGETHER = normed ? 2 : 4 };
	__shared__ float lines[LINES][WARP * SIZE];
	size_t number = (size_t)blockIdx.x * WARP + threadIdx.x, first = (size_t)blockIdx.y * call.chunk;
	size_t end = first + call.chunk < call.rows ? first + call.chunk : call.rows;
	if (number * SIZE >= call.columns)
		end = 0;
	pack<SIZE> sum = {}, product = {};
	size_t row = first + threadIdx.y;
#pragma unroll 1
	for (; row + (TOGETHER - 1) * LINES < end; row += TOGETHER * LINES)
		add_rows<T, aligned, normed, TOGETHER>(call, row, number, &sum, &product);
#pragma unroll 1
	for (; row < end; row += LINES)
		add_rows<T, aligned, normed, 1>(call, row, number, &sum, &product);
	if constexpr (normed)
		add_lines<SIZE>(product, lines, call.columns, call.products);
	if (!normed || call.sums)
		add_lines<SIZE>(sum, lines, call.columns, call.sums);
}

struct chunks_call {
	size_t columns, chunks;
	const float *partial[2];
	float *to[2];
	bool accumulate[2];
};

/* blockIdx.y: which of the two sums. A thread per column and line of chunks. */
__global__ void __launch_bounds__(BLOCK) sum_chunks(const __grid_constant__ chunks_call call)
{
	enum { LOADED = 16 }; /* together: as many as there are at most */
	__shared__ float lines[LINES][WARP];
	size_t column = (size_t)blockIdx.x * WARP + threadIdx.x;
	const float *partial = call.partial[blockIdx.y];
	float *to = call.to[blockIdx.y];
	float sum = 0;
#pragma unroll 1
	for (size_t first = threadIdx.y; first < call.chunks; first += LINES * LOADED) {
		float loaded[LOADED];
#pragma unroll
		for (int i = 0; i < LOADED; i++) {
			size_t chunk = first + i * LINES;
			loaded[i] = chunk < call.chunks && column < call.columns ? partial[chunk * call.columns + column] : 0.0f;
		}
#pragma unroll
		for (int i = 0; i < LOADED; i++)
			sum += loaded[i];
	}
	lines[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y > 0 || column >= call.columns)
		return;
	for (int i = 1; i < LINES; i++)
		sum += lines[i][threadIdx.x];
	to[column] = call.accumulate[blockIdx.y] ? to[column] + sum : sum;
}

template <typename T, bool normed> static void launch_rows(cudaStream_t stream, const rows_call<T> &call)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t chunks = ceil_of(call.rows, call.chunk), bytes = call.rows * call.columns * sizeof(T);
	dim3 grid(blocks_of(call.columns, WARP * SIZE), (unsigned)chunks), block(WARP, LINES);
	PP_READS(call.dy, bytes);
	PP_READS(call.x, normed ? bytes : 0);
	PP_READS(call.mean, normed && !call.rms ? call.rows * sizeof(float) : 0);
	PP_READS(call.rstd, normed ? call.rows * sizeof(float) : 0);
	PP_WRITES(call.sums, call.sums ? chunks * call.columns * sizeof(float) : 0);
	PP_WRITES(call.products, normed ? chunks * call.columns * sizeof(float) : 0);
	if (call.columns % SIZE == 0 && on_16_bytes(call.dy) && on_16_bytes(call.x))
		PP_LAUNCH((sum_rows<T, true, normed>), grid, block, 0, stream, call);
	else
		PP_LAUNCH((sum_rows<T, false, normed>), grid, block, 0, stream, call);
}

static void launch_chunks(cudaStream_t stream, const struct chunks_call *call)
{
	unsigned sums = call->to[1] ? 2 : 1;
	for (unsigned i = 0; i < sums; i++) {
		PP_READS(call->partial[i], call->chunks * call->columns * sizeof(float));
		PP_READS(call->to[i], call->accumulate[i] ? call->columns * sizeof(float) : 0);
		PP_WRITES(call->to[i], call->columns * sizeof(float));
	}
	PP_LAUNCH(sum_chunks, dim3(blocks_of(call->columns, WARP), sums), dim3(WARP, LINES), 0, stream, *call);
}

void pp_cuda_column_sums(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, const void *x,
                         float *sums, bool accumulate, void *scratch)
{
	typedef __nv_bfloat16 bf16;
	size_t chunk = pp_scratch_row_chunk(tokens);
	float *partial = static_cast<float *>(scratch);
	if (type == PP_CUDA_BF16)
		launch_rows<bf16, false>(stream,
		                         {tokens, columns, chunk, (const bf16 *)x, NULL, NULL, NULL, partial, NULL, false});
	else
		launch_rows<float, false>(stream,
		                          {tokens, columns, chunk, (const float *)x, NULL, NULL, NULL, partial, NULL, false});
	struct chunks_call call = {columns, ceil_of(tokens, chunk), {partial, NULL}, {sums, NULL}, {accumulate, false}};
	launch_chunks(stream, &call);
}

void pp_cuda_norm_dw(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *dy,
                     const void *x, const float *mean, const float *rstd, float *dgamma, bool accumulate_gamma,
                     float *dbeta, bool accumulate_beta, void *scratch)
{
	typedef __nv_bfloat16 bf16;
	size_t chunk = pp_scratch_row_chunk(rows), chunks = ceil_of(rows, chunk);
	float *products = static_cast<float *>(scratch), *sums = dbeta ? products + chunks * columns : NULL;
	if (type == PP_CUDA_BF16)
		launch_rows<bf16, true>(
		    stream, {rows, columns, chunk, (const bf16 *)dy, (const bf16 *)x, mean, rstd, sums, products, rms});
	else
		launch_rows<float, true>(
		    stream, {rows, columns, chunk, (const float *)dy, (const float *)x, mean, rstd, sums, products, rms});
	struct chunks_call call = {columns, chunks, {products, sums}, {dgamma, dbeta}, {accumulate_gamma, accumulate_beta}};
	launch_chunks(stream, &call);
}

/* ---- squared norms ---------------------------------------------------------------------------- */

/* A launch takes so many arrays, cut into chunks of at least LEAST elements, of one array at most MOST chunks. */
enum { ITEMS = 64, LEAST = 32768, MOST = PP_SCRATCH_NORM_CHUNKS / 2, NORM_BLOCK = 256 };

struct norms_call {
	const float *elements[ITEMS];
	size_t count[ITEMS], chunk[ITEMS];
	double *norm[ITEMS];
	uint32_t first[ITEMS + 1]; /* chunk of the launch */
	bool add[ITEMS];
	uint32_t items;
	double *partial;
};

/* The item to which a chunk of the launch belongs. */
__device__ __forceinline__ uint32_t item_of(const norms_call &call, uint32_t chunk)
{
	uint32_t low = 0, high = call.items;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;
		if (call.first[middle] <= chunk)
			low = middle;
		else
			high = middle;
	}
	return low;
}

__device__ __forceinline__ void add_squares(const pack<4> &x, double *sum)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		*sum += (double)x.at[i] * (double)x.at[i];
}

/* Whole packs at addresses of 16 bytes are loaded LOADED at a time, all others one by one: the same packs in the same
 * order for each thread. */
__global__ void __launch_bounds__(NORM_BLOCK) square_chunks(const __grid_constant__ norms_call call)
{
	enum { LOADED = 4 };
	__shared__ double shared[WARPS_MAX];
	uint32_t item = item_of(call, blockIdx.x);
	size_t first = (size_t)(blockIdx.x - call.first[item]) * call.chunk[item], left = call.count[item] - first;
	size_t count = left < call.chunk[item] ? left : call.chunk[item];
	const float *from = call.elements[item] + first;
	size_t whole = (reinterpret_cast<uintptr_t>(from) & 15) == 0 ? count / 4 : 0, number = threadIdx.x;
	double sum = 0;
#pragma unroll 1
	for (; number + (LOADED - 1) * NORM_BLOCK < whole; number += LOADED * NORM_BLOCK) {
		raw_pack<float> raw[LOADED];
#pragma unroll
		for (int i = 0; i < LOADED; i++)
			raw[i] = load_16(from + (number + (size_t)i * NORM_BLOCK) * 4);
#pragma unroll
		for (int i = 0; i < LOADED; i++)
			add_squares(unpacked(raw[i]), &sum);
	}
#pragma unroll 1
	for (; number * 4 < count; number += NORM_BLOCK)
		add_squares(number < whole ? load<true>(from, number, count) : load<false>(from, number, count), &sum);
	sum = group_sum(sum, NORM_BLOCK / WARP, threadIdx.x / WARP, shared);
	if (threadIdx.x == 0)
		call.partial[blockIdx.x] = sum;
}

/* A block per item; those that are added to the one before are left to the block of the first of them. */
__global__ void __launch_bounds__(NORM_BLOCK) square_sums(const __grid_constant__ norms_call call)
{
	__shared__ double shared[WARPS_MAX];
	uint32_t item = blockIdx.x;
	if (item > 0 && call.add[item])
		return;
	double norm = call.add[item] ? *call.norm[item] : 0;
	do {
		double sum = 0;
		for (uint32_t chunk = call.first[item] + threadIdx.x; chunk < call.first[item + 1]; chunk += NORM_BLOCK)
			sum += call.partial[chunk];
		norm += group_sum(sum, NORM_BLOCK / WARP, threadIdx.x / WARP, shared);
		__syncthreads();
	} while (++item < call.items && call.add[item]);
	if (threadIdx.x == 0)
		*call.norm[blockIdx.x] = norm;
}

static size_t norm_chunk(uint64_t count)
{
	size_t even = ceil_of(ceil_of(count, MOST), 4) * 4; /* whole packs, so that chunks stay aligned */
	const size_t least = LEAST;
	return even > least ? even : least;
}

static void launch_norms(cudaStream_t stream, const struct norms_call *call)
{
	uint32_t chunks = call->first[call->items];
	for (uint32_t i = 0; i < call->items; i++)
		PP_READS(call->elements[i], call->count[i] * sizeof(float));
	PP_WRITES(call->partial, chunks * sizeof(double));
	if (chunks > 0)
		PP_LAUNCH(square_chunks, chunks, NORM_BLOCK, 0, stream, *call);
	PP_READS(call->partial, chunks * sizeof(double));
	for (uint32_t i = 0; i < call->items; i++)
		PP_WRITES(call->norm[i], sizeof(double));
	PP_LAUNCH(square_sums, call->items, NORM_BLOCK, 0, stream, *call);
}

void pp_cuda_square_norms(cudaStream_t stream, size_t count, const struct pp_cuda_norm_item *items, void *scratch)
{
	for (size_t next = 0; next < count;) {
		struct norms_call call = {};
		call.partial = static_cast<double *>(scratch);
		for (; next < count && call.items < ITEMS; next++) {
			size_t chunk = norm_chunk(items[next].count), chunks = ceil_of(items[next].count, chunk);
			uint32_t i = call.items;
			if (call.first[i] + chunks > PP_SCRATCH_NORM_CHUNKS)
				break;
			call.elements[i] = items[next].elements;
			call.count[i] = items[next].count;
			call.chunk[i] = chunk;
			call.norm[i] = items[next].norm;
			call.add[i] = items[next].add;
			call.first[i + 1] = call.first[i] + (uint32_t)chunks;
			call.items++;
		}
		launch_norms(stream, &call);
	}
}
