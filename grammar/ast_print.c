/* The tree as canonical text: one statement a line, four blanks a level, only the parentheses that are needed. Requires
 * a tree without errors for the text to be readable again. Ensures print(parse(print(x))) == print(x). */
#include "ast.h"

#include <string.h>

/* How tightly an expression binds; an operand that binds less than its place wants is put in parentheses. */
enum level {
	LEVEL_CHOICE,
	LEVEL_OR,
	LEVEL_AND,
	LEVEL_NOT,
	LEVEL_COMPARE,
	LEVEL_ADD,
	LEVEL_MULTIPLY,
	LEVEL_NEGATE,
	LEVEL_ATOM
};

struct sign {
	const char *text;
	enum level level;
};

static const struct sign signs[] = {
    [PP_OR] = {"or", LEVEL_OR},       [PP_AND] = {"and", LEVEL_AND},    [PP_NOT] = {"not", LEVEL_NOT},
    [PP_EQ] = {"==", LEVEL_COMPARE},  [PP_NE] = {"!=", LEVEL_COMPARE},  [PP_LT] = {"<", LEVEL_COMPARE},
    [PP_GT] = {">", LEVEL_COMPARE},   [PP_LE] = {"<=", LEVEL_COMPARE},  [PP_GE] = {">=", LEVEL_COMPARE},
    [PP_ADD] = {"+", LEVEL_ADD},      [PP_SUB] = {"-", LEVEL_ADD},      [PP_MUL] = {"*", LEVEL_MULTIPLY},
    [PP_DIV] = {"/", LEVEL_MULTIPLY}, [PP_MOD] = {"%", LEVEL_MULTIPLY}, [PP_NEG] = {"-", LEVEL_NEGATE},
};

static enum level level_of(const struct pp_expr *expr)
{
	switch (expr->kind) {
	case PP_EXPR_CHOICE:
	case PP_EXPR_RANGE:
		return LEVEL_CHOICE;
	case PP_EXPR_BINARY:
	case PP_EXPR_UNARY:
		return signs[expr->op].level;
	case PP_EXPR_INT:
	case PP_EXPR_REAL:
	case PP_EXPR_QUANTITY:
	case PP_EXPR_STRING:
	case PP_EXPR_BOOL:
	case PP_EXPR_LIST:
	case PP_EXPR_PATH:
	case PP_EXPR_CALL:
	case PP_EXPR_ERROR:
		return LEVEL_ATOM;
	}
	return LEVEL_ATOM;
}

static void print_string(FILE *out, const char *text)
{
	static const char plain[] = "\a\b\f\n\r\t\v\\\"", letters[] = "abfnrtv\\\"";
	fputc('"', out);
	for (const char *at = text; *at; at++) {
		const char *escape = strchr(plain, *at);
		if (escape)
			fprintf(out, "\\%c", letters[escape - plain]);
		else if ((unsigned char)*at < 0x20 || *at == 0x7f)
			fprintf(out, "\\x%02x", (unsigned)(unsigned char)*at);
		else
			fputc(*at, out);
	}
	fputc('"', out);
}

static void print_at(const struct pp_expr *expr, FILE *out, enum level wanted);

static void print_items(const struct pp_expr *item, FILE *out)
{
	for (; item; item = item->next) {
		if (item->label.text)
			fprintf(out, "%s = ", item->label.text);
		pp_expr_print(item, out);
		if (item->next)
			fputs(", ", out);
	}
}

/* Comparisons do not chain, so both operands bind tighter; the others group to the left. */
static void print_binary(const struct pp_expr *expr, FILE *out)
{
	enum level level = signs[expr->op].level;
	print_at(expr->a, out, level == LEVEL_COMPARE ? LEVEL_ADD : level);
	fprintf(out, " %s ", signs[expr->op].text);
	print_at(expr->b, out, level + 1);
}

static void print_bare(const struct pp_expr *expr, FILE *out)
{
	switch (expr->kind) {
	case PP_EXPR_INT:
	case PP_EXPR_REAL:
		fputs(expr->number, out);
		break;
	case PP_EXPR_QUANTITY:
		fprintf(out, "%s%s", expr->number, expr->unit);
		break;
	case PP_EXPR_STRING:
		print_string(out, expr->text);
		break;
	case PP_EXPR_BOOL:
		fputs(expr->truth ? "true" : "false", out);
		break;
	case PP_EXPR_LIST:
		fputc('[', out);
		print_items(expr->a, out);
		fputc(']', out);
		break;
	case PP_EXPR_PATH:
		fputs(expr->text, out);
		break;
	case PP_EXPR_CALL:
		print_at(expr->a, out, LEVEL_ATOM);
		fputc('(', out);
		print_items(expr->b, out);
		fputc(')', out);
		break;
	case PP_EXPR_UNARY:
		fputs(expr->op == PP_NOT ? "not " : "-", out);
		print_at(expr->a, out, signs[expr->op].level);
		break;
	case PP_EXPR_BINARY:
		print_binary(expr, out);
		break;
	case PP_EXPR_CHOICE:
		print_at(expr->a, out, LEVEL_OR);
		fputs(" ? ", out);
		print_at(expr->b, out, LEVEL_CHOICE);
		fputs(" : ", out);
		print_at(expr->c, out, LEVEL_CHOICE);
		break;
	case PP_EXPR_RANGE:
		print_at(expr->a, out, LEVEL_ADD);
		fputs("..", out);
		print_at(expr->b, out, LEVEL_ADD);
		break;
	case PP_EXPR_ERROR:
		fputs("error", out);
		break;
	}
}

static void print_at(const struct pp_expr *expr, FILE *out, enum level wanted)
{
	bool parentheses = level_of(expr) < wanted;
	if (parentheses)
		fputc('(', out);
	print_bare(expr, out);
	if (parentheses)
		fputc(')', out);
}

/* A value on its own keeps the parentheses that make it a parameter and not a choice. */
void pp_expr_print(const struct pp_expr *expr, FILE *out)
{
	if (expr->parenthesized)
		fprintf(out, "(%s)", expr->text);
	else
		print_at(expr, out, LEVEL_CHOICE);
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* A count is a number or a name; anything else is put in parentheses. */
static void print_count(const struct pp_expr *count, FILE *out)
{
	bool plain = count->kind == PP_EXPR_INT || (count->kind == PP_EXPR_PATH && count->part_count == 1);
	fputs(plain ? "" : "(", out);
	pp_expr_print(count, out);
	fputs(plain ? "" : ")", out);
}

static void print_index(const struct pp_expr *index, FILE *out)
{
	if (!index)
		return;
	fputc('[', out);
	pp_expr_print(index, out);
	fputc(']', out);
}

static void print_action(const struct pp_action_ast *action, FILE *out)
{
	if (action->cell) {
		fprintf(out, "%llu%s%llu", (unsigned long long)action->stage, action->name, (unsigned long long)action->number);
		return;
	}
	fputs(action->name, out);
	print_index(action->index, out);
	if (action->chunk) {
		fputc('.', out);
		print_count(action->chunk, out);
	}
}

static void print_actions(const struct pp_action_ast *action, const char *between, FILE *out)
{
	for (; action; action = action->next) {
		print_action(action, out);
		if (action->next)
			fputs(between, out);
	}
}

static void print_sequence(const struct pp_pattern *part, FILE *out);

static void print_braced(const struct pp_pattern *part, FILE *out)
{
	fputs("{ ", out);
	print_sequence(part, out);
	fputs(part ? " }" : "}", out);
}

static void print_part(const struct pp_pattern *part, FILE *out)
{
	switch (part->kind) {
	case PP_PATTERN_BAR:
		fputc('|', out);
		break;
	case PP_PATTERN_ITEM:
		print_actions(part->action, "&", out);
		break;
	case PP_PATTERN_GROUP:
		fputc('(', out);
		print_sequence(part->body, out);
		fputc(')', out);
		break;
	case PP_PATTERN_FOR:
		fprintf(out, "for %s in ", part->variable.text);
		pp_expr_print(part->range, out);
		fputc(' ', out);
		print_braced(part->body, out);
		break;
	case PP_PATTERN_WEAVE:
		fputs("weave ", out);
		print_count(part->count, out);
		fputc(' ', out);
		print_braced(part->body, out);
		fputc(' ', out);
		print_braced(part->other, out);
		break;
	}
	if (part->repeat) {
		fputc('*', out);
		print_count(part->repeat, out);
	}
}

static void print_sequence(const struct pp_pattern *part, FILE *out)
{
	for (; part; part = part->next) {
		print_part(part, out);
		if (part->next)
			fputc(' ', out);
	}
}

static void indent(FILE *out, int depth)
{
	fprintf(out, "%*s", 4 * depth, "");
}

/* One row or stage a line, the bar in front. */
static void print_rows(const struct pp_pattern *part, FILE *out, int depth)
{
	if (!part) {
		fputs("{}", out);
		return;
	}
	fputs("{\n", out);
	indent(out, depth);
	fputs("   ", out);
	for (; part; part = part->next) {
		if (part->kind == PP_PATTERN_BAR) {
			fputc('\n', out);
			indent(out, depth);
			fputs("  |", out);
			continue;
		}
		fputc(' ', out);
		print_part(part, out);
	}
	fputc('\n', out);
	indent(out, depth);
	fputs("}", out);
}

/* ---- statements ------------------------------------------------------------------------------ */

static void print_stmts(const struct pp_stmt *stmt, FILE *out, int depth);

static void print_body(const struct pp_stmt *stmt, FILE *out, int depth)
{
	if (!stmt->has_body)
		return;
	if (!stmt->body) {
		fputs(" {}", out);
		return;
	}
	fputs(" {\n", out);
	print_stmts(stmt->body, out, depth + 1);
	indent(out, depth);
	fputc('}', out);
}

static void print_labelled(FILE *out, const char *before, const struct pp_expr *expr)
{
	if (!expr)
		return;
	fputs(before, out);
	pp_expr_print(expr, out);
}

static void print_text(FILE *out, const char *before, struct pp_name text)
{
	if (!text.text)
		return;
	fputs(before, out);
	print_string(out, text.text);
}

static void print_param(const struct pp_stmt *stmt, FILE *out)
{
	fprintf(out, "param %s", stmt->name.text);
	if (stmt->type.text)
		fprintf(out, " : %s", stmt->type.text);
	print_labelled(out, " = ", stmt->value);
	print_labelled(out, " in ", stmt->range);
	print_text(out, " ", stmt->text);
}

static void print_block(const struct pp_stmt *stmt, FILE *out, int depth)
{
	fputs(stmt->name.text, out);
	if (stmt->label.text && stmt->label_is_string)
		print_text(out, " ", stmt->label);
	else if (stmt->label.text)
		fprintf(out, " %s", stmt->label.text);
	print_labelled(out, " extends ", stmt->extends);
	if (stmt->from.text) {
		fprintf(out, " from %s", stmt->from.text);
		print_text(out, " ", stmt->from_text);
	}
	print_body(stmt, out, depth);
}

static void print_layer(const struct pp_stmt *stmt, FILE *out, int depth)
{
	fputs("layer ", out);
	if (stmt->label.text)
		fprintf(out, "%s : ", stmt->label.text);
	fputs(stmt->name.text, out);
	if (stmt->count) {
		fputs(" * ", out);
		print_count(stmt->count, out);
	}
	print_body(stmt, out, depth);
}

static void print_ref(const struct pp_ref *ref, FILE *out)
{
	fputs(ref->name.text, out);
	print_index(ref->index, out);
}

static void print_refs(FILE *out, const char *word, const struct pp_stmt *stmt)
{
	fprintf(out, "%s ", word);
	print_ref(&stmt->ref, out);
	fputs(" with ", out);
	print_ref(&stmt->other, out);
}

static void print_order(const struct pp_stmt *stmt, FILE *out, int depth)
{
	fputs("order ", out);
	if (stmt->name.text)
		fprintf(out, "for %s ", stmt->name.text);
	if (stmt->range) {
		print_labelled(out, "in ", stmt->range);
		fputc(' ', out);
	}
	print_rows(stmt->pattern, out, depth);
}

static void print_stmt(const struct pp_stmt *stmt, FILE *out, int depth)
{
	switch (stmt->kind) {
	case PP_STMT_IMPORT:
		print_labelled(out, "import ", stmt->value);
		if (stmt->name.text)
			fprintf(out, " as %s", stmt->name.text);
		break;
	case PP_STMT_PARAM:
		print_param(stmt, out);
		break;
	case PP_STMT_LET:
		fprintf(out, "let %s", stmt->name.text);
		print_labelled(out, " = ", stmt->value);
		break;
	case PP_STMT_ASSERT:
		print_labelled(out, "assert ", stmt->value);
		print_text(out, ", ", stmt->text);
		break;
	case PP_STMT_ATTRIBUTE:
		fputs(stmt->name.text, out);
		print_labelled(out, " = ", stmt->value);
		break;
	case PP_STMT_BOUND:
		fprintf(out, "%s %s ", stmt->name.text, signs[stmt->op].text);
		pp_expr_print(stmt->value, out);
		break;
	case PP_STMT_OVERLAP:
		fputs("overlap ", out);
		print_actions(stmt->action, "&", out);
		print_labelled(out, " = ", stmt->value);
		break;
	case PP_STMT_BLOCK:
		print_block(stmt, out, depth);
		break;
	case PP_STMT_LAYER:
		print_layer(stmt, out, depth);
		break;
	case PP_STMT_FOR:
		fprintf(out, "for %s", stmt->name.text);
		print_labelled(out, " in ", stmt->range);
		print_body(stmt, out, depth);
		break;
	case PP_STMT_REPEAT:
		fputs("repeat ", out);
		print_count(stmt->count, out);
		print_body(stmt, out, depth);
		break;
	case PP_STMT_PIN:
		fputs("pin ", out);
		print_ref(&stmt->ref, out);
		print_labelled(out, stmt->to_rank ? " to rank " : " to ", stmt->value);
		break;
	case PP_STMT_PAIR:
		print_refs(out, "pair", stmt);
		break;
	case PP_STMT_APART:
		print_refs(out, "apart", stmt);
		break;
	case PP_STMT_SPLIT:
		fputs("split ", out);
		print_rows(stmt->pattern, out, depth);
		break;
	case PP_STMT_ORDER:
		print_order(stmt, out, depth);
		break;
	case PP_STMT_LIMIT:
		print_labelled(out, "limit ", stmt->value);
		print_labelled(out, " when ", stmt->condition);
		break;
	case PP_STMT_PREFER:
		fputs("prefer ", out);
		print_actions(stmt->action, " > ", out);
		print_labelled(out, " when ", stmt->condition);
		break;
	case PP_STMT_ERROR:
		fputs("# wrong statement", out);
		break;
	}
}

static void print_stmts(const struct pp_stmt *stmt, FILE *out, int depth)
{
	for (; stmt; stmt = stmt->next) {
		indent(out, depth);
		print_stmt(stmt, out, depth);
		fputc('\n', out);
	}
}

void pp_ast_print(const struct pp_ast *ast, FILE *out)
{
	print_stmts(ast->first, out, 0);
}
