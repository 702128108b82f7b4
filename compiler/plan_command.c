/* `pipec plan`: files in, table and picture out. */
#include "command.h"
#include "plan.h"

#include "ir/file.h"
#include "ir/program_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct pp_status *status)
{
	fprintf(stderr, "pipec plan: %s\n", status->text);
	return (int)status->code;
}

/* What is fixed can't vary. */
static bool check_fixed(const struct pp_resolve_options *options, const struct pp_plan_vary *vary,
                        struct pp_status *status)
{
	for (size_t a = 0; a < vary->count; a++) {
		const struct pp_plan_axis *axis = &vary->axes[a];
		if (!axis->attribute && options->schedule)
			return pp_fail(status, PP_EXIT_USAGE,
			               "--schedule=%.60s fixes what --vary schedule varies; give one of them", options->schedule);
		size_t length = axis->attribute ? strlen(axis->attribute) : 0;
		for (size_t i = 0; axis->attribute && i < options->set_count; i++)
			if (strncmp(options->sets[i], axis->attribute, length) == 0 && options->sets[i][length] == '=')
				return pp_fail(status, PP_EXIT_USAGE, "--set %.80s fixes what --vary %s varies; give one of them",
				               options->sets[i], axis->name);
	}
	return true;
}

/* Without --vary it is schedule and vpp, as far as they are not fixed. */
static bool choose_axes(struct pp_arena *arena, const struct pp_plan_command *command, struct pp_plan_vary *vary,
                        struct pp_status *status)
{
	struct pp_option_list texts = command->vary;
	const char *rest = "vpp";
	if (texts.count == 0 && command->input.options.schedule)
		texts = (struct pp_option_list){.items = &rest, .count = 1};
	return pp_plan_vary_read(arena, &texts, vary, status) && check_fixed(&command->input.options, vary, status);
}

static bool read_text(struct pp_arena *arena, const char *path, struct pp_plan_text *text, struct pp_status *status)
{
	char *bytes;
	if (!pp_file_read(arena, path, &bytes, &text->length, status))
		return false;
	text->name = strcmp(path, "-") == 0 ? "<stdin>" : path;
	text->text = bytes;
	return true;
}

static bool read_spec(struct pp_arena *arena, const char *path, struct pp_plan_text *text, struct pp_status *status)
{
	if (!read_text(arena, path, text, status))
		return false;
	switch (pp_content_of(text->text, text->length)) {
	case PP_CONTENT_IMAGE:
	case PP_CONTENT_PROGRAM_TEXT:
		return pp_fail(status, PP_EXIT_USAGE, "%s is a program: its schedule is chosen; plan wants the .pipe spec",
		               text->name);
	case PP_CONTENT_OTHER:
		break;
	}
	if (memchr(text->text, 0, text->length))
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s holds binary data, not a spec", text->name);
	return pp_job_expect_spec(path, text->text, text->length, status);
}

static bool write_svg(struct pp_arena *arena, const struct pp_plan *plan, const char *file, const char *path,
                      struct pp_status *status)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	if (out)
		pp_plan_svg(arena, plan, file, out);
	bool ok = out && fclose(out) == 0 ? pp_file_write(path, text, length, status)
	                                  : pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for %s", path);
	free(text);
	return ok;
}

int pp_plan_command(struct pp_arena *arena, struct pp_plan_command *command, const char *path)
{
	struct pp_status status;
	struct pp_plan_vary vary;
	struct pp_plan_input *input = &command->input;
	if (!choose_axes(arena, command, &vary, &status) || !read_spec(arena, path, &input->spec, &status) ||
	    (command->profile && !read_text(arena, command->profile, &input->profile, &status)) ||
	    (command->svg && !pp_file_can_write(command->svg, &status)))
		return fail(&status);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	bool ready = pp_plan_prepare(arena, input, &vary, diag, sources);
	pp_diag_print(diag, stderr, (enum pp_diag_format)command->diagnostics, command->color);
	if (!ready)
		return PP_EXIT_REJECTED;
	if (pp_plan_vary_count(&vary) > PP_PLAN_MOST) {
		pp_fail(&status, PP_EXIT_USAGE, "%" PRIu64 " combinations to try, and at most %d are tried; vary fewer values",
		        pp_plan_vary_count(&vary), PP_PLAN_MOST);
		return fail(&status);
	}
	struct pp_plan plan;
	pp_plan_make(arena, input, &vary, &plan);
	if (pp_plan_all_alike(&plan)) {
		pp_plan_explain(input, &plan, &plan.rows[0], (enum pp_diag_format)command->diagnostics, command->color, stderr);
		fprintf(stderr, "pipec plan: that stands in the way of all %zu combinations\n", plan.count + plan.left_out);
		return PP_EXIT_REJECTED;
	}
	if (command->svg && !write_svg(arena, &plan, input->spec.name, command->svg, &status))
		return fail(&status);
	pp_plan_print(arena, &plan, input->spec.name, command->format, stdout);
	return plan.ranked ? PP_EXIT_OK : PP_EXIT_INFEASIBLE;
}
