/* pipedump: shows a program. Command line, terminal, choice of view; the views are emit_*.c. */
#include "emit/emit.h"
#include "schedule_file.h"

#include "ir/file.h"
#include "ir/options.h"
#include "ir/program_file.h"
#include "ir/program_text.h"
#include "ir/verify.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- options --------------------------------------------------------------------------------- */

enum view {
	VIEW_DEFAULT,
	VIEW_STATS,
	VIEW_GANTT,
	VIEW_LIST,
	VIEW_MEMORY,
	VIEW_MAP,
	VIEW_TABLES,
	VIEW_SOURCE,
	VIEW_COUNT
};
enum format {
	FORMAT_TEXT,
	FORMAT_JSON,
	FORMAT_CSV,
	FORMAT_CSV_COMMS,
	FORMAT_PPS,
	FORMAT_TRACE,
	FORMAT_SVG,
	FORMAT_ROWS
};
enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

struct arguments {
	unsigned view, format, unit, color, transport;
	const char *diff, *name;
	const char *ranks, *program, *from, *to, *output;
	uint64_t width;
	bool legacy;
};

static const struct pp_option table[] = {
    {.name = "view",
     .kind = PP_OPTION_CHOICE,
     .argument = "default|stats|gantt|list|memory|map|tables|source",
     .offset = offsetof(struct arguments, view),
     .help = "what to show (default: stats and Gantt)"},
    {.name = "format",
     .kind = PP_OPTION_CHOICE,
     .argument = "text|json|csv|csv-comms|pps|trace|svg|rows",
     .offset = offsetof(struct arguments, format),
     .help = "csv: PyTorch's compute grid; csv-comms: with transfers; trace: Chrome; svg: picture of the Gantt "
             "chart; rows: a schedule block that fixes the order"},
    {.name = "rank",
     .kind = PP_OPTION_TEXT,
     .argument = "0,3-5",
     .offset = offsetof(struct arguments, ranks),
     .help = "only these ranks of the pipeline"},
    {.name = "program",
     .kind = PP_OPTION_TEXT,
     .argument = "NAME",
     .offset = offsetof(struct arguments, program),
     .help = "which program of the file (default: train)"},
    {.name = "width",
     .kind = PP_OPTION_UINT,
     .argument = "N",
     .offset = offsetof(struct arguments, width),
     .help = "columns (default: the terminal's, else 100); of an svg pixels",
     .least = 20,
     .most = 65536},
    {.name = "from",
     .kind = PP_OPTION_TEXT,
     .argument = "T",
     .offset = offsetof(struct arguments, from),
     .help = "Gantt and memory from this time: 1.5, 20us, 3ms"},
    {.name = "to",
     .kind = PP_OPTION_TEXT,
     .argument = "T",
     .offset = offsetof(struct arguments, to),
     .help = "Gantt and memory up to this time"},
    {.name = "unit",
     .kind = PP_OPTION_CHOICE,
     .argument = "stashes|bytes",
     .offset = offsetof(struct arguments, unit),
     .help = "memory view: what to count"},
    {.name = "transport",
     .kind = PP_OPTION_CHOICE,
     .argument = "auto|" PP_PROGRESS_NAMES,
     .offset = offsetof(struct arguments, transport),
     .help = "predict for data that moves as with this transport; none: on its own; auto: that of --diff, else none"},
    {.name = "diff",
     .kind = PP_OPTION_TEXT,
     .argument = "OTHER",
     .offset = offsetof(struct arguments, diff),
     .help = "beside another program (.ppx, .pps; a .csv beside a .csv), or predicted against measured: what piperun "
             "--trace or --profile wrote"},
    {.name = "name",
     .kind = PP_OPTION_TEXT,
     .argument = "NAME",
     .offset = offsetof(struct arguments, name),
     .help = "--format=rows: name of the schedule (default: SCHEDULE_rows)"},
    {.name = "color",
     .kind = PP_OPTION_CHOICE,
     .argument = "auto|always|never",
     .offset = offsetof(struct arguments, color),
     .help = "auto: on a terminal, unless NO_COLOR is set"},
    {.name = "legacy",
     .kind = PP_OPTION_FLAG,
     .offset = offsetof(struct arguments, legacy),
     .help = "schedule in CSV: the letters of old files, B the input gradient and BW the whole backward"},
    {.name = "output",
     .letter = 'o',
     .kind = PP_OPTION_TEXT,
     .argument = "FILE",
     .offset = offsetof(struct arguments, output),
     .help = "write to a file instead of standard output"},
};
enum { TABLE_COUNT = sizeof table / sizeof table[0] };

static const char examples[] =
    "usage: pipedump [options] PROGRAM          PROGRAM: .ppx, .pps or a schedule of PyTorch (.csv)\n"
    "\n"
    "examples:\n"
    "  pipedump demo.ppx                                statistics and Gantt chart\n"
    "  pipedump demo.ppx --view=list --rank=0           every instruction of rank 0\n"
    "  pipedump demo.ppx --view=memory --unit=bytes     live bytes over time\n"
    "  pipedump demo.ppx --format=json | jq .bubble\n"
    "  pipedump demo.ppx --diff=run.json                predicted against measured\n"
    "  pipedump demo.ppx --diff=other.ppx               two schedules side by side\n"
    "  pipedump demo.ppx --format=trace -o demo.json    for chrome://tracing or Perfetto\n"
    "  pipedump demo.ppx --format=svg -o demo.svg       the Gantt chart as a picture\n"
    "  pipedump demo.ppx --format=rows --name=frozen    the order as a schedule to paste\n"
    "  pipedump zbv.csv --diff=1f1b.csv                 two schedules of PyTorch side by side\n"
    "\n"
    "options:\n";

static const char after_options[] = "\nexit: 0 ok, 1 the program is wrong, 2 usage, 3 file or memory\n";

/* ---- surroundings ---------------------------------------------------------------------------- */

static const char *environment(const char *name)
{
	const char *value = getenv(name);
	return value ? value : "";
}

static uint32_t terminal_width(void)
{
	char *end;
	unsigned long columns = strtoul(environment("COLUMNS"), &end, 10);
	if (*environment("COLUMNS") && !*end && columns >= 20 && columns <= 65536)
		return (uint32_t)columns;
	struct winsize size;
	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
		return size.ws_col;
	return 100;
}

static bool locale_is_utf8(void)
{
	static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
	for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
		const char *value = environment(variables[i]);
		if (!*value)
			continue;
		const char *dot = strchr(value, '.');
		return dot && (strcmp(dot, ".UTF-8") == 0 || strcmp(dot, ".utf8") == 0 || strcmp(dot, ".utf-8") == 0);
	}
	return false;
}

static bool wants_color(const struct arguments *arguments)
{
	if (arguments->color != COLOR_AUTO)
		return arguments->color == COLOR_ALWAYS;
	return !arguments->output && isatty(STDOUT_FILENO) && !*environment("NO_COLOR") &&
	       strcmp(environment("TERM"), "dumb") != 0;
}

static void out_of_memory(size_t wanted)
{
	(void)wanted;
	static const char text[] = "pipedump: out of memory\n";
	if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
		_exit(PP_EXIT_ENVIRONMENT);
	_exit(PP_EXIT_ENVIRONMENT);
}

/* ---- preparation ----------------------------------------------------------------------------- */

static bool choose_program(struct pp_dump *dump, const char *name, struct pp_status *status)
{
	const struct pp_program *program = dump->program;
	dump->named = pp_program_find(program, name ? name : "train");
	if (!dump->named && !name)
		dump->named = &program->programs[0];
	if (dump->named)
		return true;
	const char *list = "";
	for (uint32_t i = 0; i < program->program_count; i++)
		list = pp_arena_printf(dump->arena, "%s%s%s", list, i ? ", " : "", program->programs[i].name);
	return pp_fail(status, PP_EXIT_USAGE, "%s holds no program `%s`; it has: %s", dump->file, name, list);
}

static bool choose_ranks(struct pp_dump *dump, const char *text, struct pp_status *status)
{
	bool *chosen = PP_NEW_ARRAY(dump->arena, bool, dump->program->ranks);
	dump->chosen = chosen;
	if (text)
		return pp_parse_ranks(text, dump->program->ranks, chosen, status);
	for (uint32_t rank = 0; rank < dump->program->ranks; rank++)
		chosen[rank] = true;
	return true;
}

static void number_chunks(struct pp_dump *dump)
{
	const struct pp_program *program = dump->program;
	uint32_t *chunk = PP_NEW_ARRAY(dump->arena, uint32_t, program->stage_count);
	uint32_t *next = PP_NEW_ARRAY(dump->arena, uint32_t, program->ranks);
	for (uint32_t s = 0; s < program->stage_count; s++)
		chunk[s] = next[program->stages[s].rank]++;
	dump->chunk = chunk;
}

/* "1.5", "20us": without a unit in that of the output. */
static bool read_time(const struct pp_dump *dump, const char *option, const char *text, uint64_t *ns,
                      struct pp_status *status)
{
	static const struct pp_time_unit units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
	if (!text)
		return true;
	char *end;
	double value = isdigit((unsigned char)*text) || *text == '.' ? strtod(text, &end) : -1;
	uint64_t unit = value >= 0 && *end == '\0' ? dump->unit.ns : 0;
	for (size_t i = 0; value >= 0 && i < sizeof units / sizeof units[0]; i++)
		if (strcmp(end, units[i].name) == 0)
			unit = units[i].ns;
	if (dump->costless && value >= 0 && *end)
		return pp_fail(status, PP_EXIT_USAGE, "%s=%s: %s is an order alone, its times are units: %s=%.*s", option, text,
		               dump->file, option, (int)(end - text), text);
	if (unit == 0 || value * (double)unit > 9e18)
		return pp_fail(status, PP_EXIT_USAGE, "%s wants a time such as 1.5 (in the unit of the axis) or 20us, got `%s`",
		               option, text);
	*ns = (uint64_t)(value * (double)unit + 0.5);
	return true;
}

static bool choose_window(struct pp_dump *dump, const struct arguments *arguments, struct pp_status *status)
{
	dump->to = UINT64_MAX;
	if (!read_time(dump, "--from", arguments->from, &dump->from, status) ||
	    !read_time(dump, "--to", arguments->to, &dump->to, status))
		return false;
	if (dump->from < dump->to && (!dump->sim || dump->from < dump->sim->makespan + dump->sim->tail))
		return true;
	if (!arguments->from && !arguments->to) /* nothing takes time */
		return true;
	return pp_fail(status, PP_EXIT_USAGE, "nothing lies between --from and --to; the step runs from 0 to %s %s",
	               dump->sim ? pp_dump_time(dump, dump->sim->makespan + dump->sim->tail) : "?", dump->unit.name);
}

/* Times of the step. They exist for proven programs only. */
static bool predict(struct pp_dump *dump, struct pp_program *program, struct pp_diag *diag)
{
	struct pp_sim *sim = PP_NEW(dump->arena, struct pp_sim);
	size_t before = pp_diag_errors(diag);
	if (!pp_verify(program, &program->stamp, diag) || pp_diag_errors(diag) > before)
		return false;
	struct pp_sim_options options = {
	    .layout = PP_LAYOUT_CHANNEL, .intervals = true, .progress = pp_progress_find(dump->transport)};
	if (!pp_simulate_with(dump->arena, program, dump->named, &options, sim))
		return false;
	dump->sim = sim;
	dump->unit = dump->costless ? (struct pp_time_unit){"units", 1} : pp_time_unit_for(sim->makespan + sim->tail);
	return true;
}

/* ---- views ----------------------------------------------------------------------------------- */

static const struct {
	void (*text)(const struct pp_dump *);
	void (*json)(const struct pp_dump *);
	bool wants_times; /* can't be shown without */
	bool header;
} views[VIEW_COUNT] = {
    [VIEW_STATS] = {pp_emit_stats, pp_emit_stats_json, true, true},
    [VIEW_GANTT] = {pp_emit_gantt, pp_emit_gantt_json, true, true},
    [VIEW_LIST] = {pp_emit_list, pp_emit_list_json, false, true},
    [VIEW_MEMORY] = {pp_emit_memory, pp_emit_memory_json, true, true},
    [VIEW_MAP] = {pp_emit_map, pp_emit_map_json, false, true},
    [VIEW_TABLES] = {pp_emit_tables, pp_emit_tables_json, false, true},
};

static bool emit_source(const struct pp_dump *dump, bool json_form, struct pp_status *status)
{
	const struct pp_program *program = dump->program;
	if (!program->source_name)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s carries no source text: it was not made from a .pipe file",
		               dump->file);
	if (!json_form) {
		fputs(program->source_text ? program->source_text : "", dump->out);
		return true;
	}
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.source/1");
	pp_json_string(&json, "name", program->source_name);
	pp_json_string(&json, "text", program->source_text ? program->source_text : "");
	pp_json_string(&json, "tool", program->tool_version ? program->tool_version : "");
	pp_json_close(&json);
	fputc('\n', dump->out);
	return true;
}

static bool emit_view(const struct pp_dump *dump, enum view view, bool json, struct pp_status *status)
{
	if (view == VIEW_SOURCE)
		return emit_source(dump, json, status);
	if (json) {
		views[view == VIEW_DEFAULT ? VIEW_STATS : view].json(dump);
		return true;
	}
	pp_emit_header(dump);
	if (view == VIEW_DEFAULT) {
		pp_emit_gantt(dump);
		fputc('\n', dump->out);
		pp_emit_stats(dump);
	} else
		views[view].text(dump);
	return true;
}

static void note_csv(const struct pp_dump *dump)
{
	const char *note = pp_csv_note(dump);
	if (note)
		fprintf(stderr, "pipedump: note: %s\n", note);
}

static bool emit(const struct pp_dump *dump, const struct arguments *arguments, struct pp_status *status)
{
	switch ((enum format)arguments->format) {
	case FORMAT_PPS:
		pp_program_print(dump->program, dump->out);
		return true;
	case FORMAT_CSV:
		pp_emit_csv(dump);
		note_csv(dump);
		return true;
	case FORMAT_CSV_COMMS:
		pp_emit_csv_comms(dump);
		note_csv(dump);
		return true;
	case FORMAT_TRACE:
		pp_emit_trace(dump);
		return true;
	case FORMAT_SVG:
		pp_emit_gantt_svg(dump);
		return true;
	case FORMAT_ROWS:
		pp_emit_rows(dump, arguments->name);
		return true;
	case FORMAT_TEXT:
	case FORMAT_JSON:
		break;
	}
	return emit_view(dump, (enum view)arguments->view, arguments->format == FORMAT_JSON, status);
}

static bool wants_times(const struct arguments *arguments)
{
	if (arguments->diff)
		return true;
	if (arguments->format == FORMAT_CSV || arguments->format == FORMAT_CSV_COMMS || arguments->format == FORMAT_TRACE ||
	    arguments->format == FORMAT_SVG || arguments->format == FORMAT_ROWS)
		return true;
	return arguments->format != FORMAT_PPS && (arguments->view == VIEW_DEFAULT || views[arguments->view].wants_times);
}

/* ---- two programs ---------------------------------------------------------------------------- */

/* What the file of --diff is, by its content. */
static bool is_program(struct pp_arena *arena, const char *path, bool *program, struct pp_status *status)
{
	char *text;
	size_t length;
	if (strcmp(path, "-") == 0)
		return pp_fail(status, PP_EXIT_USAGE, "--diff wants a file; standard input can be the program before it");
	if (!pp_file_read(arena, path, &text, &length, status))
		return false;
	*program = pp_shown_is(path, text, length);
	return true;
}

static bool load_other(const struct pp_dump *dump, const struct arguments *arguments, struct pp_dump *other,
                       struct pp_status *status)
{
	struct pp_loaded loaded;
	if (!pp_shown_load(dump->arena, arguments->diff, arguments->legacy, &loaded, status)) {
		if (!status->text[0])
			pp_fail(status, PP_EXIT_REJECTED, "%s can't be read; `pipec verify %s` says why", arguments->diff,
			        arguments->diff);
		return false;
	}
	*other = *dump;
	other->file = arguments->diff;
	other->program = loaded.program;
	other->costless = loaded.costless;
	if (!choose_program(other, dump->named->name, status))
		return false;
	number_chunks(other);
	if (!predict(other, loaded.program, loaded.diag))
		return pp_fail(status, PP_EXIT_REJECTED, "%s is not proven, so it has no times; `pipec verify %s` says why",
		               arguments->diff, arguments->diff);
	return true;
}

/* Units of time beside a program's ns would be compared as if they were the same. */
static bool refuse_units(const struct pp_dump *dump, const struct pp_dump *other, struct pp_status *status)
{
	const char *alone = dump->costless ? dump->file : other->file, *costed = dump->costless ? other->file : dump->file;
	return pp_fail(status, PP_EXIT_USAGE,
	               "--diff: %s is an order alone, its times are units, %s has costs; build it under the same spec, "
	               "`schedule NAME from csv \"%s\"`, and compare the two programs",
	               alone, costed, alone);
}

static bool show_both(struct pp_dump *dump, struct pp_program *program, const struct arguments *arguments,
                      struct pp_diag *diag, struct pp_status *status)
{
	struct pp_dump other;
	number_chunks(dump);
	if (!predict(dump, program, diag))
		return pp_fail(status, PP_EXIT_REJECTED, "%s is not proven, so it has no times; `pipec verify %s` says why",
		               dump->file, dump->file);
	if (!load_other(dump, arguments, &other, status))
		return false;
	if (dump->costless != other.costless)
		return refuse_units(dump, &other, status);
	pp_emit_diff_programs(dump, &other, arguments->format == FORMAT_JSON);
	return true;
}

/* Letters, digits and `_`, beginning with a letter, as the language has names. */
static bool check_name(const struct arguments *arguments, struct pp_status *status)
{
	const char *name = arguments->name;
	if (!name)
		return true;
	if (arguments->format != FORMAT_ROWS)
		return pp_fail(status, PP_EXIT_USAGE, "--name names the schedule that --format=rows writes");
	bool plain = isalpha((unsigned char)*name) && strlen(name) <= 60;
	for (const char *at = name; plain && *at; at++)
		plain = isalnum((unsigned char)*at) || *at == '_';
	return plain || pp_fail(status, PP_EXIT_USAGE,
	                        "--name=%.60s: a schedule can't be called so; use letters, digits and `_`", name);
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool show(struct pp_dump *dump, struct pp_program *program, const struct arguments *arguments,
                 struct pp_diag *diag, struct pp_status *status)
{
	dump->program = program;
	if (!choose_program(dump, arguments->program, status) || !choose_ranks(dump, arguments->ranks, status))
		return false;
	struct pp_measured_file measured = {0};
	if (!check_name(arguments, status))
		return false;
	if (dump->costless && dump->bytes)
		return pp_fail(status, PP_EXIT_USAGE,
		               "--unit=bytes: %s is an order alone, its values have no bytes; leave it "
		               "out to see stashes",
		               dump->file);
	if (arguments->format == FORMAT_SVG && arguments->view != VIEW_DEFAULT && arguments->view != VIEW_GANTT)
		return pp_fail(status, PP_EXIT_USAGE, "--format=svg draws the Gantt chart; the other views have no picture");
	if (arguments->format == FORMAT_ROWS && (arguments->ranks || dump->named != pp_program_find(program, "train")))
		return pp_fail(status, PP_EXIT_USAGE, "--format=rows writes the order of all ranks of `train`");
	bool other = false;
	if (arguments->diff && arguments->format != FORMAT_TEXT && arguments->format != FORMAT_JSON)
		return pp_fail(status, PP_EXIT_USAGE, "--diff is text or JSON");
	if (arguments->diff && !is_program(dump->arena, arguments->diff, &other, status))
		return false;
	if (other)
		return show_both(dump, program, arguments, diag, status);
	if (arguments->diff && !pp_measured_file_read(dump->arena, arguments->diff, &measured, status))
		return false;
	if (arguments->transport == 0 && pp_progress_find(measured.head.transport))
		dump->transport = pp_progress_find(measured.head.transport)->transport;
	number_chunks(dump);
	dump->unit = pp_time_unit_for(0);
	bool plain =
	    !arguments->diff && (arguments->format == FORMAT_PPS || arguments->view == VIEW_SOURCE); /* need no proof */
	if (!plain && !predict(dump, program, diag)) {
		if (wants_times(arguments))
			return pp_fail(status, PP_EXIT_REJECTED,
			               "%s is not proven, so it has no times; --view=list and --view=tables show it as it is",
			               dump->file);
		fprintf(stderr, "pipedump: %s is not proven: no times are shown; `pipec verify %s` says why\n", dump->file,
		        dump->file);
		diag = NULL;
	}
	if (arguments->diff)
		return pp_emit_diff(dump, &measured, arguments->format == FORMAT_JSON, status);
	return choose_window(dump, arguments, status) && emit(dump, arguments, status);
}

static int run(struct pp_arena *arena, const struct arguments *arguments, const char *path)
{
	struct pp_status status = {0};
	struct pp_loaded loaded;
	char *text = NULL;
	size_t length = 0;
	bool read = pp_shown_load(arena, path, arguments->legacy, &loaded, &status);
	struct pp_dump dump = {
	    .arena = arena,
	    .out = arguments->output ? open_memstream(&text, &length) : stdout,
	    .file = strcmp(path, "-") == 0 ? "standard input" : path,
	    .width = arguments->width ? (uint32_t)arguments->width : terminal_width(),
	    .pixels = (uint32_t)arguments->width,
	    .bytes = arguments->unit == 1,
	    .color = wants_color(arguments),
	    .utf8 = locale_is_utf8(),
	    .transport = arguments->transport ? pp_progress_models[arguments->transport - 1].transport : "none",
	};
	dump.costless = loaded.costless;
	bool ok = read && dump.out && show(&dump, loaded.program, arguments, loaded.diag, &status);
	int code = ok ? PP_EXIT_OK : status.code ? (int)status.code : PP_EXIT_REJECTED;
	if (arguments->output && dump.out)
		fclose(dump.out);
	if (ok && arguments->output && !pp_file_write(arguments->output, text, length, &status))
		code = PP_EXIT_ENVIRONMENT;
	free(text);
	if (!ok && (!read || wants_times(arguments)))
		pp_diag_print(loaded.diag, stderr, PP_DIAG_HUMAN, isatty(STDERR_FILENO) && wants_color(arguments));
	if (status.text[0])
		fprintf(stderr, "pipedump: %s\n", status.text);
	return code;
}

int main(int argc, char **argv)
{
	struct pp_arena *arena = pp_arena_create(out_of_memory);
	struct arguments arguments = {0};
	struct pp_arguments parsed;
	struct pp_status status = {0};
	int code = PP_EXIT_OK;
	bool ok = pp_options_parse(arena, "pipedump", table, TABLE_COUNT, 0, argc, argv, &arguments, &parsed, &status);
	if (ok && parsed.help) {
		fputs(examples, stdout);
		pp_options_help(table, TABLE_COUNT, 0, stdout);
		fputs(after_options, stdout);
	} else if (ok && parsed.version)
		puts("pipedump " PP_VERSION);
	else if (ok && parsed.operands.count == 1)
		code = run(arena, &arguments, parsed.operands.items[0]);
	else {
		if (ok && parsed.operands.count)
			pp_fail(&status, PP_EXIT_USAGE, "one program at a time: got %zu files", parsed.operands.count);
		else if (ok)
			pp_fail(&status, PP_EXIT_USAGE, "which program? pipedump PROGRAM.ppx (`pipedump --help` shows examples)");
		fprintf(stderr, "pipedump: %s\n", status.text);
		code = PP_EXIT_USAGE;
	}
	pp_arena_destroy(arena);
	return pp_finish_output("pipedump", code);
}
