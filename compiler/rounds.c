/* rounds.h */
#include "rounds.h"

#include "lean.h"
#include "schedule_make.h"
#include "shortage.h"
#include "split_contest.h"

#include "ir/capped.h"
#include "ir/figures.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum {
	MOST_REPLANS = 3,  /* with what the plan before took */
	MOST_SQUEEZES = 4, /* and then with less and less room */
};

/* What a rank's arena may take; UINT64_MAX: no limit. */
static uint64_t limit_of(const struct pp_unit *unit)
{
	return pp_order_limit(&unit->resolved.spec, unit->resolved.spec.schedule_memory);
}

static bool searches(const struct pp_unit *unit)
{
	return unit->resolved.policy && strcmp(unit->resolved.policy, "search") == 0;
}

bool pp_rounds_split_is_ours(const struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	return !unit->first && !spec->stages.split && spec->stages.balance != PP_BALANCE_EVEN;
}

bool pp_rounds_leave_room(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	uint64_t *headroom = PP_NEW_ARRAY(unit->arena, uint64_t, spec->parallel.pp);
	const struct pp_order_problem *problem = pp_order_of_stages(
	    unit->arena, spec, unit->draft.stage_rank, &unit->stages, unit->order_headroom, spec->schedule_memory);
	for (uint32_t r = 0; r < spec->parallel.pp; r++)
		headroom[r] = unit->headroom ? unit->headroom[r] : 0;
	if (!pp_order_shortage(problem, headroom))
		return true;
	unit->headroom = headroom;
	return false;
}

/* ---- another round --------------------------------------------------------------------------- */

static uint32_t fullest_rank(const struct pp_program *program)
{
	uint32_t fullest = 0;
	for (uint32_t r = 1; r < program->ranks; r++)
		if (program->rank[r].arena_bytes > program->rank[fullest].arena_bytes)
			fullest = r;
	return fullest;
}

static bool is_over(const struct pp_unit *unit)
{
	return unit->program->rank[fullest_rank(unit->program)].arena_bytes > limit_of(unit);
}

/* What the last plan took beside the layers, as the split counted them. */
static void raise_headroom(struct pp_unit *unit)
{
	const struct pp_program *program = unit->program;
	if (!unit->headroom)
		unit->headroom = PP_NEW_ARRAY(unit->arena, uint64_t, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t counted = unit->stages.rank_bytes[r], planned = program->rank[r].arena_bytes;
		if (planned > counted && planned - counted > unit->headroom[r])
			unit->headroom[r] = planned - counted;
	}
}

unsigned pp_rounds_halvings(const struct pp_unit *unit)
{
	return unit->replans > MOST_REPLANS ? unit->replans - MOST_REPLANS : 0;
}

/* Whether what another order takes more could matter. */
static bool is_tight(const struct pp_unit *unit)
{
	return unit->program->rank[fullest_rank(unit->program)].arena_bytes > limit_of(unit) / 2;
}

/* A plan that fits, but that another order of the same memory is faster than, which the unit takes. */
static bool is_beaten(struct pp_unit *unit)
{
	if (unit->contestant || (unit->replans == 0 && !is_tight(unit)))
		return false;
	return searches(unit) ? pp_split_contest_named(unit, true) : pp_split_contest_unbound(unit, true);
}

/* Where the policy makes no order that fits. */
static bool instead_of_order(struct pp_unit *unit)
{
	return pp_split_contest_unbound(unit, false) || pp_split_contest_rooms(unit) ||
	       pp_split_contest_named(unit, false) || pp_lean_take(unit);
}

bool pp_rounds_again(struct pp_unit *unit, enum pp_pass *from)
{
	bool splits = pp_rounds_split_is_ours(unit), aware = pp_schedule_aware(&unit->resolved);
	*from = PP_PASS_partition;
	if ((!splits && !aware) || unit->given)
		return false;
	if (!is_over(unit))
		return is_beaten(unit);
	if (unit->replans >= MOST_REPLANS && aware && !unit->contestant && unit->replans < MOST_REPLANS + MOST_SQUEEZES) {
		unit->replans++;
		*from = PP_PASS_schedule;
		return true;
	}
	if (unit->replans >= MOST_REPLANS)
		return instead_of_order(unit);
	unit->order_headroom = pp_order_headroom(unit->arena, unit->program, &unit->stages, unit->order_headroom);
	if (aware)
		unit->headroom = unit->order_headroom;
	else
		raise_headroom(unit);
	unit->replans++;
	/* another order on the same split is sooner made than another split, and mostly enough */
	if (!splits || (aware && unit->replans < MOST_REPLANS && pp_rounds_leave_room(unit)))
		*from = PP_PASS_schedule;
	return true;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* requires: `least` is over the limit. */
static void report_over(const struct pp_unit *unit, const struct pp_lean *least)
{
	assert(least->needed > limit_of(unit));
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_arena *arena = unit->arena;
	uint64_t limit = limit_of(unit), over = least->needed - limit;
	struct pp_message *m;
	if (searches(unit))
		m = pp_error(unit->diag, "E0640", spec->memory_span,
		             "no order was found that fits the memory: rank %" PRIu32 " needs %s of %s with one microbatch at "
		             "a time",
		             least->rank, pp_show_bytes_beside(arena, least->needed, limit),
		             pp_show_bytes_beside(arena, limit, least->needed));
	else if (pp_shortage_is_bounded(unit))
		m = pp_error(unit->diag, "E0671", spec->memory_span,
		             "rank %" PRIu32 " needs %" PRIu64 " bytes (%s), %" PRIu64 " more than `memory`", least->rank,
		             least->needed, pp_show_bytes(arena, least->needed), over);
	else
		m = pp_error(
		    unit->diag, "E0501", spec->cluster_span, "rank %" PRIu32 " needs %s of %s (%s over)", least->rank,
		    pp_show_bytes_beside(arena, pp_plus(least->needed, spec->cluster.gpu.reserve), spec->cluster.gpu.memory),
		    pp_show_bytes_beside(arena, spec->cluster.gpu.memory, pp_plus(least->needed, spec->cluster.gpu.reserve)),
		    pp_show_bytes(arena, over));
	pp_note(m, "weights, gradients, moments and workspace %s, activations and messages %s",
	        pp_show_bytes(arena, least->fixed), pp_show_bytes(arena, least->needed - least->fixed));
	pp_shortage_help_recompute(unit, m, least->needed);
	pp_shortage_help(unit, m, least->needed);
	if (searches(unit) || unit->draft.microbatches == 1)
		pp_help(m, "or use more pipeline ranks (pp), or a smaller microbatch");
	else
		pp_help(m, "or use a schedule that holds fewer stashes, more pipeline ranks (pp), or a smaller microbatch");
}

bool pp_rounds_within(struct pp_unit *unit)
{
	const struct pp_program *program = unit->program;
	const struct pp_rank *rank = &program->rank[fullest_rank(program)];
	if (!is_over(unit))
		return true;
	struct pp_lean least = {
	    .needed = rank->arena_bytes, .fixed = rank->static_bytes, .rank = (uint32_t)(rank - program->rank)};
	/* one that fits is not what was refused: the plan at hand is */
	if (unit->lean && unit->lean->needed > limit_of(unit) && unit->lean->needed < least.needed)
		least = *unit->lean;
	report_over(unit, &least);
	return false;
}

/* Rules that would not finish in any memory are stuck for another reason. */
static bool is_stuck_by_memory(const struct pp_unit *unit)
{
	struct pp_arena *scratch = pp_arena_scratch(unit->arena);
	const struct pp_spec *spec = &unit->resolved.spec;
	struct pp_order_problem *problem =
	    pp_order_of_stages(scratch, spec, unit->draft.stage_rank, &unit->stages, NULL, 0);
	uint64_t *room = PP_NEW_ARRAY(scratch, uint64_t, problem->ranks);
	struct pp_diag *unseen = pp_diag_create(scratch, unit->sources);
	struct pp_schedule schedule = {0};
	for (uint32_t r = 0; r < problem->ranks; r++)
		room[r] = PP_ROOM_UNLIMITED;
	problem->room = room;
	bool finishes = pp_schedule_make(scratch, &unit->resolved, unit->sources, unseen, problem, true, &schedule);
	pp_arena_destroy(scratch);
	return finishes;
}

bool pp_rounds_rescue(struct pp_unit *unit, struct pp_diag *diag)
{
	const char *code = pp_diag_first_error(diag).code;
	bool stuck = strcmp(code, "E0630") == 0;
	if (limit_of(unit) == UINT64_MAX || unit->contestant ||
	    (!stuck && strcmp(code, "E0640") != 0 && strcmp(code, "E0670") != 0) || (stuck && !is_stuck_by_memory(unit)))
		return false;
	if (instead_of_order(unit))
		return true;
	const struct pp_lean *lean = pp_lean_find(unit);
	if (lean && lean->needed > limit_of(unit))
		pp_shortage_help(unit, pp_diag_first_message(diag), lean->needed);
	return false;
}

void pp_rounds_report_split(struct pp_unit *unit)
{
	pp_shortage_report(unit, unit->contestant ? NULL : pp_lean_find(unit));
}
