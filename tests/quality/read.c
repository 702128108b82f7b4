/* The tables of tests/data/quality, whose columns are named in their first lines. */
#include "quality.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 32 };

const char *const quality_shape_name[] = {"linear", "v", "loop 2", "loop 4"};

struct table {
	struct pp_arena *arena;
	const char *path;
	uint32_t line;
	char *names[MOST_COLUMNS], *cells[MOST_COLUMNS];
	unsigned columns;
};

static void wrong(const struct table *table, const char *what, const char *cell)
{
	fprintf(stderr, "%s:%" PRIu32 ": %s: `%s`\n", table->path, table->line, what, cell);
	exit(3);
}

static unsigned split_line(char *line, char **cells)
{
	unsigned count = 0;
	line[strcspn(line, "\r\n")] = 0;
	for (char *at = line; at && count < MOST_COLUMNS; count++) {
		char *tab = strchr(at, '\t');
		cells[count] = at;
		if (tab)
			*tab++ = 0;
		at = tab;
	}
	return count;
}

static const char *cell(const struct table *table, const char *name)
{
	for (unsigned i = 0; i < table->columns; i++)
		if (strcmp(table->names[i], name) == 0)
			return table->cells[i];
	wrong(table, "no such column", name);
	return "";
}

/* A decimal number times 1000, rounded to the nearest. */
static uint64_t thousandths(const struct table *table, const char *text, char **end)
{
	uint64_t value = 0, places = 0, digits = 0;
	bool fraction = false;
	const char *at = text;
	for (; (*at >= '0' && *at <= '9') || (*at == '.' && !fraction); at++) {
		if (*at == '.') {
			fraction = true;
			continue;
		}
		value = value * 10 + (uint64_t)(*at - '0');
		places += fraction;
		digits++;
	}
	if (!digits)
		wrong(table, "no number", text);
	for (; places < 3; places++)
		value *= 10;
	uint64_t scale = 1;
	for (; places > 3; places--)
		scale *= 10;
	*end = (char *)(uintptr_t)at;
	return (value + scale / 2) / scale;
}

static uint64_t number(const struct table *table, const char *name)
{
	char *end;
	uint64_t value = thousandths(table, cell(table, name), &end);
	if (*end)
		wrong(table, "not a number", cell(table, name));
	return value;
}

/* One time for all ranks, or one for each: "10", "[12, 10]", "30 29". */
static void times(const struct table *table, const char *name, uint32_t ranks, uint64_t *out)
{
	const char *at = cell(table, name);
	uint32_t count = 0;
	while (*at && count < QUALITY_MOST_RANKS) {
		char *end;
		at += strspn(at, "[], ");
		if (!*at)
			break;
		out[count++] = thousandths(table, at, &end);
		at = end;
	}
	if (count != 1 && count != ranks)
		wrong(table, "times of one rank or of each", cell(table, name));
	for (; count < ranks; count++)
		out[count] = out[0];
}

static char *copy(const struct table *table, const char *text)
{
	return pp_arena_copy(table->arena, text, strlen(text));
}

/* ---- published schedules --------------------------------------------------------------------- */

/* What is given back at the end of I. The last: activations of 34 h + 5 a s bytes, of which 32 h stay. */
static uint64_t early_part(const struct table *table, const char *model, const char *costs)
{
	if (strcmp(model, "M_W=0.5M_B") == 0)
		return QUALITY_ACT / 2;
	if (strcmp(model, "GPT 34h+5as/-32h") == 0) {
		uint64_t h = strstr(costs, "h=2304") ? 2304 : 4096, a = strstr(costs, "h=2304") ? 24 : 32;
		return QUALITY_ACT - QUALITY_ACT * 32 * h / (34 * h + 5 * a * 1024);
	}
	static const char *const whole[] = {"M_W=M_B", "(fixed pattern)", "", "measured MB F/B/W deltas"};
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		if (strcmp(model, whole[i]) == 0)
			return 0;
	wrong(table, "unknown memory model", model);
	return 0;
}

static void read_published(const struct table *table, struct quality_row *row)
{
	const char *limit = cell(table, "mem_limit_device_stage_acts"), *model = cell(table, "mem_model_in_scheduler");
	bool measured = strcmp(model, "measured MB F/B/W deltas") == 0; /* its own limit is not in activations */
	*row = (struct quality_row){.schedule = copy(table, cell(table, "schedule")),
	                            .costs = copy(table, cell(table, "cost_set")),
	                            .line = table->line,
	                            .ranks = (uint32_t)(number(table, "p") / 1000),
	                            .microbatches = (uint32_t)(number(table, "m") / 1000),
	                            .chunks = (uint32_t)(number(table, "v_chunks_per_device") / 1000),
	                            .hop = number(table, "comm"),
	                            .makespan = number(table, "makespan"),
	                            .span = UINT64_MAX};
	if (row->ranks > QUALITY_MOST_RANKS)
		wrong(table, "too many ranks", cell(table, "p"));
	times(table, "F", row->ranks, row->forward);
	times(table, "B", row->ranks, row->input);
	times(table, "W", row->ranks, row->weight);
	row->early = early_part(table, model, row->costs);
	row->limit = *limit && !measured ? copy(table, limit) : NULL;
	row->room = strcmp(limit, "inf") == 0 ? PP_ROOM_UNLIMITED
	            : row->limit              ? number(table, "mem_limit_device_stage_acts")
	                                      : number(table, "peak_act_Wrelease_max");
	if (strncmp(row->schedule, "ZB-auto", 7) == 0 || strcmp(row->schedule, "ZB-V") == 0)
		row->span = number(table, "longest_stage_time");
	row->reported = strncmp(row->schedule, "Seq1F1B", 7) == 0;
}

/* ---- proven optima --------------------------------------------------------------------------- */

static void read_exact(const struct table *table, struct quality_row *row)
{
	const char *limit = cell(table, "mem_limit_units(op activations)"), *value = cell(table, "exact_or_best_found");
	bool v = strcmp(cell(table, "placement"), "V") == 0, span = strcmp(cell(table, "objective"), "longest") == 0;
	*row = (struct quality_row){.schedule = v ? "optimum, v" : "optimum, linear",
	                            .costs = copy(table, cell(table, "split")),
	                            .line = table->line,
	                            .ranks = (uint32_t)(number(table, "p") / 1000),
	                            .microbatches = (uint32_t)(number(table, "m") / 1000),
	                            .chunks = v ? 2 : 1,
	                            .hop = number(table, "comm"),
	                            .limit = copy(table, limit),
	                            .exact = true,
	                            .fused = strcmp(cell(table, "split"), "fused B+W") == 0,
	                            .proven = strcmp(cell(table, "proven_optimal"), "False") != 0,
	                            .shape = v ? QUALITY_V : QUALITY_LINEAR,
	                            .makespan = UINT64_MAX,
	                            .span = UINT64_MAX};
	if (row->ranks > QUALITY_MOST_RANKS)
		wrong(table, "too many ranks", cell(table, "p"));
	times(table, "F", row->ranks, row->forward);
	times(table, "B", row->ranks, row->input);
	times(table, "W", row->ranks, row->weight);
	row->room = strcmp(limit, "inf") == 0 ? PP_ROOM_UNLIMITED : number(table, "mem_limit_units(op activations)");
	/* These count chunks: an activation and a time of one each. */
	for (uint32_t r = 0; v && r < row->ranks; r++) {
		row->forward[r] *= 2;
		row->input[r] *= 2;
		row->weight[r] *= 2;
	}
	if (v && row->room != PP_ROOM_UNLIMITED)
		row->room /= 2;
	*(span ? &row->span : &row->makespan) =
	    *value ? number(table, "exact_or_best_found") : number(table, "repo_heuristic_value");
}

static void read_table(struct pp_arena *arena, const char *path, bool exact, struct quality_rows *rows)
{
	struct table table = {.arena = arena, .path = path, .line = 1};
	static char head[4096], line[4096];
	FILE *file = fopen(path, "r");
	if (!file || !fgets(head, sizeof head, file)) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(3);
	}
	table.columns = split_line(head, table.names);
	while (fgets(line, sizeof line, file)) {
		table.line++;
		memset(table.cells, 0, sizeof table.cells);
		if (split_line(line, table.cells) != table.columns)
			wrong(&table, "another number of columns", line);
		struct quality_row *row = PP_PUSH(arena, &rows->items, &rows->count, &rows->capacity, struct quality_row);
		if (exact)
			read_exact(&table, row);
		else
			read_published(&table, row);
	}
	fclose(file);
}

struct quality_rows quality_read(struct pp_arena *arena, const char *folder)
{
	struct quality_rows rows = {0};
	read_table(arena, pp_arena_printf(arena, "%s/schedule_golden.tsv", folder), false, &rows);
	read_table(arena, pp_arena_printf(arena, "%s/schedule_exact.tsv", folder), true, &rows);
	return rows;
}
