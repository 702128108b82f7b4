/* The rule of launch order. Requires: a verified program. */
#include "order.h"

#include "plan.h"

#include <stdio.h>
#include <string.h>

/* From this driver on NCCL orders the starts of kernels and lets them overlap. */
enum { ORDERS_STARTS = 12090 };

static bool is_proven(const struct pp_program *program, enum pp_layout layout)
{
	return program->stamp.layouts >> layout & 1;
}

/* The layout in which everything that a rank posts, collectives of bodies too, runs one after the other. */
static enum pp_layout serial(const struct pp_program *program)
{
	return program->tp > 1 ? PP_LAYOUT_BLOCKING : PP_LAYOUT_RANK;
}

uint32_t pp_nccl_order_queue(const struct pp_queues *queues, uint32_t line, uint32_t position, uint32_t rank)
{
	const struct pp_program *program = queues->program;
	if (line < program->channel_count)
		return queues->channel[position][line];
	uint32_t group = line - program->channel_count;
	return group < program->group_count ? pp_queues_collective(queues, group, rank) : PP_NULL;
}

uint32_t pp_nccl_order_streams(const struct pp_program *program, enum pp_layout layout)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_queues queues = pp_queues_assign(arena, program, layout);
	uint32_t *seen = PP_NEW_ARRAY(arena, uint32_t, (size_t)queues.count + 1); /* by the rank with this number + 1 */
	uint32_t lines = program->channel_count + program->group_count + 1, most = 0;
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		uint32_t streams = 1;
		for (uint32_t line = 0; line < lines; line++) {
			struct pp_nccl_seat seat = pp_nccl_plan_seat(program, line, (struct pp_coord){.pp = rank});
			if (seat.members == 0)
				continue;
			uint32_t queue = pp_nccl_order_queue(&queues, line, seat.position, rank);
			uint32_t *mark = &seen[queue == PP_NULL ? queues.count : queue];
			streams += *mark != rank + 1;
			*mark = rank + 1;
		}
		most = streams > most ? streams : most;
	}
	pp_arena_destroy(arena);
	return most;
}

enum pp_layout pp_nccl_order_narrow(const struct pp_program *program, enum pp_layout asked, uint32_t connections)
{
	for (unsigned layout = asked; layout < PP_LAYOUT_COUNT; layout++)
		if ((layout == asked || is_proven(program, (enum pp_layout)layout)) &&
		    pp_nccl_order_streams(program, (enum pp_layout)layout) <= connections)
			return (enum pp_layout)layout;
	return asked;
}

bool pp_nccl_order_decide(const struct pp_program *program, enum pp_layout asked, int driver, const char *environment,
                          struct pp_nccl_order *order, struct pp_status *status)
{
	char version[32];
	snprintf(version, sizeof version, "driver %d.%d", driver / 1000, driver % 1000 / 10);
	*order = (struct pp_nccl_order){.implicit = true, .layout = asked};
	if (environment && strcmp(environment, "0") == 0) {
		order->implicit = false;
		snprintf(order->text, sizeof order->text,
		         "%s; launches in no order, since NCCL_LAUNCH_ORDER_IMPLICIT=0; queues per %s", version,
		         pp_layout_name[asked]);
	} else if (driver >= ORDERS_STARTS) {
		snprintf(order->text, sizeof order->text, "%s; launches in program order; queues per %s", version,
		         pp_layout_name[asked]);
	} else if (is_proven(program, serial(program))) {
		order->layout = serial(program);
		snprintf(order->text, sizeof order->text,
		         "%s is older than 12.9: launches in program order, one after the other; queues per %s", version,
		         pp_layout_name[order->layout]);
	} else if (environment) {
		return pp_fail(
		    status, PP_EXIT_ENVIRONMENT,
		    "error[E0906]: with NCCL_LAUNCH_ORDER_IMPLICIT=%s this program could deadlock: %s, older than 12.9, "
		    "would run all posts of a rank one after the other, and it is not proven for --queues=%s; unset it, "
		    "or build the program with --lowering=end, which is proven for all",
		    environment, version, pp_layout_name[serial(program)]);
	} else {
		order->implicit = false;
		snprintf(order->text, sizeof order->text,
		         "%s is older than 12.9, and the program is not proven for one queue per rank: launches in no order; "
		         "queues per %s",
		         version, pp_layout_name[asked]);
	}
	return true;
}
