/* v_adaptive: a V within the memory that there is (`memory <=`, or the capacity of the ranks).
 *
 * The published V-adaptive looks through permutations of the first slots of a building block and two offsets per
 * direction. Ours draws and varies shapes of target times with the real costs, and the search moves single actions of
 * the best order that comes out.
 *
 * requires: room for one microbatch. ensures: an order within the room. */
#include "v_orders.h"

#include "compiler/search/search.h"
#include "wave_make.h"

#include <string.h>

/* Operations placed with drawn shapes, and evaluated by the search: about a third of a second each. */
static const uint64_t drawn = 6000000, effort = 40000000;

bool pp_v_adaptive_rows(struct pp_arena *arena, const struct pp_order_problem *problem,
                        const struct pp_order_options *options, struct pp_row *rows, struct pp_order_refusal *refusal)
{
	struct pp_wave_wish wish = {.acts = PP_WAVE_ANY_ACTS,
	                            .list = PP_WAVE_ANY,
	                            .drawn = options->draft ? 0 : drawn,
	                            .draft = options->draft,
	                            .span = options->span};
	if (pp_wave_make(arena, problem, &wish, 1, &rows, refusal) == 0)
		return false;
	if (options->draft || options->start)
		return true;
	struct pp_search_options search = {.objective = options->span ? PP_SEEK_SPAN : PP_SEEK_TIME,
	                                   .seed = 1,
	                                   .effort = effort,
	                                   .start = rows,
	                                   .start_name = "v_adaptive"};
	struct pp_search_report report;
	struct pp_row *better = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	if (pp_search(arena, problem, &search, better, &report))
		memcpy(rows, better, problem->ranks * sizeof *rows);
	return true;
}
