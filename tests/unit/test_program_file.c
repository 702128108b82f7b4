/* Telling program files by their content, and naming what else a file is. */
#include "ir/image.h"
#include "ir/program_file.h"
#include "support/sample_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];

static int open_file(void **state)
{
	(void)state;
	snprintf(path, sizeof path, "/tmp/pipec-program-file-XXXXXX");
	int file = mkstemp(path);
	return file < 0 || close(file);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void write_file(const void *bytes, size_t length)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}

static void tells_contents_apart(void **state)
{
	(void)state;
	static const char image[] = "PPX1\r\n\032\n";
	assert_int_equal(pp_content_of(image, sizeof image - 1), PP_CONTENT_IMAGE);
	assert_int_equal(pp_content_of("PPX", 3), PP_CONTENT_OTHER);
	static const char *const texts[] = {"pps 1\n", "; made by hand\n\n  pps 1\n", "pps", "\r\npps\t1"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		assert_int_equal(pp_content_of(texts[i], strlen(texts[i])), PP_CONTENT_PROGRAM_TEXT);
	static const char *const others[] = {"", "; pps 1\n", "ppsx 1\n", "model m { }\n", "# pps 1\n"};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		assert_int_equal(pp_content_of(others[i], strlen(others[i])), PP_CONTENT_OTHER);
}

static void names_what_is_no_program(void **state)
{
	(void)state;
	static const struct {
		const char *content, *message;
	} cases[] = {
	    {"", "is empty"},
	    {"\177ELF\002\001", "is an executable, not a program image"},
	    {"\037\213\010", "is compressed with gzip; unpack it first"},
	    {"\001\002\003", "holds binary data, but not a program image: an image begins with PPX1"},
	    {"  {\"a\": 1}", "looks like JSON, not a program (.ppx or .pps)"},
	    {",0F0,0B0\n", "looks like a schedule in CSV, not a program (.ppx or .pps); `pipec import csv` makes a "
	                   "schedule of a spec from it"},
	    {"# a spec\nmodel tiny { }\n", "looks like a .pipe spec, not a program; compile it first: pipec build "},
	    {"hello\n", "holds text, but not a program: the first line of a .pps file is `pps 1`"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct pp_loaded loaded;
		struct pp_status status;
		write_file(cases[i].content, strlen(cases[i].content));
		assert_false(pp_program_load(arena, path, &loaded, &status));
		assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
		assert_true(pp_diag_ok(loaded.diag));
		const char *wanted = pp_arena_printf(arena, "%s %s%s", path, cases[i].message,
		                                     strstr(cases[i].message, "pipec build") ? path : "");
		assert_string_equal(status.text, wanted);
		pp_arena_destroy(arena);
	}
}

static void loads_images_and_texts(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_loaded loaded;
	struct pp_status status;
	unsigned char *bytes;
	size_t length;
	const struct pp_sample sample = {.ranks = 2, .chunks = 1, .microbatches = 2, .out_count = 4};
	pp_image_write(pp_sample_program(arena, &sample), &bytes, &length);
	write_file(bytes, length);
	assert_true(pp_program_load(arena, path, &loaded, &status));
	assert_non_null(loaded.program);
	assert_true(loaded.hash == pp_image_hash(bytes, length));

	static const char wrong[] = "pps 1\nwhat\n";
	write_file(wrong, sizeof wrong - 1);
	assert_false(pp_program_load(arena, path, &loaded, &status));
	assert_string_equal(status.text, "");
	assert_int_equal(status.code, PP_EXIT_REJECTED);
	assert_false(pp_diag_ok(loaded.diag));
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tells_contents_apart),
	    cmocka_unit_test_setup_teardown(names_what_is_no_program, open_file, remove_file),
	    cmocka_unit_test_setup_teardown(loads_images_and_texts, open_file, remove_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
