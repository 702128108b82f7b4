/* Compiling the combinations and ranking what comes out. requires: pp_plan_vary_read. ensures: the same rows in the
 * same order on every machine. */
#include "plan.h"

#include "measured.h"
#include "pass.h"
#include "policy.h"

#include "ir/capped.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one compilation ------------------------------------------------------------------------- */

/* Its own arena: freed by job_close. */
struct job {
	struct pp_unit unit;
	const char **sets;
};

static void job_open(struct job *job, const struct pp_plan_input *input)
{
	struct pp_arena *arena = pp_arena_create(input->out_of_memory);
	*job = (struct job){0};
	job->unit.arena = arena;
	job->unit.strings = pp_strtab_create(arena);
	job->unit.sources = pp_sources_create(arena);
	job->unit.diag = pp_diag_create(arena, job->unit.sources);
	job->unit.tool_version = input->tool_version;
	job->unit.lowering = input->lowering;
	job->unit.options = input->options;
	job->unit.source = pp_sources_add(job->unit.sources, input->spec.name, input->spec.text, input->spec.length);
}

static void job_close(struct job *job)
{
	pp_arena_destroy(job->unit.arena);
}

static void job_set(struct job *job, const char *attribute, const char *value)
{
	struct pp_resolve_options *options = &job->unit.options;
	const char **sets = PP_NEW_ARRAY(job->unit.arena, const char *, options->set_count + 1);
	if (options->set_count)
		memcpy(sets, options->sets, options->set_count * sizeof *sets);
	sets[options->set_count++] = pp_arena_printf(job->unit.arena, "%s=%s", attribute, value);
	options->sets = sets;
}

static bool job_run(struct job *job, const struct pp_plan_input *input, enum pp_pass last)
{
	struct pp_unit *unit = &job->unit;
	if (input->profile.text && last != PP_PASS_parse) {
		const struct pp_source *source =
		    pp_sources_add(unit->sources, input->profile.name, input->profile.text, input->profile.length);
		unit->profile = pp_measured_read(unit->arena, source, unit->diag);
		if (!unit->profile)
			return false;
	}
	return pp_compile(unit, last, NULL, NULL);
}

/* ---- combinations ---------------------------------------------------------------------------- */

struct planning {
	struct pp_arena *arena;
	const struct pp_plan_input *input;
	struct pp_plan *plan;
	/* Of 1f1b under the values that `memory`, `schedule`, `vpp` and `place` do not choose: what multiples of its memory
	 * count from. */
	const char **base_values;
	bool base_ok;
	const char *base_reason;
	uint64_t base_peak, base_fixed;
};

static bool is(const struct pp_plan_axis *axis, const char *name)
{
	return strcmp(axis->name, name) == 0;
}

/* "0.75x": how many times the memory of 1f1b. False: it is none of these. */
static bool read_multiple(const char *text, double *times)
{
	char *end;
	if ((*text < '0' || *text > '9') && *text != '.')
		return false;
	*times = strtod(text, &end);
	return end != text && strcmp(end, "x") == 0;
}

static bool chosen_by_schedule(const struct pp_plan_axis *axis)
{
	return is(axis, "schedule") || is(axis, "vpp") || is(axis, "place") || is(axis, "memory");
}

static void set_values(struct job *job, const struct pp_plan_vary *vary, const char **values, bool base)
{
	for (size_t a = 0; a < vary->count; a++) {
		const struct pp_plan_axis *axis = &vary->axes[a];
		if (is(axis, "memory") || (base && chosen_by_schedule(axis)))
			continue;
		if (axis->attribute)
			job_set(job, axis->attribute, values[a]);
		else
			job->unit.options.schedule = values[a];
	}
}

/* Bytes of a rank that no schedule changes: weights, gradients, optimizer state. */
static uint64_t fixed_bytes(const struct pp_unit *unit, uint32_t rank)
{
	uint64_t bytes = 0;
	for (uint32_t s = 0; s < unit->stages.count; s++)
		if (unit->stages.items[s].rank == rank)
			bytes = pp_plus(bytes, unit->stages.items[s].static_bytes);
	return bytes;
}

static uint32_t fullest_rank(const struct pp_program *program)
{
	uint32_t fullest = 0;
	for (uint32_t r = 1; r < program->ranks; r++)
		if (program->rank[r].arena_bytes > program->rank[fullest].arena_bytes)
			fullest = r;
	return fullest;
}

/* The first error as a reason. */
static void take_reason(struct pp_arena *arena, const struct pp_diag *diag, const char **code, const char **reason,
                        const char **help)
{
	struct pp_first_error first = pp_diag_first_error(diag);
	*code = pp_arena_printf(arena, "%s", first.code);
	*reason = pp_arena_printf(arena, "%s", first.summary);
	bool or = strncmp(first.help, "or ", 3) == 0; /* beside nothing */
	*help = pp_arena_printf(arena, "%s", first.help + (or ? 3 : 0));
	if (strcmp(first.code, "E0630") == 0 && *first.enough && strcmp(first.enough, first.help) != 0)
		*help = pp_arena_printf(arena, "%s; %s", first.help, first.enough);
}

static bool same_base(const struct planning *planning, const char **values)
{
	const struct pp_plan_vary *vary = planning->plan->vary;
	for (size_t a = 0; planning->base_values && a < vary->count; a++)
		if (!chosen_by_schedule(&vary->axes[a]) && strcmp(planning->base_values[a], values[a]) != 0)
			return false;
	return planning->base_values != NULL;
}

static void measure_base(struct planning *planning, const char **values)
{
	struct job job;
	job_open(&job, planning->input);
	set_values(&job, planning->plan->vary, values, true);
	job.unit.options.schedule = "1f1b";
	job.unit.options.all_schedules = true;
	job_set(&job, "parallel.vpp", "1");
	job_set(&job, "schedule.memory", "none");
	planning->base_values = values;
	planning->base_ok = job_run(&job, planning->input, PP_PASS_plan);
	if (planning->base_ok) {
		uint32_t rank = fullest_rank(job.unit.program);
		planning->base_peak = job.unit.program->rank[rank].arena_bytes;
		planning->base_fixed = fixed_bytes(&job.unit, rank);
	} else {
		const char *code, *help;
		take_reason(planning->arena, job.unit.diag, &code, &planning->base_reason, &help);
	}
	job_close(&job);
}

/* More is a slip: no schedule holds so much. */
enum { MOST_TIMES = 1000 };

/* The cap of a row as --set takes it, or NULL: none. False: the row is refused. */
static bool choose_cap(struct planning *planning, const char *text, struct pp_plan_row *row, const char **value)
{
	double times;
	*value = text;
	if (strcmp(text, "none") == 0)
		*value = NULL;
	if (!read_multiple(text, &times))
		return true;
	if (!(times <= MOST_TIMES)) {
		row->reason =
		    pp_arena_printf(planning->arena, "at most %dx, a multiple of the memory of 1f1b, is taken", MOST_TIMES);
		row->help = "for no bound at all use `none`";
		return false;
	}
	if (!same_base(planning, row->values))
		measure_base(planning, row->values);
	if (!planning->base_ok) {
		row->reason = pp_arena_printf(planning->arena, "multiples of the memory of 1f1b, which is refused: %s",
		                              planning->base_reason);
		return false;
	}
	double held = (double)planning->base_peak - (double)planning->base_fixed;
	double cap = (double)planning->base_fixed + times * (held > 0 ? held : 0);
	planning->plan->multiples = true;
	planning->plan->unit = planning->base_peak;
	planning->plan->fixed = planning->base_fixed;
	*value = pp_arena_printf(planning->arena, "%" PRIu64 "B", cap < 9e18 ? (uint64_t)(cap + 0.5) : UINT64_C(1) << 62);
	return true;
}

/* What the compilation says. */
static void take_figures(const struct pp_unit *unit, struct pp_plan_row *row)
{
	const struct pp_program *program = unit->program;
	const struct pp_sim *sim = &unit->sim;
	row->makespan = sim->makespan;
	row->tail = sim->tail;
	row->span = sim->longest_span;
	row->bound = sim->bound.makespan;
	row->span_bound = sim->bound.span;
	row->bubble = sim->bubble;
	row->span_bubble = sim->span_bubble;
	row->peak_rank = fullest_rank(program);
	row->peak = program->rank[row->peak_rank].arena_bytes;
	for (uint32_t r = 0; r < program->ranks; r++) {
		row->messages += sim->rank[r].sent;
		row->in_flight = sim->rank[r].peak_stashes > row->in_flight ? sim->rank[r].peak_stashes : row->in_flight;
	}
	row->samples = pp_times(pp_times(program->train.microbatch ? program->train.microbatch : 1, program->microbatches),
	                        program->dp ? program->dp : 1);
}

static bool varies_schedule(const struct pp_plan_vary *vary)
{
	for (size_t a = 0; a < vary->count; a++)
		if (is(&vary->axes[a], "schedule"))
			return true;
	return false;
}

/* Compiles a row; with `memory` "none" again without the bound that its schedule turned out to have. */
static void run_row(struct planning *planning, struct pp_plan_row *row, const char *cap, bool none, struct job *job)
{
	const struct pp_plan_vary *vary = planning->plan->vary;
	for (row->unbound = false;; row->unbound = true) {
		job_open(job, planning->input);
		job->unit.options.all_schedules = varies_schedule(vary);
		set_values(job, vary, row->values, false);
		if (cap || row->unbound)
			job_set(job, "schedule.memory", cap ? cap : "none");
		row->refused = !job_run(job, planning->input, PP_PASS_simulate);
		if (!none || row->unbound || job->unit.resolved.spec.schedule_memory == 0)
			return;
		job_close(job);
	}
}

static void try_row(struct planning *planning, struct pp_plan_row *row)
{
	const struct pp_plan_vary *vary = planning->plan->vary;
	const char *cap = NULL;
	bool none = false;
	row->code = row->reason = row->help = "";
	row->schedule = row->place = "";
	for (size_t a = 0; a < vary->count; a++) {
		if (is(&vary->axes[a], "schedule"))
			row->schedule = row->values[a];
		else if (is(&vary->axes[a], "memory")) {
			row->refused = !choose_cap(planning, row->values[a], row, &cap);
			none = cap == NULL;
		}
	}
	if (row->refused)
		return;
	struct job job;
	run_row(planning, row, cap, none, &job);
	const struct pp_spec *spec = &job.unit.resolved.spec;
	if (spec->stages.stage_count) { /* resolved */
		row->schedule = pp_arena_printf(planning->arena, "%s", spec->schedule_name ? spec->schedule_name : "");
		row->place = pp_place_name[spec->stages.place];
		row->vpp = spec->parallel.vpp;
		row->stages = spec->stages.stage_count;
		row->cap = cap ? spec->schedule_memory : 0;
	}
	if (row->refused)
		take_reason(planning->arena, job.unit.diag, &row->code, &row->reason, &row->help);
	else
		take_figures(&job.unit, row);
	job_close(&job);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* A schedule that does not take what we tried of our own accord: nobody asked for it. */
static bool nobody_asked(const struct pp_plan_vary *vary, const struct pp_plan_row *row)
{
	bool ours = false;
	for (size_t a = 0; a < vary->count; a++)
		ours |= !vary->axes[a].given && (is(&vary->axes[a], "vpp") || is(&vary->axes[a], "place"));
	static const char *const codes[] = {"E0614", "E0407", "E0656", "E0603"};
	bool listed = false;
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		listed |= strcmp(row->code, codes[i]) == 0;
	return ours && row->refused && listed;
}

/* A schedule of the library that lacks what a file says for its own: nobody named it, and others can be run. */
static bool lacks_file(const struct pp_plan *plan, const struct pp_plan_row *row)
{
	for (size_t a = 0; a < plan->vary->count; a++)
		if (is(&plan->vary->axes[a], "schedule"))
			return !plan->vary->axes[a].given && strcmp(row->code, "E0111") == 0 && pp_policy_find(row->values[a]);
	return false;
}

static bool some_run(const struct pp_plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		if (!plan->rows[i].refused)
			return true;
	return false;
}

static bool same_schedule(const struct pp_plan *plan, const struct pp_plan_row *a, const struct pp_plan_row *b)
{
	for (size_t i = 0; i < plan->vary->count; i++)
		if (is(&plan->vary->axes[i], "schedule"))
			return strcmp(a->values[i], b->values[i]) == 0;
	return true;
}

/* One of the `kept` rows refuses the schedule for the same reason, whatever `vpp` or `place` that we tried. */
static bool repeats_reason(const struct pp_plan *plan, size_t kept, const struct pp_plan_row *row)
{
	bool ours = false;
	for (size_t a = 0; a < plan->vary->count; a++) {
		bool shape = is(&plan->vary->axes[a], "vpp") || is(&plan->vary->axes[a], "place");
		ours |= shape && !plan->vary->axes[a].given;
		if (!shape && !is(&plan->vary->axes[a], "schedule"))
			return false;
	}
	for (size_t i = 0; ours && row->refused && i < kept; i++)
		if (plan->rows[i].refused && same_schedule(plan, &plan->rows[i], row) &&
		    strcmp(plan->rows[i].code, row->code) == 0 && strcmp(plan->rows[i].reason, row->reason) == 0)
			return true;
	return false;
}

/* Whether a row has the number of stages that its policy needs: then what refuses it is something else. */
static bool as_needed(const struct pp_plan *plan, const struct pp_plan_row *row)
{
	const struct pp_policy *policy = pp_policy_find(row->schedule);
	for (size_t a = 0; policy && policy->vpp && a < plan->vary->count; a++)
		if (is(&plan->vary->axes[a], "vpp"))
			return strtoul(row->values[a], NULL, 10) == policy->vpp;
	return false;
}

/* Leave out what nobody asked for; of a schedule that takes none of it one row stays: the first, or the first with the
 * number of stages that it needs. */
static void leave_out(struct pp_arena *arena, struct pp_plan *plan)
{
	bool *out = PP_NEW_ARRAY(arena, bool, plan->count);
	for (size_t i = 0; i < plan->count; i++)
		for (size_t j = 0; j < plan->count && !out[i] && nobody_asked(plan->vary, &plan->rows[i]); j++) {
			const struct pp_plan_row *row = &plan->rows[i], *other = &plan->rows[j];
			bool sooner = as_needed(plan, other) == as_needed(plan, row) ? j < i : as_needed(plan, other);
			out[i] = j != i && same_schedule(plan, row, other) && (sooner || !nobody_asked(plan->vary, other));
		}
	size_t kept = 0;
	bool runs = some_run(plan);
	for (size_t i = 0; i < plan->count; i++) {
		if (runs && lacks_file(plan, &plan->rows[i])) {
			plan->lacking++;
			plan->lack = plan->rows[i].reason;
		} else if (!out[i] && !repeats_reason(plan, kept, &plan->rows[i])) {
			plan->rows[kept++] = plan->rows[i];
		}
	}
	plan->left_out = plan->count - kept - plan->lacking;
	plan->count = kept;
}

double pp_plan_pace(const struct pp_plan_row *row)
{
	return (double)pp_plus(row->makespan, row->tail) / (double)(row->samples ? row->samples : 1);
}

/* Faster, then smaller, then fewer messages. Refused rows come last. */
static int by_pace(const void *left, const void *right)
{
	const struct pp_plan_row *a = *(const struct pp_plan_row *const *)left,
	                         *b = *(const struct pp_plan_row *const *)right;
	if (a->refused != b->refused)
		return a->refused ? 1 : -1;
	if (!a->refused) {
		double x = pp_plan_pace(a), y = pp_plan_pace(b);
		if (x != y)
			return x < y ? -1 : 1;
		if (a->peak != b->peak)
			return a->peak < b->peak ? -1 : 1;
		if (a->messages != b->messages)
			return a->messages < b->messages ? -1 : 1;
	}
	return (a > b) - (a < b); /* both in one array: as listed */
}

static void rank_rows(struct pp_arena *arena, struct pp_plan *plan)
{
	const struct pp_plan_row **sorted = PP_NEW_ARRAY(arena, const struct pp_plan_row *, plan->count);
	struct pp_plan_row *rows = PP_NEW_ARRAY(arena, struct pp_plan_row, plan->count);
	for (size_t i = 0; i < plan->count; i++)
		sorted[i] = &plan->rows[i];
	qsort(sorted, plan->count, sizeof *sorted, by_pace);
	for (size_t i = 0; i < plan->count; i++)
		rows[i] = *sorted[i];
	plan->rows = rows;
	while (plan->ranked < plan->count && !rows[plan->ranked].refused)
		plan->ranked++;
	plan->same_batch = true;
	uint64_t least = UINT64_MAX; /* memory of what is faster */
	for (size_t i = 0; i < plan->ranked; i++) {
		bool equal = i && rows[i - 1].front && rows[i - 1].peak == rows[i].peak &&
		             pp_plan_pace(&rows[i - 1]) == pp_plan_pace(&rows[i]);
		rows[i].front = rows[i].peak < least || equal;
		least = rows[i].peak < least ? rows[i].peak : least;
		plan->same_batch &= rows[i].samples == rows[0].samples;
	}
}

/* Schedules of the library, then those that the file writes out. */
static void list_schedules(struct pp_arena *arena, const struct pp_ast *ast, struct pp_plan_axis *axis)
{
	size_t capacity = 0;
	for (size_t i = 0; i < pp_policy_count; i++)
		if (pp_policies[i].status == PP_NOW)
			*PP_PUSH(arena, &axis->values, &axis->count, &capacity, const char *) = pp_policies[i].name;
	for (const struct pp_stmt *at = ast->first; at; at = at->next) {
		if (at->kind != PP_STMT_BLOCK || strcmp(at->name.text, "schedule") != 0)
			continue;
		const char *name = at->label.text ? at->label.text : "custom";
		bool known = pp_policy_find(name) != NULL;
		for (size_t i = 0; i < axis->count && !known; i++)
			known = strcmp(axis->values[i], name) == 0;
		if (!known)
			*PP_PUSH(arena, &axis->values, &axis->count, &capacity, const char *) = pp_arena_printf(arena, "%s", name);
	}
}

bool pp_plan_prepare(struct pp_arena *arena, const struct pp_plan_input *input, struct pp_plan_vary *vary,
                     struct pp_diag *diag, struct pp_sources *sources)
{
	const struct pp_source *source = pp_sources_add(sources, input->spec.name, input->spec.text, input->spec.length);
	const struct pp_ast *ast = pp_parse(arena, pp_strtab_create(arena), source, diag);
	if (pp_diag_ok(diag) && input->profile.text) {
		const struct pp_source *profile =
		    pp_sources_add(sources, input->profile.name, input->profile.text, input->profile.length);
		pp_measured_read(arena, profile, diag);
	}
	if (!pp_diag_ok(diag))
		return false;
	for (size_t a = 0; a < vary->count; a++)
		if (is(&vary->axes[a], "schedule") && vary->axes[a].count == 0)
			list_schedules(arena, ast, &vary->axes[a]);
	return true;
}

void pp_plan_make(struct pp_arena *arena, const struct pp_plan_input *input, const struct pp_plan_vary *vary,
                  struct pp_plan *plan)
{
	*plan = (struct pp_plan){.vary = vary, .count = (size_t)pp_plan_vary_count(vary)};
	struct planning planning = {.arena = arena, .input = input, .plan = plan};
	plan->rows = PP_NEW_ARRAY(arena, struct pp_plan_row, plan->count);
	for (size_t i = 0; i < plan->count; i++) {
		struct pp_plan_row *row = &plan->rows[i];
		row->values = PP_NEW_ARRAY(arena, const char *, vary->count);
		size_t rest = i;
		for (size_t a = vary->count; a-- > 0; rest /= vary->axes[a].count)
			row->values[a] = vary->axes[a].values[rest % vary->axes[a].count];
		if (input->progress)
			input->progress(input->context, i, plan->count);
		try_row(&planning, row);
	}
	leave_out(arena, plan);
	rank_rows(arena, plan);
}

bool pp_plan_all_alike(const struct pp_plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		if (!*plan->rows[i].code || strcmp(plan->rows[i].code, plan->rows[0].code) != 0 ||
		    strcmp(plan->rows[i].reason, plan->rows[0].reason) != 0)
			return false;
	return plan->ranked == 0 && plan->count + plan->left_out > 1;
}

void pp_plan_explain(const struct pp_plan_input *input, const struct pp_plan *plan, const struct pp_plan_row *row,
                     enum pp_diag_format format, bool color, FILE *out)
{
	struct job job;
	job_open(&job, input);
	job.unit.options.all_schedules = varies_schedule(plan->vary);
	set_values(&job, plan->vary, row->values, false);
	job_run(&job, input, PP_PASS_simulate);
	pp_diag_print(job.unit.diag, out, format, color);
	job_close(&job);
}

const char *pp_plan_arguments(struct pp_arena *arena, const struct pp_plan *plan, const struct pp_plan_row *row)
{
	const char *text = "";
	for (size_t a = 0; a < plan->vary->count; a++) {
		const struct pp_plan_axis *axis = &plan->vary->axes[a];
		const char *value = row->values[a];
		if (is(axis, "memory")) {
			const char *bound = row->cap ? pp_arena_printf(arena, "%" PRIu64 "B", row->cap) : "none";
			if (row->cap || row->unbound)
				text = pp_arena_printf(arena, "%s%s--set schedule.memory=%s", text, *text ? " " : "", bound);
			continue;
		}
		bool quoted = strpbrk(value, " []()*;&|<>$'\"\\") != NULL;
		const char *mark = quoted ? "'" : "";
		if (axis->attribute)
			text = pp_arena_printf(arena, "%s%s--set %s%s=%s%s", text, *text ? " " : "", mark, axis->attribute, value,
			                       mark);
		else
			text = pp_arena_printf(arena, "%s%s--schedule=%s%s%s", text, *text ? " " : "", mark, value, mark);
	}
	return text;
}
