/* Place lifetimes in columns, large sizes first.
 *
 * All lifetimes of one size form a class; a class of a smaller size fills the idle times that larger ones left, cut to
 * its size, and opens new columns for the rest. Within a class lifetimes are taken in the order of their start, each in
 * the place that is idle for the shortest sufficient time; so a single class uses exactly as many columns as live at
 * once. Taking lifetimes in order of time over all sizes would be the wrong allocator: large values would find the
 * arena cut up by small ones.
 *
 * O(n log n) in the number of positions for each of at most CLASSES_MAX classes. */
#include "plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* More distinct sizes than this are rounded up to the largest of their neighbours. */
enum { CLASSES_MAX = 64 };

/* A place one value high, in a space or a column of its own. */
struct lane {
	uint64_t offset;
	uint64_t free_from; /* position from which it is idle */
	uint32_t home;      /* index of its space in `homes`, or COLUMN */
	uint32_t next;      /* in the list of free lanes */
};

#define COLUMN UINT32_MAX
#define NONE UINT32_MAX

/* A space that lanes are cut from, for the class at hand. */
struct home {
	struct pp_space space;
	uint64_t cut;   /* lanes cut so far */
	uint64_t lanes; /* that can be cut */
	uint32_t free;  /* list of lanes */
};

struct busy {
	uint64_t last;
	uint32_t lane;
	uint8_t class;
};

struct placer {
	struct pp_arena *scratch;
	uint64_t horizon;
	uint64_t top;                /* height so far */
	uint64_t smallest, shortest; /* of lifetimes of the classes to come: spaces below them are not worth keeping */
	struct pp_spaces spaces;
	/* of the class at hand: */
	uint64_t bytes;
	struct home *homes; /* sorted by end */
	uint32_t home_count;
	uint32_t *by_start; /* homes sorted by start */
	uint64_t *open;     /* bitmap over homes: has begun and a lane is free */
	struct lane *lanes;
	size_t lane_count, lane_capacity;
	uint32_t free_columns[PP_SLOT_CLASS_COUNT]; /* lists of idle columns, by class of their last value */
	struct busy *heap;
	uint32_t heap_count;
};

/* ---- spaces ---------------------------------------------------------------------------------- */

static void keep_space(struct placer *placer, struct pp_space space)
{
	if (space.first > space.last || space.height < placer->smallest || space.last - space.first + 1 < placer->shortest)
		return;
	struct pp_spaces *spaces = &placer->spaces;
	*PP_PUSH(placer->scratch, &spaces->items, &spaces->count, &spaces->capacity, struct pp_space) = space;
}

/* The homes numbered in `order` (NULL: as they stand), sorted by their first or last position; stable. */
static uint32_t *sort_homes(const struct placer *placer, const struct home *homes, const uint32_t *order, bool by_last)
{
	uint32_t *places = PP_NEW_ARRAY(placer->scratch, uint32_t, placer->horizon + 2), before = 0;
	uint32_t *sorted = PP_NEW_ARRAY(placer->scratch, uint32_t, placer->home_count);
	for (uint32_t i = 0; i < placer->home_count; i++)
		places[by_last ? homes[i].space.last : homes[i].space.first]++;
	for (uint64_t position = 0; position <= placer->horizon; position++) {
		uint32_t here = places[position];
		places[position] = before;
		before += here;
	}
	for (uint32_t i = 0; i < placer->home_count; i++) {
		uint32_t home = order ? order[i] : i;
		sorted[places[by_last ? homes[home].space.last : homes[home].space.first]++] = home;
	}
	return sorted;
}

/* Spaces high enough become homes; the others are kept for smaller classes. */
static void open_class(struct placer *placer, uint64_t bytes)
{
	placer->bytes = bytes;
	struct pp_spaces before = placer->spaces;
	struct home *homes = PP_NEW_ARRAY(placer->scratch, struct home, before.count);
	placer->home_count = 0;
	placer->spaces = (struct pp_spaces){.count = 0};
	for (size_t i = 0; i < before.count; i++) {
		const struct pp_space *space = &before.items[i];
		if (space->height >= bytes)
			homes[placer->home_count++] = (struct home){.space = *space, .lanes = space->height / bytes, .free = NONE};
		else
			keep_space(placer, *space);
	}
	placer->homes = homes;
	if (placer->home_count) {
		const uint32_t *by_end = sort_homes(placer, homes, sort_homes(placer, homes, NULL, false), true);
		placer->homes = PP_NEW_ARRAY(placer->scratch, struct home, placer->home_count);
		for (uint32_t i = 0; i < placer->home_count; i++)
			placer->homes[i] = homes[by_end[i]];
		placer->by_start = sort_homes(placer, placer->homes, NULL, false);
	}
	placer->lane_count = 0;
	placer->heap_count = 0;
	memset(placer->free_columns, 0xff, sizeof placer->free_columns);
}

/* What lanes and homes leave idle goes to smaller classes. */
static void close_class(struct placer *placer)
{
	for (size_t i = 0; i < placer->lane_count; i++) {
		const struct lane *lane = &placer->lanes[i];
		uint64_t last = lane->home == COLUMN ? placer->horizon : placer->homes[lane->home].space.last;
		keep_space(placer, (struct pp_space){lane->offset, placer->bytes, lane->free_from, last});
	}
	for (uint32_t i = 0; i < placer->home_count; i++) {
		struct pp_space rest = placer->homes[i].space;
		rest.offset += placer->homes[i].cut * placer->bytes;
		rest.height -= placer->homes[i].cut * placer->bytes;
		keep_space(placer, rest);
	}
}

/* ---- homes with a free lane, by end: a bitmap with summaries --------------------------------- */

/* Level 0 has a bit per home; a bit of level k + 1 says that a word of level k is not 0. Levels follow each other. */
static uint32_t words_for(uint32_t bits)
{
	return bits / 64 + 1;
}

static void make_bitmap(struct placer *placer)
{
	size_t words = 0;
	uint32_t bits = placer->home_count;
	do {
		words += words_for(bits);
		bits = words_for(bits);
	} while (bits > 1);
	placer->open = PP_NEW_ARRAY(placer->scratch, uint64_t, words);
}

static void set_open(struct placer *placer, uint32_t home)
{
	uint64_t *level = placer->open;
	for (uint32_t bits = placer->home_count, at = home;; bits = words_for(bits), at /= 64) {
		level[at / 64] |= 1ull << at % 64;
		level += words_for(bits);
		if (words_for(bits) == 1)
			return;
	}
}

static void clear_open(struct placer *placer, uint32_t home)
{
	uint64_t *level = placer->open;
	for (uint32_t bits = placer->home_count, at = home;; bits = words_for(bits), at /= 64) {
		level[at / 64] &= ~(1ull << at % 64);
		if (level[at / 64] || words_for(bits) == 1)
			return;
		level += words_for(bits);
	}
}

/* The first open home at or behind `from`, or NONE. */
static uint32_t find_open(const struct placer *placer, uint32_t from)
{
	const uint64_t *levels[8];
	uint32_t count = 0, at = from, bits = placer->home_count;
	levels[0] = placer->open;
	for (;;) {
		if (at / 64 >= words_for(bits))
			return NONE;
		uint64_t word = levels[count][at / 64] & ~0ull << at % 64;
		if (word) {
			at = at / 64 * 64 + (uint32_t)__builtin_ctzll(word);
			break;
		}
		if (words_for(bits) == 1)
			return NONE;
		levels[count + 1] = levels[count] + words_for(bits);
		count++;
		at = at / 64 + 1;
		bits = words_for(bits);
	}
	while (count-- > 0)
		at = at * 64 + (uint32_t)__builtin_ctzll(levels[count][at]);
	return at;
}

static uint32_t first_ending_from(const struct placer *placer, uint64_t last)
{
	uint32_t low = 0, high = placer->home_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (placer->homes[middle].space.last < last)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void push_busy(struct placer *placer, struct busy busy)
{
	uint32_t at = placer->heap_count++;
	for (; at && busy.last < placer->heap[(at - 1) / 2].last; at = (at - 1) / 2)
		placer->heap[at] = placer->heap[(at - 1) / 2];
	placer->heap[at] = busy;
}

static struct busy pop_busy(struct placer *placer)
{
	struct busy *heap = placer->heap, top = heap[0], last = heap[--placer->heap_count];
	uint32_t at = 0;
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= placer->heap_count)
			break;
		if (child + 1 < placer->heap_count && heap[child + 1].last < heap[child].last)
			child++;
		if (last.last <= heap[child].last)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return top;
}

static void free_lane(struct placer *placer, struct busy busy)
{
	struct lane *lane = &placer->lanes[busy.lane];
	uint32_t *list = lane->home == COLUMN ? &placer->free_columns[busy.class] : &placer->homes[lane->home].free;
	lane->next = *list;
	*list = busy.lane;
	if (lane->home != COLUMN)
		set_open(placer, lane->home);
}

static uint32_t add_lane(struct placer *placer, struct lane lane)
{
	*PP_PUSH(placer->scratch, &placer->lanes, &placer->lane_count, &placer->lane_capacity, struct lane) = lane;
	return (uint32_t)(placer->lane_count - 1);
}

static uint32_t take_from_home(struct placer *placer, uint32_t index)
{
	struct home *home = &placer->homes[index];
	uint32_t lane = home->free;
	if (lane != NONE) {
		home->free = placer->lanes[lane].next;
	} else {
		uint64_t offset = home->space.offset + home->cut++ * placer->bytes;
		lane = add_lane(placer, (struct lane){.offset = offset, .free_from = home->space.first, .home = index});
	}
	if (home->free == NONE && home->cut == home->lanes)
		clear_open(placer, index);
	return lane;
}

/* An idle column, one that held a value of this class if there is one; else a new column. */
static bool take_column(struct placer *placer, uint8_t class, uint32_t *lane)
{
	uint32_t *list = &placer->free_columns[class];
	for (uint32_t other = 0; other < PP_SLOT_CLASS_COUNT && *list == NONE; other++)
		if (placer->free_columns[other] != NONE)
			list = &placer->free_columns[other];
	if (*list != NONE) {
		*lane = *list;
		*list = placer->lanes[*lane].next;
		return true;
	}
	*lane = add_lane(placer, (struct lane){.offset = placer->top, .free_from = 0, .home = COLUMN});
	return !__builtin_add_overflow(placer->top, placer->bytes, &placer->top);
}

/* ---- classes --------------------------------------------------------------------------------- */

static bool place_class(struct placer *placer, uint64_t bytes, struct pp_lifetime **items, uint32_t count)
{
	open_class(placer, bytes);
	make_bitmap(placer);
	uint32_t begun = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct pp_lifetime *item = items[i];
		for (; begun < placer->home_count && placer->homes[placer->by_start[begun]].space.first <= item->first; begun++)
			set_open(placer, placer->by_start[begun]);
		while (placer->heap_count && placer->heap[0].last < item->first)
			free_lane(placer, pop_busy(placer));
		uint32_t home = find_open(placer, first_ending_from(placer, item->last)), at;
		if (home != NONE)
			at = take_from_home(placer, home);
		else if (!take_column(placer, item->class, &at))
			return false;
		struct lane *lane = &placer->lanes[at];
		item->offset = lane->offset;
		if (item->first > lane->free_from)
			keep_space(placer, (struct pp_space){lane->offset, bytes, lane->free_from, item->first - 1});
		lane->free_from = item->last + 1;
		push_busy(placer, (struct busy){item->last, at, item->class});
	}
	close_class(placer);
	return true;
}

/* Sizes of the classes and the lifetimes that belong to each. */
struct classes {
	uint64_t bytes[CLASSES_MAX]; /* descending */
	uint32_t count;
	uint32_t start[CLASSES_MAX + 1];    /* into `sorted` */
	uint64_t shortest[CLASSES_MAX + 1]; /* lifetime of this class and the smaller ones */
	struct pp_lifetime **sorted;
};

static int compare_descending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a > b ? -1 : a < b;
}

/* Many sizes: every class takes as many distinct sizes as the others. */
static void group_sizes(struct placer *placer, const struct pp_lifetime *items, uint32_t count, struct classes *classes)
{
	uint64_t *sizes = PP_NEW_ARRAY(placer->scratch, uint64_t, count);
	for (uint32_t i = 0; i < count; i++)
		sizes[i] = items[i].bytes;
	qsort(sizes, count, sizeof *sizes, compare_descending);
	uint32_t distinct = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!distinct || sizes[i] != sizes[distinct - 1])
			sizes[distinct++] = sizes[i];
	classes->count = CLASSES_MAX;
	for (uint32_t i = 0; i < CLASSES_MAX; i++)
		classes->bytes[i] = sizes[(uint64_t)i * distinct / CLASSES_MAX];
}

static void find_sizes(struct placer *placer, const struct pp_lifetime *items, uint32_t count, struct classes *classes)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = 0;
		while (at < classes->count && classes->bytes[at] != items[i].bytes)
			at++;
		if (at < classes->count)
			continue;
		if (classes->count == CLASSES_MAX) {
			group_sizes(placer, items, count, classes);
			return;
		}
		classes->bytes[classes->count++] = items[i].bytes;
	}
	qsort(classes->bytes, classes->count, sizeof *classes->bytes, compare_descending);
}

/* The class of the smallest size that holds these bytes. */
static uint32_t class_of(const struct classes *classes, uint64_t bytes)
{
	uint32_t at = classes->count - 1;
	while (classes->bytes[at] < bytes)
		at--;
	return at;
}

static void sort_into_classes(struct placer *placer, struct pp_lifetime *items, uint32_t count, struct classes *classes)
{
	memset(classes->shortest, 0xff, sizeof classes->shortest);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = class_of(classes, items[i].bytes);
		uint64_t length = items[i].last - items[i].first + 1;
		classes->start[at + 1]++;
		if (length < classes->shortest[at])
			classes->shortest[at] = length;
	}
	for (uint32_t i = 0; i < classes->count; i++)
		classes->start[i + 1] += classes->start[i];
	for (uint32_t i = classes->count; i-- > 0;)
		if (classes->shortest[i + 1] < classes->shortest[i])
			classes->shortest[i] = classes->shortest[i + 1];
	uint32_t filled[CLASSES_MAX] = {0};
	classes->sorted = PP_NEW_ARRAY(placer->scratch, struct pp_lifetime *, count);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = class_of(classes, items[i].bytes);
		classes->sorted[classes->start[at] + filled[at]++] = &items[i];
	}
}

bool pp_plan_lanes(struct pp_arena *scratch, struct pp_lifetime *items, uint32_t count, uint64_t horizon,
                   const struct pp_spaces *spaces, uint64_t *top)
{
	struct placer placer = {
	    .scratch = scratch, .horizon = horizon, .top = *top, .heap = PP_NEW_ARRAY(scratch, struct busy, count)};
	struct classes classes = {.count = 0};
	find_sizes(&placer, items, count, &classes);
	sort_into_classes(&placer, items, count, &classes);
	placer.smallest = classes.count ? classes.bytes[classes.count - 1] : 0;
	placer.shortest = classes.shortest[0];
	for (size_t i = 0; spaces && i < spaces->count; i++)
		keep_space(&placer, spaces->items[i]);
	for (uint32_t i = 0; i < classes.count; i++) {
		bool last = i + 1 == classes.count;
		placer.smallest = last ? UINT64_MAX : classes.bytes[classes.count - 1];
		placer.shortest = classes.shortest[i + 1];
		if (!place_class(&placer, classes.bytes[i], &classes.sorted[classes.start[i]],
		                 classes.start[i + 1] - classes.start[i]))
			return false;
	}
	*top = placer.top;
	return true;
}
