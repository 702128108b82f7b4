/* The passes in order. Each reads what earlier ones put into the unit and reports to unit->diag. */
#include "pass.h"

#include "codegen/layer.h"
#include "codegen/ctas.h"
#include "codegen/lower.h"
#include "codegen/plan_memory.h"
#include "cost.h"
#include "deadline.h"
#include "joint/joint.h"
#include "lean.h"
#include "memory_floor.h"
#include "ir/capped.h"
#include "ir/grid.h"
#include "ir/program_text.h"
#include "ir/verify.h"
#include "measured.h"
#include "order_problem.h"
#include "partition.h"
#include "recompute.h"
#include "rounds.h"
#include "schedule_make.h"
#include "search/make.h"
#include "search/search.h"
#include "search/place.h"
#include "split_contest.h"
#include "stages_print.h"

#include <inttypes.h>
#include <string.h>

static bool run_parse(struct pp_unit *unit)
{
	unit->ast = pp_parse(unit->arena, unit->strings, unit->source, unit->diag);
	return pp_diag_ok(unit->diag);
}

static void print_ast(const struct pp_unit *unit, FILE *out)
{
	pp_ast_print(unit->ast, out);
}

/* The timeout counts from here, for all searches of the compilation together: of drafts, placements, splits and rounds.
 */
static void share_deadline(struct pp_unit *unit)
{
	struct pp_seek *seek = &unit->resolved.spec.seek;
	if (seek->used && seek->timeout && !unit->deadline)
		unit->deadline = pp_plus(pp_now(), seek->timeout);
	seek->deadline = unit->deadline;
}

static void rebound(struct pp_spec *spec, uint64_t memory)
{
	const uint64_t more_than_any = UINT64_C(1) << 60;
	if (memory == PP_MEMORY_UNBOUND && !spec->schedule_memory)
		spec->cluster.gpu.memory = more_than_any;
	spec->schedule_memory = memory == PP_MEMORY_UNBOUND ? 0 : memory;
}

static bool run_resolve(struct pp_unit *unit)
{
	bool ok =
	    pp_resolve(unit->arena, unit->strings, unit->sources, unit->ast, &unit->options, unit->diag, &unit->resolved);
	unit->resolved.spec.profile = unit->profile;
	if (unit->memory)
		rebound(&unit->resolved.spec, unit->memory);
	if (ok)
		share_deadline(unit);
	if (unit->instead)
		unit->resolved.policy = unit->instead;
	return ok;
}

static void print_spec(const struct pp_unit *unit, FILE *out)
{
	pp_spec_print(&unit->resolved.spec, out);
}

/* Layers and their prices, before anything is split. */
static bool price_layers(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	if (!pp_layers_check(unit->arena, spec, unit->diag))
		return false;
	pp_cost_layers(unit->arena, spec, &unit->stages);
	if (spec->profile && !pp_measured_check(unit->arena, spec, &unit->stages, unit->diag))
		return false;
	if (spec->profile)
		unit->deviation = pp_measured_layers(unit->arena, spec, &unit->stages);
	pp_recompute_warn(unit->arena, spec, &unit->stages, unit->diag);
	return true;
}

/* Whatever the order, at some time each stage holds a microbatch: when the last one runs its first forward. */
static struct pp_schedule least_order(struct pp_arena *arena, const struct pp_spec *spec)
{
	struct pp_schedule least = {.name = spec->schedule_name,
	                            .ranks = spec->parallel.pp,
	                            .stages = spec->stages.stage_count,
	                            .microbatches = spec->microbatches,
	                            .stage_rank = pp_schedule_place(arena, spec),
	                            .rows = PP_NEW_ARRAY(arena, struct pp_row, spec->parallel.pp)};
	struct pp_action *actions = PP_NEW_ARRAY(arena, struct pp_action, least.stages);
	uint32_t *count = PP_NEW_ARRAY(arena, uint32_t, least.ranks);
	for (uint32_t s = 0; s < least.stages; s++)
		count[least.stage_rank[s]]++;
	for (uint32_t r = 0; r < least.ranks; actions += count[r++])
		least.rows[r].actions = actions;
	for (uint32_t s = 0; s < least.stages; s++) {
		struct pp_row *row = &least.rows[least.stage_rank[s]];
		row->actions[row->count++] = (struct pp_action){.stage = s, .kind = PP_F, .span = PP_NO_SPAN};
	}
	return least;
}

enum { MOST_GROUPS_ACTIONS = 1 << 22 }; /* in all orders that are tried for another group */

/* The next larger group with which a named schedule finishes; 0: none was found. */
static uint32_t next_group(struct pp_unit *unit, const struct pp_order_problem *problem)
{
	struct pp_resolved trial = unit->resolved;
	struct pp_spec *spec = &trial.spec;
	struct pp_binding group = {pp_intern_z(trial.strings, "group"), pp_datum_whole(0)};
	struct pp_scope scope = {.outer = trial.scope, .bindings = &group, .count = 1};
	trial.scope = &scope;
	uint64_t actions = (uint64_t)spec->stages.stage_count * spec->microbatches * 3;
	for (uint64_t sum = actions; sum < MOST_GROUPS_ACTIONS && spec->group < spec->microbatches; sum += actions) {
		struct pp_arena *scratch = pp_arena_scratch(unit->arena);
		struct pp_diag *unseen = pp_diag_create(scratch, unit->sources);
		struct pp_schedule schedule = {0};
		group.value = pp_datum_whole(++spec->group);
		bool finishes = pp_schedule_make(scratch, &trial, unit->sources, unseen, problem, false, &schedule) &&
		                pp_schedule_check(scratch, &schedule, unseen);
		pp_arena_destroy(scratch);
		if (finishes)
			return spec->group;
	}
	return 0;
}

/* A named schedule that can't finish is wrong in its numbers, not in its rows: those are not the user's to change. */
static bool check_named(struct pp_unit *unit, const struct pp_order_problem *problem, struct pp_diag *diag,
                        const struct pp_schedule *schedule)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_diag *unseen = pp_diag_create(unit->arena, unit->sources);
	if (pp_schedule_check(unit->arena, schedule, unseen))
		return true;
	if (spec->group == 0)
		return pp_schedule_check(unit->arena, schedule, diag);
	struct pp_message *m = pp_error(diag, "E0614", spec->schedule_span,
	                                "`%s` can't finish with `group = %u`, %u ranks and %u microbatches",
	                                unit->resolved.policy, spec->group, spec->parallel.pp, spec->microbatches);
	uint32_t larger = next_group(unit, problem);
	if (larger)
		pp_help(m, "leave `group` out, or write `group = %u`: with that it finishes", larger);
	else
		pp_help(m, "leave `group` out: then all groups are large enough");
	return false;
}

static bool make_schedule(struct pp_unit *unit, const struct pp_order_problem *problem, struct pp_diag *diag,
                          struct pp_schedule *out)
{
	if (!pp_schedule_make(unit->arena, &unit->resolved, unit->sources, diag, problem, false, out))
		return false;
	return unit->resolved.policy ? check_named(unit, problem, diag, out) : pp_schedule_check(unit->arena, out, diag);
}

static bool run_draft(struct pp_unit *unit)
{
	if (pp_schedule_aware(&unit->resolved))
		unit->draft = least_order(unit->arena, &unit->resolved.spec);
	else if (!make_schedule(unit, NULL, unit->diag, &unit->draft))
		return false;
	return price_layers(unit);
}

static void print_draft(const struct pp_unit *unit, FILE *out)
{
	pp_schedule_print(&unit->draft, out);
}

/* Rows for stages that may not be the last ones. What is wrong with them is said when they are. */
static bool make_quickly(void *context, const struct pp_stages *stages, struct pp_schedule *schedule)
{
	struct pp_unit *unit = context;
	struct pp_resolved quick = unit->resolved;
	const struct pp_spec *spec = &quick.spec;
	quick.spec.seek.trial = true;
	if (spec->seek.objective == PP_SEEK_MEMORY) /* what it may cost is counted from the fastest */
		quick.spec.seek.objective = PP_SEEK_TIME;
	struct pp_diag *unseen = pp_diag_create(unit->arena, unit->sources);
	const struct pp_order_problem *problem = pp_order_of_stages(unit->arena, spec, unit->draft.stage_rank, stages,
	                                                            unit->order_headroom, spec->schedule_memory);
	return pp_schedule_make(unit->arena, &quick, unit->sources, unseen, problem, true, schedule);
}

/* The longest span of quickly made rows; UINT64_MAX: there are none. */
static uint64_t span_on(struct pp_unit *unit, const struct pp_stages *stages)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_schedule schedule = {0};
	struct pp_order_times times;
	if (!make_quickly(unit, stages, &schedule))
		return UINT64_MAX;
	const struct pp_order_problem *problem = pp_order_of_stages(unit->arena, spec, unit->draft.stage_rank, stages,
	                                                            unit->order_headroom, spec->schedule_memory);
	return pp_order_run(unit->arena, problem, schedule.rows, false, &times) ? times.longest_span : UINT64_MAX;
}

/* Where the split is ours, the simulated makespan has the last word; of a search for the shortest span, among it and
 * the split with the fastest slowest rank the span has. When the plan has asked for another round, rows that depend on
 * costs are not made again for every split that is tried. */
static void balance_jointly(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_joint_loop loop = {.spec = spec,
	                             .draft = &unit->draft,
	                             .headroom = unit->headroom,
	                             .order_headroom = unit->order_headroom,
	                             .make = pp_schedule_aware(&unit->resolved) ? make_quickly : NULL,
	                             .context = unit,
	                             .once = spec->seek.trial || unit->replans > 0};
	if (spec->stages.split || spec->stages.balance != PP_BALANCE_TIME || unit->draft.stages == 1)
		return;
	struct pp_stages balanced = unit->stages;
	pp_joint_balance(unit->arena, &loop, &unit->stages);
	if (spec->seek.objective == PP_SEEK_SPAN && span_on(unit, &balanced) <= span_on(unit, &unit->stages))
		unit->stages = balanced;
}

enum { MOST_SPLITS = 4 };

static void use_first(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	const struct pp_balance_problem *problem =
	    pp_partition_problem(unit->arena, spec, &unit->draft, unit->headroom, &unit->stages);
	pp_partition_use(unit->arena, spec, problem, unit->first, &unit->stages);
}

/* The split that is best by `balance`; where none is within the memory, that of the leanest build, if that is. */
static bool find_split(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	for (unsigned i = 0; i < MOST_SPLITS; i++) {
		if (!pp_partition(unit->arena, spec, &unit->draft, unit->headroom, &unit->stages, unit->diag))
			return false;
		if (unit->stages.over)
			break;
		if (!pp_schedule_aware(&unit->resolved) || !pp_rounds_split_is_ours(unit) || pp_rounds_leave_room(unit))
			return true;
	}
	if (!unit->stages.over)
		return true;
	if (pp_lean_take(unit))
		use_first(unit);
	else
		pp_rounds_report_split(unit);
	return unit->first != NULL;
}

static bool run_partition(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	if (unit->first)
		use_first(unit);
	else if (!find_split(unit))
		return false;
	if (!unit->first)
		balance_jointly(unit);
	pp_partition_warn(spec, &unit->stages, unit->diag);
	if (spec->profile)
		pp_measured_stages(spec, &unit->stages);
	return true;
}

const struct pp_order_problem *pp_unit_problem(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_order_problem *problem = pp_order_of_stages(unit->arena, spec, unit->draft.stage_rank, &unit->stages,
	                                                      unit->order_headroom, spec->schedule_memory);
	if (pp_order_limit(spec, spec->schedule_memory) != PP_ROOM_UNLIMITED)
		pp_order_be_certain(unit->arena, spec, pp_memory_floor(unit->arena, unit), spec->schedule_memory,
		                    unit->order_headroom != NULL, problem);
	pp_order_squeeze(unit->arena, pp_rounds_halvings(unit), problem);
	return problem;
}

/* Rows of a policy that looks at costs; where it finds no room, those of the leanest build, if that fits. */
static bool order_by_costs(struct pp_unit *unit)
{
	struct pp_diag *apart = pp_diag_apart(unit->diag);
	if (make_schedule(unit, pp_unit_problem(unit), apart, &unit->schedule)) {
		pp_diag_take(unit->diag, apart);
		return true;
	}
	if (pp_rounds_rescue(unit, apart)) {
		use_first(unit);
		return true;
	}
	pp_diag_take(unit->diag, apart);
	return false;
}

static bool run_schedule(struct pp_unit *unit)
{
	if (!pp_schedule_aware(&unit->resolved)) {
		unit->schedule = unit->draft;
		return true;
	}
	if (!unit->given && !order_by_costs(unit))
		return false;
	if (!unit->given)
		return true;
	unit->schedule = *unit->given;
	if (!unit->resolved.policy || strcmp(unit->resolved.policy, "search") != 0 || unit->contestant)
		return true;
	const struct pp_order_problem *problem = pp_unit_problem(unit);
	if (!unit->schedule.search)
		pp_search_adopt(unit->arena, &unit->resolved, problem, &unit->schedule);
	pp_search_remind(unit->arena, &unit->resolved, unit->sources, unit->diag, problem, &unit->schedule);
	return true;
}

static void print_schedule(const struct pp_unit *unit, FILE *out)
{
	pp_schedule_print(&unit->schedule, out);
}

static void print_stages(const struct pp_unit *unit, FILE *out)
{
	pp_stages_print(unit->arena, &unit->resolved.spec, &unit->stages, out);
}

/* What a rank may use: the device's memory, or less where the schedule's `memory <=` leaves less beside the reserve. */
static uint64_t capacity_of(const struct pp_spec *spec)
{
	const struct pp_gpu *gpu = &spec->cluster.gpu;
	uint64_t capped = pp_plus(spec->schedule_memory, gpu->reserve);
	return spec->schedule_memory && (gpu->memory == 0 || capped < gpu->memory) ? capped : gpu->memory;
}

struct pp_program *pp_unit_frame(const struct pp_unit *unit, struct pp_arena *arena)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	program->arena = arena;
	program->ranks = spec->parallel.pp;
	program->tp = spec->parallel.tp;
	program->dp = spec->parallel.dp;
	program->zero = spec->parallel.zero;
	program->vpp = spec->parallel.vpp;
	program->rank_order = (uint8_t)pp_rank_order_of(spec->parallel.rank_order);
	program->gpus = spec->cluster.gpus;
	program->stage_count = unit->stages.count;
	program->microbatches = spec->microbatches;
	program->rank = PP_NEW_ARRAY(arena, struct pp_rank, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		struct pp_rank *rank = &program->rank[r];
		rank->capacity = capacity_of(spec);
		rank->reserve = spec->cluster.gpu.reserve;
		uint32_t first = pp_grid_rank(program, (struct pp_coord){.pp = r});
		rank->node = first / spec->cluster.gpus;
		rank->gpu = first % spec->cluster.gpus;
		rank->sms = spec->cluster.gpu.sms;
		rank->post_sms = spec->cluster.gpu.post_sms;
	}
	program->cost.memory_bandwidth = spec->cluster.gpu.bandwidth;
	if (spec->profile && pp_profile_bandwidth(spec->profile))
		program->cost.memory_bandwidth = pp_profile_bandwidth(spec->profile);
	program->cost.peak_flops = spec->cluster.gpu.flops[spec->dtype];
	program->cost.pair_permille = spec->pair_permille;
	program->train = spec->train;
	program->schedule_name = unit->schedule.name;
	program->schedule_memory = spec->schedule_memory;
	program->lowering = (uint8_t)unit->lowering;
	program->source_name = unit->source->name;
	program->source_text = unit->source->text;
	program->tool_version = unit->tool_version;
	return program;
}

/* Which phases the schedule uses for each stage. */
static uint8_t *phases_used(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	static const uint8_t phase_of[PP_ACTION_KINDS] = {
	    [PP_F] = 1 << PP_PHASE_F, [PP_B] = 1 << PP_PHASE_B, [PP_I] = 1 << PP_PHASE_I, [PP_W] = 1 << PP_PHASE_W};
	uint8_t *phases = PP_NEW_ARRAY(arena, uint8_t, schedule->stages);
	for (uint32_t r = 0; r < schedule->ranks; r++)
		for (uint32_t i = 0; i < schedule->rows[r].count; i++)
			phases[schedule->rows[r].actions[i].stage] |= phase_of[schedule->rows[r].actions[i].kind];
	return phases;
}

static bool run_bodies(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	unit->program = pp_unit_frame(unit, unit->arena);
	pp_tensors_build(unit->program, spec, &unit->stages);
	pp_bodies_build(unit->program, spec, &unit->stages, phases_used(unit->arena, &unit->schedule));
	return true;
}

static void print_program(const struct pp_unit *unit, FILE *out)
{
	pp_program_print(unit->program, out);
}

static bool run_lower(struct pp_unit *unit)
{
	return pp_lower(unit->program, &unit->resolved.spec, &unit->schedule, unit->diag);
}

static bool run_plan(struct pp_unit *unit)
{
	if (!pp_plan_memory(unit->program, unit->diag))
		return false;
	pp_give_ctas(unit->program, &unit->resolved.spec);
	return true;
}

static bool run_verify(struct pp_unit *unit)
{
	if (!pp_rounds_within(unit))
		return false;
	return pp_verify(unit->program, &unit->program->stamp, unit->diag);
}

/* As zero-bubble schedules do: then the formula of 1f1b says nothing. */
static bool has_split_backward(const struct pp_unit *unit)
{
	for (uint32_t r = 0; r < unit->schedule.ranks; r++)
		for (uint32_t i = 0; i < unit->schedule.rows[r].count; i++)
			if (unit->schedule.rows[r].actions[i].kind == PP_I)
				return true;
	return false;
}

/* Fewer microbatches than ranks: legal, but most of the step is filling and draining. */
static void warn_few_microbatches(const struct pp_unit *unit)
{
	uint32_t ranks = unit->program->ranks, microbatches = unit->program->microbatches;
	if (microbatches >= ranks)
		return;
	struct pp_message *m = pp_warning(unit->diag, "W0601", unit->resolved.spec.train_span,
	                                  "%u microbatch%s on %u ranks: ranks idle %.0f %% of the makespan", microbatches,
	                                  microbatches == 1 ? "" : "es", ranks, 100 * unit->sim.bubble);
	if (has_split_backward(unit))
		pp_help(m, "microbatches = %u, four for every rank, would leave most of them little to wait for", 4 * ranks);
	else
		pp_help(m, "microbatches = %u would leave about %.0f %% with equal stages under 1f1b: (p-1) / (m+p-1)",
		        4 * ranks, 100.0 * (ranks - 1) / (5.0 * ranks - 1));
}

static double seconds_of(const struct pp_stage *stage)
{
	return ((double)stage->ticks[PP_PHASE_F] + (double)stage->ticks[PP_PHASE_R] + (double)stage->ticks[PP_PHASE_B]) *
	       1e-9;
}

/* Times are counted in 64 bits of ns. Beyond a century the costs are wrong, and sums over ranks would overflow. */
static bool check_time(struct pp_unit *unit)
{
	const uint64_t most = UINT64_C(1) << 62;
	if (unit->sim.makespan < most && unit->sim.tail < most)
		return true;
	const struct pp_program *program = unit->program;
	uint32_t slowest = 0;
	for (uint32_t s = 1; s < program->stage_count; s++)
		if (seconds_of(&program->stages[s]) > seconds_of(&program->stages[slowest]))
			slowest = s;
	struct pp_message *message = pp_error(unit->diag, "E0313", unit->resolved.spec.schedule_span,
	                                      "a step would take more than 2^62 ns (146 years)");
	pp_note(message, "the slowest stage, %u, computes %.3g s per microbatch; there are %u microbatches", slowest,
	        seconds_of(&program->stages[slowest]), program->microbatches);
	pp_help(message, "check times and work of the layers, speed of the devices and bandwidth of the links");
	return false;
}

static bool run_simulate(struct pp_unit *unit)
{
	const struct pp_named_program *train = pp_program_find(unit->program, "train");
	if (!pp_simulate(unit->arena, unit->program, train, PP_LAYOUT_CHANNEL, false, &unit->sim))
		return false;
	if (!check_time(unit))
		return false;
	warn_few_microbatches(unit);
	if (unit->profile)
		pp_measured_warn(&unit->resolved.spec, &unit->stages, unit->deviation, unit->diag);
	return true;
}

static void print_metrics(const struct pp_unit *unit, FILE *out)
{
	fprintf(out, "makespan_ns %llu\ntail_ns %llu\nbubble %.6f\n", (unsigned long long)unit->sim.makespan,
	        (unsigned long long)unit->sim.tail, unit->sim.bubble);
}

static bool run_asserts(struct pp_unit *unit)
{
	const struct pp_program *program = unit->program;
	struct pp_metrics metrics = {
	    .bubble = unit->sim.bubble,
	    .span_bubble = unit->sim.span_bubble,
	    .time_per_step = (double)(unit->sim.makespan + unit->sim.tail) / 1e9,
	    .imbalance = unit->sim.imbalance,
	};
	uint64_t flops = 0;
	for (uint32_t s = 0; s < program->stage_count; s++)
		flops += program->stages[s].flops[PP_PHASE_F] + program->stages[s].flops[PP_PHASE_I] +
		         program->stages[s].flops[PP_PHASE_W];
	for (uint32_t r = 0; r < program->ranks; r++)
		if ((double)program->rank[r].arena_bytes > metrics.peak_memory)
			metrics.peak_memory = (double)program->rank[r].arena_bytes;
	double capacity = metrics.time_per_step * (double)program->cost.peak_flops * program->ranks;
	metrics.mfu = capacity > 0 ? (double)flops * program->microbatches / capacity : 0;
	return pp_asserts_check(unit->arena, &unit->resolved, &metrics, unit->diag);
}

const struct pp_pass_info pp_passes[PP_PASS_COUNT] = {
#define PP_PASS(name, level, print, summary) [PP_PASS_##name] = {#name, level, summary, run_##name, print_##print},
#include "passes.def"
#undef PP_PASS
};

enum pp_pass pp_pass_of_level(const char *level)
{
	for (unsigned i = 0; i < PP_PASS_COUNT; i++)
		if (*pp_passes[i].level && strcmp(pp_passes[i].level, level) == 0)
			return (enum pp_pass)i;
	return PP_PASS_COUNT;
}

/* `schedule search` may choose the placement, which the spec then is resolved for. */
static bool places_itself(struct pp_unit *unit)
{
	return unit->resolved.policy && !unit->contestant && strcmp(unit->resolved.policy, "search") == 0 &&
	       !unit->options.hint.place && pp_search_place(unit);
}

bool pp_compile(struct pp_unit *unit, enum pp_pass last, void (*after)(const struct pp_unit *, enum pp_pass, void *),
                void *context)
{
	for (unsigned i = 0; i <= (unsigned)last && i < PP_PASS_COUNT; i++) {
		bool ok = pp_passes[i].run(unit);
		if (after && (ok || i == PP_PASS_verify)) /* a refused program is worth seeing */
			after(unit, (enum pp_pass)i, context);
		if (!ok || !pp_diag_ok(unit->diag))
			return false;
		enum pp_pass from;
		if (i == PP_PASS_resolve && (last > PP_PASS_resolve || unit->options.placed) && places_itself(unit))
			i = PP_PASS_resolve - 1;
		else if (i == PP_PASS_resolve && last > PP_PASS_resolve)
			pp_split_contest(unit);
		if (i == PP_PASS_plan && pp_rounds_again(unit, &from))
			i = (unsigned)from - 1;
	}
	return true;
}
