/* A late variable is not there until it is set, and setting it moves nothing of the environment. */
#include "executor/late_environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

extern char **environ;

static void nothing_moves(void **state)
{
	(void)state;
	struct pp_late_variable late = pp_late_variable_take("PP_TEST_LATE", 8);
	assert_null(getenv("PP_TEST_LATE"));
	char **before = environ, *last = NULL;
	size_t count = 0;
	for (; environ[count]; count++)
		last = environ[count];
	pp_late_variable_set(&late, "rank-12345");
	assert_ptr_equal(environ, before);
	assert_ptr_equal(environ[count - 1], last);
	assert_null(environ[count]);
	assert_string_equal(getenv("PP_TEST_LATE"), "rank-12"); /* what there is room for */
	pp_late_variable_set(&(struct pp_late_variable){0}, "no place, nothing");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_moves)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
