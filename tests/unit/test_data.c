/* Training data: the permutation, samples that depend on their id alone, all widths, headers, errors, entropy. */
#include "executor/data.h"
#include "executor/permutation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { VOCAB = 256, SEQ = 4 };

/* A file of these bytes; its path belongs to the caller, who unlinks and frees it. */
static char *file_of(const void *bytes, size_t length)
{
	const char *folder = getenv("TMPDIR");
	size_t room = strlen(folder ? folder : "/tmp") + 32;
	char *path = malloc(room);
	assert_non_null(path);
	snprintf(path, room, "%s/pp-data-XXXXXX", folder ? folder : "/tmp");
	int file = mkstemp(path);
	assert_true(file >= 0);
	assert_int_equal(write(file, bytes, length), length);
	close(file);
	return path;
}

static void drop(char *path)
{
	unlink(path);
	free(path);
}

static struct pp_program program_of(uint32_t microbatch, uint32_t microbatches, enum pp_tokens width)
{
	return (struct pp_program){
	    .dp = 1,
	    .microbatches = microbatches,
	    .train = {.microbatch = microbatch,
	              .seq = SEQ,
	              .vocab = VOCAB,
	              .seed = 1,
	              .data = PP_DATA_FILE,
	              .tokens = (uint8_t)width},
	};
}

static void permutation(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1, 2, 3, 4, 5, 64, 100, 257, 4097};
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
		uint64_t n = sizes[s], fixed = 0, same = 0;
		bool *seen = calloc(n, sizeof *seen);
		for (uint64_t i = 0; i < n; i++) {
			uint64_t image = pp_permute(11, n, i);
			assert_true(image < n && !seen[image]);
			seen[image] = true;
			fixed += image == i;
			same += image == pp_permute(12, n, i);
		}
		assert_true(n < 64 || (fixed < 10 && same < 10));
		free(seen);
	}
	const uint64_t large = UINT64_C(1) << 40;
	assert_true(pp_permute(1, large, large - 1) < large);
	assert_true(pp_permute(1, large, 0) != pp_permute(1, large, 1));
}

static void labels_follow_tokens(void **state)
{
	(void)state;
	uint8_t bytes[50];
	for (uint8_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 5);
	char *path = file_of(bytes, sizeof bytes);
	struct pp_program program = program_of(2, 3, PP_TOKENS_BYTE);
	struct pp_status status = {0};
	struct pp_data_source *data = pp_data_open(&program, (struct pp_coord){0}, path, &status);
	assert_non_null(data);
	int32_t both[16], tokens[8], labels[8];
	assert_true(pp_data_fill(data, 3, 1, PP_LOAD_BOTH, both, &status));
	assert_true(pp_data_fill(data, 3, 1, PP_LOAD_TOKENS, tokens, &status));
	assert_true(pp_data_fill(data, 3, 1, PP_LOAD_LABELS, labels, &status));
	assert_memory_equal(both, tokens, sizeof tokens);
	assert_memory_equal(both + 8, labels, sizeof labels);
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(labels[i], tokens[i] + 5);
		assert_true(i % SEQ == 0 || tokens[i] == labels[i - 1]);
	}
	assert_true(pp_data_entropy(data) == 0);
	pp_data_close(data);
	drop(path);
}

/* A run that goes on with another batch takes the samples that come next. */
static void another_batch(void **state)
{
	(void)state;
	uint8_t bytes[100];
	for (uint8_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i;
	char *path = file_of(bytes, sizeof bytes);
	struct pp_status status = {0};
	struct pp_program wide = program_of(2, 3, PP_TOKENS_BYTE), narrow = program_of(1, 2, PP_TOKENS_BYTE);
	struct pp_data_source *first = pp_data_open(&wide, (struct pp_coord){0}, path, &status),
	                      *then = pp_data_open(&narrow, (struct pp_coord){0}, path, &status);
	pp_data_continue(then, 5, 30); /* five steps of 6 */
	for (uint32_t sample = 0; sample < 12; sample++) {
		int32_t want[2 * SEQ], got[SEQ];
		assert_true(pp_data_fill(first, 5 + sample / 6, sample % 6 / 2, PP_LOAD_TOKENS, want, &status));
		assert_true(pp_data_fill(then, 5 + sample / 2, sample % 2, PP_LOAD_TOKENS, got, &status));
		assert_memory_equal(got, want + sample % 2 * SEQ, sizeof got);
	}
	pp_data_close(first);
	pp_data_close(then);
	drop(path);
}

/* A global batch of 12 samples cut among dp coordinates, microbatches and samples per microbatch: each sample once, and
 * the k-th of the batch where (m * dp + d) * microbatch + i = k. */
static void samples_are_shared_over_dp(void **state)
{
	(void)state;
	enum { BATCH = 12 };
	struct pp_status status = {0};
	int32_t want[BATCH * SEQ];
	struct pp_program whole = program_of(BATCH, 1, PP_TOKENS_BYTE);
	whole.train.data = PP_DATA_SYNTHETIC;
	struct pp_data_source *data = pp_data_open(&whole, (struct pp_coord){0}, NULL, &status);
	assert_true(pp_data_fill(data, 3, 0, PP_LOAD_LABELS, want, &status));
	pp_data_close(data);
	for (uint32_t dp = 1; dp <= BATCH; dp++)
		for (uint32_t m = 1; dp * m <= BATCH; m++) {
			if (BATCH % (dp * m))
				continue;
			struct pp_program cut = program_of(BATCH / (dp * m), m, PP_TOKENS_BYTE);
			cut.train.data = PP_DATA_SYNTHETIC;
			cut.dp = dp;
			for (uint32_t d = 0; d < dp; d++) {
				int32_t got[BATCH * SEQ];
				data = pp_data_open(&cut, (struct pp_coord){.pp = 7, .tp = 3, .dp = d}, NULL, &status);
				for (uint32_t mb = 0; mb < m; mb++) {
					assert_true(pp_data_fill(data, 3, mb, PP_LOAD_LABELS, got, &status));
					size_t each = (size_t)BATCH / (dp * m) * SEQ;
					assert_memory_equal(got, want + (mb * dp + d) * each, each * sizeof *got);
				}
				pp_data_close(data);
			}
		}
}

/* One epoch visits each start once; the next one in another order; the split into microbatches does not matter. */
static void epochs(void **state)
{
	(void)state;
	uint8_t bytes[40];
	for (uint8_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i;
	enum { STARTS = 36 };
	char *path = file_of(bytes, sizeof bytes);
	struct pp_status status = {0};
	struct pp_program one = program_of(1, 1, PP_TOKENS_BYTE), cut = program_of(2, 3, PP_TOKENS_BYTE),
	                  flat = program_of(6, 1, PP_TOKENS_BYTE);
	struct pp_data_source *data = pp_data_open(&one, (struct pp_coord){0}, path, &status);
	unsigned moved = 0;
	bool seen[2][STARTS] = {{false}};
	int32_t tokens[SEQ], other[6 * SEQ], again[6 * SEQ], first[STARTS];
	for (uint64_t step = 0; step < 2 * STARTS; step++) {
		assert_true(pp_data_fill(data, step, 0, PP_LOAD_TOKENS, tokens, &status));
		assert_true(tokens[0] < STARTS && !seen[step / STARTS][tokens[0]]);
		seen[step / STARTS][tokens[0]] = true;
		if (step < STARTS)
			first[step] = tokens[0];
		else
			moved += first[step - STARTS] != tokens[0];
	}
	assert_true(moved > STARTS / 2);
	pp_data_close(data);

	struct pp_data_source *in_parts = pp_data_open(&cut, (struct pp_coord){0}, path, &status),
	                      *at_once = pp_data_open(&flat, (struct pp_coord){0}, path, &status);
	for (uint32_t m = 0; m < 3; m++)
		assert_true(pp_data_fill(in_parts, 2, m, PP_LOAD_TOKENS, other + m * 2 * SEQ, &status));
	assert_true(pp_data_fill(at_once, 2, 0, PP_LOAD_TOKENS, again, &status));
	assert_memory_equal(other, again, sizeof again);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(other[i * SEQ], first[12 + i]);
	pp_data_close(in_parts);
	pp_data_close(at_once);
	drop(path);
}

static void widths_and_headers(void **state)
{
	(void)state;
	struct pp_status status = {0};
	for (unsigned header = 0; header < 2; header++) {
		for (unsigned wide = 0; wide < 2; wide++) {
			uint32_t bytes[256 + 20] = {0}, *at = bytes;
			if (header) {
				bytes[0] = wide ? 20240801 : 20240520;
				bytes[1] = wide ? 7 : 1;
				bytes[2] = 5;
				at += 256;
			}
			const uint16_t half[5] = {200, 201, 202, 203, 204};
			const uint32_t whole[5] = {200, 201, 202, 203, 204};
			memcpy(at, wide ? (const void *)whole : (const void *)half, wide ? sizeof whole : sizeof half);
			char *path = file_of(bytes, (header ? 1024u : 0u) + (wide ? sizeof whole : sizeof half));
			struct pp_program program = program_of(1, 1, wide ? PP_TOKENS_U32 : PP_TOKENS_U16);
			struct pp_data_source *data = pp_data_open(&program, (struct pp_coord){0}, path, &status);
			assert_non_null(data);
			int32_t got[2 * SEQ];
			const int32_t want[2 * SEQ] = {200, 201, 202, 203, 201, 202, 203, 204};
			assert_true(pp_data_fill(data, 5, 0, PP_LOAD_BOTH, got, &status));
			assert_memory_equal(got, want, sizeof want);
			pp_data_close(data);
			drop(path);
		}
	}
}

/* Opening or filling fails with this text, where PATH stands for the file. */
static void assert_refused(const struct pp_program *program, char *path, const char *text)
{
	struct pp_status status = {0};
	int32_t to[2 * SEQ];
	struct pp_data_source *data = pp_data_open(program, (struct pp_coord){0}, path, &status);
	assert_true(data == NULL || !pp_data_fill(data, 0, 0, PP_LOAD_BOTH, to, &status));
	char expected[1024];
	snprintf(expected, sizeof expected, text, path);
	assert_string_equal(status.text, expected);
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	pp_data_close(data);
}

static void errors(void **state)
{
	(void)state;
	struct pp_program bytes = program_of(1, 1, PP_TOKENS_BYTE), halves = program_of(1, 1, PP_TOKENS_U16);
	char missing[] = "/nonexistent/text";
	assert_refused(&bytes, missing, "cannot open data file %s: No such file or directory");
	char folder[] = "/tmp";
	assert_refused(&bytes, folder, "data file %s is not a regular file");
	char *path = file_of("abcd", 4);
	assert_refused(&bytes, path, "data file %s is too short: 4 tokens to train on, one sample takes seq + 1 = 5");
	drop(path);
	path = file_of("", 0);
	assert_refused(&bytes, path, "data file %s is too short: 0 tokens to train on, one sample takes seq + 1 = 5");
	drop(path);
	path = file_of("abcdefghijklm", 13);
	assert_refused(&halves, path, "data file %s ends within a token: 13 bytes are no multiple of 2");
	drop(path);
	const uint16_t tokens[5] = {1, 2, 3, 300, 5};
	path = file_of(tokens, sizeof tokens);
	assert_refused(
	    &halves, path,
	    "data file %s: token 300 at position 3 is not below vocab = 256; the tokenizer and the model differ");
	drop(path);
	uint32_t header[260] = {20240801, 7, 4};
	path = file_of(header, sizeof header);
	assert_refused(&halves, path, "data file %s holds u32 tokens by its header, the spec says tokens = u16");
	drop(path);
	header[0] = 20240520;
	header[1] = 1;
	header[2] = 1000;
	path = file_of(header, sizeof header);
	assert_refused(&halves, path, "data file %s is cut off: its header promises 1000 tokens, it holds 8");
	drop(path);
	struct pp_program none = bytes;
	none.train.data = PP_DATA_NONE;
	struct pp_status status = {0};
	struct pp_data_source *data = pp_data_open(&none, (struct pp_coord){0}, NULL, &status);
	int32_t to[2 * SEQ];
	assert_false(pp_data_fill(data, 0, 0, PP_LOAD_BOTH, to, &status));
	assert_string_equal(status.text, "the program loads tokens but its spec names no data");
	pp_data_close(data);
}

static void tail_is_kept_back(void **state)
{
	(void)state;
	uint8_t bytes[100];
	for (uint8_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i;
	char *path = file_of(bytes, sizeof bytes);
	struct pp_program program = program_of(1, 1, PP_TOKENS_BYTE);
	program.train.eval_tail = 0.3;
	struct pp_status status = {0};
	struct pp_data_source *data = pp_data_open(&program, (struct pp_coord){0}, path, &status);
	int32_t both[2 * SEQ], largest = 0;
	for (uint64_t step = 0; step < 66; step++) {
		assert_true(pp_data_fill(data, step, 0, PP_LOAD_BOTH, both, &status));
		largest = both[2 * SEQ - 1] > largest ? both[2 * SEQ - 1] : largest;
	}
	assert_int_equal(largest, 69);
	pp_data_close(data);
	drop(path);
}

static struct pp_data_source *held_out(const struct pp_program *program, const char *path)
{
	struct pp_status status = {0};
	struct pp_data_source *data = pp_data_open_held_out(program, (struct pp_coord){0}, path, &status);
	if (!data)
		fail_msg("%s", status.text);
	return data;
}

/* Every label of the tail once, in order, whatever the cut of the batch; what lies beyond counts for nothing. */
static void held_out_labels_count_once(void **state)
{
	(void)state;
	uint8_t bytes[100];
	for (uint8_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i;
	char *path = file_of(bytes, sizeof bytes);
	struct pp_program cuts[] = {program_of(1, 1, PP_TOKENS_BYTE), program_of(2, 3, PP_TOKENS_BYTE),
	                            program_of(5, 1, PP_TOKENS_BYTE)};
	const uint64_t batches[] = {7, 2, 2}; /* 29 labels: 7 samples of 4 */
	for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
		struct pp_program *program = &cuts[c];
		program->train.eval_tail = 0.3;
		program->train.eval_steps = 1000;
		struct pp_data_source *data = held_out(program, path);
		assert_int_equal(pp_data_batches(data), batches[c]);
		struct pp_status status = {0};
		int32_t expected = 70;
		for (uint64_t step = 0; step < batches[c]; step++)
			for (uint32_t mb = 0; mb < program->microbatches; mb++) {
				int32_t both[2 * 5 * SEQ];
				uint32_t tokens = program->train.microbatch * SEQ;
				assert_true(pp_data_fill(data, step, mb, PP_LOAD_BOTH, both, &status));
				for (uint32_t i = 0; i < tokens; i++, expected++) {
					assert_int_equal(both[i], expected < 98 ? expected : 0);
					assert_int_equal(both[tokens + i], expected < 98 ? expected + 1 : -1);
				}
			}
		program->train.eval_steps = 1;
		pp_data_close(data);
		data = held_out(program, path);
		assert_int_equal(pp_data_batches(data), 1);
		pp_data_close(data);
	}
	drop(path);
}

/* A file of its own is held out from its first token; of synthetic data other samples of the same map are. */
static void held_out_sources(void **state)
{
	(void)state;
	const uint16_t tokens[9] = {10, 11, 12, 13, 14, 15, 16, 17, 18};
	char *path = file_of(tokens, sizeof tokens);
	struct pp_program program = program_of(1, 1, PP_TOKENS_U16);
	struct pp_status status = {0};
	program.train.eval_path = path;
	program.train.eval_steps = 9;
	struct pp_data_source *data = held_out(&program, "/nonexistent");
	int32_t both[2 * SEQ], label = 11;
	assert_int_equal(pp_data_batches(data), 2);
	for (uint64_t step = 0; step < 2; step++) {
		assert_true(pp_data_fill(data, step, 0, PP_LOAD_BOTH, both, &status));
		for (size_t i = 0; i < SEQ; i++, label++)
			assert_int_equal(both[SEQ + i], label);
	}
	pp_data_close(data);
	drop(path);

	struct pp_program made = program_of(1, 1, PP_TOKENS_BYTE);
	made.train.data = PP_DATA_SYNTHETIC;
	made.train.eval_steps = 50;
	struct pp_data_source *train = pp_data_open(&made, (struct pp_coord){0}, NULL, &status),
	                      *kept = held_out(&made, NULL);
	int32_t next[VOCAB], other[2 * SEQ], agree = 0, differ = 0;
	memset(next, 0xff, sizeof next);
	assert_int_equal(pp_data_batches(kept), 50);
	for (uint64_t step = 0; step < 500; step++) {
		assert_true(pp_data_fill(train, step, 0, PP_LOAD_BOTH, both, &status));
		assert_true(pp_data_fill(kept, step, 0, PP_LOAD_BOTH, other, &status));
		differ += memcmp(both, other, sizeof both) != 0;
		for (size_t i = 0; i < SEQ; i++)
			next[both[i]] = both[SEQ + i];
	}
	for (uint64_t step = 0; step < 500; step++) {
		assert_true(pp_data_fill(kept, step, 0, PP_LOAD_BOTH, other, &status));
		for (size_t i = 0; i < SEQ; i++)
			agree += next[other[i]] == other[SEQ + i];
	}
	assert_int_equal(differ, 500);
	assert_true(agree > 1400); /* of 2000: (7/8)^2 and a little */
	pp_data_close(train);
	pp_data_close(kept);
}

static void assert_not_held_out(const struct pp_program *program, const char *path, const char *text)
{
	struct pp_status status = {0};
	assert_null(pp_data_open_held_out(program, (struct pp_coord){0}, path, &status));
	char expected[1024];
	snprintf(expected, sizeof expected, text, path);
	assert_string_equal(status.text, expected);
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
}

static void held_out_too_little(void **state)
{
	(void)state;
	struct pp_program program = program_of(1, 1, PP_TOKENS_BYTE);
	program.train.eval_steps = 1;
	program.train.eval_tail = 0.1;
	char *path = file_of("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrst", 46);
	assert_not_held_out(&program, path,
	                    "data file %s is too short to evaluate on: its tail has 4 tokens, one sample takes seq + 1 = "
	                    "5; use a larger tail, or a file for `eval_data`");
	program.train.eval_tail = 0;
	assert_not_held_out(&program, path,
	                    "data file %s is too short to evaluate on: its tail has 0 tokens, one sample takes seq + 1 = "
	                    "5; use a larger tail, or a file for `eval_data`");
	drop(path);
	path = file_of("abcd", 4);
	program.train.eval_path = path;
	assert_not_held_out(
	    &program, path,
	    "data file %s is too short to evaluate on: 4 tokens, one sample takes seq + 1 = 5; use a longer "
	    "file");
	drop(path);
}

/* The loss of a model that knows the map is the entropy: measured here by counting. */
static void synthetic(void **state)
{
	(void)state;
	enum { SMALL = 8, STEPS = 20000 };
	struct pp_program program = program_of(1, 1, PP_TOKENS_BYTE);
	program.train.data = PP_DATA_SYNTHETIC;
	program.train.vocab = SMALL;
	struct pp_status status = {0};
	struct pp_data_source *data = pp_data_open(&program, (struct pp_coord){0}, NULL, &status);
	assert_non_null(data);
	static double next[SMALL][SMALL];
	int32_t both[2 * SEQ];
	for (uint64_t step = 0; step < STEPS; step++) {
		assert_true(pp_data_fill(data, step, 0, PP_LOAD_BOTH, both, &status));
		for (size_t i = 0; i < SEQ; i++) {
			assert_in_range(both[i], 0, SMALL - 1);
			next[both[i]][both[SEQ + i]]++;
		}
	}
	double entropy = 0, total = (double)STEPS * SEQ;
	for (size_t a = 0; a < SMALL; a++) {
		double sum = 0;
		for (size_t b = 0; b < SMALL; b++)
			sum += next[a][b];
		assert_true(fabs(sum / total - 1.0 / SMALL) < 0.01);
		for (size_t b = 0; b < SMALL; b++)
			entropy -= next[a][b] / total * log(next[a][b] / sum);
	}
	assert_true(fabs(entropy - pp_data_entropy(data)) < 0.02);
	assert_true(entropy < 0.4 * log(SMALL));
	pp_data_close(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(permutation),
	    cmocka_unit_test(labels_follow_tokens),
	    cmocka_unit_test(samples_are_shared_over_dp),
	    cmocka_unit_test(epochs),
	    cmocka_unit_test(widths_and_headers),
	    cmocka_unit_test(errors),
	    cmocka_unit_test(tail_is_kept_back),
	    cmocka_unit_test(synthetic),
	    cmocka_unit_test(another_batch),
	    cmocka_unit_test(held_out_labels_count_once),
	    cmocka_unit_test(held_out_sources),
	    cmocka_unit_test(held_out_too_little),
	};
	return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
