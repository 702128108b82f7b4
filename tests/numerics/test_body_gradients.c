/* The bodies of a model on the CPU device, against PyTorch's float64 gradients by the norm rule of test_gradients.c;
 * and the same bits for every cut into stages, fused or split, whatever is computed again. Stages stand on one rank and
 * are called in turn. */
#include "reference_dumps.h"
#include "reference_spec.h"
#include "../unit/program_fixture.h"

#include "executor/device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { STAGES_MAX = 5 };

/* Dynamic slots of a rank that runs all stages, one microbatch at a time. */
struct slots {
	uint32_t aux[STAGES_MAX], stash[STAGES_MAX], extra[STAGES_MAX], out[STAGES_MAX], gradient[STAGES_MAX];
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
	for (uint32_t s = 0; s < program->stage_count; s++) {
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

static void call(struct pp_device *device, const struct pp_program *program, const struct slots *slots, uint32_t s,
                 enum pp_phase phase, uint32_t mb)
{
	bool forward = phase == PP_PHASE_F, takes = phase == PP_PHASE_B || phase == PP_PHASE_I;
	struct pp_call one = {
	    .body = &program->bodies[program->stages[s].body[phase]],
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
	pp_device_cpu.call(device, &one, NULL);
}

static void load(struct pp_device *device, const struct pp_program *program, const struct slots *slots,
                 const struct reference *model, uint32_t mb)
{
	size_t tokens = (size_t)model->shape.microbatch * model->shape.seq;
	for (uint32_t s = 0; s < program->stage_count; s++) {
		int32_t *to = slots->aux[s] == PP_NULL ? NULL : pp_device_cpu.slot(device, slots->aux[s]);
		if (program->stages[s].loads_tokens) {
			memcpy(to, model->ids + mb * tokens, tokens * sizeof *to);
			to += tokens;
		}
		if (program->stages[s].loads_labels)
			memcpy(to, model->labels + mb * tokens, tokens * sizeof *to);
	}
}

static void run(struct pp_device *device, const struct pp_program *program, const struct slots *slots,
                const struct reference *model, bool split)
{
	for (uint32_t mb = 0; mb < model->shape.microbatches; mb++) {
		load(device, program, slots, model, mb);
		for (uint32_t s = 0; s < program->stage_count; s++)
			call(device, program, slots, s, PP_PHASE_F, mb);
		for (uint32_t s = program->stage_count; s-- > 0;) {
			if (program->stages[s].recomputes)
				call(device, program, slots, s, PP_PHASE_R, mb);
			call(device, program, slots, s, split ? PP_PHASE_I : PP_PHASE_B, mb);
			if (split)
				call(device, program, slots, s, PP_PHASE_W, mb);
		}
	}
}

static size_t count_of(const struct pp_tensor *tensor)
{
	return (size_t)tensor->rows * tensor->columns;
}

/* Weights from the file to the device. */
static void put_weights(struct pp_device *device, const struct pp_program *program, struct reference *model)
{
	assert_int_equal(program->tensor_count, model->tensor_count);
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_tensor *tensor = &program->tensors[program->uses[u].tensor];
		const struct reference_tensor *from = reference_tensor_named(model, tensor->name);
		assert_true(from && from->rows == tensor->rows && from->columns == tensor->columns);
		memcpy(pp_device_cpu.slot(device, program->uses[u].weight), from->weight, count_of(tensor) * sizeof(float));
	}
}

/* Gradients from the device: uses of a tied tensor summed in layer order. */
static void get_gradients(struct pp_device *device, const struct pp_program *program, struct reference *model)
{
	for (uint32_t u = 0; u < program->use_count; u++) {
		const struct pp_tensor *tensor = &program->tensors[program->uses[u].tensor];
		struct reference_tensor *to = reference_tensor_named(model, tensor->name);
		const float *from = pp_device_cpu.slot(device, program->uses[u].grad);
		bool again = u > 0 && program->uses[u - 1].tensor == program->uses[u].tensor;
		for (size_t i = 0; i < count_of(tensor); i++)
			to->gradient[i] = again ? to->gradient[i] + from[i] : from[i];
	}
}

static void check_losses(struct pp_device *device, const struct pp_program *program, const struct reference *model)
{
	const double *losses = NULL;
	for (uint32_t i = 0; i < program->rank[0].slot_count; i++)
		if (program->rank[0].slots[i].class == PP_SLOT_LOSSES)
			losses = pp_device_cpu.slot(device, i);
	assert_non_null(losses);
	for (uint32_t m = 0; m < model->shape.microbatches; m++) {
		assert_true(fabs(losses[2 * m] - model->loss[2 * m]) <= 1e-6 * model->loss[2 * m]);
		assert_true(losses[2 * m + 1] == model->loss[2 * m + 1]);
	}
}

/* Gradients of a model cut into stages at the given layers; block b computes again what recompute[b mod 2] says. */
static struct reference *run_cut(const char *path, const uint32_t *first, uint32_t stages, bool split,
                                 const uint8_t recompute[2])
{
	struct reference *model = reference_read(path);
	assert_non_null(model);
	struct built built = {.arena = pp_arena_create(NULL)};
	built.spec = reference_spec(built.arena, model);
	for (uint32_t i = 0; i < built.spec->model.layer_count; i++)
		if (built.spec->model.layers[i].kind == PP_LAYER_BLOCK)
			built.spec->model.layers[i].recompute = recompute[i % 2];
	build_bodies(&built, first, stages, 1, split ? SPLIT : FUSED);
	struct slots slots = slots_make(built.program);
	struct pp_status status = {0};
	struct pp_device *device = pp_device_cpu.create(built.program, (struct pp_coord){0}, NULL, &status);
	assert_non_null(device);
	put_weights(device, built.program, model);
	run(device, built.program, &slots, model, split);
	check_losses(device, built.program, model);
	get_gradients(device, built.program, model);
	pp_device_cpu.destroy(device);
	pp_arena_destroy(built.arena);
	return model;
}

static void check(const char *path)
{
	static const uint32_t cuts[][STAGES_MAX] = {{0}, {0, 2}, {0, 1, 3}, {0, 1, 2, 3, 4}};
	static const uint32_t counts[] = {1, 2, 3, 5};
	static const uint8_t parts[][2] = {{0, 0},
	                                   {PP_RECOMPUTE_FULL, PP_RECOMPUTE_FULL},
	                                   {0, PP_RECOMPUTE_FULL},
	                                   {PP_RECOMPUTE_ATTENTION, PP_RECOMPUTE_NORM | PP_RECOMPUTE_ACT},
	                                   {PP_RECOMPUTE_NORM, PP_RECOMPUTE_NORM | PP_RECOMPUTE_ATTENTION}};
	enum { PARTS = sizeof parts / sizeof *parts };
	struct reference *whole = run_cut(path, cuts[0], 1, false, parts[0]);
	reference_assert_gradients(whole);
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		for (unsigned n = 0; n < 2 * PARTS; n++) {
			struct reference *other = run_cut(path, cuts[c], counts[c], n % 2, parts[n / 2]);
			for (uint32_t t = 0; t < whole->tensor_count; t++) {
				const struct reference_tensor *tensor = &whole->tensors[t];
				size_t bytes = (size_t)tensor->rows * tensor->columns * sizeof(float);
				assert_memory_equal(other->tensors[t].gradient, tensor->gradient, bytes);
			}
			reference_free(other);
		}
	}
	reference_free(whole);
}

static void compare(void **state)
{
	check(reference_path(state));
}

int main(void)
{
	return reference_run_all("body gradients", compare);
}
