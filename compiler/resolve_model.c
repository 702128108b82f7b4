/* The model: sizes and the list of layers in order of execution. Default list: emb, block * layers, norm, head.
 * Ensures: every layer has all its sizes; a model that trains starts with its one embedding and ends with its one head;
 * sizes of messages fit their 32-bit counts. */
#include "resolver.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 65535, MOST_TURNS = 1000000 };

/* ---- kinds -------------------------------------------------------------------------------------------------- */

struct kind {
	const char *name;
	enum pp_layer_kind kind;
	const char *attributes; /* that a layer statement of this kind may set */
};

static const struct kind kinds[] = {
    {"embedding", PP_LAYER_EMBEDDING, ""},
    {"block", PP_LAYER_BLOCK, "heads|kv_heads|head_dim|ffn|window|norm|act|bias|experts|top_k|shared|max_nodes_per_token"},
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

static void report_kind(struct pp_resolver *resolver, const struct pp_stmt *stmt)
{
	const char *names[KIND_COUNT];
	for (int i = 0; i < KIND_COUNT; i++)
		names[i] = kinds[i].name;
	if (strcmp(stmt->name.text, "mtp") == 0) {
		pp_not_yet(resolver, stmt->name.span, "a layer of kind `mtp`");
		return;
	}
	struct pp_message *message = pp_error(resolver->diag, "E0207", stmt->name.span, "unknown kind of layer `%.60s`", stmt->name.text);
	const char *nearest = pp_nearest(stmt->name.text, names, KIND_COUNT);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else
		pp_help(message, "kinds are embedding block norm head custom");
}

/* ---- the list under construction ------------------------------------------------------------------------------ */

struct build {
	struct pp_resolver *resolver;
	struct pp_section *model;
	struct pp_layer *layers;
	size_t count, capacity;
	const struct pp_expr **ties; /* by layer: name written after tie =, or NULL */
	size_t tie_count, tie_capacity;
	struct pp_layer block; /* sizes of the model, for layers to copy */
	uint64_t turns;
	bool failed;
};

static void set_whole(struct build *build, struct pp_section *section, enum pp_attribute attribute, uint32_t *out)
{
	uint64_t value;
	if (!pp_field_whole(build->resolver, section, attribute, &value))
		build->failed = true;
	else
		*out = (uint32_t)value;
}

/* Sizes that blocks, norms, embedding and head share. */
static void read_sizes(struct build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_section *model = build->model;
	struct pp_layer *block = &build->block;
	uint8_t norm = 0;
	set_whole(build, model, PP_ATTR_model_hidden, &block->hidden);
	set_whole(build, model, PP_ATTR_model_heads, &block->heads);
	set_whole(build, model, PP_ATTR_model_kv_heads, &block->kv_heads);
	if (!build->failed)
		set_whole(build, model, PP_ATTR_model_head_dim, &block->head_dim);
	if (!build->failed)
		set_whole(build, model, PP_ATTR_model_ffn, &block->ffn);
	set_whole(build, model, PP_ATTR_model_vocab, &block->vocab);
	set_whole(build, model, PP_ATTR_model_seq, &block->seq);
	set_whole(build, model, PP_ATTR_model_window, &block->window);
	build->failed |= !pp_field_choice(resolver, model, PP_ATTR_model_act, &block->act);
	build->failed |= !pp_field_truth(resolver, model, PP_ATTR_model_bias, &block->bias);
	build->failed |= !pp_field_choice(resolver, model, PP_ATTR_model_norm, &norm);
	block->rms = norm == 1;
	uint32_t pad = 1;
	set_whole(build, model, PP_ATTR_model_pad_vocab, &pad);
	if (!build->failed)
		block->padded_vocab = (block->vocab + pad - 1) / pad * pad;
}

/* ---- one layer statement --------------------------------------------------------------------------------------- */

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

static void check_kind_attributes(struct build *build, const struct pp_section *section, const struct kind *kind)
{
	for (size_t i = 0; i < section->count; i++) {
		struct pp_field *field = &section->fields[i];
		const char *name = pp_attribute_table[section->first + i].name;
		bool later;
		if (!field->expr || pp_schema_has_name(kind->attributes, name, &later))
			continue;
		struct pp_message *message =
		    pp_error(build->resolver->diag, "E0101", field->name_span, "a layer of kind `%s` has no attribute `%s`", kind->name, name);
		if (*kind->attributes)
			pp_help(message, "it has %s", list_text(build->resolver->arena, kind->attributes));
		field->state = PP_FAILED;
		build->failed = true;
	}
}

static void override(struct build *build, struct pp_section *section, enum pp_attribute attribute, uint32_t *out)
{
	if (pp_field_given(section, attribute))
		set_whole(build, section, attribute, out);
}

static void read_block(struct build *build, struct pp_section *section, struct pp_layer *layer)
{
	struct pp_resolver *resolver = build->resolver;
	bool heads = pp_field_given(section, PP_ATTR_layer_heads);
	override(build, section, PP_ATTR_layer_heads, &layer->heads);
	if (heads && !pp_field_given(section, PP_ATTR_layer_kv_heads) && !pp_field_given(build->model, PP_ATTR_model_kv_heads))
		layer->kv_heads = layer->heads;
	override(build, section, PP_ATTR_layer_kv_heads, &layer->kv_heads);
	override(build, section, PP_ATTR_layer_head_dim, &layer->head_dim);
	override(build, section, PP_ATTR_layer_ffn, &layer->ffn);
	override(build, section, PP_ATTR_layer_window, &layer->window);
	if (pp_field_given(section, PP_ATTR_layer_act))
		build->failed |= !pp_field_choice(resolver, section, PP_ATTR_layer_act, &layer->act);
}

static void read_norm(struct build *build, struct pp_section *section, struct pp_layer *layer)
{
	uint8_t norm = layer->rms;
	if (pp_field_given(section, PP_ATTR_layer_norm))
		build->failed |= !pp_field_choice(build->resolver, section, PP_ATTR_layer_norm, &norm);
	layer->rms = norm == 1;
	if (pp_field_given(section, PP_ATTR_layer_bias))
		build->failed |= !pp_field_truth(build->resolver, section, PP_ATTR_layer_bias, &layer->bias);
}

static void read_time(struct build *build, struct pp_section *section, enum pp_attribute attribute, uint64_t *out)
{
	*out = PP_TIME_UNSET;
	if (pp_field_given(section, attribute))
		build->failed |= !pp_field_scaled(build->resolver, section, attribute, 1000000000, out);
}

static void read_custom(struct build *build, struct pp_section *section, struct pp_layer *layer)
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
	struct pp_message *message =
	    f || i || w ? pp_error(resolver->diag, "E0111", section->span, "a custom layer gives all of time_f, time_i and time_w, or none")
	                : pp_error(resolver->diag, "E0111", section->span, "a custom layer needs `flops`, or time_f, time_i and time_w");
	pp_help(message, "write `time_f = 1ms  time_i = 1ms  time_w = 1ms`");
	build->failed = true;
}

/* The query heads are shared out evenly over the key and value heads. */
static void check_block(struct build *build, const struct pp_stmt *stmt, const struct pp_layer *layer)
{
	if (layer->kv_heads == 0 || layer->heads == 0)
		return;
	const struct pp_section *model = build->model;
	struct pp_span span = stmt ? stmt->name.span : pp_field_span(model, PP_ATTR_model_kv_heads);
	if (layer->heads % layer->kv_heads != 0) {
		struct pp_message *message = pp_error(build->resolver->diag, "E0310", span, "%u heads cannot share %u key/value heads evenly",
		                                      layer->heads, layer->kv_heads);
		pp_label(message, pp_field_span(model, PP_ATTR_model_heads), "heads");
		pp_help(message, "use a number of kv_heads that divides %u", layer->heads);
		build->failed = true;
	}
	if ((uint64_t)layer->heads * layer->head_dim > (uint64_t)1 << 20) {
		pp_error(build->resolver->diag, "E0106", span, "heads · head_dim = %u · %u = %llu is outside 1..1048576", layer->heads,
		         layer->head_dim, (unsigned long long)layer->heads * layer->head_dim);
		build->failed = true;
	}
}

static void push_layers(struct build *build, struct pp_layer layer, uint64_t count, const struct pp_expr *tie, struct pp_span span)
{
	if (count > MOST_LAYERS || build->count + count > MOST_LAYERS) {
		if (build->count <= MOST_LAYERS)
			pp_error(build->resolver->diag, "E0106", span, "the model has more than 65535 layers");
		build->count = MOST_LAYERS + 1;
		build->failed = true;
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		*PP_PUSH(build->resolver->arena, &build->layers, &build->count, &build->capacity, struct pp_layer) = layer;
		*PP_PUSH(build->resolver->arena, &build->ties, &build->tie_count, &build->tie_capacity, const struct pp_expr *) = tie;
	}
}

static struct pp_layer make_layer(const struct build *build, const char *name, enum pp_layer_kind kind, struct pp_span span)
{
	struct pp_layer layer = build->block;
	layer.name = name;
	layer.kind = (uint8_t)kind;
	layer.tie = PP_NULL;
	layer.span = span;
	return layer;
}

static void add_layer(struct build *build, const struct pp_stmt *stmt)
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
	if (count < 0 || count > MOST_LAYERS) {
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
	struct pp_layer layer = make_layer(build, stmt->label.text ? stmt->label.text : stmt->name.text, kind->kind, stmt->span);
	if (kind->kind == PP_LAYER_BLOCK)
		read_block(build, section, &layer);
	if (kind->kind == PP_LAYER_BLOCK || kind->kind == PP_LAYER_NORM)
		read_norm(build, section, &layer);
	if (kind->kind == PP_LAYER_CUSTOM)
		read_custom(build, section, &layer);
	if (kind->kind == PP_LAYER_BLOCK)
		check_block(build, stmt, &layer);
	push_layers(build, layer, (uint64_t)count, pp_field_of(section, PP_ATTR_layer_tie)->expr, stmt->span);
}

static void add_body(struct build *build, const struct pp_stmt *first);

/* Each turn counts, so that empty loops end too. */
static bool next_turn(struct build *build, const struct pp_stmt *stmt)
{
	if (++build->turns <= MOST_TURNS && build->count <= MOST_LAYERS)
		return true;
	if (build->turns == MOST_TURNS + 1)
		pp_error(build->resolver->diag, "E0106", stmt->span, "this repeats more than %d times", MOST_TURNS);
	build->failed = true;
	return false;
}

static void add_for(struct build *build, const struct pp_stmt *stmt)
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
		add_body(build, stmt->body);
		resolver->eval.scope = scope.outer;
		if (at == INT64_MAX)
			break;
	}
}

static void add_repeat(struct build *build, const struct pp_stmt *stmt)
{
	int64_t count;
	if (!pp_eval_whole(&build->resolver->eval, stmt->count, "the count of `repeat`", &count)) {
		build->failed = true;
		return;
	}
	if (count < 0) {
		pp_error(build->resolver->diag, "E0106", stmt->count->span, "`repeat` %lld times: must be >= 0", (long long)count);
		build->failed = true;
	}
	for (int64_t i = 0; i < count && next_turn(build, stmt); i++)
		add_body(build, stmt->body);
}

static void add_body(struct build *build, const struct pp_stmt *first)
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

static bool has_layers(const struct pp_stmt *first)
{
	for (; first; first = first->next)
		if (first->kind == PP_STMT_LAYER || first->kind == PP_STMT_FOR || first->kind == PP_STMT_REPEAT)
			return true;
	return false;
}

/* The statements that list the layers: of the model itself, else of the one it extends. */
static const struct pp_stmt *layer_list(const struct pp_section *model)
{
	if (!model->stmt)
		return NULL;
	if (has_layers(model->stmt->body))
		return model->stmt->body;
	struct pp_module *owner;
	const struct pp_stmt *base = model->stmt->extends && model->stmt->extends->kind == PP_EXPR_PATH
	                                 ? pp_module_block(model->module, "model", model->stmt->extends, &owner)
	                                 : NULL;
	return base && has_layers(base->body) ? base->body : NULL;
}

static bool only_custom(const struct pp_stmt *first)
{
	for (; first; first = first->next) {
		if (first->kind == PP_STMT_LAYER && strcmp(first->name.text, "custom") != 0)
			return false;
		if ((first->kind == PP_STMT_FOR || first->kind == PP_STMT_REPEAT) && !only_custom(first->body))
			return false;
	}
	return true;
}

bool pp_model_is_custom(struct pp_resolver *resolver)
{
	const struct pp_stmt *list = layer_list(resolver->sections[PP_SECTION_MODEL]);
	return list && only_custom(list);
}

static void add_default_list(struct build *build)
{
	uint32_t count = 0;
	set_whole(build, build->model, PP_ATTR_model_layers, &count);
	if (build->failed)
		return;
	struct pp_strtab *strings = build->resolver->strings;
	struct pp_span span = build->model->span;
	check_block(build, NULL, &build->block);
	push_layers(build, make_layer(build, pp_intern_z(strings, "emb"), PP_LAYER_EMBEDDING, span), 1, NULL, span);
	push_layers(build, make_layer(build, pp_intern_z(strings, "block"), PP_LAYER_BLOCK, span), count, NULL,
	            pp_field_span(build->model, PP_ATTR_model_layers));
	push_layers(build, make_layer(build, pp_intern_z(strings, "norm"), PP_LAYER_NORM, span), 1, NULL, span);
	push_layers(build, make_layer(build, pp_intern_z(strings, "head"), PP_LAYER_HEAD, span), 1, NULL, span);
}

/* ---- the finished list ------------------------------------------------------------------------------------------ */

struct named {
	const char *name;
	uint32_t layer;
};

/* Groups equal names, each in order of execution. Names are interned; the order of the groups does not matter. */
static int compare_named(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	if (x->name != y->name)
		return (uintptr_t)x->name < (uintptr_t)y->name ? -1 : 1;
	return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* Instances of a name are numbered through the whole list; a name that stands once is not indexed. */
static void number_layers(struct build *build)
{
	struct named *named = PP_NEW_ARRAY(build->resolver->arena, struct named, build->count);
	uint32_t blocks = 0, index = 0;
	for (uint32_t i = 0; i < build->count; i++) {
		named[i] = (struct named){build->layers[i].name, i};
		build->layers[i].block_ordinal = build->layers[i].kind == PP_LAYER_BLOCK ? blocks++ : 0;
	}
	qsort(named, build->count, sizeof(*named), compare_named);
	for (size_t i = 0; i < build->count; i++) {
		bool same = i > 0 && named[i - 1].name == named[i].name;
		bool more = i + 1 < build->count && named[i + 1].name == named[i].name;
		index = same ? index + 1 : 0;
		build->layers[named[i].layer].index = index;
		build->layers[named[i].layer].indexed = same || more;
		build->layers[named[i].layer].block_total = blocks;
	}
}

static bool check_ends(struct build *build)
{
	struct pp_resolver *resolver = build->resolver;
	const struct pp_layer *wrong = NULL;
	const char *why = "";
	for (size_t i = 0; i < build->count && !wrong; i++) {
		const struct pp_layer *layer = &build->layers[i];
		bool first = i == 0, last = i + 1 == build->count;
		if (layer->kind == PP_LAYER_CUSTOM) {
			pp_help(pp_not_yet(resolver, layer->span, "a `custom` layer in a model that trains"),
			        "use only custom layers, or only embedding, block, norm and head");
			return false;
		}
		if (first != (layer->kind == PP_LAYER_EMBEDDING) || last != (layer->kind == PP_LAYER_HEAD)) {
			wrong = layer;
			why = first                                ? "the first layer must be the embedding"
			      : last                               ? "the last layer must be the head"
			      : layer->kind == PP_LAYER_EMBEDDING ? "there is one embedding, and it comes first"
			                                           : "there is one head, and it comes last";
		}
	}
	if (!wrong)
		return true;
	struct pp_message *message = pp_error(resolver->diag, "E0311", wrong->span, "%s, but `%s` stands here", why, wrong->name);
	pp_help(message, "write `layer emb : embedding  layer block : block * 8  layer norm : norm  layer head : head`");
	return false;
}

/* tie = emb, or tie_embeddings: the head shares the weights of the embedding, which is layer 0. */
static bool tie_head(struct build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_layer *head = &build->layers[build->count - 1];
	const struct pp_expr *tie = build->ties[build->count - 1];
	bool tied;
	if (!pp_field_truth(resolver, build->model, PP_ATTR_model_tie_embeddings, &tied))
		return false;
	if (tie && strcmp(tie->text ? tie->text : "", build->layers[0].name) != 0) {
		struct pp_message *message = pp_error(resolver->diag, "E0102", tie->span, "`tie` names the embedding, and `%s` is none",
		                                      pp_eval_quote(&resolver->eval, tie->span));
		pp_help(message, "write `tie = %s`", build->layers[0].name);
		return false;
	}
	if (tied || tie)
		head->tie = 0;
	return true;
}

/* Boundary messages have 32-bit counts of elements, and tokens 31-bit ones. */
static bool check_message_size(struct build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	uint64_t microbatch, elements = (uint64_t)build->block.seq * build->block.hidden;
	if (!pp_field_whole(resolver, train, PP_ATTR_train_microbatch, &microbatch))
		return false;
	uint64_t tokens = microbatch * build->block.seq;
	if (tokens <= INT32_MAX && !__builtin_mul_overflow(elements, microbatch, &elements) && elements <= UINT32_MAX)
		return true;
	struct pp_message *message = pp_error(
	    resolver->diag, "E0106", pp_field_span(train, PP_ATTR_train_microbatch), "microbatch · seq · hidden = %llu · %u · %u has more than %llu elements",
	    (unsigned long long)microbatch, build->block.seq, build->block.hidden, (unsigned long long)UINT32_MAX);
	pp_help(message, "use a smaller microbatch");
	return false;
}

static void check_layers_attribute(struct build *build)
{
	const struct pp_field *layers = pp_field_of(build->model, PP_ATTR_model_layers);
	if (!layers->expr)
		return;
	struct pp_message *message =
	    pp_error(build->resolver->diag, "E0114", layers->name_span, "`layers` has no effect: this model lists its layers");
	pp_help(message, "remove it; the list has %zu layers", build->count);
	build->failed = true;
}

static void finish(struct build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_model *model = &resolver->out->spec.model;
	if (build->count == 0) {
		pp_help(pp_error(resolver->diag, "E0111", build->model->span, "the model has no layers"), "write `layers = 8`");
		return;
	}
	number_layers(build);
	if (!resolver->custom_only && (!check_ends(build) || !tie_head(build) || !check_message_size(build)))
		return;
	*model = (struct pp_model){
	    .name = pp_section_label(build->model), .layers = build->layers, .layer_count = (uint32_t)build->count,
	    .hidden = build->block.hidden, .vocab = build->block.vocab, .padded_vocab = build->block.padded_vocab,
	    .seq = build->block.seq, .trains = !resolver->custom_only,
	};
}

void pp_resolve_model(struct pp_resolver *resolver)
{
	struct build build = {.resolver = resolver, .model = resolver->sections[PP_SECTION_MODEL]};
	const struct pp_stmt *list = layer_list(build.model);
	if (!build.model->stmt)
		return;
	pp_section_read_all(resolver, build.model);
	if (!resolver->custom_only)
		read_sizes(&build);
	bool sizes_failed = build.failed;
	build.failed = false;
	resolver->eval.scope = &build.model->module->scope;
	if (list)
		add_body(&build, list);
	else if (!sizes_failed)
		add_default_list(&build);
	resolver->eval.scope = &resolver->main->scope;
	if (list)
		check_layers_attribute(&build);
	if (!build.failed && !sizes_failed)
		finish(&build);
}
