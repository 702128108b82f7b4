/* `pipec verify`: programs and schedule files, proven again. `pipec import`: a schedule file as the schedule of a spec.
 */
#include "command.h"
#include "exchange.h"
#include "summary.h"

#include "ir/file.h"
#include "ir/grid.h"
#include "ir/verify.h"

#include <inttypes.h>
#include <string.h>

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

static int verify_program(const char *path, const char *text, size_t length, struct pp_job *job)
{
	struct pp_status status;
	struct pp_loaded loaded;
	bool read = pp_program_load_text(job->unit.arena, path, text, length, &loaded, &status);
	if (!read && status.text[0])
		return pp_job_fail(job, &status);
	job->unit.diag = loaded.diag;
	struct pp_stamp stamp = {0};
	bool ok = read && pp_verify(loaded.program, &stamp, loaded.diag);
	if (ok)
		print_verified(path, loaded.program, &stamp);
	return pp_job_close(job, ok);
}

/* By content; by name where the content is too damaged to say. */
static bool is_csv(const char *path, const char *text, size_t length)
{
	size_t name = strlen(path);
	bool named = name >= 4 && strcmp(path + name - 4, ".csv") == 0;
	return pp_content_of(text, length) == PP_CONTENT_OTHER && (named || pp_csv_looks_like(text, length));
}

/* `pipec verify f.csv` and `pipec import csv f.csv`. */
static int exchange(const struct pp_command_settings *settings, const char *path, const char *text, size_t length,
                    bool import, struct pp_job *job)
{
	struct pp_status status;
	struct pp_unit *unit = &job->unit;
	const struct pp_source *source =
	    pp_sources_add(unit->sources, strcmp(path, "-") == 0 ? "<stdin>" : path, text, length);
	if (!source) {
		pp_fail(&status, PP_EXIT_ENVIRONMENT, "%s is too large", path);
		return pp_job_fail(job, &status);
	}
	if (settings->name && !pp_exchange_can_name(unit->arena, settings->name)) {
		pp_fail(&status, PP_EXIT_USAGE, "--name=%.60s: a schedule can't be called so; use letters, digits and `_`, %s",
		        settings->name, "and no word of the language or name of its library");
		return pp_job_fail(job, &status);
	}
	struct pp_exchange_options how = {.legacy = settings->legacy,
	                                  .one_layout = settings->queues > 0,
	                                  .layout = settings->queues ? (enum pp_layout)(settings->queues - 1) : 0,
	                                  .name = settings->name};
	bool ok = import ? pp_exchange_import(unit->arena, source, &how, unit->diag, stdout)
	                 : pp_exchange_verify(unit->arena, source, &how, unit->diag, stdout);
	return pp_job_close(job, ok);
}

int pp_verify_file(const struct pp_command_settings *settings, const char *path, bool import)
{
	struct pp_job job;
	struct pp_status status;
	char *text;
	size_t length;
	pp_job_open(&job, settings);
	if (!pp_file_read(job.unit.arena, path, &text, &length, &status))
		return pp_job_fail(&job, &status);
	if (import || is_csv(path, text, length))
		return exchange(settings, path, text, length, import, &job);
	return verify_program(path, text, length, &job);
}

/* `pipec import csv FILE` */
int pp_import_file(const struct pp_command_settings *settings, const struct pp_option_list *operands)
{
	if (operands->count == 2 && strcmp(operands->items[0], "csv") == 0)
		return pp_verify_file(settings, operands->items[1], true);
	fprintf(stderr, "pipec import: what, and from which file? pipec import csv schedule.csv\n");
	return PP_EXIT_USAGE;
}
