/* Kernels that try the emulation (emulation_trial.h). */
#include "executor/cuda/kernels/launch.h"

#include "emulation_trial.h"

enum { WARP = 32, SHARED = 1024 };

static __device__ double block_sum(void)
{
	__shared__ double parts[WARP];
	double sum = (double)(threadIdx.x + 1);
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
	if (threadIdx.x % WARP == 0)
		parts[threadIdx.x / WARP] = sum;
	__syncthreads();
	sum = 0;
	for (unsigned i = 0; i < blockDim.x / WARP; i++)
		sum += parts[i];
	return sum;
}

static __device__ double shuffles(void)
{
	int lane = (int)(threadIdx.x % WARP);
	double swapped = __shfl_xor_sync(0xffffffffu, lane, 1), above = __shfl_up_sync(0xffffffffu, lane, 1);
	double below = __shfl_down_sync(0xffffffffu, lane, 1), third = __shfl_sync(0xffffffffu, lane, 3, 8);
	return ((swapped * 100 + above) * 100 + below) * 100 + third;
}

static __device__ double half_warps(void)
{
	uint32_t mask = threadIdx.x % WARP < 16 ? 0x0000ffffu : 0xffff0000u;
	float sum = (float)threadIdx.x;
	for (int lanes = 8; lanes > 0; lanes /= 2)
		sum += __shfl_xor_sync(mask, sum, lanes, 16);
	return (double)sum;
}

static __device__ double shared_is_nan(void)
{
	PP_DYNAMIC_SHARED(float, shared);
	return shared[threadIdx.x % (SHARED / sizeof(float))] != shared[threadIdx.x % (SHARED / sizeof(float))];
}

static __device__ double missing_barrier(void)
{
	PP_DYNAMIC_SHARED(uint8_t, shared);
	shared[threadIdx.x] = (uint8_t)(threadIdx.x + 1);
	return (double)shared[(threadIdx.x + 1) % blockDim.x];
}

static __device__ double deep_stack(void)
{
	volatile char large[100 << 10];
	for (size_t i = 0; i < sizeof large; i++)
		large[i] = 1;
	return large[0];
}

static __device__ double try_one(enum trial trial)
{
	unsigned lane = threadIdx.x % WARP;
	switch (trial) {
	case TRIAL_BLOCK_SUM:
		return block_sum();
	case TRIAL_SHUFFLES:
		return shuffles();
	case TRIAL_VOTES:
		return (double)__ballot_sync(0xffffffffu, (int)(lane % 2));
	case TRIAL_HALF_WARPS:
		return half_warps();
	case TRIAL_SHARED_IS_NAN:
		return shared_is_nan();
	case TRIAL_EARLY_END:
		if (threadIdx.x / WARP % 2 == 1)
			return 1;
		__syncthreads();
		return 2;
	case TRIAL_MISSING_BARRIER:
		return missing_barrier();
	case TRIAL_DIVERGENT:
		if (lane < 16)
			__syncthreads();
		else
			__syncwarp();
		return 0;
	case TRIAL_WRONG_MASK:
		return (double)__shfl_sync(0xfffffffeu, 1.0f, 1);
	case TRIAL_ENDED_LANE:
		if (lane == 5)
			return 0;
		__syncthreads();
		__syncwarp();
		return 0;
	case TRIAL_DEEP_STACK:
		return deep_stack();
	case TRIAL_COUNT:
		break;
	}
	return 0;
}

static __global__ void trial_kernel(enum trial trial, double *result)
{
	result[blockIdx.x * blockDim.x + threadIdx.x] = try_one(trial);
}

struct arguments {
	enum trial trial;
	double *result;
};

static void call(void *at)
{
	struct arguments *arguments = static_cast<struct arguments *>(at);
	trial_kernel(arguments->trial, arguments->result);
}

void trial_run(enum trial trial, uint32_t blocks, uint32_t threads, double *result)
{
	struct arguments arguments = {trial, result};
	pp_emulation::grid grid = pp_emulation::grid_make("trial", dim3(blocks), dim3(threads), SHARED, true);
	pp_emulation::run(&grid, call, &arguments);
}

void trial_run_plain(double *result)
{
	struct arguments arguments = {TRIAL_BLOCK_SUM, result};
	pp_emulation::grid grid = pp_emulation::grid_make("trial", dim3(1), dim3(WARP), 0, false);
	pp_emulation::run(&grid, call, &arguments);
}

void trial_run_shared(uint64_t bytes, double *result)
{
	struct arguments arguments = {TRIAL_SHARED_IS_NAN, result};
	pp_emulation::grid grid = pp_emulation::grid_make("trial", dim3(1), dim3(WARP), bytes, true);
	pp_emulation::check_shared(&grid, reinterpret_cast<const void *>(trial_kernel));
	pp_emulation::run(&grid, call, &arguments);
}
