/* order_program.h. O(n log n) in the channels, O(n) in the instructions. */
#include "order_program.h"

#include "capped.h"
#include "lifetime.h"

#include <stdlib.h>

/* ---- hops ------------------------------------------------------------------------------------ */

static int by_ends(const void *left, const void *right)
{
	const struct pp_channel *const *a = left, *const *b = right;
	if ((*a)->source != (*b)->source)
		return (*a)->source < (*b)->source ? -1 : 1;
	if ((*a)->destination != (*b)->destination)
		return (*a)->destination < (*b)->destination ? -1 : 1;
	return (*a)->kind < (*b)->kind ? -1 : (*a)->kind > (*b)->kind;
}

static uint64_t hop(const struct pp_channel **sorted, uint32_t count, const struct pp_channel *wanted, uint64_t bytes)
{
	const struct pp_channel *const *found = count ? bsearch(&wanted, sorted, count, sizeof *sorted, by_ends) : NULL;
	return found ? pp_transfer_ticks((*found)->latency, (*found)->bandwidth, bytes) : 0;
}

static void price_hops(struct pp_arena *scratch, const struct pp_program *program, struct pp_order_stage *stages)
{
	const struct pp_channel **sorted = PP_NEW_ARRAY(scratch, const struct pp_channel *, program->channel_count);
	for (uint32_t c = 0; c < program->channel_count; c++)
		sorted[c] = &program->channels[c];
	if (program->channel_count)
		qsort(sorted, program->channel_count, sizeof *sorted, by_ends);
	for (uint32_t s = 0; s + 1 < program->stage_count; s++) {
		const struct pp_stage *from = &program->stages[s], *to = &program->stages[s + 1];
		if (from->rank == to->rank)
			continue;
		uint64_t bytes = (uint64_t)from->out_count * pp_dtype_size[from->out_dtype];
		struct pp_channel act = {.source = from->rank, .destination = to->rank, .kind = PP_ACT};
		struct pp_channel grad = {.source = to->rank, .destination = from->rank, .kind = PP_GRAD};
		stages[s].forward_hop = hop(sorted, program->channel_count, &act, bytes);
		stages[s + 1].backward_hop = hop(sorted, program->channel_count, &grad, bytes);
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct pp_row *pp_order_rows_of(struct pp_arena *arena, const struct pp_program *program,
                                const struct pp_named_program *named)
{
	static const uint8_t kinds[PP_PHASE_COUNT] = {
	    [PP_PHASE_F] = PP_F, [PP_PHASE_B] = PP_B, [PP_PHASE_I] = PP_I, [PP_PHASE_W] = PP_W};
	struct pp_row *rows = PP_NEW_ARRAY(arena, struct pp_row, program->ranks);
	for (uint32_t rank = 0; rank < program->ranks; rank++) {
		const struct pp_stream *stream = &named->streams[rank];
		uint32_t computes = 0;
		for (uint32_t i = 0; i < stream->count; i++)
			computes += pp_is_compute(&stream->items[i]);
		rows[rank].actions = PP_NEW_ARRAY(arena, struct pp_action, computes);
		for (uint32_t i = 0; i < stream->count; i++) {
			const struct pp_instr *instr = &stream->items[i];
			if (!pp_is_compute(instr) || instr->op == PP_OP_REMAT)
				continue;
			rows[rank].actions[rows[rank].count++] = (struct pp_action){.stage = instr->stage,
			                                                            .mb = instr->mb,
			                                                            .kind = kinds[pp_phase_of(instr)],
			                                                            .paired = instr->flags & PP_PAIR,
			                                                            .span = PP_NO_SPAN};
		}
	}
	return rows;
}

/* ---- room ------------------------------------------------------------------------------------ */

/* The workspace that a stage needs in the form of the backward that needs less; of a form that is not there only what
 * the forward needs is known. */
static uint64_t least_work(const struct pp_program *program, const struct pp_stage *stage, bool split)
{
	enum { FUSED = 1, SPLIT = 2 };
	static const uint8_t forms[PP_PHASE_COUNT] = {[PP_PHASE_F] = FUSED | SPLIT,
	                                              [PP_PHASE_B] = FUSED,
	                                              [PP_PHASE_I] = SPLIT,
	                                              [PP_PHASE_W] = SPLIT,
	                                              [PP_PHASE_R] = FUSED | SPLIT};
	uint64_t of_fused = 0, of_split = 0;
	for (unsigned phase = 0; phase < PP_PHASE_COUNT; phase++) {
		uint64_t bytes = stage->body[phase] == PP_NULL ? 0 : program->bodies[stage->body[phase]].work_bytes;
		of_fused = forms[phase] & FUSED && bytes > of_fused ? bytes : of_fused;
		of_split = forms[phase] & SPLIT && bytes > of_split ? bytes : of_split;
	}
	return split && of_split < of_fused ? of_split : of_fused;
}

uint64_t pp_order_passing_bytes(const struct pp_program *program, uint32_t s)
{
	uint64_t bytes = 0;
	for (uint32_t border = s ? s - 1 : 0; border <= s && border + 1 < program->stage_count; border++) {
		const struct pp_stage *from = &program->stages[border];
		bytes = pp_plus(bytes, pp_aligned((uint64_t)from->out_count * pp_dtype_size[from->out_dtype]));
	}
	return bytes;
}

/* What any program of these stages takes of a rank beside what its order holds at its fullest: static slots, workspace,
 * and the messages of the compute that begins then. Bodies that are not there are taken to need none. */
static void find_room(struct pp_arena *scratch, const struct pp_program *program, uint64_t *room)
{
	uint64_t *work = PP_NEW_ARRAY(scratch, uint64_t, program->ranks),
	         *passing = PP_NEW_ARRAY(scratch, uint64_t, program->ranks);
	bool split = false;
	for (uint32_t s = 0; s < program->stage_count; s++)
		split |= program->stages[s].body[PP_PHASE_I] != PP_NULL;
	for (uint32_t r = 0; r < program->ranks; r++)
		passing[r] = UINT64_MAX;
	for (uint32_t s = 0; s < program->stage_count; s++) {
		const struct pp_stage *stage = &program->stages[s];
		uint64_t least = least_work(program, stage, split), bytes = pp_order_passing_bytes(program, s);
		work[stage->rank] = least > work[stage->rank] ? least : work[stage->rank];
		passing[stage->rank] = bytes < passing[stage->rank] ? bytes : passing[stage->rank];
	}
	for (uint32_t r = 0; r < program->ranks; r++) {
		const struct pp_rank *rank = &program->rank[r];
		uint64_t taken = pp_plus(rank->reserve, work[r] ? pp_aligned(work[r]) : 0);
		taken = pp_plus(taken, passing[r] == UINT64_MAX ? 0 : passing[r]);
		for (uint32_t i = 0; i < rank->slot_count; i++) {
			uint8_t class = rank->slots[i].class;
			bool of_bodies = class == PP_SLOT_WORK || (class == PP_SLOT_SCRATCH && split);
			if (pp_slot_is_static(class) && !of_bodies)
				taken = pp_plus(taken, pp_aligned(rank->slots[i].bytes));
		}
		if (taken >= PP_ALIGN) /* the last slot of a text may end unaligned */
			taken -= PP_ALIGN - 1;
		room[r] = rank->capacity == 0 ? PP_ROOM_UNLIMITED
		                              : rank->capacity - (taken < rank->capacity ? taken : rank->capacity);
	}
}

struct pp_order_problem *pp_order_of_program(struct pp_arena *arena, const struct pp_program *program)
{
	struct pp_order_stage *stages = PP_NEW_ARRAY(arena, struct pp_order_stage, program->stage_count);
	for (uint32_t s = 0; s < program->stage_count; s++) {
		const struct pp_stage *stage = &program->stages[s];
		bool loads = stage->loads_tokens || stage->loads_labels;
		stages[s] = (struct pp_order_stage){
		    .rank = stage->rank,
		    .ticks = {[PP_F] = stage->ticks[PP_PHASE_F],
		              [PP_B] = stage->ticks[PP_PHASE_B],
		              [PP_I] = stage->ticks[PP_PHASE_I],
		              [PP_W] = stage->ticks[PP_PHASE_W]},
		    .recompute = stage->recomputes ? stage->ticks[PP_PHASE_R] : 0,
		    .held = pp_aligned(stage->stash_bytes) + (loads ? pp_aligned(stage->aux_bytes) : 0),
		    .more_fused = stage->recomputes ? pp_aligned(stage->extra_bytes) : 0,
		    .more_split = stage->recomputes || stage->extra_bytes ? pp_aligned(stage->extra_bytes) : 0};
	}
	struct pp_arena *scratch = pp_arena_scratch(arena);
	uint64_t *room = PP_NEW_ARRAY(arena, uint64_t, program->ranks);
	price_hops(scratch, program, stages);
	struct pp_order_problem *problem = PP_NEW(arena, struct pp_order_problem);
	*problem = (struct pp_order_problem){.ranks = program->ranks,
	                                     .stages = program->stage_count,
	                                     .microbatches = program->microbatches,
	                                     .stage = stages,
	                                     .room = room,
	                                     .pair_permille = program->cost.pair_permille,
	                                     .queued = true};
	find_room(scratch, program, room);
	pp_arena_destroy(scratch);
	return problem;
}
