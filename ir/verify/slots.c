/* Slot states: slots.h. */
#include "slots.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const char *class_text(uint32_t classes)
{
	return classes == PP_CLASS_BOUNDARY ? "recv or out"
	       : classes == PP_CLASS_RECV   ? "recv"
	       : classes == PP_CLASS_OUT    ? "out"
	       : classes == PP_CLASS_STASH  ? "stash"
	       : classes == PP_CLASS_EXTRA  ? "extra"
	                                    : "aux";
}

const char *pp_flow_slot(const struct pp_flow *f, uint32_t slot)
{
	return pp_proof_slot(f->proof, f->rank, slot);
}

static const char *value_text(const struct pp_flow *f, uint32_t state, uint32_t stage, uint32_t mb)
{
	static const char *const what[] = {"nothing",
	                                   "act",
	                                   "grad",
	                                   "the stash of",
	                                   "the stash after bwdi of",
	                                   "what remat made of",
	                                   "the extra after bwdi of",
	                                   "data of",
	                                   "a receive into it",
	                                   "a send from it",
	                                   "what a paired op may still read of"};
	if (state == PP_HOLDS_NOTHING)
		return what[state];
	return pp_arena_printf(f->proof->arena, "%s s%" PRIu32 " m%" PRIu32, what[state], stage, mb);
}

const char *pp_flow_held(const struct pp_flow *f, uint32_t slot)
{
	const struct pp_slot_value *value = &f->value[slot];
	return value_text(f, value->state, value->stage, value->mb);
}

struct pp_message *pp_flow_error(const struct pp_flow *f, const char *code, const char *text)
{
	return pp_proof_error(f->proof, code, f->rank, f->at, "%s", text);
}

static bool class_is(const struct pp_flow *f, uint32_t slot, uint32_t classes)
{
	if (slot < f->memory->slot_count && classes >> f->memory->slots[slot].class & 1)
		return true;
	pp_flow_error(f, "V5",
	              pp_arena_printf(f->proof->arena, "has %s as `%s`, which must be a slot of class %s",
	                              pp_flow_slot(f, slot), f->operand, class_text(classes)));
	return false;
}

static bool report_overwrite(const struct pp_flow *f, uint32_t slot, uint32_t victim)
{
	const struct pp_slot_value *old = &f->value[victim];
	const char *shared =
	    slot == victim ? "" : pp_arena_printf(f->proof->arena, " (shares bytes with %s)", pp_flow_slot(f, victim));
	const char *how = old->state == PP_BEING_RECEIVED ? "which is still being received into"
	                  : old->state == PP_BEING_SENT   ? "which is still being sent"
	                  : old->state == PP_BEING_READ
	                      ? "which a compute op may still read that may overlap the next one"
	                      : pp_arena_printf(f->proof->arena, "which still holds %s", pp_flow_held(f, victim));
	struct pp_message *message = pp_flow_error(
	    f, "V5",
	    pp_arena_printf(f->proof->arena, "writes `%s` to %s%s, %s", f->operand, pp_flow_slot(f, slot), shared, how));
	pp_proof_also(f->proof, message, f->rank, old->writer, "%s",
	              old->state == PP_BEING_RECEIVED || old->state == PP_BEING_SENT ? "posted here"
	              : old->state == PP_BEING_READ                                  ? "read here"
	                                                                             : "written here");
	return false;
}

bool pp_flow_put(struct pp_flow *f, uint32_t slot, uint32_t classes, uint32_t state, uint32_t stage, uint32_t mb,
                 uint64_t bytes)
{
	if (!class_is(f, slot, classes))
		return false;
	struct pp_slot_value *value = &f->value[slot];
	if (value->state != PP_HOLDS_NOTHING)
		return report_overwrite(f, slot, slot);
	if (f->memory->slots[slot].bytes < bytes) {
		pp_flow_error(f, "V5",
		              pp_arena_printf(f->proof->arena, "writes %" PRIu64 " bytes to %s, which has %" PRIu64, bytes,
		                              pp_flow_slot(f, slot), f->memory->slots[slot].bytes));
		return false;
	}
	uint32_t other = pp_live_add(&f->live, slot);
	if (other != PP_NULL)
		return report_overwrite(f, slot, other);
	*value = (struct pp_slot_value){.state = state, .stage = stage, .mb = mb, .writer = f->at};
	return true;
}

static bool report_read(const struct pp_flow *f, uint32_t slot, uint32_t state, uint32_t stage, uint32_t mb)
{
	const struct pp_slot_value *value = &f->value[slot];
	bool boundary = value->state == PP_HOLDS_ACT || value->state == PP_HOLDS_GRAD;
	const char *code = boundary ? "V2" : "V5";
	const char *text =
	    pp_arena_printf(f->proof->arena, "reads `%s` from %s and expects %s, but it holds %s", f->operand,
	                    pp_flow_slot(f, slot), value_text(f, state, stage, mb), pp_flow_held(f, slot));
	if (value->state == PP_BEING_RECEIVED)
		text = pp_arena_printf(f->proof->arena, "reads `%s` from %s before the wait of its receive", f->operand,
		                       pp_flow_slot(f, slot));
	struct pp_message *message = pp_flow_error(f, code, text);
	if (value->state != PP_HOLDS_NOTHING)
		pp_proof_also(f->proof, message, f->rank, value->writer, "%s",
		              value->state == PP_BEING_RECEIVED || value->state == PP_BEING_SENT ? "posted here"
		                                                                                 : "written here");
	return false;
}

bool pp_flow_holds(const struct pp_flow *f, uint32_t slot, uint32_t classes, uint32_t state, uint32_t stage,
                   uint32_t mb)
{
	if (!class_is(f, slot, classes))
		return false;
	const struct pp_slot_value *value = &f->value[slot];
	if (value->state == state && value->stage == stage && value->mb == mb)
		return true;
	return report_read(f, slot, state, stage, mb);
}

static void vacate(struct pp_flow *f, uint32_t slot)
{
	f->value[slot].state = PP_HOLDS_NOTHING;
	pp_live_remove(&f->live, slot);
}

void pp_flow_empty(struct pp_flow *f, uint32_t slot)
{
	if (!f->paired) {
		vacate(f, slot);
		return;
	}
	f->value[slot].state = PP_BEING_READ;
	f->value[slot].writer = f->at;
	assert(f->held_count < sizeof f->held / sizeof *f->held);
	f->held[f->held_count++] = slot;
}

void pp_flow_release(struct pp_flow *f, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		vacate(f, f->held[i]);
	f->held_count -= count;
	memmove(f->held, f->held + count, f->held_count * sizeof *f->held);
}

bool pp_flow_take(struct pp_flow *f, uint32_t slot, uint32_t classes, uint32_t state, uint32_t stage, uint32_t mb)
{
	if (!pp_flow_holds(f, slot, classes, state, stage, mb))
		return false;
	pp_flow_empty(f, slot);
	return true;
}

bool pp_flow_null(const struct pp_flow *f, uint32_t slot)
{
	if (slot == PP_NULL)
		return true;
	pp_flow_error(f, "V5",
	              pp_arena_printf(f->proof->arena, "has %s as `%s`, but this stage has none: it must be the null slot",
	                              pp_flow_slot(f, slot), f->operand));
	return false;
}
