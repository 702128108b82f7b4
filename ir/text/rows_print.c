/* Rows of a schedule as text: rows_print.h. */
#include "ir/rows_print.h"
#include "ir/spec.h"

static const char letters[PP_ACTION_KINDS] = {'F', 'B', 'I', 'W'};

enum { WIDTH = 118, INDENT = 4 };

/* Actions joined by `&` stand together. */
static uint32_t print_turn(const struct pp_row *row, uint32_t at, FILE *out, int *column)
{
	char text[64];
	for (bool more = true; more && at < row->count; at++) {
		const struct pp_action *action = &row->actions[at];
		more = action->paired && at + 1 < row->count;
		int length =
		    snprintf(text, sizeof text, "%u%c%u%s", action->stage, letters[action->kind], action->mb, more ? "&" : "");
		fputs(text, out);
		*column += length;
	}
	return at;
}

/* Characters that the turn at `at` needs at most. */
static int turn_width(const struct pp_row *row, uint32_t at)
{
	char text[64];
	int width = 0;
	for (bool more = true; more && at < row->count; at++) {
		const struct pp_action *action = &row->actions[at];
		more = action->paired && at + 1 < row->count;
		width += snprintf(text, sizeof text, "%u%c%u&", action->stage, letters[action->kind], action->mb);
	}
	return width;
}

static void print_row(const struct pp_row *row, FILE *out)
{
	int column = INDENT;
	fputs("    ", out);
	for (uint32_t at = 0; at < row->count;) {
		if (column + turn_width(row, at) > WIDTH) {
			fputs("\n    ", out);
			column = INDENT;
		} else if (column > INDENT) {
			fputc(' ', out);
			column++;
		}
		at = print_turn(row, at, out, &column);
	}
}

static void print_stages(const struct pp_schedule *schedule, uint32_t rank, FILE *out)
{
	const char *comma = "";
	fprintf(out, "    # rank %u: stages ", rank);
	for (uint32_t stage = 0; stage < schedule->stages; stage++) {
		if (schedule->stage_rank[stage] != rank)
			continue;
		fprintf(out, "%s%u", comma, stage);
		comma = ", ";
	}
	fputc('\n', out);
}

void pp_rows_print(const struct pp_schedule *schedule, FILE *out)
{
	fputs("  order {\n", out);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		print_stages(schedule, rank, out);
		print_row(&schedule->rows[rank], out);
		fputs(rank + 1 < schedule->ranks ? " |\n" : "\n", out);
	}
	fputs("  }\n", out);
}

const char *pp_place_text(struct pp_arena *arena, uint32_t ranks, uint32_t stages, const uint32_t *stage_rank)
{
	static const char *const names[] = {[PP_PLACE_LOOP] = "loop", [PP_PLACE_V] = "v", [PP_PLACE_LINEAR] = "linear"};
	for (int place = PP_PLACE_LOOP; stages % ranks == 0 && place <= PP_PLACE_LINEAR; place++) {
		uint32_t at = 0;
		while (at < stages && stage_rank[at] == pp_place_rank((enum pp_place)place, at, ranks, stages / ranks))
			at++;
		if (at == stages)
			return names[place];
	}
	char *text = pp_arena_alloc(arena, (size_t)stages + 1, 12), *at = text;
	for (uint32_t stage = 0; stage < stages; stage++)
		at += snprintf(at, 13, "%s%u", stage ? ", " : "[", stage_rank[stage]);
	snprintf(at, 2, "]");
	return text;
}
