/* shortage.h */
#include "shortage.h"

#include "balance.h"
#include "codegen/layer_kind.h"
#include "cost.h"
#include "order_problem.h"
#include "partition.h"
#include "unit_trial.h"

#include "ir/capped.h"
#include "ir/figures.h"

#include <inttypes.h>

bool pp_shortage_is_bounded(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	return pp_order_limit(spec, spec->schedule_memory) == spec->schedule_memory;
}

void pp_shortage_help(const struct pp_unit *unit, struct pp_message *message, uint64_t needed)
{
	if (pp_shortage_is_bounded(unit))
		pp_help(message, "`memory <= %" PRIu64 "B` is enough", needed);
	else
		pp_help(message, "`gpu { memory = %" PRIu64 "B }` in `cluster` would be enough",
		        pp_plus(needed, unit->resolved.spec.cluster.gpu.reserve));
}

/* Stashes and extras of a rank at its fullest instant. */
static uint64_t stash_bytes_of(const struct pp_balance_problem *problem, const uint32_t *first, uint32_t rank)
{
	uint64_t bytes = 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		for (uint32_t i = first[s]; problem->stage_rank[s] == rank && i < first[s + 1]; i++)
			bytes = pp_plus(bytes, pp_balance_bytes(problem, s, i) - problem->static_bytes[i]);
	return bytes;
}

/* The array that takes the most on a rank, all its copies. */
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

void pp_shortage_help_recompute(const struct pp_unit *unit, struct pp_message *message, uint64_t needed)
{
	struct pp_arena *arena = unit->arena;
	const struct pp_spec *spec = &unit->resolved.spec;
	enum again now = recompute_of(&spec->model);
	if (!spec->model.trains || now == ALL_AGAIN)
		return;
	static const struct {
		const char *text;
		uint8_t parts;
	} settings[] = {{"[norm, act]", PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT}, {"full", PP_RECOMPUTE_FULL}};
	uint64_t limit = pp_order_limit(spec, spec->schedule_memory), bytes[2] = {0};
	const char *text = "";
	bool fits = false;
	for (unsigned i = now == SOME_AGAIN; i < 2; i++) {
		bytes[i] = pp_lean_needed_with(unit, settings[i].parts);
		fits |= bytes[i] && bytes[i] <= limit;
	}
	for (unsigned i = 0; i < 2; i++)
		if (bytes[i] && bytes[i] < needed && (!fits || bytes[i] <= limit))
			text =
			    pp_arena_printf(arena, "%s%s`recompute = %s` -> %s, %s", text, *text ? " | " : "", settings[i].text,
			                    pp_show_bytes_beside(arena, bytes[i], needed), fits ? "which fits" : "still too much");
	if (*text)
		pp_help(message, "%s", text);
}

static uint32_t most_stashes(const struct pp_balance_problem *problem, uint32_t rank)
{
	uint32_t most = 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		if (problem->stage_rank[s] == rank && problem->in_flight[s] > most)
			most = problem->in_flight[s];
	return most;
}

static void help_other(struct pp_message *message, const struct pp_spec *spec, bool mostly, uint32_t stashes)
{
	if (mostly && stashes < 2)
		pp_help(message, "no order holds less than one microbatch: use more pipeline ranks (pp)%s",
		        spec->model.trains ? ", or a smaller microbatch or seq" : "");
	else if (mostly && spec->model.trains)
		pp_help(message, "or fewer stashes (another schedule), or a smaller microbatch or seq");
	else if (mostly)
		pp_help(message, "or fewer stashes (another schedule)");
	else if (spec->parallel.dp > 1 && !spec->parallel.zero &&
	         (spec->train.optimizer == PP_ADAMW || spec->dtype != PP_F32))
		pp_help(message,
		        "or `zero = 1` (shards the optimizer's state over dp), more pipeline ranks (pp), or a smaller model");
	else
		pp_help(message, "or more pipeline ranks (pp), or a smaller model");
}

/* The fullest rank, and what it takes by the balance. */
static struct pp_lean as_balanced(const struct pp_unit *unit, const uint32_t *first)
{
	struct pp_lean lean = {.first = first};
	for (uint32_t r = 0; r < unit->resolved.spec.parallel.pp; r++) {
		uint64_t bytes = pp_plus(unit->stages.rank_bytes[r], unit->headroom ? unit->headroom[r] : 0);
		if (bytes <= lean.needed)
			continue;
		lean.needed = bytes;
		lean.rank = r;
	}
	return lean;
}

void pp_shortage_report(const struct pp_unit *unit, const struct pp_lean *lean)
{
	struct pp_arena *arena = unit->arena;
	const struct pp_spec *spec = &unit->resolved.spec;
	const struct pp_balance_problem *problem = pp_partition_problem(arena, spec, &unit->draft, NULL, &unit->stages);
	struct pp_lean balanced =
	    as_balanced(unit, unit->first ? unit->first : pp_split_copy(arena, &unit->stages, problem->layers));
	const struct pp_lean *of = lean ? lean : &balanced;
	uint64_t limit = pp_order_limit(spec, spec->schedule_memory), fixed = 0,
	         stashes = stash_bytes_of(problem, of->first, of->rank);
	for (uint32_t s = 0; s < problem->stages; s++)
		for (uint32_t i = of->first[s]; problem->stage_rank[s] == of->rank && i < of->first[s + 1]; i++)
			fixed = pp_plus(fixed, problem->static_bytes[i]);
	uint64_t counted = pp_plus(fixed, stashes), buffers = of->needed > counted ? of->needed - counted : 0;
	struct pp_message *m =
	    pp_error(unit->diag, "E0501", pp_shortage_is_bounded(unit) ? spec->memory_span : spec->cluster_span,
	             "rank %" PRIu32 " needs %s of %s (%s over)%s", of->rank,
	             pp_show_bytes_beside(arena, of->needed, limit), pp_show_bytes_beside(arena, limit, of->needed),
	             pp_show_bytes(arena, of->needed > limit ? of->needed - limit : 0),
	             spec->stages.split || spec->stages.balance == PP_BALANCE_EVEN ? "" : " in the best split found");
	pp_note(m, "%s, stashes %s%s%s%s", states_text(arena, spec, &unit->stages, problem, of->first, of->rank),
	        pp_show_bytes(arena, stashes), largest_text(arena, spec, problem, of->first, of->rank, stashes),
	        buffers ? ", messages, workspace and the like " : "", buffers ? pp_show_bytes(arena, buffers) : "");
	if (lean)
		pp_shortage_help_recompute(unit, m, lean->needed);
	if (lean)
		pp_shortage_help(unit, m, lean->needed);
	help_other(m, spec, stashes > fixed, most_stashes(problem, of->rank));
}
