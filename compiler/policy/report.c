/* Messages about a policy's run. */
#include "report.h"

#include "ir/figures.h"

#include <inttypes.h>
#include <string.h>

static const char letters[] = "FBIW";

/* "F", or "F.1" on a rank with several chunks. */
static const char *title_of(struct pp_arena *arena, const struct pp_list_rank *rank, uint32_t kind, uint32_t chunk)
{
	return rank->chunks > 1 ? pp_arena_printf(arena, "%c.%" PRIu32, letters[kind], chunk)
	                        : pp_arena_printf(arena, "%c", letters[kind]);
}

/* ---- rules without effect -------------------------------------------------------------------- */

static void warn(const struct pp_rules *rules, const char *code, struct pp_span span, const char *text,
                 const char *help)
{
	if (!pp_diag_said(rules->diag, code, span)) /* a schedule may be made again for another split */
		pp_help(pp_warning(rules->diag, code, span, "%s", text), "%s", help);
}

static void warn_of_preference(const struct pp_rules *rules, const struct pp_preference *preference)
{
	if (preference->chosen == 0) {
		warn(rules, "W0631", preference->stmt->span, "the turn of this `prefer` never comes",
		     "the first line whose `when` holds counts; a line without `when` always holds");
		return;
	}
	for (uint32_t i = 0; i < preference->count; i++)
		if (preference->alternatives[i].taken == 0)
			warn(rules, "W0632", preference->alternatives[i].action->span, "this line never takes this action",
			     "leave it out, or put it before what is taken in its place");
}

void pp_rules_warn(const struct pp_rules *rules)
{
	for (size_t i = 0; i < rules->limit_count; i++)
		if (rules->limits[i].held == 0)
			warn(rules, "W0630", rules->limits[i].stmt->span, "this limit never holds anything back",
			     "leave it out, or make it tighter");
	for (size_t i = 0; i < rules->preference_count; i++)
		warn_of_preference(rules, &rules->preferences[i]);
}

/* ---- ties ------------------------------------------------------------------------------------ */

static const char *tie_line(struct pp_arena *arena, const struct pp_alternative *alternative,
                            const struct pp_rows_input *input, const struct pp_list *list)
{
	const struct pp_source *source = pp_sources_find(input->sources, alternative->action->span.start);
	struct pp_position at = {0};
	if (source)
		at = pp_source_position(source, alternative->action->span.start);
	struct pp_time_unit unit = pp_time_unit_for(pp_list_time(list));
	return pp_arena_printf(
	    arena,
	    "%s:%u:%u: `%s`: several chunks were ready %" PRIu64 " time%s; first on rank %" PRIu32 " at %s%s: %s of "
	    "microbatch %" PRIu32 " was taken\n",
	    source ? source->name : "?", at.line, at.column, alternative->action->name, alternative->ties,
	    alternative->ties == 1 ? "" : "s", alternative->tie_rank, pp_show_time(arena, alternative->tie_time, unit),
	    unit.name,
	    title_of(arena, pp_list_rank_of(list, alternative->tie_rank), alternative->kind, alternative->tie_chunk),
	    alternative->tie_mb);
}

const char *pp_rules_remarks(struct pp_arena *arena, const struct pp_rules *rules, const struct pp_rows_input *input,
                             const struct pp_list *list)
{
	const char *text = NULL;
	for (size_t i = 0; i < rules->preference_count; i++)
		for (uint32_t k = 0; k < rules->preferences[i].count; k++) {
			const struct pp_alternative *alternative = &rules->preferences[i].alternatives[k];
			if (alternative->ties > 0)
				text = pp_arena_printf(arena, "%s%s", text ? text : "", tie_line(arena, alternative, input, list));
		}
	return text;
}

/* ---- stuck ----------------------------------------------------------------------------------- */

/* A ready action and what holds it back. */
struct held {
	uint32_t rank;
	struct pp_list_candidate candidate;
	struct pp_limit *limit;           /* NULL: the room, or nothing lists it */
	const struct pp_preference *turn; /* the line that counted; NULL: none held */
	bool unlisted;
};

/* A limit says most, then the room, then that nothing lists it; and the oldest microbatch is what others wait for. */
static bool says_more(const struct held *a, const struct held *b)
{
	unsigned weight_a = a->limit ? 2 : !a->unlisted, weight_b = b->limit ? 2 : !b->unlisted;
	return weight_a != weight_b ? weight_a > weight_b : a->candidate.mb < b->candidate.mb;
}

enum { MOST_LISTED = 4 };

struct stuck {
	struct held worst;
	bool found;
	const char *others; /* of other ranks, for a note */
	unsigned other_count;
};

static void look_at_rank(struct pp_arena *arena, struct pp_rules *rules, struct pp_list *list, uint32_t r,
                         struct stuck *stuck)
{
	const struct pp_list_candidate *ready;
	const struct pp_list_rank *rank = pp_list_rank_of(list, r);
	uint32_t count = pp_list_ready(list, r, &ready);
	for (uint32_t i = 0; i < count; i++) {
		struct held held = {.rank = r, .candidate = ready[i]};
		if (!pp_rules_blame(rules, rank, &ready[i], &held.limit, &held.turn, &held.unlisted))
			continue;
		if (stuck->other_count++ < MOST_LISTED)
			stuck->others = pp_arena_printf(arena, "%s%srank %" PRIu32 ": %s of microbatch %" PRIu32, stuck->others,
			                                stuck->other_count > 1 ? "; " : "", r,
			                                title_of(arena, rank, ready[i].kind, ready[i].chunk), ready[i].mb);
		if (!stuck->found || says_more(&held, &stuck->worst))
			stuck->worst = held;
		stuck->found = true;
	}
}

static struct pp_message *report_limit(struct pp_arena *arena, struct pp_rules *rules,
                                       const struct pp_rows_input *input, const struct held *held,
                                       const struct pp_list_rank *rank, const char *what)
{
	const struct pp_limit *limit = held->limit;
	struct pp_message *message =
	    pp_error(rules->diag, "E0630", limit->stmt->span, "%s, and this limit holds it back", what);
	struct pp_counters after = pp_counters_after(rank, &held->candidate);
	struct pp_diag *unseen = pp_diag_create(arena, input->sources);
	struct pp_datum sides[2];
	for (int i = 0; i < 2; i++)
		if (!limit->sides[i].expr ||
		    !pp_machine_value(rules->machine, arena, &limit->sides[i], &after, unseen, &sides[i]))
			return message;
	pp_caret(message, "after it: %s on the left, %s on the right", pp_datum_text(arena, &sides[0]),
	         pp_datum_text(arena, &sides[1]));
	return message;
}

static struct pp_message *report_other(struct pp_arena *arena, struct pp_rules *rules,
                                       const struct pp_rows_input *input, const struct held *held, const char *what)
{
	if (!held->unlisted)
		return pp_error(rules->diag, "E0630", input->room_place, "%s, and takes %s more than the room for stashes",
		                what, pp_show_bytes(arena, held->candidate.over));
	const struct pp_stmt *last = rules->preferences[rules->preference_count - 1].stmt;
	if (!held->turn)
		return pp_error(rules->diag, "E0630", last->span, "%s, and no `prefer` holds now", what);
	return pp_error(rules->diag, "E0630", held->turn->stmt->span,
	                "%s, and this `prefer`, whose turn it is, does not take it", what);
}

/* Only the first line whose `when` holds counts: lines behind it change nothing. */
static void help_unlisted(struct pp_message *message, const struct held *held, const char *title)
{
	if (!held->turn)
		pp_help(message, "add `prefer %s` without `when` as the last line", title);
	else if (held->turn->when.expr)
		pp_help(message, "add `> %s` to this line, or let its `when` not hold here: lines behind it do not count now",
		        title);
	else
		pp_help(message, "add `> %s` to this line", title);
}

static const char *done_text(struct pp_arena *arena, const struct pp_list_rank *rank)
{
	const char *text = "";
	for (uint32_t kind = 0; kind < PP_ACTION_KINDS; kind++)
		for (uint32_t chunk = 0; rank->done[kind] > 0 && chunk < rank->chunks && chunk < MOST_LISTED; chunk++)
			text = pp_arena_printf(arena, "%s%s%s %" PRIu32, text, *text ? ", " : "",
			                       title_of(arena, rank, kind, chunk), rank->chunk[chunk][kind]);
	return *text ? text : "nothing";
}

static bool held_by_room(const struct held *held)
{
	return !held->limit && !held->unlisted;
}

static struct stuck look_at_ranks(struct pp_arena *arena, struct pp_rules *rules, struct pp_list *list, uint32_t ranks)
{
	struct stuck stuck = {.others = ""};
	for (uint32_t r = 0; r < ranks; r++)
		look_at_rank(arena, rules, list, r, &stuck);
	return stuck;
}

/* `note`: said besides, or NULL. */
static void report(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                   struct pp_list *list, const struct stuck *stuck, const char *note, const struct pp_advice *advice)
{
	const struct held *held = &stuck->worst;
	const struct pp_list_rank *rank = pp_list_rank_of(list, held->rank);
	const char *title = title_of(arena, rank, held->candidate.kind, held->candidate.chunk);
	const char *what = pp_arena_printf(
	    arena, "`%s` is stuck at %s: rank %" PRIu32 " has %s of microbatch %" PRIu32 " ready", input->name,
	    pp_show_duration(arena, pp_list_time(list)), held->rank, title, held->candidate.mb);
	struct pp_message *message = held->limit ? report_limit(arena, rules, input, held, rank, what)
	                                         : report_other(arena, rules, input, held, what);
	pp_note(message, "done on rank %" PRIu32 ": %s", held->rank, done_text(arena, rank));
	if (stuck->other_count > 1)
		pp_note(message, "ready and held back: %s%s", stuck->others, stuck->other_count > MOST_LISTED ? "; …" : "");
	if (note)
		pp_note(message, "%s", note);
	if (held->unlisted)
		help_unlisted(message, held, title);
	else if (advice && advice->count == 0 && held->limit)
		pp_help(message, "no change of this limit alone was found to let it finish");
	for (unsigned i = 0; advice && i < advice->count; i++)
		pp_help(message, "%s", advice->lines[i]);
}

static struct pp_advice advise_on(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                                  const struct pp_order_problem *problem, struct pp_list *list, const struct held *held)
{
	if (held->unlisted)
		return (struct pp_advice){0};
	return pp_rules_advise(arena, rules, input, problem, held->limit, pp_list_rank_of(list, held->rank));
}

/* Rules that more memory would not unlock are stuck for another reason, which is what to mend. */
static bool report_any_memory(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                              const struct pp_order_problem *problem, const char *note, bool advise)
{
	struct pp_order_problem roomy = *problem;
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	for (uint32_t r = 0; r < problem->ranks; r++)
		room[r] = PP_ROOM_UNLIMITED;
	roomy.room = room;
	struct pp_list *list = pp_list_create(arena, &roomy);
	const struct pp_list_chooser chooser = {pp_rules_choose, rules};
	if (pp_list_run(list, &chooser) != PP_LIST_STUCK)
		return false;
	struct stuck stuck = look_at_ranks(arena, rules, list, problem->ranks);
	if (!stuck.found)
		return false;
	struct pp_advice advice = {0};
	if (advise)
		advice = advise_on(arena, rules, input, &roomy, list, &stuck.worst);
	report(arena, rules, input, list, &stuck, note, advise ? &advice : NULL);
	return true;
}

void pp_rules_report_stuck(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                           const struct pp_order_problem *problem, struct pp_list *list, bool advise)
{
	struct stuck stuck = look_at_ranks(arena, rules, list, problem->ranks);
	if (!stuck.found) /* evaluating a rule failed, which was reported */
		return;
	const struct held *held = &stuck.worst;
	if (held_by_room(held)) {
		const char *note = pp_arena_printf(
		    arena, "this is without a bound on memory; with it, rank %" PRIu32 " lacks %s for %s at %s", held->rank,
		    pp_show_bytes(arena, held->candidate.over),
		    title_of(arena, pp_list_rank_of(list, held->rank), held->candidate.kind, held->candidate.chunk),
		    pp_show_duration(arena, pp_list_time(list)));
		if (report_any_memory(arena, rules, input, problem, note, advise) || !pp_diag_ok(rules->diag))
			return;
	}
	struct pp_advice advice = {0};
	if (advise)
		advice = advise_on(arena, rules, input, problem, list, held);
	report(arena, rules, input, list, &stuck, NULL, advise ? &advice : NULL);
}
