/* Which stage lives where: stages with their ranks, layers and costs; then each rank's place in the cluster. */
#include "emit.h"

#include "ir/grid.h"

#include <string.h>

static bool on_chosen_rank(const struct pp_dump *dump, uint32_t stage)
{
	return dump->chosen[dump->program->stages[stage].rank];
}

static uint64_t stage_params(const struct pp_program *program, uint32_t stage)
{
	uint64_t params = 0;
	for (uint32_t i = 0; i < program->use_count; i++)
		if (program->uses[i].stage == stage)
			params += pp_use_params(program, i);
	return params;
}

/* Columns that only some programs have. */
struct columns {
	bool recompute, extra;
	bool sizes; /* parameters and bytes: all but orders alone */
};

static struct columns columns_of(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	struct columns columns = {.sizes = !dump->costless};
	for (uint32_t s = 0; s < program->stage_count; s++) {
		columns.recompute |= program->stages[s].recomputes;
		columns.extra |= program->stages[s].extra_bytes > 0;
	}
	return columns;
}

static struct pp_table table_of_stages(const struct pp_dump *dump, struct columns columns)
{
	static const char *const heads[] = {"stage", "rank", "chunk", "layers", "params", "F",  "B",
	                                    "I",     "W",    "R",     "stash",  "extra",  "out"};
	enum { COLUMNS = sizeof heads / sizeof heads[0] };
	unsigned count = COLUMNS - (columns.recompute ? 0u : 1u) - (columns.extra ? 0u : 1u) - (columns.sizes ? 0u : 3u);
	struct pp_table table = pp_table_begin(dump->arena, count, 1u << 3);
	for (size_t i = 0; i < COLUMNS; i++) {
		bool size = strcmp(heads[i], "params") == 0 || strcmp(heads[i], "stash") == 0 || strcmp(heads[i], "out") == 0;
		if ((*heads[i] != 'R' || columns.recompute) && (*heads[i] != 'e' || columns.extra) && (!size || columns.sizes))
			pp_table_cell(&table, heads[i]);
	}
	return table;
}

static void print_stages(const struct pp_dump *dump)
{
	struct pp_time_unit unit = pp_stage_unit(dump);
	struct columns columns = columns_of(dump);
	struct pp_table table = table_of_stages(dump, columns);
	for (uint32_t s = 0; s < dump->program->stage_count; s++) {
		const struct pp_stage *stage = &dump->program->stages[s];
		if (!on_chosen_rank(dump, s))
			continue;
		pp_table_cell(&table, pp_arena_printf(dump->arena, "s%u", s));
		pp_table_cell(&table, pp_arena_printf(dump->arena, "r%u", stage->rank));
		pp_table_cell_uint(&table, dump->chunk[s]);
		pp_table_cell(&table, stage->title && *stage->title ? stage->title : "-");
		if (columns.sizes)
			pp_table_cell(&table, pp_show_count(dump->arena, stage_params(dump->program, s)));
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			if (phase != PP_PHASE_R || columns.recompute)
				pp_table_cell(&table, pp_show_time(dump->arena, stage->ticks[phase], unit));
		if (!columns.sizes)
			continue;
		pp_table_cell(&table, pp_show_bytes(dump->arena, stage->stash_bytes));
		if (columns.extra)
			pp_table_cell(&table, pp_show_bytes(dump->arena, stage->extra_bytes));
		pp_table_cell(&table, stage->out_count ? pp_show_bytes(dump->arena, (uint64_t)stage->out_count *
		                                                                        pp_dtype_size[stage->out_dtype])
		                                       : "-");
	}
	pp_table_print(&table, dump->out);
	fprintf(dump->out,
	        " F B I W%s: predicted %s per microbatch (forward, whole backward, input gradient, weight gradient%s)\n",
	        columns.recompute ? " R" : "", unit.name, columns.recompute ? ", recompute" : "");
	if (columns.extra)
		fputs(" stash: kept from F to backward, extra: kept for that backward alone\n", dump->out);
}

/* Whether the program says where each of its several coordinates is planned. */
static bool places_grid(const struct pp_program *program)
{
	return program->gpus && (program->tp > 1 || program->dp > 1);
}

/* "rank 5 (pp 2 tp 1 dp 0) -> node 1 gpu 1": every coordinate of the chosen pipeline ranks. */
static void print_grid(const struct pp_dump *dump)
{
	char name[PP_GRID_NAME];
	for (uint32_t world = 0; world < pp_grid_world(dump->program); world++)
		if (dump->chosen[pp_grid_coord(dump->program, world).pp])
			fprintf(dump->out, " %s -> node %u gpu %u\n", pp_grid_name(dump->program, world, name),
			        pp_grid_node(dump->program, world), world % dump->program->gpus);
}

/* "rank 1 -> node 0 gpu 1 (pp 1, tp 0, dp 0)", with tp and dp as ranges where there are several. */
static void print_ranks(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	if (places_grid(program)) {
		print_grid(dump);
		return;
	}
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		fprintf(dump->out, " rank %u -> node %u gpu %u (pp %u", rank, program->rank[rank].node, program->rank[rank].gpu,
		        rank);
		fprintf(dump->out, program->tp > 1 ? ", tp 0..%u" : ", tp 0", program->tp - 1);
		fprintf(dump->out, program->dp > 1 ? ", dp 0..%u)\n" : ", dp 0)\n", program->dp - 1);
	}
}

void pp_emit_map(const struct pp_dump *dump)
{
	print_stages(dump);
	print_ranks(dump);
}

static void json_grid(const struct pp_dump *dump, struct pp_json *json)
{
	pp_json_open_array(json, "grid");
	for (uint32_t world = 0; world < pp_grid_world(dump->program); world++) {
		struct pp_coord coord = pp_grid_coord(dump->program, world);
		if (!dump->chosen[coord.pp])
			continue;
		pp_json_open_object(json, NULL);
		pp_json_uint(json, "world_rank", world);
		pp_json_uint(json, "pp", coord.pp);
		pp_json_uint(json, "tp", coord.tp);
		pp_json_uint(json, "dp", coord.dp);
		pp_json_uint(json, "node", pp_grid_node(dump->program, world));
		pp_json_uint(json, "gpu", world % dump->program->gpus);
		pp_json_close(json);
	}
	pp_json_close(json);
}

void pp_emit_map_json(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	struct pp_json json = pp_json_begin(dump->out);
	struct columns columns = columns_of(dump);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.map/1");
	pp_json_string(&json, "time_unit", pp_dump_time_unit(dump));
	pp_json_open_array(&json, "stages");
	for (uint32_t s = 0; s < program->stage_count; s++) {
		const struct pp_stage *stage = &program->stages[s];
		if (!on_chosen_rank(dump, s))
			continue;
		pp_json_open_object(&json, NULL);
		pp_json_uint(&json, "stage", s);
		pp_json_uint(&json, "rank", stage->rank);
		pp_json_uint(&json, "chunk", dump->chunk[s]);
		pp_json_string(&json, "layers", stage->title ? stage->title : "");
		if (columns.sizes)
			pp_json_uint(&json, "params", stage_params(program, s));
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			if (phase != PP_PHASE_R || columns.recompute)
				pp_json_uint(&json, pp_phase_name[phase], stage->ticks[phase]);
		if (columns.sizes)
			pp_json_uint(&json, "stash_bytes", stage->stash_bytes);
		if (columns.extra)
			pp_json_uint(&json, "extra_bytes", stage->extra_bytes);
		if (columns.sizes)
			pp_json_uint(&json, "out_bytes", (uint64_t)stage->out_count * pp_dtype_size[stage->out_dtype]);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	pp_json_open_array(&json, "ranks");
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		pp_json_open_object(&json, NULL);
		pp_json_uint(&json, "rank", rank);
		pp_json_uint(&json, "node", program->rank[rank].node);
		pp_json_uint(&json, "gpu", program->rank[rank].gpu);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	if (places_grid(program))
		json_grid(dump, &json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}
