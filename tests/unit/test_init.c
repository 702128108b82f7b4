/* Initial weights: fixed bits, independent of how a tensor is cut into pieces, moments of a normal distribution. */
#include "executor/init.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct pp_tensor weight = {
    .name = "block.3.attn.q.weight", .rows = 300, .columns = 7, .dims = 2, .init = PP_INIT_NORMAL, .std = 0.5};

/* Computed by a second implementation in another language. */
static void fixed_bits(void **state)
{
	(void)state;
	static const uint32_t expected[6] = {0xbf6ad012, 0xbf200ebb, 0x3dbfa720, 0x3f7999b1, 0xbfb794d3, 0x3d61cf07};
	float made[6];
	pp_init_fill(&weight, 1, 0, 6, made);
	for (size_t i = 0; i < 6; i++) {
		uint32_t bits;
		memcpy(&bits, &made[i], sizeof bits);
		if (bits != expected[i])
			fail_msg("element %zu is 0x%08x (%g), expected 0x%08x", i, bits, (double)made[i], expected[i]);
	}
}

static void any_cut(void **state)
{
	(void)state;
	enum { COUNT = 2100 };
	float whole[COUNT], part[COUNT];
	pp_init_fill(&weight, 7, 0, COUNT, whole);
	for (uint64_t first = 0; first < 40; first++)
		for (uint64_t count = 0; count < 5; count++) {
			pp_init_fill(&weight, 7, first, count, part);
			assert_memory_equal(part, whole + first, count * sizeof *part);
		}
}

static void depends_on_seed_and_name(void **state)
{
	(void)state;
	struct pp_tensor other = weight;
	other.name = "block.3.attn.k.weight";
	float a[64], b[64], c[64];
	pp_init_fill(&weight, 1, 0, 64, a);
	pp_init_fill(&weight, 2, 0, 64, b);
	pp_init_fill(&other, 1, 0, 64, c);
	for (size_t i = 0; i < 64; i++)
		assert_true(a[i] != b[i] && a[i] != c[i] && b[i] != c[i]);
}

/* Standard errors at n = 200,000: mean 0.0022, variance 0.0032, skewness 0.0055, kurtosis 0.011, correlation 0.0022. */
static void moments(void **state)
{
	(void)state;
	enum { PAIRS = 100000 };
	double sum[5] = {0}, along = 0, across = 0, previous = 0;
	unsigned beyond_two = 0;
	for (uint64_t i = 0; i < PAIRS; i++) {
		double pair[2];
		pp_init_normal(42, i, pair);
		for (unsigned half = 0; half < 2; half++) {
			double power = 1;
			for (unsigned k = 0; k < 5; k++, power *= pair[half])
				sum[k] += power;
			beyond_two += fabs(pair[half]) > 2;
		}
		along += pair[0] * pair[1];
		across += previous * pair[0];
		previous = pair[1];
	}
	double n = sum[0];
	assert_true(fabs(sum[1] / n) < 0.01);
	assert_true(fabs(sum[2] / n - 1) < 0.015);
	assert_true(fabs(sum[3] / n) < 0.025);
	assert_true(fabs(sum[4] / n - 3) < 0.05);
	assert_true(fabs(along / PAIRS) < 0.015 && fabs(across / PAIRS) < 0.015);
	assert_true(fabs(beyond_two / n - 0.0455) < 0.003);
}

static void constants(void **state)
{
	(void)state;
	struct pp_tensor one = weight, zero = weight;
	one.init = PP_INIT_ONE;
	zero.init = PP_INIT_ZERO;
	const float ones[3] = {1, 1, 1}, zeros[3] = {0};
	float made[3] = {7, 7, 7};
	pp_init_fill(&one, 1, 4, 3, made);
	assert_memory_equal(made, ones, sizeof ones);
	pp_init_fill(&zero, 1, 4, 3, made);
	assert_memory_equal(made, zeros, sizeof zeros);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fixed_bits), cmocka_unit_test(any_cut),   cmocka_unit_test(depends_on_seed_and_name),
	    cmocka_unit_test(moments),    cmocka_unit_test(constants),
	};
	return cmocka_run_group_tests_name("init", tests, NULL, NULL);
}
