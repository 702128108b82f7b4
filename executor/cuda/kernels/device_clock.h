/* The GPU's clock in nanoseconds. The emulation has its own (tests/fakedevice/emulation.h). */
#ifndef PP_DEVICE_CLOCK_H
#define PP_DEVICE_CLOCK_H

#if defined(__CUDACC__)
__device__ __forceinline__ unsigned long long pp_device_nanoseconds(void)
{
	unsigned long long now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}
#endif

#endif
