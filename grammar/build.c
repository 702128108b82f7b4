/* Making nodes. Requires operands that are not NULL (a wrong one is a PP_EXPR_ERROR). Ensures that no tree is higher
 * than PP_HEIGHT_LIMIT nor nested deeper than PP_NESTING_LIMIT, so that everyone may recurse over it. */
#include "build.h"

#include <string.h>

static struct pp_expr *new_expr(struct pp_parse *parse, enum pp_expr_kind kind, struct pp_span span)
{
	struct pp_expr *expr = PP_NEW(parse->arena, struct pp_expr);
	expr->kind = kind;
	expr->span = span;
	return expr;
}

static void cover(struct pp_expr *expr, const struct pp_expr *part)
{
	if (part && part->nesting > expr->nesting)
		expr->nesting = part->nesting;
	if (part && part->height > expr->height)
		expr->height = part->height;
}

/* Set the depth of a node from its operands and the list in b; a node beyond a limit becomes an error. */
static struct pp_expr *finish(struct pp_parse *parse, struct pp_expr *expr, bool nests)
{
	cover(expr, expr->c);
	for (const struct pp_expr *item = expr->a; item; item = item->next)
		cover(expr, item);
	for (const struct pp_expr *item = expr->b; item; item = item->next)
		cover(expr, item);
	expr->height++;
	expr->nesting = (uint16_t)(expr->nesting + nests);
	if (expr->nesting <= PP_NESTING_LIMIT && expr->height <= PP_HEIGHT_LIMIT)
		return expr;
	pp_report_nesting(parse, expr->span);
	return new_expr(parse, PP_EXPR_ERROR, expr->span);
}

struct pp_expr *pp_build_number(struct pp_parse *parse, enum pp_expr_kind kind, struct pp_span span, const char *number)
{
	struct pp_expr *expr = new_expr(parse, kind, span);
	expr->number = number;
	return expr;
}

struct pp_expr *pp_build_quantity(struct pp_parse *parse, struct pp_span span, struct pp_quantity quantity)
{
	if (!quantity.number)
		return new_expr(parse, PP_EXPR_ERROR, span);
	struct pp_expr *expr = pp_build_number(parse, PP_EXPR_QUANTITY, span, quantity.number);
	expr->unit = quantity.unit;
	return expr;
}

struct pp_expr *pp_build_string(struct pp_parse *parse, struct pp_span span, const char *text)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_STRING, span);
	expr->text = text;
	return expr;
}

struct pp_expr *pp_build_bool(struct pp_parse *parse, struct pp_span span, bool truth)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_BOOL, span);
	expr->truth = truth;
	return expr;
}

struct pp_expr *pp_build_unary(struct pp_parse *parse, struct pp_span span, enum pp_operator op, struct pp_span op_span,
                               struct pp_expr *operand)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_UNARY, span);
	expr->op = op;
	expr->op_span = op_span;
	expr->a = operand;
	return finish(parse, expr, true);
}

struct pp_expr *pp_build_binary(struct pp_parse *parse, enum pp_operator op, struct pp_span op_span, struct pp_expr *a,
                                struct pp_expr *b)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_BINARY, pp_span_join(a->span, b->span));
	expr->op = op;
	expr->op_span = op_span;
	expr->a = a;
	expr->b = b;
	return finish(parse, expr, false);
}

struct pp_expr *pp_build_choice(struct pp_parse *parse, struct pp_expr *a, struct pp_expr *b, struct pp_expr *c)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_CHOICE, pp_span_join(a->span, c->span));
	expr->a = a;
	expr->b = b;
	expr->c = c;
	return finish(parse, expr, true);
}

struct pp_expr *pp_build_range(struct pp_parse *parse, struct pp_expr *a, struct pp_expr *b)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_RANGE, pp_span_join(a->span, b->span));
	expr->a = a;
	expr->b = b;
	return finish(parse, expr, false);
}

struct pp_expr *pp_build_list(struct pp_parse *parse, struct pp_span span, struct pp_expr *first)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_LIST, span);
	expr->a = first;
	return finish(parse, expr, true);
}

struct pp_expr *pp_build_call(struct pp_parse *parse, struct pp_span span, struct pp_expr *callee,
                              struct pp_expr *first)
{
	struct pp_expr *expr = new_expr(parse, PP_EXPR_CALL, span);
	expr->a = callee;
	expr->b = first;
	return finish(parse, expr, true);
}

static bool power_of_two(uint32_t count)
{
	return (count & (count - 1)) == 0;
}

struct pp_expr *pp_build_path(struct pp_parse *parse, struct pp_expr *path, struct pp_span span, const char *part)
{
	if (!path)
		path = new_expr(parse, PP_EXPR_PATH, span);
	uint32_t count = path->part_count;
	if (power_of_two(count)) /* full: capacity is the next power of two */
		path->parts =
		    pp_arena_grow(parse->arena, path->parts, count, count ? 2 * (size_t)count : 1, sizeof *path->parts);
	path->parts[path->part_count++] = (struct pp_name){part, span};
	path->span.end = span.end;
	return path;
}

struct pp_expr *pp_build_path_end(struct pp_parse *parse, struct pp_expr *path)
{
	if (path->part_count == 1) {
		path->text = path->parts[0].text;
		return path;
	}
	size_t length = 0;
	for (uint32_t i = 0; i < path->part_count; i++)
		length += strlen(path->parts[i].text) + 1;
	char *text = pp_arena_alloc(parse->arena, length, 1), *end = text;
	for (uint32_t i = 0; i < path->part_count; i++) {
		size_t part = strlen(path->parts[i].text);
		memcpy(end, path->parts[i].text, part);
		end[part] = '.';
		end += part + 1;
	}
	path->text = pp_intern(parse->strings, text, length - 1);
	return path;
}

struct pp_stmt *pp_build_stmt(struct pp_parse *parse, enum pp_stmt_kind kind, struct pp_span span)
{
	struct pp_stmt *stmt = PP_NEW(parse->arena, struct pp_stmt);
	stmt->kind = kind;
	stmt->span = span;
	return stmt;
}

struct pp_stmt *pp_build_block(struct pp_parse *parse, struct pp_span span, const struct pp_head *head,
                               const struct pp_stmt_list *body)
{
	struct pp_stmt *stmt = pp_build_stmt(parse, PP_STMT_BLOCK, span);
	stmt->name = head->name;
	stmt->label = head->label;
	stmt->label_is_string = head->label_is_string;
	stmt->extends = head->extends;
	stmt->from = head->from;
	stmt->from_text = head->from_text;
	stmt->has_body = body != NULL;
	stmt->body = body ? body->first : NULL;
	return stmt;
}

struct pp_pattern *pp_build_pattern(struct pp_parse *parse, enum pp_pattern_kind kind, struct pp_span span)
{
	struct pp_pattern *pattern = PP_NEW(parse->arena, struct pp_pattern);
	pattern->kind = kind;
	pattern->span = span;
	return pattern;
}

struct pp_action_ast *pp_build_action(struct pp_parse *parse, struct pp_span span, const char *name)
{
	struct pp_action_ast *action = PP_NEW(parse->arena, struct pp_action_ast);
	action->span = span;
	action->name = name;
	return action;
}

struct pp_expr_list pp_append_expr(struct pp_expr_list list, struct pp_expr *expr)
{
	if (!list.last)
		return (struct pp_expr_list){expr, expr};
	list.last->next = expr;
	return (struct pp_expr_list){list.first, expr};
}

struct pp_stmt_list pp_append_stmt(struct pp_stmt_list list, struct pp_stmt *stmt)
{
	if (!list.last)
		return (struct pp_stmt_list){stmt, stmt};
	list.last->next = stmt;
	return (struct pp_stmt_list){list.first, stmt};
}

struct pp_pattern_list pp_append_pattern(struct pp_pattern_list list, struct pp_pattern *pattern)
{
	if (!list.last)
		return (struct pp_pattern_list){pattern, pattern};
	list.last->next = pattern;
	return (struct pp_pattern_list){list.first, pattern};
}

struct pp_action_list pp_append_action(struct pp_action_list list, struct pp_action_ast *action)
{
	if (!list.last)
		return (struct pp_action_list){action, action};
	list.last->next = action;
	return (struct pp_action_list){list.first, action};
}
