/* Parts of collectives. Requires: instructions that pp_transport_supports lets pass. */
#include "collective.h"

#include <inttypes.h>
#include <stdio.h>

struct pp_part pp_part_of(const struct pp_instr *coll, const void *from, void *to, uint32_t position)
{
	struct pp_part part = {
	    .from = from, .to = to, .count = coll->count, .kind = coll->sub, .dtype = coll->dtype, .id = coll->a[0]};
	uint64_t own = pp_payload_bytes(coll) * position;
	if (from == to && coll->sub == PP_ALLGATHER)
		part.from += own;
	if (from == to && coll->sub == PP_REDUCESCATTER)
		part.to += own;
	return part;
}

bool pp_part_equal(const struct pp_part *a, const struct pp_part *b)
{
	return a->count == b->count && a->kind == b->kind && a->dtype == b->dtype;
}

const char *pp_part_text(const struct pp_part *part, char text[PP_PART_TEXT])
{
	snprintf(text, PP_PART_TEXT, "%s of %s*%" PRIu64,
	         part->kind < PP_COLLECTIVE_COUNT ? pp_collective_name[part->kind] : "?",
	         part->dtype < PP_DTYPE_COUNT ? pp_dtype_name[part->dtype] : "?", part->count);
	return text;
}
