/* V10: collectives in flight within a body. Between a post and its await nobody touches what it writes, nor writes what
 * it reads; every post is awaited, once, before the body ends.
 *
 * requires: instructions that pass on their own.
 * ensures:  a body that passes reads a collective's result only after its await. At most PP_FLIGHTS_MAX are on the way
 *           at a time. */
#include "body.h"

#include <inttypes.h>

static bool is_post(uint8_t op)
{
	return op == PP_BODY_ALLREDUCE || op == PP_BODY_ALLGATHER || op == PP_BODY_REDUCESCATTER;
}

static const char *mnemonic_of(const struct pp_body_check *check, uint32_t at)
{
	return pp_body_op_info((enum pp_body_op)check->body->items[at].op).mnemonic;
}

bool pp_flights_allow(const struct pp_body_check *check, const struct pp_flights *flights, const struct pp_reg *reg,
                      bool writes)
{
	if (check->body->items[check->at].op == PP_BODY_AWAIT)
		return true;
	for (uint32_t i = 0; i < flights->count; i++) {
		const struct pp_flight *flight = &flights->items[i];
		bool to = pp_regs_overlap(reg, &check->body->regs[flight->to]);
		if (!to && !(writes && pp_regs_overlap(reg, &check->body->regs[flight->from])))
			continue;
		pp_body_complain(check, "%s %s while %s (instruction %" PRIu32 ") %s %s", writes ? "writes" : "reads",
		                 reg->name, mnemonic_of(check, flight->post), flight->post, to ? "writes" : "reads",
		                 check->body->regs[to ? flight->to : flight->from].name);
		return false;
	}
	return true;
}

static bool await(const struct pp_body_check *check, struct pp_flights *flights, uint32_t reg)
{
	for (uint32_t i = 0; i < flights->count; i++) {
		if (flights->items[i].to != reg)
			continue;
		flights->items[i] = flights->items[--flights->count];
		return true;
	}
	pp_body_complain(check, "awaits %s, which no collective in flight writes", check->body->regs[reg].name);
	return false;
}

bool pp_flights_step(const struct pp_body_check *check, struct pp_flights *flights)
{
	const struct pp_body_instr *instr = &check->body->items[check->at];
	if (instr->op == PP_BODY_AWAIT)
		return await(check, flights, instr->operand[0]);
	if (!is_post(instr->op))
		return true;
	if (flights->count == PP_FLIGHTS_MAX) {
		pp_body_complain(check, "posts one more than %d collectives that may be in flight", PP_FLIGHTS_MAX);
		return false;
	}
	flights->items[flights->count++] =
	    (struct pp_flight){.from = instr->operand[0], .to = instr->operand[1], .post = check->at};
	return true;
}

bool pp_flights_landed(const struct pp_body_check *check, const struct pp_flights *flights)
{
	if (flights->count == 0)
		return true;
	const struct pp_flight *flight = &flights->items[0];
	pp_body_complain_whole(check, "never awaits %s, which %s (instruction %" PRIu32 ") writes",
	                       check->body->regs[flight->to].name, mnemonic_of(check, flight->post), flight->post);
	return false;
}
