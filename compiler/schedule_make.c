/* From the spec to the input of the row expander. */
#include "schedule_make.h"

#include "library.h"
#include "rows.h"

#include <string.h>

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

/* Rows that let a microbatch pass all ranks, chunk by chunk: on another placement they never finish. */
static const char *const looped[] = {"interleaved", "zb_h1", "gis", "gis_h"};

static bool is_looped(const char *policy)
{
	for (size_t i = 0; i < sizeof looped / sizeof *looped; i++)
		if (strcmp(policy, looped[i]) == 0)
			return true;
	return false;
}

static bool placed_in_a_loop(const struct pp_resolved *resolved, const uint32_t *stage_rank, struct pp_diag *diag)
{
	const struct pp_spec *spec = &resolved->spec;
	if (!is_looped(resolved->policy) || spec->parallel.vpp < 2)
		return true;
	for (uint32_t s = 0; s < spec->stages.stage_count; s++) {
		if (stage_rank[s] == s % spec->parallel.pp)
			continue;
		struct pp_message *m = pp_error(diag, "E0614", spec->stages.span,
		                                "`%s` needs `place = loop`, and stage %u is on rank %u instead of %u",
		                                resolved->policy, s, stage_rank[s], s % spec->parallel.pp);
		pp_help(m, "use `place = loop`, schedule gpipe, or write the rows: `order for r { … }`");
		return false;
	}
	return true;
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
	uint32_t *stage_rank = place_stages(arena, spec);
	if (!resolved->schedule && !placed_in_a_loop(resolved, stage_rank, diag))
		return false;
	struct pp_rows_input input = {
	    .name = spec->schedule_name,
	    .block = block,
	    .shipped = !resolved->schedule,
	    .place = spec->schedule_span,
	    .ranks = spec->parallel.pp,
	    .stages = spec->stages.stage_count,
	    .microbatches = spec->microbatches,
	    .stage_rank = stage_rank,
	    .scope = resolved->scope,
	    .strings = resolved->strings,
	    .sources = resolved->sources,
	};
	return pp_rows_expand(arena, &input, diag, out);
}
