/* What placed lifetimes leave free, as rectangles: every byte's idle time is in one piece, bytes that are idle for the
 * same time are together. Free bytes are kept sorted by offset, each part with the position since when it is free; a
 * value that begins cuts its bytes out of the parts it covers. O(n * parts at one time), all of it moves of small
 * arrays. */
#include "plan.h"

#include <string.h>

struct part {
	uint64_t from, to, since;
};

struct idle {
	struct pp_arena *scratch;
	struct pp_spaces spaces;
	struct part *parts; /* by offset */
	size_t count, capacity;
};

static void insert_part(struct idle *idle, size_t at, struct part part)
{
	PP_PUSH(idle->scratch, &idle->parts, &idle->count, &idle->capacity, struct part);
	memmove(&idle->parts[at + 1], &idle->parts[at], (idle->count - 1 - at) * sizeof part);
	idle->parts[at] = part;
}

/* The first part that ends behind `offset`. */
static size_t find_part(const struct idle *idle, uint64_t offset)
{
	size_t low = 0, high = idle->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (idle->parts[middle].to <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void keep_space(struct idle *idle, uint64_t from, uint64_t to, uint64_t since, uint64_t until)
{
	if (since == until)
		return;
	struct pp_spaces *spaces = &idle->spaces;
	*PP_PUSH(idle->scratch, &spaces->items, &spaces->count, &spaces->capacity, struct pp_space) =
	    (struct pp_space){.offset = from, .height = to - from, .first = since, .last = until - 1};
}

static void release(struct idle *idle, const struct pp_lifetime *item)
{
	insert_part(idle, find_part(idle, item->offset),
	            (struct part){item->offset, item->offset + item->bytes, item->last + 1});
}

static void occupy(struct idle *idle, const struct pp_lifetime *item)
{
	uint64_t from = item->offset, to = item->offset + item->bytes;
	size_t first = find_part(idle, from), end = first;
	if (idle->parts[first].from < from) { /* its lower bytes stay free */
		insert_part(idle, first, idle->parts[first]);
		idle->parts[first++].to = from;
		idle->parts[first].from = from;
		end = first;
	}
	for (; end < idle->count && idle->parts[end].to <= to; end++)
		keep_space(idle, idle->parts[end].from, idle->parts[end].to, idle->parts[end].since, item->first);
	if (end < idle->count && idle->parts[end].from < to) {
		keep_space(idle, idle->parts[end].from, to, idle->parts[end].since, item->first);
		idle->parts[end].from = to;
	}
	memmove(&idle->parts[first], &idle->parts[end], (idle->count - end) * sizeof *idle->parts);
	idle->count -= end - first;
}

struct pp_spaces pp_plan_idle(struct pp_arena *scratch, struct pp_lifetime *const *items, uint32_t count,
                              uint64_t horizon, uint64_t height)
{
	struct idle idle = {.scratch = scratch};
	insert_part(&idle, 0, (struct part){0, height, 0});
	const uint32_t *ends = pp_plan_ends(scratch, items, count, horizon);
	uint32_t ended = 0;
	for (uint32_t i = 0; i < count; i++) {
		for (; items[ends[ended]]->last < items[i]->first; ended++)
			release(&idle, items[ends[ended]]);
		occupy(&idle, items[i]);
	}
	for (; ended < count; ended++)
		release(&idle, items[ends[ended]]);
	for (size_t i = 0; i < idle.count; i++)
		keep_space(&idle, idle.parts[i].from, idle.parts[i].to, idle.parts[i].since, horizon);
	return idle.spaces;
}
