/* What the commands of pipec share: settings from its command line, and the job of one file. */
#ifndef PP_COMMAND_H
#define PP_COMMAND_H

#include "pass.h"

#include "ir/options.h"
#include "ir/program_file.h"
#include "ir/status.h"

enum pp_color { PP_COLOR_AUTO, PP_COLOR_ALWAYS, PP_COLOR_NEVER };

#define PP_EMIT_LEVELS "ast|spec|stages|schedule|program"

struct pp_command_settings {
	const char *output, *schedule, *dump_after, *profile, *svg, *name;
	unsigned emit; /* 1 + position in PP_EMIT_LEVELS, 0: write an image */
	struct pp_option_list defines, sets, folders, vary;
	bool quiet, verbose, warnings_are_errors, legacy;
	unsigned diagnostics; /* enum pp_diag_format */
	unsigned format;      /* of predict: 0 text, 1 JSON; of plan: enum pp_plan_format */
	unsigned transport;   /* 1 + position in pp_progress_models, 0: by the profile */
	unsigned color;
	unsigned lowering; /* enum pp_lowered less PP_LOWERED_END */
	unsigned queues;   /* 1 + enum pp_layout, 0: all */
};

/* One file's compilation: its own arena, sources and messages. */
struct pp_job {
	struct pp_unit unit;
	const struct pp_command_settings *settings;
};

/* ---- command_job.c --------------------------------------------------------------------------- */

/* Ends the process. */
void pp_command_no_memory(size_t wanted);
bool pp_command_color(const struct pp_command_settings *settings);
/* Prints the reason; its exit code. */
int pp_command_fail(const struct pp_status *status);

void pp_job_open(struct pp_job *job, const struct pp_command_settings *settings);
/* False if it is a schedule of PyTorch: with what to do with it. */
bool pp_job_expect_spec(const char *path, const char *text, size_t length, struct pp_status *status);
/* The file as the job's source: a spec or a program text. */
bool pp_job_load(struct pp_job *job, const char *path, enum pp_content *content, struct pp_status *status);
/* Measured costs for the spec that has been loaded. False: messages are in the unit, or *status says why. */
bool pp_job_load_profile(struct pp_job *job, enum pp_content content, struct pp_status *status);
void pp_job_print(const struct pp_job *job);
/* The exit code of a job whose messages are printed. */
int pp_job_end(struct pp_job *job, bool ok);
/* Print the messages; the exit code of a job that got this far. */
int pp_job_close(struct pp_job *job, bool ok);
/* End a job that the environment stopped. */
int pp_job_fail(struct pp_job *job, const struct pp_status *status);

/* ---- the commands: exit codes ---------------------------------------------------------------- */

/* command_build.c: `build`, or `check` without an image. */
int pp_build_file(const struct pp_command_settings *settings, const char *path, bool writes);
/* Is it a pass that --dump-after can name? Else says which there are. */
bool pp_known_pass(const char *name);

/* command_verify.c: `verify FILE`, `import csv FILE`. */
int pp_verify_file(const struct pp_command_settings *settings, const char *path, bool import);
int pp_import_file(const struct pp_command_settings *settings, const struct pp_option_list *operands);

#endif
