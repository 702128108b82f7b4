/* The race detector (races.h). A history stays short: a touch makes older ones superfluous that can only conflict with
 * what it conflicts with itself, which are those of the same agent and kind within it, and all within it that are
 * ordered before it where it writes. */
#include "memory.h"
#include "runtime.h"

#include <stdlib.h>

static bool overlaps(const struct pp_fake_access *access, const struct pp_fake_touch *touch)
{
	return access->start < touch->start + touch->bytes && touch->start < access->end;
}

static bool within(const struct pp_fake_access *access, const struct pp_fake_touch *touch)
{
	return access->start >= touch->start && access->end <= touch->start + touch->bytes;
}

static const char *name_of(const struct pp_fake_toucher *by, const struct pp_fake_touch *touch)
{
	return touch->name ? touch->name : by->name;
}

static void report(const struct pp_fake_toucher *by, const struct pp_fake_touch *touch,
                   const struct pp_fake_access *earlier)
{
	char text[96];
	pp_fake_race("race: %s by %s on %s of %s isn't ordered after the %s by %s on %s", touch->writes ? "write" : "read",
	             name_of(by, touch), by->where,
	             pp_fake_memory_text((const void *)touch->start, touch->bytes, text, sizeof text),
	             earlier->writes ? "write" : "read", earlier->name, earlier->where);
}

static void remember(struct pp_fake_history *history, const struct pp_fake_toucher *by,
                     const struct pp_fake_touch *touch)
{
	if (history->count == history->capacity) {
		history->capacity = history->capacity ? 2 * history->capacity : 32;
		history->accesses = pp_fake_grow(history->accesses, history->capacity * sizeof *history->accesses);
	}
	history->accesses[history->count++] = (struct pp_fake_access){
	    .start = touch->start,
	    .end = touch->start + touch->bytes,
	    .agent = by->agent,
	    .epoch = by->clock->epochs[by->agent],
	    .name = name_of(by, touch),
	    .where = by->where,
	    .writes = touch->writes,
	};
}

void pp_fake_races_touch(const struct pp_fake_toucher *by, const struct pp_fake_touch *touch)
{
	struct pp_fake_allocation *allocation = pp_fake_allocation_at((const void *)touch->start);
	if (!allocation || touch->bytes == 0)
		return;
	struct pp_fake_history *history = &allocation->history;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < history->count; i++) {
		const struct pp_fake_access *access = &history->accesses[i];
		if (overlaps(access, touch)) {
			bool ordered = pp_fake_clock_passed(by->clock, access->agent, access->epoch);
			if (!ordered && (access->writes || touch->writes))
				report(by, touch, access);
			bool same = access->agent == by->agent && (touch->writes || !access->writes);
			if (ordered && within(access, touch) && (touch->writes || same))
				continue;
		}
		history->accesses[kept++] = *access;
	}
	history->count = kept;
	remember(history, by, touch);
}

bool pp_fake_races_settled(const struct pp_fake_clock *clock, const void *start, uint64_t bytes, bool only_writes)
{
	const struct pp_fake_allocation *allocation = pp_fake_allocation_at(start);
	if (!allocation)
		return true;
	struct pp_fake_touch touch = {.start = (uintptr_t)start, .bytes = bytes};
	for (uint32_t i = 0; i < allocation->history.count; i++) {
		const struct pp_fake_access *access = &allocation->history.accesses[i];
		if (only_writes && !access->writes)
			continue;
		if (overlaps(access, &touch) && !pp_fake_clock_passed(clock, access->agent, access->epoch))
			return false;
	}
	return true;
}
