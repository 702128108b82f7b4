/* Compiling the spec under each placement. What a placement costs shows only in a whole program: its stages are split
 * anew, and their messages and buffers differ. */
#include "place.h"

#include "search.h"

#include "compiler/schedule_make.h"
#include "compiler/unit_trial.h"

#include <string.h>

static const struct pp_place_hint candidates[] = {{"loop", 1, true}, {"loop", 2, true}, {"v", 2, true}};
enum {
	CANDIDATES = sizeof candidates / sizeof *candidates,
	MOST_WHOLE = 100000, /* ranks times microbatches: with more, the searched orders are compared, not whole programs */
};

struct outcome {
	bool ok;
	uint64_t value, bytes; /* of the objective; of the fullest rank */
	/* of a contest of splits, or NULL */
	uint32_t *first;
	struct pp_schedule *given;
};

static struct pp_unit open_trial(const struct pp_unit *unit, const struct pp_place_hint *hint)
{
	struct pp_unit trial = pp_unit_trial(unit);
	trial.options.hint = *hint;
	return trial;
}

static bool same_placement(struct pp_arena *scratch, const struct pp_spec *a, const struct pp_spec *b)
{
	if (a->stages.stage_count != b->stages.stage_count)
		return false;
	size_t bytes = a->stages.stage_count * sizeof(uint32_t);
	return memcmp(pp_schedule_place(scratch, a), pp_schedule_place(scratch, b), bytes) == 0;
}

/* `to_beat`: the value of another placement, or 0. */
static struct outcome try_placement(const struct pp_unit *unit, const struct pp_place_hint *hint, uint64_t to_beat)
{
	struct pp_unit trial = open_trial(unit, hint);
	trial.to_beat = to_beat;
	const struct pp_spec *spec = &unit->resolved.spec;
	bool whole = (uint64_t)spec->parallel.pp * spec->microbatches <= MOST_WHOLE;
	struct outcome outcome = {.ok = pp_compile(&trial, whole ? PP_PASS_simulate : PP_PASS_schedule, NULL, NULL)};
	if (outcome.ok && !whole) {
		outcome.value = trial.schedule.search->value;
	} else if (outcome.ok) {
		bool span = unit->resolved.spec.seek.objective == PP_SEEK_SPAN;
		outcome.value = span ? trial.sim.longest_span : trial.sim.makespan;
		for (uint32_t r = 0; r < trial.program->ranks; r++)
			if (trial.program->rank[r].arena_bytes > outcome.bytes)
				outcome.bytes = trial.program->rank[r].arena_bytes;
	}
	if (outcome.ok && whole && trial.given) {
		outcome.first = pp_split_copy(unit->arena, &trial.stages, spec->model.layer_count);
		outcome.given = pp_schedule_copy(unit->arena, trial.given);
	}
	pp_arena_destroy(trial.arena);
	return outcome;
}

/* The fastest, or of those that are not much slower the one that needs least memory. */
static int best_of(const struct outcome *outcomes, bool memory)
{
	int best = -1;
	for (int i = 0; i < CANDIDATES; i++)
		if (outcomes[i].ok && (best < 0 || outcomes[i].value < outcomes[best].value))
			best = i;
	if (!memory || best < 0)
		return best;
	uint64_t limit = outcomes[best].value + outcomes[best].value / 100 * PP_MEMORY_PERCENT;
	for (int i = 0; i < CANDIDATES; i++)
		if (outcomes[i].ok && outcomes[i].value <= limit && outcomes[i].bytes < outcomes[best].bytes)
			best = i;
	return best;
}

/* Whether a hint leads to another placement than that of the unit. */
static bool changes_placement(const struct pp_unit *unit, const struct pp_place_hint *hint)
{
	struct pp_unit trial = open_trial(unit, hint);
	bool changes = !pp_compile(&trial, PP_PASS_resolve, NULL, NULL) ||
	               !same_placement(trial.arena, &unit->resolved.spec, &trial.resolved.spec);
	pp_arena_destroy(trial.arena);
	return changes;
}

bool pp_search_place(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	struct outcome outcomes[CANDIDATES] = {0};
	bool open = false;
	for (int i = 0; i < CANDIDATES; i++)
		open |= changes_placement(unit, &candidates[i]);
	if (unit->options.hint.place || !open)
		return false;
	uint64_t to_beat = 0;
	for (int i = 0; i < CANDIDATES; i++) {
		outcomes[i] = try_placement(unit, &candidates[i], to_beat);
		if (outcomes[i].ok && (to_beat == 0 || outcomes[i].value < to_beat))
			to_beat = outcomes[i].value;
	}
	int best = best_of(outcomes, spec->seek.objective == PP_SEEK_MEMORY);
	if (best < 0)
		return false; /* the unit's own passes say why */
	unit->options.hint = candidates[best];
	unit->options.hint.trial = false;
	unit->first = outcomes[best].first;
	unit->given = outcomes[best].given;
	unit->to_beat = unit->given ? outcomes[best].value : 0;
	return true;
}
