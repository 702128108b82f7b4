/* Which programs may be captured with their posts: by what the driver makes of the order of launches. */
#include "executor/cuda/links/nccl/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { OLD = 12080, NEW = 12090 };

static void one_after_the_other_is_proven(void **state)
{
	(void)state;
	const struct pp_nccl_order ordered = {.implicit = true}, free_order = {.implicit = false};
	struct pp_program program = {.ranks = 2, .tp = 1, .dp = 1, .stamp.layouts = 1u << PP_LAYOUT_CHANNEL};
	struct pp_status status = {.text = ""};
	assert_true(pp_nccl_capture_fits(&program, &ordered, NEW, &status));
	assert_true(pp_nccl_capture_fits(&program, &free_order, OLD, &status));
	assert_false(pp_nccl_capture_fits(&program, &ordered, OLD, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_string_equal(status.text,
	                    "--graph=step: driver 12.8, older than 12.9, runs all posts in a graph one after the other, "
	                    "and this program is not proven for --queues=rank; use --graph=body, or build it with "
	                    "--lowering=end, which is proven for all");
	program.stamp.layouts |= 1u << PP_LAYOUT_RANK;
	assert_true(pp_nccl_capture_fits(&program, &ordered, OLD, &status));
	program.tp = 2; /* posts of bodies, too */
	assert_false(pp_nccl_capture_fits(&program, &ordered, OLD, &status));
	program.stamp.layouts |= 1u << PP_LAYOUT_BLOCKING;
	assert_true(pp_nccl_capture_fits(&program, &ordered, OLD, &status));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_after_the_other_is_proven),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
