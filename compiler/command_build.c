/* `pipec build` and `pipec check`: a spec through all passes, a program text through those from `plan` on. */
#include "command.h"
#include "summary.h"

#include "codegen/plan_memory.h"
#include "ir/file.h"
#include "ir/image.h"
#include "ir/program_text.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

static void dump(const struct pp_unit *unit, enum pp_pass pass, void *context)
{
	const struct pp_command_settings *settings = context;
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

bool pp_known_pass(const char *name)
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
static bool assemble(struct pp_job *job)
{
	struct pp_unit *unit = &job->unit;
	unit->program = pp_program_read(unit->arena, unit->source, unit->diag);
	if (!unit->program || !pp_plan_memory(unit->program, unit->diag) ||
	    !pp_verify(unit->program, &unit->program->stamp, unit->diag))
		return false;
	const struct pp_named_program *train = pp_program_find(unit->program, "train");
	return !train || pp_simulate(unit->arena, unit->program, train, PP_LAYOUT_CHANNEL, false, &unit->sim);
}

static bool make(struct pp_job *job, enum pp_content content, enum pp_pass last)
{
	if (content == PP_CONTENT_PROGRAM_TEXT)
		return assemble(job);
	return pp_compile(&job->unit, last, dump, (void *)(uintptr_t)job->settings);
}

/* To standard output, or whole to the file of -o. */
static bool print_level(const struct pp_job *job, enum pp_pass pass, struct pp_status *status)
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

static int emit_level(struct pp_job *job, enum pp_content content, enum pp_pass pass)
{
	struct pp_unit *unit = &job->unit;
	if (content == PP_CONTENT_PROGRAM_TEXT && pass != PP_PASS_verify) {
		struct pp_status status;
		pp_fail(&status, PP_EXIT_USAGE, "%s is a program text: it has no level but `program`", unit->source->name);
		return pp_job_fail(job, &status);
	}
	unit->options.placed = true;
	/* what a plan takes may lead to another split or order */
	bool open = pass == PP_PASS_partition || pass == PP_PASS_schedule,
	     ok = make(job, content, open ? PP_PASS_plan : pass);
	struct pp_status status;
	if (ok && !print_level(job, pass, &status)) {
		pp_job_close(job, true);
		return pp_command_fail(&status);
	}
	return pp_job_close(job, ok);
}

static int write_image(struct pp_job *job, const char *output)
{
	struct pp_status status;
	unsigned char *bytes;
	size_t length;
	pp_image_write(job->unit.program, &bytes, &length);
	if (!pp_file_write(output, bytes, length, &status)) {
		pp_job_close(job, true);
		return pp_command_fail(&status);
	}
	return PP_EXIT_OK;
}

/* What a text says about order is the order. */
static bool order_is_free(const struct pp_job *job, enum pp_content content, struct pp_status *status)
{
	if (content != PP_CONTENT_PROGRAM_TEXT || job->settings->lowering == 0)
		return true;
	return pp_fail(status, PP_EXIT_USAGE, "--lowering=%s: %s is a program text, whose order is given",
	               pp_lowered_name[PP_LOWERED_END + job->settings->lowering], job->unit.source->name);
}

int pp_build_file(const struct pp_command_settings *settings, const char *path, bool writes)
{
	static const char *const levels[] = {"ast", "spec", "stages", "schedule", "program"};
	struct pp_job job;
	struct pp_status status;
	enum pp_content content;
	pp_job_open(&job, settings);
	if (!pp_job_load(&job, path, &content, &status) || !order_is_free(&job, content, &status))
		return pp_job_fail(&job, &status);
	if (!pp_job_load_profile(&job, content, &status))
		return status.text[0] ? pp_job_fail(&job, &status) : pp_job_close(&job, false);
	if (writes && settings->emit)
		return emit_level(&job, content, pp_pass_of_level(levels[settings->emit - 1]));
	bool ok = make(&job, content, PP_PASS_asserts);
	const char *output = NULL;
	if (ok && writes) {
		output = settings->output ? settings->output : default_output(job.unit.arena, path);
		int code = write_image(&job, output);
		if (code)
			return code;
	}
	pp_job_print(&job);
	if (ok && !settings->quiet)
		pp_summary_print(&job.unit, output, settings->diagnostics == PP_DIAG_JSON, stderr);
	return pp_job_end(&job, ok);
}
