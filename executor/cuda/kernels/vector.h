/* What the kernels share: numbers of either type in packs of 16 bytes, sums over warps and blocks in a fixed order.
 * Included by .cu files only, after launch.h.
 *
 * A row or array is cut into packs from its first element on, and a pack goes to the same thread whether 16-byte
 * accesses can be used or not (`aligned`); so sums have the same bits at any address. */
#ifndef PP_VECTOR_H
#define PP_VECTOR_H

#include "launch.h"

#include "device_asm.h"

#include <stddef.h>
#include <stdint.h>

/* ---- numbers --------------------------------------------------------------------------------- */

__device__ __forceinline__ float widened(float x)
{
	return x;
}

__device__ __forceinline__ float widened(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T narrowed(float x);

template <> __device__ __forceinline__ float narrowed<float>(float x)
{
	return x;
}

template <> __device__ __forceinline__ __nv_bfloat16 narrowed<__nv_bfloat16>(float x)
{
	return __float2bfloat16(x);
}

/* exp(x) = 2^(x LOG2_E). */
static constexpr float LOG2_E = 1.44269504f;

/* ---- packs ----------------------------------------------------------------------------------- */

template <typename T> struct pack_of {
	enum { SIZE = 16 / sizeof(T) };
};

/* Elements of a pack as they lie in memory; what a thread holds of a row. */
template <typename T> struct __align__(16) raw_pack
{
	uint32_t word[4];
};

/* The same as numbers. */
template <int SIZE> struct pack {
	float at[SIZE];
};

__device__ __forceinline__ pack<4> unpacked(const raw_pack<float> &raw)
{
	pack<4> out;
#pragma unroll
	for (int i = 0; i < 4; i++)
		out.at[i] = __uint_as_float(raw.word[i]);
	return out;
}

__device__ __forceinline__ pack<8> unpacked(const raw_pack<__nv_bfloat16> &raw)
{
	pack<8> out;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		out.at[2 * i] = __uint_as_float(raw.word[i] << 16);
		out.at[2 * i + 1] = __uint_as_float(raw.word[i] & 0xffff0000u);
	}
	return out;
}

__device__ __forceinline__ uint32_t two_bf16(float low, float high)
{
	__nv_bfloat162 two = __floats2bfloat162_rn(low, high);
	uint32_t word;
	memcpy(&word, &two, sizeof word);
	return word;
}

template <typename T> __device__ __forceinline__ raw_pack<T> packed(const pack<pack_of<T>::SIZE> &values);

template <> __device__ __forceinline__ raw_pack<float> packed<float>(const pack<4> &values)
{
	raw_pack<float> raw;
#pragma unroll
	for (int i = 0; i < 4; i++)
		raw.word[i] = __float_as_uint(values.at[i]);
	return raw;
}

template <> __device__ __forceinline__ raw_pack<__nv_bfloat16> packed<__nv_bfloat16>(const pack<8> &values)
{
	raw_pack<__nv_bfloat16> raw;
#pragma unroll
	for (int i = 0; i < 4; i++)
		raw.word[i] = two_bf16(values.at[2 * i], values.at[2 * i + 1]);
	return raw;
}

/* 16 bytes of device memory at once. */
template <typename T> __device__ __forceinline__ raw_pack<T> load_16(const T *at)
{
	uint4 four = *reinterpret_cast<const uint4 *>(at);
	return {{four.x, four.y, four.z, four.w}};
}

template <typename T> __device__ __forceinline__ void store_16(T *at, const raw_pack<T> &raw)
{
	pp_store_16(at, make_uint4(raw.word[0], raw.word[1], raw.word[2], raw.word[3]));
}

/* Elements first … first + SIZE - 1 of a row, those outside 0 … columns - 1 as 0. */
template <typename T>
__device__ __forceinline__ pack<pack_of<T>::SIZE> load_each(const T *row, ptrdiff_t first, size_t columns)
{
	enum { SIZE = pack_of<T>::SIZE };
	pack<SIZE> out;
#pragma unroll
	for (int i = 0; i < SIZE; i++)
		out.at[i] = first + i >= 0 && (size_t)(first + i) < columns ? widened(row[first + i]) : 0.0f;
	return out;
}

template <typename T>
__device__ __forceinline__ void store_each(T *row, ptrdiff_t first, size_t columns,
                                           const pack<pack_of<T>::SIZE> &values)
{
	enum { SIZE = pack_of<T>::SIZE };
#pragma unroll
	for (int i = 0; i < SIZE; i++)
		if (first + i >= 0 && (size_t)(first + i) < columns)
			row[first + i] = narrowed<T>(values.at[i]);
}

/* Pack `number` of a row. `aligned`: the row begins on 16 bytes and has only whole packs. */
template <bool aligned, typename T>
__device__ __forceinline__ raw_pack<T> load_raw(const T *row, size_t number, size_t columns)
{
	enum { SIZE = pack_of<T>::SIZE };
	if constexpr (aligned)
		return load_16(row + number * SIZE);
	else
		return packed<T>(load_each(row, (ptrdiff_t)(number * SIZE), columns));
}

template <bool aligned, typename T>
__device__ __forceinline__ pack<pack_of<T>::SIZE> load(const T *row, size_t number, size_t columns)
{
	return unpacked(load_raw<aligned>(row, number, columns));
}

template <bool aligned, typename T>
__device__ __forceinline__ void store(T *row, size_t number, size_t columns, const pack<pack_of<T>::SIZE> &values)
{
	enum { SIZE = pack_of<T>::SIZE };
	if (aligned)
		store_16(row + number * SIZE, packed<T>(values));
	else
		store_each(row, (ptrdiff_t)(number * SIZE), columns, values);
}

/* f32 numbers beside a pack of SIZE elements of any type: gradients, tables. */
template <bool aligned, int SIZE>
__device__ __forceinline__ pack<SIZE> load_f32(const float *row, size_t number, size_t columns)
{
	pack<SIZE> out;
	size_t first = number * SIZE;
#pragma unroll
	for (int i = 0; i < SIZE; i += 4) {
		pack<4> four = aligned ? unpacked(load_16(row + first + i)) : load_each(row, (ptrdiff_t)(first + i), columns);
#pragma unroll
		for (int j = 0; j < 4; j++)
			out.at[i + j] = four.at[j];
	}
	return out;
}

template <bool aligned, int SIZE>
__device__ __forceinline__ void store_f32(float *row, size_t number, size_t columns, const pack<SIZE> &values)
{
	size_t first = number * SIZE;
#pragma unroll
	for (int i = 0; i < SIZE; i += 4) {
		pack<4> four;
#pragma unroll
		for (int j = 0; j < 4; j++)
			four.at[j] = values.at[i + j];
		if (aligned)
			store_16(row + first + i, packed<float>(four));
		else
			store_each(row, (ptrdiff_t)(first + i), columns, four);
	}
}

/* ---- host: sizes ------------------------------------------------------------------------------ */

static inline bool on_16_bytes(const void *address)
{
	return ((uintptr_t)address & 15) == 0; /* NULL is */
}

static inline size_t ceil_of(size_t a, size_t b)
{
	return a / b + (a % b != 0);
}

static inline unsigned blocks_of(size_t count, size_t each)
{
	return (unsigned)ceil_of(count, each);
}

/* ---- sums in a fixed order -------------------------------------------------------------------- */

enum { WARP = 32, WARPS_MAX = 32 };

/* A butterfly: every lane gets the same bits. */
template <typename T> __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, lanes);
	return x;
}

/* Over `warps` warps of the block, this thread's being number `warp` of them; `shared` has a place for each. All
 * threads of the block come here, with the same `warps`. Before `shared` is used again the block must meet. */
template <typename T> __device__ __forceinline__ T group_sum(T x, unsigned warps, unsigned warp, T *shared)
{
	x = warp_sum(x);
	if (warps == 1)
		return x;
	if (threadIdx.x % WARP == 0)
		shared[warp] = x;
	__syncthreads();
	T sum = shared[0];
	for (unsigned i = 1; i < warps; i++)
		sum += shared[i];
	return sum;
}

#endif
