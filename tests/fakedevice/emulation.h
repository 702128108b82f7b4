/* Runs CUDA kernels on the CPU: a .cu file compiled as C++ with `-include` of this header becomes functions that carry
 * out a grid block by block. What launch.h says about kernels holds; beyond that they see what a GPU gives them:
 * threadIdx and its kin, static and dynamic shared memory (the latter filled with NaN before each block), block and
 * warp barriers, shuffles and votes with their masks, bf16 by the host code of cuda_bf16.h.
 *
 * A launch becomes a closure for the stream (fake_launch.h). Threads of PP_LAUNCH are fibers (emulation.cc): each runs
 * to its next barrier, in ascending, descending or random order. The bits of a sound kernel do not depend on that
 * order, nor on the order of blocks. What does not show here: races between barriers that happen to come out right in
 * all orders, missing fences, wrong alignment, the rounding of tensor cores and of approximate functions. */
#ifndef PP_EMULATION_H
#define PP_EMULATION_H

#include "emulation_order.h"
#include "fake_launch.h"

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <time.h>
#include <tuple>
#include <type_traits>
#include <utility>

/* The qualifiers of CUDA C++; shared memory belongs to the CPU thread that runs the block. */
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __grid_constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace pp_emulation
{

/* Where a kernel's thread is; one at a time runs on a CPU thread. */
struct place {
	uint3 thread, block;
	dim3 block_size, grid_size;
	uint32_t number; /* of the thread in its block, x fastest */
};
extern __thread struct place *here; /* __thread: no check for initialisers at each use */
extern __thread unsigned char *dynamic_shared;

/* One launch, apart from the kernel and its arguments. */
struct grid {
	const char *name;
	dim3 blocks, threads;
	uint64_t shared_bytes;
	bool meets; /* threads meet at barriers */
	enum pp_emulation_order order;
	uint64_t seed;
};

/* Order and seed are those of the process. */
struct grid grid_make(const char *name, dim3 blocks, dim3 threads, uint64_t shared_bytes, bool meets);
void run(const struct grid *grid, void (*kernel)(void *), void *arguments);

/* Dynamic shared memory beyond 48 KiB has to be asked for, kernel by kernel. */
void allow_shared(const void *kernel, uint64_t bytes);
void check_shared(const struct grid *grid, const void *kernel);

/* Meet the other threads of the block that have not ended; of the warp: those in the mask. */
void meet_block(void);
void meet_warp(uint32_t mask);
/* Hand `bytes` bytes to the threads of the mask, then copy what lane `source` handed over. */
void exchange(uint32_t mask, const void *value, void *result, uint32_t source, uint32_t bytes);
uint32_t vote(uint32_t mask, bool predicate);

template <typename... Parameters> struct launch {
	struct grid grid;
	void (*kernel)(Parameters...);
	std::tuple<Parameters...> arguments;

	static void call(void *at)
	{
		launch *self = static_cast<launch *>(at);
		std::apply(self->kernel, self->arguments);
	}
	static void run(void *at)
	{
		launch *self = static_cast<launch *>(at);
		pp_emulation::run(&self->grid, call, self);
	}
	static void release(void *at)
	{
		delete static_cast<launch *>(at);
	}
};

template <typename... Parameters, typename... Arguments>
void start(const char *name, bool meets, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
           uint64_t shared_bytes, cudaStream_t stream, Arguments &&...arguments)
{
	struct grid grid = grid_make(name, blocks, threads, shared_bytes, meets);
	check_shared(&grid, reinterpret_cast<const void *>(kernel));
	using mine = launch<Parameters...>;
	mine *self = new mine{grid, kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
	struct pp_fake_kernel given = {name,
	                               reinterpret_cast<const void *>(kernel),
	                               {blocks.x, blocks.y, blocks.z},
	                               {threads.x, threads.y, threads.z},
	                               shared_bytes,
	                               mine::run,
	                               mine::release,
	                               self};
	(void)pp_fake_launch(stream, &given); /* remembers its error, as a launch does */
}

inline uint32_t lane(void)
{
	return here->number % 32;
}

/* What instructions that flush make of numbers below the smallest normal one. */
inline float flushed(float x)
{
	return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x;
}

/* Shuffles work within segments of `width` lanes. A source outside the segment gives the thread's own value. */
template <typename T> T shuffle(uint32_t mask, T value, uint32_t source)
{
	static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
	T result;
	exchange(mask, &value, &result, source, sizeof value);
	return result;
}

} /* namespace pp_emulation */

#define PP_READS(pointer, bytes) pp_fake_reads((pointer), (bytes))
#define PP_WRITES(pointer, bytes) pp_fake_writes((pointer), (bytes))
#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
	pp_emulation::start(#kernel, true, kernel, dim3(grid), dim3(block), (shared_bytes), (stream), __VA_ARGS__)
#define PP_LAUNCH_FREE(kernel, grid, block, stream, ...)                                                               \
	pp_emulation::start(#kernel, false, kernel, dim3(grid), dim3(block), 0, (stream), __VA_ARGS__)
#define PP_ALLOW_SHARED(kernel, bytes) pp_emulation::allow_shared(reinterpret_cast<const void *>(kernel), (bytes))
#define PP_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(pp_emulation::dynamic_shared)

#define threadIdx (pp_emulation::here->thread)
#define blockIdx (pp_emulation::here->block)
#define blockDim (pp_emulation::here->block_size)
#define gridDim (pp_emulation::here->grid_size)
#define warpSize 32

inline void __syncthreads(void)
{
	pp_emulation::meet_block();
}

inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
	pp_emulation::meet_warp(mask);
}

template <typename T> T __shfl_sync(uint32_t mask, T value, int source, int width = 32)
{
	uint32_t first = pp_emulation::lane() & ~(uint32_t)(width - 1);
	return pp_emulation::shuffle(mask, value, first + ((uint32_t)source & (uint32_t)(width - 1)));
}

template <typename T> T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32)
{
	uint32_t own = pp_emulation::lane(), source = own ^ (uint32_t)lanes, last = own | (uint32_t)(width - 1);
	return pp_emulation::shuffle(mask, value, source <= last ? source : own);
}

template <typename T> T __shfl_down_sync(uint32_t mask, T value, unsigned lanes, int width = 32)
{
	uint32_t own = pp_emulation::lane(), source = own + lanes, last = own | (uint32_t)(width - 1);
	return pp_emulation::shuffle(mask, value, source <= last ? source : own);
}

template <typename T> T __shfl_up_sync(uint32_t mask, T value, unsigned lanes, int width = 32)
{
	uint32_t own = pp_emulation::lane(), first = own & ~(uint32_t)(width - 1);
	return pp_emulation::shuffle(mask, value, own >= first + lanes ? own - lanes : own);
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate)
{
	return pp_emulation::vote(mask, predicate != 0);
}

inline int __any_sync(uint32_t mask, int predicate)
{
	return pp_emulation::vote(mask, predicate != 0) != 0;
}

inline int __all_sync(uint32_t mask, int predicate)
{
	return pp_emulation::vote(mask, predicate != 0) == mask;
}

/* Functions of CUDA's headers that <cmath> lacks. Approximate ones are exact here. */
inline float rsqrtf(float x)
{
	return 1.0f / std::sqrt(x);
}

inline float __expf(float x)
{
	return std::exp(x);
}

inline float __logf(float x)
{
	return std::log(x);
}

inline float __fdividef(float x, float y)
{
	return x / y;
}

inline float __fadd_rn(float x, float y)
{
	return x + y;
}

inline float __frcp_rn(float x)
{
	return 1.0f / x;
}

template <typename T> T __ldg(const T *at)
{
	return *at;
}

inline int __popc(uint32_t bits)
{
	return __builtin_popcount(bits);
}

inline int __ffs(int bits)
{
	return __builtin_ffs(bits);
}

inline int __clz(int bits)
{
	return bits ? __builtin_clz((unsigned)bits) : 32;
}

inline uint32_t __float_as_uint(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

inline float __uint_as_float(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

template <typename T> T min(T a, T b)
{
	return b < a ? b : a;
}

template <typename T> T max(T a, T b)
{
	return a < b ? b : a;
}

/* Twins of device_asm.h, and a nap. */
inline unsigned long long pp_device_nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

inline void pp_store_16(void *at, uint4 words)
{
	*static_cast<uint4 *>(at) = words;
}

inline float pp_power2(float x)
{
	return pp_emulation::flushed(std::exp2(pp_emulation::flushed(x)));
}

inline float pp_reciprocal(float x)
{
	return pp_emulation::flushed(1.0f / pp_emulation::flushed(x));
}

inline void __nanosleep(unsigned nanoseconds)
{
	struct timespec nap = {0, (long)(nanoseconds < 999999999u ? nanoseconds : 999999999u)};
	nanosleep(&nap, NULL);
}

#endif
