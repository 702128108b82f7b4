/* The named schedules have the makespans and the activations in flight of their closed forms: all p <= 8, m <= 40,
 * v <= 4, and the cases that others got wrong. Unit: one chunk's F; B = 2; transfers are free. */
#include "rows_fixture.h"

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void assert_valid(const struct expanded *x)
{
	assert_string_equal(expanded_messages(x, PP_DIAG_HUMAN), "");
	assert_true(x->ok);
}

static void gpipe_closed_form(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 8; p++) {
		for (uint32_t m = 1; m <= 40; m++) {
			struct expanded x = expand_named("gpipe", (struct shape){.p = p, .v = 1, .m = m});
			assert_valid(&x);
			assert_int_equal(makespan_of(&x), 3 * (m + p - 1));
			for (uint32_t r = 0; r < p; r++)
				assert_int_equal(in_flight_of(&x, r), m);
			expanded_free(&x);
		}
	}
}

/* With chunks it is the breadth-first loop: 3mv + 3(p-1) for m >= p. */
static void gpipe_with_chunks(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 8; p++) {
		for (uint32_t v = 2; v <= 4; v++) {
			for (uint32_t m = p; m <= 20; m++) {
				struct expanded x = expand_named("gpipe", (struct shape){.p = p, .v = v, .m = m});
				assert_valid(&x);
				assert_int_equal(makespan_of(&x), 3 * m * v + 3 * (p - 1));
				assert_int_equal(in_flight_of(&x, 0), m * v);
				expanded_free(&x);
			}
		}
	}
	struct expanded x = expand_named("gpipe", (struct shape){.p = 3, .v = 2, .m = 4, .place = PP_PLACE_V});
	assert_valid(&x);
	expanded_free(&x);
	static const uint32_t list[] = {0, 1, 2, 0};
	x = expand_named("gpipe", (struct shape){.p = 3, .m = 4, .list = list, .stages = 4});
	assert_valid(&x);
	expanded_free(&x);
}

static void one_f_one_b_closed_form(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 8; p++) {
		for (uint32_t m = 1; m <= 40; m++) {
			struct expanded x = expand_named("1f1b", (struct shape){.p = p, .v = 1, .m = m});
			assert_valid(&x);
			assert_int_equal(makespan_of(&x), 3 * (m + p - 1));
			for (uint32_t r = 0; r < p; r++)
				assert_int_equal(in_flight_of(&x, r), least(m, p - r));
			expanded_free(&x);
		}
	}
}

/* n groups of floor((m+k)/n); w = ceil(m/n). */
static void interleaved_closed_form(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 8; p++) {
		for (uint32_t v = 2; v <= 4; v++) {
			for (uint32_t m = 1; m <= 40; m++) {
				struct expanded x = expand_named("interleaved", (struct shape){.p = p, .v = v, .m = m});
				assert_valid(&x);
				uint32_t n = most(1, m / p), w = (m + n - 1) / n;
				assert_int_equal(makespan_of(&x), m < p ? 3 * (p * v + m - 1) : 3 * (m * v + p - 1));
				for (uint32_t r = 0; r < p; r++)
					assert_int_equal(in_flight_of(&x, r), least(m * v, (v - 1) * w + 2 * (p - 1 - r) + 1));
				expanded_free(&x);
			}
		}
	}
}

/* group = N where N divides m and N >= p: T = 3mv + 3(p-1). */
static void interleaved_in_whole_groups(void **state)
{
	(void)state;
	for (uint32_t p = 1; p <= 8; p++) {
		for (uint32_t v = 2; v <= 4; v++) {
			for (uint32_t groups = 1; groups <= 4; groups++) {
				uint32_t m = groups * p;
				struct expanded x = expand_named("interleaved", (struct shape){.p = p, .v = v, .m = m, .group = p});
				assert_valid(&x);
				assert_int_equal(makespan_of(&x), 3 * (m * v + p - 1));
				for (uint32_t r = 0; r < p; r++)
					assert_int_equal(in_flight_of(&x, r), least(m * v, (v - 1) * p + 2 * (p - 1 - r) + 1));
				expanded_free(&x);
			}
		}
	}
}

struct field_case {
	const char *name;
	struct shape shape;
	double makespan; /* in units of a rank's whole F */
	uint32_t in_flight[8];
};

static const struct field_case field_cases[] = {
    /* B01: fewer microbatches than ranks */
    {"1f1b", {.p = 8, .v = 1, .m = 1}, 24, {1, 1, 1, 1, 1, 1, 1, 1}},
    {"1f1b", {.p = 4, .v = 1, .m = 1}, 12, {1, 1, 1, 1}},
    {"1f1b", {.p = 4, .v = 1, .m = 2}, 15, {2, 2, 2, 1}},
    {"1f1b", {.p = 4, .v = 1, .m = 3}, 18, {3, 3, 2, 1}},
    {"1f1b", {.p = 4, .v = 1, .m = 4}, 21, {4, 3, 2, 1}},
    {"1f1b", {.p = 4, .v = 1, .m = 5}, 24, {4, 3, 2, 1}},
    {"1f1b", {.p = 8, .v = 1, .m = 2}, 27, {2, 2, 2, 2, 2, 2, 2, 1}},
    {"interleaved", {.p = 4, .v = 4, .m = 4}, 14.25, {16, 16, 15, 13}},
    {"interleaved", {.p = 4, .v = 4, .m = 4, .group = 4}, 14.25, {16, 16, 15, 13}},
    /* B26: with and without chunks */
    {"1f1b", {.p = 4, .v = 1, .m = 8}, 33, {4, 3, 2, 1}},
    {"gpipe", {.p = 4, .v = 1, .m = 8}, 33, {8, 8, 8, 8}},
    {"interleaved", {.p = 4, .v = 2, .m = 8}, 28.5, {11, 9, 7, 5}}, /* B28 too */
    {"interleaved", {.p = 4, .v = 4, .m = 8}, 26.25, {19, 17, 15, 13}},
    {"interleaved", {.p = 4, .v = 2, .m = 4}, 16.5, {8, 8, 7, 5}},
    {"interleaved", {.p = 4, .v = 2, .m = 16}, 52.5, {11, 9, 7, 5}},
    /* B49: m not a multiple of p, in default groups and in groups of p */
    {"interleaved", {.p = 4, .v = 2, .m = 5}, 19.5, {10, 10, 8, 6}},
    {"interleaved", {.p = 4, .v = 2, .m = 6}, 22.5, {12, 11, 9, 7}},
    {"interleaved", {.p = 3, .v = 2, .m = 4}, 15, {8, 7, 5}},
    {"interleaved", {.p = 4, .v = 2, .m = 5, .group = 4}, 24, {10, 9, 7, 5}},
    {"interleaved", {.p = 4, .v = 2, .m = 6, .group = 4}, 27.5, {11, 9, 7, 5}},
    {"interleaved", {.p = 3, .v = 2, .m = 4, .group = 3}, 18.5, {8, 6, 4}},
};

static void cases_from_the_field(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof field_cases / sizeof field_cases[0]; i++) {
		const struct field_case *c = &field_cases[i];
		struct expanded x = expand_named(c->name, c->shape);
		assert_valid(&x);
		assert_int_equal(makespan_of(&x), (uint64_t)(c->makespan * c->shape.v));
		for (uint32_t r = 0; r < c->shape.p; r++)
			assert_int_equal(in_flight_of(&x, r), c->in_flight[r]);
		expanded_free(&x);
	}
}

/* Forwards before the first backward on ranks 0 and 1 of B01's interleaved case. */
static void warm_up_is_clamped(void **state)
{
	(void)state;
	struct expanded x = expand_named("interleaved", (struct shape){.p = 4, .v = 4, .m = 4});
	for (uint32_t r = 0; r < 2; r++) {
		uint32_t forwards = 0;
		while (x.schedule.rows[r].actions[forwards].kind == PP_F)
			forwards++;
		assert_int_equal(forwards, 16);
	}
	expanded_free(&x);
}

/* Groups of 8 leave a last group of one, whose forwards wait for backwards behind them. */
static void true_deadlock_is_named(void **state)
{
	(void)state;
	struct expanded x = expand_named("interleaved", (struct shape){.p = 8, .v = 4, .m = 9, .group = 8});
	assert_false(x.ok);
	assert_int_equal(makespan_of(&x), 0);
	assert_non_null(strstr(expanded_messages(&x, PP_DIAG_SHORT), "[E0605]"));
	expanded_free(&x);
}

static void what_they_need(void **state)
{
	(void)state;
	struct expanded x = expand_named("interleaved", (struct shape){.p = 4, .v = 1, .m = 8});
	assert_false(x.ok);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0614]: `interleaved` needs vpp >= 2\n"
	    "   = help: with one chunk its warm-up holds more activations than 1f1b's and gains nothing: use 1f1b\n");
	expanded_free(&x);
	x = expand_named("1f1b", (struct shape){.p = 4, .v = 2, .m = 8});
	assert_false(x.ok);
	assert_string_equal(expanded_messages(&x, PP_DIAG_HUMAN), "error[E0614]: `1f1b` needs one stage per rank\n"
	                                                          "   = help: with several use interleaved\n");
	expanded_free(&x);
	x = expanded_create();
	assert_null(pp_library_schedule(x.arena, x.strings, x.sources, x.diag, "zigzag"));
	expanded_free(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gpipe_closed_form),
	    cmocka_unit_test(gpipe_with_chunks),
	    cmocka_unit_test(one_f_one_b_closed_form),
	    cmocka_unit_test(interleaved_closed_form),
	    cmocka_unit_test(interleaved_in_whole_groups),
	    cmocka_unit_test(cases_from_the_field),
	    cmocka_unit_test(warm_up_is_clamped),
	    cmocka_unit_test(true_deadlock_is_named),
	    cmocka_unit_test(what_they_need),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
