/* The CPU device on its own dp shard: sums, norms and updates of shards are, bit for bit, those of the whole; nothing
 * else in the slot is touched. Which coordinate counts in a norm, and over how many microbatches a mean goes. */
#include "executor/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { WEIGHT, GRAD, OTHER, MOMENT1, MOMENT2, LOSSES, NORMS, SCALE, SLOTS };
enum { ROOM = 24, MICROBATCHES = 2 };

struct fixture {
	struct pp_slot slots[SLOTS];
	struct pp_rank rank;
	struct pp_tensor tensor;
	struct pp_program program;
	struct pp_device *device;
};

static void make(struct fixture *f, uint32_t elements, struct pp_program shape, struct pp_coord coord)
{
	static const uint8_t classes[SLOTS] = {PP_SLOT_WEIGHT, PP_SLOT_GRAD,   PP_SLOT_GRAD,  PP_SLOT_MOMENT,
	                                       PP_SLOT_MOMENT, PP_SLOT_LOSSES, PP_SLOT_NORMS, PP_SLOT_SCALE};
	*f = (struct fixture){.tensor = {.name = "w", .rows = elements, .columns = 1, .dims = 1, .tp_grad = PP_TP_SHARDED}};
	f->program = shape;
	f->program.ranks = 1;
	f->program.rank = &f->rank;
	f->program.tensors = &f->tensor;
	f->program.tensor_count = 1;
	f->program.microbatches = MICROBATCHES;
	for (uint32_t i = 0; i < SLOTS; i++) {
		f->slots[i] =
		    (struct pp_slot){.class = classes[i], .placed = true, .tensor = 0, .offset = (uint64_t)i * PP_ALIGN};
		assert_true(pp_slot_content_bytes(&f->program, &f->slots[i], &f->slots[i].bytes));
	}
	f->rank = (struct pp_rank){.slots = f->slots, .slot_count = SLOTS, .arena_bytes = (uint64_t)SLOTS * PP_ALIGN};
	struct pp_status status = {0};
	f->device = pp_device_cpu.create(&f->program, coord, NULL, &status);
	assert_non_null(f->device);
}

static float *floats(const struct fixture *f, uint32_t slot)
{
	return pp_device_cpu.slot(f->device, slot);
}

static void fill(const struct fixture *f)
{
	for (uint32_t i = 0; i < f->slots[WEIGHT].bytes / sizeof(float); i++) {
		floats(f, WEIGHT)[i] = 0.3f + (float)i;
		floats(f, GRAD)[i] = 0.7f - 0.31f * (float)i;
		floats(f, OTHER)[i] = 1.0f / (float)(i + 3);
	}
	double *scale = pp_device_cpu.slot(f->device, SCALE);
	scale[0] = 0.37;
	scale[2] = 1;
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

/* add, sqnorm, opt by each rule; returns the norm. */
static double run(const struct fixture *f, bool shard)
{
	static const struct pp_hyper hyper = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
	pp_device_cpu.add(f->device, GRAD, OTHER, shard);
	pp_device_cpu.sqnorm(f->device, GRAD, NORMS, 0, shard);
	update(f->device, PP_SGD, &hyper, 0.25, 1, shard);
	for (uint64_t step = 1; step <= 2; step++)
		update(f->device, PP_ADAMW, &hyper, 0.125, step, shard);
	return *(const double *)pp_device_cpu.slot(f->device, NORMS);
}

static void assert_shards_are_the_whole(uint32_t elements, uint32_t dp)
{
	struct fixture whole, shard;
	make(&whole, elements, (struct pp_program){.tp = 1, .dp = dp}, (struct pp_coord){0});
	fill(&whole);
	double norm = run(&whole, false), sum = 0;
	uint32_t each = (elements + dp - 1) / dp;
	for (uint32_t d = 0; d < dp; d++) {
		float before[2][ROOM];
		make(&shard, elements, (struct pp_program){.tp = 1, .dp = dp, .zero = 1}, (struct pp_coord){.dp = d});
		fill(&shard);
		uint64_t bytes = shard.slots[WEIGHT].bytes;
		assert_int_equal(bytes, (uint64_t)each * dp * sizeof(float));
		for (uint32_t i = 0; i < 2; i++)
			memcpy(before[i], floats(&shard, i), bytes);
		sum += run(&shard, true);
		for (uint32_t i = 0; i < each * dp; i++) {
			bool own = i / each == d && i < elements;
			assert_memory_equal(floats(&shard, WEIGHT) + i, own ? floats(&whole, WEIGHT) + i : before[WEIGHT] + i, 4);
			assert_memory_equal(floats(&shard, GRAD) + i, own ? floats(&whole, GRAD) + i : before[GRAD] + i, 4);
			if (!own)
				continue;
			assert_memory_equal(floats(&shard, MOMENT1) + i - each * d, floats(&whole, MOMENT1) + i, 4);
			assert_memory_equal(floats(&shard, MOMENT2) + i - each * d, floats(&whole, MOMENT2) + i, 4);
		}
		pp_device_cpu.destroy(shard.device);
	}
	assert_memory_equal(&sum, &norm, sizeof sum);
	assert_true(norm > 0);
	pp_device_cpu.destroy(whole.device);
}

/* Also shards that are short or empty: 10 over 4 is 3, 3, 3, 1; 6 over 4 is 2, 2, 2, 0; 1 over 3 is 1, 0, 0. */
static void shards_are_the_whole(void **state)
{
	(void)state;
	assert_shards_are_the_whole(12, 3);
	assert_shards_are_the_whole(10, 4);
	assert_shards_are_the_whole(6, 4);
	assert_shards_are_the_whole(1, 3);
	assert_shards_are_the_whole(7, 1);
}

static double mean_factor(uint32_t dp, enum pp_mean mean)
{
	struct fixture f;
	make(&f, 4, (struct pp_program){.tp = 1, .dp = dp}, (struct pp_coord){0});
	double *losses = pp_device_cpu.slot(f.device, LOSSES), *norms = pp_device_cpu.slot(f.device, NORMS);
	losses[1] = 30;
	losses[3] = 10;
	norms[0] = 1;
	static const struct pp_hyper hyper = {0};
	pp_device_cpu.clip(f.device, &hyper, mean, LOSSES, NORMS, SCALE);
	double factor = *(const double *)pp_device_cpu.slot(f.device, SCALE);
	pp_device_cpu.destroy(f.device);
	return factor;
}

/* Token counts are summed over dp by then; microbatches are as many on each coordinate. */
static void means_go_over_all_replicas(void **state)
{
	(void)state;
	const double by_token = 1.0 / 40, by_two = 1.0 / 2, by_six = 1.0 / 6;
	double factor = mean_factor(3, PP_TOKEN_MEAN);
	assert_memory_equal(&factor, &by_token, sizeof factor);
	factor = mean_factor(1, PP_MB_MEAN);
	assert_memory_equal(&factor, &by_two, sizeof factor);
	factor = mean_factor(3, PP_MB_MEAN);
	assert_memory_equal(&factor, &by_six, sizeof factor);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shards_are_the_whole),
	    cmocka_unit_test(means_go_over_all_replicas),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
