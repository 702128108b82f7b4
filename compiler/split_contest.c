/* The balance of layers needs to know how many microbatches a rank holds, and a policy that looks at memory needs to
 * know the layers: neither can go first. So several splits go through all passes, and the fastest program wins. */
#include "split_contest.h"

#include "balance.h"
#include "cost.h"
#include "partition.h"
#include "policy.h"
#include "schedule_make.h"
#include "search/make.h"
#include "search/search.h"
#include "unit_trial.h"
#include "ir/capped.h"

#include <string.h>

enum {
	MOST_SPLITS = 24,
	MOST_ACTIONS = 60000, /* over all splits that compete: each is ordered, lowered and planned */
	LEAST_SPLITS = 6,
	MOST_NAMED = 4000,      /* actions of a step: with more, named schedules that look at costs take long */
	MOST_CONTESTED = 20000, /* actions of a step: with more, one compilation takes seconds */
};

struct contest {
	struct pp_unit *unit;
	const struct pp_stages *stages; /* priced layers */
	uint32_t *splits[MOST_SPLITS];
	uint32_t count, most;
	uint64_t value; /* of the best so far */
	const char *name;
};

static struct pp_unit open_trial(const struct pp_unit *unit)
{
	struct pp_unit trial = pp_unit_trial(unit);
	trial.contestant = true;
	trial.options.hint.trial = true;
	return trial;
}

static const char *copy_text(struct pp_arena *arena, const char *text)
{
	return text ? pp_arena_printf(arena, "%s", text) : NULL;
}

/* How a search went, or what there is to say of an order that was not searched for. */
static struct pp_search_report *copy_report(struct pp_arena *arena, const struct pp_unit *trial, const char *name)
{
	struct pp_search_report *report = PP_NEW(arena, struct pp_search_report);
	if (trial->schedule.search)
		*report = *trial->schedule.search;
	else
		*report =
		    (struct pp_search_report){.bound = trial->sim.bound,
		                              .value = pp_search_built(&trial->resolved, trial->program->ranks, &trial->sim),
		                              .start = name,
		                              .stopped = "effort"};
	report->start = copy_text(arena, report->start);
	report->stopped = copy_text(arena, report->stopped);
	report->bound.makespan_term = copy_text(arena, report->bound.makespan_term);
	report->bound.span_term = copy_text(arena, report->bound.span_term);
	return report;
}

/* Run a competitor through the passes; if it is the best so far, its split and order become those of the unit. */
static void compete(struct contest *contest, struct pp_unit *trial, const char *name)
{
	struct pp_unit *unit = contest->unit;
	const struct pp_spec *spec = &unit->resolved.spec;
	if (pp_compile(trial, PP_PASS_simulate, NULL, NULL)) {
		bool span = spec->seek.objective == PP_SEEK_SPAN;
		uint64_t value = span ? trial->sim.longest_span : trial->sim.makespan;
		if (value < contest->value) {
			contest->value = value;
			unit->first = pp_split_copy(unit->arena, &trial->stages, spec->model.layer_count);
			struct pp_schedule *given = pp_schedule_copy(unit->arena, &trial->schedule);
			given->name = spec->schedule_name;
			given->search = NULL;
			if (strcmp(unit->resolved.policy, "search") == 0)
				given->search = copy_report(unit->arena, trial, name);
			unit->given = given;
		}
	}
	pp_arena_destroy(trial->arena);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static void add_split(struct contest *contest, const struct pp_split *split, uint32_t stages)
{
	size_t bytes = ((size_t)stages + 1) * sizeof *split->first;
	if (contest->count >= contest->most)
		return;
	for (uint32_t i = 0; i < contest->count; i++)
		if (memcmp(contest->splits[i], split->first, bytes) == 0)
			return;
	contest->splits[contest->count++] = split->first;
}

/* What a rank takes beside its layers at least. */
static uint64_t buffers_of(const struct pp_spec *spec, const struct pp_stages *stages)
{
	uint64_t work = 0, message = 0;
	for (uint32_t i = 0; i < spec->model.layer_count; i++) {
		const struct pp_layer_counts *layer = &stages->layers[i];
		work = layer->work_bytes > work ? layer->work_bytes : work;
		message = layer->output_bytes > message ? layer->output_bytes : message;
	}
	return pp_plus(work, pp_times(2, message));
}

/* Two splits with room for k microbatches on every stage: the fastest within the memory, and the one that loads memory
 * evenly, whatever it is. False: no split has that room. */
static bool add_splits(struct contest *contest, const struct pp_balance_problem *problem, uint32_t most_in_flight)
{
	struct pp_arena *arena = contest->unit->arena;
	struct pp_balance_problem timed = *problem, even = *problem;
	uint32_t *in_flight = PP_NEW_ARRAY(arena, uint32_t, problem->stages);
	uint64_t *load = PP_NEW_ARRAY(arena, uint64_t, problem->layers);
	for (uint32_t s = 0; s < problem->stages; s++)
		in_flight[s] = most_in_flight;
	for (uint32_t i = 0; i < problem->layers; i++)
		load[i] = pp_plus(problem->static_bytes[i],
		                  pp_plus(pp_times(most_in_flight, problem->stash_bytes[i]), problem->extra_bytes[i]));
	timed.in_flight = in_flight;
	even.load = load;
	even.static_bytes = NULL;
	struct pp_split split = {0}, level = {0};
	bool fits = pp_balance_solve(arena, &timed, &split) && split.over == 0;
	if (fits)
		add_split(contest, &split, problem->stages);
	if (fits && pp_balance_solve(arena, &even, &level))
		add_split(contest, &level, problem->stages);
	return fits;
}

static void list_splits(struct contest *contest, const struct pp_balance_problem *problem)
{
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	uint32_t most = 2 * problem->ranks < spec->microbatches ? 2 * problem->ranks : spec->microbatches;
	for (uint32_t k = 1; k <= most; k += 1 + k / 4)
		if (!add_splits(contest, problem, k))
			return;
}

/* ---- the contest ----------------------------------------------------------------------------- */

/* Whether the split that is fastest without regard to memory has room for all that a good order holds. */
static bool is_roomy(struct contest *contest, const struct pp_balance_problem *problem)
{
	struct pp_arena *scratch = pp_arena_scratch(contest->unit->arena);
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	uint32_t most = 2 * problem->ranks < spec->microbatches ? 2 * problem->ranks : spec->microbatches;
	uint32_t *in_flight = PP_NEW_ARRAY(scratch, uint32_t, problem->stages);
	struct pp_balance_problem free = *problem, full = *problem;
	struct pp_split split = {0};
	for (uint32_t s = 0; s < problem->stages; s++)
		in_flight[s] = most;
	free.static_bytes = NULL;
	full.in_flight = in_flight;
	bool roomy = !pp_balance_solve(scratch, &free, &split);
	if (!roomy) {
		pp_balance_rate(scratch, &full, &split);
		roomy = split.over == 0;
	}
	pp_arena_destroy(scratch);
	return roomy;
}

static void compete_as(struct contest *contest, const char *name, const uint32_t *first)
{
	struct pp_unit trial = open_trial(contest->unit);
	trial.instead = name;
	trial.first = first;
	trial.options.hint.trial = false;
	compete(contest, &trial, name);
}

/* Each with the split that its counts of microbatches in flight give; where costs decide on those, with all. */
static void compete_named(struct contest *contest)
{
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	uint64_t actions = (uint64_t)spec->stages.stage_count * spec->microbatches * 3;
	for (size_t i = 0; i < pp_policy_count; i++) {
		const struct pp_policy *policy = &pp_policies[i];
		if (policy->status != PP_NOW || strcmp(policy->name, "search") == 0 || (policy->aware && actions > MOST_NAMED))
			continue;
		compete_as(contest, policy->name, NULL);
		for (uint32_t k = 0; policy->aware && k < contest->count; k++)
			compete_as(contest, policy->name, contest->splits[k]);
	}
}

/* The long search, on the split that won, from the order that did. */
static void search_on(struct contest *contest)
{
	struct pp_unit *unit = contest->unit;
	if (!unit->given)
		return;
	struct pp_unit trial = open_trial(unit);
	struct pp_search_report *report = PP_NEW(trial.arena, struct pp_search_report);
	*report = *unit->given->search;
	report->stopped = NULL;
	trial.options.hint.trial = false;
	trial.first = unit->first;
	trial.schedule = *unit->given;
	trial.schedule.search = report;
	compete(contest, &trial, report->start);
}

static bool is_open(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	uint64_t actions = (uint64_t)spec->stages.stage_count * spec->microbatches * 3;
	return unit->resolved.policy && pp_schedule_aware(&unit->resolved) && !spec->stages.split &&
	       spec->stages.balance == PP_BALANCE_TIME && spec->stages.stage_count > 1 &&
	       spec->seek.objective != PP_SEEK_MEMORY && (spec->schedule_memory || spec->cluster.gpu.memory) &&
	       actions <= MOST_CONTESTED;
}

void pp_split_contest(struct pp_unit *unit)
{
	if (unit->contestant || !is_open(unit))
		return;
	struct contest contest = {.unit = unit, .value = UINT64_MAX};
	struct pp_unit draft = open_trial(unit);
	const struct pp_spec *spec = &draft.resolved.spec;
	uint64_t actions = (uint64_t)unit->resolved.spec.stages.stage_count * unit->resolved.spec.microbatches * 3;
	uint64_t most = MOST_ACTIONS / actions;
	contest.most = most < LEAST_SPLITS ? LEAST_SPLITS : most > MOST_SPLITS ? MOST_SPLITS : (uint32_t)most;
	if (pp_compile(&draft, PP_PASS_draft, NULL, NULL)) {
		uint64_t *buffers = PP_NEW_ARRAY(draft.arena, uint64_t, spec->parallel.pp);
		for (uint32_t r = 0; r < spec->parallel.pp; r++)
			buffers[r] = buffers_of(spec, &draft.stages);
		const struct pp_balance_problem *problem =
		    pp_partition_problem(draft.arena, spec, &draft.draft, buffers, &draft.stages);
		if (!is_roomy(&contest, problem)) {
			list_splits(&contest, problem);
			struct pp_unit plain = open_trial(unit);
			plain.options.hint.trial = unit->options.hint.trial;
			compete(&contest, &plain, unit->resolved.policy);
		}
	}
	pp_arena_destroy(draft.arena);
	for (uint32_t i = 0; i < contest.count; i++) {
		struct pp_unit trial = open_trial(unit);
		trial.first = contest.splits[i];
		compete(&contest, &trial, unit->resolved.policy);
	}
	if (contest.count == 0 || strcmp(unit->resolved.policy, "search") != 0)
		return;
	compete_named(&contest);
	if (!unit->options.hint.trial)
		search_on(&contest);
}
