/* Printing stages. Times are ms per microbatch, memory is MiB; one decimal more than people need. */
#include "stages_print.h"

#include "joint/joint.h"

#include "ir/figures.h"

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1024.0 * 1024);
}

static bool recomputes(const struct pp_stages *stages)
{
	for (uint32_t s = 0; s < stages->count; s++)
		if (stages->items[s].extra_bytes)
			return true;
	return false;
}

static void print_table(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	static const char *const head[] = {"stage", "rank", "params", "states MiB", "stash MiB", "extra MiB",
	                                   "F ms",  "I ms", "W ms",   "R ms",       "layers"};
	enum { COLUMNS = sizeof head / sizeof head[0] };
	bool again = recomputes(stages); /* else without its columns */
	unsigned columns = again ? COLUMNS : COLUMNS - 2;
	struct pp_table table = pp_table_begin(arena, columns, 1u << (columns - 1));
	for (unsigned i = 0; i < COLUMNS; i++)
		if (again || (i != 5 && i != 9))
			pp_table_cell(&table, head[i]);
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *stage = &stages->items[s];
		pp_table_cell_uint(&table, s);
		pp_table_cell_uint(&table, stage->rank);
		pp_table_cell_uint(&table, stage->params);
		pp_table_cell(&table, pp_arena_printf(arena, "%.2f", mib(stage->static_bytes)));
		pp_table_cell(&table, pp_arena_printf(arena, "%.3f", mib(stage->stash_bytes)));
		if (again)
			pp_table_cell(&table, pp_arena_printf(arena, "%.3f", mib(stage->extra_bytes)));
		pp_table_cell(&table, pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_F])));
		pp_table_cell(&table, pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_I])));
		pp_table_cell(&table, pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_W])));
		if (again)
			pp_table_cell(&table, pp_arena_printf(arena, "%.4f", ms(stage->ticks[PP_PHASE_R])));
		pp_table_cell(&table, pp_layers_title(arena, spec->model.layers + stage->first_layer, stage->layer_count));
	}
	pp_table_print(&table, out);
}

/* Load (F + R + B of one microbatch) per rank, the slowest first reason for a slow step. */
static void print_loads(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	uint64_t *loads = PP_NEW_ARRAY(arena, uint64_t, spec->parallel.pp), total = 0;
	uint32_t slowest = 0;
	for (uint32_t s = 0; s < stages->count; s++) {
		const struct pp_stage_plan *stage = &stages->items[s];
		loads[stage->rank] += stage->ticks[PP_PHASE_F] + stage->ticks[PP_PHASE_R] + stage->ticks[PP_PHASE_B];
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

/* "+1.25 %", never "-0.00 %". */
static const char *change(struct pp_arena *arena, uint64_t from, uint64_t to)
{
	double percent = from ? 100 * ((double)to / (double)from - 1) : 0;
	return pp_arena_printf(arena, "%+.2f %%", percent < 0 && percent > -0.005 ? 0 : percent);
}

/* Embedding and head on one rank: what the spec's placement leaves on the table, if that is at least 1 %. */
static void print_placement(struct pp_arena *arena, const char *what, uint64_t slowest, uint64_t now, FILE *out)
{
	if (slowest && slowest < now - now / 100)
		fprintf(out, "  %s: slowest rank %.4f ms, %s, with another schedule and memory apart\n", what, ms(slowest),
		        change(arena, now, slowest));
}

/* Why this split: what others come to, and what would have to be different to be faster. */
static void print_joint(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	const struct pp_joint_report *joint = stages->joint;
	fprintf(out, "simulated makespan%s: %.4f ms (%u runs); %.0f %% of its critical path is on rank %u\n",
	        joint->quick ? " of orders made quickly, each build makes its own" : "", ms(joint->chosen), joint->runs,
	        100 * joint->share, joint->rank);
	if (joint->balanced != UINT64_MAX)
		fprintf(out, "  split with the fastest slowest rank: %.4f ms, %s\n", ms(joint->balanced),
		        joint->moved ? change(arena, joint->chosen, joint->balanced) : "this one");
	if (joint->even != UINT64_MAX)
		fprintf(out, "  equal blocks: %.4f ms, %s\n", ms(joint->even), change(arena, joint->chosen, joint->even));
	for (uint32_t i = 0; i < joint->next_count; i++)
		fprintf(out, "  a layer of stage %u to stage %u: %.4f ms, %s\n", joint->next[i].from, joint->next[i].to,
		        ms(joint->next[i].makespan), change(arena, joint->chosen, joint->next[i].makespan));
	uint64_t folded, wrapped;
	pp_joint_placements(arena, spec, stages, &folded, &wrapped);
	print_placement(arena, "first and last layers on one rank, place = v, vpp = 2", folded, stages->bottleneck, out);
	print_placement(arena, "an extra stage for the last layers on rank 0, place = a list", wrapped, stages->bottleneck,
	                out);
}

void pp_stages_print(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages, FILE *out)
{
	print_table(arena, spec, stages, out);
	print_loads(arena, spec, stages, out);
	if (stages->joint)
		print_joint(arena, spec, stages, out);
}
