/* The writer of SVG, and the checker of well-formed XML that its pictures are held to. */
#include "codegen/emit/svg.h"
#include "support/xml_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_checker_tells_right_from_wrong(void **state)
{
	(void)state;
	static const struct {
		const char *text, *wrong;
	} cases[] = {
	    {"<a/>", NULL},
	    {"<?xml version=\"1.0\"?>\n<a b=\"1\" c=\"&lt;&amp;\"><d>x &gt; y</d><!-- <e> --></a>\n", NULL},
	    {"<a><![CDATA[ < & ]]></a>", NULL},
	    {"", "the root is not closed"},
	    {"<a>", "the root is not closed"},
	    {"<a></b>", "an end tag of another element"},
	    {"<a/><b/>", "a second root"},
	    {"<a b=1/>", "a value without quotes"},
	    {"<a b=\"1\" b=\"2\"/>", "an attribute is given twice"},
	    {"<a b=\"<\"/>", "a bare `<` in a value"},
	    {"<a>&nbsp;</a>", "a bare `&`"},
	    {"<a>\x01</a>", "a control character"},
	    {"<a>\xff</a>", "bytes that are not UTF-8"},
	    {"<a/>x", "text outside the root"},
	    {"<a><![CDATA[ </a>", "something is not closed"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t at;
		const char *wrong = pp_xml_check(cases[i].text, strlen(cases[i].text), &at, NULL);
		if (cases[i].wrong)
			assert_string_equal(wrong ? wrong : "well-formed", cases[i].wrong);
		else
			assert_null(wrong);
	}
}

static char *draw(const char *text, size_t *length)
{
	char *bytes = NULL;
	FILE *out = open_memstream(&bytes, length);
	struct pp_svg svg = pp_svg_begin(out, 100, 50.5, text, text, "  text { fill: #222 }\n");
	pp_svg_stripes(&svg, "s", "#fff", "#000", 6, 45);
	pp_svg_group(&svg, text, text);
	pp_svg_rect(&svg, 1, 2.25, 3.999, 1e-9, "r", text);
	pp_svg_circle(&svg, -0.001, 1.0 / 3, 5, NULL, NULL);
	pp_svg_text(&svg, 4, 5, PP_SVG_END, NULL, text);
	pp_svg_group_end(&svg);
	pp_svg_path(&svg, "p");
	pp_svg_point(&svg, 0, 0, 1);
	pp_svg_point(&svg, 10, 20.5, 0);
	pp_svg_path_end(&svg);
	pp_svg_line(&svg, 0, 0, 1, 1, "l");
	pp_svg_end(&svg);
	fclose(out);
	return bytes;
}

static void elements_are_written_as_they_should_be(void **state)
{
	(void)state;
	size_t length;
	char *text = draw("a<b", &length);
	assert_string_equal(
	    text,
	    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50.5\" viewBox=\"0 0 100 50.5\" role=\"img\" "
	    "aria-labelledby=\"title about\">\n"
	    " <title id=\"title\">a&lt;b</title>\n"
	    " <desc id=\"about\">a&lt;b</desc>\n"
	    " <style><![CDATA[\n  text { fill: #222 }\n ]]></style>\n"
	    " <pattern id=\"s\" patternUnits=\"userSpaceOnUse\" width=\"6\" height=\"6\" "
	    "patternTransform=\"rotate(45)\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/><rect width=\"1.5\" "
	    "height=\"100%\" fill=\"#000\"/></pattern>\n"
	    " <g class=\"a&lt;b\"><title>a&lt;b</title>\n"
	    "  <rect class=\"r\" x=\"1\" y=\"2.25\" width=\"4\" height=\"0\"><title>a&lt;b</title></rect>\n"
	    "  <circle cx=\"0\" cy=\"0.33\" r=\"5\"/>\n"
	    "  <text x=\"4\" y=\"5\" text-anchor=\"end\">a&lt;b</text>\n"
	    " </g>\n"
	    " <path class=\"p\" d=\"M0 0 L10 20.5\"/>\n"
	    " <line class=\"l\" x1=\"0\" y1=\"0\" x2=\"1\" y2=\"1\"/>\n"
	    "</svg>\n");
	free(text);
}

static void any_text_stays_well_formed(void **state)
{
	(void)state;
	static const char *const texts[] = {
	    "",
	    "plain",
	    "<>&\"'",
	    "]]>",
	    "a\x01\x1f b\x7f",
	    "\xff\xfe",
	    "\xc3\xa9 \xe2\x80\x93 \xf0\x9f\x98\x80",
	    "\xef\xbf\xbe\xef\xbf\xbf",
	    "\xed\xa0\x80",
	    "cut \xe2\x80",
	    "line\nline\ttab\r",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		size_t length, at, elements;
		char *text = draw(texts[i], &length);
		const char *wrong = pp_xml_check(text, length, &at, &elements);
		if (wrong)
			fail_msg("case %zu: %s at %zu in %s", i, wrong, at, text);
		assert_int_equal(elements, 15);
		free(text);
	}
}

static void axes_step_by_1_2_and_5(void **state)
{
	(void)state;
	static const double least[] = {1, 1.1, 2, 3, 5, 7, 0.013, 999, 1e-9, 0};
	static const double step[] = {1, 2, 2, 5, 5, 10, 0.02, 1000, 1e-9, 1};
	for (size_t i = 0; i < sizeof step / sizeof *step; i++)
		assert_true(pp_svg_step(least[i]) > step[i] * 0.999999 && pp_svg_step(least[i]) < step[i] * 1.000001);
	char text[PP_SVG_NUMBER];
	pp_svg_number(text, 2.5, 0.5);
	assert_string_equal(text, "2.5");
	pp_svg_number(text, 0.1 + 0.2, 0.02);
	assert_string_equal(text, "0.30");
	pp_svg_number(text, 300, 100);
	assert_string_equal(text, "300");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_checker_tells_right_from_wrong),
	    cmocka_unit_test(elements_are_written_as_they_should_be),
	    cmocka_unit_test(any_text_stays_well_formed),
	    cmocka_unit_test(axes_step_by_1_2_and_5),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
