/* docs/diagnostics.md lists each code that the sources report, once, and no other. */
#include "golden.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>

struct codes {
	struct pp_arena *arena;
	const char **items;
	size_t count, capacity;
};

static void keep(struct codes *codes, const char *code, size_t length)
{
	*PP_PUSH(codes->arena, &codes->items, &codes->count, &codes->capacity, const char *) =
	    pp_arena_copy(codes->arena, code, length);
}

/* E, W and four digits, or V and a number: the length, or 0. */
static size_t code_length(const char *text)
{
	size_t digits = *text ? strspn(text + 1, "0123456789") : 0;
	if (*text == 'V')
		return digits == 1 || digits == 2 ? digits + 1 : 0;
	return (*text == 'E' || *text == 'W') && digits == 4 ? 5 : 0;
}

/* A code stands in the sources as a string of its own, or in a text as error[CODE]. */
static void read_source(struct codes *codes, const char *text)
{
	for (const char *at = strpbrk(text, "\"["); at; at = strpbrk(at + 1, "\"[")) {
		size_t length = code_length(at + 1);
		if (length && at[length + 1] == (*at == '"' ? '"' : ']'))
			keep(codes, at + 1, length);
	}
}

static bool is_source(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot && (strcmp(dot, ".c") == 0 || strcmp(dot, ".y") == 0 || strcmp(dot, ".l") == 0);
}

static void read_folder(struct codes *codes, const char *path)
{
	DIR *folder = opendir(path);
	if (!folder)
		return;
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
		const char *inner = pp_arena_printf(codes->arena, "%s/%s", path, entry->d_name);
		size_t length;
		if (is_source(entry->d_name))
			read_source(codes, golden_read(codes->arena, inner, &length));
		else if (!strchr(entry->d_name, '.'))
			read_folder(codes, inner);
	}
	closedir(folder);
}

/* Lines such as "| `E0101` | meaning |". */
static void read_manual(struct codes *codes, const char *text)
{
	static const char row[] = "\n| `";
	for (const char *at = strstr(text, row); at; at = strstr(at + 1, row)) {
		const char *code = at + sizeof row - 1;
		size_t length = code_length(code);
		assert_true(length > 0);
		assert_memory_equal(code + length, "` | ", 4);
		assert_true(islower((unsigned char)code[length + 4]) || code[length + 4] == '`');
		keep(codes, code, length);
	}
}

static int by_text(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static char *listed(struct codes *codes, bool once)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	qsort(codes->items, codes->count, sizeof *codes->items, by_text);
	for (size_t i = 0; i < codes->count; i++)
		if (!once || i == 0 || strcmp(codes->items[i], codes->items[i - 1]) != 0)
			fprintf(out, "%s\n", codes->items[i]);
	fclose(out);
	return text;
}

static void manual_lists_every_code_once(void **state)
{
	(void)state;
	static const char *const rooms[] = {"ir", "grammar", "codegen", "compiler", "executor"};
	struct pp_arena *arena = pp_arena_create(NULL);
	struct codes sources = {.arena = arena}, manual = {.arena = arena};
	size_t length;
	for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++)
		read_folder(&sources, pp_arena_printf(arena, PP_SOURCE_DIR "/%s", rooms[i]));
	read_manual(&manual, golden_read(arena, PP_SOURCE_DIR "/docs/diagnostics.md", &length));
	char *used = listed(&sources, true), *documented = listed(&manual, false);
	assert_true(sources.count > 100);
	assert_string_equal(documented, used);
	free(used);
	free(documented);
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(manual_lists_every_code_once)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
