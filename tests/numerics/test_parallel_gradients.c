/* Bodies of tensor- and sequence-parallel ranks on CPU devices over the loop transport, against PyTorch's float64
 * losses and gradients by the norm rule of test_gradients.c. Gradients of shards are put together, partial ones summed,
 * equal ones must be the same bits on all ranks. Stages stand on one pipeline rank and are called in turn. */
#include "reference.h"
#include "../unit/program_fixture.h"

#include "executor/device.h"
#include "executor/transport/transport_loop.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { STAGES = 3, MOST_TP = 4 };

/* Dynamic slots of a rank that runs all stages, one microbatch at a time. */
struct slots {
	uint32_t aux[STAGES], stash[STAGES], extra[STAGES], out[STAGES], gradient[STAGES];
};

/* One tensor-parallel rank: a thread. */
struct rank {
	const struct pp_program *program;
	const struct reference *model;
	const struct slots *slots;
	struct pp_device *device;
	struct pp_endpoint *endpoint;
	pthread_t thread;
	uint32_t at;
	bool split, went;
};

static uint32_t slot_add(struct pp_program *program, enum pp_slot_class class, uint64_t bytes)
{
	struct pp_rank *rank = &program->rank[0];
	if (bytes == 0)
		return PP_NULL;
	rank->slots =
	    pp_arena_grow(program->arena, rank->slots, rank->slot_count, rank->slot_count + 1, sizeof *rank->slots);
	rank->slots[rank->slot_count] = (struct pp_slot){.class = (uint8_t) class, .bytes = bytes, .tensor = PP_NULL};
	return rank->slot_count++;
}

static struct slots slots_make(struct pp_program *program)
{
	struct slots slots;
	for (uint32_t s = 0; s < STAGES; s++) {
		const struct pp_stage *stage = &program->stages[s];
		slots.aux[s] = slot_add(program, PP_SLOT_AUX, stage->aux_bytes);
		slots.stash[s] = slot_add(program, PP_SLOT_STASH, stage->stash_bytes);
		slots.extra[s] = slot_add(program, PP_SLOT_EXTRA, stage->extra_bytes);
		slots.out[s] = slot_add(program, PP_SLOT_OUT, 4ull * stage->out_count);
		slots.gradient[s] = slot_add(program, PP_SLOT_OUT, 4ull * stage->out_count);
	}
	uint64_t end = 0;
	for (uint32_t i = 0; i < program->rank[0].slot_count; i++) {
		program->rank[0].slots[i].offset = end;
		end += (program->rank[0].slots[i].bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
	}
	program->rank[0].arena_bytes = end;
	return slots;
}

/* ---- a rank's run ---------------------------------------------------------------------------- */

static void link_poll(void *context)
{
	pp_transport_loop.poll(((struct rank *)context)->endpoint);
}

static uint32_t link_post(void *context, enum pp_collective kind, enum pp_dtype dtype, const void *from, void *to,
                          uint64_t count)
{
	return pp_transport_loop.post_body(((struct rank *)context)->endpoint, kind, dtype, from, to, count);
}

static bool link_await(void *context, uint32_t ticket)
{
	struct rank *rank = context;
	enum pp_progress progress;
	while ((progress = pp_transport_loop.test_body(rank->endpoint, ticket)) == PP_PENDING)
		sched_yield();
	return progress == PP_DONE;
}

static void load(const struct rank *rank, uint32_t mb)
{
	size_t tokens = (size_t)rank->model->shape.microbatch * rank->model->shape.seq;
	for (uint32_t s = 0; s < STAGES; s++) {
		uint32_t slot = rank->slots->aux[s];
		int32_t *to = slot == PP_NULL ? NULL : pp_device_cpu.slot(rank->device, slot);
		if (rank->program->stages[s].loads_tokens) {
			memcpy(to, rank->model->ids + mb * tokens, tokens * sizeof *to);
			to += tokens;
		}
		if (rank->program->stages[s].loads_labels)
			memcpy(to, rank->model->labels + mb * tokens, tokens * sizeof *to);
	}
}

static bool call(struct rank *rank, uint32_t s, enum pp_phase phase, uint32_t mb)
{
	const struct slots *slots = rank->slots;
	bool forward = phase == PP_PHASE_F, takes = phase == PP_PHASE_B || phase == PP_PHASE_I;
	struct pp_call one = {
	    .body = &rank->program->bodies[rank->program->stages[s].body[phase]],
	    .mb = mb,
	    .first = mb == 0,
	    .aux = slots->aux[s],
	    .stash = slots->stash[s],
	    .extra = forward ? PP_NULL : slots->extra[s],
	    .in = forward && s ? slots->out[s - 1] : PP_NULL,
	    .out = forward ? slots->out[s] : PP_NULL,
	    .dout = takes ? slots->gradient[s] : PP_NULL,
	    .din = takes && s ? slots->gradient[s - 1] : PP_NULL,
	};
	struct pp_body_link link = {rank, link_poll, link_post, link_await};
	return pp_device_cpu.call(rank->device, &one, &link);
}

static void *run(void *argument)
{
	struct rank *rank = argument;
	bool ok = true;
	for (uint32_t mb = 0; mb < rank->model->shape.microbatches && ok; mb++) {
		load(rank, mb);
		for (uint32_t s = 0; s < STAGES && ok; s++)
			ok = call(rank, s, PP_PHASE_F, mb);
		for (uint32_t s = STAGES; s-- > 0 && ok;) {
			if (rank->program->stages[s].recomputes)
				ok = call(rank, s, PP_PHASE_R, mb);
			ok = ok && call(rank, s, rank->split ? PP_PHASE_I : PP_PHASE_B, mb);
			if (rank->split)
				ok = ok && call(rank, s, PP_PHASE_W, mb);
		}
	}
	rank->went = ok;
	return NULL;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Where element (row, column) of a rank's share lies in the whole; false: it pads. */
static bool whole_index(const struct pp_program *program, const struct pp_tensor *tensor, uint32_t rank, size_t index,
                        const struct reference_tensor *whole, size_t *at)
{
	bool sharded = tensor->tp_grad == PP_TP_SHARDED;
	uint32_t columns = sharded && tensor->shard == 1 ? tensor->columns / program->tp : tensor->columns;
	size_t row = index / columns, column = index % columns;
	if (sharded && tensor->shard == 0)
		row += (size_t)rank * (tensor->rows / program->tp);
	if (sharded && tensor->shard == 1)
		column += (size_t)rank * columns;
	*at = row * whole->columns + column;
	return row < whole->rows;
}

static void put_weights(const struct rank *rank, struct reference *model)
{
	const struct pp_program *program = rank->program;
	assert_int_equal(program->tensor_count, model->tensor_count);
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_tensor *tensor = &program->tensors[program->uses[u].tensor];
		const struct reference_tensor *from = reference_tensor_named(model, tensor->name);
		float *to = pp_device_cpu.slot(rank->device, program->uses[u].weight);
		size_t count = pp_local_elements(program, program->uses[u].tensor), at;
		assert_non_null(from);
		for (size_t i = 0; i < count; i++)
			to[i] = whole_index(program, tensor, rank->at, i, from, &at) ? from->weight[at] : 0;
	}
}

/* Uses of a tied tensor are summed in layer order. */
static void take_gradient(const struct rank *ranks, const struct rank *rank, uint32_t u, struct reference *model)
{
	const struct pp_program *program = rank->program;
	const struct pp_tensor *tensor = &program->tensors[program->uses[u].tensor];
	struct reference_tensor *to = reference_tensor_named(model, tensor->name);
	const float *from = pp_device_cpu.slot(rank->device, program->uses[u].grad),
	            *first = pp_device_cpu.slot(ranks[0].device, program->uses[u].grad);
	size_t count = pp_local_elements(program, program->uses[u].tensor), at;
	bool added = u > 0 && program->uses[u - 1].tensor == program->uses[u].tensor;
	if (tensor->tp_grad == PP_TP_REPLICATED_EQUAL && rank->at > 0) {
		assert_memory_equal(from, first, count * sizeof *from);
		return;
	}
	added |= tensor->tp_grad == PP_TP_REPLICATED_PARTIAL && rank->at > 0;
	for (size_t i = 0; i < count; i++) {
		if (whole_index(program, tensor, rank->at, i, to, &at))
			to->gradient[at] = added ? to->gradient[at] + from[i] : from[i];
		else
			assert_true(from[i] == 0); /* of a row that pads */
	}
}

static void check_losses(const struct rank *rank)
{
	const double *losses = NULL;
	for (uint32_t i = 0; i < rank->program->rank[0].slot_count; i++)
		if (rank->program->rank[0].slots[i].class == PP_SLOT_LOSSES)
			losses = pp_device_cpu.slot(rank->device, i);
	assert_non_null(losses);
	for (uint32_t m = 0; m < rank->model->shape.microbatches; m++) {
		assert_true(fabs(losses[2 * m] - rank->model->loss[2 * m]) <= 1e-6 * rank->model->loss[2 * m]);
		assert_true(losses[2 * m + 1] == rank->model->loss[2 * m + 1]);
	}
}

/* ---- models ---------------------------------------------------------------------------------- */

static struct built program_of(const struct reference *model, uint32_t tp, bool sp, uint32_t padded)
{
	const struct reference_shape *shape = &model->shape;
	struct model_size size = {shape->hidden, shape->heads, shape->kv_heads,   shape->layers, shape->ffn,
	                          shape->vocab,  shape->seq,   shape->microbatch, shape->tied};
	struct built built = built_of(&size);
	built.spec->microbatches = shape->microbatches;
	built.spec->parallel.tp = tp;
	built.spec->parallel.sp = sp;
	for (uint32_t i = 0; i < built.spec->model.layer_count; i++) {
		struct pp_layer *layer = &built.spec->model.layers[i];
		layer->padded_vocab = padded;
		layer->window = shape->window;
		layer->head_dim = shape->head_dim;
		layer->act = shape->theta ? PP_ACT_SWIGLU : shape->tanh ? PP_ACT_GELU_TANH : PP_ACT_GELU;
		layer->rms = shape->theta != 0;
		layer->rope_theta = shape->theta;
		layer->qk_norm = shape->qk_norm;
		layer->qkv_bias = reference_tensor_named(model, "block.0.attn.q.bias") != NULL;
		layer->bias = reference_tensor_named(model, "block.0.attn.o.bias") != NULL;
	}
	return built;
}

static void run_ranks(struct rank *ranks, uint32_t tp)
{
	for (uint32_t r = 0; r < tp; r++)
		assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
	for (uint32_t r = 0; r < tp; r++)
		pthread_join(ranks[r].thread, NULL);
	for (uint32_t r = 0; r < tp; r++) {
		assert_true(ranks[r].went);
		check_losses(&ranks[r]);
	}
}

/* Four heads in place of the file's two: expected is what the kernels put together by hand give, which gradients_float
 * holds to PyTorch. */
static void expect_four_heads(struct reference *model)
{
	double count = 0;
	model->shape.heads = model->shape.kv_heads = 4;
	model->shape.head_dim = model->shape.hidden / 4;
	for (uint32_t m = 0; m < model->shape.microbatches; m++) {
		reference_microbatch(model, m, m == 0, model->loss + (size_t)2 * m);
		count += model->loss[2 * m + 1];
	}
	for (uint32_t t = 0; t < model->tensor_count; t++)
		for (size_t i = 0; i < (size_t)model->tensors[t].rows * model->tensors[t].columns; i++)
			model->tensors[t].expected[i] = (double)model->tensors[t].gradient[i] / count;
}

static struct reference *run_cut(const char *path, uint32_t tp, bool sp, bool split, uint32_t padded, uint8_t recompute)
{
	static const uint32_t first[STAGES] = {0, 1, 3};
	struct reference *model = reference_read(path);
	assert_non_null(model);
	if (model->shape.heads < tp)
		expect_four_heads(model);
	struct built built = program_of(model, tp, sp, padded);
	recompute_blocks(&built, recompute);
	build_bodies(&built, first, STAGES, 1, split ? SPLIT : FUSED);
	struct slots slots = slots_make(built.program);
	struct pp_status status = {0};
	struct pp_loop *loop = pp_loop_create(built.program, &(struct pp_transport_options){0}, &status);
	assert_non_null(loop);
	struct rank ranks[MOST_TP];
	for (uint32_t r = 0; r < tp; r++) {
		struct pp_device *device = pp_device_cpu.create(built.program, (struct pp_coord){.tp = r}, &status);
		assert_non_null(device);
		ranks[r] = (struct rank){.program = built.program,
		                         .model = model,
		                         .slots = &slots,
		                         .device = device,
		                         .endpoint = pp_loop_endpoint(loop, r),
		                         .at = r,
		                         .split = split};
		put_weights(&ranks[r], model);
	}
	run_ranks(ranks, tp);
	for (uint32_t u = 0; u < built.program->use_count; u++)
		for (uint32_t r = 0; r < tp; r++)
			take_gradient(ranks, &ranks[r], u, model);
	reference_assert_gradients(model);
	for (uint32_t r = 0; r < tp; r++)
		pp_device_cpu.destroy(ranks[r].device);
	pp_loop_destroy(loop);
	pp_arena_destroy(built.arena);
	return model;
}

/* Right, and the same bits when blocks compute again. */
static void check_cut(const char *path, uint32_t tp, bool sp, bool split, uint32_t padded)
{
	static const uint8_t again[] = {PP_RECOMPUTE_FULL, PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT, PP_RECOMPUTE_ATTENTION};
	struct reference *model = run_cut(path, tp, sp, split, padded, 0);
	for (size_t i = 0; i < sizeof again; i++) {
		struct reference *other = run_cut(path, tp, sp, split, padded, again[i]);
		for (uint32_t t = 0; t < model->tensor_count; t++)
			assert_memory_equal(other->tensors[t].gradient, model->tensors[t].gradient,
			                    (size_t)model->tensors[t].rows * model->tensors[t].columns * sizeof(float));
		reference_free(other);
	}
	reference_free(model);
}

/* tp = 2 and 4: two key/value heads then serve two ranks each. */
static void check(const char *path)
{
	for (uint32_t tp = 2; tp <= MOST_TP; tp *= 2)
		for (unsigned variant = 0; variant < 4; variant++)
			check_cut(path, tp, variant & 1, variant & 2, variant == 3 ? 48 : 32);
}

static void tied_tanh(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/gpt2_tied.grads");
}

static void untied_erf_window(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/gpt2_untied.grads");
}

static void llama(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/llama.grads");
}

static void llama_qk_norm_biases(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/llama_qk_norm.grads");
}

static void llama_biases_of_heads(void **state)
{
	(void)state;
	check(PP_TEST_DATA "/llama_qkv_bias.grads");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(tied_tanh), cmocka_unit_test(untied_erf_window),
	                                   cmocka_unit_test(llama), cmocka_unit_test(llama_qk_norm_biases),
	                                   cmocka_unit_test(llama_biases_of_heads)};
	return cmocka_run_group_tests_name("parallel gradients", tests, NULL, NULL);
}
