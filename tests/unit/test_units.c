/* The scanner knows which words are units, the evaluator what they are worth: both must know the same. */
#include "compiler/eval/datum.h"
#include "parse_fixture.h"

static bool scanned(const char *unit)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct parsed p = parse_text(pp_arena_printf(arena, "let a = 1%s", unit));
	bool ok = pp_diag_ok(p.diag) && p.ast->first->value->kind == PP_EXPR_QUANTITY &&
	          strcmp(p.ast->first->value->unit, unit) == 0;
	parsed_free(&p);
	pp_arena_destroy(arena);
	return ok;
}

static bool valued(const char *unit)
{
	struct pp_datum value;
	return pp_datum_read_number("1", unit, &value) == PP_LITERAL_OK;
}

/* Every word of a prefix and an end that could be a unit. */
static void same_units(void **state)
{
	(void)state;
	static const char *const prefixes[] = {"",   "k",  "K",  "M", "G", "T", "P",  "Ki",
	                                       "Mi", "Gi", "Ti", "n", "u", "m", "mi", "h"};
	static const char *const ends[] = {"",     "B",     "b", "bit", "B/s", "b/s", "bit/s",
	                                   "FLOP", "FLOPS", "s", "n",   "in",  "h",   "Hz"};
	int units = 0;
	struct pp_arena *arena = pp_arena_create(NULL);
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
		for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
			const char *unit = pp_arena_printf(arena, "%s%s", prefixes[i], ends[k]);
			if (!*unit || strcmp(unit, "hh") == 0 || strcmp(unit, "minin") == 0)
				continue;
			if (scanned(unit) != valued(unit))
				fail_msg("`%s` is a unit for one and none for the other", unit);
			units += scanned(unit);
		}
	}
	assert_int_equal(units, 42); /* min and h come twice */
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(same_units)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
