/* What the files of the row expander share. */
#ifndef PP_ROWS_INTERNAL_H
#define PP_ROWS_INTERNAL_H

#include "compiler/rows.h"

#define PP_NO_NUMBER UINT32_MAX /* number: the next one; chunk: any, of a bare W */

/* An action as written: of a chunk, with a number or not yet. */
struct pp_raw_action {
	uint32_t chunk, number;
	uint8_t kind; /* enum pp_action_kind */
	bool paired;
	bool glued; /* the next action belongs to the same round of a weave: an outer weave keeps them together */
	struct pp_span span;
};

/* Value of a `let` of the schedule on one rank, computed when first asked for. */
enum pp_let_state { PP_LET_UNKNOWN, PP_LET_BUSY, PP_LET_KNOWN, PP_LET_FAILED };

struct pp_let {
	const struct pp_stmt *stmt;
	enum pp_let_state state;
	struct pp_datum value;
};

/* One row under construction. */
struct pp_row_build {
	const struct pp_rows_input *input;
	struct pp_arena *arena;
	struct pp_diag *diag;
	uint32_t rank, chunks;
	const uint32_t *chunk_stage; /* [chunks]: stages of the rank, ascending */
	struct pp_span span;         /* of the row, or of the statement that writes it */
	struct pp_binding names[5];  /* r p v m and the name of `order for` */
	struct pp_scope scope;       /* names of the row */
	struct pp_let *lets;
	uint32_t let_count;
	struct pp_eval eval; /* eval.scope: innermost scope of now */
	struct pp_raw_action *actions;
	size_t count, capacity;
	struct pp_raw_action *scratch; /* for weaving */
	size_t scratch_capacity;
	uint64_t longest, steps;             /* most actions worth counting, steps left: both bound the work */
	struct pp_span numbered, unnumbered; /* the first of each, or PP_NO_SPAN */
	bool unchosen_weight;                /* some W leaves the chunk open */
	bool drop_surplus;                   /* leave out actions of microbatches from m on */
};

/* Expand a sequence of pattern parts up to `end` (a bar, or NULL) to the end of the row. */
bool pp_row_expand(struct pp_row_build *row, const struct pp_pattern *part, const struct pp_pattern *end);

/* Count, number, and write the row out. */
bool pp_row_number(struct pp_row_build *row, struct pp_row *out);

/* "F", "F.1": for messages; chunk 0 of a rank with one chunk has no suffix. */
const char *pp_row_action_title(const struct pp_row_build *row, char letter, uint32_t chunk);

#endif
