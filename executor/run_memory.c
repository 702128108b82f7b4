/* Memory outside of the arenas: run_memory.h. The arenas of a process have all been touched after a step, which
 * --canary shows; what is resident beyond them lies outside. */
#include "run_memory.h"

#include "ir/figures.h"
#include "ir/outside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Of one process. */
struct holding {
	uint64_t arenas, resident; /* at the end */
	struct pp_memory_marks marks;
	uint64_t data_bytes;
	struct pp_device_holding device;
};

/* All ranks of this process. */
static uint64_t arenas_here(const struct pp_report_link *link, bool apart)
{
	const struct pp_program *program = link->interp->program;
	if (link->interp->device_ops->own_memory)
		return 0;
	if (apart)
		return program->rank[link->interp->coord.pp].arena_bytes;
	uint64_t bytes = 0;
	for (uint32_t r = 0; r < program->ranks; r++)
		bytes += program->rank[r].arena_bytes * (pp_grid_world(program) / program->ranks);
	return bytes;
}

static uint64_t data_bytes(const struct pp_program *program, const struct pp_run_options *options)
{
	const char *path = options->data_path                    ? options->data_path
	                   : program->train.data == PP_DATA_FILE ? program->train.data_path
	                                                         : NULL;
	struct stat info;
	return path && stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static uint64_t outside_of(const struct holding *holding)
{
	return holding->resident > holding->arenas ? holding->resident - holding->arenas : 0;
}

static uint64_t growth(uint64_t before, uint64_t after)
{
	return after > before ? after - before : 0;
}

/* Of the terms that a start passes one after the other. */
static uint64_t measured_term(const struct holding *holding, enum pp_outside term)
{
	const struct pp_memory_marks *marks = &holding->marks;
	switch (term) {
	case PP_OUTSIDE_PROCESS:
		return marks->begin;
	case PP_OUTSIDE_LIBRARY:
		return growth(marks->begin, marks->messaging);
	case PP_OUTSIDE_PROGRAM:
		return growth(marks->messaging, marks->program);
	case PP_OUTSIDE_TRANSPORT:
		return growth(marks->program, marks->transport);
	case PP_OUTSIDE_RANKS:
	case PP_OUTSIDE_BLAS:
	case PP_OUTSIDE_DATA:
	case PP_OUTSIDE_RECORDS:
	case PP_OUTSIDE_SAVING:
	case PP_OUTSIDE_COUNT:
		return 0;
	}
	return 0;
}

static void put_row(struct pp_table *table, const char *name, uint64_t predicted, const char *measured,
                    const char *formula)
{
	pp_table_cell(table, name);
	pp_table_cell(table, pp_show_bytes(table->arena, predicted));
	pp_table_cell(table, measured);
	pp_table_cell(table, formula);
}

static void print_holding(const struct pp_report_link *link, const struct pp_run_options *options, uint64_t kept_steps,
                          uint32_t world, const struct holding *holding, FILE *out)
{
	const struct pp_program *program = link->interp->program;
	struct pp_arena *arena = pp_arena_scratch(options->arena);
	struct pp_outside_run run = {.apart = options->apart,
	                             .mpi = options->mpi,
	                             .pp = pp_grid_coord(program, world).pp,
	                             .data_bytes = holding->data_bytes,
	                             .kept_steps = kept_steps,
	                             .canary = options->canary,
	                             .saves = options->save_path || program->train.checkpoint_every};
	uint64_t bytes[PP_OUTSIDE_COUNT], total = 0, rest = growth(holding->marks.transport, outside_of(holding));
	struct pp_table table = pp_table_begin(arena, 4, 1 | 8);
	pp_outside_predict(program, &run, bytes);
	pp_table_cell(&table, "memory");
	pp_table_cell(&table, "predicted");
	pp_table_cell(&table, "measured");
	pp_table_cell(&table, "formula");
	if (!link->interp->device_ops->own_memory)
		put_row(&table, run.apart ? "arena" : "arenas", holding->arenas, "touched", "planned");
	for (unsigned term = 0; term < PP_OUTSIDE_COUNT; term++) {
		total += bytes[term];
		if (bytes[term] == 0)
			continue;
		const char *measured = term < PP_OUTSIDE_RANKS
		                           ? pp_show_bytes(arena, measured_term(holding, (enum pp_outside)term))
		                       : term == PP_OUTSIDE_RANKS ? pp_show_bytes(arena, rest)
		                                                  : "with ranks";
		put_row(&table, pp_outside_name[term], bytes[term], measured, pp_outside_formula[term]);
	}
	put_row(&table, "outside arenas", total, pp_show_bytes(arena, outside_of(holding)),
	        pp_arena_printf(arena, "gpu.reserve keeps %s free for it%s",
	                        pp_show_bytes(arena, program->rank[run.pp].reserve), run.apart ? "" : " on each device"));
	char name[PP_GRID_NAME];
	fprintf(out, "%s%s:\n", run.apart ? "the process that holds most, " : "all ranks in one process",
	        run.apart ? pp_grid_name(program, world, name) : "");
	pp_table_print(&table, out);
	fflush(out);
	pp_arena_destroy(arena);
}

/* ---- memory of a device's own ----------------------------------------------------------------- */

static uint64_t outside_on_device(const struct pp_device_holding *holding)
{
	uint64_t bytes = 0;
	for (unsigned part = 0; part < PP_DEVICE_PART_COUNT; part++)
		bytes += holding->measured[part];
	return bytes;
}

static uint64_t arena_of(const struct pp_program *program, uint32_t world)
{
	return program->rank[pp_grid_coord(program, world).pp].arena_bytes;
}

/* What is measured holds all that others have taken on the same device meanwhile. */
static uint64_t planned_on_device(const struct pp_program *program, uint32_t world,
                                  const struct pp_device_holding *holding)
{
	uint64_t bytes = arena_of(program, world);
	for (unsigned part = 0; part < PP_DEVICE_PART_COUNT; part++)
		bytes += holding->predicted[part];
	return bytes;
}

/* `arenas`: of all ranks. */
static void print_device(const struct pp_report_link *link, const struct pp_run_options *options, uint32_t world,
                         uint64_t arenas, const struct pp_device_holding *holding, FILE *out)
{
	static const char *const names[PP_DEVICE_PART_COUNT] = {"context", "beside arena", "kernels", "graphs", "later"};
	static const char *const formulas[PP_DEVICE_PART_COUNT] = {
	    "the driver's; measured: with all that others hold", "scratch without a slot, rates", "code, cuBLAS",
	    "16 KiB per graph + 1 KiB per launch in it", "links, steps as graphs (as above)"};
	const struct pp_program *program = link->interp->program;
	const struct pp_rank *rank = &program->rank[pp_grid_coord(program, world).pp];
	struct pp_arena *arena = pp_arena_scratch(options->arena);
	struct pp_table table = pp_table_begin(arena, 4, 1 | 8);
	uint64_t predicted = 0;
	char name[PP_GRID_NAME];
	pp_table_cell(&table, "device");
	pp_table_cell(&table, "predicted");
	pp_table_cell(&table, "measured");
	pp_table_cell(&table, "formula");
	put_row(&table, "arena", rank->arena_bytes, "allocated", "planned");
	for (unsigned part = 0; part < PP_DEVICE_PART_COUNT; part++) {
		predicted += holding->predicted[part];
		put_row(&table, names[part], holding->predicted[part], pp_show_bytes(arena, holding->measured[part]),
		        formulas[part]);
	}
	put_row(&table, "outside arena", predicted, pp_show_bytes(arena, outside_on_device(holding)),
	        pp_arena_printf(arena, "gpu.reserve keeps %s free for it; %s of %s are free",
	                        pp_show_bytes(arena, rank->reserve), pp_show_bytes(arena, holding->free),
	                        pp_show_bytes(arena, holding->memory)));
	if (options->apart)
		fprintf(out, "the device that holds most, of %s", pp_grid_name(program, world, name));
	else
		fprintf(out, "one device for all, with arenas of %s; of it %s has most", pp_show_bytes(arena, arenas),
		        pp_grid_name(program, world, name));
	fprintf(out, "; %s of the host are pinned for copies:\n", pp_show_bytes(arena, holding->pinned));
	pp_table_print(&table, out);
	fflush(out);
	pp_arena_destroy(arena);
}

bool pp_run_memory_print(const struct pp_report_link *link, const struct pp_run_options *options, uint64_t kept_steps,
                         FILE *out, struct pp_status *status)
{
	const struct pp_program *program = link->interp->program;
	uint64_t world = pp_grid_world(program);
	struct holding mine = {.arenas = arenas_here(link, options->apart),
	                       .resident = pp_resident_bytes(),
	                       .marks = options->marks,
	                       .data_bytes = data_bytes(program, options)};
	const struct pp_device_ops *ops = link->interp->device_ops;
	if (ops->holding)
		ops->holding(link->interp->device, &mine.device);
	struct holding *all = calloc(world, sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering memory", &mine, all,
	                                sizeof *all, status);
	uint32_t most = 0, most_on_device = 0;
	uint64_t arenas = 0;
	for (uint32_t i = 1; ok && i < world; i++)
		if (outside_of(&all[i]) > outside_of(&all[most]))
			most = i;
	for (uint32_t i = 0; ok && i < world; i++) {
		arenas += arena_of(program, i);
		if (planned_on_device(program, i, &all[i].device) >
		    planned_on_device(program, most_on_device, &all[most_on_device].device))
			most_on_device = i;
	}
	if (ok && out)
		print_holding(link, options, kept_steps, most, &all[most], out);
	if (ok && out && ops->holding)
		print_device(link, options, most_on_device, arenas, &all[most_on_device].device, out);
	free(all);
	return ok;
}
