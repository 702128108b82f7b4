/* Blocks to sections: which attributes are given, where, and in whose names. Ensures: unknown attributes and blocks are
 * E0101, repeated ones E0103, statements in the wrong block E0113, refused features E0010. */
#include "resolver.h"

#include <assert.h>
#include <string.h>

struct pp_section *pp_section_make(struct pp_resolver *resolver, enum pp_block block, const char *title)
{
	struct pp_section *section = PP_NEW(resolver->arena, struct pp_section);
	*section = (struct pp_section){
	    .block = block, .title = title, .module = resolver->main, .span = pp_module_end(resolver->main)};
	section->first = pp_schema_first(block, &section->count);
	section->fields = PP_NEW_ARRAY(resolver->arena, struct pp_field, section->count);
	for (size_t i = 0; i < section->count; i++)
		section->fields[i].module = resolver->main;
	return section;
}

const char *pp_section_label(const struct pp_section *section)
{
	return section->stmt && section->stmt->label.text ? section->stmt->label.text : pp_block_table[section->block].name;
}

struct pp_message *pp_not_yet(struct pp_resolver *resolver, struct pp_span span, const char *what)
{
	return pp_error(resolver->diag, "E0010", span, "%s is not supported yet", what);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* The block of an attribute that stands elsewhere, or NULL. */
static const char *home_of(const char *name)
{
	for (int i = 0; i < PP_ATTR_COUNT; i++) {
		const struct pp_attribute_row *row = &pp_attribute_table[i];
		if (strcmp(row->name, name) == 0 && strcmp(pp_block_table[row->block].parents, "()") != 0)
			return pp_block_table[row->block].name;
	}
	return NULL;
}

static void report_unknown(struct pp_resolver *resolver, struct pp_section *section, const struct pp_stmt *stmt)
{
	const char *name = stmt->name.text;
	struct pp_message *message = pp_error(resolver->diag, "E0101", stmt->name.span, "unknown attribute `%.60s` in `%s`",
	                                      name, pp_block_table[section->block].name);
	const char *nearest = pp_schema_nearest_attribute(section->block, name);
	if (nearest) {
		struct pp_field *meant = pp_field_of(section, pp_schema_attribute(section->block, nearest));
		if (!meant->expr)
			meant->state = PP_FAILED; /* not missed on top */
		pp_help(message, "did you mean `%s`?", nearest);
		return;
	}
	const char *home = home_of(name);
	if (home)
		pp_help(message, "`%s` is an attribute of `%s`", name, home);
	else
		pp_help(message, "`%s` is not an attribute of any block", name);
}

static void take_attribute(struct pp_resolver *resolver, struct pp_section *section, const struct pp_stmt *stmt,
                           struct pp_module *module, enum pp_origin origin, const struct pp_stmt *body)
{
	enum pp_attribute attribute = pp_schema_attribute(section->block, stmt->name.text);
	if (attribute == PP_ATTR_COUNT) {
		report_unknown(resolver, section, stmt);
		return;
	}
	struct pp_field *field = &section->fields[attribute - section->first];
	if (field->expr && origin == PP_ORIGIN_FILE && pp_span_known(field->name_span) &&
	    field->name_span.start >= body->span.start && field->name_span.end <= body->span.end) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0103", stmt->name.span, "`%s` is set twice", stmt->name.text);
		pp_label(message, field->name_span, "first here");
		pp_help(message, "keep one of the two");
		return;
	}
	bool bounded = attribute == PP_ATTR_schedule_memory;
	if (bounded != (stmt->kind == PP_STMT_BOUND) || (bounded && stmt->op != PP_LE)) {
		struct pp_message *message = pp_error(resolver->diag, "E0113", stmt->name.span, "`%s` takes `%s`",
		                                      stmt->name.text, bounded ? "<=" : "=");
		pp_help(message, "write `%s %s …`", stmt->name.text, bounded ? "<=" : "=");
		return;
	}
	if (field->origin == PP_ORIGIN_SET && origin != PP_ORIGIN_SET)
		return;
	*field = (struct pp_field){
	    .expr = stmt->value, .name_span = stmt->name.span, .module = module, .origin = (uint8_t)origin};
	if (!stmt->value || stmt->value->kind == PP_EXPR_ERROR)
		field->state = PP_FAILED;
}

static bool is_action(const struct pp_action_ast *action, const char *name)
{
	return strcmp(action->name, name) == 0 && !action->cell && !action->index && !action->chunk;
}

/* `overlap F&B = X` sets pair_cost. */
static void take_overlap(struct pp_resolver *resolver, struct pp_section *section, const struct pp_stmt *stmt,
                         struct pp_module *module, const struct pp_stmt *body)
{
	const struct pp_action_ast *a = stmt->action, *b = a->next;
	if (section->block != PP_BLOCK_schedule)
		return; /* misplaced, which is reported elsewhere */
	if (!(is_action(a, "F") && is_action(b, "B")) && !(is_action(a, "B") && is_action(b, "F"))) {
		struct pp_message *message = pp_error(resolver->diag, "E0624", pp_span_join(a->span, b->span),
		                                      "`overlap` is about a forward and a backward, F&B");
		pp_help(message, "write `overlap F&B = 0.8`; it holds for every pair of the rows");
		return;
	}
	struct pp_stmt attribute = *stmt;
	attribute.kind = PP_STMT_ATTRIBUTE;
	attribute.name = (struct pp_name){.text = pp_intern_z(resolver->strings, "pair_cost"), .span = stmt->span};
	take_attribute(resolver, section, &attribute, module, PP_ORIGIN_FILE, body);
}

/* ---- statements that are no attributes ------------------------------------------------------- */

struct place {
	enum pp_stmt_kind kind;
	const char *word, *home; /* block it belongs to */
	const char *also;        /* another one, or NULL */
};

static const struct place places[] = {
    {PP_STMT_LAYER, "layer", "model", NULL},        {PP_STMT_FOR, "for", "model", NULL},
    {PP_STMT_REPEAT, "repeat", "model", NULL},      {PP_STMT_PIN, "pin", "stages", NULL},
    {PP_STMT_PAIR, "pair", "stages", NULL},         {PP_STMT_APART, "apart", "stages", NULL},
    {PP_STMT_SPLIT, "split", "stages", "schedule"}, {PP_STMT_ORDER, "order", "schedule", NULL},
    {PP_STMT_OVERLAP, "overlap", "schedule", NULL}, {PP_STMT_LIMIT, "limit", "policy", NULL},
    {PP_STMT_PREFER, "prefer", "policy", NULL},
};

static void check_place(struct pp_resolver *resolver, const struct pp_stmt *stmt, const char *block)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (places[i].kind != stmt->kind || strcmp(places[i].home, block) == 0 ||
		    (places[i].also && strcmp(places[i].also, block) == 0))
			continue;
		struct pp_message *message =
		    pp_error(resolver->diag, "E0113", stmt->span, "`%s` does not belong in `%s`", places[i].word, block);
		pp_help(message, "it goes in `%s { … }`", places[i].home);
	}
}

/* Things that are refused once, however often they stand there. */
static void refuse(struct pp_resolver *resolver, struct pp_span span, const char *what)
{
	what = pp_intern_z(resolver->strings, what);
	for (size_t i = 0; i < resolver->refused_count; i++)
		if (resolver->refused[i] == what)
			return;
	*PP_PUSH(resolver->arena, &resolver->refused, &resolver->refused_count, &resolver->refused_capacity, const char *) =
	    what;
	pp_not_yet(resolver, span, what);
}

static void check_block(struct pp_resolver *resolver, const struct pp_stmt *stmt, const char *parent)
{
	enum pp_block block = pp_schema_block(stmt->name.text, parent);
	if (block != PP_BLOCK_COUNT) {
		const struct pp_block_row *row = &pp_block_table[block];
		if (row->label == PP_MUST_LABEL && !stmt->label.text)
			pp_help(pp_error(resolver->diag, "E0111", stmt->name.span, "`%s` needs a name", row->name), "%s", row->doc);
		if (row->label == PP_NO_LABEL && stmt->label.text)
			pp_help(pp_error(resolver->diag, "E0113", stmt->label.span, "`%s` takes no name, got `%.60s`", row->name,
			                 stmt->label.text),
			        "write `%s { … }`", row->name);
		if (row->status == PP_LATER && strcmp(parent, "schedule") != 0)
			refuse(resolver, stmt->name.span, pp_arena_printf(resolver->arena, "`%s` in `%s`", row->name, parent));
		return;
	}
	struct pp_message *message =
	    pp_error(resolver->diag, "E0101", stmt->name.span, "unknown block `%.60s` in `%s`", stmt->name.text, parent);
	const char *nearest = pp_schema_nearest_block(parent, stmt->name.text);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else if (pp_schema_block(stmt->name.text, "") != PP_BLOCK_COUNT)
		pp_help(message, "`%s` stands at the top of the file", stmt->name.text);
	else
		pp_help(message, "an attribute is written `%.60s = …`", stmt->name.text);
}

void pp_section_check_body(struct pp_resolver *resolver, const struct pp_stmt *stmt, struct pp_module *module)
{
	const char *block = stmt->kind == PP_STMT_BLOCK ? pp_block_kind(stmt) : "model";
	for (const struct pp_stmt *at = stmt->body; at; at = at->next) {
		switch (at->kind) {
		case PP_STMT_LET:
			if (strcmp(block, "schedule") != 0 && strcmp(block, "policy") != 0) /* there rows and rules know them */
				pp_help(pp_not_yet(resolver, at->span, "`let` inside a block"), "move it to the top of the file");
			break;
		case PP_STMT_ASSERT:
			if (strcmp(block, "schedule") == 0)
				break; /* those of the active one: schedule.c */
			if (strcmp(block, "policy") == 0) {
				pp_help(pp_error(resolver->diag, "E0113", at->span, "`assert` does not belong in `policy`"),
				        "it goes in `schedule { … }`");
				break;
			}
			*PP_PUSH(resolver->arena, &resolver->asserts, &resolver->assert_count, &resolver->assert_capacity,
			         struct pp_assertion) = (struct pp_assertion){at, &module->scope};
			break;
		case PP_STMT_BLOCK:
			check_block(resolver, at, block);
			break;
		case PP_STMT_LAYER:
		case PP_STMT_FOR:
		case PP_STMT_REPEAT:
		case PP_STMT_SPLIT:
		case PP_STMT_ORDER:
		case PP_STMT_OVERLAP:
		case PP_STMT_LIMIT:
		case PP_STMT_PREFER:
			check_place(resolver, at, block);
			break;
		case PP_STMT_PIN:
			check_place(resolver, at, block);
			refuse(resolver, at->span, "`pin`");
			break;
		case PP_STMT_PAIR:
			check_place(resolver, at, block);
			refuse(resolver, at->span, "`pair`");
			break;
		case PP_STMT_APART:
			check_place(resolver, at, block);
			refuse(resolver, at->span, "`apart`");
			break;
		case PP_STMT_IMPORT:
		case PP_STMT_PARAM:
			pp_help(pp_error(resolver->diag, "E0113", at->span, "this does not belong in a block"),
			        "move it to the top of the file");
			break;
		case PP_STMT_ATTRIBUTE:
		case PP_STMT_BOUND:
			if (strcmp(block, "policy") == 0)
				pp_help(pp_error(resolver->diag, "E0101", at->name.span, "unknown attribute `%.60s` in `policy`",
				                 at->name.text),
				        "a policy holds `limit`, `prefer` and `let`; attributes go in `schedule { … }`");
			break;
		case PP_STMT_ERROR:
			break;
		}
	}
}

void pp_section_fill(struct pp_resolver *resolver, struct pp_section *section, const struct pp_stmt *stmt,
                     struct pp_module *module, bool over)
{
	if (!over || !section->stmt) {
		section->span = stmt->name.span;
		section->module = module;
		section->stmt = stmt;
	}
	for (const struct pp_stmt *at = stmt->body; at; at = at->next) {
		if (at->kind == PP_STMT_ATTRIBUTE || at->kind == PP_STMT_BOUND)
			take_attribute(resolver, section, at, module, PP_ORIGIN_FILE, stmt);
		else if (at->kind == PP_STMT_OVERLAP)
			take_overlap(resolver, section, at, module, stmt);
	}
}

/* ---- the blocks of the spec ------------------------------------------------------------------ */

struct found {
	const struct pp_stmt *stmt;
	struct pp_module *module;
};

/* The block of a kind in the main file, else in files imported without an alias. */
static struct found find_block(struct pp_resolver *resolver, const char *kind)
{
	struct found found = {0};
	for (size_t depth = 0; depth <= resolver->main->open_count; depth++) {
		struct pp_module *module = depth == 0 ? resolver->main : resolver->main->open[depth - 1];
		if (depth == 1 && found.stmt)
			break;
		for (const struct pp_stmt *stmt = module->ast->first; stmt; stmt = stmt->next) {
			if (stmt->kind != PP_STMT_BLOCK || strcmp(pp_block_kind(stmt), kind) != 0 ||
			    pp_module_is_base(module, stmt))
				continue;
			if (found.stmt && found.stmt->label.text != stmt->label.text) {
				struct pp_message *message =
				    pp_error(resolver->diag, "E0103", stmt->name.span, "there are two `%s` blocks", kind);
				pp_label(message, found.stmt->name.span, "first here");
				pp_help(message, "keep one; others may be imported with a name and extended");
			}
			if (!found.stmt)
				found = (struct found){stmt, module};
		}
	}
	return found;
}

bool pp_section_extends_once(struct pp_resolver *resolver, const struct pp_stmt *stmt, const struct pp_stmt *base)
{
	if (base != stmt && !base->extends)
		return true;
	pp_help(pp_error(resolver->diag, "E0113", stmt->extends->span, "`%.60s` extends another block itself",
	                 stmt->extends->text),
	        "extend that one, or write the attributes out: there is one level of `extends`");
	return false;
}

static struct found find_base(struct pp_resolver *resolver, const struct found *block)
{
	const struct pp_stmt *stmt = block->stmt;
	struct found base = {0};
	if (!stmt || !stmt->extends || stmt->extends->kind != PP_EXPR_PATH)
		return base;
	base.stmt = pp_module_block(block->module, stmt->name.text, stmt->extends, &base.module);
	struct pp_module *owner;
	const struct pp_symbol *alias = pp_module_find_open(block->module, stmt->extends->parts[0].text, &owner);
	if (!base.stmt && alias && alias->stmt->kind == PP_STMT_IMPORT && !alias->target)
		return base; /* the file was not found: reported */
	if (!base.stmt) {
		struct pp_message *message = pp_error(resolver->diag, "E0110", stmt->extends->span,
		                                      "there is no %s `%.60s` to extend", stmt->name.text, stmt->extends->text);
		pp_help(message, "it is a labelled block of this file, or `alias.label` of an imported one");
	} else if (!pp_section_extends_once(resolver, stmt, base.stmt)) {
		base.stmt = NULL;
	}
	return base;
}

static struct pp_section *open_section(struct pp_resolver *resolver, enum pp_section_id id, enum pp_block block,
                                       const char *title)
{
	if (!resolver->sections[id])
		resolver->sections[id] = pp_section_make(resolver, block, title);
	return resolver->sections[id];
}

static void fill_gpu(struct pp_resolver *resolver, const struct pp_stmt *stmt, struct pp_module *module, bool over)
{
	struct pp_section *gpu = open_section(resolver, PP_SECTION_GPU, PP_BLOCK_gpu, "cluster.gpu");
	struct pp_section *flops = open_section(resolver, PP_SECTION_FLOPS, PP_BLOCK_flops, "cluster.gpu.flops");
	pp_section_check_body(resolver, stmt, module);
	pp_section_fill(resolver, gpu, stmt, module, over);
	for (const struct pp_stmt *at = stmt->body; at; at = at->next)
		if (at->kind == PP_STMT_BLOCK && strcmp(at->name.text, "flops") == 0)
			pp_section_fill(resolver, flops, at, module, over);
}

static void fill_link(struct pp_resolver *resolver, const struct pp_stmt *stmt, struct pp_module *module, bool over)
{
	const char *label = stmt->label.text;
	if (!label)
		return; /* reported: it needs a name */
	if (strcmp(label, "intra") == 0)
		pp_section_fill(resolver, resolver->sections[PP_SECTION_INTRA], stmt, module, over);
	else if (strcmp(label, "inter") == 0)
		pp_section_fill(resolver, resolver->sections[PP_SECTION_INTER], stmt, module, over);
	else
		pp_help(pp_error(resolver->diag, "E0207", stmt->label.span, "unknown link `%.60s`", label),
		        "links are `intra` (within a node) and `inter` (between nodes)");
}

/* The nested blocks of a cluster. */
static void fill_devices(struct pp_resolver *resolver, const struct pp_stmt *stmt, struct pp_module *module, bool over)
{
	for (const struct pp_stmt *at = stmt->body; at; at = at->next) {
		if (at->kind != PP_STMT_BLOCK)
			continue;
		if (strcmp(at->name.text, "gpu") == 0)
			fill_gpu(resolver, at, module, over);
		else if (strcmp(at->name.text, "link") == 0)
			fill_link(resolver, at, module, over);
	}
}

static bool fill_block(struct pp_resolver *resolver, enum pp_section_id id, enum pp_block block)
{
	const char *kind = pp_block_table[block].name;
	struct pp_section *section = open_section(resolver, id, block, kind);
	struct found own = find_block(resolver, kind), base = find_base(resolver, &own);
	if (!own.stmt)
		return false;
	section->partial = (own.stmt->extends && !base.stmt) || own.stmt->from.text;
	const struct found layers[] = {base, own};
	for (int i = 0; i < 2; i++) {
		if (!layers[i].stmt)
			continue;
		pp_section_check_body(resolver, layers[i].stmt, layers[i].module);
		pp_section_fill(resolver, section, layers[i].stmt, layers[i].module, i == 1 && base.stmt);
		if (block == PP_BLOCK_cluster)
			fill_devices(resolver, layers[i].stmt, layers[i].module, i == 1 && base.stmt);
		if (layers[i].stmt->from.text) {
			const char *what = pp_arena_printf(resolver->arena, "`%s from %s`", kind, layers[i].stmt->from.text);
			pp_not_yet(resolver, pp_span_join(layers[i].stmt->from.span, layers[i].stmt->from_text.span), what);
		}
	}
	section->stmt = own.stmt;
	section->span = own.stmt->name.span;
	section->module = own.module;
	return true;
}

static void report_missing_block(struct pp_resolver *resolver, const char *kind, const char *example)
{
	struct pp_message *message =
	    pp_error(resolver->diag, "E0111", pp_module_end(resolver->main), "there is no `%s` block", kind);
	pp_help(message, "write `%s`", example);
}

static const struct pp_field *copy_fields(struct pp_resolver *resolver, const struct pp_section *section)
{
	struct pp_field *fields = PP_NEW_ARRAY(resolver->arena, struct pp_field, section->count);
	memcpy(fields, section->fields, section->count * sizeof *fields);
	return fields;
}

static void restore_given(struct pp_section *section, const struct pp_field *fields)
{
	for (size_t i = 0; i < section->count; i++)
		if (fields[i].expr)
			section->fields[i] = fields[i];
}

/* A cluster's `gpu = NAME`, or that of --set: the top-level gpu, below what the cluster itself says. */
static void fill_named_gpu(struct pp_resolver *resolver)
{
	struct pp_section *cluster = resolver->sections[PP_SECTION_CLUSTER];
	const struct pp_field *field = pp_field_of(cluster, PP_ATTR_cluster_gpu);
	if (!field->expr || field->expr->kind != PP_EXPR_PATH || strcmp(field->expr->text, "cpu_core") == 0)
		return;
	struct pp_module *owner;
	const struct pp_stmt *stmt = pp_module_block(field->module, "gpu", field->expr, &owner);
	if (!stmt) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0503", field->expr->span, "there is no gpu `%.60s`", field->expr->text);
		pp_help(message,
		        "describe it: `gpu %.60s { memory = 80GiB  flops { bf16 = 312TFLOPS } }`, or leave `gpu` out for a CPU "
		        "core",
		        field->expr->text);
		return;
	}
	struct pp_section *gpu = resolver->sections[PP_SECTION_GPU], *flops = resolver->sections[PP_SECTION_FLOPS];
	const struct pp_field *gpu_given = copy_fields(resolver, gpu), *flops_given = copy_fields(resolver, flops);
	fill_gpu(resolver, stmt, owner, false);
	restore_given(gpu, gpu_given);
	restore_given(flops, flops_given);
}

bool pp_sections_find(struct pp_resolver *resolver)
{
	open_section(resolver, PP_SECTION_GPU, PP_BLOCK_gpu, "cluster.gpu");
	open_section(resolver, PP_SECTION_FLOPS, PP_BLOCK_flops, "cluster.gpu.flops");
	open_section(resolver, PP_SECTION_INTRA, PP_BLOCK_link, "cluster.intra");
	open_section(resolver, PP_SECTION_INTER, PP_BLOCK_link, "cluster.inter");
	bool model = fill_block(resolver, PP_SECTION_MODEL, PP_BLOCK_model);
	bool cluster = fill_block(resolver, PP_SECTION_CLUSTER, PP_BLOCK_cluster);
	fill_block(resolver, PP_SECTION_PARALLEL, PP_BLOCK_parallel);
	fill_block(resolver, PP_SECTION_STAGES, PP_BLOCK_stages);
	bool train = fill_block(resolver, PP_SECTION_TRAIN, PP_BLOCK_train);
	fill_block(resolver, PP_SECTION_RUN, PP_BLOCK_run);
	open_section(resolver, PP_SECTION_SCHEDULE, PP_BLOCK_schedule, "schedule");
	if (!model)
		report_missing_block(resolver, "model",
		                     "model tiny { hidden = 64  heads = 4  layers = 8  vocab = 256  seq = 32 }");
	if (!cluster)
		report_missing_block(resolver, "cluster", "cluster local { nodes = 1  gpus = 4 }");
	if (!train)
		report_missing_block(resolver, "train", "train { microbatch = 1  microbatches = 8 }");
	return model && cluster && train;
}

/* ---- --set ----------------------------------------------------------------------------------- */

static struct pp_section *section_by_title(struct pp_resolver *resolver, const char *title)
{
	for (int i = 0; i < PP_SECTION_COUNT; i++)
		if (resolver->sections[i] && strcmp(resolver->sections[i]->title, title) == 0)
			return resolver->sections[i];
	return NULL;
}

static const char *titles(struct pp_resolver *resolver)
{
	const char *text = "";
	for (int i = 0; i < PP_SECTION_COUNT; i++)
		if (resolver->sections[i])
			text = pp_arena_printf(resolver->arena, "%s %s", text, resolver->sections[i]->title);
	return text;
}

/* The value parses as an attribute of a block of the file would: `train { microbatch = 2 }`. */
static const struct pp_stmt *parse_set(struct pp_resolver *resolver, const char *title, const char *attribute,
                                       const char *value, enum pp_stmt_kind kind)
{
	const char *sign = kind == PP_STMT_BOUND ? "<=" : "=";
	const char *dot = strrchr(title, '.');
	char *text = pp_arena_printf(resolver->arena, "%s { %s %s %s }", dot ? dot + 1 : title, attribute, sign, value);
	const struct pp_source *source = pp_sources_add(resolver->sources, "--set", text, strlen(text));
	const struct pp_ast *ast = source ? pp_parse(resolver->arena, resolver->strings, source, resolver->diag) : NULL;
	const struct pp_stmt *block = ast ? ast->first : NULL;
	if (!block || block->next || block->kind != PP_STMT_BLOCK || !block->body || block->body->next ||
	    block->body->kind != kind)
		return NULL;
	return block->body;
}

static bool same_part(const char *a, size_t a_length, const char *b, size_t b_length)
{
	return a_length == b_length && memcmp(a, b, a_length) == 0;
}

/* The block inside another that the path's last or first part is the kind of: `gpu.h100` -> cluster.gpu; or NULL. */
static const char *title_within(const struct pp_resolver *resolver, const char *path)
{
	const char *last = strrchr(path, '.');
	last = last ? last + 1 : path;
	for (int from_first = 0; from_first < 2; from_first++)
		for (int i = 0; i < PP_SECTION_COUNT; i++) {
			const struct pp_section *section = resolver->sections[i];
			const char *kind = section && section->title ? strrchr(section->title, '.') : NULL;
			const char *part = from_first ? path : last;
			if (kind && same_part(kind + 1, strlen(kind + 1), part, strcspn(part, ".")))
				return section->title;
		}
	return NULL;
}

static void set(struct pp_resolver *resolver, const char *text)
{
	const char *equals = strchr(text, '=');
	char *path = pp_arena_copy(resolver->arena, text, equals ? (size_t)(equals - text) : 0);
	char *dot = strrchr(path, '.');
	if (!dot) {
		pp_help(pp_error(resolver->diag, "E0104", PP_NO_SPAN, "--set %.80s: want BLOCK.ATTRIBUTE=VALUE", text),
		        "for example --set train.microbatch=2");
		return;
	}
	*dot = '\0';
	struct pp_section *section = section_by_title(resolver, path);
	if (!section) {
		struct pp_message *message =
		    pp_error(resolver->diag, "E0104", PP_NO_SPAN, "--set %.80s: there is no block `%.60s`", text, path);
		const char *nearest = pp_schema_nearest_block("", path), *within = title_within(resolver, path);
		if (within)
			pp_help(message, "did you mean `%s.%s`? It is set in the block `%s`, whatever the block there is called",
			        within, dot + 1, within);
		else if (nearest && section_by_title(resolver, nearest))
			pp_help(message, "did you mean `%s`?", nearest);
		else
			pp_help(message, "blocks are%s", titles(resolver));
		return;
	}
	enum pp_attribute attribute = pp_schema_attribute(section->block, dot + 1);
	if (attribute == PP_ATTR_COUNT) {
		struct pp_message *message = pp_error(resolver->diag, "E0104", PP_NO_SPAN,
		                                      "--set %.80s: `%s` has no attribute `%.60s`", text, path, dot + 1);
		const char *nearest = pp_schema_nearest_attribute(section->block, dot + 1);
		const char *home = home_of(dot + 1);
		if (nearest)
			pp_help(message, "did you mean `%s`?", nearest);
		else if (home)
			pp_help(message, "`%s` is an attribute of `%s`", dot + 1, home);
		return;
	}
	if (attribute == PP_ATTR_schedule_memory && strcmp(equals + 1, "none") == 0) { /* whatever the schedule says */
		section->fields[attribute - section->first] =
		    (struct pp_field){.module = resolver->main, .origin = PP_ORIGIN_SET};
		return;
	}
	size_t before = pp_diag_errors(resolver->diag);
	enum pp_stmt_kind kind = attribute == PP_ATTR_schedule_memory ? PP_STMT_BOUND : PP_STMT_ATTRIBUTE;
	const struct pp_stmt *stmt = parse_set(resolver, path, dot + 1, equals + 1, kind);
	if (stmt)
		take_attribute(resolver, section, stmt, resolver->main, PP_ORIGIN_SET, stmt);
	else if (pp_diag_errors(resolver->diag) == before)
		pp_error(resolver->diag, "E0104", PP_NO_SPAN, "--set %.80s: the value is not one expression", text);
}

void pp_sections_set(struct pp_resolver *resolver)
{
	for (size_t i = 0; i < resolver->options->set_count; i++)
		set(resolver, resolver->options->sets[i]);
	fill_named_gpu(resolver);
}
