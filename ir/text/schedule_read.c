/* Reader of schedule CSV, strict: every cell is an action, a pair of actions or blank.
 * requires: a source. ensures: schedule_read.h; memory is bounded by the length of the text. */
#include "ir/program.h"
#include "ir/schedule_read.h"

#include <inttypes.h>
#include <string.h>

static const char letters[PP_ACTION_KINDS] = {'F', 'B', 'I', 'W'};
static const char pair_end[] = ")OVERLAP_F_B";

struct reader {
	struct pp_arena *arena;
	const struct pp_source *source;
	struct pp_diag *diag;
	struct pp_row *rows;
	size_t row_count, row_capacity;
	size_t action_count, action_capacity; /* of the row at hand */
	uint64_t cells;                       /* actions of all rows */
	uint32_t stages, microbatches;        /* one more than the largest seen */
	bool failed;
};

static struct pp_span span_of(const struct reader *reader, const char *from, const char *to)
{
	uint32_t start = reader->source->base + (uint32_t)(from - reader->source->text);
	return (struct pp_span){start, start + (uint32_t)(to - from)};
}

static bool read_number(const char **at, const char *end, uint32_t *number)
{
	const char *start = *at;
	uint64_t value = 0;
	for (; *at < end && **at >= '0' && **at <= '9' && value <= UINT32_MAX; (*at)++)
		value = value * 10 + (uint64_t)(**at - '0');
	*number = (uint32_t)value;
	return *at > start && value < UINT32_MAX; /* one more than it must be a number too */
}

/* `2F0` and nothing else in [at, end). */
static bool read_action(struct reader *reader, const char *at, const char *end, struct pp_action *action)
{
	const char *start = at;
	if (!read_number(&at, end, &action->stage) || at == end)
		return false;
	const char *letter = memchr(letters, *at, sizeof letters);
	if (!letter)
		return false;
	at++;
	if (!read_number(&at, end, &action->mb) || at != end)
		return false;
	action->kind = (uint8_t)(letter - letters);
	action->span = span_of(reader, start, end);
	return true;
}

static void keep_action(struct reader *reader, struct pp_action action)
{
	struct pp_row *row = &reader->rows[reader->row_count - 1];
	*PP_PUSH(reader->arena, &row->actions, &reader->action_count, &reader->action_capacity, struct pp_action) = action;
	row->count = (uint32_t)reader->action_count;
	reader->cells++;
	if (action.stage >= reader->stages)
		reader->stages = action.stage + 1;
	if (action.mb >= reader->microbatches)
		reader->microbatches = action.mb + 1;
}

static bool read_pair(struct reader *reader, const char *at, const char *end, struct pp_action pair[2])
{
	size_t tail = sizeof pair_end - 1;
	const char *middle = memchr(at, ';', (size_t)(end - at));
	if (*at != '(' || !middle || (size_t)(end - middle) < tail + 1 || memcmp(end - tail, pair_end, tail) != 0)
		return false;
	pair[0].paired = true;
	return read_action(reader, at + 1, middle, &pair[0]) && read_action(reader, middle + 1, end - tail, &pair[1]);
}

static void read_cell(struct reader *reader, uint64_t cell, const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	while (at < end && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	if (at == end)
		return;
	struct pp_action actions[2] = {{.paired = false}, {.paired = false}};
	if (read_action(reader, at, end, &actions[0])) {
		keep_action(reader, actions[0]);
	} else if (read_pair(reader, at, end, actions)) {
		keep_action(reader, actions[0]);
		keep_action(reader, actions[1]);
	} else {
		int shown = end - at > 40 ? 40 : (int)(end - at);
		struct pp_message *m = pp_error(reader->diag, "E0613", span_of(reader, at, end),
		                                "csv row %zu, cell %" PRIu64 ": `%.*s` is not stage-action-microbatch",
		                                reader->row_count, cell, shown, at);
		pp_help(m, "write an action such as `2F0` (F, B, I or W), a pair such as `(0F7;7B3)OVERLAP_F_B`, or nothing");
		reader->failed = true;
	}
}

static void read_rows(struct reader *reader)
{
	const char *at = reader->source->text, *end = at + reader->source->length;
	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *line_end = newline ? newline : end;
		PP_PUSH(reader->arena, &reader->rows, &reader->row_count, &reader->row_capacity, struct pp_row);
		reader->action_count = reader->action_capacity = 0;
		for (uint64_t cell = 1; at <= line_end; cell++) {
			const char *comma = memchr(at, ',', (size_t)(line_end - at));
			const char *cell_end = comma ? comma : line_end;
			read_cell(reader, cell, at, cell_end);
			at = cell_end + 1;
		}
		at = newline ? newline + 1 : end;
	}
	while (reader->row_count && !reader->rows[reader->row_count - 1].count)
		reader->row_count--;
}

static void place_stage(struct reader *reader, struct pp_schedule *schedule, uint32_t rank,
                        const struct pp_action *action)
{
	uint32_t *home = &schedule->stage_rank[action->stage];
	if (*home == PP_NULL)
		*home = rank;
	if (*home == rank || reader->failed)
		return;
	struct pp_message *m = pp_error(reader->diag, "E0609", action->span, "csv row %u: stage %u is already on row %u",
	                                rank + 1, action->stage, *home + 1);
	pp_help(m, "a stage lives on one rank; rows are ranks");
	reader->failed = true;
}

static bool place_stages(struct reader *reader, struct pp_schedule *schedule)
{
	uint32_t missing = 0;
	if (schedule->stages <= reader->cells) { /* else some stage is on no row: at most one per cell is seen */
		schedule->stage_rank = PP_NEW_ARRAY(reader->arena, uint32_t, schedule->stages);
		memset(schedule->stage_rank, 0xff, schedule->stages * sizeof *schedule->stage_rank);
		for (uint32_t rank = 0; rank < schedule->ranks; rank++)
			for (uint32_t i = 0; i < schedule->rows[rank].count; i++)
				place_stage(reader, schedule, rank, &schedule->rows[rank].actions[i]);
		while (missing < schedule->stages && schedule->stage_rank[missing] != PP_NULL)
			missing++;
		if (missing == schedule->stages || reader->failed)
			return !reader->failed;
		pp_error(reader->diag, "E0609", PP_NO_SPAN, "stage %u is on no row, but stage %u is", missing,
		         schedule->stages - 1);
		return false;
	}
	pp_error(reader->diag, "E0609", PP_NO_SPAN, "there is a stage %u, but only %" PRIu64 " actions for %u stages",
	         schedule->stages - 1, reader->cells, schedule->stages);
	return false;
}

struct pp_schedule *pp_schedule_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag)
{
	struct reader reader = {.arena = arena, .source = source, .diag = diag};
	read_rows(&reader);
	if (reader.failed)
		return NULL;
	if (!reader.cells) {
		struct pp_message *m = pp_error(diag, "E0613", PP_NO_SPAN, "%s holds no actions", source->name);
		pp_help(m, "write one row per rank with cells such as `2F0`");
		return NULL;
	}
	struct pp_schedule *schedule = PP_NEW(arena, struct pp_schedule);
	*schedule = (struct pp_schedule){.name = "csv",
	                                 .ranks = (uint32_t)reader.row_count,
	                                 .stages = reader.stages,
	                                 .microbatches = reader.microbatches,
	                                 .rows = reader.rows};
	return place_stages(&reader, schedule) ? schedule : NULL;
}
