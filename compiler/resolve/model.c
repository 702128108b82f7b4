/* The model: its sizes, and what must hold of its list of layers (in order of execution). Default list: emb,
 * block * layers, norm, head. Ensures: every layer has all its sizes; a model that trains starts with its one embedding
 * and ends with its one head; sizes of messages fit their 32-bit counts. */
#include "layers.h"

#include <stdlib.h>
#include <string.h>

/* pos = rope(theta = …), or learned: 0. */
static bool read_positions(struct pp_resolver *resolver, struct pp_section *model, uint64_t *theta)
{
	const struct pp_field *field = pp_field_read(resolver, model, PP_ATTR_model_pos);
	*theta = 0;
	if (!field)
		return false;
	struct pp_section *arguments = pp_section_arguments(resolver, field);
	return !arguments || pp_field_whole(resolver, arguments, PP_ATTR_rope_theta, theta);
}

/* The rows of the token tables: a multiple of pad_vocab * tp, so that tensor-parallel ranks hold as many each. */
static void read_padding(struct pp_layer_build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_layer *block = &build->block;
	uint64_t pad, tp;
	if (!pp_field_whole(resolver, build->model, PP_ATTR_model_pad_vocab, &pad) ||
	    !pp_field_whole(resolver, resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_tp, &tp)) {
		build->failed = true;
		return;
	}
	uint64_t unit = pad * tp, padded = (block->vocab + unit - 1) / unit * unit;
	block->padded_vocab = (uint32_t)padded;
	if (padded < UINT32_MAX)
		return;
	pp_error(resolver->diag, "E0106", pp_field_span(build->model, PP_ATTR_model_pad_vocab),
	         "a vocabulary padded to a multiple of pad_vocab · tp = %llu · %llu is too large", (unsigned long long)pad,
	         (unsigned long long)tp);
	build->failed = true;
}

/* Sizes that blocks, norms, embedding and head share. */
static void read_sizes(struct pp_layer_build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_section *model = build->model;
	struct pp_layer *block = &build->block;
	uint8_t norm = 0;
	pp_layers_whole(build, model, PP_ATTR_model_hidden, &block->hidden);
	pp_layers_whole(build, model, PP_ATTR_model_heads, &block->heads);
	pp_layers_whole(build, model, PP_ATTR_model_kv_heads, &block->kv_heads);
	if (!build->failed)
		pp_layers_whole(build, model, PP_ATTR_model_head_dim, &block->head_dim);
	if (!build->failed)
		pp_layers_whole(build, model, PP_ATTR_model_ffn, &block->ffn);
	pp_layers_whole(build, model, PP_ATTR_model_vocab, &block->vocab);
	pp_layers_whole(build, model, PP_ATTR_model_seq, &block->seq);
	pp_layers_whole(build, model, PP_ATTR_model_window, &block->window);
	build->failed |= !pp_field_choice(resolver, model, PP_ATTR_model_act, &block->act);
	build->failed |= !pp_field_truth(resolver, model, PP_ATTR_model_bias, &block->bias);
	build->failed |= !pp_field_choice(resolver, model, PP_ATTR_model_norm, &norm);
	block->rms = norm == 1;
	build->failed |= !pp_field_truth(resolver, model, PP_ATTR_model_qkv_bias, &block->qkv_bias);
	build->failed |= !pp_field_truth(resolver, model, PP_ATTR_model_qk_norm, &block->qk_norm);
	build->failed |= !read_positions(resolver, model, &block->rope_theta);
	if (!build->failed)
		read_padding(build);
}

/* ---- where the list is written --------------------------------------------------------------- */

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

/* A misspelt kind says nothing about what the model is: it is reported alone. */
static bool only_custom(const struct pp_stmt *first)
{
	for (; first; first = first->next) {
		if (first->kind == PP_STMT_LAYER && strcmp(first->name.text, "custom") != 0 &&
		    pp_layer_kind_known(first->name.text))
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

static void add_default_list(struct pp_layer_build *build)
{
	uint32_t count = 0;
	pp_layers_whole(build, build->model, PP_ATTR_model_layers, &count);
	if (build->failed)
		return;
	struct pp_strtab *strings = build->resolver->strings;
	struct pp_span span = build->model->span;
	pp_layers_check_block(build, NULL, &build->block);
	pp_layers_push(build, pp_layers_make(build, pp_intern_z(strings, "emb"), PP_LAYER_EMBEDDING, span), 1, NULL, span);
	pp_layers_push(build, pp_layers_make(build, pp_intern_z(strings, "block"), PP_LAYER_BLOCK, span), count, NULL,
	               pp_field_span(build->model, PP_ATTR_model_layers));
	pp_layers_push(build, pp_layers_make(build, pp_intern_z(strings, "norm"), PP_LAYER_NORM, span), 1, NULL, span);
	pp_layers_push(build, pp_layers_make(build, pp_intern_z(strings, "head"), PP_LAYER_HEAD, span), 1, NULL, span);
}

/* ---- the finished list ----------------------------------------------------------------------- */

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

static bool alike(const struct pp_layer *a, const struct pp_layer *b)
{
	return a->kind == b->kind && a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
	       a->ffn == b->ffn && a->window == b->window && a->act == b->act && a->bias == b->bias &&
	       a->qkv_bias == b->qkv_bias && a->qk_norm == b->qk_norm && a->rms == b->rms &&
	       memcmp(&a->custom, &b->custom, sizeof a->custom) == 0;
}

/* A name stands for one kind of layer, however many statements make instances of it. */
static void check_alike(struct pp_layer_build *build, const struct pp_layer *first, const struct pp_layer *second)
{
	if (build->failed || alike(first, second))
		return;
	struct pp_message *message = pp_error(build->resolver->diag, "E0103", second->span,
	                                      "another layer, unlike this one, is called `%.60s` too", second->name);
	pp_label(message, first->span, "first here");
	pp_help(message, "give each its own name, such as `layer %.50s_2 : ...`", second->name);
	build->failed = true;
}

/* Instances of a name are numbered through the whole list; a name that stands once is not indexed. */
static void number_layers(struct pp_layer_build *build)
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
		if (same)
			check_alike(build, &build->layers[named[i - 1].layer], &build->layers[named[i].layer]);
		build->layers[named[i].layer].index = index;
		build->layers[named[i].layer].indexed = same || more;
		build->layers[named[i].layer].block_total = blocks;
	}
}

static bool check_ends(struct pp_layer_build *build)
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
			why = first                               ? "the first layer must be the embedding"
			      : last                              ? "the last layer must be the head"
			      : layer->kind == PP_LAYER_EMBEDDING ? "there is one embedding, and it comes first"
			                                          : "there is one head, and it comes last";
		}
	}
	if (!wrong)
		return true;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0311", wrong->span, "%s, but `%s` stands here", why, wrong->name);
	pp_help(message, "write `layer emb : embedding  layer block : block * 8  layer norm : norm  layer head : head`");
	return false;
}

/* tie = emb, or tie_embeddings: the head shares the weights of the embedding, which is layer 0. */
static bool tie_head(struct pp_layer_build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_layer *head = &build->layers[build->count - 1];
	const struct pp_expr *tie = build->ties[build->count - 1];
	bool tied;
	if (!pp_field_truth(resolver, build->model, PP_ATTR_model_tie_embeddings, &tied))
		return false;
	if (tie && strcmp(tie->text ? tie->text : "", build->layers[0].name) != 0) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0102", tie->span, "`tie` names the embedding, and `%s` is none",
		             pp_eval_quote(&resolver->eval, tie->span));
		pp_help(message, "write `tie = %s`", build->layers[0].name);
		return false;
	}
	if (tied || tie)
		head->tie = 0;
	return true;
}

/* Boundary messages have 32-bit counts of elements, and tokens 31-bit ones. */
static bool check_message_size(struct pp_layer_build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	uint64_t microbatch, elements = (uint64_t)build->block.seq * build->block.hidden;
	if (!pp_field_whole(resolver, train, PP_ATTR_train_microbatch, &microbatch))
		return false;
	uint64_t tokens = microbatch * build->block.seq;
	if (tokens <= INT32_MAX && !__builtin_mul_overflow(elements, microbatch, &elements) && elements <= UINT32_MAX)
		return true;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0106", pp_field_span(train, PP_ATTR_train_microbatch),
	             "microbatch · seq · hidden = %llu · %u · %u has more than %llu elements",
	             (unsigned long long)microbatch, build->block.seq, build->block.hidden, (unsigned long long)UINT32_MAX);
	pp_help(message, "use a smaller microbatch");
	return false;
}

static void check_layers_attribute(struct pp_layer_build *build)
{
	const struct pp_field *layers = pp_field_of(build->model, PP_ATTR_model_layers);
	if (!layers->expr)
		return;
	struct pp_message *message = pp_error(build->resolver->diag, "E0114", layers->name_span,
	                                      "`layers` has no effect: this model lists its layers");
	pp_help(message, "remove it; the list has %zu layers", build->count);
	build->failed = true;
}

static void finish(struct pp_layer_build *build)
{
	struct pp_resolver *resolver = build->resolver;
	struct pp_model *model = &resolver->out->spec.model;
	if (build->count == 0) {
		pp_help(pp_error(resolver->diag, "E0111", build->model->span, "the model has no layers"), "write `layers = 8`");
		return;
	}
	number_layers(build);
	if (build->failed)
		return;
	if (!resolver->custom_only && (!check_ends(build) || !tie_head(build) || !check_message_size(build)))
		return;
	*model = (struct pp_model){
	    .name = pp_section_label(build->model),
	    .layers = build->layers,
	    .layer_count = (uint32_t)build->count,
	    .hidden = build->block.hidden,
	    .vocab = build->block.vocab,
	    .padded_vocab = build->block.padded_vocab,
	    .seq = build->block.seq,
	    .trains = !resolver->custom_only,
	};
}

void pp_resolve_model(struct pp_resolver *resolver)
{
	struct pp_layer_build build = {.resolver = resolver, .model = resolver->sections[PP_SECTION_MODEL]};
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
		pp_layers_add(&build, list);
	else if (!sizes_failed)
		add_default_list(&build);
	resolver->eval.scope = &resolver->main->scope;
	if (list)
		check_layers_attribute(&build);
	if (!build.failed && !sizes_failed)
		finish(&build);
}
