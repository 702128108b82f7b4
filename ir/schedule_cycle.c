/* Explain why a schedule can never finish: the shortest cycle of actions that wait for each other, and the moves
 * within a row that would break it. Runs only on failure.
 * requires: rows that passed the checks of schedule_check.c up to acyclicity, and the position at which each row is
 * stuck. ensures:  one E0605.
 *
 * An action waits for the one that makes its input (data) and for every earlier one of its row (row order). A
 * breadth-first search from an action finds the shortest cycle through it in O(actions): the row-order successors of a
 * visited action are a prefix of its row, and prefixes only grow, so each action is reached once by row order. All
 * unfinished actions are tried as starts, heads of rows first, until the budget of steps is spent, so the cycle is the
 * shortest one of all up to some ten thousand unfinished actions, and a short one beyond. */
#include "schedule_order.h"

#include <assert.h>
#include <string.h>

#define NONE UINT32_MAX

enum { STEP_BUDGET = 50 * 1000 * 1000, NAMES_MAX = 16, LABELS_MAX = 8, MOVES_TRIED_MAX = 8, MOVES_SHOWN_MAX = 2 };

/* The unfinished actions, numbered row by row. */
struct search {
	struct pp_arena *arena;
	const struct pp_schedule *schedule;
	const struct pp_chunks *chunks;
	uint32_t count;
	uint32_t *base; /* [ranks + 1]: first number of each row */
	const struct pp_action **action;
	uint32_t *rank;  /* of each action */
	uint32_t *needs; /* action that makes its input, NONE if finished or not needed */
	/* of one search */
	uint32_t *from, *distance, *queue;
	uint32_t *prefix; /* [ranks]: actions below this one were reached by row order */
	uint32_t steps;
	uint32_t *best; /* actions of the shortest cycle so far, each waiting for the next, the last for the first */
	uint32_t best_length;
};

static uint64_t value_at(const struct pp_schedule *schedule, uint32_t stage, uint32_t mb, bool forward)
{
	return ((uint64_t)stage * schedule->microbatches + mb) * 2 + forward;
}

static void number_actions(struct search *search, const uint32_t *position)
{
	const struct pp_schedule *schedule = search->schedule;
	search->base = PP_NEW_ARRAY(search->arena, uint32_t, (size_t)schedule->ranks + 1);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		search->base[rank + 1] = search->base[rank] + schedule->rows[rank].count - position[rank];
	search->count = search->base[schedule->ranks];
	search->action = PP_NEW_ARRAY(search->arena, const struct pp_action *, search->count);
	search->rank = PP_NEW_ARRAY(search->arena, uint32_t, search->count);
	for (uint32_t rank = 0, i = 0; rank < schedule->ranks; rank++)
		for (uint32_t at = position[rank]; at < schedule->rows[rank].count; at++, i++) {
			search->action[i] = &schedule->rows[rank].actions[at];
			search->rank[i] = rank;
		}
}

static void find_needs(struct search *search)
{
	const struct pp_schedule *schedule = search->schedule;
	uint64_t values = value_at(schedule, schedule->stages - 1, schedule->microbatches - 1, true) + 1;
	uint32_t *maker = PP_NEW_ARRAY(search->arena, uint32_t, values);
	memset(maker, 0xff, values * sizeof *maker);
	for (uint32_t i = 0; i < search->count; i++) {
		const struct pp_action *action = search->action[i];
		if (action->kind != PP_W)
			maker[value_at(schedule, action->stage, action->mb, action->kind == PP_F)] = i;
	}
	search->needs = PP_NEW_ARRAY(search->arena, uint32_t, search->count);
	for (uint32_t i = 0; i < search->count; i++) {
		uint32_t stage;
		bool forward;
		bool any = pp_action_needs(schedule, search->action[i], &stage, &forward);
		search->needs[i] = any ? maker[value_at(schedule, stage, search->action[i]->mb, forward)] : NONE;
	}
}

/* ---- shortest cycle -------------------------------------------------------------------------- */

static void keep_cycle(struct search *search, uint32_t last)
{
	search->best_length = search->distance[last] + 1;
	for (uint32_t at = last, i = search->best_length; i-- > 0; at = search->from[at])
		search->best[i] = at;
}

static void reach(struct search *search, uint32_t from, uint32_t to, uint32_t *tail)
{
	search->steps++;
	if (search->distance[to] != NONE)
		return;
	search->distance[to] = search->distance[from] + 1;
	search->from[to] = from;
	search->queue[(*tail)++] = to;
}

/* Breadth-first search for a cycle through `start` shorter than the best one. */
static void search_from(struct search *search, uint32_t start)
{
	memset(search->distance, 0xff, search->count * sizeof *search->distance);
	memcpy(search->prefix, search->base, search->schedule->ranks * sizeof *search->prefix);
	uint32_t tail = 0;
	search->distance[start] = 0;
	search->queue[tail++] = start;
	for (uint32_t head = 0; head < tail; head++) {
		uint32_t at = search->queue[head], rank = search->rank[at];
		if (search->best_length && search->distance[at] + 1 >= search->best_length)
			return;
		if (search->needs[at] == start || (rank == search->rank[start] && at > start)) {
			keep_cycle(search, at);
			return;
		}
		if (search->needs[at] != NONE)
			reach(search, at, search->needs[at], &tail);
		for (; search->prefix[rank] < at; search->prefix[rank]++)
			if (search->needs[search->prefix[rank]] != NONE)
				reach(search, at, search->prefix[rank], &tail);
	}
}

static void find_cycle(struct search *search)
{
	search->from = PP_NEW_ARRAY(search->arena, uint32_t, search->count);
	search->distance = PP_NEW_ARRAY(search->arena, uint32_t, search->count);
	search->queue = PP_NEW_ARRAY(search->arena, uint32_t, search->count);
	search->prefix = PP_NEW_ARRAY(search->arena, uint32_t, search->schedule->ranks);
	search->best = PP_NEW_ARRAY(search->arena, uint32_t, search->count);
	for (uint32_t rank = 0; rank < search->schedule->ranks; rank++)
		if (search->base[rank] < search->base[rank + 1])
			search_from(search, search->base[rank]);
	/* A search costs at least its clearing of the tables. */
	for (uint32_t i = 0; i < search->count && search->best_length > 2 && search->steps < STEP_BUDGET; i++) {
		search->steps += search->count / 8;
		if (search->needs[i] != NONE)
			search_from(search, i);
	}
	assert(search->best_length >= 2);
}

/* Begin at a forward that waits for an activation, where there is one: stories are told forwards. */
static void rotate_cycle(struct search *search)
{
	uint32_t start = NONE, length = search->best_length;
	for (uint32_t i = 0; i < length; i++) {
		uint32_t at = search->best[i];
		bool forward = search->action[at]->kind == PP_F && search->needs[at] == search->best[(i + 1) % length];
		if (forward && (start == NONE || at < search->best[start]))
			start = i;
	}
	if (start == NONE)
		for (start = 0; search->needs[search->best[start]] != search->best[(start + 1) % length];)
			start++;
	uint32_t *rotated = PP_NEW_ARRAY(search->arena, uint32_t, length);
	for (uint32_t i = 0; i < length; i++)
		rotated[i] = search->best[(start + i) % length];
	search->best = rotated;
}

/* ---- moves that break it --------------------------------------------------------------------- */

/* Step i of the cycle goes from best[i] to the next one. */
static uint32_t next_of(const struct search *search, uint32_t i)
{
	return search->best[(i + 1) % search->best_length];
}

static bool is_row_step(const struct search *search, uint32_t i)
{
	return search->needs[search->best[i]] != next_of(search, i);
}

static bool is_prerequisite(const struct pp_action *first, const struct pp_action *second)
{
	if (first->stage != second->stage || first->mb != second->mb)
		return false;
	return first->kind == PP_F || second->kind == PP_W;
}

/* Number of actions that run once `later` stands directly before `earlier`; 0 if its own row forbids that. */
static uint64_t run_with_move(struct search *search, uint32_t earlier, uint32_t later)
{
	const struct pp_schedule *schedule = search->schedule;
	uint32_t rank = search->rank[later];
	const struct pp_row *row = &schedule->rows[rank];
	uint32_t to = (uint32_t)(search->action[earlier] - row->actions),
	         from = (uint32_t)(search->action[later] - row->actions);
	for (uint32_t i = to; i < from; i++)
		if (is_prerequisite(&row->actions[i], &row->actions[from]))
			return 0;
	struct pp_row *rows = PP_NEW_ARRAY(search->arena, struct pp_row, schedule->ranks);
	memcpy(rows, schedule->rows, schedule->ranks * sizeof *rows);
	struct pp_action *actions = PP_NEW_ARRAY(search->arena, struct pp_action, row->count);
	memcpy(actions, row->actions, row->count * sizeof *actions);
	memmove(&actions[to + 1], &actions[to], (from - to) * sizeof *actions);
	actions[to] = row->actions[from];
	rows[rank].actions = actions;
	struct pp_schedule moved = *schedule;
	moved.rows = rows;
	return pp_schedule_run(search->arena, &moved, false, PP_NEW_ARRAY(search->arena, uint32_t, schedule->ranks));
}

static const char *name_of(const struct search *search, uint32_t at)
{
	return pp_action_name(search->arena, search->chunks, search->schedule, search->action[at]);
}

static const char *move_text(const struct search *search, uint32_t earlier, uint32_t later)
{
	return pp_arena_printf(search->arena, "on rank %u move `%s` before `%s`", search->rank[later],
	                       name_of(search, later), name_of(search, earlier));
}

/* Moves that break the cycle, at most two; those after which everything runs, if there are any. */
struct moves {
	const char *text[MOVES_SHOWN_MAX];
	uint32_t count;
	bool complete;
};

static void add_move(struct moves *moves, bool complete, const char *text)
{
	if (complete && !moves->complete)
		*moves = (struct moves){.complete = true};
	if (complete == moves->complete && moves->count < MOVES_SHOWN_MAX)
		moves->text[moves->count++] = text;
}

static void help_with_moves(struct search *search, struct pp_message *message)
{
	uint64_t total = 0;
	for (uint32_t rank = 0; rank < search->schedule->ranks; rank++)
		total += search->schedule->rows[rank].count;
	struct moves moves = {.count = 0};
	uint32_t tried = 0;
	/* The row of the first action, where the carets stand, is named first: its step is the last one. */
	for (uint32_t i = search->best_length; i-- > 0 && tried < MOVES_TRIED_MAX;) {
		if (!is_row_step(search, i))
			continue;
		tried++;
		uint32_t later = search->best[i], earlier = next_of(search, i);
		uint64_t ran = run_with_move(search, earlier, later);
		if (ran > total - search->count)
			add_move(&moves, ran == total, move_text(search, earlier, later));
	}
	const char *rest = moves.complete ? "" : "; another cycle follows this one";
	if (moves.count == 1)
		pp_help(message, "%s%s", moves.text[0], rest);
	else if (moves.count == 2)
		pp_help(message, "%s, or %s%s", moves.text[0], moves.text[1], rest);
}

/* ---- the message ----------------------------------------------------------------------------- */

static const char *step_name(const struct search *search, uint32_t i)
{
	if (is_row_step(search, i))
		return "row order";
	return search->action[search->best[i]]->kind == PP_F ? "activation" : "gradient";
}

static const char *path_text(const struct search *search)
{
	uint32_t length = search->best_length;
	uint32_t shown = length > NAMES_MAX ? NAMES_MAX : length;
	const char *text =
	    pp_arena_printf(search->arena, "rank%u.%s", search->rank[search->best[0]], name_of(search, search->best[0]));
	for (uint32_t i = 0; i < shown; i++)
		text = pp_arena_printf(search->arena, "%s -> rank%u.%s (%s)", text, search->rank[next_of(search, i)],
		                       name_of(search, next_of(search, i)), step_name(search, i));
	if (shown < length)
		text = pp_arena_printf(search->arena, "%s -> ... %u more", text, length - shown);
	return text;
}

static void label_rows(const struct search *search, struct pp_message *message)
{
	uint32_t number = 0;
	for (uint32_t i = 0; i < search->best_length && number < LABELS_MAX; i++) {
		if (!is_row_step(search, i))
			continue;
		uint32_t later = search->best[i], earlier = next_of(search, i);
		number++;
		if (!pp_span_known(search->action[later]->span))
			continue;
		if (earlier != search->best[0])
			pp_label(message, search->action[earlier]->span, "%s", "");
		pp_label(message, search->action[later]->span, "(%u) %s is listed after %s", number, name_of(search, later),
		         name_of(search, earlier));
	}
}

void pp_schedule_report_cycle(struct pp_arena *arena, const struct pp_schedule *schedule,
                              const struct pp_chunks *chunks, const uint32_t *position, struct pp_diag *diag)
{
	struct search search = {.arena = arena, .schedule = schedule, .chunks = chunks};
	number_actions(&search, position);
	find_needs(&search);
	find_cycle(&search);
	rotate_cycle(&search);
	struct pp_message *message =
	    pp_error(diag, "E0605", search.action[search.best[0]]->span,
	             "this order can never finish: %u actions wait for each other", search.best_length);
	label_rows(&search, message);
	pp_detail(message, "waits for", "%s", path_text(&search));
	help_with_moves(&search, message);
}
