/* Two programs side by side: what they take, where their ranks idle and why, what they hold, and where their orders
 * part. requires: both simulated. Differences are the second less the first. */
#include "emit.h"

#include "ir/lifetime.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct sides {
	const struct pp_dump *a, *b;
	struct pp_arena *arena;
	FILE *out;
	struct pp_time_unit unit;
};

/* ---- figures --------------------------------------------------------------------------------- */

enum form { TIME, SHARE, BYTES, COUNT };

struct figure {
	const char *name, *key; /* in the table, in JSON */
	enum form form;
	double a, b;
};

enum { FIGURES = 17 };

static uint64_t messages(const struct pp_dump *dump)
{
	uint64_t sum = 0;
	for (uint32_t r = 0; r < dump->program->ranks; r++)
		sum += dump->sim->rank[r].sent;
	return sum;
}

static uint64_t most_bytes(const struct pp_dump *dump)
{
	uint64_t most = 0;
	for (uint32_t r = 0; r < dump->program->ranks; r++)
		most = dump->program->rank[r].arena_bytes > most ? dump->program->rank[r].arena_bytes : most;
	return most;
}

static uint32_t most_stashes(const struct pp_dump *dump)
{
	uint32_t most = 0;
	for (uint32_t r = 0; r < dump->program->ranks; r++)
		most = dump->sim->rank[r].peak_stashes > most ? dump->sim->rank[r].peak_stashes : most;
	return most;
}

static double gap(const struct pp_sim *sim)
{
	return pp_bound_gap(sim->makespan, sim->bound.makespan);
}

static double span_gap(const struct pp_sim *sim)
{
	return pp_bound_gap(sim->longest_span, sim->bound.span);
}

/* What a step trains, over all replicas. */
static double samples(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	return (double)(program->train.microbatch ? program->train.microbatch : 1) * program->microbatches * program->dp;
}

static double per_sample(const struct pp_dump *dump)
{
	return ((double)dump->sim->makespan + (double)dump->sim->tail) / samples(dump);
}

static void take_figures(const struct sides *sides, struct figure *figures)
{
	const struct pp_sim *a = sides->a->sim, *b = sides->b->sim;
	const struct figure all[FIGURES] = {
	    {"step", "step", TIME, (double)a->makespan + (double)a->tail, (double)b->makespan + (double)b->tail},
	    {"samples of a step", "samples", COUNT, samples(sides->a), samples(sides->b)},
	    {"step, per sample", "step_per_sample", TIME, per_sample(sides->a), per_sample(sides->b)},
	    {"makespan", "makespan", TIME, (double)a->makespan, (double)b->makespan},
	    {"tail", "tail", TIME, (double)a->tail, (double)b->tail},
	    {"longest span of a rank", "longest_span", TIME, (double)a->longest_span, (double)b->longest_span},
	    {"work, mean over ranks", "work", TIME, a->work, b->work},
	    {"bubble of the makespan", "bubble", SHARE, a->bubble, b->bubble},
	    {"bubble of the longest span", "span_bubble", SHARE, a->span_bubble, b->span_bubble},
	    {"imbalance", "imbalance", SHARE, a->imbalance, b->imbalance},
	    {"lower bound of the makespan", "lower_bound", TIME, (double)a->bound.makespan, (double)b->bound.makespan},
	    {"gap to it", "gap", SHARE, gap(a), gap(b)},
	    {"lower bound of the span", "span_lower_bound", TIME, (double)a->bound.span, (double)b->bound.span},
	    {"gap to it", "span_gap", SHARE, span_gap(a), span_gap(b)},
	    {"memory of the fullest rank", "peak_bytes", BYTES, (double)most_bytes(sides->a), (double)most_bytes(sides->b)},
	    {"most stashes held", "in_flight", COUNT, most_stashes(sides->a), most_stashes(sides->b)},
	    {"messages", "messages", COUNT, (double)messages(sides->a), (double)messages(sides->b)},
	};
	memcpy(figures, all, sizeof all);
}

/* An order alone has no bytes, and no tail beside its makespan; time per sample counts where steps are not alike. */
static bool is_shown(const struct sides *sides, const struct figure *figure)
{
	static const char *const of_costs[] = {"step", "tail", "samples", "step_per_sample"};
	bool costs = figure->form == BYTES;
	for (size_t i = 0; i < sizeof of_costs / sizeof of_costs[0]; i++)
		costs |= strcmp(figure->key, of_costs[i]) == 0;
	bool sampled = strcmp(figure->key, "samples") == 0 || strcmp(figure->key, "step_per_sample") == 0;
	return !(costs && sides->a->costless) && (!sampled || samples(sides->a) != samples(sides->b));
}

static const char *show(const struct sides *sides, enum form form, double value)
{
	switch (form) {
	case TIME:
		return pp_show_time(sides->arena, (uint64_t)(value + 0.5), sides->unit);
	case SHARE:
		return pp_arena_printf(sides->arena, "%.1f %%", 100 * value + 1e-9);
	case BYTES:
		return pp_show_bytes(sides->arena, (uint64_t)value);
	case COUNT:
		return pp_arena_printf(sides->arena, "%.0f", value);
	}
	return "";
}

/* "-6 (-18.2 %)"; shares in points. */
static const char *difference(const struct sides *sides, const struct figure *figure)
{
	double by = figure->b - figure->a;
	if (figure->form == SHARE)
		return fabs(by) < 5e-4 ? "-" : pp_arena_printf(sides->arena, "%+.1f points", 100 * by);
	if (by == 0)
		return "-";
	const char *text = pp_arena_printf(sides->arena, "%c%s", by < 0 ? '-' : '+', show(sides, figure->form, fabs(by)));
	return figure->a > 0 ? pp_arena_printf(sides->arena, "%s (%+.1f %%)", text, 100 * by / figure->a) : text;
}

static void print_figures(const struct sides *sides)
{
	struct figure figures[FIGURES];
	struct pp_table table = pp_table_begin(sides->arena, 4, 1);
	take_figures(sides, figures);
	pp_table_cell(&table, pp_arena_printf(sides->arena, "times in %s", sides->unit.name));
	pp_table_cell(&table, "a");
	pp_table_cell(&table, "b");
	pp_table_cell(&table, "b - a");
	for (unsigned i = 0; i < FIGURES; i++) {
		if (!is_shown(sides, &figures[i]))
			continue;
		pp_table_cell(&table, figures[i].name);
		pp_table_cell(&table, show(sides, figures[i].form, figures[i].a));
		pp_table_cell(&table, show(sides, figures[i].form, figures[i].b));
		pp_table_cell(&table, difference(sides, &figures[i]));
	}
	pp_table_print(&table, sides->out);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* "4", or "4 -> 3". */
static const char *change(const struct sides *sides, enum form form, uint64_t a, uint64_t b)
{
	const char *before = show(sides, form, (double)a), *after = show(sides, form, (double)b);
	return a == b || strcmp(before, after) == 0 ? after : pp_arena_printf(sides->arena, "%s -> %s", before, after);
}

/* Causes that occur on either side. */
static uint32_t causes(const struct sides *sides)
{
	uint32_t mask = 0;
	for (uint32_t r = 0; r < sides->a->program->ranks; r++)
		for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
			if (sides->a->sim->rank[r].idle[cause] || sides->b->sim->rank[r].idle[cause])
				mask |= 1u << cause;
	return mask;
}

static void print_ranks(const struct sides *sides)
{
	bool memory = !sides->a->costless;
	uint32_t mask = causes(sides);
	struct pp_table table = pp_table_begin(sides->arena, 4 + memory + (unsigned)__builtin_popcount(mask), 1);
	pp_table_cell(&table, "rank");
	pp_table_cell(&table, "busy");
	for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
		if (mask >> cause & 1)
			pp_table_cell(&table, pp_idle_name[cause]);
	pp_table_cell(&table, "stashes");
	if (memory)
		pp_table_cell(&table, "memory");
	pp_table_cell(&table, "sent");
	for (uint32_t r = 0; r < sides->a->program->ranks; r++) {
		const struct pp_sim_rank *a = &sides->a->sim->rank[r], *b = &sides->b->sim->rank[r];
		if (!sides->a->chosen[r])
			continue;
		pp_table_cell(&table, pp_arena_printf(sides->arena, "r%u", r));
		pp_table_cell(&table, change(sides, TIME, a->busy, b->busy));
		for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
			if (mask >> cause & 1)
				pp_table_cell(&table, change(sides, TIME, a->idle[cause], b->idle[cause]));
		pp_table_cell(&table, change(sides, COUNT, a->peak_stashes, b->peak_stashes));
		if (memory)
			pp_table_cell(&table, change(sides, BYTES, sides->a->program->rank[r].arena_bytes,
			                             sides->b->program->rank[r].arena_bytes));
		pp_table_cell(&table, change(sides, COUNT, a->sent, b->sent));
	}
	fputs("\nidle time by cause, a -> b:\n", sides->out);
	pp_table_print(&table, sides->out);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Position in the stream of the next compute from `at` on; the stream's length: none. */
static uint32_t next_compute(const struct pp_stream *stream, uint32_t at)
{
	while (at < stream->count && !pp_is_compute(&stream->items[at]))
		at++;
	return at;
}

/* Where the orders of a rank part. */
struct parting {
	uint32_t equal;      /* actions before it */
	uint32_t at_a, at_b; /* positions in the streams; past the end: the order ends */
	bool same;           /* they never do */
};

static bool same_action(const struct sides *sides, const struct pp_instr *a, const struct pp_instr *b)
{
	return pp_compute_letter(a) == pp_compute_letter(b) && a->mb == b->mb &&
	       sides->a->chunk[a->stage] == sides->b->chunk[b->stage] && ((a->flags ^ b->flags) & PP_PAIR) == 0;
}

static struct parting find_parting(const struct sides *sides, uint32_t rank)
{
	const struct pp_stream *a = &sides->a->named->streams[rank], *b = &sides->b->named->streams[rank];
	struct parting parting = {.at_a = next_compute(a, 0), .at_b = next_compute(b, 0)};
	while (parting.at_a < a->count && parting.at_b < b->count &&
	       same_action(sides, &a->items[parting.at_a], &b->items[parting.at_b])) {
		parting.equal++;
		parting.at_a = next_compute(a, parting.at_a + 1);
		parting.at_b = next_compute(b, parting.at_b + 1);
	}
	parting.same = parting.at_a >= a->count && parting.at_b >= b->count;
	return parting;
}

enum { GOES_ON = 6 };

/* "t=4 B0 F1 B1 ..." */
static const char *goes_on(const struct sides *sides, const struct pp_dump *dump, uint32_t rank, uint32_t at)
{
	const struct pp_stream *stream = &dump->named->streams[rank];
	if (at >= stream->count)
		return "ends";
	const char *text = pp_arena_printf(sides->arena, "t=%s",
	                                   pp_show_time(sides->arena, dump->sim->instr[rank][at].start, sides->unit));
	for (unsigned i = 0; i < GOES_ON && at < stream->count; i++, at = next_compute(stream, at + 1))
		text = pp_arena_printf(sides->arena, "%s %s%s", text, pp_dump_action(dump, &stream->items[at]),
		                       stream->items[at].flags & PP_PAIR ? "&" : "");
	return at < stream->count ? pp_arena_printf(sides->arena, "%s ...", text) : text;
}

static void print_orders(const struct sides *sides)
{
	struct pp_table table = pp_table_begin(sides->arena, 4, 1 | 4 | 8);
	pp_table_cell(&table, "rank");
	pp_table_cell(&table, "equal");
	pp_table_cell(&table, "a goes on");
	pp_table_cell(&table, "b goes on");
	uint32_t same = 0, shown = 0;
	for (uint32_t r = 0; r < sides->a->program->ranks; r++) {
		if (!sides->a->chosen[r])
			continue;
		struct parting parting = find_parting(sides, r);
		same += parting.same;
		if (parting.same)
			continue;
		shown++;
		pp_table_cell(&table, pp_arena_printf(sides->arena, "r%u", r));
		pp_table_cell_uint(&table, parting.equal);
		pp_table_cell(&table, goes_on(sides, sides->a, r, parting.at_a));
		pp_table_cell(&table, goes_on(sides, sides->b, r, parting.at_b));
	}
	fprintf(sides->out, "\norder of computes: %s%s\n", shown ? "where it differs first" : "the same on every rank",
	        shown && same ? pp_arena_printf(sides->arena, "; the same on %u other rank%s", same, same == 1 ? "" : "s")
	                      : "");
	if (shown)
		pp_table_print(&table, sides->out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_pair(struct pp_json *json, const char *key, uint64_t a, uint64_t b)
{
	pp_json_open_object(json, key);
	pp_json_uint(json, "a", a);
	pp_json_uint(json, "b", b);
	pp_json_close(json);
}

static void json_order(const struct sides *sides, uint32_t rank, struct pp_json *json)
{
	struct parting parting = find_parting(sides, rank);
	const struct pp_dump *both[2] = {sides->a, sides->b};
	pp_json_uint(json, "equal_actions", parting.equal);
	pp_json_bool(json, "same_order", parting.same);
	for (unsigned i = 0; i < 2 && !parting.same; i++) {
		uint32_t at = i ? parting.at_b : parting.at_a;
		if (at >= both[i]->named->streams[rank].count)
			continue;
		pp_json_open_object(json, i ? "next_b" : "next_a");
		pp_json_string(json, "action", pp_dump_action(both[i], &both[i]->named->streams[rank].items[at]));
		pp_json_uint(json, "start", both[i]->sim->instr[rank][at].start);
		pp_json_close(json);
	}
}

static void json_rank(const struct sides *sides, uint32_t rank, struct pp_json *json)
{
	const struct pp_sim_rank *a = &sides->a->sim->rank[rank], *b = &sides->b->sim->rank[rank];
	pp_json_open_object(json, NULL);
	pp_json_uint(json, "rank", rank);
	json_pair(json, "busy", a->busy, b->busy);
	pp_json_open_object(json, "idle");
	for (unsigned cause = 0; cause < PP_IDLE_COUNT; cause++)
		json_pair(json, pp_idle_name[cause], a->idle[cause], b->idle[cause]);
	pp_json_close(json);
	json_pair(json, "in_flight", a->peak_stashes, b->peak_stashes);
	if (!sides->a->costless)
		json_pair(json, "peak_bytes", sides->a->program->rank[rank].arena_bytes,
		          sides->b->program->rank[rank].arena_bytes);
	json_pair(json, "sent", a->sent, b->sent);
	json_order(sides, rank, json);
	pp_json_close(json);
}

static void json_side(const struct pp_dump *dump, const char *key, struct pp_json *json)
{
	pp_json_open_object(json, key);
	pp_json_string(json, "file", dump->file);
	if (dump->program->schedule_name)
		pp_json_string(json, "schedule", dump->program->schedule_name);
	pp_json_uint(json, "pp", dump->program->ranks);
	pp_json_uint(json, "stages", dump->program->stage_count);
	pp_json_uint(json, "microbatches", dump->program->microbatches);
	pp_json_close(json);
}

static void print_json(const struct sides *sides)
{
	struct figure figures[FIGURES];
	struct pp_json json = pp_json_begin(sides->out);
	take_figures(sides, figures);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.compare/1");
	pp_json_string(&json, "program", sides->a->named->name);
	pp_json_string(&json, "time_unit", pp_dump_time_unit(sides->a));
	json_side(sides->a, "a", &json);
	json_side(sides->b, "b", &json);
	pp_json_open_object(&json, "figures");
	for (unsigned i = 0; i < FIGURES; i++) {
		if (!is_shown(sides, &figures[i]))
			continue;
		pp_json_open_object(&json, figures[i].key);
		pp_json_number(&json, "a", figures[i].a);
		pp_json_number(&json, "b", figures[i].b);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	if (sides->a->program->ranks == sides->b->program->ranks) {
		pp_json_open_array(&json, "ranks");
		for (uint32_t r = 0; r < sides->a->program->ranks; r++)
			if (sides->a->chosen[r])
				json_rank(sides, r, &json);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	fputc('\n', sides->out);
}

/* ---- interface ------------------------------------------------------------------------------- */

void pp_emit_diff_programs(const struct pp_dump *first, const struct pp_dump *second, bool json)
{
	struct pp_dump both[2] = {*first, *second}, *a = &both[0], *b = &both[1];
	a->unit = b->unit = first->unit.ns > second->unit.ns ? first->unit : second->unit;
	struct sides sides = {.a = a, .b = b, .arena = a->arena, .out = a->out, .unit = a->unit};
	if (json) {
		print_json(&sides);
		return;
	}
	fputs("a: ", sides.out);
	pp_emit_header(a);
	fputs("b: ", sides.out);
	pp_emit_header(b);
	fputc('\n', sides.out);
	print_figures(&sides);
	if (a->program->ranks != b->program->ranks) {
		fprintf(sides.out, "\nranks are not compared: %u here, %u there\n", a->program->ranks, b->program->ranks);
		return;
	}
	print_ranks(&sides);
	print_orders(&sides);
}
