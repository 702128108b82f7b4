/* quality [OPTION]...: our best schedule for every row of the published tables, and how far it is from the bound.
 *
 *     --data=FOLDER     of the tables
 *     --only=TEXT       schedules whose name begins so
 *     --costs=TEXT      cost sets whose name begins so
 *     --every=N         each N-th row
 *     --effort=N        actions evaluated by a search
 *     --no-search       only the named schedules
 *     --bounds          only compare the bounds with the published values
 *     --failing         print the rows that are not met
 *     --verbose         print every schedule of every row
 *     --met=PERCENT     exit with 1 if fewer rows are met,
 *     --over=PERCENT    or if one is missed by more
 * A row is met if our best is no longer than the published one, at its memory, costs and memory model. */
#include "quality.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
	const char *data, *only, *costs;
	unsigned long every, met; /* met: percent, at least */
	double over;              /* at most, as a share */
	bool bounds, failing;
	struct quality_options best;
};

/* Of one schedule and objective. */
struct line {
	const char *schedule, *objective;
	uint32_t rows, met, better, none, at_bound;
	double *gaps, excess; /* excess: worst, over the published value */
};

struct lines {
	struct line items[64];
	size_t count;
};

static struct line *line_of(struct pp_arena *arena, struct lines *lines, const char *schedule, const char *objective,
                            size_t most)
{
	for (size_t i = 0; i < lines->count; i++)
		if (strcmp(lines->items[i].schedule, schedule) == 0 && strcmp(lines->items[i].objective, objective) == 0)
			return &lines->items[i];
	struct line *line = &lines->items[lines->count++];
	*line = (struct line){.schedule = schedule, .objective = objective, .gaps = PP_NEW_ARRAY(arena, double, most)};
	return line;
}

/* ---- one row --------------------------------------------------------------------------------- */

struct answer {
	bool found;
	struct quality_best best;
};

static bool same_problem(const struct quality_row *a, const struct quality_row *b)
{
	return a->ranks == b->ranks && a->microbatches == b->microbatches && a->hop == b->hop && a->room == b->room &&
	       a->early == b->early && a->exact == b->exact && a->fused == b->fused && a->shape == b->shape &&
	       (a->chunks == 4) == (b->chunks == 4) && memcmp(a->forward, b->forward, sizeof a->forward) == 0 &&
	       memcmp(a->input, b->input, sizeof a->input) == 0 && memcmp(a->weight, b->weight, sizeof a->weight) == 0;
}

static void print_row(const struct quality_row *row, const char *objective, uint64_t theirs,
                      const struct answer *answer)
{
	printf("  line %" PRIu32 ": %s p=%" PRIu32 " m=%" PRIu32 " %s room %s%s, %s: theirs %.3f, ", row->line,
	       row->schedule, row->ranks, row->microbatches, row->costs,
	       row->room == PP_ROOM_UNLIMITED ? "inf"
	       : row->limit                   ? row->limit
	                                      : "of its own",
	       row->early ? " (part freed at I)" : "", objective, (double)theirs / QUALITY_TICKS);
	if (!answer->found) {
		printf("ours none\n");
		return;
	}
	printf("ours %.3f (%+.2f %%, %s on %s), bound there %.3f, of any placement %.3f\n",
	       (double)answer->best.value / QUALITY_TICKS, 100 * ((double)answer->best.value / (double)theirs - 1),
	       answer->best.maker, quality_shape_name[answer->best.shape], (double)answer->best.bound / QUALITY_TICKS,
	       (double)answer->best.least / QUALITY_TICKS);
}

static void count_row(struct line *line, const struct quality_row *row, uint64_t theirs, const struct answer *answer,
                      const struct settings *settings)
{
	line->rows++;
	if (!answer->found) {
		line->none++;
		print_row(row, line->objective, theirs, answer);
		return;
	}
	uint64_t ours = answer->best.value;
	double gap = pp_bound_gap(ours, answer->best.bound), excess = (double)ours / (double)theirs - 1;
	line->gaps[line->rows - line->none - 1] = gap;
	line->met += ours <= theirs;
	line->better += ours < theirs;
	line->at_bound += ours == answer->best.bound;
	line->excess = excess > line->excess ? excess : line->excess;
	if (settings->failing && (settings->bounds ? ours > answer->best.bound && row->exact : ours > theirs))
		print_row(row, line->objective, theirs, answer);
}

/* ---- the table ------------------------------------------------------------------------------- */

static int by_size(const void *left, const void *right)
{
	const double *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

static void print_line(struct line *line)
{
	uint32_t count = line->rows - line->none;
	double sum = 0;
	qsort(line->gaps, count, sizeof *line->gaps, by_size);
	for (uint32_t i = 0; i < count; i++)
		sum += line->gaps[i];
	printf("%-34s %-8s %5" PRIu32 " %5" PRIu32 " %5" PRIu32 " %5" PRIu32 "  %5.1f %6.1f %6.1f %6.1f  %6.2f\n",
	       line->schedule, line->objective, line->rows, line->met, line->better, line->at_bound,
	       count ? 100 * line->gaps[0] : 0, count ? 100 * line->gaps[count / 2] : 0, count ? 100 * sum / count : 0,
	       count ? 100 * line->gaps[count - 1] : 0, 100 * line->excess);
}

static void print_table(struct lines *lines)
{
	printf("%-34s %-8s %5s %5s %5s %5s  %26s  %6s\n", "", "", "", "", "", "at", "our gap to the bound, %", "worst");
	printf("%-34s %-8s %5s %5s %5s %5s  %5s %6s %6s %6s  %6s\n", "schedule", "time", "rows", "met", "below", "bound",
	       "least", "median", "mean", "most", "over %");
	for (size_t i = 0; i < lines->count; i++)
		print_line(&lines->items[i]);
}

/* ---- the run --------------------------------------------------------------------------------- */

struct bench {
	struct pp_arena *arena;
	struct quality_rows rows;
	struct answer *answers[2]; /* [rows] of makespan and span */
	bool *known[2];
};

static const struct answer *answer_of(struct bench *bench, size_t at, bool span, const struct settings *settings)
{
	const struct quality_row *rows = bench->rows.items;
	for (size_t i = 0; i < at; i++)
		if (bench->known[span][i] && same_problem(&rows[i], &rows[at]))
			return &bench->answers[span][i];
	struct pp_arena *arena = pp_arena_create(NULL);
	struct answer *answer = &bench->answers[span][at];
	if (settings->best.verbose)
		printf("  line %" PRIu32 ": %s\n", rows[at].line, rows[at].schedule);
	answer->found = quality_best(arena, &rows[at], span, &settings->best, &answer->best);
	bench->known[span][at] = true;
	pp_arena_destroy(arena);
	return answer;
}

/* A schedule that reached it proves that the bound is not above. */
static bool bound_holds(const struct quality_row *row, bool span, uint64_t theirs, struct answer *answer)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	enum quality_shape shape = row->exact                   ? row->shape
	                           : row->chunks == 1           ? QUALITY_LINEAR
	                           : row->chunks == 4           ? QUALITY_LOOP4
	                           : strchr(row->schedule, 'V') ? QUALITY_V
	                                                        : QUALITY_LOOP;
	struct pp_order_bound bound = pp_order_bound(arena, quality_problem(arena, row, shape), row->fused);
	pp_arena_destroy(arena);
	uint64_t value = span ? bound.span : bound.makespan;
	*answer =
	    (struct answer){true, {.value = theirs, .bound = value, .least = value, .maker = "theirs", .shape = shape}};
	return value <= theirs;
}

static bool run(struct bench *bench, const struct settings *settings)
{
	struct lines lines = {.count = 0};
	unsigned long rows = 0, met = 0;
	double over = 0;
	for (size_t at = 0; at < bench->rows.count; at += settings->every) {
		const struct quality_row *row = &bench->rows.items[at];
		if (strncmp(row->schedule, settings->only, strlen(settings->only)) != 0 ||
		    strncmp(row->costs, settings->costs, strlen(settings->costs)) != 0 ||
		    ((settings->bounds || settings->met) && row->reported))
			continue;
		for (unsigned span = 0; span < 2; span++) {
			uint64_t theirs = span ? row->span : row->makespan;
			if (theirs == UINT64_MAX)
				continue;
			struct answer held;
			const struct answer *answer = &held;
			if (settings->bounds && !bound_holds(row, span, theirs, &held)) {
				print_row(row, span ? "span" : "makespan", theirs, answer);
				over = 1;
			} else if (!settings->bounds) {
				answer = answer_of(bench, at, span, settings);
			}
			if (!row->reported) {
				double excess = answer->found ? (double)answer->best.value / (double)theirs - 1 : 1;
				over = excess > over ? excess : over;
				rows++;
				met += excess <= 0;
			}
			count_row(line_of(bench->arena, &lines, row->schedule, span ? "span" : "makespan", bench->rows.count), row,
			          theirs, answer, settings);
			if (!row->exact && strcmp(row->schedule, "ZB-V") == 0 && row->room == row->ranks * QUALITY_ACT &&
			    row->early == 0 && strcmp(row->costs, "uniform_comm0.1") == 0)
				count_row(
				    line_of(bench->arena, &lines, "ZB-V at 1x, c = 0.1", span ? "span" : "makespan", bench->rows.count),
				    row, theirs, answer, settings);
		}
	}
	print_table(&lines);
	return met * 100 >= rows * settings->met && over <= settings->over;
}

static bool option(const char *text, const char *name, const char **value)
{
	size_t length = strlen(name);
	if (strncmp(text, name, length) != 0)
		return false;
	*value = text + length;
	return true;
}

int main(int argc, char **argv)
{
	struct settings settings = {
	    .data = PP_QUALITY_DATA, .only = "", .costs = "", .every = 1, .over = 1e9, .best = {.search = true}};
	for (int i = 1; i < argc; i++) {
		const char *text = argv[i], *value;
		if (option(text, "--data=", &settings.data) || option(text, "--only=", &settings.only) ||
		    option(text, "--costs=", &settings.costs))
			continue;
		if (option(text, "--every=", &value) && (settings.every = strtoul(value, NULL, 10)) > 0)
			continue;
		if (option(text, "--effort=", &value)) {
			settings.best.effort = strtoull(value, NULL, 10);
			continue;
		}
		if (option(text, "--met=", &value)) {
			settings.met = strtoul(value, NULL, 10);
			continue;
		}
		if (option(text, "--over=", &value)) {
			settings.over = strtod(value, NULL) / 100;
			continue;
		}
		bool known = true;
		if (strcmp(text, "--no-search") == 0)
			settings.best.search = false;
		else if (strcmp(text, "--bounds") == 0)
			settings.bounds = true;
		else if (strcmp(text, "--failing") == 0)
			settings.failing = true;
		else if (strcmp(text, "--verbose") == 0)
			settings.best.verbose = true;
		else
			known = false;
		if (!known) {
			fprintf(stderr, "quality: unknown option %s\n", text);
			return 2;
		}
	}
	struct bench bench = {.arena = pp_arena_create(NULL)};
	bench.rows = quality_read(bench.arena, settings.data);
	for (unsigned span = 0; span < 2; span++) {
		bench.answers[span] = PP_NEW_ARRAY(bench.arena, struct answer, bench.rows.count);
		bench.known[span] = PP_NEW_ARRAY(bench.arena, bool, bench.rows.count);
	}
	bool met = run(&bench, &settings);
	pp_arena_destroy(bench.arena);
	return !met;
}
