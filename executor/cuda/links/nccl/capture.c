/* The order of launches within a graph. Source: NCCL 2.28, enqueue.cc, getImplicitOrder: of captured launches the start
 * is told from driver 12.9 on. Requires: a verified program. */
#include "capture.h"

enum { ORDERS_CAPTURED_STARTS = 12090 };

bool pp_nccl_capture_fits(const struct pp_program *program, const struct pp_nccl_order *order, int driver,
                          struct pp_status *status)
{
	enum pp_layout serial = pp_nccl_order_serial(program);
	if (!order->implicit || driver >= ORDERS_CAPTURED_STARTS || pp_stamp_proves(&program->stamp, serial))
		return true;
	return pp_fail(
	    status, PP_EXIT_ENVIRONMENT,
	    "--graph=step: driver %d.%d, older than 12.9, runs all posts in a graph one after the other, and this "
	    "program is not proven for --queues=%s; use --graph=body, or build it with --lowering=end, which is "
	    "proven for all",
	    driver / 1000, driver % 1000 / 10, pp_layout_name[serial]);
}
