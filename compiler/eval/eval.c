/* Expressions to values. Requires: a tree of bounded nesting (the parser caps it at 256). Ensures: a value, or false
 * with the error reported; depth through names is counted, lists and strings have a largest size, no arithmetic wraps.
 */
#include "eval.h"

#include "compiler/schema.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
	DEEPEST = 1500,       /* nested evaluations, through lets and attributes too */
	LONGEST_LIST = 65536, /* ranks and layers are at most 65,536 */
	LONGEST_STRING = 65536,
	LONGEST_QUOTE = 48,
	MOST_NAMES = 512 /* considered for a suggestion */
};

static bool too_large(struct pp_eval *eval, struct pp_span span)
{
	pp_error(eval->diag, "E0204", span, "the value of `%s` is too large", pp_eval_quote(eval, span));
	return false;
}

const char *pp_eval_quote(const struct pp_eval *eval, struct pp_span span)
{
	const struct pp_source *source = pp_span_known(span) ? pp_sources_find(eval->sources, span.start) : NULL;
	if (!source || span.end < span.start || span.end > source->base + source->length)
		return "…";
	const char *text = source->text + (span.start - source->base);
	size_t length = span.end - span.start;
	char *quote = pp_arena_copy(eval->arena, text, length < LONGEST_QUOTE ? length : LONGEST_QUOTE);
	for (char *at = quote; *at; at++)
		if ((unsigned char)*at < ' ')
			*at = ' ';
	if (length <= LONGEST_QUOTE)
		return quote;
	size_t cut = LONGEST_QUOTE; /* not within a character */
	while (cut > 0 && ((unsigned char)quote[cut - 1] & 0xC0) == 0x80)
		cut--;
	return pp_arena_printf(eval->arena, "%.*s…",
	                       (int)(cut > 0 && (unsigned char)quote[cut - 1] >= 0xC0 ? cut - 1 : cut), quote);
}

/* ---- literals -------------------------------------------------------------------------------- */

static void report_unit(struct pp_eval *eval, const struct pp_expr *expr)
{
	const char *unit = expr->unit;
	size_t length = strlen(unit);
	bool rate = length > 2 && strcmp(unit + length - 2, "/s") == 0;
	const char *tail = rate ? "/s" : "";
	if ((length == (rate ? 4u : 2u)) && strchr("kKMGT", unit[0]) && unit[1] == 'b') {
		const char *big = unit[0] == 'k' ? "K" : pp_arena_printf(eval->arena, "%c", unit[0]);
		struct pp_message *message =
		    pp_error(eval->diag, "E0003", expr->span, "unknown unit `%s`; write `%sB%s` (bytes)", unit, big, tail);
		if (strchr("MG", unit[0]))
			pp_help(message, "or `%sbit%s` (bits, 8 times less)", big, tail);
		return;
	}
	struct pp_message *message = pp_error(eval->diag, "E0003", expr->span, "unknown unit `%.40s`", unit);
	const char *nearest = pp_unit_nearest(unit);
	if (nearest)
		pp_help(message, "did you mean `%s%s`?", expr->number, nearest);
	else
		pp_help(message,
		        "units are B KB MB GB TB KiB MiB GiB TiB, B/s … GB/s, Mbit/s Gbit/s, ns us ms s min h, GFLOP TFLOP, "
		        "GFLOPS TFLOPS, k M G T");
}

static bool read_literal(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	switch (pp_datum_read_number(expr->number, expr->kind == PP_EXPR_QUANTITY ? expr->unit : NULL, out)) {
	case PP_LITERAL_OK:
		return true;
	case PP_LITERAL_TOO_LARGE:
		return too_large(eval, expr->span);
	case PP_LITERAL_UNKNOWN_UNIT:
		break;
	}
	report_unit(eval, expr);
	return false;
}

bool pp_eval_check_literal(struct pp_eval *eval, const struct pp_expr *expr)
{
	struct pp_datum ignored;
	return read_literal(eval, expr, &ignored);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* What other languages write for true and false, and attributes without their block. */
static void help_unknown(struct pp_message *message, const char *name)
{
	static const char *const truths[] = {"yes", "on", "True", "TRUE", "no", "off", "False", "FALSE"};
	static const char *const blocks[] = {"model", "cluster", "parallel", "stages", "train", "run"};
	for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++)
		if (strcmp(name, truths[i]) == 0) {
			pp_help(message, "write `%s`", i < 4 ? "true" : "false");
			return;
		}
	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
		if (pp_schema_attribute(pp_schema_block(blocks[i], ""), name) != PP_ATTR_COUNT) {
			pp_help(message, "an attribute is read with its block: `%s.%s`", blocks[i], name);
			return;
		}
	pp_help(message, "names are params, lets and loop variables; an attribute is read as `block.attribute`, such as "
	                 "`parallel.pp`");
}

static size_t names_of(const struct pp_scope *scope, const char **names, size_t room)
{
	size_t count = 0;
	for (; count < scope->count && count < room; count++)
		names[count] = scope->bindings[count].name;
	return scope->list ? count + scope->list(scope->context, names + count, room - count) : count;
}

/* The names of those scopes that want it. */
static void help_scopes(struct pp_message *message, const struct pp_eval *eval)
{
	const char *names[MOST_NAMES], *text = "";
	for (const struct pp_scope *scope = eval->scope; scope; scope = scope->outer) {
		size_t count = scope->noun ? names_of(scope, names, MOST_NAMES) : 0;
		for (size_t i = 0; i < count; i++)
			text = pp_arena_printf(eval->arena, "%s%s%s", text, i ? ", " : "", names[i]);
		if (count)
			pp_note(message, "%s are %s", scope->noun, text);
	}
}

static bool unknown_name(struct pp_eval *eval, const struct pp_expr *path)
{
	const char *names[MOST_NAMES];
	size_t count = 0;
	for (const struct pp_scope *scope = eval->scope; scope; scope = scope->outer)
		count += names_of(scope, names + count, MOST_NAMES - count);
	struct pp_message *message = pp_error(eval->diag, "E0110", path->span, "unknown name `%.60s`", path->text);
	const char *nearest = pp_nearest(path->text, names, count);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else {
		help_scopes(message, eval);
		help_unknown(message, path->text);
	}
	return false;
}

static bool eval_path(struct pp_eval *eval, const struct pp_expr *path, struct pp_datum *out)
{
	for (const struct pp_scope *scope = eval->scope; scope; scope = scope->outer) {
		for (size_t i = 0; path->part_count == 1 && i < scope->count; i++) {
			if (scope->bindings[i].name == path->parts[0].text) {
				*out = scope->bindings[i].value;
				return true;
			}
		}
		enum pp_lookup found = scope->lookup ? scope->lookup(scope->context, eval, path, out) : PP_LOOKUP_NONE;
		if (found != PP_LOOKUP_NONE)
			return found == PP_LOOKUP_FOUND;
	}
	return unknown_name(eval, path);
}

/* ---- operators ------------------------------------------------------------------------------- */

void pp_eval_mismatch(struct pp_eval *eval, const struct pp_expr *expr, const char *what, const char *wanted,
                      const struct pp_datum *got)
{
	const char *text = pp_datum_text(eval->arena, got);
	if (expr->kind == PP_EXPR_QUANTITY && strcmp(expr->unit, "B") == 0 && strstr(wanted, "number")) {
		struct pp_message *message =
		    pp_error(eval->diag, "E0004", expr->span, "%s wants %s, and `B` means bytes", what, wanted);
		pp_help(message, "for %s billion write `%sG` or `%se9`", expr->number, expr->number, expr->number);
		return;
	}
	struct pp_message *message =
	    got->kind == PP_DATUM_BOOL || got->kind == PP_DATUM_NAME
	        ? pp_error(eval->diag, "E0201", expr->span, "%s wants %s, got `%s`", what, wanted, text)
	        : pp_error(eval->diag, "E0201", expr->span, "%s wants %s, got %s (%s)", what, wanted, pp_datum_noun(got),
	                   text);
	static const char *const examples[][2] = {
	    {"bytes", "16GiB"}, {"a rate", "25GB/s` or `200Gbit/s"}, {"a time", "5us"}};
	for (size_t i = 0; got->kind == PP_DATUM_NUMBER && i < sizeof examples / sizeof examples[0]; i++)
		if (strncmp(wanted, examples[i][0], strlen(examples[i][0])) == 0)
			pp_help(message, "write it with its unit, such as `%s`", examples[i][1]);
	if (got->kind == PP_DATUM_NUMBER && strncmp(wanted, "a range", 7) == 0)
		pp_help(message, "write `%s..%s` for one alone", text, text);
}

static const char *operator_text(enum pp_operator op)
{
	static const char *const texts[] = {
	    [PP_OR] = "or", [PP_AND] = "and", [PP_NOT] = "not", [PP_EQ] = "==", [PP_NE] = "!=",
	    [PP_LT] = "<",  [PP_GT] = ">",    [PP_LE] = "<=",   [PP_GE] = ">=", [PP_ADD] = "+",
	    [PP_SUB] = "-", [PP_MUL] = "*",   [PP_DIV] = "/",   [PP_MOD] = "%", [PP_NEG] = "-",
	};
	return texts[op];
}

/* A plain number beside bytes or a time: its unit was forgotten. */
static void help_unit(struct pp_eval *eval, struct pp_message *message, const struct pp_datum *quantity,
                      const struct pp_datum *number)
{
	static const char *const units[][2] = {{"bytes", "MiB"}, {"a time", "us"}, {"a rate", "GB/s"}};
	if (number->kind != PP_DATUM_NUMBER || strcmp(pp_datum_noun(number), "a number") != 0)
		return;
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (strcmp(pp_datum_noun(quantity), units[i][0]) == 0)
			pp_help(message, "write the number with its unit, such as `%s%s`", pp_datum_text(eval->arena, number),
			        units[i][1]);
}

static bool operands_mismatch(struct pp_eval *eval, const struct pp_expr *expr, const struct pp_datum *a,
                              const struct pp_datum *b)
{
	struct pp_message *message = pp_error(eval->diag, "E0201", expr->op_span, "`%s` cannot combine %s with %s",
	                                      operator_text(expr->op), pp_datum_noun(a), pp_datum_noun(b));
	pp_label(message, expr->a->span, "%s", pp_datum_text(eval->arena, a));
	pp_label(message, expr->b->span, "%s", pp_datum_text(eval->arena, b));
	help_unit(eval, message, a, b);
	help_unit(eval, message, b, a);
	return false;
}

static bool join_strings(struct pp_eval *eval, const struct pp_expr *expr, const struct pp_datum *a,
                         const struct pp_datum *b, struct pp_datum *out)
{
	if (strlen(a->text) + strlen(b->text) > LONGEST_STRING)
		return too_large(eval, expr->span);
	*out = pp_datum_string(pp_arena_printf(eval->arena, "%s%s", a->text, b->text));
	return true;
}

/* Powers of units: false when a power leaves -100..100. */
static bool combine_dimensions(struct pp_dimension a, struct pp_dimension b, int sign, struct pp_dimension *out)
{
	int bytes = a.bytes + sign * b.bytes, time = a.time + sign * b.time, work = a.work + sign * b.work;
	if (bytes > 100 || bytes < -100 || time > 100 || time < -100 || work > 100 || work < -100)
		return false;
	*out = (struct pp_dimension){(int8_t)bytes, (int8_t)time, (int8_t)work};
	return true;
}

static double real_result(enum pp_operator op, double a, double b)
{
	switch (op) {
	case PP_ADD:
		return a + b;
	case PP_SUB:
		return a - b;
	case PP_MUL:
		return a * b;
	case PP_DIV:
		return a / b;
	case PP_MOD:
		return a - b * floor(a / b);
	case PP_OR:
	case PP_AND:
	case PP_NOT:
	case PP_EQ:
	case PP_NE:
	case PP_LT:
	case PP_GT:
	case PP_LE:
	case PP_GE:
	case PP_NEG:
		break;
	}
	assert(!"arithmetic operator");
	return 0;
}

static bool exact_result(enum pp_operator op, struct pp_rational a, struct pp_rational b, struct pp_rational *out)
{
	switch (op) {
	case PP_ADD:
		return pp_rational_add(a, b, out);
	case PP_SUB:
		return pp_rational_subtract(a, b, out);
	case PP_MUL:
		return pp_rational_multiply(a, b, out);
	case PP_DIV:
		return pp_rational_divide(a, b, out);
	case PP_MOD:
		return pp_rational_modulo(a, b, out);
	case PP_OR:
	case PP_AND:
	case PP_NOT:
	case PP_EQ:
	case PP_NE:
	case PP_LT:
	case PP_GT:
	case PP_LE:
	case PP_GE:
	case PP_NEG:
		break;
	}
	assert(!"arithmetic operator");
	return false;
}

static bool is_zero(const struct pp_datum *number)
{
	return number->exact ? number->number.top == 0 : number->real == 0.0;
}

static bool eval_arithmetic(struct pp_eval *eval, const struct pp_expr *expr, const struct pp_datum *a,
                            const struct pp_datum *b, struct pp_datum *out)
{
	if (expr->op == PP_ADD && a->kind == PP_DATUM_STRING && b->kind == PP_DATUM_STRING)
		return join_strings(eval, expr, a, b, out);
	bool scales = expr->op == PP_MUL || expr->op == PP_DIV;
	if (a->kind != PP_DATUM_NUMBER || b->kind != PP_DATUM_NUMBER ||
	    (!scales && !pp_dimension_equal(a->dimension, b->dimension)))
		return operands_mismatch(eval, expr, a, b);
	if ((expr->op == PP_DIV || expr->op == PP_MOD) && is_zero(b)) {
		struct pp_message *message = pp_error(eval->diag, "E0205", expr->op_span, "division by zero");
		pp_label(message, expr->b->span, "this is 0");
		return false;
	}
	struct pp_dimension dimension = a->dimension;
	if (scales && !combine_dimensions(a->dimension, b->dimension, expr->op == PP_MUL ? 1 : -1, &dimension))
		return too_large(eval, expr->span);
	if (a->exact && b->exact) {
		*out = pp_datum_number(a->number, dimension);
		return exact_result(expr->op, a->number, b->number, &out->number) || too_large(eval, expr->span);
	}
	*out = pp_datum_real(real_result(expr->op, pp_datum_to_real(a), pp_datum_to_real(b)), dimension);
	return isfinite(out->real) || too_large(eval, expr->span);
}

static bool is_text(const struct pp_datum *datum)
{
	return datum->kind == PP_DATUM_STRING || datum->kind == PP_DATUM_NAME;
}

static bool eval_comparison(struct pp_eval *eval, const struct pp_expr *expr, const struct pp_datum *a,
                            const struct pp_datum *b, struct pp_datum *out)
{
	bool equality = expr->op == PP_EQ || expr->op == PP_NE;
	int order;
	if (a->kind == PP_DATUM_NUMBER && b->kind == PP_DATUM_NUMBER && pp_dimension_equal(a->dimension, b->dimension))
		order = pp_datum_compare(a, b);
	else if (equality && is_text(a) && is_text(b))
		order = strcmp(a->text, b->text);
	else if (equality && a->kind == PP_DATUM_BOOL && b->kind == PP_DATUM_BOOL)
		order = (int)a->truth - (int)b->truth;
	else
		return operands_mismatch(eval, expr, a, b);
	const bool results[] = {
	    [PP_EQ] = order == 0, [PP_NE] = order != 0, [PP_LT] = order<0, [PP_GT] = order> 0,
	    [PP_LE] = order <= 0, [PP_GE] = order >= 0,
	};
	*out = pp_datum_bool(results[expr->op]);
	return true;
}

static bool eval_binary(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	if (expr->op == PP_OR || expr->op == PP_AND) {
		bool left, right;
		const char *what = expr->op == PP_OR ? "`or`" : "`and`";
		if (!pp_eval_truth(eval, expr->a, what, &left))
			return false;
		if (left == (expr->op == PP_OR)) {
			*out = pp_datum_bool(left);
			return true;
		}
		if (!pp_eval_truth(eval, expr->b, what, &right))
			return false;
		*out = pp_datum_bool(right);
		return true;
	}
	struct pp_datum a, b;
	if (!pp_eval_expr(eval, expr->a, &a) || !pp_eval_expr(eval, expr->b, &b))
		return false;
	if (expr->op >= PP_EQ && expr->op <= PP_GE)
		return eval_comparison(eval, expr, &a, &b, out);
	return eval_arithmetic(eval, expr, &a, &b, out);
}

static bool eval_unary(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	if (expr->op == PP_NOT) {
		bool truth;
		if (!pp_eval_truth(eval, expr->a, "`not`", &truth))
			return false;
		*out = pp_datum_bool(!truth);
		return true;
	}
	if (!pp_eval_expr(eval, expr->a, out))
		return false;
	if (out->kind != PP_DATUM_NUMBER) {
		pp_eval_mismatch(eval, expr->a, "`-`", "a number", out);
		return false;
	}
	out->number.top = -out->number.top;
	out->real = -out->real;
	return true;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool range_ends(struct pp_eval *eval, const struct pp_expr *range, struct pp_datum ends[2])
{
	if (!pp_eval_expr(eval, range->a, &ends[0]) || !pp_eval_expr(eval, range->b, &ends[1]))
		return false;
	if (ends[0].kind != PP_DATUM_NUMBER)
		pp_eval_mismatch(eval, range->a, "a range", "numbers", &ends[0]);
	else if (ends[1].kind != PP_DATUM_NUMBER || !pp_dimension_equal(ends[0].dimension, ends[1].dimension))
		pp_eval_mismatch(eval, range->b, "the end of this range", pp_dimension_noun(ends[0].dimension), &ends[1]);
	else
		return true;
	return false;
}

struct list {
	struct pp_datum *items;
	size_t count, capacity;
};

static bool append(struct pp_eval *eval, struct pp_span span, struct list *list, struct pp_datum item)
{
	if (list->count >= LONGEST_LIST)
		return too_large(eval, span);
	*PP_PUSH(eval->arena, &list->items, &list->count, &list->capacity, struct pp_datum) = item;
	return true;
}

/* A range in a list stands for its numbers; 3..0 counts down. */
static bool append_range(struct pp_eval *eval, const struct pp_expr *range, struct list *list)
{
	int64_t first, last;
	if (!pp_eval_range(eval, range, "a range in a list", &first, &last))
		return false;
	int64_t step = first <= last ? 1 : -1;
	for (int64_t at = first;; at += step) {
		if (!append(eval, range->span, list, pp_datum_whole(at)))
			return false;
		if (at == last)
			return true;
	}
}

static bool eval_list(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	struct list list = {0};
	for (const struct pp_expr *item = expr->a; item; item = item->next) {
		struct pp_datum value;
		if (item->kind == PP_EXPR_RANGE) {
			if (!append_range(eval, item, &list))
				return false;
			continue;
		}
		if (!pp_eval_expr(eval, item, &value))
			return false;
		if (value.kind == PP_DATUM_LIST || value.kind == PP_DATUM_RANGE) {
			pp_error(eval->diag, "E0201", item->span, "a list holds numbers, names or strings, not another list");
			return false;
		}
		if (!append(eval, item->span, &list, value))
			return false;
	}
	*out = (struct pp_datum){.kind = PP_DATUM_LIST, .items = list.items, .count = (uint32_t)list.count};
	return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool eval_choice(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	bool truth;
	return pp_eval_truth(eval, expr->a, "the condition of `?:`", &truth) &&
	       pp_eval_expr(eval, truth ? expr->b : expr->c, out);
}

static bool eval_kind(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	switch (expr->kind) {
	case PP_EXPR_INT:
	case PP_EXPR_REAL:
	case PP_EXPR_QUANTITY:
		return read_literal(eval, expr, out);
	case PP_EXPR_STRING:
		*out = pp_datum_string(expr->text);
		return true;
	case PP_EXPR_BOOL:
		*out = pp_datum_bool(expr->truth);
		return true;
	case PP_EXPR_LIST:
		return eval_list(eval, expr, out);
	case PP_EXPR_PATH:
		return eval_path(eval, expr, out);
	case PP_EXPR_CALL:
		return pp_eval_call(eval, expr, out);
	case PP_EXPR_UNARY:
		return eval_unary(eval, expr, out);
	case PP_EXPR_BINARY:
		return eval_binary(eval, expr, out);
	case PP_EXPR_CHOICE:
		return eval_choice(eval, expr, out);
	case PP_EXPR_RANGE: {
		struct pp_datum *ends = PP_NEW_ARRAY(eval->arena, struct pp_datum, 2);
		*out = (struct pp_datum){.kind = PP_DATUM_RANGE, .items = ends, .count = 2};
		return range_ends(eval, expr, ends);
	}
	case PP_EXPR_ERROR:
		return false;
	}
	assert(!"kind of expression");
	return false;
}

bool pp_eval_expr(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out)
{
	if (eval->depth >= DEEPEST) {
		pp_error(eval->diag, "E0204", expr->span, "this value depends on others more than %d levels deep", DEEPEST);
		return false;
	}
	eval->depth++;
	bool ok = eval_kind(eval, expr, out);
	eval->depth--;
	return ok;
}
