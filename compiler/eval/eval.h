/* Expressions to values: exact, total, with every error reported once at its position.
 *
 * Names are looked up through a chain of scopes, innermost first. Each scope holds bindings (params, loop variables,
 * `r p v m`) and may have a lookup for what is found by other means (lets, `block.attr`). To evaluate a row of a
 * schedule:
 *
 *     struct pp_binding names[] = {{r_name, pp_datum_whole(r)}, {v_name, pp_datum_whole(v)}};
 *     struct pp_scope row = {.outer = resolved->scope, .bindings = names, .count = 2};
 *     int64_t count;
 *     if (pp_eval_whole(&(struct pp_eval){arena, sources, diag, &row}, pattern->repeat, "repeat count", &count)) …
 */
#ifndef PP_EVAL_H
#define PP_EVAL_H

#include "datum.h"

#include "grammar/ast.h"
#include "ir/diag.h"
#include "ir/source.h"

struct pp_binding {
	const char *name; /* interned: compared by pointer */
	struct pp_datum value;
};

enum pp_lookup { PP_LOOKUP_NONE, PP_LOOKUP_FOUND, PP_LOOKUP_FAILED /* found, but its error is reported */ };

struct pp_eval;

struct pp_scope {
	const struct pp_scope *outer;
	const struct pp_binding *bindings;
	size_t count;
	/* Tried after the bindings; may be NULL. `eval` is the one in use: evaluate through it, so that depth is counted.
	 */
	enum pp_lookup (*lookup)(void *context, struct pp_eval *eval, const struct pp_expr *path, struct pp_datum *out);
	/* Append the names that `lookup` knows, for suggestions: at most `room`; returns how many. May be NULL. */
	size_t (*list)(void *context, const char **names, size_t room);
	void *context;
	const char *noun; /* "metrics": its names are listed when an unknown name is near none. NULL: they are not */
};

struct pp_eval {
	struct pp_arena *arena;
	const struct pp_sources *sources; /* to quote what the user wrote */
	struct pp_diag *diag;
	const struct pp_scope *scope;
	unsigned depth; /* of evaluation right now, through names too; start with 0 */
};

/* All return false when an error was reported (or was reported before: a PP_EXPR_ERROR). */
bool pp_eval_expr(struct pp_eval *eval, const struct pp_expr *expr, struct pp_datum *out);

/* A whole pure number. `what` names the wanted thing in messages: "`layers`", "repeat count". */
bool pp_eval_whole(struct pp_eval *eval, const struct pp_expr *expr, const char *what, int64_t *out);

/* Both ends of a PP_EXPR_RANGE, whole; first > last is an empty range, no error. */
bool pp_eval_range(struct pp_eval *eval, const struct pp_expr *range, const char *what, int64_t *first, int64_t *last);

/* True or false. */
bool pp_eval_truth(struct pp_eval *eval, const struct pp_expr *expr, const char *what, bool *out);

/* A value that is already there, as a whole number; `expr` is where it was written. */
bool pp_datum_to_whole(struct pp_eval *eval, const struct pp_expr *expr, const char *what, const struct pp_datum *datum,
                       int64_t *out);

/* Report that `what` wanted something else than it got (E0201; E0004 for 7B where a number is wanted). */
void pp_eval_mismatch(struct pp_eval *eval, const struct pp_expr *expr, const char *what, const char *wanted,
                      const struct pp_datum *got);

/* What stands at a span of the source, shortened, in the arena. */
const char *pp_eval_quote(const struct pp_eval *eval, struct pp_span span);

/* Report a literal with a unit that does not exist or a number that does not fit (E0003, E0204). True: the literal is
 * fine. For texts that are checked and not evaluated. */
bool pp_eval_check_literal(struct pp_eval *eval, const struct pp_expr *expr);

/* Built-in functions (call.c). */
bool pp_eval_is_function(const char *name);
bool pp_eval_call(struct pp_eval *eval, const struct pp_expr *call, struct pp_datum *out);

#endif
