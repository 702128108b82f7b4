/* V9 and the bytes of V5: which slots share bytes, which bytes are live, and whether the plan fits the device.
 *
 * pp_live: requires nothing; ensures live slots are pairwise disjoint, in O(log64 slots) per change.
 * pp_verify_memory: requires nothing; ensures placed slots lie aligned inside the arena, slots of static classes are as
 * long as they must be and overlap nothing, scratch suffices, and the arena fits capacity - reserve. */
#include "state.h"

#include "ir/figures.h"
#include "ir/scratch.h"
#include "ir/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots by offset ------------------------------------------------------------------------- */

struct placed {
	uint64_t offset, end;
	uint32_t slot;
};

static int by_offset(const void *left, const void *right)
{
	const struct placed *a = left, *b = right;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a->slot < b->slot ? -1 : a->slot > b->slot;
}

/* Placed slots with bytes, ascending by offset; those whose end overflows end at UINT64_MAX. */
static struct placed *placed_slots(struct pp_arena *arena, const struct pp_rank *rank, bool dynamic_only,
                                   uint32_t *count)
{
	struct placed *list = PP_NEW_ARRAY(arena, struct placed, rank->slot_count);
	*count = 0;
	for (uint32_t i = 0; i < rank->slot_count; i++) {
		const struct pp_slot *slot = &rank->slots[i];
		if (!slot->placed || slot->bytes == 0 || (dynamic_only && pp_slot_is_static(slot->class)))
			continue;
		struct placed *item = &list[(*count)++];
		*item = (struct placed){.offset = slot->offset, .slot = i};
		if (__builtin_add_overflow(slot->offset, slot->bytes, &item->end))
			item->end = UINT64_MAX;
	}
	if (*count)
		qsort(list, *count, sizeof *list, by_offset);
	return list;
}

/* ---- live bytes ------------------------------------------------------------------------------ */

struct pp_live pp_live_begin(struct pp_arena *arena, const struct pp_rank *rank)
{
	struct pp_live live = {.rank = rank, .place = PP_NEW_ARRAY(arena, uint32_t, rank->slot_count)};
	uint32_t count;
	struct placed *list = placed_slots(arena, rank, true, &count);
	live.slot = PP_NEW_ARRAY(arena, uint32_t, count);
	memset(live.place, 0xff, (size_t)rank->slot_count * sizeof *live.place);
	uint64_t end = 0;
	for (uint32_t i = 0; i < count; i++) {
		live.slot[i] = list[i].slot;
		live.place[list[i].slot] = i;
		live.shared |= list[i].offset < end;
		if (list[i].end > end)
			end = list[i].end;
	}
	for (uint32_t size = count, words = 2; live.shared && words > 1; size = words) {
		words = (size + 63) / 64;
		live.level[live.levels++].words = PP_NEW_ARRAY(arena, uint64_t, words);
	}
	return live;
}

/* The nearest live position below `at`, or PP_NULL. */
static uint32_t live_before(const struct pp_live *live, uint32_t at)
{
	for (uint32_t level = 0; level < live->levels; level++) {
		uint32_t word = at >> 6, bit = at & 63;
		uint64_t below = bit ? live->level[level].words[word] & (~(uint64_t)0 >> (64 - bit)) : 0;
		if (!below) {
			at = word;
			continue;
		}
		at = word * 64 + 63 - (uint32_t)__builtin_clzll(below);
		while (level-- > 0)
			at = at * 64 + 63 - (uint32_t)__builtin_clzll(live->level[level].words[at]);
		return at;
	}
	return PP_NULL;
}

/* The nearest live position above `at`, or PP_NULL. */
static uint32_t live_after(const struct pp_live *live, uint32_t at)
{
	for (uint32_t level = 0; level < live->levels; level++) {
		uint32_t word = at >> 6, bit = at & 63;
		uint64_t above = bit < 63 ? live->level[level].words[word] & (~(uint64_t)0 << (bit + 1)) : 0;
		if (!above) {
			at = word;
			continue;
		}
		at = word * 64 + (uint32_t)__builtin_ctzll(above);
		while (level-- > 0)
			at = at * 64 + (uint32_t)__builtin_ctzll(live->level[level].words[at]);
		return at;
	}
	return PP_NULL;
}

static uint64_t slot_end(const struct pp_slot *slot)
{
	uint64_t end;
	return __builtin_add_overflow(slot->offset, slot->bytes, &end) ? UINT64_MAX : end;
}

uint32_t pp_live_add(struct pp_live *live, uint32_t slot)
{
	const struct pp_slot *slots = live->rank->slots, *new = &slots[slot];
	uint32_t at = live->place[slot];
	if (live->shared && at != PP_NULL) {
		uint32_t before = live_before(live, at), after = live_after(live, at);
		if (before != PP_NULL && slot_end(&slots[live->slot[before]]) > new->offset)
			return live->slot[before];
		if (after != PP_NULL && slots[live->slot[after]].offset < slot_end(new))
			return live->slot[after];
		for (uint32_t level = 0; level < live->levels; level++, at >>= 6)
			live->level[level].words[at >> 6] |= (uint64_t)1 << (at & 63);
	}
	live->bytes += new->bytes;
	live->by_class[new->class] += new->bytes;
	return PP_NULL;
}

void pp_live_remove(struct pp_live *live, uint32_t slot)
{
	const struct pp_slot *old = &live->rank->slots[slot];
	uint32_t at = live->place[slot];
	live->bytes -= old->bytes;
	live->by_class[old->class] -= old->bytes;
	if (!live->shared || at == PP_NULL)
		return;
	for (uint32_t level = 0; level < live->levels; level++, at >>= 6) {
		live->level[level].words[at >> 6] &= ~((uint64_t)1 << (at & 63));
		if (live->level[level].words[at >> 6])
			return;
	}
}

/* ---- the plan -------------------------------------------------------------------------------- */

static const char *slot_name(struct pp_arena *arena, const struct pp_rank *rank, uint32_t slot)
{
	return pp_arena_printf(arena, "%s.%" PRIu32, pp_slot_class_name[rank->slots[slot].class], slot);
}

static bool slots_inside(const struct pp_program *program, uint32_t r, struct pp_arena *scratch, struct pp_diag *diag)
{
	const struct pp_rank *rank = &program->rank[r];
	uint64_t last_end = 0;
	bool all_placed = true;
	for (uint32_t i = 0; i < rank->slot_count; i++) {
		const struct pp_slot *slot = &rank->slots[i];
		all_placed &= slot->placed;
		if (!slot->placed)
			continue;
		if (slot_end(slot) + !slot->bytes > last_end) /* an empty slot may have a place of its own too */
			last_end = slot_end(slot) + !slot->bytes;
		if (slot->offset % PP_ALIGN) {
			pp_error(diag, "V5", PP_NO_SPAN, "rank %" PRIu32 ": offset %" PRIu64 " of %s is not a multiple of %d", r,
			         slot->offset, slot_name(scratch, rank, i), PP_ALIGN);
			return false;
		}
		if (slot_end(slot) > rank->arena_bytes) {
			pp_error(diag, "V5", PP_NO_SPAN,
			         "rank %" PRIu32 ": %s ends at byte %" PRIu64 ", the arena has %" PRIu64 " bytes", r,
			         slot_name(scratch, rank, i), slot_end(slot), rank->arena_bytes);
			return false;
		}
	}
	if (!all_placed || rank->arena_bytes - last_end < PP_ALIGN)
		return true;
	pp_error(diag, "V9", PP_NO_SPAN,
	         "rank %" PRIu32 ": the arena has %" PRIu64 " bytes, but its slots end at byte %" PRIu64, r,
	         rank->arena_bytes, last_end);
	return false;
}

/* A sweep by offset: a static slot meets nothing, a dynamic one no static one. */
static bool static_alone(const struct pp_program *program, uint32_t r, struct pp_arena *scratch, struct pp_diag *diag)
{
	const struct pp_rank *rank = &program->rank[r];
	uint32_t count, last_any = PP_NULL, last_static = PP_NULL;
	struct placed *list = placed_slots(scratch, rank, false, &count);
	uint64_t end_any = 0, end_static = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct placed *item = &list[i];
		bool fixed = pp_slot_is_static(rank->slots[item->slot].class);
		uint32_t other = fixed ? last_any : last_static;
		if (item->offset < (fixed ? end_any : end_static)) {
			pp_error(diag, "V5", PP_NO_SPAN,
			         "rank %" PRIu32 ": %s (bytes %" PRIu64 "..%" PRIu64 ") shares bytes with %s (bytes %" PRIu64
			         "..%" PRIu64 "), which is live for the whole run",
			         r, slot_name(scratch, rank, fixed ? other : item->slot),
			         rank->slots[fixed ? other : item->slot].offset, slot_end(&rank->slots[fixed ? other : item->slot]),
			         slot_name(scratch, rank, fixed ? item->slot : other),
			         rank->slots[fixed ? item->slot : other].offset,
			         slot_end(&rank->slots[fixed ? item->slot : other]));
			return false;
		}
		if (item->end > end_any) {
			end_any = item->end;
			last_any = item->slot;
		}
		if (fixed && item->end > end_static) {
			end_static = item->end;
			last_static = item->slot;
		}
	}
	return true;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* What the arena holds, largest first: "weights 5.2 GiB, grads 10.4 GiB, activations and boundary values 64.1 GiB". */
static const char *contents(struct pp_arena *arena, const struct pp_rank *rank)
{
	enum { WEIGHTS, GRADS, MOMENTS, MASTERS, WORKSPACE, OTHER, ACTIVATIONS, PARTS };
	static const char *const name[PARTS] = {
	    "weights", "grads", "moments", "master weights", "workspace", "scalars", "activations and messages"};
	static const uint8_t part_of[PP_SLOT_CLASS_COUNT] = {
	    [PP_SLOT_WEIGHT] = WEIGHTS, [PP_SLOT_GRAD] = GRADS,     [PP_SLOT_MOMENT] = MOMENTS,
	    [PP_SLOT_MASTER] = MASTERS, [PP_SLOT_LOSSES] = OTHER,   [PP_SLOT_NORMS] = OTHER,
	    [PP_SLOT_SCALE] = OTHER,    [PP_SLOT_WORK] = WORKSPACE, [PP_SLOT_SCRATCH] = WORKSPACE};
	uint64_t part[PARTS] = {0};
	uint64_t fixed = 0;
	for (uint32_t i = 0; i < rank->slot_count; i++) {
		const struct pp_slot *slot = &rank->slots[i];
		if (!slot->placed || !pp_slot_is_static(slot->class))
			continue;
		part[part_of[slot->class]] += slot->bytes;
		fixed += slot->bytes;
	}
	part[ACTIVATIONS] = rank->arena_bytes > fixed ? rank->arena_bytes - fixed : 0;
	const char *text = "";
	for (int printed = 0; printed < PARTS; printed++) {
		int largest = 0;
		for (int i = 1; i < PARTS; i++)
			if (part[i] > part[largest])
				largest = i;
		if (!part[largest])
			break;
		text = pp_arena_printf(arena, "%s%s%s %s", text, *text ? ", " : "", name[largest],
		                       pp_show_bytes(arena, part[largest]));
		part[largest] = 0;
	}
	return text;
}

/* Most forwards of the first program whose backward is still to come, and the instruction that makes it so many. */
static uint32_t most_stashes(const struct pp_program *program, uint32_t r, uint32_t *at)
{
	uint32_t now = 0, most = 0;
	const struct pp_stream *stream = &program->programs[0].streams[r];
	for (uint32_t i = 0; i < stream->count; i++) {
		uint8_t op = stream->items[i].op;
		if (op == PP_OP_FWD && ++now > most) {
			most = now;
			*at = i;
		} else if ((op == PP_OP_BWD || op == PP_OP_BWDW) && now > 0) {
			now--;
		}
	}
	return most;
}

static bool fits(const struct pp_program *program, uint32_t r, struct pp_arena *scratch, struct pp_diag *diag)
{
	const struct pp_rank *rank = &program->rank[r];
	uint64_t usable = rank->capacity > rank->reserve ? rank->capacity - rank->reserve : 0;
	if (!rank->capacity || rank->arena_bytes <= usable)
		return true;
	struct pp_message *message = pp_error(diag, "V9", PP_NO_SPAN, "rank %" PRIu32 " needs %s of %s (%s over)", r,
	                                      pp_show_bytes_beside(scratch, rank->arena_bytes, usable),
	                                      pp_show_bytes_beside(scratch, usable, rank->arena_bytes),
	                                      pp_show_bytes(scratch, rank->arena_bytes - usable));
	uint32_t at = 0, most = program->program_count ? most_stashes(program, r, &at) : 0;
	pp_note(message, "%s", contents(scratch, rank));
	if (most)
		pp_note(message, "at most %" PRIu32 " stashes at once, from instruction %" PRIu32 " on", most, at);
	if (rank->reserve)
		pp_note(message, "the device has %s, of which %s are reserved", pp_show_bytes(scratch, rank->capacity),
		        pp_show_bytes(scratch, rank->reserve));
	pp_help(message,
	        "use more stages or tensor parallelism, a smaller microbatch, or a schedule with fewer stashes at once");
	return false;
}

/* A scratch slot is not named by instructions: whoever calls kernels trusts its length. */
static bool scratch_fits(const struct pp_program *program, uint32_t r, struct pp_diag *diag)
{
	const struct pp_rank *rank = &program->rank[r];
	for (uint32_t i = 0; i < rank->slot_count; i++) {
		uint64_t wanted = rank->slots[i].class == PP_SLOT_SCRATCH ? pp_scratch_rank_bytes(program, r) : 0;
		if (rank->slots[i].bytes >= wanted)
			continue;
		struct pp_message *message = pp_error(diag, "V9", PP_NO_SPAN,
		                                      "rank %" PRIu32 ": scratch.%" PRIu32 " has %" PRIu64
		                                      " bytes, the kernels of its bodies need %" PRIu64,
		                                      r, i, rank->slots[i].bytes, wanted);
		pp_help(message, "make it longer, or leave the slot out: a device then keeps its own beside the arena");
		return false;
	}
	return true;
}

bool pp_verify_memory(const struct pp_program *program, struct pp_diag *diag)
{
	bool good = true;
	for (uint32_t r = 0; r < program->ranks; r++) {
		struct pp_arena *scratch = pp_arena_scratch(program->arena);
		good &= pp_static_slots_fit(program, r, diag) && slots_inside(program, r, scratch, diag) &&
		        static_alone(program, r, scratch, diag) && scratch_fits(program, r, diag) &&
		        fits(program, r, scratch, diag);
		pp_arena_destroy(scratch);
	}
	return good;
}
