/* pipec: the command line of the compiler. Subcommands, options, exit codes; everything else is in the passes. */
#include "exchange.h"
#include "library.h"
#include "measured.h"
#include "pass.h"
#include "plan.h"
#include "predict.h"
#include "search/make.h"
#include "show.h"
#include "summary.h"

#include "codegen/plan_memory.h"
#include "ir/file.h"
#include "ir/grid.h"
#include "ir/image.h"
#include "ir/options.h"
#include "ir/program_file.h"
#include "ir/program_text.h"
#include "ir/status.h"
#include "ir/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum command {
	BUILD = 1,
	CHECK = 2,
	VERIFY = 4,
	SHOW = 8,
	PREDICT = 16,
	PLAN = 32,
	IMPORT = 64,
	SPECS = BUILD | CHECK | SHOW | PREDICT | PLAN,
	ALL = SPECS | VERIFY | IMPORT
};
enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

#define EMIT_LEVELS "ast|spec|stages|schedule|program"

struct settings {
	const char *output, *schedule, *dump_after, *profile, *svg, *name;
	unsigned emit; /* 1 + position in EMIT_LEVELS, 0: write an image */
	struct pp_option_list defines, sets, folders, vary;
	bool quiet, verbose, warnings_are_errors, legacy;
	unsigned diagnostics; /* enum pp_diag_format */
	unsigned format;      /* of predict: 0 text, 1 JSON; of plan: enum pp_plan_format */
	unsigned transport;   /* 1 + position in pp_progress_models, 0: by the profile */
	unsigned color;
	unsigned lowering; /* enum pp_lowered less PP_LOWERED_END */
	unsigned queues;   /* 1 + enum pp_layout, 0: all */
};

static const struct pp_option options[] = {
    {"output", 'o', PP_OPTION_TEXT, "FILE", offsetof(struct settings, output),
     "image to write (default: the spec's name with .ppx, here; - is stdout), or text with --emit", .commands = BUILD},
    {"emit", 0, PP_OPTION_CHOICE, "none|" EMIT_LEVELS, offsetof(struct settings, emit),
     "print that level as text instead of writing an image", .commands = BUILD},
    {"schedule", 0, PP_OPTION_TEXT, "NAME", offsetof(struct settings, schedule),
     "use this schedule of the file, or a library policy", .commands = SPECS},
    {"profile", 0, PP_OPTION_TEXT, "FILE", offsetof(struct settings, profile),
     "costs measured by `piperun --profile` in place of the model's", .commands = BUILD | CHECK | PREDICT | PLAN},
    {"lowering", 0, PP_OPTION_CHOICE, "end|lazy|start|free", offsetof(struct settings, lowering),
     "order of posts and computes: end (default); lazy: posts earlier; start: for transports that block; free: no "
     "common order, for one queue per channel",
     .commands = BUILD | CHECK | PREDICT | PLAN},
    {"transport", 0, PP_OPTION_CHOICE, "auto|" PP_PROGRESS_NAMES, offsetof(struct settings, transport),
     "predict for data that moves as with this transport; none: on its own; auto: that of the profile, else none",
     .commands = PREDICT},
    {"format", 0, PP_OPTION_CHOICE, "text|json", offsetof(struct settings, format), "form of the prediction",
     .commands = PREDICT},
    {"vary", 0, PP_OPTION_LIST, "WHAT[=VALUE,...]", offsetof(struct settings, vary),
     "what differs between the combinations: schedule, vpp, memory, place, microbatches, microbatch, recompute, tp, "
     "pp, "
     "dp, zero (default: schedule,vpp); memory takes 8GiB, none, and multiples of what 1f1b needs: 0.5x",
     .commands = PLAN},
    {"svg", 0, PP_OPTION_TEXT, "FILE", offsetof(struct settings, svg), "also write a plot of time against memory",
     .commands = PLAN},
    {"format", 0, PP_OPTION_CHOICE, "text|json|csv", offsetof(struct settings, format), "form of the table",
     .commands = PLAN},
    {"queues", 0, PP_OPTION_CHOICE, "all|channel|edge|direction|pair|rank", offsetof(struct settings, queues),
     "schedule in CSV with messages: what has a queue of its own where it is to run", .commands = VERIFY},
    {"legacy", 0, PP_OPTION_FLAG, NULL, offsetof(struct settings, legacy),
     "schedule in CSV: the letters of old files, B the input gradient and BW the whole backward",
     .commands = VERIFY | IMPORT},
    {"name", 0, PP_OPTION_TEXT, "NAME", offsetof(struct settings, name), "of the schedule (default: from the file's)",
     .commands = IMPORT},
    {"define", 'D', PP_OPTION_LIST, "NAME=VALUE", offsetof(struct settings, defines), "set a parameter of the spec",
     .commands = SPECS},
    {"set", 0, PP_OPTION_LIST, "BLOCK.ATTR=VALUE", offsetof(struct settings, sets),
     "override an attribute for an experiment", .commands = SPECS},
    {"include", 'I', PP_OPTION_LIST, "FOLDER", offsetof(struct settings, folders), "look here for imported files",
     .commands = SPECS},
    {"dump-after", 0, PP_OPTION_TEXT, "PASS|all", offsetof(struct settings, dump_after),
     "print the state after a pass on stderr (for developers)", .commands = BUILD | CHECK},
    {"werror", 'W', PP_OPTION_FLAG, NULL, offsetof(struct settings, warnings_are_errors), "warnings are errors",
     .commands = SPECS},
    {"diagnostics", 0, PP_OPTION_CHOICE, "human|short|json", offsetof(struct settings, diagnostics),
     "form of the messages", .commands = ALL},
    {"color", 0, PP_OPTION_CHOICE, "auto|always|never", offsetof(struct settings, color), "color of the messages",
     .commands = ALL},
    {"quiet", 'q', PP_OPTION_FLAG, NULL, offsetof(struct settings, quiet), "no summary line", .commands = ALL},
    {"verbose", 'v', PP_OPTION_FLAG, NULL, offsetof(struct settings, verbose), "say what each pass did",
     .commands = ALL},
};

enum { OPTION_COUNT = sizeof options / sizeof *options };

static const char examples[] =
    "pipec build model.pipe                     compile to model.ppx, proof included\n"
    "pipec build model.pipe -D pp=8 -o a.ppx    set a parameter of the spec\n"
    "pipec predict model.pipe                   step time, bubble, memory, traffic: each with its formula\n"
    "pipec predict model.pipe --profile=p.json  the same from costs that piperun --profile measured\n"
    "pipec plan model.pipe                      every schedule for this spec, ranked: time, memory, bound\n"
    "pipec plan model.pipe --vary schedule=1f1b,interleaved --vary memory=1x,0.5x --svg=front.svg\n"
    "pipec show model.pipe cluster              values in use and where each comes from\n"
    "pipec build --emit=stages model.pipe       which layers on which rank, and why\n"
    "pipec check *.pipe                         every pass and the proof, no output file\n"
    "pipec verify model.ppx streams.pps         prove programs again, however they were made\n"
    "pipec verify schedule.csv                  check a schedule of PyTorch, its messages in every queue layout too\n"
    "pipec import csv schedule.csv              print it as the schedule of a spec\n";

static void out_of_memory(size_t wanted)
{
	fprintf(stderr, "pipec: out of memory (%zu more bytes wanted)\n", wanted);
	_exit(PP_EXIT_ENVIRONMENT);
}

/* One file's compilation: its own arena, sources and messages. */
struct job {
	struct pp_unit unit;
	const struct settings *settings;
};

static bool use_color(const struct settings *settings)
{
	const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
	if (settings->color != COLOR_AUTO)
		return settings->color == COLOR_ALWAYS;
	return isatty(STDERR_FILENO) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
}

static int fail(const struct pp_status *status)
{
	fprintf(stderr, "pipec: %s\n", status->text);
	return (int)status->code;
}

static void job_open(struct job *job, const struct settings *settings)
{
	struct pp_arena *arena = pp_arena_create(out_of_memory);
	*job = (struct job){.settings = settings};
	job->unit.arena = arena;
	job->unit.strings = pp_strtab_create(arena);
	job->unit.sources = pp_sources_create(arena);
	job->unit.diag = pp_diag_create(arena, job->unit.sources);
	job->unit.tool_version = "pipec " PP_VERSION;
	job->unit.lowering = (enum pp_lowered)(PP_LOWERED_END + settings->lowering);
	if (settings->warnings_are_errors)
		pp_diag_warnings_are_errors(job->unit.diag);
	job->unit.options = (struct pp_resolve_options){
	    .defines = settings->defines.items,
	    .define_count = settings->defines.count,
	    .sets = settings->sets.items,
	    .set_count = settings->sets.count,
	    .folders = settings->folders.items,
	    .folder_count = settings->folders.count,
	    .schedule = settings->schedule,
	    .shipped = pp_library,
	    .shipped_count = pp_library_count,
	};
}

static void job_print(const struct job *job)
{
	const struct settings *settings = job->settings;
	pp_diag_print(job->unit.diag, stderr, (enum pp_diag_format)settings->diagnostics, use_color(settings));
}

/* The exit code of a job whose messages are printed. */
static int job_end(struct job *job, bool ok)
{
	bool clean = ok && pp_diag_ok(job->unit.diag);
	pp_arena_destroy(job->unit.arena);
	return clean ? PP_EXIT_OK : PP_EXIT_REJECTED;
}

/* Print the messages; the exit code of a job that got this far. */
static int job_close(struct job *job, bool ok)
{
	job_print(job);
	return job_end(job, ok);
}

/* End a job that the environment stopped. */
static int job_fail(struct job *job, const struct pp_status *status)
{
	pp_arena_destroy(job->unit.arena);
	return fail(status);
}

/* Texts hold no zero bytes, but for those in UTF-16, which have a message of their own. */
static bool is_binary(const char *text, size_t length)
{
	bool utf16 = length >= 2 && ((unsigned char)text[0] | 1) == 0xff && ((unsigned char)text[1] | 1) == 0xff;
	return !utf16 && memchr(text, 0, length) != NULL;
}

static bool load(struct job *job, const char *path, enum pp_content *content, struct pp_status *status)
{
	struct pp_unit *unit = &job->unit;
	char *text;
	size_t length;
	if (!pp_file_read(unit->arena, path, &text, &length, status))
		return false;
	*content = pp_content_of(text, length);
	if (*content == PP_CONTENT_IMAGE)
		return pp_fail(status, PP_EXIT_ENVIRONMENT,
		               "%s is an image already; `pipec verify` proves it again, `pipedump` shows it", path);
	if (is_binary(text, length))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s holds binary data, not a spec or a program text", path);
	unit->source = pp_sources_add(unit->sources, strcmp(path, "-") == 0 ? "<stdin>" : path, text, length);
	return unit->source || pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large", path);
}

/* Measured costs for the spec that has been loaded. False: messages are in the unit, or *status says why. */
static bool load_profile(struct job *job, enum pp_content content, struct pp_status *status)
{
	struct pp_unit *unit = &job->unit;
	const char *path = job->settings->profile;
	char *text;
	size_t length;
	status->text[0] = '\0';
	if (!path)
		return true;
	if (content == PP_CONTENT_PROGRAM_TEXT)
		return pp_fail(status, PP_EXIT_USAGE, "%s is a program text: it has its costs already, --profile is for specs",
		               unit->source->name);
	if (!pp_file_read(unit->arena, path, &text, &length, status))
		return false;
	const struct pp_source *source = pp_sources_add(unit->sources, path, text, length);
	if (!source)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large", path);
	unit->profile = pp_measured_read(unit->arena, source, unit->diag);
	return unit->profile != NULL;
}

/* ---- build, check ---------------------------------------------------------------------------- */

static void dump(const struct pp_unit *unit, enum pp_pass pass, void *context)
{
	const struct settings *settings = context;
	const struct pp_pass_info *info = &pp_passes[pass];
	if (settings->verbose)
		fprintf(stderr, "pipec: %s: %s\n", info->name, info->summary);
	if (settings->verbose && pass == PP_PASS_schedule && unit->schedule.remarks)
		fputs(unit->schedule.remarks, stderr);
	const char *wanted = settings->dump_after;
	if (wanted && (strcmp(wanted, "all") == 0 || strcmp(wanted, info->name) == 0)) {
		fprintf(stderr, "; after %s\n", info->name);
		info->print(unit, stderr);
	}
}

static bool known_pass(const char *name)
{
	if (strcmp(name, "all") == 0)
		return true;
	for (unsigned i = 0; i < PP_PASS_COUNT; i++)
		if (strcmp(pp_passes[i].name, name) == 0)
			return true;
	fprintf(stderr, "pipec: --dump-after=%s: no such pass; passes are", name);
	for (unsigned i = 0; i < PP_PASS_COUNT; i++)
		fprintf(stderr, " %s", pp_passes[i].name);
	fputc('\n', stderr);
	return false;
}

/* "dir/model.pipe" -> "model.ppx" in the current folder. */
static const char *default_output(struct pp_arena *arena, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *dot = strrchr(base, '.');
	size_t length = dot && dot != base ? (size_t)(dot - base) : strlen(base);
	if (strcmp(path, "-") == 0)
		return "out.ppx";
	return pp_arena_printf(arena, "%.*s.ppx", (int)length, base);
}

/* The passes of a program text: what a spec gets from `plan` on. */
static bool assemble(struct job *job)
{
	struct pp_unit *unit = &job->unit;
	unit->program = pp_program_read(unit->arena, unit->source, unit->diag);
	if (!unit->program || !pp_plan_memory(unit->program, unit->diag) ||
	    !pp_verify(unit->program, &unit->program->stamp, unit->diag))
		return false;
	const struct pp_named_program *train = pp_program_find(unit->program, "train");
	return !train || pp_simulate(unit->arena, unit->program, train, PP_LAYOUT_CHANNEL, false, &unit->sim);
}

static bool make(struct job *job, enum pp_content content, enum pp_pass last)
{
	if (content == PP_CONTENT_PROGRAM_TEXT)
		return assemble(job);
	return pp_compile(&job->unit, last, dump, (void *)(uintptr_t)job->settings);
}

/* To standard output, or whole to the file of -o. */
static bool print_level(const struct job *job, enum pp_pass pass, struct pp_status *status)
{
	char *text = NULL;
	size_t length = 0;
	if (!job->settings->output) {
		pp_passes[pass].print(&job->unit, stdout);
		return true;
	}
	FILE *out = open_memstream(&text, &length);
	if (out)
		pp_passes[pass].print(&job->unit, out);
	bool ok = out && fclose(out) == 0;
	ok = ok ? pp_file_write(job->settings->output, text, length, status)
	        : pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for %s", job->settings->output);
	free(text);
	return ok;
}

static int emit_level(struct job *job, enum pp_content content, enum pp_pass pass)
{
	struct pp_unit *unit = &job->unit;
	if (content == PP_CONTENT_PROGRAM_TEXT && pass != PP_PASS_verify) {
		struct pp_status status;
		pp_fail(&status, PP_EXIT_USAGE, "%s is a program text: it has no level but `program`", unit->source->name);
		return job_fail(job, &status);
	}
	unit->options.placed = true;
	bool ok = make(job, content, pass);
	struct pp_status status;
	if (ok && !print_level(job, pass, &status)) {
		job_close(job, true);
		return fail(&status);
	}
	return job_close(job, ok);
}

static int write_image(struct job *job, const char *output)
{
	struct pp_status status;
	unsigned char *bytes;
	size_t length;
	pp_image_write(job->unit.program, &bytes, &length);
	if (!pp_file_write(output, bytes, length, &status)) {
		job_close(job, true);
		return fail(&status);
	}
	return PP_EXIT_OK;
}

/* What a text says about order is the order. */
static bool order_is_free(const struct job *job, enum pp_content content, struct pp_status *status)
{
	if (content != PP_CONTENT_PROGRAM_TEXT || job->settings->lowering == 0)
		return true;
	return pp_fail(status, PP_EXIT_USAGE, "--lowering=%s: %s is a program text, whose order is given",
	               pp_lowered_name[PP_LOWERED_END + job->settings->lowering], job->unit.source->name);
}

static int build_file(const struct settings *settings, const char *path, enum command command)
{
	static const char *const levels[] = {"ast", "spec", "stages", "schedule", "program"};
	struct job job;
	struct pp_status status;
	enum pp_content content;
	job_open(&job, settings);
	if (!load(&job, path, &content, &status) || !order_is_free(&job, content, &status))
		return job_fail(&job, &status);
	if (!load_profile(&job, content, &status))
		return status.text[0] ? job_fail(&job, &status) : job_close(&job, false);
	if (command == BUILD && settings->emit)
		return emit_level(&job, content, pp_pass_of_level(levels[settings->emit - 1]));
	bool ok = make(&job, content, PP_PASS_asserts);
	const char *output = NULL;
	if (ok && command == BUILD) {
		output = settings->output ? settings->output : default_output(job.unit.arena, path);
		int code = write_image(&job, output);
		if (code)
			return code;
	}
	job_print(&job);
	if (ok && !settings->quiet)
		pp_summary_print(&job.unit, output, settings->diagnostics == PP_DIAG_JSON, stderr);
	return job_end(&job, ok);
}

/* ---- predict --------------------------------------------------------------------------------- */

static const struct pp_progress_model *progress_model(const struct settings *settings, const struct pp_profile *profile)
{
	const struct pp_progress_model *measured = profile ? pp_progress_find(profile->transport) : NULL;
	if (settings->transport)
		return &pp_progress_models[settings->transport - 1];
	return measured ? measured : &pp_progress_models[0];
}

static int predict_file(const struct settings *settings, const char *path)
{
	struct job job;
	struct pp_status status;
	enum pp_content content;
	job_open(&job, settings);
	if (!load(&job, path, &content, &status))
		return job_fail(&job, &status);
	if (content == PP_CONTENT_PROGRAM_TEXT) {
		pp_fail(&status, PP_EXIT_USAGE, "%s is a program text: `pipedump` shows what is predicted for it", path);
		return job_fail(&job, &status);
	}
	if (!load_profile(&job, content, &status))
		return status.text[0] ? job_fail(&job, &status) : job_close(&job, false);
	struct pp_unit *unit = &job.unit;
	struct pp_sim sim;
	struct pp_sim_options how = {.layout = PP_LAYOUT_CHANNEL, .progress = progress_model(settings, unit->profile)};
	bool ok = pp_compile(unit, PP_PASS_simulate, NULL, NULL) &&
	          pp_simulate_with(unit->arena, unit->program, pp_program_find(unit->program, "train"), &how, &sim);
	job_print(&job);
	if (ok)
		pp_predict_print(unit, &sim, how.progress->transport, settings->format == 1, stdout);
	return job_end(&job, ok);
}

/* ---- verify ---------------------------------------------------------------------------------- */

static void print_verified(const char *path, const struct pp_program *program, const struct pp_stamp *stamp)
{
	uint64_t instructions = 0;
	for (uint32_t i = 0; i < program->program_count; i++)
		for (uint32_t r = 0; r < program->ranks; r++)
			instructions += program->programs[i].streams[r].count;
	printf("%s: ", path);
	pp_proof_print(stdout, stamp);
	uint64_t world = pp_grid_world(program);
	printf("; %" PRIu64 " instructions on %u %srank%s", instructions, program->ranks,
	       world == program->ranks ? "" : "pipeline ", program->ranks == 1 ? "" : "s");
	if (world != program->ranks)
		printf(" (%" PRIu64 " ranks = tp %u x pp %u x dp %u)", world, program->tp, program->ranks, program->dp);
	fputs("; bits: ", stdout);
	if (stamp->bits_fixed)
		puts("fixed");
	else
		printf("order-dependent: %s\n", stamp->bits_reason);
}

static int verify_program(const char *path, const char *text, size_t length, struct job *job)
{
	struct pp_status status;
	struct pp_loaded loaded;
	bool read = pp_program_load_text(job->unit.arena, path, text, length, &loaded, &status);
	if (!read && status.text[0])
		return job_fail(job, &status);
	job->unit.diag = loaded.diag;
	struct pp_stamp stamp = {0};
	bool ok = read && pp_verify(loaded.program, &stamp, loaded.diag);
	if (ok)
		print_verified(path, loaded.program, &stamp);
	return job_close(job, ok);
}

/* By content; by name where the content is too damaged to say. */
static bool is_csv(const char *path, const char *text, size_t length)
{
	size_t name = strlen(path);
	bool named = name >= 4 && strcmp(path + name - 4, ".csv") == 0;
	return pp_content_of(text, length) == PP_CONTENT_OTHER && (named || pp_csv_looks_like(text, length));
}

/* `pipec verify f.csv` and `pipec import csv f.csv`. */
static int exchange(const struct settings *settings, const char *path, const char *text, size_t length, bool import,
                    struct job *job)
{
	struct pp_status status;
	struct pp_unit *unit = &job->unit;
	const struct pp_source *source =
	    pp_sources_add(unit->sources, strcmp(path, "-") == 0 ? "<stdin>" : path, text, length);
	if (!source) {
		pp_fail(&status, PP_EXIT_ENVIRONMENT, "%s is too large", path);
		return job_fail(job, &status);
	}
	if (settings->name && !pp_exchange_can_name(unit->arena, settings->name)) {
		pp_fail(&status, PP_EXIT_USAGE, "--name=%.60s: a schedule can't be called so; use letters, digits and `_`, %s",
		        settings->name, "and no word of the language or name of its library");
		return job_fail(job, &status);
	}
	struct pp_exchange_options how = {.legacy = settings->legacy,
	                                  .one_layout = settings->queues > 0,
	                                  .layout = settings->queues ? (enum pp_layout)(settings->queues - 1) : 0,
	                                  .name = settings->name};
	bool ok = import ? pp_exchange_import(unit->arena, source, &how, unit->diag, stdout)
	                 : pp_exchange_verify(unit->arena, source, &how, unit->diag, stdout);
	return job_close(job, ok);
}

static int verify_file(const struct settings *settings, const char *path, bool import)
{
	struct job job;
	struct pp_status status;
	char *text;
	size_t length;
	job_open(&job, settings);
	if (!pp_file_read(job.unit.arena, path, &text, &length, &status))
		return job_fail(&job, &status);
	if (import || is_csv(path, text, length))
		return exchange(settings, path, text, length, import, &job);
	return verify_program(path, text, length, &job);
}

/* `pipec import csv FILE` */
static int import_file(const struct settings *settings, const struct pp_option_list *operands)
{
	if (operands->count == 2 && strcmp(operands->items[0], "csv") == 0)
		return verify_file(settings, operands->items[1], true);
	fprintf(stderr, "pipec import: what, and from which file? pipec import csv schedule.csv\n");
	return PP_EXIT_USAGE;
}

/* ---- show ------------------------------------------------------------------------------------ */

static int show_file(const struct settings *settings, const struct pp_option_list *operands)
{
	struct job job;
	struct pp_status status;
	enum pp_content content;
	if (operands->count > 2) {
		fprintf(stderr, "pipec show: one file and at most one name: pipec show model.pipe cluster.gpu\n");
		return PP_EXIT_USAGE;
	}
	job_open(&job, settings);
	struct pp_unit *unit = &job.unit;
	if (!load(&job, operands->items[0], &content, &status))
		return job_fail(&job, &status);
	bool ok = pp_compile(unit, PP_PASS_resolve, NULL, NULL);
	bool search = ok && unit->resolved.policy && strcmp(unit->resolved.policy, "search") == 0;
	ok = ok && (!search || pp_compile(unit, PP_PASS_simulate, NULL, NULL)); /* it chooses the placement */
	const char *what = operands->count > 1 ? operands->items[1] : NULL, *near = NULL;
	if (ok && !pp_settings_print(unit->arena, &unit->resolved, what, stdout, &near)) {
		fprintf(stderr, "pipec show: nothing is called `%s`%s%s%s\n", what, near ? "; did you mean `" : "",
		        near ? near : "", near ? "`?" : "");
		ok = false;
	}
	if (ok && search && !what)
		pp_search_print(unit->arena, &unit->resolved, &unit->schedule, &unit->sim, stdout);
	return job_close(&job, ok);
}

/* ---- plan ------------------------------------------------------------------------------------ */

static void show_progress(void *context, size_t done, size_t count)
{
	(void)context;
	fprintf(stderr, "\rpipec plan: %zu of %zu%s", done + 1, count, done + 1 == count ? "\r\033[K" : "");
	fflush(stderr);
}

static int plan_file(struct pp_arena *arena, const struct settings *settings, const struct pp_option_list *operands)
{
	if (operands->count > 1) {
		fprintf(stderr, "pipec plan: one file at a time\n");
		return PP_EXIT_USAGE;
	}
	struct job job; /* for what all jobs share */
	job_open(&job, settings);
	const char *term = getenv("TERM");
	bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0 && !settings->quiet;
	struct pp_plan_command command = {
	    .input = {.options = job.unit.options,
	              .tool_version = job.unit.tool_version,
	              .lowering = job.unit.lowering,
	              .out_of_memory = out_of_memory,
	              .progress = terminal ? show_progress : NULL},
	    .vary = settings->vary,
	    .profile = settings->profile,
	    .svg = settings->svg,
	    .format = (enum pp_plan_format)settings->format,
	    .diagnostics = settings->diagnostics,
	    .color = use_color(settings),
	};
	int code = pp_plan_command(arena, &command, operands->items[0]);
	pp_arena_destroy(job.unit.arena);
	return code;
}

/* ---- main ------------------------------------------------------------------------------------ */

static void print_help(enum command command, FILE *out)
{
	fputs(examples, out);
	fputs("\ncommands: build, check, predict, plan, verify, show, import\noptions:\n", out);
	pp_options_help(options, OPTION_COUNT, command, out);
	fputs("\nexit: 0 ok, 1 rejected, 2 usage, 3 environment, 4 plan: nothing can be run\n", out);
}

static int run_command(enum command command, const struct settings *settings, const struct pp_option_list *files)
{
	int worst = PP_EXIT_OK;
	for (size_t i = 0; i < files->count; i++) {
		const char *path = files->items[i];
		int code = command == VERIFY    ? verify_file(settings, path, false)
		           : command == PREDICT ? predict_file(settings, path)
		                                : build_file(settings, path, command);
		worst = code > worst ? code : worst;
	}
	return worst;
}

static int parse_and_run(struct pp_arena *arena, enum command command, const char *tool, int argc, char **argv)
{
	struct settings settings = {0};
	struct pp_arguments arguments = {0};
	struct pp_status status;
	if (!pp_options_parse(arena, tool, options, OPTION_COUNT, command, argc, argv, &settings, &arguments, &status))
		return fail(&status);
	if (arguments.help) {
		print_help(command, stdout);
		return PP_EXIT_OK;
	}
	if (arguments.version) {
		puts("pipec " PP_VERSION);
		return PP_EXIT_OK;
	}
	if (settings.dump_after && !known_pass(settings.dump_after))
		return PP_EXIT_USAGE;
	if (arguments.operands.count == 0) {
		fprintf(stderr, "%s: no file given; see %s --help\n", tool, tool);
		return PP_EXIT_USAGE;
	}
	if (command == BUILD && arguments.operands.count > 1) {
		fprintf(stderr, "%s: one file at a time; `pipec check` takes several\n", tool);
		return PP_EXIT_USAGE;
	}
	if (command == PLAN)
		return plan_file(arena, &settings, &arguments.operands);
	if (command == IMPORT)
		return import_file(&settings, &arguments.operands);
	if (command == SHOW)
		return show_file(&settings, &arguments.operands);
	return run_command(command, &settings, &arguments.operands);
}

int main(int argc, char **argv)
{
	static const char commands[] = "build|check|predict|plan|verify|show|import";
	static const enum command bits[] = {BUILD, CHECK, PREDICT, PLAN, VERIFY, SHOW, IMPORT};
	if (argc < 2) {
		print_help(ALL, stderr);
		return PP_EXIT_USAGE;
	}
	struct pp_arena *arena = pp_arena_create(out_of_memory);
	int code, which = pp_choice_find(commands, argv[1]);
	if (which >= 0) {
		code = parse_and_run(arena, bits[which], pp_arena_printf(arena, "pipec %s", argv[1]), argc - 1, argv + 1);
	} else if (argv[1][0] == '-' && argv[1][1] &&
	           (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "-V") == 0 ||
	            strcmp(argv[1], "--version") == 0)) {
		code = parse_and_run(arena, ALL, "pipec", argc, argv);
	} else {
		const char *near = pp_choice_nearest(arena, commands, argv[1]), *dot = strrchr(argv[1], '.');
		if (dot && strcmp(dot, ".pipe") == 0)
			near = pp_arena_printf(arena, "pipec build %s", argv[1]);
		else if (dot && (strcmp(dot, ".ppx") == 0 || strcmp(dot, ".pps") == 0 || strcmp(dot, ".csv") == 0))
			near = pp_arena_printf(arena, "pipec verify %s", argv[1]);
		else if (strcmp(argv[1], "dump") == 0)
			near = "pipedump";
		else if (strcmp(argv[1], "run") == 0)
			near = "piperun";
		fprintf(stderr,
		        "pipec: `%s` is no command; commands are build, check, predict, plan, verify, show, import%s%s%s\n",
		        argv[1], near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
		code = PP_EXIT_USAGE;
	}
	pp_arena_destroy(arena);
	return pp_finish_output("pipec", code);
}
