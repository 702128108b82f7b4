/* bf16 on the host: which f32 it stands for, how f32 is rounded to it, and sums of it in collectives. */
#include "executor/bf16.h"
#include "executor/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static float of_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* Below, at and above the middle between two neighbours; ties go to the even one; the largest rounds to infinity. */
static void rounds_to_nearest_even(void **state)
{
	(void)state;
	static const struct {
		uint32_t f32;
		uint16_t bf16;
	} cases[] = {
	    {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80},
	    {0x3f808001, 0x3f81}, {0x3f817fff, 0x3f81}, {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82}, {0x3fffffff, 0x4000},
	    {0x00000001, 0x0000}, {0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x00018000, 0x0002}, {0x007fffff, 0x0080},
	    {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fff},
	    {0xffc00000, 0x7fff},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(pp_bf16_from_f32(of_bits(cases[i].f32)), cases[i].bf16);
}

static void every_value_survives(void **state)
{
	(void)state;
	for (uint32_t bits = 0; bits < 0x10000; bits++) {
		bool nan = (bits & 0x7fff) > 0x7f80;
		assert_int_equal(pp_bf16_from_f32(pp_bf16_to_f32((pp_bf16)bits)), nan ? 0x7fff : bits);
	}
}

enum { MEMBERS = 4, COUNT = 1300 };

static const void *given(const void *context, uint32_t member)
{
	return (const pp_bf16 *)context + (size_t)member * COUNT;
}

/* 256 + 1 + 1 + 1: each sum rounded gives 256, one in f32 that is rounded at the end gives 259, a tie, thus 260. And
 * the order counts: (2^30 + 1) - 2^30 + 1 = 1 in f32. The sum may take the place of what it is made of. */
static void sums_are_rounded_once(void **state)
{
	(void)state;
	static const float rows[3][MEMBERS] = {{256, 1, 1, 1}, {1073741824, 1, -1073741824, 1}, {0.5F, 0.25F, 3, -1}};
	static const float sums[3] = {260, 1, 2.75F};
	pp_bf16 values[MEMBERS * COUNT];
	for (uint32_t place = 0; place <= MEMBERS; place++) {
		pp_bf16 apart[COUNT];
		for (uint32_t k = 0; k < COUNT; k++)
			for (uint32_t i = 0; i < MEMBERS; i++)
				values[i * COUNT + k] = pp_bf16_from_f32(rows[k % 3][i]);
		pp_bf16 *to = place < MEMBERS ? values + place * COUNT : apart;
		pp_transport_sum(PP_BF16, to, given, values, MEMBERS, COUNT);
		for (uint32_t k = 0; k < COUNT; k++)
			assert_int_equal(to[k], pp_bf16_from_f32(sums[k % 3]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rounds_to_nearest_even),
	    cmocka_unit_test(every_value_survives),
	    cmocka_unit_test(sums_are_rounded_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
