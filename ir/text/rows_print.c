/* Rows of a schedule as text: rows_print.h.
 *
 * A row is written without numbers where every action takes the microbatch that the language gives it (the next of its
 * chunk; W the oldest that its chunk owes), and repeats are folded: A*4, then (A B C)*5. Else it has numbers, one cell
 * an action. */
#include "ir/rows_print.h"
#include "ir/spec.h"

#include <string.h>

enum { WIDEST = 110, LONGEST_PERIOD = 64 };

/* One text of a row: an action or a pair, perhaps repeated. */
struct item {
	const char *text;
	size_t length;
};

struct items {
	struct item *items;
	size_t count, capacity;
};

static const char letters[] = "FBIW";

/* A schedule being written. */
struct writer {
	struct pp_arena *arena;
	const struct pp_schedule *schedule;
	uint32_t *chunk;  /* [stages]: ascending stages of a rank */
	uint32_t *chunks; /* [ranks] */
	FILE *out;
};

static void push(struct pp_arena *arena, struct items *list, const char *text)
{
	*PP_PUSH(arena, &list->items, &list->count, &list->capacity, struct item) =
	    (struct item){.text = text, .length = strlen(text)};
}

static bool same(const struct item *a, const struct item *b)
{
	return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Microbatches that bare actions of a row would take. */
struct counting {
	uint32_t *forward, *backward; /* [chunks]: the next */
	uint32_t **owed;              /* [chunks]: microbatches whose I stands in the row, in turn */
	uint32_t *owed_count, *paid;  /* [chunks] */
};

static struct counting counting_create(const struct writer *writer, uint32_t chunks)
{
	struct pp_arena *arena = writer->arena;
	struct counting counting = {.forward = PP_NEW_ARRAY(arena, uint32_t, chunks),
	                            .backward = PP_NEW_ARRAY(arena, uint32_t, chunks),
	                            .owed = PP_NEW_ARRAY(arena, uint32_t *, chunks),
	                            .owed_count = PP_NEW_ARRAY(arena, uint32_t, chunks),
	                            .paid = PP_NEW_ARRAY(arena, uint32_t, chunks)};
	for (uint32_t chunk = 0; chunk < chunks; chunk++)
		counting.owed[chunk] = PP_NEW_ARRAY(arena, uint32_t, writer->schedule->microbatches);
	return counting;
}

static bool is_next(struct counting *counting, const struct pp_action *action, uint32_t chunk)
{
	switch ((enum pp_action_kind)action->kind) {
	case PP_F:
		return action->mb == counting->forward[chunk]++;
	case PP_I:
		counting->owed[chunk][counting->owed_count[chunk]++] = action->mb;
		return action->mb == counting->backward[chunk]++;
	case PP_B:
		return action->mb == counting->backward[chunk]++;
	case PP_W:
		return counting->paid[chunk] < counting->owed_count[chunk] &&
		       action->mb == counting->owed[chunk][counting->paid[chunk]++];
	case PP_ACTION_KINDS:
		break;
	}
	return false;
}

static bool counts_itself(const struct writer *writer, const struct pp_row *row, uint32_t chunks)
{
	struct counting counting = counting_create(writer, chunks);
	for (uint32_t i = 0; i < row->count; i++)
		if (!is_next(&counting, &row->actions[i], writer->chunk[row->actions[i].stage]))
			return false;
	return true;
}

/* ---- folding --------------------------------------------------------------------------------- */

static const char *action_text(const struct writer *writer, const struct pp_action *action, bool numbered,
                               uint32_t chunks)
{
	if (numbered)
		return pp_arena_printf(writer->arena, "%u%c%u", action->stage, letters[action->kind], action->mb);
	if (chunks == 1)
		return pp_arena_printf(writer->arena, "%c", letters[action->kind]);
	return pp_arena_printf(writer->arena, "%c.%u", letters[action->kind], writer->chunk[action->stage]);
}

static struct items list_row(const struct writer *writer, const struct pp_row *row, bool numbered, uint32_t chunks)
{
	struct items list = {0};
	const char *before = "";
	for (uint32_t i = 0; i < row->count; i++) {
		const char *text = action_text(writer, &row->actions[i], numbered, chunks);
		if (*before)
			text = pp_arena_printf(writer->arena, "%s&%s", before, text);
		before = row->actions[i].paired ? text : "";
		if (!*before)
			push(writer->arena, &list, text);
	}
	return list;
}

/* A A A -> A*3; a pair stands in parentheses then. */
static struct items fold_runs(struct pp_arena *arena, const struct items *list)
{
	struct items folded = {0};
	for (size_t i = 0, end; i < list->count; i = end) {
		for (end = i + 1; end < list->count && same(&list->items[i], &list->items[end]);)
			end++;
		const char *text = list->items[i].text;
		if (end - i > 1)
			text = pp_arena_printf(arena, strchr(text, '&') ? "(%s)*%zu" : "%s*%zu", text, end - i);
		push(arena, &folded, text);
	}
	return folded;
}

static size_t repeats_at(const struct items *list, size_t at, size_t period)
{
	size_t length = period;
	while (at + length < list->count && same(&list->items[at + length], &list->items[at + length - period]))
		length++;
	return length / period;
}

/* A B A B A B -> (A B)*3, for the period that folds most. */
static struct items fold_groups(struct pp_arena *arena, const struct items *list)
{
	struct items folded = {0};
	for (size_t i = 0; i < list->count;) {
		size_t best = 1, times = 1;
		for (size_t period = 2; period <= LONGEST_PERIOD && i + 2 * period <= list->count; period++) {
			size_t repeats = repeats_at(list, i, period);
			if (repeats > 1 && period * (repeats - 1) > best * (times - 1)) {
				best = period;
				times = repeats;
			}
		}
		const char *text = list->items[i].text;
		for (size_t k = 1; times > 1 && k < best; k++)
			text = pp_arena_printf(arena, "%s %s", text, list->items[i + k].text);
		push(arena, &folded, times > 1 ? pp_arena_printf(arena, "(%s)*%zu", text, times) : text);
		i += best * times;
	}
	return folded;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_row(const struct writer *writer, const struct pp_row *row, uint32_t rank)
{
	uint32_t chunks = writer->chunks[rank];
	bool numbered = !counts_itself(writer, row, chunks);
	struct items list = list_row(writer, row, numbered, chunks);
	if (!numbered) {
		list = fold_runs(writer->arena, &list);
		list = fold_groups(writer->arena, &list);
	}
	size_t column = 3;
	fputs(rank ? "  |" : "   ", writer->out);
	for (size_t i = 0; i < list.count; i++) {
		if (column + 1 + list.items[i].length > WIDEST && column > 3) {
			fputs("\n   ", writer->out);
			column = 3;
		}
		fprintf(writer->out, " %s", list.items[i].text);
		column += 1 + list.items[i].length;
	}
	fputc('\n', writer->out);
}

void pp_rows_print(struct pp_arena *arena, const struct pp_schedule *schedule, FILE *out)
{
	struct writer writer = {.arena = arena,
	                        .schedule = schedule,
	                        .chunk = PP_NEW_ARRAY(arena, uint32_t, schedule->stages),
	                        .chunks = PP_NEW_ARRAY(arena, uint32_t, schedule->ranks),
	                        .out = out};
	for (uint32_t s = 0; s < schedule->stages; s++)
		writer.chunk[s] = writer.chunks[schedule->stage_rank[s]]++;
	fputs("  order {\n", out);
	for (uint32_t r = 0; r < schedule->ranks; r++)
		write_row(&writer, &schedule->rows[r], r);
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
