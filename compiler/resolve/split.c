/* An explicit split: a pattern of layer names with bars to the first layer of each stage. Ensures: every layer instance
 * is in exactly one stage (E0401, E0102), in order (E0403), and there are as many parts as stages (E0402). */
#include "resolver.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1000000, MOST_PARTS = 65535, NO_STAGE = -1 };

/* One name of the model: where its instances are, in order, and how many are used. */
struct layer_name {
	const char *name;
	uint32_t *layers;
	uint32_t count, next;
};

struct split {
	struct pp_resolver *resolver;
	const struct pp_model *model;
	struct layer_name *names; /* sorted by pointer */
	size_t name_count;
	int32_t *stage_of; /* by layer, or NO_STAGE */
	struct pp_span *part_spans;
	size_t part_count, part_capacity;
	uint64_t steps;
	bool failed;
};

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct layer_name *)a)->name, y = (uintptr_t)((const struct layer_name *)b)->name;
	return x < y ? -1 : x > y;
}

static struct layer_name *find_name(const struct split *split, const char *name)
{
	struct layer_name key = {.name = name};
	return bsearch(&key, split->names, split->name_count, sizeof(key), compare_names);
}

static void collect_names(struct split *split)
{
	const struct pp_model *model = split->model;
	struct pp_arena *arena = split->resolver->arena;
	split->names = PP_NEW_ARRAY(arena, struct layer_name, model->layer_count);
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (model->layers[i].index == 0)
			split->names[split->name_count++].name = model->layers[i].name;
	qsort(split->names, split->name_count, sizeof(*split->names), compare_names);
	for (uint32_t i = 0; i < model->layer_count; i++)
		find_name(split, model->layers[i].name)->count++;
	for (uint32_t i = 0; i < model->layer_count; i++) {
		struct layer_name *name = find_name(split, model->layers[i].name);
		if (!name->layers)
			name->layers = PP_NEW_ARRAY(arena, uint32_t, name->count);
		name->layers[model->layers[i].index] = i;
	}
}

static const char *range_text(struct pp_arena *arena, const char *name, uint32_t first, uint32_t last, bool indexed)
{
	if (!indexed)
		return name;
	return first == last ? pp_arena_printf(arena, "%s[%u]", name, first)
	                     : pp_arena_printf(arena, "%s[%u..%u]", name, first, last);
}

/* "emb, block[0..95], norm, head" */
static const char *all_names(const struct split *split)
{
	struct pp_arena *arena = split->resolver->arena;
	const char *text = "";
	size_t shown = 0;
	for (uint32_t i = 0; i < split->model->layer_count; i++) {
		const struct pp_layer *layer = &split->model->layers[i];
		if (layer->index != 0)
			continue;
		if (shown++ == 12)
			return pp_arena_printf(arena, "%s, …", text);
		const struct layer_name *name = find_name(split, layer->name);
		text = pp_arena_printf(arena, "%s%s%s", text, *text ? ", " : "",
		                       range_text(arena, name->name, 0, name->count - 1, name->count > 1));
	}
	return text;
}

static void report_unknown(struct split *split, const struct pp_action_ast *action)
{
	const char **names = PP_NEW_ARRAY(split->resolver->arena, const char *, split->name_count);
	for (uint32_t i = 0, count = 0; i < split->model->layer_count; i++)
		if (split->model->layers[i].index == 0)
			names[count++] = split->model->layers[i].name;
	struct pp_message *message =
	    pp_error(split->resolver->diag, "E0102", action->span, "unknown layer `%.60s` in `split`; this model has %s",
	             action->name, all_names(split));
	const char *nearest = pp_nearest(action->name, names, split->name_count);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	split->failed = true;
}

/* ---- walking the pattern --------------------------------------------------------------------- */

static const char *title(const struct split *split, uint32_t layer)
{
	return pp_layer_title(split->resolver->arena, &split->model->layers[layer]);
}

static void place_layer(struct split *split, uint32_t layer, struct pp_span span)
{
	int32_t stage = (int32_t)split->part_count - 1;
	if (split->stage_of[layer] != NO_STAGE) {
		bool same = split->stage_of[layer] == stage;
		struct pp_message *message =
		    same ? pp_error(split->resolver->diag, "E0401", span, "split names `%s` twice, in stage %d",
		                    title(split, layer), stage)
		         : pp_error(split->resolver->diag, "E0401", span, "split names `%s` twice: in stages %d and %d",
		                    title(split, layer), split->stage_of[layer], stage);
		pp_help(message, "each layer is in one stage");
		split->failed = true;
		return;
	}
	split->stage_of[layer] = stage;
	struct pp_span *part = &split->part_spans[stage];
	*part = pp_span_known(*part) ? (struct pp_span){part->start < span.start ? part->start : span.start,
	                                                part->end > span.end ? part->end : span.end}
	                             : span;
}

static void place_indexed(struct split *split, struct layer_name *name, const struct pp_action_ast *action)
{
	struct pp_eval *eval = &split->resolver->eval;
	int64_t first, last;
	bool ok = action->index->kind == PP_EXPR_RANGE ? pp_eval_range(eval, action->index, "a layer number", &first, &last)
	                                               : pp_eval_whole(eval, action->index, "a layer number", &first);
	if (ok && action->index->kind != PP_EXPR_RANGE)
		last = first;
	if (!ok) {
		split->failed = true;
		return;
	}
	if (first < 0 || last >= (int64_t)name->count || first > last) {
		pp_error(split->resolver->diag, "E0102", action->index->span, "`%s` has the layers 0..%u", name->name,
		         name->count - 1);
		split->failed = true;
		return;
	}
	for (int64_t i = first; i <= last && !split->failed; i++) {
		place_layer(split, name->layers[i], action->span);
		if (name->next == i)
			name->next++;
	}
}

static void place_next(struct split *split, struct layer_name *name, const struct pp_action_ast *action)
{
	if (name->next < name->count) {
		place_layer(split, name->layers[name->next++], action->span);
		return;
	}
	struct pp_message *message =
	    pp_error(split->resolver->diag, "E0401", action->span, "split names `%s` more often than the %u of the model",
	             name->name, name->count);
	pp_help(message, "this model has %s", all_names(split));
	split->failed = true;
}

static void place_action(struct split *split, const struct pp_action_ast *action)
{
	struct layer_name *name = action->cell ? NULL : find_name(split, action->name);
	if (!name)
		report_unknown(split, action);
	else if (action->chunk || action->next)
		pp_error(split->resolver->diag, "E0102", action->span, "a split holds names of layers, without chunks or `&`");
	else if (action->index)
		place_indexed(split, name, action);
	else
		place_next(split, name, action);
	split->failed |= name && (action->chunk || action->next);
}

static void add_part(struct split *split, struct pp_span span)
{
	if (split->part_count >= MOST_PARTS) {
		if (!split->failed)
			pp_error(split->resolver->diag, "E0402", span, "split has more than 65535 stages");
		split->failed = true;
		return;
	}
	*PP_PUSH(split->resolver->arena, &split->part_spans, &split->part_count, &split->part_capacity, struct pp_span) =
	    PP_NO_SPAN;
}

static void walk(struct split *split, const struct pp_pattern *first);

static void walk_once(struct split *split, const struct pp_pattern *pattern)
{
	if (++split->steps > MOST_STEPS) {
		if (!split->failed)
			pp_error(split->resolver->diag, "E0401", pattern->span, "this split repeats more than %d times",
			         MOST_STEPS);
		split->failed = true;
		return;
	}
	switch (pattern->kind) {
	case PP_PATTERN_BAR:
		add_part(split, pattern->span);
		break;
	case PP_PATTERN_ITEM:
		place_action(split, pattern->action);
		break;
	case PP_PATTERN_GROUP:
	case PP_PATTERN_FOR:
		walk(split, pattern->body);
		break;
	case PP_PATTERN_WEAVE:
		pp_error(split->resolver->diag, "E0113", pattern->span, "`weave` does not belong in `split`");
		split->failed = true;
		break;
	}
}

static void walk_for(struct split *split, const struct pp_pattern *pattern)
{
	struct pp_eval *eval = &split->resolver->eval;
	int64_t first, last;
	if (!pp_eval_range(eval, pattern->range, "the range of `for`", &first, &last)) {
		split->failed = true;
		return;
	}
	struct pp_binding variable = {pattern->variable.text, {0}};
	struct pp_scope scope = {.outer = eval->scope, .bindings = &variable, .count = 1};
	eval->scope = &scope;
	for (int64_t at = first; at <= last && !split->failed; at++) {
		variable.value = pp_datum_whole(at);
		walk_once(split, pattern);
		if (at == INT64_MAX)
			break;
	}
	eval->scope = scope.outer;
}

static void walk(struct split *split, const struct pp_pattern *first)
{
	for (const struct pp_pattern *pattern = first; pattern && !split->failed; pattern = pattern->next) {
		int64_t times = 1;
		if (pattern->kind == PP_PATTERN_FOR) {
			walk_for(split, pattern);
			continue;
		}
		if (pattern->repeat && !pp_eval_whole(&split->resolver->eval, pattern->repeat, "the repeat count", &times)) {
			split->failed = true;
			return;
		}
		if (times < 0) {
			pp_error(split->resolver->diag, "E0604", pattern->repeat->span, "the repeat count is %lld",
			         (long long)times);
			split->failed = true;
		}
		for (int64_t i = 0; i < times && !split->failed; i++)
			walk_once(split, pattern);
	}
}

/* ---- what came out --------------------------------------------------------------------------- */

static bool check_complete(struct split *split, const struct pp_stmt *stmt)
{
	uint32_t missing = 0, first = PP_NULL, last = 0;
	for (uint32_t i = 0; i < split->model->layer_count; i++) {
		if (split->stage_of[i] != NO_STAGE)
			continue;
		missing++;
		if (first == PP_NULL)
			first = i;
		if (split->model->layers[i].name == split->model->layers[first].name)
			last = i;
	}
	if (missing == 0)
		return true;
	const struct pp_layer *from = &split->model->layers[first], *to = &split->model->layers[last];
	const struct layer_name *name = find_name(split, from->name);
	uint32_t of_name = 0;
	for (uint32_t i = 0; i < name->count; i++)
		of_name += split->stage_of[name->layers[i]] == NO_STAGE;
	struct pp_message *message = pp_error(
	    split->resolver->diag, "E0401", stmt->span, "split names %u of %u %s: %s %s in no stage", name->count - of_name,
	    name->count, name->count == 1 ? "layers" : pp_arena_printf(split->resolver->arena, "`%s` layers", name->name),
	    range_text(split->resolver->arena, from->name, from->index, to->index, from->indexed),
	    of_name == 1 ? "is" : "are");
	if (missing > of_name)
		pp_note(message, "%u layers are missing in all", missing);
	pp_help(message, "add `%s` to the split",
	        of_name > 1 ? pp_arena_printf(split->resolver->arena, "%s*%u", name->name, of_name) : name->name);
	return false;
}

static bool check_order(struct split *split)
{
	for (uint32_t i = 1; i < split->model->layer_count; i++) {
		if (split->stage_of[i] >= split->stage_of[i - 1])
			continue;
		struct pp_message *message =
		    pp_error(split->resolver->diag, "E0403", split->part_spans[split->stage_of[i]],
		             "layer order broken: `%s` (stage %d) precedes `%s` (stage %d)", title(split, i),
		             split->stage_of[i], title(split, i - 1), split->stage_of[i - 1]);
		pp_label(message, split->part_spans[split->stage_of[i - 1]], "`%s` runs before `%s`", title(split, i - 1),
		         title(split, i));
		pp_help(message, "list the layers in the order in which they run: %s", all_names(split));
		return false;
	}
	return true;
}

static bool check_part_count(struct split *split, const struct pp_stmt *stmt)
{
	const struct pp_spec *spec = &split->resolver->out->spec;
	uint32_t parts = (uint32_t)split->part_count, wanted = spec->stages.stage_count;
	if (parts == wanted)
		return true;
	struct pp_message *message;
	const struct pp_section *stages = split->resolver->sections[PP_SECTION_STAGES],
	                        *parallel = split->resolver->sections[PP_SECTION_PARALLEL];
	if (spec->stages.place == PP_PLACE_LIST) {
		message = pp_error(split->resolver->diag, "E0402", stmt->span,
		                   "split has %u stages, the list of `place` has %u", parts, wanted);
		pp_label(message, pp_field_span(stages, PP_ATTR_stages_place), "%u ranks", wanted);
	} else {
		message = pp_error(split->resolver->diag, "E0402", stmt->span, "split has %u stages, pp·vpp is %u·%u = %u",
		                   parts, spec->parallel.pp, spec->parallel.vpp, wanted);
		pp_label(message, pp_field_span(parallel, PP_ATTR_parallel_pp), "%u ranks of %u stage%s", spec->parallel.pp,
		         spec->parallel.vpp, spec->parallel.vpp == 1 ? "" : "s");
	}
	if (spec->stages.split_frozen && parts % spec->parallel.pp == 0 && spec->stages.place != PP_PLACE_LIST)
		pp_help(message, "the schedule was made for it: write `vpp = %u` in `parallel`, and its `place` in `stages`",
		        parts / spec->parallel.pp);
	else
		pp_help(message, "%s %u bar%s `|`", parts < wanted ? "add" : "remove",
		        parts < wanted ? wanted - parts : parts - wanted,
		        (parts < wanted ? wanted - parts : parts - wanted) == 1 ? "" : "s");
	return false;
}

void pp_resolve_split(struct pp_resolver *resolver, const struct pp_stmt *stmt, const struct pp_module *module)
{
	struct pp_stages_spec *stages = &resolver->out->spec.stages;
	struct split split = {.resolver = resolver, .model = &resolver->out->spec.model};
	uint32_t layers = split.model->layer_count;
	split.stage_of = PP_NEW_ARRAY(resolver->arena, int32_t, layers);
	for (uint32_t i = 0; i < layers; i++)
		split.stage_of[i] = NO_STAGE;
	collect_names(&split);
	add_part(&split, stmt->span);
	struct pp_binding ranks = {pp_intern_z(resolver->strings, "p"), pp_datum_whole(resolver->out->spec.parallel.pp)};
	struct pp_scope scope = {.outer = &module->scope, .bindings = &ranks, .count = 1};
	resolver->eval.scope = &scope;
	walk(&split, stmt->pattern);
	resolver->eval.scope = &resolver->main->scope;
	if (split.failed || !check_complete(&split, stmt) || !check_order(&split) || !check_part_count(&split, stmt))
		return;
	stages->split = PP_NEW_ARRAY(resolver->arena, uint32_t, stages->stage_count + 1);
	for (uint32_t i = 0; i < layers; i++)
		stages->split[split.stage_of[i] + 1]++;
	for (uint32_t i = 0; i < stages->stage_count; i++)
		stages->split[i + 1] += stages->split[i];
	stages->split_span = stmt->span;
	stages->stage_spans = split.part_spans;
}
