/* The summary of a program that was built or checked. Requires: every pass has succeeded. */
#include "summary.h"

#include "ir/figures.h"
#include "ir/json.h"
#include "ir/queues.h"
#include "search/make.h"

#include <inttypes.h>
#include <string.h>

static uint32_t fullest_rank(const struct pp_program *program)
{
	uint32_t rank = 0;
	for (uint32_t r = 1; r < program->ranks; r++)
		if (program->rank[r].arena_bytes > program->rank[rank].arena_bytes)
			rank = r;
	return rank;
}

static void print_layouts(FILE *out, uint32_t layouts)
{
	for (unsigned i = 0; i < PP_LAYOUT_COUNT; i++)
		if (layouts >> i & 1)
			fprintf(out, " %s", pp_layout_name[i]);
}

void pp_proof_print(FILE *out, const struct pp_stamp *stamp)
{
	if (stamp->layouts == PP_ALL_LAYOUTS) {
		fputs("proven: no deadlock in any queue layout", out);
		return;
	}
	fputs("proven: no deadlock in queue layouts", out);
	print_layouts(out, stamp->layouts);
	fputs(", with posts that start in program order in", out);
	if (stamp->in_order)
		print_layouts(out, stamp->in_order);
	else
		fputs(" none", out);
}

static const char *shown(const char *output)
{
	return strcmp(output, "-") == 0 ? "<stdout>" : output;
}

void pp_summary_idle(const struct pp_unit *unit, FILE *out)
{
	uint64_t idle = pp_spec_idle_gpus(&unit->resolved.spec);
	if (idle)
		fprintf(out, " (%" PRIu64 " of %" PRIu64 " GPUs idle)", idle, pp_spec_gpus(&unit->resolved.spec));
}

/* What judging splits by their makespan has gained, if it is worth a word. */
static void print_gain(const struct pp_joint_report *joint, FILE *out)
{
	double gain = joint && joint->balanced != UINT64_MAX ? 1 - (double)joint->chosen / (double)joint->balanced : 0;
	if (gain >= 0.0005)
		fprintf(out, "split %.1f %% faster than the one with the fastest slowest rank; ", 100 * gain);
}

static void json_split(const struct pp_joint_report *joint, struct pp_json *json)
{
	pp_json_open_object(json, "split");
	pp_json_uint(json, "makespan", joint->chosen);
	if (joint->quick)
		pp_json_bool(json, "orders_made_quickly", true);
	if (joint->balanced != UINT64_MAX)
		pp_json_uint(json, "of_least_slowest_rank", joint->balanced);
	if (joint->even != UINT64_MAX)
		pp_json_uint(json, "of_equal_blocks", joint->even);
	pp_json_close(json);
}

static void print_text(const struct pp_unit *unit, const char *output, FILE *out)
{
	const struct pp_program *program = unit->program;
	uint32_t rank = fullest_rank(program), devices = program->ranks * program->tp * program->dp;
	fputs(unit->source->name, out);
	if (output)
		fprintf(out, " -> %s", shown(output));
	fprintf(out, ": %u rank%s = tp %u x pp %u x dp %u", devices, devices == 1 ? "" : "s", program->tp, program->ranks,
	        program->dp);
	pp_summary_idle(unit, out);
	fprintf(out, ", %u stage%s, m = %u", program->stage_count, program->stage_count == 1 ? "" : "s",
	        program->microbatches);
	if (program->schedule_name)
		fprintf(out, ", %s", program->schedule_name);
	fprintf(out, "; bubble %.1f %% of the makespan, %.1f %% above the lower bound; ", 100 * unit->sim.bubble,
	        100 * pp_bound_gap(unit->sim.makespan, unit->sim.bound.makespan));
	print_gain(unit->stages.joint, out);
	fprintf(out, "peak %s (rank %u); ", pp_show_bytes(unit->arena, program->rank[rank].arena_bytes), rank);
	pp_proof_print(out, &program->stamp);
	fputc('\n', out);
	if (unit->schedule.search)
		pp_search_print(unit->arena, &unit->resolved, &unit->schedule, &unit->sim, out);
	if (unit->leanest)
		fputs(
		    "order: the leanest that is known, as none that the policy makes fits; with more memory it may be faster\n",
		    out);
}

static void print_json(const struct pp_unit *unit, const char *output, FILE *out)
{
	const struct pp_program *program = unit->program;
	uint32_t rank = fullest_rank(program);
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.summary/1");
	pp_json_string(&json, "file", unit->source->name);
	if (output)
		pp_json_string(&json, "output", shown(output));
	pp_json_uint(&json, "tp", program->tp);
	pp_json_uint(&json, "pp", program->ranks);
	pp_json_uint(&json, "dp", program->dp);
	if (pp_spec_idle_gpus(&unit->resolved.spec))
		pp_json_uint(&json, "idle_gpus", pp_spec_idle_gpus(&unit->resolved.spec));
	pp_json_uint(&json, "stages", program->stage_count);
	pp_json_uint(&json, "microbatches", program->microbatches);
	if (program->schedule_name)
		pp_json_string(&json, "schedule", program->schedule_name);
	pp_json_string(&json, "time_unit", "ns");
	pp_json_uint(&json, "makespan", unit->sim.makespan);
	pp_json_uint(&json, "tail", unit->sim.tail);
	pp_json_uint(&json, "lower_bound", unit->sim.bound.makespan);
	pp_json_number(&json, "gap", pp_bound_gap(unit->sim.makespan, unit->sim.bound.makespan));
	pp_json_string(&json, "lower_bound_term", unit->sim.bound.makespan_term);
	pp_json_uint(&json, "longest_span", unit->sim.longest_span);
	pp_json_uint(&json, "span_lower_bound", unit->sim.bound.span);
	pp_json_number(&json, "span_gap", pp_bound_gap(unit->sim.longest_span, unit->sim.bound.span));
	pp_json_number(&json, "bubble", unit->sim.bubble);
	pp_json_uint(&json, "peak_bytes", program->rank[rank].arena_bytes);
	pp_json_uint(&json, "peak_rank", rank);
	if (unit->leanest)
		pp_json_bool(&json, "leanest", true);
	if (unit->stages.joint)
		json_split(unit->stages.joint, &json);
	if (unit->schedule.search)
		pp_search_json(&unit->resolved, &unit->schedule, &unit->sim, &json);
	pp_layouts_json(&json, "layouts", program->stamp.layouts);
	pp_layouts_json(&json, "layouts_in_order", program->stamp.in_order);
	pp_json_close(&json);
	fputc('\n', out);
}

void pp_summary_print(const struct pp_unit *unit, const char *output, bool json, FILE *out)
{
	if (json)
		print_json(unit, output, out);
	else
		print_text(unit, output, out);
}
