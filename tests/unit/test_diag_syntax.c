/* Messages of the grammar, whole: tests/diag/NAME.pipe against tests/diag/NAME.expected. */
#include "parse_fixture.h"

static void check(const char *name)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	size_t length = 0;
	const char *folder = PP_SOURCE_DIR "/tests/diag";
	const char *text = golden_read(arena, pp_arena_printf(arena, "%s/%s.pipe", folder, name), &length);
	struct parsed p = parse_bytes(pp_arena_printf(arena, "%s.pipe", name), text, length);
	golden_check(arena, pp_arena_printf(arena, "%s/%s.expected", folder, name), messages_text(&p, PP_DIAG_HUMAN));
	parsed_free(&p);
	pp_arena_destroy(arena);
}

static void syntax_messages(void **state)
{
	(void)state;
	static const char *const names[] = {
	    "E0001_missing_sign", "E0001_percent",    "E0001_separators", "E0001_unexpected", "E0001_reserved",
	    "E0001_called_count", "E0001_layers",     "E0002_comment",    "E0003_apart",      "E0003_unit",
	    "E0003_usual",        "E0004_billion",    "E0005_string",     "E0006_block",      "E0006_bracket",
	    "E0006_margin",       "E0007_characters", "E0007_mark",       "E0008_nesting",    "E0001_extends",
	    "E0001_memory_sign",
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		check(names[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(syntax_messages)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
