/* The schema table is consistent with itself: what it promises as defaults it would accept, and look-ups find it. */
#include "compiler/schema.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static const char *literal_of(const struct pp_attribute_row *row)
{
	if (strncmp(row->preset, "required ", 9) == 0)
		return row->preset + 9;
	return strcmp(row->preset, "derived") == 0 || *row->preset == '[' ? "" : row->preset;
}

/* Defaults and examples are literals of the wanted kind within the range. */
static void defaults_are_accepted(void **state)
{
	(void)state;
	for (int i = 0; i < PP_ATTR_COUNT; i++) {
		const struct pp_attribute_row *row = &pp_attribute_table[i];
		const char *text = literal_of(row);
		bool later;
		if (!*text || strcmp(text, "true") == 0 || strcmp(text, "false") == 0 ||
		    pp_schema_has_name(row->names, text, &later))
			continue;
		size_t digits = strspn(text, "0123456789.");
		if (text[digits] == 'e')
			digits += 1 + strspn(text + digits + 1, "-0123456789");
		char number[32] = "";
		memcpy(number, text, digits);
		struct pp_datum value;
		if (pp_datum_read_number(number, text[digits] ? text + digits : NULL, &value) != PP_LITERAL_OK ||
		    !pp_dimension_equal(value.dimension, pp_want_dimension((enum pp_want)row->want)) ||
		    !pp_schema_in_range(row->range, &value))
			fail_msg("%s.%s: default %s", pp_block_table[row->block].name, row->name, text);
	}
}

static void names_are_found(void **state)
{
	(void)state;
	for (int i = 0; i < PP_ATTR_COUNT; i++) {
		const struct pp_attribute_row *row = &pp_attribute_table[i];
		assert_int_equal(pp_schema_attribute((enum pp_block)row->block, row->name), i);
		assert_true(*row->doc);
		assert_false(row->want == PP_WANT_NAME && !*row->names);
	}
	assert_int_equal(pp_schema_block("gpu", ""), PP_BLOCK_gpu);
	assert_int_equal(pp_schema_block("gpu", "group"), PP_BLOCK_gpu);
	assert_int_equal(pp_schema_block("flops", ""), PP_BLOCK_COUNT);
	assert_int_equal(pp_schema_block("adamw", "()"), PP_BLOCK_adamw);
	assert_string_equal(pp_schema_nearest_attribute(PP_BLOCK_model, "hiden"), "hidden");
	assert_string_equal(pp_schema_nearest_block("", "trian"), "train");
	assert_null(pp_schema_nearest_block("", "zebra"));
}

static void ranges(void **state)
{
	(void)state;
	struct pp_datum zero = pp_datum_whole(0), one = pp_datum_whole(1), large = pp_datum_whole(65536);
	struct pp_datum half = pp_datum_real(0.5, PP_PURE);
	assert_false(pp_schema_in_range("1..65535", &zero));
	assert_true(pp_schema_in_range("1..65535", &one));
	assert_false(pp_schema_in_range("1..65535", &large));
	assert_true(pp_schema_in_range("0..0.9", &half));
	assert_false(pp_schema_in_range(">0", &zero));
	assert_true(pp_schema_in_range(">=0", &zero));
	assert_true(pp_schema_in_range("", &large));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(defaults_are_accepted),
	    cmocka_unit_test(names_are_found),
	    cmocka_unit_test(ranges),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
