/* unit_trial.h */
#include "unit_trial.h"

#include "search/search.h"

#include <string.h>

struct pp_unit pp_unit_trial(const struct pp_unit *unit)
{
	struct pp_arena *arena = pp_arena_scratch(unit->arena);
	struct pp_unit trial = {
	    .arena = arena,
	    .strings = pp_strtab_create(arena),
	    .sources = pp_sources_create(arena),
	    .options = unit->options,
	    .tool_version = unit->tool_version,
	    .lowering = unit->lowering,
	    .profile = unit->profile,
	    .deadline = unit->deadline,
	};
	trial.diag = pp_diag_create(arena, trial.sources);
	trial.source = pp_sources_add(trial.sources, unit->source->name, unit->source->text, unit->source->length);
	return trial;
}

uint32_t *pp_split_copy(struct pp_arena *arena, const struct pp_stages *stages, uint32_t layers)
{
	uint32_t *first = PP_NEW_ARRAY(arena, uint32_t, (size_t)stages->count + 1);
	for (uint32_t s = 0; s < stages->count; s++)
		first[s] = stages->items[s].first_layer;
	first[stages->count] = layers;
	return first;
}

static const char *copy_text(struct pp_arena *arena, const char *text)
{
	return text ? pp_arena_printf(arena, "%s", text) : NULL;
}

static struct pp_search_report *copy_report(struct pp_arena *arena, const struct pp_search_report *from)
{
	struct pp_search_report *to = PP_NEW(arena, struct pp_search_report);
	*to = *from;
	to->start = copy_text(arena, from->start);
	to->stopped = copy_text(arena, from->stopped);
	to->bound.makespan_term = copy_text(arena, from->bound.makespan_term);
	to->bound.span_term = copy_text(arena, from->bound.span_term);
	return to;
}

struct pp_schedule *pp_schedule_copy(struct pp_arena *arena, const struct pp_schedule *from)
{
	struct pp_schedule *to = PP_NEW(arena, struct pp_schedule);
	*to = *from;
	to->name = copy_text(arena, from->name);
	to->remarks = copy_text(arena, from->remarks);
	to->search = from->search ? copy_report(arena, from->search) : NULL;
	to->stage_rank = PP_NEW_ARRAY(arena, uint32_t, from->stages);
	memcpy(to->stage_rank, from->stage_rank, from->stages * sizeof *to->stage_rank);
	to->rows = PP_NEW_ARRAY(arena, struct pp_row, from->ranks);
	for (uint32_t r = 0; r < from->ranks; r++) {
		struct pp_row *row = &to->rows[r];
		row->count = from->rows[r].count;
		row->actions = PP_NEW_ARRAY(arena, struct pp_action, row->count);
		for (uint32_t i = 0; i < row->count; i++) {
			row->actions[i] = from->rows[r].actions[i];
			row->actions[i].span = PP_NO_SPAN;
		}
	}
	return to;
}
