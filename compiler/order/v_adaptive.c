/* v_adaptive: a V within the memory that there is (`memory <=`, or the capacity of the ranks).
 *
 * The published V-adaptive looks through permutations of the first slots of a building block and two offsets per
 * direction. Ours draws and varies shapes of target times with the real costs, and the search moves single actions of
 * the best order that comes out. Of many microbatches, the same with a few of them competes, extended by repeating a
 * stretch.
 *
 * requires: room for one microbatch. ensures: an order within the room. */
#include "v_orders.h"

#include "compiler/search/search.h"
#include "wave_make.h"

#include <string.h>

/* Operations placed with drawn shapes, for each action of the problem, at least and at most; and evaluated by the
 * search. For few microbatches, or for another search to start from, a quarter, without the least. */
static const uint64_t drawn_each = 4000, least_drawn = 2000000, most_drawn = 3200000;
static const uint64_t most_drawn_few = 6000000; /* of which a brief search draws a quarter */
static const uint64_t moved_each = 15000, least_moved = 10000000, most_moved = 20000000;

/* Larger problems have too many actions for moves of single ones within that. */
static const uint64_t most_actions = 60000;

static uint64_t actions_of(const struct pp_order_problem *problem)
{
	return (uint64_t)problem->stages * problem->microbatches * 3;
}

static uint64_t budget(const struct pp_order_problem *problem, uint64_t each, uint64_t least, uint64_t most, bool brief)
{
	uint64_t all = actions_of(problem) * each;
	all = all < most ? all : most;
	return brief ? all / 4 : all > least ? all : least;
}

static uint64_t value_of(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_row *rows,
                         bool span)
{
	struct pp_order_times times;
	if (!pp_order_run(arena, problem, rows, false, &times) || !times.fits)
		return UINT64_MAX;
	return span ? times.longest_span : times.makespan;
}

static uint32_t few_of(const struct pp_order_problem *problem)
{
	return problem->ranks < 4 ? 8 : problem->ranks < UINT32_MAX / 2 ? problem->ranks * 2 : UINT32_MAX;
}

/* `floor`: that of the problem, or 0. */
static struct pp_wave_wish wish_of(struct pp_arena *arena, const struct pp_order_problem *problem,
                                   const struct pp_order_options *options, bool brief, uint64_t floor)
{
	uint64_t first = budget(problem, drawn_each, least_drawn, most_drawn_few, true);
	uint64_t placed = brief ? first : budget(problem, drawn_each, least_drawn, most_drawn, false);
	if (!floor && !options->draft)
		floor = pp_order_bound_value(arena, problem, false, options->span);
	return (struct pp_wave_wish){.acts = PP_WAVE_ANY_ACTS,
	                             .list = PP_WAVE_ANY,
	                             .drawn = options->draft ? 0 : placed,
	                             .first = options->draft || brief ? 0 : first,
	                             .floor = options->draft ? 0 : floor,
	                             .deadline = options->deadline,
	                             .draft = options->draft,
	                             .span = options->span};
}

/* Improve `rows` in place. */
static void move_actions(struct pp_arena *arena, const struct pp_order_problem *problem,
                         const struct pp_order_options *options, bool brief, uint64_t floor, struct pp_row *rows)
{
	bool span = options->span;
	struct pp_search_options search = {.objective = span ? PP_SEEK_SPAN : PP_SEEK_TIME,
	                                   .seed = 1,
	                                   .effort = budget(problem, moved_each, least_moved, most_moved, brief),
	                                   .floor = floor,
	                                   .deadline = options->deadline,
	                                   .start = rows,
	                                   .start_name = "v_adaptive"};
	struct pp_search_report report;
	struct pp_row *better = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	if (pp_search(arena, problem, &search, better, &report) &&
	    value_of(arena, problem, better, span) <= value_of(arena, problem, rows, span))
		memcpy(rows, better, problem->ranks * sizeof *rows);
}

/* A search may also come to backward in one piece, where that takes less time or memory than in two. */
static bool is_split(const struct pp_order_problem *problem, const struct pp_row *rows)
{
	for (uint32_t r = 0; r < problem->ranks; r++)
		for (uint32_t i = 0; i < rows[r].count; i++)
			if (rows[r].actions[i].kind == PP_B)
				return false;
	return true;
}

/* An order of few microbatches, extended. False: there are no more, or it does not repeat. */
static bool extend_few(struct pp_arena *arena, const struct pp_order_problem *problem,
                       const struct pp_order_options *options, struct pp_row *rows)
{
	struct pp_order_problem few = *problem;
	few.microbatches = few_of(problem);
	if (few.microbatches >= problem->microbatches)
		return false;
	struct pp_row *short_rows = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	struct pp_wave_wish wish = wish_of(arena, &few, options, true, 0);
	struct pp_order_refusal refusal;
	if (pp_wave_make(arena, &few, &wish, 1, &short_rows, &refusal) == 0)
		return false;
	struct pp_row *moved = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	memcpy(moved, short_rows, problem->ranks * sizeof *moved);
	move_actions(arena, &few, options, true, wish.floor, moved);
	if (is_split(problem, moved))
		short_rows = moved;
	const struct pp_wave *from = pp_wave_pack(arena, &few), *to = pp_wave_pack(arena, problem);
	struct pp_wave_order *short_order = pp_wave_order_new(arena, from), *order = pp_wave_order_new(arena, to);
	pp_wave_read(from, short_rows, short_order);
	if (!pp_wave_extend(arena, from, short_order, to, options->span, order))
		return false;
	pp_wave_unpack(arena, to, order, rows);
	return true;
}

/* Shapes follow their targets to the letter, hops included, which can leave gaps that an order made for shorter hops
 * does not have. False: no hop takes time. */
static bool soften(struct pp_arena *arena, const struct pp_order_problem *problem,
                   const struct pp_order_options *options, struct pp_row *rows)
{
	struct pp_order_problem softer = *problem;
	struct pp_order_stage *stage = PP_NEW_ARRAY(arena, struct pp_order_stage, problem->stages);
	uint64_t longest = 0;
	for (uint32_t s = 0; s < problem->stages; s++) {
		stage[s] = problem->stage[s];
		longest = stage[s].forward_hop > longest ? stage[s].forward_hop : longest;
		longest = stage[s].backward_hop > longest ? stage[s].backward_hop : longest;
		stage[s].forward_hop /= 2;
		stage[s].backward_hop /= 2;
	}
	softer.stage = stage;
	struct pp_wave_wish wish = wish_of(arena, &softer, options, true, 0);
	struct pp_order_refusal refusal;
	if (longest < 2 || pp_wave_make(arena, &softer, &wish, 1, &rows, &refusal) == 0)
		return false;
	struct pp_row *extended = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	if (extend_few(arena, &softer, options, extended) &&
	    value_of(arena, problem, extended, options->span) < value_of(arena, problem, rows, options->span))
		memcpy(rows, extended, problem->ranks * sizeof *rows);
	return true;
}

bool pp_v_adaptive_rows(struct pp_arena *arena, const struct pp_order_problem *problem,
                        const struct pp_order_options *options, struct pp_row *rows, struct pp_order_refusal *refusal)
{
	struct pp_wave_wish wish = wish_of(arena, problem, options, options->start, options->floor);
	if (pp_wave_make(arena, problem, &wish, 1, &rows, refusal) == 0)
		return false;
	if (options->draft || value_of(arena, problem, rows, options->span) <= wish.floor)
		return true;
	struct pp_row *extended = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	if (extend_few(arena, problem, options, extended) &&
	    value_of(arena, problem, extended, options->span) < value_of(arena, problem, rows, options->span))
		memcpy(rows, extended, problem->ranks * sizeof *rows);
	if (options->start || actions_of(problem) > most_actions)
		return true;
	move_actions(arena, problem, options, false, wish.floor, rows);
	struct pp_row *softened = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	if (value_of(arena, problem, rows, options->span) > wish.floor && soften(arena, problem, options, softened)) {
		move_actions(arena, problem, options, true, wish.floor, softened);
		if (value_of(arena, problem, softened, options->span) < value_of(arena, problem, rows, options->span))
			memcpy(rows, softened, problem->ranks * sizeof *rows);
	}
	return true;
}
