/* Predicted against measured: the program's simulation beside a trace or a profile of a run of it. */
#include "emit.h"

#include "ir/compare.h"
#include "ir/file.h"

#include <inttypes.h>
#include <string.h>

static bool refuse(const char *path, const struct pp_json_reader *reader, struct pp_status *status)
{
	struct pp_position at = pp_json_position(reader, reader->wrong_at);
	return pp_fail(status, PP_EXIT_REJECTED, "%s:%u:%u: %s", path, at.line, at.column, reader->wrong);
}

/* A profile that can be laid beside this program: of the same stages, that do the same work as often. */
static bool check_profile(const struct pp_dump *dump, const char *path, const struct pp_profile *profile,
                          struct pp_status *status)
{
	const struct pp_program *program = dump->program;
	if (profile->pp != program->ranks || profile->stage_count != program->stage_count)
		return pp_fail(status, PP_EXIT_REJECTED, "%s is of %u stages on %u pipeline ranks, %s has %u on %u", path,
		               profile->stage_count, profile->pp, dump->file, program->stage_count, program->ranks);
	if (profile->tp != program->tp)
		return pp_fail(status, PP_EXIT_REJECTED, "%s is of a run with tp = %u, %s has %u", path, profile->tp,
		               dump->file, program->tp);
	if (profile->microbatches != program->microbatches)
		return pp_fail(status, PP_EXIT_REJECTED, "%s is of a run with %u microbatches, %s has %u", path,
		               profile->microbatches, dump->file, program->microbatches);
	for (uint32_t s = 0; s < program->stage_count; s++) {
		const char *title = program->stages[s].title ? program->stages[s].title : "";
		if (strcmp(profile->stages[s].title, title) != 0)
			return pp_fail(status, PP_EXIT_REJECTED, "%s is of another program: stage %u is `%s` there and `%s` in %s",
			               path, s, profile->stages[s].title, title, dump->file);
		for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++)
			if (profile->stages[s].time[phase].count &&
			    profile->stages[s].flops[phase] != program->stages[s].flops[phase])
				return pp_fail(status, PP_EXIT_REJECTED,
				               "%s is of another program: %s of stage %u does %" PRIu64 " flop there and %" PRIu64
				               " in %s",
				               path, pp_phase_name[phase], s, profile->stages[s].flops[phase],
				               program->stages[s].flops[phase], dump->file);
	}
	return true;
}

static bool read_measured(const struct pp_dump *dump, const struct pp_measured_file *file, struct pp_compare *compare,
                          struct pp_status *status)
{
	struct pp_json_reader reader = pp_json_read_begin(file->text, file->length);
	if (strcmp(file->head.schema, "pipec.trace/1") == 0) {
		compare->measure = pp_measure_begin(dump->arena, dump->program, dump->named, NULL);
		if (!pp_trace_read(dump->arena, dump->program, dump->named, &reader, compare->measure))
			return refuse(file->path, &reader, status);
		compare->profile = pp_measure_end(compare->measure);
		return true;
	}
	compare->profile = pp_profile_read(dump->arena, &reader);
	if (!compare->profile && !*file->head.schema)
		return pp_fail(status, PP_EXIT_REJECTED, "%s is neither a trace nor a profile of piperun", file->path);
	return compare->profile ? check_profile(dump, file->path, compare->profile, status)
	                        : refuse(file->path, &reader, status);
}

bool pp_measured_file_read(struct pp_arena *arena, const char *path, struct pp_measured_file *file,
                           struct pp_status *status)
{
	file->path = path;
	if (!pp_file_read(arena, path, &file->text, &file->length, status))
		return false;
	file->head = pp_json_head(file->text, file->length);
	return true;
}

static void print_text(const struct pp_dump *dump, const struct pp_compare *compare)
{
	FILE *out = dump->out;
	pp_compare_ranks(compare, out);
	fputc('\n', out);
	pp_compare_bodies(compare, out);
	fputc('\n', out);
	pp_compare_channels(compare, out);
	if (!compare->measure)
		return;
	fputc('\n', out);
	pp_compare_classes(compare, out);
}

static void print_json(const struct pp_dump *dump, const struct pp_compare *compare)
{
	struct pp_json json = pp_json_begin(dump->out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "schema", "pipec.diff/1");
	pp_json_string(&json, "program", dump->named->name);
	pp_json_string(&json, "transport", dump->transport);
	pp_compare_json(compare, &json);
	pp_json_close(&json);
	fputc('\n', dump->out);
}

bool pp_emit_diff(const struct pp_dump *dump, const struct pp_measured_file *file, bool json, struct pp_status *status)
{
	if (strcmp(dump->named->name, "train") != 0)
		return pp_fail(status, PP_EXIT_USAGE,
		               "--diff: traces and profiles hold the steps of `train`; of `%s` a run measures whole "
		               "evaluations only, as its log and --metrics say",
		               dump->named->name);
	struct pp_compare compare = {
	    .arena = dump->arena, .program = dump->program, .named = dump->named, .sim = dump->sim};
	if (!read_measured(dump, file, &compare, status))
		return false;
	if (json) {
		print_json(dump, &compare);
		return true;
	}
	pp_emit_header(dump);
	print_text(dump, &compare);
	return true;
}
