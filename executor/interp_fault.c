/* Planted faults where the interpreter meets them. */
#include "interp_fault.h"

#include <inttypes.h>
#include <math.h>

/* The slot that an instruction reads numbers from, PP_NULL: none. */
static uint32_t read_slot(const struct pp_instr *instr)
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_SEND:
	case PP_OP_COLL:
		return instr->a[2];
	case PP_OP_FWD:
		return instr->a[0];
	case PP_OP_BWD:
	case PP_OP_BWDI:
		return instr->a[2] != PP_NULL ? instr->a[2] : instr->a[1];
	case PP_OP_BWDW:
	case PP_OP_ADD:
	case PP_OP_OPT:
		return instr->a[1];
	case PP_OP_SQNORM:
		return instr->a[0];
	case PP_OP_LOAD:
	case PP_OP_RECV:
	case PP_OP_WAIT:
	case PP_OP_WAITC:
	case PP_OP_ZERO:
	case PP_OP_CLIP:
	case PP_OP_MARK:
	case PP_OP_REMAT:
	case PP_OP_COUNT:
		break;
	}
	return PP_NULL;
}

bool pp_interp_meet_fault(struct pp_interp *interp, const struct pp_instr *instr, uint32_t index)
{
	switch (pp_fault_meet(interp->fault.kind)) {
	case PP_FAULT_NONE:
	case PP_FAULT_KILL:
	case PP_FAULT_STOP:
	case PP_FAULT_SLEEP:
	case PP_FAULT_SKIP:
		break;
	case PP_FAULT_EXIT:
		interp->lost = true;
		return pp_fail(interp->status, PP_EXIT_RUN, "planted fault: exit at instruction %" PRIu32, index);
	case PP_FAULT_FAIL:
		return pp_fail(interp->status, PP_EXIT_RUN, "planted fault: failure at instruction %" PRIu32, index);
	case PP_FAULT_CUT:
		atomic_store(&interp->watch->cut, true);
		break;
	case PP_FAULT_NAN:
		if (read_slot(instr) == PP_NULL)
			return pp_fail(interp->status, PP_EXIT_RUN,
			               "planted fault: instruction %" PRIu32 " reads no numbers that could be spoilt", index);
		return pp_interp_write(interp, read_slot(instr), 0, sizeof(float), &(float){NAN}, interp->status);
	}
	return true;
}

bool pp_interp_posts(const struct pp_instr *instr)
{
	return instr->op == PP_OP_SEND || instr->op == PP_OP_RECV || instr->op == PP_OP_COLL;
}

bool pp_interp_is_mute(const struct pp_stream *stream, const struct pp_instr *instr, const struct pp_instr *skipped)
{
	if (skipped->op != PP_OP_COLL)
		return (instr->op == PP_OP_WAIT || instr->op == skipped->op) && instr->a[0] == skipped->a[0];
	if (instr->op == PP_OP_COLL)
		return instr->a[1] == skipped->a[1];
	for (uint32_t i = 0; instr->op == PP_OP_WAITC && i < stream->count; i++)
		if (stream->items[i].op == PP_OP_COLL && stream->items[i].a[0] == instr->a[0])
			return stream->items[i].a[1] == skipped->a[1];
	return false;
}
