/* What the schedules on a V share (v_half.c, v_min.c, v_adaptive.c): a packed form of the ordering problem, list
 * schedulers that follow target times, and an evaluation of packed orders.
 *
 * Nothing here asks for exactly two stages per rank: the chain of stages may come back to a rank as often as it
 * likes.
 *
 * A packed order is an array of operations per rank. An operation is (kind * stages + stage) * microbatches + mb, with
 * the kinds F, I, W; `mb` ascends in every (kind, stage), so that an order is also given by its sequence of
 * (kind, stage). */
#ifndef PP_ORDER_WAVE_H
#define PP_ORDER_WAVE_H

#include "ir/order.h"

enum pp_wave_kind { PP_WAVE_F, PP_WAVE_I, PP_WAVE_W, PP_WAVE_KINDS };

struct pp_wave_stage {
	uint32_t rank;
	uint64_t ticks[PP_WAVE_KINDS]; /* of F, I with its recompute, W */
	uint64_t recompute;            /* the part of I that may run before its gradient arrives */
	uint64_t forward_hop, backward_hop;
	uint32_t channel[2];        /* that bring the input of F, of I, or PP_NO_CHANNEL; of pp_order_queues */
	uint64_t hop[2];            /* of these inputs */
	uint64_t held, early, more; /* bytes: from F on; part of them until I only; besides from I to W */
};

struct pp_wave {
	uint32_t ranks, stages, microbatches;
	struct pp_wave_stage *stage;
	uint32_t *of_rank;    /* stages by rank, ascending */
	uint32_t *rank_first; /* [ranks + 1]: where a rank's stages begin in of_rank */
	uint64_t *room;       /* [ranks] */
	uint64_t *more;       /* [ranks]: the most that I of a stage takes besides */
	uint64_t period;      /* work of the busiest rank per microbatch */
	/* Divisions that are done millions of times, in tables: operation / microbatches, its kind and its stage. */
	uint32_t *token;       /* [operations] */
	uint32_t *token_stage; /* [kinds * stages] */
	uint8_t *token_kind;
	bool queued; /* some hop may find its channel busy */
};

struct pp_wave_order {
	uint32_t *operations; /* of all ranks; those of rank r begin at rank_first[r] * 3 * microbatches */
	uint64_t makespan, span;
};

/* How the list scheduler chooses. Ready forwards and input gradients are taken by the smallest target time
 * target[kind][stage] + mb * period; weight gradients fill gaps. */
struct pp_wave_rules {
	int64_t *target[2]; /* [F, I][stages], ns */
	int64_t period;     /* ns between microbatches */
	uint32_t *quota;    /* [stages]: most microbatches in flight, or NULL */
	uint32_t fill;      /* a gap takes W if it is at least so many thousandths of it */
	int64_t *weight;    /* [stages]: W has its I's target and so much more, ns; only in a merge */
	int64_t weight_lag; /* W goes before what has a target this much later than its I; INT64_MAX: never */
	int64_t patience;   /* wait for what has a target this much earlier than the best that is ready; INT64_MAX: never */
};

/* When the input of F or I is there that would be at `time` if its channel were free. */
static inline uint64_t pp_wave_behind(const struct pp_wave *wave, const uint64_t *busy, uint32_t kind, uint32_t stage,
                                      uint64_t time)
{
	if (!wave->queued || kind == PP_WAVE_W || wave->stage[stage].channel[kind] == PP_NO_CHANNEL)
		return time;
	uint64_t behind = busy[wave->stage[stage].channel[kind]] + wave->stage[stage].hop[kind];
	return behind > time ? behind : time;
}

/* It is used: what its channel brings next comes behind it. */
static inline void pp_wave_use(const struct pp_wave *wave, uint64_t *busy, uint32_t kind, uint32_t stage,
                               uint64_t there)
{
	if (wave->queued && kind != PP_WAVE_W && wave->stage[stage].channel[kind] != PP_NO_CHANNEL)
		busy[wave->stage[stage].channel[kind]] = there;
}

static inline uint32_t pp_wave_kind_of(const struct pp_wave *wave, uint32_t operation)
{
	return wave->token_kind[wave->token[operation]];
}

static inline uint32_t pp_wave_stage_of(const struct pp_wave *wave, uint32_t operation)
{
	return wave->token_stage[wave->token[operation]];
}

struct pp_wave *pp_wave_pack(struct pp_arena *arena, const struct pp_order_problem *problem);

/* The same with fewer microbatches. */
struct pp_wave *pp_wave_of_few(struct pp_arena *arena, const struct pp_wave *wave, uint32_t microbatches);
struct pp_wave_order *pp_wave_order_new(struct pp_arena *arena, const struct pp_wave *wave);
void pp_wave_order_copy(const struct pp_wave *wave, struct pp_wave_order *to, const struct pp_wave_order *from);

/* Rows of actions, from a packed order. */
void pp_wave_unpack(struct pp_arena *arena, const struct pp_wave *wave, const struct pp_wave_order *order,
                    struct pp_row *rows);

/* Scratch memory of the scheduler, for any number of runs. */
struct pp_wave_flow;
struct pp_wave_flow *pp_wave_flow_new(struct pp_arena *arena, const struct pp_wave *wave);

#define PP_WAVE_NONE UINT32_MAX

/* Times of an order, and scratch memory to find them. */
struct pp_wave_clock {
	const struct pp_wave *wave;
	bool span;              /* the value is the longest span, not the makespan */
	uint64_t limit;         /* give up once the value is sure to be no less */
	uint64_t *start, *end;  /* [operations] */
	uint64_t *busy;         /* [2 * stages]: until when the hops of a channel take */
	uint64_t *first, *free; /* [ranks]: start of the first operation, end of the last */
	uint64_t *work, *left;  /* [ranks]: ticks of all operations, of those to come */
	uint32_t *head, *awaits, *stack;
};
struct pp_wave_clock *pp_wave_clock_new(struct pp_arena *arena, const struct pp_wave *wave, bool span);

/* Begin an order whose operations come one by one, each after its input. */
void pp_wave_clock_begin(struct pp_wave_clock *clock, uint64_t limit);

/* The next operation of its rank. False: the value is sure to reach the limit. */
bool pp_wave_clock_add(struct pp_wave_clock *clock, uint32_t operation);

/* All operations have come: the makespan and the span of the order. */
void pp_wave_clock_sum(const struct pp_wave_clock *clock, struct pp_wave_order *order);

/* Fill in times, makespan and span; false: the order can't finish, or not below the limit. */
bool pp_wave_clock_run(struct pp_wave_clock *clock, uint64_t limit, struct pp_wave_order *order);

/* An order by rules, within the room, timed by a clock that has begun; false: it got stuck, or reached the limit.
 * O(n log ranks). */
bool pp_wave_flow_run(struct pp_wave_flow *flow, const struct pp_wave_rules *rules, struct pp_wave_clock *clock,
                      struct pp_wave_order *order);

/* What an operation needs and from whom it is `hop` away; what needs it; PP_WAVE_NONE: nothing. */
uint32_t pp_wave_input(const struct pp_wave *wave, uint32_t operation, uint64_t *hop);
uint32_t pp_wave_output(const struct pp_wave *wave, uint32_t operation);

/* Scratch memory of a merge. */
struct pp_wave_lane;
struct pp_wave_lane *pp_wave_lanes_new(struct pp_arena *arena, const struct pp_wave *wave);

/* An order that follows the targets to the letter, W by its I's target and `weight`; room is not looked at. Returns a
 * fingerprint of it. */
uint64_t pp_wave_merge(const struct pp_wave *wave, const struct pp_wave_rules *rules, struct pp_wave_lane *lanes,
                       struct pp_wave_order *order);

struct pp_wave_pace {
	uint32_t window; /* operations of its row that a rank looks at */
	uint32_t fill;   /* a gap takes what is at most so much longer: thousandths of the operation that must fit */
};
struct pp_wave_follow;
struct pp_wave_follow *pp_wave_follow_new(struct pp_arena *arena, const struct pp_wave *wave);

/* Run `base` with overtaking, into `order`, timed by a clock that has begun; false: stuck, or it reached the limit. */
bool pp_wave_follow_run(struct pp_wave_follow *follow, const struct pp_wave_order *base,
                        const struct pp_wave_pace *pace, struct pp_wave_clock *clock, struct pp_wave_order *order);

/* An order of few microbatches made one of many, by repeating a stretch of it; false: it holds none that can be. */
bool pp_wave_extend(struct pp_arena *arena, const struct pp_wave *few, const struct pp_wave_order *order,
                    const struct pp_wave *many, bool span, struct pp_wave_order *best);

/* A packed order from rows whose backward is in two pieces. */
void pp_wave_read(const struct pp_wave *wave, const struct pp_row *rows, struct pp_wave_order *order);

#endif
