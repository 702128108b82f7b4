/* Gantt chart: one row per rank, time to the right. requires: intervals. ensures: no row is wider than dump->width.
 *
 * Exact form, when it fits: the largest unit of time that divides every start and end takes as many columns as the
 * longest label and a blank want, so a chart of F = 1, B = 2 looks as in the papers; if that is too wide, the same
 * without blanks. Else a column is a slice of time; an action shows its label where that fits, else its letter and
 * dashes. */
#include "emit.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* How time maps to columns. */
struct scale {
	uint64_t from, to; /* ns */
	uint64_t unit;     /* exact form: ns per unit; 0: scaled form */
	uint32_t per_unit; /* exact form: columns of a unit */
	uint32_t blank;    /* exact form: columns left free after an action, 1 or 0 */
	uint32_t columns;
};

enum { MOST_COLUMNS = 1 << 16, WIDEST_HINT = 1000 };

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

static uint32_t length_of_number(uint64_t number)
{
	uint32_t length = 1;
	for (; number >= 10; number /= 10)
		length++;
	return length;
}

static uint32_t label_length(const struct pp_dump *dump, const struct pp_instr *instr)
{
	uint32_t chunk = dump->chunk[instr->stage];
	return 1 + length_of_number(instr->mb) + (chunk ? 1 + length_of_number(chunk) : 0);
}

/* Width of " r12  ". */
static uint32_t prefix_width(const struct pp_dump *dump)
{
	return length_of_number(dump->program->ranks - 1) + 4;
}

static bool visible(const struct scale *scale, struct pp_interval interval)
{
	return interval.end > scale->from && interval.start < scale->to && interval.end > interval.start;
}

/* ---- choice of the scale --------------------------------------------------------------------- */

/* The unit that divides all starts and ends and the window's edges; 0: nothing takes time. */
static uint64_t common_unit(const struct pp_dump *dump, const struct scale *scale)
{
	uint64_t unit = gcd(scale->from, scale->to);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		const struct pp_stream *stream = &dump->named->streams[rank];
		for (uint32_t i = 0; i < stream->count && unit != 1; i++)
			if (pp_compute_letter(&stream->items[i]))
				unit = gcd(unit, gcd(dump->sim->instr[rank][i].start, dump->sim->instr[rank][i].end));
	}
	return unit;
}

/* Columns that a unit needs so that every label and `blank` columns fit into its action. */
static uint64_t columns_per_unit(const struct pp_dump *dump, const struct scale *scale, uint64_t unit, uint32_t blank)
{
	uint64_t per_unit = 1;
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		const struct pp_stream *stream = &dump->named->streams[rank];
		for (uint32_t i = 0; dump->chosen[rank] && i < stream->count; i++) {
			struct pp_interval interval = dump->sim->instr[rank][i];
			if (!pp_compute_letter(&stream->items[i]) || !visible(scale, interval))
				continue;
			uint64_t length = (interval.end - interval.start) / unit,
			         wanted = label_length(dump, &stream->items[i]) + blank;
			if ((wanted + length - 1) / length > per_unit)
				per_unit = (wanted + length - 1) / length;
		}
	}
	return per_unit;
}

static void exact_scale(const struct pp_dump *dump, struct scale *scale)
{
	uint64_t unit = common_unit(dump, scale);
	uint64_t units = unit ? (scale->to - scale->from) / unit : 0;
	if (units == 0 || units > scale->columns)
		return;
	for (uint32_t blank = 2; blank-- > 0;) {
		uint64_t per_unit = columns_per_unit(dump, scale, unit, blank);
		if (units * per_unit > scale->columns + blank) /* a blank at the end of a line is not printed */
			continue;
		scale->unit = unit;
		scale->per_unit = (uint32_t)per_unit;
		scale->blank = blank;
		scale->columns = (uint32_t)(units * per_unit);
		return;
	}
}

static struct scale choose_scale(const struct pp_dump *dump)
{
	uint32_t prefix = prefix_width(dump), width = dump->width < MOST_COLUMNS ? dump->width : MOST_COLUMNS;
	struct scale scale = {.from = dump->from, .to = dump->to < dump->sim->makespan ? dump->to : dump->sim->makespan};
	if (scale.from > scale.to)
		scale.from = scale.to;
	scale.columns = width > prefix + 10 ? width - prefix : 10;
	exact_scale(dump, &scale);
	return scale;
}

/* First column of an instant. */
static uint32_t column_of(const struct scale *scale, uint64_t ns)
{
	if (ns <= scale->from)
		return 0;
	if (ns >= scale->to)
		return scale->columns;
	if (scale->unit) /* window edges need not be multiples: round to the unit */
		return (uint32_t)((ns - scale->from) / scale->unit * scale->per_unit);
	return (uint32_t)((double)(ns - scale->from) * scale->columns / (double)(scale->to - scale->from));
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct row {
	char *text;   /* a byte per column; '.' idle, '-' goes on */
	char *letter; /* F B I W R or 0: for colours */
	uint32_t columns;
};

static void draw_idle(const struct scale *scale, struct row *row)
{
	memset(row->text, scale->unit ? ' ' : '.', row->columns);
	memset(row->letter, 0, row->columns);
	for (uint32_t at = (scale->per_unit - 1) / 2; scale->unit && at < row->columns; at += scale->per_unit)
		row->text[at] = '.';
}

/* An action in columns [first, last): its label if that fits, else its letter; dashes to the end, but none in an action
 * of one unit, and & towards the other of a pair. The scaled form has no room for chunks in labels: lower case stands
 * for odd ones. */
static void draw_action(const struct pp_dump *dump, const struct scale *scale, struct row *row,
                        const struct pp_instr *instr, uint32_t first, uint32_t last)
{
	const char *label = pp_dump_action(dump, instr);
	uint32_t length = scale->unit ? (uint32_t)strlen(label) : 1 + length_of_number(instr->mb), room = last - first;
	memset(row->letter + first, pp_compute_letter(instr), room);
	memset(row->text + first, scale->unit && room <= scale->per_unit ? ' ' : '-', room);
	memcpy(row->text + first, label, length <= room ? length : 1);
	if (!scale->unit && dump->chunk[instr->stage] % 2)
		row->text[first] = (char)tolower((unsigned char)row->text[first]);
	if (scale->blank && room > 1) {
		row->text[last - 1] = ' ';
		row->letter[last - 1] = 0;
	}
	if ((instr->flags & PP_PAIR) && strchr(" -", row->text[last - 1]))
		row->text[last - 1] = '&';
}

static void draw_row(const struct pp_dump *dump, const struct scale *scale, uint32_t rank, struct row *row)
{
	const struct pp_stream *stream = &dump->named->streams[rank];
	draw_idle(scale, row);
	for (uint32_t i = 0; i < stream->count; i++) {
		struct pp_interval interval = dump->sim->instr[rank][i];
		if (!pp_compute_letter(&stream->items[i]) || !visible(scale, interval))
			continue;
		uint32_t first = column_of(scale, interval.start), last = column_of(scale, interval.end);
		if (last == first && first < row->columns)
			last++;
		if (last > first)
			draw_action(dump, scale, row, &stream->items[i], first, last);
	}
}

static const char *color_of(char letter)
{
	return letter == 'F'   ? "\033[32m"
	       : letter == 'W' ? "\033[33m"
	       : letter == 'R' ? "\033[35m"
	       : letter        ? "\033[34m"
	                       : "\033[0m";
}

static void print_row(const struct pp_dump *dump, const struct row *row)
{
	uint32_t end = row->columns;
	while (end > 0 && row->text[end - 1] == ' ')
		end--;
	const char *color = color_of(0);
	for (uint32_t i = 0; i < end; i++) {
		const char *wanted = color_of(row->text[i] == ' ' ? 0 : row->letter[i]);
		if (dump->color && wanted != color)
			fputs(wanted, dump->out);
		color = wanted;
		if (dump->utf8 && row->text[i] == '-')
			fputs("\xe2\x94\x80", dump->out);
		else if (dump->utf8 && row->text[i] == '.' && !row->letter[i])
			fputs("\xc2\xb7", dump->out);
		else
			fputc(row->text[i], dump->out);
	}
	if (dump->color && color != color_of(0))
		fputs(color_of(0), dump->out);
	fputc('\n', dump->out);
}

/* ---- axis ------------------------------------------------------------------------------------ */

/* The smallest of 1 2 3 5 times a power of ten that puts labels at least `columns` apart. */
static uint64_t axis_step(double columns_per_step, double columns)
{
	static const uint64_t steps[] = {1, 2, 3, 5};
	for (uint64_t power = 1; power < UINT64_MAX / 100; power *= 10)
		for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
			if ((double)(steps[i] * power) * columns_per_step >= columns)
				return steps[i] * power;
	return UINT64_MAX / 2;
}

static void print_axis(const struct pp_dump *dump, const struct scale *scale)
{
	/* labels at multiples of `grain`: the unit of the exact form, or a thousandth of the printed unit */
	uint64_t grain = scale->unit ? scale->unit : dump->unit.ns >= 1000 ? dump->unit.ns / 1000 : 1;
	double per_grain =
	    scale->unit ? scale->per_unit : (double)scale->columns * (double)grain / (double)(scale->to - scale->from);
	uint64_t step = axis_step(per_grain, (double)strlen(pp_dump_time(dump, scale->to)) + 7) * grain;
	fprintf(dump->out, "%*s", (int)prefix_width(dump), "");
	uint32_t column = 0;
	for (uint64_t at = (scale->from + step - 1) / step * step; at <= scale->to && step; at += step) {
		uint32_t wanted = column_of(scale, at);
		const char *label = pp_dump_time(dump, at);
		if (wanted + strlen(label) > scale->columns && at != scale->from)
			break;
		column += (uint32_t)fprintf(dump->out, "%*s%s", (int)(wanted - column), "", label);
	}
	fprintf(dump->out, " %s\n", dump->unit.name);
}

static void print_legend(const struct pp_dump *dump, const struct scale *scale)
{
	static const char *const words[] = {"F forward", "B backward", "I input gradient", "W weight gradient",
	                                    "R recompute"};
	bool seen[PP_PHASE_COUNT] = {false};
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		for (uint32_t i = 0; i < dump->named->streams[rank].count; i++)
			for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
				seen[phase] =
				    seen[phase] || pp_compute_letter(&dump->named->streams[rank].items[i]) == pp_phase_name[phase][0];
	fprintf(dump->out, "%*s", (int)prefix_width(dump), "");
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
		if (seen[phase])
			fprintf(dump->out, "%s%s%s, ", dump->color ? color_of(pp_phase_name[phase][0]) : "", words[phase],
			        dump->color ? color_of(0) : "");
	bool chunks = false, pairs = false;
	for (uint32_t s = 0; s < dump->program->stage_count; s++)
		chunks = chunks || dump->chunk[s];
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		for (uint32_t i = 0; i < dump->named->streams[rank].count; i++)
			pairs = pairs || (dump->named->streams[rank].items[i].flags & PP_PAIR);
	if (pairs)
		fputs("& overlapped, ", dump->out);
	const char *second = scale->unit ? "F0.1" : "f0";
	if (chunks)
		fprintf(dump->out, "%s microbatch 0 of the rank's second chunk, ", second);
	fprintf(dump->out, "%s idle\n", dump->utf8 ? "\xc2\xb7" : ".");
}

/* Actions whose label the scaled form has no room for, and the width that all need. */
static void print_hint(const struct pp_dump *dump, const struct scale *scale)
{
	uint64_t wanted = 0;
	bool short_of_room = false;
	for (uint32_t rank = 0; !scale->unit && rank < dump->program->ranks; rank++) {
		const struct pp_stream *stream = &dump->named->streams[rank];
		for (uint32_t i = 0; dump->chosen[rank] && i < stream->count; i++) {
			struct pp_interval interval = dump->sim->instr[rank][i];
			if (!pp_compute_letter(&stream->items[i]) || !visible(scale, interval))
				continue;
			uint32_t length = 1 + length_of_number(stream->items[i].mb);
			uint32_t room = column_of(scale, interval.end) - column_of(scale, interval.start);
			double columns =
			    (double)(length + 1) * (double)(scale->to - scale->from) / (double)(interval.end - interval.start);
			short_of_room |= room < length;
			if (columns > (double)wanted)
				wanted = columns < MOST_COLUMNS ? (uint64_t)columns + 1 : MOST_COLUMNS;
		}
	}
	wanted += prefix_width(dump);
	if (short_of_room && wanted <= WIDEST_HINT)
		fprintf(dump->out, "%*sa letter alone: no room for its microbatch; --width=%" PRIu64 " shows all\n",
		        (int)prefix_width(dump), "", wanted);
	else if (short_of_room)
		fprintf(dump->out, "%*sa letter alone: no room for its microbatch; --from and --to show a part\n",
		        (int)prefix_width(dump), "");
}

void pp_emit_gantt(const struct pp_dump *dump)
{
	struct scale scale = choose_scale(dump);
	if (scale.to == scale.from) {
		fputs("nothing takes time here: no Gantt chart to draw\n", dump->out);
		return;
	}
	struct row row = {.columns = scale.columns};
	row.text = PP_NEW_ARRAY(dump->arena, char, scale.columns);
	row.letter = PP_NEW_ARRAY(dump->arena, char, scale.columns);
	print_axis(dump, &scale);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		if (!dump->chosen[rank])
			continue;
		draw_row(dump, &scale, rank, &row);
		fprintf(dump->out, " r%-*u ", (int)length_of_number(dump->program->ranks - 1) + 1, rank);
		print_row(dump, &row);
	}
	print_legend(dump, &scale);
	print_hint(dump, &scale);
}

void pp_emit_gantt_json(const struct pp_dump *dump)
{
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.gantt/1");
	pp_json_string(&json, "time_unit", pp_dump_time_unit(dump));
	pp_json_uint(&json, "makespan", dump->sim->makespan);
	pp_json_open_array(&json, "ranks");
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++) {
		const struct pp_stream *stream = &dump->named->streams[rank];
		if (!dump->chosen[rank])
			continue;
		pp_json_open_object(&json, NULL);
		pp_json_uint(&json, "rank", rank);
		pp_json_open_array(&json, "actions");
		for (uint32_t i = 0; i < stream->count; i++) {
			const char kind[2] = {pp_compute_letter(&stream->items[i]), '\0'};
			if (!kind[0])
				continue;
			pp_json_open_object(&json, NULL);
			pp_json_string(&json, "kind", kind);
			pp_json_uint(&json, "stage", stream->items[i].stage);
			pp_json_uint(&json, "microbatch", stream->items[i].mb);
			pp_json_uint(&json, "start", dump->sim->instr[rank][i].start);
			pp_json_uint(&json, "end", dump->sim->instr[rank][i].end);
			pp_json_close(&json);
		}
		pp_json_close(&json);
		pp_json_close(&json);
	}
	pp_json_close(&json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}
