/* A body instruction with its operands bound: what devices read off it before they call a kernel. Shapes, addresses and
 * what follows from the position in the tensor-parallel group are the same on every device. For bodies of
 * devices only, hence the short names. */
#ifndef PP_BODY_FRAME_H
#define PP_BODY_FRAME_H

#include "device.h"

#include "kernels/kernels.h"

/* A call with its operands bound to addresses; weights and gradients lie in the arena at the offsets of their slots. */
struct pp_bound_call {
	const struct pp_body *body;
	bool first; /* write gradients instead of adding */
	unsigned char *base[PP_BASE_COUNT];
	unsigned char *arena;
	const struct pp_slot *slots;
	const struct pp_body_link *link; /* may be NULL */
	uint32_t tp, tp_coord;           /* size of the tensor-parallel group, own position */
	uint32_t *tickets;               /* [registers of the body]: of posts */
};

/* Slots of the call, from the arena on; workspace and losses are the device's to set. */
static inline void bind_slots(struct pp_bound_call *bound, const struct pp_call *call)
{
	const uint32_t operand[PP_BASE_COUNT] = {
	    [PP_BASE_IN] = call->in,       [PP_BASE_AUX] = call->aux,     [PP_BASE_OUT] = call->out,
	    [PP_BASE_STASH] = call->stash, [PP_BASE_EXTRA] = call->extra, [PP_BASE_DOUT] = call->dout,
	    [PP_BASE_DIN] = call->din,
	};
	static const enum pp_base from_call[] = {PP_BASE_IN,    PP_BASE_AUX,  PP_BASE_OUT, PP_BASE_STASH,
	                                         PP_BASE_EXTRA, PP_BASE_DOUT, PP_BASE_DIN};
	for (size_t i = 0; i < sizeof from_call / sizeof *from_call; i++) {
		uint32_t slot = operand[from_call[i]];
		bound->base[from_call[i]] = slot == PP_NULL ? NULL : bound->arena + bound->slots[slot].offset;
	}
}

/* One body instruction at work. */
struct frame {
	const struct pp_bound_call *call;
	const struct pp_body_instr *instr;
	void *context; /* of the device */
};

static inline const struct pp_reg *shape(const struct frame *frame, unsigned operand)
{
	return &frame->call->body->regs[frame->instr->operand[operand]];
}

static inline void *at(const struct frame *frame, unsigned operand)
{
	if (frame->instr->operand[operand] == PP_NULL)
		return NULL;
	const struct pp_reg *reg = shape(frame, operand);
	const struct pp_bound_call *call = frame->call;
	bool by_slot = reg->base == PP_BASE_WEIGHT || reg->base == PP_BASE_GRAD;
	return (by_slot ? call->arena + call->slots[reg->slot].offset : call->base[reg->base]) + reg->offset;
}

static inline size_t elements(const struct frame *frame, unsigned operand)
{
	return (size_t)shape(frame, operand)->rows * shape(frame, operand)->columns;
}

static inline size_t operand_bytes(const struct frame *frame, unsigned operand)
{
	return elements(frame, operand) * pp_dtype_size[shape(frame, operand)->dtype];
}

/* Whether a gradient output is added to: not in the first call of a step, and never for an array of the body. */
static inline bool adds(const struct frame *frame, unsigned operand)
{
	return frame->instr->operand[operand] != PP_NULL && shape(frame, operand)->base == PP_BASE_GRAD &&
	       !frame->call->first;
}

/* Rows of a token table that are here: all, or the shard of this coordinate. */
static inline struct pp_table_part table_part(const struct frame *f, unsigned table)
{
	const struct pp_reg *reg = shape(f, table);
	bool sharded = reg->type == PP_TYPE_S && reg->shard == 0;
	return (struct pp_table_part){.first = sharded ? (size_t)f->call->tp_coord * reg->rows : 0, .rows = reg->rows};
}

/* Each run of as many columns as gamma has is a row of the kernel. */
static inline size_t norm_rows(const struct frame *f, unsigned x, unsigned gamma)
{
	return elements(f, x) / shape(f, gamma)->rows;
}

static inline struct pp_attention attention_shape(const struct frame *f, unsigned q)
{
	const uint64_t *imm = f->instr->imm;
	return (struct pp_attention){
	    .tokens = shape(f, q)->rows,
	    .seq = imm[0],
	    .heads = imm[1],
	    .kv_heads = imm[2],
	    .head_columns = shape(f, q)->columns / imm[1],
	    .window = imm[3],
	};
}

static inline struct pp_rotation rotation_shape(const struct frame *f, unsigned x, bool back)
{
	const uint64_t *imm = f->instr->imm;
	return (struct pp_rotation){
	    .tokens = shape(f, x)->rows,
	    .seq = imm[0],
	    .heads = imm[1],
	    .head_columns = shape(f, x)->columns / imm[1],
	    .theta = imm[2],
	    .back = back,
	};
}

static inline enum pp_gelu activation(const struct frame *f)
{
	return f->instr->imm[0] ? PP_GELU_TANH : PP_GELU_ERF;
}

/* The shard of the logits that this coordinate has. */
static inline struct pp_vocab_part vocab_part(const struct frame *f, unsigned logits)
{
	size_t columns = shape(f, logits)->columns;
	return (struct pp_vocab_part){
	    .vocab = f->instr->imm[0], .first = (size_t)f->call->tp_coord * columns, .columns = columns};
}

/* First column of the key/value head of this coordinate, among `all` columns of all heads. */
static inline size_t own_head_column(const struct frame *f, size_t all)
{
	uint32_t kv_heads = (uint32_t)f->instr->imm[0];
	return f->call->tp_coord / (f->call->tp / kv_heads) * (all / kv_heads);
}

/* Post a collective of X into Y on a group of more than one. */
static inline void post_collective(const struct frame *f, enum pp_collective kind)
{
	enum { X, Y };
	const struct pp_bound_call *call = f->call;
	uint64_t count = elements(f, kind == PP_REDUCESCATTER ? Y : X);
	call->tickets[f->instr->operand[Y]] =
	    call->link->post(call->link->context, kind, (enum pp_dtype)shape(f, X)->dtype, at(f, X), at(f, Y), count);
}

static inline bool await_collective(const struct frame *f)
{
	enum { X };
	const struct pp_bound_call *call = f->call;
	return call->tp == 1 || call->link->await(call->link->context, call->tickets[f->instr->operand[X]]);
}

#endif
