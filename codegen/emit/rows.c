/* A program's order as a `schedule NAME { memory <= … split { … } order { … } }` that compiles to it again: whatever
 * made it, it is fixed from then on. The rows: ir/rows_print.h. */
#include "emit.h"

#include "ir/order_program.h"
#include "ir/rows_print.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static void write_place(const struct pp_dump *dump, const uint32_t *stage_rank)
{
	const struct pp_program *program = dump->program;
	const char *place = pp_place_text(dump->arena, program->ranks, program->stage_count, stage_rank);
	if (program->vpp == 1 && strcmp(place, "loop") == 0)
		return; /* as if nothing is said */
	if (place[0] != '[')
		fprintf(dump->out, ", vpp = %u", program->vpp);
	fprintf(dump->out, ", place = %s", place);
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

/* ---- the split ------------------------------------------------------------------------------- */

/* A name of layers, and how many of them stages have had; PP_NULL: it has no numbers. */
struct seen {
	const char *name;
	size_t length;
	uint32_t next;
};

struct titles {
	struct pp_arena *arena;
	struct seen *seen;
	size_t count, capacity;
};

/* Would `split` take it for a cell of a row, F3? */
static bool is_cell(const char *name, size_t length)
{
	return strchr("FBIW", name[0]) && strspn(name + 1, "0123456789") >= length - 1;
}

/* One group of a title, `emb` or `block[3..5]`, which follows those before it. NULL: not such; else its end. */
static const char *read_group(struct titles *titles, const char *at)
{
	size_t length = 0;
	while (isalnum((unsigned char)at[length]) || at[length] == '_')
		length++;
	if (length == 0 || is_cell(at, length))
		return NULL;
	struct seen *seen = NULL;
	for (size_t i = 0; i < titles->count && !seen; i++)
		if (titles->seen[i].length == length && memcmp(titles->seen[i].name, at, length) == 0)
			seen = &titles->seen[i];
	unsigned first = 0, last = 0;
	int used = 0;
	const char *end = at + length;
	bool indexed = *end == '[';
	if (indexed && sscanf(end, "[%u..%u]%n", &first, &last, &used) < 2) {
		used = 0;
		if (sscanf(end, "[%u]%n", &first, &used) != 1)
			return NULL;
		last = first;
	}
	if ((indexed && used == 0) || last < first || (seen ? !indexed || seen->next != first : first != 0))
		return NULL;
	if (!seen) {
		seen = PP_PUSH(titles->arena, &titles->seen, &titles->count, &titles->capacity, struct seen);
		*seen = (struct seen){.name = at, .length = length};
	}
	seen->next = indexed ? last + 1 : PP_NULL;
	return end + used;
}

/* A title as a part of a `split`, groups without commas between them; NULL: it is for people only. */
static const char *split_part(struct titles *titles, const char *title)
{
	char *part = PP_NEW_ARRAY(titles->arena, char, strlen(title) + 1);
	size_t length = 0;
	for (const char *at = title;; at += 2) {
		const char *end = read_group(titles, at);
		if (!end || (*end && strncmp(end, ", ", 2) != 0))
			return NULL;
		memcpy(part + length, at, (size_t)(end - at));
		length += (size_t)(end - at);
		if (!*end)
			return part;
		part[length++] = ' ';
		at = end;
	}
}

/* The layers of the stages as `split` takes them, or NULL: titles do not name all of them. */
static const char **split_parts(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	struct titles titles = {.arena = dump->arena};
	const char **parts = PP_NEW_ARRAY(dump->arena, const char *, program->stage_count);
	for (uint32_t s = 0; s < program->stage_count; s++) {
		const struct pp_stage *stage = &program->stages[s];
		parts[s] = !stage->title                                                   ? NULL
		           : stage->layer_count == 0 && strcmp(stage->title, "empty") == 0 ? ""
		                                                                           : split_part(&titles, stage->title);
		if (!parts[s])
			return NULL;
	}
	return parts;
}

static void write_split(const struct pp_dump *dump, const char *const *parts)
{
	enum { WIDEST = 110 };
	size_t column = 0;
	fputs("  split { ", dump->out);
	for (uint32_t s = 0; s < dump->program->stage_count; s++) {
		bool wraps = s > 0 && column + strlen(parts[s]) > WIDEST;
		column = wraps ? 0 : column + strlen(parts[s]) + 3;
		fprintf(dump->out, "%s%s", s == 0 ? "" : wraps ? "\n        | " : *parts[s - 1] ? " | " : "| ", parts[s]);
	}
	fputs(" }\n", dump->out);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* What the schedule does not say: stages whose layers have no names, and the room where it has no bound. */
static void write_surroundings(const struct pp_dump *dump, bool split)
{
	const struct pp_program *program = dump->program;
	uint64_t room = 0;
	bool titled = !split;
	for (uint32_t s = 0; s < program->stage_count; s++)
		titled &= program->stages[s].title && *program->stages[s].title;
	for (uint32_t s = 0; s < program->stage_count && titled; s++)
		fprintf(dump->out, "%s%s", s ? " | " : "# stages: ", program->stages[s].title);
	if (titled)
		fputc('\n', dump->out);
	for (uint32_t r = 0; r < program->ranks && program->schedule_memory == 0; r++) {
		uint64_t free = program->rank[r].capacity - program->rank[r].reserve;
		room = program->rank[r].capacity && (room == 0 || free < room) ? free : room;
	}
	if (room)
		fprintf(dump->out, "# a rank could use %s: memory <= %" PRIu64 "B\n", pp_show_bytes(dump->arena, room), room);
}

/* In the largest unit that gives a whole number. */
static void write_memory(const struct pp_dump *dump)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	uint64_t memory = dump->program->schedule_memory;
	size_t unit = 0;
	if (memory == 0)
		return;
	for (; memory % 1024 == 0 && unit + 1 < sizeof units / sizeof *units; unit++)
		memory /= 1024;
	fprintf(dump->out, "  memory <= %" PRIu64 "%s\n", memory, units[unit]);
}

static void write_pair_cost(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	if (program->cost.pair_permille == 1000)
		return;
	fprintf(dump->out, "  overlap F&B = %u.%03u\n", program->cost.pair_permille / 1000,
	        program->cost.pair_permille % 1000);
}

void pp_emit_rows(const struct pp_dump *dump, const char *name)
{
	const struct pp_program *program = dump->program;
	struct pp_schedule schedule = {.ranks = program->ranks,
	                               .stages = program->stage_count,
	                               .microbatches = program->microbatches,
	                               .stage_rank = PP_NEW_ARRAY(dump->arena, uint32_t, program->stage_count),
	                               .rows = pp_order_rows_of(dump->arena, program, dump->named)};
	for (uint32_t s = 0; s < program->stage_count; s++)
		schedule.stage_rank[s] = program->stages[s].rank;
	fprintf(dump->out, "# for pp = %u", program->ranks);
	write_place(dump, schedule.stage_rank);
	fprintf(dump->out, ", microbatches = %u\n", program->microbatches);
	const char **parts = split_parts(dump);
	write_surroundings(dump, parts != NULL);
	fprintf(dump->out, "schedule %s {\n", name ? name : name_of(dump));
	write_memory(dump);
	if (parts)
		write_split(dump, parts);
	write_pair_cost(dump);
	pp_rows_print(dump->arena, &schedule, dump->out);
	fputs("}\n", dump->out);
}
