/* Instructions of tensor cores (tensor_trial.h). */
#include "executor/cuda/kernels/launch.h"

#include "executor/cuda/kernels/tensor_core.h"

#include "tensor_trial.h"

struct product_call {
	const float *a, *b;
	float *c;
};

static __device__ uint32_t two_halves(float low, float high)
{
	return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
}

/* Element i of a thread, by the formulas of the manual; two elements make a register, the lower first. */
static __device__ float element_of_a(const float *a, int lane, int i)
{
	int group = lane >> 2, thread = lane % 4;
	int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
	int column = i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
	return a[row * TENSOR_DEPTH + column];
}

static __device__ float element_of_b(const float *b, int lane, int i)
{
	int group = lane >> 2, thread = lane % 4;
	int row = i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
	return b[row * TENSOR_COLUMNS + group];
}

static __device__ float *element_of_c(float *c, int lane, int i)
{
	int group = lane >> 2, thread = lane % 4;
	int row = i < 2 ? group : group + 8;
	return &c[row * TENSOR_COLUMNS + thread * 2 + (i & 1)];
}

static __global__ void multiply(product_call call)
{
	int lane = (int)threadIdx.x;
	uint32_t a[4], b[2];
	float c[4];
	for (int r = 0; r < 4; r++)
		a[r] = two_halves(element_of_a(call.a, lane, 2 * r), element_of_a(call.a, lane, 2 * r + 1));
	for (int r = 0; r < 2; r++)
		b[r] = two_halves(element_of_b(call.b, lane, 2 * r), element_of_b(call.b, lane, 2 * r + 1));
	for (int i = 0; i < 4; i++)
		c[i] = *element_of_c(call.c, lane, i);
	pp_tensor_product(c, a, b);
	for (int i = 0; i < 4; i++)
		*element_of_c(call.c, lane, i) = c[i];
}

struct load_call {
	const unsigned char *matrices;
	uint32_t pitch;
	int transposed;
	uint32_t (*parts)[4];
};

static __global__ void load_matrices(load_call call)
{
	PP_DYNAMIC_SHARED(unsigned char, shared);
	int lane = (int)threadIdx.x;
	unsigned char *row = shared + (uint32_t)lane * call.pitch; /* threads 8 m to 8 m + 7: rows of matrix m */
	memcpy(row, call.matrices + lane * 16, 16);
	__syncwarp();
	if (call.transposed)
		pp_matrices_load_transposed(call.parts[lane], row);
	else
		pp_matrices_load(call.parts[lane], row);
}

struct copies_call {
	uint32_t *first, *second;
};

static __global__ void copy(copies_call call)
{
	PP_DYNAMIC_SHARED(uint32_t, shared);
	alignas(16) uint32_t from[4][4];
	for (uint32_t group = 0; group < 4; group++) {
		for (uint32_t i = 0; i < 4; i++)
			from[group][i] = group + 1;
		pp_copy_begin(shared + group * 4, from[group], group != 2);
		pp_copy_group();
	}
	pp_copy_wait<2>();
	for (int group = 0; group < 4; group++)
		call.first[group] = shared[group * 4 + 3];
	pp_copy_wait<0>();
	for (int group = 0; group < 4; group++)
		call.second[group] = shared[group * 4 + 3];
}

template <typename CALL, void KERNEL(CALL)> static void run_one(void *at)
{
	KERNEL(*static_cast<CALL *>(at));
}

template <typename CALL, void KERNEL(CALL)> static void run_warp(uint32_t threads, uint32_t shared, CALL call)
{
	pp_emulation::grid grid = pp_emulation::grid_make("tensor trial", dim3(1), dim3(threads), shared, true);
	pp_emulation::run(&grid, run_one<CALL, KERNEL>, &call);
}

void tensor_trial_product(const float *a, const float *b, float *c)
{
	run_warp<product_call, multiply>(TENSOR_LANES, 0, {a, b, c});
}

void tensor_trial_load(const uint16_t *matrices, uint32_t pitch, int transposed, uint32_t parts[TENSOR_LANES][4])
{
	run_warp<load_call, load_matrices>(TENSOR_LANES, TENSOR_LANES * pitch,
	                                   {reinterpret_cast<const unsigned char *>(matrices), pitch, transposed, parts});
}

void tensor_trial_copies(uint32_t first[4], uint32_t second[4])
{
	run_warp<copies_call, copy>(1, 64, {first, second});
}

float tensor_trial_power2(float x)
{
	return pp_power2(x);
}

float tensor_trial_reciprocal(float x)
{
	return pp_reciprocal(x);
}
