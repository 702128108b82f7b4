/* Numbers and tables for people. Texts lie in the arena. */
#ifndef PP_FIGURES_H
#define PP_FIGURES_H

#include "arena.h"

#include <stdint.h>
#include <stdio.h>

/* Unit in which times are printed, chosen by the length of the step: one unit per output. */
struct pp_time_unit {
	const char *name; /* ns us ms s */
	uint64_t ns;
};

struct pp_time_unit pp_time_unit_for(uint64_t ns);

/* In a unit, without its name, at most three decimals and none that are 0. */
const char *pp_show_time(struct pp_arena *arena, uint64_t ns, struct pp_time_unit unit);
const char *pp_show_duration(struct pp_arena *arena, uint64_t ns); /* in a unit of its own: 12.5ms */
const char *pp_show_bytes(struct pp_arena *arena, uint64_t bytes); /* 8.0 KiB */
/* With as many decimals as it takes to tell it from `other`, which differs. */
const char *pp_show_bytes_beside(struct pp_arena *arena, uint64_t bytes, uint64_t other);
const char *pp_show_count(struct pp_arena *arena, uint64_t count);                       /* 116k */
const char *pp_show_rate(struct pp_arena *arena, uint64_t per_second, const char *unit); /* 12.0 GB/s */

/* A table with aligned columns: numbers to the right, words to the left. */
struct pp_table {
	struct pp_arena *arena;
	const char **cells;
	size_t count, capacity;
	unsigned columns;
	uint32_t left; /* bit per column that is aligned to the left */
};

struct pp_table pp_table_begin(struct pp_arena *arena, unsigned columns, uint32_t left);
void pp_table_cell(struct pp_table *table, const char *text);
void pp_table_cell_uint(struct pp_table *table, uint64_t value);
void pp_table_print(const struct pp_table *table, FILE *out);

#endif
