/* Lifetimes that a stream does not spell out: the data of an aux slot lives from its load to its last reader. */
#ifndef PP_LIFETIME_H
#define PP_LIFETIME_H

#include "arena.h"
#include "program.h"

/* Bit per instruction: it reads an aux slot, and nothing reads that data after it. */
uint64_t *pp_last_aux_readers(struct pp_arena *arena, const struct pp_stream *stream, uint32_t slot_count);

static inline bool pp_bit(const uint64_t *bits, uint32_t at)
{
	return bits[at >> 6] >> (at & 63) & 1;
}

static inline bool pp_is_compute(const struct pp_instr *instr)
{
	return instr->op >= PP_OP_FWD && instr->op <= PP_OP_BWDW;
}

/* The phase of a compute op. */
static inline enum pp_phase pp_phase_of(const struct pp_instr *instr)
{
	return instr->op == PP_OP_FWD     ? PP_PHASE_F
	       : instr->op == PP_OP_BWD   ? PP_PHASE_B
	       : instr->op == PP_OP_BWDI  ? PP_PHASE_I
	       : instr->op == PP_OP_REMAT ? PP_PHASE_R
	                                  : PP_PHASE_W;
}

#endif
