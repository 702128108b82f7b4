/* crossings.h. O(stages log stages). */
#include "crossings.h"

#include <stdlib.h>

static int compare_crossings(const void *left, const void *right)
{
	const struct pp_crossing *a = left, *b = right;
	if (a->source != b->source)
		return a->source < b->source ? -1 : 1;
	if (a->destination != b->destination)
		return a->destination < b->destination ? -1 : 1;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return a->border < b->border ? -1 : a->border > b->border;
}

uint32_t pp_crossings_find(struct pp_arena *arena, const uint32_t *stage_rank, uint32_t stages,
                           struct pp_crossing **crossings)
{
	struct pp_crossing *found = PP_NEW_ARRAY(arena, struct pp_crossing, (size_t)2 * stages);
	uint32_t count = 0;
	for (uint32_t s = 0; s + 1 < stages; s++) {
		uint32_t a = stage_rank[s], b = stage_rank[s + 1];
		if (a == b)
			continue;
		found[count++] = (struct pp_crossing){.source = a, .destination = b, .kind = PP_ACT, .border = s};
		found[count++] = (struct pp_crossing){.source = b, .destination = a, .kind = PP_GRAD, .border = s};
	}
	if (count)
		qsort(found, count, sizeof *found, compare_crossings);
	*crossings = found;
	return count;
}
