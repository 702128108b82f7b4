/* Shards of tensors over dp: sizes of shards and slots, `zero` and `shard` in the text of a program. */
#include "ir/program_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t content(const struct pp_program *program, enum pp_slot_class class)
{
	uint64_t bytes;
	struct pp_slot slot = {.class = (uint8_t) class, .tensor = 0};
	assert_true(pp_slot_content_bytes(program, &slot, &bytes));
	return bytes;
}

/* 10 elements over 4 coordinates: 3, 3, 3 and 1 with padding for 2; with tp = 2 each has 5: 2, 2, 1 and none. */
static void shards_are_padded(void **state)
{
	(void)state;
	static const struct {
		uint32_t tp, dp, zero;
		uint64_t shard, weight, grad, moment;
	} cases[] = {
	    {1, 1, 0, 10, 40, 40, 40}, {1, 4, 0, 10, 40, 40, 40}, {1, 1, 1, 10, 40, 40, 40}, {1, 4, 1, 3, 48, 48, 12},
	    {1, 5, 1, 2, 40, 40, 8},   {2, 4, 1, 2, 32, 32, 8},   {1, 16, 1, 1, 64, 64, 4},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pp_tensor tensor = {.rows = 10, .columns = 1, .dtype = PP_F32, .tp_grad = PP_TP_SHARDED};
		struct pp_program program = {
		    .tensors = &tensor, .tensor_count = 1, .tp = cases[i].tp, .dp = cases[i].dp, .zero = cases[i].zero};
		assert_int_equal(pp_shard_elements(&program, 0), cases[i].shard);
		assert_int_equal(content(&program, PP_SLOT_WEIGHT), cases[i].weight);
		assert_int_equal(content(&program, PP_SLOT_GRAD), cases[i].grad);
		assert_int_equal(content(&program, PP_SLOT_MOMENT), cases[i].moment);
	}
}

static void zero_and_shard_are_written_and_read(void **state)
{
	(void)state;
	static const char text[] = "pps 1\n"
	                           "grid pp 1 dp 2 zero 1 microbatches 1\n"
	                           "hyper h0\n"
	                           "stage s0 rank 0\n"
	                           "tensor t0 w f32*3\n"
	                           "slot 0 weight.0 bytes 16 tensor t0\n"
	                           "slot 0 grad.1 bytes 16 tensor t0\n"
	                           "slot 0 norms.2 bytes 8\n"
	                           "group g0 dp\n"
	                           "program train {\n"
	                           "  rank 0 {\n"
	                           "    coll k0 g0 allreduce grad.1 grad.1 f32*2 shard @7\n"
	                           "    add grad.1 grad.1 shard\n"
	                           "    sqnorm t0 grad.1 norms.2 shard\n"
	                           "    opt sgd h0 weight.0 grad.1 - - shard\n"
	                           "  }\n"
	                           "}\n";
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	struct pp_program *program = pp_program_read(arena, pp_sources_add(sources, "x.pps", text, strlen(text)), diag);
	assert_non_null(program);
	assert_int_equal(program->zero, 1);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(program->programs[0].streams[0].items[i].flags, PP_SHARD);
	char *printed = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&printed, &length);
	pp_program_print(program, out);
	fclose(out);
	assert_string_equal(printed, text);
	free(printed);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shards_are_padded),
	    cmocka_unit_test(zero_and_shard_are_written_and_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
