/* Printing stages. Times are ms per microbatch, memory is MiB; one decimal more than people need. */
#include "stages_print.h"

#include <string.h>

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1024.0 * 1024);
}

const char *pp_layers_title(struct pp_arena *arena, const struct pp_model *model, uint32_t first, uint32_t count)
{
	const char *title = count ? "" : "(empty)";
	for (uint32_t i = first; i < first + count;) {
		const struct pp_layer *layer = &model->layers[i];
		uint32_t end = i + 1;
		while (end < first + count && layer->indexed && model->layers[end].name == layer->name &&
		       model->layers[end].index == model->layers[end - 1].index + 1)
			end++;
		const char *part =
		    end > i + 1 ? pp_arena_printf(arena, "%s[%u..%u]", layer->name, layer->index, model->layers[end - 1].index)
		                : pp_layer_title(arena, layer);
		title = *title ? pp_arena_printf(arena, "%s, %s", title, part) : part;
		i = end;
	}
	return title;
}

static void print_row(FILE *out, const char *const *cells, const size_t *widths, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		bool last = i + 1 == count;
		if (i < 2)
			fprintf(out, "%*s  ", (int)widths[i], cells[i]); /* numbers of stage and rank to the right */
		else if (last)
			fprintf(out, "%s\n", cells[i]);
		else
			fprintf(out, "%*s  ", (int)widths[i], cells[i]);
	}
}

enum { COLUMNS = 9 };

static void stage_cells(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stage_plan *stage,
                        uint32_t s, const char **cells)
{
	cells[0] = pp_arena_printf(arena, "%u", s);
	cells[1] = pp_arena_printf(arena, "%u", stage->rank);
	cells[2] = pp_arena_printf(arena, "%llu", (unsigned long long)stage->params);
	cells[3] = pp_arena_printf(arena, "%.2f", mib(stage->static_bytes));
	cells[4] = pp_arena_printf(arena, "%.3f", mib(stage->stash_bytes));
	cells[5] = pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_F]));
	cells[6] = pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_I]));
	cells[7] = pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_W]));
	cells[8] = pp_layers_title(arena, &spec->model, stage->first_layer, stage->layer_count);
}

static void print_table(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	static const char *const head[COLUMNS] = {"stage", "rank", "params", "states MiB", "stash MiB",
	                                          "F ms",  "I ms", "W ms",   "layers"};
	const char *(*cells)[COLUMNS] = pp_arena_alloc(arena, stages->count, sizeof *cells);
	size_t widths[COLUMNS];
	for (size_t c = 0; c < COLUMNS; c++)
		widths[c] = strlen(head[c]);
	for (uint32_t s = 0; s < stages->count; s++) {
		stage_cells(arena, spec, &stages->items[s], s, cells[s]);
		for (size_t c = 0; c < COLUMNS; c++)
			widths[c] = strlen(cells[s][c]) > widths[c] ? strlen(cells[s][c]) : widths[c];
	}
	print_row(out, head, widths, COLUMNS);
	for (uint32_t s = 0; s < stages->count; s++)
		print_row(out, cells[s], widths, COLUMNS);
}

/* Load (F + B of one microbatch) per rank, the slowest first reason for a slow step. */
static void print_loads(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	uint64_t *loads = PP_NEW_ARRAY(arena, uint64_t, spec->parallel.pp), total = 0;
	uint32_t slowest = 0;
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *stage = &stages->items[s];
		loads[stage->rank] += stage->ticks[PP_PHASE_F] + stage->ticks[PP_PHASE_B];
	}
	fputs("\nload of a rank per microbatch, ms:", out);
	for (uint32_t r = 0; r < spec->parallel.pp; r++) {
		fprintf(out, " %.4f", ms(loads[r]));
		total += loads[r];
		slowest = loads[r] > loads[slowest] ? r : slowest;
	}
	double mean = (double)total / spec->parallel.pp;
	fprintf(out, "\nbottleneck: rank %u, %.4f ms", slowest, ms(loads[slowest]));
	if (mean > 0)
		fprintf(out, " = %.1f %% above the mean", 100 * ((double)loads[slowest] / mean - 1));
	if (stages->exact)
		fputs("; no other split into contiguous stages has a faster slowest rank\n", out);
	else
		fprintf(out, "; no split goes below %.4f ms (%.1f %% less)\n", ms(stages->bound),
		        100 * (1 - (double)stages->bound / (double)(loads[slowest] ? loads[slowest] : 1)));
}

void pp_stages_print(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	print_table(arena, spec, stages, out);
	print_loads(arena, spec, stages, out);
}
