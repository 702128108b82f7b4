/* A program's order as a `schedule NAME { order { … } }` that compiles to it again: whatever made it, it is fixed from
 * then on.
 *
 * A row is written without numbers where every action takes the microbatch that the language gives it (the next of its
 * chunk; W the oldest that its chunk owes), and repeats are folded: A*4, then (A B C)*5. Else it has numbers, one cell
 * an action. */
#include "emit.h"

#include "ir/order_program.h"
#include "ir/spec.h"

#include <ctype.h>
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

static uint32_t chunks_of(const struct pp_program *program, uint32_t rank)
{
	uint32_t chunks = 0;
	for (uint32_t s = 0; s < program->stage_count; s++)
		chunks += program->stages[s].rank == rank;
	return chunks;
}

/* Microbatches that bare actions of a row would take. */
struct counting {
	uint32_t *forward, *backward; /* [chunks]: the next */
	uint32_t **owed;              /* [chunks]: microbatches whose I stands in the row, in turn */
	uint32_t *owed_count, *paid;  /* [chunks] */
};

static struct counting counting_create(const struct pp_dump *dump, uint32_t chunks)
{
	struct pp_arena *arena = dump->arena;
	struct counting counting = {.forward = PP_NEW_ARRAY(arena, uint32_t, chunks),
	                            .backward = PP_NEW_ARRAY(arena, uint32_t, chunks),
	                            .owed = PP_NEW_ARRAY(arena, uint32_t *, chunks),
	                            .owed_count = PP_NEW_ARRAY(arena, uint32_t, chunks),
	                            .paid = PP_NEW_ARRAY(arena, uint32_t, chunks)};
	for (uint32_t chunk = 0; chunk < chunks; chunk++)
		counting.owed[chunk] = PP_NEW_ARRAY(arena, uint32_t, dump->program->microbatches);
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

static bool counts_itself(const struct pp_dump *dump, const struct pp_row *row, uint32_t chunks)
{
	struct counting counting = counting_create(dump, chunks);
	for (uint32_t i = 0; i < row->count; i++)
		if (!is_next(&counting, &row->actions[i], dump->chunk[row->actions[i].stage]))
			return false;
	return true;
}

/* ---- folding --------------------------------------------------------------------------------- */

static const char *action_text(const struct pp_dump *dump, const struct pp_action *action, bool numbered,
                               uint32_t chunks)
{
	if (numbered)
		return pp_arena_printf(dump->arena, "%u%c%u", action->stage, letters[action->kind], action->mb);
	if (chunks == 1)
		return pp_arena_printf(dump->arena, "%c", letters[action->kind]);
	return pp_arena_printf(dump->arena, "%c.%u", letters[action->kind], dump->chunk[action->stage]);
}

static struct items list_row(const struct pp_dump *dump, const struct pp_row *row, bool numbered, uint32_t chunks)
{
	struct items list = {0};
	const char *before = "";
	for (uint32_t i = 0; i < row->count; i++) {
		const char *text = action_text(dump, &row->actions[i], numbered, chunks);
		if (*before)
			text = pp_arena_printf(dump->arena, "%s&%s", before, text);
		before = row->actions[i].paired ? text : "";
		if (!*before)
			push(dump->arena, &list, text);
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

static void write_row(const struct pp_dump *dump, const struct pp_row *row, uint32_t rank)
{
	uint32_t chunks = chunks_of(dump->program, rank);
	bool numbered = !counts_itself(dump, row, chunks);
	struct items list = list_row(dump, row, numbered, chunks);
	if (!numbered) {
		list = fold_runs(dump->arena, &list);
		list = fold_groups(dump->arena, &list);
	}
	size_t column = 3;
	fputs(rank ? "  |" : "   ", dump->out);
	for (size_t i = 0; i < list.count; i++) {
		if (column + 1 + list.items[i].length > WIDEST && column > 3) {
			fputs("\n   ", dump->out);
			column = 3;
		}
		fprintf(dump->out, " %s", list.items[i].text);
		column += 1 + list.items[i].length;
	}
	fputc('\n', dump->out);
}

static bool placed_by(const struct pp_program *program, enum pp_place place)
{
	for (uint32_t s = 0; s < program->stage_count; s++)
		if (program->stages[s].rank != pp_place_rank(place, s, program->ranks, program->vpp))
			return false;
	return program->stage_count == program->ranks * program->vpp;
}

static void write_place(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	static const char *const names[] = {[PP_PLACE_LOOP] = "loop", [PP_PLACE_V] = "v", [PP_PLACE_LINEAR] = "linear"};
	if (program->vpp == 1 && placed_by(program, PP_PLACE_LOOP))
		return; /* as if nothing is said */
	for (unsigned place = PP_PLACE_LOOP; place <= PP_PLACE_LINEAR; place++)
		if (placed_by(program, (enum pp_place)place)) {
			fprintf(dump->out, ", vpp = %u, place = %s", program->vpp, names[place]);
			return;
		}
	fputs(", place = [", dump->out);
	for (uint32_t s = 0; s < program->stage_count; s++)
		fprintf(dump->out, "%s%u", s ? ", " : "", program->stages[s].rank);
	fputs("]", dump->out);
}

/* NAME_rows where the name of the schedule makes one. */
static const char *name_of(const struct pp_dump *dump)
{
	const char *name = dump->program->schedule_name;
	bool plain = name && isalpha((unsigned char)name[0]) && strlen(name) < 40;
	for (const char *at = name; plain && *at; at++)
		plain = isalnum((unsigned char)*at) || *at == '_';
	return plain ? pp_arena_printf(dump->arena, "%s_rows", name) : "frozen";
}

static void write_pair_cost(const struct pp_dump *dump, const struct pp_row *rows)
{
	const struct pp_program *program = dump->program;
	bool pairs = false;
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < rows[r].count; i++)
			pairs |= rows[r].actions[i].paired;
	if (!pairs || program->cost.pair_permille == 1000)
		return;
	fprintf(dump->out, "  overlap F&B = %u.%03u\n", program->cost.pair_permille / 1000,
	        program->cost.pair_permille % 1000);
}

void pp_emit_rows(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	const struct pp_row *rows = pp_order_rows_of(dump->arena, program, dump->named);
	fprintf(dump->out, "# for pp = %u", program->ranks);
	write_place(dump);
	fprintf(dump->out, ", microbatches = %u\nschedule %s {\n", program->microbatches, name_of(dump));
	write_pair_cost(dump, rows);
	fputs("  order {\n", dump->out);
	for (uint32_t r = 0; r < program->ranks; r++)
		write_row(dump, &rows[r], r);
	fputs("  }\n}\n", dump->out);
}
