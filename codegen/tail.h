/* What the files of the step tail share (lower_tail.c, lower_reduce.c). */
#ifndef PP_TAIL_H
#define PP_TAIL_H

#include "lowering.h"

/* Slots of one rank that the tail needs. */
struct pp_tail_slots {
	uint32_t losses, norms, scale;
};

/* Slots of the optimizer for a tensor on a rank, PP_NULL: none. */
struct pp_tail_state {
	uint32_t moment[2], master;
};

/* A tensor on a rank, by its first use there: that use's grad slot gathers the others'. */
struct pp_held {
	uint32_t tensor, use;
};

struct pp_tail {
	struct pp_lowering *lowering;
	struct pp_program *program;
	struct pp_diag *diag;
	struct pp_tail_slots *ranks;
	uint32_t *use_base;          /* [tensors + 1]: uses of each tensor */
	struct pp_tail_state *state; /* [uses]: given to the first use on a rank */
	struct pp_held *held;        /* by rank, then stage, then tensor */
	uint32_t *held_base;         /* [ranks + 1] */
	uint32_t next_collective;
	size_t group_capacity;
	uint32_t axis_group[PP_AXIS_COUNT]; /* of all ranks along an axis; PP_NULL: one rank only */
	bool shards;                        /* the optimizer's state is sharded over dp */
};

static inline void pp_tail_emit(const struct pp_tail *tail, uint32_t rank, struct pp_instr instr)
{
	pp_lowering_emit(tail->lowering, rank, &instr, PP_NULL);
}

static inline uint32_t pp_tail_rank_of(const struct pp_tail *tail, uint32_t use)
{
	return tail->program->stages[tail->program->uses[use].stage].rank;
}

/* Is this the first use of its tensor on its rank? A tensor has as many uses as the model has layers that tie it: few.
 */
static inline bool pp_tail_first_on_rank(const struct pp_tail *tail, uint32_t use)
{
	for (uint32_t earlier = tail->use_base[tail->program->uses[use].tensor]; earlier < use; earlier++)
		if (pp_tail_rank_of(tail, earlier) == pp_tail_rank_of(tail, use))
			return false;
	return true;
}

/* lower_reduce.c. False: a tensor is too large for a collective, reported. */
void pp_tail_groups(struct pp_tail *tail);
bool pp_tail_reduce_grads(struct pp_tail *tail);
void pp_tail_reduce_losses(struct pp_tail *tail);
void pp_tail_reduce_norms(struct pp_tail *tail);
bool pp_tail_gather_weights(struct pp_tail *tail);

#endif
