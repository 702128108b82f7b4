/* Initial weights by Marsaglia's polar method on counter-based draws. Requires -ffp-contract=off and IEEE double
 * arithmetic; ensures the same bits everywhere: + - * / and sqrt are correctly rounded, no library function is used. */
#include "init.h"

#include "ir/hash.h"

#include "draw.h"

#include <math.h>
#include <string.h>

/* Natural logarithm of a normal number x > 0: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), and
 * ln m = 2 atanh(z) = 2 (z + z^3/3 + z^5/5 + …) with z = (m - 1) / (m + 1), |z| < 0.172: 11 terms reach 1e-17. */
static double natural_log(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	int exponent = (int)(bits >> 52) - 1023;
	bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000);
	double m;
	memcpy(&m, &bits, sizeof m);
	if (m > 1.41421356237309504880) {
		m *= 0.5;
		exponent++;
	}
	double z = (m - 1) / (m + 1), square = z * z, series = 0;
	for (int term = 21; term >= 1; term -= 2)
		series = series * square + 1.0 / term;
	return exponent * 0.69314718055994530942 + 2 * z * series;
}

/* Uniform on the odd multiples of 2^-53 in (-1, 1): symmetric, never 0. */
static double signed_uniform(uint64_t draw)
{
	return ((double)(draw >> 12) + 0.5) * 0x1p-51 - 1;
}

void pp_init_normal(uint64_t key, uint64_t index, double pair[2])
{
	uint64_t stream = pp_draw_key(key, index);
	for (uint64_t attempt = 0;; attempt++) {
		double u = signed_uniform(pp_draw(stream, 2 * attempt));
		double v = signed_uniform(pp_draw(stream, 2 * attempt + 1));
		double s = u * u + v * v;
		if (s >= 1)
			continue;
		double stretch = sqrt(-2 * natural_log(s) / s);
		pair[0] = u * stretch;
		pair[1] = v * stretch;
		return;
	}
}

static void fill_normal(const struct pp_tensor *tensor, uint64_t seed, uint64_t first, uint64_t count, float *to)
{
	uint64_t key = pp_draw_key(seed, pp_hash_bytes(tensor->name, strlen(tensor->name)));
	for (uint64_t i = 0; i < count;) {
		double pair[2];
		uint64_t index = first + i;
		pp_init_normal(key, index / 2, pair);
		to[i++] = (float)(tensor->std * pair[index % 2]);
		if (index % 2 == 0 && i < count)
			to[i++] = (float)(tensor->std * pair[1]);
	}
}

void pp_init_fill(const struct pp_tensor *tensor, uint64_t seed, uint64_t first, uint64_t count, float *to)
{
	switch ((enum pp_init)tensor->init) {
	case PP_INIT_ZERO:
	case PP_INIT_COUNT:
		memset(to, 0, count * sizeof *to);
		return;
	case PP_INIT_ONE:
		for (uint64_t i = 0; i < count; i++)
			to[i] = 1;
		return;
	case PP_INIT_NORMAL:
		fill_normal(tensor, seed, first, count, to);
		return;
	}
}
