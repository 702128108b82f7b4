/* A schedule file as a program without bodies, to be looked at: schedule_file.h. */
#include "schedule_file.h"

#include "lower.h"
#include "plan_memory.h"

#include "ir/csv_comms.h"
#include "ir/file.h"
#include "ir/spec.h"

#include <string.h>

static bool is_schedule(const char *path, const char *text, size_t length)
{
	size_t name = strlen(path);
	bool named = name >= 4 && strcmp(path + name - 4, ".csv") == 0;
	return pp_content_of(text, length) == PP_CONTENT_OTHER && (named || pp_csv_looks_like(text, length));
}

bool pp_shown_is(const char *path, const char *text, size_t length)
{
	return pp_content_of(text, length) != PP_CONTENT_OTHER || is_schedule(path, text, length);
}

static uint32_t most_stages(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	uint32_t *held = PP_NEW_ARRAY(arena, uint32_t, schedule->ranks), most = 0;
	for (uint32_t s = 0; s < schedule->stages; s++)
		most = ++held[schedule->stage_rank[s]] > most ? held[schedule->stage_rank[s]] : most;
	return most;
}

static struct pp_program *frame(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	struct pp_program *program = PP_NEW(arena, struct pp_program);
	*program = (struct pp_program){.arena = arena,
	                               .ranks = schedule->ranks,
	                               .tp = 1,
	                               .dp = 1,
	                               .vpp = most_stages(arena, schedule),
	                               .stage_count = schedule->stages,
	                               .microbatches = schedule->microbatches,
	                               .cost = {.pair_permille = 1000},
	                               .schedule_name = schedule->name};
	program->stages = PP_NEW_ARRAY(arena, struct pp_stage, schedule->stages);
	program->rank = PP_NEW_ARRAY(arena, struct pp_rank, schedule->ranks);
	for (uint32_t r = 0; r < schedule->ranks; r++)
		program->rank[r].gpu = r;
	for (uint32_t s = 0; s < schedule->stages; s++)
		program->stages[s] = (struct pp_stage){
		    .rank = schedule->stage_rank[s],
		    .title = "",
		    .body = {PP_NULL, PP_NULL, PP_NULL, PP_NULL, PP_NULL},
		    .ticks = {[PP_PHASE_F] = 1, [PP_PHASE_B] = 2, [PP_PHASE_I] = 1, [PP_PHASE_W] = 1},
		};
	return program;
}

static struct pp_program *program_of(struct pp_arena *arena, const struct pp_source *source, bool legacy,
                                     struct pp_diag *diag)
{
	struct pp_csv *csv = pp_csv_read(arena, source, legacy, diag);
	struct pp_schedule *schedule = csv ? pp_csv_schedule(arena, csv) : NULL;
	if (!csv || !pp_csv_check(arena, csv, schedule, diag) || (csv->comms && !pp_csv_check_messages(arena, csv, diag)))
		return NULL;
	struct pp_program *program = frame(arena, schedule);
	struct pp_spec spec = {.schedule_name = schedule->name, .cluster = {.nodes = 1, .gpus = schedule->ranks}};
	return pp_lower(program, &spec, schedule, diag) && pp_plan_memory(program, diag) ? program : NULL;
}

bool pp_shown_load(struct pp_arena *arena, const char *path, bool legacy, struct pp_loaded *loaded,
                   struct pp_status *status)
{
	struct pp_sources *sources = pp_sources_create(arena);
	char *text;
	size_t length;
	*loaded = (struct pp_loaded){.diag = pp_diag_create(arena, sources)};
	status->text[0] = '\0';
	if (!pp_file_read(arena, path, &text, &length, status))
		return false;
	if (!is_schedule(path, text, length))
		return pp_program_load_text(arena, path, text, length, loaded, status);
	const struct pp_source *source = pp_sources_add(sources, strcmp(path, "-") == 0 ? "<stdin>" : path, text, length);
	if (!source)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "%s is too large for a schedule", path);
	loaded->program = program_of(arena, source, legacy, loaded->diag);
	loaded->costless = true;
	return loaded->program || pp_fail(status, PP_EXIT_REJECTED, "%s", "");
}
