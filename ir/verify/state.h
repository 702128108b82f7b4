/* What the parts of the verifier share: one named program under proof. Private to ir/verify*.c.
 *
 * Order of the parts, each relying on the ones before:
 *
 *   pp_prove_posts      numbers messages and collectives; each rank's posts and waits by themselves: V3 (ends,
 *                       sequence), V6
 *
 *   pp_prove_match      both ends of every message, every member of every collective: V3, V7
 *
 *   pp_prove_flow       each rank's stream by itself: V1, V2, V5 (values in slots, stash states, bytes)
 *
 *   pp_prove_order      the rendezvous runs: V4
 *
 *   pp_prove_grad       the step tail as algebra over contributions: V8
 *
 *   pp_prove_residency  posts outstanding together: V11
 */
#ifndef PP_VERIFY_STATE_H
#define PP_VERIFY_STATE_H

#include "ir/diag.h"
#include "ir/program.h"

enum { PP_SEND_END, PP_RECV_END };

/* A post or a wait of one rank, in stream order. Elements: messages first, then collectives. */
struct pp_comm_event {
	uint32_t element;
	uint32_t instr;
	bool wait;
};

/* A collective: one for all members of a group on the pp axis; one per post on the symbolic axes, whose members
 * run the same stream. */
struct pp_joint {
	uint32_t group, sequence;
	uint32_t first_rank, first_instr; /* the first post found, PP_NULL: none yet */
	uint32_t posted;                  /* members that post it */
	uint32_t members;                 /* that must */
};

/* An instruction of the step tail (zero, add, sqnorm, clip, opt, coll, waitc). */
struct pp_tail_event {
	uint32_t instr;
	uint32_t joint; /* coll and waitc: which */
	uint32_t post;  /* waitc: the instruction that posted it */
};

struct pp_rank_proof {
	struct pp_comm_event *events;
	struct pp_tail_event *tail; /* the step tail */
	uint32_t event_count, tail_count;
	uint32_t peak_stashes; /* (stage, mb) forwards whose backward is still to come */
	uint64_t peak_bytes;   /* largest sum of live dynamic slots */
	uint32_t peak_instr;
};

struct pp_stage_proof {
	uint32_t last_weight; /* index of the last bwd or bwdw in its rank's stream, PP_NULL: none */
	uint32_t first_forward, last_forward;
	uint32_t forwards, weights; /* counts so far */
	uint32_t last_weight_mb;
};

struct pp_proof;

/* How messages name instructions, where the program was made of a text of another form. */
struct pp_proof_words {
	const void *context;
	const char *(*text)(const struct pp_proof *proof, uint32_t rank, uint32_t index);  /* "1SEND_F3" */
	const char *(*place)(const struct pp_proof *proof, uint32_t rank, uint32_t index); /* "csv row 2, cell 9 `1F3`" */
	const char *unstick; /* help for a program that gets stuck */
};

struct pp_proof {
	const struct pp_program *program;
	const struct pp_named_program *named;
	struct pp_diag *diag;
	struct pp_arena *arena;             /* scratch */
	const struct pp_proof_words *words; /* NULL: those of programs */
	bool forward_only;                  /* the program `eval` */

	uint32_t *first_message;   /* [channels + 1]: messages of a channel are consecutive */
	uint32_t *message_channel; /* [messages] */
	uint32_t *posts[2];        /* per end: [messages], index of the post in its rank's stream, PP_NULL: none */
	uint32_t *post_count[2];   /* per end: [channels] */
	uint32_t message_count;

	struct pp_joint *joints;
	uint32_t joint_count;
	uint32_t *first_joint;  /* [groups]: collectives of a pp group are consecutive */
	uint32_t *group_joints; /* [groups]: largest count over the members */

	struct pp_rank_proof *rank;   /* [ranks] */
	struct pp_stage_proof *stage; /* [stages] */
	bool weights_ascend;          /* each stage's weight gradients in ascending mb */
	uint32_t descending_stage;    /* the first one where not */
	uint32_t layouts;             /* bit per proven layout */
	uint32_t in_order;            /* bit per layout proven with posts that start in order */
};

static inline const struct pp_instr *pp_proof_instr(const struct pp_proof *proof, uint32_t rank, uint32_t index)
{
	return &proof->named->streams[rank].items[index];
}

/* ---- the parts (each reports through proof->diag; false: something was reported) ------------- */
bool pp_prove_posts(struct pp_proof *proof);
bool pp_prove_match(struct pp_proof *proof);
bool pp_prove_flow(struct pp_proof *proof);
bool pp_prove_order(struct pp_proof *proof);
bool pp_prove_grad(struct pp_proof *proof);
bool pp_prove_residency(struct pp_proof *proof);

/* Progress of a (stage, mb). */
enum { RAN_NOTHING, RAN_FORWARD, RAN_REMAT, RAN_INPUT_GRAD, RAN_ALL };

/* V1: before anything is sized by stages * microbatches, there must be as many forwards; at the end every (stage, mb)
 * must have run all (`rank`: only those on it; PP_NULL: everywhere). */
bool pp_prove_forwards(struct pp_proof *proof);
bool pp_prove_backwards(struct pp_proof *proof, uint32_t rank, const uint8_t *progress);

extern const char *const pp_layout_queue[PP_LAYOUT_COUNT]; /* what has a queue: "pair of ranks" */

/* One rendezvous run under a layout; on failure reports V4. */
bool pp_prove_layout(struct pp_proof *proof, enum pp_layout layout);

/* The same, and nothing is reported. `in_order`: a post of a rank starts only when those before it have. */
bool pp_layout_ends(struct pp_proof *proof, enum pp_layout layout, bool in_order);

/* ---- static slots (static.c) ----------------------------------------------------------------- */

/* Slots of static classes are as long as what they hold, and single where an executor looks for the one. */
bool pp_static_slots_fit(const struct pp_program *program, uint32_t rank, struct pp_diag *diag);

/* ---- which bytes of a rank's arena are live (memory.c) --------------------------------------- */

struct pp_live_level {
	uint64_t *words;
};

enum { PP_LIVE_LEVELS = 6 };

/* The dynamic slots that hold a value. Slots may share bytes as long as they are never live together: live slots
 * are pairwise disjoint, so a slot that becomes live can only meet its neighbours by offset. */
struct pp_live {
	const struct pp_rank *rank;
	uint32_t *place;                            /* slot -> position by offset; PP_NULL: has no bytes or no offset */
	uint32_t *slot;                             /* position -> slot */
	struct pp_live_level level[PP_LIVE_LEVELS]; /* bit sets over positions, 64-ary */
	uint32_t levels;
	bool shared; /* some dynamic slots share bytes: only then the bit sets are kept */
	uint64_t bytes, by_class[PP_SLOT_CLASS_COUNT];
};

struct pp_live pp_live_begin(struct pp_arena *arena, const struct pp_rank *rank);

/* The slot becomes live; returns a live slot that shares bytes with it (then nothing changes), or PP_NULL. */
uint32_t pp_live_add(struct pp_live *live, uint32_t slot);
void pp_live_remove(struct pp_live *live, uint32_t slot);

/* ---- naming instructions in messages --------------------------------------------------------- */

/* "fwd s0 m3", "send act s0 m3", "wait recv grad s3 m0", "opt block.0.norm.weight": what it is, not its slots. */
const char *pp_proof_text(const struct pp_proof *proof, uint32_t rank, uint32_t index);

/* "stash.7" */
const char *pp_proof_slot(const struct pp_proof *proof, uint32_t rank, uint32_t slot);

/* An error at an instruction; its name, "rank 1, instruction 17 `fwd s1 m2`", goes before the text. */
struct pp_message *pp_proof_error(struct pp_proof *proof, const char *code, uint32_t rank, uint32_t index,
                                  const char *format, ...) PP_PRINTF(5, 6);

/* Name a second instruction: a label where its position is known, and a note where not. */
void pp_proof_also(struct pp_proof *proof, struct pp_message *message, uint32_t rank, uint32_t index,
                   const char *format, ...) PP_PRINTF(5, 6);

/* The channel end a wait of `rank` refers to. */
static inline int pp_proof_end(const struct pp_proof *proof, uint32_t rank, uint32_t channel)
{
	return proof->program->channels[channel].source == rank ? PP_SEND_END : PP_RECV_END;
}

#endif
