/* Collectives that are pending: found by their id until they are taken, whatever the order. */
#include "executor/pending_colls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void found_until_taken(void **state)
{
	(void)state;
	struct pp_pending_colls colls;
	assert_true(pp_pending_colls_make(&colls, 4));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t id = 0; id < 4; id++)
			pp_pending_colls_add(&colls, (struct pp_pending_coll){.id = 7 * id, .line = id, .number = id + round});
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t id = (i + round) % 4;
			const struct pp_pending_coll *coll = pp_pending_colls_find(&colls, 7 * id);
			assert_non_null(coll);
			assert_true(coll->line == id && coll->number == id + round);
			pp_pending_colls_take(&colls, coll);
			assert_null(pp_pending_colls_find(&colls, 7 * id));
			assert_int_equal(colls.count, 3 - i);
		}
	}
	pp_pending_colls_free(&colls);
	assert_null(colls.items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(found_until_taken)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
