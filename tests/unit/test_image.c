/* The `.ppx` image: what is written reads back as the same program; the same program gives the same bytes; every
 * damage is refused with one message or leaves a valid program. */
#include "ir/file.h"
#include "ir/image.h"
#include "ir/image_format.h"
#include "ir/program_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct image {
	struct pp_arena *arena;
	struct pp_program *program;
	unsigned char *bytes;
	size_t length;
};

static struct image make(void)
{
	struct image image = {.arena = pp_arena_create(NULL)};
	struct pp_sources *sources = pp_sources_create(image.arena);
	struct pp_diag *diag = pp_diag_create(image.arena, sources);
	struct pp_status status;
	char *text;
	size_t length;
	assert_true(pp_file_read(image.arena, PP_TEST_DATA "/program/two_ranks.pps", &text, &length, &status));
	image.program = pp_program_read(image.arena, pp_sources_add(sources, "x.pps", text, length), diag);
	assert_non_null(image.program);
	image.program->stamp =
	    (struct pp_stamp){.proven = true, .layouts = 5, .in_order = 4, .bits_reason = "W of t0 is not ascending"};
	pp_image_write(image.program, &image.bytes, &image.length);
	return image;
}

static char *printed(const struct pp_program *program)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_program_print(program, out);
	fclose(out);
	return text;
}

static void reads_back(void **state)
{
	(void)state;
	struct image image = make();
	struct pp_status status = {0};
	struct pp_program *again = pp_image_read(image.arena, "x.ppx", image.bytes, image.length, &status);
	assert_string_equal(status.text, "");
	assert_non_null(again);
	char *before = printed(image.program), *after = printed(again);
	assert_string_equal(after, before);
	assert_true(again->stamp.proven && !again->stamp.bits_fixed);
	assert_int_equal(again->stamp.layouts, 5);
	assert_int_equal(again->stamp.in_order, 4);
	assert_string_equal(again->stamp.bits_reason, "W of t0 is not ascending");
	unsigned char *bytes;
	size_t length;
	pp_image_write(again, &bytes, &length);
	assert_int_equal(length, image.length);
	assert_memory_equal(bytes, image.bytes, length);
	free(before);
	free(after);
	pp_arena_destroy(image.arena);
}

/* Members that an op does not use are no part of the program. */
static void unused_members_do_not_matter(void **state)
{
	(void)state;
	struct image image = make();
	struct pp_instr *wait = &image.program->programs[0].streams[0].items[4];
	assert_int_equal(wait->op, PP_OP_WAIT);
	wait->stage = 77;
	wait->a[3] = 0;
	wait->count = 5;
	unsigned char *bytes;
	size_t length;
	pp_image_write(image.program, &bytes, &length);
	assert_int_equal(length, image.length);
	assert_memory_equal(bytes, image.bytes, length);
	pp_arena_destroy(image.arena);
}

static void assert_refused(const struct image *image, size_t length, const char *expected)
{
	struct pp_status status = {0};
	assert_null(pp_image_read(image->arena, "x.ppx", image->bytes, length, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_string_equal(status.text, expected);
}

/* Make header and checksum agree with changed bytes, so that the checks behind them are reached. */
static void seal(unsigned char *bytes, size_t length)
{
	pp_store64(bytes + PP_IMAGE_AT_SIZE, length);
	pp_store64(bytes + PP_IMAGE_AT_CHECKSUM, pp_image_mix(bytes + PP_IMAGE_HEADER, length - PP_IMAGE_HEADER));
	pp_store64(bytes + PP_IMAGE_AT_HASH, pp_image_mix(bytes, PP_IMAGE_AT_HASH));
}

static void messages(void **state)
{
	(void)state;
	struct image image = make();
	char *wanted = pp_arena_printf(
	    image.arena, "x.ppx is not a usable image: it has %zu bytes, its header says %zu; was the copy cut short?",
	    image.length - 1, image.length);
	assert_refused(&image, image.length - 1, wanted);
	assert_refused(&image, 100, "x.ppx is not a usable image: it ends within the header; was the copy cut short?");
	assert_refused(&image, 3, "x.ppx is not a usable image: it does not begin with PPX1");
	image.bytes[image.length - 20] ^= 1;
	assert_refused(&image, image.length,
	               "x.ppx is not a usable image: its checksum does not match: bytes were changed after it was written");
	image.bytes[image.length - 20] ^= 1;
	image.bytes[4] = '\n';
	assert_refused(&image, image.length,
	               "x.ppx is not a usable image: its first bytes were changed, as a transfer in text mode does");
	image.bytes[4] = '\r';
	image.bytes[PP_IMAGE_AT_VERSION] = 9;
	seal(image.bytes, image.length);
	assert_refused(&image, image.length, "x.ppx has image version 9, this tool reads version 6: build it again");
	image.bytes[PP_IMAGE_AT_VERSION] = PP_IMAGE_VERSION;
	image.bytes[PP_IMAGE_AT_TABLES] ^= 1;
	seal(image.bytes, image.length);
	assert_refused(&image, image.length,
	               "x.ppx was made by another build of the compiler, with another instruction set: build it again");
	image.bytes[PP_IMAGE_AT_TABLES] ^= 1;
	unsigned char *stage = image.bytes + pp_load64(image.bytes + PP_IMAGE_HEADER + 16 * PP_RECORD_STAGE);
	pp_store32(stage, 2);
	seal(image.bytes, image.length);
	assert_refused(&image, image.length,
	               "x.ppx is not a usable image: stage 0: there is no rank 2: `grid` says 2, so 0..1");
	pp_arena_destroy(image.arena);
}

static void try_bytes(const unsigned char *bytes, size_t length, unsigned *refused, unsigned *accepted)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_status status = {0};
	struct pp_program *program = pp_image_read(arena, "x.ppx", bytes, length, &status);
	if (program) {
		char *text = printed(program);
		assert_true(strncmp(text, "pps 1\n", 6) == 0);
		free(text);
		++*accepted;
	} else {
		assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
		assert_true(strncmp(status.text, "x.ppx ", 6) == 0);
		++*refused;
	}
	pp_arena_destroy(arena);
}

/* Every byte changed, once without (always refused) and thrice with the checksum made right. */
static void every_byte_changed(void **state)
{
	(void)state;
	static const unsigned char changes[] = {0x01, 0x80, 0xff};
	struct image image = make();
	unsigned char *copy = pp_arena_alloc(image.arena, image.length, 1);
	unsigned refused = 0, accepted = 0;
	for (size_t i = 0; i < image.length; i++) {
		memcpy(copy, image.bytes, image.length);
		copy[i] ^= 0x10;
		try_bytes(copy, image.length, &refused, &accepted);
		assert_int_equal(accepted, 0);
	}
	for (size_t c = 0; c < sizeof changes; c++)
		for (size_t i = PP_IMAGE_HEADER; i < image.length; i++) {
			memcpy(copy, image.bytes, image.length);
			copy[i] ^= changes[c];
			seal(copy, image.length);
			try_bytes(copy, image.length, &refused, &accepted);
		}
	assert_true(accepted > 0 && refused > image.length);
	pp_arena_destroy(image.arena);
}

static void every_length_cut(void **state)
{
	(void)state;
	struct image image = make();
	unsigned refused = 0, accepted = 0;
	for (size_t length = 0; length < image.length; length++) {
		unsigned char *copy = malloc(length ? length : 1); /* its own block, so that reading past the end is seen */
		memcpy(copy, image.bytes, length);
		if (length >= PP_IMAGE_TABLE)
			seal(copy, length);
		try_bytes(copy, length, &refused, &accepted);
		free(copy);
	}
	assert_int_equal(refused + accepted, image.length);
	assert_true(accepted < 8); /* only padding at the end may be missing */
	pp_arena_destroy(image.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(reads_back),       cmocka_unit_test(unused_members_do_not_matter),
	    cmocka_unit_test(messages),         cmocka_unit_test(every_byte_changed),
	    cmocka_unit_test(every_length_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
