/* Layer statements to layers: kinds, attributes of each kind, counts, `for` and `repeat`. Ensures: at most 65535
 * layers, found in bounded time whatever the loops say. */
#include "layers.h"

#include <string.h>

enum { MOST_TURNS = 1000000 };

/* ---- kinds ----------------------------------------------------------------------------------- */

struct kind {
	const char *name;
	enum pp_layer_kind kind;
	const char *attributes; /* that a layer statement of this kind may set */
};

static const struct kind kinds[] = {
    {"embedding", PP_LAYER_EMBEDDING, ""},
    {"block", PP_LAYER_BLOCK,
     "heads|kv_heads|head_dim|ffn|window|norm|act|bias|qkv_bias|qk_norm|experts|top_k|shared|max_nodes_per_token"},
    {"norm", PP_LAYER_NORM, "norm|bias"},
    {"head", PP_LAYER_HEAD, "tie"},
    {"custom", PP_LAYER_CUSTOM, "params|flops|activation|output|time_f|time_i|time_w"},
};

enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

static const struct kind *find_kind(const char *name)
{
	for (int i = 0; i < KIND_COUNT; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}

bool pp_layer_kind_known(const char *name)
{
	return find_kind(name) || strcmp(name, "mtp") == 0;
}

static void report_kind(struct pp_resolver *resolver, const struct pp_stmt *stmt)
{
	const char *names[KIND_COUNT];
	for (int i = 0; i < KIND_COUNT; i++)
		names[i] = kinds[i].name;
	if (strcmp(stmt->name.text, "mtp") == 0) {
		pp_not_yet(resolver, stmt->name.span, "a layer of kind `mtp`");
		return;
	}
	struct pp_message *message =
	    pp_error(resolver->diag, "E0207", stmt->name.span, "unknown kind of layer `%.60s`", stmt->name.text);
	const char *nearest = pp_nearest(stmt->name.text, names, KIND_COUNT);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else
		pp_help(message, "kinds are embedding block norm head custom");
}

void pp_layers_whole(struct pp_layer_build *build, struct pp_section *section, enum pp_attribute attribute,
                     uint32_t *out)
{
	uint64_t value;
	if (!pp_field_whole(build->resolver, section, attribute, &value))
		build->failed = true;
	else
		*out = (uint32_t)value;
}

/* ---- one layer statement --------------------------------------------------------------------- */

/* "a, b, c" for "a|b|c" */
static const char *list_text(struct pp_arena *arena, const char *names)
{
	const char *text = "", *name;
	size_t length;
	bool later;
	while (pp_schema_next_name(&names, &name, &length, &later))
		text = pp_arena_printf(arena, "%s%s%.*s", text, *text ? ", " : "", (int)length, name);
	return text;
}

static void check_kind_attributes(struct pp_layer_build *build, const struct pp_section *section,
                                  const struct kind *kind)
{
	for (size_t i = 0; i < section->count; i++) {
		struct pp_field *field = &section->fields[i];
		const char *name = pp_attribute_table[section->first + i].name;
		bool later;
		if (!field->expr || pp_schema_has_name(kind->attributes, name, &later))
			continue;
		struct pp_message *message = pp_error(build->resolver->diag, "E0101", field->name_span,
		                                      "a layer of kind `%s` has no attribute `%s`", kind->name, name);
		if (*kind->attributes)
			pp_help(message, "it has %s", list_text(build->resolver->arena, kind->attributes));
		field->state = PP_FAILED;
		build->failed = true;
	}
}

static void override(struct pp_layer_build *build, struct pp_section *section, enum pp_attribute attribute,
                     uint32_t *out)
{
	if (pp_field_given(section, attribute))
		pp_layers_whole(build, section, attribute, out);
}

static void read_block(struct pp_layer_build *build, struct pp_section *section, struct pp_layer *layer)
{
	struct pp_resolver *resolver = build->resolver;
	bool heads = pp_field_given(section, PP_ATTR_layer_heads);
	override(build, section, PP_ATTR_layer_heads, &layer->heads);
	if (heads && !pp_field_given(section, PP_ATTR_layer_kv_heads) &&
	    !pp_field_given(build->model, PP_ATTR_model_kv_heads))
		layer->kv_heads = layer->heads;
	override(build, section, PP_ATTR_layer_kv_heads, &layer->kv_heads);
	override(build, section, PP_ATTR_layer_head_dim, &layer->head_dim);
	override(build, section, PP_ATTR_layer_ffn, &layer->ffn);
	override(build, section, PP_ATTR_layer_window, &layer->window);
	if (pp_field_given(section, PP_ATTR_layer_act))
		build->failed |= !pp_field_choice(resolver, section, PP_ATTR_layer_act, &layer->act);
	if (pp_field_given(section, PP_ATTR_layer_qkv_bias))
		build->failed |= !pp_field_truth(resolver, section, PP_ATTR_layer_qkv_bias, &layer->qkv_bias);
	if (pp_field_given(section, PP_ATTR_layer_qk_norm))
		build->failed |= !pp_field_truth(resolver, section, PP_ATTR_layer_qk_norm, &layer->qk_norm);
}

static void read_norm(struct pp_layer_build *build, struct pp_section *section, struct pp_layer *layer)
{
	uint8_t norm = layer->rms;
	if (pp_field_given(section, PP_ATTR_layer_norm))
		build->failed |= !pp_field_choice(build->resolver, section, PP_ATTR_layer_norm, &norm);
	layer->rms = norm == 1;
	if (pp_field_given(section, PP_ATTR_layer_bias))
		build->failed |= !pp_field_truth(build->resolver, section, PP_ATTR_layer_bias, &layer->bias);
}

static void read_time(struct pp_layer_build *build, struct pp_section *section, enum pp_attribute attribute,
                      uint64_t *out)
{
	*out = PP_TIME_UNSET;
	if (pp_field_given(section, attribute))
		build->failed |= !pp_field_scaled(build->resolver, section, attribute, 1000000000, out);
}

static void read_custom(struct pp_layer_build *build, struct pp_section *section, struct pp_layer *layer)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_custom *custom = &layer->custom;
	build->failed |= !pp_field_whole(resolver, section, PP_ATTR_layer_params, &custom->params);
	build->failed |= !pp_field_whole(resolver, section, PP_ATTR_layer_flops, &custom->flops);
	build->failed |= !pp_field_whole(resolver, section, PP_ATTR_layer_activation, &custom->activation);
	build->failed |= !pp_field_whole(resolver, section, PP_ATTR_layer_output, &custom->output);
	read_time(build, section, PP_ATTR_layer_time_f, &custom->time_f);
	read_time(build, section, PP_ATTR_layer_time_i, &custom->time_i);
	read_time(build, section, PP_ATTR_layer_time_w, &custom->time_w);
	bool f = pp_field_given(section, PP_ATTR_layer_time_f), i = pp_field_given(section, PP_ATTR_layer_time_i),
	     w = pp_field_given(section, PP_ATTR_layer_time_w);
	if (f == i && i == w && (f || pp_field_given(section, PP_ATTR_layer_flops)))
		return;
	struct pp_message *message = f || i || w
	                                 ? pp_error(resolver->diag, "E0111", section->span,
	                                            "a custom layer gives all of time_f, time_i and time_w, or none")
	                                 : pp_error(resolver->diag, "E0111", section->span,
	                                            "a custom layer needs `flops`, or time_f, time_i and time_w");
	pp_help(message, "write `time_f = 1ms  time_i = 1ms  time_w = 1ms`");
	build->failed = true;
}

/* Rope turns columns in pairs. */
static void check_rotation(struct pp_layer_build *build, const struct pp_stmt *stmt, const struct pp_layer *layer)
{
	const struct pp_section *model = build->model;
	bool given = pp_field_given(model, PP_ATTR_model_head_dim);
	struct pp_span span =
	    stmt ? stmt->name.span : pp_field_span(model, given ? PP_ATTR_model_head_dim : PP_ATTR_model_heads);
	if (layer->rope_theta == 0 || layer->head_dim % 2 == 0)
		return;
	struct pp_message *message =
	    pp_error(build->resolver->diag, "E0314", span,
	             "a head of %u columns cannot be rotated: rope turns pairs of columns", layer->head_dim);
	if (pp_field_given(model, PP_ATTR_model_pos))
		pp_label(message, pp_field_span(model, PP_ATTR_model_pos), "rope");
	pp_help(message, "use an even head_dim, or `pos = learned`");
	build->failed = true;
}

/* The query heads are shared out evenly over the key and value heads. */
void pp_layers_check_block(struct pp_layer_build *build, const struct pp_stmt *stmt, const struct pp_layer *layer)
{
	if (layer->kv_heads == 0 || layer->heads == 0)
		return;
	const struct pp_section *model = build->model;
	struct pp_span span = stmt ? stmt->name.span : pp_field_span(model, PP_ATTR_model_kv_heads);
	if (layer->heads % layer->kv_heads != 0) {
		struct pp_message *message =
		    pp_error(build->resolver->diag, "E0310", span, "%u heads cannot share %u key/value heads evenly",
		             layer->heads, layer->kv_heads);
		pp_label(message, pp_field_span(model, PP_ATTR_model_heads), "heads");
		pp_help(message, "use a number of kv_heads that divides %u", layer->heads);
		build->failed = true;
	}
	check_rotation(build, stmt, layer);
	if ((uint64_t)layer->heads * layer->head_dim > (uint64_t)1 << 20) {
		pp_error(build->resolver->diag, "E0106", span, "heads · head_dim = %u · %u = %llu is outside 1..1048576",
		         layer->heads, layer->head_dim, (unsigned long long)layer->heads * layer->head_dim);
		build->failed = true;
	}
}

void pp_layers_push(struct pp_layer_build *build, struct pp_layer layer, uint64_t count, const struct pp_expr *tie,
                    struct pp_span span)
{
	if (count > PP_MOST_LAYERS || build->count + count > PP_MOST_LAYERS) {
		if (build->count <= PP_MOST_LAYERS)
			pp_error(build->resolver->diag, "E0106", span, "the model has more than 65535 layers");
		build->count = PP_MOST_LAYERS + 1;
		build->failed = true;
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		*PP_PUSH(build->resolver->arena, &build->layers, &build->count, &build->capacity, struct pp_layer) = layer;
		*PP_PUSH(build->resolver->arena, &build->ties, &build->tie_count, &build->tie_capacity,
		         const struct pp_expr *) = tie;
	}
}

struct pp_layer pp_layers_make(const struct pp_layer_build *build, const char *name, enum pp_layer_kind kind,
                               struct pp_span span)
{
	struct pp_layer layer = build->block;
	layer.name = name;
	layer.kind = (uint8_t)kind;
	layer.tie = PP_NULL;
	layer.span = span;
	return layer;
}

static void add_layer(struct pp_layer_build *build, const struct pp_stmt *stmt)
{
	struct pp_resolver *resolver = build->resolver;
	const struct kind *kind = find_kind(stmt->name.text);
	if (!kind) {
		report_kind(resolver, stmt);
		build->failed = true;
		return;
	}
	int64_t count = 1;
	if (stmt->count && !pp_eval_whole(&resolver->eval, stmt->count, "the number of layers", &count)) {
		build->failed = true;
		return;
	}
	if (count < 0 || count > PP_MOST_LAYERS) {
		pp_error(resolver->diag, "E0106", stmt->count->span, "%lld layers are outside 0..65535", (long long)count);
		build->failed = true;
		return;
	}
	struct pp_section *section = pp_section_make(resolver, PP_BLOCK_layer, "layer");
	pp_section_fill(resolver, section, stmt, build->model->module, false);
	check_kind_attributes(build, section, kind);
	pp_section_read_all(resolver, section);
	for (size_t i = 0; i < section->count; i++)
		build->failed |= section->fields[i].state == PP_FAILED;
	struct pp_layer layer =
	    pp_layers_make(build, stmt->label.text ? stmt->label.text : stmt->name.text, kind->kind, stmt->span);
	if (kind->kind == PP_LAYER_BLOCK)
		read_block(build, section, &layer);
	if (kind->kind == PP_LAYER_BLOCK || kind->kind == PP_LAYER_NORM)
		read_norm(build, section, &layer);
	if (kind->kind == PP_LAYER_CUSTOM)
		read_custom(build, section, &layer);
	if (kind->kind == PP_LAYER_BLOCK)
		pp_layers_check_block(build, stmt, &layer);
	pp_layers_push(build, layer, (uint64_t)count, pp_field_of(section, PP_ATTR_layer_tie)->expr, stmt->span);
}

/* Each turn counts, so that empty loops end too. */
static bool next_turn(struct pp_layer_build *build, const struct pp_stmt *stmt)
{
	if (++build->turns <= MOST_TURNS && build->count <= PP_MOST_LAYERS)
		return true;
	if (build->turns == MOST_TURNS + 1)
		pp_error(build->resolver->diag, "E0106", stmt->span, "this repeats more than %d times", MOST_TURNS);
	build->failed = true;
	return false;
}

static void add_for(struct pp_layer_build *build, const struct pp_stmt *stmt)
{
	struct pp_resolver *resolver = build->resolver;
	int64_t first, last;
	if (!pp_eval_range(&resolver->eval, stmt->range, "the range of `for`", &first, &last)) {
		build->failed = true;
		return;
	}
	struct pp_binding variable = {stmt->name.text, {0}};
	struct pp_scope scope = {.outer = resolver->eval.scope, .bindings = &variable, .count = 1};
	for (int64_t at = first; at <= last && next_turn(build, stmt); at++) {
		variable.value = pp_datum_whole(at);
		resolver->eval.scope = &scope;
		pp_layers_add(build, stmt->body);
		resolver->eval.scope = scope.outer;
		if (at == INT64_MAX)
			break;
	}
}

static void add_repeat(struct pp_layer_build *build, const struct pp_stmt *stmt)
{
	int64_t count;
	if (!pp_eval_whole(&build->resolver->eval, stmt->count, "the count of `repeat`", &count)) {
		build->failed = true;
		return;
	}
	if (count < 0) {
		pp_error(build->resolver->diag, "E0106", stmt->count->span, "`repeat` %lld times: must be >= 0",
		         (long long)count);
		build->failed = true;
	}
	for (int64_t i = 0; i < count && next_turn(build, stmt); i++)
		pp_layers_add(build, stmt->body);
}

void pp_layers_add(struct pp_layer_build *build, const struct pp_stmt *first)
{
	for (const struct pp_stmt *stmt = first; stmt; stmt = stmt->next) {
		if (build->failed && build->turns > 0)
			return; /* the next turn would say the same */
		if (stmt->kind == PP_STMT_LAYER)
			add_layer(build, stmt);
		else if (stmt->kind == PP_STMT_FOR)
			add_for(build, stmt);
		else if (stmt->kind == PP_STMT_REPEAT)
			add_repeat(build, stmt);
	}
}
