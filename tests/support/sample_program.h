/* Programs built by hand for tests of the executor: all receives of a step are posted first, then all forwards chunk by
 * chunk, then all backwards; every value has a slot of its own; sends are waited for at the end. Stage s is on rank
 * s mod ranks. Safe with one FIFO per channel. */
#ifndef PP_SAMPLE_PROGRAM_H
#define PP_SAMPLE_PROGRAM_H

#include "ir/arena.h"
#include "ir/program.h"

struct pp_sample {
	uint32_t ranks, chunks, microbatches;
	uint32_t out_count;  /* f32 elements of a boundary value */
	uint32_t grad_count; /* f32 elements of each stage's gradient; 0: no reductions */
	bool split;          /* bwdi + bwdw instead of bwd */
};

/* One program "train". */
struct pp_program *pp_sample_program(struct pp_arena *arena, const struct pp_sample *sample);

#endif
