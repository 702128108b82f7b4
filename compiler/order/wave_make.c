/* A contest of shapes, from a problem to rows.
 *
 * requires: a problem with at least one stage and microbatch. ensures: orders within the room, or a refusal with the
 * rank that lacks room and what it needs. Operations placed grow with the microbatches and the shapes tried only.
 *
 * Room for one microbatch is all that any of this needs: a forward is let in only if later stages of its rank still
 * find room, so that the oldest microbatch always gets through (wave_flow.c). */
#include "wave_make.h"

#include "compiler/deadline.h"
#include "ir/capped.h"
#include "wave_try.h"

#include <assert.h>

/* Below this a rank can't hold one microbatch. */
static uint64_t least_room(const struct pp_order_problem *problem, uint32_t rank)
{
	uint64_t held = 0, more = 0;
	for (uint32_t s = 0; s < problem->stages; s++) {
		const struct pp_order_stage *stage = &problem->stage[s];
		if (stage->rank != rank)
			continue;
		held = pp_plus(held, stage->held);
		more = stage->more_split > more ? stage->more_split : more;
	}
	return pp_plus(held, more);
}

static bool has_room(struct pp_arena *arena, const struct pp_order_problem *problem, struct pp_order_refusal *refusal)
{
	for (uint32_t r = 0; r < problem->ranks; r++) {
		uint64_t least = least_room(problem, r);
		if (least <= problem->room[r])
			continue;
		*refusal = (struct pp_order_refusal){
		    .reason = pp_arena_printf(arena, "finds no room for one microbatch on rank %u", r),
		    .help = "raise `memory <=`, use more ranks, a smaller microbatch, or `recompute`",
		    .rank = r,
		    .least_room = least,
		};
		return false;
	}
	return true;
}

/* The room of a rank, if it may hold so many acts; at least room for one microbatch in a draft. */
static void limit_room(struct pp_wave *wave, const struct pp_wave_wish *wish)
{
	for (uint32_t r = 0; r < wave->ranks; r++) {
		uint64_t held = 0;
		for (uint32_t i = wave->rank_first[r]; i < wave->rank_first[r + 1]; i++)
			held += wave->stage[wave->of_rank[i]].held;
		uint64_t room = wish->acts == PP_WAVE_ANY_ACTS ? PP_ROOM_UNLIMITED : pp_times(held + wave->more[r], wish->acts);
		uint64_t least = wish->draft ? held + wave->more[r] : 0;
		room = room < wave->room[r] ? room : wave->room[r];
		wave->room[r] = room > least ? room : least;
	}
}

/* Whether nothing is left to win. */
static bool won(const struct pp_wave_contest *contest, const struct pp_wave_wish *wish)
{
	return contest->more == 0 && contest->best[0].value <= wish->floor;
}

static void try_list(struct pp_wave_contest *contest, const struct pp_wave_wish *wish, enum pp_wave_listed list)
{
	for (size_t i = 0; i < pp_wave_shapes[list].count && !won(contest, wish); i++)
		pp_wave_contest_try(contest, &pp_wave_shapes[list].shapes[i]);
}

/* A third of the shapes is drawn, the others are the best ones varied. */
static void draw(struct pp_wave_contest *contest, const struct pp_wave_wish *wish, struct pp_wave_dice *dice,
                 uint64_t trials)
{
	for (uint64_t i = 0; i < trials && !won(contest, wish) && !pp_is_late(wish->deadline); i++) {
		const struct pp_wave_entry *parent = &contest->best[i % 3 == 2 ? (i / 3) % PP_WAVE_KEPT : 0];
		bool vary = 3 * i >= trials && parent->value != UINT64_MAX;
		struct pp_wave_shape shape = vary ? pp_wave_shape_vary(dice, &parent->shape) : pp_wave_shape_draw(dice);
		pp_wave_contest_try(contest, &shape);
	}
}

static void compete(struct pp_wave_contest *contest, const struct pp_wave_wish *wish)
{
	const struct pp_wave *wave = contest->wave;
	uint64_t count = (uint64_t)wave->stages * PP_WAVE_KINDS * wave->microbatches;
	try_list(contest, wish, PP_WAVE_BASIC);
	if (wish->list != PP_WAVE_BASIC)
		try_list(contest, wish, wish->list);
	struct pp_wave_dice dice = {0x9e3779b97f4a7c15};
	uint64_t first = wish->first / (count ? count : 1), all = wish->drawn / (count ? count : 1);
	draw(contest, wish, &dice, first);
	draw(contest, wish, &dice, all - first);
}

/* Shapes that did well with fewer microbatches compete again with all of them; so do the basic ones, so that nothing is
 * slower than those. */
static struct pp_wave_contest *final_of(struct pp_arena *arena, const struct pp_wave *wave,
                                        const struct pp_wave_contest *heats, const struct pp_wave_wish *wish,
                                        uint32_t wanted)
{
	struct pp_wave_contest *contest = pp_wave_contest_new(arena, wave, wish->span, 0);
	contest->wanted = wanted;
	try_list(contest, wish, PP_WAVE_BASIC);
	for (uint32_t i = 0; i < PP_WAVE_KEPT && heats->best[i].value != UINT64_MAX; i++)
		pp_wave_contest_try(contest, &heats->best[i].shape);
	return contest;
}

static struct pp_wave_contest *hold(struct pp_arena *arena, const struct pp_wave *wave, const struct pp_wave_wish *wish,
                                    uint32_t wanted)
{
	const struct pp_wave *few = wave;
	uint32_t enough = wave->ranks < UINT32_MAX / 8 ? 4 * wave->ranks + 8 : UINT32_MAX;
	if (wave->microbatches / 3 * 2 > enough)
		few = pp_wave_of_few(arena, wave, enough);
	struct pp_wave_contest *heats = pp_wave_contest_new(arena, few, wish->span, wave->microbatches - few->microbatches);
	if (few == wave && wish->drawn == 0)
		heats->wanted = wanted;
	compete(heats, wish);
	return few == wave ? heats : final_of(arena, wave, heats, wish, wanted);
}

uint32_t pp_wave_make(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_wave_wish *wish,
                      uint32_t wanted, struct pp_row **rows, struct pp_order_refusal *refusal)
{
	assert(wanted > 0 && wanted <= PP_WAVE_MADE);
	if (!wish->draft && !has_room(arena, problem, refusal))
		return 0;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_wave *wave = pp_wave_pack(scratch, problem);
	limit_room(wave, wish);
	const struct pp_wave_contest *contest = hold(scratch, wave, wish, wanted);
	uint32_t made = 0;
	for (; made < wanted && made < PP_WAVE_KEPT && contest->best[made].value != UINT64_MAX; made++)
		pp_wave_unpack(arena, wave, contest->best[made].order, rows[made]);
	pp_arena_destroy(scratch);
	return made;
}
