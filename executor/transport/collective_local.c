/* Collectives through shared memory: in every turn each member lays down a piece of what it gives, and once all have,
 * takes what it needs. Two pieces per member, so that the next turn can be filled while others still take.
 *
 * Requires: one process per member. Ensures: sums in member order; an element is written only after all members' have
 * been laid down, so `to` may be `from` or lie in it. */
#include "channel_local.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Exchanges of all ranks are made of bytes; pp_dtype_size has no such thing. */
static uint64_t element_bytes(const struct pp_part *part)
{
	return part->dtype < PP_DTYPE_COUNT ? pp_dtype_size[part->dtype] : 1;
}

/* Elements that a member gives. */
static uint64_t given(const struct pp_local_line *line, const struct pp_part *part)
{
	return part->kind == PP_REDUCESCATTER ? part->count * line->team->count : part->count;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Have all members come further than this turn? */
static bool all_filled(const struct pp_local_team *team, uint64_t turn)
{
	for (uint32_t i = 0; i < team->count; i++)
		if (atomic_load_explicit(&team->members[i].filled, memory_order_acquire) <= turn)
			return false;
	return true;
}

/* Nobody needs the piece that lay where this turn's goes. */
static bool is_vacant(const struct pp_local_team *team, uint64_t turn)
{
	for (uint32_t i = 0; turn >= 2 && i < team->count; i++)
		if (atomic_load_explicit(&team->members[i].taken, memory_order_acquire) < turn - 1)
			return false;
	return true;
}

static bool fill(struct pp_local_line *line, const struct pp_part *part, uint64_t at, uint64_t elements)
{
	const struct pp_local_team *team = line->team;
	struct pp_local_member *own = &team->members[line->position];
	if (!is_vacant(team, line->turn))
		return false;
	uint64_t size = element_bytes(part);
	if (elements)
		memcpy(pp_local_piece(team, line->position, line->turn), part->from + at * size, elements * size);
	own->claims[line->turn % 2] =
	    (struct pp_local_claim){.number = line->done, .count = part->count, .kind = part->kind, .dtype = part->dtype};
	atomic_store_explicit(&own->filled, line->turn + 1, memory_order_release);
	return true;
}

static bool congruent(const struct pp_local_line *line, char *why, size_t size)
{
	const struct pp_local_claim *first = &line->team->members[0].claims[line->turn % 2];
	for (uint32_t i = 1; i < line->team->count; i++) {
		const struct pp_local_claim *other = &line->team->members[i].claims[line->turn % 2];
		char texts[2][PP_PART_TEXT];
		if (other->number == first->number && other->count == first->count && other->kind == first->kind &&
		    other->dtype == first->dtype)
			continue;
		const struct pp_part parts[] = {
		    {.count = first->count, .kind = (uint8_t)first->kind, .dtype = (uint8_t)first->dtype},
		    {.count = other->count, .kind = (uint8_t)other->kind, .dtype = (uint8_t)other->dtype}};
		snprintf(why, size, "disagree: member 0 posts %s, member %" PRIu32 " %s", pp_part_text(&parts[0], texts[0]), i,
		         pp_part_text(&parts[1], texts[1]));
		return false;
	}
	return true;
}

/* The laid down pieces of a turn, from a byte on. */
struct laid {
	const struct pp_local_line *line;
	uint64_t offset;
};

static const void *laid_by(const void *context, uint32_t member)
{
	const struct laid *laid = context;
	return pp_local_piece(laid->line->team, member, laid->line->turn) + laid->offset;
}

/* Elements first … end of this piece, whose first is the `at`-th given, summed. */
static void sum(const struct pp_local_line *line, const struct pp_part *part, uint64_t at, uint64_t first, uint64_t end,
                unsigned char *to)
{
	const struct laid laid = {line, (first - at) * element_bytes(part)};
	pp_transport_sum((enum pp_dtype)part->dtype, to, laid_by, &laid, line->team->count, (size_t)(end - first));
}

static void collect(const struct pp_local_line *line, const struct pp_part *part, uint64_t at, uint64_t elements)
{
	uint64_t size = element_bytes(part);
	switch ((enum pp_collective)part->kind) {
	case PP_ALLREDUCE:
		if (elements)
			sum(line, part, at, at, at + elements, part->to + at * size);
		return;
	case PP_REDUCESCATTER: {
		uint64_t own = line->position * part->count;
		uint64_t first = at > own ? at : own, end = least(at + elements, own + part->count);
		if (first < end)
			sum(line, part, at, first, end, part->to + (first - own) * size);
		return;
	}
	case PP_ALLGATHER:
		for (uint32_t i = 0; elements && i < line->team->count; i++)
			memcpy(part->to + (i * part->count + at) * size, pp_local_piece(line->team, i, line->turn),
			       elements * size);
		return;
	case PP_COLLECTIVE_COUNT:
		break;
	}
}

uint64_t pp_local_line_post(struct pp_local_line *line, const struct pp_part *part)
{
	line->posts[line->posted % line->capacity] = *part;
	return line->posted++;
}

bool pp_local_line_move(struct pp_local_line *line, char *why, size_t size)
{
	while (line->done < line->posted) {
		const struct pp_part *part = &line->posts[line->done % line->capacity];
		uint64_t each = line->team->piece / element_bytes(part), at = line->piece * each;
		uint64_t elements = least(given(line, part) - at, each);
		line->filled = line->filled || fill(line, part, at, elements);
		if (!line->filled || !all_filled(line->team, line->turn))
			return true;
		if (!congruent(line, why, size))
			return false;
		collect(line, part, at, elements);
		line->filled = false;
		line->turn++;
		atomic_store_explicit(&line->team->members[line->position].taken, line->turn, memory_order_release);
		line->piece = at + elements < given(line, part) ? line->piece + 1 : 0;
		line->done += line->piece == 0;
	}
	return true;
}
