/* Statistics of the predicted step: per rank and altogether, with both bubbles by name, the costs that the prediction
 * used and what was proven. */
#include "emit.h"

#include "ir/queues.h"

#include <inttypes.h>
#include <string.h>

static const char *percent(const struct pp_dump *dump, double share)
{
	return pp_arena_printf(dump->arena, "%.1f %%", 100 * share + 1e-9); /* never "-0.0" */
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

/* Idle causes that occur on some chosen rank. */
static uint32_t causes(const struct pp_dump *dump)
{
	uint32_t mask = 0;
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
			if (dump->chosen[rank] && dump->sim->rank[rank].idle[cause])
				mask |= 1u << cause;
	return mask;
}

/* ---- table of ranks -------------------------------------------------------------------------- */

enum { COLUMNS_OF_COSTS = 2 };

static void head_of_ranks(const struct pp_dump *dump, struct pp_table *table, uint32_t mask)
{
	static const char *const last[] = {"longest-idle", "send", "recv", "peak-act", "peak-mem", "params"};
	const size_t shown = sizeof last / sizeof last[0] - (dump->costless ? COLUMNS_OF_COSTS : 0);
	pp_table_cell(table, "rank");
	pp_table_cell(table, "busy");
	pp_table_cell(table, "bubble");
	for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
		if (mask >> cause & 1)
			pp_table_cell(table, pp_idle_name[cause]);
	for (size_t i = 0; i < shown; i++)
		pp_table_cell(table, last[i]);
}

static void row_of_rank(const struct pp_dump *dump, struct pp_table *table, uint32_t mask, uint32_t rank)
{
	const struct pp_sim_rank *sim = &dump->sim->rank[rank];
	pp_table_cell(table, pp_arena_printf(dump->arena, "r%u", rank));
	pp_table_cell(table, pp_dump_time(dump, sim->busy));
	pp_table_cell(table, percent(dump, dump->sim->makespan ? 1 - share(sim->busy, dump->sim->makespan) : 0));
	for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
		if (mask >> cause & 1)
			pp_table_cell(table, pp_dump_time(dump, sim->idle[cause]));
	if (sim->longest_idle)
		pp_table_cell(table, pp_arena_printf(dump->arena, "%s (t=%s)", pp_dump_time(dump, sim->longest_idle),
		                                     pp_dump_time(dump, sim->longest_idle_at)));
	else
		pp_table_cell(table, "0");
	pp_table_cell_uint(table, sim->sent);
	pp_table_cell_uint(table, sim->received);
	pp_table_cell_uint(table, sim->peak_stashes);
	if (dump->costless)
		return;
	pp_table_cell(table, pp_show_bytes(dump->arena, sim->peak_bytes));
	pp_table_cell(table, pp_show_count(dump->arena, pp_rank_params(dump->program, rank)));
}

static void print_ranks(const struct pp_dump *dump)
{
	uint32_t mask = causes(dump);
	unsigned columns = 9 + (unsigned)__builtin_popcount(mask) - (dump->costless ? COLUMNS_OF_COSTS : 0);
	struct pp_table table = pp_table_begin(dump->arena, columns, 1);
	head_of_ranks(dump, &table, mask);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		if (dump->chosen[rank])
			row_of_rank(dump, &table, mask, rank);
	pp_table_print(&table, dump->out);
}

/* ---- lines on the whole ---------------------------------------------------------------------- */

static void print_step(const struct pp_dump *dump)
{
	const struct pp_sim *sim = dump->sim;
	const char *unit = dump->unit.name;
	fprintf(dump->out,
	        " all: makespan %s %s, work %s %s, bubble %s of makespan (overhead %s of work), %s of longest rank span\n",
	        pp_dump_time(dump, sim->makespan), unit, pp_dump_time(dump, (uint64_t)(sim->work + 0.5)), unit,
	        percent(dump, sim->bubble), percent(dump, sim->overhead), percent(dump, sim->span_bubble));
	bool forward = pp_is_forward_only(dump->named);
	if (dump->costless)
		fprintf(dump->out, " imbalance %s\n", percent(dump, sim->imbalance));
	else
		fprintf(dump->out, " %s: %s %s = makespan + tail %s %s (%s); imbalance %s\n", forward ? "batch" : "step",
		        pp_dump_time(dump, sim->makespan + sim->tail), unit, pp_dump_time(dump, sim->tail), unit,
		        forward ? "sum of losses" : "reductions, norm, update", percent(dump, sim->imbalance));
	const struct pp_order_bound *bound = &sim->bound;
	fprintf(dump->out, " lower bound: %s %s, gap %s (%s)\n", pp_dump_time(dump, bound->makespan), unit,
	        percent(dump, pp_bound_gap(sim->makespan, bound->makespan)), bound->makespan_term);
	fprintf(dump->out, " longest rank span: %s %s, lower bound %s %s, gap %s (%s)\n",
	        pp_dump_time(dump, sim->longest_span), unit, pp_dump_time(dump, bound->span), unit,
	        percent(dump, pp_bound_gap(sim->longest_span, bound->span)), bound->span_term);
}

static uint32_t heaviest_rank(const struct pp_dump *dump)
{
	uint32_t heaviest = 0;
	for (uint32_t rank = 1; rank < dump->program->ranks; rank++)
		if (dump->sim->rank[rank].peak_bytes > dump->sim->rank[heaviest].peak_bytes)
			heaviest = rank;
	return heaviest;
}

/* The rank that `pipec build` and `plan` name: what is live fits into its arena, with gaps between. */
static uint32_t largest_arena(const struct pp_dump *dump)
{
	uint32_t largest = 0;
	for (uint32_t rank = 1; rank < dump->program->ranks; rank++)
		if (dump->program->rank[rank].arena_bytes > dump->program->rank[largest].arena_bytes)
			largest = rank;
	return largest;
}

/* "arena 3.3 MiB = static 1.2 MiB + dynamic 2.1 MiB (0.0 % above live bytes)" */
static void print_arena(const struct pp_dump *dump, const struct pp_rank *memory)
{
	if (memory->arena_bytes < memory->static_bytes || memory->arena_bytes == 0)
		return;
	uint64_t dynamic = memory->arena_bytes - memory->static_bytes;
	fprintf(dump->out, "; arena %s = static %s + dynamic %s", pp_show_bytes(dump->arena, memory->arena_bytes),
	        pp_show_bytes(dump->arena, memory->static_bytes), pp_show_bytes(dump->arena, dynamic));
	if (memory->live_bytes && dynamic >= memory->live_bytes)
		fprintf(dump->out, " (%s above the least possible)", percent(dump, share(dynamic, memory->live_bytes) - 1));
}

static void print_memory(const struct pp_dump *dump)
{
	uint32_t rank = heaviest_rank(dump);
	const struct pp_rank *memory = &dump->program->rank[rank];
	fprintf(dump->out, " memory: rank %u needs most, %s live at t=%s", rank,
	        pp_show_bytes(dump->arena, dump->sim->rank[rank].peak_bytes),
	        pp_dump_time(dump, dump->sim->rank[rank].peak_at));
	print_arena(dump, memory);
	uint32_t largest = largest_arena(dump);
	if (dump->program->rank[largest].arena_bytes > memory->arena_bytes)
		fprintf(dump->out, "; the largest arena is rank %u's, %s", largest,
		        pp_show_bytes_beside(dump->arena, dump->program->rank[largest].arena_bytes, memory->arena_bytes));
	if (memory->capacity && memory->reserve)
		fprintf(dump->out, "; capacity %s less reserve %s", pp_show_bytes(dump->arena, memory->capacity),
		        pp_show_bytes(dump->arena, memory->reserve));
	else if (memory->capacity)
		fprintf(dump->out, "; capacity %s", pp_show_bytes(dump->arena, memory->capacity));
	fputc('\n', dump->out);
}

/* "10" or "10..12". */
static const char *range_text(const struct pp_dump *dump, uint64_t least, uint64_t most)
{
	struct pp_time_unit unit = pp_stage_unit(dump);
	const char *first = pp_show_time(dump->arena, least, unit);
	return least == most ? first : pp_arena_printf(dump->arena, "%s..%s", first, pp_show_time(dump->arena, most, unit));
}

static void print_compute_costs(const struct pp_dump *dump)
{
	const char *comma = "";
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		uint64_t least = UINT64_MAX, most = 0;
		bool seen[PP_PHASE_COUNT] = {false};
		for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
			for (uint32_t i = 0; i < dump->named->streams[rank].count; i++) {
				const struct pp_instr *instr = &dump->named->streams[rank].items[i];
				if (pp_compute_letter(instr) != pp_phase_name[phase][0])
					continue;
				uint64_t ticks = dump->program->stages[instr->stage].ticks[phase];
				seen[phase] = true;
				least = ticks < least ? ticks : least;
				most = ticks > most ? ticks : most;
			}
		if (!seen[phase])
			continue;
		fprintf(dump->out, "%s%s %s", comma, pp_phase_name[phase], range_text(dump, least, most));
		comma = ", ";
	}
	fprintf(dump->out, " %s per stage", pp_stage_unit(dump).name);
}

static void print_link_costs(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	for (uint32_t c = 0; c < program->channel_count; c++) {
		const struct pp_channel *channel = &program->channels[c];
		bool known = false;
		for (uint32_t k = 0; k < c && !known; k++)
			known = program->channels[k].latency == channel->latency &&
			        program->channels[k].bandwidth == channel->bandwidth;
		if (known || c > 64) /* a few kinds of links at most: on-node, between nodes */
			continue;
		fprintf(dump->out, "; link %" PRIu64 " ns", channel->latency);
		if (channel->bandwidth)
			fprintf(dump->out, " + bytes / %s", pp_show_rate(dump->arena, channel->bandwidth, "B/s"));
	}
	if (program->cost.memory_bandwidth)
		fprintf(dump->out, "; tail at %s of memory", pp_show_rate(dump->arena, program->cost.memory_bandwidth, "B/s"));
	fputc('\n', dump->out);
}

/* Of the model's own operations, or of those that are done again; of a whole replica, all its tp coordinates. */
static double flops_of_step(const struct pp_dump *dump, bool recomputed)
{
	double flops = 0;
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		for (uint32_t i = 0; i < dump->named->streams[rank].count; i++) {
			const struct pp_instr *instr = &dump->named->streams[rank].items[i];
			for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
				if ((phase == PP_PHASE_R) == recomputed && pp_compute_letter(instr) == pp_phase_name[phase][0])
					flops += (double)dump->program->stages[instr->stage].flops[phase];
		}
	return flops * dump->program->tp;
}

static double model_flops(const struct pp_dump *dump)
{
	return flops_of_step(dump, false);
}

/* Share of the devices' peak that so many operations would use; 0 if the peak is not known. */
static double share_of_peak(const struct pp_dump *dump, double flops)
{
	double step = (double)(dump->sim->makespan + dump->sim->tail) * 1e-9;
	double peak = (double)dump->program->cost.peak_flops * dump->program->ranks * dump->program->tp;
	return step > 0 && peak > 0 ? flops / (step * peak) : 0;
}

static double utilisation(const struct pp_dump *dump)
{
	return share_of_peak(dump, model_flops(dump));
}

static void print_costs(const struct pp_dump *dump)
{
	fputs(" costs: ", dump->out);
	print_compute_costs(dump);
	if (dump->costless)
		fputc('\n', dump->out);
	else
		print_link_costs(dump);
	if (utilisation(dump) <= 0)
		return;
	double again = flops_of_step(dump, true);
	fprintf(dump->out, " flops: %s per step and replica, %s of the peak",
	        pp_show_rate(dump->arena, (uint64_t)model_flops(dump), "flop"), percent(dump, utilisation(dump)));
	if (again > 0)
		fprintf(dump->out, "; %s recomputed, with them %s", pp_show_rate(dump->arena, (uint64_t)again, "flop"),
		        percent(dump, share_of_peak(dump, model_flops(dump) + again)));
	fputc('\n', dump->out);
}

/* The mean that the step's loss and gradients are: of its first `clip`; NULL: it has no loss. */
static const char *mean_name(const struct pp_dump *dump)
{
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		for (uint32_t i = 0; i < dump->named->streams[rank].count; i++)
			if (dump->named->streams[rank].items[i].op == PP_OP_CLIP)
				return pp_mean_name[dump->named->streams[rank].items[i].sub];
	return NULL;
}

static void print_loss(const struct pp_dump *dump)
{
	const char *name = mean_name(dump);
	if (!name)
		return;
	bool tokens = strcmp(name, pp_mean_name[PP_TOKEN_MEAN]) == 0;
	fprintf(dump->out, " loss: %s, %s\n", name,
	        tokens ? "over all tokens of the step" : "over the means of the microbatches");
}

static void print_layouts(const struct pp_dump *dump, const char *separator, uint32_t layouts)
{
	if (layouts == 0)
		fprintf(dump->out, "%snone", separator);
	for (unsigned layout = 0; layout < PP_LAYOUT_COUNT; layout++)
		if (layouts >> layout & 1) {
			fprintf(dump->out, "%s%s", separator, pp_layout_name[layout]);
			separator = ", ";
		}
}

static void print_proof(const struct pp_dump *dump)
{
	const struct pp_stamp *stamp = &dump->program->stamp;
	fputs(" proven: no deadlock in ", dump->out);
	if (stamp->layouts == PP_ALL_LAYOUTS) {
		fputs("any queue layout", dump->out);
	} else {
		print_layouts(dump, "layouts ", stamp->layouts);
		print_layouts(dump, "; posts starting in order: ", stamp->in_order);
	}
	if (dump->program->lowering != PP_LOWERED_GIVEN)
		fprintf(dump->out, "; lowering: %s", pp_lowered_name[dump->program->lowering]);
	if (stamp->bits_fixed)
		fputs("; bits: fixed\n", dump->out);
	else
		fprintf(dump->out, "; bits: order-dependent%s%s\n", *stamp->bits_reason ? ": " : "", stamp->bits_reason);
}

void pp_emit_header(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	const uint64_t ranks = (uint64_t)program->tp * program->ranks * program->dp;
	fprintf(dump->out, "%s: %" PRIu64 " rank%s = tp %u x pp %u x dp %u, %u stage%s, m = %u", dump->file, ranks,
	        ranks == 1 ? "" : "s", program->tp, program->ranks, program->dp, program->stage_count,
	        program->stage_count == 1 ? "" : "s", program->microbatches);
	if (program->schedule_name)
		fprintf(dump->out, ", %s", program->schedule_name);
	if (pp_is_forward_only(dump->named))
		fprintf(dump->out, "; program %s", dump->named->name);
	if (dump->sim)
		fprintf(dump->out, "; times in %s", dump->unit.name);
	if (dump->sim && strcmp(dump->transport, "none") != 0)
		fprintf(dump->out, ", over %s", dump->transport);
	fputc('\n', dump->out);
}

void pp_emit_stats(const struct pp_dump *dump)
{
	print_ranks(dump);
	print_step(dump);
	if (!dump->costless)
		print_memory(dump);
	print_costs(dump);
	print_loss(dump);
	print_proof(dump);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_rank(const struct pp_dump *dump, struct pp_json *json, uint32_t rank)
{
	const struct pp_sim_rank *sim = &dump->sim->rank[rank];
	pp_json_open_object(json, NULL);
	pp_json_uint(json, "rank", rank);
	pp_json_uint(json, "busy", sim->busy);
	pp_json_number(json, "bubble", dump->sim->makespan ? 1 - share(sim->busy, dump->sim->makespan) : 0);
	pp_json_open_object(json, "idle");
	for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
		pp_json_uint(json, pp_idle_name[cause], sim->idle[cause]);
	pp_json_close(json);
	pp_json_uint(json, "longest_idle", sim->longest_idle);
	pp_json_uint(json, "longest_idle_at", sim->longest_idle_at);
	pp_json_uint(json, "sent", sim->sent);
	pp_json_uint(json, "received", sim->received);
	pp_json_uint(json, "peak_stashes", sim->peak_stashes);
	if (!dump->costless) {
		pp_json_uint(json, "peak_bytes", sim->peak_bytes);
		pp_json_uint(json, "peak_at", sim->peak_at);
		pp_json_uint(json, "arena_bytes", dump->program->rank[rank].arena_bytes);
		pp_json_uint(json, "static_bytes", dump->program->rank[rank].static_bytes);
		pp_json_uint(json, "live_bytes", dump->program->rank[rank].live_bytes);
		pp_json_uint(json, "params", pp_rank_params(dump->program, rank));
	}
	pp_json_close(json);
}

static void json_proof(const struct pp_dump *dump, struct pp_json *json)
{
	const struct pp_stamp *stamp = &dump->program->stamp;
	pp_layouts_json(json, "layouts_proven", stamp->layouts);
	pp_layouts_json(json, "layouts_in_order", stamp->in_order);
	pp_json_bool(json, "bits_fixed", stamp->bits_fixed);
	if (!stamp->bits_fixed)
		pp_json_string(json, "bits_reason", stamp->bits_reason);
}

static void json_flops(const struct pp_dump *dump, struct pp_json *json)
{
	double again = flops_of_step(dump, true);
	pp_json_string(json, "flops_unit", "per step and replica");
	pp_json_number(json, "flops", model_flops(dump));
	if (again > 0)
		pp_json_number(json, "recomputed_flops", again);
	pp_json_number(json, "utilisation", utilisation(dump));
}

void pp_emit_stats_json(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	const struct pp_sim *sim = dump->sim;
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.stats/1");
	pp_json_string(&json, "program", dump->named->name);
	if (program->schedule_name)
		pp_json_string(&json, "schedule", program->schedule_name);
	if (program->lowering != PP_LOWERED_GIVEN)
		pp_json_string(&json, "lowering", pp_lowered_name[program->lowering]);
	pp_json_uint(&json, "pp", program->ranks);
	pp_json_uint(&json, "tp", program->tp);
	pp_json_uint(&json, "dp", program->dp);
	pp_json_uint(&json, "vpp", program->vpp);
	pp_json_uint(&json, "stages", program->stage_count);
	pp_json_uint(&json, "microbatches", program->microbatches);
	pp_json_string(&json, "time_unit", pp_dump_time_unit(dump));
	pp_json_uint(&json, "makespan", sim->makespan);
	if (!dump->costless)
		pp_json_uint(&json, "tail", sim->tail);
	pp_json_uint(&json, "longest_span", sim->longest_span);
	pp_json_uint(&json, "lower_bound", sim->bound.makespan);
	pp_json_number(&json, "gap", pp_bound_gap(sim->makespan, sim->bound.makespan));
	pp_json_string(&json, "lower_bound_term", sim->bound.makespan_term);
	pp_json_uint(&json, "span_lower_bound", sim->bound.span);
	pp_json_number(&json, "span_gap", pp_bound_gap(sim->longest_span, sim->bound.span));
	pp_json_string(&json, "span_lower_bound_term", sim->bound.span_term);
	pp_json_number(&json, "work", sim->work);
	pp_json_number(&json, "bubble", sim->bubble);
	pp_json_number(&json, "overhead", sim->overhead);
	pp_json_number(&json, "span_bubble", sim->span_bubble);
	pp_json_number(&json, "imbalance", sim->imbalance);
	if (!dump->costless)
		json_flops(dump, &json);
	if (mean_name(dump))
		pp_json_string(&json, "loss", mean_name(dump));
	json_proof(dump, &json);
	pp_json_open_array(&json, "ranks");
	for (uint32_t rank = 0; rank < program->ranks; rank++)
		if (dump->chosen[rank])
			json_rank(dump, &json, rank);
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}
