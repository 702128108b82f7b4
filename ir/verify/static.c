/* V5: the slots of static classes, which live for the whole run.
 *
 * An executor takes how many elements there are to zero, add, sum or update from the slot, and finds the one losses,
 * scale, work and scratch slot of a rank by its class. So a slot is exactly as long as what it holds, and those are
 * single.
 *
 * requires: tensor indices of slots in range or PP_NULL.
 * ensures:  slots of tensors and of the step tail have the one right size; a rank has at most one losses, scale,
 *           work and scratch slot. */
#include "state.h"

#include <inttypes.h>

static bool is_single(uint8_t class)
{
	return class == PP_SLOT_LOSSES || class == PP_SLOT_SCALE || class == PP_SLOT_WORK || class == PP_SLOT_SCRATCH;
}

bool pp_static_slots_fit(const struct pp_program *program, uint32_t r, struct pp_diag *diag)
{
	const struct pp_rank *rank = &program->rank[r];
	uint32_t found[PP_SLOT_CLASS_COUNT];
	for (unsigned class = 0; class < PP_SLOT_CLASS_COUNT; class ++)
		found[class] = PP_NULL;
	for (uint32_t i = 0; i < rank->slot_count; i++) {
		const struct pp_slot *slot = &rank->slots[i];
		uint64_t bytes;
		if (pp_slot_content_bytes(program, slot, &bytes) && slot->bytes != bytes) {
			pp_error(diag, "V5", PP_NO_SPAN,
			         "rank %" PRIu32 ": %s.%" PRIu32 " has %" PRIu64 " bytes, what it holds has %" PRIu64, r,
			         pp_slot_class_name[slot->class], i, slot->bytes, bytes);
			return false;
		}
		if (is_single(slot->class) && found[slot->class] != PP_NULL) {
			pp_error(diag, "V5", PP_NO_SPAN,
			         "rank %" PRIu32 " has two slots of class %s, %" PRIu32 " and %" PRIu32 ": it may have one", r,
			         pp_slot_class_name[slot->class], found[slot->class], i);
			return false;
		}
		found[slot->class] = i;
	}
	return true;
}
