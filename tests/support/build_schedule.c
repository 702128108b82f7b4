/* Schedules for tests. */
#include "build_program.h"

#include "random.h"

#include <assert.h>

static struct pp_schedule *begin(struct pp_arena *arena, const char *name, uint32_t ranks, uint32_t stages,
                                 uint32_t microbatches)
{
	struct pp_schedule *schedule = PP_NEW(arena, struct pp_schedule);
	*schedule = (struct pp_schedule){.name = name, .ranks = ranks, .stages = stages, .microbatches = microbatches};
	schedule->stage_rank = PP_NEW_ARRAY(arena, uint32_t, stages);
	schedule->rows = PP_NEW_ARRAY(arena, struct pp_row, ranks);
	for (uint32_t s = 0; s < stages; s++)
		schedule->stage_rank[s] = s % ranks;
	for (uint32_t r = 0; r < ranks; r++)
		schedule->rows[r].actions = PP_NEW_ARRAY(arena, struct pp_action, 3 * (size_t)stages * microbatches);
	return schedule;
}

static void push(struct pp_schedule *schedule, uint32_t rank, enum pp_action_kind kind, uint32_t stage, uint32_t mb)
{
	struct pp_row *row = &schedule->rows[rank];
	row->actions[row->count++] = (struct pp_action){.stage = stage, .mb = mb, .kind = (uint8_t)kind};
}

struct pp_schedule *build_gpipe(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches)
{
	struct pp_schedule *schedule = begin(arena, "gpipe", ranks, ranks, microbatches);
	for (uint32_t r = 0; r < ranks; r++) {
		for (uint32_t m = 0; m < microbatches; m++)
			push(schedule, r, PP_F, r, m);
		for (uint32_t m = 0; m < microbatches; m++)
			push(schedule, r, PP_B, r, m);
	}
	return schedule;
}

struct pp_schedule *build_1f1b(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches)
{
	struct pp_schedule *schedule = begin(arena, "1f1b", ranks, ranks, microbatches);
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t forward = 0, backward = 0, warm = ranks - 1 - r < microbatches ? ranks - 1 - r : microbatches;
		while (forward < warm)
			push(schedule, r, PP_F, r, forward++);
		while (forward < microbatches) {
			push(schedule, r, PP_F, r, forward++);
			push(schedule, r, PP_B, r, backward++);
		}
		while (backward < microbatches)
			push(schedule, r, PP_B, r, backward++);
	}
	return schedule;
}

struct pp_schedule *build_interleaved(struct pp_arena *arena, uint32_t ranks, uint32_t chunks, uint32_t microbatches)
{
	assert(microbatches % ranks == 0);
	struct pp_schedule *schedule = begin(arena, "interleaved", ranks, ranks * chunks, microbatches);
	uint32_t total = microbatches * chunks, wave = ranks * chunks;
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t warm = 2 * (ranks - 1 - r) + (chunks - 1) * ranks, forward = 0, backward = 0;
		warm = warm < total ? warm : total;
		for (uint32_t i = 0; i < 2 * total; i++) {
			bool forwards = i < warm || backward >= total || (forward < total && (i - warm) % 2 == 0);
			uint32_t k = forwards ? forward++ : backward++, chunk = k % wave / ranks;
			uint32_t stage = (forwards ? chunk : chunks - 1 - chunk) * ranks + r;
			push(schedule, r, forwards ? PP_F : PP_B, stage, k / wave * ranks + k % ranks);
		}
	}
	return schedule;
}

struct pp_schedule *build_zb_h1(struct pp_arena *arena, uint32_t ranks, uint32_t microbatches)
{
	struct pp_schedule *fused = build_1f1b(arena, ranks, microbatches),
	                   *schedule = begin(arena, "zb_h1", ranks, ranks, microbatches);
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t inputs = 0, weights = 0;
		for (uint32_t i = 0; i < fused->rows[r].count; i++) {
			const struct pp_action *action = &fused->rows[r].actions[i];
			if (action->kind == PP_F) {
				push(schedule, r, PP_F, r, action->mb);
				continue;
			}
			push(schedule, r, PP_I, r, action->mb);
			if (++inputs - weights > r)
				push(schedule, r, PP_W, r, weights++);
		}
		while (weights < microbatches)
			push(schedule, r, PP_W, r, weights++);
	}
	return schedule;
}

static void place_at_random(struct pp_schedule *schedule, uint64_t *seed)
{
	uint32_t p = schedule->ranks, how = random_below(seed, 4), v = schedule->stages / p;
	for (uint32_t s = 0; s < schedule->stages; s++) {
		uint32_t wave = s / p % 2 ? p - 1 - s % p : s % p;
		uint32_t any = s < p ? s : random_below(seed, p);
		schedule->stage_rank[s] = how == 0 ? s % p : how == 1 ? wave : how == 2 ? s / v : any;
	}
}

/* Choose among the actions that may run, with a taste for kinds that differs from seed to seed. */
static uint32_t choose(const struct pp_action *ready, uint32_t count, const uint32_t *taste, uint64_t *seed)
{
	uint32_t best = 0, best_score = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t score = 1 + random_below(seed, taste[ready[i].kind]);
		if (score > best_score) {
			best_score = score;
			best = i;
		}
	}
	return best;
}

struct pp_schedule *build_random(struct pp_arena *arena, uint64_t *seed)
{
	uint32_t ranks = 1 + random_below(seed, 5), stages = ranks * (1 + random_below(seed, 3)),
	         microbatches = 1 + random_below(seed, 7);
	struct pp_schedule *schedule = begin(arena, "random", ranks, stages, microbatches);
	place_at_random(schedule, seed);
	static const uint32_t tastes[] = {2, 8, 64, 1000};
	uint32_t taste[PP_ACTION_KINDS], split = random_below(seed, 3), count = 0;
	for (int kind = 0; kind < PP_ACTION_KINDS; kind++)
		taste[kind] = tastes[random_below(seed, 4)];
	struct pp_action *ready = PP_NEW_ARRAY(arena, struct pp_action, 2 * (size_t)stages * microbatches);
	for (uint32_t m = 0; m < microbatches; m++)
		ready[count++] = (struct pp_action){.stage = 0, .mb = m, .kind = PP_F};
	while (count) {
		uint32_t at = choose(ready, count, taste, seed);
		struct pp_action action = ready[at];
		ready[at] = ready[--count];
		push(schedule, schedule->stage_rank[action.stage], action.kind, action.stage, action.mb);
		bool turn = action.kind == PP_F && action.stage + 1 == stages;
		if (action.kind == PP_F && !turn)
			ready[count++] = (struct pp_action){.stage = action.stage + 1, .mb = action.mb, .kind = PP_F};
		else if (turn || ((action.kind == PP_B || action.kind == PP_I) && action.stage > 0))
			ready[count++] = (struct pp_action){.stage = turn ? action.stage : action.stage - 1,
			                                    .mb = action.mb,
			                                    .kind = random_below(seed, 2) < split ? PP_I : PP_B};
		if (action.kind == PP_I)
			ready[count++] = (struct pp_action){.stage = action.stage, .mb = action.mb, .kind = PP_W};
	}
	return schedule;
}
