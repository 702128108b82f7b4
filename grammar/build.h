/* Making nodes: the actions of parse.y call these and do nothing else. Private to grammar/. */
#ifndef PP_BUILD_H
#define PP_BUILD_H

#include "parse_state.h"

/* Lists under construction: O(1) to append to. */
struct pp_expr_list {
	struct pp_expr *first, *last;
};

struct pp_stmt_list {
	struct pp_stmt *first, *last;
};

struct pp_pattern_list {
	struct pp_pattern *first, *last;
};

struct pp_action_list {
	struct pp_action_ast *first, *last;
};

/* Values of tokens. */
struct pp_quantity {
	const char *number, *unit; /* number NULL: wrong, already reported */
};

struct pp_cell {
	const char *letter;
	uint64_t stage, number;
};

/* What stands between a block's name and its body. */
struct pp_head {
	struct pp_name name, label;
	bool label_is_string;
	struct pp_expr *extends;
	struct pp_name from, from_text;
};

struct pp_expr *pp_build_number(struct pp_parse *parse, enum pp_expr_kind kind, struct pp_span span,
                                const char *number);
struct pp_expr *pp_build_quantity(struct pp_parse *parse, struct pp_span span, struct pp_quantity quantity);
struct pp_expr *pp_build_string(struct pp_parse *parse, struct pp_span span, const char *text);
struct pp_expr *pp_build_bool(struct pp_parse *parse, struct pp_span span, bool truth);
struct pp_expr *pp_build_unary(struct pp_parse *parse, struct pp_span span, enum pp_operator op, struct pp_span op_span,
                               struct pp_expr *operand);
struct pp_expr *pp_build_binary(struct pp_parse *parse, enum pp_operator op, struct pp_span op_span, struct pp_expr *a,
                                struct pp_expr *b);
struct pp_expr *pp_build_choice(struct pp_parse *parse, struct pp_expr *a, struct pp_expr *b, struct pp_expr *c);
struct pp_expr *pp_build_range(struct pp_parse *parse, struct pp_expr *a, struct pp_expr *b);
struct pp_expr *pp_build_list(struct pp_parse *parse, struct pp_span span, struct pp_expr *first);
struct pp_expr *pp_build_call(struct pp_parse *parse, struct pp_span span, struct pp_expr *callee,
                              struct pp_expr *first);

/* A path grows part by part; `text` is filled in by pp_build_path_end. */
struct pp_expr *pp_build_path(struct pp_parse *parse, struct pp_expr *path, struct pp_span span, const char *part);
struct pp_expr *pp_build_path_end(struct pp_parse *parse, struct pp_expr *path);

struct pp_stmt *pp_build_stmt(struct pp_parse *parse, enum pp_stmt_kind kind, struct pp_span span);
struct pp_stmt *pp_build_block(struct pp_parse *parse, struct pp_span span, const struct pp_head *head,
                               const struct pp_stmt_list *body);
struct pp_pattern *pp_build_pattern(struct pp_parse *parse, enum pp_pattern_kind kind, struct pp_span span);
struct pp_action_ast *pp_build_action(struct pp_parse *parse, struct pp_span span, const char *name);

struct pp_expr_list pp_append_expr(struct pp_expr_list list, struct pp_expr *expr);
struct pp_stmt_list pp_append_stmt(struct pp_stmt_list list, struct pp_stmt *stmt);
struct pp_pattern_list pp_append_pattern(struct pp_pattern_list list, struct pp_pattern *pattern);
struct pp_action_list pp_append_action(struct pp_action_list list, struct pp_action_ast *action);

#endif
