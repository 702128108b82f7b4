/* Rows: `order { … }` to a compute order, the second of the four ways to write a schedule; the named policies are rows
 * of a library.
 *
 *     order { F0 F1 B0 B1 | F0 B0 F1 B1 }                    one row per rank
 *     order for r { weave (min(m, p-r-1)) {F*m} {B*m} }       one row, written for every rank r
 *     order for r in 0..p-2 { … }  order for r in p-1..p-1 { … }   rows for some ranks; every rank once
 *
 * A row is all-implicit or all-explicit. Implicit: F and B (I) take the next microbatch of their chunk, W the oldest
 * pending weight gradient of the rank, W.c that of chunk c. Explicit: F3, F[i], F[a..b], 2F0. `.c` is the c-th stage of
 * the rank in ascending order, whatever the placement; without it chunk 0. `_` does nothing. A weave takes turns: an
 * action, a pair, or a round of an inner weave. With `surplus = drop` an implicit row may be written for more than m
 * microbatches: what belongs to the surplus ones is left out, and the rest of a pair stands alone. Names: r p v m, loop
 * variables, `let`s of the schedule, and what the scope given knows.
 *
 * Reports E0603 (counts), E0604 (negative repeat), E0606 (W before its I), E0607 (mixed numbering), E0609 (chunk or
 * stage that the rank does not hold), E0614 (a library schedule that cannot be used here), E0620 (rows against ranks),
 * E0621 (unknown action), E0622 (microbatch outside 0..m-1), E0623 (too large), E0624 (pairs). */
#ifndef PP_ROWS_H
#define PP_ROWS_H

#include "eval/eval.h"
#include "grammar/ast.h"
#include "ir/diag.h"
#include "ir/schedule.h"
#include "ir/str.h"

struct pp_rows_input {
	const char *name;                     /* of the schedule */
	const struct pp_stmt *block;          /* its block */
	bool shipped;                         /* a library schedule: its asserts say where it can be used */
	bool drop_surplus;                    /* `surplus = drop`, which a library block may also say itself */
	struct pp_span place;                 /* where the user asked for it */
	struct pp_span room_place;            /* what says how much memory there is */
	uint32_t ranks, stages, microbatches; /* each at least 1 */
	const uint32_t *stage_rank;           /* [stages] */
	const struct pp_scope *scope;         /* names beside r p v m; may be NULL */
	struct pp_strtab *strings;
	const struct pp_sources *sources;
};

/* Most actions of a schedule, all ranks together. */
enum { PP_ROWS_MOST_ACTIONS = 1 << 26 };

/* Requires: a block that holds at least one `order`. Ensures: rows with the right number of every action; whether they
 * can be executed is for pp_schedule_check. O(actions) times the depth of nested weaves. */
bool pp_rows_expand(struct pp_arena *arena, const struct pp_rows_input *input, struct pp_diag *diag,
                    struct pp_schedule *out);

#endif
