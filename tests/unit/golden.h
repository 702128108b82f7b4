/* Whole texts compared with files. PP_UPDATE=1 writes the files anew; the difference is then reviewed. */
#ifndef PP_GOLDEN_H
#define PP_GOLDEN_H

#include "ir/arena.h"
#include "ir/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* The text of a file that must exist. */
static inline char *golden_read(struct pp_arena *arena, const char *path, size_t *length)
{
	char *text = NULL;
	struct pp_status status = {0};
	if (!pp_file_read(arena, path, &text, length, &status))
		fail_msg("%s", status.text);
	return text;
}

static inline void golden_check(struct pp_arena *arena, const char *path, const char *actual)
{
	struct pp_status status = {0};
	const char *update = getenv("PP_UPDATE");
	if (update && *update) {
		if (!pp_file_write(path, actual, strlen(actual), &status))
			fail_msg("%s", status.text);
		return;
	}
	size_t length = 0;
	const char *expected = golden_read(arena, path, &length);
	if (strcmp(expected, actual) != 0)
		fail_msg("differs from %s; with PP_UPDATE=1 it is written anew\n---- expected\n%s---- actual\n%s----", path,
		         expected, actual);
}

/* `actual` stands in the file between the two lines `begin` and `end`. */
static inline void golden_part(struct pp_arena *arena, const char *path, const char *begin, const char *end,
                               const char *actual)
{
	struct pp_status status = {0};
	size_t length = 0;
	char *text = NULL;
	if (!pp_file_read(arena, path, &text, &length, &status))
		fail_msg("%s", status.text);
	char *first = strstr(text, begin), *last = strstr(text, end);
	assert_non_null(first);
	assert_non_null(last);
	first += strlen(begin);
	const char *update = getenv("PP_UPDATE");
	if (update && *update) {
		const char *whole = pp_arena_printf(arena, "%.*s%s%s", (int)(first - text), text, actual, last);
		assert_true(pp_file_write(path, whole, strlen(whole), &status));
		return;
	}
	*last = '\0';
	assert_string_equal(first, actual);
}

#endif
