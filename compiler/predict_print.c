/* Printing a prediction: where its costs come from, what each kind of layer takes, and the terms. */
#include "predict.h"

#include "measured.h"
#include "search/make.h"
#include "summary.h"

#include "ir/figures.h"
#include "ir/json.h"

#include <inttypes.h>
#include <string.h>

/* ---- layers ---------------------------------------------------------------------------------- */

/* Layers of one kind and price, as they follow each other or return later. */
struct price {
	const struct pp_layer *layer;
	uint32_t at, count;
};

static bool same_price(const struct pp_unit *unit, uint32_t a, uint32_t b)
{
	const struct pp_layer *layers = unit->resolved.spec.model.layers;
	const struct pp_stages *stages = &unit->stages;
	return strcmp(layers[a].name, layers[b].name) == 0 &&
	       memcmp(stages->layer_ticks[a], stages->layer_ticks[b], sizeof stages->layer_ticks[a]) == 0 &&
	       memcmp(stages->layers[a].matmul_flops, stages->layers[b].matmul_flops,
	              sizeof stages->layers[a].matmul_flops) == 0;
}

/* At most `most` prices; what follows then is left out. */
static uint32_t list_prices(const struct pp_unit *unit, struct price *prices, uint32_t most)
{
	const struct pp_model *model = &unit->resolved.spec.model;
	uint32_t count = 0;
	for (uint32_t i = 0; i < model->layer_count; i++) {
		uint32_t known = 0;
		while (known < count && !same_price(unit, prices[known].at, i))
			known++;
		if (known == most)
			break;
		if (known == count)
			prices[count++] = (struct price){.layer = &model->layers[i], .at = i};
		prices[known].count++;
	}
	return count;
}

enum { MOST_PRICES = 16 };
static const uint8_t shown_phases[] = {PP_PHASE_F, PP_PHASE_I, PP_PHASE_W, PP_PHASE_R};

/* How many of them: R only where something is computed again. */
static unsigned shown_count(const struct pp_unit *unit)
{
	for (uint32_t s = 0; s < unit->program->stage_count; s++)
		if (unit->program->stages[s].recomputes)
			return sizeof shown_phases;
	return sizeof shown_phases - 1;
}

/* Weights of a layer on one rank: its share over tp, with the rows and elements that pad it. */
static uint64_t kept_params(const struct pp_unit *unit, const struct pp_layer_counts *counts)
{
	return pp_times(counts->shard_params, pp_spec_shards(&unit->resolved.spec));
}

static uint64_t flops_of(const struct pp_unit *unit, uint32_t layer, unsigned phase)
{
	return unit->stages.layers[layer].matmul_flops[phase] + unit->stages.layers[layer].attention_flops[phase];
}

/* What the layer's time was made from. */
static const char *formula(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	if (unit->profile)
		return "of the profile's stages, by kind of layer";
	if (!spec->model.trains)
		return "as given, or flop / (peak x efficiency)";
	return spec->parallel.tp > 1 ? "flop / (peak x efficiency) + bytes / (0.85 x bandwidth) + collectives not hidden"
	                             : "flop / (peak x efficiency) + bytes / (0.85 x bandwidth)";
}

static void print_layers(const struct pp_unit *unit, FILE *out)
{
	static const char *const heads[] = {"layer",  "count",   "params", "F flop", "I flop", "W flop",
	                                    "R flop", "F bytes", "F us",   "I us",   "W us",   "R us"};
	enum { COLUMNS = sizeof heads / sizeof *heads };
	unsigned shown = shown_count(unit), columns = shown == sizeof shown_phases ? COLUMNS : COLUMNS - 2;
	struct price prices[MOST_PRICES];
	uint32_t count = list_prices(unit, prices, MOST_PRICES);
	struct pp_arena *arena = unit->arena;
	struct pp_table table = pp_table_begin(arena, columns, 1);
	for (unsigned i = 0; i < COLUMNS; i++)
		if (columns == COLUMNS || *heads[i] != 'R')
			pp_table_cell(&table, heads[i]);
	for (uint32_t i = 0; i < count; i++) {
		const struct pp_layer_counts *counts = &unit->stages.layers[prices[i].at];
		pp_table_cell(&table, prices[i].layer->name);
		pp_table_cell_uint(&table, prices[i].count);
		pp_table_cell_uint(&table, kept_params(unit, counts));
		for (unsigned k = 0; k < shown; k++)
			pp_table_cell_uint(&table, flops_of(unit, prices[i].at, shown_phases[k]));
		pp_table_cell_uint(&table, counts->memory_bytes[PP_PHASE_F]);
		for (unsigned k = 0; k < shown; k++)
			pp_table_cell(
			    &table,
			    pp_arena_printf(arena, "%.3f", (double)unit->stages.layer_ticks[prices[i].at][shown_phases[k]] / 1000));
	}
	fprintf(out, "layers, of one microbatch on one rank, params as it keeps them; times: %s\n", formula(unit));
	pp_table_print(&table, out);
}

static void json_layers(const struct pp_unit *unit, struct pp_json *json)
{
	struct price prices[MOST_PRICES];
	uint32_t count = list_prices(unit, prices, MOST_PRICES);
	pp_json_string(json, "layers_of", "one microbatch on one rank");
	pp_json_open_array(json, "layers");
	for (uint32_t i = 0; i < count; i++) {
		pp_json_open_object(json, NULL);
		pp_json_string(json, "layer", prices[i].layer->name);
		pp_json_uint(json, "count", prices[i].count);
		pp_json_uint(json, "params", kept_params(unit, &unit->stages.layers[prices[i].at]));
		for (unsigned k = 0; k < shown_count(unit); k++) {
			pp_json_open_object(json, pp_phase_name[shown_phases[k]]);
			pp_json_uint(json, "flop", flops_of(unit, prices[i].at, shown_phases[k]));
			pp_json_uint(json, "bytes", unit->stages.layers[prices[i].at].memory_bytes[shown_phases[k]]);
			pp_json_uint(json, "ns", unit->stages.layer_ticks[prices[i].at][shown_phases[k]]);
			pp_json_close(json);
		}
		pp_json_close(json);
	}
	pp_json_close(json);
}

/* ---- costs ----------------------------------------------------------------------------------- */

static void print_costs(const struct pp_unit *unit, const char *transport, FILE *out)
{
	const struct pp_profile *profile = unit->profile;
	const struct pp_gpu *gpu = &unit->resolved.spec.cluster.gpu;
	if (profile) {
		fprintf(out, "costs: measured in %" PRIu64 " steps over %s on %s; ", profile->steps, profile->transport,
		        profile->device);
		if (pp_measured_split(profile, &unit->stages))
			fputs("these stages", out);
		else
			fprintf(out, "other stages, explained within %.1f %% by kinds of layers", 100 * unit->deviation);
	} else {
		fprintf(out, "costs: device %s, peak %s x efficiency %g, memory %s", gpu->name ? gpu->name : "gpu",
		        pp_show_rate(unit->arena, gpu->flops[unit->resolved.spec.dtype], "flop/s"), gpu->efficiency,
		        pp_show_rate(unit->arena, gpu->bandwidth, "B/s"));
	}
	fprintf(out, "; data moves %s%s\n", strcmp(transport, "none") == 0 ? "on its own" : "as over ",
	        strcmp(transport, "none") == 0 ? "" : transport);
}

/* ---- terms ----------------------------------------------------------------------------------- */

static const char *value_text(const struct pp_unit *unit, const struct pp_sim *sim, const struct pp_term *term)
{
	struct pp_arena *arena = unit->arena;
	struct pp_time_unit time = pp_time_unit_for(sim->makespan + sim->tail);
	switch ((enum pp_term_unit)term->unit) {
	case PP_TERM_NS:
		return pp_arena_printf(arena, "%s %s", pp_show_time(arena, (uint64_t)(term->value + 0.5), time), time.name);
	case PP_TERM_BYTES:
		return pp_show_bytes(arena, (uint64_t)term->value);
	case PP_TERM_SHARE:
		return pp_arena_printf(arena, "%.1f %%", 100 * term->value);
	case PP_TERM_FLOP:
		return pp_show_rate(arena, (uint64_t)term->value, "flop");
	case PP_TERM_RATE:
		return pp_arena_printf(arena, "%.0f", term->value);
	}
	return "";
}

static void print_terms(const struct pp_unit *unit, const struct pp_sim *sim, const struct pp_terms *terms, FILE *out)
{
	static const char *const heads[] = {"what", "value", "formula", "from", "source"};
	enum { COLUMNS = sizeof heads / sizeof *heads };
	struct pp_table table = pp_table_begin(unit->arena, COLUMNS, 1 | 4 | 8 | 16);
	for (unsigned i = 0; i < COLUMNS; i++)
		pp_table_cell(&table, heads[i]);
	for (size_t i = 0; i < terms->count; i++) {
		const struct pp_term *term = &terms->items[i];
		pp_table_cell(&table, term->name);
		pp_table_cell(&table, value_text(unit, sim, term));
		pp_table_cell(&table, term->formula);
		pp_table_cell(&table, term->inputs);
		pp_table_cell(&table, term->source);
	}
	pp_table_print(&table, out);
}

static void json_terms(const struct pp_terms *terms, struct pp_json *json)
{
	static const char *const units[] = {[PP_TERM_NS] = "ns",
	                                    [PP_TERM_BYTES] = "bytes",
	                                    [PP_TERM_SHARE] = "share",
	                                    [PP_TERM_FLOP] = "flop",
	                                    [PP_TERM_RATE] = "per_s"};
	pp_json_open_array(json, "terms");
	for (size_t i = 0; i < terms->count; i++) {
		const struct pp_term *term = &terms->items[i];
		pp_json_open_object(json, NULL);
		pp_json_string(json, "group", term->group);
		pp_json_string(json, "name", term->name);
		pp_json_number(json, "value", term->value);
		pp_json_string(json, "unit", units[term->unit]);
		pp_json_string(json, "formula", term->formula);
		pp_json_string(json, "from", term->inputs);
		pp_json_string(json, "source", term->source);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void print_text(const struct pp_unit *unit, const struct pp_sim *sim, const struct pp_terms *terms,
                       const char *transport, FILE *out)
{
	const struct pp_program *program = unit->program;
	uint64_t devices = (uint64_t)program->ranks * program->tp * program->dp;
	fprintf(out, "%s: %" PRIu64 " rank%s = tp %u x pp %u x dp %u", unit->source->name, devices, devices == 1 ? "" : "s",
	        program->tp, program->ranks, program->dp);
	pp_summary_idle(unit, out);
	fprintf(out, ", %u stage%s, m = %u, %s\n", program->stage_count, program->stage_count == 1 ? "" : "s",
	        program->microbatches, program->schedule_name ? program->schedule_name : "rows");
	if (unit->schedule.search)
		pp_search_print(unit->arena, &unit->resolved, &unit->schedule, &unit->sim, out);
	print_costs(unit, transport, out);
	fputc('\n', out);
	print_layers(unit, out);
	fputc('\n', out);
	print_terms(unit, sim, terms, out);
}

static void print_json(const struct pp_unit *unit, const struct pp_sim *sim, const struct pp_terms *terms,
                       const char *transport, FILE *out)
{
	const struct pp_program *program = unit->program;
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.predict/1");
	pp_json_string(&json, "file", unit->source->name);
	pp_json_uint(&json, "tp", program->tp);
	pp_json_uint(&json, "pp", program->ranks);
	pp_json_uint(&json, "dp", program->dp);
	if (pp_spec_idle_gpus(&unit->resolved.spec))
		pp_json_uint(&json, "idle_gpus", pp_spec_idle_gpus(&unit->resolved.spec));
	pp_json_uint(&json, "stages", program->stage_count);
	pp_json_uint(&json, "microbatches", program->microbatches);
	if (program->schedule_name)
		pp_json_string(&json, "schedule", program->schedule_name);
	pp_json_string(&json, "costs", unit->profile ? "measured" : "model");
	if (unit->profile) {
		pp_json_bool(&json, "same_split", pp_measured_split(unit->profile, &unit->stages));
		pp_json_number(&json, "deviation", unit->deviation);
	}
	pp_json_string(&json, "transport", transport);
	pp_json_uint(&json, "makespan", sim->makespan);
	pp_json_uint(&json, "tail", sim->tail);
	pp_json_uint(&json, "longest_span", sim->longest_span);
	pp_json_uint(&json, "lower_bound", sim->bound.makespan);
	pp_json_number(&json, "gap", pp_bound_gap(sim->makespan, sim->bound.makespan));
	pp_json_uint(&json, "span_lower_bound", sim->bound.span);
	pp_json_number(&json, "span_gap", pp_bound_gap(sim->longest_span, sim->bound.span));
	pp_json_number(&json, "bubble", sim->bubble);
	if (unit->schedule.search)
		pp_search_json(&unit->resolved, &unit->schedule, &unit->sim, &json);
	json_layers(unit, &json);
	json_terms(terms, &json);
	pp_json_close(&json);
	fputc('\n', out);
}

void pp_predict_print(const struct pp_unit *unit, const struct pp_sim *sim, const char *transport, bool json, FILE *out)
{
	struct pp_terms terms = pp_predict(unit, sim, transport);
	if (json)
		print_json(unit, sim, &terms, transport, out);
	else
		print_text(unit, sim, &terms, transport, out);
}
