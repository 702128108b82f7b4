/* Choose how to place the lifetimes of a rank.
 *
 * Columns by size (plan_lanes.c) are exact for equal sizes and near the bound of live bytes where small values
 * accompany large ones. Stashes of different sizes that take turns defeat them: each size gets the columns of its own
 * peak. So when columns stay above the bound, the large values are placed in the order of time (plan_sweep.c) and the
 * small ones in columns on top, or cut from what that leaves free (plan_idle.c). The further from the bound, the more
 * ways are tried. The lowest arena wins, the earlier way on a tie. */
#include "plan.h"

#include <string.h>

/* Large values have at least this part of the largest size: where one value dwarfs the rest, others count too. */
enum { SPLIT_COUNT = 2 };
static const uint32_t split_shares[SPLIT_COUNT] = {4, 16};

/* Sweeps, tried while the arena is more than `gap` permille above the bound, as far as the steps last. Different
 * ceilings, weights and directions of time lead to different memories; together they find more than one with many
 * states does. */
static const struct attempt {
	uint32_t gap, split, states, ceiling, gap_weight; /* `ceiling`: permille of the live bytes of large values */
	bool backwards, leaves_room;
} attempts[] = {
    {10, 0, 1, 1000, 4, 0, 0},   {20, 0, 4, 1000, 4, 0, 0},   {40, 0, 4, 1000, 8, 1, 0},   {40, 1, 4, 1000, 4, 0, 0},
    {40, 0, 4, 1040, 4, 0, 0},   {40, 1, 4, 1000, 8, 1, 0},   {50, 0, 16, 1000, 4, 0, 0},  {50, 0, 16, 1020, 8, 1, 0},
    {50, 1, 16, 1020, 4, 0, 0},  {50, 0, 16, 1040, 2, 0, 0},  {50, 1, 16, 1040, 8, 1, 0},  {60, 0, 16, 1060, 4, 1, 0},
    {75, 0, 64, 1000, 4, 0, 1},  {75, 0, 64, 1020, 4, 1, 1},  {75, 0, 64, 1000, 4, 1, 0},  {75, 1, 64, 1000, 8, 1, 0},
    {75, 0, 64, 1020, 8, 0, 0},  {75, 1, 64, 1040, 2, 1, 0},  {75, 0, 64, 1040, 4, 1, 0},  {75, 0, 64, 1060, 2, 0, 0},
    {75, 0, 64, 1040, 4, 0, 1},  {75, 1, 64, 1000, 4, 0, 1},  {75, 0, 64, 1060, 2, 1, 1},  {75, 0, 64, 1080, 4, 1, 0},
    {90, 0, 256, 1000, 4, 0, 0}, {90, 0, 256, 1020, 2, 1, 0}, {90, 1, 256, 1000, 4, 1, 0}, {90, 0, 256, 1050, 4, 0, 1},
    {90, 1, 256, 1050, 4, 0, 1},
};

/* Above this small values are placed between large ones. */
enum { INSIDE_PERMILLE = 50 };

/* The values of a rank apart by size. */
struct split {
	struct pp_lifetime **large;    /* by start */
	struct pp_lifetime *mirrored;  /* copies with time turned round, by start; `slot`: index in `large` */
	struct pp_lifetime **backward; /* pointers to them */
	struct pp_lifetime *small;     /* copies */
	uint32_t large_count, small_count;
	uint64_t threshold;
	uint64_t *offsets; /* of the large values: the lowest placement so far */
	uint64_t live;     /* largest sum of large values */
	uint64_t height;   /* of that placement */
	uint64_t above;    /* bytes that small values took on top of one */
	uint64_t steps;    /* that one state takes, 0: not known */
	bool tried;        /* small values were placed with one */
	bool wanted;       /* they are still to be placed with the lowest */
};

struct chooser {
	struct pp_arena *scratch;
	struct pp_lifetime *items, *best;
	uint32_t count;
	uint64_t horizon;
	uint64_t height;   /* of the best so far */
	uint64_t expected; /* the same with what small values will probably take */
	uint64_t steps;    /* left */
	struct split splits[SPLIT_COUNT];
};

static uint64_t height_of(const struct pp_lifetime *items, uint32_t count)
{
	uint64_t height = 0;
	for (uint32_t i = 0; i < count; i++)
		if (items[i].offset + items[i].bytes > height)
			height = items[i].offset + items[i].bytes;
	return height;
}

/* Columns may be wider than any value in them. */
static void keep_if_lower(struct chooser *chooser)
{
	uint64_t height = height_of(chooser->items, chooser->count);
	if (height >= chooser->height)
		return;
	chooser->height = height;
	memcpy(chooser->best, chooser->items, chooser->count * sizeof *chooser->best);
}

static void try_columns(struct chooser *chooser)
{
	uint64_t height = 0;
	if (pp_plan_lanes(chooser->scratch, chooser->items, chooser->count, chooser->horizon, NULL, &height))
		keep_if_lower(chooser);
}

/* ---- large and small ------------------------------------------------------------------------- */

static void separate(struct chooser *chooser, struct split *split, uint32_t share)
{
	for (uint32_t i = 0; i < chooser->count; i++)
		if (chooser->items[i].bytes / share > split->threshold)
			split->threshold = chooser->items[i].bytes / share;
	split->large = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime *, chooser->count);
	split->small = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime, chooser->count);
	for (uint32_t i = 0; i < chooser->count; i++) {
		if (chooser->items[i].bytes >= split->threshold)
			split->large[split->large_count++] = &chooser->items[i];
		else
			split->small[split->small_count++] = chooser->items[i];
	}
}

static uint64_t live_bytes(struct split *split, const uint32_t *ends)
{
	uint64_t live = 0, most = 0;
	for (uint32_t i = 0, ended = 0; i < split->large_count; i++) {
		for (; split->large[ends[ended]]->last < split->large[i]->first; ended++)
			live -= split->large[ends[ended]]->bytes;
		live += split->large[i]->bytes;
		most = live > most ? live : most;
	}
	return most;
}

static void mirror(struct chooser *chooser, struct split *split, const uint32_t *ends)
{
	split->mirrored = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime, split->large_count);
	split->backward = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime *, split->large_count);
	for (uint32_t i = 0; i < split->large_count; i++) {
		uint32_t from = ends[split->large_count - 1 - i];
		const struct pp_lifetime *item = split->large[from];
		split->mirrored[i] = (struct pp_lifetime){.first = chooser->horizon - 1 - item->last,
		                                          .last = chooser->horizon - 1 - item->first,
		                                          .bytes = item->bytes,
		                                          .slot = from};
		split->backward[i] = &split->mirrored[i];
	}
}

static void make_split(struct chooser *chooser, struct split *split, uint32_t share)
{
	separate(chooser, split, share);
	const uint32_t *ends = pp_plan_ends(chooser->scratch, split->large, split->large_count, chooser->horizon);
	split->live = live_bytes(split, ends);
	split->height = chooser->height;
	split->offsets = PP_NEW_ARRAY(chooser->scratch, uint64_t, split->large_count);
	mirror(chooser, split, ends);
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* The small values with the lowest placement of the large ones: in columns on top, or cut from what that leaves free.
 * The latter is lower, but values seldom come to the same place again: many slots. */
static void place_small(struct chooser *chooser, struct split *split, bool inside)
{
	for (uint32_t i = 0; i < split->large_count; i++)
		split->large[i]->offset = split->offsets[i];
	uint64_t height = split->height;
	struct pp_spaces spaces = {.count = 0};
	if (inside)
		spaces = pp_plan_idle(chooser->scratch, split->large, split->large_count, chooser->horizon, height);
	if (!pp_plan_lanes(chooser->scratch, split->small, split->small_count, chooser->horizon, &spaces, &height))
		return;
	for (uint32_t i = 0, at = 0; i < chooser->count; i++)
		if (chooser->items[i].bytes < split->threshold)
			chooser->items[i].offset = split->small[at++].offset;
	split->above = height - split->height;
	split->wanted = false;
	split->tried = true;
	keep_if_lower(chooser);
}

static bool sweep(struct chooser *chooser, struct split *split, const struct attempt *attempt)
{
	struct pp_sweep_options options = {.ceiling = split->live / 1000 * attempt->ceiling,
	                                   .limit = split->height,
	                                   .states = attempt->states,
	                                   .gap_weight = attempt->gap_weight,
	                                   .leaves_room = attempt->leaves_room};
	uint64_t before = chooser->steps;
	if (!pp_plan_sweep(chooser->scratch, attempt->backwards ? split->backward : split->large, split->large_count,
	                   chooser->horizon, &options, &chooser->steps))
		return false;
	split->steps = (before - chooser->steps) / attempt->states;
	split->height = 0;
	for (uint32_t i = 0; i < split->large_count; i++) {
		const struct pp_lifetime *item = attempt->backwards ? &split->mirrored[i] : split->large[i];
		split->offsets[attempt->backwards ? item->slot : i] = item->offset;
		uint64_t end = item->offset + item->bytes;
		split->height = end > split->height ? end : split->height;
	}
	return true;
}

/* Small values are placed with the first placement of the large ones, and in the end with the best: that takes longer
 * than a sweep. */
static void try_sweep(struct chooser *chooser, const struct attempt *attempt)
{
	struct split *split = &chooser->splits[attempt->split];
	if (!split->large)
		make_split(chooser, split, split_shares[attempt->split]);
	uint64_t steps = split->steps > split->large_count ? split->steps : split->large_count;
	if (steps * attempt->states > chooser->steps || !sweep(chooser, split, attempt))
		return;
	split->wanted = true;
	if (!split->tried)
		place_small(chooser, split, false);
	uint64_t expected = split->height + split->above;
	chooser->expected = expected < chooser->expected ? expected : chooser->expected;
}

bool pp_plan_place(struct pp_arena *scratch, struct pp_lifetime *items, uint32_t count, uint64_t horizon, uint64_t live,
                   uint64_t *steps, uint64_t *height)
{
	*height = 0;
	if (!count)
		return true;
	struct chooser chooser = {
	    .scratch = scratch, .items = items, .count = count, .horizon = horizon, .height = UINT64_MAX, .steps = *steps};
	chooser.best = PP_NEW_ARRAY(scratch, struct pp_lifetime, count);
	try_columns(&chooser);
	if (chooser.height == UINT64_MAX)
		return false;
	chooser.expected = chooser.height;
	for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
		if (chooser.expected > live + live / 1000 * attempts[i].gap)
			try_sweep(&chooser, &attempts[i]);
	for (uint32_t i = 0; i < SPLIT_COUNT; i++)
		if (chooser.splits[i].wanted)
			place_small(&chooser, &chooser.splits[i], false);
	for (uint32_t i = 0; i < SPLIT_COUNT; i++)
		if (chooser.splits[i].tried && chooser.height > live + live / 1000 * INSIDE_PERMILLE)
			place_small(&chooser, &chooser.splits[i], true);
	memcpy(items, chooser.best, count * sizeof *items);
	*height = chooser.height;
	*steps = chooser.steps;
	return true;
}
