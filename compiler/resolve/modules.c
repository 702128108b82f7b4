/* Files and their names: imports, params, lets, aliases and blocks. Ensures: every name is defined once per file (else
 * E0103), imports form no cycle (E0109), imported files hold only definitions (E0115). */
#include "resolver.h"

#include "ir/file.h"

#include <assert.h>
#include <string.h>

enum { MOST_MODULES = 1000, DEEPEST_IMPORT = 64 };

/* ---- names ----------------------------------------------------------------------------------- */

static size_t slot_of(const struct pp_module *module, const char *key)
{
	size_t mask = module->table_size - 1, at = (size_t)((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u >> 20 & mask;
	while (module->table[at] && module->symbols[module->table[at] - 1].key != key)
		at = (at + 1) & mask;
	return at;
}

static void grow_table(struct pp_module *module)
{
	module->table_size = module->table_size ? module->table_size * 2 : 64;
	module->table = PP_NEW_ARRAY(module->resolver->arena, uint32_t, module->table_size);
	for (size_t i = 0; i < module->count; i++)
		module->table[slot_of(module, module->symbols[i].key)] = (uint32_t)i + 1;
}

struct pp_symbol *pp_module_find(struct pp_module *module, const char *key)
{
	if (module->table_size == 0)
		return NULL;
	uint32_t found = module->table[slot_of(module, key)];
	return found ? &module->symbols[found - 1] : NULL;
}

struct pp_symbol *pp_module_find_open(struct pp_module *module, const char *key, struct pp_module **owner)
{
	*owner = module;
	struct pp_symbol *symbol = pp_module_find(module, key);
	for (size_t i = 0; !symbol && i < module->open_count; i++) {
		*owner = module->open[i];
		symbol = pp_module_find(module->open[i], key);
	}
	return symbol;
}

static struct pp_name name_of(const struct pp_stmt *stmt)
{
	if (stmt->kind == PP_STMT_BLOCK && stmt->label.text)
		return stmt->label;
	return stmt->name;
}

static void add_symbol(struct pp_module *module, const char *key, const struct pp_stmt *stmt, struct pp_module *target)
{
	const struct pp_symbol *before = pp_module_find(module, key);
	if (before) {
		struct pp_name name = name_of(stmt);
		struct pp_message *message = pp_error(module->resolver->diag, "E0103", name.span, "`%s` is defined twice", key);
		pp_label(message, name_of(before->stmt).span, "first here");
		pp_help(message, "remove one, or give it another name");
		return;
	}
	if (module->count * 2 >= module->table_size)
		grow_table(module);
	*PP_PUSH(module->resolver->arena, &module->symbols, &module->count, &module->capacity, struct pp_symbol) =
	    (struct pp_symbol){.key = key, .stmt = stmt, .target = target};
	module->table[slot_of(module, key)] = (uint32_t)module->count;
}

static const char *block_key(struct pp_resolver *resolver, const char *kind, const char *label)
{
	const char *text = label ? pp_arena_printf(resolver->arena, "%s %s", kind, label) : kind;
	return pp_intern_z(resolver->strings, text);
}

/* Only gpu, cluster, model and schedule may be there several times, by label. */
static bool is_labelled(const struct pp_stmt *stmt)
{
	static const char *const kinds[] = {"gpu", "cluster", "model", "schedule"};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(stmt->name.text, kinds[i]) == 0)
			return true;
	return false;
}

const struct pp_stmt *pp_module_block(struct pp_module *module, const char *kind, const struct pp_expr *path,
                                      struct pp_module **owner)
{
	const char *label = path->parts[0].text;
	*owner = module;
	if (path->part_count == 2) {
		struct pp_symbol *alias = pp_module_find(module, label);
		if (!alias || !alias->target)
			return NULL;
		*owner = alias->target;
		label = path->parts[1].text;
	} else if (path->part_count != 1) {
		return NULL;
	}
	struct pp_symbol *symbol = pp_module_find_open(*owner, block_key(module->resolver, kind, label), owner);
	return symbol ? symbol->stmt : NULL;
}

bool pp_module_is_base(struct pp_module *module, const struct pp_stmt *block)
{
	const struct pp_symbol *symbol =
	    block->label.text ? pp_module_find(module, block_key(module->resolver, block->name.text, block->label.text))
	                      : NULL;
	return symbol && symbol->stmt == block && symbol->used;
}

static void mark_bases(struct pp_module *module)
{
	for (const struct pp_stmt *stmt = module->ast->first; stmt; stmt = stmt->next) {
		if (stmt->kind != PP_STMT_BLOCK || !stmt->extends || stmt->extends->kind != PP_EXPR_PATH ||
		    stmt->extends->part_count != 1)
			continue;
		struct pp_symbol *base =
		    pp_module_find(module, block_key(module->resolver, stmt->name.text, stmt->extends->text));
		if (base && base->stmt != stmt)
			base->used = true;
	}
}

const char *pp_block_kind(const struct pp_stmt *stmt)
{
	const char *name = stmt->name.text, *nearest = NULL;
	for (int i = 0; i < PP_BLOCK_COUNT; i++)
		if (strcmp(pp_block_table[i].name, name) == 0)
			return name;
	nearest = pp_schema_nearest_block("", name);
	return nearest ? nearest : name;
}

struct pp_span pp_module_end(const struct pp_module *module)
{
	uint32_t at = module->ast->source->base + module->ast->source->length;
	return (struct pp_span){at, at};
}

/* ---- reserved names -------------------------------------------------------------------------- */

static bool is_reserved(const char *name)
{
	static const char *const reserved[] = {"r", "p", "v", "m", "F", "B", "I", "W", "mem"};
	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (strcmp(name, reserved[i]) == 0)
			return true;
	for (size_t i = 0; i < PP_METRIC_COUNT; i++)
		if (strcmp(name, pp_metric_name[i]) == 0)
			return true;
	return false;
}

void pp_module_refuse_reserved(struct pp_resolver *resolver, const struct pp_stmt *stmt)
{
	if (!is_reserved(stmt->name.text))
		return;
	struct pp_message *message = pp_error(resolver->diag, "E0112", stmt->name.span,
	                                      "`%s` has a meaning of its own and cannot be redefined", stmt->name.text);
	pp_help(
	    message,
	    "r p v m are ranks, stages and microbatches, F B I W actions, bubble and the like metrics: take another name");
}

/* ---- imports --------------------------------------------------------------------------------- */

static struct pp_module *load(struct pp_resolver *resolver, const struct pp_ast *ast, const char *path,
                              struct pp_module *importer);

static const char *folder_of(struct pp_resolver *resolver, const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? pp_arena_copy(resolver->arena, path, (size_t)(slash - path) + 1) : "";
}

static bool try_file(struct pp_resolver *resolver, const char *path, char **text, size_t *length)
{
	struct pp_status status;
	return pp_file_read(resolver->arena, path, text, length, &status);
}

/* Beside the importing file, then in the folders of -I, then in the library. */
static const char *find_file(struct pp_module *module, const char *name, char **text, size_t *length)
{
	struct pp_resolver *resolver = module->resolver;
	const struct pp_resolve_options *options = resolver->options;
	const char *path =
	    name[0] == '/' ? name : pp_arena_printf(resolver->arena, "%s%s", folder_of(resolver, module->path), name);
	if (try_file(resolver, path, text, length))
		return path;
	for (size_t i = 0; name[0] != '/' && i < options->folder_count; i++) {
		path = pp_arena_printf(resolver->arena, "%s/%s", options->folders[i], name);
		if (try_file(resolver, path, text, length))
			return path;
	}
	for (size_t i = 0; i < options->shipped_count; i++) {
		if (strcmp(options->shipped[i].path, name) == 0) {
			*length = strlen(options->shipped[i].text);
			*text = pp_arena_copy(resolver->arena, options->shipped[i].text, *length);
			return pp_arena_printf(resolver->arena, "<library>/%s", name);
		}
	}
	return NULL;
}

static void report_cycle(struct pp_module *importer, const struct pp_stmt *stmt, const struct pp_module *found)
{
	struct pp_arena *arena = importer->resolver->arena;
	const char *text = found->path;
	for (const struct pp_module *at = importer;; at = at->importer) {
		text = pp_arena_printf(arena, "%s -> %s", at->path, text);
		if (at == found)
			break;
	}
	pp_help(pp_error(importer->resolver->diag, "E0109", stmt->span, "import cycle: %s", text),
	        "move what both files need into a third one");
}

static struct pp_module *import_file(struct pp_module *importer, const struct pp_stmt *stmt)
{
	struct pp_resolver *resolver = importer->resolver;
	char *text;
	size_t length;
	const char *path = find_file(importer, stmt->value->text, &text, &length);
	if (!path) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0115", stmt->value->span, "cannot find `%s`", stmt->value->text);
		pp_help(message,
		        "it is looked for beside this file, then in the folders given by -I, then in the compiler's library");
		return NULL;
	}
	path = pp_intern_z(resolver->strings, path);
	for (size_t i = 0; i < resolver->module_count; i++) {
		struct pp_module *found = resolver->modules[i];
		if (found->path != path)
			continue;
		if (!found->loading)
			return found;
		report_cycle(importer, stmt, found);
		return NULL;
	}
	const struct pp_source *source =
	    resolver->module_count < MOST_MODULES ? pp_sources_add(resolver->sources, path, text, length) : NULL;
	if (!source) {
		pp_error(resolver->diag, "E0115", stmt->value->span, "`%s`: too many or too large files", stmt->value->text);
		return NULL;
	}
	return load(resolver, pp_parse(resolver->arena, resolver->strings, source, resolver->diag), path, importer);
}

static void add_import(struct pp_module *module, const struct pp_stmt *stmt)
{
	unsigned depth = 0;
	for (const struct pp_module *at = module; at; at = at->importer)
		depth++;
	if (depth > DEEPEST_IMPORT) {
		pp_error(module->resolver->diag, "E0115", stmt->span, "imports are nested more than %d deep", DEEPEST_IMPORT);
		return;
	}
	if (!stmt->value || stmt->value->kind != PP_EXPR_STRING)
		return;
	struct pp_module *target = import_file(module, stmt);
	if (!target && !stmt->name.text)
		return;
	if (stmt->name.text) /* a file that was not found keeps its alias, so that uses of it are not reported too */
		add_symbol(module, stmt->name.text, stmt, target);
	else
		*PP_PUSH(module->resolver->arena, &module->open, &module->open_count, &module->open_capacity,
		         struct pp_module *) = target;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void add_block(struct pp_module *module, const struct pp_stmt *stmt)
{
	struct pp_resolver *resolver = module->resolver;
	if (pp_schema_block(stmt->name.text, "") == PP_BLOCK_COUNT) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0101", stmt->name.span, "unknown block `%.60s`", stmt->name.text);
		const char *nearest = pp_schema_nearest_block("", stmt->name.text);
		if (nearest)
			pp_help(message, "did you mean `%s`?", nearest);
		else
			pp_help(message, "blocks are model cluster gpu parallel stages schedule train run");
		return;
	}
	if (module->importer && !is_labelled(stmt)) {
		struct pp_message *message = pp_error(resolver->diag, "E0115", stmt->name.span,
		                                      "an imported file cannot hold a `%s` block", stmt->name.text);
		pp_help(message, "it may hold param, let, gpu, cluster, model and schedule");
		return;
	}
	if (stmt->label.text && pp_block_table[pp_schema_block(stmt->name.text, "")].label == PP_NO_LABEL) {
		struct pp_message *message = pp_error(resolver->diag, "E0113", stmt->label.span,
		                                      "`%s` takes no name, got `%.60s`", stmt->name.text, stmt->label.text);
		pp_help(message, "write `%s { … }`", stmt->name.text);
	}
	bool labelled = is_labelled(stmt);
	add_symbol(module, block_key(resolver, stmt->name.text, labelled ? stmt->label.text : NULL), stmt, NULL);
}

static void add_stmt(struct pp_module *module, const struct pp_stmt *stmt)
{
	struct pp_resolver *resolver = module->resolver;
	switch (stmt->kind) {
	case PP_STMT_IMPORT:
		add_import(module, stmt);
		break;
	case PP_STMT_PARAM:
	case PP_STMT_LET:
		pp_module_refuse_reserved(resolver, stmt);
		add_symbol(module, stmt->name.text, stmt, NULL);
		break;
	case PP_STMT_ASSERT:
		if (module->importer)
			pp_help(pp_error(resolver->diag, "E0115", stmt->span, "an imported file cannot hold an `assert`"),
			        "it may hold param, let, gpu, cluster, model and schedule");
		else
			*PP_PUSH(resolver->arena, &resolver->asserts, &resolver->assert_count, &resolver->assert_capacity,
			         struct pp_assertion) = (struct pp_assertion){stmt, &module->scope};
		break;
	case PP_STMT_BLOCK:
		add_block(module, stmt);
		break;
	case PP_STMT_ATTRIBUTE:
	case PP_STMT_BOUND:
	case PP_STMT_OVERLAP:
	case PP_STMT_LAYER:
	case PP_STMT_FOR:
	case PP_STMT_REPEAT:
	case PP_STMT_PIN:
	case PP_STMT_PAIR:
	case PP_STMT_APART:
	case PP_STMT_SPLIT:
	case PP_STMT_ORDER:
	case PP_STMT_LIMIT:
	case PP_STMT_PREFER:
	case PP_STMT_ERROR:
		break;
	}
}

static struct pp_module *load(struct pp_resolver *resolver, const struct pp_ast *ast, const char *path,
                              struct pp_module *importer)
{
	struct pp_module *module = PP_NEW(resolver->arena, struct pp_module);
	*module = (struct pp_module){.resolver = resolver, .ast = ast, .path = path, .importer = importer, .loading = true};
	*PP_PUSH(resolver->arena, &resolver->modules, &resolver->module_count, &resolver->module_capacity,
	         struct pp_module *) = module;
	pp_module_scope(module);
	for (const struct pp_stmt *stmt = ast->first; stmt; stmt = stmt->next)
		add_stmt(module, stmt);
	mark_bases(module);
	module->loading = false;
	return module;
}

bool pp_modules_load(struct pp_resolver *resolver, const struct pp_ast *ast)
{
	size_t before = pp_diag_errors(resolver->diag);
	resolver->main = load(resolver, ast, pp_intern_z(resolver->strings, ast->source->name), NULL);
	return pp_diag_errors(resolver->diag) == before;
}
