/* From the spec to the input of the row expander. */
#include "schedule_make.h"

#include "library.h"
#include "rows.h"

static uint32_t *place_stages(struct pp_arena *arena, const struct pp_spec *spec)
{
	uint32_t *ranks = PP_NEW_ARRAY(arena, uint32_t, spec->stages.stage_count);
	for (uint32_t s = 0; s < spec->stages.stage_count; s++) {
		ranks[s] = spec->stages.place == PP_PLACE_LIST
		               ? spec->stages.place_list[s]
		               : pp_place_rank((enum pp_place)spec->stages.place, s, spec->parallel.pp, spec->parallel.vpp);
	}
	return ranks;
}

bool pp_schedule_make(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                      struct pp_diag *diag, struct pp_schedule *out)
{
	const struct pp_spec *spec = &resolved->spec;
	const struct pp_stmt *block = resolved->schedule;
	if (!block)
		block = pp_library_schedule(arena, resolved->strings, sources, diag, resolved->policy);
	if (!block) {
		pp_error(diag, "E0010", spec->schedule_span, "schedule `%s` is not supported yet", resolved->policy);
		return false;
	}
	struct pp_rows_input input = {
	    .name = spec->schedule_name,
	    .block = block,
	    .library = !resolved->schedule,
	    .place = spec->schedule_span,
	    .ranks = spec->parallel.pp,
	    .stages = spec->stages.stage_count,
	    .microbatches = spec->microbatches,
	    .stage_rank = place_stages(arena, spec),
	    .scope = resolved->scope,
	    .strings = resolved->strings,
	    .sources = resolved->sources,
	};
	return pp_rows_expand(arena, &input, diag, out);
}
