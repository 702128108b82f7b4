/* `schedule search` of a spec: the search for its costs and its memory, from all named schedules that fit. */
#ifndef PP_SEARCH_MAKE_H
#define PP_SEARCH_MAKE_H

#include "compiler/resolve.h"
#include "ir/json.h"
#include "ir/order.h"
#include "ir/simulate.h"

#include <stdio.h>

/* requires: a spec that resolved without error, its policy `search`; the problem of its stages; `out` zeroed, or the
 * result of the round before, which the search then goes on from for a shorter time. `draft`: be quick. ensures: rows,
 * and out->search. Errors: E0640 no order fits the memory, E0623 too many actions; warning W0642 the
 * timeout struck. */
bool pp_search_make(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                    struct pp_diag *diag, const struct pp_order_problem *problem, bool draft, struct pp_schedule *out);

/* What pp_search_make would warn of, where its result is taken from elsewhere (split_contest.h). */
void pp_search_remind(struct pp_arena *arena, const struct pp_resolved *resolved, struct pp_sources *sources,
                      struct pp_diag *diag, const struct pp_order_problem *problem, const struct pp_schedule *schedule);

/* Give an order of one microbatch at a time the report of a search that found no other within the memory. */
void pp_search_adopt(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_order_problem *problem,
                     struct pp_schedule *schedule);

/* "search: makespan 120 us, bound 115 us, gap 4.3 %; from zb_v; 31.0 M actions evaluated; stopped by effort".
 * `sim`: of the built program, data moving on its own. Where it takes longer than its order, since a channel was
 * full, the line says so; "stopped by proof" is said only where the program itself meets the bound. */
void pp_search_print(struct pp_arena *arena, const struct pp_resolved *resolved, const struct pp_schedule *schedule,
                     const struct pp_sim *sim, FILE *out);

/* The same as an object "search": `value` of the order, `simulated` of the program; `stopped` is of the order, `proven`
 * of the program. */
void pp_search_json(const struct pp_resolved *resolved, const struct pp_schedule *schedule, const struct pp_sim *sim,
                    struct pp_json *json);

/* The objective's figure of the built program, counted as orders are: from the first action on. What a rank does ahead
 * of it (clearing gradients) is of no order. */
uint64_t pp_search_built(const struct pp_resolved *resolved, uint32_t ranks, const struct pp_sim *sim);

#endif
