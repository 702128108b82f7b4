/* The memory plan of every rank: lifetimes from the streams, places from plan_place.c, slots made from places.
 * requires, ensures: plan_memory.h.
 *
 * A slot lives from its first to its last use, posts included: a send reads until its `wait`, a recv writes from its
 * post. Each named program is planned by itself over the same bytes, so `train` lies as if it were alone; only in a
 * text whose programs share slots do the positions of all follow each other. O(n log n) in instructions. */
#include "plan_memory.h"

#include "plan.h"

#include "ir/lifetime.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How long to search for low arenas, in placements rated: for each value and rank, and for a program; of that a rank
 * may use a few times its share of what the ranks before it left. */
enum { STEPS_VALUE = 2, STEPS_RANK = 50 * 1000, STEPS_PROGRAM = 4 * 1000 * 1000, SHARES_RANK = 3 };

struct plan {
	struct pp_program *program;
	struct pp_arena *scratch;
	struct pp_post_slots *posts;        /* [programs] */
	uint8_t slot_operands[PP_OP_COUNT]; /* bit i: a[i] is a slot */
	uint64_t steps;                     /* left for the program */
};

/* One rank while it is planned. */
struct rank_plan {
	struct pp_arena *scratch;
	uint32_t rank;
	struct pp_rank *table;
	struct pp_lifetime *lifetimes; /* in order of first use */
	uint32_t count;
	uint32_t *lifetime_of; /* [slots], PP_NULL: static, or not used */
	uint64_t horizon;
};

/* ---- posts ----------------------------------------------------------------------------------- */

static void find_posts(struct plan *plan, uint32_t index)
{
	const struct pp_program *program = plan->program;
	struct pp_post_slots *posts = &plan->posts[index];
	posts->base = PP_NEW_ARRAY(plan->scratch, uint64_t, (size_t)program->channel_count + 1);
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_stream *stream = &program->programs[index].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++)
			if (stream->items[i].op == PP_OP_SEND || stream->items[i].op == PP_OP_RECV)
				posts->base[stream->items[i].a[0] + 1]++;
	}
	for (uint32_t channel = 0; channel < program->channel_count; channel++)
		posts->base[channel + 1] += posts->base[channel];
	uint64_t count = posts->base[program->channel_count];
	posts->send = PP_NEW_ARRAY(plan->scratch, uint32_t, count);
	posts->recv = PP_NEW_ARRAY(plan->scratch, uint32_t, count);
	memset(posts->send, 0xff, count * sizeof *posts->send);
	memset(posts->recv, 0xff, count * sizeof *posts->recv);
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_stream *stream = &program->programs[index].streams[rank];
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *post = &stream->items[i];
			if (post->op != PP_OP_SEND && post->op != PP_OP_RECV)
				continue;
			const struct pp_channel *channel = &program->channels[post->a[0]];
			uint64_t at = posts->base[post->a[0]] + post->a[1];
			if ((post->op == PP_OP_SEND ? channel->source : channel->destination) == rank &&
			    at < posts->base[post->a[0] + 1])
				(post->op == PP_OP_SEND ? posts->send : posts->recv)[at] = post->a[2];
		}
	}
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static void use_slot(struct rank_plan *rank, uint32_t slot, uint64_t position)
{
	if (slot == PP_NULL || pp_slot_is_static(rank->table->slots[slot].class))
		return;
	if (rank->lifetime_of[slot] == PP_NULL) {
		const struct pp_slot *info = &rank->table->slots[slot];
		rank->lifetime_of[slot] = rank->count;
		rank->lifetimes[rank->count++] = (struct pp_lifetime){
		    .first = position, .bytes = pp_aligned(info->bytes), .slot = slot, .class = info->class};
	}
	rank->lifetimes[rank->lifetime_of[slot]].last = position;
}

static void use_operands(const struct plan *plan, struct rank_plan *rank, const struct pp_instr *instr,
                         uint64_t position)
{
	for (uint32_t i = 0, mask = plan->slot_operands[instr->op]; mask; i++, mask /= 2)
		if (mask % 2)
			use_slot(rank, pp_instr_slot(instr, i), position);
}

/* Of the programs first … end - 1. */
static void find_lifetimes(const struct plan *plan, struct rank_plan *rank, uint32_t first, uint32_t end)
{
	const struct pp_program *program = plan->program;
	rank->count = 0;
	rank->horizon = 0;
	rank->lifetimes = PP_NEW_ARRAY(rank->scratch, struct pp_lifetime, rank->table->slot_count);
	rank->lifetime_of = PP_NEW_ARRAY(rank->scratch, uint32_t, rank->table->slot_count);
	memset(rank->lifetime_of, 0xff, rank->table->slot_count * sizeof *rank->lifetime_of);
	for (uint32_t index = first; index < end; index++) {
		const struct pp_stream *stream = &program->programs[index].streams[rank->rank];
		const struct pp_instr *partner = NULL; /* may still run while the next compute op does */
		for (uint32_t i = 0; i < stream->count; i++, rank->horizon++) {
			const struct pp_instr *instr = &stream->items[i];
			use_operands(plan, rank, instr, rank->horizon);
			if (pp_is_compute(instr)) {
				if (partner)
					use_operands(plan, rank, partner, rank->horizon);
				partner = instr->flags & PP_PAIR ? instr : NULL;
			}
			if (instr->op == PP_OP_WAIT)
				use_slot(rank, pp_waited_slot(program, &plan->posts[index], rank->rank, instr), rank->horizon);
		}
	}
	for (uint32_t i = 0; i < rank->count; i++)
		assert(i == 0 || rank->lifetimes[i - 1].first <= rank->lifetimes[i].first);
}

/* The largest sum of bytes that live at one position. */
static uint64_t live_bytes(const struct rank_plan *rank)
{
	uint64_t *change = PP_NEW_ARRAY(rank->scratch, uint64_t, rank->horizon + 1), live = 0, most = 0;
	for (uint32_t i = 0; i < rank->count; i++) {
		change[rank->lifetimes[i].first] += rank->lifetimes[i].bytes;
		change[rank->lifetimes[i].last + 1] -= rank->lifetimes[i].bytes; /* modulo 2^64 */
	}
	for (uint64_t position = 0; position < rank->horizon; position++) {
		live += change[position];
		most = live > most ? live : most;
	}
	return most;
}

/* ---- one slot for each place ----------------------------------------------------------------- */

/* A slot that merged values share; found by hashing, numbered by sorting. */
struct place {
	uint64_t offset, bytes;
	uint8_t class;
	uint32_t number;
};

static int compare_places(const void *left, const void *right)
{
	const struct place *a = *(struct place *const *)left, *b = *(struct place *const *)right;
	if (a->class != b->class)
		return a->class < b->class ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static uint64_t hash_place(const struct place *place)
{
	uint64_t hash = (place->offset / PP_ALIGN + 1) * 0x9e3779b97f4a7c15u;
	hash = (hash ^ hash >> 32 ^ place->bytes) * 0xd6e8feb86659fd93u;
	return hash ^ hash >> 29 ^ place->class;
}

/* Open addressing; capacity is a power of two with room to spare. */
static struct place **find_place(struct place **table, uint64_t capacity, const struct place *wanted)
{
	uint64_t at = hash_place(wanted) & (capacity - 1);
	while (table[at] && compare_places(&table[at], &wanted) != 0)
		at = (at + 1) & (capacity - 1);
	return &table[at];
}

/* Replace the dynamic slots, one per value, by one per place; number[slot] := its new number. */
static void merge_slots(const struct plan *plan, struct rank_plan *rank, uint32_t *number)
{
	struct pp_rank *table = rank->table;
	uint32_t statics = 0, count = 0;
	while (statics < table->slot_count && pp_slot_is_static(table->slots[statics].class))
		number[statics] = statics, statics++;
	uint64_t capacity = 16, values = table->slot_count - statics;
	while (capacity < 2 * values)
		capacity *= 2;
	struct place **hashed = PP_NEW_ARRAY(rank->scratch, struct place *, capacity);
	struct place *places = PP_NEW_ARRAY(rank->scratch, struct place, values);
	struct place **sorted = PP_NEW_ARRAY(rank->scratch, struct place *, values);
	struct place **place_of = PP_NEW_ARRAY(rank->scratch, struct place *, table->slot_count);
	for (uint32_t slot = statics; slot < table->slot_count; slot++) {
		const struct pp_slot *info = &table->slots[slot];
		assert(!pp_slot_is_static(info->class));
		struct place wanted = {.offset = info->offset, .bytes = info->bytes, .class = info->class};
		struct place **found = find_place(hashed, capacity, &wanted);
		if (!*found) {
			places[count] = wanted;
			*found = sorted[count] = &places[count];
			count++;
		}
		place_of[slot] = *found;
	}
	qsort(sorted, count, sizeof *sorted, compare_places);
	struct pp_slot *slots = PP_NEW_ARRAY(plan->program->arena, struct pp_slot, (size_t)statics + count);
	memcpy(slots, table->slots, statics * sizeof *slots);
	for (uint32_t i = 0; i < count; i++) {
		sorted[i]->number = statics + i;
		slots[statics + i] = (struct pp_slot){.class = sorted[i]->class,
		                                      .placed = true,
		                                      .tensor = PP_NULL,
		                                      .bytes = sorted[i]->bytes,
		                                      .offset = sorted[i]->offset};
	}
	for (uint32_t slot = statics; slot < table->slot_count; slot++)
		number[slot] = place_of[slot]->number;
	table->slots = slots;
	table->slot_count = statics + count;
}

static void renumber(const struct plan *plan, const struct pp_stream *stream, const uint32_t *number)
{
	for (uint32_t i = 0; i < stream->count; i++) {
		struct pp_instr *instr = &stream->items[i];
		for (uint32_t operand = 0, mask = plan->slot_operands[instr->op]; mask; operand++, mask /= 2)
			if (mask % 2 && pp_instr_slot(instr, operand) != PP_NULL)
				*(operand < 4 ? &instr->a[operand] : &instr->extra) = number[pp_instr_slot(instr, operand)];
	}
}

/* Posts of this rank only: the numbers of other ranks are theirs. */
static void renumber_posts(const struct plan *plan, uint32_t index, uint32_t rank)
{
	const struct pp_stream *stream = &plan->program->programs[index].streams[rank];
	struct pp_post_slots *posts = &plan->posts[index];
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *post = &stream->items[i];
		if (post->op == PP_OP_SEND)
			posts->send[posts->base[post->a[0]] + post->a[1]] = post->a[2];
	}
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static bool from_text(const struct plan *plan, uint32_t rank)
{
	for (uint32_t index = 0; index < plan->program->program_count; index++)
		if (plan->program->programs[index].streams[rank].spans)
			return true;
	return false;
}

static bool append_slot(struct pp_slot *slot, uint64_t *top)
{
	slot->placed = true;
	slot->offset = *top;
	return !__builtin_add_overflow(*top, pp_aligned(slot->bytes), top);
}

/* Static slots stand first; in a text, behind what it placed itself. */
static bool place_statics(struct pp_rank *table, uint64_t *top)
{
	*top = 0;
	for (uint32_t slot = 0; slot < table->slot_count; slot++) {
		const struct pp_slot *info = &table->slots[slot];
		uint64_t end;
		if (info->placed && __builtin_add_overflow(info->offset, pp_aligned(info->bytes), &end))
			return false;
		if (info->placed && end > *top)
			*top = end;
	}
	table->static_bytes = 0;
	for (uint32_t slot = 0; slot < table->slot_count; slot++) {
		struct pp_slot *info = &table->slots[slot];
		if (!pp_slot_is_static(info->class))
			continue;
		table->static_bytes += pp_aligned(info->bytes);
		if (!info->placed && !append_slot(info, top))
			return false;
	}
	return true;
}

/* `shares`: the first program may use what is left of the search, the others must not take it away. */
static bool place_values(struct plan *plan, struct rank_plan *rank, uint64_t base, uint64_t live, bool shares,
                         uint64_t *top)
{
	uint64_t height;
	struct pp_lifetime *wanted = PP_NEW_ARRAY(rank->scratch, struct pp_lifetime, rank->count);
	uint32_t count = 0;
	for (uint32_t i = 0; i < rank->count; i++)
		if (!rank->table->slots[rank->lifetimes[i].slot].placed)
			wanted[count++] = rank->lifetimes[i];
	uint64_t own = STEPS_RANK + (uint64_t)STEPS_VALUE * count,
	         part = 1 + (plan->program->ranks - 1 - rank->rank) / SHARES_RANK;
	uint64_t steps = own + (shares ? plan->steps / part : 0), allowed = steps;
	if (!pp_plan_place(rank->scratch, wanted, count, rank->horizon, live, &steps, &height) ||
	    __builtin_add_overflow(base, height, &height))
		return false;
	plan->steps -= allowed - steps > own ? allowed - steps - own : 0;
	*top = height > *top ? height : *top;
	for (uint32_t i = 0; i < count; i++) {
		struct pp_slot *slot = &rank->table->slots[wanted[i].slot];
		slot->placed = true;
		slot->offset = base + wanted[i].offset;
	}
	return true;
}

/* Does one of the dynamic slots belong to several programs? */
static bool slots_are_shared(const struct plan *plan, const struct rank_plan *rank)
{
	const struct pp_program *program = plan->program;
	uint32_t *user = PP_NEW_ARRAY(rank->scratch, uint32_t, rank->table->slot_count);
	for (uint32_t index = 0; index < program->program_count; index++) {
		const struct pp_stream *stream = &program->programs[index].streams[rank->rank];
		for (uint32_t i = 0; i < stream->count; i++)
			for (uint32_t operand = 0, mask = plan->slot_operands[stream->items[i].op]; mask; operand++, mask /= 2) {
				uint32_t slot = pp_instr_slot(&stream->items[i], operand);
				if (!(mask % 2) || slot == PP_NULL || pp_slot_is_static(rank->table->slots[slot].class))
					continue;
				if (user[slot] && user[slot] != index + 1)
					return true;
				user[slot] = index + 1;
			}
	}
	return false;
}

static bool place_programs(struct plan *plan, struct rank_plan *rank, uint64_t base, uint64_t *top)
{
	uint32_t programs = plan->program->program_count, together = slots_are_shared(plan, rank) ? programs : 1;
	*top = base;
	rank->table->live_bytes = 0;
	for (uint32_t first = 0; first < programs; first += together) {
		find_lifetimes(plan, rank, first, first + together);
		uint64_t live = live_bytes(rank);
		if (live > rank->table->live_bytes)
			rank->table->live_bytes = live;
		if (!place_values(plan, rank, base, live, first == 0, top))
			return false;
	}
	for (uint32_t i = 0; i < rank->table->slot_count; i++) /* a text may have slots that nothing uses */
		if (!rank->table->slots[i].placed && !append_slot(&rank->table->slots[i], top))
			return false;
	return true;
}

static bool plan_rank(struct plan *plan, struct rank_plan *rank)
{
	uint64_t base;
	if (!place_statics(rank->table, &base))
		return false;
	if (!place_programs(plan, rank, base, &rank->table->arena_bytes))
		return false;
	if (from_text(plan, rank->rank))
		return true;
	uint32_t *number = PP_NEW_ARRAY(rank->scratch, uint32_t, rank->table->slot_count);
	merge_slots(plan, rank, number);
	for (uint32_t index = 0; index < plan->program->program_count; index++) {
		struct pp_stream *stream = &plan->program->programs[index].streams[rank->rank];
		renumber(plan, stream, number);
		renumber_posts(plan, index, rank->rank);
		pp_plan_waits(rank->scratch, plan->program, &plan->posts[index], rank->rank, stream);
	}
	return true;
}

static bool is_planned(const struct pp_rank *table)
{
	for (uint32_t slot = 0; slot < table->slot_count; slot++)
		if (!table->slots[slot].placed)
			return false;
	return table->arena_bytes > 0 || !table->slot_count;
}

static void find_slot_operands(struct plan *plan)
{
	for (uint32_t op = 0; op < PP_OP_COUNT; op++)
		for (const char *at = pp_op_table[op].signature; *at; at++)
			if (*at >= '1' && *at <= '5')
				plan->slot_operands[op] |= (uint8_t)(1u << (*at - '1'));
}

bool pp_plan_memory(struct pp_program *program, struct pp_diag *diag)
{
	struct plan plan = {.program = program, .scratch = pp_arena_scratch(program->arena), .steps = STEPS_PROGRAM};
	find_slot_operands(&plan);
	plan.posts = PP_NEW_ARRAY(plan.scratch, struct pp_post_slots, program->program_count);
	for (uint32_t index = 0; index < program->program_count; index++)
		find_posts(&plan, index);
	bool ok = true;
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		if (is_planned(&program->rank[rank]))
			continue;
		struct rank_plan part = {
		    .scratch = pp_arena_scratch(program->arena), .rank = rank, .table = &program->rank[rank]};
		if (!plan_rank(&plan, &part)) {
			struct pp_message *m =
			    pp_error(diag, "E0505", PP_NO_SPAN, "rank %u needs more bytes than 64 bits count", rank);
			pp_help(m, "look for a layer or slot with an absurd size");
			ok = false;
		}
		pp_arena_destroy(part.scratch);
	}
	pp_arena_destroy(plan.scratch);
	return ok;
}
