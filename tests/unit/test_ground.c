/* The ground everything stands on: arena, interned strings, did-you-mean, sources, files, JSON. */
#include "ir/arena.h"
#include "ir/file.h"
#include "ir/json.h"
#include "ir/source.h"
#include "ir/str.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- arena ----------------------------------------------------------------------------------- */

static void arena_memory_is_zeroed_and_aligned(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	static const size_t sizes[] = {0, 1, 15, 16, 17, 4096, 16383, 16384, 100000, 1 << 20};
	for (unsigned round = 0; round < 50; round++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			unsigned char *memory = pp_arena_alloc(arena, sizes[i], 1);
			assert_int_equal((uintptr_t)memory % 16, 0);
			for (size_t at = 0; at < sizes[i]; at++)
				assert_int_equal(memory[at], 0);
			memset(memory, 0xa5, sizes[i]);
		}
	pp_arena_destroy(arena);
}

/* Growth through the border between chunks and blocks of their own keeps contents and zeroes the tail. */
static void arena_arrays_grow(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	uint32_t *list = NULL;
	size_t count = 0, capacity = 0;
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t *item = PP_PUSH(arena, &list, &count, &capacity, uint32_t);
		assert_int_equal(*item, 0);
		*item = i;
	}
	for (uint32_t i = 0; i < 200000; i++)
		assert_int_equal(list[i], i);
	size_t odd = 3;
	char *bytes = pp_arena_alloc(arena, odd, 1);
	memcpy(bytes, "abc", 3);
	bytes = pp_arena_grow(arena, bytes, odd, 5, 1);
	assert_memory_equal(bytes, "abc\0\0", 5);
	pp_arena_destroy(arena);
}

static jmp_buf exhausted_point;
static size_t exhausted_wanted;

static void on_exhausted(size_t wanted)
{
	exhausted_wanted = wanted;
	longjmp(exhausted_point, 1);
}

static void arena_overflow_counts_as_exhaustion(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(on_exhausted);
	volatile bool returned = false;
	if (setjmp(exhausted_point) == 0) {
		pp_arena_alloc(arena, SIZE_MAX / 8, 16);
		returned = true;
	}
	assert_false(returned);
	assert_true(exhausted_wanted == SIZE_MAX);
	pp_arena_destroy(arena);
}

static void arena_prints(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	assert_string_equal(pp_arena_printf(arena, "%s = %d", "x", 7), "x = 7");
	char *long_text = pp_arena_printf(arena, "%070000d", 1);
	assert_int_equal(strlen(long_text), 70000);
	assert_string_equal(pp_arena_copy(arena, "abcdef", 3), "abc");
	pp_arena_destroy(arena);
}

/* ---- strings --------------------------------------------------------------------------------- */

static void equal_strings_are_one(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_strtab *table = pp_strtab_create(arena);
	const char *kept[3000];
	char text[32];
	for (int i = 0; i < 3000; i++) {
		snprintf(text, sizeof text, "name%d", i);
		kept[i] = pp_intern_z(table, text);
	}
	for (int i = 0; i < 3000; i++) {
		snprintf(text, sizeof text, "name%dtail", i);
		assert_ptr_equal(pp_intern(table, text, strlen(text) - 4), kept[i]);
		if (i)
			assert_ptr_not_equal(kept[i], kept[i - 1]);
	}
	assert_string_equal(pp_intern(table, "", 0), "");
	pp_arena_destroy(arena);
}

static void nearest_names(void **state)
{
	(void)state;
	static const char *const names[] = {"hidden", "heads", "layers", "vocab", "seq"};
	enum { COUNT = sizeof names / sizeof names[0] };
	assert_string_equal(pp_nearest("hiden", names, COUNT), "hidden");
	assert_string_equal(pp_nearest("haeds", names, COUNT), "heads");   /* swapped neighbours */
	assert_string_equal(pp_nearest("HIDDen", names, COUNT), "hidden"); /* a case difference counts half */
	assert_string_equal(pp_nearest("layer", names, COUNT), "layers");
	assert_string_equal(pp_nearest("sec", names, COUNT), "seq");
	static const char *const begun[] = {"tie", "time_f", "microbatch", "microbatches"};
	assert_string_equal(pp_nearest("time", begun, 4), "time_f");              /* it begins the word */
	assert_string_equal(pp_nearest("microbatchs", begun, 4), "microbatches"); /* it ends alike */
	assert_null(pp_nearest("microbatch", names, COUNT));
	assert_null(pp_nearest("xy", names, COUNT));
	assert_null(pp_nearest("", names, COUNT));
	assert_null(pp_nearest("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", names, COUNT));
}

/* ---- sources --------------------------------------------------------------------------------- */

static void positions(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_sources *sources = pp_sources_create(arena);
	const struct pp_source *first = pp_sources_add(sources, "a", "one\r\ntwo\rthree\n", 15);
	const struct pp_source *second = pp_sources_add(sources, "b", "\xc3\xa4 x", 4);
	assert_ptr_equal(pp_sources_find(sources, first->base + 3), first);
	assert_ptr_equal(pp_sources_find(sources, second->base), second);
	assert_null(pp_sources_find(sources, 0));
	struct pp_position at = pp_source_position(first, first->base + 9);
	assert_int_equal(at.line, 3);
	assert_int_equal(at.column, 1);
	at = pp_source_position(first, first->base + 15);
	assert_int_equal(at.line, 4);
	at = pp_source_position(second, second->base + 3);
	assert_int_equal(at.column, 3);
	assert_null(pp_sources_add(sources, "huge", "", (size_t)1 << 31));
	pp_arena_destroy(arena);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char folder[] = "/tmp/pp_ground_XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	char path[300];
	DIR *listing = opendir(folder);
	for (struct dirent *entry; listing && (entry = readdir(listing));)
		if (entry->d_name[0] != '.') {
			snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
			remove(path);
		}
	if (listing)
		closedir(listing);
	return rmdir(folder);
}

static unsigned files_in_folder(void)
{
	unsigned count = 0;
	DIR *listing = opendir(folder);
	for (struct dirent *entry; listing && (entry = readdir(listing));)
		count += entry->d_name[0] != '.';
	closedir(listing);
	return count;
}

static void files_are_replaced_whole(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_status status = {0};
	char *path = pp_arena_printf(arena, "%s/file", folder), *text;
	size_t length;
	assert_true(pp_file_write(path, "first, longer", 13, &status));
	struct stat before, after;
	assert_int_equal(stat(path, &before), 0);
	FILE *reader = fopen(path, "r"); /* sees the old file to its end */
	assert_true(pp_file_write(path, "second", 6, &status));
	char old[32] = {0};
	assert_int_equal(fread(old, 1, sizeof old, reader), 13);
	fclose(reader);
	assert_string_equal(old, "first, longer");
	assert_int_equal(stat(path, &after), 0);
	assert_true(before.st_ino != after.st_ino);
	assert_true(pp_file_read(arena, path, &text, &length, &status));
	assert_int_equal(length, 6);
	assert_string_equal(text, "second");
	assert_int_equal(files_in_folder(), 1);
	remove(path);
	pp_arena_destroy(arena);
}

static void failures_leave_nothing(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct pp_status status = {0};
	char *text, *wanted;
	size_t length;
	char *missing = pp_arena_printf(arena, "%s/none/file", folder);
	assert_false(pp_file_write(missing, "x", 1, &status));
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	wanted = pp_arena_printf(arena, "cannot write beside %s: No such file or directory", missing);
	assert_string_equal(status.text, wanted);
	assert_false(pp_file_write(folder, "x", 1, &status));
	wanted = pp_arena_printf(arena, "cannot write %s: it is a folder", folder);
	assert_string_equal(status.text, wanted);
	assert_false(pp_file_write("/proc/self/unwritable", "x", 1, &status)); /* refused to root too */
	assert_int_equal(status.code, PP_EXIT_ENVIRONMENT);
	assert_false(pp_file_read(arena, missing, &text, &length, &status));
	assert_false(pp_file_read(arena, folder, &text, &length, &status));
	assert_int_equal(files_in_folder(), 0);
	assert_true(pp_file_write("/dev/null", "x", 1, &status));
	pp_arena_destroy(arena);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_text(void **state)
{
	(void)state;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	struct pp_json json = pp_json_begin(out);
	pp_json_open_object(&json, NULL);
	pp_json_string(&json, "name", "a\"b\\\n\x01\xff\xc3\xa4");
	pp_json_open_array(&json, "list");
	pp_json_uint(&json, NULL, UINT64_MAX);
	pp_json_int(&json, NULL, -5);
	pp_json_number(&json, NULL, 0.1);
	pp_json_number(&json, NULL, 1.0 / 3);
	pp_json_null(&json, NULL);
	pp_json_bool(&json, NULL, true);
	pp_json_close(&json);
	pp_json_open_object(&json, "empty");
	pp_json_close(&json);
	pp_json_close(&json);
	fclose(out);
	assert_string_equal(text, "{\"name\": \"a\\\"b\\\\\\n\\u0001\\ufffd\xc3\xa4\", \"list\": [18446744073709551615, "
	                          "-5, 0.1, 0.3333333333333333, null, true], "
	                          "\"empty\": {}}");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(arena_memory_is_zeroed_and_aligned),
	    cmocka_unit_test(arena_arrays_grow),
	    cmocka_unit_test(arena_overflow_counts_as_exhaustion),
	    cmocka_unit_test(arena_prints),
	    cmocka_unit_test(equal_strings_are_one),
	    cmocka_unit_test(nearest_names),
	    cmocka_unit_test(positions),
	    cmocka_unit_test(files_are_replaced_whole),
	    cmocka_unit_test(failures_leave_nothing),
	    cmocka_unit_test(json_text),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
