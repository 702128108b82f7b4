/* Expressions: exact arithmetic, units, names, functions, and each error's whole line. */
#include "compiler/eval/eval.h"
#include "parse_fixture.h"

/* Evaluate the value of `let x = TEXT` with some names around it. */
static bool evaluate(struct parsed *p, const char *expression, struct pp_datum *out)
{
	const char *text = pp_arena_printf(p->arena, "let x = %s", expression);
	const struct pp_source *source = pp_sources_add(p->sources, "x.pipe", text, strlen(text));
	const struct pp_ast *ast = pp_parse(p->arena, p->strings, source, p->diag);
	if (!pp_diag_ok(p->diag))
		fail_msg("%s: %s", expression, messages_text(p, PP_DIAG_HUMAN));
	struct pp_datum list[] = {pp_datum_whole(3), pp_datum_whole(1), pp_datum_whole(2)};
	struct pp_binding outer_names[] = {
	    {pp_intern_z(p->strings, "p"), pp_datum_whole(4)},
	    {pp_intern_z(p->strings, "r"), pp_datum_whole(9)},
	    {pp_intern_z(p->strings, "sizes"), {.kind = PP_DATUM_LIST, .items = list, .count = 3}},
	};
	struct pp_binding inner_names[] = {{pp_intern_z(p->strings, "r"), pp_datum_whole(1)}};
	struct pp_scope outer = {.bindings = outer_names, .count = 3};
	struct pp_scope inner = {.outer = &outer, .bindings = inner_names, .count = 1};
	struct pp_eval eval = {.arena = p->arena, .sources = p->sources, .diag = p->diag, .scope = &inner};
	bool ok = pp_eval_expr(&eval, ast->first->value, out);
	assert_int_equal(eval.depth, 0);
	return ok;
}

static void values(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
	    {"30/4", "7.5"},
	    {"1/3*3", "1"},
	    {"7 % 4", "3"},
	    {"-7 % 4", "1"},
	    {"2*(p-r-1)", "4"},
	    {"1e3", "1000"},
	    {"4.0", "4"},
	    {"100_000", "100000"},
	    {"6e-5 * 1e5", "6"},
	    {"7k", "7000"},
	    {"2.5M", "2500000"},
	    {"1e38", "100000000000000000000000000000000000000"},
	    {"100Gbit/s", "12.5GB/s"},
	    {"100Gbit/s == 12.5GB/s", "true"},
	    {"4GiB - 1B", "4294967295B"},
	    {"1500MB", "1.5GB"},
	    {"12GB / 4GB/s", "3s"},
	    {"5us + 5ns", "5.005us"},
	    {"1TFLOP / 100GFLOPS", "10s"},
	    {"2GB/s * 3s", "6GB"},
	    {"90min == 1.5h", "true"},
	    {"4GiB / 1KiB", "4194304"},
	    {"5us / 1ns", "5000"},
	    {"\"a\" + \"b\"", "\"ab\""},
	    {"\"a\" == \"a\"", "true"},
	    {"1 < 2 and not (2 < 1)", "true"},
	    {"false and 1 / 0 == 1", "false"},
	    {"true or 1 / 0 == 1", "true"},
	    {"true ? 1 : 1 / 0", "1"},
	    {"floor(7.5)", "7"},
	    {"ceil(7.5)", "8"},
	    {"floor(-7.5)", "-8"},
	    {"ceil(-7.5)", "-7"},
	    {"floor(80GiB / 3)", "28633115306B"},
	    {"min(3, 1, 2)", "1"},
	    {"max(sizes)", "3"},
	    {"sum(sizes)", "6"},
	    {"len(sizes)", "3"},
	    {"len(\"caf\xc3\xa9\")", "4"},
	    {"sum([])", "0"},
	    {"abs(-1/2)", "0.5"},
	    {"log2(8)", "3"},
	    {"sqrt(16)", "4"},
	    {"sqrt(2)", "1.414214"},
	    {"sqrt(2) * sqrt(2) > 2", "true"},
	    {"[0..2, 9]", "[0, 1, 2, 9]"},
	    {"[3..1]", "[3, 2, 1]"},
	    {"len([0..65535])", "65536"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct parsed p = parse_text("");
		struct pp_datum value;
		if (!evaluate(&p, cases[i][0], &value))
			fail_msg("%s: %s", cases[i][0], messages_text(&p, PP_DIAG_HUMAN));
		if (strcmp(pp_datum_text(p.arena, &value), cases[i][1]) != 0)
			fail_msg("%s is %s, expected %s", cases[i][0], pp_datum_text(p.arena, &value), cases[i][1]);
		parsed_free(&p);
	}
}

static void errors(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
	    {"1 / 0", "x.pipe:1:11: error: division by zero [E0205]\n"},
	    {"1 % (p - 4)", "x.pipe:1:11: error: division by zero [E0205]\n"},
	    {"q + 1", "x.pipe:1:9: error: unknown name `q` [E0110]\n"},
	    {"parallel.pp", "x.pipe:1:9: error: unknown name `parallel.pp` [E0110]\n"},
	    {"flor(1)", "x.pipe:1:9: error: unknown function `flor` [E0110]\n"},
	    {"1s + 1B", "x.pipe:1:12: error: `+` cannot combine a time with bytes [E0201]\n"},
	    {"1 < \"a\"", "x.pipe:1:11: error: `<` cannot combine a number with a string [E0201]\n"},
	    {"true < false", "x.pipe:1:14: error: `<` cannot combine true or false with true or false [E0201]\n"},
	    {"1 and true", "x.pipe:1:9: error: `and` wants true or false, got a number (1) [E0201]\n"},
	    {"-\"a\"", "x.pipe:1:10: error: `-` wants a number, got a string (\"a\") [E0201]\n"},
	    {"[1, [2]]", "x.pipe:1:13: error: a list holds numbers, names or strings, not another list [E0201]\n"},
	    {"[0..65536]", "x.pipe:1:10: error: the value of `0..65536` is too large [E0204]\n"},
	    {"[0..1/3]",
	     "x.pipe:1:13: error: a range in a list must be whole, but 1 / 3 = 0.3333333 (remainder 1) [E0202]\n"},
	    {"1e38 * 10", "x.pipe:1:9: error: the value of `1e38 * 10` is too large [E0204]\n"},
	    {"1e400", "x.pipe:1:9: error: the value of `1e400` is too large [E0204]\n"},
	    {"min()", "x.pipe:1:9: error: `min` needs at least 1 argument [E0206]\n"},
	    {"max([])", "x.pipe:1:9: error: `max` of nothing has no value [E0206]\n"},
	    {"max(1, 2s)", "x.pipe:1:16: error: `max` wants a number like the first, got a time (2s) [E0201]\n"},
	    {"floor(x = 1)", "x.pipe:1:15: error: `floor` has no argument named `x` [E0206]\n"},
	    {"sqrt(-1)", "x.pipe:1:14: error: `sqrt` wants a non-negative number, got -1 [E0206]\n"},
	    {"log2(0)", "x.pipe:1:14: error: `log2` wants a positive number, got 0 [E0206]\n"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct parsed p = parse_text("");
		struct pp_datum value;
		bool ok = evaluate(&p, cases[i][0], &value);
		const char *text = messages_text(&p, PP_DIAG_SHORT);
		if (ok || strcmp(text, cases[i][1]) != 0)
			fail_msg("%s: got\n%sexpected\n%s", cases[i][0], text, cases[i][1]);
		parsed_free(&p);
	}
}

/* Doubling strings and powers of units end in a message. */
static void growth_is_bounded(void **state)
{
	(void)state;
	struct parsed p = parse_text("");
	char *text = pp_arena_alloc(p.arena, 2100, 1);
	memset(text, 'a', 2000);
	const char *sum = pp_arena_printf(p.arena, "\"%s\"", text);
	for (int i = 0; i < 6; i++)
		sum = pp_arena_printf(p.arena, "%s + %s", sum, sum);
	struct pp_datum value;
	assert_false(evaluate(&p, sum, &value));
	parsed_free(&p);
	p = parse_text("");
	const char *product = "1s";
	for (int i = 0; i < 7; i++)
		product = pp_arena_printf(p.arena, "%s * %s", product, product);
	assert_false(evaluate(&p, product, &value));
	assert_non_null(strstr(messages_text(&p, PP_DIAG_SHORT), "is too large [E0204]"));
	parsed_free(&p);
}

static void compare_without_overflow(void **state)
{
	(void)state;
	struct pp_rational a, b;
	assert_true(pp_rational_read("0.33333333333333333333333333333333333", &a));
	assert_true(pp_rational_make(1, 3, &b));
	assert_int_equal(pp_rational_compare(a, b), -1);
	assert_int_equal(pp_rational_compare(b, a), 1);
	assert_int_equal(pp_rational_compare(b, b), 0);
	assert_true(pp_rational_make(-1, 3, &b));
	assert_true(pp_rational_make(-1, 2, &a));
	assert_int_equal(pp_rational_compare(a, b), -1);
	assert_false(pp_rational_read("999999999999999999999999999999999999999999", &a));
}

/* A decimal becomes the double that strtod gives: correctly rounded, whatever its size. */
static void decimals_round_correctly(void **state)
{
	(void)state;
	static const char *const texts[] = {"1e-30",
	                                    "0.1",
	                                    "1e-3",
	                                    "6e-4",
	                                    "3e-4",
	                                    "0.079",
	                                    "1e22",
	                                    "123456789012345678901234567",
	                                    "9007199254740993",
	                                    "0.3333333333333333148",
	                                    "2.5e-8",
	                                    "1e30",
	                                    "7e-37",
	                                    "0"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct pp_rational value;
		assert_true(pp_rational_read(texts[i], &value));
		assert_true(pp_rational_real(value) == strtod(texts[i], NULL));
		value.top = -value.top;
		assert_true(pp_rational_real(value) == -strtod(texts[i], NULL));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(values),
	    cmocka_unit_test(errors),
	    cmocka_unit_test(growth_is_bounded),
	    cmocka_unit_test(compare_without_overflow),
	    cmocka_unit_test(decimals_round_correctly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
