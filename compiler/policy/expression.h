/* Expressions of rules, compiled once and evaluated at every decision.
 *
 * Compiled: one list of instructions over values of 64 bits, for all ranks. Parts without counters are constants of the
 * rank, evaluated when first needed. Where a value does not come out (too large, a division by zero, a function or a
 * mixture that this machine does not know), the general evaluator decides: it gives the value, or reports the error. */
#ifndef PP_POLICY_EXPRESSION_H
#define PP_POLICY_EXPRESSION_H

#include "rule_names.h"

struct pp_machine;

/* An expression in the machine: its instructions, the last of which is its value. */
struct pp_compiled {
	const struct pp_expr *expr; /* NULL: there is none */
	uint32_t first, end;
};

struct pp_machine *pp_machine_create(struct pp_arena *arena, const struct pp_rule_names *names);

/* False: E0623, reported: expressions beyond what a policy can need. */
bool pp_machine_compile(struct pp_machine *machine, const struct pp_expr *expr, struct pp_diag *diag,
                        struct pp_compiled *out);

/* Once all are compiled. */
bool pp_machine_ready(struct pp_machine *machine, struct pp_diag *diag);

/* False: reported to diag. `what` names what is wanted, as in pp_eval_truth. */
bool pp_machine_truth(struct pp_machine *machine, const struct pp_compiled *compiled,
                      const struct pp_counters *counters, const char *what, struct pp_diag *diag, bool *out);
bool pp_machine_whole(struct pp_machine *machine, const struct pp_compiled *compiled,
                      const struct pp_counters *counters, const char *what, struct pp_diag *diag, int64_t *out);

/* For trials: does `a op b` hold where its larger side is so much larger? False: the sides are not whole numbers. */
bool pp_machine_raised(struct pp_machine *machine, const struct pp_compiled sides[2], enum pp_operator op,
                       int64_t raised, const struct pp_counters *counters, bool *out);

/* By the general evaluator, for messages: the value lies in `arena`. */
bool pp_machine_value(struct pp_machine *machine, struct pp_arena *arena, const struct pp_compiled *compiled,
                      const struct pp_counters *counters, struct pp_diag *diag, struct pp_datum *out);

#endif
