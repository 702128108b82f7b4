/* Numbers and tables for people. */
#include "figures.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

struct pp_time_unit pp_time_unit_for(uint64_t ns)
{
	static const struct pp_time_unit units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}};
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (ns / units[i].ns >= 10)
			return units[i];
	return (struct pp_time_unit){"ns", 1};
}

/* A decimal without zeros at its end. */
static const char *trimmed(char *text)
{
	if (!strchr(text, '.'))
		return text;
	char *end = text + strlen(text);
	while (end[-1] == '0')
		*--end = '\0';
	if (end[-1] == '.')
		end[-1] = '\0';
	return text;
}

const char *pp_show_time(struct pp_arena *arena, uint64_t ns, struct pp_time_unit unit)
{
	return trimmed(pp_arena_printf(arena, "%.3f", (double)ns / (double)unit.ns));
}

const char *pp_show_duration(struct pp_arena *arena, uint64_t ns)
{
	struct pp_time_unit unit = pp_time_unit_for(ns);
	return pp_arena_printf(arena, "%s%s", pp_show_time(arena, ns, unit), unit.name);
}

static const char *bytes_with(struct pp_arena *arena, uint64_t bytes, int decimals)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
	if (bytes < 1024)
		return pp_arena_printf(arena, "%" PRIu64 " B", bytes);
	double value = (double)bytes / 1024;
	size_t unit = 0;
	for (; value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]; unit++)
		value /= 1024;
	return pp_arena_printf(arena, "%.*f %s", decimals, value, units[unit]);
}

const char *pp_show_bytes(struct pp_arena *arena, uint64_t bytes)
{
	return bytes_with(arena, bytes, 1);
}

const char *pp_show_bytes_beside(struct pp_arena *arena, uint64_t bytes, uint64_t other)
{
	for (int decimals = 1; bytes != other && decimals <= 3; decimals++) {
		const char *text = bytes_with(arena, bytes, decimals);
		if (strcmp(text, bytes_with(arena, other, decimals)) != 0)
			return text;
	}
	return bytes == other ? pp_show_bytes(arena, bytes) : pp_arena_printf(arena, "%" PRIu64 " B", bytes);
}

/* Three significant digits and a letter. */
static const char *scaled(struct pp_arena *arena, double value, const char *const *units, size_t unit_count)
{
	size_t unit = 0;
	for (; value >= 999.5 && unit + 1 < unit_count; unit++)
		value /= 1000;
	int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	return pp_arena_printf(arena, "%.*f%s", decimals, value, units[unit]);
}

const char *pp_show_count(struct pp_arena *arena, uint64_t count)
{
	static const char *const units[] = {"", "k", "M", "G", "T"};
	return scaled(arena, (double)count, units, sizeof units / sizeof units[0]);
}

const char *pp_show_rate(struct pp_arena *arena, uint64_t per_second, const char *unit)
{
	static const char *const units[] = {" ", " k", " M", " G", " T", " P"};
	return pp_arena_printf(arena, "%s%s", scaled(arena, (double)per_second, units, sizeof units / sizeof units[0]),
	                       unit);
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct pp_table pp_table_begin(struct pp_arena *arena, unsigned columns, uint32_t left)
{
	return (struct pp_table){.arena = arena, .columns = columns, .left = left};
}

void pp_table_cell(struct pp_table *table, const char *text)
{
	*PP_PUSH(table->arena, &table->cells, &table->count, &table->capacity, const char *) = text;
}

void pp_table_cell_uint(struct pp_table *table, uint64_t value)
{
	pp_table_cell(table, pp_arena_printf(table->arena, "%" PRIu64, value));
}

static int display_width(const char *text)
{
	int width = 0;
	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

void pp_table_print(const struct pp_table *table, FILE *out)
{
	int widths[32] = {0};
	for (size_t i = 0; i < table->count; i++) {
		int width = display_width(table->cells[i]);
		if (width > widths[i % table->columns])
			widths[i % table->columns] = width;
	}
	for (size_t i = 0; i < table->count; i++) {
		unsigned column = (unsigned)(i % table->columns);
		const char *cell = table->cells[i];
		int padding = widths[column] - display_width(cell);
		bool left = table->left >> column & 1, last = column + 1 == table->columns;
		fprintf(out, "%s%*s%s", column ? "  " : " ", left ? 0 : padding, "", cell);
		if (left && !last)
			fprintf(out, "%*s", padding, "");
		if (last)
			fputc('\n', out);
	}
}
