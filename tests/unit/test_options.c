/* Command lines: every kind of option, both spellings, and the whole text of each refusal. */
#include "ir/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct values {
	bool quiet, verbose;
	const char *output;
	uint64_t steps;
	double timeout;
	unsigned view;
	struct pp_option_list defines;
};

static const struct pp_option table[] = {
    {"quiet", 'q', PP_OPTION_FLAG, NULL, offsetof(struct values, quiet), "say less", 0, 0, 0},
    {"verbose", 'v', PP_OPTION_FLAG, NULL, offsetof(struct values, verbose), "say more", 0, 0, 0},
    {"output", 'o', PP_OPTION_TEXT, "FILE", offsetof(struct values, output), "write there", 0, 0, 0},
    {"steps", 0, PP_OPTION_UINT, "N", offsetof(struct values, steps), "how many", 1, 1000, 0},
    {"timeout", 0, PP_OPTION_NUMBER, "S", offsetof(struct values, timeout), "seconds", 0, 0, 1},
    {"view", 0, PP_OPTION_CHOICE, "stats|gantt|list", offsetof(struct values, view), "what to show", 0, 0, 2},
    {NULL, 'D', PP_OPTION_LIST, "name=value", offsetof(struct values, defines), "set a parameter", 0, 0, 0},
};
enum { COUNT = sizeof table / sizeof table[0], BOTH = 3 };

struct parsed {
	struct pp_arena *arena;
	struct values values;
	struct pp_arguments arguments;
	struct pp_status status;
	bool ok;
};

/* `line` is split at blanks. */
static struct parsed parse(const char *line, uint32_t command)
{
	struct parsed p = {.arena = pp_arena_create(NULL), .values = {.steps = 7}};
	char *copy = pp_arena_copy(p.arena, line, strlen(line)), *argv[32] = {"tool"};
	int argc = 1;
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	p.ok = pp_options_parse(p.arena, "tool", table, COUNT, command, argc, argv, &p.values, &p.arguments, &p.status);
	return p;
}

static void both_spellings(void **state)
{
	(void)state;
	struct parsed p = parse("a -qv --output=x --steps 12 --view=list -D n=1 -Dm=2 --timeout 0.5 - -- --b", BOTH);
	assert_true(p.ok);
	assert_true(p.values.quiet && p.values.verbose);
	assert_string_equal(p.values.output, "x");
	assert_int_equal(p.values.steps, 12);
	assert_int_equal(p.values.view, 2);
	assert_true(p.values.timeout == 0.5);
	assert_int_equal(p.values.defines.count, 2);
	assert_string_equal(p.values.defines.items[0], "n=1");
	assert_string_equal(p.values.defines.items[1], "m=2");
	assert_int_equal(p.arguments.operands.count, 3);
	assert_string_equal(p.arguments.operands.items[0], "a");
	assert_string_equal(p.arguments.operands.items[1], "-");
	assert_string_equal(p.arguments.operands.items[2], "--b");
	pp_arena_destroy(p.arena);
}

static void defaults_stay(void **state)
{
	(void)state;
	struct parsed p = parse("-ox", BOTH);
	assert_true(p.ok);
	assert_int_equal(p.values.steps, 7);
	assert_string_equal(p.values.output, "x");
	pp_arena_destroy(p.arena);
}

static void help_stops(void **state)
{
	(void)state;
	struct parsed p = parse("--help --nonsense", BOTH);
	assert_true(p.ok && p.arguments.help && !p.arguments.version);
	pp_arena_destroy(p.arena);
	p = parse("-qV", BOTH);
	assert_true(p.ok && p.arguments.version);
	pp_arena_destroy(p.arena);
}

static void refusals(void **state)
{
	(void)state;
	static const struct {
		const char *line, *message;
	} cases[] = {
	    {"--viev=list", "unknown option --viev; did you mean --view?"},
	    {"--nonsense", "unknown option --nonsense; `tool --help` lists all"},
	    {"-x", "unknown option -x; `tool --help` lists all"},
	    {"--view=gnatt", "--view has no choice `gnatt`; did you mean `gantt`?; choose from stats, gantt, list"},
	    {"--view=other", "--view has no choice `other`; choose from stats, gantt, list"},
	    {"--view", "--view wants a value: --view stats|gantt|list"},
	    {"-o", "-o wants a value: -o FILE"},
	    {"-o --quiet a", "-o wants a value: -o FILE"},
	    {"--output --steps=1 a", "--output wants a value: --output FILE"},
	    {"--quiet=yes", "--quiet takes no value, got `yes`"},
	    {"--steps=0", "--steps wants a whole number from 1 to 1000, got `0`"},
	    {"--steps=-1", "--steps wants a whole number from 1 to 1000, got `-1`"},
	    {"--steps=99999999999999999999", "--steps wants a whole number from 1 to 1000, got `99999999999999999999`"},
	    {"--timeout=nan", "--timeout wants a number of at least 0, got `nan`"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct parsed p = parse(cases[i].line, BOTH);
		assert_false(p.ok);
		assert_int_equal(p.status.code, PP_EXIT_USAGE);
		assert_string_equal(p.status.text, cases[i].message);
		pp_arena_destroy(p.arena);
	}
	struct parsed p = parse("--view=list", 1);
	assert_string_equal(p.status.text, "--view does not apply to `tool`; `tool --help` lists what does");
	pp_arena_destroy(p.arena);
}

static void help_text(void **state)
{
	(void)state;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_options_help(table, COUNT, 2, out);
	fclose(out);
	assert_string_equal(text, "  -q, --quiet                     say less\n"
	                          "  -v, --verbose                   say more\n"
	                          "  -o, --output=FILE               write there\n"
	                          "      --steps=N                   how many\n"
	                          "      --view=stats|gantt|list     what to show\n"
	                          "  -D name=value                   set a parameter\n"
	                          "  -h, --help                      this text\n"
	                          "  -V, --version                   name and version\n");
	free(text);
}

static void lists_of_ranks(void **state)
{
	(void)state;
	struct pp_status status;
	bool chosen[8] = {false};
	assert_true(pp_parse_ranks("0,3-5", 8, chosen, &status));
	const bool expected[8] = {true, false, false, true, true, true, false, false};
	assert_memory_equal(chosen, expected, sizeof chosen);
	static const char *const wrong[] = {"", "8", "1-", "5-3", "a", "1,,2", "1;2", "99999999999999999999", "1,"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_false(pp_parse_ranks(wrong[i], 8, chosen, &status));
	assert_string_equal(
	    status.text, "`1,` is no list of ranks: write numbers and ranges such as 0,3-5; the pipeline has ranks 0..7");
	assert_false(pp_parse_ranks("0,5-3", 8, chosen, &status));
	assert_string_equal(status.text, "ranks 5-3: the range runs backwards; write 3-5");
	assert_false(pp_parse_ranks("0,3-8", 8, chosen, &status));
	assert_string_equal(status.text, "there is no rank 8: ranks are those of the pipeline, 0..7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(both_spellings), cmocka_unit_test(defaults_stay), cmocka_unit_test(help_stops),
	    cmocka_unit_test(refusals),       cmocka_unit_test(help_text),     cmocka_unit_test(lists_of_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
