/* Embedding, activations, addition: what touches each element once. */
#include "kernel_math.h"

#include <assert.h>

/* y may be a or b: iterations touch only their own element, which `simd` promises. */
void pp_cpu_add(size_t count, const pp_real *a, const pp_real *b, pp_real *y)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		y[i] = a[i] + b[i];
}

void pp_cpu_embed(size_t tokens, size_t columns, size_t seq, const int32_t *ids, const pp_real *wte, const pp_real *wpe,
                  pp_real *y)
{
	for (size_t t = 0; t < tokens; t++) {
		assert(ids[t] >= 0);
		const pp_real *token = wte + (size_t)ids[t] * columns;
		if (wpe)
			pp_cpu_add(columns, token, wpe + t % seq * columns, y + t * columns);
		else
			memcpy(y + t * columns, token, columns * sizeof *y);
	}
}

void pp_cpu_embed_dw(size_t tokens, size_t columns, size_t seq, size_t vocab, size_t positions, const int32_t *ids,
                     const pp_real *dy, pp_real *dwte, bool accumulate_wte, pp_real *dwpe, bool accumulate_wpe)
{
	if (!accumulate_wte)
		memset(dwte, 0, vocab * columns * sizeof *dwte);
	if (dwpe && !accumulate_wpe)
		memset(dwpe, 0, positions * columns * sizeof *dwpe);
	for (size_t t = 0; t < tokens; t++) {
		assert(ids[t] >= 0 && (size_t)ids[t] < vocab);
		pp_real *token = dwte + (size_t)ids[t] * columns;
		pp_cpu_add(columns, token, dy + t * columns, token);
		if (!dwpe)
			continue;
		pp_real *position = dwpe + t % seq * columns;
		pp_cpu_add(columns, position, dy + t * columns, position);
	}
}

/* The normal distribution at x: its integral up to x, and its density. */
struct normal {
	pp_real integral, density;
};

static inline struct normal normal_at(pp_real x)
{
	pp_real gauss = real_exp((pp_real)-0.5 * x * x);
	pp_real z = (x < 0 ? -x : x) * (pp_real)0.70710678118654752440;
	pp_real tail = (pp_real)0.5 * real_erfc(z, gauss);
	return (struct normal){x < 0 ? tail : 1 - tail, gauss * (pp_real)0.39894228040143267794};
}

/* exp(-2 u) with u = sqrt(2/pi) * (x + 0.044715 x^3). The factor on x is gate = 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2
 * u)). */
static inline pp_real tanh_decay(pp_real x)
{
	return real_exp((pp_real)(-2 * 0.79788456080286535588) * x * (1 + (pp_real)0.044715 * x * x));
}

/* gate * (1 - gate) = decay * gate^2, which does not cancel where the gate is near 1. Beyond 9 the slope is 0 or 1 to
 * 1e-26, while its factors would overflow. */
static inline pp_real tanh_slope(pp_real x)
{
	x = x < -9 ? -9 : x;
	x = x > 9 ? 9 : x;
	pp_real decay = tanh_decay(x), gate = 1 / (1 + decay);
	pp_real inner = (pp_real)(2 * 0.79788456080286535588) * (1 + (pp_real)(3 * 0.044715) * x * x);
	return gate + x * inner * (decay * gate * gate);
}

static inline pp_real erf_slope(pp_real x)
{
	struct normal at = normal_at(x);
	return at.integral + x * at.density;
}

void pp_cpu_activate(enum pp_gelu kind, size_t count, const pp_real *x, pp_real *y)
{
	switch (kind) {
	case PP_GELU_ERF:
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			y[i] = x[i] * normal_at(x[i]).integral;
		return;
	case PP_GELU_TANH:
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			y[i] = x[i] / (1 + tanh_decay(x[i]));
		return;
	}
}

void pp_cpu_activate_dx(enum pp_gelu kind, size_t count, const pp_real *dy, const pp_real *x, pp_real *dx)
{
	switch (kind) {
	case PP_GELU_ERF:
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			dx[i] = dy[i] * erf_slope(x[i]);
		return;
	case PP_GELU_TANH:
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			dx[i] = dy[i] * tanh_slope(x[i]);
		return;
	}
}

void pp_cpu_swiglu(size_t count, const pp_real *gate, const pp_real *up, pp_real *y)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		y[i] = gate[i] / (1 + real_exp(-gate[i])) * up[i];
}

/* With s = 1 / (1 + exp(-gate)): d(gate * s) = s * (1 + gate * (1 - s)), and 1 - s = exp(-gate) * s does not cancel
 * where s is near 1. Below -60 all of it is 0 to 1e-23, while gate * exp(-gate) would overflow. */
void pp_cpu_swiglu_dx(size_t count, const pp_real *dy, const pp_real *gate, const pp_real *up, pp_real *dgate,
                      pp_real *dup)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		pp_real d = dy[i], g = gate[i] < -60 ? -60 : gate[i];
		pp_real decay = real_exp(-g), s = 1 / (1 + decay);
		pp_real by_gate = d * up[i] * s * (1 + g * (decay * s));
		dup[i] = d * g * s;
		dgate[i] = by_gate;
	}
}
