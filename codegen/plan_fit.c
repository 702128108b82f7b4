/* Place lifetimes one after the other, each at the lowest bytes that are free for its whole time.
 *
 * Time is cut into windows as long as the longest lifetime, so that each lifetime touches at most two; each window
 * keeps what was placed in it sorted by offset, and a lifetime's search walks through its windows' lists. O(n *
 * lifetimes of a window); with more than STEPS_MAX of that it gives up, so it is quick on any input. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 20 * 1000 * 1000 };

struct window {
	const struct pp_lifetime **placed; /* by offset */
	uint32_t count, capacity;
};

struct fit {
	struct window *windows;
	uint64_t length; /* positions of a window */
};

static bool make_windows(struct fit *fit, struct pp_arena *scratch, struct pp_lifetime *const *items, uint32_t count,
                         uint64_t horizon)
{
	fit->length = 1;
	for (uint32_t i = 0; i < count; i++)
		if (items[i]->last - items[i]->first + 1 > fit->length)
			fit->length = items[i]->last - items[i]->first + 1;
	uint64_t windows = horizon / fit->length + 1, steps = 0;
	fit->windows = PP_NEW_ARRAY(scratch, struct window, windows);
	for (uint32_t i = 0; i < count; i++) {
		fit->windows[items[i]->first / fit->length].capacity++;
		if (items[i]->first / fit->length != items[i]->last / fit->length)
			fit->windows[items[i]->last / fit->length].capacity++;
	}
	for (uint64_t i = 0; i < windows; i++) {
		struct window *window = &fit->windows[i];
		steps += (uint64_t)window->capacity * window->capacity;
		if (steps > STEPS_MAX)
			return false;
		window->placed = PP_NEW_ARRAY(scratch, const struct pp_lifetime *, window->capacity);
	}
	return true;
}

static void insert(struct window *window, const struct pp_lifetime *item)
{
	uint32_t at = window->count++;
	for (; at && window->placed[at - 1]->offset > item->offset; at--)
		window->placed[at] = window->placed[at - 1];
	window->placed[at] = item;
}

/* The lowest offset where `item` fits, walking through both lists at once. */
static uint64_t lowest_fit(const struct window *a, const struct window *b, const struct pp_lifetime *item)
{
	uint64_t offset = 0;
	for (uint32_t i = 0, j = 0; i < a->count || j < b->count;) {
		bool from_a = j == b->count || (i < a->count && a->placed[i]->offset <= b->placed[j]->offset);
		const struct pp_lifetime *other = from_a ? a->placed[i++] : b->placed[j++];
		if (other->first > item->last || other->last < item->first)
			continue;
		if (other->offset >= offset && other->offset - offset >= item->bytes)
			return offset;
		if (other->offset + other->bytes > offset)
			offset = other->offset + other->bytes;
	}
	return offset;
}

bool pp_plan_fit(struct pp_arena *scratch, struct pp_lifetime **items, uint32_t count, uint64_t horizon,
                 uint64_t *height)
{
	static const struct window none = {.count = 0};
	struct fit fit;
	*height = 0;
	if (!make_windows(&fit, scratch, items, count, horizon))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		struct pp_lifetime *item = items[i];
		struct window *begin = &fit.windows[item->first / fit.length], *end = &fit.windows[item->last / fit.length];
		item->offset = lowest_fit(begin, begin == end ? &none : end, item);
		uint64_t top;
		if (__builtin_add_overflow(item->offset, item->bytes, &top))
			return false;
		*height = top > *height ? top : *height;
		insert(begin, item);
		if (begin != end)
			insert(end, item);
	}
	return true;
}
