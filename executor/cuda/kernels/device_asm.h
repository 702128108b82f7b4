/* What takes PTX, beside tensor cores (tensor_core.h): the GPU's clock, a store of 16 bytes, quick functions. The
 * emulation has twins (tests/fakedevice/emulation.h). */
#ifndef PP_DEVICE_ASM_H
#define PP_DEVICE_ASM_H

#if defined(__CUDACC__)

/* Nanoseconds from some start on. */
__device__ __forceinline__ unsigned long long pp_device_nanoseconds(void)
{
	unsigned long long now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

/* 16 bytes of device memory at once. An assignment is split in four where the compiler has the words apart. */
__device__ __forceinline__ void pp_store_16(void *at, uint4 words)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
	             :
	             : "l"(at), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
	             : "memory");
}

/* 2^x, and 1 / x, with a relative error below 2^-22; numbers below 2^-126 count as 0, going in and coming out. One
 * instruction each: __expf and __fdividef take three more, for numbers that small. 2^-inf is 0, 1 / inf as well. */
__device__ __forceinline__ float pp_power2(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ __forceinline__ float pp_reciprocal(float x)
{
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

#endif

#endif
