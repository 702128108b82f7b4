/* Choose how to place the lifetimes of a rank.
 *
 * Columns by size (plan_lanes.c) are exact for equal sizes and near the bound of live bytes where small values
 * accompany large ones. Stashes of two slightly different sizes that take turns defeat them: each size gets the columns
 * of its own peak. So when columns stay above the bound, two more ways are tried: near sizes share columns; and the
 * large values are placed at the lowest free bytes (plan_fit.c) in several orders, the small ones in columns on top.
 * The lowest arena wins, the earlier way on a tie. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* So near the bound no other way is tried. */
enum { CLOSE_PERMILLE = 10 };

/* Values of at least a quarter of the largest size are large. */
enum { LARGE_SHARE = 4 };

/* With few values more orders are tried, and each is improved: what reaches the top goes ahead in it. */
enum { ORDERS_COUNT_MAX = 2048, ROUNDS = 8, ROUNDS_COUNT_MAX = 512 };

struct chooser {
	struct pp_arena *scratch;
	struct pp_lifetime *items, *best;
	uint32_t count;
	uint64_t horizon;
	uint64_t height; /* of the best so far */
};

static void keep_if_lower(struct chooser *chooser, uint64_t height)
{
	if (height >= chooser->height)
		return;
	chooser->height = height;
	memcpy(chooser->best, chooser->items, chooser->count * sizeof *chooser->best);
}

static void try_columns(struct chooser *chooser, uint64_t permille)
{
	uint64_t height = 0;
	if (pp_plan_lanes(chooser->scratch, chooser->items, chooser->count, chooser->horizon, permille, &height))
		keep_if_lower(chooser, height);
}

static int compare_starts(const void *left, const void *right)
{
	const struct pp_lifetime *a = *(struct pp_lifetime *const *)left, *b = *(struct pp_lifetime *const *)right;
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a->slot < b->slot ? -1 : a->slot > b->slot;
}

static int compare_sizes(const void *left, const void *right)
{
	const struct pp_lifetime *a = *(struct pp_lifetime *const *)left, *b = *(struct pp_lifetime *const *)right;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return compare_starts(left, right);
}

static int compare_lengths(const void *left, const void *right)
{
	const struct pp_lifetime *a = *(struct pp_lifetime *const *)left, *b = *(struct pp_lifetime *const *)right;
	if (a->last - a->first != b->last - b->first)
		return a->last - a->first > b->last - b->first ? -1 : 1;
	return compare_sizes(left, right);
}

/* Take the first one that reaches the top out of the order and put it further ahead: at a place drawn by `seed`. */
static void move_top(struct pp_lifetime **order, uint64_t height, uint64_t *seed)
{
	uint32_t top = 0;
	while (order[top]->offset + order[top]->bytes != height)
		top++;
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	uint32_t to = top ? (uint32_t)((*seed >> 33) % top) : 0;
	struct pp_lifetime *moved = order[top];
	memmove(&order[to + 1], &order[to], (top - to) * sizeof(struct pp_lifetime *));
	order[to] = moved;
}

/* The lowest of several rounds; the offsets of `large` are those of the best round. */
static bool fit_large(struct chooser *chooser, struct pp_lifetime **large, uint32_t count, uint64_t *best)
{
	uint64_t *offsets = PP_NEW_ARRAY(chooser->scratch, uint64_t, count), seed = 1, height;
	struct pp_lifetime **order = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime *, count);
	memcpy(order, large, count * sizeof(struct pp_lifetime *));
	*best = UINT64_MAX;
	for (uint32_t round = 0; round < (count <= ROUNDS_COUNT_MAX ? ROUNDS : 1); round++) {
		if (!pp_plan_fit(chooser->scratch, order, count, chooser->horizon, &height))
			return false;
		if (height < *best) {
			*best = height;
			for (uint32_t i = 0; i < count; i++)
				offsets[i] = large[i]->offset;
		}
		move_top(order, height, &seed);
	}
	for (uint32_t i = 0; i < count; i++)
		large[i]->offset = offsets[i];
	return true;
}

static void try_lowest(struct chooser *chooser, int (*compare)(const void *, const void *))
{
	uint64_t largest = 0, height;
	for (uint32_t i = 0; i < chooser->count; i++)
		largest = chooser->items[i].bytes > largest ? chooser->items[i].bytes : largest;
	struct pp_lifetime **large = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime *, chooser->count);
	struct pp_lifetime *small = PP_NEW_ARRAY(chooser->scratch, struct pp_lifetime, chooser->count);
	uint32_t large_count = 0, small_count = 0;
	for (uint32_t i = 0; i < chooser->count; i++) {
		if (chooser->items[i].bytes >= largest / LARGE_SHARE)
			large[large_count++] = &chooser->items[i];
		else
			small[small_count++] = chooser->items[i];
	}
	qsort(large, large_count, sizeof(struct pp_lifetime *), compare);
	if (!fit_large(chooser, large, large_count, &height) ||
	    !pp_plan_lanes(chooser->scratch, small, small_count, chooser->horizon, 1000, &height))
		return;
	for (uint32_t i = 0, at = 0; i < chooser->count; i++)
		if (chooser->items[i].bytes < largest / LARGE_SHARE)
			chooser->items[i].offset = small[at++].offset;
	keep_if_lower(chooser, height);
}

bool pp_plan_place(struct pp_arena *scratch, struct pp_lifetime *items, uint32_t count, uint64_t horizon, uint64_t live,
                   uint64_t *height)
{
	struct chooser chooser = {
	    .scratch = scratch, .items = items, .count = count, .horizon = horizon, .height = UINT64_MAX};
	chooser.best = PP_NEW_ARRAY(scratch, struct pp_lifetime, count);
	uint64_t enough = live + live / 1000 * CLOSE_PERMILLE;
	try_columns(&chooser, 1000);
	if (chooser.height > enough) {
		try_columns(&chooser, 800);
		try_columns(&chooser, 600);
		try_lowest(&chooser, compare_starts);
	}
	if (chooser.height > enough && count <= ORDERS_COUNT_MAX) {
		try_lowest(&chooser, compare_sizes);
		try_lowest(&chooser, compare_lengths);
	}
	if (count && chooser.height == UINT64_MAX)
		return false;
	memcpy(items, chooser.best, count * sizeof *items);
	*height = count ? chooser.height : 0;
	return true;
}
