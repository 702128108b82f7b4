/* The program: what `pipec build` makes, the verifier proves and `piperun` executes. One instruction stream per
 * pipeline rank, plus tables. All coordinates of the tp and dp axes run the same streams.
 *
 * Semantics (the whole contract of an executor):
 *  1. Each rank runs its stream in order; compute is in order. A post (send, recv, coll) completes later on its
 *     own; only `wait`/`waitc` orders the rank after that completion.
 *  2. A channel is one directed FIFO between two different pipeline ranks: (source, destination, act | grad).
 *     The k-th send matches the k-th recv. There are no tags: identity (stage, mb, kind, bytes, dtype) is proved.
 *  3. Rendezvous: a transfer starts only once both ends are posted; nothing may rely on buffering.
 *  4. A slot is a byte range of the rank's arena. Operands in, out, aux, stash, extra, din, dout are separate slots
 *     with their own lifetimes. `in` is read by its fwd only, `dout` by its bwd/bwdi only (bodies copy what is needed
 *     later into the stash). `aux` lives from `load` to its last reader among fwd, bwd, bwdi, bwdw. A send reads its
 *     slot until its wait; a recv writes its slot until its wait. Each boundary value has exactly one reader.
 *     Stash states: empty -> full (fwd) -> I-done (bwdi) -> empty (bwdw); bwd: full -> empty.
 *     The fwd of a stage that recomputes keeps a part; its `remat` makes the rest again, in `extra`, once per
 *     microbatch before bwd or bwdi. `extra` is empty until then, and empty again after bwd or bwdw. Elsewhere a stage
 *     that splits its backward may have an `extra` that bwdi fills for bwdw.
 *     A hand-over between two stages on one rank is no transfer: the consumer's `in` is the producer's `out`.
 *  5. Collectives of a group are issued by every member in the same order with the same size.
 *  6. The first bwd/bwdw of a stage in a step carries PP_FIRST: gradients are written, later ones added.
 *  7. A norm that is not finite (`clip`) makes every following `opt` of the step do nothing. Where tensors train, every
 *     rank runs one `clip` per step and so learns whether the step counts.
 *  8. A slot of a tensor, of losses, norms or scale is exactly as long as what it holds; a rank has at most one slot of
 *     the classes losses, scale, work and scratch, and of each tensor at most one weight and one master slot. A load
 * fills aux: microbatch * seq ids, labels or both.
 *  9. The program `eval` has the forwards of a step and no more: a stash is empty again when its fwd ends, and of
 *     static slots only losses change. It runs between two steps of `train`, whose dynamic slots are empty then, so
 *     both share the dynamic bytes of the arena.
 * 10. `zero` = 1: of the n elements of a tensor that a tp coordinate holds, dp coordinate i owns those from i*c up to
 *     min(n, (i+1)*c), c = ceil(n / dp): its shard. Weight and grad slots have dp*c elements, those past n undefined; a
 *     moment or master slot has c, for the own shard. A `reducescatter` over dp in place leaves only the own shard of a
 * grad slot valid, an `allgather` over dp in place makes a weight slot whole again from the shards.
 * 11. All coordinates of the tp axis run the same bodies on parts of the values. A register says how its value is
 *     spread: R the same everywhere, P partial sums, S(0) or S(1): coordinate i of tp has the i-th part of the rows or
 *     columns. So coordinate i holds rows i*r to (i+1)*r - 1 of a token table of which each has r, and those columns of
 *     the logits. Collectives of a body are posts on the tp group that complete at their `await`, in the order in which
 *     they were posted on every member; a body awaits all that it posts. A gradient marked replicated_partial is summed
 *     over tp in the step tail.
 * 12. A program without bodies is a schedule alone: it is proven, but can't be executed.
 * 13. A tensor that is not f32 has a master slot beside each weight slot, in f32. Between steps a weight is its master,
 *     rounded to nearest even; `opt` and whatever sets weights (initialisation, checkpoints) write both. With `zero`
 * the own shard of the weight is that of the master, and the others come from their owners, already rounded.
 */
#ifndef PP_PROGRAM_H
#define PP_PROGRAM_H

#include "arena.h"
#include "ops.h"
#include "source.h"
#include "status.h"
#include "train.h"

#include <stdbool.h>
#include <stdint.h>

#define PP_NULL UINT32_MAX /* no slot, no register, no tensor, … */

enum pp_dtype { PP_F32, PP_BF16, PP_F64, PP_I32, PP_DTYPE_COUNT };
enum pp_value { PP_ACT, PP_GRAD, PP_VALUE_COUNT }; /* kind of a channel and of a boundary value */
/* Forward, backward, input gradient, weight gradient, recompute. */
enum pp_phase { PP_PHASE_F, PP_PHASE_B, PP_PHASE_I, PP_PHASE_W, PP_PHASE_R, PP_PHASE_COUNT };
enum pp_load { PP_LOAD_TOKENS, PP_LOAD_LABELS, PP_LOAD_BOTH, PP_LOAD_COUNT }; /* BOTH: ids, then labels */
enum pp_collective { PP_ALLREDUCE, PP_ALLGATHER, PP_REDUCESCATTER, PP_COLLECTIVE_COUNT };

/* ---- instructions ---------------------------------------------------------------------------- */

enum pp_instr_flag {
	PP_FIRST = 1, /* bwd, bwdw: the first of the step for its stage */
	PP_PAIR = 2,  /* this compute op and the next one may overlap */
	PP_SHARD = 4, /* coll, sqnorm, opt, add: acts on the own dp shard of its weight and grad slots only */
	PP_FLAG_COUNT = 3
};

/* One stream instruction, 32 bytes. Which fields an op uses: ops.def; the others are 0 (slots: PP_NULL). */
struct pp_instr {
	uint8_t op;    /* enum pp_op */
	uint8_t sub;   /* load kind, collective, update rule, mean */
	uint8_t flags; /* enum pp_instr_flag */
	uint8_t dtype; /* enum pp_dtype of the payload */
	uint32_t stage;
	uint32_t mb;
	uint32_t a[4];
	union {
		uint32_t count; /* elements of the payload */
		uint32_t extra; /* remat, bwd, bwdi, bwdw, opt: a slot */
	};
};

struct pp_stream {
	struct pp_instr *items;
	uint32_t count;
	/* One per item: position in the global order G of a post (`@N` in text), PP_NULL elsewhere; or NULL: not given. */
	uint32_t *order;
	struct pp_span *spans; /* one per item when read from text, else NULL */
};

/* ---- tables ---------------------------------------------------------------------------------- */

enum pp_slot_class {
	PP_SLOT_RECV, /* receive ring of a channel */
	PP_SLOT_OUT,  /* output of a stage: sent, or handed over on the rank */
	PP_SLOT_STASH,
	PP_SLOT_AUX,    /* token ids, labels (i32) */
	PP_SLOT_EXTRA,  /* what a backward needs for a short time: recomputed, or from bwdi to bwdw */
	PP_SLOT_WEIGHT, /* static from here on: live for the whole run */
	PP_SLOT_GRAD,   /* fp32; one per use of a tensor */
	PP_SLOT_MOMENT, /* optimizer state, fp32 */
	PP_SLOT_MASTER, /* fp32: what the optimizer updates, of a weight that is stored in another dtype */
	PP_SLOT_LOSSES, /* f64[2 * microbatches]: (sum, count) of each microbatch */
	PP_SLOT_NORMS,  /* f64[tensors] */
	PP_SLOT_SCALE, /* f64[4]: factor on gradients, global norm (after averaging), 1.0 if finite else 0.0, token count */
	PP_SLOT_WORK,  /* workspace of bodies: contents die with the body */
	PP_SLOT_SCRATCH, /* workspace of kernels on a GPU, beside the registers of bodies (scratch.h): dies with the call */
	PP_SLOT_CLASS_COUNT
};

static inline bool pp_slot_is_static(enum pp_slot_class class)
{
	return class >= PP_SLOT_WEIGHT;
}

struct pp_slot {
	uint8_t class;   /* enum pp_slot_class */
	bool placed;     /* offset is planned */
	uint32_t tensor; /* weight, grad, moment, master: whose */
	uint64_t bytes;
	uint64_t offset; /* within the rank's arena, a multiple of PP_ALIGN */
};

enum { PP_ALIGN = 256 };

/* What a slot takes of its arena. An empty value gets a place of its own too, so that its slot is its alone while it
 * lives. */
static inline uint64_t pp_aligned(uint64_t bytes)
{
	if (bytes > UINT64_MAX - PP_ALIGN)
		return UINT64_MAX / PP_ALIGN * PP_ALIGN;
	return bytes ? (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN : PP_ALIGN;
}

struct pp_rank {
	struct pp_slot *slots;
	uint32_t slot_count;
	uint64_t arena_bytes;  /* planned size of the arena */
	uint64_t static_bytes; /* of it: slots of static classes */
	uint64_t live_bytes;   /* largest sum of live dynamic slots at one instant: lower bound of the dynamic part */
	uint64_t capacity;     /* bytes it may use: memory of the device, or the schedule's cap; 0: unknown */
	uint64_t reserve;      /* of it not ours */
	uint32_t node, gpu;
	uint32_t sms;      /* multiprocessors of its device; 0: not a GPU */
	uint32_t post_sms; /* of them for posts that are outstanding together (V11); 0: no limit */
};

enum pp_init { PP_INIT_ZERO, PP_INIT_ONE, PP_INIT_NORMAL, PP_INIT_COUNT };
enum pp_tp_grad { PP_TP_SHARDED, PP_TP_REPLICATED_EQUAL, PP_TP_REPLICATED_PARTIAL, PP_TP_GRAD_COUNT };

/* One global parameter tensor. Its id is its index; ids ascend in layer order and never depend on pp, vpp, tp. */
struct pp_tensor {
	const char *name;       /* e.g. block.3.attn.q.weight: unique, printable ASCII, no blanks */
	uint32_t rows, columns; /* logical shape; a vector has columns = 1 and is 1-dimensional */
	uint8_t dims;           /* 1 or 2 */
	uint8_t dtype;
	uint8_t init;    /* enum pp_init */
	uint8_t tp_grad; /* enum pp_tp_grad */
	uint8_t shard;   /* dimension split over tp, in equal parts, where tp_grad is PP_TP_SHARDED; else 255 */
	bool decay;      /* weight decay applies */
	double std;      /* PP_INIT_NORMAL */
};

/* One use of a tensor by a stage. Uses of one tensor on one rank share the weight slot; each has its own grad
 * slot. A tensor with several uses is tied. Sorted by (tensor, use order = layer order). */
struct pp_use {
	uint32_t tensor, stage;
	uint32_t weight, grad; /* slots on the stage's rank */
};

struct pp_stage {
	uint32_t rank;
	const char *title; /* "emb, block[0..1]" */
	uint32_t first_layer, layer_count;
	/* Elements of the output (and of the gradient that comes back); 0 for the last stage or data-less layers. */
	uint32_t out_count;
	uint8_t out_dtype;
	bool loads_tokens, loads_labels;
	bool recomputes;               /* runs one remat per microbatch before bwd or bwdi */
	uint32_t body[PP_PHASE_COUNT]; /* index of the body, PP_NULL: phase not used by this program */
	uint64_t stash_bytes, extra_bytes, aux_bytes;
	uint64_t ticks[PP_PHASE_COUNT]; /* predicted time, ns */
	uint64_t flops[PP_PHASE_COUNT];
};

struct pp_channel {
	uint32_t source, destination; /* pipeline ranks, different */
	uint8_t kind;                 /* enum pp_value */
	uint32_t depth;               /* receive slots: posts that may be outstanding at the receiver */
	uint32_t messages;            /* per step of `train` */
	uint64_t latency;             /* ns */
	uint64_t bandwidth;           /* bytes per second; 0: transfers take only the latency */
	uint32_t ctas;                /* thread blocks of its communicator on a GPU (NCCL's maxCTAs); 0: its own choice */
};

enum pp_axis { PP_AXIS_PP, PP_AXIS_TP, PP_AXIS_DP, PP_AXIS_COUNT };

/* In which order coordinates become world ranks, fastest axis first. */
enum pp_rank_order {
	PP_ORDER_TP_DP_PP,
	PP_ORDER_TP_PP_DP,
	PP_ORDER_DP_TP_PP,
	PP_ORDER_DP_PP_TP,
	PP_ORDER_PP_TP_DP,
	PP_ORDER_PP_DP_TP,
	PP_RANK_ORDER_COUNT
};

/* A group of ranks that take part in collectives. On the pp axis: the listed pipeline ranks, ascending.
 * On tp and dp: symbolic, members depend on the coordinate. */
struct pp_group {
	uint8_t axis;
	uint32_t *members;
	uint32_t member_count;
	uint64_t latency, bandwidth; /* as in pp_channel, per step of the ring formula */
	uint32_t ctas;               /* as in pp_channel */
};

/* Step-tail memory traffic is priced at `memory_bandwidth` (bytes/s; 0: free). */
struct pp_cost {
	uint64_t memory_bandwidth;
	uint64_t peak_flops;    /* per device for this dtype, for MFU */
	uint32_t pair_permille; /* cost of an overlapped pair, 1000 = sum of both */
};

/* ---- bodies ---------------------------------------------------------------------------------- */

enum pp_base {
	PP_BASE_IN, /* IN to DIN: operands of the call */
	PP_BASE_AUX,
	PP_BASE_OUT,
	PP_BASE_STASH,
	PP_BASE_EXTRA,
	PP_BASE_DOUT,
	PP_BASE_DIN,
	PP_BASE_WORK,   /* the rank's workspace */
	PP_BASE_WEIGHT, /* a weight slot of the stage's rank */
	PP_BASE_GRAD,   /* a grad slot of the stage's rank */
	PP_BASE_LOSS,   /* the entry of this microbatch in the rank's losses slot: f64[2] */
	PP_BASE_COUNT
};

enum pp_tp_type { PP_TYPE_R, PP_TYPE_P, PP_TYPE_S, PP_TYPE_COUNT };

/* A body register: a typed array at base + offset. */
struct pp_reg {
	const char *name; /* unique in the body; the bodies of a stage call a value of the stash by one name */
	uint8_t base;     /* enum pp_base */
	uint8_t dtype;
	uint8_t type;           /* enum pp_tp_type */
	uint8_t shard;          /* dimension of PP_TYPE_S */
	uint32_t slot;          /* PP_BASE_WEIGHT, PP_BASE_GRAD: slot of the stage's rank; else PP_NULL */
	uint32_t rows, columns; /* local shape; a vector has columns = 1 */
	uint64_t offset;        /* bytes, a multiple of 16 (64 where the builder can) */
};

struct pp_body_instr {
	uint8_t op;                             /* enum pp_body_op */
	uint32_t operand[PP_BODY_OPERANDS_MAX]; /* registers: inputs, then outputs; PP_NULL where optional and absent */
	uint64_t imm[PP_BODY_IMMEDIATES_MAX];
};

struct pp_body {
	uint32_t stage;
	uint8_t phase; /* enum pp_phase */
	struct pp_reg *regs;
	uint32_t reg_count;
	struct pp_body_instr *items;
	uint32_t count;
	uint64_t work_bytes;
};

/* ---- proof and program ----------------------------------------------------------------------- */

enum pp_layout {
	PP_LAYOUT_CHANNEL,
	PP_LAYOUT_EDGE,
	PP_LAYOUT_DIRECTION,
	PP_LAYOUT_PAIR,
	PP_LAYOUT_RANK,
	PP_LAYOUT_BLOCKING,
	PP_LAYOUT_COUNT
};

enum { PP_ALL_LAYOUTS = (1 << PP_LAYOUT_COUNT) - 1 };

/* How the streams came to their order: codegen/lower.c. */
enum pp_lowered {
	PP_LOWERED_GIVEN, /* written like that */
	PP_LOWERED_END,   /* one global order, computes at their end */
	PP_LOWERED_LAZY,  /* the same, but computes as late as posts allow */
	PP_LOWERED_START, /* the same, but computes at their start */
	PP_LOWERED_FREE,  /* no global order: only `channel` is sure to be proven */
	PP_LOWERED_COUNT
};

/* What the verifier found; stamped into the image, proved again at load. */
struct pp_stamp {
	bool proven;
	uint32_t layouts;      /* bit per enum pp_layout: no deadlock under rendezvous */
	uint32_t in_order;     /* the same where, besides, what a rank posts starts in the order of its stream */
	bool bits_fixed;       /* no reduction order depends on the schedule */
	char bits_reason[120]; /* why not */
};

/* Is it free of deadlock in that layout? */
static inline bool pp_stamp_proves(const struct pp_stamp *stamp, enum pp_layout layout)
{
	return stamp->layouts >> layout & 1;
}

struct pp_named_program {
	const char *name;          /* "train" or "eval" */
	struct pp_stream *streams; /* one per pipeline rank */
};

struct pp_program {
	struct pp_arena *arena;
	uint32_t ranks; /* pipeline ranks (pp) */
	uint32_t tp, dp, vpp;
	uint32_t zero;      /* 1: the optimizer's state is sharded over dp (semantics 10) */
	uint8_t rank_order; /* enum pp_rank_order */
	uint32_t gpus;      /* devices per node, for the node of a world rank; 0: all on one */
	uint32_t stage_count, microbatches;
	struct pp_stage *stages;
	struct pp_rank *rank; /* [ranks] */
	struct pp_tensor *tensors;
	uint32_t tensor_count;
	struct pp_use *uses;
	uint32_t use_count;
	struct pp_channel *channels;
	uint32_t channel_count;
	struct pp_group *groups;
	uint32_t group_count;
	struct pp_body *bodies;
	uint32_t body_count;
	const char **texts; /* of `mark` */
	uint32_t text_count;
	struct pp_cost cost;
	struct pp_train train;
	struct pp_named_program *programs;
	uint32_t program_count;
	struct pp_stamp stamp;
	const char *schedule_name;             /* of the policy, for people */
	uint64_t schedule_memory;              /* its `memory <=`, which capacities heed already; 0: none */
	uint8_t lowering;                      /* enum pp_lowered, for people too */
	const char *source_name, *source_text; /* the .pipe file, may be NULL */
	const char *tool_version;
};

/* Names of enumerators as the text form writes them; each table has the COUNT of its enum. */
extern const char *const pp_dtype_name[PP_DTYPE_COUNT]; /* f32 bf16 f64 i32 */
extern const char *const pp_value_name[PP_VALUE_COUNT]; /* act grad */
extern const char *const pp_phase_name[PP_PHASE_COUNT]; /* F B I W R */
extern const char *const pp_load_name[PP_LOAD_COUNT];
extern const char *const pp_collective_name[PP_COLLECTIVE_COUNT];
/* recv out stash aux extra weight grad moment master losses norms scale work scratch */
extern const char *const pp_slot_class_name[PP_SLOT_CLASS_COUNT];
extern const char *const pp_init_name[PP_INIT_COUNT];
extern const char *const pp_tp_grad_name[PP_TP_GRAD_COUNT];
extern const char *const pp_axis_name[PP_AXIS_COUNT];
extern const char *const pp_rank_order_name[PP_RANK_ORDER_COUNT]; /* tp,dp,pp and so on */
extern const char *const pp_base_name[PP_BASE_COUNT];
extern const char *const pp_layout_name[PP_LAYOUT_COUNT];
extern const char *const pp_lowered_name[PP_LOWERED_COUNT]; /* given end lazy start free */
extern const char *const pp_flag_name[PP_FLAG_COUNT]; /* first pair shard: of enum pp_instr_flag, lowest bit first */
extern const uint32_t pp_dtype_size[PP_DTYPE_COUNT];

/* Is it `eval`: forwards alone, which leave nothing behind but losses? */
bool pp_is_forward_only(const struct pp_named_program *named);

const struct pp_named_program *pp_program_find(const struct pp_program *program, const char *name);

/* Is there a master copy of the weights of a tensor? */
static inline bool pp_tensor_has_master(const struct pp_tensor *tensor)
{
	return tensor->dtype != PP_F32;
}

/* Elements of a tensor that one coordinate of the tp axis holds. */
uint64_t pp_local_elements(const struct pp_program *program, uint32_t tensor);

/* Elements of a tensor that one dp coordinate owns, padding of the last one included: all local ones unless `zero`. */
uint64_t pp_shard_elements(const struct pp_program *program, uint32_t tensor);

/* Bytes of what a static slot holds. False: nothing but the slot itself says it (custom layers, workspace), or the slot
 * is of a dynamic class. */
bool pp_slot_content_bytes(const struct pp_program *program, const struct pp_slot *slot, uint64_t *bytes);

/* Bytes of the payload of a send, recv or coll. */
static inline uint64_t pp_payload_bytes(const struct pp_instr *instr)
{
	return (uint64_t)instr->count * pp_dtype_size[instr->dtype];
}

/* Slot operand `1` + index of the signature: a[0] .. a[3], extra. */
enum { PP_SLOT_OPERANDS = 5 };
static inline uint32_t pp_instr_slot(const struct pp_instr *instr, unsigned index)
{
	return index < 4 ? instr->a[index] : instr->extra;
}

/* latency + ceil(bytes / bandwidth), ns; saturates. */
uint64_t pp_transfer_ticks(uint64_t latency, uint64_t bandwidth, uint64_t bytes);

#endif
