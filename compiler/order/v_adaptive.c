/* v_adaptive: a V within the memory that there is (`memory <=`, or the capacity of the ranks).
 *
 * The published V-adaptive looks through permutations of the first slots and two offsets per direction of a building
 * block. Ours draws and varies shapes of target times, with the real costs, and improves the best order that comes out
 * by the search's own moves.
 *
 * requires: room for one microbatch. ensures: an order within the room. */
#include "v_orders.h"

#include "wave_make.h"

/* Operations placed with drawn shapes: about a third of a second. A draft takes the listed shapes only. */
static const uint64_t drawn = 4000000;

bool pp_v_adaptive_rows(struct pp_arena *arena, const struct pp_order_problem *problem,
                        const struct pp_order_options *options, struct pp_row *rows, struct pp_order_refusal *refusal)
{
	struct pp_wave_wish wish = {
	    .acts = PP_WAVE_ANY_ACTS, .list = PP_WAVE_ANY, .drawn = options->draft ? 0 : drawn, .draft = options->draft};
	return pp_wave_make(arena, problem, &wish, 1, &rows, refusal) > 0;
}
