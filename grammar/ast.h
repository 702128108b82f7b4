/* The tree of a `.pipe` text, exactly as written: no name is looked up, nothing is computed. Every node has the
 * span of its text. Lists are linked through `next`, in source order. Names and strings are interned, so names
 * compare with ==. Made by parse.y, read by compiler/, printed by ast_print.c. Lives in the arena given to
 * pp_parse.
 *
 * What parsing reports: E0001 unexpected token, E0002 wrong comment sign, E0003 unknown unit, E0004 `b` as a unit,
 * E0005 string not closed, E0006 bracket or block not closed, E0007 character, escape or encoding that is not in the
 * language, E0008 nesting limit. */
#ifndef PP_AST_H
#define PP_AST_H

#include "ir/arena.h"
#include "ir/diag.h"
#include "ir/source.h"
#include "ir/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pp_name {
	const char *text; /* NULL: absent */
	struct pp_span span;
};

/* Nesting of brackets, blocks, prefix operators and choices; and of any nodes, a + b + c + … being as high as long. */
enum { PP_NESTING_LIMIT = 256, PP_HEIGHT_LIMIT = 1024 };

/* ---- expressions ----------------------------------------------------------------------------- */

enum pp_expr_kind {
	PP_EXPR_INT, /* integer: digits without underscores and leading zeros; 1e3 is REAL */
	PP_EXPR_REAL,
	PP_EXPR_QUANTITY, /* number glued to a unit */
	PP_EXPR_STRING,   /* value after escapes */
	PP_EXPR_BOOL,
	PP_EXPR_LIST,  /* items: expressions and ranges */
	PP_EXPR_PATH,  /* a or a.b or a.0 */
	PP_EXPR_CALL,  /* path(arguments) */
	PP_EXPR_UNARY, /* - or not */
	PP_EXPR_BINARY,
	PP_EXPR_CHOICE, /* a ? b : c */
	PP_EXPR_RANGE,  /* a..b, only where the grammar allows a range */
	PP_EXPR_ERROR   /* recovered: already reported */
};

enum pp_operator {
	PP_OR,
	PP_AND,
	PP_NOT,
	PP_EQ,
	PP_NE,
	PP_LT,
	PP_GT,
	PP_LE,
	PP_GE,
	PP_ADD,
	PP_SUB,
	PP_MUL,
	PP_DIV,
	PP_MOD,
	PP_NEG
};

struct pp_expr {
	enum pp_expr_kind kind;
	struct pp_span span;
	struct pp_expr *next; /* in a list or among arguments */
	enum pp_operator op;  /* UNARY, BINARY */
	struct pp_span op_span;
	struct pp_expr *a, *b, *c; /* operands; RANGE: a..b; CALL: a callee path, b first argument; LIST: a first item */
	const char *number;        /* INT, REAL, QUANTITY: digits without underscores and leading zeros, interned */
	const char *unit;          /* QUANTITY, as written, interned */
	const char *text;          /* STRING: value, interned (no NUL inside). PATH: the parts joined by '.', interned */
	struct pp_name *parts;     /* PATH: the parts; a number part has digits as text */
	uint32_t part_count;
	bool parenthesized; /* PATH: written in parentheses, which reads a parameter where a bare name would be a choice */
	bool truth;         /* BOOL */
	struct pp_name label; /* an argument given by name */
	uint16_t nesting;     /* levels of - not ?: () [] below this node, at most PP_NESTING_LIMIT */
	uint16_t height;      /* levels of nodes of any kind, at most PP_HEIGHT_LIMIT: recursion is safe */
};

/* ---- patterns (split and order) -------------------------------------------------------------- */

enum pp_pattern_kind {
	PP_PATTERN_BAR,   /* | */
	PP_PATTERN_ITEM,  /* action, or a & b & …: `action` and its siblings through action.next */
	PP_PATTERN_GROUP, /* ( … ) : body */
	PP_PATTERN_FOR,   /* for name in range { body } */
	PP_PATTERN_WEAVE  /* weave count { body } { other } */
};

/* 2F0 | F | F3 | F[i] | F[a..b] | F.1 | emb | block[3] | _ */
struct pp_action_ast {
	struct pp_span span;
	struct pp_action_ast *next; /* overlapped with, after & */
	const char *name;           /* as written: F, F3, emb, _; of a cell only its letter. Interned */
	bool cell;                  /* 2F0: stage and number are given */
	uint64_t stage, number;
	struct pp_expr *index; /* F[i] or F[a..b] (RANGE), or NULL */
	struct pp_expr *chunk; /* F.1, F.c, F.(v-1-c): an INT, PATH or any expression, or NULL */
};

struct pp_pattern {
	enum pp_pattern_kind kind;
	struct pp_span span;
	struct pp_pattern *next;
	struct pp_action_ast *action;
	struct pp_expr *repeat;  /* ITEM, GROUP: * count, or NULL */
	struct pp_name variable; /* FOR */
	struct pp_expr *range;   /* FOR: a RANGE */
	struct pp_expr *count;   /* WEAVE */
	struct pp_pattern *body, *other;
};

/* ---- statements ------------------------------------------------------------------------------ */

enum pp_stmt_kind {
	PP_STMT_IMPORT,    /* value = STRING, name = alias or absent */
	PP_STMT_PARAM,     /* name, type, value (default) or NULL, range (RANGE or LIST) or NULL, text (doc) */
	PP_STMT_LET,       /* name, value */
	PP_STMT_ASSERT,    /* value, text (message) or absent */
	PP_STMT_ATTRIBUTE, /* name = value (value may be a RANGE) */
	PP_STMT_BOUND,     /* name <= value, name >= value: op is PP_LE or PP_GE */
	PP_STMT_OVERLAP,   /* overlap action & action = value: actions through action.next */
	PP_STMT_BLOCK,     /* name [label] [extends path | from NAME STRING] [{ body }] */
	PP_STMT_LAYER,     /* layer [label :] name [* count] [{ body }]; name is the kind */
	PP_STMT_FOR,       /* for name in range { body } */
	PP_STMT_REPEAT,    /* repeat count { body } */
	PP_STMT_PIN,       /* pin ref to [rank] value; to_rank */
	PP_STMT_PAIR,      /* pair ref with other */
	PP_STMT_APART,     /* apart ref with other */
	PP_STMT_SPLIT,     /* split { pattern } */
	PP_STMT_ORDER,     /* order [for name [in range]] { pattern } */
	PP_STMT_LIMIT,     /* limit value [when condition] */
	PP_STMT_PREFER,    /* prefer action > action … [when condition]: actions through action.next */
	PP_STMT_ERROR      /* recovered: already reported */
};

struct pp_ref {
	struct pp_name name;
	struct pp_expr *index; /* expression or RANGE, or NULL */
	struct pp_span span;
};

struct pp_stmt {
	enum pp_stmt_kind kind;
	struct pp_span span; /* the whole statement */
	struct pp_stmt *next;
	struct pp_name name;
	struct pp_name label; /* BLOCK: label (NAME, or STRING with label_is_string); LAYER: instance name */
	bool label_is_string;
	struct pp_name type; /* PARAM */
	struct pp_expr *value, *range, *count, *condition;
	struct pp_name text;     /* doc or message */
	enum pp_operator op;     /* BOUND */
	struct pp_expr *extends; /* BLOCK: a PATH */
	struct pp_name from;     /* BLOCK: from NAME text */
	struct pp_name from_text;
	bool has_body;
	struct pp_stmt *body;       /* BLOCK, LAYER, FOR, REPEAT */
	struct pp_pattern *pattern; /* SPLIT, ORDER */
	struct pp_action_ast *action;
	struct pp_ref ref, other;
	bool to_rank;
};

/* A parsed file: its top-level statements (IMPORT PARAM LET ASSERT BLOCK). */
struct pp_ast {
	const struct pp_source *source;
	struct pp_stmt *first;
};

/* Parse one text. Reports errors to `diag` and still returns what could be read (never NULL); check
 * pp_diag_ok. Nothing in the text can crash it or make it use unbounded stack: nesting is capped at 256. */
struct pp_ast *pp_parse(struct pp_arena *arena, struct pp_strtab *strings, const struct pp_source *source,
                        struct pp_diag *diag);

/* Canonical text of the tree: `pipec build --emit=ast`. Reparsing it gives the same text. */
void pp_ast_print(const struct pp_ast *ast, FILE *out);

/* Canonical text of one expression. */
void pp_expr_print(const struct pp_expr *expr, FILE *out);

#endif
