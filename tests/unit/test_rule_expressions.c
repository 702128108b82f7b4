/* Compiled expressions of rules against the general evaluator. */
#include "policy_fixture.h"

#include "compiler/policy/expression.h"
#include "support/random.h"

static const char *random_truth(struct pp_arena *arena, uint64_t *seed, int depth);

/* Of a right kind, but now and then. */
static const char *random_leaf(uint64_t *seed)
{
	static const char *const leaves[] = {"F", "B", "I", "W", "F.0", "W.1", "B.last", "r",     "p",
	                                     "v", "m", "0", "1", "3",   "7",   "2.5",    "inner", "outer"};
	static const char *const odd[] = {"true", "4GiB", "mem", "9e18", "sqrt(p)", "-2", "len([F])", "I.5", "around"};
	if (random_below(seed, 25) == 0)
		return odd[random_below(seed, sizeof odd / sizeof *odd)];
	return leaves[random_below(seed, sizeof leaves / sizeof *leaves)];
}

static const char *random_number(struct pp_arena *arena, uint64_t *seed, int depth)
{
	if (depth == 0 || random_below(seed, 5) == 0)
		return random_leaf(seed);
	const char *a = random_number(arena, seed, depth - 1), *b = random_number(arena, seed, depth - 1);
	static const char *const functions[] = {"floor", "ceil", "abs", "sqrt", "-", "max", "min", "sum"};
	uint32_t choice = random_below(seed, 20);
	if (choice < 5)
		return pp_arena_printf(arena, "(%s(%s))", functions[choice], a);
	if (choice < 8)
		return pp_arena_printf(arena, "%s(%s, 1, %s)", functions[choice], a, b);
	if (choice == 8)
		return pp_arena_printf(arena, "(%s ? %s : %s)", random_truth(arena, seed, depth - 1), a, b);
	return pp_arena_printf(arena, "(%s %c %s)", a, "+-*/%+-*"[random_below(seed, 8)], b);
}

static const char *random_truth(struct pp_arena *arena, uint64_t *seed, int depth)
{
	static const char *const comparisons[] = {"<", "<=", ">", ">=", "==", "!="};
	if (depth > 0 && random_below(seed, 3) == 0) {
		const char *a = random_truth(arena, seed, depth - 1), *b = random_truth(arena, seed, depth - 1);
		static const char *const forms[] = {"or", "and", "=="};
		uint32_t form = random_below(seed, 4);
		return form == 3 ? pp_arena_printf(arena, "(not %s)", a)
		                 : pp_arena_printf(arena, "(%s %s %s)", a, forms[form], b);
	}
	return pp_arena_printf(arena, "(%s %s %s)", random_number(arena, seed, depth), comparisons[random_below(seed, 6)],
	                       random_number(arena, seed, depth));
}

static struct pp_list_rank random_rank(uint64_t *seed, uint32_t chunks[2][PP_ACTION_KINDS])
{
	struct pp_list_rank rank = {.rank = random_below(seed, 2), .chunk = chunks};
	rank.chunks = 2 - rank.rank;
	for (uint32_t kind = 0; kind < PP_ACTION_KINDS; kind++)
		for (uint32_t chunk = 0; chunk < rank.chunks; chunk++)
			rank.done[kind] += chunks[chunk][kind] = random_below(seed, 6);
	return rank;
}

/* Both evaluate one expression. True: it has a value. */
static bool agree_once(struct expanded *x, uint64_t *seed)
{
	static const uint32_t stage_rank[] = {0, 1, 0};
	const char *limit = random_truth(x->arena, seed, 4);
	const char *text = pp_arena_printf(x->arena,
	                                   "schedule mine { let last = v - 1  let around = around  let outer = inner + B\n"
	                                   "policy { let inner = F * 2  limit %s } }\n",
	                                   limit);
	struct pp_ast *ast =
	    pp_parse(x->arena, x->strings, pp_sources_add(x->sources, "x.pipe", text, strlen(text)), x->diag);
	assert_true(pp_diag_ok(x->diag));
	const struct pp_rows_input input = {.block = ast->first,
	                                    .ranks = 2,
	                                    .stages = 3,
	                                    .microbatches = 8,
	                                    .stage_rank = stage_rank,
	                                    .strings = x->strings,
	                                    .sources = x->sources};
	const struct pp_stmt *policy = pp_rules_block(ast->first);
	const struct pp_expr *expr = policy->body->next->value;
	struct pp_rule_names names;
	pp_rule_names_create(x->arena, &input, policy, &names);
	struct pp_machine *machine = pp_machine_create(x->arena, &names);
	struct pp_compiled compiled;
	assert_true(pp_machine_compile(machine, expr, x->diag, &compiled) && pp_machine_ready(machine, x->diag));
	uint32_t chunks[2][PP_ACTION_KINDS];
	struct pp_list_rank rank = random_rank(seed, chunks);
	struct pp_counters counters = {.rank = &rank, .kind = random_below(seed, 5), .bytes = random_next(seed) >> 28};
	struct pp_diag *by_machine = pp_diag_create(x->arena, x->sources), *by_rule = pp_diag_create(x->arena, x->sources);
	bool got = false, wanted = false;
	struct pp_rule_eval rule;
	pp_rule_eval_open(&rule, x->arena, &names, rank.rank, rank.chunks, &counters, by_rule);
	bool ok = pp_machine_truth(machine, &compiled, &counters, "`limit`", by_machine, &got);
	if (ok != pp_eval_truth(&rule.eval, expr, "`limit`", &wanted) || got != wanted)
		fail_msg("%s", text);
	assert_int_equal(pp_diag_errors(by_machine), pp_diag_errors(by_rule));
	return ok;
}

/* The machine says what the general evaluator says, or reports the same. */
static void machine_and_evaluator_agree(void **state)
{
	(void)state;
	uint64_t seed = 11;
	unsigned values = 0;
	for (int i = 0; i < 3000; i++) {
		struct expanded x = expanded_create();
		values += agree_once(&x, &seed);
		expanded_free(&x);
	}
	assert_in_range(values, 1000, 2800);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(machine_and_evaluator_agree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
