/* Rows to actions: numbering, chunks, loops, weaving, pairs, and the message of everything that can be wrong. */
#include "rows_fixture.h"

#include "support/random.h"

static const char *csv(const struct expanded *x)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	pp_schedule_print(&x->schedule, out);
	fclose(out);
	const char *copy = pp_arena_copy(x->arena, text, length);
	free(text);
	return copy;
}

static void assert_rows(const char *body, struct shape shape, const char *expected)
{
	struct expanded x = expand_text(body, shape);
	assert_clean(&x);
	assert_string_equal(csv(&x), expected);
	expanded_free(&x);
}

static void assert_wrong(const char *body, struct shape shape, const char *expected)
{
	struct expanded x = expand_text(body, shape);
	assert_refused(&x, expected);
	expanded_free(&x);
}

/* The first line only, for long rows. */
static void assert_summary(const char *body, struct shape shape, const char *expected)
{
	struct expanded x = expand_text(body, shape);
	assert_false(x.ok);
	assert_int_equal(pp_diag_errors(x.diag), 1);
	assert_string_equal(expanded_messages(&x, PP_DIAG_SHORT), expected);
	expanded_free(&x);
}

/* ---- meaning --------------------------------------------------------------------------------- */

static void rows_and_numbers(void **state)
{
	(void)state;
	static const char expected[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
	struct shape shape = {.p = 2, .v = 1, .m = 2};
	assert_rows("order { F F B B | F B F B }", shape, expected);
	assert_rows("order { F*m B*m | (F B)*m }", shape, expected);
	assert_rows("order { F0 F1 B0 B1 | F[0] B[0] F[0+1] B[1] }", shape, expected);
	assert_rows("order { F[0..m-1] B[0..1] | for i in 0..m-1 { F[i] B[i] } }", shape, expected);
	assert_rows("order { 0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 1B1 }", shape, expected);
	assert_rows("order { _ F _*3 F B B _ | F B F B }", shape, expected);
	assert_rows("order for r { weave (p-r-1) {F*m} {B*m} }", shape, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
	assert_rows("order for q { F*(q == 0 ? 2 : 1) B F*(r) B }", shape, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
	assert_rows("order for r in 0..p-2 { F*m B*m } order for r in p-1..p-1 { (F B)*m }", shape, expected);
	assert_rows("let half = m - k  let k = m / 2  order for r { weave (min(half*2-1, p-r-1)) {F*m} {B*m} }", shape,
	            expected);
	assert_rows("order { F[1] F[0..0] F[1..0] B1 B0 | F1 B1 F0 B0 }", shape, "0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n");
}

static void split_backward(void **state)
{
	(void)state;
	struct shape one = {.p = 1, .v = 1, .m = 3}, two = {.p = 1, .v = 2, .m = 2};
	assert_rows("order { F I W F B F I W }", one, "0F0,0I0,0W0,0F1,0B1,0F2,0I2,0W2\n");
	assert_rows("order { F*3 I*3 W*3 }", one, "0F0,0F1,0F2,0I0,0I1,0I2,0W0,0W1,0W2\n");
	assert_rows("order { F0 F1 F2 I0 I1 W1 W0 B2 }", one, "0F0,0F1,0F2,0I0,0I1,0W1,0W0,0B2\n");
	assert_rows("order { F*2 F.1*2 I.1 I I.1 W W W I W }", two, "0F0,0F1,1F0,1F1,1I0,0I0,1I1,1W0,0W0,1W1,0I1,0W1\n");
	assert_rows("order { F*2 F.1*2 I.1 I I.1 W.0 W.1 I W W }", two,
	            "0F0,0F1,1F0,1F1,1I0,0I0,1I1,0W0,1W0,0I1,1W1,0W1\n");
	assert_rows("order { F*2 F.1*2 I.1*2 I*2 W.1 W W.0 W }", two, "0F0,0F1,1F0,1F1,1I0,1I1,0I0,0I1,1W0,1W1,0W0,0W1\n");
}

/* ZB-H1, p = 3, m = 4. */
static void zero_bubble_rows(void **state)
{
	(void)state;
	assert_rows("order for r { F*(p-r-1) (F I)*r (F I W)*(m-p+1) (I W)*(p-r-1) W*r }",
	            (struct shape){.p = 3, .v = 1, .m = 4},
	            "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
	            "1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3\n"
	            "2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3\n");
}

/* Chunk c is the c-th stage of the rank, ascending, for any placement. */
static void chunks(void **state)
{
	(void)state;
	static const uint32_t list[] = {0, 1, 0, 2, 0};
	const char *body = "order for r { for c in 0..v-1 { F.c } for c in 0..v-1 { B.(v-1-c) } }";
	assert_rows(body, (struct shape){.p = 2, .v = 2, .m = 1}, "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n");
	assert_rows(body, (struct shape){.p = 2, .v = 2, .m = 1, .place = PP_PLACE_V},
	            "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
	assert_rows(body, (struct shape){.p = 2, .v = 2, .m = 1, .place = PP_PLACE_LINEAR},
	            "0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n");
	assert_rows(body, (struct shape){.p = 3, .m = 1, .list = list, .stages = 5},
	            "0F0,2F0,4F0,4B0,2B0,0B0\n1F0,1B0\n3F0,3B0\n");
	assert_rows("order { F0 F0.1 B0.1 B0 | F[0].0 F[0].1 3B0 1B0 }", (struct shape){.p = 2, .v = 2, .m = 1},
	            "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n");
}

static void weaves(void **state)
{
	(void)state;
	struct shape shape = {.p = 1, .v = 1, .m = 4};
	assert_rows("order { weave 0 {F*m} {B*m} }", shape, "0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n");
	assert_rows("order { weave 2 {F*m} {B*m} }", shape, "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n");
	assert_rows("order { weave 99 {F*m} {B*m} }", shape, "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n");
	assert_rows("order { F*2 weave 0 {F*2} {B} B*3 }", shape, "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n");
	assert_rows("order { F weave 1 {F weave 1 {F*2} {}} {B*2} B*2 }", shape, "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n");
	assert_rows("order { (weave 0 {F*2} {B*2})*2 }", shape, "0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n");
	assert_rows("order { F weave 0 {(F&B)*3} {} B }", shape,
	            "0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,(0F3;0B2)OVERLAP_F_B,0B3\n");
	assert_rows("order { F*2 weave 0 {F&B F&B} {B*2} }", shape,
	            "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,(0F3;0B2)OVERLAP_F_B,0B3\n");
}

/* A round of an inner weave is one turn of the outer one. */
static void woven_turns(void **state)
{
	(void)state;
	struct shape shape = {.p = 1, .v = 1, .m = 4};
	assert_rows("order { weave 2 {F*m} { weave 1 {I*m} {W*m} } }", shape,
	            "0F0,0F1,0F2,0I0,0F3,0I1,0W0,0I2,0W1,0I3,0W2,0W3\n");
	assert_rows("order { weave 1 { weave 1 {F*m} {I*m} } {W*m} }", shape,
	            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0F3,0I2,0W2,0I3,0W3\n");
	assert_rows("order { weave 0 {F*m} { weave 0 {I*m} { weave 0 {W*m} {} } } }", shape,
	            "0F0,0I0,0W0,0F1,0I1,0W1,0F2,0I2,0W2,0F3,0I3,0W3\n");
	assert_rows("order { weave 1 {F*2} { (weave 0 {I} {W})*2 } F*2 B*2 }", shape,
	            "0F0,0F1,0I0,0W0,0I1,0W1,0F2,0F3,0B2,0B3\n");
}

/* DualPipe-V, p = 2, m = 4: pairs, W.1, ranks of a V. */
static void pairs(void **state)
{
	(void)state;
	assert_rows("order for r { F*(2*(p-r-1)) (F F.1)*(r+1) (I.1 W.1 F.1)*(p-r-1)\n"
	            "(F&B.1 F.1&B)*(m-2*p+r+1) (B.1 F.1&B)*(p-r-1)\n"
	            "(B.1 B)*(floor((r+1)/2)) (B.1 I)*((r+1)%2) (I.1 I)*(floor((r+1)/2)) (W I)*(p-r-1) W*(r+1) }",
	            (struct shape){.p = 2, .v = 2, .m = 4, .place = PP_PLACE_V},
	            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,"
	            "0I2,0W2,0I3,0W3\n"
	            "1F0,2F0,1F1,2F1,(1F2;2B0)OVERLAP_F_B,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,"
	            "2B2,1B2,2I3,1I3,2W3,1W3\n");
}

/* A row written for four microbatches, with three and with one: what is left of a pair stands alone. */
static void surplus(void **state)
{
	(void)state;
	const char *body = "order { F*4 F.1 I.1 (F.1&B B.1)*3 B W }";
	struct expanded x = expand_surplus(body, (struct shape){.p = 1, .v = 2, .m = 3});
	assert_string_equal(expanded_messages(&x, PP_DIAG_HUMAN), "");
	assert_string_equal(csv(&x), "0F0,0F1,0F2,1F0,1I0,(1F1;0B0)OVERLAP_F_B,1B1,(1F2;0B1)OVERLAP_F_B,1B2,0B2,1W0\n");
	expanded_free(&x);
	x = expand_surplus(body, (struct shape){.p = 1, .v = 2, .m = 1});
	assert_string_equal(expanded_messages(&x, PP_DIAG_HUMAN), "");
	assert_string_equal(csv(&x), "0F0,1F0,1I0,0B0,1W0\n");
	expanded_free(&x);
	x = expand_surplus("order { F*2 B*3 }", (struct shape){.p = 1, .v = 1, .m = 3});
	assert_string_equal(expanded_messages(&x, PP_DIAG_SHORT),
	                    "x.pipe:1:25: error: rank 0: `F` count is 2, wanted m = 3 [E0603]\n");
	expanded_free(&x);
	x = expand_surplus("order for r { F*m B*m }", (struct shape){.p = 8192, .v = 1, .m = 1});
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_SHORT),
	    "error: schedule is too large: 8192 stages x 16384 microbatches are at least 268435456 actions, "
	    "67108864 are possible [E0623]\n");
	expanded_free(&x);
}

/* The interleaved order as one line of the language's example 5 is the library's where p divides m. */
static void interleaved_row_is_the_library_one(void **state)
{
	(void)state;
	struct shape shape = {.p = 4, .v = 2, .m = 8};
	struct expanded written =
	    expand_text("order for r { weave (2*(p-r-1) + (v-1)*p) { (for c in 0..v-1 { F.c*p })*(m/p) } "
	                "{ (for c in 0..v-1 { B.(v-1-c)*p })*(m/p) } }",
	                shape);
	struct expanded named = expand_named("interleaved", shape);
	assert_true(written.ok && named.ok);
	assert_string_equal(csv(&written), csv(&named));
	expanded_free(&named);
	expanded_free(&written);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

static void wrong_counts(void **state)
{
	(void)state;
	struct shape one = {.p = 1, .v = 1, .m = 3}, two = {.p = 1, .v = 2, .m = 2};
	assert_wrong("order { F*2 B*3 }", one,
	             "error[E0603]: rank 0: `F` count is 2, wanted m = 3\n"
	             "  --> x.pipe:1:25\n"
	             " 1 | schedule mine { order { F*2 B*3 } }\n"
	             "   |                         ^\n"
	             "   = help: add 1\n");
	assert_summary("order { F*3 B*4 }", one, "x.pipe:1:29: error: rank 0: `B` count is 4, wanted m = 3 [E0603]\n");
	assert_summary("order { F*3 I*2 W*2 }", one, "x.pipe:1:29: error: rank 0: `I` count is 2, wanted m = 3 [E0603]\n");
	assert_summary("order { F*3 I*3 W*2 }", one,
	               "x.pipe:1:33: error: rank 0: `W` count is 2, wanted 3, as many as `I` [E0603]\n");
	assert_summary("order { F*3 B*3 W }", one,
	               "x.pipe:1:33: error: rank 0: `W` count is 1, wanted 0, as many as `I` [E0603]\n");
	assert_summary("order { F*2 B*2 F.1*2 I.1 B.1*2 }", two,
	               "x.pipe:1:43: error: rank 0: `B.1` and `I.1` count is 3, wanted m = 2 [E0603]\n");
	assert_summary("order { F*2 B*2 F.1*2 I.1*2 W.0*2 }", two,
	               "x.pipe:1:45: error: rank 0: `W.0` count is 2, wanted 0, as many as `I.0` [E0603]\n");
	assert_summary("order { }", one, "x.pipe:1:17: error: rank 0: `F` count is 0, wanted m = 3 [E0603]\n");
	assert_summary("order { F0 F0 F1 B0 B1 B2 }", one, "x.pipe:1:28: error: rank 0: `F0` is listed twice [E0603]\n");
}

static void wrong_repeats(void **state)
{
	(void)state;
	assert_wrong("order for r { (F B)*(m-p+1) F*(p-1) B*(p-1) }", (struct shape){.p = 8, .v = 1, .m = 4},
	             "error[E0604]: repeat count m-p+1 is -3 for rank 0 (m = 4, p = 8)\n"
	             "  --> x.pipe:1:37\n"
	             " 1 | schedule mine { order for r { (F B)*(m-p+1) F*(p-1) B*(p-1) } }\n"
	             "   |                                     ^^^^^^^\n"
	             "   = help: a count is 0 or more; max(0, ...) leaves the part out\n");
	assert_summary("order for r { F*m B*m weave (-1) {F} {B} }", (struct shape){.p = 1, .v = 1, .m = 4},
	               "x.pipe:1:45: error: weave count -1 is -1 for rank 0 [E0604]\n");
	assert_summary("let a = r - 1 order for r { F*(a + min(r, p)) B*m }", (struct shape){.p = 2, .v = 1, .m = 4},
	               "x.pipe:1:47: error: repeat count a + min(r, p) is -1 for rank 0 (a = -1, p = 2) [E0604]\n");
	assert_summary("order for r { F*(m/3) B*m }", (struct shape){.p = 1, .v = 1, .m = 4},
	               "x.pipe:1:33: error: repeat count must be whole, but 4 / 3 = 1.333333 (remainder 1) [E0202]\n");
	assert_summary("order for r { F*n B*m }", (struct shape){.p = 1, .v = 1, .m = 4},
	               "x.pipe:1:33: error: unknown name `n` [E0110]\n");
	assert_summary("let a = b let b = a order for r { F*a B*m }", (struct shape){.p = 1, .v = 1, .m = 4},
	               "x.pipe:1:21: error: `let a` depends on itself [E0107]\n");
}

static void wrong_actions(void **state)
{
	(void)state;
	struct shape two = {.p = 2, .v = 2, .m = 4}, one = {.p = 2, .v = 1, .m = 4};
	assert_wrong("order for r { F*m B*m F.2 }", two,
	             "error[E0609]: action `F.2`: rank 0 holds 2 chunks (0..1)\n"
	             "  --> x.pipe:1:39\n"
	             " 1 | schedule mine { order for r { F*m B*m F.2 } }\n"
	             "   |                                       ^^^\n");
	assert_summary("order for r { F*m B.(0-1)*m }", one,
	               "x.pipe:1:35: error: action `B.(0-1)`: rank 0 holds 1 chunk (0) [E0609]\n");
	assert_summary("order { 1F0 | F*m B*m }", one,
	               "x.pipe:1:25: error: stage 1 lives on rank 1, not on rank 0 [E0609]\n");
	assert_summary("order { 7F0 | F*m B*m }", one,
	               "x.pipe:1:25: error: stage 7 does not exist; there are 2 stages (0..1) [E0609]\n");
	assert_summary("order { F4 | F*m B*m }", one, "x.pipe:1:25: error: microbatch 4 is outside 0..3 (m = 4) [E0622]\n");
	assert_summary("order { F99999999999999999999 | F*m B*m }", one,
	               "x.pipe:1:25: error: microbatch 99999999999999999999 is outside 0..3 (m = 4) [E0622]\n");
	assert_summary("order { F[0-1] | F*m B*m }", one,
	               "x.pipe:1:25: error: microbatch -1 is outside 0..3 (m = 4) [E0622]\n");
	assert_summary("order { 0F4 | F*m B*m }", one,
	               "x.pipe:1:25: error: microbatch 4 is outside 0..3 (m = 4) [E0622]\n");
	assert_summary("order { F0[1] | F*m B*m }", one,
	               "x.pipe:1:25: error: `F0` has a number already; write either F3 or F[3] [E0621]\n");
	assert_summary("order { G | F*m B*m }", one, "x.pipe:1:25: error: unknown action `G` [E0621]\n");
	assert_summary("order { Fx | F*m B*m }", one, "x.pipe:1:25: error: unknown action `Fx` [E0621]\n");
	assert_summary("order { R | F*m B*m }", one,
	               "x.pipe:1:25: error: action `R` (recompute, offload, reload) is not supported yet [E0010]\n");
	assert_summary("order { F&B&W | F*m B*m }", one, "x.pipe:1:29: error: only two actions can overlap [E0624]\n");
	assert_summary("order { F&_ | F*m B*m }", one, "x.pipe:1:27: error: `_` cannot be one half of a pair [E0624]\n");
	assert_summary("order { F[0..1]&B0 | F*m B*m }", one,
	               "x.pipe:1:25: error: a range cannot be one half of a pair; write the pair in a `for` [E0624]\n");
	static const uint32_t list[] = {0};
	assert_summary("order { F*m B*m | F }", (struct shape){.p = 2, .m = 4, .list = list, .stages = 1},
	               "x.pipe:1:35: error: action `F`: rank 1 holds no stage [E0609]\n");
}

static void wrong_order(void **state)
{
	(void)state;
	struct shape one = {.p = 1, .v = 1, .m = 2}, two = {.p = 2, .v = 1, .m = 2};
	assert_wrong(
	    "order { F*2 W I*2 W }", one,
	    "error[E0606]: rank 0: `W` comes before its `I`\n"
	    "  --> x.pipe:1:29\n"
	    " 1 | schedule mine { order { F*2 W I*2 W } }\n"
	    "   |                             ^\n"
	    "   = help: a W takes the oldest weight gradient that an earlier I of the rank has left; here none is left\n");
	assert_wrong("order { F0 F B*2 }", one,
	             "error[E0607]: row mixes numbered (`F0`) and unnumbered (`F`) actions\n"
	             "  --> x.pipe:1:28\n"
	             " 1 | schedule mine { order { F0 F B*2 } }\n"
	             "   |                         -- numbered\n"
	             "   |                            ^\n"
	             "   = help: number all actions of the row, or none\n");
	assert_summary("order { F*m B*m }", two, "x.pipe:1:17: error: order has 1 row, wanted p = 2 [E0620]\n");
	assert_summary("order { F*m B*m | F | F }", two, "x.pipe:1:17: error: order has 3 rows, wanted p = 2 [E0620]\n");
	assert_summary("order for r { F*m B*m | }", two,
	               "x.pipe:1:39: error: `|` separates rows and cannot stand inside one [E0620]\n");
	assert_summary("order for r in 0..0 { F*m B*m }", two,
	               "x.pipe:1:1: error: schedule `mine` has no row for rank 1 [E0620]\n");
	assert_summary("order for r in 0..2 { F*m B*m }", two,
	               "x.pipe:1:32: error: ranks 0..2 are not within 0..1 (p = 2) [E0620]\n");
	assert_summary("order for r { F*m B*m } order for r in 1..1 { F*m B*m }", two,
	               "x.pipe:1:41: error: rank 1 has a row already [E0620]\n");
	/* rows are judged one by one */
	struct expanded x = expand_text("order { F B*m | F*m B }", two);
	assert_int_equal(pp_diag_errors(x.diag), 2);
	expanded_free(&x);
}

/* Counts that no memory holds end at once. */
static void too_large(void **state)
{
	(void)state;
	struct shape one = {.p = 1, .v = 1, .m = 2};
	static const char *const bodies[] = {
	    "order { F*9223372036854775807 B*2 }",
	    "order { (F*1000000 B)*1000000000000 }",
	    "order { _*9223372036854775807 }",
	    "order { ()*1000000000000 }",
	    "order { for i in 0..9223372036854775807 { } }",
	    "order { for i in 0..1000000000 { for j in 0..1000000000 { F*0 } } }",
	    "order { weave 1000000000000 {(F)*1000000} {(B)*100000000} }",
	};
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
		struct expanded x = expand_text(bodies[i], one);
		assert_false(x.ok);
		assert_non_null(strstr(expanded_messages(&x, PP_DIAG_SHORT),
		                       "rank 0: this writes more actions than any row can have [E0623]"));
		assert_int_equal(pp_diag_errors(x.diag), 1);
		expanded_free(&x);
	}
	assert_summary("order for r { F*m B*m }", (struct shape){.p = 64, .v = 1, .m = 2147483647},
	               "error: schedule is too large: 64 stages x 2147483647 microbatches are at least 274877906816 "
	               "actions, 67108864 are possible "
	               "[E0623]\n");
}

/* Any pattern of the language ends with a schedule that is right, or with a message. */
static void random_patterns(void **state)
{
	(void)state;
	static const char *const words[] = {
	    "F",
	    "F",
	    "B",
	    "B",
	    "I",
	    "W",
	    "F*m",
	    "B*m",
	    "F.1",
	    "B.1",
	    "W.1",
	    "F&B",
	    "F0",
	    "B1",
	    "0F0",
	    "1B0",
	    "F[r]",
	    "F[0..m-1]",
	    "_",
	    "(F B)*m",
	    "(F B)*(m-2)",
	    "|",
	    "weave 1 {F*m} {B*m}",
	    "weave (m-p) {F*m B} {B}",
	    "for c in 0..v-1 { F.c*m }",
	    "for c in 0..v-1 { B.(v-1-c)*m }",
	    "for i in 0..m-1 { F[i] B[i] }",
	    "F*1000000000000",
	    "I*m",
	    "W*m",
	    "(I W)*m",
	};
	static const enum pp_place places[] = {PP_PLACE_LOOP, PP_PLACE_V, PP_PLACE_LINEAR};
	uint64_t seed = 11;
	uint32_t accepted = 0;
	for (int round = 0; round < 6000; round++) {
		char body[1024];
		size_t length = (size_t)snprintf(body, sizeof body, random_below(&seed, 4) ? "order for r { " : "order { ");
		for (uint32_t i = 0, count = 1 + random_below(&seed, 3); i < count; i++) {
			const char *word = words[random_below(&seed, sizeof words / sizeof words[0])];
			length += (size_t)snprintf(body + length, sizeof body - length, "%s ", word);
		}
		snprintf(body + length, sizeof body - length, "}");
		struct shape shape = {.p = 1 + random_below(&seed, 3),
		                      .v = 1 + random_below(&seed, 2),
		                      .m = 1 + random_below(&seed, 3),
		                      .place = places[random_below(&seed, 3)]};
		struct expanded x = expand_text(body, shape);
		assert_int_equal(x.ok, pp_diag_ok(x.diag));
		if (x.ok && makespan_of(&x) == 0)
			fail_msg("accepted, but never ends: %s", body);
		accepted += x.ok;
		expanded_free(&x);
	}
	assert_in_range(accepted, 80, 6000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_and_numbers),
	    cmocka_unit_test(split_backward),
	    cmocka_unit_test(zero_bubble_rows),
	    cmocka_unit_test(chunks),
	    cmocka_unit_test(weaves),
	    cmocka_unit_test(woven_turns),
	    cmocka_unit_test(pairs),
	    cmocka_unit_test(surplus),
	    cmocka_unit_test(interleaved_row_is_the_library_one),
	    cmocka_unit_test(wrong_counts),
	    cmocka_unit_test(wrong_repeats),
	    cmocka_unit_test(wrong_actions),
	    cmocka_unit_test(wrong_order),
	    cmocka_unit_test(too_large),
	    cmocka_unit_test(random_patterns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
