/* A walk from the end of the stream: lifetime.h. */
#include "lifetime.h"

static uint32_t aux_operand(const struct pp_instr *instr)
{
	if (instr->op == PP_OP_FWD)
		return instr->a[1];
	return pp_is_compute(instr) && instr->op != PP_OP_REMAT ? instr->a[0] : PP_NULL;
}

uint64_t *pp_last_aux_readers(struct pp_arena *arena, const struct pp_stream *stream, uint32_t slot_count)
{
	uint64_t *last = PP_NEW_ARRAY(arena, uint64_t, (size_t)stream->count / 64 + 1);
	bool *read_later = PP_NEW_ARRAY(arena, bool, slot_count);
	for (uint32_t i = stream->count; i-- > 0;) {
		const struct pp_instr *instr = &stream->items[i];
		uint32_t slot = aux_operand(instr);
		if (instr->op == PP_OP_LOAD && instr->a[0] < slot_count)
			read_later[instr->a[0]] = false;
		if (slot >= slot_count || read_later[slot])
			continue;
		read_later[slot] = true;
		last[i >> 6] |= (uint64_t)1 << (i & 63);
	}
	return last;
}
