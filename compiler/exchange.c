/* Schedule files of PyTorch as what people ask of them: a verdict, or the same schedule in the language.
 *
 * Times of a file: F = I = W = 1, B = 2 for every stage, transfers free, a pair as one step of 3; memory: stashes of
 * a rank, each from the start of F to the end of B or W. */
#include "exchange.h"

#include "policy.h"

#include "grammar/ast.h"
#include "ir/csv_comms.h"
#include "ir/order.h"
#include "ir/rows_print.h"

#include <inttypes.h>
#include <string.h>

enum { RANKS_LISTED = 16 };

/* ---- reading --------------------------------------------------------------------------------- */

struct file {
	struct pp_csv *csv;
	struct pp_schedule *schedule;
};

static bool read_file(struct pp_arena *arena, const struct pp_source *source, bool legacy, struct pp_diag *diag,
                      struct file *file)
{
	file->csv = pp_csv_read(arena, source, legacy, diag);
	if (!file->csv)
		return false;
	file->schedule = pp_csv_schedule(arena, file->csv);
	return pp_csv_check(arena, file->csv, file->schedule, diag) &&
	       (!file->csv->comms || pp_csv_check_messages(arena, file->csv, diag));
}

/* ---- verify ---------------------------------------------------------------------------------- */

uint32_t pp_exchange_unordered(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	uint32_t *next = PP_NEW_ARRAY(arena, uint32_t, schedule->stages);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		for (uint32_t i = 0; i < schedule->rows[rank].count; i++) {
			const struct pp_action *action = &schedule->rows[rank].actions[i];
			if ((action->kind == PP_B || action->kind == PP_W) && action->mb != next[action->stage]++)
				return action->stage;
		}
	return UINT32_MAX;
}

static void run_in_units(struct pp_arena *arena, const struct pp_schedule *schedule, struct pp_order_times *times)
{
	struct pp_order_stage *stages = PP_NEW_ARRAY(arena, struct pp_order_stage, schedule->stages);
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, schedule->ranks);
	for (uint32_t s = 0; s < schedule->stages; s++)
		stages[s] = (struct pp_order_stage){.rank = schedule->stage_rank[s],
		                                    .ticks = {[PP_F] = 1, [PP_B] = 2, [PP_I] = 1, [PP_W] = 1}};
	for (uint32_t r = 0; r < schedule->ranks; r++)
		room[r] = PP_ROOM_UNLIMITED;
	struct pp_order_problem problem = {.ranks = schedule->ranks,
	                                   .stages = schedule->stages,
	                                   .microbatches = schedule->microbatches,
	                                   .stage = stages,
	                                   .room = room,
	                                   .pair_permille = 1000};
	pp_order_run(arena, &problem, schedule->rows, false, times);
}

/* Of each rank, or the most of all where these are many. */
static void print_stashes(const struct pp_schedule *schedule, const struct pp_order_times *times, FILE *out)
{
	uint32_t most = 0;
	for (uint32_t r = 0; r < schedule->ranks; r++)
		most = times->rank[r].peak_stashes > most ? times->rank[r].peak_stashes : most;
	if (schedule->ranks > RANKS_LISTED)
		fprintf(out, "at most %u", most);
	for (uint32_t r = 0; r < schedule->ranks && schedule->ranks <= RANKS_LISTED; r++)
		fprintf(out, "%s%u", r ? "/" : "", times->rank[r].peak_stashes);
}

static void print_summary(struct pp_arena *arena, const struct file *file, FILE *out)
{
	const struct pp_schedule *schedule = file->schedule;
	struct pp_order_times times;
	uint64_t actions = 0;
	for (uint32_t r = 0; r < schedule->ranks; r++)
		actions += schedule->rows[r].count;
	run_in_units(arena, schedule, &times);
	fprintf(out, "%s: %u rank%s, %u stage%s, place = %s, m = %u, %" PRIu64 " computes, each once in an order that ends",
	        file->csv->source->name, schedule->ranks, schedule->ranks == 1 ? "" : "s", schedule->stages,
	        schedule->stages == 1 ? "" : "s",
	        pp_place_text(arena, schedule->ranks, schedule->stages, schedule->stage_rank), schedule->microbatches,
	        actions);
	fprintf(out, "; makespan %" PRIu64 " (F = I = W = 1, B = 2), stashes ", times.makespan);
	print_stashes(schedule, &times, out);
	uint32_t unordered = pp_exchange_unordered(arena, schedule);
	if (unordered == UINT32_MAX)
		fputs("; bits: fixed", out);
	else
		fprintf(out, "; bits: order-dependent: weight gradients of stage %u do not ascend", unordered);
	if (!file->csv->comms)
		fprintf(out, "; columns are %s",
		        pp_csv_aligned(arena, file->csv) ? "steps in time" : "an order, not steps in time");
}

/* A mismatch is the same in one layout after the other: its messages are named once. */
static enum pp_csv_verdict judge(struct pp_arena *arena, const struct pp_csv *csv, enum pp_layout layout,
                                 bool *mismatch_named, struct pp_diag *diag)
{
	struct pp_sources *none = pp_sources_create(arena);
	enum pp_csv_verdict verdict = pp_csv_run(arena, csv, layout, pp_diag_create(arena, none));
	bool again = verdict == PP_CSV_DEADLOCK || (verdict == PP_CSV_MISMATCH && !*mismatch_named);
	if (again)
		pp_csv_run(arena, csv, layout, diag);
	*mismatch_named |= verdict == PP_CSV_MISMATCH;
	return verdict;
}

static bool print_verdicts(struct pp_arena *arena, const struct pp_csv *csv, const struct pp_exchange_options *options,
                           struct pp_diag *diag, FILE *out)
{
	bool good = true, mismatch_named = false;
	const char *before = "; queues: ";
	for (int layout = PP_LAYOUT_CHANNEL; layout < PP_LAYOUT_BLOCKING; layout++) {
		if (options->one_layout && layout != (int)options->layout)
			continue;
		enum pp_csv_verdict verdict = judge(arena, csv, (enum pp_layout)layout, &mismatch_named, diag);
		fprintf(out, "%s%s %s", before, pp_layout_name[layout], pp_csv_verdict_name[verdict]);
		good &= verdict == PP_CSV_OK;
		before = ", ";
	}
	return good;
}

bool pp_exchange_verify(struct pp_arena *arena, const struct pp_source *source,
                        const struct pp_exchange_options *options, struct pp_diag *diag, FILE *out)
{
	struct file file;
	if (!read_file(arena, source, options->legacy, diag, &file))
		return false;
	print_summary(arena, &file, out);
	bool good = !file.csv->comms || print_verdicts(arena, file.csv, options, diag, out);
	fputc('\n', out);
	return good;
}

/* ---- import ---------------------------------------------------------------------------------- */

/* The parser knows: it must find this one block, with this label. */
bool pp_exchange_can_name(struct pp_arena *arena, const char *name)
{
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_sources *sources = pp_sources_create(scratch);
	struct pp_diag *diag = pp_diag_create(scratch, sources);
	const char *text = pp_arena_printf(scratch, "schedule %s { order { F B } }\n", name);
	const struct pp_source *source = pp_sources_add(sources, "name", text, strlen(text));
	const struct pp_ast *ast = pp_parse(scratch, pp_strtab_create(scratch), source, diag);
	const struct pp_stmt *block = ast->first;
	bool known = pp_diag_ok(diag) && block && !block->next && !block->extends && block->label.text &&
	             strcmp(block->label.text, name) == 0;
	pp_arena_destroy(scratch);
	return known && !pp_policy_find(name);
}

/* A name of the file's that can't be used is made one that can, and said. */
static const char *choose_name(struct pp_arena *arena, const char *given, const char *of_file, FILE *out)
{
	if (given)
		return given;
	if (pp_exchange_can_name(arena, of_file))
		return of_file;
	const char *name = pp_arena_printf(arena, "%s_imported", of_file);
	fprintf(out, "# `%s` means something else in the language: called %s here\n", of_file, name);
	return name;
}

bool pp_exchange_import(struct pp_arena *arena, const struct pp_source *source,
                        const struct pp_exchange_options *options, struct pp_diag *diag, FILE *out)
{
	struct file file;
	if (!read_file(arena, source, options->legacy, diag, &file))
		return false;
	const struct pp_schedule *schedule = file.schedule;
	uint32_t unordered = pp_exchange_unordered(arena, schedule), ranks = schedule->ranks, stages = schedule->stages;
	fprintf(out, "# from %s; for a spec with train { microbatches = %u } and without blocks parallel and stages\n",
	        source->name, schedule->microbatches);
	if (file.csv->comms)
		fputs("# its messages are left out: the compiler makes its own\n", out);
	if (unordered != UINT32_MAX)
		fprintf(out, "# weight gradients of stage %u do not ascend: bits differ from those of other schedules\n",
		        unordered);
	const char *name = choose_name(arena, options->name, schedule->name, out);
	fprintf(out, "parallel { pp = %u", ranks);
	if (stages % ranks == 0 && stages > ranks)
		fprintf(out, "  vpp = %u", stages / ranks);
	fprintf(out, " }\nstages { place = %s }\nschedule %s {\n",
	        pp_place_text(arena, ranks, stages, schedule->stage_rank), name);
	pp_rows_print(arena, schedule, out);
	fputs("}\n", out);
	return true;
}
