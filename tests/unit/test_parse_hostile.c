/* Texts that are meant to break a parser: very deep, very long, cut off, random. Each must end quickly with a tree or a
 * message, and what is accepted must print to text that reads back the same. */
#include "parse_fixture.h"

#include "support/random.h"

/* `prefix`, `count` times `middle`, `suffix`. */
static char *repeated(const char *prefix, const char *middle, size_t count, const char *suffix)
{
	size_t a = strlen(prefix), b = strlen(middle), c = strlen(suffix);
	char *text = malloc(a + b * count + c + 1);
	assert_non_null(text);
	memcpy(text, prefix, a);
	for (size_t i = 0; i < count; i++)
		memcpy(text + a + i * b, middle, b);
	memcpy(text + a + b * count, suffix, c + 1);
	return text;
}

static void assert_nesting_limit(const char *prefix, const char *middle, size_t count, const char *suffix)
{
	char *text = repeated(prefix, middle, count, suffix);
	struct parsed p = parse_text(text);
	const char *messages = messages_text(&p, PP_DIAG_SHORT);
	if (!strstr(messages, "nesting limit") || !strstr(messages, "[E0008]"))
		fail_msg("no nesting limit in %s%zu times %s%s:\n%s", prefix, count, middle, suffix, messages);
	assert_int_equal(pp_diag_errors(p.diag), 1);
	parsed_free(&p);
	free(text);
}

static void assert_accepted(const char *prefix, const char *middle, size_t count, const char *suffix)
{
	char *text = repeated(prefix, middle, count, suffix);
	struct parsed p = parse_text(text);
	assert_string_equal(messages_text(&p, PP_DIAG_SHORT), "");
	struct parsed again = parse_text(tree_text(&p));
	assert_string_equal(messages_text(&again, PP_DIAG_SHORT), "");
	assert_string_equal(tree_text(&again), tree_text(&p));
	parsed_free(&again);
	parsed_free(&p);
	free(text);
}

static void too_deep(void **state)
{
	(void)state;
	static const struct {
		const char *prefix, *middle, *suffix;
	} cases[] = {
	    {"let a = ", "(", "1"},
	    {"let a = ", "[", "1"},
	    {"let a = ", "f(", "1"},
	    {"let a = ", "- ", "1"},
	    {"let a = ", "not ", "b"},
	    {"let a = ", "b ? c : ", "d"},
	    {"let a = ", "-(", "1"},
	    {"", "a {", ""},
	    {"s { order { ", "(", ""},
	    {"s { order { ", "for i in 0..1 { ", ""},
	    {"s { order { ", "weave 1 { ", ""},
	    {"s { ", "repeat 2 { ", ""},
	    {"let a = 1", " + 1", ""},
	    {"let a = b", " and b", ""},
	    {"let a = 1", " - (1", ""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_nesting_limit(cases[i].prefix, cases[i].middle, 2000, cases[i].suffix);
		assert_nesting_limit(cases[i].prefix, cases[i].middle, 200000, cases[i].suffix);
	}
	assert_nesting_limit("let a = ", "b ? ", 200000, "c");
}

static void just_deep_enough(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	char *closers = repeated("", ")", 256, ""), *braces = repeated("", "}", 256, "");
	assert_accepted("let a = ", "(", 256, pp_arena_printf(arena, "1%s", closers));
	assert_accepted("", "a {", 256, braces);
	assert_accepted("let a = ", "-", 256, "1");
	assert_accepted("let a = ", "b ? c : ", 256, "d");
	assert_accepted("let a = 1", " + 1", 1024, "");
	assert_nesting_limit("let a = ", "(", 257, "1");
	assert_nesting_limit("let a = ", "-", 257, "1");
	assert_nesting_limit("let a = 1", " + 1", 1025, "");
	free(closers);
	free(braces);
	pp_arena_destroy(arena);
}

static void long_and_flat(void **state)
{
	(void)state;
	assert_accepted("m {\n", "layer block : block\n", 40000, "}");
	assert_accepted("", "let a = 1\n", 100000, "");
	assert_accepted("let a = [", "1, 0..2, ", 100000, "]");
	assert_accepted("let a = f(x", ", y = 1", 100000, ")");
	assert_accepted("s { order { ", "F B.1*2 | ", 100000, "} }");
	assert_accepted("s { order { F", "&F", 100000, "} }");
	assert_accepted("s { prefer F", "> F", 100000, "}");
	assert_accepted("let a = a", ".a", 100000, "");
	assert_accepted("let ", "a", 1 << 20, " = 1");
	assert_accepted("let a = \"", "\xc3\xa4", 1 << 20, "\"");
	assert_accepted("let a = ", "1", 1 << 20, "");
	assert_accepted("#", "{", 1 << 20, "");
	assert_accepted("", "\n", 1 << 20, "");
}

/* Errors without end: reading stops. */
static void wrong_everywhere(void **state)
{
	(void)state;
	static const char *const middles[] = {"@ ", "a = 1\n", "4Gb ", "// \n", ") ", "param ", "{ 1 } ", "\"\n"};
	for (size_t i = 0; i < sizeof middles / sizeof middles[0]; i++) {
		char *text = repeated("m { ", middles[i], 200000, "");
		struct parsed p = parse_text(text);
		assert_in_range(pp_diag_errors(p.diag), 1, 1001);
		parsed_free(&p);
		free(text);
	}
}

static void cut_off(void **state)
{
	(void)state;
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"/* never ends",
	     "x.pipe:1:1: error: comments start with `#` and end with the line, there is no `/*` [E0002]\n"},
	    {"let a = 1 /* ends at a star *",
	     "x.pipe:1:11: error: comments start with `#` and end with the line, there is no `/*` [E0002]\n"},
	    {"/* a /* b */ let a = 1",
	     "x.pipe:1:1: error: comments start with `#` and end with the line, there is no `/*` [E0002]\n"},
	    {"let a = \"never ends", "x.pipe:1:9: error: string is not closed before the end of the line [E0005]\n"},
	    {"let a = \"ends in \\", "x.pipe:1:9: error: string is not closed before the end of the line [E0005]\n"},
	    {"let a = \"two\nlet b = 3", "x.pipe:1:9: error: string is not closed before the end of the line [E0005]\n"},
	    {"let a = 1 /", "x.pipe:1:12: error: unexpected end of the text; expected a value [E0001]\n"},
	    {"let a = 1 /*",
	     "x.pipe:1:11: error: comments start with `#` and end with the line, there is no `/*` [E0002]\n"},
	    {"m { a = (1 + [2", "x.pipe:1:14: error: `[` opened at 1:14 is never closed [E0006]\n"},
	    {"m {", "x.pipe:1:3: error: block `m` opened at 1:3 is never closed [E0006]\n"},
	    {"", ""},
	    {"\xef\xbb\xbf", ""},
	    {"\xef\xbb", "x.pipe:1:1: error: byte 0xef is not UTF-8 text [E0007]\n"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct parsed p = parse_text(cases[i].text);
		assert_string_equal(messages_text(&p, PP_DIAG_SHORT), cases[i].message);
		parsed_free(&p);
	}
}

/* Any text: no crash, messages in every form, and if it is accepted its print reads back the same. */
static void assert_survives(const char *text, size_t length)
{
	struct parsed p = parse_bytes("x.pipe", text, length);
	messages_text(&p, PP_DIAG_HUMAN);
	messages_text(&p, PP_DIAG_JSON);
	const char *printed = tree_text(&p);
	if (pp_diag_ok(p.diag)) {
		struct parsed again = parse_text(printed);
		assert_string_equal(messages_text(&again, PP_DIAG_SHORT), "");
		assert_string_equal(tree_text(&again), printed);
		parsed_free(&again);
	}
	parsed_free(&p);
}

static void random_tokens(void **state)
{
	(void)state;
	static const char *const words[] = {
	    "a",   "F",     "1",     "2F0",   "1.5",   "3GiB",  "4Gb",    "\"s\"",  "{",       "}",       "(",
	    ")",   "[",     "]",     "=",     "==",    "<=",    ">",      "..",     ".",       "+",       "-",
	    "*",   "/",     "?",     ":",     ",",     "|",     "&",      "not",    "and",     "or",      "for",
	    "in",  "order", "split", "weave", "layer", "param", "import", "let",    "assert",  "extends", "from",
	    "pin", "to",    "rank",  "pair",  "with",  "limit", "when",   "prefer", "overlap", "repeat",  "true",
	    "\n",  "{",     "}",     "a",     "a",     "=",     "1",
	};
	uint64_t seed = 20250101;
	for (int round = 0; round < 4000; round++) {
		char text[1024] = "";
		size_t length = 0, count = 1 + random_below(&seed, 60);
		for (size_t i = 0; i < count; i++) {
			const char *word = words[random_below(&seed, sizeof words / sizeof words[0])];
			length += (size_t)snprintf(text + length, sizeof text - length, "%s ", word);
		}
		assert_survives(text, length);
	}
}

/* Every spec with bytes changed, removed or doubled. */
static void damaged_specs(void **state)
{
	(void)state;
	static const char *const names[] = {"1_minimal",       "4_explicit",    "5_zero_bubble",
	                                    "6_hetero_search", "8_deepseek_v3", "every_statement"};
	struct pp_arena *arena = pp_arena_create(NULL);
	uint64_t seed = 7;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		size_t length = 0;
		const char *spec =
		    golden_read(arena, pp_arena_printf(arena, "%s/specs/%s.pipe", PP_TEST_DATA, names[i]), &length);
		char *text = malloc(2 * length + 1);
		assert_non_null(text);
		for (uint32_t round = 0; round < 200; round++) {
			memcpy(text, spec, length);
			size_t size = length;
			for (uint32_t change = 0; change <= round % 4u; change++) {
				size_t at = random_next(&seed) % size, span = 1 + random_below(&seed, 8);
				span = span < size - at ? span : size - at;
				if (random_below(&seed, 2))
					text[at] = (char)random_next(&seed);
				else {
					memmove(text + at, text + at + span, size - at - span);
					size -= span;
				}
			}
			text[size] = '\0';
			assert_survives(text, size);
		}
		free(text);
	}
	pp_arena_destroy(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(too_deep),      cmocka_unit_test(just_deep_enough), cmocka_unit_test(long_and_flat),
	    cmocka_unit_test(cut_off),       cmocka_unit_test(wrong_everywhere), cmocka_unit_test(random_tokens),
	    cmocka_unit_test(damaged_specs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
