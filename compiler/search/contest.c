/* The list of the best orders. */
#include "contest.h"

#include "compiler/deadline.h"

#include <string.h>

struct pp_contest *pp_contest_make(struct pp_arena *arena, const struct pp_packed *packed)
{
	struct pp_contest *contest = PP_NEW(arena, struct pp_contest);
	contest->arena = arena;
	contest->packed = packed;
	contest->order = PP_NEW_ARRAY(arena, uint32_t, packed->actions);
	contest->times = pp_packed_times_make(arena, packed);
	return contest;
}

static bool precedes(uint64_t value, uint64_t total, const struct pp_entry *entry)
{
	return value < entry->value || (value == entry->value && total < entry->total);
}

bool pp_contest_enter(struct pp_contest *contest, const char *name)
{
	const struct pp_packed *packed = contest->packed;
	if (!pp_packed_fits(packed, contest->order) || !pp_packed_run(packed, contest->order, contest->times))
		return false;
	uint64_t value = contest->times->value, total = contest->times->total;
	uint32_t at = contest->count;
	while (at > 0 && precedes(value, total, &contest->best[at - 1]))
		at--;
	/* The same figures are most likely the same order again. */
	bool known = at > 0 && contest->best[at - 1].value == value && contest->best[at - 1].total == total;
	if (known || at == PP_CONTEST_MOST)
		return true;
	uint32_t *order = contest->count < PP_CONTEST_MOST ? PP_NEW_ARRAY(contest->arena, uint32_t, packed->actions)
	                                                   : contest->best[PP_CONTEST_MOST - 1].order;
	contest->count += contest->count < PP_CONTEST_MOST;
	memmove(&contest->best[at + 1], &contest->best[at], (contest->count - 1 - at) * sizeof *contest->best);
	memcpy(order, contest->order, packed->actions * sizeof *order);
	contest->best[at] = (struct pp_entry){order, value, total, name};
	return true;
}

bool pp_contest_over(struct pp_contest *contest)
{
	if (contest->count && contest->best[0].value <= contest->bound)
		return true;
	if (contest->most && *contest->packed->effort >= contest->most)
		return true;
	contest->late = contest->late || pp_is_late(contest->deadline);
	return contest->late;
}
