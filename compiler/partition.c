/* Choosing the split: weights and memory caps for balance.c, explicit and even splits, and the messages. */
#include "partition.h"

#include "balance.h"
#include "codegen/layer_kind.h"
#include "cost.h"
#include "recompute.h"
#include "ir/capped.h"
#include "ir/figures.h"

#include <inttypes.h>
#include <string.h>

/* Per stage: what is held of it at the instant when its rank holds most stashes, and of such instants most extras. */
struct held {
	uint32_t *stashes, *extras; /* [stages] */
};

/* An action begins, and ends. An extra is held from I to W, or during B. */
static void begin_action(struct held *held, const struct pp_action *action)
{
	held->stashes[action->stage] += action->kind == PP_F;
	held->extras[action->stage] += action->kind == PP_B || action->kind == PP_I;
}

static void end_action(struct held *held, const struct pp_action *action)
{
	bool last = action->kind == PP_B || action->kind == PP_W;
	held->stashes[action->stage] -= last;
	held->extras[action->stage] -= last;
}

static void count_row(const struct pp_row *row, struct held *held)
{
	int64_t stashes = 0, extras = 0, most = 0, most_extras = 0;
	uint32_t when = 0;
	for (uint32_t i = 0; i < row->count; i++) {
		const struct pp_action *action = &row->actions[i];
		stashes += action->kind == PP_F;
		extras += action->kind == PP_B || action->kind == PP_I;
		if (stashes > most || (stashes == most && extras > most_extras)) {
			most = stashes;
			most_extras = extras;
			when = i;
		}
		stashes -= action->kind == PP_B || action->kind == PP_W;
		extras -= action->kind == PP_B || action->kind == PP_W;
	}
	for (uint32_t i = 0; i < row->count && i <= when; i++) {
		begin_action(held, &row->actions[i]);
		if (i < when)
			end_action(held, &row->actions[i]);
	}
}

static struct held count_held(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	struct held held = {PP_NEW_ARRAY(arena, uint32_t, schedule->stages),
	                    PP_NEW_ARRAY(arena, uint32_t, schedule->stages)};
	for (uint32_t r = 0; r < schedule->ranks; r++)
		count_row(&schedule->rows[r], &held);
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

static bool has_split_backward(const struct pp_schedule *schedule)
{
	for (uint32_t r = 0; r < schedule->ranks; r++)
		for (uint32_t i = 0; i < schedule->rows[r].count; i++)
			if (schedule->rows[r].actions[i].kind == PP_I)
				return true;
	return false;
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
	uint64_t *stash = PP_NEW_ARRAY(arena, uint64_t, layers), *extra = PP_NEW_ARRAY(arena, uint64_t, layers);
	uint64_t *cap = PP_NEW_ARRAY(arena, uint64_t, spec->parallel.pp);
	struct held held = count_held(arena, schedule);
	bool split = has_split_backward(schedule);
	for (uint32_t i = 0; i < layers; i++) {
		load[i] = weight_of(spec, stages, i);
		fixed[i] = pp_cost_static_bytes(spec, &stages->layers[i]);
		stash[i] = stages->layers[i].stash_bytes;
		extra[i] = stages->layers[i].extra_bytes + (split ? stages->layers[i].split_bytes : 0);
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

/* Stashes and extras of a layer that are held at the fullest instant. */
static uint64_t held_bytes(const struct pp_balance_problem *problem, uint32_t stage, uint32_t layer)
{
	return pp_plus(pp_times(problem->in_flight[stage], problem->stash_bytes[layer]),
	               pp_times(problem->extras[stage], problem->extra_bytes[layer]));
}

/* What every rank holds of its layers: static bytes, stashes and extras. */
static uint64_t *count_rank_bytes(struct pp_arena *arena, const struct pp_balance_problem *problem,
                                  const uint32_t *first)
{
	uint64_t *bytes = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	for (uint32_t s = 0; s < problem->stages; s++) {
		uint64_t *of_rank = &bytes[problem->stage_rank[s]];
		for (uint32_t i = first[s]; i < first[s + 1]; i++)
			*of_rank = pp_plus(*of_rank, pp_plus(problem->static_bytes[i], held_bytes(problem, s, i)));
	}
	return bytes;
}

static uint64_t activation_bytes_of(const struct pp_balance_problem *problem, const uint32_t *first, uint32_t rank)
{
	uint64_t bytes = 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		for (uint32_t i = first[s]; problem->stage_rank[s] == rank && i < first[s + 1]; i++)
			bytes = pp_plus(bytes, held_bytes(problem, s, i));
	return bytes;
}

static uint64_t over_cap(const struct pp_balance_problem *problem, const uint64_t *rank_bytes, uint32_t rank)
{
	return rank_bytes[rank] > problem->cap[rank] ? rank_bytes[rank] - problem->cap[rank] : 0;
}

/* The array that takes the most on a rank, all its copies in flight. */
struct largest {
	uint64_t bytes;
	uint32_t layer, copies;
	const char *name;
};

static void largest_of_layer(const struct pp_spec *spec, uint32_t layer, uint32_t copies, struct largest *largest)
{
	struct pp_shape shape = pp_shape_make(&spec->model.layers[layer], spec);
	struct pp_part_layout layout;
	pp_part_layout_make(&spec->model.layers[layer], &shape, false, &layout);
	for (unsigned i = 0; i < PP_PARTS_MAX; i++) {
		const struct pp_part *part = &layout.parts[i];
		uint64_t bytes = pp_times(pp_times(part->rows, part->columns), pp_dtype_size[part->dtype]);
		if (layout.area[i] == PP_AREA_STASH && pp_times(bytes, copies) > pp_times(largest->bytes, largest->copies))
			*largest = (struct largest){bytes, layer, copies, part->name};
	}
}

/* ", most of them 8 of 1.9 GiB: logits of `head`", where one array makes up most of the activations. */
static const char *largest_text(struct pp_arena *arena, const struct pp_spec *spec,
                                const struct pp_balance_problem *problem, const uint32_t *first, uint32_t rank,
                                uint64_t activations)
{
	struct largest largest = {0};
	for (uint32_t s = 0; s < problem->stages; s++)
		for (uint32_t i = first[s]; problem->stage_rank[s] == rank && i < first[s + 1]; i++)
			if (spec->model.layers[i].kind != PP_LAYER_CUSTOM)
				largest_of_layer(spec, i, problem->in_flight[s], &largest);
	if (pp_times(largest.bytes, largest.copies) <= activations / 2)
		return "";
	const char *of = largest.copies == 1 ? "" : pp_arena_printf(arena, "%u of ", largest.copies);
	return pp_arena_printf(arena, ", most of them %s%s: %s of `%s`", of, pp_show_bytes(arena, largest.bytes),
	                       largest.name, pp_layer_title(arena, &spec->model.layers[largest.layer]));
}

/* "weights 1.0 GiB, gradients 2.0 GiB, moments 4.0 GiB, master weights 2.0 GiB" of a rank; what there is none of is
 * left out. */
static const char *states_text(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                               const struct pp_balance_problem *problem, const uint32_t *first, uint32_t rank)
{
	struct pp_layer_states sum = {0};
	for (uint32_t s = 0; s < problem->stages; s++)
		for (uint32_t i = first[s]; problem->stage_rank[s] == rank && i < first[s + 1]; i++) {
			struct pp_layer_states states = pp_cost_states(spec, &stages->layers[i]);
			sum.weights = pp_plus(sum.weights, states.weights);
			sum.gradients = pp_plus(sum.gradients, states.gradients);
			sum.moments = pp_plus(sum.moments, states.moments);
			sum.masters = pp_plus(sum.masters, states.masters);
		}
	return pp_arena_printf(arena, "weights %s, gradients %s%s%s%s%s", pp_show_bytes(arena, sum.weights),
	                       pp_show_bytes(arena, sum.gradients), sum.moments ? ", moments " : "",
	                       sum.moments ? pp_show_bytes(arena, sum.moments) : "", sum.masters ? ", master weights " : "",
	                       sum.masters ? pp_show_bytes(arena, sum.masters) : "");
}

/* The rank that is most over its capacity, else the fullest. */
static uint32_t worst_rank(const struct pp_balance_problem *problem, const uint64_t *rank_bytes)
{
	uint32_t worst = 0;
	for (uint32_t r = 1; r < problem->ranks; r++) {
		uint64_t over = over_cap(problem, rank_bytes, r), most = over_cap(problem, rank_bytes, worst);
		if (over > most || (over == most && rank_bytes[r] > rank_bytes[worst]))
			worst = r;
	}
	return worst;
}

/* What the worst rank needs if all blocks computed these parts again, in the best split then, or in the given one. */
static uint64_t needed_with(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule,
                            uint8_t parts, uint32_t *first, const uint64_t *headroom, bool *fits)
{
	struct pp_spec other = pp_recompute_instead(arena, spec, parts);
	struct pp_stages stages = {0};
	struct pp_split split = {.first = first};
	pp_cost_layers(arena, &other, &stages);
	struct pp_balance_problem problem = make_problem(arena, &other, schedule, headroom, &stages);
	if (!spec->stages.split && spec->stages.balance != PP_BALANCE_EVEN)
		pp_balance_solve(arena, &problem, &split);
	uint64_t *rank_bytes = count_rank_bytes(arena, &problem, split.first);
	uint32_t worst = worst_rank(&problem, rank_bytes);
	*fits = over_cap(&problem, rank_bytes, worst) == 0;
	return pp_plus(rank_bytes[worst], headroom ? headroom[worst] : 0);
}

/* How much of what the blocks can compute again they do. */
enum again { NONE_AGAIN, SOME_AGAIN, ALL_AGAIN };

static enum again recompute_of(const struct pp_model *model)
{
	unsigned any = 0, all = PP_RECOMPUTE_FULL;
	for (uint32_t i = 0; i < model->layer_count; i++) {
		any |= model->layers[i].recompute;
		if (model->layers[i].kind == PP_LAYER_BLOCK)
			all &= model->layers[i].recompute;
	}
	return all == PP_RECOMPUTE_FULL ? ALL_AGAIN : any ? SOME_AGAIN : NONE_AGAIN;
}

/* What more recompute would do about it: said where it suffices, or, if there is none yet, where activations are most
 * of the memory. */
static void help_recompute(struct pp_message *message, struct pp_arena *arena, const struct pp_spec *spec,
                           const struct pp_schedule *schedule, uint32_t *first, const uint64_t *headroom,
                           enum again now, bool mostly)
{
	bool cheap_fits, full_fits;
	uint64_t cheap =
	    needed_with(arena, spec, schedule, PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT, first, headroom, &cheap_fits);
	uint64_t full = needed_with(arena, spec, schedule, PP_RECOMPUTE_FULL, first, headroom, &full_fits);
	if (now == SOME_AGAIN && full_fits)
		pp_help(message, "`recompute = full` -> %s, which fits", pp_show_bytes(arena, full));
	else if (now == NONE_AGAIN && (full_fits || mostly))
		pp_help(message, "`recompute = [norm, act]` -> %s%s | `recompute = full` -> %s%s", pp_show_bytes(arena, cheap),
		        cheap_fits ? ", which fits" : "", pp_show_bytes(arena, full), full_fits ? ", which fits" : "");
}

static uint32_t most_in_flight(const struct pp_balance_problem *problem, uint32_t rank)
{
	uint32_t most = 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		if (problem->stage_rank[s] == rank && problem->in_flight[s] > most)
			most = problem->in_flight[s];
	return most;
}

/* No split fits: name the rank that is most over in the best one, and what fills it. */
static void report_memory(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_schedule *schedule,
                          const struct pp_stages *stages, const struct pp_balance_problem *problem, uint32_t *first,
                          const uint64_t *rank_bytes, const uint64_t *headroom, struct pp_diag *diag)
{
	uint32_t worst = worst_rank(problem, rank_bytes);
	uint64_t worst_stash = activation_bytes_of(problem, first, worst), worst_fixed = rank_bytes[worst] - worst_stash;
	uint64_t buffers = headroom ? headroom[worst] : 0;
	uint64_t needed = pp_plus(rank_bytes[worst], buffers), cap = pp_plus(problem->cap[worst], buffers);
	const struct pp_gpu *gpu = &spec->cluster.gpu;
	bool bounded =
	    spec->schedule_memory && (gpu->memory == 0 || spec->schedule_memory < left_of(gpu->memory, gpu->reserve));
	struct pp_message *m =
	    pp_error(diag, "E0501", bounded ? spec->schedule_span : spec->cluster_span,
	             "rank %u needs %s of %s (%s over)%s", worst, pp_show_bytes_beside(arena, needed, cap),
	             pp_show_bytes_beside(arena, cap, needed), pp_show_bytes(arena, needed > cap ? needed - cap : 0),
	             spec->stages.split || spec->stages.balance == PP_BALANCE_EVEN ? "" : " in the best split found");
	pp_note(m, "%s, activations in flight %s%s%s%s", states_text(arena, spec, stages, problem, first, worst),
	        pp_show_bytes(arena, worst_stash), largest_text(arena, spec, problem, first, worst, worst_stash),
	        buffers ? ", message buffers and workspace " : "", buffers ? pp_show_bytes(arena, buffers) : "");
	enum again now = recompute_of(&spec->model);
	if (spec->model.trains && now != ALL_AGAIN)
		help_recompute(m, arena, spec, schedule, first, headroom, now, worst_stash > worst_fixed);
	const char *memory = bounded ? "`memory <= …` is the bound of the schedule"
	                             : "gpu { memory = … } in `cluster` is the capacity of a device";
	if (worst_stash > worst_fixed && most_in_flight(problem, worst) < 2)
		pp_help(m, "no order holds less than one microbatch: use more pipeline ranks (pp)%s; %s",
		        spec->model.trains ? ", or a smaller microbatch or seq" : "", memory);
	else if (worst_stash > worst_fixed && spec->model.trains)
		pp_help(m, "fewer microbatches in flight (another schedule), or a smaller microbatch or seq; %s", memory);
	else if (worst_stash > worst_fixed)
		pp_help(m, "fewer microbatches in flight (another schedule); %s", memory);
	else if (spec->parallel.dp > 1 && !spec->parallel.zero &&
	         (spec->train.optimizer == PP_ADAMW || spec->dtype != PP_F32))
		pp_help(m,
		        "`zero = 1` (shards the optimizer's state over dp), more pipeline ranks (pp), or a smaller model; %s",
		        memory);
	else
		pp_help(m, "more pipeline ranks (pp), or a smaller model; %s", memory);
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
	if (spec->stages.split && spec->stages.balance == PP_BALANCE_TIME)
		warn_slow_split(arena, spec, &problem, &split, diag);
	fill_items(arena, spec, &problem, split.first, stages);
	rate_time(arena, spec, problem, split, stages);
	stages->rank_bytes = count_rank_bytes(arena, &problem, split.first);
	if (split.over) {
		report_memory(arena, spec, schedule, stages, &problem, split.first, stages->rank_bytes, headroom, diag);
		return false;
	}
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
