/* v_min: a V in about a third of the activation memory of 1f1b, the least that keeps every rank busy at equal costs.
 *
 * Source of the memory and of the building block (offsets i down, i up for rank i): Pipeline Parallelism with
 * Controllable Memory, V-Min: (p + 4) div 3 acts. Ours keeps the memory and lets the block and others compete under the
 * real costs, hops and sizes of every stage.
 *
 * requires: room for one microbatch. ensures: the best order found of at most (p + 4) div 3 acts on every rank. */
#include "v_orders.h"

#include "wave_make.h"

/* Operations placed with drawn shapes: a few milliseconds. */
static const uint64_t drawn = 50000;

bool pp_v_min_rows(struct pp_arena *arena, const struct pp_order_problem *problem,
                   const struct pp_order_options *options, struct pp_row *rows, struct pp_order_refusal *refusal)
{
	struct pp_wave_wish wish = {.acts = (problem->ranks + 4) / 3,
	                            .list = PP_WAVE_LEAST,
	                            .drawn = options->draft ? 0 : drawn,
	                            .deadline = options->deadline,
	                            .draft = options->draft,
	                            .span = options->span};
	return pp_wave_make(arena, problem, &wish, 1, &rows, refusal) > 0;
}
