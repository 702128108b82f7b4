/* Rules against known schedules: op for op, makespans, peaks; what they say of themselves; where they get stuck. */
#include "policy_fixture.h"

#include "compiler/policy/list.h"
#include "support/random.h"

static const struct costs unit = {.f = 10, .i = 10, .w = 10, .held = 100};

/* ---- known results (docs/own-schedules.md) ---------------------------------------------------- */

static void same_as_1f1b(void **state)
{
	(void)state;
	static const struct {
		uint32_t p, m;
	} sizes[] = {{1, 1}, {2, 1}, {2, 8}, {3, 5}, {4, 2}, {4, 8}, {5, 3}, {8, 24}, {16, 64}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct shape shape = {.p = sizes[i].p, .v = 1, .m = sizes[i].m};
		struct expanded rules = run_rules("limit F - B <= p - r  prefer B > F", shape, unit, NULL);
		struct expanded rows = expand_named("1f1b", shape);
		assert_true(rules.ok && rows.ok);
		assert_same_rows(&rules.schedule, &rows.schedule);
		expanded_free(&rules);
		expanded_free(&rows);
	}
}

static const char h1_rules[] = "limit F - I <= p - r  limit F - W <= p  prefer F > I > W";
static const char h1_rows[] = "order for r { F*(p-r-1) (F I)*r (F I W)*(m-p+1) (I W)*(p-r-1) W*r }";

static void same_as_zb_h1(void **state)
{
	(void)state;
	static const struct {
		uint32_t p, m;
	} sizes[] = {{2, 4}, {3, 7}, {4, 8}, {6, 6}, {8, 24}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct shape shape = {.p = sizes[i].p, .v = 1, .m = sizes[i].m};
		struct expanded rules = run_rules(h1_rules, shape, unit, NULL);
		struct expanded rows = expand_text(h1_rows, shape);
		assert_true(rules.ok && rows.ok);
		assert_same_rows(&rules.schedule, &rows.schedule);
		expanded_free(&rules);
		expanded_free(&rows);
	}
}

static void as_good_as_zb_h2(void **state)
{
	(void)state;
	static const struct {
		uint32_t p, m;
	} sizes[] = {{2, 4}, {4, 8}, {4, 12}, {8, 24}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct shape shape = {.p = sizes[i].p, .v = 1, .m = sizes[i].m};
		const struct pp_order_problem *problem;
		struct expanded rules =
		    run_rules("limit F - I <= 2*(p - r) - 1  limit F - W <= 2*p - 1  prefer F > I > W", shape, unit, &problem);
		struct expanded rows =
		    expand_text("order for r { F*(2*(p-r-1)) (F I)*(2*r) (F I W)*(m-2*p+2) (I W)*(2*(p-r-1)) W*(2*r) }", shape);
		struct pp_order_times a = times_of(&rules, problem), b = times_of(&rows, problem);
		assert_int_equal(a.makespan, b.makespan);
		assert_int_equal(peak_stashes(problem, &a), peak_stashes(problem, &b));
		expanded_free(&rules);
		expanded_free(&rows);
	}
}

/* 6m + p - 1 half-units at 1F1B's peak memory. */
static void v_placement(void **state)
{
	(void)state;
	static const struct {
		uint32_t p, m;
	} sizes[] = {{2, 4}, {3, 6}, {4, 8}, {6, 12}, {8, 16}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint32_t p = sizes[i].p, m = sizes[i].m;
		struct shape shape = {.p = p, .v = 2, .m = m, .place = PP_PLACE_V};
		const struct pp_order_problem *problem;
		struct expanded x = run_rules("limit F - W <= 2*p  prefer F.1 > F.0 > I > W", shape, unit, &problem);
		struct pp_order_times times = times_of(&x, problem);
		assert_int_equal(times.makespan, 10 * (6 * m + p - 1));
		assert_int_equal(peak_stashes(problem, &times), 2 * p);
		expanded_free(&x);
	}
}

/* With I : W = 1.3 : 0.7 and hops of 0.1 the rows end 4 % earlier: p = 8, m = 24. */
static void cost_sensitive(void **state)
{
	(void)state;
	struct shape shape = {.p = 8, .v = 1, .m = 24};
	const struct pp_order_problem *problem;
	struct expanded rules = run_rules(h1_rules, shape, (struct costs){.f = 10, .i = 13, .w = 7, .hop = 1}, &problem);
	struct expanded rows = expand_text(h1_rows, shape);
	assert_int_equal(times_of(&rules, problem).makespan, 895);
	assert_int_equal(times_of(&rows, problem).makespan, 860);
	expanded_free(&rules);
	expanded_free(&rows);
}

/* A total limit alone lets chunk 0 take all the room; a limit on chunk 0 besides needs the same memory and finishes. */
static void stuck_on_a_total(void **state)
{
	(void)state;
	struct shape shape = {.p = 4, .v = 2, .m = 8, .place = PP_PLACE_V};
	for (int total = 4; total <= 7; total++) {
		char text[200];
		snprintf(text, sizeof text, "limit F - W <= %d  prefer F.1 > F.0 > I > W", total);
		struct expanded x = run_rules(text, shape, unit, NULL);
		assert_false(x.ok);
		expanded_free(&x);
	}
	struct expanded x = run_rules("limit F - W <= 6  prefer F.1 > F.0 > I > W", shape, unit, NULL);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 90ns: rank 0 has F.1 of microbatch 0 ready, and this limit holds it back\n"
	    "  --> x.pipe:1:26\n"
	    " 1 | schedule mine { policy { limit F - W <= 6  prefer F.1 > F.0 > I > W } }\n"
	    "   |                          ^^^^^^^^^^^^^^^^ after it: 7 on the left, 6 on the right\n"
	    "   = note: done on rank 0: F.0 6, F.1 0\n"
	    "   = note: ready and held back: rank 0: F.0 of microbatch 6; rank 0: F.1 of microbatch 0; rank 1: F.0 of "
	    "microbatch 5; rank 1: F.1 of microbatch 1; …\n"
	    "   = help: with `limit F.0 - W.0 <= 5` besides it ends after 530ns\n"
	    "   = help: with `limit F - W <= 8` in its place it ends after 510ns\n");
	expanded_free(&x);
	const struct pp_order_problem *problem;
	x = run_rules("limit F - W <= 6  limit F.0 - W.0 <= 5  prefer F.1 > F.0 > I > W", shape, unit, &problem);
	struct pp_order_times times = times_of(&x, problem);
	assert_int_equal(times.makespan, 530); /* 26.5 forwards of a rank */
	assert_int_equal(peak_stashes(problem, &times), 6);
	expanded_free(&x);
}

/* ---- the room -------------------------------------------------------------------------------- */

static void keeps_within_the_room(void **state)
{
	(void)state;
	struct shape shape = {.p = 4, .v = 1, .m = 12};
	struct costs costs = {.f = 10, .i = 12, .w = 7, .hop = 2, .held = 100, .early = 30, .more_split = 20, .room = 450};
	const struct pp_order_problem *problem;
	struct expanded x = run_rules("prefer I > F > W", shape, costs, &problem);
	struct pp_order_times times = times_of(&x, problem);
	assert_true(times.fits);
	uint64_t most = 0;
	for (uint32_t r = 0; r < 4; r++)
		most = times.rank[r].peak > most ? times.rank[r].peak : most;
	assert_in_range(most, 351, 450);
	expanded_free(&x);
}

static void mem_is_bytes(void **state)
{
	(void)state;
	struct shape shape = {.p = 4, .v = 1, .m = 12};
	struct costs costs = {.f = 10, .i = 10, .w = 10, .held = 1024, .more_fused = 512};
	const struct pp_order_problem *problem;
	struct expanded x = run_rules("limit mem <= 3.5KiB  prefer B > F", shape, costs, &problem);
	assert_clean(&x);
	struct pp_order_times times = times_of(&x, problem);
	assert_int_equal(times.rank[0].peak, 3584); /* three stashes and what a backward needs besides */
	expanded_free(&x);
	x = run_rules("limit mem <= 3  prefer B > F", shape, costs, NULL);
	assert_string_equal(expanded_messages(&x, PP_DIAG_HUMAN),
	                    "error[E0201]: `<=` cannot combine bytes with a number\n"
	                    "  --> x.pipe:1:36\n"
	                    " 1 | schedule mine { policy { limit mem <= 3  prefer B > F } }\n"
	                    "   |                                --- 1KiB\n"
	                    "   |                                    ^^\n"
	                    "   |                                       - 3\n"
	                    "   = help: write the number with its unit, such as `3MiB`\n");
	expanded_free(&x);
}

static void stuck_on_the_room(void **state)
{
	(void)state;
	struct shape shape = {.p = 4, .v = 2, .m = 8, .place = PP_PLACE_V};
	struct costs costs = {.f = 10, .i = 10, .w = 10, .held = 1024, .room = 6 * 1024};
	struct expanded x = run_rules("prefer F.1 > F.0 > I > W", shape, costs, NULL);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 90ns: rank 0 has F.1 of microbatch 0 ready, and takes 1.0 KiB more than the "
	    "room for stashes\n"
	    "  --> x.pipe:1:1\n"
	    " 1 | schedule mine { policy { prefer F.1 > F.0 > I > W } }\n"
	    "   | ^^^^^^^^\n"
	    "   = note: done on rank 0: F.0 6, F.1 0\n"
	    "   = note: ready and held back: rank 0: F.0 of microbatch 6; rank 0: F.1 of microbatch 0; rank 1: F.0 of "
	    "microbatch 5; rank 1: F.1 of microbatch 1; …\n"
	    "   = help: with `limit F.0 - W.0 <= 5` besides it ends after 530ns\n");
	expanded_free(&x);
	costs.room = 512;
	x = run_rules("limit F + F < 5  prefer F > B", shape, costs, NULL); /* more room alone would not do */
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 50ns: rank 2 has F.1 of microbatch 0 ready, and this limit holds it back\n"
	    "  --> x.pipe:1:26\n"
	    " 1 | schedule mine { policy { limit F + F < 5  prefer F > B } }\n"
	    "   |                          ^^^^^^^^^^^^^^^ after it: 6 on the left, 5 on the right\n"
	    "   = note: done on rank 2: F.0 2, F.1 0\n"
	    "   = note: ready and held back: rank 0: F.0 of microbatch 2; rank 2: F.1 of microbatch 0; rank 3: F.0 of "
	    "microbatch 1\n"
	    "   = note: this is without a bound on memory; with it, rank 0 lacks 512 B for F.0 at 0ns\n"
	    "   = help: with `limit F + F < 33` in its place it ends after 570ns\n");
	expanded_free(&x);
	x = run_schedule("policy { prefer F.1 > F.0 > I > W }", shape, costs, NULL, true);
	assert_int_equal(pp_diag_errors(x.diag), 1); /* a draft has no advice */
	assert_null(strstr(expanded_messages(&x, PP_DIAG_HUMAN), "help"));
	expanded_free(&x);
}

/* ---- meaning --------------------------------------------------------------------------------- */

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

static void assert_rules(const char *rules, struct shape shape, struct costs costs, const char *expected)
{
	struct expanded x = run_rules(rules, shape, costs, NULL);
	assert_clean(&x);
	assert_string_equal(csv(&x), expected);
	expanded_free(&x);
}

static void first_line_that_holds(void **state)
{
	(void)state;
	struct shape shape = {.p = 1, .v = 1, .m = 4};
	assert_rules("prefer F when F < 3  prefer B > F", shape, unit, "0F0,0F1,0F2,0B0,0B1,0B2,0F3,0B3\n");
	assert_rules("prefer F when F < m  prefer B", shape, unit, "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n");
	assert_rules("limit F - B <= 1 when F > 2  prefer F > B", shape, unit, "0F0,0F1,0B0,0B1,0F2,0B2,0F3,0B3\n");
	assert_rules("let ahead = F - B  let most = 3  limit ahead <= most  prefer F > B", shape, unit,
	             "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n");
	assert_rules("prefer B > F when B < 2  prefer I > F > W", shape, unit, "0F0,0B0,0F1,0B1,0F2,0I2,0F3,0I3,0W2,0W3\n");
}

static void ties_and_chunks(void **state)
{
	(void)state;
	struct shape shape = {.p = 1, .v = 2, .m = 2};
	assert_rules("prefer F > B", shape, unit, "0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n");
	assert_rules("prefer F.(F.0 > 0 ? 1 : 0) > F > B.1 > B.0", shape, unit, "0F0,1F0,0F1,1F1,1B0,1B1,0B0,0B1\n");
	assert_rules("let last = v - 1  prefer F.last > B.last > B.0 > F.0", shape, unit,
	             "0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n");
	struct expanded x = run_rules("prefer F > B", shape, unit, NULL);
	assert_string_equal(x.schedule.remarks, "x.pipe:1:33: `F`: several chunks were ready 1 time; first on rank 0 at "
	                                        "10ns: F.1 of microbatch 0 was taken\n"
	                                        "x.pipe:1:37: `B`: several chunks were ready 1 time; first on rank 0 at "
	                                        "60ns: B.0 of microbatch 0 was taken\n");
	expanded_free(&x);
	x = run_rules("prefer F.0 > F.1 > B.1 > B.0", shape, unit, NULL);
	assert_null(x.schedule.remarks);
	expanded_free(&x);
}

/* Ranks with different numbers of stages: a rule for a chunk is of no matter where there is none. */
static void uneven_chunks(void **state)
{
	(void)state;
	static const uint32_t list[] = {0, 1, 0};
	struct shape shape = {.p = 2, .v = 1, .m = 3, .list = list, .stages = 3};
	assert_rules("limit F.1 - B.1 <= 1  prefer F.1 > F.0 > B", shape, unit,
	             "0F0,0F1,2F0,0F2,2B0,2F1,2B1,2F2,0B0,0B1,2B2,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
}

static void no_time_and_recompute(void **state)
{
	(void)state;
	struct shape shape = {.p = 3, .v = 1, .m = 2};
	assert_rules("prefer B > F", shape, (struct costs){.held = 1},
	             "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n");
}

/* ---- messages -------------------------------------------------------------------------------- */

static void assert_says(const char *text, struct shape shape, bool ok, const char *expected)
{
	struct expanded x = run_schedule(text, shape, unit, NULL, false);
	assert_string_equal(expanded_messages(&x, PP_DIAG_SHORT), expected);
	assert_int_equal(x.ok, ok);
	expanded_free(&x);
}

static void rules_without_effect(void **state)
{
	(void)state;
	struct shape shape = {.p = 2, .v = 1, .m = 4};
	assert_says("policy { limit F - B <= 100  prefer B > F }", shape, true,
	            "x.pipe:1:26: warning: this limit never holds anything back [W0630]\n");
	assert_says("policy { prefer B > F  prefer F > B when r == 0 }", shape, true,
	            "x.pipe:1:40: warning: the turn of this `prefer` never comes [W0631]\n");
	assert_says("policy { prefer B > F > I > W }", shape, true,
	            "x.pipe:1:41: warning: this line never takes this action [W0632]\n"
	            "x.pipe:1:45: warning: this line never takes this action [W0632]\n");
}

static void wrong_rules(void **state)
{
	(void)state;
	struct shape shape = {.p = 2, .v = 1, .m = 4};
	static const struct {
		const char *text, *expected;
	} wrong[] = {
	    {"policy { }", "17: error: this policy has no `prefer`: it never takes an action [E0633]"},
	    {"policy { limit F <= 3 }", "17: error: this policy has no `prefer`: it never takes an action [E0633]"},
	    {"policy { prefer B > I > W }", "26: error: no `prefer` of this policy takes F [E0633]"},
	    {"policy { prefer F > W }", "26: error: no `prefer` of this policy takes B, or I and W [E0633]"},
	    {"policy { prefer I > F }", "26: error: no `prefer` of this policy takes W [E0633]"},
	    {"policy { prefer F3 > B }",
	     "33: error: `prefer` names kinds of actions: F, B, I, W, or those of a chunk: F.1 [E0631]"},
	    {"policy { prefer 0F3 > B }",
	     "33: error: `prefer` names kinds of actions: F, B, I, W, or those of a chunk: F.1 [E0631]"},
	    {"policy { prefer F[2] > B }",
	     "33: error: `prefer` names kinds of actions: F, B, I, W, or those of a chunk: F.1 [E0631]"},
	    {"policy { prefer F > mem }",
	     "37: error: `prefer` names kinds of actions: F, B, I, W, or those of a chunk: F.1 [E0631]"},
	    {"policy { prefer F.1 > B }", "33: error: `prefer`: there is no chunk 1 [E0609]"},
	    {"policy { limit F.1 <= 2  prefer B > F }", "32: error: counter `F.1`: there is no chunk 1 [E0609]"},
	    {"policy { limit F.99999999999 <= 2  prefer B > F }",
	     "32: error: counter `F.99999999999`: there is no chunk 9223372036854775807 [E0609]"},
	    {"policy { prefer B > F } order { F B | F B }",
	     "17: error: a schedule has either rules (`policy`) or rows (`order`) [E0632]"},
	    {"policy { limit F / B <= 2  prefer B > F }", "34: error: division by zero [E0205]"},
	    {"policy { limit F  prefer B > F }", "32: error: `limit` wants true or false, got a number (1) [E0201]"},
	    {"policy { prefer B > F when F }", "44: error: `when` wants true or false, got a number (0) [E0201]"},
	    {"policy { limit F - B <= 1 when F + true  prefer B > F }",
	     "50: error: `+` cannot combine a number with true or false [E0201]"},
	    {"policy { limit F * 9e30 * 9e30 <= 1  prefer B > F }",
	     "32: error: the value of `F * 9e30 * 9e30` is too large [E0204]"},
	    {"let a = b + F  let b = a  policy { limit a <= 1  prefer B > F }",
	     "21: error: `let a` depends on itself [E0107]"},
	    {"policy { let a = a  limit a <= 1  prefer B > F }", "30: error: `let a` depends on itself [E0107]"},
	    {"policy { limit unknown <= F  prefer B > F }", "32: error: unknown name `unknown` [E0110]"},
	    {"policy { prefer B.(F / 2) > F }", "35: error: chunk must be whole, but 1 / 2 = 0.5 (remainder 1) [E0202]"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char expected[300];
		snprintf(expected, sizeof expected, "x.pipe:1:%s\n", wrong[i].expected);
		assert_says(wrong[i].text, shape, false, expected);
	}
}

/* Sums of sums, circles and floods are refused in little time and stack. */
static void hostile_rules(void **state)
{
	(void)state;
	struct shape shape = {.p = 2, .v = 1, .m = 4};
	struct pp_arena *arena = pp_arena_create(NULL);
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	fputs("let a0 = F  ", out);
	for (int i = 1; i < 400; i++)
		fprintf(out, "let a%d = a%d - a%d + F  ", i, i - 1, i - 1);
	fputs("policy { limit a399 - B <= p - r  prefer B > F }", out);
	fclose(out);
	assert_says(text, shape, true, "");
	free(text);
	out = open_memstream(&text, &length);
	fputs("policy { ", out);
	for (int i = 0; i < 1025; i++)
		fputs("limit F <= 9  ", out);
	fputs("prefer B > F }", out);
	fclose(out);
	assert_says(text, shape, false, "x.pipe:1:14362: error: this policy has more than 1024 rules, or lets [E0623]\n");
	free(text);
	out = open_memstream(&text, &length);
	fputs("let a0 = F  policy { ", out);
	for (int i = 1; i < 1025; i++)
		fprintf(out, "let a%d = a%d  ", i, i - 1);
	fputs("prefer B > F }", out);
	fclose(out);
	assert_says(text, shape, false, "x.pipe:1:29: error: this policy has more than 1024 rules, or lets [E0623]\n");
	free(text);
	const char *sum = "F";
	for (int i = 0; i < 500; i++)
		sum = pp_arena_printf(arena, "%s + F", sum);
	text = pp_arena_printf(arena, "policy { %s", "");
	for (int i = 0; i < 40; i++)
		text = pp_arena_printf(arena, "%s limit %s < 9999", text, sum);
	text = pp_arena_printf(arena, "%s prefer B > F }", text);
	struct expanded x = run_schedule(text, shape, unit, NULL, false);
	assert_false(x.ok);
	assert_non_null(
	    strstr(expanded_messages(&x, PP_DIAG_SHORT), "the expressions of this policy are too long [E0623]"));
	expanded_free(&x);
	pp_arena_destroy(arena);
}

static void stuck(void **state)
{
	(void)state;
	struct shape shape = {.p = 2, .v = 1, .m = 4};
	struct expanded x = run_rules("limit false  prefer B > F", shape, unit, NULL);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 0ns: rank 0 has F of microbatch 0 ready, and this limit holds it back\n"
	    "  --> x.pipe:1:26\n"
	    " 1 | schedule mine { policy { limit false  prefer B > F } }\n"
	    "   |                          ^^^^^^^^^^^\n"
	    "   = note: done on rank 0: nothing\n"
	    "   = help: without this limit it ends after 150ns\n");
	expanded_free(&x);
	x = run_rules("prefer F when F < 2  prefer B > F when r == 1", shape, unit, NULL);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 70ns: rank 0 has B of microbatch 0 ready, and no `prefer` holds now\n"
	    "  --> x.pipe:1:47\n"
	    " 1 | schedule mine { policy { prefer F when F < 2  prefer B > F when r == 1 } }\n"
	    "   |                                               ^^^^^^^^^^^^^^^^^^^^^^^^\n"
	    "   = note: done on rank 0: F 2\n"
	    "   = note: ready and held back: rank 0: F of microbatch 2; rank 0: B of microbatch 0; rank 0: I of microbatch "
	    "0\n"
	    "   = help: add `prefer B` without `when` as the last line\n");
	expanded_free(&x);
	x = run_rules("limit F - I < 2 - r  limit 4*p > 2*W + 6  prefer I > F > W", shape, unit, NULL);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 10ns: rank 1 has F of microbatch 0 ready, and this limit holds it back\n"
	    "  --> x.pipe:1:26\n"
	    " 1 | schedule mine { policy { limit F - I < 2 - r  limit 4*p > 2*W + 6  prefer I > F > W } }\n"
	    "   |                          ^^^^^^^^^^^^^^^^^^^ after it: 1 on the left, 1 on the right\n"
	    "   = note: done on rank 1: nothing\n"
	    "   = note: ready and held back: rank 0: F of microbatch 1; rank 1: F of microbatch 0\n"
	    "   = help: without `limit F - I < 2 - r` and `limit 4*p > 2*W + 6` it ends after 130ns\n");
	expanded_free(&x);
	x = run_rules("limit F - W <= 1  prefer F > I when W == 0  prefer F > I > W when W > 0", shape, unit, NULL);
	assert_string_equal(
	    expanded_messages(&x, PP_DIAG_HUMAN),
	    "error[E0630]: `mine` is stuck at 40ns: rank 0 has F of microbatch 1 ready, and this limit holds it back\n"
	    "  --> x.pipe:1:26\n"
	    " 1 | schedule mine { policy { limit F - W <= 1  prefer F > I when W == 0  prefer F > I > W when W > 0 } }\n"
	    "   |                          ^^^^^^^^^^^^^^^^ after it: 2 on the left, 1 on the right\n"
	    "   = note: done on rank 0: F 1, I 1\n"
	    "   = note: ready and held back: rank 0: F of microbatch 1; rank 0: W of microbatch 0; rank 1: W of microbatch "
	    "0\n"
	    "   = help: without any limit it does not finish either: the `prefer` lines and their `when` have to change\n");
	expanded_free(&x);
}

/* ---- the list itself ------------------------------------------------------------------------- */

/* Backwards, then the deepest chunk. */
static uint32_t choose_backward(void *context, uint64_t now, const struct pp_list_rank *rank,
                                const struct pp_list_candidate *ready, uint32_t count)
{
	uint32_t best = PP_LIST_WAIT;
	(void)context;
	(void)now;
	(void)rank;
	for (uint32_t i = 0; i < count; i++) {
		if (ready[i].kind != PP_F && ready[i].kind != PP_B)
			continue;
		if (best == PP_LIST_WAIT || ready[i].kind != ready[best].kind || ready[i].chunk > ready[best].chunk)
			best = i;
	}
	return best;
}

/* What the list says is what its rows take, also where messages of two chunks wait for each other: `hop` above all
 * else.
 */
static uint64_t run_list(uint64_t hop, bool queued)
{
	struct pp_arena *arena = pp_arena_create(NULL);
	struct shape shape = {.p = 2, .v = 2, .m = 3};
	struct costs costs = unit;
	costs.hop = hop;
	struct pp_order_problem *problem = problem_of(arena, &shape, costs);
	problem->queued = queued;
	uint64_t time = 0;
	struct pp_list *list = pp_list_create(arena, problem);
	const struct pp_list_chooser chooser = {choose_backward, NULL};
	for (int again = 0; again < 2; again++) {
		struct pp_order_times times;
		assert_int_equal(pp_list_run(list, &chooser), PP_LIST_FINISHED);
		assert_int_equal(pp_list_count(list), 24);
		assert_true(pp_order_run(arena, problem, pp_list_rows(list), false, &times));
		assert_int_equal(times.makespan, pp_list_time(list));
		assert_int_equal(pp_list_rank_of(list, 1)->done[PP_B], 6);
		assert_int_equal(pp_list_rank_of(list, 1)->bytes, 0);
		time = times.makespan;
	}
	pp_arena_destroy(arena);
	return time;
}

static void other_choosers(void **state)
{
	(void)state;
	for (uint64_t hop = 0; hop < 60; hop += 3) {
		uint64_t free = run_list(hop, false), queued = run_list(hop, true);
		assert_true(hop <= unit.f ? queued == free : queued >= free);
		assert_true(hop < 30 || queued > free);
	}
}

/* What the list computes as it goes is what pp_order_run makes of its rows. */
static void agrees_with_the_order(void **state)
{
	(void)state;
	static const char *const rules[] = {
	    "prefer B > F",
	    "limit F - I <= 3 + r  limit F - W <= 2*p*v  prefer I > F > W",
	    "limit mem <= 4KiB when r > 0  limit F - W <= 3*p*v  prefer F when F < v  prefer I > W when F % 2 == 1  prefer "
	    "I "
	    "> F > W",
	};
	uint64_t seed = 5;
	for (int i = 0; i < 60; i++) {
		struct shape shape = {.p = 1 + random_below(&seed, 6),
		                      .v = 1 + random_below(&seed, 3),
		                      .m = 1 + random_below(&seed, 14),
		                      .place = (enum pp_place)random_below(&seed, 2)};
		struct costs costs = {.f = random_below(&seed, 20),
		                      .i = random_below(&seed, 20),
		                      .w = random_below(&seed, 20),
		                      .hop = random_below(&seed, 5),
		                      .held = 1};
		const struct pp_order_problem *problem;
		struct expanded x = run_rules(rules[i % 3], shape, costs, &problem);
		if (x.ok) {
			struct pp_order_times times = times_of(&x, problem);
			struct pp_list *list = pp_list_create(x.arena, problem);
			(void)list;
			assert_true(times.fits);
		} else {
			assert_non_null(strstr(expanded_messages(&x, PP_DIAG_SHORT), "E0630"));
		}
		expanded_free(&x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_as_1f1b),          cmocka_unit_test(same_as_zb_h1),
	    cmocka_unit_test(as_good_as_zb_h2),      cmocka_unit_test(v_placement),
	    cmocka_unit_test(cost_sensitive),        cmocka_unit_test(stuck_on_a_total),
	    cmocka_unit_test(keeps_within_the_room), cmocka_unit_test(mem_is_bytes),
	    cmocka_unit_test(stuck_on_the_room),     cmocka_unit_test(first_line_that_holds),
	    cmocka_unit_test(ties_and_chunks),       cmocka_unit_test(uneven_chunks),
	    cmocka_unit_test(no_time_and_recompute), cmocka_unit_test(rules_without_effect),
	    cmocka_unit_test(wrong_rules),           cmocka_unit_test(stuck),
	    cmocka_unit_test(hostile_rules),         cmocka_unit_test(other_choosers),
	    cmocka_unit_test(agrees_with_the_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
