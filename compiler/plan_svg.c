/* A plan as a picture: time of a step over memory, one numbered point per combination, the front as a line, and the
 * numbers beside it. */
#include "plan.h"

#include "codegen/emit/svg.h"
#include "ir/figures.h"

#include <math.h>
#include <string.h>

/* Pixels. */
enum {
	LEFT = 76,
	TOP = 56,
	PLOT_WIDTH = 460,
	PLOT_HEIGHT = 340,
	BOTTOM = 60,
	GAP = 36, /* between plot and list */
	LINE = 17,
	RADIUS = 9,
	MOST_LISTED = 40
};

/* Okabe and Ito's colours: told apart with any kind of colour blindness. */
static const char style[] = "  text { font: 12px sans-serif; fill: #222 }\n"
                            "  .head { font-size: 15px; font-weight: bold }\n"
                            "  .small { font-size: 11px }\n"
                            "  .mark { font-size: 10px; font-weight: bold }\n"
                            "  .inside { font-size: 10px; font-weight: bold; fill: #fff }\n"
                            "  .paper { fill: #fff }\n"
                            "  .axis { stroke: #444; stroke-width: 1 }\n"
                            "  .grid { stroke: #ddd; stroke-width: 1 }\n"
                            "  .front { fill: none; stroke: #0072b2; stroke-width: 2 }\n"
                            "  .best { fill: #0072b2; stroke: #fff; stroke-width: 1.5 }\n"
                            "  .other { fill: #fff; stroke: #555; stroke-width: 1.5 }\n";

/* One direction of the plot. */
struct axis {
	double low, high, step, divisor; /* in the unit that is printed; divisor: its base units */
	double pixels;
	const char *name;
};

static struct axis axis_make(double least, double most, double divisor, double pixels, double distance,
                             const char *name)
{
	struct axis axis = {.divisor = divisor, .pixels = pixels, .name = name};
	double low = least / divisor, high = most / divisor, room = high - low;
	room = room > 0 ? room : high > 0 ? high / 4 : 1;
	axis.step = pp_svg_step(room * 1.2 * distance / pixels);
	axis.low = floor((low - room * 0.06) / axis.step) * axis.step;
	axis.low = axis.low < 0 ? 0 : axis.low;
	axis.high = ceil((high + room * 0.06) / axis.step) * axis.step;
	return axis;
}

static double position(const struct axis *axis, double value)
{
	return (value / axis->divisor - axis->low) / (axis->high - axis->low) * axis->pixels;
}

struct plot {
	struct pp_arena *arena;
	const struct pp_plan *plan;
	struct pp_svg svg;
	struct axis memory, time;
	struct pp_time_unit unit;
};

static double x_of(const struct plot *plot, const struct pp_plan_row *row)
{
	return LEFT + position(&plot->memory, (double)row->peak);
}

static double y_of(const struct plot *plot, const struct pp_plan_row *row)
{
	return TOP + PLOT_HEIGHT - position(&plot->time, pp_plan_pace(row));
}

static void memory_unit(double most, double *divisor, const char **name)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;
	for (*divisor = 1; most / *divisor >= 4096 && unit < 4; unit++)
		*divisor *= 1024;
	*name = names[unit];
}

static void choose_axes(struct plot *plot)
{
	const struct pp_plan *plan = plot->plan;
	double least = INFINITY, most = 0, fast = INFINITY, slow = 0, divisor;
	for (size_t i = 0; i < plan->ranked; i++) {
		double peak = (double)plan->rows[i].peak, pace = pp_plan_pace(&plan->rows[i]);
		least = fmin(least, peak);
		most = fmax(most, peak);
		fast = fmin(fast, pace);
		slow = fmax(slow, pace);
	}
	const char *name;
	memory_unit(most, &divisor, &name);
	plot->memory = axis_make(least, most, divisor, PLOT_WIDTH, 70,
	                         pp_arena_printf(plot->arena, "peak memory of the fullest rank, %s", name));
	double samples = plan->same_batch && plan->ranked ? (double)plan->rows[0].samples : 1;
	plot->unit = pp_time_unit_for((uint64_t)(slow * samples));
	plot->time = axis_make(
	    fast, slow, (double)plot->unit.ns / samples, PLOT_HEIGHT, 40,
	    pp_arena_printf(plot->arena, "time per %s, %s", plan->same_batch ? "step" : "sample", plot->unit.name));
}

static void draw_axes(struct plot *plot)
{
	struct pp_svg *svg = &plot->svg;
	char number[PP_SVG_NUMBER];
	const struct axis *memory = &plot->memory, *time = &plot->time;
	long steps = lround((memory->high - memory->low) / memory->step);
	for (long i = 0; i <= steps; i++) {
		double x = LEFT + memory->pixels * (double)i / (double)steps;
		pp_svg_line(svg, x, TOP, x, TOP + PLOT_HEIGHT, "grid");
		pp_svg_number(number, memory->low + (double)i * memory->step, memory->step);
		pp_svg_text(svg, x, TOP + PLOT_HEIGHT + 18, PP_SVG_MIDDLE, "small", number);
	}
	steps = lround((time->high - time->low) / time->step);
	for (long i = 0; i <= steps; i++) {
		double y = TOP + PLOT_HEIGHT - time->pixels * (double)i / (double)steps;
		pp_svg_line(svg, LEFT, y, LEFT + PLOT_WIDTH, y, "grid");
		pp_svg_number(number, time->low + (double)i * time->step, time->step);
		pp_svg_text(svg, LEFT - 8, y + 4, PP_SVG_END, "small", number);
	}
	pp_svg_line(svg, LEFT, TOP + PLOT_HEIGHT, LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT, "axis");
	pp_svg_line(svg, LEFT, TOP, LEFT, TOP + PLOT_HEIGHT, "axis");
	pp_svg_text(svg, LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 42, PP_SVG_MIDDLE, NULL, memory->name);
	pp_svg_text(svg, LEFT - 60, TOP - 12, PP_SVG_START, NULL, time->name);
}

/* Steps down from the fastest to the smallest: what lies above or to the right of it is beaten. */
static void draw_front(struct plot *plot)
{
	pp_svg_path(&plot->svg, "front");
	double last = 0;
	int first = 1;
	for (size_t i = 0; i < plot->plan->ranked; i++) {
		const struct pp_plan_row *row = &plot->plan->rows[i];
		if (!row->front)
			continue;
		if (!first)
			pp_svg_point(&plot->svg, last, y_of(plot, row), 0);
		pp_svg_point(&plot->svg, x_of(plot, row), y_of(plot, row), first);
		last = x_of(plot, row);
		first = 0;
	}
	pp_svg_path_end(&plot->svg);
}

static const char *describe(const struct plot *plot, const struct pp_plan_row *row)
{
	const struct pp_plan *plan = plot->plan;
	const char *text = pp_arena_printf(plot->arena, "%s", row->schedule);
	bool vpp = false;
	for (size_t a = 0; a < plan->vary->count; a++) {
		const struct pp_plan_axis *axis = &plan->vary->axes[a];
		vpp |= strcmp(axis->name, "vpp") == 0;
		if (strcmp(axis->name, "memory") == 0)
			text = pp_arena_printf(plot->arena, "%s, memory %s", text, row->values[a]);
		else if (strcmp(axis->name, "schedule") != 0)
			text = pp_arena_printf(plot->arena, "%s, %s %s", text, axis->name, row->values[a]);
	}
	return vpp || row->vpp == 1 ? text : pp_arena_printf(plot->arena, "%s, vpp %u", text, row->vpp);
}

/* In the unit of the axis, per step or per sample as there. */
static const char *time_text(const struct plot *plot, const struct pp_plan_row *row)
{
	return pp_arena_printf(plot->arena, "%.2f %s", pp_plan_pace(row) / plot->time.divisor, plot->unit.name);
}

/* The last ranks first, so that the best lie on top. */
static void draw_points(struct plot *plot)
{
	for (size_t i = plot->plan->ranked; i-- > 0;) {
		const struct pp_plan_row *row = &plot->plan->rows[i];
		double x = x_of(plot, row), y = y_of(plot, row);
		pp_svg_group(&plot->svg, NULL,
		             pp_arena_printf(plot->arena, "%zu: %s; %s, peak %s, bubble %.1f %%", i + 1, describe(plot, row),
		                             time_text(plot, row), pp_show_bytes(plot->arena, row->peak), 100 * row->bubble));
		pp_svg_circle(&plot->svg, x, y, RADIUS, row->front ? "best" : "other", NULL);
		pp_svg_text(&plot->svg, x, y + 3.5, PP_SVG_MIDDLE, row->front ? "inside" : "mark",
		            pp_arena_printf(plot->arena, "%zu", i + 1));
		pp_svg_group_end(&plot->svg);
	}
}

static size_t listed(const struct pp_plan *plan)
{
	return plan->ranked < MOST_LISTED ? plan->ranked : MOST_LISTED;
}

static const char *list_text(const struct plot *plot, size_t at)
{
	const struct pp_plan_row *row = &plot->plan->rows[at];
	return pp_arena_printf(plot->arena, "%zu  %s: %s, %s", at + 1, describe(plot, row), time_text(plot, row),
	                       pp_show_bytes(plot->arena, row->peak));
}

static void draw_list(struct plot *plot)
{
	double x = LEFT + PLOT_WIDTH + GAP, y = TOP + 4;
	pp_svg_circle(&plot->svg, x + 5, y - 4, 5, "best", NULL);
	pp_svg_text(&plot->svg, x + 16, y, PP_SVG_START, "small", "none is faster with no more memory");
	y += LINE + 4;
	for (size_t i = 0; i < listed(plot->plan); i++, y += LINE) {
		pp_svg_circle(&plot->svg, x + 5, y - 4, 4, plot->plan->rows[i].front ? "best" : "other", NULL);
		pp_svg_text(&plot->svg, x + 16, y, PP_SVG_START, "small", list_text(plot, i));
	}
	if (plot->plan->ranked > listed(plot->plan))
		pp_svg_text(&plot->svg, x + 16, y, PP_SVG_START, "small",
		            pp_arena_printf(plot->arena, "and %zu more", plot->plan->ranked - listed(plot->plan)));
}

void pp_plan_svg(struct pp_arena *arena, const struct pp_plan *plan, const char *file, FILE *out)
{
	struct plot plot = {.arena = arena, .plan = plan};
	double list_width = 220, width, height = TOP + PLOT_HEIGHT + BOTTOM;
	if (plan->ranked)
		choose_axes(&plot);
	for (size_t i = 0; i < listed(plan); i++)
		list_width = fmax(list_width, pp_svg_text_width(list_text(&plot, i), 11) + 24);
	width = LEFT + PLOT_WIDTH + GAP + list_width;
	height = fmax(height, TOP + (double)(listed(plan) + 3) * LINE + 20);
	const char *title = pp_arena_printf(arena, "%s: time against memory", file);
	const char *about =
	    pp_arena_printf(arena, "%zu combinations that can be run, numbered from the fastest", plan->ranked);
	plot.svg = pp_svg_begin(out, ceil(width), ceil(height), title, about, style);
	pp_svg_rect(&plot.svg, 0, 0, ceil(width), ceil(height), "paper", NULL);
	pp_svg_text(&plot.svg, 16, 24, PP_SVG_START, "head", title);
	if (plan->ranked) {
		draw_axes(&plot);
		draw_front(&plot);
		draw_points(&plot);
		draw_list(&plot);
	} else
		pp_svg_text(&plot.svg, 16, TOP, PP_SVG_START, NULL, "no combination can be run");
	pp_svg_end(&plot.svg);
}
