/* One cell of a schedule file: an action, a pair of actions, or a message that says what is wrong with it.
 * requires: a field that is not blank. ensures: reader.h; nothing but the whole field is taken. */
#include "reader.h"

#include <ctype.h>
#include <string.h>

const char *const pp_csv_kind_name[PP_CSV_KINDS] = {"F",      "B",      "I",       "W",       "SEND_F",     "RECV_F",
                                                    "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};
static const char pair_end[] = ")OVERLAP_F_B";

static bool has_microbatch(uint8_t kind)
{
	return kind < PP_CSV_UNSHARD;
}

/* How far an action was understood. */
struct attempt {
	const char *at;     /* the first byte that was not */
	bool stage, kind;   /* found */
	bool numbered;      /* and a microbatch */
	bool unnumbered;    /* of a kind that has none */
	bool whole;         /* all of it */
	bool too_large;     /* a number that is */
	bool legacy;        /* `BW`, which is no kind of today */
	const char *letter; /* where the kind stands, or should */
};

/* A number with one to spare: one more than it is a number too. */
static bool read_number(const char **at, const char *end, uint32_t *number)
{
	const char *start = *at;
	uint64_t value = 0;
	for (; *at < end && isdigit((unsigned char)**at) && value <= UINT32_MAX; (*at)++)
		value = value * 10 + (uint64_t)(**at - '0');
	*number = (uint32_t)value;
	return *at > start && value < UINT32_MAX;
}

/* The longest name of a kind that stands here; PP_CSV_KINDS: none. */
static uint8_t find_kind(const char *at, const char *end, size_t *length)
{
	uint8_t found = PP_CSV_KINDS;
	*length = 0;
	for (uint8_t kind = 0; kind < PP_CSV_KINDS; kind++) {
		size_t wanted = strlen(pp_csv_kind_name[kind]);
		if (wanted > *length && (size_t)(end - at) >= wanted && memcmp(at, pp_csv_kind_name[kind], wanted) == 0) {
			found = kind;
			*length = wanted;
		}
	}
	return found;
}

static uint8_t legacy_kind(uint8_t kind, bool with_w)
{
	return kind == PP_B && !with_w ? PP_I : kind;
}

static struct attempt read_action(const struct pp_csv_reader *reader, const char *at, const char *end,
                                  struct pp_csv_cell *cell)
{
	struct attempt attempt = {.at = at, .letter = at};
	size_t length;
	*cell = (struct pp_csv_cell){.column = reader->column, .span = pp_csv_span(reader, at, end)};
	attempt.stage = read_number(&attempt.at, end, &cell->stage);
	attempt.too_large = !attempt.stage && attempt.at > at;
	attempt.letter = attempt.at;
	if (!attempt.stage)
		return attempt;
	uint8_t kind = find_kind(attempt.at, end, &length);
	bool with_w = kind == PP_B && (size_t)(end - attempt.at) > length && attempt.at[length] == 'W';
	attempt.kind = kind < PP_CSV_KINDS;
	attempt.legacy = with_w;
	if (!attempt.kind || (with_w && !reader->legacy))
		return attempt;
	cell->kind = reader->legacy ? legacy_kind(kind, with_w) : kind;
	attempt.at += length + with_w;
	attempt.unnumbered = !has_microbatch(cell->kind);
	const char *number = attempt.at;
	attempt.numbered = !attempt.unnumbered && read_number(&attempt.at, end, &cell->mb);
	attempt.too_large = !attempt.unnumbered && !attempt.numbered && attempt.at > number;
	attempt.whole = (attempt.numbered || attempt.unnumbered) && attempt.at == end;
	return attempt;
}

/* ---- what is wrong --------------------------------------------------------------------------- */

/* Text for a message: at most 40 bytes, control bytes as `?`. */
static const char *show(struct pp_arena *arena, const char *at, const char *end)
{
	size_t length = end - at > 40 ? 40 : (size_t)(end - at);
	char *text = pp_arena_copy(arena, at, length);
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';
	return text;
}

/* What follows an action that was read whole but for its end. */
static bool help_with_rest(struct pp_csv_reader *reader, struct pp_message *message, const char *at, const char *end,
                           const struct attempt *attempt)
{
	struct pp_arena *arena = reader->arena;
	const char *rest = attempt->at;
	while (rest < end && isblank((unsigned char)*rest))
		rest++;
	if (!attempt->kind || attempt->too_large)
		return false;
	if (attempt->at == end)
		pp_help(message, "add the microbatch: `%s0`", show(arena, at, end));
	else if (attempt->unnumbered)
		pp_help(message, "remove `%s`: this is done to a stage, not to a microbatch", show(arena, attempt->at, end));
	else if (attempt->numbered)
		pp_help(message, "remove `%s`: PyTorch would read `%s` and drop the rest", show(arena, attempt->at, end),
		        show(arena, at, attempt->at));
	else if (rest > attempt->at && rest < end)
		pp_help(message, "remove the blank: PyTorch would read `%s`, without a microbatch",
		        show(arena, at, attempt->at));
	else
		return false;
	return true;
}

static void help(struct pp_csv_reader *reader, struct pp_message *message, const char *at, const char *end,
                 const struct attempt *attempt)
{
	bool pair = at < end && *at == '(';
	if (memchr(at, ';', (size_t)(end - at)) && !pair)
		pp_help(message, "cells are separated by commas");
	else if (memchr(at, '\r', (size_t)(end - at)))
		pp_help(message, "lines end with LF or CRLF");
	else if (memchr(at, '"', (size_t)(end - at)))
		pp_help(message, "quotes enclose a whole cell: `\"2F0\"`; none are needed");
	else if (attempt->too_large)
		pp_help(message, "stages and microbatches are at most %u", UINT32_MAX - 1);
	else if (help_with_rest(reader, message, at, end, attempt))
		return;
	else if (attempt->stage && islower((unsigned char)*attempt->letter))
		pp_help(message, "letters are upper case: F, B, I, W");
	else if (!attempt->stage && !pair)
		pp_help(message, "a cell begins with the stage, as in `2F0`; there are no headers and no names of ranks");
	else
		pp_help(message, "write an action such as `2F0` (F, B, I or W), a pair such as `(0F7;7B3)OVERLAP_F_B`, a "
		                 "message such as `2SEND_F0`, or nothing");
}

static const char *where(const struct pp_csv_reader *reader)
{
	return pp_arena_printf(reader->arena, "csv row %u, cell %u", reader->row + 1, reader->column + 1);
}

static void report(struct pp_csv_reader *reader, const char *at, const char *end, const struct attempt *attempt)
{
	struct pp_message *message;
	if (attempt->legacy && !reader->legacy) {
		message = pp_error(reader->diag, "E0651", pp_csv_span(reader, at, end),
		                   "%s: `%s` is written with the old letters", where(reader), show(reader->arena, at, end));
		reader->mixed = true;
		pp_note(message, "until October 2024 PyTorch wrote `B` for the input gradient and `BW` for the whole backward; "
		                 "today these are `I` and `B`");
		pp_help(message,
		        "pass --legacy, or write `legacy = true` in the schedule of a spec, to read the whole file that way");
		return;
	}
	message = pp_error(reader->diag, "E0613", pp_csv_span(reader, at, end), "%s: `%s` is not stage-action-microbatch",
	                   where(reader), show(reader->arena, at, end));
	help(reader, message, at, end, attempt);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static bool is_compute(const struct pp_csv_cell *cell)
{
	return cell->kind < PP_ACTION_KINDS;
}

/* `(0F7;7B3)OVERLAP_F_B` */
static unsigned read_pair(struct pp_csv_reader *reader, const char *at, const char *end, struct pp_csv_cell cells[2])
{
	size_t tail = sizeof pair_end - 1;
	const char *middle = memchr(at, ';', (size_t)(end - at)), *inner = (size_t)(end - at) > tail ? end - tail : at;
	bool closed = inner > at && memcmp(inner, pair_end, tail) == 0;
	bool two = closed && middle && middle > at + 1 && middle + 1 < inner &&
	           !memchr(middle + 1, ';', (size_t)(inner - middle - 1));
	if (!two) {
		struct attempt none = {.at = at, .letter = at};
		report(reader, at, end, &none);
		return 0;
	}
	struct attempt first = read_action(reader, at + 1, middle, &cells[0]);
	struct attempt second = read_action(reader, middle + 1, inner, &cells[1]);
	if (!first.whole || !second.whole) {
		report(reader, first.whole ? middle + 1 : at + 1, first.whole ? inner : middle, first.whole ? &second : &first);
		return 0;
	}
	if (!is_compute(&cells[0]) || !is_compute(&cells[1])) {
		struct pp_message *message =
		    pp_error(reader->diag, "E0613", pp_csv_span(reader, at, end), "%s: `%s` pairs what is no compute",
		             where(reader), show(reader->arena, at, end));
		pp_help(message, "a pair holds a forward and a backward: `(0F7;7B3)OVERLAP_F_B`");
		return 0;
	}
	cells[0].paired = true;
	return 2;
}

unsigned pp_csv_read_field(struct pp_csv_reader *reader, struct pp_csv_field field, struct pp_csv_cell cells[2])
{
	if (*field.at == '(')
		return read_pair(reader, field.at, field.end, cells);
	struct attempt attempt = read_action(reader, field.at, field.end, &cells[0]);
	if (attempt.whole)
		return 1;
	report(reader, field.at, field.end, &attempt);
	return 0;
}

const char *pp_csv_text(struct pp_arena *arena, const struct pp_csv_cell *cell)
{
	if (!has_microbatch(cell->kind))
		return pp_arena_printf(arena, "%u%s", cell->stage, pp_csv_kind_name[cell->kind]);
	return pp_arena_printf(arena, "%u%s%u", cell->stage, pp_csv_kind_name[cell->kind], cell->mb);
}

const char *pp_csv_place(struct pp_arena *arena, uint32_t rank, const struct pp_csv_cell *cell)
{
	return pp_arena_printf(arena, "csv row %u, cell %u", rank + 1, cell->column + 1);
}
