/* Layer norm and root-mean-square norm of rows, with or without the residual sum before them, and the input gradient. A
 * row belongs to 32 to 512 threads, which read it once and hold it in registers; rows too long for that, and those
 * that are not made of whole packs, are read again for each pass. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

enum { HELD = 4, BLOCK = 256, LONGEST = 512 }; /* packs of a row that a thread holds; threads of a block, most of a row */
/* So many threads of a multiprocessor shall find registers where each holds three rows; blocks have fewer. */
enum { TOGETHER = 768 };

template <typename T> struct norm_call {
	size_t rows, columns;
	const T *x, *plus; /* plus: NULL or what is added to x first, then `sum` takes the result */
	T *sum;
	const T *gamma, *beta;
	T *y;
	float *mean, *rstd;
	float eps;
	bool rms;
};

/* The packs of a row that this thread works on: threadIdx.x, + blockDim.x, and so on. */
template <typename T, bool aligned, bool held> struct row_part {
	enum { SIZE = pack_of<T>::SIZE };
	raw_pack<T> kept[HELD];
	const T *row;
	size_t columns;

	__device__ __forceinline__ void read(const T *from, size_t of_columns)
	{
		row = from;
		columns = of_columns;
		if constexpr (held) {
#pragma unroll
			for (int i = 0; i < HELD; i++)
				if (number(i) * SIZE < columns)
					kept[i] = load_raw<aligned>(row, number(i), columns);
		}
	}
	__device__ __forceinline__ static size_t number(int i)
	{
		return threadIdx.x + (size_t)i * blockDim.x;
	}
	__device__ __forceinline__ pack<SIZE> get(int i) const
	{
		if constexpr (held)
			return unpacked(kept[i]);
		else
			return load<aligned>(row, number(i), columns);
	}
	__device__ __forceinline__ bool has(int i, int element) const
	{
		return aligned || number(i) * SIZE + element < columns;
	}
};

/* f(i) for each pack i of this thread's part. */
template <bool held, int SIZE, typename F> __device__ __forceinline__ void each_pack(size_t columns, F f)
{
	if constexpr (held) {
#pragma unroll
		for (int i = 0; i < HELD; i++)
			if ((threadIdx.x + (size_t)i * blockDim.x) * SIZE < columns)
				f(i);
	} else {
		for (int i = 0; (threadIdx.x + (size_t)i * blockDim.x) * SIZE < columns; i++)
			f(i);
	}
}

/* sum = x + plus, rounded; the part then holds the sum. */
template <typename T, bool aligned, bool held>
__device__ __forceinline__ void add_residual(const norm_call<T> &call, size_t row, bool real,
                                             row_part<T, aligned, held> *part)
{
	enum { SIZE = pack_of<T>::SIZE };
	T *sum = call.sum + row * call.columns;
	row_part<T, aligned, held> plus;
	plus.read(call.plus + row * call.columns, call.columns);
	each_pack<held, SIZE>(call.columns, [&](int i) {
		pack<SIZE> a = part->get(i), b = plus.get(i);
#pragma unroll
		for (int j = 0; j < SIZE; j++)
			a.at[j] += b.at[j];
		if constexpr (held)
			part->kept[i] = packed<T>(a);
		if (real)
			store<aligned>(sum, part->number(i), call.columns, a);
	});
	part->row = sum; /* not held: a thread reads again what it wrote itself */
}

template <typename T, bool aligned, bool held, bool adds>
__global__ void __launch_bounds__(LONGEST, 2) norm_rows(norm_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	__shared__ float shared[2][WARPS_MAX];
	size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
	bool real = row < call.rows;
	row = real ? row : call.rows - 1; /* all threads of the block meet */
	unsigned warps = blockDim.x / WARP, warp = threadIdx.x / WARP, base = threadIdx.y * warps;
	row_part<T, aligned, held> part;
	part.read(call.x + row * call.columns, call.columns);
	if (adds)
		add_residual<T, aligned, held>(call, row, real, &part);
	float mean = 0, squares = 0;
	if (!call.rms) {
		float sum = 0;
		each_pack<held, SIZE>(call.columns, [&](int i) {
			pack<SIZE> x = part.get(i);
#pragma unroll
			for (int j = 0; j < SIZE; j++)
				sum += x.at[j];
		});
		mean = group_sum(sum, warps, warp, shared[0] + base) / (float)call.columns;
	}
	each_pack<held, SIZE>(call.columns, [&](int i) {
		pack<SIZE> x = part.get(i);
#pragma unroll
		for (int j = 0; j < SIZE; j++)
			if (part.has(i, j))
				squares += (x.at[j] - mean) * (x.at[j] - mean);
	});
	float variance = group_sum(squares, warps, warp, shared[1] + base) / (float)call.columns;
	float rstd = 1.0f / sqrtf(variance + call.eps);
	if (!real)
		return;
	each_pack<held, SIZE>(call.columns, [&](int i) {
		pack<SIZE> x = part.get(i), gamma = load<aligned>(call.gamma, part.number(i), call.columns), y;
#pragma unroll
		for (int j = 0; j < SIZE; j++)
			y.at[j] = (x.at[j] - mean) * rstd * gamma.at[j];
		if (call.beta) {
			pack<SIZE> beta = load<aligned>(call.beta, part.number(i), call.columns);
#pragma unroll
			for (int j = 0; j < SIZE; j++)
				y.at[j] += beta.at[j];
		}
		store<aligned>(call.y + row * call.columns, part.number(i), call.columns, y);
	});
	if (threadIdx.x != 0)
		return;
	if (!call.rms)
		call.mean[row] = mean;
	call.rstd[row] = rstd;
}

template <typename T> struct norm_dx_call {
	size_t rows, columns;
	const T *dy, *x, *gamma;
	const float *mean, *rstd;
	const T *plus; /* NULL, or what is added to the rounded dx */
	T *dx;
	bool rms;
};

/* With h = (x - mean) * rstd and g = dy * gamma: dx = rstd * (g - mean(g) - h * mean(g * h)); without the mean(g) for
 * the root-mean-square norm. */
template <typename T, bool aligned, bool held, bool adds>
__global__ void __launch_bounds__(held && adds ? TOGETHER : LONGEST, held && adds ? 1 : 2)
    norm_rows_dx(norm_dx_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	__shared__ float shared[2][WARPS_MAX];
	size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
	bool real = row < call.rows;
	row = real ? row : call.rows - 1;
	unsigned warps = blockDim.x / WARP, warp = threadIdx.x / WARP, base = threadIdx.y * warps;
	row_part<T, aligned, held> dy, x, plus;
	dy.read(call.dy + row * call.columns, call.columns);
	x.read(call.x + row * call.columns, call.columns);
	if constexpr (adds)
		plus.read(call.plus + row * call.columns, call.columns);
	float mean = call.rms ? 0.0f : call.mean[row], rstd = call.rstd[row], sum_g = 0, sum_gh = 0;
	each_pack<held, SIZE>(call.columns, [&](int i) {
		pack<SIZE> up = dy.get(i), in = x.get(i), gamma = load<aligned>(call.gamma, x.number(i), call.columns);
#pragma unroll
		for (int j = 0; j < SIZE; j++) { /* elements past the end have up = 0 */
			float g = up.at[j] * gamma.at[j];
			sum_g += g;
			sum_gh += g * ((in.at[j] - mean) * rstd);
		}
	});
	float mean_gh = group_sum(sum_gh, warps, warp, shared[0] + base) / (float)call.columns, mean_g = 0;
	if (!call.rms)
		mean_g = group_sum(sum_g, warps, warp, shared[1] + base) / (float)call.columns;
	if (!real)
		return;
	each_pack<held, SIZE>(call.columns, [&](int i) {
		pack<SIZE> up = dy.get(i), in = x.get(i), gamma = load<aligned>(call.gamma, x.number(i), call.columns), dx;
#pragma unroll
		for (int j = 0; j < SIZE; j++)
			dx.at[j] = rstd * (up.at[j] * gamma.at[j] - mean_g - (in.at[j] - mean) * rstd * mean_gh);
		if constexpr (adds) {
			dx = unpacked(packed<T>(dx));
			pack<SIZE> more = plus.get(i);
#pragma unroll
			for (int j = 0; j < SIZE; j++)
				dx.at[j] = __fadd_rn(dx.at[j], more.at[j]); /* never fused with the product */
		}
		store<aligned>(call.dx + row * call.columns, x.number(i), call.columns, dx);
	});
}

/* ---- launches --------------------------------------------------------------------------------- */

/* Threads of a row by rows of a block: as few threads as can hold the row, and BLOCK in all, or all those of a long row.
 */
struct row_shape {
	dim3 block;
	unsigned grid;
	bool held;
};

static struct row_shape row_shape_of(size_t rows, size_t columns, size_t pack_size)
{
	size_t packs = ceil_of(columns, pack_size);
	unsigned threads = WARP;
	while (threads < LONGEST && (size_t)threads * HELD < packs)
		threads *= 2;
	unsigned together = threads < BLOCK ? BLOCK / threads : 1;
	if (together > rows)
		together = (unsigned)rows;
	return {dim3(threads, together), blocks_of(rows, together), packs <= (size_t)threads * HELD};
}

template <typename T, bool adds> static void launch_norm(cudaStream_t stream, const norm_call<T> &call)
{
	struct row_shape shape = row_shape_of(call.rows, call.columns, pack_of<T>::SIZE);
	size_t bytes = call.rows * call.columns * sizeof(T);
	bool aligned = call.columns % pack_of<T>::SIZE == 0 && on_16_bytes(call.x) && on_16_bytes(call.plus) &&
	               on_16_bytes(call.sum) && on_16_bytes(call.gamma) && on_16_bytes(call.beta) && on_16_bytes(call.y);
	PP_READS(call.x, bytes);
	PP_READS(call.gamma, call.columns * sizeof(T));
	PP_READS(call.beta, call.beta ? call.columns * sizeof(T) : 0);
	PP_READS(call.plus, adds ? bytes : 0);
	PP_WRITES(call.sum, adds ? bytes : 0);
	PP_WRITES(call.y, bytes);
	PP_WRITES(call.mean, call.rms ? 0 : call.rows * sizeof(float));
	PP_WRITES(call.rstd, call.rows * sizeof(float));
	if (aligned && shape.held)
		PP_LAUNCH((norm_rows<T, true, true, adds>), shape.grid, shape.block, 0, stream, call);
	else if (aligned)
		PP_LAUNCH((norm_rows<T, true, false, adds>), shape.grid, shape.block, 0, stream, call);
	else
		PP_LAUNCH((norm_rows<T, false, false, adds>), shape.grid, shape.block, 0, stream, call);
}

template <typename T, bool adds>
static void norm(cudaStream_t stream, size_t rows, size_t columns, bool rms, const void *x, const void *plus, void *sum,
                 const void *gamma, const void *beta, void *y, float *mean, float *rstd)
{
	norm_call<T> call = {rows,
	                     columns,
	                     static_cast<const T *>(x),
	                     static_cast<const T *>(plus),
	                     static_cast<T *>(sum),
	                     static_cast<const T *>(gamma),
	                     static_cast<const T *>(beta),
	                     static_cast<T *>(y),
	                     mean,
	                     rstd,
	                     rms ? 1e-6f : 1e-5f,
	                     rms};
	launch_norm<T, adds>(stream, call);
}

void pp_cuda_norm(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *x,
                  const void *gamma, const void *beta, void *y, float *mean, float *rstd)
{
	if (type == PP_CUDA_BF16)
		norm<__nv_bfloat16, false>(stream, rows, columns, rms, x, NULL, NULL, gamma, beta, y, mean, rstd);
	else
		norm<float, false>(stream, rows, columns, rms, x, NULL, NULL, gamma, beta, y, mean, rstd);
}

void pp_cuda_add_norm(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *a,
                      const void *b, void *sum, const void *gamma, const void *beta, void *y, float *mean, float *rstd)
{
	if (type == PP_CUDA_BF16)
		norm<__nv_bfloat16, true>(stream, rows, columns, rms, a, b, sum, gamma, beta, y, mean, rstd);
	else
		norm<float, true>(stream, rows, columns, rms, a, b, sum, gamma, beta, y, mean, rstd);
}

template <typename T, bool adds> static void launch_norm_dx(cudaStream_t stream, const norm_dx_call<T> &call)
{
	struct row_shape shape = row_shape_of(call.rows, call.columns, pack_of<T>::SIZE);
	size_t bytes = call.rows * call.columns * sizeof(T);
	bool aligned = call.columns % pack_of<T>::SIZE == 0 && on_16_bytes(call.dy) && on_16_bytes(call.x) &&
	               on_16_bytes(call.gamma) && on_16_bytes(call.plus) && on_16_bytes(call.dx);
	PP_READS(call.dy, bytes);
	PP_READS(call.x, bytes);
	PP_READS(call.gamma, call.columns * sizeof(T));
	PP_READS(call.mean, call.rms ? 0 : call.rows * sizeof(float));
	PP_READS(call.rstd, call.rows * sizeof(float));
	PP_READS(call.plus, adds ? bytes : 0);
	PP_WRITES(call.dx, bytes);
	if (aligned && shape.held)
		PP_LAUNCH((norm_rows_dx<T, true, true, adds>), shape.grid, shape.block, 0, stream, call);
	else if (aligned)
		PP_LAUNCH((norm_rows_dx<T, true, false, adds>), shape.grid, shape.block, 0, stream, call);
	else
		PP_LAUNCH((norm_rows_dx<T, false, false, adds>), shape.grid, shape.block, 0, stream, call);
}

template <typename T, bool adds>
static void norm_dx(cudaStream_t stream, size_t rows, size_t columns, bool rms, const void *dy, const void *x,
                    const void *gamma, const float *mean, const float *rstd, const void *plus, void *dx)
{
	norm_dx_call<T> call = {
	    rows, columns, static_cast<const T *>(dy),   static_cast<const T *>(x), static_cast<const T *>(gamma),
	    mean, rstd,    static_cast<const T *>(plus), static_cast<T *>(dx),      rms};
	launch_norm_dx<T, adds>(stream, call);
}

void pp_cuda_norm_dx(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms, const void *dy,
                     const void *x, const void *gamma, const float *mean, const float *rstd, void *dx)
{
	if (type == PP_CUDA_BF16)
		norm_dx<__nv_bfloat16, false>(stream, rows, columns, rms, dy, x, gamma, mean, rstd, NULL, dx);
	else
		norm_dx<float, false>(stream, rows, columns, rms, dy, x, gamma, mean, rstd, NULL, dx);
}

void pp_cuda_norm_dx_add(cudaStream_t stream, enum pp_cuda_type type, size_t rows, size_t columns, bool rms,
                         const void *dy, const void *x, const void *gamma, const float *mean, const float *rstd,
                         const void *plus, void *dx)
{
	if (type == PP_CUDA_BF16)
		norm_dx<__nv_bfloat16, true>(stream, rows, columns, rms, dy, x, gamma, mean, rstd, plus, dx);
	else
		norm_dx<float, true>(stream, rows, columns, rms, dy, x, gamma, mean, rstd, plus, dx);
}
