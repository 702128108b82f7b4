/* Activations, gated activations, sums: what touches each element once; copies and fills. A thread takes UNROLL packs,
 * BLOCK packs apart, and loads all before it computes. Each functor gives an element of its outputs from those of its
 * inputs; exponentials and quotients are the quick ones, a few units in the last place off. */
#include "launch.h"

#include "kernels_cuda.h"
#include "vector.h"

enum { BLOCK = 256, UNROLL = 2, INPUTS_MAX = 3, OUTPUTS_MAX = 2 };

template <typename T> struct arrays {
	const T *in[INPUTS_MAX];
	T *out[OUTPUTS_MAX];
	size_t count;
};

/* ---- the functions ---------------------------------------------------------------------------- */

/* exp(-x^2 / 2) and from it the upper tail of the normal distribution beyond |x|: erfc(z) = exp(-z^2) times a
 * polynomial in 1 / (1 + 0.4 z), fitted on z <= 6.5 with a relative error of 2e-8 (as in
 * executor/kernels/kernel_math.h); here with z = |x| / sqrt(2) and half of its coefficients. */
struct normal {
	float tail, gauss;
};

__device__ __forceinline__ struct normal normal_at(float x)
{
	float gauss = pp_power2(-0.5f * LOG2_E * x * x);
	float t = pp_reciprocal(1.0f + 0.28284271f * fabsf(x));
	float p = 0.041424629f;
	p = p * t - 0.21993374f;
	p = p * t + 0.39370012f;
	p = p * t - 0.25249198f;
	p = p * t + 0.25527447f;
	p = p * t + 0.045172752f;
	p = p * t + 0.12548402f;
	p = p * t + 0.11128709f;
	p = p * t + 8.2603355e-05f;
	return {p * gauss, gauss};
}

/* exp(-2 u) with u = sqrt(2/pi) * (x + 0.044715 x^3); 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2 u)). */
__device__ __forceinline__ float tanh_decay(float x)
{
	return pp_power2(x * (-1.5957691f * LOG2_E - 1.5957691f * 0.044715f * LOG2_E * (x * x)));
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|). */
struct gelu_erf {
	enum { INPUTS = 1, OUTPUTS = 1 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		float x = in[0], above = x < 0 ? 0.0f : x; /* NaN stays */
		out[0] = above - fabsf(x) * normal_at(x).tail;
	}
};

struct gelu_erf_dx {
	enum { INPUTS = 2, OUTPUTS = 1 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		struct normal at = normal_at(in[1]);
		float integral = in[1] < 0 ? at.tail : 1.0f - at.tail;
		out[0] = in[0] * (integral + in[1] * (at.gauss * 0.39894228f));
	}
};

struct gelu_tanh {
	enum { INPUTS = 1, OUTPUTS = 1 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		float x = in[0] < -30.0f ? -30.0f : in[0]; /* beyond, the quotient of x and inf is 0 as well */
		out[0] = x * pp_reciprocal(1.0f + tanh_decay(x));
	}
};

/* gate * (1 - gate) = decay * gate^2 does not cancel where the gate is near 1. Beyond 9 the slope is 0 or 1 to 1e-26,
 * while its factors would overflow. */
struct gelu_tanh_dx {
	enum { INPUTS = 2, OUTPUTS = 1 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		float x = in[1];
		x = x < -9.0f ? -9.0f : x;
		x = x > 9.0f ? 9.0f : x;
		float decay = tanh_decay(x), gate = pp_reciprocal(1.0f + decay);
		float inner = 1.5957691f * (1.0f + 3.0f * 0.044715f * x * x);
		out[0] = in[0] * (gate + x * inner * (decay * gate * gate));
	}
};

struct swiglu {
	enum { INPUTS = 2, OUTPUTS = 1 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		out[0] = in[0] * pp_reciprocal(1.0f + pp_power2(-LOG2_E * in[0])) * in[1];
	}
};

/* With s = 1 / (1 + exp(-gate)): d(gate * s) = s * (1 + gate * (1 - s)), 1 - s = exp(-gate) * s. Below -60 all of it is
 * 0 to 1e-23, while gate * exp(-gate) would overflow. */
struct swiglu_dx {
	enum { INPUTS = 3, OUTPUTS = 2 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		float d = in[0], g = in[1] < -60.0f ? -60.0f : in[1];
		float decay = pp_power2(-LOG2_E * g), s = pp_reciprocal(1.0f + decay);
		out[0] = d * in[2] * s * (1.0f + g * (decay * s));
		out[1] = d * g * s;
	}
};

struct sum {
	enum { INPUTS = 2, OUTPUTS = 1 };
	__device__ __forceinline__ static void apply(const float *in, float *out)
	{
		out[0] = in[0] + in[1];
	}
};

/* ---- kernel ----------------------------------------------------------------------------------- */

/* Outputs may be inputs: a thread reads its packs before it writes them. */
template <typename T, bool aligned, typename F> __global__ void __launch_bounds__(BLOCK) map_elements(arrays<T> arrays)
{
	enum { SIZE = pack_of<T>::SIZE };
	size_t first = (size_t)blockIdx.x * BLOCK * UNROLL + threadIdx.x;
	raw_pack<T> raw[F::INPUTS][UNROLL];
#pragma unroll
	for (int u = 0; u < UNROLL; u++)
#pragma unroll
		for (int i = 0; i < F::INPUTS; i++)
			if ((first + u * BLOCK) * SIZE < arrays.count)
				raw[i][u] = load_raw<aligned>(arrays.in[i], first + u * BLOCK, arrays.count);
#pragma unroll
	for (int u = 0; u < UNROLL; u++) {
		if ((first + u * BLOCK) * SIZE >= arrays.count)
			return;
		pack<SIZE> in[F::INPUTS], out[F::OUTPUTS];
#pragma unroll
		for (int i = 0; i < F::INPUTS; i++)
			in[i] = unpacked(raw[i][u]);
#pragma unroll
		for (int j = 0; j < SIZE; j++) {
			float of[F::INPUTS], to[F::OUTPUTS];
#pragma unroll
			for (int i = 0; i < F::INPUTS; i++)
				of[i] = in[i].at[j];
			F::apply(of, to);
#pragma unroll
			for (int i = 0; i < F::OUTPUTS; i++)
				out[i].at[j] = to[i];
		}
#pragma unroll
		for (int i = 0; i < F::OUTPUTS; i++)
			store<aligned>(arrays.out[i], first + u * BLOCK, arrays.count, out[i]);
	}
}

/* ---- launches --------------------------------------------------------------------------------- */

template <typename T, typename F> static void map_typed(cudaStream_t stream, const arrays<T> &arrays)
{
	bool aligned = true;
	for (int i = 0; i < F::INPUTS; i++) {
		aligned &= on_16_bytes(arrays.in[i]);
		PP_READS(arrays.in[i], arrays.count * sizeof(T));
	}
	for (int i = 0; i < F::OUTPUTS; i++) {
		aligned &= on_16_bytes(arrays.out[i]);
		PP_WRITES(arrays.out[i], arrays.count * sizeof(T));
	}
	unsigned blocks = blocks_of(arrays.count, (size_t)BLOCK * UNROLL * pack_of<T>::SIZE);
	if (arrays.count == 0)
		return;
	if (aligned && arrays.count % pack_of<T>::SIZE == 0)
		PP_LAUNCH_FREE((map_elements<T, true, F>), blocks, BLOCK, stream, arrays);
	else
		PP_LAUNCH_FREE((map_elements<T, false, F>), blocks, BLOCK, stream, arrays);
}

template <typename F>
static void map(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *a, const void *b, const void *c,
                void *y, void *z)
{
	typedef __nv_bfloat16 bf16;
	if (type == PP_CUDA_BF16)
		map_typed<bf16, F>(stream,
		                   {{(const bf16 *)a, (const bf16 *)b, (const bf16 *)c}, {(bf16 *)y, (bf16 *)z}, count});
	else
		map_typed<float, F>(stream,
		                    {{(const float *)a, (const float *)b, (const float *)c}, {(float *)y, (float *)z}, count});
}

void pp_cuda_activate(cudaStream_t stream, enum pp_cuda_type type, enum pp_gelu kind, size_t count, const void *x,
                      void *y)
{
	switch (kind) {
	case PP_GELU_ERF:
		map<gelu_erf>(stream, type, count, x, NULL, NULL, y, NULL);
		return;
	case PP_GELU_TANH:
		map<gelu_tanh>(stream, type, count, x, NULL, NULL, y, NULL);
		return;
	}
}

void pp_cuda_activate_dx(cudaStream_t stream, enum pp_cuda_type type, enum pp_gelu kind, size_t count, const void *dy,
                         const void *x, void *dx)
{
	switch (kind) {
	case PP_GELU_ERF:
		map<gelu_erf_dx>(stream, type, count, dy, x, NULL, dx, NULL);
		return;
	case PP_GELU_TANH:
		map<gelu_tanh_dx>(stream, type, count, dy, x, NULL, dx, NULL);
		return;
	}
}

void pp_cuda_swiglu(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *gate, const void *up,
                    void *y)
{
	map<swiglu>(stream, type, count, gate, up, NULL, y, NULL);
}

void pp_cuda_swiglu_dx(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *dy, const void *gate,
                       const void *up, void *dgate, void *dup)
{
	map<swiglu_dx>(stream, type, count, dy, gate, up, dgate, dup);
}

void pp_cuda_add(cudaStream_t stream, enum pp_cuda_type type, size_t count, const void *a, const void *b, void *y)
{
	map<sum>(stream, type, count, a, b, NULL, y, NULL);
}

void pp_cuda_copy(cudaStream_t stream, size_t bytes, const void *x, void *y)
{
	if (x != y && bytes > 0)
		(void)cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream);
}

void pp_cuda_zero(cudaStream_t stream, size_t bytes, void *y)
{
	if (bytes > 0)
		(void)cudaMemsetAsync(y, 0, bytes, stream);
}

/* ---- time ------------------------------------------------------------------------------------- */

__global__ void sleep_until_past(unsigned long long nanoseconds)
{
	unsigned long long begin = pp_device_nanoseconds();
	for (;;) {
		unsigned long long passed = pp_device_nanoseconds() - begin;
		if (passed >= nanoseconds)
			return;
		unsigned long long left = nanoseconds - passed;
		__nanosleep(left < 100000 ? (unsigned)left : 100000u);
	}
}

void pp_cuda_sleep(cudaStream_t stream, uint64_t nanoseconds)
{
	PP_LAUNCH_FREE(sleep_until_past, 1, 1, stream, (unsigned long long)nanoseconds);
}

/* All kernels are built for the same GPUs, so that any of them can be asked. */
cudaError_t pp_cuda_has_code(void)
{
	struct cudaFuncAttributes attributes;
	return cudaFuncGetAttributes(&attributes, (const void *)sleep_until_past);
}
