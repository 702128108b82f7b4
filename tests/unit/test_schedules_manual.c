/* The comparison in docs/schedules.md is what the schedules come to. PP_UPDATE=1 writes it anew. */
#include "families_fixture.h"
#include "golden.h"

static const char path[] = PP_SOURCE_DIR "/docs/schedules.md";
static const char begin_mark[] = "<!-- comparison from tests/unit/test_schedules_manual.c: begin -->\n";
static const char end_mark[] = "<!-- comparison from tests/unit/test_schedules_manual.c: end -->";

enum { RANKS = 8, MICROBATCHES = 16, UNIT = 4000 /* ticks of a rank's forward */ };

struct line {
	const char *name;
	uint32_t chunks;
	enum pp_place place;
	uint32_t pair_permille; /* 0: no `overlap` */
};

static const struct line lines[] = {
    {"gpipe", 1, PP_PLACE_LOOP, 0},     {"1f1b", 1, PP_PLACE_LOOP, 0},        {"eager_1f1b", 1, PP_PLACE_LOOP, 0},
    {"loopedbfs", 2, PP_PLACE_LOOP, 0}, {"interleaved", 2, PP_PLACE_LOOP, 0}, {"interleaved", 4, PP_PLACE_LOOP, 0},
    {"gis", 2, PP_PLACE_LOOP, 0},       {"gis", 4, PP_PLACE_LOOP, 0},         {"gis_h", 2, PP_PLACE_LOOP, 0},
    {"zb_h1", 1, PP_PLACE_LOOP, 0},     {"zb_h1", 2, PP_PLACE_LOOP, 0},       {"zb_h2", 1, PP_PLACE_LOOP, 0},
    {"zb_v", 2, PP_PLACE_V, 0},         {"dualpipe_v", 2, PP_PLACE_V, 0},     {"dualpipe_v", 2, PP_PLACE_V, 800},
};

/* F, I, W of a whole rank and a hop, in thousandths of F. */
static const struct even_costs sets[] = {
    {1000, 1000, 1000, 0, 0}, {1000, 1000, 1000, 100, 0}, {1000, 1100, 700, 0, 0}, {1000, 1100, 700, 100, 0}};

static struct even_costs costs_of(struct even_costs set, const struct line *line)
{
	uint64_t scale = UNIT / 1000;
	return (struct even_costs){set.forward * scale / line->chunks, set.input * scale / line->chunks,
	                           set.weight * scale / line->chunks, set.hop * scale, line->pair_permille};
}

struct held {
	double most, mean; /* of the ranks, in microbatches of a whole rank */
};

static struct held held_by(const struct expanded *x, const struct line *line, bool halves)
{
	struct pp_order_times times;
	struct pp_order_problem problem = even_problem(x->arena, &x->schedule, costs_of(sets[0], line), halves);
	uint64_t peak = 0, sum = 0;
	assert_true(pp_order_run(x->arena, &problem, x->schedule.rows, false, &times));
	for (uint32_t r = 0; r < RANKS; r++) {
		peak = times.rank[r].peak > peak ? times.rank[r].peak : peak;
		sum += times.rank[r].peak;
	}
	return (struct held){(double)peak / 2 / line->chunks, (double)sum / 2 / line->chunks / RANKS};
}

static uint32_t messages(const struct pp_schedule *schedule)
{
	uint32_t count = 0;
	for (uint32_t s = 0; s + 1 < schedule->stages; s++)
		count += schedule->stage_rank[s] != schedule->stage_rank[s + 1];
	return 2 * count;
}

static void print_line(FILE *out, const struct line *line)
{
	struct expanded x = expand_family(line->name, (struct shape){.p = RANKS,
	                                                             .v = line->chunks,
	                                                             .m = MICROBATCHES,
	                                                             .place = line->place,
	                                                             .pair_cost = line->pair_permille / 1000.0});
	fprintf(out, "| [%s](schedules/%s.md)", line->name, line->name);
	if (line->pair_permille)
		fprintf(out, ", F&B = %.1f", line->pair_permille / 1000.0);
	fprintf(out, " | %u |", line->chunks);
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		struct pp_order_times times = even_times(&x, costs_of(sets[i], line));
		fprintf(out, " %.5g / %.5g |", (double)times.makespan / UNIT, (double)times.longest_span / UNIT);
	}
	struct held to_weight = held_by(&x, line, false), halves = held_by(&x, line, true);
	fprintf(out, " %.4g | %.4g / %.4g | %u |\n", to_weight.most, to_weight.mean, halves.mean, messages(&x.schedule));
	expanded_free(&x);
}

static void comparison_is_current(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	fputs("\n| schedule | vpp | F = I = W = 1 | hops of 0.1 | F, I, W = 1, 1.1, 0.7 | the same, hops of 0.1 | held | "
	      "mean | "
	      "messages |\n|---|---|---|---|---|---|---|---|---|\n",
	      out);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		print_line(out, &lines[i]);
	fputc('\n', out);
	fclose(out);
	golden_part(arena, path, begin_mark, end_mark, text);
	free(text);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(comparison_is_current),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
