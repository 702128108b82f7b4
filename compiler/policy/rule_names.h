/* What an expression of a rule can name on one rank: r p v m, the counters F B I W (and F.c of a chunk) and mem, lets
 * of the policy and of its schedule, and whatever the schedule's own scope knows. */
#ifndef PP_RULE_NAMES_H
#define PP_RULE_NAMES_H

#include "list.h"

#include "compiler/eval/eval.h"
#include "compiler/rows.h"

/* Counters as a rule sees them: what a rank has done, with one candidate action as if it were done already. */
struct pp_counters {
	const struct pp_list_rank *rank;
	uint32_t kind, chunk; /* the candidate, or PP_ACTION_KINDS: none */
	uint64_t bytes;       /* held: between actions, or while the candidate runs */
};

static inline int64_t pp_counter_total(const struct pp_counters *counters, uint32_t kind)
{
	return (int64_t)counters->rank->done[kind] + (counters->kind == kind);
}

/* 0 for a chunk that the rank doesn't hold. */
static inline int64_t pp_counter_chunk(const struct pp_counters *counters, uint32_t kind, uint32_t chunk)
{
	if (chunk >= counters->rank->chunks)
		return 0;
	return (int64_t)counters->rank->chunk[chunk][kind] + (counters->kind == kind && counters->chunk == chunk);
}

enum { PP_COUNTER_MEM = PP_ACTION_KINDS, PP_COUNTER_NONE };

/* F B I W: the kind of action; mem; or neither. */
uint32_t pp_counter_named(const char *name);

struct pp_rule_names {
	struct pp_arena *arena;
	const struct pp_rows_input *input;
	const struct pp_stmt **lets; /* of the policy, then of the schedule */
	uint32_t let_count;
	const char *rpvm[4];  /* interned */
	uint32_t most_chunks; /* of a rank */
};

void pp_rule_names_create(struct pp_arena *arena, const struct pp_rows_input *input, const struct pp_stmt *policy,
                          struct pp_rule_names *names);

/* The let that a path means, or let_count. */
uint32_t pp_rule_let(const struct pp_rule_names *names, const struct pp_expr *path);

/* One evaluation by the general evaluator: on a rank, with counters (NULL where none is mentioned). Lets are evaluated
 * at most once. Working memory comes from `arena`; errors go to diag. It must stay where it is. */
struct pp_rule_eval {
	const struct pp_rule_names *names;
	const struct pp_counters *counters;
	struct pp_binding bindings[4];
	struct pp_scope scope;
	struct pp_rule_let *lets; /* [let_count] */
	struct pp_eval eval;
};

void pp_rule_eval_open(struct pp_rule_eval *rule, struct pp_arena *arena, const struct pp_rule_names *names,
                       uint32_t rank, uint32_t chunks, const struct pp_counters *counters, struct pp_diag *diag);

#endif
