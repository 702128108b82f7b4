/* Expressions: exact arithmetic, units, names, functions, and each error's whole line. */
#include "compiler/eval.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct fixture {
	struct pp_arena *arena;
	struct pp_sources *sources;
	struct pp_strtab *strings;
	struct pp_eval eval;
};

static struct fixture make(void)
{
	struct fixture f = {.arena = pp_arena_create(NULL)};
	f.sources = pp_sources_create(f.arena);
	f.strings = pp_strtab_create(f.arena);
	f.eval = (struct pp_eval){.arena = f.arena, .sources = f.sources, .diag = pp_diag_create(f.arena, f.sources)};
	return f;
}

static struct pp_expr *literal(struct fixture *f, enum pp_expr_kind kind, const char *number, const char *unit)
{
	struct pp_expr *expr = PP_NEW(f->arena, struct pp_expr);
	expr->kind = kind;
	expr->number = number;
	expr->unit = unit;
	return expr;
}

static struct pp_expr *whole(struct fixture *f, const char *number)
{
	return literal(f, PP_EXPR_INT, number, NULL);
}

static struct pp_expr *binary(struct fixture *f, enum pp_operator op, struct pp_expr *a, struct pp_expr *b)
{
	struct pp_expr *expr = PP_NEW(f->arena, struct pp_expr);
	*expr = (struct pp_expr){.kind = PP_EXPR_BINARY, .op = op, .a = a, .b = b};
	return expr;
}

static struct pp_expr *name(struct fixture *f, const char *text)
{
	struct pp_expr *expr = PP_NEW(f->arena, struct pp_expr);
	struct pp_name *part = PP_NEW(f->arena, struct pp_name);
	part->text = pp_intern_z(f->strings, text);
	*expr = (struct pp_expr){.kind = PP_EXPR_PATH, .text = part->text, .parts = part, .part_count = 1};
	return expr;
}

static void assert_value(struct fixture *f, const struct pp_expr *expr, const char *expected)
{
	struct pp_datum value;
	assert_true(pp_eval_expr(&f->eval, expr, &value));
	assert_string_equal(pp_datum_text(f->arena, &value), expected);
}

static void assert_errors(struct fixture *f, const char *expected)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(f->eval.diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
	pp_arena_destroy(f->arena);
}

static void exact_fractions(void **state)
{
	(void)state;
	struct fixture f = make();
	assert_value(&f, binary(&f, PP_DIV, whole(&f, "30"), whole(&f, "4")), "7.5");
	struct pp_expr *third = binary(&f, PP_DIV, whole(&f, "1"), whole(&f, "3"));
	assert_value(&f, binary(&f, PP_MUL, third, whole(&f, "3")), "1");
	assert_value(&f, binary(&f, PP_MOD, whole(&f, "7"), whole(&f, "4")), "3");
	assert_value(&f, literal(&f, PP_EXPR_REAL, "1e3", NULL), "1000");
	assert_value(&f, literal(&f, PP_EXPR_REAL, "4.0", NULL), "4");
	assert_value(&f, whole(&f, "010"), "10");
	assert_value(&f, literal(&f, PP_EXPR_QUANTITY, "100", "Gbit/s"), "12.5GB/s");
	assert_errors(&f, "");
}

static void whole_is_wanted(void **state)
{
	(void)state;
	struct fixture f = make();
	int64_t value;
	assert_false(pp_eval_whole(&f.eval, binary(&f, PP_DIV, whole(&f, "30"), whole(&f, "4")), "`layers`", &value));
	assert_errors(&f, "error[E0202]: `layers` must be whole, but 30 / 4 = 7.5 (remainder 2)\n"
	                  "   = help: use floor(), ceil() or another divisor\n");
}

static void names_through_scopes(void **state)
{
	(void)state;
	struct fixture f = make();
	struct pp_binding outer_names[] = {{pp_intern_z(f.strings, "p"), pp_datum_whole(4)}, {pp_intern_z(f.strings, "r"), pp_datum_whole(9)}};
	struct pp_binding inner_names[] = {{pp_intern_z(f.strings, "r"), pp_datum_whole(1)}};
	struct pp_scope outer = {.bindings = outer_names, .count = 2};
	struct pp_scope inner = {.outer = &outer, .bindings = inner_names, .count = 1};
	f.eval.scope = &inner;
	assert_value(&f, binary(&f, PP_SUB, name(&f, "p"), name(&f, "r")), "3");
	struct pp_datum value;
	assert_false(pp_eval_expr(&f.eval, name(&f, "q"), &value));
	assert_errors(&f, "error[E0110]: unknown name `q`\n   = help: did you mean `r`?\n");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(exact_fractions), cmocka_unit_test(whole_is_wanted), cmocka_unit_test(names_through_scopes),
	    cmocka_unit_test(compare_without_overflow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
