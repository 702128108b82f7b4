/* List scheduling over an ordering problem (ir/order.h): whenever a rank is free, a chooser takes one of the actions
 * that are ready on it, or none. What a policy's rules run on, and any other greedy maker of orders.
 *
 * Ready: F when F of the stage before has ended and hopped over, behind what its channel carries (order.h); B and I
 * when the own F has ended, and B or I of the stage after has ended and hopped over; W when its I has ended. Every
 * stage takes its microbatches in ascending order, so at most one F, one B or I and one W of each chunk are ready. An
 * action takes its ticks (B and I: recompute besides, which an order may begin earlier).
 *
 * Simultaneous events: whatever ends or arrives at an instant is seen by all ranks before any chooses at that instant;
 * free ranks choose in the order of their numbers, again after an action of no time. A rank that waits is asked again
 * when something arrives on it. Deterministic. O(actions * (chunks + log ranks)). */
#ifndef PP_LIST_H
#define PP_LIST_H

#include "ir/arena.h"
#include "ir/order.h"

struct pp_list_rank {
	uint32_t rank, chunks;
	const uint32_t *stage;              /* [chunks], ascending */
	uint32_t done[PP_ACTION_KINDS];     /* actions so far, all chunks */
	uint32_t (*chunk)[PP_ACTION_KINDS]; /* [chunks]: the same, per chunk */
	uint64_t bytes;                     /* held between actions */
};

struct pp_list_candidate {
	uint32_t chunk, mb;
	uint8_t kind;  /* enum pp_action_kind */
	uint64_t peak; /* most bytes that the rank holds while it runs */
	uint64_t over; /* so many of them are beyond its room */
};

#define PP_LIST_WAIT UINT32_MAX
#define PP_LIST_STOP (UINT32_MAX - 1)

struct pp_list_chooser {
	/* Position in `ready` (which is by kind F B I W, then chunk), PP_LIST_WAIT to take none of them now, or
	 * PP_LIST_STOP to give up. */
	uint32_t (*choose)(void *context, uint64_t now, const struct pp_list_rank *rank,
	                   const struct pp_list_candidate *ready, uint32_t count);
	void *context;
};

enum pp_list_outcome { PP_LIST_FINISHED, PP_LIST_STUCK, PP_LIST_STOPPED };

struct pp_list;

/* Can a list be made of it: not more actions than a schedule may hold (PP_ROWS_MOST_ACTIONS), nor too many chunks on a
 * rank to look through. */
bool pp_list_possible(const struct pp_order_problem *problem);

/* Requires pp_list_possible. */
struct pp_list *pp_list_create(struct pp_arena *arena, const struct pp_order_problem *problem);

/* Run from the start. */
enum pp_list_outcome pp_list_run(struct pp_list *list, const struct pp_list_chooser *chooser);

/* Of the last run: when its last action ended (finished), or the instant since when nothing happens (stuck). */
uint64_t pp_list_time(const struct pp_list *list);
uint64_t pp_list_count(const struct pp_list *list); /* actions taken */
const struct pp_list_rank *pp_list_rank_of(const struct pp_list *list, uint32_t rank);

/* What is ready on a rank at that instant; valid until the next call on the list. */
uint32_t pp_list_ready(struct pp_list *list, uint32_t rank, const struct pp_list_candidate **ready);

/* The rows so far, [ranks]: they lie in the list and change with its next run. */
const struct pp_row *pp_list_rows(const struct pp_list *list);

#endif
