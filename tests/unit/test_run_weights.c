/* Hashes of weights over a grid: those of whole tensors, however they are cut, and of their master copies where weights
 * are bf16; copies that differ are named. */
#include "executor/bf16.h"
#include "executor/checkpoint/state.h"
#include "executor/run_weights.h"
#include "executor/transport/transport_loop.h"

#include "ir/arena.h"
#include "ir/hash.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TENSORS = 4, LARGEST = 20000, RANKS = 8 };

static struct pp_tensor tensors[TENSORS] = {
    {.name = "rows", .rows = 8, .columns = 2500, .dims = 2, .tp_grad = PP_TP_SHARDED, .shard = 0},
    {.name = "columns", .rows = 2500, .columns = 8, .dims = 2, .tp_grad = PP_TP_SHARDED, .shard = 1},
    {.name = "copied", .rows = 5, .columns = 3, .dims = 2, .tp_grad = PP_TP_REPLICATED_EQUAL, .shard = 255},
    {.name = "elsewhere", .rows = 4, .columns = 1, .dims = 1, .tp_grad = PP_TP_SHARDED, .shard = 0},
};

/* The first three tensors are used on both pipeline ranks. */
static struct pp_use uses[] = {{.tensor = 0, .stage = 0, .weight = 0}, {.tensor = 0, .stage = 1, .weight = 0},
                               {.tensor = 1, .stage = 0, .weight = 1}, {.tensor = 1, .stage = 1, .weight = 1},
                               {.tensor = 2, .stage = 0, .weight = 2}, {.tensor = 2, .stage = 1, .weight = 2},
                               {.tensor = 3, .stage = 1, .weight = 3}};
/* Weight of tensor t, and behind all of them the master copies. */
static struct pp_slot slots[2 * TENSORS];
static struct pp_rank tables[2] = {{.slots = slots, .slot_count = 2 * TENSORS},
                                   {.slots = slots, .slot_count = 2 * TENSORS}};
static struct pp_stage stages[2] = {{.rank = 0}, {.rank = 1}};
static struct pp_stream streams[2];
static struct pp_named_program named = {.name = "train", .streams = streams};

struct rank {
	struct pp_interp interp;
	struct pp_watch watch;
	struct pp_report_link link;
	void *slots[2 * TENSORS];
	bool ok;
	struct pp_status status;
	char *text;
	pthread_t thread;
};

static float value_at(uint32_t tensor, uint64_t element)
{
	return (float)(tensor * 100000 + element);
}

static void fill(const struct pp_program *program, struct rank *rank, uint32_t tensor)
{
	struct pp_extent extent = pp_state_extent(program, tensor, PP_STATE_WEIGHT, rank->interp.coord);
	const struct pp_box *box = &extent.box;
	bool master = pp_tensor_has_master(&tensors[tensor]);
	pp_bf16 *rounded = rank->slots[tensor] = calloc(LARGEST, sizeof(float));
	float *exact = rank->slots[TENSORS + tensor] = calloc(LARGEST, sizeof(float));
	if (!master)
		exact = rank->slots[tensor];
	for (uint64_t i = 0; i < (uint64_t)box->rows * box->columns; i++) {
		uint64_t element = (box->row + i / box->columns) * tensors[tensor].columns + box->column + i % box->columns;
		if (i - extent.first < extent.count)
			exact[i - extent.first] = value_at(tensor, element);
		if (master)
			rounded[i] = pp_bf16_from_f32(value_at(tensor, element));
	}
}

static void *run(void *argument)
{
	struct rank *rank = argument;
	size_t length;
	FILE *out = rank->interp.world == 0 ? open_memstream(&rank->text, &length) : NULL;
	rank->ok = pp_run_weights(&rank->link, out, &rank->status);
	if (out)
		fclose(out);
	return NULL;
}

static bool read_slot(struct pp_device *device, uint32_t slot, uint64_t offset, uint64_t bytes, void *to,
                      struct pp_status *status)
{
	(void)status;
	memcpy(to, (unsigned char *)((struct rank *)device)->slots[slot] + offset, bytes);
	return true;
}

static const struct pp_device_ops memory = {.read = read_slot};

/* Runs all ranks after `change` has had a look at them. The text is rank 0's. */
static bool run_all(struct pp_program *program, void (*change)(struct rank *), char text[512])
{
	struct pp_status status;
	struct pp_loop *loop = pp_loop_create(program, &(struct pp_transport_options){0}, &status);
	struct rank *ranks = calloc(RANKS, sizeof *ranks);
	for (uint32_t i = 0; i < RANKS; i++) {
		struct rank *rank = &ranks[i];
		pp_watch_init(&rank->watch, program, i, UINT64_C(60000000000));
		rank->interp = (struct pp_interp){.program = program,
		                                  .world = i,
		                                  .coord = pp_grid_coord(program, i),
		                                  .device_ops = &memory,
		                                  .device = (struct pp_device *)rank};
		rank->link =
		    (struct pp_report_link){&pp_transport_loop, pp_loop_endpoint(loop, i), &rank->watch, &rank->interp};
		for (uint32_t t = 0; t < TENSORS; t++)
			fill(program, rank, t);
	}
	if (change)
		change(ranks);
	for (uint32_t i = 0; i < RANKS; i++)
		assert_int_equal(pthread_create(&ranks[i].thread, NULL, run, &ranks[i]), 0);
	for (uint32_t i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	bool ok = ranks[0].ok;
	snprintf(text, 512, "%.500s", ok ? ranks[0].text : ranks[0].status.text);
	for (uint32_t i = 0; i < RANKS; i++) {
		assert_int_equal(ranks[i].ok, ok);
		for (uint32_t t = 0; t < 2 * TENSORS; t++)
			free(ranks[i].slots[t]);
		free(ranks[i].text);
	}
	free(ranks);
	pp_loop_destroy(loop);
	return ok;
}

static struct pp_program make_program(uint8_t order, enum pp_dtype dtype, uint32_t zero)
{
	for (uint32_t t = 0; t < TENSORS; t++) {
		tensors[t].dtype = (uint8_t)dtype;
		slots[t] = (struct pp_slot){.class = PP_SLOT_WEIGHT, .tensor = t};
		slots[TENSORS + t] = (struct pp_slot){.class = PP_SLOT_MASTER, .tensor = t};
	}
	return (struct pp_program){.ranks = 2,
	                           .tp = 2,
	                           .dp = 2,
	                           .zero = zero,
	                           .rank_order = order,
	                           .rank = tables,
	                           .stages = stages,
	                           .stage_count = 2,
	                           .tensors = tensors,
	                           .tensor_count = TENSORS,
	                           .uses = uses,
	                           .use_count = sizeof uses / sizeof *uses,
	                           .programs = &named,
	                           .program_count = 1};
}

static void hashes_are_those_of_the_whole(void **state)
{
	(void)state;
	char expected[512] = "", text[512];
	size_t length = 0;
	for (uint32_t t = 0; t < TENSORS; t++) {
		uint64_t hash = PP_HASH_EMPTY;
		for (uint64_t i = 0; i < (uint64_t)tensors[t].rows * tensors[t].columns; i++) {
			float value = value_at(t, i);
			hash = pp_hash_more(hash, &value, sizeof value);
		}
		length += (size_t)snprintf(expected + length, sizeof expected - length, "weights %s %016llx\n", tensors[t].name,
		                           (unsigned long long)hash);
	}
	for (unsigned i = 0; i < 3 * PP_RANK_ORDER_COUNT; i++) { /* fp32; bf16, whole master copies and their shards */
		struct pp_program program =
		    make_program((uint8_t)(i % PP_RANK_ORDER_COUNT), i < PP_RANK_ORDER_COUNT ? PP_F32 : PP_BF16,
		                 i >= 2 * PP_RANK_ORDER_COUNT);
		assert_true(run_all(&program, NULL, text));
		assert_string_equal(text, expected);
	}
}

/* World ranks in the default order: tp fastest, then dp. */
static void change_other_pp(struct rank *ranks)
{
	((float *)ranks[5].slots[1])[7] = 1;
}

static void change_other_dp(struct rank *ranks)
{
	((float *)ranks[2].slots[0])[9999] = 1;
}

static void change_other_tp(struct rank *ranks)
{
	((float *)ranks[1].slots[2])[0] = 1;
}

static void change_weight(struct rank *ranks)
{
	((pp_bf16 *)ranks[2].slots[0])[9999] = 1;
}

static void change_master(struct rank *ranks)
{
	((float *)ranks[7].slots[TENSORS + 1])[4000] = 1;
}

static void copies_that_differ_are_named(void **state)
{
	(void)state;
	char text[512];
	struct pp_program program = make_program(PP_ORDER_TP_DP_PP, PP_F32, 0);
	assert_false(run_all(&program, change_other_pp, text));
	assert_string_equal(text, "copies of tensor `columns` differ between rank 1 (pp 0 tp 1 dp 0) and rank 5 (pp 1 tp 1 "
	                          "dp 0) after the last step");
	assert_false(run_all(&program, change_other_dp, text));
	assert_string_equal(text, "copies of tensor `rows` differ between rank 0 (pp 0 tp 0 dp 0) and rank 2 (pp 0 tp 0 "
	                          "dp 1) after the last step");
	assert_false(run_all(&program, change_other_tp, text));
	assert_string_equal(text, "copies of tensor `copied` differ between rank 0 (pp 0 tp 0 dp 0) and rank 1 (pp 0 tp 1 "
	                          "dp 0) after the last step");
	program = make_program(PP_ORDER_TP_DP_PP, PP_BF16, 1);
	assert_false(run_all(&program, change_weight, text));
	assert_string_equal(text,
	                    "copies of tensor `rows`, rounded, differ between rank 0 (pp 0 tp 0 dp 0) and rank 2 (pp 0 "
	                    "tp 0 dp 1) after the last step");
	assert_false(run_all(&program, change_master, text));
	assert_string_equal(text, "copies of tensor `columns` differ between rank 3 (pp 0 tp 1 dp 1) and rank 7 (pp 1 tp 1 "
	                          "dp 1) after the last step");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hashes_are_those_of_the_whole),
	    cmocka_unit_test(copies_that_differ_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
