/* What tensor parallelism adds: the bias behind a row-parallel linear, the columns of one key/value head. A warp per
 * token. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

enum { ROWS = 8, LOADED = 4 }; /* rows of a block; packs of a row that a thread loads together */

template <typename T> struct add_bias_call {
	size_t tokens, columns;
	const T *a, *b, *bias;
	T *y;
};

template <typename T, bool aligned> __global__ void add_bias_rows(add_bias_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t t = (size_t)blockIdx.x * ROWS + threadIdx.y;
	if (t >= call.tokens)
		return;
	size_t at = t * call.columns;
#pragma unroll 2
	for (size_t number = threadIdx.x; number * SIZE < call.columns; number += WARP) {
		pack<SIZE> a = load<aligned>(call.a + at, number, call.columns);
		pack<SIZE> b = load<aligned>(call.b + at, number, call.columns);
		pack<SIZE> bias = load<aligned>(call.bias, number, call.columns), y;
#pragma unroll
		for (int i = 0; i < SIZE; i++)
			y.at[i] = (a.at[i] + b.at[i]) + bias.at[i];
		store<aligned>(call.y + at, number, call.columns, y);
	}
}

/* y[t, to + i] = x[t, from + i], i < count; other columns of y become 0. */
template <typename T> struct columns_call {
	size_t tokens, x_columns, from, y_columns, to, count;
	const T *x;
	T *y;
};

template <typename T, bool aligned> __global__ void move_columns(columns_call<T> call)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t t = (size_t)blockIdx.x * ROWS + threadIdx.y;
	if (t >= call.tokens)
		return;
	const T *x = call.x + t * call.x_columns + call.from;
	T *y = call.y + t * call.y_columns;
	enum { STEP = aligned ? SIZE : 1 };
	for (size_t first = (size_t)threadIdx.x * STEP; first < call.y_columns; first += WARP * STEP * LOADED) {
		raw_pack<T> raw[LOADED] = {};
#pragma unroll
		for (int u = 0; aligned && u < LOADED; u++) {
			size_t i = first + u * WARP * STEP;
			if (i >= call.to && i - call.to < call.count)
				raw[u] = load_16(x + (i - call.to));
		}
#pragma unroll
		for (int u = 0; u < LOADED; u++) {
			size_t i = first + u * WARP * STEP;
			if (i >= call.y_columns)
				break;
			if constexpr (aligned)
				store_16(y + i, raw[u]);
			else
				y[i] = i >= call.to && i - call.to < call.count ? x[i - call.to] : narrowed<T>(0.0f);
		}
	}
}

/* ---- launches --------------------------------------------------------------------------------- */

template <typename T> static void add_bias(cudaStream_t stream, const add_bias_call<T> &call)
{
	bool aligned = call.columns % pack_of<T>::SIZE == 0 && on_16_bytes(call.a) && on_16_bytes(call.b) &&
	               on_16_bytes(call.bias) && on_16_bytes(call.y);
	size_t bytes = call.tokens * call.columns * sizeof(T);
	dim3 block(WARP, ROWS);
	PP_READS(call.a, bytes);
	PP_READS(call.b, bytes);
	PP_READS(call.bias, call.columns * sizeof(T));
	PP_WRITES(call.y, bytes);
	if (aligned)
		PP_LAUNCH_FREE((add_bias_rows<T, true>), blocks_of(call.tokens, ROWS), block, stream, call);
	else
		PP_LAUNCH_FREE((add_bias_rows<T, false>), blocks_of(call.tokens, ROWS), block, stream, call);
}

void pp_cuda_add_bias(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns, const void *a,
                      const void *b, const void *bias, void *y)
{
	typedef __nv_bfloat16 bf16;
	if (type == PP_CUDA_BF16)
		add_bias<bf16>(stream, {tokens, columns, (const bf16 *)a, (const bf16 *)b, (const bf16 *)bias, (bf16 *)y});
	else
		add_bias<float>(stream, {tokens, columns, (const float *)a, (const float *)b, (const float *)bias, (float *)y});
}

template <typename T> static void columns(cudaStream_t stream, const columns_call<T> &call)
{
	size_t all = call.x_columns | call.from | call.y_columns | call.to | call.count;
	bool aligned = all % pack_of<T>::SIZE == 0 && on_16_bytes(call.x) && on_16_bytes(call.y);
	dim3 block(WARP, ROWS);
	PP_READS(call.x, call.tokens * call.x_columns * sizeof(T));
	PP_WRITES(call.y, call.tokens * call.y_columns * sizeof(T));
	if (aligned)
		PP_LAUNCH_FREE((move_columns<T, true>), blocks_of(call.tokens, ROWS), block, stream, call);
	else
		PP_LAUNCH_FREE((move_columns<T, false>), blocks_of(call.tokens, ROWS), block, stream, call);
}

void pp_cuda_take_columns(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns_of_x, size_t first,
                          size_t count, const void *x, void *y)
{
	typedef __nv_bfloat16 bf16;
	if (type == PP_CUDA_BF16)
		columns<bf16>(stream, {tokens, columns_of_x, first, count, 0, count, (const bf16 *)x, (bf16 *)y});
	else
		columns<float>(stream, {tokens, columns_of_x, first, count, 0, count, (const float *)x, (float *)y});
}

void pp_cuda_put_columns(cudaStream_t stream, enum pp_cuda_type type, size_t tokens, size_t columns_of_y, size_t first,
                         size_t count, const void *x, void *y)
{
	typedef __nv_bfloat16 bf16;
	if (type == PP_CUDA_BF16)
		columns<bf16>(stream, {tokens, count, 0, columns_of_y, first, count, (const bf16 *)x, (bf16 *)y});
	else
		columns<float>(stream, {tokens, count, 0, columns_of_y, first, count, (const float *)x, (float *)y});
}
