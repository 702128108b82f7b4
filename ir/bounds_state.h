/* What the parts of the lower bounds share. Everything here is a relaxation: times rounded down, memory up.
 *
 * Microbatches are alike, so in any order the k-th F (I, W) of a stage to start may be called that of microbatch k:
 * sorting the start times of every stage and kind keeps all constraints (if x_j >= y_j + c for all j, the same holds
 * for the sorted values; memory counts stashes, not names). A *track* is the sequence of one kind on one stage. A fused
 * B is an I followed by a W that takes nothing. */
#ifndef PP_BOUNDS_STATE_H
#define PP_BOUNDS_STATE_H

#include "order.h"

enum pp_bound_mode {
	PP_BOUND_FORWARD, /* F alone */
	PP_BOUND_FUSED,   /* F and B */
	PP_BOUND_MIXED,   /* F, and for each microbatch B or I and W */
};

enum pp_bound_kind { PP_BOUND_F, PP_BOUND_I, PP_BOUND_W, PP_BOUND_KINDS };

/* A time that is not known: the action may be as early as it likes, or ends nothing that counts. */
#define PP_BOUND_NONE (INT64_MIN / 4)

static inline bool pp_bound_known(int64_t time)
{
	return time > PP_BOUND_NONE / 2;
}

struct pp_bound_stage {
	uint32_t rank, place; /* the place-th stage of its rank */
	int64_t ticks[PP_BOUND_KINDS];
	int64_t recompute, forward_hop, backward_hop;
	uint64_t held, early, more;
};

struct pp_bound_rank {
	uint32_t *stages; /* ascending */
	uint32_t count;
	uint64_t room; /* what stashes may take: PP_ROOM_UNLIMITED, or see pp_bound_before */
	bool related;  /* `lag` is there: not too many stages */
	/* [3 count][3 count]: microbatch k of the second track comes after microbatch k + lag of the first, both ends
	 * included; PP_BOUND_NEVER: nothing is known. Tracks of a rank are numbered 3 place + kind. */
	int32_t *lag;
	uint32_t pool; /* stashes that fit, where all of the rank are alike and W of any stage frees one; else 0:
	                  bounds_pool.c */
};

#define PP_BOUND_NEVER INT32_MIN

struct pp_bound_state {
	struct pp_arena *arena;
	uint32_t ranks, stages, microbatches;
	struct pp_bound_stage *stage;
	struct pp_bound_rank *rank;
	uint32_t *channel; /* pp_order_queues; NULL: hops do not wait for each other */
	uint32_t window; /* microbatches looked at from either end: the others are as early and late as the last of them */
	bool cramped;    /* some rank has a limit that could matter */
};

/* Earliest times (or, from the end, latest ones): [3 stages * window], track by track. For the heads, `begin` is the
 * earliest start and `end` the earliest end of an action, counted from the start of the pass. For the tails, `begin`
 * is the least time from the end of an action to the end of the order, and `end` that from its start. In tails,
 * microbatches are numbered from the last. */
struct pp_bound_times {
	int64_t *begin, *end;
	int64_t stride; /* of heads: to the origin's F of microbatch window - 1; 0: the window holds all */
	/* Of heads, [ranks], where the rank has a pool: earliest start of its n-th W, whichever stage it is of. */
	int64_t **pool;
};

static inline size_t pp_bound_at(const struct pp_bound_state *state, uint32_t stage, enum pp_bound_kind kind,
                                 uint32_t microbatch)
{
	return ((size_t)stage * PP_BOUND_KINDS + kind) * state->window + microbatch;
}

/* Ticks that an action takes its rank for. */
static inline int64_t pp_bound_length(const struct pp_bound_stage *stage, enum pp_bound_kind kind)
{
	return stage->ticks[kind] + (kind == PP_BOUND_I ? stage->recompute : 0);
}

static inline int32_t pp_bound_lag(const struct pp_bound_rank *rank, uint32_t place, enum pp_bound_kind kind,
                                   uint32_t to_place, enum pp_bound_kind to_kind)
{
	return rank->lag[(size_t)(place * PP_BOUND_KINDS + kind) * rank->count * PP_BOUND_KINDS +
	                 to_place * PP_BOUND_KINDS + to_kind];
}

/* The problem in this form; `roomy`: without its rooms. */
struct pp_bound_state pp_bound_begin(struct pp_arena *arena, const struct pp_order_problem *problem,
                                     enum pp_bound_mode mode, bool roomy);

/* Which actions of a rank come before which others, by data flow and by memory. False: the room of `*narrow` is too
 * small for one microbatch, which takes `*needed`. */
bool pp_bound_before(struct pp_bound_state *state, const struct pp_order_problem *problem, uint32_t *narrow,
                     uint64_t *needed);

/* Whether the rank has a pool, and of how many stashes. */
uint32_t pp_bound_pool(const struct pp_bound_state *state, const struct pp_bound_rank *rank);

/* How many W of the rank's pool must have ended before an action of microbatch k starts. */
uint32_t pp_bound_pool_ended(const struct pp_bound_state *state, const struct pp_bound_rank *rank, uint32_t place,
                             enum pp_bound_kind kind, uint32_t k);

/* Ticks of the shortest W of the rank. */
int64_t pp_bound_pool_length(const struct pp_bound_state *state, const struct pp_bound_rank *rank);

/* Least time from the end of the n-th W of the rank to the end of the order: [all W of the rank], in the arena. */
int64_t *pp_bound_pool_tails(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t rank,
                             const struct pp_bound_times *tails);

/* Times from the first F of stage `origin` on: earlier stages may be as early as they like. */
struct pp_bound_times pp_bound_heads(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t origin);

/* Times to the last end on rank `target`, or of all ranks: UINT32_MAX. */
struct pp_bound_times pp_bound_tails(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t target);

/* Largest lower bound that one rank gives: its actions one after another, each between its head and its tail. */
int64_t pp_bound_machine(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t rank,
                         const struct pp_bound_times *heads, const struct pp_bound_times *tails);

/* The same for the hops of a channel, one after another, each between the head of what it comes from and the tail of
 * what it leads to. `channel`: the number of its first user. */
int64_t pp_bound_channel(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t channel,
                         const struct pp_bound_times *heads, const struct pp_bound_times *tails);

/* What a rank must wait for its first I gives, with what its room lets it do before. */
int64_t pp_bound_wait(const struct pp_bound_state *state, struct pp_arena *arena, uint32_t rank,
                      const struct pp_bound_times *heads, const struct pp_bound_times *tails);

/* What the room of a rank over time gives for the span of that rank. */
int64_t pp_bound_area(const struct pp_bound_state *state, uint32_t rank);

/* Both bounds for an order of that kind of actions. */
struct pp_order_bound pp_order_bound_of(struct pp_arena *arena, const struct pp_order_problem *problem,
                                        enum pp_bound_mode mode);

#endif
