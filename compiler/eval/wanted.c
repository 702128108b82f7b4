/* Values of a wanted kind: whole numbers, ranges, truth values; with both operands in the message where a division is
 * not whole (E0202). */
#include "eval.h"

#include <math.h>

static void report_not_whole(struct pp_eval *eval, const struct pp_expr *expr, const char *what,
                             const struct pp_datum *datum)
{
	const char *value = pp_datum_text(eval->arena, datum);
	struct pp_datum a, b, rest;
	if (expr->kind == PP_EXPR_BINARY && expr->op == PP_DIV && pp_eval_expr(eval, expr->a, &a) &&
	    pp_eval_expr(eval, expr->b, &b) && a.exact && b.exact && pp_rational_is_whole(a.number) &&
	    pp_rational_is_whole(b.number)) {
		rest = a;
		if (pp_rational_modulo(a.number, b.number, &rest.number)) {
			struct pp_message *message =
			    pp_error(eval->diag, "E0202", expr->span, "%s must be whole, but %s / %s = %s (remainder %s)", what,
			             pp_datum_text(eval->arena, &a), pp_datum_text(eval->arena, &b), value,
			             pp_datum_text(eval->arena, &rest));
			pp_help(message, "use floor(), ceil() or another divisor");
			return;
		}
	}
	struct pp_message *message = pp_error(eval->diag, "E0202", expr->span, "%s must be whole, got %s", what, value);
	pp_help(message, "use floor() or ceil()");
}

bool pp_datum_to_whole(struct pp_eval *eval, const struct pp_expr *expr, const char *what, const struct pp_datum *datum,
                       int64_t *out)
{
	if (datum->kind != PP_DATUM_NUMBER || !pp_dimension_equal(datum->dimension, PP_PURE)) {
		pp_eval_mismatch(eval, expr, what, "a whole number", datum);
		return false;
	}
	if (!datum->exact) {
		if (datum->real != floor(datum->real)) {
			report_not_whole(eval, expr, what, datum);
			return false;
		}
		if (fabs(datum->real) <= 9007199254740992.0) {
			*out = (int64_t)datum->real;
			return true;
		}
	} else if (!pp_rational_is_whole(datum->number)) {
		report_not_whole(eval, expr, what, datum);
		return false;
	} else if (pp_rational_int64(datum->number, out)) {
		return true;
	}
	pp_error(eval->diag, "E0204", expr->span, "%s = %s is too large", what, pp_datum_text(eval->arena, datum));
	return false;
}

bool pp_eval_whole(struct pp_eval *eval, const struct pp_expr *expr, const char *what, int64_t *out)
{
	struct pp_datum datum;
	return pp_eval_expr(eval, expr, &datum) && pp_datum_to_whole(eval, expr, what, &datum, out);
}

bool pp_eval_range(struct pp_eval *eval, const struct pp_expr *range, const char *what, int64_t *first, int64_t *last)
{
	return pp_eval_whole(eval, range->a, what, first) && pp_eval_whole(eval, range->b, what, last);
}

bool pp_eval_truth(struct pp_eval *eval, const struct pp_expr *expr, const char *what, bool *out)
{
	struct pp_datum datum;
	if (!pp_eval_expr(eval, expr, &datum))
		return false;
	if (datum.kind != PP_DATUM_BOOL) {
		pp_eval_mismatch(eval, expr, what, "true or false", &datum);
		return false;
	}
	*out = datum.truth;
	return true;
}
