/* The rules of a policy as the chooser of the list scheduler.
 *
 * When a rank is free, the first `prefer` line whose `when` holds counts. Its actions are tried in turn; of several
 * chunks that an action can mean, that of the lowest microbatch first, then the lowest chunk. The first one is taken
 * that is ready, within the room of the rank, and after which every limit holds. */
#ifndef PP_POLICY_RULES_H
#define PP_POLICY_RULES_H

#include "expression.h"

enum { PP_RULES_MOST = 1024 /* limits, prefer lines, and actions in all lines */ };

struct pp_limit {
	const struct pp_stmt *stmt;
	struct pp_compiled holds, when;
	struct pp_compiled sides[2]; /* of a comparison, else without expr */
	uint64_t held;               /* how often it held something back */
	int64_t raised;              /* trial: the larger side is so much larger */
	bool off;                    /* trial: does not count */
};

struct pp_alternative {
	const struct pp_action_ast *action;
	uint8_t kind;
	struct pp_compiled chunk; /* without expr: any */
	uint64_t taken;
	uint64_t ties;                        /* several chunks were ready: so often the rule of ties chose */
	uint32_t tie_rank, tie_mb, tie_chunk; /* the first time, what was chosen */
	uint64_t tie_time;
};

struct pp_preference {
	const struct pp_stmt *stmt;
	struct pp_compiled when;
	struct pp_alternative *alternatives;
	uint32_t count;
	uint64_t chosen; /* how often its `when` was the first that holds */
};

struct pp_rules {
	struct pp_arena *arena;
	struct pp_machine *machine;
	struct pp_limit *limits;
	size_t limit_count, limit_capacity;
	struct pp_preference *preferences;
	size_t preference_count, preference_capacity;
	struct pp_diag *diag; /* where the evaluation of a rule reports */
	/* Trial: besides, most forwards of chunk 0 whose W (or B, where no I is taken) has not ended; 0: none. */
	uint32_t most_of_chunk;
	bool weights_last; /* trial: where a `prefer` takes nothing, W as if it stood at its end */
	bool failed;
};

/* Read and compile the rules of the `policy` block. False: E0631, E0633, E0609 or E0623 was reported. */
bool pp_rules_read(struct pp_arena *arena, const struct pp_rule_names *names, const struct pp_stmt *policy,
                   struct pp_diag *diag, struct pp_rules *rules);

/* The chooser; its context is the pp_rules. */
uint32_t pp_rules_choose(void *context, uint64_t now, const struct pp_list_rank *rank,
                         const struct pp_list_candidate *ready, uint32_t count);

/* What holds a ready action back: a limit, or the room (*limit NULL), or that the prefer line whose turn it is, *turn,
 * does not take it (*unlisted; *turn NULL: no line's `when` holds). False: nothing does. */
bool pp_rules_blame(struct pp_rules *rules, const struct pp_list_rank *rank, const struct pp_list_candidate *candidate,
                    struct pp_limit **limit, const struct pp_preference **turn, bool *unlisted);

/* Counters as they would be after a candidate, or now (NULL). */
struct pp_counters pp_counters_after(const struct pp_list_rank *rank, const struct pp_list_candidate *candidate);

/* Does the policy take weight gradients on their own? */
bool pp_rules_split(const struct pp_rules *rules);

#endif
