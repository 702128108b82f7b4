/* The balance of layers needs to know how many microbatches a rank holds, and a policy that looks at memory needs to
 * know the layers: neither can go first. So several splits go through all passes, and the fastest program wins. Of a
 * schedule whose rows are fixed, the splits on which they are fastest and fit.
 *
 * What can't win is left out: a split whose lower bound is no less than the fastest program so far, here or on another
 * placement. */
#include "split_contest.h"

#include "balance.h"
#include "cost.h"
#include "deadline.h"
#include "lean.h"
#include "measured.h"
#include "memory_floor.h"
#include "order_problem.h"
#include "partition.h"
#include "policy.h"
#include "schedule_make.h"
#include "search/make.h"
#include "search/search.h"
#include "unit_trial.h"
#include "ir/capped.h"
#include "ir/simulate.h"
#include "ir/verify.h"

#include <string.h>

enum {
	MOST_SPLITS = 24,
	MOST_ACTIONS = 60000, /* over all splits that compete: each is ordered, lowered and planned */
	LEAST_SPLITS = 6,
	MOST_FOUND = 8,         /* besides, of those that competitors have found */
	MOST_NAMED = 4000,      /* actions of a step: with more, named schedules that look at costs take long */
	MOST_CONTESTED = 20000, /* actions of a step: with more, one compilation takes seconds */
	MOST_REFUSED = 4,       /* programs of fixed rows that need more memory than their order */
	MOST_RUNGS = 64,        /* bounds on memory that splits for fixed rows and orders of policies are made for */
	ROUGH_RUNGS = 16,       /* of them between a power of two and the next */
	FINE_RUNGS = 64,        /* of those for orders of small programs */
	CLOSE_RUNGS = 32,       /* of those that named policies and the search compete under, too */
	LESS_RUNGS = 6,         /* as many as these at most */
	LEAST_RUNGS = 3,        /* or these, of the rough ones */
	MOST_LESS = 600,        /* actions of a step: with more, policies that search take long under each */
	OWN_GAIN = 10,          /* percent that a split of its own may win for a named schedule */
};

struct candidate {
	uint32_t *first; /* [stages + 1] */
	const struct pp_order_problem *problem;
	uint64_t least; /* no order takes less time */
	uint64_t value; /* of fixed rows */
};

struct contest {
	struct pp_unit *unit;
	struct pp_unit *draft; /* priced layers; NULL: there is no choice of splits */
	struct candidate splits[MOST_SPLITS + MOST_FOUND];
	uint32_t count, most;
	uint64_t value; /* of the best so far, or of another placement */
};

/* Of a step whose backwards are split. */
static uint64_t actions_of(const struct pp_spec *spec)
{
	return (uint64_t)spec->stages.stage_count * spec->microbatches * 3;
}

static struct pp_unit open_trial(const struct pp_unit *unit)
{
	struct pp_unit trial = pp_unit_trial(unit);
	trial.contestant = true;
	trial.options.hint.trial = true;
	return trial;
}

static bool seeks(const struct pp_unit *unit)
{
	return unit->resolved.policy && strcmp(unit->resolved.policy, "search") == 0;
}

/* The order of a trial, for the unit; with how its search went, or what there is to say of an order that was not
 * searched for. */
static struct pp_schedule *take_order(const struct pp_unit *unit, const struct pp_unit *trial, const char *name)
{
	struct pp_schedule *given = pp_schedule_copy(unit->arena, &trial->schedule);
	const struct pp_search_report *before = unit->schedule.search;
	given->name = unit->resolved.spec.schedule_name;
	if (given->search || !seeks(unit))
		return given;
	struct pp_search_report report = {.bound = pp_order_bound(trial->arena, pp_unit_problem(trial), false),
	                                  .value = pp_search_built(&trial->resolved, trial->program->ranks, &trial->sim),
	                                  .start = name,
	                                  .effort = before ? before->effort : 0,
	                                  .stopped =
	                                      before && strcmp(before->stopped, "timeout") == 0 ? "timeout" : "effort"};
	struct pp_schedule searched = *given;
	searched.search = &report;
	return pp_schedule_copy(unit->arena, &searched);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static const struct pp_order_problem *problem_of(struct contest *contest, const uint32_t *first)
{
	struct pp_unit *draft = contest->draft;
	const struct pp_spec *spec = &draft->resolved.spec;
	struct pp_stages stages = draft->stages;
	stages.count = draft->draft.stages;
	stages.items = PP_NEW_ARRAY(draft->arena, struct pp_stage_plan, stages.count);
	for (uint32_t s = 0; s < stages.count; s++) {
		stages.items[s].first_layer = first[s];
		stages.items[s].layer_count = first[s + 1] - first[s];
		stages.items[s].rank = draft->draft.stage_rank[s];
	}
	pp_cost_stages(spec, &stages);
	if (spec->profile)
		pp_measured_stages(spec, &stages);
	return pp_order_of_stages(draft->arena, spec, draft->draft.stage_rank, &stages, NULL, spec->schedule_memory);
}

/* The work of the slowest rank; for the makespan, behind the first arrival on it. */
static uint64_t least_time(struct pp_arena *arena, const struct pp_order_problem *problem, bool span)
{
	uint64_t *work = PP_NEW_ARRAY(arena, uint64_t, problem->ranks),
	         *first = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	bool *seen = PP_NEW_ARRAY(arena, bool, problem->ranks);
	uint64_t arrival = 0, most = 0;
	for (uint32_t s = 0; s < problem->stages; s++) {
		const struct pp_order_stage *stage = &problem->stage[s];
		uint64_t split = pp_plus(stage->ticks[PP_I], stage->ticks[PP_W]), fused = stage->ticks[PP_B];
		uint64_t backward = pp_plus(split < fused ? split : fused, stage->recompute), *sum = &work[stage->rank];
		if (!seen[stage->rank] && !span)
			first[stage->rank] = arrival;
		seen[stage->rank] = true;
		arrival = pp_plus(arrival, pp_plus(stage->ticks[PP_F], stage->forward_hop));
		*sum = pp_plus(*sum, pp_times(problem->microbatches, pp_plus(stage->ticks[PP_F], backward)));
	}
	for (uint32_t r = 0; r < problem->ranks; r++)
		most = pp_plus(work[r], first[r]) > most ? pp_plus(work[r], first[r]) : most;
	return problem->pair_permille < 1000 ? pp_thousandths(most, problem->pair_permille) : most;
}

/* Ascending by the least time; the first of equals stays first. */
static void add_split(struct contest *contest, const struct pp_split *split, uint32_t stages)
{
	size_t bytes = ((size_t)stages + 1) * sizeof *split->first;
	if (contest->count >= contest->most)
		return;
	for (uint32_t i = 0; i < contest->count; i++)
		if (memcmp(contest->splits[i].first, split->first, bytes) == 0)
			return;
	struct candidate new = {.first = split->first, .problem = problem_of(contest, split->first)};
	new.least =
	    least_time(contest->draft->arena, new.problem, contest->unit->resolved.spec.seek.objective == PP_SEEK_SPAN);
	uint32_t at = contest->count++;
	for (; at && contest->splits[at - 1].least > new.least; at--)
		contest->splits[at] = contest->splits[at - 1];
	contest->splits[at] = new;
}

/* A competitor may be made under another bound on memory. */
static bool fits(const struct pp_unit *unit, const struct pp_unit *trial)
{
	uint64_t limit = pp_order_limit(&unit->resolved.spec, unit->resolved.spec.schedule_memory);
	for (uint32_t r = 0; r < trial->program->ranks; r++)
		if (trial->program->rank[r].arena_bytes > limit)
			return false;
	return true;
}

/* Run a competitor through the passes; if it is the best so far, its split becomes that of the unit, and so does its
 * order where rows are not fixed. Other orders compete on its split, too. */
static void compete(struct contest *contest, struct pp_unit *trial, const char *name)
{
	struct pp_unit *unit = contest->unit;
	const struct pp_spec *spec = &unit->resolved.spec;
	bool span = spec->seek.objective == PP_SEEK_SPAN, ok = pp_compile(trial, PP_PASS_simulate, NULL, NULL);
	uint64_t value = !ok ? UINT64_MAX : span ? trial->sim.longest_span : trial->sim.makespan;
	if (ok && contest->draft && pp_schedule_aware(&unit->resolved) && actions_of(spec) <= MOST_LESS) {
		struct pp_split split = {.first =
		                             pp_split_copy(contest->draft->arena, &trial->stages, spec->model.layer_count)};
		add_split(contest, &split, trial->stages.count);
	}
	if (value < contest->value && fits(unit, trial)) {
		contest->value = value;
		unit->first = pp_split_copy(unit->arena, &trial->stages, spec->model.layer_count);
		unit->given = pp_schedule_aware(&unit->resolved) ? take_order(unit, trial, name) : NULL;
	}
	pp_arena_destroy(trial->arena);
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
	struct pp_arena *arena = contest->draft->arena;
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
	struct pp_balance_problem free = *problem;
	struct pp_split split = {0};
	free.static_bytes = NULL;
	if (pp_balance_solve(contest->draft->arena, &free, &split))
		add_split(contest, &split, problem->stages);
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	uint32_t most = 2 * problem->ranks < spec->microbatches ? 2 * problem->ranks : spec->microbatches;
	for (uint32_t k = 1; k <= most; k += 1 + k / 4)
		if (!add_splits(contest, problem, k))
			return;
}

/* The next lower of the bounds on memory that splits for fixed rows and orders of policies are made for, whatever the
 * bound of the spec: a power of two over `rungs` apart, so that what competes under less memory competes under more,
 * too. */
static uint64_t rung_below(uint64_t bytes, unsigned rungs)
{
	uint64_t step = 1;
	while (step <= bytes / rungs / 2)
		step *= 2;
	return bytes ? (bytes - 1) / step * step : 0;
}

/* Splits with room for what fixed rows hold, under ever less memory. */
static void list_splits_of_rows(struct contest *contest, const struct pp_balance_problem *problem)
{
	struct pp_arena *arena = contest->draft->arena;
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	uint64_t limit = pp_order_limit(spec, spec->schedule_memory), *cap = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	struct pp_balance_problem tight = *problem;
	tight.cap = cap;
	for (uint64_t bound = rung_below(limit + 1, ROUGH_RUNGS), i = 0; bound && i < MOST_RUNGS;
	     bound = rung_below(bound, ROUGH_RUNGS), i++) {
		struct pp_split split = {0};
		for (uint32_t r = 0; r < problem->ranks; r++)
			cap[r] = problem->cap[r] > limit - bound ? problem->cap[r] - (limit - bound) : 0;
		if (!pp_balance_solve(arena, &tight, &split) || split.over)
			return;
		add_split(contest, &split, problem->stages);
	}
}

/* ---- the contest ----------------------------------------------------------------------------- */

/* Whether the split that is fastest without regard to memory has room for all that a good order holds, or that fixed
 * rows hold. */
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
	if (pp_schedule_aware(&contest->unit->resolved))
		full.in_flight = in_flight;
	bool roomy = !pp_balance_solve(scratch, &free, &split);
	if (!roomy) {
		pp_balance_rate(scratch, &full, &split);
		roomy = split.over == 0;
	}
	pp_arena_destroy(scratch);
	return roomy;
}

/* The unit as it is. */
static void compete_plain(struct contest *contest)
{
	struct pp_unit plain = open_trial(contest->unit);
	plain.options.hint.trial = contest->unit->options.hint.trial;
	compete(contest, &plain, contest->unit->resolved.policy);
}

/* The unit as it is, under ever less memory: what is found there competes here, too. */
static void compete_less(struct contest *contest, unsigned rungs, uint64_t most)
{
	struct pp_unit *unit = contest->unit;
	const struct pp_spec *spec = &unit->resolved.spec;
	uint64_t limit = pp_order_limit(spec, spec->schedule_memory), bound = limit == UINT64_MAX ? 0 : limit + 1;
	for (uint64_t i = 0; i < most && (bound = rung_below(bound, rungs)) > 0; i++) {
		struct pp_unit trial = open_trial(unit);
		trial.memory = bound;
		compete(contest, &trial, unit->resolved.policy);
	}
}

static struct pp_unit open_unbound(const struct contest *contest, const char *policy, const uint32_t *first)
{
	struct pp_unit trial = open_trial(contest->unit);
	trial.memory = PP_MEMORY_UNBOUND;
	trial.instead = policy;
	trial.first = first;
	trial.options.hint.trial = false;
	return trial;
}

/* Whether an order that was made without a bound may meet it, in less time than the best so far. */
static bool is_promising(const struct contest *contest, const struct pp_unit *look)
{
	const struct pp_spec *bound = &contest->unit->resolved.spec;
	struct pp_spec spec = look->resolved.spec;
	struct pp_order_times times;
	spec.cluster.gpu.memory = bound->cluster.gpu.memory;
	struct pp_order_problem *problem =
	    pp_order_of_stages(look->arena, &spec, look->draft.stage_rank, &look->stages, NULL, bound->schedule_memory);
	pp_order_be_certain(look->arena, &spec, pp_memory_floor(look->arena, look), bound->schedule_memory, false, problem);
	return pp_order_run(look->arena, problem, look->schedule.rows, false, &times) && times.fits &&
	       (spec.seek.objective == PP_SEEK_SPAN ? times.longest_span : times.makespan) < contest->value;
}

/* The order that is made without a bound, on a split, where it meets the bound: to look at memory may cost time. */
static void compete_unbound(struct contest *contest, const char *policy, const uint32_t *first)
{
	struct pp_unit look = open_unbound(contest, policy, first);
	bool promising = pp_compile(&look, PP_PASS_schedule, NULL, NULL) && is_promising(contest, &look);
	pp_arena_destroy(look.arena);
	if (!promising)
		return;
	struct pp_unit trial = open_unbound(contest, policy, first);
	compete(contest, &trial, policy);
}

/* Rules and patterns take more where there is more, and may be slower for it, or stuck: they are tried under ever less.
 */
static void compete_rooms(struct contest *contest)
{
	uint64_t most = MOST_ACTIONS / actions_of(&contest->unit->resolved.spec);
	contest->unit->rooms_tried = true;
	compete_less(contest, most < 2 * FINE_RUNGS ? ROUGH_RUNGS : FINE_RUNGS,
	             most < LEAST_SPLITS ? LEAST_SPLITS
	             : most > MOST_RUNGS ? MOST_RUNGS
	                                 : most);
}

/* Whether some order on a split may still be faster than the best; with its memory as far as it is known. */
static bool may_win(struct contest *contest, const struct candidate *split)
{
	bool span = contest->unit->resolved.spec.seek.objective == PP_SEEK_SPAN;
	return split->least < contest->value &&
	       pp_order_bound_value(contest->draft->arena, split->problem, false, span) < contest->value;
}

/* A policy that looks at costs, on each split. */
static void compete_split(struct contest *contest)
{
	for (uint32_t i = 0; i < contest->count; i++) {
		if (!may_win(contest, &contest->splits[i]))
			continue;
		struct pp_unit trial = open_trial(contest->unit);
		trial.first = contest->splits[i].first;
		compete(contest, &trial, contest->unit->resolved.policy);
	}
}

/* What rows take on a split; UINT64_MAX: they don't fit. */
static uint64_t value_of(const struct contest *contest, const struct candidate *split, const struct pp_row *rows,
                         bool fit)
{
	struct pp_arena *scratch = pp_arena_scratch(contest->draft->arena);
	struct pp_order_times times;
	bool span = contest->unit->resolved.spec.seek.objective == PP_SEEK_SPAN;
	bool ok = pp_order_run(scratch, split->problem, rows, false, &times) && (!fit || times.fits);
	uint64_t value = ok ? span ? times.longest_span : times.makespan : UINT64_MAX;
	pp_arena_destroy(scratch);
	return value;
}

/* Fixed rows: the fastest splits first, until one makes a program. */
static void compete_rows(struct contest *contest)
{
	for (uint32_t i = 0; i < contest->count; i++)
		contest->splits[i].value = value_of(contest, &contest->splits[i], contest->draft->draft.rows, true);
	uint64_t best = contest->value;
	for (unsigned tries = 0; tries < MOST_REFUSED && contest->value == best; tries++) {
		struct candidate *next = NULL;
		for (uint32_t i = 0; i < contest->count; i++)
			if (contest->splits[i].value < best && (!next || contest->splits[i].value < next->value))
				next = &contest->splits[i];
		if (!next)
			return;
		next->value = UINT64_MAX;
		struct pp_unit trial = open_trial(contest->unit);
		trial.first = next->first;
		compete(contest, &trial, contest->unit->resolved.policy);
	}
}

/* Whether a schedule of fixed rows, on the split that is fastest without regard to memory and on the best one so far,
 * is so slow that a split of its own can hardly help. */
static bool is_slow(const struct contest *contest, const struct pp_unit *trial)
{
	uint64_t least = value_of(contest, &contest->splits[0], trial->draft.rows, false);
	for (uint32_t i = 1; i < contest->count; i++)
		if (contest->unit->first && memcmp(contest->splits[i].first, contest->unit->first,
		                                   ((size_t)trial->draft.stages + 1) * sizeof *contest->unit->first) == 0) {
			uint64_t value = value_of(contest, &contest->splits[i], trial->draft.rows, false);
			least = value < least ? value : least;
		}
	return least / 100 * (100 - OWN_GAIN) > contest->value;
}

/* Whether a named schedule is worth a compilation, on a split or (NULL) on its own. */
static bool is_worth(struct contest *contest, const struct pp_policy *policy, const uint32_t *first)
{
	if (policy->aware)
		return true;
	struct pp_unit look = open_trial(contest->unit);
	look.instead = policy->name;
	bool worth = pp_compile(&look, PP_PASS_draft, NULL, NULL);
	if (worth && first) {
		struct candidate split = {.problem = problem_of(contest, first)};
		worth = value_of(contest, &split, look.draft.rows, false) < contest->value;
	} else if (worth) {
		worth = actions_of(&look.resolved.spec) <= MOST_LESS || !is_slow(contest, &look);
	}
	pp_arena_destroy(look.arena);
	return worth;
}

static void compete_as(struct contest *contest, const struct pp_policy *policy, const uint32_t *first)
{
	if (!is_worth(contest, policy, first))
		return;
	struct pp_unit trial = open_trial(contest->unit);
	trial.instead = policy->name;
	trial.first = first;
	trial.options.hint.trial = false;
	compete(contest, &trial, policy->name);
	if (!first)
		compete_unbound(contest, policy->name, NULL);
}

/* Those that look at costs take no part when the time is up. */
static bool takes_part(const struct pp_spec *spec, const struct pp_policy *policy, uint64_t most_actions)
{
	if (policy->status != PP_NOW || strcmp(policy->name, "search") == 0)
		return false;
	return !policy->aware || (actions_of(spec) <= most_actions && !pp_is_late(spec->seek.deadline));
}

/* Each with the split that its counts of microbatches in flight give; where costs decide on those, with all. */
static void compete_named(struct contest *contest)
{
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	for (size_t i = 0; i < pp_policy_count; i++) {
		const struct pp_policy *policy = &pp_policies[i];
		if (!takes_part(spec, policy, MOST_NAMED))
			continue;
		compete_as(contest, policy, NULL);
		for (uint32_t k = 0; policy->aware && k < contest->count; k++)
			if (may_win(contest, &contest->splits[k]))
				compete_as(contest, policy, contest->splits[k].first);
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
	contest->value++; /* of equals its report says more */
	compete(contest, &trial, report->start);
}

static bool is_open(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	bool ours = unit->resolved.policy || (unit->resolved.schedule && !unit->resolved.imported);
	return ours && !spec->stages.split && spec->stages.balance == PP_BALANCE_TIME && spec->stages.stage_count > 1 &&
	       spec->seek.objective != PP_SEEK_MEMORY && (spec->schedule_memory || spec->cluster.gpu.memory) &&
	       actions_of(spec) <= MOST_CONTESTED;
}

/* The splits, where memory is short. */
static void find_splits(struct contest *contest)
{
	struct pp_unit *draft = contest->draft;
	const struct pp_spec *spec = &draft->resolved.spec;
	uint64_t most = MOST_ACTIONS / actions_of(spec);
	contest->most = most < LEAST_SPLITS ? LEAST_SPLITS : most > MOST_SPLITS ? MOST_SPLITS : (uint32_t)most;
	uint64_t *buffers = PP_NEW_ARRAY(draft->arena, uint64_t, spec->parallel.pp);
	for (uint32_t r = 0; r < spec->parallel.pp; r++)
		buffers[r] = buffers_of(spec, &draft->stages);
	const struct pp_balance_problem *problem =
	    pp_partition_problem(draft->arena, spec, &draft->draft, buffers, &draft->stages);
	if (is_roomy(contest, problem))
		return;
	list_splits(contest, problem);
	if (!pp_schedule_aware(&draft->resolved))
		list_splits_of_rows(contest, problem);
}

/* What the leanest build takes that is known; UINT64_MAX: it does not fit either. */
static uint64_t value_of_leanest(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	const struct pp_lean *lean = pp_lean_find(unit);
	uint64_t value = UINT64_MAX;
	if (!lean || lean->needed > pp_order_limit(spec, spec->schedule_memory))
		return value;
	struct pp_unit trial = open_trial(unit);
	trial.first = lean->first;
	trial.given = lean->given;
	if (pp_compile(&trial, PP_PASS_simulate, NULL, NULL))
		value = spec->seek.objective == PP_SEEK_SPAN ? trial.sim.longest_span : trial.sim.makespan;
	pp_arena_destroy(trial.arena);
	return value;
}

static void hold(struct contest *contest)
{
	const struct pp_resolved *resolved = &contest->unit->resolved;
	find_splits(contest);
	if (contest->count == 0)
		return;
	contest->most += MOST_FOUND;
	compete_plain(contest);
	if (!pp_schedule_aware(resolved)) {
		contest->unit->first = NULL; /* it will find its own split again, and say how */
		compete_rows(contest);
		compete_unbound(contest, resolved->policy, NULL);
		return;
	}
	bool searches = seeks(contest->unit), fits = contest->value < UINT64_MAX;
	bool small = actions_of(&resolved->spec) <= MOST_LESS,
	     adapts = resolved->policy && strcmp(resolved->policy, "v_adaptive") == 0;
	if (searches && small)
		compete_less(contest, CLOSE_RUNGS, LESS_RUNGS);
	else if (adapts && small)
		compete_less(contest, ROUGH_RUNGS, LEAST_RUNGS); /* each takes long */
	else if (!searches && !adapts)
		compete_rooms(contest);
	compete_split(contest);
	if (searches)
		compete_named(contest);
	else
		compete_unbound(contest, resolved->policy, NULL);
	if (!fits && contest->unit->given && value_of_leanest(contest->draft) < contest->value) {
		contest->unit->first = NULL; /* the passes take that one where nothing fits */
		contest->unit->given = NULL;
	}
}

void pp_split_contest(struct pp_unit *unit)
{
	if (unit->contestant)
		return;
	struct contest contest = {.unit = unit, .value = unit->to_beat ? unit->to_beat : UINT64_MAX};
	if (!unit->given && is_open(unit)) {
		struct pp_unit draft = open_trial(unit);
		contest.draft = &draft;
		if (pp_compile(&draft, PP_PASS_draft, NULL, NULL))
			hold(&contest);
		pp_arena_destroy(draft.arena);
		contest.draft = NULL;
	}
	if (unit->given && unit->given->search && !unit->options.hint.trial)
		search_on(&contest);
}

/* On a split, with the bound and without it. */
static void compete_on(struct contest *contest, const uint32_t *first)
{
	const struct pp_spec *spec = &contest->unit->resolved.spec;
	for (size_t i = 0; i < pp_policy_count; i++)
		if (takes_part(spec, &pp_policies[i],
		               strcmp(pp_policies[i].name, "v_adaptive") == 0 ? MOST_LESS : MOST_NAMED)) {
			compete_as(contest, &pp_policies[i], first);
			if (first)
				compete_unbound(contest, pp_policies[i].name, first);
		}
}

/* Named schedules on the split that the unit has, and if it is ours to choose, on their own and then on the best. */
static void compete_here(struct contest *contest)
{
	struct pp_unit *unit = contest->unit;
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_split split = {.first = pp_split_copy(contest->draft->arena, &unit->stages, spec->model.layer_count)};
	contest->most = 1;
	add_split(contest, &split, unit->stages.count);
	compete_on(contest, split.first);
	if (spec->stages.split)
		return;
	compete_on(contest, NULL);
	if (unit->first && memcmp(unit->first, split.first, ((size_t)unit->stages.count + 1) * sizeof *split.first) != 0)
		compete_on(contest, unit->first);
}

/* Whether what the unit has made may still be replaced. */
static bool may_be_replaced(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	return !unit->contestant && !unit->given && !unit->first && spec->seek.objective != PP_SEEK_MEMORY &&
	       actions_of(spec) <= MOST_CONTESTED;
}

/* What the program at hand takes; UINT64_MAX: it can't be run. */
static uint64_t value_at_hand(const struct pp_unit *unit)
{
	struct pp_arena *scratch = pp_arena_scratch(unit->arena);
	const struct pp_named_program *train = pp_program_find(unit->program, "train");
	struct pp_stamp stamp;
	struct pp_sim sim;
	uint64_t value = UINT64_MAX;
	if (pp_verify(unit->program, &stamp, pp_diag_apart(unit->diag)) &&
	    pp_simulate(scratch, unit->program, train, PP_LAYOUT_CHANNEL, false, &sim))
		value = unit->resolved.spec.seek.objective == PP_SEEK_SPAN ? sim.longest_span : sim.makespan;
	pp_arena_destroy(scratch);
	return value;
}

bool pp_split_contest_named(struct pp_unit *unit, bool fits)
{
	if (!may_be_replaced(unit) || !seeks(unit) || unit->named_tried || unit->resolved.spec.seek.start)
		return false;
	unit->named_tried = true;
	struct contest contest = {.unit = unit, .value = fits ? value_at_hand(unit) : value_of_leanest(unit)};
	struct pp_unit draft = open_trial(unit);
	contest.draft = &draft;
	if (pp_compile(&draft, PP_PASS_draft, NULL, NULL))
		compete_here(&contest);
	pp_arena_destroy(draft.arena);
	contest.draft = NULL;
	if (unit->given && !unit->options.hint.trial)
		search_on(&contest);
	return unit->given != NULL;
}

bool pp_split_contest_unbound(struct pp_unit *unit, bool fits)
{
	const char *policy = unit->resolved.policy;
	if (!may_be_replaced(unit) || seeks(unit) || unit->unbound_tried)
		return false;
	unit->unbound_tried = true;
	struct contest contest = {.unit = unit, .value = fits ? value_at_hand(unit) : UINT64_MAX};
	compete_unbound(&contest, policy, NULL);
	if (pp_schedule_aware(&unit->resolved))
		compete_unbound(&contest, policy,
		                pp_split_copy(unit->arena, &unit->stages, unit->resolved.spec.model.layer_count));
	return unit->first != NULL;
}

bool pp_split_contest_rooms(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	if (unit->contestant || unit->rooms_tried || unit->given || !unit->resolved.schedule ||
	    !pp_schedule_aware(&unit->resolved) || spec->seek.objective == PP_SEEK_MEMORY ||
	    actions_of(spec) > MOST_CONTESTED)
		return false;
	struct contest contest = {.unit = unit, .value = UINT64_MAX};
	compete_rooms(&contest);
	return unit->given != NULL;
}
