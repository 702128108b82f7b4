/* `schedule NAME from csv "f.csv"`: a schedule file in the place of rows. It says how many ranks, stages and
 * microbatches there are and where stages live; what the spec says of that must agree.
 *
 * requires: a chosen schedule. ensures: resolver->out->imported holds a schedule that passed its checks, or errors were
 * reported: E0658 for a file that cannot be read, E0656 for a spec that contradicts it, those of ir/csv.h. */
#include "resolver.h"

#include "ir/csv_comms.h"
#include "ir/file.h"
#include "ir/rows_print.h"

#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* Beside the file that names it. */
static const char *path_of(struct pp_resolver *resolver, const struct pp_module *module, const char *name)
{
	const char *slash = name[0] == '/' ? NULL : strrchr(module->path, '/');
	if (!slash)
		return name;
	return pp_arena_printf(resolver->arena, "%.*s%s", (int)(slash - module->path) + 1, module->path, name);
}

static const struct pp_source *open_file(struct pp_resolver *resolver, const struct pp_module *module,
                                         const struct pp_name *name)
{
	struct pp_status status;
	char *text;
	size_t length;
	const char *path = path_of(resolver, module, name->text);
	if (!pp_file_read(resolver->arena, path, &text, &length, &status)) {
		struct pp_message *message = pp_error(resolver->diag, "E0658", name->span, "%s", status.text);
		pp_help(message, "a schedule file is looked for beside the file that names it");
		return NULL;
	}
	const struct pp_source *source = pp_sources_add(resolver->sources, path, text, length);
	if (!source)
		pp_error(resolver->diag, "E0658", name->span, "`%s` is too large", path);
	return source;
}

/* Messages are checked all the same: a file that is wrong in them is likely to be another one than was meant. */
static bool check(struct pp_resolver *resolver, const struct pp_stmt *stmt, const struct pp_csv *csv,
                  const struct pp_schedule *schedule)
{
	if (!pp_csv_check(resolver->arena, csv, schedule, resolver->diag))
		return false;
	if (!csv->comms)
		return true;
	if (!pp_csv_check_messages(resolver->arena, csv, resolver->diag))
		return false;
	pp_help(pp_warning(resolver->diag, "W0654", stmt->from_text.span,
	                   "the messages of `%s` are left out: the compiler makes its own", csv->source->name),
	        "export the file without them, or ignore this");
	return true;
}

/* The first stage whose weight gradients are not added in ascending order. */
static const struct pp_action *first_descent(struct pp_arena *arena, const struct pp_schedule *schedule)
{
	uint32_t *next = PP_NEW_ARRAY(arena, uint32_t, schedule->stages);
	for (uint32_t rank = 0; rank < schedule->ranks; rank++)
		for (uint32_t i = 0; i < schedule->rows[rank].count; i++) {
			const struct pp_action *action = &schedule->rows[rank].actions[i];
			if ((action->kind == PP_B || action->kind == PP_W) && action->mb != next[action->stage]++)
				return action;
		}
	return NULL;
}

static void warn_of_bits(struct pp_resolver *resolver, const struct pp_schedule *schedule)
{
	const struct pp_action *action = first_descent(resolver->arena, schedule);
	if (!action)
		return;
	struct pp_message *message = pp_warning(resolver->diag, "W0659", action->span,
	                                        "weight gradients of stage %u do not ascend: this schedule has bits of its "
	                                        "own",
	                                        action->stage);
	pp_note(message, "sums of floating-point numbers depend on their order; losses agree with those of other schedules "
	                 "only about");
	pp_help(message, "where bits matter, let every stage run its B or W in the order of the microbatches");
}

/* Attributes about rows that are not there. */
static void refuse_unused(struct pp_resolver *resolver, const struct pp_stmt *stmt)
{
	static const uint16_t unused[] = {PP_ATTR_schedule_group, PP_ATTR_schedule_surplus};
	const struct pp_section *section = resolver->sections[PP_SECTION_SCHEDULE];
	for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++) {
		enum pp_attribute attribute = (enum pp_attribute)unused[i];
		if (!pp_field_given(section, attribute))
			continue;
		struct pp_message *message =
		    pp_error(resolver->diag, "E0114", pp_field_of(section, attribute)->name_span,
		             "`%s` has no effect: the rows are those of a file", pp_attribute_table[attribute].name);
		pp_label(message, stmt->from_text.span, "this one");
		pp_help(message, "remove it");
	}
}

void pp_schedule_refuse_legacy(struct pp_resolver *resolver)
{
	const struct pp_section *section = resolver->sections[PP_SECTION_SCHEDULE];
	if (pp_field_given(section, PP_ATTR_schedule_legacy))
		pp_help(pp_error(resolver->diag, "E0114", pp_field_of(section, PP_ATTR_schedule_legacy)->name_span,
		                 "`legacy` has no effect: it is about the letters of a file"),
		        "remove it, or write `schedule x from csv \"f.csv\"`");
}

static bool is_csv(struct pp_resolver *resolver, const struct pp_stmt *stmt)
{
	if (strcmp(stmt->from.text, "csv") == 0)
		return true;
	pp_help(pp_error(resolver->diag, "E0207", stmt->from.span, "`from %.60s`: schedules come from csv only",
	                 stmt->from.text),
	        "write `from csv \"f.csv\"`");
	return false;
}

void pp_schedule_import(struct pp_resolver *resolver, const struct pp_stmt *stmt, const struct pp_module *module)
{
	struct pp_imported *imported = PP_NEW(resolver->arena, struct pp_imported);
	bool legacy = false;
	resolver->sections[PP_SECTION_TRAIN]->partial = true; /* what is missed there may be in the file */
	refuse_unused(resolver, stmt);
	if (!is_csv(resolver, stmt) ||
	    !pp_field_truth(resolver, resolver->sections[PP_SECTION_SCHEDULE], PP_ATTR_schedule_legacy, &legacy))
		return;
	const struct pp_source *source = open_file(resolver, module, &stmt->from_text);
	imported->csv = source ? pp_csv_read(resolver->arena, source, legacy, resolver->diag) : NULL;
	if (!imported->csv)
		return;
	struct pp_schedule *schedule = pp_csv_schedule(resolver->arena, imported->csv);
	if (!check(resolver, stmt, imported->csv, schedule))
		return;
	warn_of_bits(resolver, schedule);
	resolver->sections[PP_SECTION_TRAIN]->partial = false;
	schedule->name = resolver->out->spec.schedule_name;
	resolver->imported = imported;
	resolver->out->imported = schedule;
	uint32_t *held = PP_NEW_ARRAY(resolver->arena, uint32_t, schedule->ranks);
	for (uint32_t s = 0; s < schedule->stages; s++) {
		uint32_t count = ++held[schedule->stage_rank[s]];
		imported->most = count > imported->most ? count : imported->most;
	}
	const char *place = pp_place_text(resolver->arena, schedule->ranks, schedule->stages, schedule->stage_rank);
	imported->place = place[0] == '[' ? NULL : place;
}

/* ---- what follows from it -------------------------------------------------------------------- */

static struct pp_datum place_datum(struct pp_resolver *resolver, const struct pp_schedule *schedule)
{
	struct pp_datum *items = PP_NEW_ARRAY(resolver->arena, struct pp_datum, schedule->stages);
	for (uint32_t s = 0; s < schedule->stages; s++)
		items[s] = pp_datum_whole(schedule->stage_rank[s]);
	return (struct pp_datum){.kind = PP_DATUM_LIST, .items = items, .count = schedule->stages};
}

bool pp_imported_value(struct pp_resolver *resolver, enum pp_attribute attribute, struct pp_datum *out)
{
	const struct pp_imported *imported = resolver->imported;
	if (!imported)
		return false;
	const struct pp_schedule *schedule = resolver->out->imported;
	if (attribute == PP_ATTR_parallel_pp)
		*out = pp_datum_whole(schedule->ranks);
	else if (attribute == PP_ATTR_parallel_vpp)
		*out = pp_datum_whole(imported->most);
	else if (attribute == PP_ATTR_train_microbatches)
		*out = pp_datum_whole(schedule->microbatches);
	else if (attribute == PP_ATTR_stages_place)
		*out = imported->place ? pp_datum_name(pp_intern_z(resolver->strings, imported->place))
		                       : place_datum(resolver, schedule);
	else
		return false;
	return true;
}

void pp_imported_place(struct pp_resolver *resolver, struct pp_stages_spec *stages)
{
	const struct pp_schedule *schedule = resolver->out->imported;
	const struct pp_imported *imported = resolver->imported;
	static const char *const names[] = {[PP_PLACE_LOOP] = "loop", [PP_PLACE_V] = "v", [PP_PLACE_LINEAR] = "linear"};
	stages->stage_count = schedule->stages;
	stages->place = PP_PLACE_LIST;
	for (uint8_t i = PP_PLACE_LOOP; imported->place && i <= PP_PLACE_LINEAR; i++)
		if (strcmp(imported->place, names[i]) == 0)
			stages->place = i;
	if (stages->place == PP_PLACE_LIST)
		stages->place_list = schedule->stage_rank;
	resolver->out->spec.parallel.vpp = imported->most;
}

/* ---- contradictions -------------------------------------------------------------------------- */

static const struct pp_csv_cell *last_cell_of_row(const struct pp_csv *csv, uint32_t rank)
{
	return &csv->rows[rank].cells[csv->rows[rank].count - 1];
}

static const struct pp_csv_cell *find_cell(const struct pp_csv *csv, uint32_t stage, uint32_t mb)
{
	const struct pp_csv_row *row = &csv->rows[csv->stage_rank[stage]];
	for (uint32_t i = 0; i < row->count; i++)
		if (row->cells[i].stage == stage && row->cells[i].mb == mb)
			return &row->cells[i];
	return row->cells;
}

static struct pp_message *contradict(struct pp_resolver *resolver, struct pp_span span, const char *attribute,
                                     uint64_t given, uint32_t found, const struct pp_csv_cell *cell, const char *what)
{
	const struct pp_csv *csv = resolver->imported->csv;
	struct pp_message *message = pp_error(resolver->diag, "E0656", span, "`%s = %llu`, but `%s` has %u %s", attribute,
	                                      (unsigned long long)given, csv->source->name, found, what);
	pp_label(message, cell->span, "%s has %u %s", csv->source->name, found, what);
	pp_help(message, "leave `%s` out, or write `%s = %u`", attribute, attribute, found);
	return message;
}

static void check_ranks(struct pp_resolver *resolver)
{
	struct pp_section *parallel = resolver->sections[PP_SECTION_PARALLEL];
	const struct pp_schedule *schedule = resolver->out->imported;
	const struct pp_csv *csv = resolver->imported->csv;
	uint64_t pp, vpp;
	if (pp_field_given(parallel, PP_ATTR_parallel_pp) && pp_field_whole(resolver, parallel, PP_ATTR_parallel_pp, &pp) &&
	    pp != schedule->ranks)
		contradict(resolver, pp_field_span(parallel, PP_ATTR_parallel_pp), "pp", pp, schedule->ranks,
		           last_cell_of_row(csv, csv->ranks - 1), "rows, one for each rank");
	else if (pp_field_given(parallel, PP_ATTR_parallel_vpp) &&
	         pp_field_whole(resolver, parallel, PP_ATTR_parallel_vpp, &vpp) &&
	         (vpp != resolver->imported->most || vpp * schedule->ranks != schedule->stages))
		contradict(resolver, pp_field_span(parallel, PP_ATTR_parallel_vpp), "vpp", vpp, resolver->imported->most,
		           find_cell(csv, schedule->stages - 1, 0),
		           vpp == resolver->imported->most ? "stages on some ranks and fewer on others"
		                                           : "stages on a rank at most");
}

static void check_microbatches(struct pp_resolver *resolver)
{
	struct pp_section *train = resolver->sections[PP_SECTION_TRAIN];
	const struct pp_schedule *schedule = resolver->out->imported;
	uint64_t microbatches;
	if (pp_field_given(train, PP_ATTR_train_microbatches) &&
	    pp_field_whole(resolver, train, PP_ATTR_train_microbatches, &microbatches) &&
	    microbatches != schedule->microbatches)
		contradict(resolver, pp_field_span(train, PP_ATTR_train_microbatches), "microbatches", microbatches,
		           schedule->microbatches, find_cell(resolver->imported->csv, 0, schedule->microbatches - 1),
		           "microbatches");
}

/* The rank that a given placement has for a stage, or UINT32_MAX. */
static uint32_t given_rank(const struct pp_spec *spec, const struct pp_schedule *schedule, uint32_t stage)
{
	const struct pp_stages_spec *stages = &spec->stages;
	if (stages->place == PP_PLACE_LIST)
		return stage < stages->stage_count ? stages->place_list[stage] : UINT32_MAX;
	return pp_place_rank((enum pp_place)stages->place, stage, schedule->ranks, spec->parallel.vpp);
}

static void check_place(struct pp_resolver *resolver)
{
	const struct pp_spec *spec = &resolver->out->spec;
	const struct pp_schedule *schedule = resolver->out->imported;
	const struct pp_section *section = resolver->sections[PP_SECTION_STAGES];
	struct pp_span span = pp_field_span(section, PP_ATTR_stages_place);
	const char *name = resolver->imported->csv->source->name;
	if (!pp_field_given(section, PP_ATTR_stages_place) || spec->stages.stage_count == 0 || spec->parallel.pp == 0)
		return;
	struct pp_message *message = NULL;
	if (spec->stages.stage_count != schedule->stages) {
		message = pp_error(resolver->diag, "E0656", span, "`place` is for %u stages, but `%s` has %u",
		                   spec->stages.stage_count, name, schedule->stages);
		pp_label(message, find_cell(resolver->imported->csv, schedule->stages - 1, 0)->span, "stage %u",
		         schedule->stages - 1);
	}
	for (uint32_t stage = 0; !message && stage < schedule->stages; stage++) {
		uint32_t rank = given_rank(spec, schedule, stage);
		if (rank == schedule->stage_rank[stage])
			continue;
		message =
		    pp_error(resolver->diag, "E0656", span, "`place` puts stage %u on rank %u, but `%s` has it on rank %u",
		             stage, rank, name, schedule->stage_rank[stage]);
		pp_label(message, find_cell(resolver->imported->csv, stage, 0)->span, "row %u is rank %u",
		         schedule->stage_rank[stage] + 1, schedule->stage_rank[stage]);
	}
	if (message)
		pp_help(message, "leave `place` out, or write `place = %s`",
		        pp_place_text(resolver->arena, schedule->ranks, schedule->stages, schedule->stage_rank));
}

void pp_imported_check(struct pp_resolver *resolver)
{
	if (!resolver->imported)
		return;
	size_t before = pp_diag_errors(resolver->diag);
	check_ranks(resolver);
	check_microbatches(resolver);
	if (pp_diag_errors(resolver->diag) == before)
		check_place(resolver);
}
