/* How work gets onto a stream of the fake CUDA runtime other than through the CUDA API: launches of emulated kernels,
 * and what a launch touches. Included by the emulation header (C++) and by the runtime (C).
 *
 * A launch says beforehand which device memory it reads and writes: pp_fake_reads and pp_fake_writes note ranges of the
 * calling thread, the next pp_fake_launch of that thread takes them all. The runtime checks them against the
 * allocations and looks for touches that nothing orders (fake_races.h). */
#ifndef PP_FAKE_LAUNCH_H
#define PP_FAKE_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The next launch of this thread reads or writes `bytes` bytes from `start` on; 0 bytes are no touch. */
void pp_fake_reads(const void *start, uint64_t bytes);
void pp_fake_writes(const void *start, uint64_t bytes);

/* One launch. `run(closure)` carries out the whole grid on the CPU, on a thread of the runtime, when the stream gets
 * there; a launch that was captured into a graph runs once per launch of the graph. `release(closure)`, if not NULL, is
 * called when no run can follow any more. `name` must outlive everything. */
struct pp_fake_kernel {
	const char *name;
	const void *code; /* the kernel itself: what CUDA loads at the first launch */
	uint32_t grid[3], block[3];
	uint64_t shared_bytes; /* static and dynamic shared memory of a block */
	void (*run)(void *closure);
	void (*release)(void *closure);
	void *closure;
};

/* As <<<>>>: cudaErrorInvalidConfiguration where a device has no such grid or block, and the closure is released. */
cudaError_t pp_fake_launch(cudaStream_t stream, const struct pp_fake_kernel *kernel);

#ifdef __cplusplus
}
#endif

#endif
