/* pipec: the command line of the compiler. Subcommands, options, exit codes; everything else is in the passes. */
#include "command.h"
#include "plan.h"
#include "predict.h"
#include "search/make.h"
#include "show.h"

#include "ir/file.h"
#include "ir/profile.h"

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

static const struct pp_option options[] = {
    {"output", 'o', PP_OPTION_TEXT, "FILE", offsetof(struct pp_command_settings, output),
     "image to write (default: the spec's name with .ppx, here; - is stdout), or text with --emit", .commands = BUILD},
    {"emit", 0, PP_OPTION_CHOICE, "none|" PP_EMIT_LEVELS, offsetof(struct pp_command_settings, emit),
     "print that level as text instead of writing an image", .commands = BUILD},
    {"schedule", 0, PP_OPTION_TEXT, "NAME", offsetof(struct pp_command_settings, schedule),
     "use this schedule of the file, or a library policy", .commands = SPECS},
    {"profile", 0, PP_OPTION_TEXT, "FILE", offsetof(struct pp_command_settings, profile),
     "costs measured by `piperun --profile` in place of the model's", .commands = BUILD | CHECK | PREDICT | PLAN},
    {"lowering", 0, PP_OPTION_CHOICE, "end|lazy|start|free", offsetof(struct pp_command_settings, lowering),
     "order of posts and computes: end (default); lazy: posts earlier; start: for transports that block; free: no "
     "common order, for one queue per channel",
     .commands = BUILD | CHECK | PREDICT | PLAN},
    {"transport", 0, PP_OPTION_CHOICE, "auto|" PP_PROGRESS_NAMES, offsetof(struct pp_command_settings, transport),
     "predict for data that moves as with this transport; none: on its own; auto: that of the profile, else none",
     .commands = PREDICT},
    {"format", 0, PP_OPTION_CHOICE, "text|json", offsetof(struct pp_command_settings, format), "form of the prediction",
     .commands = PREDICT},
    {"vary", 0, PP_OPTION_LIST, "WHAT[=VALUE,...]", offsetof(struct pp_command_settings, vary),
     "what differs between the combinations: schedule, vpp, memory, place, microbatches, microbatch, recompute, tp, "
     "pp, "
     "dp, zero (default: schedule,vpp); memory takes 8GiB, none, and multiples of what 1f1b needs: 0.5x",
     .commands = PLAN},
    {"svg", 0, PP_OPTION_TEXT, "FILE", offsetof(struct pp_command_settings, svg),
     "also write a plot of time against memory", .commands = PLAN},
    {"format", 0, PP_OPTION_CHOICE, "text|json|csv", offsetof(struct pp_command_settings, format), "form of the table",
     .commands = PLAN},
    {"queues", 0, PP_OPTION_CHOICE, "all|channel|edge|direction|pair|rank",
     offsetof(struct pp_command_settings, queues),
     "schedule in CSV with messages: what has a queue of its own where it is to run", .commands = VERIFY},
    {"legacy", 0, PP_OPTION_FLAG, NULL, offsetof(struct pp_command_settings, legacy),
     "schedule in CSV: the letters of old files, B the input gradient and BW the whole backward",
     .commands = VERIFY | IMPORT},
    {"name", 0, PP_OPTION_TEXT, "NAME", offsetof(struct pp_command_settings, name),
     "of the schedule (default: from the file's)", .commands = IMPORT},
    {"define", 'D', PP_OPTION_LIST, "NAME=VALUE", offsetof(struct pp_command_settings, defines),
     "set a parameter of the spec", .commands = SPECS},
    {"set", 0, PP_OPTION_LIST, "BLOCK.ATTR=VALUE", offsetof(struct pp_command_settings, sets),
     "override an attribute for an experiment", .commands = SPECS},
    {"include", 'I', PP_OPTION_LIST, "FOLDER", offsetof(struct pp_command_settings, folders),
     "look here for imported files", .commands = SPECS},
    {"dump-after", 0, PP_OPTION_TEXT, "PASS|all", offsetof(struct pp_command_settings, dump_after),
     "print the state after a pass on stderr (for developers)", .commands = BUILD | CHECK},
    {"werror", 'W', PP_OPTION_FLAG, NULL, offsetof(struct pp_command_settings, warnings_are_errors),
     "warnings are errors", .commands = SPECS},
    {"diagnostics", 0, PP_OPTION_CHOICE, "human|short|json", offsetof(struct pp_command_settings, diagnostics),
     "form of the messages", .commands = ALL},
    {"color", 0, PP_OPTION_CHOICE, "auto|always|never", offsetof(struct pp_command_settings, color),
     "color of the messages", .commands = ALL},
    {"quiet", 'q', PP_OPTION_FLAG, NULL, offsetof(struct pp_command_settings, quiet), "no summary line",
     .commands = ALL},
    {"verbose", 'v', PP_OPTION_FLAG, NULL, offsetof(struct pp_command_settings, verbose), "say what each pass did",
     .commands = ALL},
};

enum { OPTION_COUNT = sizeof options / sizeof *options };

static const struct {
	enum command command;
	const char *text;
} examples[] = {
    {BUILD, "pipec build model.pipe                     compile to model.ppx, proof included"},
    {BUILD, "pipec build model.pipe -D pp=8 -o a.ppx    set a parameter of the spec"},
    {PREDICT, "pipec predict model.pipe                   step time, bubble, memory, traffic: each with its formula"},
    {PREDICT, "pipec predict model.pipe --profile=p.json  the same from costs that piperun --profile measured"},
    {PLAN, "pipec plan model.pipe                      every schedule for this spec, ranked: time, memory, bound"},
    {PLAN, "pipec plan model.pipe --vary schedule=1f1b,interleaved --vary memory=1x,0.5x --svg=front.svg"},
    {SHOW, "pipec show model.pipe cluster              values in use and where each comes from"},
    {BUILD, "pipec build --emit=stages model.pipe       which layers on which rank, and why"},
    {CHECK, "pipec check *.pipe                         every pass and the proof, no output file"},
    {VERIFY, "pipec verify model.ppx streams.pps         prove programs again, however they were made"},
    {VERIFY,
     "pipec verify schedule.csv                  check a schedule of PyTorch, its messages in every queue layout too"},
    {IMPORT, "pipec import csv schedule.csv              print it as the schedule of a spec"},
};

/* ---- predict --------------------------------------------------------------------------------- */

static const struct pp_progress_model *progress_model(const struct pp_command_settings *settings,
                                                      const struct pp_profile *profile)
{
	const struct pp_progress_model *measured = profile ? pp_progress_find(profile->transport) : NULL;
	if (settings->transport)
		return &pp_progress_models[settings->transport - 1];
	return measured ? measured : &pp_progress_models[0];
}

static int predict_file(const struct pp_command_settings *settings, const char *path)
{
	struct pp_job job;
	struct pp_status status;
	enum pp_content content;
	pp_job_open(&job, settings);
	if (!pp_job_load(&job, path, &content, &status))
		return pp_job_fail(&job, &status);
	if (content == PP_CONTENT_PROGRAM_TEXT) {
		pp_fail(&status, PP_EXIT_USAGE, "%s is a program text: `pipedump` shows what is predicted for it", path);
		return pp_job_fail(&job, &status);
	}
	if (!pp_job_load_profile(&job, content, &status))
		return status.text[0] ? pp_job_fail(&job, &status) : pp_job_close(&job, false);
	struct pp_unit *unit = &job.unit;
	struct pp_sim sim;
	struct pp_sim_options how = {.layout = PP_LAYOUT_CHANNEL, .progress = progress_model(settings, unit->profile)};
	bool ok = pp_compile(unit, PP_PASS_simulate, NULL, NULL) &&
	          pp_simulate_with(unit->arena, unit->program, pp_program_find(unit->program, "train"), &how, &sim);
	pp_job_print(&job);
	if (ok)
		pp_predict_print(unit, &sim, how.progress->transport, settings->format == 1, stdout);
	return pp_job_end(&job, ok);
}

/* ---- show ------------------------------------------------------------------------------------ */

static int show_file(const struct pp_command_settings *settings, const struct pp_option_list *operands)
{
	struct pp_job job;
	struct pp_status status;
	enum pp_content content;
	if (operands->count > 2) {
		fprintf(stderr, "pipec show: one file and at most one name: pipec show model.pipe cluster.gpu\n");
		return PP_EXIT_USAGE;
	}
	pp_job_open(&job, settings);
	struct pp_unit *unit = &job.unit;
	if (!pp_job_load(&job, operands->items[0], &content, &status))
		return pp_job_fail(&job, &status);
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
	return pp_job_close(&job, ok);
}

/* ---- plan ------------------------------------------------------------------------------------ */

static void show_progress(void *context, size_t done, size_t count)
{
	(void)context;
	fprintf(stderr, "\rpipec plan: %zu of %zu%s", done + 1, count, done + 1 == count ? "\r\033[K" : "");
	fflush(stderr);
}

static int plan_file(struct pp_arena *arena, const struct pp_command_settings *settings,
                     const struct pp_option_list *operands)
{
	if (operands->count > 1) {
		fprintf(stderr, "pipec plan: one file at a time\n");
		return PP_EXIT_USAGE;
	}
	struct pp_job job; /* for what all jobs share */
	pp_job_open(&job, settings);
	const char *term = getenv("TERM");
	bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0 && !settings->quiet;
	struct pp_plan_command command = {
	    .input = {.options = job.unit.options,
	              .tool_version = job.unit.tool_version,
	              .lowering = job.unit.lowering,
	              .out_of_memory = pp_command_no_memory,
	              .progress = terminal ? show_progress : NULL},
	    .vary = settings->vary,
	    .profile = settings->profile,
	    .svg = settings->svg,
	    .format = (enum pp_plan_format)settings->format,
	    .diagnostics = settings->diagnostics,
	    .color = pp_command_color(settings),
	};
	int code = pp_plan_command(arena, &command, operands->items[0]);
	pp_arena_destroy(job.unit.arena);
	return code;
}

/* ---- main ------------------------------------------------------------------------------------ */

static void print_help(enum command command, FILE *out)
{
	for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
		if (examples[i].command & command)
			fprintf(out, "%s\n", examples[i].text);
	fputs("\ncommands: build, check, predict, plan, verify, show, import\noptions:\n", out);
	pp_options_help(options, OPTION_COUNT, command, out);
	fputs("\nexit: 0 ok, 1 rejected, 2 usage, 3 environment, 4 plan: nothing can be run\n", out);
}

static int run_command(enum command command, const struct pp_command_settings *settings,
                       const struct pp_option_list *files)
{
	int worst = PP_EXIT_OK;
	for (size_t i = 0; i < files->count; i++) {
		const char *path = files->items[i];
		int code = command == VERIFY    ? pp_verify_file(settings, path, false)
		           : command == PREDICT ? predict_file(settings, path)
		                                : pp_build_file(settings, path, command == BUILD);
		worst = code > worst ? code : worst;
	}
	return worst;
}

static int parse_and_run(struct pp_arena *arena, enum command command, const char *tool, int argc, char **argv)
{
	struct pp_command_settings settings = {0};
	struct pp_arguments arguments = {0};
	struct pp_status status;
	if (!pp_options_parse(arena, tool, options, OPTION_COUNT, command, argc, argv, &settings, &arguments, &status))
		return pp_command_fail(&status);
	if (arguments.help) {
		print_help(command, stdout);
		return PP_EXIT_OK;
	}
	if (arguments.version) {
		puts("pipec " PP_VERSION);
		return PP_EXIT_OK;
	}
	if (settings.dump_after && !pp_known_pass(settings.dump_after))
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
		return pp_import_file(&settings, &arguments.operands);
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
	struct pp_arena *arena = pp_arena_create(pp_command_no_memory);
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
