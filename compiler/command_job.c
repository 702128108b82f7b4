/* The job of one file: what a command of pipec opens, loads, reports and ends. */
#include "command.h"

#include "library.h"
#include "measured.h"

#include "ir/csv.h"
#include "ir/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void pp_command_no_memory(size_t wanted)
{
	fprintf(stderr, "pipec: out of memory (%zu more bytes wanted)\n", wanted);
	_exit(PP_EXIT_ENVIRONMENT);
}

bool pp_command_color(const struct pp_command_settings *settings)
{
	const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
	if (settings->color != PP_COLOR_AUTO)
		return settings->color == PP_COLOR_ALWAYS;
	return isatty(STDERR_FILENO) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
}

int pp_command_fail(const struct pp_status *status)
{
	fprintf(stderr, "pipec: %s\n", status->text);
	return (int)status->code;
}

void pp_job_open(struct pp_job *job, const struct pp_command_settings *settings)
{
	struct pp_arena *arena = pp_arena_create(pp_command_no_memory);
	*job = (struct pp_job){.settings = settings};
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

void pp_job_print(const struct pp_job *job)
{
	const struct pp_command_settings *settings = job->settings;
	pp_diag_print(job->unit.diag, stderr, (enum pp_diag_format)settings->diagnostics, pp_command_color(settings));
}

int pp_job_end(struct pp_job *job, bool ok)
{
	bool clean = ok && pp_diag_ok(job->unit.diag);
	pp_arena_destroy(job->unit.arena);
	return clean ? PP_EXIT_OK : PP_EXIT_REJECTED;
}

int pp_job_close(struct pp_job *job, bool ok)
{
	pp_job_print(job);
	return pp_job_end(job, ok);
}

int pp_job_fail(struct pp_job *job, const struct pp_status *status)
{
	pp_arena_destroy(job->unit.arena);
	return pp_command_fail(status);
}

/* Texts hold no zero bytes, but for those in UTF-16, which have a message of their own. */
static bool is_binary(const char *text, size_t length)
{
	bool utf16 = length >= 2 && ((unsigned char)text[0] | 1) == 0xff && ((unsigned char)text[1] | 1) == 0xff;
	return !utf16 && memchr(text, 0, length) != NULL;
}

bool pp_job_expect_spec(const char *path, const char *text, size_t length, struct pp_status *status)
{
	return !pp_csv_looks_like(text, length) ||
	       pp_fail(status, PP_EXIT_USAGE,
	               "%s is a schedule of PyTorch, not a spec; `pipec import csv %s` prints it as the schedule of one, "
	               "`pipec verify` checks it",
	               path, path);
}

bool pp_job_load(struct pp_job *job, const char *path, enum pp_content *content, struct pp_status *status)
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
	if (!pp_job_expect_spec(path, text, length, status))
		return false;
	unit->source = pp_sources_add(unit->sources, strcmp(path, "-") == 0 ? "<stdin>" : path, text, length);
	return unit->source || pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large", path);
}

bool pp_job_load_profile(struct pp_job *job, enum pp_content content, struct pp_status *status)
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
