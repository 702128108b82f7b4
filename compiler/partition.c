/* Choosing the split: weights and memory caps for balance.c, explicit and even splits, and the messages. */
#include "partition.h"

#include "balance.h"
#include "cost.h"
#include "ir/capped.h"

#include <string.h>

/* Per stage: what is held of it at the instant when its rank holds most stashes, and of such instants most extras. */
struct held {
	uint32_t *stashes, *extras; /* [stages] */
	uint32_t *split_extras;     /* of the extras, those as large as from I to W */
};

static bool ends_backward(const struct pp_action *action)
{
	return action->kind == PP_B || action->kind == PP_W;
}

static bool begins_backward(const struct pp_action *action)
{
	return action->kind == PP_B || action->kind == PP_I;
}

/* What is held when action `when` of a row runs. An extra is held from I to W, or during B. */
static void count_until(const struct pp_row *row, uint32_t when, struct held *held)
{
	for (uint32_t i = 0; i < row->count && i <= when; i++) {
		const struct pp_action *action = &row->actions[i];
		held->stashes[action->stage] += action->kind == PP_F;
		held->extras[action->stage] += begins_backward(action);
		if (i == when || !ends_backward(action))
			continue;
		held->stashes[action->stage]--;
		held->extras[action->stage]--;
	}
}

static void count_row(const struct pp_row *row, struct held *held)
{
	int64_t stashes = 0, extras = 0, most = 0, most_extras = 0;
	uint32_t when = 0;
	for (uint32_t i = 0; i < row->count; i++) {
		const struct pp_action *action = &row->actions[i];
		stashes += action->kind == PP_F;
		extras += begins_backward(action);
		if (stashes > most || (stashes == most && extras > most_extras)) {
			most = stashes;
			most_extras = extras;
			when = i;
		}
		stashes -= ends_backward(action);
		extras -= ends_backward(action);
	}
	count_until(row, when, held);
}

/* All extras of a stage are as large as its largest. */
static struct held count_held(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	struct held held = {PP_NEW_ARRAY(arena, uint32_t, schedule->stages),
	                    PP_NEW_ARRAY(arena, uint32_t, schedule->stages),
	                    PP_NEW_ARRAY(arena, uint32_t, schedule->stages)};
	bool *split = PP_NEW_ARRAY(arena, bool, schedule->stages);
	for (uint32_t r = 0; r < schedule->ranks; r++) {
		count_row(&schedule->rows[r], &held);
		for (uint32_t i = 0; i < schedule->rows[r].count; i++)
			split[schedule->rows[r].actions[i].stage] |= schedule->rows[r].actions[i].kind == PP_I;
	}
	for (uint32_t s = 0; s < schedule->stages; s++)
		held.split_extras[s] = split[s] ? held.extras[s] : 0;
	return held;
}

static uint64_t layer_time(const struct pp_stages *stages, uint32_t layer)
{
	const uint64_t *ticks = stages->layer_ticks[layer];
	return ticks[PP_PHASE_F] + ticks[PP_PHASE_R] + ticks[PP_PHASE_B];
}

static bool counts_as_layer(const struct pp_spec *spec, uint32_t layer)
{
	uint8_t kind = spec->model.layers[layer].kind;
	return kind == PP_LAYER_BLOCK || kind == PP_LAYER_CUSTOM;
}

static uint64_t weight_of(const struct pp_spec *spec, const struct pp_stages *stages, uint32_t layer)
{
	switch ((enum pp_balance)spec->stages.balance) {
	case PP_BALANCE_TIME:
		return layer_time(stages, layer);
	case PP_BALANCE_MEMORY:
		return pp_cost_static_bytes(spec, &stages->layers[layer]) + stages->layers[layer].stash_bytes +
		       stages->layers[layer].extra_bytes;
	case PP_BALANCE_PARAMS:
		return stages->layers[layer].params;
	case PP_BALANCE_LAYERS:
	case PP_BALANCE_EVEN:
		return counts_as_layer(spec, layer);
	}
	return 0;
}

static uint64_t left_of(uint64_t bytes, uint64_t taken)
{
	return bytes == UINT64_MAX ? bytes : bytes > taken ? bytes - taken : 0;
}

static struct pp_balance_problem make_problem(struct pp_arena *arena, const struct pp_spec *spec,
                                              const struct pp_schedule *schedule, const uint64_t *headroom,
                                              const struct pp_stages *stages)
{
	uint32_t layers = spec->model.layer_count;
	uint64_t *load = PP_NEW_ARRAY(arena, uint64_t, layers), *fixed = PP_NEW_ARRAY(arena, uint64_t, layers);
	uint64_t *stash = PP_NEW_ARRAY(arena, uint64_t, layers), *extra = PP_NEW_ARRAY(arena, uint64_t, layers),
	         *split = PP_NEW_ARRAY(arena, uint64_t, layers);
	uint64_t *cap = PP_NEW_ARRAY(arena, uint64_t, spec->parallel.pp);
	struct held held = count_held(arena, schedule);
	for (uint32_t i = 0; i < layers; i++) {
		load[i] = weight_of(spec, stages, i);
		fixed[i] = pp_cost_static_bytes(spec, &stages->layers[i]);
		stash[i] = stages->layers[i].stash_bytes;
		extra[i] = stages->layers[i].extra_bytes;
		split[i] = stages->layers[i].split_bytes;
	}
	const struct pp_gpu *gpu = &spec->cluster.gpu;
	for (uint32_t r = 0; r < spec->parallel.pp; r++) {
		cap[r] = left_of(gpu->memory ? gpu->memory : UINT64_MAX, gpu->reserve);
		if (spec->schedule_memory && spec->schedule_memory < cap[r])
			cap[r] = spec->schedule_memory;
		cap[r] = left_of(cap[r], headroom ? headroom[r] : 0);
	}
	return (struct pp_balance_problem){
	    .layers = layers,
	    .stages = schedule->stages,
	    .ranks = spec->parallel.pp,
	    .load = load,
	    .static_bytes = fixed,
	    .stash_bytes = stash,
	    .extra_bytes = extra,
	    .stage_rank = schedule->stage_rank,
	    .in_flight = held.stashes,
	    .extras = held.extras,
	    .split_bytes = split,
	    .split_extras = held.split_extras,
	    .cap = cap,
	    .min_layers = spec->stages.min_layers,
	    .max_layers = spec->stages.max_layers,
	};
}

static uint32_t count_blocks(const struct pp_spec *spec, uint32_t layers)
{
	uint32_t blocks = 0;
	for (uint32_t i = 0; i < layers; i++)
		blocks += counts_as_layer(spec, i);
	return blocks;
}

/* Stage s ends where (s + 1) / stages of the blocks, rounded down, are dealt out. */
static void deal_blocks(const struct pp_spec *spec, const struct pp_balance_problem *problem, uint32_t blocks,
                        uint32_t *first)
{
	uint32_t stages = problem->stages, stage = 0, seen = 0;
	for (uint32_t i = 0; i < problem->layers; i++) {
		if (!counts_as_layer(spec, i))
			continue;
		while (stage + 1 < stages && seen == (uint64_t)(stage + 1) * blocks / stages)
			first[++stage] = i;
		seen++;
	}
	first[0] = 0;
	first[stages] = problem->layers;
}

bool pp_partition_even(const struct pp_spec *spec, const struct pp_balance_problem *problem, uint32_t *first)
{
	uint32_t blocks = count_blocks(spec, problem->layers);
	if (blocks < problem->stages)
		return false;
	deal_blocks(spec, problem, blocks, first);
	for (uint32_t s = 0; s < problem->stages; s++) {
		uint32_t size = first[s + 1] - first[s];
		if (size < problem->min_layers || (problem->max_layers && size > problem->max_layers))
			return false;
	}
	return true;
}

/* Equal numbers of blocks per stage. */
static bool split_evenly(const struct pp_spec *spec, const struct pp_balance_problem *problem, uint32_t *first,
                         struct pp_diag *diag)
{
	uint32_t blocks = count_blocks(spec, problem->layers), stages = problem->stages;
	if (blocks % stages) {
		struct pp_message *m = pp_error(diag, "E0408", spec->stages.balance_span,
		                                "`balance = even`: %u blocks over %u stages leave a remainder of %u", blocks,
		                                stages, blocks % stages);
		pp_help(m, "use `balance = time`, or a number of blocks that %u divides: %u or %u", stages,
		        blocks - blocks % stages, blocks - blocks % stages + stages);
		return false;
	}
	deal_blocks(spec, problem, blocks, first);
	return true;
}

static void report_too_few(const struct pp_spec *spec, const struct pp_balance_problem *problem, struct pp_diag *diag)
{
	struct pp_span span = spec->vpp_span.start ? spec->vpp_span : spec->parallel_span; /* what makes so many stages */
	if (problem->layers < (uint64_t)problem->stages * problem->min_layers) {
		struct pp_message *m =
		    pp_error(diag, "E0407", span, "%u layers cannot fill %u stages with at least %u layer%s each",
		             problem->layers, problem->stages, problem->min_layers, problem->min_layers == 1 ? "" : "s");
		pp_help(m, "use at most %u stages (pp * vpp), or `min_layers = 0` to allow empty stages",
		        problem->layers / problem->min_layers);
		return;
	}
	struct pp_message *m = pp_error(diag, "E0407", span, "%u layers do not fit into %u stages of at most %u layers",
	                                problem->layers, problem->stages, problem->max_layers);
	pp_help(m, "`max_layers` must be at least %u", (problem->layers + problem->stages - 1) / problem->stages);
}

/* What every rank holds of its layers: static bytes, stashes and extras. */
static uint64_t *count_rank_bytes(struct pp_arena *arena, const struct pp_balance_problem *problem,
                                  const uint32_t *first)
{
	uint64_t *bytes = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	for (uint32_t s = 0; s < problem->stages; s++) {
		uint64_t *of_rank = &bytes[problem->stage_rank[s]];
		for (uint32_t i = first[s]; i < first[s + 1]; i++)
			*of_rank = pp_plus(*of_rank, pp_balance_bytes(problem, s, i));
	}
	return bytes;
}

static void fill_items(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_balance_problem *problem,
                       const uint32_t *first, struct pp_stages *stages)
{
	stages->count = problem->stages;
	stages->items = PP_NEW_ARRAY(arena, struct pp_stage_plan, problem->stages);
	for (uint32_t s = 0; s < problem->stages; s++) {
		stages->items[s].first_layer = first[s];
		stages->items[s].layer_count = first[s + 1] - first[s];
		stages->items[s].rank = problem->stage_rank[s];
	}
	pp_cost_stages(spec, stages);
}

/* Rate the split by time, whatever it was balanced by. */
static void rate_time(struct pp_arena *arena, const struct pp_spec *spec, struct pp_balance_problem problem,
                      struct pp_split split, struct pp_stages *stages)
{
	uint64_t *time = PP_NEW_ARRAY(arena, uint64_t, problem.layers);
	for (uint32_t i = 0; i < problem.layers; i++)
		time[i] = layer_time(stages, i);
	bool proven = split.exact && spec->stages.balance == PP_BALANCE_TIME && !spec->stages.split;
	problem.load = time;
	pp_balance_rate(arena, &problem, &split);
	stages->bottleneck = split.bottleneck;
	stages->bound = proven ? split.bottleneck : split.bound;
	stages->exact = proven || split.exact;
}

static struct pp_span stage_span(const struct pp_spec *spec, uint32_t stage)
{
	const struct pp_stages_spec *stages = &spec->stages;
	if (stages->stage_spans && pp_span_known(stages->stage_spans[stage]))
		return stages->stage_spans[stage];
	return stages->split ? stages->split_span : stages->span;
}

void pp_partition_warn(const struct pp_spec *spec, const struct pp_stages *stages, struct pp_diag *diag)
{
	for (uint32_t s = 0; s < stages->count; s++)
		if (stages->items[s].layer_count == 0)
			pp_warning(diag, "W0406", stage_span(spec, s), "stage %u is empty: its rank only forwards tensors", s);
}

/* An explicit split whose slowest rank is well above what balancing reaches. */
static void warn_slow_split(struct pp_arena *arena, const struct pp_spec *spec,
                            const struct pp_balance_problem *problem, const struct pp_split *given,
                            struct pp_diag *diag)
{
	struct pp_split best = {0};
	if (!pp_balance_solve(arena, problem, &best) || best.over ||
	    given->bottleneck <= best.bottleneck + best.bottleneck / 10)
		return;
	struct pp_message *m = pp_warning(diag, "W0405", spec->stages.split_span,
	                                  "this split makes the slowest rank %.0f %% slower than needed",
	                                  100.0 * ((double)given->bottleneck / (double)best.bottleneck - 1));
	pp_help(m, "without `split`, `balance = time` reaches %.3f ms per microbatch instead of %.3f ms",
	        (double)best.bottleneck / 1e6, (double)given->bottleneck / 1e6);
}

/* The explicit split, the even one, or the best. */
static bool choose_split(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_balance_problem *problem,
                         struct pp_split *split, struct pp_diag *diag)
{
	if (spec->stages.split) {
		split->first = spec->stages.split;
		pp_balance_rate(arena, problem, split);
		return true;
	}
	if (spec->stages.balance == PP_BALANCE_EVEN) {
		split->first = PP_NEW_ARRAY(arena, uint32_t, (size_t)problem->stages + 1);
		if (!split_evenly(spec, problem, split->first, diag))
			return false;
		pp_balance_rate(arena, problem, split);
		return true;
	}
	if (pp_balance_solve(arena, problem, split))
		return true;
	report_too_few(spec, problem, diag);
	return false;
}

bool pp_partition(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule,
                  const uint64_t *headroom, struct pp_stages *stages, struct pp_diag *diag)
{
	struct pp_balance_problem problem = make_problem(arena, spec, schedule, headroom, stages);
	struct pp_split split = {0};
	if (!choose_split(arena, spec, &problem, &split, diag))
		return false;
	if (spec->stages.split && !spec->stages.split_frozen && spec->stages.balance == PP_BALANCE_TIME)
		warn_slow_split(arena, spec, &problem, &split, diag);
	fill_items(arena, spec, &problem, split.first, stages);
	rate_time(arena, spec, problem, split, stages);
	stages->rank_bytes = count_rank_bytes(arena, &problem, split.first);
	stages->over = split.over > 0;
	return true;
}

struct pp_balance_problem *pp_partition_problem(struct pp_arena *arena, const struct pp_spec *spec,
                                                const struct pp_schedule *schedule, const uint64_t *headroom,
                                                const struct pp_stages *stages)
{
	struct pp_balance_problem *problem = PP_NEW(arena, struct pp_balance_problem);
	*problem = make_problem(arena, spec, schedule, headroom, stages);
	return problem;
}

void pp_partition_use(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_balance_problem *problem,
                      const uint32_t *first, struct pp_stages *stages)
{
	struct pp_split split = {.first = PP_NEW_ARRAY(arena, uint32_t, (size_t)problem->stages + 1)};
	memcpy(split.first, first, ((size_t)problem->stages + 1) * sizeof *first);
	fill_items(arena, spec, problem, split.first, stages);
	rate_time(arena, spec, *problem, split, stages);
	stages->rank_bytes = count_rank_bytes(arena, problem, split.first);
}
