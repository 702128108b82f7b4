/* Printing a plan: a table for people, one object of JSON, or CSV with a line per combination. */
#include "plan.h"

#include "ir/figures.h"
#include "ir/json.h"
#include "ir/order.h"

#include <inttypes.h>
#include <string.h>

static double gap(const struct pp_plan_row *row)
{
	return pp_bound_gap(row->makespan, row->bound);
}

/* Axes with columns of their own are those that a row does not show anyway. */
static bool shown_anyway(const struct pp_plan_axis *axis)
{
	return strcmp(axis->name, "schedule") == 0 || strcmp(axis->name, "vpp") == 0 || strcmp(axis->name, "place") == 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *percent(struct pp_arena *arena, double share)
{
	return pp_arena_printf(arena, "%.1f %%", 100 * share);
}

/* Of the slowest step, so that all times are in one unit. */
static struct pp_time_unit common_unit(const struct pp_plan *plan)
{
	uint64_t most = 0;
	for (size_t i = 0; i < plan->ranked; i++)
		most = plan->rows[i].makespan + plan->rows[i].tail > most ? plan->rows[i].makespan + plan->rows[i].tail : most;
	return pp_time_unit_for(most);
}

static const char *time_head(struct pp_arena *arena, const char *what, struct pp_time_unit unit)
{
	return pp_arena_printf(arena, "%s %s", what, unit.name);
}

/* Two digits after the point, or as many as give the fastest step three digits in all: one slow row must not make the
 * others look alike. */
static int decimals_of(const struct pp_plan *plan, struct pp_time_unit unit)
{
	double least = 0;
	for (size_t i = 0; i < plan->ranked; i++) {
		double step = (double)plan->rows[i].makespan / (double)unit.ns;
		least = step > 0 && (least == 0 || step < least) ? step : least;
	}
	int decimals = 2;
	for (; least > 0 && least < 1 && decimals < 9; decimals++)
		least *= 10;
	return decimals;
}

static const char *short_time(struct pp_arena *arena, double ns, struct pp_time_unit unit, int decimals)
{
	return pp_arena_printf(arena, "%.*f", decimals, ns / (double)unit.ns);
}

enum { FIXED_COLUMNS = 14 };

static unsigned columns_of(const struct pp_plan *plan)
{
	unsigned columns = FIXED_COLUMNS + !plan->same_batch;
	for (size_t a = 0; a < plan->vary->count; a++)
		columns += !shown_anyway(&plan->vary->axes[a]);
	return columns;
}

static void print_heads(struct pp_arena *arena, const struct pp_plan *plan, struct pp_time_unit unit,
                        struct pp_table *table)
{
	pp_table_cell(table, "#");
	pp_table_cell(table, "schedule");
	pp_table_cell(table, "vpp");
	pp_table_cell(table, "place");
	for (size_t a = 0; a < plan->vary->count; a++)
		if (!shown_anyway(&plan->vary->axes[a]))
			pp_table_cell(table, plan->vary->axes[a].name);
	if (!plan->same_batch)
		pp_table_cell(table, time_head(arena, "sample", unit));
	pp_table_cell(table, time_head(arena, "step", unit));
	pp_table_cell(table, time_head(arena, "makespan", unit));
	pp_table_cell(table, time_head(arena, "span", unit));
	pp_table_cell(table, "bubble");
	pp_table_cell(table, "peak");
	pp_table_cell(table, "on");
	pp_table_cell(table, "stashes");
	pp_table_cell(table, "messages");
	pp_table_cell(table, time_head(arena, "bound", unit));
	pp_table_cell(table, "gap");
}

static void print_row(struct pp_arena *arena, const struct pp_plan *plan, size_t at, struct pp_time_unit unit,
                      int decimals, struct pp_table *table)
{
	const struct pp_plan_row *row = &plan->rows[at];
	pp_table_cell(table, pp_arena_printf(arena, "%zu%s", at + 1, row->front ? "*" : " "));
	pp_table_cell(table, row->schedule);
	pp_table_cell_uint(table, row->vpp);
	pp_table_cell(table, row->place);
	for (size_t a = 0; a < plan->vary->count; a++)
		if (!shown_anyway(&plan->vary->axes[a]))
			pp_table_cell(table, row->values[a]);
	if (!plan->same_batch)
		pp_table_cell(table, pp_arena_printf(arena, "%.*f", decimals + 1, pp_plan_pace(row) / (double)unit.ns));
	pp_table_cell(table, short_time(arena, (double)row->makespan + (double)row->tail, unit, decimals));
	pp_table_cell(table, short_time(arena, (double)row->makespan, unit, decimals));
	pp_table_cell(table, short_time(arena, (double)row->span, unit, decimals));
	pp_table_cell(table, percent(arena, row->bubble));
	pp_table_cell(table, pp_show_bytes(arena, row->peak));
	pp_table_cell(table, pp_arena_printf(arena, "r%u", row->peak_rank));
	pp_table_cell_uint(table, row->in_flight);
	pp_table_cell_uint(table, row->messages);
	pp_table_cell(table, short_time(arena, (double)row->bound, unit, decimals));
	pp_table_cell(table, percent(arena, gap(row)));
}

static void print_ranked(struct pp_arena *arena, const struct pp_plan *plan, FILE *out)
{
	struct pp_time_unit unit = common_unit(plan);
	uint32_t left = 1 << 1 | 1 << 3;
	unsigned column = 4;
	for (size_t a = 0; a < plan->vary->count; a++)
		if (!shown_anyway(&plan->vary->axes[a]))
			left |= 1u << column++;
	struct pp_table table = pp_table_begin(arena, columns_of(plan), left);
	print_heads(arena, plan, unit, &table);
	for (size_t i = 0; i < plan->ranked; i++)
		print_row(arena, plan, i, unit, decimals_of(plan, unit), &table);
	pp_table_print(&table, out);
	fputs("* no other is faster with no more memory, nor smaller and no slower\n", out);
}

static const char *values_text(struct pp_arena *arena, const struct pp_plan *plan, const struct pp_plan_row *row)
{
	const char *text = "";
	for (size_t a = 0; a < plan->vary->count; a++) {
		const char *space = *text ? " " : "";
		if (plan->vary->axes[a].attribute)
			text = pp_arena_printf(arena, "%s%s%s=%s", text, space, plan->vary->axes[a].name, row->values[a]);
		else
			text = pp_arena_printf(arena, "%s%s%s", text, space, row->values[a]);
	}
	return text;
}

static void print_refused(struct pp_arena *arena, const struct pp_plan *plan, FILE *out)
{
	struct pp_table table = pp_table_begin(arena, 3, 7);
	pp_table_cell(&table, "refused");
	pp_table_cell(&table, "code");
	pp_table_cell(&table, "reason");
	for (size_t i = plan->ranked; i < plan->count; i++) {
		const struct pp_plan_row *row = &plan->rows[i];
		pp_table_cell(&table, values_text(arena, plan, row));
		pp_table_cell(&table, *row->code ? row->code : "-");
		pp_table_cell(&table, *row->help ? pp_arena_printf(arena, "%s; %s", row->reason, row->help) : row->reason);
	}
	pp_table_print(&table, out);
}

/* The smallest of the front, if it is not the fastest. */
static const struct pp_plan_row *smallest(const struct pp_plan *plan)
{
	const struct pp_plan_row *found = &plan->rows[0];
	for (size_t i = 0; i < plan->ranked; i++)
		if (plan->rows[i].peak < found->peak)
			found = &plan->rows[i];
	return found;
}

static void print_text(struct pp_arena *arena, const struct pp_plan *plan, const char *file, FILE *out)
{
	fprintf(out, "%s: %zu of %zu combination%s can be run%s\n", file, plan->ranked, plan->count,
	        plan->count == 1 ? "" : "s", plan->same_batch ? "" : ", ranked by time per sample");
	if (plan->left_out)
		fprintf(out, "%zu more that the schedules do not take: --vary=vpp=VALUES shows why\n", plan->left_out);
	if (plan->lacking)
		fprintf(out, "%zu more of the library's schedules, for which the spec says too little: %s\n", plan->lacking,
		        plan->lack);
	if (plan->multiples)
		fprintf(out, "memory 1x: %s, what the fullest rank of 1f1b needs; 0x: %s, its weights, gradients and moments\n",
		        pp_show_bytes(arena, plan->unit), pp_show_bytes(arena, plan->fixed));
	if (plan->ranked) {
		fputc('\n', out);
		print_ranked(arena, plan, out);
	}
	if (plan->ranked < plan->count) {
		fputc('\n', out);
		print_refused(arena, plan, out);
	}
	if (plan->ranked == 0)
		return;
	fprintf(out, "\nfastest:  pipec build %s %s\n", file, pp_plan_arguments(arena, plan, &plan->rows[0]));
	if (smallest(plan) != &plan->rows[0])
		fprintf(out, "smallest: pipec build %s %s\n", file, pp_plan_arguments(arena, plan, smallest(plan)));
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_figures(struct pp_json *json, const struct pp_plan_row *row, size_t rank)
{
	pp_json_uint(json, "rank", rank);
	pp_json_bool(json, "front", row->front);
	pp_json_uint(json, "makespan", row->makespan);
	pp_json_uint(json, "tail", row->tail);
	pp_json_uint(json, "step", row->makespan + row->tail);
	pp_json_uint(json, "longest_span", row->span);
	pp_json_number(json, "bubble", row->bubble);
	pp_json_number(json, "span_bubble", row->span_bubble);
	pp_json_uint(json, "peak_bytes", row->peak);
	pp_json_uint(json, "peak_rank", row->peak_rank);
	pp_json_uint(json, "in_flight", row->in_flight);
	pp_json_uint(json, "messages", row->messages);
	pp_json_uint(json, "samples", row->samples);
	pp_json_uint(json, "lower_bound", row->bound);
	pp_json_number(json, "gap", gap(row));
	pp_json_uint(json, "span_lower_bound", row->span_bound);
	pp_json_number(json, "span_gap", pp_bound_gap(row->span, row->span_bound));
}

static void json_row(struct pp_arena *arena, const struct pp_plan *plan, size_t at, struct pp_json *json)
{
	const struct pp_plan_row *row = &plan->rows[at];
	pp_json_line(json);
	pp_json_open_object(json, NULL);
	pp_json_open_object(json, "values");
	for (size_t a = 0; a < plan->vary->count; a++)
		pp_json_string(json, plan->vary->axes[a].name, row->values[a]);
	pp_json_close(json);
	if (*row->schedule)
		pp_json_string(json, "schedule", row->schedule);
	if (row->stages) {
		pp_json_uint(json, "vpp", row->vpp);
		pp_json_string(json, "place", row->place);
		pp_json_uint(json, "stages", row->stages);
	}
	if (row->cap)
		pp_json_uint(json, "memory", row->cap);
	pp_json_bool(json, "refused", row->refused);
	if (row->refused) {
		if (*row->code)
			pp_json_string(json, "code", row->code);
		pp_json_string(json, "reason", row->reason);
		if (*row->help)
			pp_json_string(json, "help", row->help);
	} else {
		json_figures(json, row, at + 1);
		pp_json_string(json, "arguments", pp_plan_arguments(arena, plan, row));
	}
	pp_json_close(json);
}

static void print_json(struct pp_arena *arena, const struct pp_plan *plan, const char *file, FILE *out)
{
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.plan/1");
	pp_json_string(&json, "file", file);
	pp_json_string(&json, "time_unit", "ns");
	pp_json_string(&json, "ranked_by", plan->same_batch ? "step" : "step / samples");
	pp_json_uint(&json, "left_out", plan->left_out + plan->lacking);
	if (plan->multiples) {
		pp_json_uint(&json, "memory_1x", plan->unit);
		pp_json_uint(&json, "memory_0x", plan->fixed);
	}
	pp_json_open_array(&json, "rows");
	for (size_t i = 0; i < plan->count; i++)
		json_row(arena, plan, i, &json);
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', out);
}

/* ---- CSV ------------------------------------------------------------------------------------- */

/* RFC 4180: quoted where it holds a comma, a quote or the end of a line. */
static void csv_text(const char *text, FILE *out)
{
	fputc(',', out);
	if (!strpbrk(text, ",\"\r\n")) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void csv_uint(uint64_t value, FILE *out)
{
	fprintf(out, ",%" PRIu64, value);
}

static void print_csv(const struct pp_plan *plan, FILE *out)
{
	fputs("rank", out);
	for (size_t a = 0; a < plan->vary->count; a++)
		if (!shown_anyway(&plan->vary->axes[a]))
			csv_text(plan->vary->axes[a].name, out);
	fputs(",schedule,vpp,place,front,step_ns,makespan_ns,span_ns,bubble,span_bubble,peak_bytes,peak_rank,in_flight,"
	      "messages,samples,bound_ns,gap,span_bound_ns,span_gap,code,reason\n",
	      out);
	for (size_t i = 0; i < plan->count; i++) {
		const struct pp_plan_row *row = &plan->rows[i];
		if (!row->refused)
			fprintf(out, "%zu", i + 1);
		for (size_t a = 0; a < plan->vary->count; a++)
			if (!shown_anyway(&plan->vary->axes[a]))
				csv_text(row->values[a], out);
		csv_text(row->schedule, out);
		csv_uint(row->vpp, out);
		csv_text(row->place, out);
		if (row->refused) {
			fputs(",,,,,,,,,,,,,,,", out);
		} else {
			csv_uint(row->front, out);
			csv_uint(row->makespan + row->tail, out);
			csv_uint(row->makespan, out);
			csv_uint(row->span, out);
			fprintf(out, ",%.6f,%.6f", row->bubble, row->span_bubble);
			csv_uint(row->peak, out);
			csv_uint(row->peak_rank, out);
			csv_uint(row->in_flight, out);
			csv_uint(row->messages, out);
			csv_uint(row->samples, out);
			csv_uint(row->bound, out);
			fprintf(out, ",%.6f", gap(row));
			csv_uint(row->span_bound, out);
			fprintf(out, ",%.6f", pp_bound_gap(row->span, row->span_bound));
		}
		csv_text(row->code, out);
		csv_text(row->reason, out);
		fputc('\n', out);
	}
}

void pp_plan_print(struct pp_arena *arena, const struct pp_plan *plan, const char *file, enum pp_plan_format format,
                   FILE *out)
{
	switch (format) {
	case PP_PLAN_TEXT:
		print_text(arena, plan, file, out);
		return;
	case PP_PLAN_JSON:
		print_json(arena, plan, file, out);
		return;
	case PP_PLAN_CSV:
		print_csv(plan, out);
		return;
	}
}
