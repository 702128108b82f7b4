/* Names that are mentioned: which params are used anywhere (E0108 needs to know), and whether every name in a schedule
 * means something, in schedules that are not expanded too (E0110). */
#include "resolver.h"

#include <string.h>

enum { ENOUGH_ERRORS = 1000 }; /* then nobody reads on; finding names that are near takes time */

const char *const pp_metric_name[PP_METRIC_COUNT] = {"bubble",      "span_bubble", "time_per_step",
                                                     "peak_memory", "mfu",         "imbalance"};

/* ---- walking --------------------------------------------------------------------------------- */

/* Names bound around an expression, innermost first. */
struct bound {
	const char *name;
	const struct bound *outer;
};

struct walk {
	struct pp_resolver *resolver;
	struct pp_module *module;
	bool check;  /* report unknown names; else only mark */
	bool policy; /* counters F B I W mem exist */
};

static bool is_bound(const struct bound *bound, const char *name)
{
	for (; bound; bound = bound->outer)
		if (bound->name && strcmp(bound->name, name) == 0)
			return true;
	return false;
}

static bool is_counter(const char *name)
{
	static const char *const counters[] = {"F", "B", "I", "W", "mem"};
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		if (strcmp(counters[i], name) == 0)
			return true;
	return false;
}

static void report_unknown(struct walk *walk, const struct bound *bound, const struct pp_expr *path)
{
	const char *names[256];
	size_t count = 0;
	for (; bound && count < 100; bound = bound->outer)
		if (bound->name && bound->name[1])
			names[count++] = bound->name;
	for (size_t i = 0; i < walk->module->count && count < 250; i++)
		if (walk->module->symbols[i].stmt->kind != PP_STMT_BLOCK)
			names[count++] = walk->module->symbols[i].key;
	struct pp_message *message =
	    pp_error(walk->resolver->diag, "E0110", path->span, "unknown name `%.60s`", path->text);
	const char *nearest = pp_nearest(path->text, names, count);
	if (nearest)
		pp_help(message, "did you mean `%s`?", nearest);
	else if (pp_eval_is_function(path->text))
		pp_help(message, "a count that calls a function stands in brackets: write `*(%s(...))`", path->text);
	else
		pp_help(message, walk->policy
		                     ? "rules know the counters F B I W (F.1 of a chunk) and mem, r (rank), p (ranks), v "
		                       "(stages on the rank), m (microbatches), params and lets"
		                     : "a schedule knows r (rank), p (ranks), v (stages on the rank), m (microbatches), loop "
		                       "variables, params and lets");
}

static bool is_attribute(const struct pp_expr *path)
{
	size_t length = (size_t)(strrchr(path->text, '.') - path->text);
	static const char *const titles[] = {"model",         "cluster",       "cluster.gpu", "cluster.gpu.flops",
	                                     "cluster.intra", "cluster.inter", "parallel",    "stages",
	                                     "schedule",      "train",         "run"};
	static const enum pp_block blocks[] = {PP_BLOCK_model,    PP_BLOCK_cluster, PP_BLOCK_gpu,      PP_BLOCK_flops,
	                                       PP_BLOCK_link,     PP_BLOCK_link,    PP_BLOCK_parallel, PP_BLOCK_stages,
	                                       PP_BLOCK_schedule, PP_BLOCK_train,   PP_BLOCK_run};
	for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
		if (strlen(titles[i]) == length && memcmp(titles[i], path->text, length) == 0)
			return pp_schema_attribute(blocks[i], path->parts[path->part_count - 1].text) != PP_ATTR_COUNT;
	return false;
}

static void visit_path(struct walk *walk, const struct bound *bound, const struct pp_expr *path)
{
	const char *first = path->parts[0].text;
	if (is_bound(bound, first))
		return;
	struct pp_module *owner;
	struct pp_symbol *symbol = pp_module_find_open(walk->module, first, &owner);
	if (symbol && symbol->target && path->part_count == 2)
		symbol = pp_module_find(symbol->target, path->parts[1].text);
	if (symbol && symbol->stmt->kind != PP_STMT_BLOCK) {
		symbol->used = true;
		return;
	}
	if (!walk->check || (walk->policy && is_counter(first)) || (path->part_count > 1 && is_attribute(path)))
		return;
	if (path->part_count == 1 && pp_schema_attribute(PP_BLOCK_schedule, first) != PP_ATTR_COUNT)
		return;
	report_unknown(walk, bound, path);
}

static void visit_expr(struct walk *walk, const struct bound *bound, const struct pp_expr *expr)
{
	for (; expr; expr = expr->next) {
		if (walk->check && (expr->kind == PP_EXPR_QUANTITY || expr->kind == PP_EXPR_INT || expr->kind == PP_EXPR_REAL))
			pp_eval_check_literal(&walk->resolver->eval, expr);
		if (expr->kind == PP_EXPR_PATH)
			visit_path(walk, bound, expr);
		if (expr->kind == PP_EXPR_CALL)
			visit_expr(walk, bound, expr->b);
		else if (expr->kind != PP_EXPR_PATH) {
			visit_expr(walk, bound, expr->a);
			visit_expr(walk, bound, expr->b);
			visit_expr(walk, bound, expr->c);
		}
	}
}

/* One expression, not those that follow it in a list. */
static void visit(struct walk *walk, const struct bound *bound, const struct pp_expr *expr)
{
	if (!expr)
		return;
	struct pp_expr alone = *expr;
	alone.next = NULL;
	visit_expr(walk, bound, &alone);
}

static void visit_actions(struct walk *walk, const struct bound *bound, const struct pp_action_ast *action)
{
	for (; action; action = action->next) {
		visit(walk, bound, action->index);
		visit(walk, bound, action->chunk);
	}
}

static void visit_pattern(struct walk *walk, const struct bound *bound, const struct pp_pattern *pattern)
{
	for (; pattern; pattern = pattern->next) {
		struct bound inner = {pattern->variable.text, bound};
		visit_actions(walk, bound, pattern->action);
		visit(walk, bound, pattern->repeat);
		visit(walk, bound, pattern->range);
		visit(walk, bound, pattern->count);
		visit_pattern(walk, pattern->kind == PP_PATTERN_FOR ? &inner : bound, pattern->body);
		visit_pattern(walk, bound, pattern->other);
	}
}

static void visit_stmt(struct walk *walk, const struct bound *bound, const struct pp_stmt *stmt)
{
	bool binds = stmt->kind == PP_STMT_FOR || stmt->kind == PP_STMT_ORDER;
	struct bound inner = {binds ? stmt->name.text : NULL, bound};
	visit(walk, bound, stmt->value);
	visit(walk, bound, stmt->range);
	visit(walk, bound, stmt->count);
	visit(walk, bound, stmt->condition);
	if (stmt->extends)
		visit(walk, bound, stmt->extends);
	visit(walk, bound, stmt->ref.index);
	visit(walk, bound, stmt->other.index);
	visit_actions(walk, bound, stmt->action);
	visit_pattern(walk, &inner, stmt->pattern);
	for (const struct pp_stmt *at = stmt->body; at; at = at->next)
		visit_stmt(walk, &inner, at);
}

void pp_names_mark(struct pp_resolver *resolver)
{
	for (size_t i = 0; i < resolver->module_count; i++) {
		struct walk walk = {.resolver = resolver, .module = resolver->modules[i]};
		for (const struct pp_stmt *stmt = walk.module->ast->first; stmt; stmt = stmt->next)
			visit_stmt(&walk, NULL, stmt);
	}
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* A counter in rules, and r, p, v, m everywhere, would be read in place of such a `let`. */
static void refuse_reserved(struct pp_resolver *resolver, const struct pp_stmt *body)
{
	for (const struct pp_stmt *at = body; at; at = at->next)
		if (at->kind == PP_STMT_LET)
			pp_module_refuse_reserved(resolver, at);
}

static const struct bound *bind_lets(struct pp_resolver *resolver, const struct bound *bound,
                                     const struct pp_stmt *body)
{
	for (const struct pp_stmt *at = body; at; at = at->next) {
		if (at->kind != PP_STMT_LET)
			continue;
		struct bound *let = PP_NEW(resolver->arena, struct bound);
		*let = (struct bound){at->name.text, bound};
		bound = let;
	}
	return bound;
}

static bool is_policy(const struct pp_stmt *stmt)
{
	return stmt->kind == PP_STMT_BLOCK && strcmp(stmt->name.text, "policy") == 0;
}

static void report_second(struct pp_resolver *resolver, const struct pp_stmt *first, const struct pp_stmt *second)
{
	struct pp_message *message =
	    pp_error(resolver->diag, "E0103", second->name.span, "this schedule has a `policy` already");
	pp_label(message, first->name.span, "the first");
	pp_help(message, "write all rules in one, or make two schedules of it");
}

static void check_rules(struct walk *walk, const struct bound *bound, const struct pp_stmt *policy)
{
	refuse_reserved(walk->resolver, policy->body);
	bound = bind_lets(walk->resolver, bound, policy->body);
	for (const struct pp_stmt *at = policy->body; at; at = at->next)
		if (at->kind == PP_STMT_LIMIT || at->kind == PP_STMT_PREFER || at->kind == PP_STMT_LET)
			visit_stmt(walk, bound, at);
	pp_section_check_body(walk->resolver, policy, walk->module);
}

static void check_schedule(struct pp_resolver *resolver, struct pp_module *module, const struct pp_stmt *schedule)
{
	struct bound names[4] = {{"r", NULL}, {"p", &names[0]}, {"v", &names[1]}, {"m", &names[2]}};
	const struct bound *bound = bind_lets(resolver, &names[3], schedule->body); /* known in its rows and rules */
	refuse_reserved(resolver, schedule->body);
	const struct pp_stmt *policy = NULL;
	struct walk walk = {.resolver = resolver, .module = module, .check = true};
	for (const struct pp_stmt *at = schedule->body; at; at = at->next) {
		if (!is_policy(at))
			continue;
		if (policy)
			report_second(resolver, policy, at);
		policy = at;
	}
	walk.policy = policy != NULL;
	for (const struct pp_stmt *at = schedule->body; at; at = at->next) {
		if (at->kind == PP_STMT_ORDER || at->kind == PP_STMT_LET)
			visit_stmt(&walk, bound, at);
		else if (is_policy(at))
			check_rules(&walk, bound, at);
	}
	pp_section_check_body(resolver, schedule, module);
	if (schedule != resolver->sections[PP_SECTION_SCHEDULE]->stmt)
		pp_section_fill(resolver, pp_section_make(resolver, PP_BLOCK_schedule, "schedule"), schedule, module, false);
}

void pp_names_check_schedules(struct pp_resolver *resolver)
{
	for (const struct pp_stmt *stmt = resolver->main->ast->first; stmt; stmt = stmt->next)
		if (stmt->kind == PP_STMT_BLOCK && strcmp(stmt->name.text, "schedule") == 0 &&
		    pp_diag_errors(resolver->diag) < ENOUGH_ERRORS)
			check_schedule(resolver, resolver->main, stmt);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static bool is_metric(const char *name)
{
	for (size_t i = 0; i < PP_METRIC_COUNT; i++)
		if (strcmp(pp_metric_name[i], name) == 0)
			return true;
	return false;
}

bool pp_expr_mentions_metric(const struct pp_expr *expr)
{
	for (; expr; expr = expr->next) {
		if (expr->kind == PP_EXPR_PATH) {
			if (expr->part_count == 1 && is_metric(expr->parts[0].text))
				return true;
			continue;
		}
		if ((expr->kind != PP_EXPR_CALL && pp_expr_mentions_metric(expr->a)) || pp_expr_mentions_metric(expr->b) ||
		    pp_expr_mentions_metric(expr->c))
			return true;
	}
	return false;
}
