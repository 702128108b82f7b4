/* The compute of a schedule file as a schedule, and the checks that only such files need.
 * requires: a file that was read. ensures: csv.h, schedule_read.h. O(cells). */
#include "ir/csv.h"
#include "ir/schedule_read.h"

#include <ctype.h>
#include <string.h>

static const char *name_from(struct pp_arena *arena, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t length = strcspn(base, ".");
	char *name = pp_arena_printf(arena, "%s%.*s", isdigit((unsigned char)*base) ? "s" : "", (int)length, base);
	for (char *at = name; *at; at++)
		if (!isalnum((unsigned char)*at))
			*at = '_';
	return length && isalpha((unsigned char)*name) ? name : "imported";
}

struct pp_schedule *pp_csv_schedule(struct pp_arena *arena, const struct pp_csv *csv)
{
	struct pp_schedule *schedule = PP_NEW(arena, struct pp_schedule);
	*schedule = (struct pp_schedule){.name = name_from(arena, csv->source->name),
	                                 .ranks = csv->ranks,
	                                 .stages = csv->stages,
	                                 .microbatches = csv->microbatches,
	                                 .by_stage = true,
	                                 .stage_rank = csv->stage_rank,
	                                 .rows = PP_NEW_ARRAY(arena, struct pp_row, csv->ranks)};
	for (uint32_t rank = 0; rank < csv->ranks; rank++) {
		const struct pp_csv_row *cells = &csv->rows[rank];
		struct pp_row *row = &schedule->rows[rank];
		row->actions = PP_NEW_ARRAY(arena, struct pp_action, cells->count);
		for (uint32_t i = 0; i < cells->count; i++) {
			const struct pp_csv_cell *cell = &cells->cells[i];
			if (cell->kind < PP_ACTION_KINDS)
				row->actions[row->count++] = (struct pp_action){.stage = cell->stage,
				                                                .mb = cell->mb,
				                                                .kind = cell->kind,
				                                                .paired = cell->paired,
				                                                .span = cell->span};
		}
	}
	return schedule;
}

struct pp_schedule *pp_schedule_read(struct pp_arena *arena, const struct pp_source *source, struct pp_diag *diag)
{
	struct pp_csv *csv = pp_csv_read(arena, source, false, diag);
	if (!csv)
		return NULL;
	struct pp_schedule *schedule = pp_csv_schedule(arena, csv);
	return schedule;
}

/* ---- slips of these files -------------------------------------------------------------------- */

/* What a rank does of each kind. */
struct tally {
	uint32_t count[PP_ACTION_KINDS];
	uint32_t least[PP_ACTION_KINDS], most[PP_ACTION_KINDS]; /* microbatches */
	const struct pp_action *first[PP_ACTION_KINDS];
};

static struct tally tally_row(const struct pp_row *row)
{
	struct tally tally = {.count = {0}};
	for (uint32_t i = 0; i < row->count; i++) {
		const struct pp_action *action = &row->actions[i];
		uint32_t kind = action->kind;
		if (tally.count[kind]++ == 0) {
			tally.first[kind] = action;
			tally.least[kind] = tally.most[kind] = action->mb;
		}
		tally.least[kind] = action->mb < tally.least[kind] ? action->mb : tally.least[kind];
		tally.most[kind] = action->mb > tally.most[kind] ? action->mb : tally.most[kind];
	}
	return tally;
}

/* Whole backwards beside as many weight gradients and no input gradient: the B of old files. */
static bool has_old_letters(const struct tally *tally)
{
	return tally->count[PP_I] == 0 && tally->count[PP_W] > 0 && tally->count[PP_B] >= tally->count[PP_W];
}

static void report_old_letters(struct pp_diag *diag, uint32_t rank, const struct tally *tally)
{
	const struct pp_action *weight = tally->first[PP_W];
	struct pp_message *message = pp_error(diag, "E0651", weight->span,
	                                      "csv row %u: `%uW%u` has no input gradient `%uI%u`: these look like the old "
	                                      "letters",
	                                      rank + 1, weight->stage, weight->mb, weight->stage, weight->mb);
	pp_label(message, tally->first[PP_B]->span, "a whole backward today, an input gradient then");
	pp_note(message, "until October 2024 PyTorch wrote `B` for the input gradient and `BW` for the whole backward; "
	                 "today these are `I` and `B`");
	pp_help(message,
	        "pass --legacy, or write `legacy = true` in the schedule of a spec, to read the whole file that way");
}

/* Forwards numbered from 1 beside backwards numbered from 0, on one rank alone. */
static bool counts_from_one(const struct tally *tally, const struct pp_row *row)
{
	uint32_t stage = row->count ? row->actions[0].stage : 0;
	for (uint32_t i = 0; i < row->count; i++)
		if (row->actions[i].stage != stage)
			return false;
	uint64_t forwards = tally->count[PP_F];
	return forwards > 0 && tally->count[PP_B] == forwards && tally->least[PP_F] == 1 && tally->most[PP_F] == forwards &&
	       tally->least[PP_B] == 0 && tally->most[PP_B] + 1 == forwards;
}

static void report_counting(struct pp_diag *diag, uint32_t rank, const struct tally *tally)
{
	const struct pp_action *forward = tally->first[PP_F];
	uint32_t stage = forward->stage, most = tally->most[PP_F];
	struct pp_message *message = pp_error(
	    diag, "E0652", forward->span, "csv row %u: the forwards of stage %u are numbered 1..%u, its backwards 0..%u",
	    rank + 1, stage, most, most - 1);
	pp_label(message, tally->first[PP_B]->span, "the backward of a microbatch without a forward");
	pp_note(message, "PyTorch's Schedule1F1B numbers the forwards of its last rank one too high in the order that it "
	                 "shows; its own validator refuses that too");
	pp_help(message, "number them 0..%u: `%uF1` becomes `%uF0`, and so on in this row", most - 1, stage, stage);
}

bool pp_csv_check(struct pp_arena *arena, const struct pp_csv *csv, const struct pp_schedule *schedule,
                  struct pp_diag *diag)
{
	for (uint32_t rank = 0; rank < schedule->ranks; rank++) {
		struct tally tally = tally_row(&schedule->rows[rank]);
		if (!csv->legacy && has_old_letters(&tally)) {
			report_old_letters(diag, rank, &tally);
			return false;
		}
		if (counts_from_one(&tally, &schedule->rows[rank])) {
			report_counting(diag, rank, &tally);
			return false;
		}
	}
	return pp_schedule_check(arena, schedule, diag);
}

/* ---- columns --------------------------------------------------------------------------------- */

bool pp_csv_aligned(struct pp_arena *arena, const struct pp_csv *csv)
{
	if (csv->comms)
		return false;
	size_t cells = (size_t)csv->stages * csv->microbatches;
	uint32_t *made[2]; /* column of the gradient, of the activation */
	for (int forward = 0; forward < 2; forward++)
		made[forward] = PP_NEW_ARRAY(arena, uint32_t, cells);
	for (uint32_t rank = 0; rank < csv->ranks; rank++)
		for (uint32_t i = 0; i < csv->rows[rank].count; i++) {
			const struct pp_csv_cell *cell = &csv->rows[rank].cells[i];
			if (cell->kind != PP_W)
				made[cell->kind == PP_F][(size_t)cell->stage * csv->microbatches + cell->mb] = cell->column;
		}
	for (uint32_t stage = 0; stage + 1 < csv->stages; stage++)
		for (uint32_t mb = 0; mb < csv->microbatches; mb++) {
			size_t here = (size_t)stage * csv->microbatches + mb, next = here + csv->microbatches;
			bool apart = csv->stage_rank[stage] != csv->stage_rank[stage + 1];
			if (apart && (made[1][here] >= made[1][next] || made[0][next] >= made[0][here]))
				return false;
		}
	return true;
}
