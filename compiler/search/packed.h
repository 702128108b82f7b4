/* A problem laid out for thousands of evaluations, and an order as one list of numbers.
 *
 * An action is the number (stage * microbatches + microbatch) * 4 + kind. An order is the rows of all ranks one after
 * the other: row r is action[first[r] .. first[r + 1]]. */
#ifndef PP_SEARCH_PACKED_H
#define PP_SEARCH_PACKED_H

#include "search.h"

#define PP_UNSET UINT64_MAX

struct pp_packed_stage {
	uint32_t rank;
	uint32_t chunk;                                       /* which of its rank's stages, from 0 */
	uint64_t ticks[PP_ACTION_KINDS], recompute;           /* as in order.h */
	uint64_t forward_hop, backward_hop;                   /* into this stage: from the one before, from the one after */
	uint32_t forward_channel, backward_channel;           /* of these hops, or PP_NO_CHANNEL */
	int64_t take[PP_ACTION_KINDS], give[PP_ACTION_KINDS]; /* bytes at the start and at the end of an action */
};

/* What a kind of action of a stage waits for, as the evaluation reads it. */
struct pp_packed_step {
	uint32_t input, own;   /* from its number to those of its input and of its own F, modulo 2^32; W: both its I */
	bool at_once;          /* it has no input */
	uint32_t channel;      /* that brings the input, or PP_NO_CHANNEL */
	uint64_t hop;          /* of the input */
	uint64_t ahead, ticks; /* what is recomputed before the input is used; what it takes then */
};

struct pp_packed {
	uint32_t ranks, stages, microbatches;
	uint32_t actions, ids; /* of an order; one more than the largest action */
	bool fused, span;      /* span: value is the longest span, not the makespan */
	const struct pp_packed_stage *stage;
	const struct pp_packed_step *step; /* [stages * PP_ACTION_KINDS] */
	const uint32_t *stage_of;          /* [stages * microbatches]: stage of an action / PP_ACTION_KINDS */
	const uint32_t *stages_of;         /* all stages, by rank */
	const uint32_t *first_stage;       /* [ranks + 1] into stages_of */
	const uint32_t *first;             /* [ranks + 1] into the actions of an order */
	const int64_t *room;               /* [ranks] */
	bool queued;                       /* a hop may find its channel busy (pp_order_queues) */
	uint64_t *effort;                  /* actions evaluated so far */
};

/* Where an evaluation puts its results; all arrays are the caller's. */
struct pp_packed_times {
	uint64_t *end;        /* [ids] of an action, PP_UNSET for those not in the order */
	uint64_t *there;      /* [ids], if queued: when the input of F, B or I is there */
	uint64_t *busy;       /* [2 * stages], if queued: until when the hops of a channel take */
	uint64_t *rank_end;   /* [ranks] */
	uint64_t *rank_start; /* [ranks] */
	uint64_t value;       /* of the objective */
	uint64_t total;       /* sum of the ranks' ends (spans): breaks ties */
	uint64_t makespan, span;
	uint32_t *position, *wait; /* scratch, [ranks] */
};

static inline uint32_t pp_action_id(const struct pp_packed *packed, uint32_t stage, uint32_t mb, uint32_t kind)
{
	return (stage * packed->microbatches + mb) * PP_ACTION_KINDS + kind;
}

static inline uint32_t pp_id_kind(uint32_t id)
{
	return id % PP_ACTION_KINDS;
}

static inline uint32_t pp_id_mb(const struct pp_packed *packed, uint32_t id)
{
	return id / PP_ACTION_KINDS - packed->stage_of[id / PP_ACTION_KINDS] * packed->microbatches;
}

static inline uint32_t pp_id_stage(const struct pp_packed *packed, uint32_t id)
{
	return packed->stage_of[id / PP_ACTION_KINDS];
}

/* The channel that brings the input of an action, or PP_NO_CHANNEL. */
static inline uint32_t pp_packed_channel(const struct pp_packed_stage *stage, uint32_t kind)
{
	return kind == PP_F ? stage->forward_channel : kind == PP_W ? PP_NO_CHANNEL : stage->backward_channel;
}

/* NULL: too large to number its actions, or to add up its times. */
struct pp_packed *pp_pack(struct pp_arena *arena, const struct pp_order_problem *problem, bool fused, bool span);

struct pp_packed_times *pp_packed_times_make(struct pp_arena *arena, const struct pp_packed *packed);

/* Run an order. False: it can't finish. O(actions). */
bool pp_packed_run(const struct pp_packed *packed, const uint32_t *order, struct pp_packed_times *times);

/* What has become of an order that ran: other actions at the positions from `low` to `high`, all of one rank. */
struct pp_packed_change {
	const struct pp_packed_times *before; /* of the run */
	const uint64_t *work;                 /* [actions + 1]: ticks of all actions before a position, of all ranks */
	uint32_t low, high;
	uint64_t limit; /* give up once the value is sure to be larger */
};

/* Run the changed order: from the change on, what ends before it stays as it was. False: it can't finish, or not within
 * the limit. */
bool pp_packed_rerun(const struct pp_packed *packed, const uint32_t *order, const struct pp_packed_change *change,
                     struct pp_packed_times *times);

/* Whether every rank of an order stays within its room. */
bool pp_packed_fits(const struct pp_packed *packed, const uint32_t *order);

/* Rows to an order. Where the packed problem is split and the rows hold a B, it becomes I and W; where it is fused and
 * the rows are split, the I becomes B and the W goes. False: rows that do not have every action. */
bool pp_packed_read(const struct pp_packed *packed, const struct pp_row *rows, uint32_t *order);

void pp_packed_write(struct pp_arena *arena, const struct pp_packed *packed, const uint32_t *order,
                     struct pp_row *rows);

#endif
