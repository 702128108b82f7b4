/* Gantt chart as a standalone SVG: one row per rank, time to the right. requires: intervals. ensures: the same bytes
 * for the same program, and no more elements than pixels allow: where actions are narrower than a pixel or two, every
 * column of pixels shows what takes most of it. */
#include "emit.h"

#include "svg.h"

#include "ir/lifetime.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Pixels. */
enum {
	EDGE = 16,
	HEAD = 54,   /* title and line below it */
	AXIS = 22,   /* above the rows */
	SWATCH = 14, /* of the legend */
	LEGEND_LINE = 22,
	LEAST_WIDTH = 480, /* of the time axis, unless --width asks for less */
	MOST_WIDTH = 1680,
	ACTION_WIDTH = 26, /* what the mean action gets within these limits */
	LABEL_SIZE = 10
};

#define COARSE_BELOW 1.5 /* mean action in pixels */

/* Text in #111 keeps a contrast of 5 and more on every colour. Kinds differ in hue after Okabe and Ito, and in stripes;
 * odd chunks of a rank are darker. */
struct look {
	const char *word, *even, *odd, *stripe;
	double degrees; /* of the stripes; negative: none */
};
static const struct look looks[PP_PHASE_COUNT] = {
    [PP_PHASE_F] = {"F forward", "#8fd9bd", "#4fb491", NULL, -1},
    [PP_PHASE_B] = {"B backward", "#93c4ea", "#5a9fd4", NULL, -1},
    [PP_PHASE_I] = {"I input gradient", "#b7d3ee", "#7fadd9", "#d9e8f7", 45},
    [PP_PHASE_W] = {"W weight gradient", "#f2c45f", "#d79c2a", "#fbe3ae", 135},
    [PP_PHASE_R] = {"R recompute", "#e3b1cf", "#c585ab", "#f3d9e8", 90},
};
static const char letters[] = "FBIWR";

struct picture {
	const struct pp_dump *dump;
	struct pp_svg svg;
	uint64_t from, to;  /* ns */
	double left, width; /* of the time axis */
	double row, pitch;  /* height of a row, and from one to the next */
	uint32_t rows;
	double mean; /* pixels of an action */
	bool seen[PP_PHASE_COUNT][2], pairs;
};

static double x_of(const struct picture *picture, uint64_t ns)
{
	uint64_t inside = ns < picture->from ? picture->from : ns > picture->to ? picture->to : ns;
	return picture->left + picture->width * (double)(inside - picture->from) / (double)(picture->to - picture->from);
}

static bool visible(const struct picture *picture, struct pp_interval interval)
{
	return interval.end > picture->from && interval.start < picture->to && interval.end > interval.start;
}

static unsigned odd(const struct picture *picture, const struct pp_instr *instr)
{
	return picture->dump->chunk[instr->stage] % 2;
}

/* Where the compute is that `at` overlaps with: the next one of the rank; `at` itself if there is none. */
static uint32_t partner(const struct pp_stream *stream, uint32_t at)
{
	uint32_t other = at + 1;
	if (!(stream->items[at].flags & PP_PAIR))
		return at;
	while (other < stream->count && !pp_is_compute(&stream->items[other]))
		other++;
	return other < stream->count ? other : at;
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* What there is to see, and how long it takes on average. */
static double survey(struct picture *picture)
{
	const struct pp_dump *dump = picture->dump;
	double sum = 0;
	uint64_t count = 0;
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		const struct pp_stream *stream = &dump->named->streams[rank];
		picture->rows += dump->chosen[rank];
		for (uint32_t i = 0; dump->chosen[rank] && i < stream->count; i++) {
			struct pp_interval interval = dump->sim->instr[rank][i];
			if (!pp_is_compute(&stream->items[i]) || !visible(picture, interval))
				continue;
			picture->seen[pp_phase_of(&stream->items[i])][odd(picture, &stream->items[i])] = true;
			picture->pairs |= partner(stream, i) != i;
			sum += (double)(interval.end - interval.start);
			count++;
		}
	}
	return count ? sum / (double)count : 1;
}

static struct picture lay_out(const struct pp_dump *dump)
{
	struct picture picture = {
	    .dump = dump, .from = dump->from, .to = dump->to < dump->sim->makespan ? dump->to : dump->sim->makespan};
	if (picture.from >= picture.to)
		return picture;
	double mean = survey(&picture), span = (double)(picture.to - picture.from);
	char last[16];
	snprintf(last, sizeof last, "r%u", dump->program->ranks - 1);
	picture.left = EDGE + ceil(pp_svg_text_width(last, 12)) + 8;
	picture.width = fmin(fmax(round(span / mean * ACTION_WIDTH), LEAST_WIDTH), MOST_WIDTH);
	if (dump->pixels)
		picture.width = fmax((double)dump->pixels - picture.left - EDGE, 100);
	picture.mean = mean / span * picture.width;
	picture.row = picture.rows <= 16 ? 24 : picture.rows <= 32 ? 18 : 13;
	picture.pitch = picture.row + (picture.rows <= 32 ? 4 : 2);
	return picture;
}

/* ---- legend ---------------------------------------------------------------------------------- */

struct entry {
	char name[8], word[40];
};

static void add_entry(struct entry *entries, unsigned *count, const char *name, const char *word)
{
	snprintf(entries[*count].name, sizeof entries->name, "%s", name);
	snprintf(entries[(*count)++].word, sizeof entries->word, "%s", word);
}

enum { MOST_ENTRIES = PP_PHASE_COUNT + 3 };

static unsigned list_entries(const struct picture *picture, struct entry *entries)
{
	unsigned count = 0;
	bool darker = false;
	char name[8];
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		darker |= picture->seen[phase][1];
		if (!picture->seen[phase][0] && !picture->seen[phase][1])
			continue;
		snprintf(name, sizeof name, "%c%s", letters[phase], picture->seen[phase][0] ? "" : " o");
		add_entry(entries, &count, name, looks[phase].word);
	}
	if (darker)
		add_entry(entries, &count, picture->seen[PP_PHASE_F][1] ? "F o" : "B o", "darker: odd chunk of its rank");
	if (picture->pairs)
		add_entry(entries, &count, "pair", "pair that overlaps");
	add_entry(entries, &count, "idle", "idle");
	return count;
}

/* Draw the legend from `y` on, or only measure it. Returns its lines. */
static unsigned legend(struct picture *picture, double y, bool draw)
{
	struct entry entries[MOST_ENTRIES];
	unsigned count = list_entries(picture, entries), lines = 1;
	double x = picture->left;
	for (unsigned i = 0; i < count; i++) {
		double width = SWATCH + 6 + pp_svg_text_width(entries[i].word, 12) + 18;
		if (x > picture->left && x + width > picture->left + picture->width) {
			x = picture->left;
			lines++;
		}
		double top = y + (lines - 1) * LEGEND_LINE;
		if (draw) {
			pp_svg_rect(&picture->svg, x, top, SWATCH, SWATCH, entries[i].name, NULL);
			pp_svg_text(&picture->svg, x + SWATCH + 6, top + 11, PP_SVG_START, NULL, entries[i].word);
		}
		x += width;
	}
	return lines;
}

/* ---- style ----------------------------------------------------------------------------------- */

static const char *style(const struct picture *picture)
{
	struct pp_arena *arena = picture->dump->arena;
	const char *text = "  text { font: 12px sans-serif; fill: #111 }\n"
	                   "  .head { font-size: 15px; font-weight: bold }\n"
	                   "  .label { font-size: 10px; pointer-events: none }\n"
	                   "  .paper { fill: #fff }\n"
	                   "  .idle { fill: #eee }\n"
	                   "  .grid { stroke: #bbb; stroke-width: 0.5 }\n";
	if (picture->mean >= COARSE_BELOW)
		text = pp_arena_printf(arena, "%s  .F, .B, .I, .W, .R { stroke: #fff; stroke-width: 0.5 }\n", text);
	if (picture->pairs)
		text = pp_arena_printf(arena, "%s  .pair { fill: none; stroke: #111; stroke-width: 1.5 }\n", text);
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		for (unsigned dark = 0; dark < 2; dark++) {
			const char *also = dark ? ".o" : "", *mark = dark ? "o" : "";
			if (!picture->seen[phase][dark])
				continue;
			if (looks[phase].stripe)
				text = pp_arena_printf(arena, "%s  .%c%s { fill: url(#%c%s) }\n", text, letters[phase], also,
				                       letters[phase], mark);
			else
				text = pp_arena_printf(arena, "%s  .%c%s { fill: %s }\n", text, letters[phase], also,
				                       dark ? looks[phase].odd : looks[phase].even);
		}
	return text;
}

static void draw_patterns(struct picture *picture)
{
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		for (unsigned dark = 0; dark < 2; dark++) {
			const char id[3] = {letters[phase], dark ? 'o' : '\0', '\0'};
			if (picture->seen[phase][dark] && looks[phase].stripe)
				pp_svg_stripes(&picture->svg, id, dark ? looks[phase].odd : looks[phase].even, looks[phase].stripe, 6,
				               looks[phase].degrees);
		}
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *class_of(const struct picture *picture, const struct pp_instr *instr)
{
	static const char *const names[PP_PHASE_COUNT][2] = {
	    {"F", "F o"}, {"B", "B o"}, {"I", "I o"}, {"W", "W o"}, {"R", "R o"}};
	return names[pp_phase_of(instr)][odd(picture, instr)];
}

/* The longest label that fits: F3.1, then 3.1, then 3 where chunks need no telling; else none. */
static const char *label_for(const struct picture *picture, const struct pp_instr *instr, double width)
{
	const char *label = pp_dump_action(picture->dump, instr);
	if (pp_svg_text_width(label, LABEL_SIZE) + 2 > width)
		label++;
	return pp_svg_text_width(label, LABEL_SIZE) + 2 > width ? NULL : label;
}

static const char *hover(const struct picture *picture, const struct pp_instr *instr, struct pp_interval interval,
                         const struct pp_instr *other)
{
	const struct pp_dump *dump = picture->dump;
	struct pp_arena *arena = dump->arena;
	const char *stage = dump->program->stage_count == dump->program->ranks
	                        ? pp_arena_printf(arena, "stage %u", instr->stage)
	                        : pp_arena_printf(arena, "stage %u (chunk %u)", instr->stage, dump->chunk[instr->stage]);
	return pp_arena_printf(arena, "%c%u, %s: %s to %s %s%s%s", letters[pp_phase_of(instr)], instr->mb, stage,
	                       pp_dump_time(dump, interval.start), pp_dump_time(dump, interval.end), dump->unit.name,
	                       other ? ", may overlap with " : "", other ? pp_dump_action(dump, other) : "");
}

static void draw_actions(struct picture *picture, uint32_t rank, double y)
{
	const struct pp_dump *dump = picture->dump;
	const struct pp_stream *stream = &dump->named->streams[rank];
	uint32_t pair = PP_NULL; /* where the second one of a pair is */
	double pair_x = 0;
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		struct pp_interval interval = dump->sim->instr[rank][i];
		if (!pp_is_compute(instr) || !visible(picture, interval))
			continue;
		uint32_t other = partner(stream, i);
		double x = x_of(picture, interval.start), width = x_of(picture, interval.end) - x;
		pp_svg_rect(&picture->svg, x, y, width, picture->row, class_of(picture, instr),
		            hover(picture, instr, interval, other == i ? NULL : &stream->items[other]));
		const char *label = label_for(picture, instr, width);
		if (label)
			pp_svg_text(&picture->svg, x + width / 2, y + picture->row / 2 + 3.5, PP_SVG_MIDDLE, "label", label);
		if (pair == i) /* both are drawn: the outline around them */
			pp_svg_rect(&picture->svg, pair_x, y, x + width - pair_x, picture->row, "pair", NULL);
		pair = other != i ? other : PP_NULL;
		pair_x = x;
	}
}

/* What takes most of every column of pixels: phase and parity, or idle. */
enum { IDLE = 2 * PP_PHASE_COUNT, SHADES };

static void take_share(const struct picture *picture, struct pp_interval interval, unsigned shade, double *share,
                       uint32_t columns)
{
	double from = x_of(picture, interval.start) - picture->left, to = x_of(picture, interval.end) - picture->left;
	for (uint32_t column = (uint32_t)from; column < columns && column < to; column++) {
		double begin = fmax(from, column), end = fmin(to, column + 1.0);
		share[(size_t)column * SHADES + shade] += end > begin ? end - begin : 0;
		share[(size_t)column * SHADES + IDLE] -= end > begin ? end - begin : 0;
	}
}

static unsigned most_of(const double *share)
{
	unsigned best = IDLE;
	for (unsigned shade = 0; shade < SHADES; shade++)
		if (share[shade] > share[best] + 1e-6)
			best = shade;
	return best;
}

static void draw_columns(struct picture *picture, uint32_t rank, double y)
{
	const struct pp_dump *dump = picture->dump;
	const struct pp_stream *stream = &dump->named->streams[rank];
	struct pp_arena *scratch = pp_arena_scratch(dump->arena);
	uint32_t columns = (uint32_t)picture->width;
	double *share = PP_NEW_ARRAY(scratch, double, (size_t)columns *SHADES);
	for (uint32_t column = 0; column < columns; column++)
		share[(size_t)column * SHADES + IDLE] = 1;
	for (uint32_t i = 0; i < stream->count; i++)
		if (pp_is_compute(&stream->items[i]) && visible(picture, dump->sim->instr[rank][i]))
			take_share(picture, dump->sim->instr[rank][i],
			           2 * (unsigned)pp_phase_of(&stream->items[i]) + odd(picture, &stream->items[i]), share, columns);
	for (uint32_t column = 0, next; column < columns; column = next) {
		unsigned shade = most_of(&share[(size_t)column * SHADES]);
		for (next = column + 1; next < columns && most_of(&share[(size_t)next * SHADES]) == shade;)
			next++;
		const char name[4] = {letters[shade / 2 % PP_PHASE_COUNT], shade % 2 ? ' ' : '\0', 'o', '\0'};
		if (shade != IDLE)
			pp_svg_rect(&picture->svg, picture->left + column, y, next - column, picture->row, name, NULL);
	}
	pp_arena_destroy(scratch);
}

static void draw_row(struct picture *picture, uint32_t rank, double y)
{
	const struct pp_dump *dump = picture->dump;
	const struct pp_sim_rank *figures = &dump->sim->rank[rank];
	double makespan = (double)dump->sim->makespan;
	pp_svg_group(&picture->svg, NULL,
	             pp_arena_printf(dump->arena, "rank %u: idle %.1f %% of the makespan, at most %u stashes", rank,
	                             100 * (1 - (double)figures->busy / makespan), figures->peak_stashes));
	pp_svg_text(&picture->svg, picture->left - 8, y + picture->row / 2 + 4, PP_SVG_END, NULL,
	            pp_arena_printf(dump->arena, "r%u", rank));
	pp_svg_rect(&picture->svg, picture->left, y, picture->width, picture->row, "idle", NULL);
	if (picture->mean < COARSE_BELOW)
		draw_columns(picture, rank, y);
	else
		draw_actions(picture, rank, y);
	pp_svg_group_end(&picture->svg);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void draw_axis(struct picture *picture, double top, double bottom)
{
	const struct pp_dump *dump = picture->dump;
	double unit = (double)dump->unit.ns, span = (double)(picture->to - picture->from) / unit;
	double step = pp_svg_step(span * 64 / picture->width), first = ceil((double)picture->from / unit / step - 1e-9);
	char number[PP_SVG_NUMBER];
	for (double at = first; at * step <= (double)picture->to / unit * (1 + 1e-9); at++) {
		double x = picture->left + (at * step - (double)picture->from / unit) / span * picture->width;
		pp_svg_line(&picture->svg, x, top - 4, x, bottom, "grid");
		pp_svg_number(number, at * step, step);
		pp_svg_text(&picture->svg, x, top - 8, PP_SVG_MIDDLE, "label", number);
	}
}

static const char *title_of(const struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	const char *name = pp_is_forward_only(dump->named) ? dump->named->name
	                   : program->schedule_name        ? program->schedule_name
	                                                   : "schedule";
	return pp_arena_printf(dump->arena, "%s: %u rank%s, %u stage%s, %u microbatch%s", name, program->ranks,
	                       program->ranks == 1 ? "" : "s", program->stage_count, program->stage_count == 1 ? "" : "s",
	                       program->microbatches, program->microbatches == 1 ? "" : "es");
}

static const char *about(const struct pp_dump *dump)
{
	const struct pp_sim *sim = dump->sim;
	double gap = 100 * pp_bound_gap(sim->makespan, sim->bound.makespan);
	const char *text =
	    pp_arena_printf(dump->arena, "time in %s; makespan %s, %.1f %% of it idle, %.1f %% above the bound",
	                    dump->unit.name, pp_dump_time(dump, sim->makespan), 100 * sim->bubble, gap);
	return strcmp(dump->transport, "none") == 0 ? text
	                                            : pp_arena_printf(dump->arena, "%s; over %s", text, dump->transport);
}

void pp_emit_gantt_svg(const struct pp_dump *dump)
{
	struct picture picture = lay_out(dump);
	const char *title = title_of(dump);
	if (picture.from >= picture.to) {
		struct pp_svg svg = pp_svg_begin(dump->out, LEAST_WIDTH, HEAD, title, "nothing takes time here", "");
		pp_svg_text(&svg, EDGE, 30, PP_SVG_START, NULL, "nothing takes time here: no Gantt chart to draw");
		pp_svg_end(&svg);
		return;
	}
	double top = HEAD + AXIS, bottom = top + picture.rows * picture.pitch;
	double height = bottom + 14 + legend(&picture, 0, false) * LEGEND_LINE + EDGE / 2.0;
	double width = fmax(picture.left + picture.width + EDGE + 12, EDGE * 2 + pp_svg_text_width(about(dump), 12));
	picture.svg = pp_svg_begin(dump->out, ceil(width), ceil(height), title, about(dump), style(&picture));
	draw_patterns(&picture);
	pp_svg_rect(&picture.svg, 0, 0, ceil(width), ceil(height), "paper", NULL);
	pp_svg_text(&picture.svg, EDGE, 24, PP_SVG_START, "head", title);
	pp_svg_text(&picture.svg, EDGE, 44, PP_SVG_START, NULL, about(dump));
	draw_axis(&picture, top, bottom - (picture.pitch - picture.row));
	for (uint32_t rank = 0, row = 0; rank < dump->program->ranks; rank++)
		if (dump->chosen[rank])
			draw_row(&picture, rank, top + row++ * picture.pitch);
	legend(&picture, bottom + 14, true);
	pp_svg_end(&picture.svg);
}
