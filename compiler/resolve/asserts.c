/* Asserts: those on metrics wait for the schedule, the others are checked at once. A failed one shows what it found and
 * what it wanted (E0203). */
#include "resolver.h"

#include <string.h>

static bool is_literal(const struct pp_expr *expr)
{
	return expr->kind == PP_EXPR_INT || expr->kind == PP_EXPR_REAL || expr->kind == PP_EXPR_QUANTITY ||
	       expr->kind == PP_EXPR_STRING;
}

static bool is_comparison(const struct pp_expr *expr)
{
	return expr->kind == PP_EXPR_BINARY && expr->op >= PP_EQ && expr->op <= PP_GE;
}

static const char *sign_of(enum pp_operator op)
{
	static const char *const signs[] = {
	    [PP_EQ] = "==", [PP_NE] = "!=", [PP_LT] = "<", [PP_GT] = ">", [PP_LE] = "<=", [PP_GE] = ">="};
	return signs[op];
}

/* NULL when an operand cannot be evaluated: that is reported. */
static struct pp_message *report(struct pp_eval *eval, const struct pp_stmt *stmt)
{
	const struct pp_expr *expr = stmt->value;
	const char *message = stmt->text.text ? pp_arena_printf(eval->arena, ": \"%s\"", stmt->text.text) : "";
	struct pp_datum left, right;
	if (!is_comparison(expr))
		return pp_error(eval->diag, "E0203", expr->span, "assertion failed: %s is false%s",
		                pp_eval_quote(eval, expr->span), message);
	if (!pp_eval_expr(eval, expr->a, &left) || !pp_eval_expr(eval, expr->b, &right))
		return NULL;
	const char *wanted = is_literal(expr->b) ? pp_eval_quote(eval, expr->b->span) : pp_datum_text(eval->arena, &right);
	const char *found = pp_datum_text(eval->arena, &left);
	if (left.kind == PP_DATUM_NUMBER && !left.exact && pp_dimension_equal(left.dimension, PP_PURE))
		found = pp_arena_printf(eval->arena, "%.4g", left.real);
	return pp_error(eval->diag, "E0203", expr->span, "assertion failed: %s = %s, wanted %s %s%s",
	                pp_eval_quote(eval, expr->a->span), found, sign_of(expr->op), wanted, message);
}

/* False when it fails or cannot be evaluated: both are reported. `predicted`: it is on metrics of the schedule. */
static bool check(struct pp_eval *eval, const struct pp_stmt *stmt, bool predicted)
{
	bool truth;
	if (!stmt->value || !pp_eval_truth(eval, stmt->value, "`assert`", &truth))
		return false;
	if (truth)
		return true;
	struct pp_message *message = report(eval, stmt);
	if (message && predicted)
		pp_help(message, "to see what the ranks wait for: the same command with --emit=program, into `pipedump -`");
	return false;
}

static void keep(struct pp_resolver *resolver, const struct pp_assertion *assertion, size_t *capacity)
{
	struct pp_resolved *out = resolver->out;
	struct pp_assertion *kept = (struct pp_assertion *)out->asserts;
	*PP_PUSH(resolver->arena, &kept, &out->assert_count, capacity, struct pp_assertion) = *assertion;
	out->asserts = kept;
}

static size_t list_metrics(void *context, const char **names, size_t room)
{
	(void)context;
	size_t count = 0;
	for (; count < PP_METRIC_COUNT && count < room; count++)
		names[count] = pp_metric_name[count];
	return count;
}

void pp_asserts_check_now(struct pp_resolver *resolver)
{
	size_t capacity = 0;
	for (size_t i = 0; i < resolver->assert_count; i++) {
		const struct pp_assertion *assertion = &resolver->asserts[i];
		if (assertion->stmt->value && pp_expr_mentions_metric(assertion->stmt->value)) {
			keep(resolver, assertion, &capacity);
			continue;
		}
		/* Metrics have no value yet; their names are known for suggestions. */
		struct pp_scope metrics = {.outer = assertion->scope, .list = list_metrics, .noun = "metrics"};
		resolver->eval.scope = &metrics;
		check(&resolver->eval, assertion->stmt, false);
	}
	resolver->eval.scope = &resolver->main->scope;
}

bool pp_asserts_check(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_metrics *metrics,
                      struct pp_diag *diag)
{
	const struct pp_datum values[PP_METRIC_COUNT] = {
	    pp_datum_real(metrics->bubble, PP_PURE),        pp_datum_real(metrics->span_bubble, PP_PURE),
	    pp_datum_real(metrics->time_per_step, PP_TIME), pp_datum_real(metrics->peak_memory, PP_BYTES),
	    pp_datum_real(metrics->mfu, PP_PURE),           pp_datum_real(metrics->imbalance, PP_PURE),
	};
	struct pp_binding names[PP_METRIC_COUNT];
	for (size_t i = 0; i < PP_METRIC_COUNT; i++)
		names[i] = (struct pp_binding){pp_intern_z(resolved->strings, pp_metric_name[i]), values[i]};
	bool ok = true;
	for (size_t i = 0; i < resolved->assert_count; i++) {
		struct pp_scope scope = {
		    .outer = resolved->asserts[i].scope, .bindings = names, .count = PP_METRIC_COUNT, .noun = "metrics"};
		struct pp_eval eval = {.arena = arena, .sources = resolved->sources, .diag = diag, .scope = &scope};
		ok &= check(&eval, resolved->asserts[i].stmt, true);
	}
	return ok;
}
