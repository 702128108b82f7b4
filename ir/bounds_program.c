/* The lower bounds of a program: those of its problem (order_program.h), for the kinds of actions that it uses.
 * requires: a verified program.
 * ensures:  bounds that hold for `named` itself too, also where its plan exceeds the capacity. */
#include "bounds_state.h"
#include "capped.h"
#include "lifetime.h"
#include "order_program.h"
#include "simulate.h"

/* What the computes of a program are. */
struct used {
	bool fused, split, pairs;
	bool apart; /* some recompute is not right ahead of its backward: another order than those of the bounds */
};

static void look_at_rank(const struct pp_stream *stream, struct used *used)
{
	const struct pp_instr *remat = NULL;
	for (uint32_t i = 0; i < stream->count; i++) {
		const struct pp_instr *instr = &stream->items[i];
		if (!pp_is_compute(instr))
			continue;
		used->pairs |= instr->flags & PP_PAIR;
		used->fused |= instr->op == PP_OP_BWD;
		used->split |= instr->op == PP_OP_BWDI;
		bool backward = instr->op == PP_OP_BWD || instr->op == PP_OP_BWDI;
		if (remat)
			used->apart |= !backward || remat->stage != instr->stage || remat->mb != instr->mb;
		remat = instr->op == PP_OP_REMAT ? instr : NULL;
	}
}

/* Where a stage that recomputes is split too, its extras are those of the split form: a B of other orders needs what R
 * makes only. */
static uint64_t least_extra(const struct pp_program *program, const struct pp_stage *stage, uint64_t extra)
{
	if (!stage->recomputes || stage->body[PP_PHASE_I] == PP_NULL || stage->body[PP_PHASE_R] == PP_NULL)
		return extra;
	const struct pp_body *again = &program->bodies[stage->body[PP_PHASE_R]];
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < again->reg_count; i++) {
		const struct pp_reg *reg = &again->regs[i];
		if (reg->base == PP_BASE_EXTRA)
			bytes = pp_plus(bytes, pp_times(pp_times(reg->rows, reg->columns), pp_dtype_size[reg->dtype]));
	}
	return bytes < extra ? bytes : extra;
}

struct pp_order_bound pp_program_bound(struct pp_arena *arena, const struct pp_program *program,
                                       const struct pp_named_program *named)
{
	struct used used = {0};
	for (uint32_t r = 0; r < program->ranks; r++)
		look_at_rank(&named->streams[r], &used);
	enum pp_bound_mode mode = used.split ? PP_BOUND_MIXED : used.fused ? PP_BOUND_FUSED : PP_BOUND_FORWARD;
	struct pp_arena *scratch = pp_arena_scratch(arena);
	struct pp_order_problem problem = *pp_order_of_program(scratch, program);
	struct pp_order_stage *stages = PP_NEW_ARRAY(scratch, struct pp_order_stage, problem.stages);
	for (uint32_t s = 0; s < problem.stages; s++) {
		stages[s] = problem.stage[s];
		stages[s].recompute = used.apart ? 0 : stages[s].recompute;
		stages[s].more_fused = least_extra(program, &program->stages[s], stages[s].more_fused);
	}
	problem.stage = stages;
	problem.pair_permille = used.pairs ? problem.pair_permille : 1000;
	uint64_t *room = PP_NEW_ARRAY(scratch, uint64_t, problem.ranks);
	struct pp_order_times times;
	bool runs = pp_order_run(scratch, &problem, pp_order_rows_of(scratch, program, named), false, &times);
	for (uint32_t r = 0; r < problem.ranks; r++) {
		room[r] = problem.room[r];
		if (!runs || room[r] < times.rank[r].peak)
			room[r] = runs ? times.rank[r].peak : PP_ROOM_UNLIMITED;
	}
	problem.room = room;
	struct pp_order_bound bound = pp_order_bound_of(arena, &problem, mode);
	pp_arena_destroy(scratch);
	return bound;
}
