/* Schedules expanded from text, and their times with unit costs by longest path. */
#ifndef PP_ROWS_FIXTURE_H
#define PP_ROWS_FIXTURE_H

#include "compiler/library.h"
#include "compiler/rows.h"
#include "ir/spec.h"
#include "parse_fixture.h"

struct expanded {
	struct pp_arena *arena;
	struct pp_sources *sources;
	struct pp_strtab *strings;
	struct pp_diag *diag;
	struct pp_schedule schedule;
	bool ok;
};

struct shape {
	uint32_t p, v, m;
	enum pp_place place;
	int64_t group;
	double pair_cost; /* `overlap F&B`; 0: not given */
	bool drop_surplus;
	const uint32_t *list; /* PP_PLACE_LIST: ranks of `stages` stages */
	uint32_t stages;
};

static inline void expand_block(struct expanded *x, const struct pp_stmt *block, const char *name, bool library,
                                const struct shape *shape)
{
	uint32_t stages = shape->list ? shape->stages : shape->p * shape->v;
	uint32_t *stage_rank = PP_NEW_ARRAY(x->arena, uint32_t, stages);
	for (uint32_t s = 0; s < stages; s++)
		stage_rank[s] = shape->list ? shape->list[s] : pp_place_rank(shape->place, s, shape->p, shape->v);
	struct pp_binding names[] = {{pp_intern_z(x->strings, "group"), pp_datum_whole(shape->group)},
	                             {pp_intern_z(x->strings, "pair_cost"), pp_datum_real(shape->pair_cost, PP_PURE)}};
	struct pp_scope scope = {.bindings = names, .count = 2};
	struct pp_rows_input input = {.name = name,
	                              .block = block,
	                              .shipped = library,
	                              .drop_surplus = shape->drop_surplus,
	                              .place = PP_NO_SPAN,
	                              .ranks = shape->p,
	                              .stages = stages,
	                              .microbatches = shape->m,
	                              .stage_rank = stage_rank,
	                              .scope = &scope,
	                              .strings = x->strings,
	                              .sources = x->sources};
	x->ok =
	    pp_rows_expand(x->arena, &input, x->diag, &x->schedule) && pp_schedule_check(x->arena, &x->schedule, x->diag);
}

static inline struct expanded expanded_create(void)
{
	struct expanded x = {.arena = pp_arena_create(NULL)};
	x.sources = pp_sources_create(x.arena);
	x.strings = pp_strtab_create(x.arena);
	x.diag = pp_diag_create(x.arena, x.sources);
	return x;
}

/* The block `schedule mine` with this body. */
static inline const struct pp_stmt *schedule_block(struct expanded *x, const char *body)
{
	const char *text = pp_arena_printf(x->arena, "schedule mine { %s }\n", body);
	const struct pp_source *source = pp_sources_add(x->sources, "x.pipe", text, strlen(text));
	struct pp_ast *ast = pp_parse(x->arena, x->strings, source, x->diag);
	assert_true(pp_diag_ok(x->diag));
	return ast->first;
}

/* The body of a schedule. */
static inline struct expanded expand_text(const char *body, struct shape shape)
{
	struct expanded x = expanded_create();
	expand_block(&x, schedule_block(&x, body), "mine", false, &shape);
	return x;
}

static inline struct expanded expand_surplus(const char *body, struct shape shape)
{
	shape.drop_surplus = true;
	return expand_text(body, shape);
}

/* A named schedule of the library. */
static inline struct expanded expand_named(const char *name, struct shape shape)
{
	struct expanded x = expanded_create();
	const struct pp_stmt *block = pp_library_schedule(x.arena, x.strings, x.sources, x.diag, name);
	assert_non_null(block);
	expand_block(&x, block, name, true, &shape);
	return x;
}

static inline void expanded_free(struct expanded *x)
{
	pp_arena_destroy(x->arena);
}

static inline const char *expanded_messages(const struct expanded *x, enum pp_diag_format format)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(x->diag, out, format, false);
	fclose(out);
	const char *copy = pp_arena_copy(x->arena, text, length);
	free(text);
	return copy;
}

static inline void assert_clean(const struct expanded *x)
{
	assert_string_equal(expanded_messages(x, PP_DIAG_HUMAN), "");
	assert_true(x->ok);
}

/* Refused, with exactly these messages. */
static inline void assert_refused(const struct expanded *x, const char *expected)
{
	assert_false(x->ok);
	assert_string_equal(expanded_messages(x, PP_DIAG_HUMAN), expected);
}

/* ---- times ----------------------------------------------------------------------------------- */

struct times {
	uint64_t *forward, *backward; /* end of F, and of B or I, by stage * m + mb; 0: not yet */
	uint64_t *rank_free;
	uint32_t *at; /* next action of each rank */
	uint64_t makespan;
};

/* F takes 1, I and W 1 each, B 2; transfers take nothing. */
static inline bool advance(const struct pp_schedule *s, struct times *times, uint32_t rank)
{
	static const uint64_t duration[] = {[PP_F] = 1, [PP_B] = 2, [PP_I] = 1, [PP_W] = 1};
	if (times->at[rank] == s->rows[rank].count)
		return false;
	const struct pp_action *action = &s->rows[rank].actions[times->at[rank]];
	size_t here = (size_t)action->stage * s->microbatches + action->mb;
	uint64_t ready = times->rank_free[rank], input = 1;
	bool backward = action->kind == PP_B || action->kind == PP_I;
	if (action->kind == PP_F && action->stage > 0)
		input = times->forward[here - s->microbatches];
	else if (backward && action->stage + 1 < s->stages)
		input = times->backward[here + s->microbatches];
	else if (backward)
		input = times->forward[here];
	bool source = action->kind == PP_W || (action->kind == PP_F && action->stage == 0);
	if (!source && input == 0)
		return false;
	if (!source && input > ready)
		ready = input;
	uint64_t end = ready + duration[action->kind];
	times->rank_free[rank] = end;
	times->at[rank]++;
	if (action->kind == PP_F)
		times->forward[here] = end;
	else if (backward)
		times->backward[here] = end;
	if (end > times->makespan)
		times->makespan = end;
	return true;
}

/* Time of the last end, in units of one chunk's F. 0: it never ends. */
static inline uint64_t makespan_of(struct expanded *x)
{
	const struct pp_schedule *s = &x->schedule;
	size_t cells = (size_t)s->stages * s->microbatches;
	struct times times = {.forward = PP_NEW_ARRAY(x->arena, uint64_t, cells),
	                      .backward = PP_NEW_ARRAY(x->arena, uint64_t, cells),
	                      .rank_free = PP_NEW_ARRAY(x->arena, uint64_t, s->ranks),
	                      .at = PP_NEW_ARRAY(x->arena, uint32_t, s->ranks)};
	bool moved = true;
	while (moved) {
		moved = false;
		for (uint32_t r = 0; r < s->ranks; r++) {
			while (advance(s, &times, r))
				moved = true;
		}
	}
	for (uint32_t r = 0; r < s->ranks; r++) {
		if (times.at[r] != s->rows[r].count)
			return 0;
	}
	return times.makespan;
}

/* Most forwards of a rank whose B or W is still to come. */
static inline uint32_t in_flight_of(const struct expanded *x, uint32_t rank)
{
	const struct pp_row *row = &x->schedule.rows[rank];
	uint32_t held = 0, most = 0;
	for (uint32_t i = 0; i < row->count; i++) {
		uint8_t kind = row->actions[i].kind;
		if (kind == PP_F && ++held > most)
			most = held;
		if (kind == PP_B || kind == PP_W)
			held--;
	}
	return most;
}

#endif
