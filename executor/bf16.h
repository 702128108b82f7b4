/* bf16 on the host: the upper half of an f32. Rounds to nearest even; a NaN becomes 0x7fff, as on a GPU. */
#ifndef PP_BF16_H
#define PP_BF16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t pp_bf16;

static inline float pp_bf16_to_f32(pp_bf16 value)
{
	uint32_t bits = (uint32_t)value << 16;
	float wide;
	memcpy(&wide, &bits, sizeof wide);
	return wide;
}

static inline pp_bf16 pp_bf16_from_f32(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	const uint32_t half = 0x7fff, infinity = 0x7f800000;
	if ((bits & ~UINT32_C(0x80000000)) > infinity)
		return 0x7fff;
	return (pp_bf16)((bits + half + (bits >> 16 & 1)) >> 16);
}

#endif
