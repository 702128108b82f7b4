/* The rule of launch order. Requires: a verified program. */
#include "order.h"

#include "plan.h"

#include <stdio.h>
#include <string.h>

/* NCCL 2.28, enqueue.cc: from this CUDA on, of the driver and of what it was built for, a launch waits for the start of
 * the one before it, else for its end. Its user guide, NCCL_LAUNCH_ORDER_IMPLICIT: since 2.26. */
enum { ORDERS_STARTS = 12030, ORDERS = 22600 };

enum pp_layout pp_nccl_order_serial(const struct pp_program *program)
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
		if ((layout == asked || pp_stamp_proves(&program->stamp, (enum pp_layout)layout)) &&
		    pp_nccl_order_streams(program, (enum pp_layout)layout) <= connections)
			return (enum pp_layout)layout;
	return asked;
}

/* What a decision goes by. */
struct question {
	const struct pp_program *program;
	enum pp_layout asked;
	const char *environment;
	char version[32]; /* "driver 13.0" */
};

/* V11 says something of ranks only whose GPUs the program knows. */
static bool has_room(const struct pp_program *program)
{
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		if (!program->rank || program->rank[rank].post_sms == 0)
			return false;
	return true;
}

static bool unordered(const struct question *question, const char *why, struct pp_nccl_order *order)
{
	order->implicit = false;
	order->unproven = !has_room(question->program);
	snprintf(order->text, sizeof order->text, "%s; launches in no order, since %s; queues per %s", question->version,
	         why, pp_layout_name[question->asked]);
	return true;
}

/* Launches of a rank start in its order. */
static bool by_starts(const struct question *question, struct pp_nccl_order *order, struct pp_status *status)
{
	const char *queues = pp_layout_name[question->asked];
	if (question->program->stamp.in_order >> question->asked & 1) {
		snprintf(order->text, sizeof order->text, "%s; launches in program order; queues per %s", question->version,
		         queues);
		return true;
	}
	if (!question->environment)
		return unordered(question, "the program is not proven for launches that start in program order", order);
	return pp_fail(status, PP_EXIT_ENVIRONMENT,
	               "error[E0906]: with NCCL_LAUNCH_ORDER_IMPLICIT=%s this program could deadlock: launches would start "
	               "in program order, for which it is not proven with --queues=%s; unset it, or build the program with "
	               "--lowering=end, which is proven for all",
	               question->environment, queues);
}

/* Launches of a rank run one after the other. */
static bool by_ends(const struct question *question, struct pp_nccl_order *order, struct pp_status *status)
{
	enum pp_layout one = pp_nccl_order_serial(question->program);
	if (pp_stamp_proves(&question->program->stamp, one)) {
		order->layout = one;
		snprintf(order->text, sizeof order->text,
		         "%s is older than 12.3: launches in program order, one after the other; queues per %s",
		         question->version, pp_layout_name[one]);
		return true;
	}
	if (!question->environment)
		return unordered(question, "it is older than 12.3 and the program is not proven for one queue per rank", order);
	return pp_fail(
	    status, PP_EXIT_ENVIRONMENT,
	    "error[E0906]: with NCCL_LAUNCH_ORDER_IMPLICIT=%s this program could deadlock: %s, older than 12.3, would run "
	    "all posts of a rank one after the other, and it is not proven for --queues=%s; unset it, or build the program "
	    "with --lowering=end, which is proven for all",
	    question->environment, question->version, pp_layout_name[one]);
}

bool pp_nccl_order_decide(const struct pp_program *program, enum pp_layout asked,
                          const struct pp_nccl_versions *versions, const char *environment, struct pp_nccl_order *order,
                          struct pp_status *status)
{
	struct question question = {.program = program, .asked = asked, .environment = environment};
	int cuda = versions->driver < versions->toolkit ? versions->driver : versions->toolkit;
	*order = (struct pp_nccl_order){.implicit = true, .layout = asked};
	snprintf(question.version, sizeof question.version, "%s %d.%d", cuda == versions->driver ? "driver" : "CUDA",
	         cuda / 1000, cuda % 1000 / 10);
	if (environment && strcmp(environment, "0") == 0)
		return unordered(&question, "NCCL_LAUNCH_ORDER_IMPLICIT=0", order);
	if (versions->nccl < ORDERS)
		return unordered(&question, "NCCL is older than 2.26", order);
	return cuda >= ORDERS_STARTS ? by_starts(&question, order, status) : by_ends(&question, order, status);
}
