/* The families against what others published: makespans and peaks of PyTorch's schedules of the same kind, of the
 * published schedulers' own code over a grid of costs, and their orders action for action. */
#include "families_fixture.h"
#include "table.h"

struct counterpart {
	const char *theirs, *ours;
	enum pp_place place;
};

/* ---- PyTorch --------------------------------------------------------------------------------- */

static const struct counterpart torch[] = {
    {"gpipe", "gpipe", PP_PLACE_LOOP},
    {"1f1b", "1f1b", PP_PLACE_LOOP},
    {"interleaved1f1b", "interleaved", PP_PLACE_LOOP},
    {"loopedbfs", "loopedbfs", PP_PLACE_LOOP},
    {"izb", "zb_h1", PP_PLACE_LOOP},
    {"zbv", "zb_v", PP_PLACE_V},
    {"dualpipev", "dualpipe_v", PP_PLACE_V},
};

static const struct counterpart *find_torch(const char *kind)
{
	for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
		if (strcmp(torch[i].theirs, kind) == 0)
			return &torch[i];
	fail_msg("kind %s", kind);
	return NULL;
}

/* F = I = W = 1, B = 2 of each stage, free transfers; pairs as PyTorch counts them, or in turn. */
static void beside_torch(const struct table *table, double pair_cost)
{
	const struct counterpart *kind = find_torch(table_field(table, "kind"));
	struct shape shape = {.p = (uint32_t)table_number(table, "pp"),
	                      .v = (uint32_t)table_number(table, "v"),
	                      .m = (uint32_t)table_number(table, "m"),
	                      .place = kind->place,
	                      .pair_cost = pair_cost};
	const char *file = table_field(table, "file"),
	           *peaks = table_field(table, "peak_inflight_per_rank_freed_at_B_or_W");
	struct expanded x = expand_family(kind->ours, shape);
	struct pp_order_times times = even_times(&x, unit_costs);
	uint64_t makespan = (uint64_t)table_number(table, "makespan_F1_I1_W1_B2_comm0");
	if (times.makespan > makespan)
		fail_msg("%s: makespan %u, theirs is %u", file, (unsigned)times.makespan, (unsigned)makespan);
	for (uint32_t r = 0; r < shape.p; r++) {
		char *end;
		uint32_t peak = (uint32_t)strtoul(peaks, &end, 10);
		peaks = end + 1;
		if (times.rank[r].peak_stashes > peak)
			fail_msg("%s: %u in flight on rank %u, theirs %u", file, times.rank[r].peak_stashes, r, peak);
	}
	expanded_free(&x);
}

static void never_behind_torch(void **state)
{
	(void)state;
	struct table table = table_open("torch_csv/MANIFEST.tsv");
	unsigned rows = 0;
	for (; table_next(&table); rows++) {
		beside_torch(&table, 0);
		beside_torch(&table, 1);
	}
	table_close(&table);
	assert_int_equal(rows, 145);
}

/* KIND_pP[_vV]_mM */
static struct shape read_config(const char *config, char *kind)
{
	struct shape shape = {.v = 1};
	assert_int_equal(sscanf(config, "%31[^_]_p%u", kind, &shape.p), 2);
	const char *v = strstr(config, "_v"), *m = strstr(config, "_m");
	assert_non_null(m);
	if (v)
		shape.v = (uint32_t)strtoul(v + 2, NULL, 10);
	shape.m = (uint32_t)strtoul(m + 2, NULL, 10);
	return shape;
}

/* What PyTorch refuses is scheduled, in no more than PyTorch takes for one microbatch more of what it accepts: the work
 * of all microbatches and one fill and drain. */
static void what_torch_refuses(void **state)
{
	(void)state;
	struct table table = table_open("torch_csv/REJECTED.tsv");
	unsigned rows = 0;
	for (; table_next(&table); rows++) {
		char kind[32];
		struct shape shape = read_config(table_field(&table, "config"), kind);
		const struct counterpart *ours = find_torch(kind);
		if (ours->place == PP_PLACE_V)
			shape.v = 2;
		shape.place = ours->place;
		struct expanded x = expand_family(ours->ours, shape);
		struct pp_order_times times = even_times(&x, unit_costs);
		uint64_t fill = 3 * (uint64_t)(shape.p - 1) * shape.v;
		if (times.makespan > 3 * (uint64_t)shape.m * shape.v + fill)
			fail_msg("%s: makespan %u", table_field(&table, "config"), (unsigned)times.makespan);
		expanded_free(&x);
	}
	table_close(&table);
	assert_int_equal(rows, 20);
}

/* ---- their own code over costs --------------------------------------------------------------- */

static const struct counterpart golden[] = {
    {"1F1B", "1f1b", PP_PLACE_LOOP},
    {"1F1B-I(interleaved) v=2", "interleaved", PP_PLACE_LOOP},
    {"1F1B-I(interleaved) v=4", "interleaved", PP_PLACE_LOOP},
    {"BreadthFirst looped v=2", "loopedbfs", PP_PLACE_LOOP},
    {"GPipe", "gpipe", PP_PLACE_LOOP},
    {"ZB-H1 handcrafted", "zb_h1", PP_PLACE_LOOP},
    {"ZB-H1 light (B+W merged early)", "zb_h1", PP_PLACE_LOOP},
    {"ZB-H2 handcrafted", "zb_h2", PP_PLACE_LOOP},
    {"GIS v=2 g=4", "gis", PP_PLACE_LOOP},
    {"GIS v=2 g=8", "gis", PP_PLACE_LOOP},
    {"GIS v=4 g=4", "gis", PP_PLACE_LOOP},
    {"GIS v=4 g=8", "gis", PP_PLACE_LOOP},
    {"GIS-H v=2 g=2", "gis_h", PP_PLACE_LOOP},
    {"GIS-H v=2 g=4", "gis_h", PP_PLACE_LOOP},
    {"GIS-H v=4 g=2", "gis_h", PP_PLACE_LOOP},
    {"GIS-H v=4 g=4", "gis_h", PP_PLACE_LOOP},
    {"DualPipeV (no F&B overlap gain)", "dualpipe_v", PP_PLACE_V},
};

/* Ticks of a unit of the table's costs: every cost of a chunk is whole, and values were rounded to a tick. */
enum { TICKS = 4000 };

static uint64_t ticks_of(const struct table *table, const char *name, uint32_t chunks)
{
	return (uint64_t)(table_number(table, name) * TICKS / chunks + 0.5);
}

static void beside_golden(const struct table *table, const struct counterpart *ours)
{
	struct shape shape = {.p = (uint32_t)table_number(table, "p"),
	                      .v = (uint32_t)table_number(table, "v_chunks_per_device"),
	                      .m = (uint32_t)table_number(table, "m"),
	                      .place = ours->place};
	if (shape.v == 0)
		shape.v = 1;
	struct even_costs costs = {ticks_of(table, "F", shape.v), ticks_of(table, "B", shape.v),
	                           ticks_of(table, "W", shape.v), ticks_of(table, "comm", 1), 0};
	struct expanded x = expand_family(ours->ours, shape);
	struct pp_order_times times = even_times(&x, costs);
	uint32_t peak = 0;
	for (uint32_t r = 0; r < shape.p; r++)
		peak = most(peak, times.rank[r].peak_stashes);
	if (times.makespan > ticks_of(table, "makespan", 1) + 1 ||
	    times.longest_span > ticks_of(table, "longest_stage_time", 1) + 1 ||
	    (double)peak / shape.v > table_number(table, "peak_act_Wrelease_max") + 0.005)
		fail_msg("%s p=%u m=%u %s: %.4f, span %.4f, peak %.2f", ours->theirs, shape.p, shape.m,
		         table_field(table, "cost_set"), (double)times.makespan / TICKS, (double)times.longest_span / TICKS,
		         (double)peak / shape.v);
	expanded_free(&x);
}

static void never_behind_golden(void **state)
{
	(void)state;
	struct table table = table_open("quality/schedule_golden.tsv");
	unsigned rows = 0;
	while (table_next(&table)) {
		const char *name = table_field(&table, "schedule");
		for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
			if (strcmp(golden[i].theirs, name) != 0)
				continue;
			beside_golden(&table, &golden[i]);
			rows++;
		}
	}
	table_close(&table);
	assert_int_equal(rows, 8 * 33 + 8 * 9 + 27);
}

/* ---- their orders ---------------------------------------------------------------------------- */

static const struct counterpart orders[] = {
    {"1F1B", "1f1b", PP_PLACE_LOOP},
    {"interleaved v=2 (Megatron)", "interleaved", PP_PLACE_LOOP},
    {"ZB-H1 handcrafted", "zb_h1", PP_PLACE_LOOP},
    {"ZB-H2 handcrafted", "zb_h2", PP_PLACE_LOOP},
    {"DualPipeV", "dualpipe_v", PP_PLACE_V},
};

/* Their letters: B is our I, X our B. */
static void print_row(const struct pp_row *row, FILE *out)
{
	for (uint32_t i = 0; i < row->count; i++)
		fprintf(out, " %c%u.%u", "FXBW"[row->actions[i].kind], row -> actions[i].mb, row->actions[i].stage);
}

static void same_rows(char **text, const struct counterpart *ours, struct shape shape)
{
	struct expanded x = expand_family(ours->ours, shape);
	for (uint32_t r = 0; r < shape.p; r++) {
		char *mine = NULL, *end = strchr(*text, '\n');
		size_t length = 0;
		*end = '\0';
		FILE *out = open_memstream(&mine, &length);
		print_row(&x.schedule.rows[r], out);
		fclose(out);
		assert_non_null(strchr(*text, ' '));
		assert_string_equal(mine, strchr(*text, ' '));
		free(mine);
		*text = end + 1;
	}
	expanded_free(&x);
}

static void same_orders(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	char *at = table_text(arena, "schedule_orders.txt");
	unsigned same = 0;
	while ((at = strstr(at, "## p="))) {
		uint32_t p, m;
		char *end = strchr(at, '\n');
		*end = '\0';
		assert_int_equal(sscanf(at, "## p=%u m=%u", &p, &m), 2);
		const char *name = strstr(at, " costs uniform c=0 ");
		at = end + 1;
		for (size_t i = 0; name && i < sizeof orders / sizeof *orders; i++) {
			if (strcmp(name + strlen(" costs uniform c=0 "), orders[i].theirs) != 0)
				continue;
			uint32_t v = strstr(name, "v=2") || orders[i].place == PP_PLACE_V ? 2 : 1;
			same_rows(&at, &orders[i], (struct shape){.p = p, .v = v, .m = m, .place = orders[i].place});
			same++;
			break;
		}
	}
	pp_arena_destroy(arena);
	assert_int_equal(same, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(never_behind_torch),
	    cmocka_unit_test(what_torch_refuses),
	    cmocka_unit_test(never_behind_golden),
	    cmocka_unit_test(same_orders),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
