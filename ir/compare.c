/* Predicted against measured. requires: a simulation of `named` with intervals, a profile of the same program.
 *
 * A post takes no time of its rank in the simulator; what a class predicts for send, recv and coll is therefore 0, and
 * what is measured there is what the transport's calls cost. */
#include "compare.h"

#include "figures.h"
#include "grid.h"
#include "lifetime.h"

/* One line: the texts differ from table to table, the numbers do not. */
static void put_pair(struct pp_table *table, struct pp_time_unit unit, uint64_t predicted, uint64_t measured)
{
	pp_table_cell(table, pp_show_time(table->arena, predicted, unit));
	pp_table_cell(table, pp_show_time(table->arena, measured, unit));
	pp_table_cell(table, predicted ? pp_arena_printf(table->arena, "%.2f", (double)measured / (double)predicted) : "-");
}

static void put_heads(struct pp_table *table, const char *const *heads, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		pp_table_cell(table, heads[i]);
}

/* ---- classes --------------------------------------------------------------------------------- */

struct class_sum {
	uint64_t count, predicted, measured;
};

static bool is_post(uint8_t op)
{
	return op == PP_OP_SEND || op == PP_OP_RECV || op == PP_OP_COLL;
}

static void sum_classes(const struct pp_compare *compare, struct class_sum sums[PP_CLASS_COUNT])
{
	const struct pp_program *program = compare->program;
	uint64_t copies = pp_grid_world(program) / program->ranks;
	for (uint32_t r = 0; r < program->ranks; r++)
		for (uint32_t i = 0; i < compare->named->streams[r].count; i++) {
			const struct pp_instr *instr = &compare->named->streams[r].items[i];
			const struct pp_interval *interval = &compare->sim->instr[r][i];
			struct class_sum *sum = &sums[pp_class_of(program, r, instr)];
			sum->count += copies;
			if (!is_post(instr->op))
				sum->predicted += copies * (interval->end - interval->start);
		}
	for (unsigned kind = 0; kind < PP_CLASS_COUNT; kind++)
		sums[kind].measured = pp_measure_class(compare->measure, kind);
}

void pp_compare_classes(const struct pp_compare *compare, FILE *out)
{
	static const char *const heads[] = {"instruction", "per-step", "predicted", "measured", "ratio"};
	struct class_sum sums[PP_CLASS_COUNT] = {{0}};
	uint64_t largest = 0;
	sum_classes(compare, sums);
	for (unsigned kind = 0; kind < PP_CLASS_COUNT; kind++)
		largest = sums[kind].measured > largest ? sums[kind].measured : largest;
	struct pp_time_unit unit = pp_time_unit_for(largest);
	struct pp_table table = pp_table_begin(compare->arena, sizeof heads / sizeof *heads, 1);
	put_heads(&table, heads, sizeof heads / sizeof *heads);
	for (unsigned kind = 0; kind < PP_CLASS_COUNT; kind++) {
		if (sums[kind].count == 0 || kind == PP_OP_MARK)
			continue;
		pp_table_cell(&table, pp_class_name(kind));
		pp_table_cell_uint(&table, sums[kind].count);
		put_pair(&table, unit, sums[kind].predicted, sums[kind].measured);
	}
	fprintf(out, "time of all ranks per step, %s, median of %llu steps:\n", unit.name,
	        (unsigned long long)compare->profile->steps);
	pp_table_print(&table, out);
}

/* ---- bodies, channels, ranks ----------------------------------------------------------------- */

/* Ticks that the simulator gave a phase of a stage. */
static uint64_t ticks_of(const struct pp_compare *compare, uint32_t stage, unsigned phase)
{
	return compare->program->stages[stage].ticks[phase];
}

void pp_compare_bodies(const struct pp_compare *compare, FILE *out)
{
	static const char *const heads[] = {"stage", "phase",  "predicted", "measured",
	                                    "ratio", "spread", "samples",   "layers"};
	enum { COLUMNS = sizeof heads / sizeof *heads };
	const struct pp_profile *profile = compare->profile;
	uint64_t largest = 0;
	for (uint32_t s = 0; s < profile->stage_count; s++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			if (profile->stages[s].time[phase].count && profile->stages[s].time[phase].median > largest)
				largest = profile->stages[s].time[phase].median;
	struct pp_time_unit unit = pp_time_unit_for(largest);
	struct pp_table table = pp_table_begin(compare->arena, COLUMNS, 2 | 1u << (COLUMNS - 1));
	put_heads(&table, heads, COLUMNS);
	for (uint32_t s = 0; s < profile->stage_count; s++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			const struct pp_profile_time *time = &profile->stages[s].time[phase];
			if (time->count == 0)
				continue;
			pp_table_cell_uint(&table, s);
			pp_table_cell(&table, pp_phase_name[phase]);
			put_pair(&table, unit, ticks_of(compare, s, phase), time->median);
			pp_table_cell(&table, pp_show_time(compare->arena, time->spread, unit));
			pp_table_cell_uint(&table, time->count);
			pp_table_cell(&table, profile->stages[s].title);
		}
	fprintf(out, "bodies, %s:\n", unit.name);
	pp_table_print(&table, out);
}

/* What the simulator counts for these messages; false: the program has no such channel. */
static bool predict_channel(const struct pp_compare *compare, const struct pp_profile_channel *row, uint64_t *ticks)
{
	const struct pp_program *program = compare->program;
	for (uint32_t c = 0; c < program->channel_count; c++) {
		const struct pp_channel *channel = &program->channels[c];
		if (channel->source != row->source || channel->destination != row->destination || channel->kind != row->kind)
			continue;
		*ticks = pp_transfer_ticks(channel->latency, channel->bandwidth, row->bytes);
		return true;
	}
	return false;
}

void pp_compare_channels(const struct pp_compare *compare, FILE *out)
{
	static const char *const heads[] = {"channel",  "kind",  "bytes",  "predicted",
	                                    "measured", "ratio", "spread", "samples"};
	enum { COLUMNS = sizeof heads / sizeof *heads };
	const struct pp_profile *profile = compare->profile;
	uint64_t largest = 0;
	if (profile->channel_count == 0) {
		fputs("channels: no message came while its receiver waited for it, so no transfer could be timed\n", out);
		return;
	}
	for (size_t i = 0; i < profile->channel_count; i++)
		if (profile->channels[i].time.median > largest)
			largest = profile->channels[i].time.median;
	struct pp_time_unit unit = pp_time_unit_for(largest);
	struct pp_table table = pp_table_begin(compare->arena, COLUMNS, 3);
	put_heads(&table, heads, COLUMNS);
	for (size_t i = 0; i < profile->channel_count; i++) {
		const struct pp_profile_channel *row = &profile->channels[i];
		uint64_t ticks = 0;
		if (!predict_channel(compare, row, &ticks))
			continue;
		pp_table_cell(&table, pp_arena_printf(compare->arena, "%u>%u", row->source, row->destination));
		pp_table_cell(&table, pp_value_name[row->kind]);
		pp_table_cell(&table, pp_show_bytes(compare->arena, row->bytes));
		put_pair(&table, unit, ticks, row->time.median);
		pp_table_cell(&table, pp_show_time(compare->arena, row->time.spread, unit));
		pp_table_cell_uint(&table, row->time.count);
	}
	fprintf(out, "channels, %s from the later post to the end of the receiver's wait:\n", unit.name);
	pp_table_print(&table, out);
}

static double idle(uint64_t busy, uint64_t makespan)
{
	return makespan ? 1 - (double)busy / (double)makespan : 0;
}

void pp_compare_ranks(const struct pp_compare *compare, FILE *out)
{
	static const char *const heads[] = {"rank", "busy", "measured", "ratio", "idle %", "measured", "points"};
	enum { COLUMNS = sizeof heads / sizeof *heads };
	const struct pp_sim *sim = compare->sim;
	const struct pp_profile *profile = compare->profile;
	struct pp_time_unit unit = pp_time_unit_for(profile->makespan.median);
	struct pp_table table = pp_table_begin(compare->arena, COLUMNS, 0);
	put_heads(&table, heads, COLUMNS);
	for (uint32_t r = 0; r < profile->pp; r++) {
		double planned = 100 * idle(sim->rank[r].busy, sim->makespan);
		double found = 100 * idle(profile->ranks[r].busy.median, profile->makespan.median);
		pp_table_cell_uint(&table, r);
		put_pair(&table, unit, sim->rank[r].busy, profile->ranks[r].busy.median);
		pp_table_cell(&table, pp_arena_printf(compare->arena, "%.1f", planned));
		pp_table_cell(&table, pp_arena_printf(compare->arena, "%.1f", found));
		pp_table_cell(&table, pp_arena_printf(compare->arena, "%+.1f", found - planned));
	}
	fprintf(out, "step %s %s, measured %s %s; makespan %s %s, measured %s %s\n",
	        pp_show_time(compare->arena, sim->makespan + sim->tail, unit), unit.name,
	        pp_show_time(compare->arena, profile->step.median, unit), unit.name,
	        pp_show_time(compare->arena, sim->makespan, unit), unit.name,
	        pp_show_time(compare->arena, profile->makespan.median, unit), unit.name);
	fprintf(out, "ranks, %s:\n", unit.name);
	pp_table_print(&table, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_pair(struct pp_json *json, uint64_t predicted, uint64_t measured)
{
	pp_json_uint(json, "predicted", predicted);
	pp_json_uint(json, "measured", measured);
}

static void json_classes(const struct pp_compare *compare, struct pp_json *json)
{
	struct class_sum sums[PP_CLASS_COUNT] = {{0}};
	sum_classes(compare, sums);
	pp_json_open_array(json, "instructions");
	for (unsigned kind = 0; kind < PP_CLASS_COUNT; kind++) {
		if (sums[kind].count == 0 || kind == PP_OP_MARK)
			continue;
		pp_json_open_object(json, NULL);
		pp_json_string(json, "instruction", pp_class_name(kind));
		pp_json_uint(json, "count", sums[kind].count);
		json_pair(json, sums[kind].predicted, sums[kind].measured);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void json_bodies(const struct pp_compare *compare, struct pp_json *json)
{
	pp_json_open_array(json, "bodies");
	for (uint32_t s = 0; s < compare->profile->stage_count; s++)
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
			const struct pp_profile_time *time = &compare->profile->stages[s].time[phase];
			if (time->count == 0)
				continue;
			pp_json_open_object(json, NULL);
			pp_json_uint(json, "stage", s);
			pp_json_string(json, "phase", pp_phase_name[phase]);
			json_pair(json, ticks_of(compare, s, phase), time->median);
			pp_json_uint(json, "spread", time->spread);
			pp_json_uint(json, "samples", time->count);
			pp_json_close(json);
		}
	pp_json_close(json);
}

static void json_channels(const struct pp_compare *compare, struct pp_json *json)
{
	pp_json_open_array(json, "channels");
	for (size_t i = 0; i < compare->profile->channel_count; i++) {
		const struct pp_profile_channel *row = &compare->profile->channels[i];
		uint64_t ticks = 0;
		if (!predict_channel(compare, row, &ticks))
			continue;
		pp_json_open_object(json, NULL);
		pp_json_uint(json, "source", row->source);
		pp_json_uint(json, "destination", row->destination);
		pp_json_string(json, "kind", pp_value_name[row->kind]);
		pp_json_uint(json, "bytes", row->bytes);
		json_pair(json, ticks, row->time.median);
		pp_json_uint(json, "spread", row->time.spread);
		pp_json_uint(json, "samples", row->time.count);
		pp_json_close(json);
	}
	pp_json_close(json);
}

static void json_ranks(const struct pp_compare *compare, struct pp_json *json)
{
	const struct pp_profile *profile = compare->profile;
	pp_json_open_array(json, "ranks");
	for (uint32_t r = 0; r < profile->pp; r++) {
		pp_json_open_object(json, NULL);
		pp_json_uint(json, "rank", r);
		json_pair(json, compare->sim->rank[r].busy, profile->ranks[r].busy.median);
		pp_json_number(json, "idle", idle(compare->sim->rank[r].busy, compare->sim->makespan));
		pp_json_number(json, "measured_idle", idle(profile->ranks[r].busy.median, profile->makespan.median));
		pp_json_close(json);
	}
	pp_json_close(json);
}

void pp_compare_json(const struct pp_compare *compare, struct pp_json *json)
{
	const struct pp_sim *sim = compare->sim;
	const struct pp_profile *profile = compare->profile;
	pp_json_string(json, "time_unit", "ns");
	pp_json_uint(json, "steps", profile->steps);
	pp_json_open_object(json, "step");
	json_pair(json, sim->makespan + sim->tail, profile->step.median);
	pp_json_close(json);
	pp_json_open_object(json, "makespan");
	json_pair(json, sim->makespan, profile->makespan.median);
	pp_json_close(json);
	if (compare->measure)
		json_classes(compare, json);
	json_bodies(compare, json);
	json_channels(compare, json);
	json_ranks(compare, json);
}
