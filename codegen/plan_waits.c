/* Delay the waits for sends: a rank need not stop for a transfer until it wants to write over the sent bytes.
 * requires: placed slots; a wait for a send that stands ahead of the first write over its bytes.
 * ensures:  it stands just before that write, or behind the last compute or point-to-point instruction if there is
 * none. All other instructions keep their order, and waits before the same write theirs.
 *
 * The stream is read backwards; for every byte the next write behind the current position is known. Bytes are cut
 * into cells at the borders of slots, and writes, being seen at ever smaller positions, simply replace each other: a
 * tree over the cells holds for each node the newest write that covers it whole and the newest that touches it.
 * O(n log cells). */
#include "plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint32_t pp_waited_slot(const struct pp_program *program, const struct pp_post_slots *posts, uint32_t rank,
                        const struct pp_instr *wait)
{
	const struct pp_channel *channel = &program->channels[wait->a[0]];
	uint64_t at = posts->base[wait->a[0]] + wait->a[1];
	if (at >= posts->base[wait->a[0] + 1] || (channel->source != rank && channel->destination != rank))
		return PP_NULL; /* not a program that verifies */
	return channel->source == rank ? posts->send[at] : posts->recv[at];
}

struct cells {
	uint64_t *borders; /* ascending; cell i is [borders[i], borders[i + 1]) */
	uint32_t count;    /* of cells */
	uint32_t leaves;   /* a power of two */
	uint32_t *covered; /* [2 * leaves]: newest write over all of the node, PP_NULL: none */
	uint32_t *touched; /* [2 * leaves]: newest write over any of it */
};

static int compare_borders(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a < b ? -1 : a > b;
}

static struct cells make_cells(struct pp_arena *scratch, const struct pp_rank *rank)
{
	struct cells cells = {.borders = PP_NEW_ARRAY(scratch, uint64_t, (size_t)2 * rank->slot_count + 1)};
	uint32_t borders = 0, distinct = 0;
	for (uint32_t slot = 0; slot < rank->slot_count; slot++) {
		if (pp_slot_is_static(rank->slots[slot].class))
			continue;
		cells.borders[borders++] = rank->slots[slot].offset;
		cells.borders[borders++] = rank->slots[slot].offset + pp_aligned(rank->slots[slot].bytes);
	}
	qsort(cells.borders, borders, sizeof *cells.borders, compare_borders);
	for (uint32_t i = 0; i < borders; i++)
		if (!distinct || cells.borders[i] != cells.borders[distinct - 1])
			cells.borders[distinct++] = cells.borders[i];
	cells.count = distinct ? distinct - 1 : 0;
	for (cells.leaves = 1; cells.leaves < cells.count;)
		cells.leaves *= 2;
	cells.covered = PP_NEW_ARRAY(scratch, uint32_t, (size_t)2 * cells.leaves);
	cells.touched = PP_NEW_ARRAY(scratch, uint32_t, (size_t)2 * cells.leaves);
	memset(cells.covered, 0xff, (size_t)2 * cells.leaves * sizeof *cells.covered);
	memset(cells.touched, 0xff, (size_t)2 * cells.leaves * sizeof *cells.touched);
	return cells;
}

static uint32_t cell_at(const struct cells *cells, uint64_t border)
{
	uint32_t low = 0, high = cells->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (cells->borders[middle] < border)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct range {
	uint32_t from, to; /* cells [from, to) */
};

static struct range range_of(const struct cells *cells, const struct pp_slot *slot)
{
	return (struct range){cell_at(cells, slot->offset), cell_at(cells, slot->offset + pp_aligned(slot->bytes))};
}

static void touch_parents(struct cells *cells, uint32_t node, uint32_t position)
{
	for (node /= 2; node && cells->touched[node] != position; node /= 2)
		cells->touched[node] = position;
}

static void write_range(struct cells *cells, struct range range, uint32_t position)
{
	uint32_t from = range.from + cells->leaves, to = range.to + cells->leaves;
	for (; from < to; from /= 2, to /= 2) {
		if (from % 2) {
			cells->covered[from] = cells->touched[from] = position;
			touch_parents(cells, from, position);
			from++;
		}
		if (to % 2) {
			to--;
			cells->covered[to] = cells->touched[to] = position;
			touch_parents(cells, to, position);
		}
	}
}

static uint32_t sooner(uint32_t a, uint32_t b)
{
	return a < b ? a : b; /* PP_NULL is the largest */
}

static uint32_t next_write_at(const struct cells *cells, uint32_t node)
{
	uint32_t position = cells->touched[node];
	for (node /= 2; node; node /= 2)
		position = sooner(position, cells->covered[node]);
	return position;
}

/* Position of the next write over any byte of the range, or PP_NULL. */
static uint32_t next_write(const struct cells *cells, struct range range)
{
	uint32_t position = PP_NULL;
	for (uint32_t from = range.from + cells->leaves, to = range.to + cells->leaves; from < to; from /= 2, to /= 2) {
		if (from % 2)
			position = sooner(position, next_write_at(cells, from++));
		if (to % 2)
			position = sooner(position, next_write_at(cells, --to));
	}
	return position;
}

/* Slots that an instruction begins to write, at most two. */
static uint32_t written_slots(const struct pp_instr *instr, uint32_t slots[2])
{
	switch ((enum pp_op)instr->op) {
	case PP_OP_LOAD:
		slots[0] = instr->a[0];
		return 1;
	case PP_OP_FWD:
		slots[0] = instr->a[2];
		slots[1] = instr->a[3];
		return 2;
	case PP_OP_REMAT:
		slots[0] = instr->extra;
		return 1;
	case PP_OP_BWD:
	case PP_OP_BWDI: /* of extra I is the first writer where nothing was recomputed */
		slots[0] = instr->a[3];
		slots[1] = instr->extra;
		return 2;
	case PP_OP_RECV:
		slots[0] = instr->a[2];
		return 1;
	case PP_OP_BWDW:
	case PP_OP_SEND:
	case PP_OP_WAIT:
	case PP_OP_COLL:
	case PP_OP_WAITC:
	case PP_OP_ZERO:
	case PP_OP_ADD:
	case PP_OP_SQNORM:
	case PP_OP_CLIP:
	case PP_OP_OPT:
	case PP_OP_MARK:
	case PP_OP_COUNT:
		break;
	}
	return 0;
}

static uint32_t end_of_step(const struct pp_stream *stream)
{
	uint32_t end = stream->count;
	while (end && stream->items[end - 1].op > PP_OP_WAIT)
		end--;
	return end;
}

void pp_plan_waits(struct pp_arena *scratch, const struct pp_program *program, const struct pp_post_slots *posts,
                   uint32_t rank, struct pp_stream *stream)
{
	const struct pp_slot *slots = program->rank[rank].slots;
	struct cells cells = make_cells(scratch, &program->rank[rank]);
	struct range *ranges = PP_NEW_ARRAY(scratch, struct range, program->rank[rank].slot_count);
	for (uint32_t slot = 0; slot < program->rank[rank].slot_count; slot++)
		ranges[slot] = range_of(&cells, &slots[slot]);
	/* Waits that go before each position: a list through `next`, in stream order since it grows at its head. */
	uint32_t *first = PP_NEW_ARRAY(scratch, uint32_t, (size_t)stream->count + 1);
	uint32_t *next = PP_NEW_ARRAY(scratch, uint32_t, stream->count);
	memset(first, 0xff, ((size_t)stream->count + 1) * sizeof *first);
	uint32_t end = end_of_step(stream);
	for (uint32_t at = stream->count; at-- > 0;) {
		const struct pp_instr *instr = &stream->items[at];
		uint32_t written[2], count = written_slots(instr, written);
		for (uint32_t i = 0; i < count; i++)
			if (written[i] != PP_NULL)
				write_range(&cells, ranges[written[i]], at);
		if (!pp_waits_for_send(program, rank, instr))
			continue;
		uint32_t slot = pp_waited_slot(program, posts, rank, instr);
		uint32_t target = slot == PP_NULL ? at : next_write(&cells, ranges[slot]);
		target = target == PP_NULL ? end : target;
		next[at] = first[target];
		first[target] = at;
	}
	struct pp_instr *items = PP_NEW_ARRAY(scratch, struct pp_instr, stream->count);
	uint32_t *order = PP_NEW_ARRAY(scratch, uint32_t, stream->count);
	uint32_t count = 0;
	for (uint32_t at = 0; at <= stream->count; at++) {
		for (uint32_t wait = first[at]; wait != PP_NULL; wait = next[wait]) {
			order[count] = PP_NULL;
			items[count++] = stream->items[wait];
		}
		if (at == stream->count || pp_waits_for_send(program, rank, &stream->items[at]))
			continue;
		order[count] = stream->order ? stream->order[at] : PP_NULL;
		items[count++] = stream->items[at];
	}
	assert(count == stream->count);
	memcpy(stream->items, items, count * sizeof *items);
	if (stream->order)
		memcpy(stream->order, order, count * sizeof *order);
}
