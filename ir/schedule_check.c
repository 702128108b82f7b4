/* Check a schedule before it is lowered.
 * requires: a schedule whose rows and stage_rank are filled in; every stage_rank in range, every kind an enumerator.
 * ensures:  true only if each (stage, mb) has one F and either one B or one I and one W on the stage's rank, in an
 *           order that its own row allows, and rows and data flow together are acyclic. O(actions). */
#include "schedule_order.h"

#include <assert.h>
#include <inttypes.h>

static const char letters[PP_ACTION_KINDS] = {'F', 'B', 'I', 'W'};

enum {
	SEEN_F = 1 << PP_F,
	SEEN_B = 1 << PP_B,
	SEEN_I = 1 << PP_I,
	SEEN_W = 1 << PP_W,
	SEEN_BACKWARD = SEEN_B | SEEN_I
};

enum { MOST_MISSING = 64 }; /* a table of so many more is made to name a missing action */

static struct pp_chunks number_chunks(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	struct pp_chunks chunks = {
	    .chunk = PP_NEW_ARRAY(arena, uint32_t, schedule->stages),
	    .stages = PP_NEW_ARRAY(arena, uint32_t, schedule->ranks),
	};
	for (uint32_t stage = 0; stage < schedule->stages; stage++)
		chunks.chunk[stage] = chunks.stages[schedule->stage_rank[stage]]++;
	return chunks;
}

const char *pp_action_name(struct pp_arena *arena, const struct pp_chunks *chunks, const struct pp_schedule *schedule,
                           const struct pp_action *action)
{
	char letter = letters[action->kind];
	if (schedule->by_stage)
		return pp_arena_printf(arena, "%u%c%u", action->stage, letter, action->mb);
	if (chunks->stages[schedule->stage_rank[action->stage]] == 1)
		return pp_arena_printf(arena, "%c%u", letter, action->mb);
	return pp_arena_printf(arena, "%c%u.%u", letter, action->mb, chunks->chunk[action->stage]);
}

/* ---- each action is on its rank and in range ------------------------------------------------- */

static bool check_action_place(const struct pp_schedule *schedule, uint32_t rank, const struct pp_action *action,
                               struct pp_diag *diag)
{
	assert(action->kind < PP_ACTION_KINDS);
	char letter = letters[action->kind];
	if (action->stage >= schedule->stages) {
		struct pp_message *m = pp_error(diag, "E0609", action->span, "rank %u: action `%u%c%u`: there is no stage %u",
		                                rank, action->stage, letter, action->mb, action->stage);
		pp_help(m, "stages are 0..%u", schedule->stages - 1);
		return false;
	}
	uint32_t home = schedule->stage_rank[action->stage];
	if (home != rank) {
		struct pp_message *m = pp_error(diag, "E0609", action->span, "rank %u: action `%u%c%u`: stage %u is on rank %u",
		                                rank, action->stage, letter, action->mb, action->stage, home);
		pp_help(m, "move the action to the row of rank %u, or place stage %u on rank %u", home, action->stage, rank);
		return false;
	}
	if (action->mb >= schedule->microbatches) {
		struct pp_message *m = pp_error(diag, "E0603", action->span, "rank %u: `%c%u`: there is no microbatch %u", rank,
		                                letter, action->mb, action->mb);
		pp_help(m, "microbatches are 0..%u (m = %u)", schedule->microbatches - 1, schedule->microbatches);
		return false;
	}
	return true;
}

/* Pairs are two actions of a row, of different microbatches or stages, that do not share gradients. */
static bool check_pair(const struct pp_row *row, uint32_t rank, uint32_t at, struct pp_diag *diag)
{
	const struct pp_action *action = &row->actions[at];
	if (!action->paired)
		return true;
	const char *wrong = at + 1 == row->count ? "there is no action after it"
	                    : action[1].paired   ? "only two actions can overlap"
	                    : action->stage == action[1].stage && action->mb == action[1].mb
	                        ? "both are of one microbatch in one stage"
	                    : action->stage == action[1].stage && action->kind != PP_F && action[1].kind != PP_F
	                        ? "both work on the gradients of one stage"
	                        : NULL;
	if (!wrong)
		return true;
	pp_error(diag, "E0624", action->span, "rank %u: `%u%c%u` can't overlap with the next action: %s", rank,
	         action->stage, letters[action->kind], action->mb, wrong);
	return false;
}

static bool check_places(const struct pp_schedule *schedule, struct pp_diag *diag)
{
	bool ok = true;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		const struct pp_row *row = &schedule->rows[rank];
		bool row_ok = true; /* one message a row: the rest is usually the same slip */
		for (uint32_t i = 0; i < row->count && row_ok; i++)
			row_ok = check_action_place(schedule, rank, &row->actions[i], diag) && check_pair(row, rank, i, diag);
		ok &= row_ok;
	}
	return ok;
}

/* ---- one row --------------------------------------------------------------------------------- */

/* What is known of one row while it is checked. */
struct row_check {
	struct pp_arena *arena;
	const struct pp_schedule *schedule;
	const struct pp_chunks *chunks;
	struct pp_diag *diag;
	uint32_t rank;
	const struct pp_row *row;
	uint64_t counts[PP_ACTION_KINDS];
	uint64_t wanted; /* forwards, and backwards */
	uint8_t *seen;   /* [chunks * microbatches] masks, by chunk, then microbatch */
};

static const char *name_of(const struct row_check *check, const struct pp_action *action)
{
	return pp_action_name(check->arena, check->chunks, check->schedule, action);
}

static uint64_t seen_at(const struct row_check *check, const struct pp_action *action)
{
	return (uint64_t)check->chunks->chunk[action->stage] * check->schedule->microbatches + action->mb;
}

static struct pp_span last_span(const struct row_check *check, uint32_t kinds)
{
	const struct pp_row *row = check->row;
	for (uint32_t i = row->count; i-- > 0;)
		if (kinds & 1u << row->actions[i].kind)
			return row->actions[i].span;
	return row->count ? row->actions[row->count - 1].span : PP_NO_SPAN;
}

/* ---- exactly once, in an order that the row allows ------------------------------------------- */

static const struct pp_action *find_earlier(const struct row_check *check, const struct pp_action *before,
                                            uint32_t kinds)
{
	for (const struct pp_action *at = check->row->actions; at < before; at++)
		if (at->stage == before->stage && at->mb == before->mb && (kinds & 1u << at->kind))
			return at;
	return NULL;
}

static const struct pp_action *find_later(const struct row_check *check, const struct pp_action *after, uint32_t kinds)
{
	const struct pp_action *end = check->row->actions + check->row->count;
	for (const struct pp_action *at = after + 1; at < end; at++)
		if (at->stage == after->stage && at->mb == after->mb && (kinds & 1u << at->kind))
			return at;
	return NULL;
}

static uint32_t stage_of(const struct row_check *check, uint32_t chunk)
{
	uint32_t stage = 0;
	while (check->schedule->stage_rank[stage] != check->rank || check->chunks->chunk[stage] != chunk)
		stage++;
	return stage;
}

/* Name an action of this class that the row lacks, if it lacks one. */
static void note_missing(const struct row_check *check, struct pp_message *message, uint32_t kinds,
                         enum pp_action_kind kind)
{
	uint32_t m = check->schedule->microbatches;
	for (const struct pp_action *at = check->row->actions; at < check->row->actions + check->row->count; at++)
		check->seen[seen_at(check, at)] |= (uint8_t)(1u << at->kind);
	for (uint64_t i = 0; i < check->wanted; i++) {
		if (check->seen[i] & kinds)
			continue;
		struct pp_action missing = {
		    .stage = stage_of(check, (uint32_t)(i / m)), .mb = (uint32_t)(i % m), .kind = (uint8_t)kind};
		pp_note(message, "`%s` is not listed", name_of(check, &missing));
		return;
	}
}

static bool report_twice(const struct row_check *check, const struct pp_action *action, uint32_t kinds)
{
	const struct pp_action *first = find_earlier(check, action, kinds);
	assert(first);
	struct pp_message *m;
	if (first->kind == action->kind)
		m = pp_error(check->diag, "E0603", action->span, "rank %u: `%s` is listed twice", check->rank,
		             name_of(check, action));
	else
		m = pp_error(check->diag, "E0603", action->span, "rank %u: `%s` repeats the input gradient of `%s`",
		             check->rank, name_of(check, action), name_of(check, first));
	if (pp_span_known(first->span))
		pp_label(m, first->span, "first listed here");
	note_missing(check, m, kinds, action->kind == PP_I ? PP_B : (enum pp_action_kind)action->kind);
	if (check->schedule->by_stage)
		pp_help(m, "each action stands once: remove or renumber one");
	return false;
}

static bool report_early(const struct row_check *check, const struct pp_action *action, uint32_t wanted_kind)
{
	const struct pp_action *later = find_later(check, action, wanted_kind);
	if (!later) {
		struct pp_action missing = *action;
		missing.kind = wanted_kind == SEEN_I ? PP_I : PP_F;
		pp_error(check->diag, "E0603", action->span, "rank %u: `%s` has no `%s`", check->rank, name_of(check, action),
		         name_of(check, &missing));
		return false;
	}
	struct pp_message *m = pp_error(check->diag, "E0606", action->span, "rank %u: `%s` comes before `%s`", check->rank,
	                                name_of(check, action), name_of(check, later));
	if (pp_span_known(later->span))
		pp_label(m, later->span, "`%s` is listed here", name_of(check, later));
	pp_help(m, "move `%s` behind `%s`", name_of(check, action), name_of(check, later));
	return false;
}

static bool check_once(const struct row_check *check)
{
	for (uint32_t i = 0; i < check->row->count; i++) {
		const struct pp_action *action = &check->row->actions[i];
		uint8_t *seen = &check->seen[seen_at(check, action)];
		uint32_t mask = 1u << action->kind;
		uint32_t same = mask & SEEN_BACKWARD ? SEEN_BACKWARD : mask;
		if (*seen & same)
			return report_twice(check, action, same);
		if ((mask & SEEN_BACKWARD) && !(*seen & SEEN_F))
			return report_early(check, action, SEEN_F);
		if (action->kind == PP_W && !(*seen & SEEN_I))
			return report_early(check, action, SEEN_I);
		*seen |= (uint8_t)mask;
	}
	return true;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static const char *wanted_text(const struct row_check *check)
{
	uint32_t chunks = check->chunks->stages[check->rank], m = check->schedule->microbatches;
	if (chunks == 1)
		return pp_arena_printf(check->arena, "m = %u", m);
	return pp_arena_printf(check->arena, "%u chunks x m = %" PRIu64, chunks, check->wanted);
}

/* Report a wrong count. Where actions carry their numbers, say which one is missing, or doubled. False. */
static bool numbers_differ(struct row_check *check, uint32_t kinds, enum pp_action_kind kind, uint64_t count,
                           const char *letter)
{
	bool named = check->schedule->by_stage && check->wanted <= 4 * (uint64_t)check->row->count + MOST_MISSING;
	if (named)
		check->seen = PP_NEW_ARRAY(check->arena, uint8_t, check->wanted);
	if (named && count > check->wanted && !check_once(check))
		return false;
	struct pp_message *m =
	    pp_error(check->diag, "E0603", last_span(check, kinds), "rank %u: %s count is %" PRIu64 ", wanted %s",
	             check->rank, letter, count, wanted_text(check));
	if (named)
		note_missing(check, m, kinds, kind);
	if (check->schedule->by_stage)
		pp_help(m, "every stage has each of the microbatches 0..%u once: %u is the largest in the file",
		        check->schedule->microbatches - 1, check->schedule->microbatches - 1);
	return false;
}

static bool check_counts(struct row_check *check)
{
	const uint64_t *counts = check->counts;
	if (counts[PP_F] != check->wanted)
		return numbers_differ(check, SEEN_F, PP_F, counts[PP_F], "`F`");
	uint64_t backwards = counts[PP_B] + counts[PP_I];
	const char *letter = !counts[PP_I] ? "`B`" : !counts[PP_B] ? "`I`" : "`B` + `I`";
	if (backwards != check->wanted)
		return numbers_differ(check, SEEN_BACKWARD, counts[PP_B] ? PP_B : PP_I, backwards, letter);
	if (counts[PP_W] != counts[PP_I]) {
		struct pp_message *m = pp_error(check->diag, "E0603", last_span(check, SEEN_W),
		                                "rank %u: `W` count is %" PRIu64 ", wanted %" PRIu64 ", one for each `I`",
		                                check->rank, counts[PP_W], counts[PP_I]);
		pp_help(m, "`B` is the whole backward; `I` leaves the weight gradient to a later `W`");
		return false;
	}
	return true;
}

static bool check_row(struct row_check *check)
{
	for (uint32_t i = 0; i < check->row->count; i++)
		check->counts[check->row->actions[i].kind]++;
	check->wanted = (uint64_t)check->chunks->stages[check->rank] * check->schedule->microbatches;
	if (!check_counts(check))
		return false;
	/* The counts bound this table by the length of the row. */
	check->seen = PP_NEW_ARRAY(check->arena, uint8_t, check->wanted);
	return check_once(check);
}

static bool check_rows(struct pp_arena *arena, const struct pp_schedule *schedule, const struct pp_chunks *chunks,
                       struct pp_diag *diag)
{
	bool ok = true;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		struct row_check check = {.arena = arena,
		                          .schedule = schedule,
		                          .chunks = chunks,
		                          .diag = diag,
		                          .rank = rank,
		                          .row = &schedule->rows[rank]};
		ok &= check_row(&check);
	}
	return ok;
}

/* ---- acyclic --------------------------------------------------------------------------------- */

bool pp_action_needs(const struct pp_schedule *schedule, const struct pp_action *action, uint32_t *stage, bool *forward)
{
	*forward = action->kind == PP_F;
	if (action->kind == PP_W)
		return false;
	if (*forward ? action->stage == 0 : action->stage + 1 == schedule->stages)
		return false;
	*stage = *forward ? action->stage - 1 : action->stage + 1;
	return true;
}

struct run {
	const struct pp_schedule *schedule;
	uint8_t *done; /* [stages * microbatches]: SEEN_F, SEEN_BACKWARD */
	uint32_t *position;
	uint32_t *ready; /* stack of ranks to look at */
	uint32_t ready_count;
	bool *queued;
	bool together; /* actions that overlap begin together */
};

static void wake(struct run *run, uint32_t rank)
{
	if (run->queued[rank])
		return;
	run->queued[rank] = true;
	run->ready[run->ready_count++] = rank;
}

static uint8_t *done_at(const struct run *run, uint32_t stage, uint32_t mb)
{
	return &run->done[(uint64_t)stage * run->schedule->microbatches + mb];
}

static bool can_run(const struct run *run, const struct pp_action *action)
{
	uint32_t stage;
	bool forward;
	if (!pp_action_needs(run->schedule, action, &stage, &forward))
		return true;
	return *done_at(run, stage, action->mb) & (forward ? SEEN_F : SEEN_BACKWARD);
}

static void finish(struct run *run, const struct pp_action *action)
{
	const struct pp_schedule *schedule = run->schedule;
	*done_at(run, action->stage, action->mb) |= (uint8_t)(1u << action->kind);
	if (action->kind == PP_F && action->stage + 1 < schedule->stages)
		wake(run, schedule->stage_rank[action->stage + 1]);
	if ((action->kind == PP_B || action->kind == PP_I) && action->stage > 0)
		wake(run, schedule->stage_rank[action->stage - 1]);
}

static uint64_t run_row(struct run *run, uint32_t rank)
{
	const struct pp_row *row = &run->schedule->rows[rank];
	uint64_t ran = 0;
	while (run->position[rank] < row->count) {
		const struct pp_action *action = &row->actions[run->position[rank]];
		if (!can_run(run, action) || (run->together && action->paired && !can_run(run, action + 1)))
			break;
		finish(run, action);
		run->position[rank]++;
		ran++;
	}
	return ran;
}

uint64_t pp_schedule_run(struct pp_arena *arena, const struct pp_schedule *schedule, bool together, uint32_t *position)
{
	struct run run = {
	    .schedule = schedule,
	    .done = PP_NEW_ARRAY(arena, uint8_t, (uint64_t)schedule->stages * schedule->microbatches),
	    .position = position,
	    .ready = PP_NEW_ARRAY(arena, uint32_t, schedule->ranks),
	    .queued = PP_NEW_ARRAY(arena, bool, schedule->ranks),
	    .together = together,
	};
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		position[rank] = 0;
		wake(&run, rank);
	}
	uint64_t ran = 0;
	while (run.ready_count) {
		uint32_t rank = run.ready[--run.ready_count];
		run.queued[rank] = false;
		ran += run_row(&run, rank);
	}
	return ran;
}

static bool has_pairs(const struct pp_schedule *schedule)
{
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		for (uint32_t i = 0; i < schedule->rows[rank].count; i++)
			if (schedule->rows[rank].actions[i].paired)
				return true;
	return false;
}

/* In turn all actions can run, together those of a pair cannot: its second half needs what its first half leads to, or
 * pairs of several ranks wait for each other. */
static void report_pair(struct pp_arena *arena, const struct pp_schedule *schedule, const struct pp_chunks *chunks,
                        const uint32_t *position, struct pp_diag *diag)
{
	uint32_t rank = 0;
	while (position[rank] == schedule->rows[rank].count || !schedule->rows[rank].actions[position[rank]].paired)
		rank++;
	const struct pp_action *first = &schedule->rows[rank].actions[position[rank]];
	struct pp_message *m =
	    pp_error(diag, "E0624", first->span, "rank %u: `%s&%s` can never begin", rank,
	             pp_action_name(arena, chunks, schedule, first), pp_action_name(arena, chunks, schedule, first + 1));
	pp_note(m, "actions that overlap begin when the inputs of both are there, and one of them waits for the other");
	pp_help(m, "write one after the other, without `&`");
}

static bool check_acyclic(struct pp_arena *arena, const struct pp_schedule *schedule, const struct pp_chunks *chunks,
                          struct pp_diag *diag)
{
	uint64_t actions = 0;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		actions += schedule->rows[rank].count;
	uint32_t *position = PP_NEW_ARRAY(arena, uint32_t, schedule->ranks);
	if (pp_schedule_run(arena, schedule, false, position) != actions) {
		pp_schedule_report_cycle(arena, schedule, chunks, position, diag);
		return false;
	}
	if (!has_pairs(schedule) || pp_schedule_run(arena, schedule, true, position) == actions)
		return true;
	report_pair(arena, schedule, chunks, position, diag);
	return false;
}

bool pp_schedule_check(struct pp_arena *arena, const struct pp_schedule *schedule, struct pp_diag *diag)
{
	assert(schedule->ranks > 0 && schedule->stages > 0 && schedule->microbatches > 0);
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_chunks chunks = number_chunks(scratch, schedule);
	bool ok = check_places(schedule, diag) && check_rows(scratch, schedule, &chunks, diag) &&
	          check_acyclic(scratch, schedule, &chunks, diag);
	pp_arena_destroy(scratch);
	return ok;
}
