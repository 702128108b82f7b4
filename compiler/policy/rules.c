/* Rules: reading them, and choosing by them. */
#include "rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

static bool too_many(struct pp_diag *diag, const struct pp_stmt *stmt)
{
	pp_help(pp_error(diag, "E0623", stmt->span, "this policy has more than %u rules, or lets", (unsigned)PP_RULES_MOST),
	        "a few do; to fix every action write the rows: `order { … }`");
	return false;
}

static bool read_limit(struct pp_rules *rules, const struct pp_stmt *stmt, struct pp_diag *diag)
{
	if (rules->limit_count == PP_RULES_MOST)
		return too_many(diag, stmt);
	struct pp_limit *limit =
	    PP_PUSH(rules->arena, &rules->limits, &rules->limit_count, &rules->limit_capacity, struct pp_limit);
	limit->stmt = stmt;
	const struct pp_expr *value = stmt->value;
	bool compares = value->kind == PP_EXPR_BINARY && value->op >= PP_LT && value->op <= PP_GE;
	return pp_machine_compile(rules->machine, value, diag, &limit->holds) &&
	       pp_machine_compile(rules->machine, stmt->condition, diag, &limit->when) &&
	       (!compares || (pp_machine_compile(rules->machine, value->a, diag, &limit->sides[0]) &&
	                      pp_machine_compile(rules->machine, value->b, diag, &limit->sides[1])));
}

static bool wrong_action(struct pp_diag *diag, const struct pp_action_ast *action, const char *help)
{
	struct pp_message *message =
	    pp_error(diag, "E0631", action->span, "`prefer` names kinds of actions: F, B, I, W, or those of a chunk: F.1");
	pp_help(message, "%s", help);
	return false;
}

static bool read_action(struct pp_rules *rules, const struct pp_rule_names *names, const struct pp_action_ast *action,
                        struct pp_diag *diag, struct pp_alternative *out)
{
	uint32_t kind = action->cell ? PP_COUNTER_NONE : pp_counter_named(action->name);
	if (action->cell || action->index || (strchr("FBIW", action->name[0]) && isdigit((unsigned char)action->name[1])))
		return wrong_action(diag, action,
		                    "the lowest microbatch that is ready is taken; rows name microbatches: `order { … }`");
	if (kind >= PP_ACTION_KINDS)
		return wrong_action(diag, action, "F is the forward, B the backward, I and W its two halves");
	*out = (struct pp_alternative){.action = action, .kind = (uint8_t)kind};
	const struct pp_expr *chunk = action->chunk;
	if (chunk && chunk->kind == PP_EXPR_INT &&
	    (strlen(chunk->number) > 9 || (uint32_t)atol(chunk->number) >= names->most_chunks)) {
		pp_help(pp_error(diag, "E0609", action->span, "`prefer`: there is no chunk %s", chunk->number),
		        "ranks hold %u chunk%s, counted from 0", names->most_chunks, names->most_chunks == 1 ? "" : "s");
		return false;
	}
	return pp_machine_compile(rules->machine, chunk, diag, &out->chunk);
}

static bool read_preference(struct pp_rules *rules, const struct pp_rule_names *names, const struct pp_stmt *stmt,
                            struct pp_diag *diag)
{
	uint32_t count = 0;
	for (const struct pp_action_ast *action = stmt->action; action; action = action->next)
		count++;
	if (rules->preference_count == PP_RULES_MOST || count > PP_RULES_MOST)
		return too_many(diag, stmt);
	struct pp_preference *preference = PP_PUSH(rules->arena, &rules->preferences, &rules->preference_count,
	                                           &rules->preference_capacity, struct pp_preference);
	preference->stmt = stmt;
	preference->alternatives = PP_NEW_ARRAY(rules->arena, struct pp_alternative, count);
	for (const struct pp_action_ast *action = stmt->action; action; action = action->next)
		if (!read_action(rules, names, action, diag, &preference->alternatives[preference->count++]))
			return false;
	return pp_machine_compile(rules->machine, stmt->condition, diag, &preference->when);
}

static bool takes(const struct pp_rules *rules, enum pp_action_kind kind)
{
	for (size_t i = 0; i < rules->preference_count; i++)
		for (uint32_t k = 0; k < rules->preferences[i].count; k++)
			if (rules->preferences[i].alternatives[k].kind == kind)
				return true;
	return false;
}

bool pp_rules_split(const struct pp_rules *rules)
{
	return takes(rules, PP_I);
}

/* E0633: a policy that takes no kind of action that is needed can't finish, whatever its limits say. */
static bool check_kinds(const struct pp_rules *rules, const struct pp_stmt *policy, struct pp_diag *diag)
{
	if (rules->preference_count == 0) {
		pp_help(pp_error(diag, "E0633", policy->name.span, "this policy has no `prefer`: it never takes an action"),
		        "write `prefer B > F`, or with the backward in two halves `prefer I > F > W`");
		return false;
	}
	const struct pp_stmt *last = rules->preferences[rules->preference_count - 1].stmt;
	bool b = takes(rules, PP_B), i = takes(rules, PP_I), w = takes(rules, PP_W);
	const char *missing = !takes(rules, PP_F) ? "F"
	                      : !b && !i          ? "B, or I and W"
	                      : i && !w           ? "W"
	                      : !i && w && !b     ? "I"
	                                          : NULL;
	if (!missing)
		return true;
	struct pp_message *message = pp_error(diag, "E0633", last->span, "no `prefer` of this policy takes %s", missing);
	pp_help(message, "name every kind of action that is needed: F, and B or both I and W");
	return false;
}

bool pp_rules_read(struct pp_arena *arena, const struct pp_rule_names *names, const struct pp_stmt *policy,
                   struct pp_diag *diag, struct pp_rules *rules)
{
	*rules = (struct pp_rules){.arena = arena, .machine = pp_machine_create(arena, names), .diag = diag};
	if (names->let_count > PP_RULES_MOST)
		return too_many(diag, policy);
	for (const struct pp_stmt *stmt = policy->body; stmt; stmt = stmt->next) {
		if (stmt->kind == PP_STMT_LIMIT && !read_limit(rules, stmt, diag))
			return false;
		if (stmt->kind == PP_STMT_PREFER && !read_preference(rules, names, stmt, diag))
			return false;
	}
	return check_kinds(rules, policy, diag) && pp_machine_ready(rules->machine, diag);
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct pp_counters pp_counters_after(const struct pp_list_rank *rank, const struct pp_list_candidate *candidate)
{
	if (!candidate)
		return (struct pp_counters){.rank = rank, .kind = PP_ACTION_KINDS, .bytes = rank->bytes};
	return (struct pp_counters){
	    .rank = rank, .kind = candidate->kind, .chunk = candidate->chunk, .bytes = candidate->peak};
}

static bool limit_holds(struct pp_rules *rules, struct pp_limit *limit, const struct pp_counters *counters)
{
	bool holds = true, when = true;
	if (limit->off)
		return true;
	if (limit->when.expr && !pp_machine_truth(rules->machine, &limit->when, counters, "`when`", rules->diag, &when))
		rules->failed = true;
	if (rules->failed || !when)
		return true;
	bool ok = limit->raised ? pp_machine_raised(rules->machine, limit->sides, limit->stmt->value->op, limit->raised,
	                                            counters, &holds)
	                        : pp_machine_truth(rules->machine, &limit->holds, counters, "`limit`", rules->diag, &holds);
	if (!ok)
		rules->failed = true;
	return holds;
}

/* The limit that does not hold after a candidate, or NULL. */
static struct pp_limit *first_broken(struct pp_rules *rules, const struct pp_list_rank *rank,
                                     const struct pp_list_candidate *candidate)
{
	struct pp_counters after = pp_counters_after(rank, candidate);
	for (size_t i = 0; i < rules->limit_count && !rules->failed; i++)
		if (!limit_holds(rules, &rules->limits[i], &after))
			return &rules->limits[i];
	return NULL;
}

static bool within_room(const struct pp_list_candidate *candidate)
{
	return candidate->over == 0;
}

/* Trial: would this forward be one too many of chunk 0? */
static bool beyond_trial(const struct pp_rules *rules, const struct pp_list_rank *rank,
                         const struct pp_list_candidate *candidate)
{
	if (rules->most_of_chunk == 0 || candidate->kind != PP_F || candidate->chunk != 0)
		return false;
	const uint32_t *done = rank->chunk[0];
	return done[PP_F] + 1 - done[PP_B] - done[PP_W] > rules->most_of_chunk;
}

static bool permitted(struct pp_rules *rules, const struct pp_list_rank *rank,
                      const struct pp_list_candidate *candidate)
{
	if (!within_room(candidate) || beyond_trial(rules, rank, candidate))
		return false;
	struct pp_limit *broken = first_broken(rules, rank, candidate);
	if (broken)
		broken->held++;
	return !broken && !rules->failed;
}

/* Which chunk an action means here; PP_LIST_WAIT: any. */
static uint32_t chunk_of(struct pp_rules *rules, const struct pp_alternative *alternative,
                         const struct pp_list_rank *rank)
{
	struct pp_counters now = pp_counters_after(rank, NULL);
	int64_t chunk;
	if (!alternative->chunk.expr)
		return PP_LIST_WAIT;
	if (!pp_machine_whole(rules->machine, &alternative->chunk, &now, "chunk", rules->diag, &chunk)) {
		rules->failed = true;
		return 0;
	}
	return chunk >= 0 && chunk < rank->chunks ? (uint32_t)chunk : rank->chunks;
}

/* Does candidate a come before b among those that one action means? */
static bool goes_first(const struct pp_list_candidate *a, const struct pp_list_candidate *b)
{
	return a->mb != b->mb ? a->mb < b->mb : a->chunk < b->chunk;
}

/* The next of the candidates that an action means, after `last` (NULL: the first). */
static const struct pp_list_candidate *next_meant(const struct pp_list_candidate *ready, uint32_t count, uint32_t kind,
                                                  uint32_t chunk, const struct pp_list_candidate *last)
{
	const struct pp_list_candidate *best = NULL;
	for (uint32_t i = 0; i < count; i++) {
		const struct pp_list_candidate *at = &ready[i];
		if (at->kind != kind || (chunk != PP_LIST_WAIT && at->chunk != chunk) || (last && !goes_first(last, at)))
			continue;
		if (!best || goes_first(at, best))
			best = at;
	}
	return best;
}

static void note_tie(struct pp_alternative *alternative, uint64_t now, const struct pp_list_rank *rank,
                     const struct pp_list_candidate *chosen)
{
	if (alternative->ties++ > 0)
		return;
	alternative->tie_time = now;
	alternative->tie_rank = rank->rank;
	alternative->tie_mb = chosen->mb;
	alternative->tie_chunk = chosen->chunk;
}

static const struct pp_list_candidate *try_action(struct pp_rules *rules, struct pp_alternative *alternative,
                                                  uint64_t now, const struct pp_list_rank *rank,
                                                  const struct pp_list_candidate *ready, uint32_t count)
{
	uint32_t chunk = chunk_of(rules, alternative, rank);
	const struct pp_list_candidate *at =
	    rules->failed ? NULL : next_meant(ready, count, alternative->kind, chunk, NULL);
	while (at && !rules->failed && !permitted(rules, rank, at))
		at = next_meant(ready, count, alternative->kind, chunk, at);
	if (!at || rules->failed)
		return NULL;
	if (next_meant(ready, count, alternative->kind, chunk, at))
		note_tie(alternative, now, rank, at);
	alternative->taken++;
	return at;
}

/* The prefer line that counts now, or NULL. */
static struct pp_preference *preference_now(struct pp_rules *rules, const struct pp_list_rank *rank)
{
	struct pp_counters now = pp_counters_after(rank, NULL);
	for (size_t i = 0; i < rules->preference_count; i++) {
		struct pp_preference *preference = &rules->preferences[i];
		bool when = true;
		if (preference->when.expr &&
		    !pp_machine_truth(rules->machine, &preference->when, &now, "`when`", rules->diag, &when)) {
			rules->failed = true;
			return NULL;
		}
		if (when)
			return preference;
	}
	return NULL;
}

uint32_t pp_rules_choose(void *context, uint64_t now, const struct pp_list_rank *rank,
                         const struct pp_list_candidate *ready, uint32_t count)
{
	struct pp_rules *rules = context;
	struct pp_preference *preference = preference_now(rules, rank);
	if (preference)
		preference->chosen++;
	for (uint32_t i = 0; preference && i < preference->count && !rules->failed; i++) {
		const struct pp_list_candidate *taken =
		    try_action(rules, &preference->alternatives[i], now, rank, ready, count);
		if (taken)
			return (uint32_t)(taken - ready);
	}
	struct pp_alternative weights = {.kind = PP_W};
	const struct pp_list_candidate *last = preference && rules->weights_last && !rules->failed
	                                           ? try_action(rules, &weights, now, rank, ready, count)
	                                           : NULL;
	if (last)
		return (uint32_t)(last - ready);
	return rules->failed ? PP_LIST_STOP : PP_LIST_WAIT;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

bool pp_rules_blame(struct pp_rules *rules, const struct pp_list_rank *rank, const struct pp_list_candidate *candidate,
                    struct pp_limit **limit, const struct pp_preference **turn, bool *unlisted)
{
	const struct pp_preference *preference = preference_now(rules, rank);
	bool listed = false;
	for (uint32_t i = 0; preference && i < preference->count; i++) {
		uint32_t chunk = chunk_of(rules, &preference->alternatives[i], rank);
		listed |=
		    preference->alternatives[i].kind == candidate->kind && (chunk == PP_LIST_WAIT || chunk == candidate->chunk);
	}
	*turn = preference;
	*unlisted = !listed;
	*limit = NULL;
	if (!listed || !within_room(candidate))
		return true;
	*limit = first_broken(rules, rank, candidate);
	return *limit != NULL;
}
