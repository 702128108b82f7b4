/* The local transport in larger worlds. */
#include "support/conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static void does_what_the_loop_does(void **state)
{
	(void)state;
	assert_int_equal(pp_conformance_threads(&pp_test_world_local, 4), 0);
}

static void collectives_of_eight(void **state)
{
	(void)state;
	assert_int_equal(pp_conformance_collectives(&pp_test_world_local, 8), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(does_what_the_loop_does),
	                                   cmocka_unit_test(collectives_of_eight)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
