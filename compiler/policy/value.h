/* Values of compiled rule expressions: truths and fractions of 64 bits with a dimension. What does not fit, or does not
 * exist, is no value: the general evaluator then knows better, or reports why. */
#ifndef PP_RULE_VALUE_H
#define PP_RULE_VALUE_H

#include "compiler/eval/datum.h"
#include "grammar/ast.h"

/* UNSET: of a constant that was not needed yet. */
enum pp_rule_kind { PP_RULE_UNSET, PP_RULE_NONE, PP_RULE_TRUTH, PP_RULE_WHOLE, PP_RULE_FRACTION };

struct pp_rule_value {
	int64_t top, bottom; /* TRUTH: top is 0 or 1 */
	uint8_t kind;        /* enum pp_rule_kind */
	struct pp_dimension dimension;
};

extern const struct pp_rule_value pp_rule_no_value;

struct pp_rule_value pp_rule_whole(int64_t number);
struct pp_rule_value pp_rule_truth(bool is);
struct pp_rule_value pp_rule_of_rational(struct pp_rational number, struct pp_dimension dimension);
struct pp_rule_value pp_rule_of_datum(const struct pp_datum *datum);

struct pp_rule_value pp_rule_binary(enum pp_operator op, struct pp_rule_value a, struct pp_rule_value b);
struct pp_rule_value pp_rule_negated(struct pp_rule_value a);
struct pp_rule_value pp_rule_absolute(struct pp_rule_value a);
struct pp_rule_value pp_rule_rounded(struct pp_rule_value a, bool up);

/* The smaller (sign -1) or larger (1) of two numbers. */
struct pp_rule_value pp_rule_extreme(struct pp_rule_value a, struct pp_rule_value b, int sign);

#endif
