/* The CPU device: operands reach the right kernel, first writes and later adds, the step tail's averages, clipping and
 * non-finite norms, initial weights, refusals. */
#include "executor/device.h"

#include "executor/init.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { IN, OUT, STASH, DOUT, WEIGHT, GRAD, MOMENT1, MOMENT2, LOSSES, NORMS, SCALE, WORK, CUSTOM, SLOTS };
enum { T = 2, I = 3, O = 2, MICROBATCHES = 2 };
enum { X, W, Y, DY, DW, LOSS, SPARE, REGS };

struct fixture {
	struct pp_slot slots[SLOTS];
	struct pp_rank rank;
	struct pp_tensor tensors[2];
	struct pp_reg regs[REGS];
	struct pp_program program;
	struct pp_device *device;
};

static struct pp_slot slot(enum pp_slot_class class, uint64_t bytes, uint32_t position)
{
	return (struct pp_slot){
	    .class = (uint8_t) class, .placed = true, .bytes = bytes, .offset = (uint64_t)position * PP_ALIGN};
}

static void make(struct fixture *f)
{
	*f = (struct fixture){0};
	const uint64_t floats = sizeof(float);
	f->slots[IN] = slot(PP_SLOT_RECV, T * I * floats, 0);
	f->slots[OUT] = slot(PP_SLOT_OUT, T * O * floats, 1);
	f->slots[STASH] = slot(PP_SLOT_STASH, 64, 2);
	f->slots[DOUT] = slot(PP_SLOT_RECV, T * O * floats, 3);
	f->slots[WEIGHT] = slot(PP_SLOT_WEIGHT, O * I * floats, 4);
	f->slots[GRAD] = slot(PP_SLOT_GRAD, O * I * floats, 5);
	f->slots[MOMENT1] = slot(PP_SLOT_MOMENT, O * I * floats, 6);
	f->slots[MOMENT2] = slot(PP_SLOT_MOMENT, O * I * floats, 7);
	f->slots[LOSSES] = slot(PP_SLOT_LOSSES, MICROBATCHES * 2 * sizeof(double), 8);
	f->slots[NORMS] = slot(PP_SLOT_NORMS, 2 * sizeof(double), 9);
	f->slots[SCALE] = slot(PP_SLOT_SCALE, 4 * sizeof(double), 10);
	f->slots[WORK] = slot(PP_SLOT_WORK, 64, 11);
	f->slots[WEIGHT].tensor = f->slots[GRAD].tensor = f->slots[MOMENT1].tensor = f->slots[MOMENT2].tensor = 1;
	f->slots[CUSTOM] = slot(PP_SLOT_WEIGHT, 40, 12);
	f->slots[CUSTOM].tensor = PP_NULL;
	f->rank = (struct pp_rank){.slots = f->slots, .slot_count = SLOTS, .arena_bytes = SLOTS * PP_ALIGN};
	f->tensors[0] = (struct pp_tensor){.name = "elsewhere", .rows = 9, .columns = 9, .dims = 2};
	f->tensors[1] =
	    (struct pp_tensor){.name = "w", .rows = O, .columns = I, .dims = 2, .init = PP_INIT_NORMAL, .std = 1};
	f->regs[X] = (struct pp_reg){.name = "x", .base = PP_BASE_IN, .slot = PP_NULL, .rows = T, .columns = I};
	f->regs[W] = (struct pp_reg){.name = "w", .base = PP_BASE_WEIGHT, .slot = WEIGHT, .rows = O, .columns = I};
	f->regs[Y] = (struct pp_reg){.name = "y", .base = PP_BASE_OUT, .slot = PP_NULL, .rows = T, .columns = O};
	f->regs[DY] = (struct pp_reg){.name = "dy", .base = PP_BASE_DOUT, .slot = PP_NULL, .rows = T, .columns = O};
	f->regs[DW] = (struct pp_reg){.name = "dw", .base = PP_BASE_GRAD, .slot = GRAD, .rows = O, .columns = I};
	f->regs[LOSS] = (struct pp_reg){
	    .name = "loss", .base = PP_BASE_LOSS, .dtype = PP_F64, .slot = PP_NULL, .rows = 2, .columns = 1};
	f->regs[SPARE] =
	    (struct pp_reg){.name = "spare", .base = PP_BASE_WORK, .slot = PP_NULL, .rows = T, .columns = O, .offset = 16};
	f->program =
	    (struct pp_program){.ranks = 1, .tp = 1, .dp = 1, .rank = &f->rank, .tensors = f->tensors, .tensor_count = 2};
	struct pp_status status = {0};
	f->device = pp_device_cpu.create(&f->program, (struct pp_coord){0}, NULL, &status);
	assert_non_null(f->device);
}

static void drop(struct fixture *f)
{
	pp_device_cpu.destroy(f->device);
}

static void put(struct fixture *f, uint32_t at, size_t count, const float *values)
{
	memcpy(pp_device_cpu.slot(f->device, at), values, count * sizeof *values);
}

static void update(struct pp_device *device, enum pp_optimizer rule, const struct pp_hyper *hyper, double lr,
                   uint64_t step, bool shard)
{
	bool moments = rule == PP_ADAMW;
	const struct pp_update one = {.rule = rule,
	                              .hyper = hyper,
	                              .lr = lr,
	                              .step = step,
	                              .weight = WEIGHT,
	                              .grad = GRAD,
	                              .moment1 = moments ? MOMENT1 : PP_NULL,
	                              .moment2 = moments ? MOMENT2 : PP_NULL,
	                              .master = PP_NULL,
	                              .scale = SCALE,
	                              .shard = shard};
	pp_device_cpu.opt(device, &one);
}

static void assert_floats(struct fixture *f, uint32_t at, size_t count, const float *expected)
{
	assert_memory_equal(pp_device_cpu.slot(f->device, at), expected, count * sizeof *expected);
}

static void call(struct fixture *f, const struct pp_body_instr *items, uint32_t count, bool first, uint32_t mb)
{
	struct pp_body body = {
	    .regs = f->regs, .reg_count = REGS, .items = (struct pp_body_instr *)(uintptr_t)items, .count = count};
	struct pp_call one = {.body = &body,
	                      .mb = mb,
	                      .first = first,
	                      .in = IN,
	                      .aux = PP_NULL,
	                      .out = OUT,
	                      .stash = STASH,
	                      .dout = DOUT,
	                      .din = PP_NULL};
	pp_device_cpu.call(f->device, &one, NULL);
}

static void bodies(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	put(&f, IN, T * I, (const float[]){1, 2, 3, 4, 5, 6});
	put(&f, WEIGHT, O * I, (const float[]){1, 0, 1, 0, 2, 0});
	put(&f, DOUT, T * O, (const float[]){1, 10, 2, 20});
	put(&f, GRAD, O * I, (const float[]){7, 7, 7, 7, 7, 7});
	const struct pp_body_instr forward[] = {
	    {.op = PP_BODY_LINEAR, .operand = {X, W, PP_NULL, SPARE}},
	    {.op = PP_BODY_ADD, .operand = {SPARE, DY, SPARE}},
	    {.op = PP_BODY_ALLREDUCE, .operand = {SPARE, Y}},
	    {.op = PP_BODY_FILL, .operand = {SPARE}},
	};
	call(&f, forward, 4, false, 0);
	assert_floats(&f, OUT, T * O, (const float[]){5, 14, 12, 30});
	const struct pp_body_instr gradient = {.op = PP_BODY_LINEAR_DW, .operand = {DY, X, DW, PP_NULL}};
	call(&f, &gradient, 1, true, 0);
	assert_floats(&f, GRAD, O * I, (const float[]){9, 12, 15, 90, 120, 150});
	call(&f, &gradient, 1, false, 1);
	assert_floats(&f, GRAD, O * I, (const float[]){18, 24, 30, 180, 240, 300});
	drop(&f);
}

/* The loss goes to the entry of its microbatch. */
static void loss_entry(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	int32_t labels[T] = {1, -1};
	memcpy((char *)pp_device_cpu.slot(f.device, WORK) + 16, labels, sizeof labels);
	put(&f, OUT, T * O, (const float[]){0, 0, 5, 5});
	const struct pp_body_instr loss = {.op = PP_BODY_XENT, .operand = {Y, SPARE, Y, LOSS}, .imm = {2, 0}};
	call(&f, &loss, 1, false, 1);
	const double *losses = pp_device_cpu.slot(f.device, LOSSES);
	assert_true(losses[0] == 0 && losses[1] == 0 && fabs(losses[2] - log(2)) < 1e-6 && losses[3] == 1);
	assert_floats(&f, OUT, T * O, (const float[]){0.5f, -0.5f, 0, 0});
	drop(&f);
}

static void every_op(void **state)
{
	(void)state;
	for (unsigned op = 0; op < PP_BODY_OP_COUNT; op++)
		assert_true(pp_device_cpu.supports((enum pp_body_op)op));
	assert_false(pp_device_cpu.supports(PP_BODY_OP_COUNT));
}

static void count_polls(void *context)
{
	++*(unsigned *)context;
}

static void sleep_takes_its_time(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	const uint64_t wanted = 3000000;
	struct pp_body_instr nap = {.op = PP_BODY_SLEEP, .imm = {wanted}};
	struct pp_body body = {.items = &nap, .count = 1};
	struct pp_call one = {.body = &body,
	                      .in = PP_NULL,
	                      .aux = PP_NULL,
	                      .out = PP_NULL,
	                      .stash = PP_NULL,
	                      .dout = PP_NULL,
	                      .din = PP_NULL};
	unsigned polls = 0;
	struct timespec begin, end;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	const struct pp_body_link link = {.context = &polls, .poll = count_polls};
	assert_true(pp_device_cpu.call(f.device, &one, &link));
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true((end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec >= (long)wanted);
	assert_true(polls >= 1); /* how often depends on the machine */
	drop(&f);
}

static void assert_scale(struct fixture *f, double factor, double norm, double finite, double tokens)
{
	const double *scale = pp_device_cpu.slot(f->device, SCALE);
	assert_true(fabs(scale[0] - factor) < 1e-15 && scale[2] == finite && scale[3] == tokens);
	assert_true(fabs(scale[1] - norm) < 1e-12 || (isnan(norm) && isnan(scale[1])));
}

static void clipping(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	double *losses = pp_device_cpu.slot(f.device, LOSSES), *norms = pp_device_cpu.slot(f.device, NORMS);
	losses[1] = 6;
	losses[3] = 4;
	put(&f, GRAD, 6, (const float[]){1, 2, 3, 4, 5, 9});
	pp_device_cpu.sqnorm(f.device, GRAD, NORMS, 1, false);
	assert_true(norms[0] == 0 && norms[1] == 136);
	norms[0] = 120;
	const struct pp_hyper open = {.clip = 0}, wide = {.clip = 1.7}, tight = {.clip = 0.4};
	pp_device_cpu.clip(f.device, &open, PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	assert_scale(&f, 0.1, 1.6, 1, 10);
	pp_device_cpu.clip(f.device, &wide, PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	assert_scale(&f, 0.1, 1.6, 1, 10);
	pp_device_cpu.clip(f.device, &tight, PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	assert_scale(&f, 0.025, 1.6, 1, 10);
	pp_device_cpu.clip(f.device, &tight, PP_MB_MEAN, LOSSES, NORMS, SCALE);
	assert_scale(&f, 0.025, 8, 1, 10);
	losses[1] = losses[3] = norms[0] = norms[1] = 0;
	pp_device_cpu.clip(f.device, &tight, PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	assert_scale(&f, 0, 0, 1, 0);
	norms[1] = (double)NAN;
	losses[1] = 1;
	pp_device_cpu.clip(f.device, &tight, PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	assert_scale(&f, 0, (double)NAN, 0, 1);
	norms[1] = (double)INFINITY;
	pp_device_cpu.clip(f.device, &open, PP_TOKEN_MEAN, LOSSES, NORMS, SCALE);
	const double *scale = pp_device_cpu.slot(f.device, SCALE);
	assert_true(scale[0] == 0 && scale[2] == 0);
	drop(&f);
}

static void updates(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	double *scale = pp_device_cpu.slot(f.device, SCALE);
	const struct pp_hyper hyper = {.beta1 = 0.5, .beta2 = 0.5, .eps = 0, .weight_decay = 0.5};
	const float weights[6] = {8, 16, -8, 0, 4, 2};
	put(&f, WEIGHT, 6, weights);
	put(&f, GRAD, 6, (const float[]){8, -8, 4, 2, 1, -1});
	scale[0] = 0;
	scale[2] = 0;
	update(f.device, PP_SGD, &hyper, 0.25, 1, false);
	update(f.device, PP_ADAMW, &hyper, 0.25, 1, false);
	assert_floats(&f, WEIGHT, 6, weights);
	scale[0] = 0.5;
	scale[2] = 1;
	update(f.device, PP_SGD, &hyper, 0.25, 1, false);
	assert_floats(&f, WEIGHT, 6, (const float[]){6, 15, -7.5f, -0.25f, 3.375f, 1.875f});
	/* In step 1 the corrected moments give the sign of the gradient. */
	put(&f, WEIGHT, 6, weights);
	update(f.device, PP_ADAMW, &hyper, 0.25, 1, false);
	assert_floats(&f, WEIGHT, 6, (const float[]){6.75f, 14.25f, -7.25f, -0.25f, 3.25f, 2});
	assert_floats(&f, MOMENT1, 6, (const float[]){2, -2, 1, 0.5f, 0.25f, -0.25f});
	drop(&f);
}

static void memory(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	put(&f, GRAD, 6, (const float[]){1, 2, 3, 4, 5, 6});
	put(&f, MOMENT1, 6, (const float[]){1, 1, 1, 1, 1, 1});
	pp_device_cpu.add(f.device, GRAD, MOMENT1, false);
	assert_floats(&f, GRAD, 6, (const float[]){2, 3, 4, 5, 6, 7});
	pp_device_cpu.zero(f.device, GRAD);
	assert_floats(&f, GRAD, 6, (const float[6]){0});
	float expected[6];
	pp_init_fill(&f.tensors[1], 5, 0, 6, expected);
	pp_device_cpu.init(f.device, 5, NULL);
	assert_floats(&f, WEIGHT, 6, expected);
	assert_floats(&f, MOMENT1, 6, (const float[6]){0});
	drop(&f);
}

/* Rows of a token table beyond the vocabulary start at 0, whether looked up or multiplied with. */
static void padding(void **state)
{
	(void)state;
	const struct pp_body_instr look_up[] = {{.op = PP_BODY_EMBED, .operand = {X, W, PP_NULL, Y}}};
	const struct pp_body_instr head[] = {{.op = PP_BODY_LINEAR, .operand = {X, W, PP_NULL, Y}},
	                                     {.op = PP_BODY_XENT, .operand = {Y, X, Y, LOSS}}};
	for (unsigned which = 0; which < 2; which++) {
		struct fixture f;
		make(&f);
		struct pp_body body = {.regs = f.regs,
		                       .reg_count = REGS,
		                       .items = (struct pp_body_instr *)(uintptr_t)(which ? head : look_up),
		                       .count = which ? 2 : 1};
		struct pp_stage stage = {.rank = 0};
		struct pp_use use = {.tensor = 1, .weight = WEIGHT, .grad = GRAD};
		f.program.stages = &stage;
		f.program.uses = &use;
		f.program.use_count = 1;
		f.program.bodies = &body;
		f.program.body_count = 1;
		f.program.train.vocab = 1;
		pp_device_cpu.init(f.device, 5, NULL);
		const float *weight = pp_device_cpu.slot(f.device, WEIGHT);
		for (size_t i = 0; i < I; i++)
			assert_true(weight[i] != 0 && weight[I + i] == 0);
		drop(&f);
	}
}

/* A shard starts with the bits that it has in the whole tensor; so does padding, which is counted in the whole. */
static void shards(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	struct pp_status status = {0};
	float whole[2 * O * I];
	f.program.tp = 2;
	f.tensors[1].tp_grad = PP_TP_SHARDED;
	for (uint8_t dimension = 0; dimension < 2; dimension++) {
		f.tensors[1].shard = dimension;
		f.tensors[1].rows = dimension == 0 ? 2 * O : O;
		f.tensors[1].columns = dimension == 1 ? 2 * I : I;
		pp_init_fill(&f.tensors[1], 5, 0, 2 * O * I, whole);
		for (uint32_t tp = 0; tp < 2; tp++) {
			struct pp_device *device = pp_device_cpu.create(&f.program, (struct pp_coord){.tp = tp}, NULL, &status);
			pp_device_cpu.init(device, 5, NULL);
			const float *weight = pp_device_cpu.slot(device, WEIGHT);
			for (size_t i = 0; i < O * I; i++) {
				size_t row = i / I, column = i % I;
				size_t at = dimension == 0 ? (tp * O + row) * I + column : row * 2 * I + tp * I + column;
				assert_true(weight[i] == whole[at]);
			}
			pp_device_cpu.destroy(device);
		}
	}
	/* Rows of the table of 2 * O tokens: only the first of coordinate 1 is one. */
	const struct pp_body_instr look_up = {.op = PP_BODY_EMBED, .operand = {X, W, PP_NULL, Y}};
	struct pp_body body = {
	    .regs = f.regs, .reg_count = REGS, .items = (struct pp_body_instr *)(uintptr_t)&look_up, .count = 1};
	struct pp_stage stage = {.rank = 0};
	f.tensors[1].shard = 0;
	f.tensors[1].rows = 2 * O;
	f.tensors[1].columns = I;
	struct pp_use use = {.tensor = 1, .weight = WEIGHT, .grad = GRAD};
	f.program.stages = &stage;
	f.program.uses = &use;
	f.program.use_count = 1;
	f.program.bodies = &body;
	f.program.body_count = 1;
	f.program.train.vocab = O + 1;
	for (uint32_t tp = 0; tp < 2; tp++) {
		struct pp_device *device = pp_device_cpu.create(&f.program, (struct pp_coord){.tp = tp}, NULL, &status);
		pp_device_cpu.init(device, 5, NULL);
		const float *weight = pp_device_cpu.slot(device, WEIGHT);
		for (size_t i = 0; i < O * I; i++)
			assert_int_equal(weight[i] != 0, tp == 0 || i < I);
		pp_device_cpu.destroy(device);
	}
	drop(&f);
}

static void refusals(void **state)
{
	(void)state;
	struct fixture f;
	make(&f);
	struct pp_status status = {0};
	struct pp_device_options options = {.gpus = "0,1"};
	assert_null(pp_device_cpu.create(&f.program, (struct pp_coord){0}, &options, &status));
	assert_string_equal(status.text,
	                    "--gpus=0,1: the ranks run on the cpu device; leave it out, or ask for --device=cuda");
	options = (struct pp_device_options){.graph = PP_GRAPH_STEP};
	assert_null(pp_device_cpu.create(&f.program, (struct pp_coord){0}, &options, &status));
	assert_string_equal(status.text,
	                    "--graph=step: the cpu device, on which the ranks run, has no graphs; leave it out, "
	                    "or ask for --device=cuda");
	f.tensors[1].dtype = PP_F32;
	f.slots[NORMS].bytes = 8;
	assert_null(pp_device_cpu.create(&f.program, (struct pp_coord){0}, NULL, &status));
	assert_string_equal(status.text, "norms slot 9 of rank 0 has 8 bytes, it needs 16");
	f.slots[NORMS].bytes = 16;
	f.slots[WORK].offset = UINT64_MAX - 10;
	assert_null(pp_device_cpu.create(&f.program, (struct pp_coord){0}, NULL, &status));
	assert_string_equal(status.text, "work slot 11 of rank 0 ends outside the arena");
	f.slots[WORK].offset = 0;
	f.rank.arena_bytes = UINT64_C(1) << 60;
	assert_null(pp_device_cpu.create(&f.program, (struct pp_coord){0}, NULL, &status));
	assert_string_equal(status.text, "out of memory: rank 0 needs an arena of 1152921504606846976 bytes");
	f.rank.arena_bytes = SLOTS * PP_ALIGN;
	drop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bodies),   cmocka_unit_test(loss_entry),
	    cmocka_unit_test(every_op), cmocka_unit_test(sleep_takes_its_time),
	    cmocka_unit_test(clipping), cmocka_unit_test(updates),
	    cmocka_unit_test(memory),   cmocka_unit_test(padding),
	    cmocka_unit_test(shards),   cmocka_unit_test(refusals),
	};
	return cmocka_run_group_tests_name("device_cpu", tests, NULL, NULL);
}
