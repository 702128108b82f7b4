/* The `.pps` form: print(read(x)) == x for a program that uses every table, operand kind and field; defaults of short
 * texts; the whole text of messages; hostile numbers. */
#include "ir/file.h"
#include "ir/program_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct fixture {
	struct pp_arena *arena;
	struct pp_diag *diag;
	struct pp_program *program;
};

static struct fixture read_text(const char *text, size_t length)
{
	struct fixture f = {.arena = pp_arena_create(NULL)};
	struct pp_sources *sources = pp_sources_create(f.arena);
	f.diag = pp_diag_create(f.arena, sources);
	f.program = pp_program_read(f.arena, pp_sources_add(sources, "x.pps", text, length), f.diag);
	return f;
}

static char *messages(const struct fixture *f, enum pp_diag_format format)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_diag_print(f->diag, out, format, false);
	fclose(out);
	return text;
}

static char *printed(const struct pp_program *program)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_program_print(program, out);
	fclose(out);
	return text;
}

static struct fixture read_good(const char *text)
{
	struct fixture f = read_text(text, strlen(text));
	if (!f.program) {
		char *found = messages(&f, PP_DIAG_HUMAN);
		fail_msg("%s", found);
	}
	return f;
}

/* `text` fails with exactly these messages in the short form. */
static void assert_refused(const char *text, const char *expected)
{
	struct fixture f = read_text(text, strlen(text));
	char *found = messages(&f, PP_DIAG_SHORT);
	assert_string_equal(found, expected);
	assert_null(f.program);
	free(found);
	pp_arena_destroy(f.arena);
}

static void assert_fixpoint(const char *text, const char *expected)
{
	struct fixture f = read_good(text);
	char *once = printed(f.program);
	assert_string_equal(once, expected);
	struct fixture again = read_good(once);
	char *twice = printed(again.program);
	assert_string_equal(twice, once);
	free(once);
	free(twice);
	pp_arena_destroy(f.arena);
	pp_arena_destroy(again.arena);
}

static char *load(struct pp_arena *arena, const char *path)
{
	char *text;
	size_t length;
	struct pp_status status;
	assert_true(pp_file_read(arena, path, &text, &length, &status));
	return text;
}

static void everything_prints_as_written(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	char *text = load(arena, PP_TEST_DATA "/program/two_ranks.pps");
	char *expected = pp_arena_copy(arena, text, strlen(text));
	/* depth 1 is what an omitted depth means, so it is not printed */
	for (char *at; (at = strstr(expected, " depth 1"));)
		memmove(at, at + 8, strlen(at + 8) + 1);
	assert_fixpoint(text, expected);
	pp_arena_destroy(arena);
}

static void values_arrive(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	struct fixture f = read_good(load(arena, PP_TEST_DATA "/program/two_ranks.pps"));
	const struct pp_program *p = f.program;
	assert_int_equal(p->ranks, 2);
	assert_int_equal(p->tp, 1);
	assert_int_equal(p->stage_count, 2);
	assert_string_equal(p->stages[1].title, "block[1], norm, head");
	assert_true(p->stages[0].loads_tokens && !p->stages[0].loads_labels);
	assert_int_equal(p->stages[0].body[PP_PHASE_F], 0);
	assert_int_equal(p->stages[0].body[PP_PHASE_B], PP_NULL);
	assert_int_equal(p->stages[1].ticks[PP_PHASE_B], 2000);
	assert_int_equal(p->rank[0].slot_count, 12);
	assert_true(p->rank[0].slots[1].placed && !p->rank[0].slots[0].placed);
	assert_int_equal(p->rank[0].slots[1].offset, 512);
	assert_int_equal(p->tensors[0].dims, 2);
	assert_int_equal(p->tensors[1].dims, 1);
	assert_true(p->train.lr_floor == 1e-5);
	assert_string_equal(p->source_text, "model gpt {\n  hidden = 4 # \"quoted\"; not a comment of this form\n\n}\n");
	const struct pp_stream *s = &pp_program_find(p, "train")->streams[0];
	assert_int_equal(s->count, 22);
	const struct pp_instr *send = &s->items[3];
	assert_int_equal(send->op, PP_OP_SEND);
	assert_int_equal(send->a[2], 1);
	assert_int_equal(send->a[3], PP_NULL);
	assert_int_equal(send->count, 64);
	assert_int_equal(s->order[3], 0);
	assert_int_equal(s->order[4], PP_NULL);
	assert_int_equal(s->items[11].flags, PP_FIRST);
	assert_int_equal(s->items[14].flags, PP_PAIR);
	assert_null(pp_program_find(p, "train")->streams[1].order);
	assert_memory_equal(f.program->texts[0], "warm-up \"one\"\x01", 15);
	pp_arena_destroy(f.arena);
	pp_arena_destroy(arena);
}

static const char short_text[] = "pps 1\n"
                                 "grid pp 2 microbatches 1 ; comments run to the end\n"
                                 "\n"
                                 "stage 0 rank 0 out f32*16\n"
                                 "stage 1 rank 1\n"
                                 "slot 0 out.0 bytes 64\r\n"
                                 "slot 0 stash.1..3 bytes 8\n"
                                 "slot 1 recv.0 bytes 64\n"
                                 "channel 0 act from 0 to 1\n"
                                 "program train {\n"
                                 "rank 0 {\n"
                                 "fwd s0 m0 - - out.0 stash.3\n"
                                 "send c0 #0 out.0 s0 m0 f32*16 ; the activation\n"
                                 "wait c0 #0\n"
                                 "}\n"
                                 "}\n";

static void short_texts_get_defaults(void **state)
{
	(void)state;
	assert_fixpoint(short_text, "pps 1\n"
	                            "grid pp 2 microbatches 1\n"
	                            "stage s0 rank 0 out f32*16\n"
	                            "stage s1 rank 1\n"
	                            "slot 0 out.0 bytes 64\n"
	                            "slot 0 stash.1 bytes 8\n"
	                            "slot 0 stash.2 bytes 8\n"
	                            "slot 0 stash.3 bytes 8\n"
	                            "slot 1 recv.0 bytes 64\n"
	                            "channel c0 act from 0 to 1 messages 1\n"
	                            "program train {\n"
	                            "  rank 0 {\n"
	                            "    fwd s0 m0 - - out.0 stash.3\n"
	                            "    send c0 #0 out.0 s0 m0 f32*16\n"
	                            "    wait c0 #0\n"
	                            "  }\n"
	                            "  rank 1 {\n"
	                            "  }\n"
	                            "}\n");
	struct fixture f = read_good(short_text);
	assert_int_equal(f.program->stages[0].ticks[PP_PHASE_F], 1);
	assert_int_equal(f.program->stages[0].ticks[PP_PHASE_B], 2);
	assert_int_equal(f.program->cost.pair_permille, 1000);
	const struct pp_stream *stream = &f.program->programs[0].streams[0];
	assert_memory_equal(short_text + stream->spans[1].start - 1, "send c0 #0 out.0 s0 m0 f32*16",
	                    stream->spans[1].end - stream->spans[1].start);
	assert_int_equal(stream->spans[1].end - stream->spans[1].start, 29);
	pp_arena_destroy(f.arena);
}

static void one_instruction_prints_for_messages(void **state)
{
	(void)state;
	struct fixture f = read_good(short_text);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_instr_print(f.program, 0, &f.program->programs[0].streams[0].items[0], out);
	fclose(out);
	assert_string_equal(text, "fwd s0 m0 - - out.0 stash.3");
	free(text);
	pp_arena_destroy(f.arena);
}

static void doubles_read_back(void **state)
{
	(void)state;
	static const char text[] = "pps 1\n"
	                           "grid pp 1 microbatches 1\n"
	                           "train peak 0.30000000000000004 floor 5e-324\n"
	                           "hyper h0 beta1 0.1 beta2 -1.7976931348623157e+308 eps 3\n"
	                           "stage s0 rank 0\n"
	                           "program train {\n"
	                           "  rank 0 {\n"
	                           "  }\n"
	                           "}\n";
	assert_fixpoint(text, text);
}

#define HEAD                                                                                                           \
	"pps 1\ngrid pp 2 microbatches 4\nstage s0 rank 0\nslot 0 stash.0 bytes 8\nslot 0 out.1 bytes 8\nchannel c0 act "  \
	"from 0 to 1\n"
/* A text with this line (or lines) in the stream of rank 0, or in a body. */
static const char *in_rank(struct pp_arena *arena, const char *line)
{
	return pp_arena_printf(arena, HEAD "program train {\nrank 0 {\n%s\n}\n}\n", line);
}

static const char *in_body(struct pp_arena *arena, const char *line)
{
	return pp_arena_printf(arena, HEAD "body b0 s0 F {\nreg x in f32*4\n%s\n}\n", line);
}

static void mistakes_in_instructions(void **state)
{
	(void)state;
	static const struct {
		const char *line, *message;
	} cases[] = {
	    {"fdw s0 m0 - - - -", "x.pps:9:1: error: unknown instruction `fdw` [E1002]\n"},
	    {"fwd s0 m0 - - -",
	     "x.pps:9:16: error: expected a slot such as stash.7, or `-` for none, found the end of the line [E1003]\n"},
	    {"fwd m0 s0 - - - -", "x.pps:9:5: error: expected a stage such as s3, found `m0` [E1003]\n"},
	    {"fwd s1 m0 - - - -", "x.pps:9:5: error: there is no stage 1: the table has 0..0 [E1005]\n"},
	    {"fwd s0 m4 - - - -", "x.pps:9:8: error: there is no microbatch 4: `grid` says 4, so 0..3 [E1005]\n"},
	    {"fwd s0 m0 - - - stash.9", "x.pps:9:17: error: rank 0 has no slot `stash.9` [E1005]\n"},
	    {"fwd s0 m0 - - - stash.1", "x.pps:9:17: error: slot 1 of rank 0 is of class out, not `stash.1` [E1006]\n"},
	    {"fwd s0 m0 - - - out.1",
	     "x.pps:9:17: error: slot 1 of rank 0 is of class out, but stash is wanted here [E1006]\n"},
	    {"fwd s0 m0 - - - stahs.0",
	     "x.pps:9:17: error: expected a slot class: recv, out, stash, aux, weight, grad, …, found `stahs` [E1003]\n"},
	    {"fwd s0 m99999999999999999999 - - - -",
	     "x.pps:9:8: error: expected a microbatch such as m5, found `m99999999999999999999` [E1003]\n"},
	    {"fwd s0 m0 - - - - first", "x.pps:9:1: error: `fwd` takes no flag `first` [E1003]\n"},
	    {"fwd s0 m0 - - - - shard", "x.pps:9:1: error: `fwd` takes no flag `shard` [E1003]\n"},
	    {"fwd s0 m0 - - - - pair pair",
	     "x.pps:9:24: error: expected the end of the instruction, found `pair` [E1003]\n"},
	    {"fwd s0 m0 - - - - @1",
	     "x.pps:9:19: error: only posts (send, recv, coll) stand in the global order: `fwd` takes no `@N` [E1003]\n"},
	    {"send c1 #0 out.1 s0 m0 f32*2", "x.pps:9:6: error: there is no channel 1: the table has 0..0 [E1005]\n"},
	    {"send c0 #0 - s0 m0 f32*2", "x.pps:9:12: error: this operand wants a slot of class out, got none [E1006]\n"},
	    {"send c0 #0 out.1 s0 m0 f23*2",
	     "x.pps:9:24: error: expected a dtype: f32, bf16, f64 or i32, found `f23` [E1003]\n"},
	    {"send c0 #0 out.1 s0 m0 f32*4294967296",
	     "x.pps:9:24: error: `f32*4294967296` is too large: at most 4294967295 elements [E1004]\n"},
	    {"mark \"open", "x.pps:9:6: error: expected a text in double quotes, found `\"open` [E1003]\n"},
	    {"load token s0 m0 -",
	     "x.pps:9:6: error: expected a load kind: tokens, labels or tokens+labels, found `token` [E1003]\n"},
	};
	struct pp_arena *arena = pp_arena_create(NULL);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_refused(in_rank(arena, cases[i].line), cases[i].message);
	pp_arena_destroy(arena);
}

static void mistakes_in_tables(void **state)
{
	(void)state;
	static const struct {
		const char *text, *message;
	} cases[] = {
	    {"", "x.pps:1:1: error: this is no program text: it begins with the end of the line [E1001]\n"},
	    {"model gpt {", "x.pps:1:1: error: this is no program text: it begins with `model` [E1001]\n"},
	    {"pps 2\n", "x.pps:1:5: error: this is version `2` of the program text [E1001]\n"},
	    {"pps 1\n", "error: x.pps has no `grid` line [E1008]\n"},
	    {"pps 1\nstage s0 rank 0\n", "x.pps:2:1: error: `stage` comes before the `grid` line [E1008]\n"},
	    {"pps 1\ngrid pp 4000000000 microbatches 1\n",
	     "x.pps:2:9: error: `pp` is 4000000000, outside 1..65536 [E1004]\n"},
	    {"pps 1\ngrid pp 4\n", "x.pps:2:1: error: `grid` wants `microbatches` [E1008]\n"},
	    {"pps 1\ngrid pp 4 pp 4 microbatches 1\n", "x.pps:2:11: error: `pp` is given twice in this line [E1007]\n"},
	    {"pps 1\ngrid pp 4 microbatch 1\n", "x.pps:2:11: error: unknown word in `grid`: `microbatch` [E1002]\n"},
	    {HEAD "stage s1 rank 2\n", "x.pps:7:15: error: there is no rank 2: `grid` says 2, so 0..1 [E1005]\n"},
	    {HEAD "stage s2 rank 1\n",
	     "x.pps:7:7: error: stage lines are numbered in order: expected s1, found `s2` [E1007]\n"},
	    {HEAD "slot 0 stash.5 bytes 8\n",
	     "x.pps:7:8: error: slots of rank 0 are numbered in order: expected number 2 [E1007]\n"},
	    {HEAD "slot 0 stash.2 bytes 99999999999999999999\n",
	     "x.pps:7:22: error: `99999999999999999999` is too large: at most 18446744073709551615 [E1004]\n"},
	    {HEAD "slot 0 stash.2 bytes 8 at 100\n",
	     "x.pps:7:27: error: offset 100 is not a multiple of 256 up to 2^50 [E1004]\n"},
	    {HEAD "channel c1 act from 1 to 1\n",
	     "x.pps:7:1: error: a channel joins two different ranks, but `from` and `to` are both 1 [E1011]\n"},
	    {HEAD "channel c1 act from 1\n", "x.pps:7:1: error: `channel` wants `to` [E1008]\n"},
	    {HEAD "group g0 pp ranks 1,0\n", "x.pps:7:19: error: ranks of a group ascend, but 0 comes after 1 [E1011]\n"},
	    {HEAD "group g0 pp ranks 0-4000000000\n",
	     "x.pps:7:19: error: there is no rank 4000000000: `grid` says 2, so 0..1 [E1005]\n"},
	    {HEAD "tensor t0 w f32*4x0\n", "x.pps:7:13: error: shape 4 x 0 is out of range: every dimension is at least 1, "
	                                   "and the whole at most 2^50 bytes [E1004]\n"},
	    {HEAD "tensor t0 w f32*2\ntensor t1 w f32*2\nprogram train {\n}\n",
	     "x.pps:8:1: error: tensors 0 and 1 are both named w: names are unique [E1007]\n"},
	    {HEAD "use t0 s0 - -\n", "x.pps:7:5: error: there is no tensor 0: this program has none [E1005]\n"},
	    {HEAD "chanel c1 act from 0 to 1\n", "x.pps:7:1: error: unknown word `chanel` [E1002]\n"},
	    {HEAD "fwd s0 m0 - - - -\n", "x.pps:7:1: error: instruction `fwd` stands outside of a stream [E1010]\n"},
	    {HEAD "program train {\nrank 0 {\n}\nrank 0 {\n}\n}\n",
	     "x.pps:10:1: error: program train has a second stream for rank 0 [E1007]\n"},
	    {HEAD "program train {\nrank 0 {\n",
	     "x.pps:8:1: error: rank 0 is never closed: `}` is missing [E1008]\n"
	     "x.pps:7:1: error: program train is never closed: `}` is missing [E1008]\n"},
	    {HEAD "train path \"a\\q\"\n", "x.pps:7:12: error: text is not closed, or holds an unknown escape [E1009]\n"},
	    {HEAD "train peak nan\n", "x.pps:7:12: error: expected a number, found `nan` [E1003]\n"},
	    {HEAD, "error: there are 0 programs, wanted 1..16 [E1008]\n"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_refused(cases[i].text, cases[i].message);
}

static void mistakes_in_bodies(void **state)
{
	(void)state;
	static const struct {
		const char *line, *message;
	} cases[] = {
	    {"reg x in f32*4", "x.pps:9:1: error: this body has two registers named x [E1007]\n"},
	    {"reg y weight.0 f32*4", "x.pps:9:7: error: slot 0 of rank 0 is of class stash, not `weight.0` [E1006]\n"},
	    {"reg y inn f32*4", "x.pps:9:7: error: expected a base: in, aux, out, stash, dout, din, work, loss, "
	                        "weight.N or grad.N, found `inn` [E1003]\n"},
	    {"copy x -> y", "x.pps:9:11: error: this body has no register `y` [E1005]\n"},
	    {"copy - -> x", "x.pps:9:1: error: operand 1 of `copy` can't be left out [E1005]\n"},
	    {"copy x", "x.pps:9:7: error: expected `->` and the outputs: copy x -> y, found the end of the line [E1003]\n"},
	    {"act x -> x", "x.pps:9:11: error: expected `kind=` and a whole number, found the end of the line [E1003]\n"},
	    {"cpoy x -> x", "x.pps:9:1: error: unknown body instruction `cpoy` [E1002]\n"},
	    {"} trailing", "x.pps:9:3: error: expected the end of the line, found `trailing` [E1003]\n"
	                   "x.pps:10:1: error: unknown word `}` [E1002]\n"},
	};
	struct pp_arena *arena = pp_arena_create(NULL);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_refused(in_body(arena, cases[i].line), cases[i].message);
	pp_arena_destroy(arena);
	assert_refused(HEAD "body b0 s0 F {\n}\nbody b1 s0 F {\n}\nprogram train {\n}\n",
	               "x.pps:9:1: error: stage 0 has two bodies for phase F: 0 and 1 [E1007]\n");
}

static void reading_goes_on_after_an_error(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	assert_refused(in_rank(arena, "fdw s0 m0 - - - -\nfwd s0 m0 - - - -\nwait c0 0\n"),
	               "x.pps:9:1: error: unknown instruction `fdw` [E1002]\n"
	               "x.pps:11:9: error: expected a sequence number such as #5, found `0` [E1003]\n");
	pp_arena_destroy(arena);
}

/* The lines that only follow from a mistake in a table are counted beside the first. */
static void one_cause_one_message(void **state)
{
	(void)state;
	const char *text = "pps 1\ngrid pp 1 microbatches 4\nslot 0 aux.0 bytes 8\nslot 0 out.2 bytes 8\n"
	                   "slot 0 out.3 bytes 8\nslot 1 out.0 bytes 8\nslot 2 out.0 bytes 8\n"
	                   "stage s0 rank 0\nprogram train {\nrank 0 {\n"
	                   "fwd s0 m0 - - - stash.0\nfwd s0 m1 - - - stash.0\nfwd s0 m4 - - - -\n"
	                   "fwd s0 m5 - - - -\n}\nrank 1 {\n}\n}\n";
	struct fixture f = read_text(text, strlen(text));
	assert_null(f.program);
	char *found = messages(&f, PP_DIAG_HUMAN);
	assert_string_equal(found, "error[E1007]: slots of rank 0 are numbered in order: expected number 1\n"
	                           "  --> x.pps:4:8\n"
	                           " 4 | slot 0 out.2 bytes 8\n"
	                           "   |        ^^^^^\n"
	                           "   = note: 1 more line names slots of rank 0 out of order: 5\n"
	                           "error[E1005]: there is no rank 1: `grid` says 1, so 0..0\n"
	                           "  --> x.pps:6:6\n"
	                           " 6 | slot 1 out.0 bytes 8\n"
	                           "   |      ^\n"
	                           "   = note: 2 more lines name a rank that is not there: 7, 16\n"
	                           "error[E1006]: slot 0 of rank 0 is of class aux, not `stash.0`\n"
	                           "   --> x.pps:11:17\n"
	                           " 11 | fwd s0 m0 - - - stash.0\n"
	                           "    |                 ^^^^^^^\n"
	                           "    = help: write `aux.0`, or name another slot\n"
	                           "    = note: 1 more line names slot 0 of rank 0 as another class: 12\n"
	                           "error[E1005]: there is no microbatch 4: `grid` says 4, so 0..3\n"
	                           "   --> x.pps:13:8\n"
	                           " 13 | fwd s0 m4 - - - -\n"
	                           "    |        ^^\n"
	                           "    = note: 1 more line names a microbatch that is not there: 14\n");
	free(found);
	pp_arena_destroy(f.arena);
}

static void a_misspelt_word_gets_a_suggestion(void **state)
{
	(void)state;
	struct pp_arena *arena = pp_arena_create(NULL);
	const char *wrong = in_rank(arena, "snd c0 #0 out.1 s0 m0 f32*2");
	struct fixture f = read_text(wrong, strlen(wrong));
	char *found = messages(&f, PP_DIAG_HUMAN);
	assert_string_equal(found, "error[E1002]: unknown instruction `snd`\n"
	                           "  --> x.pps:9:1\n"
	                           " 9 | snd c0 #0 out.1 s0 m0 f32*2\n"
	                           "   | ^^^\n"
	                           "   = help: did you mean `send`?\n");
	free(found);
	pp_arena_destroy(f.arena);
	pp_arena_destroy(arena);
}

static void twenty_errors_stop_the_reading(void **state)
{
	(void)state;
	char *text = malloc(64 + 1000 * 8);
	strcpy(text, "pps 1\ngrid pp 1 microbatches 1\n");
	for (int i = 0; i < 1000; i++)
		strcat(text, "bogus\n");
	struct fixture f = read_text(text, strlen(text));
	assert_null(f.program);
	assert_int_equal(pp_diag_errors(f.diag), 20);
	pp_arena_destroy(f.arena);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(everything_prints_as_written),
	    cmocka_unit_test(values_arrive),
	    cmocka_unit_test(short_texts_get_defaults),
	    cmocka_unit_test(one_instruction_prints_for_messages),
	    cmocka_unit_test(doubles_read_back),
	    cmocka_unit_test(mistakes_in_instructions),
	    cmocka_unit_test(mistakes_in_tables),
	    cmocka_unit_test(mistakes_in_bodies),
	    cmocka_unit_test(reading_goes_on_after_an_error),
	    cmocka_unit_test(one_cause_one_message),
	    cmocka_unit_test(a_misspelt_word_gets_a_suggestion),
	    cmocka_unit_test(twenty_errors_stop_the_reading),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
