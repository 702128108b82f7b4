/* From a `policy` block to rows. */
#include "make.h"

#include "report.h"

#include <string.h>

static const struct pp_stmt *find(const struct pp_stmt *schedule, enum pp_stmt_kind kind, const char *name)
{
	for (const struct pp_stmt *at = schedule->body; at; at = at->next)
		if (at->kind == kind && (!name || strcmp(at->name.text, name) == 0))
			return at;
	return NULL;
}

const struct pp_stmt *pp_rules_block(const struct pp_stmt *schedule)
{
	return find(schedule, PP_STMT_BLOCK, "policy");
}

static bool stands_alone(const struct pp_stmt *schedule, const struct pp_stmt *policy, struct pp_diag *diag)
{
	const struct pp_stmt *order = find(schedule, PP_STMT_ORDER, NULL);
	if (!order)
		return true;
	struct pp_message *message =
	    pp_error(diag, "E0632", policy->name.span, "a schedule has either rules (`policy`) or rows (`order`)");
	pp_label(message, order->span, "the rows");
	pp_help(message, "make two schedules of it and choose one with `--schedule` or `run { schedule = … }`");
	return false;
}

static bool can_be_held(const struct pp_rows_input *input, const struct pp_order_problem *problem, struct pp_diag *diag)
{
	if (pp_list_possible(problem))
		return true;
	struct pp_message *message = pp_error(diag, "E0623", input->place,
	                                      "schedule is too large for rules: %u stages x %u microbatches on %u ranks",
	                                      problem->stages, problem->microbatches, problem->ranks);
	pp_help(message, "use fewer microbatches: beyond a few times the number of ranks they gain little");
	return false;
}

static void copy_rows(struct pp_arena *arena, const struct pp_rows_input *input, const struct pp_list *list,
                      struct pp_schedule *out)
{
	const struct pp_row *rows = pp_list_rows(list);
	*out = (struct pp_schedule){
	    .name = input->name, .ranks = input->ranks, .stages = input->stages, .microbatches = input->microbatches};
	out->stage_rank = PP_NEW_ARRAY(arena, uint32_t, input->stages);
	memcpy(out->stage_rank, input->stage_rank, input->stages * sizeof *out->stage_rank);
	out->rows = PP_NEW_ARRAY(arena, struct pp_row, input->ranks);
	for (uint32_t r = 0; r < input->ranks; r++) {
		out->rows[r].count = rows[r].count;
		out->rows[r].actions = PP_NEW_ARRAY(arena, struct pp_action, rows[r].count);
		if (rows[r].count)
			memcpy(out->rows[r].actions, rows[r].actions, rows[r].count * sizeof *rows[r].actions);
	}
}

static bool run(struct pp_arena *scratch, struct pp_arena *arena, const struct pp_rows_input *input,
                const struct pp_order_problem *problem, bool draft, struct pp_diag *diag, struct pp_schedule *out)
{
	const struct pp_stmt *policy = pp_rules_block(input->block);
	struct pp_rule_names names;
	struct pp_rules rules;
	pp_rule_names_create(scratch, input, policy, &names);
	if (!pp_rules_read(scratch, &names, policy, diag, &rules))
		return false;
	struct pp_list *list = pp_list_create(scratch, problem);
	const struct pp_list_chooser chooser = {pp_rules_choose, &rules};
	enum pp_list_outcome outcome = pp_list_run(list, &chooser);
	if (outcome == PP_LIST_STUCK)
		pp_rules_report_stuck(scratch, &rules, input, problem, list, !draft);
	if (outcome != PP_LIST_FINISHED)
		return false;
	copy_rows(arena, input, list, out);
	if (draft)
		return true;
	pp_rules_warn(&rules);
	out->remarks = pp_rules_remarks(arena, &rules, input, list);
	return pp_diag_ok(diag);
}

bool pp_rules_make(struct pp_arena *arena, const struct pp_rows_input *input, const struct pp_order_problem *problem,
                   bool draft, struct pp_diag *diag, struct pp_schedule *out)
{
	if (!stands_alone(input->block, pp_rules_block(input->block), diag) || !can_be_held(input, problem, diag))
		return false;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	bool ok = run(scratch, arena, input, problem, draft, diag, out);
	pp_arena_destroy(scratch);
	return ok;
}
