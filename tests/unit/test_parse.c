/* The grammar: specs to canonical text, tokens, trees, line ends, precedence, and the fixed point of printing. */
#include "parse_fixture.h"

/* Parse, print, parse the print: the text must be there at once and stay. */
static void assert_prints(const char *text, const char *expected)
{
	struct parsed once = parse_text(text);
	assert_string_equal(messages_text(&once, PP_DIAG_SHORT), "");
	assert_string_equal(tree_text(&once), expected);
	struct parsed twice = parse_text(expected);
	assert_string_equal(messages_text(&twice, PP_DIAG_SHORT), "");
	assert_string_equal(tree_text(&twice), expected);
	parsed_free(&twice);
	parsed_free(&once);
}

/* The value of the first attribute of the first block. */
static const struct pp_expr *value_of(const struct parsed *p)
{
	assert_string_equal(messages_text(p, PP_DIAG_SHORT), "");
	return p->ast->first->body->value;
}

static const char *span_text(const struct parsed *p, struct pp_span span)
{
	const struct pp_source *source = p->ast->source;
	return pp_arena_copy(p->arena, source->text + (span.start - source->base), span.end - span.start);
}

/* ---- whole specs ----------------------------------------------------------------------------- */

static void specs(void **state)
{
	(void)state;
	static const char *const names[] = {"1_minimal",   "2_gpt2_hf",     "3_interleaved",
	                                    "4_explicit",  "5_zero_bubble", "6_hetero_search",
	                                    "7_gpt3_175b", "8_deepseek_v3", "every_statement"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		size_t length = 0;
		const char *text =
		    golden_read(arena, pp_arena_printf(arena, "%s/specs/%s.pipe", PP_TEST_DATA, names[i]), &length);
		struct parsed p = parse_bytes(names[i], text, length);
		assert_string_equal(messages_text(&p, PP_DIAG_SHORT), "");
		const char *printed = tree_text(&p);
		golden_check(arena, pp_arena_printf(arena, "%s/tests/golden/ast/%s.pipe", PP_SOURCE_DIR, names[i]), printed);
		struct parsed again = parse_text(printed);
		assert_string_equal(tree_text(&again), printed);
		parsed_free(&again);
		parsed_free(&p);
		pp_arena_destroy(arena);
	}
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void numbers(void **state)
{
	(void)state;
	assert_prints(
	    "a { b = [010, 0, 00, 15_360, 1e3, 1E+3, 6e-5, 4.0, 0.40, 5us, 400Gbit/s, 64GB/s, 630M, 1_0.5_0e1_0KiB] }",
	    "a {\n    b = [10, 0, 0, 15360, 1e3, 1E+3, 6e-5, 4.0, 0.40, 5us, 400Gbit/s, 64GB/s, 630M, 10.50e10KiB]\n}\n");
	assert_prints(
	    "a { b = 5us/2 c = 8GB/size d = 0..3 e = a.0.1 f = F.1*4 g = 3..0 h = 1f1b i = 1F1B }",
	    "a {\n    b = 5us / 2\n    c = 8GB / size\n    d = 0..3\n    e = a.0.1\n    f = F.1 * 4\n    g = 3..0\n"
	    "    h = 1f1b\n    i = 1F1B\n}\n");
	assert_prints("a { b = 99999999999999999999 }", "a {\n    b = 99999999999999999999\n}\n");
}

static void strings(void **state)
{
	(void)state;
	struct parsed p = parse_text("a { b = \"q\\\"\\\\\\n\\t\\x41\\101 \xc3\xa4 \\x01# // /*\" }");
	assert_string_equal(value_of(&p)->text, "q\"\\\n\tAA \xc3\xa4 \x01# // /*");
	parsed_free(&p);
	assert_prints("a { b = \"\\x01\\\"\\n\" + \"c\" }", "a {\n    b = \"\\x01\\\"\\n\" + \"c\"\n}\n");
}

static void patterns(void **state)
{
	(void)state;
	assert_prints(
	    "s { order for r { F*4 F.1*4 F.c*p F.(v-1-c)*(m/p) I.1 2F0 10W3*2 F[i] F[0..m-1] F&B.1&W (F B | )*n ()\n"
	    "  for c in 0..v-1 { F.c } weave k { F*m } { B*m } weave (min(m, 2)) { } { _ } | } }",
	    "s {\n    order for r {\n"
	    "        F*4 F.1*4 F.c*p F.(v - 1 - c)*(m / p) I.1 2F0 10W3*2 F[i] F[0..m - 1] F&B.1&W (F B |)*n ()"
	    " for c in 0..v - 1 { F.c } weave k { F*m } { B*m } weave (min(m, 2)) { } { _ }\n"
	    "      |\n    }\n}\n");
}

static void cells_hold_their_parts(void **state)
{
	(void)state;
	struct parsed p = parse_text("s { order { 12F345 F3.c[1] } }");
	assert_int_equal(pp_diag_errors(p.diag), 1); /* the index comes before the chunk */
	parsed_free(&p);
	p = parse_text("s { order { 12F345 F[3].c } }");
	const struct pp_pattern *part = p.ast->first->body->pattern;
	assert_true(part->action->cell);
	assert_int_equal(part->action->stage, 12);
	assert_int_equal(part->action->number, 345);
	assert_string_equal(part->action->name, "F");
	part = part->next;
	assert_false(part->action->cell);
	assert_string_equal(part->action->index->number, "3");
	assert_string_equal(part->action->chunk->text, "c");
	parsed_free(&p);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static void precedence(void **state)
{
	(void)state;
	static const char *const same[] = {
	    "1 + 2 * 3 - 4",
	    "(1 + 2) * 3",
	    "1 - (2 - 3)",
	    "1 - 2 - 3",
	    "-a * b",
	    "-(a * b)",
	    "--a",
	    "a - -b",
	    "2 * -b",
	    "not a == b",
	    "(not a) == b",
	    "not not a",
	    "not (a and b)",
	    "a or b and c",
	    "(a or b) and c",
	    "a ? b : c ? d : e",
	    "(a ? b : c) ? d : e",
	    "a ? b ? c : d : e",
	    "(a < b) == c",
	    "a or b ? c : d",
	    "f(x, y = 1..2, z = [])",
	    "f()",
	    "a.b(1).c",
	    "[0..p - 1, 0]",
	    "(a ? 1 : 2) + 3",
	    "a % b / c * d",
	    "a / (b / c)",
	    "true and false",
	    "(1..2)",
	};
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		struct parsed p = parse_text(pp_arena_printf(arena, "let x = %s", same[i]));
		if (strcmp(same[i], "a.b(1).c") == 0 || strcmp(same[i], "(1..2)") == 0)
			assert_int_equal(pp_diag_errors(p.diag), 1); /* not in the language */
		else
			assert_string_equal(tree_text(&p), pp_arena_printf(arena, "let x = %s\n", same[i]));
		parsed_free(&p);
		pp_arena_destroy(arena);
	}
	assert_prints("let x = ((a) + (b * c)) let y = (a < b) let z = ((a ? b : (c ? d : e)))",
	              "let x = a + b * c\nlet y = a < b\nlet z = a ? b : c ? d : e\n");
}

static void spans(void **state)
{
	(void)state;
	struct parsed p = parse_text("# one\nm g { a = (1 + b.c) * f(2) }\n");
	const struct pp_expr *value = value_of(&p);
	assert_string_equal(span_text(&p, p.ast->first->span), "m g { a = (1 + b.c) * f(2) }");
	assert_string_equal(span_text(&p, p.ast->first->label.span), "g");
	assert_string_equal(span_text(&p, p.ast->first->body->span), "a = (1 + b.c) * f(2)");
	assert_string_equal(span_text(&p, value->span), "(1 + b.c) * f(2)");
	assert_string_equal(span_text(&p, value->op_span), "*");
	assert_string_equal(span_text(&p, value->a->b->span), "b.c");
	assert_string_equal(span_text(&p, value->a->b->parts[1].span), "c");
	assert_string_equal(span_text(&p, value->b->span), "f(2)");
	parsed_free(&p);
}

/* ---- encodings ------------------------------------------------------------------------------- */

static void line_ends_and_marks(void **state)
{
	(void)state;
	static const char *const same[] = {
	    "m g { # one\n a = 1\n b = 2\n}\n", "m g { # one\r\n a = 1\r\n b = 2\r\n}\r\n",
	    "m g { # one\r a = 1\r b = 2\r}\r", "\xef\xbb\xbfm g { # one\n a = 1\n b = 2\n}\n",
	    "m g { # one\n a = 1\n b = 2\n}",   "m g { a = 1 b = 2 } # end",
	};
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
		assert_prints(same[i], "m g {\n    a = 1\n    b = 2\n}\n");
}

static void errors_keep_their_line(void **state)
{
	(void)state;
	static const char *const ends[] = {"\n", "\r\n", "\r"};
	for (size_t i = 0; i < 3; i++) {
		struct pp_arena *arena = pp_arena_create(NULL);
		const char *e = ends[i];
		struct parsed p = parse_text(
		    pp_arena_printf(arena, "# 1%s/* 2%s3%s4%s5%s6 */%s# 7%sm {%s  a 1 }%s", e, e, e, e, e, e, e, e, e));
		const char *messages = messages_text(&p, PP_DIAG_SHORT);
		assert_non_null(strstr(messages, "x.pipe:2:1: error: comments start"));
		assert_non_null(strstr(messages, "x.pipe:9:5: error: unexpected integer `1`"));
		assert_int_equal(pp_diag_errors(p.diag), 2);
		parsed_free(&p);
		pp_arena_destroy(arena);
	}
}

static void wide_text_is_one_error(void **state)
{
	(void)state;
	static const char little[] = "\xff\xfe"
	                             "m\0 \0{\0}\0",
	                  big[] = "\0m\0 \0{\0}", marked[] = "\xfe\xff\0m\0{\0}";
	struct {
		const char *text;
		size_t length;
	} cases[] = {{little, sizeof little - 1},
	             {big, sizeof big - 1},
	             {marked, sizeof marked - 1},
	             {little + 2, sizeof little - 3}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct parsed p = parse_bytes("x.pipe", cases[i].text, cases[i].length);
		assert_string_equal(messages_text(&p, PP_DIAG_SHORT),
		                    "x.pipe:1:1: error: text is in UTF-16, wanted UTF-8 [E0007]\n");
		parsed_free(&p);
	}
}

static void wrong_bytes(void **state)
{
	(void)state;
	static const char text[] =
	    "m {\n a = 1 \xef\xbb\xbf\n b = 2 \x01\n c = \"\xff\xfe\" d = \"\0\" \x80\x81 e = 3 \0 }";
	struct parsed p = parse_bytes("x.pipe", text, sizeof text - 1);
	assert_string_equal(messages_text(&p, PP_DIAG_SHORT),
	                    "x.pipe:2:8: error: byte-order mark in the middle of the text [E0007]\n"
	                    "x.pipe:3:8: error: unexpected control character 0x01 [E0007]\n"
	                    "x.pipe:4:7: error: byte 0xff in a string is not UTF-8 text [E0007]\n"
	                    "x.pipe:4:16: error: byte 0x00 in a string is not UTF-8 text [E0007]\n"
	                    "x.pipe:4:19: error: byte 0x80 is not UTF-8 text [E0007]\n"
	                    "x.pipe:4:26: error: unexpected control character 0x00 [E0007]\n");
	parsed_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(specs),
	    cmocka_unit_test(numbers),
	    cmocka_unit_test(strings),
	    cmocka_unit_test(patterns),
	    cmocka_unit_test(cells_hold_their_parts),
	    cmocka_unit_test(precedence),
	    cmocka_unit_test(spans),
	    cmocka_unit_test(line_ends_and_marks),
	    cmocka_unit_test(errors_keep_their_line),
	    cmocka_unit_test(wide_text_is_one_error),
	    cmocka_unit_test(wrong_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
