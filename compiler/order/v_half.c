/* v_half: a V in about half of the activation memory of 1f1b.
 *
 * Source of the memory and of the building block (offsets 2 i down, i up for rank i): Controllable Memory, Pipeline
 * Parallelism with Controllable Memory, V-Half: (p + 2) div 2 acts. Ours keeps the memory and lets the block and others
 * compete under the real costs, hops and sizes of every stage.
 *
 * requires: room for one microbatch. ensures: the best order found of at most (p + 2) div 2 acts on every rank. */
#include "v_orders.h"

#include "wave_make.h"

/* Operations placed with drawn shapes: a few milliseconds. */
static const uint64_t drawn = 50000;

bool pp_v_half_rows(struct pp_arena *arena, const struct pp_order_problem *problem,
                    const struct pp_order_options *options, struct pp_row *rows, struct pp_order_refusal *refusal)
{
	struct pp_wave_wish wish = {.acts = (problem->ranks + 2) / 2,
	                            .list = PP_WAVE_HALF,
	                            .drawn = options->draft ? 0 : drawn,
	                            .deadline = options->deadline,
	                            .draft = options->draft,
	                            .span = options->span};
	return pp_wave_make(arena, problem, &wish, 1, &rows, refusal) > 0;
}
