/* Bodies on the CPU: binds the operands of each body instruction and calls its kernel, by a table indexed by op. */
#include "body_cpu.h"

#include "clock.h"

#include <sched.h>
#include <string.h>
#include <time.h>

static void poll(const struct frame *frame)
{
	const struct pp_body_link *link = frame->call->link;
	if (link && link->poll)
		link->poll(link->context);
}

static void run_embed(const struct frame *f)
{
	enum { IDS, WTE, WPE, Y };
	struct pp_table_part part = table_part(f, WTE);
	pp_cpu_embed_part(shape(f, Y)->rows, shape(f, Y)->columns, f->instr->imm[0], &part, at(f, IDS), at(f, WTE),
	                  f->call->tp_coord == 0 ? at(f, WPE) : NULL, at(f, Y));
}

static void run_embed_dw(const struct frame *f)
{
	enum { IDS, DY, DWTE, DWPE };
	struct pp_table_part part = table_part(f, DWTE);
	size_t positions = at(f, DWPE) ? shape(f, DWPE)->rows : 0;
	pp_cpu_embed_part_dw(shape(f, DY)->rows, shape(f, DY)->columns, f->instr->imm[0], &part, positions, at(f, IDS),
	                     at(f, DY), at(f, DWTE), adds(f, DWTE), at(f, DWPE), adds(f, DWPE));
}

static void run_norm(const struct frame *f)
{
	enum { X, GAMMA, BETA, Y, MEAN, RSTD };
	pp_cpu_norm(norm_rows(f, X, GAMMA), shape(f, GAMMA)->rows, f->instr->imm[0], at(f, X), at(f, GAMMA), at(f, BETA),
	            at(f, Y), at(f, MEAN), at(f, RSTD));
}

static void run_norm_dx(const struct frame *f)
{
	enum { DY, X, GAMMA, MEAN, RSTD, DX };
	pp_cpu_norm_dx(norm_rows(f, X, GAMMA), shape(f, GAMMA)->rows, f->instr->imm[0], at(f, DY), at(f, X), at(f, GAMMA),
	               at(f, MEAN), at(f, RSTD), at(f, DX));
}

static void run_norm_dw(const struct frame *f)
{
	enum { DY, X, MEAN, RSTD, DGAMMA, DBETA };
	pp_cpu_norm_dw(norm_rows(f, X, DGAMMA), shape(f, DGAMMA)->rows, f->instr->imm[0], at(f, DY), at(f, X), at(f, MEAN),
	               at(f, RSTD), at(f, DGAMMA), adds(f, DGAMMA), at(f, DBETA), adds(f, DBETA));
}

static void run_linear(const struct frame *f)
{
	enum { X, W, B, Y };
	pp_cpu_linear(shape(f, X)->rows, shape(f, W)->columns, shape(f, W)->rows, at(f, X), at(f, W), at(f, B), at(f, Y));
}

static void run_linear_dx(const struct frame *f)
{
	enum { DY, W, DX };
	pp_cpu_linear_dx(shape(f, DY)->rows, shape(f, W)->columns, shape(f, W)->rows, at(f, DY), at(f, W), at(f, DX));
}

static void run_linear_dw(const struct frame *f)
{
	enum { DY, X, DW, DB };
	pp_cpu_linear_dw(shape(f, DY)->rows, shape(f, DW)->columns, shape(f, DW)->rows, at(f, DY), at(f, X), at(f, DW),
	                 adds(f, DW), at(f, DB), adds(f, DB));
}

static void run_attn(const struct frame *f)
{
	enum { Q, K, V, O, LSE };
	struct pp_attention attention = attention_shape(f, Q);
	pp_cpu_attention(&attention, at(f, Q), at(f, K), at(f, V), at(f, O), at(f, LSE));
}

static void run_attn_dx(const struct frame *f)
{
	enum { DO, Q, K, V, O, LSE, DQ, DK, DV };
	struct pp_attention attention = attention_shape(f, Q);
	pp_cpu_attention_dx(&attention, at(f, DO), at(f, Q), at(f, K), at(f, V), at(f, O), at(f, LSE), at(f, DQ), at(f, DK),
	                    at(f, DV));
}

static void rotate(const struct frame *f, bool back)
{
	enum { X, Y };
	struct pp_rotation rotation = rotation_shape(f, X, back);
	pp_cpu_rotate(&rotation, at(f, X), at(f, Y));
}

static void run_rope(const struct frame *f)
{
	rotate(f, false);
}

static void run_rope_dx(const struct frame *f)
{
	rotate(f, true);
}

static void run_act(const struct frame *f)
{
	enum { X, Y };
	pp_cpu_activate(activation(f), elements(f, X), at(f, X), at(f, Y));
}

static void run_act_dx(const struct frame *f)
{
	enum { DY, X, DX };
	pp_cpu_activate_dx(activation(f), elements(f, X), at(f, DY), at(f, X), at(f, DX));
}

static void run_swiglu(const struct frame *f)
{
	enum { GATE, UP, Y };
	pp_cpu_swiglu(elements(f, Y), at(f, GATE), at(f, UP), at(f, Y));
}

static void run_swiglu_dx(const struct frame *f)
{
	enum { DY, GATE, UP, DGATE, DUP };
	pp_cpu_swiglu_dx(elements(f, DY), at(f, DY), at(f, GATE), at(f, UP), at(f, DGATE), at(f, DUP));
}

static void run_add(const struct frame *f)
{
	enum { A, B, Y };
	pp_cpu_add(elements(f, Y), at(f, A), at(f, B), at(f, Y));
}

/* Copies any dtype. */
static void run_copy(const struct frame *f)
{
	enum { X, Y };
	memmove(at(f, Y), at(f, X), operand_bytes(f, Y));
}

/* A group of one keeps its value. */
static void post(const struct frame *f, enum pp_collective kind)
{
	if (f->call->tp == 1)
		run_copy(f);
	else
		post_collective(f, kind);
}

static void run_allreduce(const struct frame *f)
{
	post(f, PP_ALLREDUCE);
}

static void run_allgather(const struct frame *f)
{
	post(f, PP_ALLGATHER);
}

static void run_reducescatter(const struct frame *f)
{
	post(f, PP_REDUCESCATTER);
}

static void run_xent(const struct frame *f)
{
	enum { LOGITS, LABELS, DLOGITS, LOSS };
	pp_cpu_cross_entropy(shape(f, LOGITS)->rows, f->instr->imm[0], shape(f, LOGITS)->columns, f->instr->imm[1] != 0,
	                     at(f, LOGITS), at(f, LABELS), at(f, DLOGITS), at(f, LOSS));
}

static void run_xent_stats(const struct frame *f)
{
	enum { LOGITS, LABELS, STATS };
	struct pp_vocab_part part = vocab_part(f, LOGITS);
	pp_cpu_cross_entropy_stats(&part, shape(f, LOGITS)->rows, at(f, LOGITS), at(f, LABELS), at(f, STATS));
}

static void run_xent_shard(const struct frame *f)
{
	enum { LOGITS, LABELS, STATS, DLOGITS, LOSS };
	size_t tokens = shape(f, LOGITS)->rows;
	struct pp_vocab_part part = vocab_part(f, LOGITS);
	pp_cpu_cross_entropy_part(&part, tokens, shape(f, STATS)->rows / tokens, f->instr->imm[1] != 0, at(f, LOGITS),
	                          at(f, LABELS), at(f, STATS), at(f, DLOGITS), at(f, LOSS));
}

static void run_add_bias(const struct frame *f)
{
	enum { A, B, BIAS, Y };
	pp_cpu_add_bias(shape(f, Y)->rows, shape(f, Y)->columns, at(f, A), at(f, B), at(f, BIAS), at(f, Y));
}

static void run_own_head(const struct frame *f)
{
	enum { X, Y };
	size_t all = shape(f, X)->columns;
	pp_cpu_take_columns(shape(f, X)->rows, all, own_head_column(f, all), shape(f, Y)->columns, at(f, X), at(f, Y));
}

static void run_own_head_dx(const struct frame *f)
{
	enum { DY, DX };
	size_t all = shape(f, DX)->columns;
	pp_cpu_put_columns(shape(f, DX)->rows, all, own_head_column(f, all), shape(f, DY)->columns, at(f, DY), at(f, DX));
}

static void run_await(const struct frame *f)
{
	if (!await_collective(f))
		*(bool *)f->context = true; /* lost */
}

static void run_fill(const struct frame *f)
{
	enum { Y };
	memset(at(f, Y), 0, operand_bytes(f, Y));
}

/* Sleep in slices, so that transports make progress, and watch the clock through the last stretch: the kernel wakes
 * up late by about 60 µs. */
static void run_sleep(const struct frame *f)
{
	const uint64_t slice = 200000, watched = 100000;
	uint64_t end = pp_clock() + f->instr->imm[0];
	for (;;) {
		poll(f); /* may move megabytes: look at the clock after it */
		uint64_t time = pp_clock();
		if (time >= end)
			return;
		uint64_t left = end - time;
		if (left <= watched) {
			sched_yield();
			continue;
		}
		uint64_t nap = left - watched < slice || !f->call->link ? left - watched : slice;
		struct timespec wait = {(time_t)(nap / 1000000000), (long)(nap % 1000000000)};
		nanosleep(&wait, NULL);
	}
}

static void (*const run[PP_BODY_OP_COUNT])(const struct frame *) = {
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

bool pp_cpu_has_op(enum pp_body_op op)
{
	return op < PP_BODY_OP_COUNT && run[op] != NULL;
}

bool pp_cpu_run_body(const struct pp_bound_call *call)
{
	bool lost = false;
	struct frame frame = {.call = call, .context = &lost};
	for (uint32_t i = 0; i < call->body->count && !lost; i++) {
		frame.instr = &call->body->items[i];
		run[frame.instr->op](&frame);
		poll(&frame);
	}
	return !lost;
}
