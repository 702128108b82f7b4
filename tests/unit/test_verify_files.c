/* Programs in tests/verify: each NAME.pps has its whole diagnostics in NAME.expected (empty: accepted). */
#include "golden.h"

#include "ir/diag.h"
#include "ir/program_text.h"
#include "ir/verify.h"

#include <dirent.h>
#include <stdio.h>

enum { MOST = 256 };

/* Diagnostics of a file, by its name without the folder. */
static char *judge(struct pp_arena *arena, const char *folder, const char *name, bool *accepted)
{
	size_t length;
	const char *text = golden_read(arena, pp_arena_printf(arena, "%s/%s", folder, name), &length);
	struct pp_sources *sources = pp_sources_create(arena);
	struct pp_diag *diag = pp_diag_create(arena, sources);
	const struct pp_program *program = pp_program_read(arena, pp_sources_add(sources, name, text, length), diag);
	struct pp_stamp stamp;
	*accepted = program && pp_verify(program, &stamp, diag);
	char *printed = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&printed, &size);
	pp_diag_print(diag, out, PP_DIAG_HUMAN, false);
	fclose(out);
	char *copy = pp_arena_copy(arena, printed, size);
	free(printed);
	return copy;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static size_t list_programs(struct pp_arena *arena, const char *folder, const char **names)
{
	size_t count = 0;
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		size_t length = strlen(entry->d_name);
		if (length < 4 || strcmp(entry->d_name + length - 4, ".pps") != 0)
			continue;
		assert_true(count < MOST);
		names[count++] = pp_arena_copy(arena, entry->d_name, length);
	}
	closedir(dir);
	qsort(names, count, sizeof *names, by_name);
	return count;
}

/* v3_dtype.pps is about V3: its first message must carry that code; accepted_*.pps has none. */
static bool code_fits(const char *name, const char *text, bool accepted)
{
	if (strncmp(name, "accepted_", 9) == 0)
		return accepted && !*text;
	char code[16];
	snprintf(code, sizeof code, "error[V%d]", atoi(name + 1));
	return !accepted && strncmp(text, code, strlen(code)) == 0;
}

static void whole_diagnostics(void **state)
{
	(void)state;
	const char *folder = PP_SOURCE_DIR "/tests/verify", *names[MOST];
	struct pp_arena *arena = pp_arena_create(NULL);
	size_t count = list_programs(arena, folder, names);
	assert_true(count >= 50);
	for (size_t i = 0; i < count; i++) {
		bool accepted;
		const char *text = judge(arena, folder, names[i], &accepted);
		if (!code_fits(names[i], text, accepted))
			fail_msg("%s: not the verdict that its name says:\n%s", names[i], text);
		golden_check(arena, pp_arena_printf(arena, "%s/%.*s.expected", folder, (int)strlen(names[i]) - 4, names[i]),
		             text);
	}
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(whole_diagnostics)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
