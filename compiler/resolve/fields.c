/* Reading an attribute: its expression evaluated, of the wanted kind, within its range (E0201 to E0207, E0106);
 * defaults and derived values; what is known and not supported yet (E0010). Each field is read once. */
#include "resolver.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct pp_field *pp_field_of(const struct pp_section *section, enum pp_attribute attribute)
{
	assert(attribute >= section->first && attribute < section->first + section->count);
	return &section->fields[attribute - section->first];
}

struct pp_span pp_field_span(const struct pp_section *section, enum pp_attribute attribute)
{
	const struct pp_field *field = pp_field_of(section, attribute);
	return field->expr ? field->expr->span : section->span;
}

/* ---- names and calls ------------------------------------------------------------------------- */

/* `(name)` reads a parameter where a bare name would be one of the set. */
static bool is_bare_name(const struct pp_expr *expr)
{
	return expr->kind == PP_EXPR_PATH && !expr->parenthesized;
}

static bool takes_any(const char *names, const char **kind, size_t *length)
{
	bool later;
	while (pp_schema_next_name(&names, kind, length, &later))
		if (**kind == '@') {
			(*kind)++;
			(*length)--;
			return true;
		}
	return false;
}

static bool is_param(struct pp_module *module, const char *name)
{
	struct pp_module *owner;
	const struct pp_symbol *symbol = pp_module_find_open(module, name, &owner);
	return symbol && (symbol->stmt->kind == PP_STMT_PARAM || symbol->stmt->kind == PP_STMT_LET);
}

/* `p` is the number of ranks in `stages`. */
static bool is_known(struct pp_module *module, const struct pp_expr *name)
{
	return is_param(module, name->text) || strcmp(name->text, "p") == 0;
}

static void report_choice(struct pp_resolver *resolver, const struct pp_attribute_row *row,
                          const struct pp_field *field, struct pp_span span, const char *word)
{
	const char *names[64], *at = row->names, *name;
	size_t count = 0, length;
	bool later;
	while (count < 64 && pp_schema_next_name(&at, &name, &length, &later))
		names[count++] = pp_arena_copy(resolver->arena, name, length);
	struct pp_message *message = pp_error(resolver->diag, "E0207", span, "`%s` cannot be `%.60s`; it is %s", row->name,
	                                      word, pp_schema_wanted(resolver->arena, row));
	const char *nearest = pp_nearest(word, names, count);
	if (is_param(field->module, word))
		pp_help(message, "write `(%s)` for the value of the parameter", word);
	else if (nearest && *nearest != '@')
		pp_help(message, "did you mean `%s`?", nearest);
	else if (row->want == PP_WANT_STRING)
		pp_help(message, "a string stands in quotes: `%s = \"%.60s\"`", row->name, word);
}

static bool refuse(struct pp_resolver *resolver, const struct pp_attribute_row *row, const struct pp_expr *expr)
{
	const char *text = expr->kind == PP_EXPR_CALL ? pp_arena_printf(resolver->arena, "%s(…)", expr->a->text)
	                                              : pp_eval_quote(&resolver->eval, expr->span);
	if (row == &pp_attribute_table[PP_ATTR_train_dtype] && strcmp(text, "fp16") == 0) {
		pp_help(pp_error(resolver->diag, "E0703", expr->span, "dtype = fp16 can't be trained"), "use bf16");
		return false;
	}
	struct pp_message *message =
	    pp_not_yet(resolver, expr->span, pp_arena_printf(resolver->arena, "`%s = %s`", row->name, text));
	bool literal = *row->preset && strncmp(row->preset, "required", 8) != 0 && strcmp(row->preset, "derived") != 0;
	if (literal)
		pp_help(message, "use `%s = %s`, which is the default", row->name, row->preset);
	else
		pp_help(message, "leave `%s` out", row->name);
	return false;
}

/* A name of the set, or any name where one is taken. *taken: it was one. */
static bool read_name(struct pp_resolver *resolver, const struct pp_attribute_row *row, struct pp_field *field,
                      bool *taken)
{
	const struct pp_expr *expr = field->expr;
	const char *kind;
	size_t length;
	bool later;
	*taken = false;
	const char *word = expr->kind == PP_EXPR_CALL ? expr->a->text : expr->text;
	if (pp_schema_has_name(row->names, word, &later) && *word != '@') {
		*taken = true;
		if (later)
			return refuse(resolver, row, expr);
		field->value = pp_datum_name(word);
		if (expr->kind != PP_EXPR_CALL || pp_schema_block(word, "()") != PP_BLOCK_COUNT)
			return true;
		pp_error(resolver->diag, "E0206", expr->span, "`%s` takes no arguments", word);
		return false;
	}
	if (expr->kind == PP_EXPR_PATH && takes_any(row->names, &kind, &length)) {
		*taken = true;
		field->value = pp_datum_name(word);
		return true;
	}
	return true;
}

/* Attributes that are lists of bare names. */
struct word_list {
	enum pp_attribute attribute;
	const char *words, *one, *many, *help;
};

static const struct word_list word_lists[] = {
    {PP_ATTR_parallel_rank_order, "tp|cp|ep|dp|pp|etp", "axis", "axes", "axes are tp cp ep dp pp"},
    {PP_ATTR_train_recompute, "norm|act|attention", "part", "parts of a block", "parts are norm act attention"},
};

static const struct word_list *word_list_of(const struct pp_attribute_row *row)
{
	for (size_t i = 0; i < sizeof word_lists / sizeof word_lists[0]; i++)
		if (row == &pp_attribute_table[word_lists[i].attribute])
			return &word_lists[i];
	return NULL;
}

static bool read_words(struct pp_resolver *resolver, const struct word_list *list, struct pp_field *field)
{
	uint32_t count = 0;
	for (const struct pp_expr *item = field->expr->a; item; item = item->next) {
		bool later, known = item->kind == PP_EXPR_PATH && pp_schema_has_name(list->words, item->text, &later);
		if (!known) {
			pp_help(pp_error(resolver->diag, "E0207", item->span, "`%s` lists %s, and `%s` is none",
			                 pp_attribute_table[list->attribute].name, list->many,
			                 pp_eval_quote(&resolver->eval, item->span)),
			        "%s", list->help);
			return false;
		}
		for (const struct pp_expr *before = field->expr->a; before != item; before = before->next) {
			if (before->text == item->text) {
				pp_label(
				    pp_error(resolver->diag, "E0103", item->span, "%s `%s` is listed twice", list->one, item->text),
				    before->span, "first here");
				return false;
			}
		}
		count++;
	}
	struct pp_datum *items = PP_NEW_ARRAY(resolver->arena, struct pp_datum, count);
	const struct pp_expr *item = field->expr->a;
	for (uint32_t i = 0; i < count; i++, item = item->next)
		items[i] = pp_datum_name(item->text);
	field->value = (struct pp_datum){.kind = PP_DATUM_LIST, .items = items, .count = count};
	return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_kind(const struct pp_attribute_row *row, const struct pp_datum *value)
{
	switch ((enum pp_want)row->want) {
	case PP_WANT_WHOLE:
	case PP_WANT_NUMBER:
	case PP_WANT_BYTES:
	case PP_WANT_RATE:
	case PP_WANT_TIME:
	case PP_WANT_WORK:
	case PP_WANT_SPEED:
		return value->kind == PP_DATUM_NUMBER &&
		       pp_dimension_equal(value->dimension, pp_want_dimension((enum pp_want)row->want));
	case PP_WANT_TRUTH:
		return value->kind == PP_DATUM_BOOL;
	case PP_WANT_STRING:
		return value->kind == PP_DATUM_STRING;
	case PP_WANT_LIST:
		return value->kind == PP_DATUM_LIST;
	case PP_WANT_RANGE:
		return value->kind == PP_DATUM_RANGE;
	case PP_WANT_NAME:
		break;
	}
	return false;
}

static bool check_range(struct pp_resolver *resolver, const struct pp_section *section,
                        const struct pp_attribute_row *row, const struct pp_field *field)
{
	if (field->value.kind != PP_DATUM_NUMBER || pp_schema_in_range(row->range, &field->value))
		return true;
	const char *text = pp_datum_text(resolver->arena, &field->value);
	bool bound = row->range[0] == '>';
	struct pp_message *message = bound ? pp_error(resolver->diag, "E0106", field->expr->span, "`%s` = %s must be %s",
	                                              row->name, text, row->range)
	                                   : pp_error(resolver->diag, "E0106", field->expr->span, "`%s` = %s is outside %s",
	                                              row->name, text, row->range);
	pp_note(message, "`%s.%s`: %s", section->title, row->name, pp_schema_doc(resolver->arena, row));
	return false;
}

static bool accept(struct pp_resolver *resolver, const struct pp_section *section, const struct pp_attribute_row *row,
                   struct pp_field *field)
{
	const char *what = pp_arena_printf(resolver->arena, "`%s`", row->name);
	struct pp_datum *value = &field->value;
	bool later = false;
	if (value->kind == PP_DATUM_NAME && *row->names) { /* from a parameter */
		const char *kind;
		size_t length;
		if (pp_schema_has_name(row->names, value->text, &later))
			return !later || refuse(resolver, row, field->expr);
		if (takes_any(row->names, &kind, &length))
			return true;
		report_choice(resolver, row, field, field->expr->span, value->text);
		return false;
	}
	if (!is_kind(row, value)) {
		pp_eval_mismatch(&resolver->eval, field->expr, what, pp_schema_wanted(resolver->arena, row), value);
		return false;
	}
	int64_t whole;
	bool exact = value->kind == PP_DATUM_NUMBER && value->exact && pp_rational_is_whole(value->number);
	if (row->want == PP_WANT_WHOLE && !exact) {
		if (!pp_datum_to_whole(&resolver->eval, field->expr, what, value, &whole))
			return false;
		*value = pp_datum_whole(whole);
	}
	return check_range(resolver, section, row, field);
}

/* "[tp, dp, pp]": a list of names. */
static struct pp_datum read_preset_list(struct pp_resolver *resolver, const char *text)
{
	size_t count = 0, length;
	struct pp_datum *items = PP_NEW_ARRAY(resolver->arena, struct pp_datum, strlen(text));
	for (const char *at = text + strspn(text, "[, "); (length = strcspn(at, ",] ")) > 0; at += strspn(at, ", ")) {
		items[count++] = pp_datum_name(pp_intern(resolver->strings, at, length));
		at += length;
	}
	return (struct pp_datum){.kind = PP_DATUM_LIST, .items = items, .count = (uint32_t)count};
}

/* The default, for what the schema gives as a literal. */
static bool read_preset(struct pp_resolver *resolver, const struct pp_attribute_row *row, struct pp_datum *out)
{
	const char *text = row->preset;
	if (!*text)
		return false;
	if (*text == '[') {
		*out = read_preset_list(resolver, text);
		return true;
	}
	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
		*out = pp_datum_bool(*text == 't');
		return true;
	}
	size_t digits = strspn(text, "0123456789.");
	if (digits == 0) {
		*out = pp_datum_name(pp_intern_z(resolver->strings, text));
		return true;
	}
	if (text[digits] == 'e')
		digits += 1 + strspn(text + digits + 1, "-0123456789");
	const char *number = pp_arena_copy(resolver->arena, text, digits);
	enum pp_literal literal = pp_datum_read_number(number, text[digits] ? text + digits : NULL, out);
	assert(literal == PP_LITERAL_OK);
	return literal == PP_LITERAL_OK;
}

static bool equals_preset(struct pp_resolver *resolver, const struct pp_attribute_row *row,
                          const struct pp_datum *value)
{
	struct pp_datum preset;
	if (!read_preset(resolver, row, &preset) || preset.kind != value->kind)
		return false;
	if (value->kind == PP_DATUM_NUMBER)
		return pp_datum_compare(&preset, value) == 0;
	return value->kind == PP_DATUM_BOOL ? preset.truth == value->truth
	                                    : value->kind == PP_DATUM_NAME && preset.text == value->text;
}

static bool read_given(struct pp_resolver *resolver, struct pp_section *section, const struct pp_attribute_row *row,
                       struct pp_field *field)
{
	const struct pp_expr *expr = field->expr;
	bool taken = false;
	if ((is_bare_name(expr) || (expr->kind == PP_EXPR_CALL && *row->names)) && !read_name(resolver, row, field, &taken))
		return false;
	if (row->status == PP_LATER && (taken || expr->kind == PP_EXPR_CALL || expr->kind == PP_EXPR_LIST))
		return taken && equals_preset(resolver, row, &field->value) ? true : refuse(resolver, row, expr);
	if (taken)
		return true;
	const struct pp_expr *callee = expr->kind == PP_EXPR_CALL && *row->names ? expr->a : NULL;
	if (callee && !pp_eval_is_function(callee->text)) {
		report_choice(resolver, row, field, callee->span, callee->text);
		return false;
	}
	bool file_name =
	    row->want == PP_WANT_STRING && expr->kind == PP_EXPR_PATH && expr->part_count == 2 &&
	    pp_schema_block(pp_arena_copy(resolver->arena, expr->text, strcspn(expr->text, ".")), "") == PP_BLOCK_COUNT;
	if (file_name || (*row->names && is_bare_name(expr) && expr->part_count == 1 &&
	                  (row->want == PP_WANT_NAME || !is_known(field->module, expr)))) {
		report_choice(resolver, row, field, expr->span, expr->text);
		return false;
	}
	if (word_list_of(row) && expr->kind == PP_EXPR_LIST)
		return read_words(resolver, word_list_of(row), field);
	const struct pp_scope *before = resolver->eval.scope;
	struct pp_binding p = {pp_intern_z(resolver->strings, "p"), {0}};
	struct pp_scope ranks = {.outer = &field->module->scope, .bindings = &p, .count = 0};
	if (section->block == PP_BLOCK_stages) { /* `p` may be used there */
		uint64_t pp;
		if (!pp_field_whole(resolver, resolver->sections[PP_SECTION_PARALLEL], PP_ATTR_parallel_pp, &pp))
			return false;
		p.value = pp_datum_whole((int64_t)pp);
		ranks.count = 1;
	}
	if (section->block != PP_BLOCK_layer) /* layers are read within their loops */
		resolver->eval.scope = &ranks;
	bool ok = pp_eval_expr(&resolver->eval, expr, &field->value);
	resolver->eval.scope = before;
	if (!ok || !accept(resolver, section, row, field))
		return false;
	if (row->status == PP_NOW || equals_preset(resolver, row, &field->value))
		return true;
	bool experts = section->block == PP_BLOCK_layer && pp_field_given(section, PP_ATTR_layer_experts);
	if (experts && row != &pp_attribute_table[PP_ATTR_layer_experts])
		return false; /* one message for a mixture of experts */
	return refuse(resolver, row, expr);
}

static bool is_derived_name(const struct pp_attribute_row *row, const struct pp_field *field)
{
	return row == &pp_attribute_table[PP_ATTR_parallel_dp] && field->value.kind == PP_DATUM_NAME;
}

static uint8_t read_absent(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                           struct pp_field *field)
{
	const struct pp_attribute_row *row = &pp_attribute_table[attribute];
	bool absent = false;
	field->origin = PP_ORIGIN_DERIVED;
	if (pp_imported_value(resolver, attribute, &field->value))
		return PP_READY;
	field->origin = PP_ORIGIN_DEFAULT;
	if (strncmp(row->preset, "required", 8) == 0) {
		const char *space = strchr(row->preset, ' ');
		pp_report_missing(resolver, section, attribute, space ? space + 1 : "…");
		return PP_FAILED;
	}
	if (strcmp(row->preset, "derived") == 0 || attribute == PP_ATTR_parallel_dp) {
		field->origin = PP_ORIGIN_DERIVED;
		if (pp_derive(resolver, section, attribute, &field->value, &absent))
			return PP_READY;
		return absent ? PP_ABSENT : PP_FAILED;
	}
	if (pp_derive_from_policy(resolver, attribute, &field->value)) {
		field->origin = PP_ORIGIN_DERIVED;
		return PP_READY;
	}
	return read_preset(resolver, row, &field->value) ? PP_READY : PP_ABSENT;
}

struct pp_field *pp_field_read(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute)
{
	const struct pp_attribute_row *row = &pp_attribute_table[attribute];
	struct pp_field *field = pp_field_of(section, attribute);
	const char *title = pp_arena_printf(resolver->arena, "%s.%s", section->title, row->name);
	if (field->state == PP_READING) {
		pp_report_cycle(resolver, pp_field_span(section, attribute), field, title);
		field->state = PP_FAILED;
	}
	if (field->state == PP_UNREAD) {
		struct pp_progress progress = {title, field, resolver->progress};
		resolver->progress = &progress;
		field->state = PP_READING;
		uint8_t state;
		if (field->expr && !read_given(resolver, section, row, field))
			state = PP_FAILED;
		else if (field->expr && !is_derived_name(row, field))
			state = PP_READY;
		else
			state = read_absent(resolver, section, attribute, field);
		field->state = field->state == PP_READING ? state : PP_FAILED;
		resolver->progress = progress.below;
	}
	return field->state == PP_FAILED ? NULL : field;
}

void pp_section_read_all(struct pp_resolver *resolver, struct pp_section *section)
{
	for (size_t i = 0; i < section->count; i++)
		if (section->fields[i].expr)
			pp_field_read(resolver, section, (enum pp_attribute)(section->first + i));
}

/* ---- as C values ----------------------------------------------------------------------------- */

bool pp_field_scaled(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                     int64_t scale, uint64_t *out)
{
	*out = 0;
	const struct pp_field *field = pp_field_read(resolver, section, attribute);
	if (!field)
		return false;
	if (field->state == PP_ABSENT || field->value.kind != PP_DATUM_NUMBER) /* a name such as `inf` */
		return true;
	struct pp_rational scaled;
	int64_t whole;
	if (field->value.exact && pp_rational_multiply(field->value.number, pp_rational_whole(scale), &scaled) &&
	    pp_rational_int64(pp_rational_floor(scaled), &whole) && whole >= 0) {
		*out = (uint64_t)whole;
		return true;
	}
	double real = floor(pp_datum_to_real(&field->value) * (double)scale);
	if (real >= 0.0 && real < 9e18) {
		*out = (uint64_t)real;
		return true;
	}
	pp_error(resolver->diag, "E0204", pp_field_span(section, attribute), "`%s` = %s is too large",
	         pp_attribute_table[attribute].name, pp_datum_text(resolver->arena, &field->value));
	return false;
}

bool pp_field_whole(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                    uint64_t *out)
{
	return pp_field_scaled(resolver, section, attribute, 1, out);
}

bool pp_field_real(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute, double *out)
{
	*out = 0;
	const struct pp_field *field = pp_field_read(resolver, section, attribute);
	if (field && field->state == PP_READY && field->value.kind == PP_DATUM_NUMBER)
		*out = pp_datum_to_real(&field->value);
	return field != NULL;
}

bool pp_field_truth(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute, bool *out)
{
	const struct pp_field *field = pp_field_read(resolver, section, attribute);
	*out = field && field->state == PP_READY && field->value.truth;
	return field != NULL;
}

bool pp_field_name(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                   const char **out)
{
	const struct pp_field *field = pp_field_read(resolver, section, attribute);
	*out = field && field->state == PP_READY &&
	               (field->value.kind == PP_DATUM_NAME || field->value.kind == PP_DATUM_STRING)
	           ? field->value.text
	           : "";
	return field != NULL;
}

bool pp_field_choice(struct pp_resolver *resolver, struct pp_section *section, enum pp_attribute attribute,
                     uint8_t *out)
{
	const char *word, *at = pp_attribute_table[attribute].names, *name;
	size_t length;
	bool later;
	*out = 0;
	if (!pp_field_name(resolver, section, attribute, &word))
		return false;
	for (uint8_t i = 0; pp_schema_next_name(&at, &name, &length, &later); i++)
		if (strlen(word) == length && memcmp(word, name, length) == 0)
			*out = i;
	return true;
}

/* ---- arguments of adamw(…) and the like ------------------------------------------------------ */

static void take_argument(struct pp_resolver *resolver, struct pp_section *section, const struct pp_expr *arg,
                          size_t position, const struct pp_field *field)
{
	size_t at = position;
	if (arg->label.text) {
		enum pp_attribute attribute = pp_schema_attribute(section->block, arg->label.text);
		if (attribute == PP_ATTR_COUNT) {
			struct pp_message *message = pp_error(resolver->diag, "E0101", arg->label.span,
			                                      "`%s` has no argument `%.60s`", section->title, arg->label.text);
			const char *nearest = pp_schema_nearest_attribute(section->block, arg->label.text);
			if (nearest)
				pp_help(message, "did you mean `%s`?", nearest);
			return;
		}
		at = (size_t)(attribute - section->first);
	}
	if (at >= section->count) {
		pp_error(resolver->diag, "E0206", arg->span, "`%s` takes at most %zu argument%s", section->title,
		         section->count, section->count == 1 ? "" : "s");
		return;
	}
	struct pp_field *slot = &section->fields[at];
	if (slot->expr) {
		struct pp_message *message = pp_error(resolver->diag, "E0103", arg->span, "`%s` is given twice",
		                                      pp_attribute_table[section->first + at].name);
		pp_label(message, slot->expr->span, "first here");
		return;
	}
	*slot = (struct pp_field){.expr = arg,
	                          .name_span = arg->label.text ? arg->label.span : arg->span,
	                          .module = field->module,
	                          .origin = field->origin};
	if (arg->kind == PP_EXPR_ERROR)
		slot->state = PP_FAILED;
}

struct pp_section *pp_section_arguments(struct pp_resolver *resolver, const struct pp_field *field)
{
	if (field->state != PP_READY || field->value.kind != PP_DATUM_NAME)
		return NULL;
	enum pp_block block = pp_schema_block(field->value.text, "()");
	if (block == PP_BLOCK_COUNT)
		return NULL;
	struct pp_section *section = pp_section_make(resolver, block, pp_block_table[block].name);
	if (field->expr)
		section->span = field->expr->span;
	size_t position = 0;
	for (const struct pp_expr *arg = field->expr && field->expr->kind == PP_EXPR_CALL ? field->expr->b : NULL; arg;
	     arg = arg->next)
		take_argument(resolver, section, arg, position++, field);
	return section;
}
