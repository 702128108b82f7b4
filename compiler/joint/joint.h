/* Joint balance: splits of layers judged by the makespan that rows reach on them.
 *
 * A split whose slowest rank is as fast as can be (balance.h) is not always the fastest: a slow stage costs more the
 * later it stands, since the pipeline fills through all stages before it, and with few microbatches filling counts as
 * much as the slowest rank. So the split of the balance and the even one are refined: single layers, and pairs of them,
 * move to other stages while the simulated makespan (ir/order.h) of the same rows falls.
 *
 * Which moves can help is read off critical paths. A critical path of a split is a chain of computes and hops as long
 * as its makespan; under any other split the makespan is at least as long as that chain then is. The chain's length is
 * a sum over layers, so what a move does to it takes O(1), and only moves that shorten every chain seen so far are
 * simulated. */
#ifndef PP_JOINT_H
#define PP_JOINT_H

#include "compiler/balance.h"
#include "ir/order.h"
#include "ir/schedule.h"
#include "ir/stages.h"

/* What stays the same for all splits. */
struct pp_joint_problem {
	const struct pp_spec *spec;
	const struct pp_stages *stages;     /* layers and layer_ticks */
	const struct pp_schedule *schedule; /* rows */
	const uint64_t *headroom;           /* of pp_order_of_stages */
	const struct pp_balance_problem *caps;
};

struct pp_joint_value {
	uint64_t makespan;
	uint64_t over; /* bytes over memory, summed over ranks, as the rows' peaks and as the balance counts */
};

/* A chain of computes as long as the makespan: how often each kind of compute of each stage is on it, in thousandths
 * (a pair that overlaps takes less). */
enum { PP_PATH_KINDS = PP_ACTION_KINDS + 1 /* recompute */ };
struct pp_path {
	uint64_t (*count)[PP_PATH_KINDS]; /* [stages] */
	uint64_t hops;                    /* ns */
};

/* requires: times of a run with starts, of these rows. O(actions on the path). */
struct pp_path pp_path_of(struct pp_arena *arena, const struct pp_order_problem *problem, const struct pp_row *rows,
                          const struct pp_order_times *times);

/* Run the rows on a split: `first` [stages + 1]. `path`, unless NULL: a critical path, in the arena. O(actions). */
struct pp_joint_value pp_joint_run(struct pp_arena *arena, const struct pp_joint_problem *problem,
                                   const uint32_t *first, struct pp_path *path);

struct pp_joint_search {
	uint32_t *first; /* [stages + 1]: start, and best found */
	uint64_t makespan;
	uint64_t over;        /* no split found has more than the start */
	uint32_t evaluations; /* runs left; falls */
	uint32_t detours;     /* of them, most for going on from splits that are not the best */
	uint32_t runs;        /* done */
	struct pp_joint_neighbour next[PP_JOINT_NEIGHBOURS]; /* the best that were tried from there */
	uint32_t next_count;
};

/* Move layers while the makespan falls. Deterministic. */
void pp_joint_refine(struct pp_arena *arena, const struct pp_joint_problem *problem, struct pp_joint_search *search);

/* Time of the computes on a critical path of a split, and of those on each rank: `on_rank` [ranks]. */
uint64_t pp_joint_path_time(struct pp_arena *arena, const struct pp_joint_problem *problem, const uint32_t *first,
                            uint64_t *on_rank);

/* Fill in `next`: what the moves that shorten the critical path most, or lengthen it least, come to. */
void pp_joint_look_around(struct pp_arena *arena, const struct pp_joint_problem *problem,
                          struct pp_joint_search *search);

/* The first `most` microbatches of rows; the order among them stays. */
struct pp_row *pp_joint_window(struct pp_arena *arena, const struct pp_schedule *schedule, uint32_t most);

/* Slowest rank, ns per microbatch, if the first and the last layers shared one: with two stages per rank in a V, and
 * with an extra last stage on rank 0. 0: nothing to tell. */
void pp_joint_placements(struct pp_arena *arena, const struct pp_spec *spec, const struct pp_stages *stages,
                         uint64_t *folded, uint64_t *wrapped);

/* ---- the loop of partition and schedule ------------------------------------------------------- */

struct pp_joint_loop {
	const struct pp_spec *spec;
	const struct pp_schedule *draft; /* the rows, or what any order holds if they depend on costs */
	const uint64_t *headroom, *order_headroom;
	/* For rows that depend on costs: make them for these stages, quickly; else NULL. False: there are none. */
	bool (*make)(void *context, const struct pp_stages *stages, struct pp_schedule *schedule);
	void *context;
	bool once; /* a guess will do: rows are made for the split of the balance only */
};

/* requires: stages split by `balance = time` without a split of the user's (pp_partition).
 * ensures:  the split whose simulated makespan is least of all that were tried, the even one and that of the balance
 *           among them, and stages->joint, which says what it gains. A bounded number of runs: BUDGET of loop.c. */
void pp_joint_balance(struct pp_arena *arena, const struct pp_joint_loop *loop, struct pp_stages *stages);

#endif
