/* The canary of a rank. It works on words of 4 bytes and looks at the arena through a window of host memory, since a
 * device's memory may be elsewhere.
 *
 * Requires: a verified program, so that operands lie in their slots; a device with guard zones.
 * Ensures: weights and optimizer state keep their values; nothing runs between the steps' instructions. */
#include "canary.h"

#include "device_share.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint32_t), LISTED = 8, WINDOW = 1 << 18 /* words */ };

struct pp_canary {
	const struct pp_program *program;
	uint32_t world; /* rank */
	const struct pp_rank *rank;
	const struct pp_interp *interp;
	uint64_t words;   /* of the arena */
	uint32_t *window; /* words from `first` on, `seen` of them */
	uint64_t first, seen;
	struct pp_status lost;      /* code PP_EXIT_OK, or why the arena could not be read */
	unsigned char *contents;    /* bit per word: an instruction or body names it */
	unsigned char *initialised; /* bit per word: written before the first step */
};

/* A quiet NaN as f32, as both halves of bf16 and as the upper half of an f64, an id far outside every vocabulary;
 * unlike its neighbours. */
static uint32_t pattern(uint64_t word)
{
	return UINT32_C(0x7fff7f81) + (uint32_t)(word * UINT64_C(37) % 126);
}

static bool bit_at(const unsigned char *bits, uint64_t word)
{
	return bits[word / 8] >> word % 8 & 1;
}

/* Where a word lies for the device: behind the first guard zone. */
static uint64_t place_of(uint64_t word)
{
	return PP_CANARY_GUARD + word * WORD;
}

static void slide_to(struct pp_canary *canary, uint64_t word)
{
	canary->first = word;
	canary->seen = canary->words - word < WINDOW ? canary->words - word : WINDOW;
	if (canary->lost.code == PP_EXIT_OK &&
	    pp_interp_read(canary->interp, PP_NULL, place_of(word), canary->seen * WORD, canary->window, &canary->lost))
		return;
	canary->lost.code = PP_EXIT_RUN;
	memset(canary->window, 0, canary->seen * WORD);
}

/* A step may have written since. */
static void look_anew(struct pp_canary *canary)
{
	canary->seen = 0;
}

static uint32_t value_of(struct pp_canary *canary, uint64_t word)
{
	if (word < canary->first || word - canary->first >= canary->seen)
		slide_to(canary, word);
	return canary->window[word - canary->first];
}

static bool holds_pattern(struct pp_canary *canary, uint64_t word)
{
	return value_of(canary, word) == pattern(word);
}

/* ---- what the program names ------------------------------------------------------------------ */

static void mark_range(unsigned char *bits, uint64_t offset, uint64_t bytes)
{
	uint64_t word = offset / WORD, end = (offset + bytes + WORD - 1) / WORD;
	for (; word < end && word % 8; word++)
		bits[word / 8] |= (unsigned char)(1u << word % 8);
	if (end > word) {
		memset(bits + word / 8, 0xff, (end - word) / 8);
		word += (end - word) / 8 * 8;
	}
	for (; word < end; word++)
		bits[word / 8] |= (unsigned char)(1u << word % 8);
}

static void mark_slot(struct pp_canary *canary, uint32_t slot, uint64_t offset, uint64_t bytes)
{
	if (slot != PP_NULL)
		mark_range(canary->contents, canary->rank->slots[slot].offset + offset, bytes);
}

/* The registers of a body that lie in operands of the call or in the workspace. */
static void mark_call(struct pp_canary *canary, const struct pp_instr *instr, enum pp_phase phase, uint32_t work)
{
	uint32_t index = canary->program->stages[instr->stage].body[phase];
	if (index == PP_NULL)
		return;
	const struct pp_body *body = &canary->program->bodies[index];
	uint32_t slots[PP_BASE_COUNT];
	for (unsigned base = 0; base < PP_BASE_COUNT; base++)
		slots[base] = PP_NULL;
	if (phase == PP_PHASE_F) {
		slots[PP_BASE_IN] = instr->a[0];
		slots[PP_BASE_AUX] = instr->a[1];
		slots[PP_BASE_OUT] = instr->a[2];
		slots[PP_BASE_STASH] = instr->a[3];
	} else if (phase == PP_PHASE_R) {
		slots[PP_BASE_STASH] = instr->a[0];
		slots[PP_BASE_EXTRA] = instr->extra;
	} else {
		slots[PP_BASE_AUX] = instr->a[0];
		slots[PP_BASE_STASH] = instr->a[1];
		slots[PP_BASE_EXTRA] = instr->extra;
		slots[PP_BASE_DOUT] = phase == PP_PHASE_W ? PP_NULL : instr->a[2];
		slots[PP_BASE_DIN] = phase == PP_PHASE_W ? PP_NULL : instr->a[3];
	}
	slots[PP_BASE_WORK] = work;
	for (uint32_t i = 0; i < body->reg_count; i++) {
		const struct pp_reg *reg = &body->regs[i];
		mark_slot(canary, slots[reg->base], reg->offset,
		          (uint64_t)reg->rows * reg->columns * pp_dtype_size[reg->dtype]);
	}
}

static void mark_stream(struct pp_canary *canary, const struct pp_stream *stream, uint32_t work)
{
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		switch ((enum pp_op)instr->op) {
		case PP_OP_LOAD:
			mark_slot(canary, instr->a[0], 0, pp_load_bytes(canary->program, instr));
			break;
		case PP_OP_FWD:
			mark_call(canary, instr, PP_PHASE_F, work);
			break;
		case PP_OP_REMAT:
			mark_call(canary, instr, PP_PHASE_R, work);
			break;
		case PP_OP_BWD:
			mark_call(canary, instr, PP_PHASE_B, work);
			break;
		case PP_OP_BWDI:
			mark_call(canary, instr, PP_PHASE_I, work);
			break;
		case PP_OP_BWDW:
			mark_call(canary, instr, PP_PHASE_W, work);
			break;
		case PP_OP_SEND:
		case PP_OP_RECV:
			mark_slot(canary, instr->a[2], 0, pp_payload_bytes(instr));
			break;
		case PP_OP_WAIT:
		case PP_OP_COLL: /* of static slots, as the step tail: see mark_static */
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
	}
}

/* Static slots are exactly as long as what they hold, except for the workspace and for scratch, which kernels of a GPU
 * use as they need it and the CPU not at all. Returns the workspace's slot. */
static uint32_t mark_static(struct pp_canary *canary)
{
	uint32_t work = PP_NULL;
	for (uint32_t i = 0; i < canary->rank->slot_count; i++) {
		const struct pp_slot *slot = &canary->rank->slots[i];
		if (slot->class == PP_SLOT_WORK)
			work = i;
		else if (slot->class != PP_SLOT_SCRATCH && pp_slot_is_static((enum pp_slot_class)slot->class))
			mark_range(canary->contents, slot->offset, slot->bytes);
		if (slot->class == PP_SLOT_SCRATCH && canary->interp->device_ops->own_memory) {
			mark_range(canary->contents, slot->offset, slot->bytes);
			mark_range(canary->initialised, slot->offset, slot->bytes);
		}
		if (slot->class == PP_SLOT_WEIGHT || slot->class == PP_SLOT_MOMENT || slot->class == PP_SLOT_MASTER)
			mark_range(canary->initialised, slot->offset, slot->bytes);
	}
	return work;
}

/* ---- filling and checking -------------------------------------------------------------------- */

/* Byte `index` of guard zone `zone`: before, after the arena. */
static unsigned char guard_byte(unsigned zone, uint64_t index)
{
	return (unsigned char)(0x5a + 37 * index + 101 * zone);
}

static void fill_guard(unsigned char *guard, unsigned zone)
{
	for (uint64_t i = 0; i < PP_CANARY_GUARD; i++)
		guard[i] = guard_byte(zone, i);
}

/* Where the device sees guard zone `zone`. */
static uint64_t place_of_guard(const struct pp_canary *canary, unsigned zone)
{
	return zone ? PP_CANARY_GUARD + canary->rank->arena_bytes : 0;
}

static bool fill(struct pp_canary *canary, struct pp_status *status)
{
	unsigned char guard[PP_CANARY_GUARD];
	for (unsigned zone = 0; zone < 2; zone++) {
		fill_guard(guard, zone);
		if (!pp_interp_write(canary->interp, PP_NULL, place_of_guard(canary, zone), sizeof guard, guard, status))
			return false;
	}
	for (uint64_t word = 0; word < canary->words; word += canary->seen) {
		slide_to(canary, word);
		for (uint64_t i = 0; i < canary->seen; i++)
			if (!bit_at(canary->initialised, word + i))
				canary->window[i] = pattern(word + i);
		if (!pp_interp_write(canary->interp, PP_NULL, place_of(word), canary->seen * WORD, canary->window, status))
			return false;
	}
	return true;
}

struct pp_canary *pp_canary_open(const struct pp_interp *interp, struct pp_status *status)
{
	const struct pp_rank *rank = &interp->program->rank[interp->coord.pp];
	struct pp_canary *canary = calloc(1, sizeof *canary);
	uint64_t bytes = rank->arena_bytes / WORD / 8 + 2; /* the last word may be one that only begins in the arena */
	if (canary) {
		*canary =
		    (struct pp_canary){.program = interp->program, .world = interp->world, .rank = rank, .interp = interp};
		canary->words = rank->arena_bytes / WORD;
		canary->contents = calloc(bytes, 1);
		canary->initialised = calloc(bytes, 1);
		canary->window = calloc(WINDOW, WORD);
	}
	if (!canary || !canary->contents || !canary->initialised || !canary->window) {
		pp_canary_close(canary);
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the canary of rank %" PRIu32, interp->world);
		return NULL;
	}
	if (rank->slot_count == 0) /* no arena to speak of */
		return canary;
	uint32_t work = mark_static(canary);
	for (uint32_t i = 0; i < interp->program->program_count; i++)
		mark_stream(canary, &interp->program->programs[i].streams[interp->coord.pp], work);
	if (fill(canary, status))
		return canary;
	pp_canary_close(canary);
	return NULL;
}

void pp_canary_close(struct pp_canary *canary)
{
	if (!canary)
		return;
	free(canary->contents);
	free(canary->initialised);
	free(canary->window);
	free(canary);
}

/* Bytes between an offset and a slot, 0: inside. */
static uint64_t distance(const struct pp_slot *slot, int64_t offset)
{
	int64_t begin = (int64_t)slot->offset, end = begin + (int64_t)slot->bytes;
	return (uint64_t)(offset < begin ? begin - offset : offset >= end ? offset - end + 1 : 0);
}

static bool fail_at(const struct pp_canary *canary, int64_t offset, uint64_t step, struct pp_status *status)
{
	uint32_t nearest = 0;
	const struct pp_slot *slots = canary->rank->slots;
	for (uint32_t i = 1; i < canary->rank->slot_count; i++)
		if (distance(&slots[i], offset) < distance(&slots[nearest], offset))
			nearest = i;
	char name[PP_GRID_NAME];
	const char *where = offset < 0                                      ? "before the arena"
	                    : (uint64_t)offset >= canary->rank->arena_bytes ? "after the arena"
	                    : distance(&slots[nearest], offset) == 0        ? "between the contents of a slot"
	                                                                    : "between slots";
	return pp_fail(status, PP_EXIT_RUN,
	               "canary of %s: step %" PRIu64 " wrote to offset %" PRId64 ", %s; nearest is %s.%" PRIu32
	               " at %" PRIu64 " with %" PRIu64 " bytes",
	               pp_grid_name(canary->program, canary->world, name), step, offset, where,
	               pp_slot_class_name[slots[nearest].class], nearest, slots[nearest].offset, slots[nearest].bytes);
}

/* The offset of the first byte of a word that no longer holds its pattern. */
static int64_t first_changed(struct pp_canary *canary, uint64_t word)
{
	uint32_t found = value_of(canary, word), value = pattern(word);
	unsigned char bytes[WORD], expected[WORD];
	memcpy(bytes, &found, sizeof bytes);
	memcpy(expected, &value, sizeof expected);
	uint64_t i = 0;
	while (i + 1 < WORD && bytes[i] == expected[i])
		i++;
	return (int64_t)(word * WORD + i);
}

/* Nearest to the arena first: an overrun begins there. */
static bool check_guards(const struct pp_canary *canary, uint64_t step, struct pp_status *status)
{
	unsigned char guard[PP_CANARY_GUARD];
	if (!pp_interp_read(canary->interp, PP_NULL, place_of_guard(canary, 0), sizeof guard, guard, status))
		return false;
	for (int64_t i = PP_CANARY_GUARD - 1; i >= 0; i--)
		if (guard[i] != guard_byte(0, (uint64_t)i))
			return fail_at(canary, i - PP_CANARY_GUARD, step, status);
	if (!pp_interp_read(canary->interp, PP_NULL, place_of_guard(canary, 1), sizeof guard, guard, status))
		return false;
	for (uint64_t i = 0; i < PP_CANARY_GUARD; i++)
		if (guard[i] != guard_byte(1, i))
			return fail_at(canary, (int64_t)(canary->rank->arena_bytes + i), step, status);
	return true;
}

static bool lost(const struct pp_canary *canary, struct pp_status *status)
{
	if (canary->lost.code != PP_EXIT_OK)
		*status = canary->lost;
	return canary->lost.code != PP_EXIT_OK;
}

bool pp_canary_check(struct pp_canary *canary, uint64_t step, struct pp_status *status)
{
	if (canary->rank->slot_count == 0)
		return true;
	if (!check_guards(canary, step, status))
		return false;
	look_anew(canary);
	for (uint64_t word = 0; word < canary->words; word++) {
		if (canary->contents[word / 8] == 0xff)
			word |= 7;
		else if (!bit_at(canary->contents, word) && !holds_pattern(canary, word))
			return !lost(canary, status) && fail_at(canary, first_changed(canary, word), step, status);
	}
	return true;
}

/* ---- report ---------------------------------------------------------------------------------- */

/* In bytes: planned = touched + alignment + unused. */
struct found {
	uint64_t planned, touched;
	uint64_t alignment;  /* what no instruction names, in gaps shorter than PP_ALIGN */
	uint64_t unused;     /* longer such gaps, and what is named but was never touched */
	uint64_t end;        /* of what was touched */
	uint64_t idle_slots; /* with unused bytes */
	struct {
		uint64_t slot, unused, first; /* first: within the slot */
	} idle[LISTED];
};

static bool is_touched(struct pp_canary *canary, uint64_t word)
{
	return bit_at(canary->initialised, word) || !holds_pattern(canary, word);
}

/* The end of the gap of nameless words that begins at `word`, not beyond `end`. */
static uint64_t gap_end(const struct pp_canary *canary, uint64_t word, uint64_t end)
{
	while (word < end && !bit_at(canary->contents, word))
		word++;
	return word;
}

static void measure_arena(struct pp_canary *canary, struct found *found)
{
	for (uint64_t word = 0; word < canary->words;) {
		uint64_t next = gap_end(canary, word, canary->words), gap = (next - word) * WORD;
		*(gap < PP_ALIGN ? &found->alignment : &found->unused) += gap;
		word = next;
		for (; word < canary->words && bit_at(canary->contents, word); word++)
			if (is_touched(canary, word)) {
				found->touched += WORD;
				found->end = (word + 1) * WORD;
			} else {
				found->unused += WORD;
			}
	}
}

static void measure_slot(struct pp_canary *canary, uint32_t index, struct found *found)
{
	const struct pp_slot *slot = &canary->rank->slots[index];
	uint64_t begin = slot->offset / WORD, end = (slot->offset + slot->bytes) / WORD, unused = 0, first = 0;
	for (uint64_t word = begin; word < end;) {
		uint64_t next = gap_end(canary, word, end), part = (next - word) * WORD;
		if (part == 0) {
			next = word + 1;
			part = is_touched(canary, word) ? 0 : WORD;
		} else if (part < PP_ALIGN) {
			part = 0;
		}
		if (part && !unused)
			first = (word - begin) * WORD;
		unused += part;
		word = next;
	}
	if (!unused)
		return;
	if (found->idle_slots < LISTED) {
		found->idle[found->idle_slots].slot = index;
		found->idle[found->idle_slots].unused = unused;
		found->idle[found->idle_slots].first = first;
	}
	found->idle_slots++;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100 * (double)part / (double)whole : 0;
}

static void print_rank(const struct pp_program *program, uint32_t world, const struct found *found, FILE *out)
{
	const struct pp_rank *rank = &program->rank[pp_grid_coord(program, world).pp];
	char name[PP_GRID_NAME];
	fprintf(out,
	        "canary of %s: arena %" PRIu64 " bytes, touched %" PRIu64 " (%.2f %%) up to %" PRIu64 ", alignment %" PRIu64
	        " (%.2f %%), unused %" PRIu64 "; nothing outside\n",
	        pp_grid_name(program, world, name), found->planned, found->touched, percent(found->touched, found->planned),
	        found->end, found->alignment, percent(found->alignment, found->planned), found->unused);
	for (uint64_t i = 0; i < found->idle_slots && i < LISTED; i++) {
		uint64_t slot = found->idle[i].slot;
		fprintf(out, "  unused: %" PRIu64 " of %" PRIu64 " bytes of %s.%" PRIu64 ", from its byte %" PRIu64 "\n",
		        found->idle[i].unused, rank->slots[slot].bytes, pp_slot_class_name[rank->slots[slot].class], slot,
		        found->idle[i].first);
	}
	if (found->idle_slots > LISTED)
		fprintf(out, "  unused: parts of %" PRIu64 " more slots\n", found->idle_slots - LISTED);
}

bool pp_canary_report(struct pp_canary *canary, const struct pp_report_link *link, FILE *out, struct pp_status *status)
{
	struct found mine = {.planned = canary->words * WORD};
	look_anew(canary);
	measure_arena(canary, &mine);
	for (uint32_t i = 0; i < canary->rank->slot_count; i++)
		measure_slot(canary, i, &mine);
	if (lost(canary, status))
		return false;
	struct found *all = calloc(pp_grid_world(canary->program), sizeof *all);
	if (!all)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory");
	bool ok = pp_transport_exchange(link->transport, link->endpoint, link->watch, "gathering what canaries saw", &mine,
	                                all, sizeof *all, status);
	for (uint32_t i = 0; ok && out && i < pp_grid_world(canary->program); i++)
		print_rank(canary->program, i, &all[i], out);
	if (ok && out)
		fflush(out);
	free(all);
	return ok;
}
