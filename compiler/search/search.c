/* The search: constructions compete, then the best ones are improved.
 *
 * A problem of many microbatches is first solved for a few times as many as there are ranks; the rules and patterns
 * that did best there repeat, so they are rolled out over all microbatches at a cost linear in their number. */
#include "search.h"

#include "anneal.h"
#include "contest.h"
#include "patterns.h"
#include "starts.h"
#include "tune.h"

#include "compiler/deadline.h"

#include <assert.h>
#include <string.h>

enum {
	PER_ACTION = 120000,     /* actions evaluated by default for each of the problem */
	MOST_EFFORT = 24000000,  /* and for all of them */
	STARTS_EFFORT = 2000000, /* below, constructors that search themselves would take longer than the search */
	WINDOW_ACTIONS = 12000,  /* beyond, a window is solved first */
	MOST_GROUP = 3,          /* microbatches of a pattern */
	MOST_PATTERN_STAGES = 512,
	ROUNDS = 4,      /* of improvement */
	NEAR = 32,       /* from orders that are at most such a part slower than the best */
	MEMORY_STEPS = 6 /* searches for less memory */
};

/* ---- least memory ---------------------------------------------------------------------------- */

/* Room that rank r needs for any order: one microbatch at a time, all its forwards there before the first backward. */
static uint64_t least_room(const struct pp_packed *packed, uint32_t r)
{
	int64_t held = 0, most = 0;
	for (uint32_t i = packed->first_stage[r]; i < packed->first_stage[r + 1]; i++) {
		const struct pp_packed_stage *stage = &packed->stage[packed->stages_of[i]];
		held += stage->take[PP_F];
		int64_t here = held + stage->take[packed->fused ? PP_B : PP_I];
		most = here > most ? here : most;
	}
	return (uint64_t)most;
}

/* False: a rank has less room than that. The report names the one that lacks most, in the form that needs least. */
static bool has_room(const struct pp_packed *packed, struct pp_search_report *report)
{
	uint64_t lacking = 0, needed = 0;
	uint32_t rank = 0;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint64_t least = least_room(packed, r), room = (uint64_t)packed->room[r];
		if (least <= room || least - room <= lacking)
			continue;
		lacking = least - room;
		needed = least;
		rank = r;
	}
	if (lacking &&
	    (report->least_room == 0 || lacking < report->least_room - (uint64_t)packed->room[report->tight_rank])) {
		report->tight_rank = rank;
		report->least_room = needed;
	}
	return lacking == 0;
}

/* One microbatch after the other: fits wherever anything fits. */
static void enter_serial(struct pp_contest *contest)
{
	const struct pp_packed *packed = contest->packed;
	for (uint32_t r = 0; r < packed->ranks; r++) {
		uint32_t at = packed->first[r], begin = packed->first_stage[r], limit = packed->first_stage[r + 1];
		for (uint32_t mb = 0; mb < packed->microbatches; mb++) {
			for (uint32_t i = begin; i < limit; i++)
				contest->order[at++] = pp_action_id(packed, packed->stages_of[i], mb, PP_F);
			for (uint32_t i = limit; i-- > begin;) {
				uint32_t s = packed->stages_of[i];
				contest->order[at++] = pp_action_id(packed, s, mb, packed->fused ? PP_B : PP_I);
				if (!packed->fused)
					contest->order[at++] = pp_action_id(packed, s, mb, PP_W);
			}
		}
	}
	bool fits = pp_contest_enter(contest, "one microbatch at a time");
	assert(fits);
	(void)fits;
}

/* ---- one form of backward -------------------------------------------------------------------- */

struct search {
	const struct pp_order_problem *problem;
	const struct pp_search_options *options;
	struct pp_arena *arena;
	uint64_t effort, deadline;
	bool fused;
};

static struct pp_contest *new_contest(const struct search *s, const struct pp_order_problem *problem, uint64_t *effort)
{
	struct pp_packed *packed = pp_pack(s->arena, problem, s->fused, s->options->objective == PP_SEEK_SPAN);
	if (!packed)
		return NULL;
	if (effort)
		packed->effort = effort;
	struct pp_contest *contest = pp_contest_make(s->arena, packed);
	bool whole = problem->microbatches == s->problem->microbatches, known = whole && !s->fused && s->options->floor;
	if (known || !whole || s->options->brief)
		*(packed->span ? &contest->bounds.span : &contest->bounds.makespan) =
		    known ? s->options->floor : pp_order_bound_value(s->arena, problem, s->fused, packed->span);
	else
		contest->bounds = pp_order_bound(s->arena, problem, s->fused);
	contest->bound = packed->span ? contest->bounds.span : contest->bounds.makespan;
	contest->seed = s->options->seed;
	contest->most = 5 * s->effort;
	contest->deadline = s->deadline;
	return contest;
}

static uint32_t count_near(const struct pp_contest *contest)
{
	uint64_t best = contest->best[0].value;
	uint32_t count = 1;
	while (count < contest->count && contest->best[count].value - best < best / NEAR)
		count++;
	return count;
}

static void improve(struct pp_contest *contest, uint64_t effort)
{
	const struct pp_packed *packed = contest->packed;
	uint64_t begun = *packed->effort, mean = 0;
	for (uint32_t i = 0; i < packed->stages; i++)
		mean += packed->stage[i].ticks[PP_F] / packed->stages;
	for (uint32_t round = 0; round < ROUNDS && !pp_contest_over(contest); round++) {
		const struct pp_entry *from = &contest->best[round % count_near(contest)];
		const char *name = from->name;
		struct pp_arena *scratch = pp_arena_scratch(contest->arena);
		memcpy(contest->order, from->order, packed->actions * sizeof *contest->order);
		struct pp_anneal options = {
		    .seed = contest->seed + round,
		    .until = begun + effort / ROUNDS * (round + 1),
		    .target = contest->bound,
		    .deadline = contest->deadline,
		    .hot = 1.0 * (double)(mean + 1),
		    .cold = 0.01 * (double)(mean + 1),
		};
		pp_anneal(scratch, packed, &options, contest->order);
		pp_arena_destroy(scratch);
		pp_contest_enter(contest, name);
	}
}

struct construction {
	struct pp_tuned pool[PP_TUNE_POOL];
	uint32_t pool_count;
	struct pp_pattern pattern;
	uint64_t pattern_value;
};

static void try_all_patterns(const struct search *s, struct pp_contest *contest, struct construction *made)
{
	if (s->options->brief)
		return;
	made->pattern_value = contest->count ? contest->best[0].value : UINT64_MAX;
	for (uint32_t group = 1; group <= MOST_GROUP && contest->packed->stages <= MOST_PATTERN_STAGES; group++)
		pp_try_patterns(contest, group, &made->pattern, &made->pattern_value);
}

/* The same stages with fewer microbatches. NULL: that would be no fewer. */
static struct pp_contest *window_of(const struct search *s, struct pp_contest *contest, uint32_t microbatches)
{
	struct pp_order_problem window = *s->problem;
	window.microbatches = microbatches;
	return microbatches < s->problem->microbatches ? new_contest(s, &window, contest->packed->effort) : NULL;
}

/* Rules are tuned on as few microbatches as show how it repeats, then on all of them. */
static void construct(const struct search *s, struct pp_contest *contest, struct construction *made)
{
	struct pp_contest *small = window_of(s, contest, 2 * s->problem->ranks);
	if (small)
		made->pool_count = pp_tune(small, s->effort, made->pool, 0);
	made->pool_count = pp_tune(contest, s->effort * (small ? 1 : 2), made->pool, made->pool_count);
	try_all_patterns(s, contest, made);
}

/* Too many actions to try much on: what a window teaches is rolled out once. */
static void construct_by_window(const struct search *s, struct pp_contest *contest, struct construction *made)
{
	uint32_t most = WINDOW_ACTIONS / 3 / s->problem->stages, ranks = 3 * s->problem->ranks;
	struct pp_contest *small = window_of(s, contest, most > ranks ? most : ranks);
	if (!small) {
		construct(s, contest, made);
		return;
	}
	made->pool_count = pp_tune(small, s->effort * 4, made->pool, 0);
	try_all_patterns(s, small, made);
	for (uint32_t i = 0; i < made->pool_count && contest->best[0].value > contest->bound; i++)
		pp_tune_apply(contest, &made->pool[i].rule);
	if (made->pattern.period && contest->best[0].value > contest->bound)
		pp_pattern_enter(contest, &made->pattern);
}

static void enter_rows(struct pp_contest *contest, const struct pp_row *rows, const char *name)
{
	if (pp_packed_read(contest->packed, rows, contest->order))
		pp_contest_enter(contest, name);
}

static void enter_starts(const struct search *s, struct pp_contest *contest)
{
	const struct pp_search_options *options = s->options;
	if (options->start) {
		enter_rows(contest, options->start, options->start_name);
		return;
	}
	for (uint32_t i = 0; i < options->more_count; i++)
		enter_rows(contest, options->more[i].rows, options->more[i].name);
	if (contest->most >= STARTS_EFFORT)
		pp_search_starts(contest, s->problem, options->brief);
}

static struct pp_contest *solve(const struct search *s, struct pp_search_report *report)
{
	struct pp_contest *contest = new_contest(s, s->problem, NULL);
	struct construction made = {0};
	if (!contest || !has_room(contest->packed, report))
		return NULL;
	enter_serial(contest);
	enter_starts(s, contest);
	if (s->options->start && contest->count > 1)
		improve(contest, s->effort * 3);
	else if (contest->packed->actions > WINDOW_ACTIONS)
		construct_by_window(s, contest, &made);
	else
		construct(s, contest, &made);
	if (contest->packed->actions <= WINDOW_ACTIONS)
		improve(contest, s->effort * 3);
	return contest;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Small problems are done within tens of milliseconds, large ones within about a second. */
static uint64_t default_effort(const struct pp_order_problem *problem, bool fused)
{
	uint64_t actions = (uint64_t)problem->stages * problem->microbatches * (fused ? 2 : 3);
	return actions < MOST_EFFORT / PER_ACTION ? actions * PER_ACTION : MOST_EFFORT;
}

/* Whether some backward in one piece takes less time, or less memory, than in two. */
static bool may_gain_fused(const struct pp_order_problem *problem)
{
	for (uint32_t i = 0; i < problem->stages; i++) {
		const struct pp_order_stage *stage = &problem->stage[i];
		if (stage->ticks[PP_B] < stage->ticks[PP_I] + stage->ticks[PP_W] || stage->more_fused < stage->more_split)
			return true;
	}
	return false;
}

static const char *keep_text(struct pp_arena *arena, const char *text)
{
	return text ? pp_arena_printf(arena, "%s", text) : NULL;
}

/* Its words live no longer than the search. */
static struct pp_order_bound keep_bound(struct pp_arena *arena, const struct pp_order_bound *bound)
{
	struct pp_order_bound kept = *bound;
	kept.makespan_term = keep_text(arena, bound->makespan_term);
	kept.span_term = keep_text(arena, bound->span_term);
	return kept;
}

/* Under the rooms of the problem, by both forms of backward where both may gain. */
static bool seek(struct pp_arena *arena, struct search *s, struct pp_row *rows, struct pp_search_report *report)
{
	bool forms[] = {false, true};
	report->value = UINT64_MAX;
	for (unsigned i = 0; i < 2; i++) {
		s->fused = forms[i];
		if (s->fused ? !s->options->fused && !may_gain_fused(s->problem) : s->options->fused)
			continue;
		s->arena = pp_arena_scratch(arena);
		struct pp_contest *contest = solve(s, report);
		if (contest)
			report->effort += *contest->packed->effort;
		if (contest && s->fused != s->options->fused) /* its bound is of one form of backward only */
			contest->bounds = pp_order_bound(s->arena, s->problem, s->options->fused);
		uint64_t bound = !contest ? 0 : contest->packed->span ? contest->bounds.span : contest->bounds.makespan;
		if (contest && contest->best[0].value < report->value) {
			report->value = contest->best[0].value;
			report->start = contest->best[0].name;
			report->bound = keep_bound(arena, &contest->bounds);
			report->stopped = contest->best[0].value <= bound ? "optimal" : contest->late ? "timeout" : "effort";
			pp_packed_write(arena, contest->packed, contest->best[0].order, rows);
		}
		pp_arena_destroy(s->arena);
	}
	return report->value != UINT64_MAX;
}

/* Peaks of rows: what memory the next search may do with less of. */
static bool peaks_of(struct pp_arena *scratch, const struct pp_order_problem *problem, const struct pp_row *rows,
                     uint64_t *peak)
{
	struct pp_order_times times;
	if (!pp_order_run(scratch, problem, rows, false, &times))
		return false;
	for (uint32_t r = 0; r < problem->ranks; r++)
		peak[r] = times.rank[r].peak;
	return true;
}

/* Halve what the fullest rank may hold, between nothing and what the fastest order takes, and keep what is fast enough.
 */
static void spare_memory(struct pp_arena *arena, struct search *s, struct pp_row *rows, struct pp_search_report *report)
{
	const struct pp_order_problem *whole = s->problem;
	struct pp_order_problem tight = *whole;
	uint32_t ranks = whole->ranks;
	uint64_t limit = report->value + report->value / 100 * PP_MEMORY_PERCENT;
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, ranks), *peak = PP_NEW_ARRAY(arena, uint64_t, ranks);
	struct pp_row *trial = PP_NEW_ARRAY(arena, struct pp_row, ranks);
	if (!peaks_of(arena, whole, rows, peak))
		return;
	uint64_t most = 0;
	for (uint32_t r = 0; r < ranks; r++)
		most = peak[r] > most ? peak[r] : most;
	report->held = report->held_fastest = most;
	tight.room = room;
	s->problem = &tight;
	s->effort /= 4;
	for (uint64_t low = 0, high = most, step = 0; step < MEMORY_STEPS && high - low > most / 64; step++) {
		uint64_t middle = low + (high - low) / 2;
		struct pp_search_report found = {0};
		for (uint32_t r = 0; r < ranks; r++)
			room[r] = middle < whole->room[r] ? middle : whole->room[r];
		bool ok = seek(arena, s, trial, &found) && found.value <= limit;
		report->effort += found.effort;
		if (!ok) {
			low = middle;
			continue;
		}
		peaks_of(arena, &tight, trial, peak);
		high = 0;
		for (uint32_t r = 0; r < ranks; r++)
			high = peak[r] > high ? peak[r] : high;
		memcpy(rows, trial, ranks * sizeof *rows);
		found.effort = report->effort;
		found.held = high;
		found.held_fastest = most;
		*report = found;
	}
	s->problem = whole;
}

bool pp_search(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_search_options *options,
               struct pp_row *rows, struct pp_search_report *report)
{
	struct search s = {.problem = problem, .options = options};
	/* Of it a fifth each for rules on a window and rules on the whole, and three fifths for improvement. */
	s.effort = (options->effort ? options->effort : default_effort(problem, options->fused)) / 5 + 1;
	if (options->brief)
		s.effort /= 16;
	s.deadline = options->deadline ? options->deadline : options->timeout ? pp_now() + options->timeout : 0;
	*report = (struct pp_search_report){.stopped = "effort"};
	if (!seek(arena, &s, rows, report))
		return false;
	if (options->objective == PP_SEEK_MEMORY)
		spare_memory(arena, &s, rows, report);
	return true;
}
