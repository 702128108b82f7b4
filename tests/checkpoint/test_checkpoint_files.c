/* The files of a checkpoint: what is written reads back, and nothing that is read is believed. */
#include "executor/checkpoint/folder.h"
#include "executor/checkpoint/manifest.h"
#include "executor/checkpoint/safetensors.h"

#include "ir/image_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/checkpoint-files-XXXXXX";
static char path[64], manifest_path[64];

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/x.safetensors", folder);
	snprintf(manifest_path, sizeof manifest_path, "%s/manifest.json", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(path);
	unlink(manifest_path);
	return rmdir(folder);
}

static unsigned char *read_whole(const char *name, size_t *length)
{
	FILE *file = fopen(name, "r");
	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	*length = (size_t)ftell(file);
	rewind(file);
	unsigned char *bytes = malloc(*length + 1);
	assert_int_equal(fread(bytes, 1, *length, file), *length);
	fclose(file);
	return bytes;
}

static void write_whole(const char *name, const void *bytes, size_t length)
{
	FILE *file = fopen(name, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}

/* A clean refusal: exit code 3 and one line. */
static void assert_clean(const struct pp_status *status)
{
	assert_int_equal(status->code, PP_EXIT_ENVIRONMENT);
	assert_true(status->text[0] != '\0' && !strchr(status->text, '\n'));
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const float small[6] = {1, 2, 3, 4, 5, 6};

static struct pp_file_sum write_small(void)
{
	const struct pp_named_tensor tensors[] = {
	    {.name = "a.weight", .dims = 2, .shape = {2, 2}, .data = small, .bytes = 16},
	    {.name = "a.bias", .dims = 1, .shape = {2}, .data = small + 4, .bytes = 8},
	};
	struct pp_status status;
	struct pp_file_sum sum;
	unlink(path);
	assert_true(pp_safetensors_write(path, tensors, 2, &sum, NULL, NULL, &status));
	return sum;
}

static void layout_is_exact(void **state)
{
	(void)state;
	static const char header[] = "{\"a.weight\": {\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [0, 16]}, "
	                             "\"a.bias\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [16, 24]}}";
	size_t length, header_length = (sizeof header - 1 + 7) / 8 * 8;
	struct pp_file_sum sum = write_small();
	unsigned char *bytes = read_whole(path, &length);
	assert_int_equal(length, 8 + header_length + sizeof small);
	assert_int_equal(sum.bytes, length);
	assert_int_equal(pp_load64(bytes), header_length);
	assert_memory_equal(bytes + 8, header, sizeof header - 1);
	for (size_t i = sizeof header - 1; i < header_length; i++)
		assert_int_equal(bytes[8 + i], ' ');
	assert_memory_equal(bytes + 8 + header_length, small, sizeof small);
	free(bytes);
}

static void count_calls(void *context)
{
	++*(int *)context;
}

/* Longer than the buffer, with an end that is not a multiple of it. */
static void large_tensors_read_back(void **state)
{
	(void)state;
	enum { COUNT = 700001 };
	float *data = malloc(COUNT * sizeof *data), *back = malloc(COUNT * sizeof *back);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = (float)i;
	const struct pp_named_tensor tensors[] = {
	    {.name = "first", .dims = 1, .shape = {COUNT}, .data = data, .bytes = COUNT * sizeof *data},
	    {.name = "none", .dims = 1, .shape = {0}, .data = data, .bytes = 0},
	    {.name = "last", .dims = 1, .shape = {3}, .data = data + 5, .bytes = 3 * sizeof *data},
	};
	struct pp_status status;
	struct pp_file_sum sum;
	int calls = 0;
	unlink(path);
	assert_true(pp_safetensors_write(path, tensors, 3, &sum, count_calls, &calls, &status));
	assert_int_equal(calls, 1);
	assert_true(pp_file_check(path, &sum, &status));
	struct pp_safetensors *file = pp_safetensors_open(path, &status);
	assert_non_null(file);
	assert_true(pp_safetensors_read(file, "first", COUNT * sizeof *back, 0, back, COUNT * sizeof *back, &status));
	assert_memory_equal(back, data, COUNT * sizeof *data);
	assert_true(pp_safetensors_read(file, "last", 12, 0, back, 12, &status));
	assert_memory_equal(back, data + 5, 12);
	assert_true(pp_safetensors_read(file, "last", 12, 4, back, 8, &status)); /* a part */
	assert_memory_equal(back, data + 6, 8);
	assert_false(pp_safetensors_read(file, "last", 12, 8, back, 8, &status));
	assert_false(pp_safetensors_read(file, "last", 8, 0, back, 8, &status));
	assert_clean(&status);
	assert_false(pp_safetensors_read(file, "lost", 8, 0, back, 8, &status));
	assert_non_null(strstr(status.text, "tensor `lost` is missing"));
	pp_safetensors_close(file);
	assert_false(pp_safetensors_write(path, tensors, 3, &sum, NULL, NULL, &status)); /* never over another */
	free(data);
	free(back);
}

/* Every byte changed: the checksum sees it, and the reader of the header stays within bounds. */
static void changed_bytes_are_refused(void **state)
{
	(void)state;
	size_t length;
	struct pp_file_sum sum = write_small();
	unsigned char *bytes = read_whole(path, &length);
	for (size_t at = 0; at < length; at++)
		for (unsigned mask = 1; mask <= 64; mask *= 8) {
			bytes[at] ^= (unsigned char)mask;
			write_whole(path, bytes, length);
			struct pp_status status;
			assert_false(pp_file_check(path, &sum, &status));
			assert_clean(&status);
			struct pp_safetensors *file = pp_safetensors_open(path, &status);
			float to[4];
			if (!file)
				assert_clean(&status);
			else if (!pp_safetensors_read(file, "a.weight", sizeof to, 0, to, sizeof to, &status))
				assert_clean(&status);
			pp_safetensors_close(file);
			bytes[at] ^= (unsigned char)mask;
		}
	free(bytes);
}

static void cut_files_are_refused(void **state)
{
	(void)state;
	size_t length;
	struct pp_file_sum sum = write_small();
	unsigned char *bytes = read_whole(path, &length);
	for (size_t cut = 0; cut < length; cut++) {
		write_whole(path, bytes, cut);
		struct pp_status status;
		assert_false(pp_file_check(path, &sum, &status));
		assert_clean(&status);
		assert_null(pp_safetensors_open(path, &status));
		assert_clean(&status);
	}
	free(bytes);
}

static void write_header(const char *header, size_t claimed, size_t data)
{
	unsigned char bytes[2048] = {0};
	size_t length = strlen(header);
	assert_true(8 + length + data <= sizeof bytes);
	pp_store64(bytes, claimed);
	memcpy(bytes + 8, header, length);
	write_whole(path, bytes, 8 + length + data);
}

#define TENSOR(shape, offsets) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void crafted_headers_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *header, *why;
	} cases[] = {
	    {"[]", "its header is no JSON object"},
	    {"{\"a\":", "its header is not JSON"},
	    {"{\"a\":" TENSOR("[2]", "[0,8]") ",\"a\":" TENSOR("[2]", "[0,8]") "}", "its header is not JSON: duplicate"},
	    {"{\"a\":1}", "tensor `a` has no dtype"},
	    {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}", "tensor `a` is not of dtype F32"},
	    {"{\"a\":" TENSOR("[-2]", "[0,8]") "}", "tensor `a` has no shape that can be"},
	    {"{\"a\":" TENSOR("[2.0]", "[0,8]") "}", "tensor `a` has no shape that can be"},
	    {"{\"a\":" TENSOR("[4611686018427387904,4]", "[0,8]") "}", "tensor `a` has no shape that can be"},
	    {"{\"a\":" TENSOR("[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", "tensor `a` has no shape that can be"},
	    {"{\"a\":" TENSOR("[2]", "[8]") "}", "tensor `a` has no data_offsets"},
	    {"{\"a\":" TENSOR("[2]", "[-8,0]") "}", "tensor `a` has no data_offsets"},
	    {"{\"a\":" TENSOR("[2]", "[8,0]") "}", "tensor `a` lies outside of the data"},
	    {"{\"a\":" TENSOR("[2]", "[0,9223372036854775807]") "}", "tensor `a` lies outside of the data"},
	    {"{\"a\":" TENSOR("[2]", "[0,99999999999999999999]") "}", "its header is not JSON"},
	    {"{\"a\":" TENSOR("[1]", "[0,8]") "}", "tensor `a` has data of another length than its shape"},
	    {"{\"a\":" TENSOR("[2]", "[0,8]") ",\"b\":" TENSOR("[1]", "[4,8]") "}", "tensor `b` overlaps another"},
	    {"{\"a\":" TENSOR("[1]", "[0,4]") ",\"b\":" TENSOR("[0]", "[8,8]") "}", "tensor `b` comes after a gap"},
	    {"{\"a\":" TENSOR("[1]", "[0,4]") "}", "holds 8 bytes of data, its tensors take 4"},
	    {"{}", "holds 8 bytes of data, its tensors take 0"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pp_status status = {0};
		write_header(cases[i].header, strlen(cases[i].header), 8);
		assert_null(pp_safetensors_open(path, &status));
		assert_clean(&status);
		if (!strstr(status.text, cases[i].why))
			fail_msg("%s: got %s, want %s", cases[i].header, status.text, cases[i].why);
	}
	struct pp_status status;
	write_header("{}", SIZE_MAX, 8);
	assert_null(pp_safetensors_open(path, &status));
	assert_non_null(strstr(status.text, "its header should take 18446744073709551615 bytes"));
	char deep[1500];
	memset(deep, '[', sizeof deep);
	deep[sizeof deep - 1] = '\0';
	write_header(deep, sizeof deep - 1, 8);
	assert_null(pp_safetensors_open(path, &status));
	assert_clean(&status);
	assert_null(pp_safetensors_open(folder, &status));
	assert_non_null(strstr(status.text, "is not a regular file"));
}

/* Metadata may stand there. */
static void metadata_is_passed_over(void **state)
{
	(void)state;
	struct pp_status status;
	static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" TENSOR("[2]", "[0,8]") "}";
	write_header(header, strlen(header), 8);
	struct pp_safetensors *file = pp_safetensors_open(path, &status);
	float to[2] = {1, 1};
	assert_non_null(file);
	assert_true(pp_safetensors_read(file, "a", 8, 0, to, 8, &status));
	assert_true(to[0] == 0 && to[1] == 0);
	pp_safetensors_close(file);
}

/* ---- manifest -------------------------------------------------------------------------------- */

static struct pp_stage stages[2] = {{.rank = 0}, {.rank = 1}};
static struct pp_tensor tensors[2] = {
    {.name = "emb.weight", .rows = 4, .columns = 2, .dims = 2},
    {.name = "norm.weight", .rows = 2, .columns = 1, .dims = 1},
};
/* Tied: the first tensor is used on both ranks and lies in the file of the lower one. */
static struct pp_use uses[3] = {{.tensor = 0, .stage = 0}, {.tensor = 0, .stage = 1}, {.tensor = 1, .stage = 1}};
static const struct pp_program program = {
    .ranks = 2,
    .stages = stages,
    .stage_count = 2,
    .tensors = tensors,
    .tensor_count = 2,
    .uses = uses,
    .use_count = 3,
    .train = {.seed = UINT64_MAX, .data_seed = 3},
};

static char *make_manifest(size_t *length)
{
	const struct pp_file_sum files[2] = {{100, 0x123456789abcdef0}, {200, UINT64_MAX}};
	struct pp_status status;
	char *text;
	assert_true(pp_manifest_make(&program, &(struct pp_training_point){12, 340}, files, &text, length, &status));
	write_whole(manifest_path, text, *length);
	return text;
}

static void assert_part(const struct pp_manifest *manifest, const char *tensor, bool moments, uint32_t index,
                        const struct pp_manifest_part *expected)
{
	struct pp_manifest_part *parts;
	uint32_t count;
	struct pp_status status;
	assert_true(pp_manifest_parts(manifest, tensor, moments, &parts, &count, &status));
	assert_true(index < count);
	assert_int_equal(parts[index].rank, expected->rank);
	assert_true(parts[index].sum.bytes == expected->sum.bytes && parts[index].sum.hash == expected->sum.hash);
	const struct pp_extent *got = &parts[index].extent, *wanted = &expected->extent;
	assert_memory_equal(&got->box, &wanted->box, sizeof got->box);
	assert_true(got->first == wanted->first && got->count == wanted->count);
	free(parts);
}

static void manifest_reads_back(void **state)
{
	(void)state;
	size_t length;
	free(make_manifest(&length));
	struct pp_status status;
	struct pp_manifest *manifest = pp_manifest_read(folder, &status);
	assert_non_null(manifest);
	assert_int_equal(pp_manifest_point(manifest).step, 12);
	assert_int_equal(pp_manifest_point(manifest).next_sample, 340);
	assert_true(pp_manifest_check_model(manifest, &program, &status));
	assert_true(pp_manifest_check_training(manifest, &program, &status));
	for (int moments = 0; moments < 2; moments++) {
		assert_part(manifest, "emb.weight", moments == 1, 0,
		            &(struct pp_manifest_part){0, {100, 0x123456789abcdef0}, {{0, 4, 0, 2}, 0, 8}});
		assert_part(manifest, "norm.weight", moments == 1, 0,
		            &(struct pp_manifest_part){1, {200, UINT64_MAX}, {{0, 2, 0, 1}, 0, 2}});
	}
	struct pp_manifest_part *parts;
	uint32_t count;
	assert_int_equal(pp_manifest_rows(manifest, "emb.weight"), 4);
	assert_false(pp_manifest_parts(manifest, "lost", false, &parts, &count, &status));
	assert_null(parts);
	assert_clean(&status);
	pp_manifest_free(manifest);
}

static void changed_manifests_are_refused(void **state)
{
	(void)state;
	size_t length;
	char *text = make_manifest(&length);
	struct pp_status status;
	for (size_t at = 0; at < length; at++)
		for (int bit = 0; bit < 8; bit += 5) {
			text[at] = (char)(text[at] ^ 1 << bit);
			write_whole(manifest_path, text, length);
			assert_null(pp_manifest_read(folder, &status));
			assert_clean(&status);
			text[at] = (char)(text[at] ^ 1 << bit);
		}
	for (size_t cut = 0; cut < length; cut++) {
		write_whole(manifest_path, text, cut);
		assert_null(pp_manifest_read(folder, &status));
		assert_clean(&status);
	}
	free(text);
}

/* The checksum is no secret: what it covers may still be anything. */
static void sealed_nonsense_is_refused(void **state)
{
	(void)state;
#define HEAD "{\"schema\": \"piperun.checkpoint/2\""
	static const struct {
		const char *text, *why;
	} cases[] = {
	    {"{\"schema\": \"piperun.checkpoint/3\"", "is of format `piperun.checkpoint/3`, this piperun reads"},
	    {"{\"x\": 1", "it has no schema"},
	    {HEAD ", \"step\": 1", "step or next_sample is missing"},
	    {HEAD ", \"step\": -1, \"next_sample\": 1", "step or next_sample is missing"},
	    {HEAD ", \"step\": 9007199254740993, \"next_sample\": 1", "step or next_sample is missing"},
	    {HEAD ", \"step\": 1, \"next_sample\": 1", "tensors or files are missing"},
	    {HEAD ", \"step\": 1, \"step\": 1", "duplicate"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char sealed[1024];
		size_t length = strlen(cases[i].text);
		uint64_t hash = pp_image_mix((const unsigned char *)cases[i].text, length);
		snprintf(sealed, sizeof sealed, "%s, \"checksum\": \"%016llx\"}\n", cases[i].text, (unsigned long long)hash);
		write_whole(manifest_path, sealed, strlen(sealed));
		struct pp_status status = {0};
		assert_null(pp_manifest_read(folder, &status));
		assert_clean(&status);
		if (!strstr(status.text, cases[i].why))
			fail_msg("%s: got %s, want %s", cases[i].text, status.text, cases[i].why);
	}
}

/* A file's name must be ours: no way out of the folder. */
static void foreign_file_names_are_refused(void **state)
{
	(void)state;
	static const char *const names[] = {"../x", "rank-00000.safetensors/../../x", "rank-0.safetensors", "rank-x",
	                                    "rank-00007.safetensors"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char body[1024], sealed[1200];
		snprintf(body, sizeof body,
		         HEAD
		         ", \"step\": 1, \"next_sample\": 1, \"files\": {\"../x\": {\"bytes\": 1, \"checksum\": "
		         "\"0000000000000000\"}}, \"tensors\": {\"a\": {\"shape\": [1], \"weight\": [{\"file\": \"%s\"}]}}",
		         names[i]);
		uint64_t hash = pp_image_mix((const unsigned char *)body, strlen(body));
		snprintf(sealed, sizeof sealed, "%s, \"checksum\": \"%016llx\"}\n", body, (unsigned long long)hash);
		write_whole(manifest_path, sealed, strlen(sealed));
		struct pp_status status;
		struct pp_manifest *manifest = pp_manifest_read(folder, &status);
		assert_non_null(manifest);
		struct pp_manifest_part *parts;
		uint32_t count;
		assert_false(pp_manifest_parts(manifest, "a", false, &parts, &count, &status));
		assert_null(parts);
		assert_clean(&status);
		pp_manifest_free(manifest);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(layout_is_exact),
	    cmocka_unit_test(large_tensors_read_back),
	    cmocka_unit_test(changed_bytes_are_refused),
	    cmocka_unit_test(cut_files_are_refused),
	    cmocka_unit_test(crafted_headers_are_refused),
	    cmocka_unit_test(metadata_is_passed_over),
	    cmocka_unit_test(manifest_reads_back),
	    cmocka_unit_test(changed_manifests_are_refused),
	    cmocka_unit_test(sealed_nonsense_is_refused),
	    cmocka_unit_test(foreign_file_names_are_refused),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
