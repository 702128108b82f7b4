/* lean.h. A few compilations up to the memory plan; none where a step has more than MOST_ACTIONS. */
#include "lean.h"

#include "balance.h"
#include "order_problem.h"
#include "partition.h"
#include "policy.h"
#include "recompute.h"
#include "schedule_make.h"
#include "unit_trial.h"

#include "ir/capped.h"

#include <string.h>

enum {
	MOST_ACTIONS = 1 << 20,  /* of a step */
	LEVEL_STEPS = 24,        /* halvings of what the fullest rank may take */
	GROUPED_STEPS = 10,      /* with several stages on a rank, where a split takes a search */
	LEVEL_ROUNDS = 3,        /* splits, each made with what the plan before took for messages and workspace */
	MOST_SHIFTING = 1 << 24, /* layers looked at, over all boundaries that are moved */
	ROOM_STEPS = 24,         /* rooms that a policy is tried in, each a quarter more than the one before */
};

/* What is tried. */
struct attempt {
	const struct pp_unit *unit;
	bool fused;               /* the backward of one microbatch at a time */
	bool plain;               /* the split that is balanced without regard to memory, as the unit's own would be */
	bool again;               /* with other parts computed again */
	uint8_t parts;            /* which */
	const uint64_t *headroom; /* [ranks]: beside the layers, as a plan took it; NULL: not known */
};

struct result {
	struct pp_lean lean;
	uint64_t *headroom; /* for the next attempt */
};

/* ---- split ----------------------------------------------------------------------------------- */

static bool splits_itself(const struct pp_spec *spec)
{
	return !spec->stages.split && spec->stages.balance != PP_BALANCE_EVEN;
}

static uint64_t fullest(const struct pp_balance_problem *problem, const uint64_t *headroom, const uint32_t *first,
                        uint64_t *bytes)
{
	uint64_t most = 0;
	for (uint32_t r = 0; r < problem->ranks; r++)
		bytes[r] = headroom ? headroom[r] : 0;
	for (uint32_t s = 0; s < problem->stages; s++)
		for (uint32_t i = first[s]; i < first[s + 1]; i++) {
			uint64_t *of = &bytes[problem->stage_rank[s]];
			*of = pp_plus(*of, pp_balance_bytes(problem, s, i));
		}
	for (uint32_t r = 0; r < problem->ranks; r++)
		most = bytes[r] > most ? bytes[r] : most;
	return most;
}

/* Bytes of each layer as the load, with as many stashes everywhere as the most of any stage: quick, and the same for
 * any number of stages on a rank. */
static bool split_by_bytes(struct pp_arena *arena, const struct pp_balance_problem *problem, struct pp_split *split)
{
	struct pp_balance_problem even = *problem;
	uint64_t *load = PP_NEW_ARRAY(arena, uint64_t, problem->layers);
	uint32_t most = 1;
	for (uint32_t s = 0; s < problem->stages; s++)
		most = problem->in_flight[s] > most ? problem->in_flight[s] : most;
	for (uint32_t i = 0; i < problem->layers; i++)
		load[i] = pp_plus(problem->static_bytes[i],
		                  pp_plus(pp_times(most, problem->stash_bytes[i]), problem->extra_bytes[i])) >>
		          1;
	even.load = load;
	even.static_bytes = NULL;
	return pp_balance_solve(arena, &even, split);
}

static bool may_hold(const struct pp_balance_problem *problem, uint32_t layers)
{
	return layers >= problem->min_layers && layers > 0 && (problem->max_layers == 0 || layers <= problem->max_layers);
}

/* Moves a boundary between two stages by one layer wherever the fullest rank takes less for it. */
static void shift_layers(const struct pp_balance_problem *problem, const uint64_t *headroom, uint32_t *first,
                         uint64_t *bytes)
{
	uint64_t most = fullest(problem, headroom, first, bytes), work = 0;
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t s = 1; s < problem->stages && work < MOST_SHIFTING; s++)
			for (int way = 0; way < 2; way++, work += problem->layers) {
				uint32_t before = first[s];
				first[s] = way ? before + 1 : before - 1;
				uint64_t now = may_hold(problem, first[s] - first[s - 1]) && may_hold(problem, first[s + 1] - first[s])
				                   ? fullest(problem, headroom, first, bytes)
				                   : most;
				moved |= now < most;
				first[s] = now < most ? first[s] : before;
				most = now < most ? now : most;
			}
	}
}

/* The split whose fullest rank takes least: the least cap under which there is one. */
static uint32_t *level(struct pp_arena *arena, const struct pp_balance_problem *problem, const uint64_t *headroom)
{
	struct pp_balance_problem capped = *problem;
	uint64_t *cap = PP_NEW_ARRAY(arena, uint64_t, problem->ranks),
	         *bytes = PP_NEW_ARRAY(arena, uint64_t, problem->ranks);
	struct pp_split best = {0}, timed = {0};
	if (!split_by_bytes(arena, problem, &best))
		return NULL;
	uint64_t low = 0, high = fullest(problem, headroom, best.first, bytes);
	capped.static_bytes = NULL;
	if (pp_balance_solve(arena, &capped, &timed) && fullest(problem, headroom, timed.first, bytes) < high) {
		best = timed;
		high = fullest(problem, headroom, best.first, bytes);
	}
	capped.static_bytes = problem->static_bytes;
	capped.cap = cap;
	unsigned steps = problem->stages <= problem->ranks ? LEVEL_STEPS : GROUPED_STEPS;
	for (unsigned i = 0; i < steps && high - low > high / 4096; i++) {
		struct pp_split split = {0};
		uint64_t middle = low + (high - low) / 2;
		for (uint32_t r = 0; r < problem->ranks; r++) {
			uint64_t taken = headroom ? headroom[r] : 0;
			cap[r] = middle > taken ? middle - taken : 0;
		}
		if (!pp_balance_solve(arena, &capped, &split) || split.over) {
			low = middle;
			continue;
		}
		best = split;
		high = fullest(problem, headroom, best.first, bytes);
	}
	if (problem->stages > problem->ranks)
		shift_layers(problem, headroom, best.first, bytes);
	return best.first;
}

/* ---- order ----------------------------------------------------------------------------------- */

static void append(struct pp_row *row, uint32_t stage, uint32_t mb, enum pp_action_kind kind)
{
	row->actions[row->count++] =
	    (struct pp_action){.stage = stage, .mb = mb, .kind = (uint8_t)kind, .span = PP_NO_SPAN};
}

/* One microbatch after the other: no order holds less of its stages at once. */
static void fill_serial(struct pp_arena *arena, bool fused, struct pp_schedule *schedule)
{
	uint32_t *count = PP_NEW_ARRAY(arena, uint32_t, schedule->ranks);
	for (uint32_t s = 0; s < schedule->stages; s++)
		count[schedule->stage_rank[s]]++;
	for (uint32_t r = 0; r < schedule->ranks; r++)
		schedule->rows[r].actions =
		    PP_NEW_ARRAY(arena, struct pp_action, (size_t)count[r] * schedule->microbatches * (fused ? 2 : 3));
	for (uint32_t mb = 0; mb < schedule->microbatches; mb++) {
		for (uint32_t s = 0; s < schedule->stages; s++)
			append(&schedule->rows[schedule->stage_rank[s]], s, mb, PP_F);
		for (uint32_t s = schedule->stages; s-- > 0;) {
			struct pp_row *row = &schedule->rows[schedule->stage_rank[s]];
			append(row, s, mb, fused ? PP_B : PP_I);
			if (!fused)
				append(row, s, mb, PP_W);
		}
	}
}

/* The least room that the policy finishes in, from what one microbatch takes on. */
static bool make_in_least_room(struct pp_unit *trial, struct pp_order_problem *problem, struct pp_schedule *schedule)
{
	uint64_t *room = PP_NEW_ARRAY(trial->arena, uint64_t, problem->ranks);
	uint64_t *more = PP_NEW_ARRAY(trial->arena, uint64_t, problem->ranks);
	for (uint32_t s = 0; s < problem->stages; s++) {
		const struct pp_order_stage *stage = &problem->stage[s];
		room[stage->rank] = pp_plus(room[stage->rank], stage->held);
		more[stage->rank] = stage->more_split > more[stage->rank] ? stage->more_split : more[stage->rank];
	}
	for (uint32_t r = 0; r < problem->ranks; r++)
		room[r] = pp_plus(room[r], more[r]);
	problem->room = room;
	for (unsigned i = 0; i < ROOM_STEPS; i++) {
		struct pp_arena *scratch = pp_arena_scratch(trial->arena);
		struct pp_diag *unseen = pp_diag_create(scratch, trial->sources);
		struct pp_schedule made = {0};
		bool ok = pp_schedule_make(scratch, &trial->resolved, trial->sources, unseen, problem, false, &made) &&
		          pp_schedule_check(scratch, &made, unseen);
		if (ok)
			*schedule = *pp_schedule_copy(trial->arena, &made);
		pp_arena_destroy(scratch);
		if (ok)
			return true;
		for (uint32_t r = 0; r < problem->ranks; r++)
			room[r] = pp_plus(room[r], room[r] / 4 + 1);
	}
	return false;
}

static bool make_order(struct pp_unit *trial, bool fused)
{
	const struct pp_spec *spec = &trial->resolved.spec;
	struct pp_order_problem *problem =
	    pp_order_of_stages(trial->arena, spec, trial->draft.stage_rank, &trial->stages, NULL, 0);
	struct pp_schedule *schedule = PP_NEW(trial->arena, struct pp_schedule);
	*schedule = trial->draft;
	schedule->rows = PP_NEW_ARRAY(trial->arena, struct pp_row, schedule->ranks);
	trial->given = schedule;
	if (!trial->resolved.policy || strcmp(trial->resolved.policy, "search") != 0)
		return make_in_least_room(trial, problem, schedule);
	fill_serial(trial->arena, fused, schedule);
	return true;
}

/* ---- attempts -------------------------------------------------------------------------------- */

static bool run(struct pp_unit *trial, enum pp_pass pass)
{
	return pp_passes[pass].run(trial) && pp_diag_ok(trial->diag);
}

/* Nothing limits a trial, so that it does not depend on the limit. */
static bool begin(struct pp_unit *trial, const struct attempt *attempt)
{
	struct pp_spec *spec = &trial->resolved.spec;
	trial->contestant = true;
	trial->instead = attempt->unit->instead;
	if (!pp_compile(trial, PP_PASS_resolve, NULL, NULL))
		return false;
	if (attempt->again)
		*spec = pp_recompute_instead(trial->arena, spec, attempt->parts);
	spec->schedule_memory = 0;
	spec->cluster.gpu.memory = 0;
	uint64_t actions = pp_times(pp_times(spec->stages.stage_count, spec->microbatches), 3);
	return actions <= MOST_ACTIONS && run(trial, PP_PASS_draft);
}

static bool split_and_order(struct pp_unit *trial, const struct attempt *attempt)
{
	const struct pp_spec *spec = &trial->resolved.spec;
	if (splits_itself(spec) && !attempt->plain) {
		trial->first = level(trial->arena,
		                     pp_partition_problem(trial->arena, spec, &trial->draft, attempt->headroom, &trial->stages),
		                     attempt->headroom);
		if (!trial->first)
			return false;
	}
	if (!run(trial, PP_PASS_partition))
		return false;
	return !pp_schedule_aware(&trial->resolved) || make_order(trial, attempt->fused);
}

static void take_result(struct pp_arena *arena, const struct pp_unit *trial, struct result *result)
{
	const struct pp_program *program = trial->program;
	struct pp_lean *lean = &result->lean;
	*lean = (struct pp_lean){.first = pp_split_copy(arena, &trial->stages, trial->resolved.spec.model.layer_count)};
	if (trial->given)
		lean->given = pp_schedule_copy(arena, trial->given);
	result->headroom = PP_NEW_ARRAY(arena, uint64_t, program->ranks);
	for (uint32_t r = 0; r < program->ranks; r++) {
		uint64_t planned = program->rank[r].arena_bytes, counted = trial->stages.rank_bytes[r];
		result->headroom[r] = planned > counted ? planned - counted : 0;
		if (planned <= lean->needed)
			continue;
		lean->needed = planned;
		lean->fixed = program->rank[r].static_bytes;
		lean->rank = r;
	}
}

static bool try_once(struct pp_arena *arena, const struct attempt *attempt, struct result *result)
{
	struct pp_unit trial = pp_unit_trial(attempt->unit);
	bool ok = begin(&trial, attempt) && split_and_order(&trial, attempt);
	for (unsigned pass = PP_PASS_schedule; ok && pass <= PP_PASS_plan; pass++)
		ok = run(&trial, (enum pp_pass)pass);
	if (ok)
		take_result(arena, &trial, result);
	pp_arena_destroy(trial.arena);
	return ok;
}

/* What a plan takes for messages and workspace moves the level, so the split is made again with that. */
static void try_form(struct pp_arena *arena, struct attempt attempt, struct pp_lean *best)
{
	bool splits = splits_itself(&attempt.unit->resolved.spec);
	unsigned rounds = splits && !attempt.plain ? LEVEL_ROUNDS : 1;
	struct result result = {0};
	for (unsigned i = 0; i < rounds && try_once(arena, &attempt, &result); i++) {
		if (best->needed == 0 || result.lean.needed < best->needed)
			*best = result.lean;
		attempt.headroom = result.headroom;
	}
}

static struct pp_lean find(struct pp_arena *arena, struct attempt attempt)
{
	const struct pp_unit *unit = attempt.unit;
	struct pp_lean best = {0};
	try_form(arena, attempt, &best);
	if (splits_itself(&unit->resolved.spec)) {
		attempt.plain = true;
		try_form(arena, attempt, &best);
		attempt.plain = false;
	}
	attempt.fused = true;
	if (unit->resolved.policy && strcmp(unit->resolved.policy, "search") == 0)
		try_form(arena, attempt, &best);
	return best;
}

const struct pp_lean *pp_lean_find(struct pp_unit *unit)
{
	if (!unit->lean) {
		unit->lean = PP_NEW(unit->arena, struct pp_lean);
		*unit->lean = find(unit->arena, (struct attempt){.unit = unit});
	}
	return unit->lean->needed ? unit->lean : NULL;
}

bool pp_lean_take(struct pp_unit *unit)
{
	const struct pp_spec *spec = &unit->resolved.spec;
	if (unit->contestant || unit->given || unit->first)
		return false;
	const struct pp_lean *lean = pp_lean_find(unit);
	if (!lean || lean->needed > pp_order_limit(spec, spec->schedule_memory))
		return false;
	unit->first = lean->first;
	unit->leanest = lean->given != NULL;
	if (lean->given) {
		struct pp_schedule *given = pp_schedule_copy(unit->arena, lean->given);
		given->name = spec->schedule_name;
		unit->given = given;
	}
	return true;
}

uint64_t pp_lean_needed_with(const struct pp_unit *unit, uint8_t parts)
{
	struct pp_arena *scratch = pp_arena_scratch(unit->arena);
	struct pp_lean lean = find(scratch, (struct attempt){.unit = unit, .again = true, .parts = parts});
	pp_arena_destroy(scratch);
	return lean.needed;
}
