/* Instructions of the GPU's tensor cores that CUDA C has no word for: the product of a warp, loads of its operands from
 * shared memory, copies into shared memory that run beside the computation. All need sm_80. Source: PTX ISA 8.x,
 * "Warp-level matrix instructions" and "Asynchronous copy".
 *
 * A build without the CUDA compiler takes their emulated twins from its include path. */
#ifndef PP_TENSOR_CORE_H
#define PP_TENSOR_CORE_H

#include "device_asm.h"

#include <stdint.h>

#ifndef __CUDACC__
#include "tensor_core_emulation.h"
#else

static __device__ __forceinline__ uint32_t pp_shared_address(const void *at)
{
	return (uint32_t)__cvta_generic_to_shared(at);
}

/* c[16,8] += a[16,16] b[16,8], bf16 into fp32, by the 32 threads of a warp. Thread g * 4 + t holds
 * a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each with the column after it;
 * b: (2t, g), (2t + 8, g), each with the row after it; c: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). */
static __device__ __forceinline__ void pp_tensor_product(float c[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
	             "{%0,%1,%2,%3};\n"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of bf16: thread 8m + r names row r of matrix m (16 bytes, aligned); thread g * 4 + t gets
 * (g, 2t) and (g, 2t + 1) of matrix m in part[m]. */
static __device__ __forceinline__ void pp_matrices_load(uint32_t part[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
	             : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
	             : "r"(pp_shared_address(row)));
}

/* The same, transposed: (2t, g) and (2t + 1, g). */
static __device__ __forceinline__ void pp_matrices_load_transposed(uint32_t part[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
	             : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
	             : "r"(pp_shared_address(row)));
}

/* Copy 16 (or 4) aligned bytes to shared memory beside the computation; zeros where not `there`, then `from` is not
 * read. They are there after the wait, for other threads after a barrier too. */
static __device__ __forceinline__ void pp_copy_begin(void *to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(pp_shared_address(to)), "l"(from),
	             "r"(there ? 16 : 0));
}

static __device__ __forceinline__ void pp_copy_begin_word(void *to, const void *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(pp_shared_address(to)), "l"(from),
	             "r"(there ? 4 : 0));
}

/* Copies begun so far by this thread make up a group; wait until all but the last `RUNNING` groups are there. */
static __device__ __forceinline__ void pp_copy_group(void)
{
	asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int RUNNING> static __device__ __forceinline__ void pp_copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;\n" ::"n"(RUNNING) : "memory");
}

#endif
#endif
