/* What takes PTX, beside tensor cores (tensor_core.h): the GPU's clock, a store of 16 bytes. The emulation has twins
 * (tests/fakedevice/emulation.h). */
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

#endif

#endif
