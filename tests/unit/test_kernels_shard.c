/* Kernels of tensor parallelism against their whole counterparts: shards of the token table and of the logits, the bias
 * behind a row-parallel linear, the columns of a head. */
#include "executor/draw.h"
#include "executor/kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void fill(size_t count, float *x, uint64_t seed)
{
	for (size_t i = 0; i < count; i++)
		x[i] = (float)((double)(pp_draw(seed, i) >> 11) / 4503599627370496.0 - 1);
}

/* Shards of the table yield parts whose sum is the whole: exactly, as all but one part are 0. */
static void embedding(void **state)
{
	(void)state;
	enum { TOKENS = 12, SEQ = 6, COLUMNS = 5, ROWS = 8, SHARDS = 4, EACH = ROWS / SHARDS };
	float table[ROWS * COLUMNS], positions[SEQ * COLUMNS], whole[TOKENS * COLUMNS],
	    sum[TOKENS * COLUMNS] = {0}, part_of[TOKENS * COLUMNS];
	float dtable[ROWS * COLUMNS], dpositions[SEQ * COLUMNS], dpart[EACH * COLUMNS], dpositions_part[SEQ * COLUMNS];
	int32_t ids[TOKENS];
	fill(ROWS * COLUMNS, table, 1);
	fill(SEQ * COLUMNS, positions, 2);
	for (size_t t = 0; t < TOKENS; t++)
		ids[t] = (int32_t)(pp_draw(3, t) % ROWS);
	pp_cpu_embed(TOKENS, COLUMNS, SEQ, ids, table, positions, whole);
	pp_cpu_embed_dw(TOKENS, COLUMNS, SEQ, ROWS, SEQ, ids, whole, dtable, false, dpositions, false);
	for (size_t i = 0; i < SHARDS; i++) {
		struct pp_table_part part = {.first = i * EACH, .rows = EACH};
		pp_cpu_embed_part(TOKENS, COLUMNS, SEQ, &part, ids, table + i * EACH * COLUMNS, i ? NULL : positions, part_of);
		pp_cpu_add(TOKENS * COLUMNS, sum, part_of, sum);
		pp_cpu_embed_part_dw(TOKENS, COLUMNS, SEQ, &part, SEQ, ids, whole, dpart, false, dpositions_part, false);
		assert_memory_equal(dpart, dtable + i * EACH * COLUMNS, sizeof dpart);
		assert_memory_equal(dpositions_part, dpositions, sizeof dpositions);
	}
	for (size_t i = 0; i < TOKENS * COLUMNS; i++)
		assert_true(fabsf(sum[i] - whole[i]) <= 1e-7f);
}

/* 21 of 24 columns are vocabulary: in shards of 6 the last is mostly padding, in shards of 3 it is nothing else. */
enum { TOKENS = 40, VOCAB = 21, COLUMNS = 24, MOST = 8 };

static void check_loss(const float *logits, const int32_t *labels, size_t members, bool mean)
{
	float whole[TOKENS * COLUMNS], stats[MOST * TOKENS * 3], shard[TOKENS * COLUMNS], made[TOKENS * COLUMNS];
	double want[2], loss[2];
	size_t each = COLUMNS / members;
	pp_cpu_cross_entropy(TOKENS, VOCAB, COLUMNS, mean, logits, labels, whole, want);
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < members; i++) {
			struct pp_vocab_part part = {.vocab = VOCAB, .first = i * each, .columns = each};
			for (size_t t = 0; t < TOKENS; t++)
				memcpy(shard + t * each, logits + t * COLUMNS + i * each, each * sizeof *shard);
			if (pass == 0) {
				pp_cpu_cross_entropy_stats(&part, TOKENS, shard, labels, stats + i * TOKENS * 3);
				continue;
			}
			pp_cpu_cross_entropy_part(&part, TOKENS, members, mean, shard, labels, stats, shard, loss);
			assert_true(loss[1] == want[1] && fabs(loss[0] - want[0]) <= 1e-6 * want[0]);
			for (size_t t = 0; t < TOKENS; t++)
				memcpy(made + t * COLUMNS + i * each, shard + t * each, each * sizeof *shard);
		}
	for (size_t i = 0; i < TOKENS * COLUMNS; i++)
		assert_true(fabsf(made[i] - whole[i]) <= 1e-6f);
	for (size_t t = 0; t < TOKENS; t++)
		for (size_t j = labels[t] < 0 ? 0 : VOCAB; j < COLUMNS; j++)
			assert_true(made[t * COLUMNS + j] == 0);
}

static void cross_entropy(void **state)
{
	(void)state;
	float logits[TOKENS * COLUMNS];
	int32_t labels[TOKENS];
	fill(TOKENS * COLUMNS, logits, 5);
	for (size_t t = 0; t < TOKENS; t++) {
		labels[t] = t % 5 == 4 ? -1 : (int32_t)(pp_draw(6, t) % VOCAB);
		logits[t * COLUMNS + t % VOCAB] += (float)(30 * (t % 4)); /* one far above the others */
		for (size_t j = VOCAB; j < COLUMNS; j++)
			logits[t * COLUMNS + j] = 1000; /* padding must not count */
	}
	for (size_t members = 1; members <= MOST; members *= 2)
		for (int mean = 0; mean < 2; mean++)
			check_loss(logits, labels, members, mean);
}

/* A value that is not a number in one shard reaches the loss of all. */
static void not_a_number(void **state)
{
	(void)state;
	float logits[2][2] = {{1, NAN}, {2, 3}}, stats[2][3], made[2];
	const int32_t label = 2;
	double loss[2];
	for (size_t i = 0; i < 2; i++) {
		struct pp_vocab_part part = {.vocab = 4, .first = 2 * i, .columns = 2};
		pp_cpu_cross_entropy_stats(&part, 1, logits[i], &label, stats[i]);
	}
	struct pp_vocab_part second = {.vocab = 4, .first = 2, .columns = 2};
	pp_cpu_cross_entropy_part(&second, 1, 2, false, logits[1], &label, stats[0], made, loss);
	assert_true((bool)isnan(loss[0]) && (bool)isnan(made[0]));
}

static void bias_and_columns(void **state)
{
	(void)state;
	const float a[6] = {1, 2, 3, 4, 5, 6}, bias[3] = {10, 20, 30};
	float b[6] = {1, 1, 1, 2, 2, 2}, own[2], back[6] = {9, 9, 9, 9, 9, 9};
	pp_cpu_add_bias(2, 3, a, b, bias, b);
	assert_memory_equal(b, ((const float[]){12, 23, 34, 16, 27, 38}), sizeof b);
	pp_cpu_take_columns(2, 3, 1, 1, a, own);
	assert_memory_equal(own, ((const float[]){2, 5}), sizeof own);
	pp_cpu_put_columns(2, 3, 1, 1, own, back);
	assert_memory_equal(back, ((const float[]){0, 2, 0, 0, 5, 0}), sizeof back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(embedding),
	    cmocka_unit_test(cross_entropy),
	    cmocka_unit_test(not_a_number),
	    cmocka_unit_test(bias_and_columns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
