/* Inside codegen/: what the parts of the memory plan share. */
#ifndef PP_PLAN_H
#define PP_PLAN_H

#include "ir/arena.h"
#include "ir/program.h"

/* Bytes that must stay put over a closed interval of stream positions. */
struct pp_lifetime {
	uint64_t first, last;
	uint64_t bytes;  /* a multiple of PP_ALIGN, not 0 */
	uint64_t offset; /* result: from the start of the dynamic part */
	uint32_t slot;
	uint8_t class; /* enum pp_slot_class: values of a class like to follow each other in a place */
};

/* plan_place.c: give each lifetime an offset; those that overlap in time do not overlap in bytes. `items` are sorted by
 * `first`; no `last` reaches `horizon`; `live` is the largest sum of bytes at one position; *steps is the work allowed
 * for the search, and then left. False: more bytes than 64 bits count; else *height := bytes used. */
bool pp_plan_place(struct pp_arena *scratch, struct pp_lifetime *items, uint32_t count, uint64_t horizon, uint64_t live,
                   uint64_t *steps, uint64_t *height);

/* A free rectangle: bytes [offset, offset + height) over positions [first, last]. */
struct pp_space {
	uint64_t offset, height, first, last;
};

struct pp_spaces {
	struct pp_space *items;
	size_t count, capacity;
};

/* plan_lanes.c: columns by size, cut from `spaces` where they fit, else from *top on; *top := end of the highest
 * one. False: more bytes than 64 bits count. */
bool pp_plan_lanes(struct pp_arena *scratch, struct pp_lifetime *items, uint32_t count, uint64_t horizon,
                   const struct pp_spaces *spaces, uint64_t *top);

struct pp_sweep_options {
	uint64_t ceiling;    /* height that costs nothing */
	uint64_t limit;      /* heights from here on are of no use */
	uint32_t states;     /* of memory carried along */
	uint32_t gap_weight; /* eighths: what a gap costs beside neighbours that end at different times */
	bool leaves_room;    /* also try places that leave a gap of just another value's size */
};

/* plan_sweep.c: in the order of their start, choosing what ends together as neighbours. `items` are sorted by `first`;
 * *steps is the work allowed, and then left. False: not below the limit, too much work, or too many at once. */
bool pp_plan_sweep(struct pp_arena *scratch, struct pp_lifetime **items, uint32_t count, uint64_t horizon,
                   const struct pp_sweep_options *options, uint64_t *steps);

/* Indices of `items` in the order of their end; those that end together in their own order. */
uint32_t *pp_plan_ends(struct pp_arena *scratch, struct pp_lifetime *const *items, uint32_t count, uint64_t horizon);

/* plan_idle.c: what placed `items`, sorted by `first`, leave free below `height`. */
struct pp_spaces pp_plan_idle(struct pp_arena *scratch, struct pp_lifetime *const *items, uint32_t count,
                              uint64_t horizon, uint64_t height);

/* Where the posts of the streams of one named program keep their bytes: the slot of message q of channel c is
 * [base[c] + q]; PP_NULL where the source or destination rank of the channel posts none. */
struct pp_post_slots {
	uint64_t *base; /* [channels + 1] */
	uint32_t *send, *recv;
};

/* plan_waits.c: slot that a `wait` of this rank waits for, or PP_NULL. */
uint32_t pp_waited_slot(const struct pp_program *program, const struct pp_post_slots *posts, uint32_t rank,
                        const struct pp_instr *wait);

static inline bool pp_waits_for_send(const struct pp_program *program, uint32_t rank, const struct pp_instr *instr)
{
	return instr->op == PP_OP_WAIT && program->channels[instr->a[0]].source == rank;
}

/* Move each wait for a send of this rank to just before the first write over the sent bytes. Slots are
 * placed. */
void pp_plan_waits(struct pp_arena *scratch, const struct pp_program *program, const struct pp_post_slots *posts,
                   uint32_t rank, struct pp_stream *stream);

#endif
