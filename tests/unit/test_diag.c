/* Diagnostics: the whole printed text, for labels on several lines, tabs, UTF-8, missing positions, the cap. */
#include "ir/diag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct fixture {
	struct pp_arena *arena;
	struct pp_sources *sources;
	struct pp_diag *diag;
	const struct pp_source *source;
};

static struct fixture make(const char *text)
{
	struct fixture f = {.arena = pp_arena_create(NULL)};
	f.sources = pp_sources_create(f.arena);
	f.diag = pp_diag_create(f.arena, f.sources);
	f.source = pp_sources_add(f.sources, "x.pipe", text, strlen(text));
	return f;
}

static struct pp_span span_of(const struct fixture *f, const char *needle)
{
	uint32_t start = f->source->base + (uint32_t)(strstr(f->source->text, needle) - f->source->text);
	return (struct pp_span){start, start + (uint32_t)strlen(needle)};
}

static void assert_printed(struct fixture *f, enum pp_diag_format format, const char *expected)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(f->diag, out, format, false);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
	pp_arena_destroy(f->arena);
}

static void two_lines_with_labels(void **state)
{
	(void)state;
	struct fixture f = make("model g {\n\theads = 96\n}\n\nparallel { tp = 10 }\n");
	struct pp_message *m =
	    pp_error(f.diag, "E0301", span_of(&f, "10"), "%d attention heads cannot be split over tp = %d", 96, 10);
	pp_label(m, span_of(&f, "96"), "96 heads");
	pp_caret(m, "96 / 10 is not whole");
	pp_help(m, "use tp = 8");
	assert_printed(&f, PP_DIAG_HUMAN,
	               "error[E0301]: 96 attention heads cannot be split over tp = 10\n"
	               "  --> x.pipe:5:17\n"
	               " 2 |     heads = 96\n"
	               "   |             -- 96 heads\n"
	               "   :\n"
	               " 5 | parallel { tp = 10 }\n"
	               "   |                 ^^ 96 / 10 is not whole\n"
	               "   = help: use tp = 8\n");
}

static void columns_count_characters(void **state)
{
	(void)state;
	struct fixture f = make("# \xc3\xa4\xc3\xb6 x\n");
	pp_error(f.diag, "E0001", span_of(&f, "x"), "odd");
	assert_printed(&f, PP_DIAG_SHORT, "x.pipe:1:6: error: odd [E0001]\n");
}

static void no_position(void **state)
{
	(void)state;
	struct fixture f = make("");
	pp_warning(f.diag, "W0001", PP_NO_SPAN, "just so");
	assert_int_equal(pp_diag_errors(f.diag), 0);
	assert_printed(&f, PP_DIAG_HUMAN, "warning[W0001]: just so\n");
}

static void no_position_json(void **state)
{
	(void)state;
	struct fixture f = make("");
	pp_warning(f.diag, "W0001", PP_NO_SPAN, "just so");
	assert_printed(&f, PP_DIAG_JSON,
	               "{\"schema\": \"pipec.diagnostic/1\", \"severity\": \"warning\", \"code\": \"W0001\", \"message\": "
	               "\"just so\", \"labels\": [], \"notes\": []}\n");
}

static void twenty_errors_at_most(void **state)
{
	(void)state;
	struct fixture f = make("x");
	for (int i = 0; i < 25; i++)
		pp_error(f.diag, "E0001", PP_NO_SPAN, "number %d", i);
	assert_int_equal(pp_diag_errors(f.diag), 25);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(f.diag, out, PP_DIAG_SHORT, false);
	fclose(out);
	assert_non_null(strstr(text, "number 19"));
	assert_null(strstr(text, "number 20"));
	assert_non_null(strstr(text, "5 more errors are not shown\n"));
	free(text);
	pp_arena_destroy(f.arena);
}

static void json_form(void **state)
{
	(void)state;
	struct fixture f = make("a = \"b\"\n");
	pp_error(f.diag, "E0101", span_of(&f, "\"b\""), "bad \"b\"");
	assert_printed(&f, PP_DIAG_JSON,
	               "{\"schema\": \"pipec.diagnostic/1\", \"severity\": \"error\", \"code\": \"E0101\", \"message\": "
	               "\"bad \\\"b\\\"\", "
	               "\"file\": \"x.pipe\", \"line\": 1, \"column\": 5, \"offset\": 4, \"length\": 3, "
	               "\"labels\": [{\"file\": \"x.pipe\", \"line\": 1, \"column\": 5, \"offset\": 4, \"length\": 3, "
	               "\"text\": \"\"}], "
	               "\"notes\": []}\n");
}

/* Of a very long line only a part is shown, whole characters of it, and each label has its part. */
static void long_lines(void **state)
{
	(void)state;
	char text[1200], expected[2000], left[81], right[121];
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	memcpy(text + 419, "\xc3\xa9", 2); /* one character: the part shown begins behind it */
	memcpy(text + 500, "XY", 2);
	memcpy(text + 1100, "Z", 1);
	struct fixture f = make(text);
	struct pp_message *message = pp_error(f.diag, "E0101", span_of(&f, "XY"), "long");
	pp_label(message, span_of(&f, "Z"), "here");
	memset(left, 'a', 80);
	left[79] = left[80] = '\0';
	memset(right, 'a', 120);
	right[119] = right[120] = '\0';
	snprintf(expected, sizeof expected,
	         "error[E0101]: long\n"
	         "  --> x.pipe:1:500\n"
	         " 1 | ...%sXY%s...\n"
	         "   | %82s^^\n"
	         " 1 | ...%saZ%.98s\n"
	         "   | %83s- here\n",
	         left, right, "", left, right, "");
	assert_printed(&f, PP_DIAG_HUMAN, expected);
}

static void bytes_that_are_no_text(void **state)
{
	(void)state;
	struct fixture f = make("a \xff\xc3 \x80 b\n");
	pp_error(f.diag, "E0101", span_of(&f, "b"), "here");
	assert_printed(&f, PP_DIAG_HUMAN, "error[E0101]: here\n  --> x.pipe:1:7\n 1 | a ?? ? b\n   |        ^\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_lines_with_labels),
	    cmocka_unit_test(long_lines),
	    cmocka_unit_test(bytes_that_are_no_text),
	    cmocka_unit_test(columns_count_characters),
	    cmocka_unit_test(no_position),
	    cmocka_unit_test(no_position_json),
	    cmocka_unit_test(twenty_errors_at_most),
	    cmocka_unit_test(json_form),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
