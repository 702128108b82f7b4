/* Params and lets: values from -D or defaults, types, ranges, cycles (E0104 to E0108); and the scope of a file, which
 * also answers `block.attribute`. */
#include "resolver.h"

#include <assert.h>
#include <string.h>

enum { LONGEST_CHAIN = 8 };

/* ---- cycles ---------------------------------------------------------------------------------- */

void pp_report_cycle(struct pp_resolver *resolver, struct pp_span span, const void *what, const char *title)
{
	const char *chain = title;
	unsigned length = 0;
	for (const struct pp_progress *at = resolver->progress; at; at = at->below) {
		if (length < LONGEST_CHAIN || at->what == what)
			chain =
			    pp_arena_printf(resolver->arena, "%s -> %s%s", at->title, length > LONGEST_CHAIN ? "… -> " : "", chain);
		length++;
		if (at->what == what)
			break;
	}
	pp_help(pp_error(resolver->diag, "E0107", span, "`%s` depends on itself: %s", title, chain),
	        "give one of them a value of its own");
}

/* ---- types ----------------------------------------------------------------------------------- */

struct type {
	const char *name;
	enum pp_want want;
};

static const struct type types[] = {
    {"int", PP_WANT_WHOLE}, {"real", PP_WANT_NUMBER}, {"bool", PP_WANT_TRUTH}, {"string", PP_WANT_STRING},
    {"name", PP_WANT_NAME}, {"bytes", PP_WANT_BYTES}, {"rate", PP_WANT_RATE},  {"time", PP_WANT_TIME},
    {"work", PP_WANT_WORK}, {"speed", PP_WANT_SPEED},
};

enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

static const struct type *type_of(const struct pp_stmt *param)
{
	for (int i = 0; param->type.text && i < TYPE_COUNT; i++)
		if (strcmp(types[i].name, param->type.text) == 0)
			return &types[i];
	return NULL;
}

static bool check_type_name(struct pp_resolver *resolver, const struct pp_stmt *param)
{
	if (!param->type.text || type_of(param))
		return true;
	const char *names[TYPE_COUNT];
	for (int i = 0; i < TYPE_COUNT; i++)
		names[i] = types[i].name;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0207", param->type.span, "unknown type `%.60s`", param->type.text);
	const char *nearest = pp_nearest(param->type.text, names, TYPE_COUNT);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else
		pp_help(message, "types are int real bool string name bytes rate time work speed");
	return false;
}

static bool fits_type(struct pp_eval *eval, const struct pp_expr *expr, const char *what, enum pp_want want,
                      struct pp_datum *value)
{
	const char *wanted = NULL;
	int64_t whole;
	switch (want) {
	case PP_WANT_WHOLE:
		if (!pp_datum_to_whole(eval, expr, what, value, &whole))
			return false;
		*value = pp_datum_whole(whole);
		return true;
	case PP_WANT_TRUTH:
		wanted = value->kind == PP_DATUM_BOOL ? NULL : "true or false";
		break;
	case PP_WANT_STRING:
		wanted = value->kind == PP_DATUM_STRING ? NULL : "a string";
		break;
	case PP_WANT_NAME:
		wanted = value->kind == PP_DATUM_NAME ? NULL : "a name";
		break;
	case PP_WANT_LIST:
	case PP_WANT_RANGE:
		wanted = value->kind == PP_DATUM_LIST ? NULL : "a list";
		break;
	case PP_WANT_NUMBER:
	case PP_WANT_BYTES:
	case PP_WANT_RATE:
	case PP_WANT_TIME:
	case PP_WANT_WORK:
	case PP_WANT_SPEED:
		if (value->kind != PP_DATUM_NUMBER || !pp_dimension_equal(value->dimension, pp_want_dimension(want)))
			wanted = pp_dimension_noun(pp_want_dimension(want));
		break;
	}
	if (wanted)
		pp_eval_mismatch(eval, expr, what, wanted, value);
	return !wanted;
}

/* ---- -D -------------------------------------------------------------------------------------- */

static void report_no_param(struct pp_resolver *resolver, const char *define, const char *name)
{
	const char **names = PP_NEW_ARRAY(resolver->arena, const char *, resolver->main->count);
	size_t count = 0;
	for (size_t i = 0; i < resolver->main->count; i++)
		if (resolver->main->symbols[i].stmt->kind == PP_STMT_PARAM)
			names[count++] = resolver->main->symbols[i].key;
	struct pp_message *message =
	    pp_error(resolver->diag, "E0104", PP_NO_SPAN, "-D %.80s: there is no parameter `%.60s`", define, name);
	const char *nearest = pp_nearest(name, names, count);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else if (count == 0)
		pp_help(message,
		        "this file has no parameters; write `param %.60s = …` at its top, or use --set block.attribute=value",
		        name);
	else
		pp_help(message, "parameters are stated by `param NAME = DEFAULT` in the file");
}

static void read_define(struct pp_resolver *resolver, const char *define, const char *name, struct pp_symbol *symbol,
                        const char *value)
{
	const struct type *type = type_of(symbol->stmt);
	symbol->origin = PP_ORIGIN_DEFINE;
	if (type && (type->want == PP_WANT_STRING || type->want == PP_WANT_NAME)) {
		symbol->given_text = pp_intern_z(resolver->strings, value);
		return;
	}
	char *text = pp_arena_printf(resolver->arena, "let %s = %s", name, value);
	const struct pp_source *source = pp_sources_add(resolver->sources, "-D", text, strlen(text));
	size_t before = pp_diag_errors(resolver->diag);
	const struct pp_ast *ast = source ? pp_parse(resolver->arena, resolver->strings, source, resolver->diag) : NULL;
	bool one = ast && ast->first && !ast->first->next && ast->first->kind == PP_STMT_LET &&
	           ast->first->name.text == symbol->key;
	if (pp_diag_errors(resolver->diag) != before || !one) {
		if (pp_diag_errors(resolver->diag) == before)
			pp_error(resolver->diag, "E0104", PP_NO_SPAN, "-D %.80s: the value is not one expression", define);
		symbol->state = PP_FAILED;
		return;
	}
	symbol->given = ast->first->value;
}

static void define(struct pp_resolver *resolver, const char *text)
{
	const char *equals = strchr(text, '=');
	if (!equals || equals == text) {
		pp_error(resolver->diag, "E0104", PP_NO_SPAN, "-D %.80s: want NAME=VALUE", text);
		return;
	}
	const char *name = pp_intern(resolver->strings, text, (size_t)(equals - text));
	struct pp_module *owner;
	struct pp_symbol *symbol = pp_module_find_open(resolver->main, name, &owner);
	if (!symbol || symbol->stmt->kind != PP_STMT_PARAM)
		report_no_param(resolver, text, name);
	else if (symbol->origin == PP_ORIGIN_DEFINE)
		pp_error(resolver->diag, "E0103", PP_NO_SPAN, "-D %.80s: `%s` is given twice", text, name);
	else
		read_define(resolver, text, name, symbol, equals + 1);
}

void pp_params_define(struct pp_resolver *resolver)
{
	for (size_t i = 0; i < resolver->options->define_count; i++)
		define(resolver, resolver->options->defines[i]);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Evaluate in the scope of a module, and as part of whatever is being evaluated now. */
static bool eval_in(struct pp_eval *eval, const struct pp_scope *scope, const struct pp_expr *expr,
                    struct pp_datum *out)
{
	const struct pp_scope *before = eval->scope;
	eval->scope = scope;
	bool ok = pp_eval_expr(eval, expr, out);
	eval->scope = before;
	return ok;
}

static bool in_list(struct pp_eval *eval, struct pp_module *module, const struct pp_expr *list,
                    const struct pp_datum *value, bool *inside)
{
	struct pp_datum all;
	if (value->kind == PP_DATUM_NAME) { /* items are bare names */
		for (const struct pp_expr *item = list->a; item && !*inside; item = item->next)
			*inside = item->text && strcmp(item->text, value->text) == 0;
		return true;
	}
	if (!eval_in(eval, &module->scope, list, &all))
		return false;
	for (uint32_t i = 0; i < all.count && !*inside; i++) {
		const struct pp_datum *item = &all.items[i];
		if (item->kind != value->kind)
			continue;
		*inside = item->kind == PP_DATUM_NUMBER
		              ? pp_dimension_equal(item->dimension, value->dimension) && pp_datum_compare(item, value) == 0
		          : item->kind == PP_DATUM_BOOL ? item->truth == value->truth
		                                        : strcmp(item->text, value->text) == 0;
	}
	return true;
}

static bool in_limits(struct pp_eval *eval, struct pp_module *module, const struct pp_expr *range,
                      const struct pp_datum *value, bool *inside)
{
	struct pp_datum limits;
	if (!eval_in(eval, &module->scope, range, &limits))
		return false;
	if (value->kind != PP_DATUM_NUMBER || !pp_dimension_equal(value->dimension, limits.items[0].dimension)) {
		pp_eval_mismatch(eval, range, "a parameter with this range", pp_datum_noun(&limits.items[0]), value);
		return false;
	}
	*inside = pp_datum_compare(value, &limits.items[0]) >= 0 && pp_datum_compare(value, &limits.items[1]) <= 0;
	return true;
}

static bool check_param_range(struct pp_resolver *resolver, struct pp_eval *eval, struct pp_module *module,
                              const struct pp_symbol *symbol, struct pp_span span, const struct pp_datum *value)
{
	const struct pp_expr *range = symbol->stmt->range;
	bool inside = false;
	if (!range || range->kind == PP_EXPR_ERROR)
		return true;
	if (!(range->kind == PP_EXPR_LIST ? in_list : in_limits)(eval, module, range, value, &inside))
		return false;
	if (inside)
		return true;
	const char *text = pp_datum_text(resolver->arena, value), *limits = pp_eval_quote(eval, range->span);
	struct pp_message *message;
	if (range->kind == PP_EXPR_LIST)
		message = pp_error(resolver->diag, "E0106", span, "`%s` = %s is not one of %s", symbol->key, text, limits);
	else
		message = pp_error(resolver->diag, "E0106", span, "`%s` = %s is outside %s", symbol->key, text, limits);
	pp_label(message, range->span, "allowed");
	return false;
}

static bool is_bare_name(const struct pp_expr *expr)
{
	return expr->kind == PP_EXPR_PATH && expr->part_count == 1;
}

static bool read_param(struct pp_resolver *resolver, struct pp_eval *eval, struct pp_module *module,
                       struct pp_symbol *symbol, struct pp_datum *out)
{
	const struct pp_stmt *stmt = symbol->stmt;
	const struct type *type = type_of(stmt);
	const struct pp_expr *expr = symbol->given ? symbol->given : stmt->value;
	struct pp_span span = symbol->given ? symbol->given->span : stmt->name.span;
	if (!check_type_name(resolver, stmt))
		return false;
	if (symbol->given_text) {
		*out = type->want == PP_WANT_NAME ? pp_datum_name(symbol->given_text) : pp_datum_string(symbol->given_text);
		return check_param_range(resolver, eval, module, symbol, span, out);
	}
	if (!expr) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0105", stmt->name.span, "parameter `%s` has no default", symbol->key);
		pp_help(message, "pass -D %s=VALUE, or write a default after it", symbol->key);
		return false;
	}
	const char *what = pp_arena_printf(resolver->arena, "`%s`", symbol->key);
	if (type && type->want == PP_WANT_NAME && is_bare_name(expr))
		*out = pp_datum_name(expr->text);
	else if (!eval_in(eval, symbol->given ? NULL : &module->scope, expr, out))
		return false;
	if (type && !fits_type(eval, expr, what, type->want, out))
		return false;
	struct pp_datum preset;
	if (!type && symbol->given && stmt->value && eval_in(eval, &module->scope, stmt->value, &preset) &&
	    (preset.kind != out->kind || !pp_dimension_equal(preset.dimension, out->dimension))) {
		pp_eval_mismatch(eval, expr, what,
		                 pp_arena_printf(resolver->arena, "%s like its default", pp_datum_noun(&preset)), out);
		return false;
	}
	return check_param_range(resolver, eval, module, symbol, span, out);
}

static enum pp_lookup read_symbol(struct pp_resolver *resolver, struct pp_eval *eval, struct pp_module *module,
                                  struct pp_symbol *symbol, const struct pp_expr *path, struct pp_datum *out)
{
	if (symbol->state == PP_READING) {
		pp_report_cycle(resolver, path ? path->span : symbol->stmt->name.span, symbol, symbol->key);
		symbol->state = PP_FAILED;
	}
	if (symbol->state == PP_UNREAD) {
		struct pp_progress progress = {symbol->key, symbol, resolver->progress};
		resolver->progress = &progress;
		symbol->state = PP_READING;
		struct pp_datum value;
		bool ok = symbol->stmt->kind == PP_STMT_PARAM ? read_param(resolver, eval, module, symbol, &value)
		                                              : eval_in(eval, &module->scope, symbol->stmt->value, &value);
		ok = ok && symbol->state == PP_READING; /* else: found to depend on itself */
		symbol->state = ok ? PP_READY : PP_FAILED;
		if (ok)
			symbol->value = value;
		if (symbol->origin != PP_ORIGIN_DEFINE)
			symbol->origin = PP_ORIGIN_FILE;
		resolver->progress = progress.below;
	}
	if (symbol->state != PP_READY)
		return PP_LOOKUP_FAILED;
	*out = symbol->value;
	return PP_LOOKUP_FOUND;
}

void pp_params_read_all(struct pp_resolver *resolver)
{
	for (size_t i = 0; i < resolver->module_count; i++) {
		struct pp_module *module = resolver->modules[i];
		for (size_t k = 0; k < module->count; k++) {
			struct pp_datum ignored;
			enum pp_stmt_kind kind = module->symbols[k].stmt->kind;
			if (kind == PP_STMT_PARAM || (kind == PP_STMT_LET && module->symbols[k].stmt->value))
				read_symbol(resolver, &resolver->eval, module, &module->symbols[k], NULL, &ignored);
		}
	}
}

void pp_params_report_unused(struct pp_resolver *resolver)
{
	for (size_t i = 0; i < resolver->main->count; i++) {
		const struct pp_symbol *symbol = &resolver->main->symbols[i];
		if (symbol->stmt->kind != PP_STMT_PARAM || symbol->used)
			continue;
		struct pp_message *message =
		    pp_error(resolver->diag, "E0108", symbol->stmt->name.span, "parameter `%s` is never used", symbol->key);
		pp_help(message, "remove it, or use it in an attribute");
	}
}

/* ---- the scope of a file --------------------------------------------------------------------- */

static struct pp_section *find_section(struct pp_resolver *resolver, const struct pp_expr *path)
{
	const char *last = strrchr(path->text, '.');
	size_t length = (size_t)(last - path->text);
	for (int i = 0; i < PP_SECTION_COUNT; i++) {
		struct pp_section *section = resolver->sections[i];
		if (section && strlen(section->title) == length && memcmp(section->title, path->text, length) == 0)
			return section;
	}
	return NULL;
}

static enum pp_lookup read_attribute(struct pp_resolver *resolver, const struct pp_expr *path, struct pp_datum *out)
{
	struct pp_section *section = find_section(resolver, path);
	if (!section)
		return PP_LOOKUP_NONE;
	const struct pp_name *last = &path->parts[path->part_count - 1];
	enum pp_attribute attribute = pp_schema_attribute(section->block, last->text);
	if (attribute == PP_ATTR_COUNT) {
		struct pp_message *message = pp_error(resolver->diag, "E0101", last->span, "unknown attribute `%.60s` in `%s`",
		                                      last->text, section->title);
		const char *nearest = pp_schema_nearest_attribute(section->block, last->text);
		if (nearest)
			pp_help(message, "did you mean `%s`?", nearest);
		return PP_LOOKUP_FAILED;
	}
	const struct pp_field *field = pp_field_read(resolver, section, attribute);
	if (!field)
		return PP_LOOKUP_FAILED;
	if (field->state != PP_READY) {
		pp_error(resolver->diag, "E0110", path->span, "`%s` has no value: it is not given", path->text);
		return PP_LOOKUP_FAILED;
	}
	*out = field->value;
	return PP_LOOKUP_FOUND;
}

static enum pp_lookup lookup(void *context, struct pp_eval *eval, const struct pp_expr *path, struct pp_datum *out)
{
	struct pp_module *module = context, *owner;
	struct pp_symbol *symbol = pp_module_find_open(module, path->parts[0].text, &owner);
	if (symbol && symbol->stmt->kind == PP_STMT_IMPORT && !symbol->target)
		return PP_LOOKUP_FAILED;
	if (symbol && symbol->target && path->part_count == 2) {
		owner = symbol->target;
		symbol = pp_module_find(owner, path->parts[1].text);
	} else if (path->part_count > 1) {
		return read_attribute(module->resolver, path, out);
	}
	if (!symbol || (symbol->stmt->kind != PP_STMT_PARAM && symbol->stmt->kind != PP_STMT_LET))
		return PP_LOOKUP_NONE;
	return symbol->stmt->kind == PP_STMT_LET && !symbol->stmt->value
	           ? PP_LOOKUP_FAILED
	           : read_symbol(module->resolver, eval, owner, symbol, path, out);
}

static size_t list_names(void *context, const char **names, size_t room)
{
	const struct pp_module *module = context;
	size_t count = 0;
	for (size_t i = 0; i < module->count && count < room; i++)
		if (module->symbols[i].stmt->kind != PP_STMT_BLOCK)
			names[count++] = module->symbols[i].key;
	return count;
}

void pp_module_scope(struct pp_module *module)
{
	module->scope = (struct pp_scope){.lookup = lookup, .list = list_names, .context = module};
}
