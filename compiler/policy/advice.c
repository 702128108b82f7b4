/* What would unlock a stuck policy, found by trying: a limit on the forwards of chunk 0 beside the others (a total
 * limit alone lets chunk 0 fill the memory that the later chunks need), and a higher limit; where no change of one
 * does, which of them hold it back together; where the room is short, `> W` behind every `prefer` (what memory would be
 * enough the caller says). Bounded work: trials stop when they have taken MOST_ACTIONS actions together. */
#include "report.h"

#include "ir/capped.h"
#include "ir/figures.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ACTIONS = 1 << 21, MOST_TRIALS = 32 };

struct trial {
	struct pp_arena *arena;
	struct pp_rules *rules;
	struct pp_list *list;
	const struct pp_rows_input *input;
	uint64_t actions;
};

static bool finishes(struct trial *trial, uint64_t *time)
{
	if (trial->actions >= MOST_ACTIONS)
		return false;
	const struct pp_list_chooser chooser = {pp_rules_choose, trial->rules};
	bool finished = pp_list_run(trial->list, &chooser) == PP_LIST_FINISHED;
	trial->rules->failed = false;
	trial->actions += pp_list_count(trial->list) + 1;
	*time = pp_list_time(trial->list);
	return finished;
}

/* The limit on chunk 0 under which it ends first. */
static const char *try_chunk(struct trial *trial)
{
	uint32_t most = trial->input->microbatches, wide = 2 * trial->input->ranks, best = 0;
	if (most > wide)
		most = wide;
	uint32_t step = (most + MOST_TRIALS - 1) / MOST_TRIALS;
	uint64_t best_time = 0, time;
	for (uint32_t forwards = 1; forwards <= most; forwards += step) {
		trial->rules->most_of_chunk = forwards;
		if (finishes(trial, &time) && (best == 0 || time < best_time)) {
			best = forwards;
			best_time = time;
		}
	}
	trial->rules->most_of_chunk = 0;
	if (best == 0)
		return NULL;
	return pp_arena_printf(trial->arena, "with `limit F.0 - %s.0 <= %u` besides it ends after %s",
	                       pp_rules_split(trial->rules) ? "W" : "B", best, pp_show_duration(trial->arena, best_time));
}

/* The side of a comparison and how much is added to it, as text. */
static const char *raised_text(struct trial *trial, const struct pp_limit *limit, long long by, const char *more)
{
	const struct pp_expr *value = limit->stmt->value;
	struct pp_eval eval = {.arena = trial->arena, .sources = trial->input->sources};
	static const char *const operators[] = {[PP_LT] = "<", [PP_GT] = ">", [PP_LE] = "<=", [PP_GE] = ">="};
	bool right = value->op == PP_LT || value->op == PP_LE;
	const char *a = pp_eval_quote(&eval, value->a->span), *b = pp_eval_quote(&eval, value->b->span);
	if (right && value->b->kind == PP_EXPR_INT && strlen(value->b->number) < 10)
		return pp_arena_printf(trial->arena, "%s %s %lld", a, operators[value->op],
		                       strtoll(value->b->number, NULL, 10) + by);
	return pp_arena_printf(trial->arena, "%s%s%s %s %s%s%s", a, right ? "" : " + ", right ? "" : more,
	                       operators[value->op], b, right ? " + " : "", right ? more : "");
}

static bool counts_bytes(struct trial *trial, const struct pp_limit *limit, const struct pp_list_rank *rank)
{
	struct pp_counters now = pp_counters_after(rank, NULL);
	struct pp_datum side;
	struct pp_diag *unseen = pp_diag_create(trial->arena, trial->input->sources);
	return pp_machine_value(trial->rules->machine, trial->arena, &limit->sides[0], &now, unseen, &side) &&
	       side.kind == PP_DATUM_NUMBER && pp_dimension_equal(side.dimension, PP_BYTES);
}

static uint64_t largest_stash(const struct pp_order_problem *problem, uint32_t rank)
{
	uint64_t most = 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		if (problem->stage[s].rank == rank && problem->stage[s].held > most)
			most = problem->stage[s].held;
	return most;
}

/* The smallest of 1, 2, 3, 4, 6, 8, 12, … steps more under which it finishes. */
static const char *try_higher(struct trial *trial, struct pp_limit *limit, const struct pp_order_problem *problem,
                              const struct pp_list_rank *rank)
{
	bool bytes = counts_bytes(trial, limit, rank);
	uint64_t step = bytes ? largest_stash(problem, rank->rank) : 1, time;
	for (uint64_t more = 1; step > 0 && more < UINT64_C(1) << 20; more += more < 4 ? 1 : more / 2) {
		uint64_t by = pp_times(more, step);
		if (by > INT64_MAX)
			break;
		limit->raised = (int64_t)by;
		bool finished = finishes(trial, &time);
		limit->raised = 0;
		if (finished) {
			struct pp_rational number = {(pp_wide)by, 1};
			struct pp_datum added = pp_datum_number(number, bytes ? PP_BYTES : PP_PURE);
			const char *text = pp_datum_text(trial->arena, &added);
			return pp_arena_printf(trial->arena, "with `limit %s` in its place it ends after %s",
			                       raised_text(trial, limit, (long long)by, text),
			                       pp_show_duration(trial->arena, time));
		}
	}
	return NULL;
}

static const char *try_without(struct trial *trial, struct pp_limit *limit)
{
	uint64_t time;
	limit->off = true;
	bool finished = finishes(trial, &time);
	limit->off = false;
	return finished ? pp_arena_printf(trial->arena, "without this limit it ends after %s",
	                                  pp_show_duration(trial->arena, time))
	                : NULL;
}

/* Weight gradients end what is held: a line that does not list them may wait for room that only they make. */
static const char *try_weights(struct trial *trial)
{
	uint64_t time;
	trial->rules->weights_last = true;
	bool finished = pp_rules_split(trial->rules) && finishes(trial, &time);
	trial->rules->weights_last = false;
	return finished ? pp_arena_printf(trial->arena,
	                                  "with `> W` at the end of every `prefer` that lacks it, it ends after %s",
	                                  pp_show_duration(trial->arena, time))
	                : NULL;
}

/* "`limit A` and `limit B`" of those that are off. */
static const char *off_text(struct trial *trial)
{
	const struct pp_rules *rules = trial->rules;
	struct pp_eval eval = {.arena = trial->arena, .sources = trial->input->sources};
	size_t off = 0, named = 0;
	const char *text = "";
	for (size_t i = 0; i < rules->limit_count; i++)
		off += rules->limits[i].off;
	for (size_t i = 0; i < rules->limit_count; i++)
		if (rules->limits[i].off) {
			const char *between = named == 0 ? "" : named + 1 == off ? " and " : ", ";
			text = pp_arena_printf(trial->arena, "%s%s`%s`", text, between,
			                       pp_eval_quote(&eval, rules->limits[i].stmt->span));
			named++;
		}
	return text;
}

/* Limits that only together hold it back: without any it finishes, and each that can be kept is. */
static const char *try_without_several(struct trial *trial)
{
	struct pp_rules *rules = trial->rules;
	const char *text = NULL;
	uint64_t time, best = 0;
	if (rules->limit_count > MOST_TRIALS)
		return NULL;
	for (size_t i = 0; i < rules->limit_count; i++)
		rules->limits[i].off = true;
	bool finished = finishes(trial, &best);
	for (size_t i = 0; finished && i < rules->limit_count; i++) {
		rules->limits[i].off = false;
		rules->limits[i].off = !finishes(trial, &time);
		if (!rules->limits[i].off)
			best = time;
	}
	if (finished)
		text = pp_arena_printf(trial->arena, "without %s it ends after %s", off_text(trial),
		                       pp_show_duration(trial->arena, best));
	else if (trial->actions < MOST_ACTIONS)
		text = "without any limit it does not finish either: the `prefer` lines and their `when` have to change";
	for (size_t i = 0; i < rules->limit_count; i++)
		rules->limits[i].off = false;
	return text;
}

static void add(struct pp_advice *advice, const char *line)
{
	if (line)
		advice->lines[advice->count++] = line;
}

struct pp_advice pp_rules_advise(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                                 const struct pp_order_problem *problem, struct pp_limit *limit,
                                 const struct pp_list_rank *blamed)
{
	struct trial trial = {.arena = arena, .rules = rules, .list = pp_list_create(arena, problem), .input = input};
	struct pp_advice advice = {0};
	struct pp_diag *diag = rules->diag;
	rules->diag = pp_diag_create(arena, input->sources);
	if (input->stages > input->ranks)
		add(&advice, try_chunk(&trial));
	if (!limit)
		add(&advice, try_weights(&trial));
	else if (limit->sides[0].expr)
		add(&advice, try_higher(&trial, limit, problem, blamed));
	else
		add(&advice, try_without(&trial, limit));
	if (limit && advice.count == 0)
		add(&advice, try_without_several(&trial));
	rules->diag = diag;
	return advice;
}
