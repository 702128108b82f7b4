/* What the files of V8 share. Private to ir/verify/grad*.c and sets.c. */
#ifndef PP_VERIFY_GRAD_H
#define PP_VERIFY_GRAD_H

#include "state.h"

/* ---- multisets of contributions (sets.c) ----------------------------------------------------- */

enum { PP_SET_EMPTY = 0 };

struct pp_set {
	uint32_t left, right; /* PP_SET_EMPTY: this is a leaf */
	uint32_t member;      /* of a leaf */
	uint32_t count;       /* saturates */
	bool complete;        /* walked and found to be each of its range once */
	uint64_t order;       /* of its sums: equal where equal bits come out */
};

struct pp_sets {
	struct pp_arena *arena;
	struct pp_set *items;
	size_t count, capacity;
	uint32_t *mark, epoch; /* walk of a set: member -> epoch */
	uint32_t *stack;
};

/* Members are below `members`. */
struct pp_sets pp_sets_begin(struct pp_arena *arena, uint32_t members);
uint32_t pp_set_leaf(struct pp_sets *sets, uint32_t member);
uint32_t pp_set_union(struct pp_sets *sets, uint32_t left, uint32_t right);

/* The same members, after a sum over a symbolic axis. */
uint32_t pp_set_over(struct pp_sets *sets, uint32_t set, enum pp_axis axis);

/* How a set differs from [first, first + count), each once. */
enum pp_difference { PP_SET_SAME, PP_SET_MISSING, PP_SET_TWICE };

enum pp_difference pp_set_compare(struct pp_sets *sets, uint32_t set, uint32_t first, uint32_t count, uint32_t *member);

/* ---- state of the tail ----------------------------------------------------------------------- */

/* What a static slot holds. `over` says which symbolic axes it has been summed over: bit per enum pp_axis. */
struct pp_sum {
	uint32_t set;
	uint8_t over;
	bool sharded;   /* only the own dp shard is valid; of weights: up to date */
	bool defined;   /* false: left over from before the step */
	bool in_flight; /* of a collective */
	uint32_t writer;
};

/* A collective on the way: the union of what its members have put in. */
struct pp_reduction {
	uint32_t arrived;
	uint32_t set;
	uint8_t class, over;
	bool sharded;
	uint32_t tensor;
};

struct pp_update {
	uint32_t rank, instr;
	uint64_t order; /* of the sums that it reads */
};

struct pp_grad {
	struct pp_proof *proof;
	struct pp_sets sets;
	struct pp_sum **sum;            /* [ranks][slots] */
	uint32_t **update;              /* [ranks][slots]: instruction of the opt of a weight slot, PP_NULL: none yet */
	uint32_t **use_of;              /* [ranks][slots]: the use that accumulates in a grad slot, PP_NULL: none */
	uint32_t *first_use;            /* [tensors + 1] */
	struct pp_update *first_update; /* [tensors]: the one found first; rank PP_NULL: none */
	uint32_t *clipped;              /* [ranks]: instruction of the clip, PP_NULL: none yet */
	struct pp_update first_clip;
	struct pp_reduction *reduction; /* [joints] */
	uint32_t *cursor;               /* [ranks]: next tail event */
	uint32_t *work, work_count;
	bool *in_work;
	uint32_t loss_stage; /* PP_NULL: none */
	uint32_t rank, at;   /* the instruction looked at */
};

/* ---- grad.c ---------------------------------------------------------------------------------- */

/* Run the tail of g->rank until it waits for a collective that others have not posted; false: reported. */
bool pp_grad_advance(struct pp_grad *g);

/* Does g->rank hold the losses of all microbatches in this slot, summed over all axes? */
bool pp_grad_losses_known(struct pp_grad *g, uint32_t slot);

/* V8 at the instruction looked at. */
struct pp_message *pp_grad_error(const struct pp_grad *g, const char *text);

/* A slot of the rank looked at. */
const struct pp_slot *pp_grad_slot(const struct pp_grad *g, uint32_t slot);

/* No collective works on it (V5). */
bool pp_grad_settled(const struct pp_grad *g, uint32_t slot);

/* What `clip` has seen is what is reported: losses stay as they are after it. */
bool pp_grad_losses_open(const struct pp_grad *g, enum pp_slot_class class);

/* The value of a grad, losses or norms slot, complete as far as this rank's own computes go; NULL: reported. */
struct pp_sum *pp_grad_read(const struct pp_grad *g, uint32_t slot);

/* Elements of a whole grad, losses or norms slot. */
uint64_t pp_grad_elements(const struct pp_grad *g, enum pp_slot_class class, uint32_t tensor);

/* "`block.0.norm.weight`" */
const char *pp_grad_tensor_text(const struct pp_grad *g, uint32_t tensor);

/* ---- grad_coll.c ----------------------------------------------------------------------------- */

/* The rank may go on. */
void pp_grad_wake(struct pp_grad *g, uint32_t rank);

/* Is the optimizer's state sharded over dp? */
bool pp_grad_shards(const struct pp_grad *g);

/* The flag `shard` says what the slot holds: the own shard, or all. */
bool pp_grad_part(const struct pp_grad *g, const struct pp_instr *instr, const struct pp_sum *sum, uint32_t slot);

/* A collective is posted, all its posts are made, its wait is passed. */
bool pp_grad_post(struct pp_grad *g, const struct pp_instr *instr, uint32_t joint);
bool pp_grad_arrived(const struct pp_grad *g, uint32_t joint);
void pp_grad_complete(struct pp_grad *g, const struct pp_tail_event *event);

#endif
