/* Collectives of bodies on the tensor-parallel group, and what goes with them.
 *
 * requires: tp > 1.
 * ensures:  every post is of the kind that the spread of its value asks for; what it reads and writes stays as it is
 *           until the await, which the caller places. */
#include "body_builder.h"

static void post(struct pp_layer_build *build, enum pp_body_op op, uint32_t from, uint32_t to)
{
	pp_body_emit(build->body, (struct pp_body_instr){.op = (uint8_t)op, .operand = {from, to}});
}

void pp_reduce(struct pp_layer_build *build, uint32_t sums, uint32_t value)
{
	post(build, build->shape.sp ? PP_BODY_REDUCESCATTER : PP_BODY_ALLREDUCE, sums, value);
}

uint32_t pp_gather(struct pp_layer_build *build, const char *name, uint32_t value)
{
	if (!build->shape.sp)
		return value;
	uint32_t whole = pp_temporary(build, name, PP_WHOLE, build->body->regs[value].columns);
	post(build, PP_BODY_ALLGATHER, value, whole);
	return whole;
}

void pp_await(struct pp_layer_build *build, uint32_t value)
{
	pp_body_emit(build->body, (struct pp_body_instr){.op = PP_BODY_AWAIT, .operand = {value}});
}

void pp_await_whole(struct pp_layer_build *build, uint32_t whole, uint32_t value)
{
	if (whole != value)
		pp_await(build, whole);
}

void pp_add_bias(struct pp_layer_build *build, unsigned bias, uint32_t a, uint32_t b, uint32_t y)
{
	struct pp_body_instr plain = {.op = PP_BODY_ADD, .operand = {a, b, y}},
	                     biased = {.op = PP_BODY_ADD_BIAS, .operand = {a, b, pp_weight(build, bias), y}};
	pp_body_emit(build->body, biased.operand[2] == PP_NULL ? plain : biased);
}
