/* From the spec to rows: the input of the row expander, or of a constructor of compiler/order/. */
#include "schedule_make.h"

#include "ir/figures.h"
#include "library.h"
#include "order_problem.h"
#include "policy.h"
#include "policy/make.h"
#include "rows.h"
#include "search/make.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

uint32_t *pp_schedule_place(struct pp_arena *arena, const struct pp_spec *spec)
{
	uint32_t *ranks = PP_NEW_ARRAY(arena, uint32_t, spec->stages.stage_count);
	for (uint32_t s = 0; s < spec->stages.stage_count; s++) {
		ranks[s] = spec->stages.place == PP_PLACE_LIST
		               ? spec->stages.place_list[s]
		               : pp_place_rank((enum pp_place)spec->stages.place, s, spec->parallel.pp, spec->parallel.vpp);
	}
	return ranks;
}

bool pp_schedule_aware(const struct pp_resolved *resolved)
{
	const struct pp_policy *policy = resolved->policy ? pp_policy_find(resolved->policy) : NULL;
	return policy ? policy->aware : resolved->schedule && pp_rules_block(resolved->schedule);
}

/* The rows of a named schedule are for its placement: on another one they never finish, or are no better than others.
 */
static bool fits_placement(const struct pp_resolved *resolved, const struct pp_policy *policy,
                           const uint32_t *stage_rank, struct pp_diag *diag)
{
	const struct pp_spec *spec = &resolved->spec;
	uint32_t p = spec->parallel.pp, v = spec->parallel.vpp;
	if (policy->vpp && (v != policy->vpp || spec->stages.stage_count != p * v)) {
		struct pp_message *m =
		    pp_error(diag, "E0614", spec->vpp_span,
		             "`%s` needs vpp = %" PRIu32 ", and there %s %" PRIu32 " stage%s on %" PRIu32 " rank%s",
		             policy->name, policy->vpp, spec->stages.stage_count == 1 ? "is" : "are", spec->stages.stage_count,
		             spec->stages.stage_count == 1 ? "" : "s", p, p == 1 ? "" : "s");
		pp_help(m, "leave `vpp` out, or write `vpp = %" PRIu32 "` in `parallel`", policy->vpp);
		return false;
	}
	if (policy->place == PP_PLACE_LIST || (v < 2 && policy->place == PP_PLACE_LOOP))
		return true;
	for (uint32_t s = 0; s < spec->stages.stage_count; s++) {
		uint32_t wanted = pp_place_rank((enum pp_place)policy->place, s, p, v);
		if (stage_rank[s] == wanted)
			continue;
		const char *place = pp_place_name[policy->place];
		struct pp_message *m =
		    pp_error(diag, "E0614", spec->place_span,
		             "`%s` needs `place = %s`, and stage %" PRIu32 " is on rank %" PRIu32 " instead of %" PRIu32,
		             policy->name, place, s, stage_rank[s], wanted);
		pp_help(m, "use `place = %s`, schedule gpipe, or write the rows: `order for r { … }`", place);
		return false;
	}
	return true;
}

static struct pp_rows_input input_of(const struct pp_resolved *resolved, const struct pp_stmt *block,
                                     const uint32_t *stage_rank)
{
	const struct pp_spec *spec = &resolved->spec;
	return (struct pp_rows_input){
	    .name = spec->schedule_name,
	    .block = block,
	    .shipped = !resolved->schedule,
	    .drop_surplus = spec->drop_surplus,
	    .place = spec->schedule_span.start ? spec->schedule_span : spec->vpp_span, /* --schedule has no line */
	    .room_place = pp_order_limit(spec, spec->schedule_memory) == spec->schedule_memory ? spec->memory_span
	                                                                                       : spec->cluster_span,
	    .ranks = spec->parallel.pp,
	    .stages = spec->stages.stage_count,
	    .microbatches = spec->microbatches,
	    .stage_rank = stage_rank,
	    .scope = resolved->scope,
	    .strings = resolved->strings,
	    .sources = resolved->sources,
	};
}

static bool expand_rows(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_stmt *block,
                        const uint32_t *stage_rank, struct pp_diag *diag, struct pp_schedule *out)
{
	struct pp_rows_input input = input_of(resolved, block, stage_rank);
	return pp_rows_expand(arena, &input, diag, out);
}

/* The schedule that the spec writes itself. */
static bool make_written(struct pp_arena *arena, const struct pp_resolved *resolved, const uint32_t *stage_rank,
                         struct pp_diag *diag, const struct pp_order_problem *problem, bool draft,
                         struct pp_schedule *out)
{
	if (!pp_rules_block(resolved->schedule))
		return expand_rows(arena, resolved, resolved->schedule, stage_rank, diag, out);
	struct pp_rows_input input = input_of(resolved, resolved->schedule, stage_rank);
	assert(problem);
	return pp_rules_make(arena, &input, problem, draft, diag, out);
}

static void report_refusal(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_policy *policy,
                           const struct pp_order_refusal *refusal, struct pp_diag *diag)
{
	struct pp_message *m =
	    pp_error(diag, refusal->least_room || !refusal->reason ? "E0670" : "E0614",
	             refusal->least_room || !refusal->reason ? spec->memory_span : spec->schedule_span, "`%s` %s",
	             policy->name, refusal->reason ? refusal->reason : "finds no order within the memory");
	if (refusal->least_room)
		pp_note(m, "rank %" PRIu32 " needs %s for activations at least", refusal->rank,
		        pp_show_bytes(arena, refusal->least_room));
	if (refusal->help)
		pp_help(m, "%s", refusal->help);
}

static bool construct(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_policy *policy,
                      const struct pp_order_problem *problem, bool draft, struct pp_diag *diag, struct pp_schedule *out)
{
	const struct pp_spec *spec = &resolved->spec;
	struct pp_order_options options = {.group = spec->group, .draft = draft};
	struct pp_order_refusal refusal = {0};
	assert(problem);
	*out = (struct pp_schedule){
	    .name = spec->schedule_name,
	    .ranks = problem->ranks,
	    .stages = problem->stages,
	    .microbatches = problem->microbatches,
	    .stage_rank = PP_NEW_ARRAY(arena, uint32_t, problem->stages),
	    .rows = PP_NEW_ARRAY(arena, struct pp_row, problem->ranks),
	};
	for (uint32_t s = 0; s < problem->stages; s++)
		out->stage_rank[s] = problem->stage[s].rank;
	if (policy->make(arena, problem, &options, out->rows, &refusal))
		return true;
	report_refusal(arena, spec, policy, &refusal, diag);
	return false;
}

bool pp_schedule_make(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                      struct pp_diag *diag, const struct pp_order_problem *problem, bool draft, struct pp_schedule *out)
{
	if (resolved->imported) {
		*out = *resolved->imported;
		return true;
	}
	uint32_t *stage_rank = pp_schedule_place(arena, &resolved->spec);
	if (resolved->schedule)
		return make_written(arena, resolved, stage_rank, diag, problem, draft, out);
	const struct pp_policy *policy = pp_policy_find(resolved->policy);
	assert(policy && policy->status == PP_NOW);
	if (!fits_placement(resolved, policy, stage_rank, diag))
		return false;
	if (strcmp(policy->name, "search") == 0)
		return pp_search_make(arena, resolved, sources, diag, problem, draft, out);
	if (policy->make)
		return construct(arena, resolved, policy, problem, draft, diag, out);
	const struct pp_stmt *block = pp_library_schedule(arena, resolved->strings, sources, diag, policy->name);
	assert(block);
	return expand_rows(arena, resolved, block, stage_rank, diag, out);
}
