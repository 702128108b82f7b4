/* For the tests of schedules, lowering and memory plan: schedules written as text or drawn at random, programs
 * with given stage costs and sizes, and an independent judge of the finished streams. */
#ifndef PP_LOWERING_FIXTURE_H
#define PP_LOWERING_FIXTURE_H

#include "codegen/lower.h"
#include "ir/diag.h"
#include "ir/program.h"
#include "ir/schedule.h"
#include "support/random.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct world {
	struct pp_arena *arena;
	struct pp_sources *sources;
	struct pp_diag *diag;
	struct pp_schedule schedule;
	struct pp_spec spec;
	struct pp_program program;
	uint64_t random;
};

static inline struct world make_world(uint64_t seed)
{
	struct world w = {.arena = pp_arena_create(NULL), .random = seed};
	w.sources = pp_sources_create(w.arena);
	w.diag = pp_diag_create(w.arena, w.sources);
	return w;
}

static inline void end_world(struct world *w)
{
	pp_arena_destroy(w->arena);
}

/* 0 .. below - 1. */
static inline uint32_t draw(struct world *w, uint32_t below)
{
	return random_below(&w->random, below);
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* One row a line: `F0 B0 …` names the rank's first stage, `2F0` stage 2. `place`: rank of each stage, NULL: s on
 * rank s. */
static inline void write_schedule(struct world *w, uint32_t stages, const uint32_t *place, uint32_t microbatches,
                                  const char *text)
{
	const struct pp_source *source = pp_sources_add(w->sources, "rows.pipe", text, strlen(text));
	struct pp_schedule *schedule = &w->schedule;
	*schedule = (struct pp_schedule){.name = "text", .stages = stages, .microbatches = microbatches};
	schedule->stage_rank = PP_NEW_ARRAY(w->arena, uint32_t, stages);
	for (uint32_t s = 0; s < stages; s++)
		schedule->stage_rank[s] = place ? place[s] : s;
	for (const char *at = text; *at; at++)
		schedule->ranks += *at == '\n';
	schedule->rows = PP_NEW_ARRAY(w->arena, struct pp_row, schedule->ranks);
	const char *at = text;
	for (uint32_t rank = 0; rank < schedule->ranks; rank++, at++) {
		struct pp_row *row = &schedule->rows[rank];
		row->actions = PP_NEW_ARRAY(w->arena, struct pp_action, strcspn(at, "\n") + 1);
		while (*at != '\n') {
			if (!isalnum((unsigned char)*at)) {
				at++;
				continue;
			}
			struct pp_action *action = &row->actions[row->count++];
			const char *start = at;
			char *end;
			action->stage = isdigit((unsigned char)*at) ? (uint32_t)strtoul(at, &end, 10) : rank;
			at = isdigit((unsigned char)*at) ? end : at;
			action->kind = (uint8_t)(strchr("FBIW", *at) - "FBIW");
			action->mb = (uint32_t)strtoul(at + 1, &end, 10);
			at = end;
			action->span.start = source->base + (uint32_t)(start - text);
			action->span.end = source->base + (uint32_t)(at - text);
		}
	}
}

static inline void push_action(struct world *w, struct pp_row *row, size_t *capacity, struct pp_action action)
{
	size_t count = row->count;
	*PP_PUSH(w->arena, &row->actions, &count, capacity, struct pp_action) = action;
	row->count = (uint32_t)count;
}

static inline void draw_placement(struct world *w, uint32_t ranks, uint32_t chunks)
{
	struct pp_schedule *schedule = &w->schedule;
	uint32_t how = draw(w, 4);
	for (uint32_t s = 0; s < schedule->stages; s++)
		schedule->stage_rank[s] = how < 3     ? pp_place_rank((enum pp_place)how, s, ranks, chunks)
		                          : s < ranks ? s
		                                      : draw(w, ranks);
	for (uint32_t s = ranks; how == 3 && s > 1; s--) {
		uint32_t other = draw(w, s), kept = schedule->stage_rank[s - 1];
		schedule->stage_rank[s - 1] = schedule->stage_rank[other];
		schedule->stage_rank[other] = kept;
	}
}

/* A random valid schedule: actions are drawn from those whose inputs are made, so rows and data flow are acyclic. */
static inline void draw_schedule(struct world *w, uint32_t ranks_max, uint32_t microbatches_max, uint32_t chunks_max)
{
	static const uint32_t weights[] = {1, 15, 50, 150, 2500};
	struct pp_schedule *schedule = &w->schedule;
	uint32_t ranks = 1 + draw(w, ranks_max), chunks = 1 + draw(w, chunks_max), stages = ranks * chunks,
	         m = 1 + draw(w, microbatches_max);
	*schedule = (struct pp_schedule){.name = "random", .ranks = ranks, .stages = stages, .microbatches = m};
	schedule->stage_rank = PP_NEW_ARRAY(w->arena, uint32_t, stages);
	draw_placement(w, ranks, chunks);
	schedule->rows = PP_NEW_ARRAY(w->arena, struct pp_row, ranks);
	size_t *capacity = PP_NEW_ARRAY(w->arena, size_t, ranks);
	bool split = draw(w, 10) < 6, ordered = draw(w, 2);
	uint32_t weight[PP_ACTION_KINDS];
	for (int kind = 0; kind < PP_ACTION_KINDS; kind++)
		weight[kind] = weights[draw(w, 5)];
	struct pp_action *ready = PP_NEW_ARRAY(w->arena, struct pp_action, (size_t)3 * stages * m);
	uint32_t count = 0;
	for (uint32_t mb = 0; mb < m; mb++)
		ready[count++] = (struct pp_action){.mb = mb, .kind = PP_F};
	while (count) {
		uint32_t pick = 0, total = 0;
		if (ordered && draw(w, 10) < 7) {
			for (uint32_t i = 1; i < count; i++)
				if (ready[i].mb < ready[pick].mb || (ready[i].mb == ready[pick].mb && ready[i].kind > ready[pick].kind))
					pick = i;
		} else {
			for (uint32_t i = 0; i < count; i++)
				total += weight[ready[i].kind];
			for (uint32_t at = draw(w, total); at >= weight[ready[pick].kind]; pick++)
				at -= weight[ready[pick].kind];
		}
		struct pp_action action = ready[pick];
		ready[pick] = ready[--count];
		uint32_t rank = schedule->stage_rank[action.stage];
		push_action(w, &schedule->rows[rank], &capacity[rank], action);
		uint8_t backward = split && draw(w, 10) < 8 ? PP_I : PP_B;
		if (action.kind == PP_F && action.stage + 1 < stages)
			ready[count++] = (struct pp_action){.stage = action.stage + 1, .mb = action.mb, .kind = PP_F};
		else if (action.kind == PP_F)
			ready[count++] = (struct pp_action){.stage = action.stage, .mb = action.mb, .kind = backward};
		if ((action.kind == PP_B || action.kind == PP_I) && action.stage > 0)
			ready[count++] = (struct pp_action){.stage = action.stage - 1, .mb = action.mb, .kind = backward};
		if (action.kind == PP_I)
			ready[count++] = (struct pp_action){.stage = action.stage, .mb = action.mb, .kind = PP_W};
	}
}

static inline bool is_checked(const struct world *w)
{
	return pp_schedule_check(w->arena, &w->schedule, pp_diag_create(w->arena, w->sources));
}

/* Let a forward and a backward that follow each other overlap, where their stages have nothing to do with each other
 * and both can begin together. */
static inline void pair_some(struct world *w)
{
	for (uint32_t rank = 0; rank < w->schedule.ranks; rank++) {
		struct pp_row *row = &w->schedule.rows[rank];
		for (uint32_t i = 0; i + 1 < row->count; i++) {
			struct pp_action *a = &row->actions[i], *b = &row->actions[i + 1];
			bool apart = a->stage > b->stage + 1 || b->stage > a->stage + 1;
			a->paired = apart && (a->kind == PP_F) != (b->kind == PP_F) && (i == 0 || !a[-1].paired) && draw(w, 2);
			a->paired = a->paired && is_checked(w);
		}
	}
}

/* All forwards, then all backwards, in an order that any placement allows. */
static inline void write_gpipe(struct world *w, uint32_t ranks, uint32_t stages, const uint32_t *place, uint32_t m)
{
	struct pp_schedule *schedule = &w->schedule;
	*schedule = (struct pp_schedule){.name = "gpipe", .ranks = ranks, .stages = stages, .microbatches = m};
	schedule->stage_rank = PP_NEW_ARRAY(w->arena, uint32_t, stages);
	memcpy(schedule->stage_rank, place, stages * sizeof *place);
	schedule->rows = PP_NEW_ARRAY(w->arena, struct pp_row, ranks);
	size_t *capacity = PP_NEW_ARRAY(w->arena, size_t, ranks);
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < stages; i++)
			for (uint32_t mb = 0; mb < m; mb++) {
				uint32_t stage = pass ? stages - 1 - i : i, rank = place[stage];
				push_action(w, &schedule->rows[rank], &capacity[rank],
				            (struct pp_action){.stage = stage, .mb = mb, .kind = pass ? PP_B : PP_F});
			}
}

/* Rows of warm-up forwards, then backward and forward in turn; stage s on rank s mod p, Megatron's order in groups of
 * p. */
static inline void write_interleaved(struct world *w, uint32_t ranks, uint32_t chunks, uint32_t m)
{
	struct pp_schedule *schedule = &w->schedule;
	*schedule =
	    (struct pp_schedule){.name = "interleaved", .ranks = ranks, .stages = ranks * chunks, .microbatches = m};
	schedule->stage_rank = PP_NEW_ARRAY(w->arena, uint32_t, schedule->stages);
	for (uint32_t s = 0; s < schedule->stages; s++)
		schedule->stage_rank[s] = s % ranks;
	schedule->rows = PP_NEW_ARRAY(w->arena, struct pp_row, ranks);
	for (uint32_t rank = 0; rank < ranks; rank++) {
		uint32_t each = m * chunks, warmup = (chunks > 1 ? 2 : 1) * (ranks - 1 - rank) + (chunks - 1) * ranks;
		warmup = warmup < each ? warmup : each;
		schedule->rows[rank].actions = PP_NEW_ARRAY(w->arena, struct pp_action, (size_t)2 * each);
		for (uint32_t i = 0, forwards = 0, backwards = 0; i < 2 * each; i++) {
			bool forward = i < warmup || (forwards < each && (i - warmup) % 2 == 0);
			uint32_t n = forward ? forwards++ : backwards++;
			uint32_t chunk = n % (ranks * chunks) / ranks;
			schedule->rows[rank].actions[schedule->rows[rank].count++] =
			    (struct pp_action){.stage = (forward ? chunk : chunks - 1 - chunk) * ranks + rank,
			                       .mb = n / (ranks * chunks) * ranks + n % ranks,
			                       .kind = forward ? PP_F : PP_B};
		}
	}
}

/* The families: all forwards first, one in turn, chunks in turn, split backwards, a V. */
enum { FAMILIES = 5 };

static inline void write_family(struct world *w, unsigned family, uint32_t ranks, uint32_t microbatches)
{
	struct pp_schedule *schedule = &w->schedule;
	bool v = family == 4, split = family >= 3;
	write_interleaved(w, ranks, family == 2 || v ? 2 : 1, microbatches);
	for (uint32_t s = 0; v && s < schedule->stages; s++)
		schedule->stage_rank[s] = pp_place_rank(PP_PLACE_V, s, ranks, 2);
	for (uint32_t r = 0; r < ranks && (family == 0 || split); r++) {
		struct pp_row *row = &schedule->rows[r];
		uint32_t first = r, second = 2 * ranks - 1 - r, count = 0, warmup = v ? 0 : ranks - 1 - r;
		row->actions = PP_NEW_ARRAY(w->arena, struct pp_action, (size_t)8 * microbatches);
#define ACTION(k, s, m)                                                                                                \
	row->actions[count++] = (struct pp_action)                                                                         \
	{                                                                                                                  \
		.kind = (k), .stage = (s), .mb = (m)                                                                           \
	}
		for (uint32_t m = 0; family == 0 && m < 2 * microbatches; m++)
			ACTION(m < microbatches ? PP_F : PP_B, first, m % microbatches);
		for (uint32_t m = 0; family == 3 && m < microbatches + warmup; m++) {
			if (m < microbatches)
				ACTION(PP_F, first, m);
			if (m >= warmup) {
				ACTION(PP_I, first, m - warmup);
				ACTION(PP_W, first, m - warmup);
			}
		}
		for (uint32_t chunk = 0; v && chunk < 4; chunk++)
			for (uint32_t m = 0; m < microbatches; m++) {
				uint32_t stage = chunk == 0 || chunk == 3 ? first : second;
				ACTION(chunk < 2 ? PP_F : PP_I, stage, m);
				if (chunk >= 2)
					ACTION(PP_W, stage, m);
			}
#undef ACTION
		row->count = count;
	}
}

/* ---- programs -------------------------------------------------------------------------------- */

/* A program ready to be lowered: stages of `ticks` F, I, W ns and a link of `latency` ns; sizes in elements and bytes.
 */
static inline void make_program(struct world *w, uint64_t f, uint64_t i, uint64_t wt, uint64_t latency)
{
	struct pp_program *program = &w->program;
	const struct pp_schedule *schedule = &w->schedule;
	*program = (struct pp_program){.arena = w->arena,
	                               .ranks = schedule->ranks,
	                               .tp = 1,
	                               .dp = 1,
	                               .vpp = schedule->stages / schedule->ranks,
	                               .stage_count = schedule->stages,
	                               .microbatches = schedule->microbatches,
	                               .schedule_name = schedule->name};
	program->stages = PP_NEW_ARRAY(w->arena, struct pp_stage, schedule->stages);
	program->rank = PP_NEW_ARRAY(w->arena, struct pp_rank, schedule->ranks);
	for (uint32_t s = 0; s < schedule->stages; s++) {
		bool last = s + 1 == schedule->stages;
		program->stages[s] = (struct pp_stage){.rank = schedule->stage_rank[s],
		                                       .title = "layers",
		                                       .first_layer = s,
		                                       .layer_count = 1,
		                                       .out_count = last ? 0 : 64,
		                                       .loads_tokens = s == 0,
		                                       .loads_labels = last,
		                                       .stash_bytes = 1024,
		                                       .aux_bytes = s == 0 || last ? 64 : 0,
		                                       .body = {PP_NULL, PP_NULL, PP_NULL, PP_NULL, PP_NULL},
		                                       .ticks = {f, i + wt, i, wt}};
	}
	w->spec = (struct pp_spec){
	    .cluster = {.nodes = 1, .gpus = schedule->ranks, .intra = {.latency = latency}, .inter = {.latency = latency}}};
}

/* Stage costs, sizes and link speeds at random, zeros included. */
static inline void draw_program(struct world *w)
{
	static const uint64_t ticks[] = {0, 1, 10, 100, 150, 400};
	make_program(w, 100, 100, 100, ticks[draw(w, 5)]);
	bool equal = draw(w, 2);
	for (uint32_t s = 0; s < w->schedule.stages; s++) {
		struct pp_stage *stage = &w->program.stages[s];
		uint64_t f = equal ? 100 : ticks[draw(w, 6)], i = equal ? 100 : ticks[draw(w, 6)],
		         wt = equal ? 100 : ticks[draw(w, 6)];
		stage->ticks[PP_PHASE_F] = f;
		stage->ticks[PP_PHASE_I] = i;
		stage->ticks[PP_PHASE_W] = wt;
		stage->ticks[PP_PHASE_B] = i + wt;
		if (!equal) {
			stage->stash_bytes = 256 * draw(w, 12);
			stage->out_count = s + 1 < w->schedule.stages ? 64 * draw(w, 4) : 0;
		}
	}
	w->spec.cluster.gpus = 1 + draw(w, w->schedule.ranks);
	if (draw(w, 2))
		w->spec.cluster.inter = (struct pp_link){.bandwidth = 1000000000, .latency = ticks[draw(w, 6)]};
	bool again = draw(w, 2);
	for (uint32_t s = 0; s < w->schedule.stages; s++) {
		struct pp_stage *stage = &w->program.stages[s];
		stage->recomputes = again && draw(w, 3);
		stage->ticks[PP_PHASE_R] = stage->recomputes ? ticks[draw(w, 6)] : 0;
		stage->extra_bytes = stage->recomputes || draw(w, 2) ? 256 * (1 + draw(w, 8)) : 0;
	}
}

static inline void lower(struct world *w)
{
	assert_true(pp_schedule_check(w->arena, &w->schedule, w->diag));
	assert_true(pp_lower(&w->program, &w->spec, &w->schedule, w->diag));
}

static inline char *diagnostics(struct world *w)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(w->diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	char *copy = pp_arena_copy(w->arena, text, length);
	free(text);
	return copy;
}

#endif
