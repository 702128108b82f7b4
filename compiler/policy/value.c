/* Arithmetic of rules. */
#include "value.h"

const struct pp_rule_value pp_rule_no_value = {.kind = PP_RULE_NONE};

struct pp_rule_value pp_rule_whole(int64_t number)
{
	return (struct pp_rule_value){.top = number, .bottom = 1, .kind = PP_RULE_WHOLE};
}

struct pp_rule_value pp_rule_truth(bool is)
{
	return (struct pp_rule_value){.top = is, .bottom = 1, .kind = PP_RULE_TRUTH};
}

struct pp_rule_value pp_rule_of_rational(struct pp_rational number, struct pp_dimension dimension)
{
	if (number.top < INT64_MIN || number.top > INT64_MAX || number.bottom > INT64_MAX)
		return pp_rule_no_value;
	return (struct pp_rule_value){.top = (int64_t)number.top,
	                              .bottom = (int64_t)number.bottom,
	                              .kind = number.bottom == 1 ? PP_RULE_WHOLE : PP_RULE_FRACTION,
	                              .dimension = dimension};
}

static struct pp_rational rational_of(struct pp_rule_value value)
{
	return (struct pp_rational){value.top, value.bottom};
}

struct pp_rule_value pp_rule_of_datum(const struct pp_datum *datum)
{
	if (datum->kind == PP_DATUM_BOOL)
		return pp_rule_truth(datum->truth);
	if (datum->kind == PP_DATUM_NUMBER && datum->exact)
		return pp_rule_of_rational(datum->number, datum->dimension);
	return pp_rule_no_value;
}

static bool is_number(struct pp_rule_value a)
{
	return a.kind == PP_RULE_WHOLE || a.kind == PP_RULE_FRACTION;
}

static bool same_dimension(struct pp_rule_value a, struct pp_rule_value b)
{
	return pp_dimension_equal(a.dimension, b.dimension);
}

static struct pp_rule_value compare(enum pp_operator op, struct pp_rule_value a, struct pp_rule_value b)
{
	int order;
	if (a.kind == PP_RULE_WHOLE && b.kind == PP_RULE_WHOLE && same_dimension(a, b))
		order = (a.top > b.top) - (a.top < b.top);
	else if (is_number(a) && is_number(b) && same_dimension(a, b))
		order = pp_rational_compare(rational_of(a), rational_of(b));
	else if (a.kind == PP_RULE_TRUTH && b.kind == PP_RULE_TRUTH && (op == PP_EQ || op == PP_NE))
		order = (int)(a.top - b.top);
	else
		return pp_rule_no_value;
	const bool results[] = {
	    [PP_EQ] = order == 0, [PP_NE] = order != 0, [PP_LT] = order<0, [PP_GT] = order> 0,
	    [PP_LE] = order <= 0, [PP_GE] = order >= 0,
	};
	return pp_rule_truth(results[op]);
}

/* Whole numbers of 64 bits: sums and products fit 128. */
static struct pp_rule_value add_whole(enum pp_operator op, struct pp_rule_value a, struct pp_rule_value b)
{
	pp_wide x = a.top, y = b.top;
	pp_wide result = op == PP_ADD ? x + y : op == PP_SUB ? x - y : x * y;
	if (result < INT64_MIN || result > INT64_MAX)
		return pp_rule_no_value;
	return (struct pp_rule_value){.top = (int64_t)result, .bottom = 1, .kind = PP_RULE_WHOLE, .dimension = a.dimension};
}

/* Of pure numbers, or sums in one dimension; other mixtures are rare. */
static struct pp_rule_value calculate(enum pp_operator op, struct pp_rule_value a, struct pp_rule_value b)
{
	if (!is_number(a) || !is_number(b))
		return pp_rule_no_value;
	bool scales = op == PP_MUL || op == PP_DIV, pure = pp_dimension_equal(b.dimension, PP_PURE);
	if (scales && !pure && op == PP_MUL && pp_dimension_equal(a.dimension, PP_PURE))
		return calculate(op, b, a);
	if (op == PP_DIV && same_dimension(a, b))
		a.dimension = b.dimension = PP_PURE; /* a share */
	else if (scales ? !pure : !same_dimension(a, b))
		return pp_rule_no_value;
	if (a.kind == PP_RULE_WHOLE && b.kind == PP_RULE_WHOLE && op != PP_DIV && op != PP_MOD)
		return add_whole(op, a, b);
	struct pp_rational result, x = rational_of(a), y = rational_of(b);
	bool ok = op == PP_ADD   ? pp_rational_add(x, y, &result)
	          : op == PP_SUB ? pp_rational_subtract(x, y, &result)
	          : op == PP_MUL ? pp_rational_multiply(x, y, &result)
	          : op == PP_DIV ? pp_rational_divide(x, y, &result)
	                         : pp_rational_modulo(x, y, &result);
	return ok ? pp_rule_of_rational(result, a.dimension) : pp_rule_no_value;
}

/* `or` and `and` need not know the right side where the left one decides. */
static struct pp_rule_value either(enum pp_operator op, struct pp_rule_value a, struct pp_rule_value b)
{
	if (a.kind != PP_RULE_TRUTH || (a.top == (op == PP_OR)))
		return a.kind == PP_RULE_TRUTH ? a : pp_rule_no_value;
	return b.kind == PP_RULE_TRUTH ? b : pp_rule_no_value;
}

struct pp_rule_value pp_rule_binary(enum pp_operator op, struct pp_rule_value a, struct pp_rule_value b)
{
	if (op == PP_OR || op == PP_AND)
		return either(op, a, b);
	return op >= PP_EQ && op <= PP_GE ? compare(op, a, b) : calculate(op, a, b);
}

struct pp_rule_value pp_rule_extreme(struct pp_rule_value a, struct pp_rule_value b, int sign)
{
	if (!is_number(a) || !is_number(b) || !same_dimension(a, b))
		return pp_rule_no_value;
	return pp_rational_compare(rational_of(b), rational_of(a)) * sign > 0 ? b : a;
}

struct pp_rule_value pp_rule_negated(struct pp_rule_value a)
{
	if (!is_number(a) || a.top == INT64_MIN)
		return pp_rule_no_value;
	a.top = -a.top;
	return a;
}

struct pp_rule_value pp_rule_rounded(struct pp_rule_value a, bool up)
{
	if (a.kind != PP_RULE_FRACTION)
		return is_number(a) ? a : pp_rule_no_value;
	if (up)
		return pp_rule_negated(pp_rule_rounded(pp_rule_negated(a), false));
	return pp_rule_of_rational(pp_rational_floor(rational_of(a)), a.dimension);
}

struct pp_rule_value pp_rule_absolute(struct pp_rule_value a)
{
	if (!is_number(a))
		return pp_rule_no_value;
	return a.top < 0 ? pp_rule_negated(a) : a;
}
