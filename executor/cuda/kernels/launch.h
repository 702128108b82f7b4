/* How kernels are launched and how they name what differs between a GPU and the emulation of one. Every .cu file
 * includes this, first. nvcc compiles launches to <<<>>>; the same sources compile as C++ with `-include
 * tests/fakedevice/emulation.h`, which gives these macros another meaning.
 *
 * Rules that make both work: launches only through these macros; dynamic shared memory only through PP_DYNAMIC_SHARED;
 * PTX only in headers that have an emulated twin; no cooperative groups, no textures, no float atomics.
 *
 *  PP_READS, PP_WRITES  what the next launch of this thread touches, for checks of bounds and order
 *  PP_LAUNCH            threads of a block meet at barriers, exchange registers or share memory
 *  PP_LAUNCH_FREE       they do not: each thread may run to its end before the next starts
 *  PP_ALLOW_SHARED      before a launch with more than 48 KiB of shared memory: its dynamic part; the first-level cache
 *                       gives way, so that as many blocks fit as there is memory for */
#ifndef PP_LAUNCH_H
#define PP_LAUNCH_H

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define PP_READS(pointer, bytes) ((void)(pointer), (void)(bytes))
#define PP_WRITES(pointer, bytes) ((void)(pointer), (void)(bytes))
#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
	(kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define PP_LAUNCH_FREE(kernel, grid, block, stream, ...) (kernel)<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#define PP_ALLOW_SHARED(kernel, bytes)                                                                                 \
	((void)cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)),    \
	 (void)cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,                \
	                            cudaSharedmemCarveoutMaxShared))
#define PP_DYNAMIC_SHARED(type, name)                                                                                  \
	extern __shared__ __align__(128) unsigned char pp_dynamic_shared[];                                                \
	type *name = reinterpret_cast<type *>(pp_dynamic_shared)

#elif !defined(PP_EMULATION_H)
#error "kernels are compiled by nvcc, or as C++ with -include tests/fakedevice/emulation.h"
#endif

#endif
