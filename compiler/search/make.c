/* From a spec to the search, and from its report to text. */
#include "make.h"

#include "search.h"

#include "compiler/library.h"
#include "compiler/policy.h"
#include "compiler/rows.h"
#include "ir/figures.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* A little more than two stages on each of 64 ranks take with 1024 microbatches. */
enum { MOST_SEARCHED = 1 << 19 };

struct starts {
	struct pp_search_start *items;
	uint32_t count;
};

/* Rows of a library schedule on this placement. False: it can't be used here; why does not matter. */
static bool expand(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                   const struct pp_policy *policy, const struct pp_schedule *frame, struct pp_schedule *rows)
{
	const struct pp_spec *spec = &resolved->spec;
	struct pp_diag *unseen = pp_diag_create(arena, sources);
	struct pp_rows_input input = {
	    .name = policy->name,
	    .block = pp_library_schedule(arena, resolved->strings, sources, unseen, policy->name),
	    .shipped = true,
	    .place = spec->schedule_span,
	    .ranks = frame->ranks,
	    .stages = frame->stages,
	    .microbatches = frame->microbatches,
	    .stage_rank = frame->stage_rank,
	    .scope = resolved->scope,
	    .strings = resolved->strings,
	    .sources = resolved->sources,
	};
	return input.block && pp_rows_expand(arena, &input, unseen, rows) && pp_schedule_check(arena, rows, unseen);
}

/* Rows for another placement would never finish. */
static bool placed_as(const struct pp_schedule *frame, const struct pp_policy *policy)
{
	uint32_t p = frame->ranks;
	bool loose = policy->place == PP_PLACE_LIST || (policy->place == PP_PLACE_LOOP && frame->stages == p);
	if (policy->vpp && frame->stages != p * policy->vpp)
		return false;
	for (uint32_t s = 0; s < frame->stages && !loose; s++)
		if (frame->stages % p ||
		    frame->stage_rank[s] != pp_place_rank((enum pp_place)policy->place, s, p, frame->stages / p))
			return false;
	return true;
}

/* Library schedules as starts: all, or only the one that the spec names. */
static struct starts list_starts(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                                 const struct pp_schedule *frame)
{
	const char *only = resolved->spec.seek.start;
	struct starts starts = {.items = PP_NEW_ARRAY(arena, struct pp_search_start, pp_policy_count + 1)};
	for (size_t i = 0; i < pp_policy_count; i++) {
		const struct pp_policy *policy = &pp_policies[i];
		struct pp_schedule rows;
		if (policy->make || policy->status != PP_NOW || strcmp(policy->name, "search") == 0 ||
		    (only && strcmp(only, policy->name) != 0) || !placed_as(frame, policy))
			continue;
		if (expand(arena, resolved, sources, policy, frame, &rows))
			starts.items[starts.count++] = (struct pp_search_start){policy->name, rows.rows};
	}
	return starts;
}

/* Rows of the constructor that the spec names as start. False: `refusal` may say why. */
static bool construct_start(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_order_problem *problem,
                            struct starts *starts, struct pp_order_refusal *refusal)
{
	const struct pp_policy *policy = pp_policy_find(spec->seek.start);
	struct pp_row *rows = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks);
	struct pp_order_options options = {0};
	if (!policy->make || !policy->make(arena, problem, &options, rows, refusal))
		return false;
	starts->items[starts->count++] = (struct pp_search_start){policy->name, rows};
	return true;
}

/* Whether the stages lie where the schedule named as start has them. */
static bool start_fits(const struct pp_spec *spec, const struct pp_order_problem *problem)
{
	const struct pp_policy *policy = pp_policy_find(spec->seek.start);
	bool fits = !policy->vpp || problem->stages == problem->ranks * policy->vpp;
	for (uint32_t s = 0; fits && policy->place == PP_PLACE_V && s < problem->stages; s++)
		fits = problem->stage[s].rank == pp_place_rank(PP_PLACE_V, s, problem->ranks, policy->vpp);
	return fits;
}

static bool report_placement(const struct pp_spec *spec, struct pp_diag *diag)
{
	const struct pp_policy *policy = pp_policy_find(spec->seek.start);
	struct pp_message *message = pp_error(diag, "E0641", spec->seek.start_span,
	                                      "search can't start from `%s`: it needs `place = %s` and `vpp = %" PRIu32 "`",
	                                      spec->seek.start, pp_place_name[policy->place], policy->vpp);
	pp_help(
	    message,
	    "leave `place` and `vpp` out: they follow `start`; or leave `start` out: then all that can be used compete");
	return false;
}

static bool report_start(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_order_refusal *refusal,
                         struct pp_diag *diag)
{
	if (refusal->least_room) {
		struct pp_message *over =
		    pp_error(diag, "E0641", spec->seek.start_span, "search can't start from `%s`: it does not fit the memory",
		             spec->seek.start);
		pp_note(over, "rank %" PRIu32 " needs %s for activations at least", refusal->rank,
		        pp_show_bytes(arena, refusal->least_room));
		pp_help(over, "leave `start` out: then all that fit compete");
		return false;
	}
	struct pp_message *message =
	    pp_error(diag, "E0641", spec->seek.start_span,
	             "search can't start from `%s`: it can't be used on these ranks and stages", spec->seek.start);
	pp_help(message, "leave `start` out: then all that can be used compete");
	return false;
}

/* An order that takes more than there is can't be improved: then others are, and that is said. */
static void warn_of_start(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_order_problem *problem,
                          const struct pp_row *rows, struct pp_diag *diag)
{
	struct pp_order_times times;
	uint32_t worst = 0;
	uint64_t most = 0;
	if (pp_diag_said(diag, "W0643", spec->seek.start_span) || !pp_order_run(arena, problem, rows, false, &times))
		return;
	for (uint32_t r = 0; r < problem->ranks; r++) {
		uint64_t peak = times.rank[r].peak, over = peak > problem->room[r] ? peak - problem->room[r] : 0;
		worst = over > most ? r : worst;
		most = over > most ? over : most;
	}
	if (most == 0)
		return;
	struct pp_message *message = pp_warning(diag, "W0643", spec->seek.start_span,
	                                        "the search does not start from `%s`: it takes %s more on rank %" PRIu32
	                                        " than there is room for stashes",
	                                        spec->seek.start, pp_show_bytes(arena, most), worst);
	pp_help(message, "leave `start` out, or name a schedule that holds less, as 1f1b or v_min do");
}

static void warn_of_timeout(const struct pp_spec *spec, const struct pp_search_report *report, struct pp_diag *diag)
{
	if (strcmp(report->stopped, "timeout") != 0 || pp_diag_said(diag, "W0642", spec->schedule_span))
		return;
	pp_help(pp_warning(diag, "W0642", spec->schedule_span,
	                   "the search was stopped by its timeout: another machine may find another order"),
	        "raise `timeout`, or leave it out: by itself the search ends after a fixed number of evaluations");
}

static void report_infeasible(struct pp_arena *arena, const struct pp_spec *spec,
                              const struct pp_order_problem *problem, const struct pp_search_report *report,
                              struct pp_diag *diag)
{
	if (report->least_room == 0) {
		pp_error(diag, "E0313", spec->schedule_span,
		         "a step would take more than 2^52 ns (52 days): too long to search");
		return;
	}
	uint64_t room = (problem->most_room ? problem->most_room : problem->room)[report->tight_rank];
	bool certain = report->least_room > room;
	if (!certain)
		room = problem->room[report->tight_rank];
	struct pp_message *message =
	    pp_error(diag, "E0640", spec->memory_span,
	             "no order %s the memory: rank %" PRIu32 " needs %s for stashes, there are %s%s",
	             certain ? "fits" : "was found that fits", report->tight_rank,
	             pp_show_bytes_beside(arena, report->least_room, room),
	             pp_show_bytes_beside(arena, room, report->least_room), certain ? " at most" : "");
	pp_note(message,
	        "that is one microbatch at a time on all of its stages, beside weights, gradients, moments, "
	        "messages and workspace%s",
	        spec->stages.split || spec->stages.balance == PP_BALANCE_EVEN ? "" : ", on this split of the layers");
	if (!spec->schedule_memory)
		pp_help(message, "use more ranks, a smaller microbatch, or `recompute = full` in `train`");
}

bool pp_search_make(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                    struct pp_diag *diag, const struct pp_order_problem *problem, bool draft, struct pp_schedule *out)
{
	const struct pp_spec *spec = &resolved->spec;
	/* of an earlier round, or, if not stopped yet, from a shorter search to be gone on with */
	const struct pp_search_report *earlier = !draft && out->stages == problem->stages ? out->search : NULL;
	const struct pp_row *before = earlier ? out->rows : NULL;
	bool again = earlier && earlier->stopped;
	*out = (struct pp_schedule){
	    .name = spec->schedule_name,
	    .ranks = problem->ranks,
	    .stages = problem->stages,
	    .microbatches = problem->microbatches,
	    .stage_rank = PP_NEW_ARRAY(arena, uint32_t, problem->stages),
	    .rows = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks),
	};
	for (uint32_t s = 0; s < problem->stages; s++)
		out->stage_rank[s] = problem->stage[s].rank;
	uint64_t actions = (uint64_t)problem->stages * problem->microbatches * 3;
	if (actions > MOST_SEARCHED) {
		struct pp_message *message =
		    pp_error(diag, "E0623", spec->schedule_span,
		             "search would order %" PRIu64 " actions, at most %d are possible", actions, MOST_SEARCHED);
		pp_help(message, "use fewer microbatches, or a named schedule such as 1f1b, zb_h1 or zb_v");
		return false;
	}
	if (spec->seek.start && !start_fits(spec, problem))
		return report_placement(spec, diag);
	struct starts starts = list_starts(arena, resolved, sources, out);
	struct pp_order_refusal refusal = {0};
	if (spec->seek.start && starts.count == 0 && !construct_start(arena, spec, problem, &starts, &refusal))
		return report_start(arena, spec, &refusal, diag);
	if (spec->seek.start)
		warn_of_start(arena, spec, problem, starts.items[0].rows, diag);
	if (before) /* most of it still holds: less room only moves some actions */
		starts.items[starts.count++] = (struct pp_search_start){again ? "the round before" : earlier->start, before};
	struct pp_search_options options = {
	    .objective = (enum pp_objective)spec->seek.objective,
	    .seed = spec->seek.seed,
	    .effort = spec->seek.effort,
	    .timeout = spec->seek.timeout,
	    .deadline = spec->seek.deadline,
	    .start = spec->seek.start ? starts.items[0].rows : NULL,
	    .start_name = spec->seek.start,
	    .brief = spec->seek.trial || draft || again,
	    .more = starts.items,
	    .more_count = starts.count,
	};
	struct pp_search_report *report = PP_NEW(arena, struct pp_search_report);
	if (!pp_search(arena, problem, &options, out->rows, report)) {
		report_infeasible(arena, spec, problem, report, diag);
		return false;
	}
	out->search = report;
	warn_of_timeout(spec, report, diag);
	return true;
}

void pp_search_remind(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                      struct pp_diag *diag, const struct pp_order_problem *problem, const struct pp_schedule *schedule)
{
	const struct pp_spec *spec = &resolved->spec;
	struct starts starts = list_starts(arena, resolved, sources, schedule);
	struct pp_order_refusal refusal = {0};
	if (spec->seek.start && starts.count == 0)
		construct_start(arena, spec, problem, &starts, &refusal);
	if (spec->seek.start && starts.count)
		warn_of_start(arena, spec, problem, starts.items[0].rows, diag);
	warn_of_timeout(spec, schedule->search, diag);
}

void pp_search_adopt(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_order_problem *problem,
                     struct pp_schedule *schedule)
{
	struct pp_search_report *report = PP_NEW(arena, struct pp_search_report);
	struct pp_arena *scratch = pp_arena_scratch(arena);
	bool span = resolved->spec.seek.objective == PP_SEEK_SPAN;
	struct pp_order_times times;
	bool runs = pp_order_run(scratch, problem, schedule->rows, false, &times);
	assert(runs);
	(void)runs;
	*report = (struct pp_search_report){.bound = pp_order_bound(arena, problem, false),
	                                    .value = span ? times.longest_span : times.makespan,
	                                    .start = "one microbatch at a time"};
	report->stopped = report->value <= (span ? report->bound.span : report->bound.makespan) ? "optimal" : "memory";
	for (uint32_t r = 0; r < problem->ranks; r++)
		report->held = times.rank[r].peak > report->held ? times.rank[r].peak : report->held;
	report->held_fastest = report->held;
	schedule->search = report;
	pp_arena_destroy(scratch);
}

static uint64_t bound_of(const struct pp_resolved *resolved, const struct pp_search_report *report)
{
	return resolved->spec.seek.objective == PP_SEEK_SPAN ? report->bound.span : report->bound.makespan;
}

static double gap_of(uint64_t value, uint64_t bound)
{
	return bound && value > bound ? (double)(value - bound) / (double)bound : 0;
}

uint64_t pp_search_built(const struct pp_resolved *resolved, uint32_t ranks, const struct pp_sim *sim)
{
	uint64_t first = UINT64_MAX;
	if (resolved->spec.seek.objective == PP_SEEK_SPAN)
		return sim->longest_span;
	for (uint32_t r = 0; r < ranks; r++)
		if (sim->rank[r].busy && sim->rank[r].first < first)
			first = sim->rank[r].first;
	return first < sim->makespan ? sim->makespan - first : sim->makespan;
}

/* A proof is about orders. Where the split is ours, another one may be faster. */
static const char *proof_of(const struct pp_resolved *resolved)
{
	return resolved->spec.stages.split ? "stopped by proof\n" : "stopped by proof for this split\n";
}

/* Where messages fill their channel, the program takes longer than its order: then there is no proof of it. */
static bool proven(const struct pp_search_report *report, uint64_t built, uint64_t bound)
{
	return strcmp(report->stopped, "optimal") == 0 && built <= bound;
}

void pp_search_print(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_schedule *schedule,
                     const struct pp_sim *sim, FILE *out)
{
	const struct pp_search_report *report = schedule->search;
	uint64_t bound = bound_of(resolved, report), built = pp_search_built(resolved, schedule->ranks, sim);
	struct pp_time_unit unit = pp_time_unit_for(report->value);
	fprintf(out, "search: place %s, vpp %" PRIu32 "; %s %s %s", pp_place_name[resolved->spec.stages.place],
	        resolved->spec.parallel.vpp, resolved->spec.seek.objective == PP_SEEK_SPAN ? "longest span" : "makespan",
	        pp_show_time(arena, report->value, unit), unit.name);
	if (built != report->value)
		fprintf(out, " (simulated %s %s: messages wait for room in their channel)", pp_show_time(arena, built, unit),
		        unit.name);
	fprintf(out, ", bound %s %s, gap %.1f %%; from %s; %.1f M actions evaluated; ", pp_show_time(arena, bound, unit),
	        unit.name, 100 * gap_of(report->value, bound), report->start, (double)report->effort * 1e-6);
	if (strcmp(report->stopped, "optimal") != 0)
		fprintf(out, "stopped by %s\n", report->stopped);
	else
		fputs(proven(report, built, bound) ? proof_of(resolved) : "optimal but for full channels\n", out);
	if (resolved->spec.seek.objective == PP_SEEK_MEMORY)
		fprintf(out, "search: activations of the fullest rank %s, %s for the fastest order; at most %d %% slower\n",
		        pp_show_bytes_beside(arena, report->held, report->held_fastest),
		        pp_show_bytes_beside(arena, report->held_fastest, report->held), PP_MEMORY_PERCENT);
}

void pp_search_json(const struct pp_resolved *resolved, const struct pp_schedule *schedule, const struct pp_sim *sim,
                    struct pp_json *json)
{
	static const char *const objectives[] = {
	    [PP_SEEK_TIME] = "time", [PP_SEEK_SPAN] = "span", [PP_SEEK_MEMORY] = "memory"};
	const struct pp_search_report *report = schedule->search;
	uint64_t bound = bound_of(resolved, report), built = pp_search_built(resolved, schedule->ranks, sim);
	pp_json_open_object(json, "search");
	pp_json_string(json, "objective", objectives[resolved->spec.seek.objective]);
	pp_json_string(json, "place", pp_place_name[resolved->spec.stages.place]);
	pp_json_uint(json, "vpp", resolved->spec.parallel.vpp);
	pp_json_uint(json, "seed", resolved->spec.seek.seed);
	pp_json_uint(json, "value", report->value);
	pp_json_uint(json, "simulated", built);
	pp_json_uint(json, "bound", bound);
	pp_json_number(json, "gap", gap_of(report->value, bound));
	if (resolved->spec.seek.objective == PP_SEEK_MEMORY) {
		pp_json_uint(json, "held_bytes", report->held);
		pp_json_uint(json, "held_bytes_of_fastest", report->held_fastest);
	}
	pp_json_string(json, "start", report->start);
	pp_json_uint(json, "effort", report->effort);
	pp_json_string(json, "stopped", report->stopped);
	pp_json_bool(json, "proven", proven(report, built, bound));
	pp_json_close(json);
}
