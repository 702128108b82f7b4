/* What a policy's run is told of: rules without effect, ties, and where and why it is stuck. */
#ifndef PP_RULES_REPORT_H
#define PP_RULES_REPORT_H

#include "rules.h"

/* W0630, W0631, W0632, after a run that finished. */
void pp_rules_warn(const struct pp_rules *rules);

/* Lines about the ties that the run resolved, in the arena; NULL: there were none. */
const char *pp_rules_remarks(struct pp_arena *arena, const struct pp_rules *rules, const struct pp_rows_input *input,
                             const struct pp_list *list);

/* E0630: after a run that got stuck. Where the room holds it back but so does something else in any memory, that is
 * said instead. `advise`: say what would help, which is found by trying. */
void pp_rules_report_stuck(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                           const struct pp_order_problem *problem, struct pp_list *list, bool advise);

/* A change of one limit, which holds back the rank as it stands, under which it finishes (advice.c). limit NULL: the
 * room holds it back. Texts in the arena. */
struct pp_advice {
	const char *lines[2];
	unsigned count;
};
struct pp_advice pp_rules_advise(struct pp_arena *arena, struct pp_rules *rules, const struct pp_rows_input *input,
                                 const struct pp_order_problem *problem, struct pp_limit *limit,
                                 const struct pp_list_rank *blamed);

#endif
