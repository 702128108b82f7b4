/* The CPU device: one arena, bodies run by a table indexed by body op. Requires a program that was verified; ensures
 * that nothing is allocated after create and that one device never touches another's memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "device.h"

#include "init.h"
#include "kernels_cpu.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct pp_device {
	const struct pp_program *program;
	const struct pp_rank *rank;
	unsigned char *arena;
	uint32_t losses; /* slot, or PP_NULL */
	uint32_t work;   /* slot, or PP_NULL */
};

static unsigned char *slot_at(const struct pp_device *device, uint32_t slot)
{
	return slot == PP_NULL ? NULL : device->arena + device->rank->slots[slot].offset;
}

static size_t slot_floats(const struct pp_device *device, uint32_t slot)
{
	return (size_t)(device->rank->slots[slot].bytes / sizeof(float));
}

/* ---- bodies ---------------------------------------------------------------------------------------- */

/* One body instruction at work. */
struct frame {
	struct pp_device *device;
	const struct pp_call *call;
	const struct pp_body_instr *instr;
	unsigned char *base[PP_BASE_COUNT]; /* weights and gradients: by slot */
	void (*poll)(void *);
	void *poll_context;
};

static const struct pp_reg *shape(const struct frame *frame, unsigned operand)
{
	return &frame->call->body->regs[frame->instr->operand[operand]];
}

static void *at(const struct frame *frame, unsigned operand)
{
	if (frame->instr->operand[operand] == PP_NULL)
		return NULL;
	const struct pp_reg *reg = shape(frame, operand);
	bool by_slot = reg->base == PP_BASE_WEIGHT || reg->base == PP_BASE_GRAD;
	return (by_slot ? slot_at(frame->device, reg->slot) : frame->base[reg->base]) + reg->offset;
}

static size_t elements(const struct frame *frame, unsigned operand)
{
	return (size_t)shape(frame, operand)->rows * shape(frame, operand)->columns;
}

/* Whether a gradient output is added to: not in the first call of a step, and never for an array of the body. */
static bool adds(const struct frame *frame, unsigned operand)
{
	return frame->instr->operand[operand] != PP_NULL && shape(frame, operand)->base == PP_BASE_GRAD &&
	       !frame->call->first;
}

static void run_embed(const struct frame *f)
{
	enum { IDS, WTE, WPE, Y };
	pp_cpu_embed(shape(f, Y)->rows, shape(f, Y)->columns, f->instr->imm[0], at(f, IDS), at(f, WTE), at(f, WPE),
	             at(f, Y));
}

static void run_embed_dw(const struct frame *f)
{
	enum { IDS, DY, DWTE, DWPE };
	size_t positions = at(f, DWPE) ? shape(f, DWPE)->rows : 0;
	pp_cpu_embed_dw(shape(f, DY)->rows, shape(f, DY)->columns, f->instr->imm[0], shape(f, DWTE)->rows, positions,
	                at(f, IDS), at(f, DY), at(f, DWTE), adds(f, DWTE), at(f, DWPE), adds(f, DWPE));
}

static void run_norm(const struct frame *f)
{
	enum { X, GAMMA, BETA, Y, MEAN, RSTD };
	pp_cpu_norm(shape(f, X)->rows, shape(f, X)->columns, f->instr->imm[0], at(f, X), at(f, GAMMA), at(f, BETA),
	            at(f, Y), at(f, MEAN), at(f, RSTD));
}

static void run_norm_dx(const struct frame *f)
{
	enum { DY, X, GAMMA, MEAN, RSTD, DX };
	pp_cpu_norm_dx(shape(f, X)->rows, shape(f, X)->columns, f->instr->imm[0], at(f, DY), at(f, X), at(f, GAMMA),
	               at(f, MEAN), at(f, RSTD), at(f, DX));
}

static void run_norm_dw(const struct frame *f)
{
	enum { DY, X, MEAN, RSTD, DGAMMA, DBETA };
	pp_cpu_norm_dw(shape(f, X)->rows, shape(f, X)->columns, f->instr->imm[0], at(f, DY), at(f, X), at(f, MEAN),
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

static struct pp_attention attention_shape(const struct frame *f, unsigned q)
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

static enum pp_gelu activation(const struct frame *f)
{
	return f->instr->imm[0] ? PP_GELU_TANH : PP_GELU_ERF;
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

static void run_add(const struct frame *f)
{
	enum { A, B, Y };
	pp_cpu_add(elements(f, Y), at(f, A), at(f, B), at(f, Y));
}

/* Copies any dtype. Serves the tensor-parallel collectives too: a group of one keeps its value. */
static void run_copy(const struct frame *f)
{
	enum { X, Y };
	memmove(at(f, Y), at(f, X), elements(f, Y) * pp_dtype_size[shape(f, Y)->dtype]);
}

static void run_xent(const struct frame *f)
{
	enum { LOGITS, LABELS, DLOGITS, LOSS };
	pp_cpu_cross_entropy(shape(f, LOGITS)->rows, f->instr->imm[0], shape(f, LOGITS)->columns, f->instr->imm[1] != 0,
	                     at(f, LOGITS), at(f, LABELS), at(f, DLOGITS), at(f, LOSS));
}

static void run_fill(const struct frame *f)
{
	enum { Y };
	memset(at(f, Y), 0, elements(f, Y) * pp_dtype_size[shape(f, Y)->dtype]);
}

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* Sleep in slices, so that transports make progress, and watch the clock through the last stretch: the kernel wakes
 * up late by about 60 µs. */
static void run_sleep(const struct frame *f)
{
	const uint64_t slice = 200000, watched = 100000;
	uint64_t end = now() + f->instr->imm[0];
	for (uint64_t time = now(); time < end; time = now()) {
		if (f->poll)
			f->poll(f->poll_context);
		uint64_t left = end - time;
		if (left <= watched)
			continue;
		uint64_t nap = left - watched < slice || !f->poll ? left - watched : slice;
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
    [PP_BODY_ACT] = run_act,
    [PP_BODY_ACT_DX] = run_act_dx,
    [PP_BODY_ADD] = run_add,
    [PP_BODY_COPY] = run_copy,
    [PP_BODY_XENT] = run_xent,
    [PP_BODY_SLEEP] = run_sleep,
    [PP_BODY_FILL] = run_fill,
    [PP_BODY_ALLREDUCE] = run_copy,
    [PP_BODY_ALLGATHER] = run_copy,
    [PP_BODY_REDUCESCATTER] = run_copy,
};

static bool cpu_supports(enum pp_body_op op)
{
	return op < PP_BODY_OP_COUNT && run[op] != NULL;
}

static void cpu_call(struct pp_device *device, const struct pp_call *call, void (*poll)(void *), void *poll_context)
{
	struct frame frame = {
	    .device = device,
	    .call = call,
	    .base =
	        {
	            [PP_BASE_IN] = slot_at(device, call->in),
	            [PP_BASE_AUX] = slot_at(device, call->aux),
	            [PP_BASE_OUT] = slot_at(device, call->out),
	            [PP_BASE_STASH] = slot_at(device, call->stash),
	            [PP_BASE_DOUT] = slot_at(device, call->dout),
	            [PP_BASE_DIN] = slot_at(device, call->din),
	            [PP_BASE_WORK] = slot_at(device, device->work),
	        },
	    .poll = poll,
	    .poll_context = poll_context,
	};
	if (device->losses != PP_NULL)
		frame.base[PP_BASE_LOSS] = slot_at(device, device->losses) + (uint64_t)call->mb * 2 * sizeof(double);
	pp_kernels_flush_denormals();
	for (uint32_t i = 0; i < call->body->count; i++) {
		frame.instr = &call->body->items[i];
		run[frame.instr->op](&frame);
		if (poll)
			poll(poll_context);
	}
}

/* ---- arena ----------------------------------------------------------------------------------------- */

static uint32_t find_slot(const struct pp_rank *rank, enum pp_slot_class class)
{
	for (uint32_t slot = 0; slot < rank->slot_count; slot++)
		if (rank->slots[slot].class == class)
			return slot;
	return PP_NULL;
}

static void *cpu_slot(struct pp_device *device, uint32_t slot)
{
	return slot_at(device, slot);
}

static void cpu_destroy(struct pp_device *device)
{
	if (!device)
		return;
	free(device->arena);
	free(device);
}

/* Tensor-parallel shards and half precision belong to other devices: refuse before anything is allocated. */
static bool can_run(const struct pp_program *program, struct pp_status *status)
{
	if (program->tp > 1)
		return pp_fail(status, PP_EXIT_ENVIRONMENT, "the cpu device runs tp = 1 only, the program has tp = %" PRIu32,
		               program->tp);
	for (uint32_t t = 0; t < program->tensor_count; t++)
		if (program->tensors[t].dtype != PP_F32)
			return pp_fail(status, PP_EXIT_ENVIRONMENT, "the cpu device computes in f32 only, tensor %s is %s",
			               program->tensors[t].name, pp_dtype_name[program->tensors[t].dtype]);
	return true;
}

static struct pp_device *cpu_create(const struct pp_program *program, uint32_t rank, struct pp_status *status)
{
	if (!can_run(program, status))
		return NULL;
	struct pp_device *device = calloc(1, sizeof *device);
	if (!device) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory for the cpu device");
		return NULL;
	}
	device->program = program;
	device->rank = &program->rank[rank];
	device->losses = find_slot(device->rank, PP_SLOT_LOSSES);
	device->work = find_slot(device->rank, PP_SLOT_WORK);
	const uint64_t huge_page = UINT64_C(2) << 20;
	uint64_t bytes = device->rank->arena_bytes;
	uint64_t alignment = bytes >= huge_page ? huge_page : 4096;
	const uint64_t address_space = UINT64_C(1) << 47;
	void *arena = NULL;
	if (bytes > address_space || posix_memalign(&arena, alignment, bytes ? bytes : 1) != 0) {
		pp_fail(status, PP_EXIT_ENVIRONMENT, "out of memory: rank %" PRIu32 " needs an arena of %" PRIu64 " bytes",
		        rank, bytes);
		cpu_destroy(device);
		return NULL;
	}
	if (bytes >= huge_page)
		madvise(arena, bytes, MADV_HUGEPAGE);
	memset(arena, 0, bytes);
	device->arena = arena;
	pp_kernels_one_thread();
	return device;
}

static void cpu_init(struct pp_device *device, uint64_t seed)
{
	memset(device->arena, 0, device->rank->arena_bytes);
	for (uint32_t slot = 0; slot < device->rank->slot_count; slot++) {
		const struct pp_slot *weight = &device->rank->slots[slot];
		if (weight->class != PP_SLOT_WEIGHT || weight->tensor == PP_NULL) /* custom layers: room without a tensor */
			continue;
		const struct pp_tensor *tensor = &device->program->tensors[weight->tensor];
		uint64_t count = (uint64_t)tensor->rows * tensor->columns;
		assert(count * sizeof(float) <= weight->bytes);
		pp_init_fill(tensor, seed, 0, count, (float *)slot_at(device, slot));
	}
}

/* ---- step tail ------------------------------------------------------------------------------------- */

enum { SCALE_FACTOR, SCALE_NORM, SCALE_FINITE, SCALE_TOKENS };

static void cpu_zero(struct pp_device *device, uint32_t slot)
{
	memset(slot_at(device, slot), 0, device->rank->slots[slot].bytes);
}

static void cpu_add(struct pp_device *device, uint32_t destination, uint32_t source)
{
	float *to = (float *)slot_at(device, destination);
	pp_kernels_flush_denormals();
	pp_cpu_add(slot_floats(device, destination), to, (const float *)slot_at(device, source), to);
}

static void cpu_sqnorm(struct pp_device *device, uint32_t grad, uint32_t norms, uint32_t tensor)
{
	pp_kernels_flush_denormals();
	double *to = (double *)slot_at(device, norms);
	to[tensor] = pp_cpu_square_norm(slot_floats(device, grad), (const float *)slot_at(device, grad));
}

/* Gradients hold sums (token_mean: over tokens; mb_mean: over microbatches of means). The norm is that of the mean. */
static void cpu_clip(struct pp_device *device, const struct pp_hyper *hyper, enum pp_mean mean, uint32_t losses,
                     uint32_t norms, uint32_t scale)
{
	const double *loss = (const double *)slot_at(device, losses), *square = (const double *)slot_at(device, norms);
	uint64_t microbatches = device->rank->slots[losses].bytes / (2 * sizeof *loss);
	uint64_t tensors = device->rank->slots[norms].bytes / sizeof *square;
	double tokens = 0, squares = 0;
	for (uint64_t m = 0; m < microbatches; m++)
		tokens += loss[2 * m + 1];
	for (uint64_t t = 0; t < tensors; t++)
		squares += square[t];
	double parts = mean == PP_MB_MEAN ? (double)microbatches : tokens;
	double average = parts > 0 ? 1 / parts : 0;
	double norm = sqrt(squares) * average;
	double shrink = hyper->clip > 0 && norm > hyper->clip ? hyper->clip / norm : 1;
	double *to = (double *)slot_at(device, scale);
	bool finite = isfinite(norm);
	to[SCALE_FACTOR] = finite ? average * shrink : 0;
	to[SCALE_NORM] = norm;
	to[SCALE_FINITE] = finite;
	to[SCALE_TOKENS] = tokens;
}

static void cpu_opt(struct pp_device *device, enum pp_optimizer rule, const struct pp_hyper *hyper, double lr,
                    uint64_t step, uint32_t weight, uint32_t grad, uint32_t moment1, uint32_t moment2, uint32_t scale)
{
	const double *factor = (const double *)slot_at(device, scale);
	if (factor[SCALE_FINITE] == 0)
		return;
	size_t count = slot_floats(device, weight);
	float *w = (float *)slot_at(device, weight);
	const float *g = (const float *)slot_at(device, grad);
	pp_kernels_flush_denormals();
	switch (rule) {
	case PP_ADAMW: {
		struct pp_adamw adamw = {lr,  hyper->beta1, hyper->beta2, hyper->eps, hyper->weight_decay, factor[SCALE_FACTOR],
		                         step};
		pp_cpu_adamw_update(&adamw, count, w, g, (float *)slot_at(device, moment1), (float *)slot_at(device, moment2));
		return;
	}
	case PP_SGD:
		pp_cpu_sgd_update(lr, hyper->weight_decay, factor[SCALE_FACTOR], count, w, g);
		return;
	case PP_OPTIMIZER_COUNT:
		break;
	}
}

const struct pp_device_ops pp_device_cpu = {
    .name = "cpu",
    .supports = cpu_supports,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .slot = cpu_slot,
    .call = cpu_call,
    .zero = cpu_zero,
    .add = cpu_add,
    .sqnorm = cpu_sqnorm,
    .clip = cpu_clip,
    .opt = cpu_opt,
    .init = cpu_init,
};
