/* The abstract state of one rank's dynamic slots, for flow.c: what each holds, who may touch it, whose bytes are
 * live. Operations report what they refuse. */
#ifndef PP_VERIFY_SLOTS_H
#define PP_VERIFY_SLOTS_H

#include "state.h"

/* What a dynamic slot holds. The state says who may touch it: a value in flight in either direction belongs to the
 * transport until the wait. */
enum pp_slot_state {
	PP_HOLDS_NOTHING,
	PP_HOLDS_ACT, /* a boundary value: read once, by its compute or its send */
	PP_HOLDS_GRAD,
	PP_HOLDS_STASH,    /* full: written by F */
	PP_HOLDS_STASH_W,  /* after I: what W needs */
	PP_HOLDS_EXTRA,    /* what remat made */
	PP_HOLDS_EXTRA_W,  /* after I: what W needs */
	PP_HOLDS_DATA,     /* token ids, labels */
	PP_BEING_RECEIVED, /* posted, not waited for */
	PP_BEING_SENT,
	PP_BEING_READ, /* by a compute op that may overlap the next one */
};

struct pp_slot_value {
	uint32_t state; /* enum pp_slot_state */
	uint32_t stage, mb;
	uint32_t writer; /* instruction that brought it here */
};

struct pp_flow {
	struct pp_proof *proof;
	uint32_t rank;
	const struct pp_rank *memory;
	struct pp_slot_value *value; /* [slot_count] */
	struct pp_live live;
	uint8_t *progress;     /* [stages * microbatches] */
	uint64_t *out_bytes;   /* [stages] */
	uint8_t *needs_aux;    /* [stages]: bit per phase whose body reads aux */
	uint64_t *last_reader; /* bit per instruction: the last reader of its aux slot's data; NULL: none here */
	uint32_t stashes;      /* held now */
	uint32_t at;           /* the instruction looked at */
	bool paired;      /* it is a compute op that may overlap the next one: what it reads stays until that is done */
	uint32_t held[8]; /* slots that stay so: at most four of each of two ops */
	uint32_t held_count;
	const char *operand; /* its operand, for messages */
};

/* Sets of slot classes. */
enum {
	PP_CLASS_BOUNDARY = 1u << PP_SLOT_RECV | 1u << PP_SLOT_OUT,
	PP_CLASS_RECV = 1u << PP_SLOT_RECV,
	PP_CLASS_OUT = 1u << PP_SLOT_OUT,
	PP_CLASS_STASH = 1u << PP_SLOT_STASH,
	PP_CLASS_AUX = 1u << PP_SLOT_AUX,
	PP_CLASS_EXTRA = 1u << PP_SLOT_EXTRA,
};

/* Write a value: the slot must be of one of the classes, hold nothing, have room, and share no bytes with a live one.
 */
bool pp_flow_put(struct pp_flow *f, uint32_t slot, uint32_t classes, uint32_t state, uint32_t stage, uint32_t mb,
                 uint64_t bytes);

/* The slot holds exactly this value. */
bool pp_flow_holds(const struct pp_flow *f, uint32_t slot, uint32_t classes, uint32_t state, uint32_t stage,
                   uint32_t mb);

/* It holds this value, and no longer. */
bool pp_flow_take(struct pp_flow *f, uint32_t slot, uint32_t classes, uint32_t state, uint32_t stage, uint32_t mb);
void pp_flow_empty(struct pp_flow *f, uint32_t slot);
/* The first `count` held slots are empty now. */
void pp_flow_release(struct pp_flow *f, uint32_t count);

/* The operand is not used by this stage. */
bool pp_flow_null(const struct pp_flow *f, uint32_t slot);

/* Report at f->at. */
struct pp_message *pp_flow_error(const struct pp_flow *f, const char *code, const char *text);
const char *pp_flow_slot(const struct pp_flow *f, uint32_t slot);
/* "act s0 m3": what the slot holds. */
const char *pp_flow_held(const struct pp_flow *f, uint32_t slot);

#endif
