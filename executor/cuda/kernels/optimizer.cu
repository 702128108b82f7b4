/* The step tail: the factor on gradients, AdamW and SGD over many tensors in few launches, bf16 weights out of their
 * f32 masters. What changes from step to step is read from device memory, so that launches can be captured once. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

#include <math.h>

enum { BLOCK = 256, CHUNK = 8 * BLOCK * 4, ITEMS = 48 }; /* elements of a block, tensors of a launch */
enum { SCALE_FACTOR, SCALE_NORM, SCALE_FINITE, SCALE_TOKENS };
enum { RATE_LR, RATE_CORRECT1, RATE_CORRECT2 };

/* ---- clip ------------------------------------------------------------------------------------- */

struct clip_call {
	size_t microbatches, tensors;
	const double *losses, *norms;
	double parts, clip;
	double *scale;
};

/* Sum of from[0], from[stride], … in order, by way of shared memory, so that one thread adds while all load. */
__device__ __forceinline__ double ordered_sum(size_t count, const double *from, size_t stride, double *shared)
{
	double sum = 0;
	for (size_t first = 0; first < count; first += BLOCK) {
		size_t i = first + threadIdx.x;
		shared[threadIdx.x] = i < count ? from[i * stride] : 0;
		__syncthreads();
		for (size_t j = 0; threadIdx.x == 0 && j < BLOCK && first + j < count; j++)
			sum += shared[j];
		__syncthreads();
	}
	return sum;
}

/* Gradients hold sums over tokens, or over microbatches of means. The norm is that of the mean. */
__global__ void __launch_bounds__(BLOCK) clip_scale(clip_call call)
{
	__shared__ double shared[BLOCK];
	double tokens = ordered_sum(call.microbatches, call.losses + 1, 2, shared);
	double squares = ordered_sum(call.tensors, call.norms, 1, shared);
	if (threadIdx.x != 0)
		return;
	double parts = call.parts > 0 ? call.parts : tokens;
	double average = parts > 0 ? 1 / parts : 0;
	double norm = sqrt(squares) * average;
	double shrink = call.clip > 0 && norm > call.clip ? call.clip / norm : 1;
	bool finite = isfinite(norm);
	call.scale[SCALE_FACTOR] = finite ? average * shrink : 0;
	call.scale[SCALE_NORM] = norm;
	call.scale[SCALE_FINITE] = finite ? 1.0 : 0.0;
	call.scale[SCALE_TOKENS] = tokens;
}

void pp_cuda_clip(cudaStream_t stream, size_t microbatches, const double *losses, size_t tensors, const double *norms,
                  double parts, double clip, double *scale)
{
	clip_call call = {microbatches, tensors, losses, norms, parts, clip, scale};
	PP_READS(losses, microbatches * 2 * sizeof *losses);
	PP_READS(norms, tensors * sizeof *norms);
	PP_WRITES(scale, 4 * sizeof *scale);
	PP_LAUNCH(clip_scale, 1, BLOCK, 0, stream, call);
}

/* ---- updates ---------------------------------------------------------------------------------- */

/* base^exponent by squaring: multiplications only, so that every machine gets the same bits. */
static double power(double base, uint64_t exponent)
{
	double result = 1;
	for (; exponent; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}

void pp_cuda_rates(double lr, double beta1, double beta2, uint64_t step, double rates[PP_CUDA_RATES])
{
	rates[RATE_LR] = lr;
	rates[RATE_CORRECT1] = 1 / (1 - power(beta1, step));
	rates[RATE_CORRECT2] = 1 / (1 - power(beta2, step));
	rates[3] = 0;
}

struct updates_call {
	struct pp_cuda_update item[ITEMS];
	uint32_t first[ITEMS + 1]; /* chunk of the launch */
	uint32_t items;
	struct pp_cuda_rule rule;
	const double *rates, *scale;
};

/* The rule in f32, as the CPU kernels take it. Products and sums are fused by hand, so that whole packs and single
 * elements get the same bits. */
struct factors {
	float beta1, beta2, rest1, rest2, correct1, correct2, lr, eps, decay, factor;
};

__device__ __forceinline__ struct factors factors_of(const updates_call &call)
{
	struct factors f;
	f.beta1 = (float)call.rule.beta1;
	f.beta2 = (float)call.rule.beta2;
	f.rest1 = (float)(1 - call.rule.beta1);
	f.rest2 = (float)(1 - call.rule.beta2);
	f.eps = (float)call.rule.eps;
	f.decay = (float)call.rule.weight_decay;
	f.lr = (float)call.rates[RATE_LR];
	f.correct1 = (float)call.rates[RATE_CORRECT1];
	f.correct2 = (float)call.rates[RATE_CORRECT2];
	f.factor = (float)call.scale[SCALE_FACTOR];
	return f;
}

__device__ __forceinline__ float adamw(const struct factors &f, float w, float gradient, float *m, float *v)
{
	float g = gradient * f.factor;
	*m = fmaf(f.beta1, *m, f.rest1 * g);
	*v = fmaf(f.beta2, *v, f.rest2 * g * g);
	float step = *m * f.correct1 / (sqrtf(*v * f.correct2) + f.eps);
	return fmaf(-f.lr, fmaf(f.decay, w, step), w);
}

__device__ __forceinline__ float sgd(const struct factors &f, float w, float gradient)
{
	return fmaf(-f.lr, fmaf(f.decay, w, gradient * f.factor), w);
}

__device__ __forceinline__ void store_weight(__nv_bfloat16 *to, size_t number, size_t count, bool aligned,
                                             const pack<4> &w)
{
	size_t first = number * 4;
	if (aligned) {
		*reinterpret_cast<uint2 *>(to + first) = make_uint2(two_bf16(w.at[0], w.at[1]), two_bf16(w.at[2], w.at[3]));
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (first + i < count)
			to[first + i] = narrowed<__nv_bfloat16>(w.at[i]);
}

/* One pack of four elements of an item. */
template <bool aligned, bool moments>
__device__ __forceinline__ void update(const struct factors &f, const struct pp_cuda_update &item, size_t number)
{
	pack<4> w = load<aligned>(item.master, number, item.count), g = load<aligned>(item.gradient, number, item.count);
	pack<4> m = {}, v = {};
	if constexpr (moments) {
		m = load<aligned>(item.moment1, number, item.count);
		v = load<aligned>(item.moment2, number, item.count);
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if constexpr (moments)
			w.at[i] = adamw(f, w.at[i], g.at[i], &m.at[i], &v.at[i]);
		else
			w.at[i] = sgd(f, w.at[i], g.at[i]);
	}
	store<aligned>(item.master, number, item.count, w);
	if constexpr (moments) {
		store<aligned>(item.moment1, number, item.count, m);
		store<aligned>(item.moment2, number, item.count, v);
	}
	if (item.weight)
		store_weight(static_cast<__nv_bfloat16 *>(item.weight), number, item.count, aligned, w);
}

__device__ __forceinline__ bool is_aligned(const struct pp_cuda_update &item)
{
	uintptr_t all =
	    (uintptr_t)item.master | (uintptr_t)item.gradient | (uintptr_t)item.moment1 | (uintptr_t)item.moment2;
	return (all & 15) == 0 && ((uintptr_t)item.weight & 7) == 0;
}

template <bool moments>
__global__ void __launch_bounds__(BLOCK) update_chunks(const __grid_constant__ updates_call call)
{
	if (call.scale[SCALE_FINITE] == 0)
		return;
	uint32_t low = 0, high = call.items;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;
		if (call.first[middle] <= blockIdx.x)
			low = middle;
		else
			high = middle;
	}
	const struct pp_cuda_update item = call.item[low];
	struct factors f = factors_of(call);
	size_t first = (size_t)(blockIdx.x - call.first[low]) * (CHUNK / 4) + threadIdx.x;
	bool aligned = is_aligned(item);
#pragma unroll 2
	for (int i = 0; i < CHUNK / 4 / BLOCK; i++) {
		size_t number = first + (size_t)i * BLOCK;
		if (number * 4 >= item.count)
			return;
		if (aligned && number * 4 + 4 <= item.count)
			update<true, moments>(f, item, number);
		else
			update<false, moments>(f, item, number);
	}
}

template <bool moments> static void launch_updates(cudaStream_t stream, const struct updates_call *call)
{
	for (uint32_t i = 0; i < call->items; i++) {
		const struct pp_cuda_update *item = &call->item[i];
		size_t bytes = item->count * sizeof(float);
		PP_READS(item->gradient, bytes);
		PP_WRITES(item->master, bytes);
		PP_WRITES(item->moment1, moments ? bytes : 0);
		PP_WRITES(item->moment2, moments ? bytes : 0);
		PP_WRITES(item->weight, item->weight ? bytes / 2 : 0);
	}
	PP_READS(call->rates, PP_CUDA_RATES * sizeof *call->rates);
	PP_READS(call->scale, 4 * sizeof *call->scale);
	PP_LAUNCH_FREE(update_chunks<moments>, call->first[call->items], BLOCK, stream, *call);
}

template <bool moments>
static void update_all(cudaStream_t stream, const struct pp_cuda_rule *rule, size_t count,
                       const struct pp_cuda_update *updates, const double *rates, const double *scale)
{
	for (size_t next = 0; next < count;) {
		struct updates_call call = {};
		call.rule = *rule;
		call.rates = rates;
		call.scale = scale;
		for (; next < count && call.items < ITEMS; next++) {
			size_t chunks = ceil_of(updates[next].count, CHUNK);
			if (chunks == 0)
				continue;
			call.item[call.items] = updates[next];
			call.first[call.items + 1] = call.first[call.items] + (uint32_t)chunks;
			call.items++;
		}
		if (call.items > 0)
			launch_updates<moments>(stream, &call);
	}
}

void pp_cuda_adamw(cudaStream_t stream, const struct pp_cuda_rule *rule, size_t count,
                   const struct pp_cuda_update *updates, const double *rates, const double *scale)
{
	update_all<true>(stream, rule, count, updates, rates, scale);
}

void pp_cuda_sgd(cudaStream_t stream, double weight_decay, size_t count, const struct pp_cuda_update *updates,
                 const double *rates, const double *scale)
{
	struct pp_cuda_rule rule = {0, 0, 0, weight_decay};
	update_all<false>(stream, &rule, count, updates, rates, scale);
}
