/* Bodies on a GPU: a table indexed by op, as on the CPU. Requires a verified program whose products are planned. */
#include "body_cuda.h"

#include "fuse_cuda.h"

static const struct pp_cuda_body *with(const struct frame *f)
{
	return f->context;
}

static cudaStream_t stream(const struct frame *f)
{
	return with(f)->stream;
}

static enum pp_cuda_type type(const struct frame *f, unsigned operand)
{
	return shape(f, operand)->dtype == PP_BF16 ? PP_CUDA_BF16 : PP_CUDA_F32;
}

static bool run_embed(const struct frame *f)
{
	enum { IDS, WTE, WPE, Y };
	struct pp_table_part part = table_part(f, WTE);
	pp_cuda_embed(stream(f), type(f, Y), shape(f, Y)->rows, shape(f, Y)->columns, f->instr->imm[0], &part, at(f, IDS),
	              at(f, WTE), f->call->tp_coord == 0 ? at(f, WPE) : NULL, at(f, Y));
	return true;
}

static bool run_embed_dw(const struct frame *f)
{
	enum { IDS, DY, DWTE, DWPE };
	struct pp_table_part part = table_part(f, DWTE);
	size_t positions = at(f, DWPE) ? shape(f, DWPE)->rows : 0;
	pp_cuda_embed_dw(stream(f), type(f, DY), shape(f, DY)->rows, shape(f, DY)->columns, f->instr->imm[0], &part,
	                 positions, at(f, IDS), at(f, DY), at(f, DWTE), adds(f, DWTE), at(f, DWPE), adds(f, DWPE),
	                 with(f)->scratch);
	return true;
}

static bool run_norm(const struct frame *f)
{
	enum { X, GAMMA, BETA, Y, MEAN, RSTD };
	pp_cuda_norm(stream(f), type(f, X), norm_rows(f, X, GAMMA), shape(f, GAMMA)->rows, f->instr->imm[0], at(f, X),
	             at(f, GAMMA), at(f, BETA), at(f, Y), at(f, MEAN), at(f, RSTD));
	return true;
}

/* The frame stands at the add. */
static void run_add_norm(const struct frame *add, const struct pp_body_instr *instr)
{
	enum { A, B, SUM };
	enum { X, GAMMA, BETA, Y, MEAN, RSTD };
	struct frame of_norm = *add;
	of_norm.instr = instr;
	const struct frame *f = &of_norm;
	pp_cuda_add_norm(stream(f), type(f, X), norm_rows(f, X, GAMMA), shape(f, GAMMA)->rows, f->instr->imm[0], at(add, A),
	                 at(add, B), at(add, SUM), at(f, GAMMA), at(f, BETA), at(f, Y), at(f, MEAN), at(f, RSTD));
}

static bool run_norm_dx(const struct frame *f)
{
	enum { DY, X, GAMMA, MEAN, RSTD, DX };
	pp_cuda_norm_dx(stream(f), type(f, DY), norm_rows(f, X, GAMMA), shape(f, GAMMA)->rows, f->instr->imm[0], at(f, DY),
	                at(f, X), at(f, GAMMA), at(f, MEAN), at(f, RSTD), at(f, DX));
	return true;
}

/* The frame stands at the norm_dx; the add has dx and something else as operands. */
static void run_norm_dx_add(const struct frame *f, const struct pp_body_instr *instr)
{
	enum { DY, X, GAMMA, MEAN, RSTD, DX };
	enum { A, B };
	struct frame add = *f;
	add.instr = instr;
	unsigned other = instr->operand[A] == f->instr->operand[DX] ? B : A;
	pp_cuda_norm_dx_add(stream(f), type(f, DY), norm_rows(f, X, GAMMA), shape(f, GAMMA)->rows, f->instr->imm[0],
	                    at(f, DY), at(f, X), at(f, GAMMA), at(f, MEAN), at(f, RSTD), at(&add, other), at(f, DX));
}

static bool run_norm_dw(const struct frame *f)
{
	enum { DY, X, MEAN, RSTD, DGAMMA, DBETA };
	pp_cuda_norm_dw(stream(f), type(f, DY), norm_rows(f, X, DGAMMA), shape(f, DGAMMA)->rows, f->instr->imm[0],
	                at(f, DY), at(f, X), at(f, MEAN), at(f, RSTD), at(f, DGAMMA), adds(f, DGAMMA), at(f, DBETA),
	                adds(f, DBETA), with(f)->scratch);
	return true;
}

static bool run_linear(const struct frame *f)
{
	enum { X, W, B, Y };
	pp_gemm_linear(with(f)->gemm, stream(f), type(f, X), shape(f, X)->rows, shape(f, W)->columns, shape(f, W)->rows,
	               at(f, X), at(f, W), at(f, B), at(f, Y), with(f)->scratch);
	return true;
}

static bool run_linear_dx(const struct frame *f)
{
	enum { DY, W, DX };
	pp_gemm_linear_dx(with(f)->gemm, stream(f), type(f, DY), shape(f, DY)->rows, shape(f, W)->columns,
	                  shape(f, W)->rows, at(f, DY), at(f, W), at(f, DX), with(f)->scratch);
	return true;
}

static bool run_linear_dw(const struct frame *f)
{
	enum { DY, X, DW, DB };
	size_t tokens = shape(f, DY)->rows, outputs = shape(f, DW)->rows;
	pp_gemm_linear_dw(with(f)->gemm, stream(f), type(f, DY), tokens, shape(f, DW)->columns, outputs, at(f, DY),
	                  at(f, X), at(f, DW), adds(f, DW), with(f)->scratch);
	if (at(f, DB))
		pp_cuda_column_sums(stream(f), type(f, DY), tokens, outputs, at(f, DY), at(f, DB), adds(f, DB),
		                    with(f)->scratch);
	return true;
}

static bool run_attn(const struct frame *f)
{
	enum { Q, K, V, O, LSE };
	struct pp_attention attention = attention_shape(f, Q);
	pp_cuda_attention(stream(f), type(f, Q), &attention, at(f, Q), at(f, K), at(f, V), at(f, O), at(f, LSE));
	return true;
}

static bool run_attn_dx(const struct frame *f)
{
	enum { DO, Q, K, V, O, LSE, DQ, DK, DV };
	struct pp_attention attention = attention_shape(f, Q);
	pp_cuda_attention_dx(stream(f), type(f, Q), &attention, at(f, DO), at(f, Q), at(f, K), at(f, V), at(f, O),
	                     at(f, LSE), at(f, DQ), at(f, DK), at(f, DV), with(f)->scratch);
	return true;
}

static bool rotate(const struct frame *f, bool back)
{
	enum { X, Y };
	struct pp_rotation rotation = rotation_shape(f, X, back);
	pp_cuda_rotate(stream(f), type(f, X), &rotation, at(f, X), at(f, Y), with(f)->scratch);
	return true;
}

static bool run_rope(const struct frame *f)
{
	return rotate(f, false);
}

static bool run_rope_dx(const struct frame *f)
{
	return rotate(f, true);
}

static bool run_act(const struct frame *f)
{
	enum { X, Y };
	pp_cuda_activate(stream(f), type(f, X), activation(f), elements(f, X), at(f, X), at(f, Y));
	return true;
}

static bool run_act_dx(const struct frame *f)
{
	enum { DY, X, DX };
	pp_cuda_activate_dx(stream(f), type(f, X), activation(f), elements(f, X), at(f, DY), at(f, X), at(f, DX));
	return true;
}

static bool run_swiglu(const struct frame *f)
{
	enum { GATE, UP, Y };
	pp_cuda_swiglu(stream(f), type(f, Y), elements(f, Y), at(f, GATE), at(f, UP), at(f, Y));
	return true;
}

static bool run_swiglu_dx(const struct frame *f)
{
	enum { DY, GATE, UP, DGATE, DUP };
	pp_cuda_swiglu_dx(stream(f), type(f, DY), elements(f, DY), at(f, DY), at(f, GATE), at(f, UP), at(f, DGATE),
	                  at(f, DUP));
	return true;
}

static bool run_add(const struct frame *f)
{
	enum { A, B, Y };
	pp_cuda_add(stream(f), type(f, Y), elements(f, Y), at(f, A), at(f, B), at(f, Y));
	return true;
}

static bool run_copy(const struct frame *f)
{
	enum { X, Y };
	pp_cuda_copy(stream(f), operand_bytes(f, Y), at(f, X), at(f, Y));
	return true;
}

/* A group of one keeps its value. */
static bool post(const struct frame *f, enum pp_collective kind)
{
	if (f->call->tp == 1)
		return run_copy(f);
	post_collective(f, kind);
	return true;
}

static bool run_allreduce(const struct frame *f)
{
	return post(f, PP_ALLREDUCE);
}

static bool run_allgather(const struct frame *f)
{
	return post(f, PP_ALLGATHER);
}

static bool run_reducescatter(const struct frame *f)
{
	return post(f, PP_REDUCESCATTER);
}

static bool run_xent(const struct frame *f)
{
	enum { LOGITS, LABELS, DLOGITS, LOSS };
	pp_cuda_cross_entropy(stream(f), type(f, LOGITS), shape(f, LOGITS)->rows, f->instr->imm[0],
	                      shape(f, LOGITS)->columns, f->instr->imm[1] != 0, at(f, LOGITS), at(f, LABELS),
	                      at(f, DLOGITS), at(f, LOSS), with(f)->scratch);
	return true;
}

static bool run_xent_stats(const struct frame *f)
{
	enum { LOGITS, LABELS, STATS };
	struct pp_vocab_part part = vocab_part(f, LOGITS);
	pp_cuda_cross_entropy_stats(stream(f), type(f, LOGITS), &part, shape(f, LOGITS)->rows, at(f, LOGITS), at(f, LABELS),
	                            at(f, STATS));
	return true;
}

static bool run_xent_shard(const struct frame *f)
{
	enum { LOGITS, LABELS, STATS, DLOGITS, LOSS };
	size_t tokens = shape(f, LOGITS)->rows;
	struct pp_vocab_part part = vocab_part(f, LOGITS);
	pp_cuda_cross_entropy_part(stream(f), type(f, LOGITS), &part, tokens, shape(f, STATS)->rows / tokens,
	                           f->instr->imm[1] != 0, at(f, LOGITS), at(f, LABELS), at(f, STATS), at(f, DLOGITS),
	                           at(f, LOSS), with(f)->scratch);
	return true;
}

static bool run_add_bias(const struct frame *f)
{
	enum { A, B, BIAS, Y };
	pp_cuda_add_bias(stream(f), type(f, Y), shape(f, Y)->rows, shape(f, Y)->columns, at(f, A), at(f, B), at(f, BIAS),
	                 at(f, Y));
	return true;
}

static bool run_own_head(const struct frame *f)
{
	enum { X, Y };
	size_t all = shape(f, X)->columns;
	pp_cuda_take_columns(stream(f), type(f, X), shape(f, X)->rows, all, own_head_column(f, all), shape(f, Y)->columns,
	                     at(f, X), at(f, Y));
	return true;
}

static bool run_own_head_dx(const struct frame *f)
{
	enum { DY, DX };
	size_t all = shape(f, DX)->columns;
	pp_cuda_put_columns(stream(f), type(f, DX), shape(f, DX)->rows, all, own_head_column(f, all), shape(f, DY)->columns,
	                    at(f, DY), at(f, DX));
	return true;
}

static bool run_await(const struct frame *f)
{
	return await_collective(f);
}

static bool run_fill(const struct frame *f)
{
	enum { Y };
	pp_cuda_zero(stream(f), operand_bytes(f, Y), at(f, Y));
	return true;
}

static bool run_sleep(const struct frame *f)
{
	pp_cuda_sleep(stream(f), f->instr->imm[0]);
	return true;
}

static bool (*const run[PP_BODY_OP_COUNT])(const struct frame *) = {
    [PP_BODY_EMBED] = run_embed,
    [PP_BODY_EMBED_DW] = run_embed_dw,
    [PP_BODY_NORM] = run_norm,
    [PP_BODY_NORM_DX] = run_norm_dx,
    [PP_BODY_NORM_DW] = run_norm_dw,
    [PP_BODY_LINEAR] = run_linear,
    [PP_BODY_LINEAR_DX] = run_linear_dx,
    [PP_BODY_LINEAR_DW] = run_linear_dw,
    [PP_BODY_ATTN] = run_attn,
    [PP_BODY_ATTN_DX] = run_attn_dx,
    [PP_BODY_ROPE] = run_rope,
    [PP_BODY_ROPE_DX] = run_rope_dx,
    [PP_BODY_ACT] = run_act,
    [PP_BODY_ACT_DX] = run_act_dx,
    [PP_BODY_SWIGLU] = run_swiglu,
    [PP_BODY_SWIGLU_DX] = run_swiglu_dx,
    [PP_BODY_ADD] = run_add,
    [PP_BODY_COPY] = run_copy,
    [PP_BODY_XENT] = run_xent,
    [PP_BODY_XENT_STATS] = run_xent_stats,
    [PP_BODY_XENT_SHARD] = run_xent_shard,
    [PP_BODY_ADD_BIAS] = run_add_bias,
    [PP_BODY_OWN_HEAD] = run_own_head,
    [PP_BODY_OWN_HEAD_DX] = run_own_head_dx,
    [PP_BODY_SLEEP] = run_sleep,
    [PP_BODY_FILL] = run_fill,
    [PP_BODY_ALLREDUCE] = run_allreduce,
    [PP_BODY_ALLGATHER] = run_allgather,
    [PP_BODY_REDUCESCATTER] = run_reducescatter,
    [PP_BODY_AWAIT] = run_await,
};

bool pp_cuda_has_op(enum pp_body_op op)
{
	return op < PP_BODY_OP_COUNT && run[op] != NULL;
}

bool pp_cuda_is_exchange(const struct pp_body_instr *instr, uint32_t tp)
{
	static const bool exchanges[PP_BODY_OP_COUNT] = {
	    [PP_BODY_ALLREDUCE] = true, [PP_BODY_ALLGATHER] = true, [PP_BODY_REDUCESCATTER] = true, [PP_BODY_AWAIT] = true};
	return tp > 1 && exchanges[instr->op];
}

uint32_t pp_cuda_stretch_end(const struct pp_body *body, uint32_t first, uint32_t tp)
{
	uint32_t end = first + 1;
	if (pp_cuda_is_exchange(&body->items[first], tp))
		return end;
	while (end < body->count && !pp_cuda_is_exchange(&body->items[end], tp))
		end++;
	return end;
}

/* Runs the kernel that does instruction `at` and later ones, if there is one; which of them comes next, or `at`. */
static uint32_t run_fused(const struct frame *f, const struct pp_body *body, uint32_t at, uint32_t end)
{
	if (at + 1 < end && pp_cuda_fuses_add_norm(body, at)) {
		run_add_norm(f, &body->items[at + 1]);
		return at + 2;
	}
	uint32_t add = pp_cuda_fused_add_of_norm_dx(body, at, end);
	if (add == 0)
		return at;
	run_norm_dx_add(f, &body->items[add]);
	struct frame between = *f;
	between.instr = &body->items[at + 1];
	if (add == at + 2)
		run_norm_dw(&between);
	return add + 1;
}

bool pp_cuda_run_body(const struct pp_cuda_body *body, const struct pp_bound_call *call, uint32_t first, uint32_t end)
{
	struct frame frame = {.call = call, .context = (void *)(uintptr_t)body};
	for (uint32_t i = first; i < end;) {
		frame.instr = &call->body->items[i];
		uint32_t next = run_fused(&frame, call->body, i, end);
		if (next == i && !run[frame.instr->op](&frame))
			return false;
		i = next > i ? next : i + 1;
	}
	return true;
}
