/* Reader of schedule files: fields by the rules of CSV, cells by cell.c, then the placement of stages.
 * requires: a source. ensures: csv.h; memory is bounded by the length of the text and by PP_CSV_MOST_CELLS, messages by
 * MOST_MESSAGES. */
#include "ir/program.h"
#include "reader.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* More are not printed; a text of another kind would make one for each cell, and is known by having no good one. */
enum { MOST_MESSAGES = 20, MOST_OF_ANOTHER_KIND = 3 };

struct reading {
	struct pp_csv_reader reader;
	struct pp_csv *csv;
	size_t row_count, row_capacity;
	uint64_t cells; /* of all rows */
	const struct pp_csv_cell *largest_stage;
	uint32_t largest_rank; /* its row */
	uint32_t failed;
};

/* ---- fields ---------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at, const char *end)
{
	while (at < end && isblank((unsigned char)*at))
		at++;
	return at;
}

static struct pp_csv_field trimmed(const char *at, const char *end)
{
	at = skip_blanks(at, end);
	while (end > at && (isblank((unsigned char)end[-1]) || end[-1] == '\r'))
		end--;
	return (struct pp_csv_field){at, end};
}

/* The field at `at` and where it ends, at a comma or at `end`. A quoted one ends behind its quotes; a quote within it,
 * or text behind it, is left in, so that no action is seen in it. */
static const char *read_text(const char *at, const char *end, struct pp_csv_field *field)
{
	const char *start = skip_blanks(at, end);
	const char *close = start < end && *start == '"' ? memchr(start + 1, '"', (size_t)(end - start - 1)) : NULL;
	const char *from = close ? close + 1 : at;
	const char *comma = memchr(from, ',', (size_t)(end - from));
	const char *stop = comma ? comma : end;
	*field = trimmed(at, stop);
	if (close && field->end == close + 1)
		*field = trimmed(start + 1, close);
	return stop;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Cells that a row may have: fields that are not blank, those in parentheses twice. */
static uint32_t count_cells(const char *at, const char *end)
{
	uint32_t count = 0;
	for (bool blank = true; at < end; at++) {
		bool begins = blank && *at != ',' && !isspace((unsigned char)*at);
		count += (begins ? 1u : 0u) + (*at == '(' ? 1u : 0u);
		blank = *at == ',' || (blank && !begins);
	}
	return count;
}

static bool report_file(struct reading *reading, struct pp_span span, const char *what, const char *fix)
{
	struct pp_message *message =
	    pp_error(reading->reader.diag, "E0650", span, "%s: %s", reading->reader.source->name, what);
	pp_help(message, "%s", fix);
	return false;
}

static void keep_cell(struct reading *reading, struct pp_csv_row *row, struct pp_csv_cell cell)
{
	struct pp_csv *csv = reading->csv;
	row->cells[row->count++] = cell;
	reading->cells++;
	if (cell.stage >= csv->stages) {
		csv->stages = cell.stage + 1;
		reading->largest_stage = &row->cells[row->count - 1];
		reading->largest_rank = (uint32_t)reading->row_count - 1;
	}
	if (cell.mb >= csv->microbatches)
		csv->microbatches = cell.mb + 1;
	csv->comms |= cell.kind >= PP_ACTION_KINDS;
}

static bool read_row(struct reading *reading, const char *at, const char *end)
{
	struct pp_csv_reader *reader = &reading->reader;
	uint32_t most = count_cells(at, end);
	struct pp_csv_row *row =
	    PP_PUSH(reader->arena, &reading->csv->rows, &reading->row_count, &reading->row_capacity, struct pp_csv_row);
	if (reading->cells + most > PP_CSV_MOST_CELLS) {
		struct pp_message *message =
		    pp_error(reader->diag, "E0623", pp_csv_span(reader, at, at), "csv row %zu: more than %d cells in all",
		             reading->row_count, PP_CSV_MOST_CELLS);
		pp_help(message, "split the step, or use fewer microbatches");
		return false;
	}
	row->cells = PP_NEW_ARRAY(reader->arena, struct pp_csv_cell, most);
	reader->row = (uint32_t)reading->row_count - 1;
	reader->column = 0;
	for (const char *next; at <= end; at = next + 1, reader->column++) {
		struct pp_csv_field field;
		struct pp_csv_cell cells[2];
		next = read_text(at, end, &field);
		if (field.at == field.end)
			continue;
		unsigned count = pp_csv_read_field(reader, field, cells);
		for (unsigned i = 0; i < count; i++)
			keep_cell(reading, row, cells[i]);
		reading->failed += count == 0;
		uint32_t most_messages = reading->cells ? MOST_MESSAGES : MOST_OF_ANOTHER_KIND;
		if (count == 0 && (reading->failed >= most_messages || reader->mixed))
			return false;
	}
	return true;
}

/* A rank in the middle with nothing to do is a slip: PyTorch counts its row too. */
static bool rows_are_used(struct reading *reading)
{
	struct pp_csv_reader *reader = &reading->reader;
	struct pp_csv *csv = reading->csv;
	while (reading->row_count && csv->rows[reading->row_count - 1].count == 0)
		reading->row_count--;
	csv->ranks = (uint32_t)reading->row_count;
	for (uint32_t rank = 0; rank < csv->ranks; rank++) {
		if (csv->rows[rank].count)
			continue;
		struct pp_message *message =
		    pp_error(reader->diag, "E0650", PP_NO_SPAN, "%s: csv row %u holds no action, but row %u does",
		             reader->source->name, rank + 1, csv->ranks);
		pp_help(message, "each row is a rank and each rank needs a stage: remove the row, or fill it");
		return false;
	}
	return true;
}

static bool read_rows(struct reading *reading)
{
	const struct pp_source *source = reading->reader.source;
	const char *at = source->text, *end = at + source->length;
	if (source->length >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
		return report_file(reading, pp_csv_span(&reading->reader, at, at + 3), "begins with a byte-order mark",
		                   "save it as UTF-8 without one: PyTorch takes it for a part of the first cell");
	const char *zero = memchr(at, 0, source->length);
	if (zero)
		return report_file(reading, pp_csv_span(&reading->reader, zero, zero + 1), "holds binary data, not a schedule",
		                   "save it as plain text, one row per rank with cells such as `2F0`");
	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		if (!read_row(reading, at, newline ? newline : end))
			return false;
		at = newline ? newline + 1 : end;
	}
	if (reading->failed || reading->cells)
		return !reading->failed && rows_are_used(reading);
	return report_file(reading, PP_NO_SPAN, "no actions", "write one row per rank with cells such as `2F0`");
}

/* ---- placement ------------------------------------------------------------------------------- */

static bool place_stage(struct reading *reading, uint32_t rank, const struct pp_csv_cell *cell)
{
	uint32_t *home = &reading->csv->stage_rank[cell->stage];
	if (*home == PP_NULL)
		*home = rank;
	if (*home == rank)
		return true;
	const struct pp_csv_row *there = &reading->csv->rows[*home];
	struct pp_message *message =
	    pp_error(reading->reader.diag, "E0609", cell->span, "%s: stage %u is already on row %u",
	             pp_csv_place(reading->reader.arena, rank, cell), cell->stage, *home + 1);
	for (uint32_t i = 0; i < there->count; i++)
		if (there->cells[i].stage == cell->stage) {
			pp_label(message, there->cells[i].span, "here");
			break;
		}
	pp_help(message, "a stage lives on one rank, and rows are ranks: move the cell to row %u", *home + 1);
	return false;
}

static bool place_stages(struct reading *reading)
{
	struct pp_csv *csv = reading->csv;
	struct pp_csv_reader *reader = &reading->reader;
	uint32_t missing = 0;
	if (csv->stages <= reading->cells) { /* else some stage is on no row */
		csv->stage_rank = PP_NEW_ARRAY(reader->arena, uint32_t, csv->stages);
		memset(csv->stage_rank, 0xff, csv->stages * sizeof *csv->stage_rank);
		for (uint32_t rank = 0; rank < csv->ranks; rank++)
			for (uint32_t i = 0; i < csv->rows[rank].count; i++)
				if (!place_stage(reading, rank, &csv->rows[rank].cells[i]))
					return false;
		while (missing < csv->stages && csv->stage_rank[missing] != PP_NULL)
			missing++;
		if (missing == csv->stages)
			return true;
	}
	const struct pp_csv_cell *largest = reading->largest_stage;
	const char *place = pp_csv_place(reader->arena, reading->largest_rank, largest);
	struct pp_message *message;
	if (csv->stages > reading->cells)
		message = pp_error(reader->diag, "E0609", largest->span,
		                   "%s: there is a stage %u, but only %" PRIu64 " action%s for %u stages", place,
		                   largest->stage, reading->cells, reading->cells == 1 ? "" : "s", csv->stages);
	else
		message = pp_error(reader->diag, "E0609", largest->span, "%s: there is a stage %u, but stage %u is on no row",
		                   place, largest->stage, missing);
	pp_help(message, "stages are numbered 0, 1, 2, ... in the order of the model");
	return false;
}

struct pp_csv *pp_csv_read(struct pp_arena *arena, const struct pp_source *source, bool legacy, struct pp_diag *diag)
{
	struct pp_csv *csv = PP_NEW(arena, struct pp_csv);
	*csv = (struct pp_csv){.source = source, .legacy = legacy};
	struct reading reading = {.reader = {.arena = arena, .source = source, .diag = diag, .legacy = legacy}, .csv = csv};
	return read_rows(&reading) && place_stages(&reading) ? csv : NULL;
}

bool pp_csv_looks_like(const char *text, size_t length)
{
	const char *at = text, *end = text + length;
	if (length >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
		at += 3;
	while (at < end && strchr(", \t\r\n\"(", *at) && *at)
		at++;
	const char *digits = at;
	while (at < end && isdigit((unsigned char)*at))
		at++;
	const char *letters = at;
	while (at < end && (isupper((unsigned char)*at) || *at == '_'))
		at++;
	return letters > digits && at > letters && memchr("FBIWSRU", *letters, 7) &&
	       (at == end || isdigit((unsigned char)*at) || *at == ',' || *at == '\n' || *at == '\r');
}
