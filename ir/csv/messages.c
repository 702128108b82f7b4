/* The messages of a schedule file, each by itself: is it there once, between the right actions?
 * requires: compute that passed pp_csv_check, so that stages * microbatches is bounded by the file.
 * ensures:  csv_comms.h. O(cells). */
#include "ir/csv_comms.h"

#include <string.h>

/* Kinds of the two ends of a value that leaves a stage, by whether it is an activation. */
enum { SEND, RECV };
static const uint8_t kind_of[2][2] = {{PP_CSV_SEND_B, PP_CSV_RECV_B}, {PP_CSV_SEND_F, PP_CSV_RECV_F}};

struct check {
	struct pp_arena *arena;
	const struct pp_csv *csv;
	struct pp_diag *diag;
	const struct pp_csv_cell **at[PP_CSV_UNSHARD]; /* per kind: [stages * microbatches], I as B */
};

static size_t value_at(const struct check *check, uint32_t stage, uint32_t mb)
{
	return (size_t)stage * check->csv->microbatches + mb;
}

static const struct pp_csv_cell **slot(const struct check *check, uint8_t kind, uint32_t stage, uint32_t mb)
{
	return &check->at[kind == PP_I ? PP_B : kind][value_at(check, stage, mb)];
}

static struct pp_message *report(const struct check *check, uint32_t rank, const struct pp_csv_cell *cell,
                                 const char *what)
{
	return pp_error(check->diag, "E0653", cell->span, "%s: `%s` %s", pp_csv_place(check->arena, rank, cell),
	                pp_csv_text(check->arena, cell), what);
}

/* ---- one cell -------------------------------------------------------------------------------- */

static bool is_forward(uint8_t kind)
{
	return kind == PP_F || kind == PP_CSV_SEND_F || kind == PP_CSV_RECV_F;
}

static bool is_recv(uint8_t kind)
{
	return kind == PP_CSV_RECV_F || kind == PP_CSV_RECV_B;
}

/* The stage at the other end of a message of this stage. False: there is none. */
static bool partner(const struct pp_csv *csv, uint8_t kind, uint32_t stage, uint32_t *other)
{
	bool up = is_forward(kind) != is_recv(kind); /* a SEND_F or RECV_B looks at the stage after */
	if (up ? stage + 1 == csv->stages : stage == 0)
		return false;
	*other = up ? stage + 1 : stage - 1;
	return true;
}

static bool message_has_ends(const struct check *check, uint32_t rank, const struct pp_csv_cell *cell)
{
	const struct pp_csv *csv = check->csv;
	uint32_t other;
	if (!partner(csv, cell->kind, cell->stage, &other)) {
		struct pp_message *message = report(check, rank, cell, "has no other end");
		pp_help(message, "remove it: stage %u is the %s", cell->stage, cell->stage ? "last" : "first");
		return false;
	}
	if (csv->stage_rank[other] != rank)
		return true;
	struct pp_message *message = report(check, rank, cell, "stays on its rank");
	pp_help(message, "remove it: stage %u lives on this rank too, and takes the value as it is", other);
	return false;
}

/* Note where a cell stands; compute was checked before. */
static bool note_cell(const struct check *check, uint32_t rank, const struct pp_csv_cell *cell)
{
	if (cell->kind >= PP_CSV_UNSHARD || cell->kind == PP_W)
		return true;
	if (cell->kind >= PP_ACTION_KINDS && !message_has_ends(check, rank, cell))
		return false;
	const struct pp_csv_cell **place = slot(check, cell->kind, cell->stage, cell->mb);
	if (*place) {
		struct pp_message *message = report(check, rank, cell, "is listed twice");
		pp_label(message, (*place)->span, "first here");
		pp_help(message, "remove one: a value is sent once and received once");
		return false;
	}
	*place = cell;
	return true;
}

static bool note_cells(const struct check *check)
{
	for (uint32_t rank = 0; rank < check->csv->ranks; rank++)
		for (uint32_t i = 0; i < check->csv->rows[rank].count; i++)
			if (!note_cell(check, rank, &check->csv->rows[rank].cells[i]))
				return false;
	return true;
}

/* ---- one value ------------------------------------------------------------------------------- */

static const char *missing_text(const struct check *check, uint8_t kind, uint32_t stage, uint32_t mb)
{
	struct pp_csv_cell missing = {.stage = stage, .mb = mb, .kind = kind};
	return pp_csv_text(check->arena, &missing);
}

/* Cells of one row lie in one array, in order. A SEND comes after its producer, a RECV before its consumer. */
static bool message_is_placed(const struct check *check, uint32_t rank, int end, uint8_t kind, uint32_t stage,
                              uint32_t mb)
{
	const struct pp_csv_cell *message_cell = *slot(check, kind, stage, mb),
	                         *compute = *slot(check, is_forward(kind) ? PP_F : PP_B, stage, mb);
	const char *action = pp_csv_text(check->arena, compute);
	if (!message_cell) {
		const char *missing = missing_text(check, kind, stage, mb);
		struct pp_message *message =
		    report(check, rank, compute,
		           pp_arena_printf(check->arena, end == SEND ? "is never sent on" : "receives no input"));
		pp_help(message, end == SEND ? "add `%s` after it" : "add `%s` before it", missing);
		return false;
	}
	if (end == SEND ? message_cell > compute : message_cell < compute)
		return true;
	const char *what = end == SEND ? "comes before what it sends, `%s`" : "comes after what needs it, `%s`";
	struct pp_message *message = report(check, rank, message_cell, pp_arena_printf(check->arena, what, action));
	pp_label(message, compute->span, "`%s`", action);
	pp_help(message, end == SEND ? "move it behind `%s`" : "move it before `%s`", action);
	return false;
}

static bool value_is_moved(const struct check *check, bool forward, uint32_t stage, uint32_t mb)
{
	const struct pp_csv *csv = check->csv;
	uint32_t from = forward ? stage : stage + 1, to = forward ? stage + 1 : stage;
	if (csv->stage_rank[from] == csv->stage_rank[to])
		return true;
	return message_is_placed(check, csv->stage_rank[from], SEND, kind_of[forward][SEND], from, mb) &&
	       message_is_placed(check, csv->stage_rank[to], RECV, kind_of[forward][RECV], to, mb);
}

static bool values_are_moved(const struct check *check)
{
	for (uint32_t stage = 0; stage + 1 < check->csv->stages; stage++)
		for (uint32_t mb = 0; mb < check->csv->microbatches; mb++)
			if (!value_is_moved(check, true, stage, mb) || !value_is_moved(check, false, stage, mb))
				return false;
	return true;
}

/* ---- blank cells ----------------------------------------------------------------------------- */

/* Columns of a row count up by one, but for the two cells of a pair. */
static bool has_no_blanks(const struct check *check)
{
	for (uint32_t rank = 0; rank < check->csv->ranks; rank++) {
		const struct pp_csv_row *row = &check->csv->rows[rank];
		uint32_t expected = 0;
		for (uint32_t i = 0; i < row->count; i++) {
			const struct pp_csv_cell *cell = &row->cells[i];
			if (cell->column == expected) {
				expected += !cell->paired;
				continue;
			}
			struct pp_message *message =
			    pp_error(check->diag, "E0657", cell->span, "csv row %u, cell %u is blank", rank + 1, expected + 1);
			pp_help(message, "leave blank cells out: beside SEND and RECV a row is an order, not a grid, and PyTorch's "
			                 "loader refuses them");
			return false;
		}
	}
	return true;
}

bool pp_csv_check_messages(struct pp_arena *arena, const struct pp_csv *csv, struct pp_diag *diag)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct check check = {.arena = scratch, .csv = csv, .diag = diag};
	for (uint8_t kind = 0; kind < PP_CSV_UNSHARD; kind++)
		if (kind != PP_I && kind != PP_W)
			check.at[kind] = PP_NEW_ARRAY(scratch, const struct pp_csv_cell *, (size_t)csv->stages * csv->microbatches);
	bool ok = has_no_blanks(&check) && note_cells(&check) && values_are_moved(&check);
	pp_arena_destroy(scratch);
	return ok;
}
